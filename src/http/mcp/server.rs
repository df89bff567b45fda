//! The server of the protocol: what it offers, and the answers to its messages.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, Implementation,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use super::{
    arguments::{build_request, refusal, result_of},
    errors::error_of,
    operations::OperationClient,
    resources, reviews,
    tools::{all_tools, find_tool},
};
use crate::errors::Problem;
use colloquy_core::scope::Role;

/// How long a client may keep lists that only change with the server, in ms.
const LIST_TTL_MS: u64 = 300_000;

/// What an agent should know before its first call.
const INSTRUCTIONS: &str = "Colloquy holds conversations of NPCs and remembers them. Worlds have NPCs (personas), \
    lore, scenarios (memories that unlock) and directives. Facts are what an NPC has learned. Each tool is an operation \
    of the REST API, with the rights of your token. Lists have `next`: pass it as `after` for the next page. Objects \
    have a `version`: pass it as `if_match` of a change, so that nobody's work is lost. `dry_run` checks a change and \
    stores nothing. `explain_reply` shows why an NPC said something. Before a rewind or the restore of a save, ask the \
    person you work for.";

/// Who sent a message, and the operations with the token of the message.
#[derive(Clone)]
pub struct Caller {
    pub role: Role,
    pub operations: OperationClient,
}

/// The server. It has no state: each message brings its caller.
#[derive(Debug, Clone, Copy)]
pub struct McpServer;

fn caller_of(context: &RequestContext<RoleServer>) -> Result<&Caller, ErrorData> {
    context
        .extensions
        .get::<http::request::Parts>()
        .and_then(|parts| parts.extensions.get::<Caller>())
        .ok_or_else(|| error_of(&Problem::internal_error(&"a message of /mcp has no caller")))
}

/// How long the client may keep a list that only changes with the server; `None`: its revision has no such hint. Other
/// results are not kept, and all of them are the client's own, which `rmcp` says by default.
fn list_ttl(context: &RequestContext<RoleServer>) -> Option<u64> {
    let revision = context.protocol_version()?;
    (revision.as_str() >= ProtocolVersion::V_2026_07_28.as_str()).then_some(LIST_TTL_MS)
}

/// Refuses a cursor of a list that has one page.
fn only_page(page: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match page.and_then(|page| page.cursor) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("the list has one page", None)),
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .build();
        let server = Implementation::new("colloquy", env!("CARGO_PKG_VERSION")).with_title("Colloquy");
        ServerConfig::new(capabilities)
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        find_tool(name).map(|operation| operation.tool.clone())
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        only_page(page)?;
        let role = caller_of(&context)?.role;
        let admitted = all_tools().iter().filter(|tool| tool.admits(role));
        let tools = admitted.map(|tool| tool.tool.clone()).collect();
        let mut listed = ListToolsResult::with_all_items(tools);
        listed.ttl_ms = list_ttl(&context);
        Ok(listed)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = find_tool(&call.name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {}", call.name),
                None,
            ));
        };
        let request = match build_request(tool, call.arguments.unwrap_or_default()) {
            Ok(request) => request,
            Err(problem) => return Ok(refusal(&problem).into()),
        };
        let result = match caller_of(&context)?.operations.call(request).await {
            Ok(answer) => result_of(answer),
            Err(problem) => refusal(&problem),
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = page.and_then(|page| page.cursor);
        resources::list_resources(&caller_of(&context)?.operations, cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        only_page(page)?;
        let mut listed = ListResourceTemplatesResult::with_all_items(resources::templates());
        listed.ttl_ms = list_ttl(&context);
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = resources::read_resource(&caller_of(&context)?.operations, &request.uri).await?;
        Ok(contents.into())
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        only_page(page)?;
        let mut listed = ListPromptsResult::with_all_items(reviews::prompts());
        listed.ttl_ms = list_ttl(&context);
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        Ok(reviews::build_prompt(&request.name, &arguments)?.into())
    }
}
