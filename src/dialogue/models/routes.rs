//! Model selection: per task a chain of routes, tried in order.

use std::{sync::Arc, time::Duration};

use super::gate::CallCapacity;
use colloquy_ports::llm::{ChatMessage, JsonSchema, Llm, LlmRequest, Task};

/// Defaults of a task's routes for settings that are not configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskDefaults {
    pub max_output_tokens: u32,
    pub timeout: Duration,
    /// 0–2. Zero for tasks whose answer is parsed.
    pub temperature: f32,
}

impl TaskDefaults {
    /// Returns the defaults of `task`:
    ///
    /// | task | output tokens | timeout | temperature |
    /// | --- | --- | --- | --- |
    /// | reply | 400 | 60 s | 0.7 |
    /// | intent | 20 | 2 s | 0 |
    /// | extraction | 2,000 | 30 s | 0 |
    /// | judge | 400 | 15 s | 0 |
    /// | summary | 700 | 30 s | 0.2 |
    /// | curation | 1,500 | 60 s | 0.2 |
    #[must_use]
    pub const fn for_task(task: Task) -> Self {
        let (max_output_tokens, timeout_s, temperature) = match task {
            Task::Reply => (400, 60, 0.7),
            Task::Intent => (20, 2, 0.0),
            Task::Extraction => (2_000, 30, 0.0),
            // The answer is JSON with a verdict for each pair.
            Task::Judge => (400, 15, 0.0),
            Task::Summary => (700, 30, 0.2),
            // Ten findings of two sentences as JSON, and edits.
            Task::Curation => (1_800, 60, 0.2),
        };
        Self {
            max_output_tokens,
            timeout: Duration::from_secs(timeout_s),
            temperature,
        }
    }
}

/// A model for a task.
#[derive(Clone)]
pub struct Route {
    pub llm: Arc<dyn Llm>,
    /// Replaces the adapter's own model.
    pub model: Option<String>,
    /// The time limit for all attempts and pauses on this route together. Within a stream, the limit applies to the
    /// wait for each further chunk.
    pub timeout: Duration,
    pub max_output_tokens: u32,
    /// Sampling temperature, 0–2.
    pub temperature: f32,
    /// The capacity of the endpoint, shared by all its routes. `None`: unlimited.
    pub capacity: Option<CallCapacity>,
}

impl Route {
    /// Creates a route to `llm` with its own model and the defaults of `task`.
    #[must_use]
    pub fn new(task: Task, llm: Arc<dyn Llm>) -> Self {
        let defaults = TaskDefaults::for_task(task);
        Self {
            llm,
            model: None,
            timeout: defaults.timeout,
            max_output_tokens: defaults.max_output_tokens,
            temperature: defaults.temperature,
            capacity: None,
        }
    }

    /// Returns the route's model, or `requested_model` if an NPC names a model.
    pub(super) fn model_name<'a>(&'a self, requested_model: Option<&'a str>) -> &'a str {
        requested_model
            .or(self.model.as_deref())
            .unwrap_or_else(|| self.llm.model())
    }
    /// Builds the request from `messages`, without the model.
    pub(super) fn build_request(
        &self,
        task: Task,
        messages: Vec<ChatMessage>,
        json_schema: Option<JsonSchema>,
    ) -> LlmRequest {
        LlmRequest {
            task,
            model: None,
            messages,
            max_output_tokens: self.max_output_tokens,
            temperature: self.temperature,
            json_schema,
            client: None,
            timeout: self.timeout,
        }
    }
    /// Sets the model, limits and temperature of this route in `request`.
    pub(super) fn fill_request(&self, request: &mut LlmRequest, requested_model: Option<&str>) {
        request.model = requested_model.map(str::to_owned).or_else(|| self.model.clone());
        let client = request.client.as_ref();
        let wanted_cap = client
            .and_then(|client| client.max_output_tokens)
            .unwrap_or(self.max_output_tokens);
        let may_exceed = client.is_some_and(|client| client.may_exceed_cap);
        request.max_output_tokens = if may_exceed {
            wanted_cap
        } else {
            wanted_cap.min(self.max_output_tokens)
        };
        request.temperature = self.temperature;
        request.timeout = self.timeout;
    }
}

/// A chain of at least one route for every task.
#[derive(Clone)]
pub struct RouteTable {
    /// The chains, indexed by [`task_slot`].
    chains: [Vec<Route>; Task::ALL.len()],
}

impl RouteTable {
    /// Creates a table with one model for all tasks, with each task's defaults.
    #[must_use]
    pub fn with_single_model(llm: &Arc<dyn Llm>) -> Self {
        Self {
            chains: Task::ALL.map(|task| vec![Route::new(task, llm.clone())]),
        }
    }
    /// Replaces the chain of `task`: `first`, then `fallbacks` in order.
    #[must_use]
    pub fn with_chain(mut self, task: Task, first: Route, fallbacks: Vec<Route>) -> Self {
        let mut chain = vec![first];
        chain.extend(fallbacks);
        self.chains[task_slot(task)] = chain;
        self
    }
    /// Returns the chain of `task`. Never empty.
    #[must_use]
    pub fn chain_for(&self, task: Task) -> &[Route] {
        &self.chains[task_slot(task)]
    }
}

/// Returns the position of `task` in [`Task::ALL`].
pub(super) const fn task_slot(task: Task) -> usize {
    match task {
        Task::Reply => 0,
        Task::Intent => 1,
        Task::Extraction => 2,
        Task::Judge => 3,
        Task::Summary => 4,
        Task::Curation => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_separate_slots() {
        for (place, task) in Task::ALL.into_iter().enumerate() {
            assert_eq!(task_slot(task), place, "{}", task.as_str());
        }
    }
}
