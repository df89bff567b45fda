//! Model routes: per task a chain of models with its own timeout and output cap; retries with
//! jitter before the first token only; a circuit breaker per model; usage accounting.

use futures_util::stream::BoxStream;

use crate::{
    memory::trace::CallTrace,
    ports::llm::{ChatMessage, Chunk, Completion, JsonSchema, LlmError, LlmRequest, Task},
    tenancy::TenantScope,
};

/// A call before its route fills in model, timeout and output cap.
#[derive(Debug, Clone)]
pub struct Ask {
    pub task: Task,
    pub messages: Vec<ChatMessage>,
    pub json_schema: Option<JsonSchema>,
    /// Replaces the route's first model, for an NPC that names one.
    pub model: Option<String>,
}

/// The model routes of this server.
pub struct Models {}

impl Models {
    /// Asks for a whole answer. The trace is there for failures too.
    pub async fn complete(&self, scope: &TenantScope, ask: Ask) -> (Result<Completion, LlmError>, CallTrace) {
        let _ = (scope, ask);
        todo!()
    }
    /// Opens a stream. `CallTrace` covers up to the first chunk; usage arrives as the last chunk.
    pub async fn stream(
        &self,
        scope: &TenantScope,
        ask: Ask,
    ) -> (Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError>, CallTrace) {
        let _ = (scope, ask, std::marker::PhantomData::<LlmRequest>);
        todo!()
    }
    /// Usage since the last call of this, to be written to the ledger.
    pub fn take_usage(&self) -> Vec<(TenantScope, crate::ports::ledger::usage::UsageDelta)> {
        todo!()
    }
    /// Whether the reply route ends in the scripted model only.
    pub fn is_offline(&self) -> bool {
        todo!()
    }
}
