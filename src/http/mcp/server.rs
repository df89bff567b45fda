//! The server of the protocol: what it offers, and the answers to its messages.

use actix_http::StatusCode;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, Implementation,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

#[cfg(feature = "mcp-fixtures")]
use super::fixtures;
use super::{
    arguments::{build_request, problem_value, refusal, result_of},
    operations::{OperationAnswer, OperationClient},
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
        #[cfg(feature = "mcp-fixtures")]
        let capabilities = fixtures::with_capabilities(capabilities);
        let server = Implementation::new("colloquy", env!("CARGO_PKG_VERSION")).with_title("Colloquy");
        ServerConfig::new(capabilities)
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        #[cfg(feature = "mcp-fixtures")]
        if let Some(fixture) = fixtures::tools().iter().find(|tool| tool.name == name) {
            return Some(fixture.clone());
        }
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
        let tools = admitted.map(|tool| tool.tool.clone());
        #[cfg(feature = "mcp-fixtures")]
        let tools = tools.chain(fixtures::tools().iter().cloned());
        let tools = tools.collect();
        let mut listed = ListToolsResult::with_all_items(tools);
        listed.ttl_ms = list_ttl(&context);
        Ok(listed)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        #[cfg(feature = "mcp-fixtures")]
        if let Some(answer) = fixtures::call_tool(&call, &context).await {
            return answer;
        }
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
        let listed = resources::list_resources(&caller_of(&context)?.operations, cursor.as_deref()).await?;
        #[cfg(feature = "mcp-fixtures")]
        let listed = fixtures::with_resources(listed);
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        only_page(page)?;
        let templates = resources::templates();
        #[cfg(feature = "mcp-fixtures")]
        let templates = [templates, fixtures::templates()].concat();
        let mut listed = ListResourceTemplatesResult::with_all_items(templates);
        listed.ttl_ms = list_ttl(&context);
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        #[cfg(feature = "mcp-fixtures")]
        if let Some(fixture) = fixtures::read_resource(&request.uri) {
            return Ok(fixture?.into());
        }
        let contents = resources::read_resource(&caller_of(&context)?.operations, &request.uri).await?;
        Ok(contents.into())
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        only_page(page)?;
        let prompts = reviews::prompts();
        #[cfg(feature = "mcp-fixtures")]
        let prompts = [prompts, fixtures::prompts()].concat();
        let mut listed = ListPromptsResult::with_all_items(prompts);
        listed.ttl_ms = list_ttl(&context);
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        #[cfg(feature = "mcp-fixtures")]
        if let Some(answer) = fixtures::get_prompt(&request) {
            return answer;
        }
        let arguments = request.arguments.unwrap_or_default();
        Ok(reviews::build_prompt(&request.name, &arguments)?.into())
    }

    #[cfg(feature = "mcp-fixtures")]
    async fn complete(
        &self,
        _: rmcp::model::CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CompleteResult, ErrorData> {
        Ok(fixtures::complete())
    }

    #[cfg(feature = "mcp-fixtures")]
    #[allow(deprecated)]
    async fn set_level(
        &self,
        _: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    #[cfg(feature = "mcp-fixtures")]
    #[allow(deprecated)]
    async fn subscribe(
        &self,
        _: rmcp::model::SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    #[cfg(feature = "mcp-fixtures")]
    #[allow(deprecated)]
    async fn unsubscribe(
        &self,
        _: rmcp::model::UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    #[cfg(feature = "mcp-fixtures")]
    fn accepted_subscription_filter(
        &self,
        requested: &rmcp::model::SubscriptionFilter,
    ) -> Option<rmcp::model::SubscriptionFilter> {
        Some(requested.clone())
    }
}
