//! The API documents and the page that shows them: `/openapi.json`, `/asyncapi.json`, `/docs`.

use actix_web::{
    HttpResponse, get, guard,
    http::header,
    web::{self, ServiceConfig},
};
use serde_json::Value;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::{
    AppState,
    errors::{Code, Problem},
};

/// The OpenAPI 3.1 document of the REST resources.
#[must_use]
pub fn openapi_document() -> &'static Value {
    super::openapi::document()
}

/// The AsyncAPI 3.0 document of the socket.
#[must_use]
pub fn asyncapi_document() -> &'static Value {
    super::asyncapi::document()
}

/// Registers the routes of the documents. With `http.docs` off, the routes answer 404.
pub(super) fn configure(cfg: &mut ServiceConfig) {
    cfg.service(serve_openapi)
        .service(serve_asyncapi)
        .service(redirect_to_docs_page)
        .service(redirect_root_to_docs)
        .service(no_favicon)
        .service(
            web::scope("/docs")
                .guard(guard::fn_guard(|context| {
                    context
                        .app_data::<web::Data<AppState>>()
                        .is_some_and(|state| state.settings.docs)
                }))
                .service(SwaggerUi::new("/{_:.*}").config(Config::from("/openapi.json"))),
        );
}

#[get("/openapi.json")]
async fn serve_openapi(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    serve_document(&state, openapi_document())
}

#[get("/asyncapi.json")]
async fn serve_asyncapi(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    serve_document(&state, asyncapi_document())
}

fn serve_document(state: &AppState, document: &Value) -> Result<HttpResponse, Problem> {
    require_docs(state)?;
    Ok(HttpResponse::Ok().json(document))
}

/// Answers 404 if the server serves no documents.
pub(super) fn require_docs(state: &AppState) -> Result<(), Problem> {
    if state.settings.docs {
        Ok(())
    } else {
        Err(Problem::not_found("document"))
    }
}

/// Sends browsers that open the server's address to `/docs`.
#[get("/")]
async fn redirect_root_to_docs(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    if !state.settings.docs {
        return Err(Problem::new(Code::NotFound, "there is nothing at /"));
    }
    Ok(HttpResponse::TemporaryRedirect()
        .insert_header((header::LOCATION, "/docs/"))
        .finish())
}

/// Browsers request an icon. The server has no icon, but logs no error.
#[get("/favicon.ico")]
async fn no_favicon() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

#[get("/docs")]
async fn redirect_to_docs_page(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    require_docs(&state)?;
    Ok(HttpResponse::PermanentRedirect()
        .insert_header((header::LOCATION, "/docs/"))
        .finish())
}
