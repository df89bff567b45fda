//! The REST resources and the socket's entry point.
//!
//! Owns the wire: routes by resource, DTOs, problem responses, the messages of the socket and the
//! two documents that describe them. Decides nothing about dialogues; that is `actors` and below.

pub mod metrics;
pub mod settings;
pub mod state;

pub use settings::HttpSettings;
pub use state::{AppState, Readiness};

use actix_web::web::ServiceConfig;

/// Every route with its middleware. The application must carry a `web::Data<AppState>`:
/// `App::new().app_data(state).configure(http::configure)`.
pub fn configure(cfg: &mut ServiceConfig) {
    let _ = cfg;
}
