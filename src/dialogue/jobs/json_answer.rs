//! Questions to a model whose answer is JSON.

use serde::de::DeserializeOwned;

use super::outcome::JobError;
use crate::{
    Services,
    models::{ModelRequest, parse_json_answer},
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::llm::{ChatMessage, ChatRole, JsonSchema, Task};

/// Asks for JSON that fits `T`, with one retry if the answer does not fit. Also returns the answering model.
pub(crate) async fn ask_json<T: DeserializeOwned>(
    services: &Services,
    scope: &TenantScope,
    task: Task,
    prompt: String,
    schema: JsonSchema,
) -> Result<(T, String), JobError> {
    ask_json_or_salvage(services, scope, task, prompt, schema, |_| None).await
}

/// Works like [`ask_json`]. If the second answer does not fit either, `salvage` takes the usable part.
pub(crate) async fn ask_json_or_salvage<T: DeserializeOwned>(
    services: &Services,
    scope: &TenantScope,
    task: Task,
    prompt: String,
    schema: JsonSchema,
    salvage: impl Fn(&str) -> Option<T>,
) -> Result<(T, String), JobError> {
    let mut request = ModelRequest {
        task,
        messages: vec![ChatMessage::new(ChatRole::User, prompt)],
        json_schema: Some(schema),
        model: services.named_model(task),
        more_room: false,
        client: None,
    };
    let mut fault = String::new();
    for last in [false, true] {
        let (answer, _) = services.models.request_completion(scope, request.clone()).await;
        let answer = answer?;
        match parse_json_answer(&answer.text) {
            Ok(value) => return Ok((value, answer.model)),
            Err(new_fault) => {
                if let Some(value) = salvage(&answer.text).filter(|_| last) {
                    tracing::warn!(task = task.as_str(), why = %new_fault, "an answer was used as far as it went");
                    return Ok((value, answer.model));
                }
                fault = new_fault;
                request.more_room = answer.at_cap;
            }
        }
    }
    Err(JobError::Unusable(fault))
}
