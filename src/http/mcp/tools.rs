//! The tools: which operation of REST each of them calls. An operation gives its tool the description, the arguments
//! and the roles; this table adds a name, and what a call does to stored data.

use std::{collections::HashMap, sync::LazyLock};

use actix_http::Method;
use rmcp::model::{Tool, ToolAnnotations};
use serde::Deserialize as _;
use serde_json::Value;

use super::schemas::{Parameter, input_schema, parameters_of};
use crate::openapi;
use colloquy_core::scope::Role;

/// What a call that may write does to stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Effect {
    /// Replaces, ends or takes back something that is stored.
    destructive: bool,
    /// A repeated call with the same arguments changes nothing more.
    idempotent: bool,
}

/// For operations that read (GET), which change nothing.
const READS: Effect = Effect {
    destructive: false,
    idempotent: true,
};
const ADDS: Effect = Effect {
    destructive: false,
    idempotent: false,
};
const SETS: Effect = Effect {
    destructive: true,
    idempotent: true,
};
const CHANGES: Effect = Effect {
    destructive: true,
    idempotent: false,
};
/// Adds what is missing, and nothing twice.
const COMPLETES: Effect = Effect {
    destructive: false,
    idempotent: true,
};
/// Stores nothing but its cost: a model may be called.
const SPENDS: Effect = Effect {
    destructive: false,
    idempotent: true,
};

/// The name of each tool, the `operationId` of its operation, and its effect.
const TABLE: &[(&str, &str, Effect)] = &[
    ("list_worlds", "list_worlds", READS),
    ("get_world", "get_world", READS),
    ("put_world", "put_world", SETS),
    ("list_npcs", "list_npcs", READS),
    ("get_npc", "get_npc", READS),
    ("put_npc", "put_npc", SETS),
    ("delete_npc", "delete_npc", SETS),
    ("adopt_npc", "adopt_npc", COMPLETES),
    ("list_lore", "list_lore", READS),
    ("get_lore", "get_lore", READS),
    ("get_lore_history", "lore_history", READS),
    ("put_lore", "put_lore", SETS),
    ("delete_lore", "delete_lore", SETS),
    ("list_scenarios", "list_scenarios", READS),
    ("get_scenario", "get_scenario", READS),
    ("put_scenario", "put_scenario", SETS),
    ("delete_scenario", "delete_scenario", SETS),
    ("list_directives", "list_directives", READS),
    ("get_directive", "get_directive", READS),
    ("put_directive", "put_directive", SETS),
    ("delete_directive", "delete_directive", SETS),
    ("search_facts", "list_facts", READS),
    ("get_fact", "get_fact", READS),
    ("get_fact_history", "fact_history", READS),
    ("create_fact", "create_fact", ADDS),
    ("edit_fact", "edit_fact", CHANGES),
    ("remove_fact", "remove_fact", SETS),
    ("restore_fact", "restore_fact", SETS),
    ("list_episodes", "list_episodes", READS),
    ("list_insights", "list_insights", READS),
    ("list_sessions", "list_sessions", READS),
    ("get_session", "get_session", READS),
    ("create_session", "create_session", ADDS),
    ("close_session", "delete_session", SETS),
    ("say_line", "create_turn", ADDS),
    ("read_transcript", "list_turns", READS),
    ("list_summaries", "list_summaries", READS),
    ("get_learning_progress", "get_learning", READS),
    ("explain_reply", "get_trace", READS),
    ("preview_prompt", "preview_context", SPENDS),
    ("rewind_session", "rewind_session", CHANGES),
    ("list_npc_conversations", "list_conversations", READS),
    ("read_npc_conversation", "list_lines", READS),
    ("explain_npc_line", "get_line_trace", READS),
    ("get_world_state", "get_world_state", READS),
    ("record_world_events", "record_world_events", CHANGES),
    ("get_progress", "get_progress", READS),
    ("put_progress", "put_progress", SETS),
    ("list_saves", "list_saves", READS),
    ("get_save", "get_save", READS),
    ("create_save", "create_save", ADDS),
    ("restore_save", "restore_save", CHANGES),
    ("delete_save", "delete_save", SETS),
    ("list_flags", "list_flags", READS),
    ("decide_flag", "decide_flag", SETS),
    ("list_findings", "list_findings", READS),
    ("decide_finding", "decide_finding", SETS),
    ("list_curation_passes", "list_curation_passes", READS),
    ("run_curation", "run_curation", ADDS),
    ("get_npc_settings", "get_npc_settings", READS),
    ("get_world_settings", "get_world_settings", READS),
    ("get_usage", "get_usage", READS),
    ("get_usage_of_worlds", "get_usage_of_worlds", READS),
    ("get_usage_of_npcs", "get_usage_of_npcs", READS),
];

/// A tool, and the operation that it calls.
#[derive(Debug)]
pub struct OperationTool {
    pub tool: Tool,
    pub method: Method,
    /// The path with parameters in braces.
    pub path: &'static str,
    pub parameters: Vec<Parameter>,
    /// `Some(true)`: the operation needs a body; `Some(false)`: the body may be omitted.
    pub body: Option<bool>,
    roles: Vec<Role>,
}

