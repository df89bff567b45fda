//! The body of a request, within the size limit of chat programs.

use std::{future::Future, pin::Pin};

use actix_web::{FromRequest, HttpRequest, dev::Payload};

use super::parse_body::ParseBody;
use crate::{errors::Problem, extract};

/// The body of a request, parsed.
pub struct ChatBody<R>(pub R);

impl<R: ParseBody> FromRequest for ChatBody<R> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = payload.take();
        Box::pin(async move {
            let state = extract::app_state(&request)?;
            let raw = extract::json_body(&request, payload, state.chat.max_body_bytes).await?;
            R::parse_body(&raw).map(Self)
        })
    }
}
