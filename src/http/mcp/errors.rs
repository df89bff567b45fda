//! Errors of the protocol of agents.

use actix_http::StatusCode;
use rmcp::ErrorData;

use super::{arguments::problem_value, operations::OperationAnswer};
use crate::errors::Problem;

/// A refusal as an error of the protocol, with the problem document.
pub fn error_of(problem: &Problem) -> ErrorData {
    document_error(problem.code.status(), problem.detail.clone(), problem_value(problem))
}

/// The refusal of an operation as an error of the protocol.
pub fn refused_error(answer: OperationAnswer) -> ErrorData {
    let detail = answer.body["detail"].as_str().unwrap_or_default().to_owned();
    document_error(answer.status, detail, answer.body)
}

fn document_error(status: StatusCode, detail: String, document: serde_json::Value) -> ErrorData {
    let document = Some(document);
    match status {
        StatusCode::NOT_FOUND => ErrorData::resource_not_found(detail, document),
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => ErrorData::invalid_params(detail, document),
        status if status.is_client_error() => ErrorData::invalid_request(detail, document),
        _ => ErrorData::internal_error(detail, document),
    }
}