impl OperationTool {
    /// True if the operation admits the role. The operation decides again when it is called.
    pub fn admits(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

static TOOLS: LazyLock<Vec<OperationTool>> = LazyLock::new(build_tools);
static BY_NAME: LazyLock<HashMap<&'static str, &'static OperationTool>> =
    LazyLock::new(|| TOOLS.iter().map(|tool| (&*tool.tool.name, tool)).collect());

/// All tools, in the order of the table.
pub fn all_tools() -> &'static [OperationTool] {
    &TOOLS
}

/// The tool with this name.
pub fn find_tool(name: &str) -> Option<&'static OperationTool> {
    BY_NAME.get(name).copied()
}

/// A path of the document, a method, and the operation.
type DocumentedOperation = (&'static str, &'static str, &'static Value);

fn documented_operations() -> HashMap<&'static str, DocumentedOperation> {
    let paths = openapi::document()["paths"].as_object().into_iter().flatten();
    paths
        .flat_map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten();
            operations.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .filter_map(|(path, method, operation)| Some((operation["operationId"].as_str()?, (path, method, operation))))
        .collect()
}

/// Builds the tools. A row without an operation would be a defect, which a test finds.
fn build_tools() -> Vec<OperationTool> {
    let documented = documented_operations();
    TABLE
        .iter()
        .filter_map(|(name, id, effect)| Some(build_tool(name, *documented.get(id)?, *effect)))
        .collect()
}

fn build_tool(name: &'static str, documented: DocumentedOperation, effect: Effect) -> OperationTool {
    let (path, method, operation) = documented;
    let method: Method = method.to_uppercase().parse().unwrap_or(Method::GET);
    let parameters = parameters_of(operation);
    let summary = operation["summary"].as_str().unwrap_or_default();
    let description = operation["description"].as_str().unwrap_or_default();
    let annotations = ToolAnnotations::default()
        .read_only(method == Method::GET)
        .destructive(effect.destructive)
        .idempotent(effect.idempotent)
        // A call reaches this server alone.
        .open_world(false);
    let tool = Tool::new(
        name,
        format!("{summary}\n\n{description}"),
        input_schema(operation, &parameters),
    )
    .with_annotations(annotations);
    let body = &operation["requestBody"];
    OperationTool {
        tool,
        method,
        path,
        parameters,
        body: body.is_object().then(|| body["required"] != false),
        roles: Vec::deserialize(&operation["x-roles"]).unwrap_or_default(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_operation_and_a_name_of_its_own() {
        assert_eq!(all_tools().len(), TABLE.len());
        for (row, built) in TABLE.iter().zip(all_tools()) {
            assert_eq!(row.0, built.tool.name);
            let operation = find_tool(row.0).unwrap();
            assert_eq!(operation.tool.name, built.tool.name, "the name is taken twice");
            assert!(!operation.roles.is_empty(), "{}", row.0);
        }
    }

    #[test]
    fn hints_follow_from_the_method() {
        for ((name, _, effect), built) in TABLE.iter().zip(all_tools()) {
            let hints = built.tool.annotations.as_ref().unwrap();
            let reads = built.method == Method::GET;
            assert_eq!(hints.read_only_hint, Some(reads), "{name}");
            assert!(!reads || *effect == READS, "{name}");
            assert_eq!(hints.destructive_hint, Some(effect.destructive), "{name}");
            assert_eq!(hints.open_world_hint, Some(false), "{name}");
            let replaces = matches!(built.method, Method::PUT | Method::DELETE | Method::PATCH);
            assert!(!replaces || effect.destructive, "{name}");
            let repeats_safely = matches!(built.method, Method::GET | Method::PUT | Method::DELETE);
            assert!(!repeats_safely || effect.idempotent, "{name}");
        }
    }

    #[test]
    fn input_schemas_are_closed_and_valid() {
        for built in all_tools() {
            let schema = built.tool.schema_as_json_value();
            let name = &built.tool.name;
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            assert!(!schema.to_string().contains("#/components/"), "{name}");
            jsonschema::draft202012::new(&schema).unwrap();
            let placeholders = built.path.matches('{').count();
            let of_path = built
                .parameters
                .iter()
                .filter(|parameter| parameter.place == super::super::schemas::Place::Path);
            assert_eq!(of_path.count(), placeholders, "{name}");
        }
    }

    #[test]
    fn tools_admit_the_roles_of_their_operations() {
        let admits = |name: &str, role| find_tool(name).unwrap().admits(role);
        assert!(admits("get_lore", Role::Viewer) && !admits("put_lore", Role::Viewer));
        assert!(admits("say_line", Role::Player) && !admits("search_facts", Role::Player));
        assert!(all_tools().iter().all(|tool| !tool.admits(Role::Operator)));
        let of_viewers = all_tools().iter().filter(|tool| tool.admits(Role::Viewer));
        assert!(of_viewers.into_iter().all(|tool| tool.method == Method::GET));
    }
}
