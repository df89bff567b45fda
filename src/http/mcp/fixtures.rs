//! A second server at `/mcp/fixtures`: the tools, resources and prompts of `/mcp`, and those that the conformance suite of
//! MCP calls by name. The latter exercise the parts of the protocol that no operation of REST needs: pictures, notices of
//! progress, questions to the client, sessions. Built for tests alone (feature `mcp-fixtures`, tests/mcp-conformance.sh).

#![allow(deprecated)] // The suite still has scenarios for logging, sampling and roots.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, CompleteRequestParams,
        CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
        InputRequiredResult, InputResponses, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams,
        ProgressNotificationParam, Prompt, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        Resource, ResourceTemplate, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
        Tool, UnsubscribeRequestParams,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use colloquy_memory::text::to_hexadecimal;

use super::server::McpServer;

pub type FixtureTransport = StreamableHttpService<FixtureServer, LocalSessionManager>;

/// The transport with sessions, which the scenarios need in which a server asks its client.
pub fn new_fixture_transport(config: StreamableHttpServerConfig) -> FixtureTransport {
    // One for all workers: a client's requests reach any of them.
    static SESSIONS: LazyLock<Arc<LocalSessionManager>> = LazyLock::new(Arc::default);
    let config = config.with_legacy_session_mode(true);
    StreamableHttpService::new(|| Ok(FixtureServer), Arc::clone(&SESSIONS), config)
}

/// The server of `/mcp` with the fixtures.
#[derive(Debug, Clone, Copy)]
pub struct FixtureServer;

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = McpServer.get_info();
        info.capabilities.logging = Some(JsonObject::new());
        info.capabilities.completions = Some(JsonObject::new());
        if let Some(resources) = &mut info.capabilities.resources {
            resources.subscribe = Some(true);
        }
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let fixture = TOOLS.iter().find(|tool| tool.name == name);
        fixture.cloned().or_else(|| McpServer.get_tool(name))
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = McpServer.list_tools(page, context).await?;
        listed.tools.extend(TOOLS.iter().cloned());
        Ok(listed)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if TOOLS.iter().any(|tool| tool.name == call.name) {
            return call_fixture_tool(&call, &context).await;
        }
        McpServer.call_tool(call, context).await
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut listed = McpServer.list_resources(page, context).await?;
        if listed.next_cursor.is_none() {
            listed.resources.extend(fixture_resources());
        }
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = McpServer.list_resource_templates(page, context).await?;
        listed.resource_templates.push(fixture_template());
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match read_fixture_resource(&request.uri) {
            Some(fixture) => Ok(fixture?.into()),
            None => McpServer.read_resource(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut listed = McpServer.list_prompts(page, context).await?;
        listed.prompts.extend(fixture_prompts());
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match get_fixture_prompt(&request) {
            Some(answer) => answer,
            None => McpServer.get_prompt(request, context).await,
        }
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = ["paris", "park", "party"].map(str::to_owned).to_vec();
        Ok(CompleteResult::new(
            CompletionInfo::with_all_values(values).unwrap_or_default(),
        ))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }
}

/// A red pixel, as PNG in base64.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==";
/// No sound, as WAV in base64.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
/// The pause between two notices.
const PAUSE: Duration = Duration::from_millis(50);

/// Reads a value of the protocol. The fixtures are constant, so a fault is a defect of this file.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(format!("fixture: {error}"), None))
}

/// Reads a result of the protocol that needs no further message.
fn complete_result<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["resultType"] = json!("complete");
    typed(result)
}

/// Tools without arguments.
const PLAIN_TOOLS: [&str; 23] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_error_handling",
    "test_tool_with_progress",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_reconnection",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let mut schemas: Vec<(&str, Value)> = PLAIN_TOOLS
        .iter()
        .map(|name| (*name, json!({"type": "object", "properties": {}})))
        .collect();
    let text_argument = |name: &str| {
        let properties = Value::from_iter([(name, json!({"type": "string"}))]);
        json!({"type": "object", "properties": properties, "required": [name]})
    };
    schemas.push(("test_sampling", text_argument("prompt")));
    schemas.push(("test_elicitation", text_argument("message")));
    let mut region = text_argument("region");
    region["properties"]["region"]["x-mcp-header"] = json!("Region");
    schemas.push(("test_header_argument", region));
    schemas.push((
        "json_schema_2020_12_tool",
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "$defs": {"address": {"$anchor": "addressDef", "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"}, "email": {"type": "string"}},
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]}, "else": {"required": ["email"]}, "additionalProperties": false
        }),
    ));
    schemas
        .into_iter()
        .filter_map(|(name, schema)| {
            let tool = json!({"name": name, "description": "For the conformance suite.", "inputSchema": schema});
            typed(tool).ok()
        })
        .collect()
});

fn picture() -> Value {
    json!({"type": "image", "data": PICTURE, "mimeType": "image/png"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn elicitation(message: &str, properties: &Value, required: &[&str]) -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message,
        "requestedSchema": {"type": "object", "properties": properties, "required": required}}})
}

fn sampling(prompt: &str, tokens: u32) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": text(prompt)}], "maxTokens": tokens}})
}

fn name_question(message: &str) -> Value {
    elicitation(message, &json!({"name": {"type": "string"}}), &["name"])
}

async fn call_fixture_tool(
    call: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let blocks = match &*call.name {
        "test_simple_text" => vec![text("This is a simple text response for testing.")],
        "test_image_content" => vec![picture()],
        "test_audio_content" => vec![json!({"type": "audio", "data": SOUND, "mimeType": "audio/wav"})],
        "test_embedded_resource" => vec![json!({"type": "resource", "resource": {
            "uri": "test://embedded-resource", "mimeType": "text/plain",
            "text": "This is an embedded resource content."}})],
        "test_multiple_content_types" => vec![
            text("Multiple content types test:"),
            picture(),
            json!({"type": "resource", "resource": {"uri": "test://mixed-content-resource",
                "mimeType": "application/json", "text": r#"{"test":"data","value":123}"#}}),
        ],
        "test_error_handling" => {
            let message = text("This tool intentionally returns an error for testing");
            return Ok(complete_result::<CallToolResult>(json!({"content": [message], "isError": true}))?.into());
        }
        "test_tool_with_logging" => vec![text(send_logs(context).await)],
        "test_tool_with_progress" => vec![text(send_progress(context).await)],
        "test_missing_capability" => {
            let declared = context
                .client_capabilities()
                .is_some_and(|capabilities| capabilities.sampling.is_some());
            if !declared {
                let required = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(required));
            }
            vec![text("The client can sample.")]
        }
        "test_sampling"
        | "test_elicitation"
        | "test_elicitation_sep1034_defaults"
        | "test_elicitation_sep1330_enums" => {
            vec![ask_client(call, context).await?]
        }
        "test_streaming_elicitation" => return require(vec![("user_name", name_question("Who are you?"))], None),
        name if name.starts_with("test_input_required_result_") => return answer_in_rounds(call, context),
        _ => vec![text("Done.")],
    };
    Ok(complete_result::<CallToolResult>(json!({"content": blocks, "isError": false}))?.into())
}

async fn send_logs(context: &RequestContext<RoleServer>) -> &'static str {
    for message in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        let notice = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
        // A client that is gone misses nothing.
        let _ = context.peer.notify_logging_message(notice).await;
        tokio::time::sleep(PAUSE).await;
    }
    "Logged."
}

async fn send_progress(context: &RequestContext<RoleServer>) -> &'static str {
    for progress in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let notice = ProgressNotificationParam::new(token, progress).with_total(100.0);
            let _ = context.peer.notify_progress(notice).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
    "Progressed."
}

fn choices(names: [&str; 3]) -> Vec<Value> {
    let values = ["value1", "value2", "value3"].into_iter().zip(names);
    values
        .map(|(value, title)| json!({"const": value, "title": title}))
        .collect()
}

/// Asks the client in the middle of a call, as revisions before 2026-07-28 do.
async fn ask_client(call: &CallToolRequestParams, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let argument = |name: &str| {
        let argument_text = call
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name)?.as_str());
        argument_text.unwrap_or_default().to_owned()
    };
    let to_error_data = |error: rmcp::ServiceError| ErrorData::internal_error(error.to_string(), None);
    if call.name == "test_sampling" {
        let request = typed(sampling(&argument("prompt"), 100)["params"].clone())?;
        let answer = context.peer.create_message(request).await.map_err(to_error_data)?;
        let answer = serde_json::to_value(answer).unwrap_or_default();
        let reply_text = answer["content"]["text"].as_str().unwrap_or_default();
        return Ok(text(&format!("LLM response: {reply_text}")));
    }
    let options = json!(["option1", "option2", "option3"]);
    let question = match &*call.name {
        "test_elicitation" => elicitation(
            &argument("message"),
            &json!({"username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"}}),
            &["username", "email"],
        ),
        "test_elicitation_sep1034_defaults" => elicitation(
            "Please check the defaults.",
            &json!({"name": {"type": "string", "default": "John Doe"}, "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                "verified": {"type": "boolean", "default": true}}),
            &[],
        ),
        _ => elicitation(
            "Please choose.",
            &json!({"untitledSingle": {"type": "string", "enum": options},
                "titledSingle": {"type": "string", "oneOf": choices(["First Option", "Second Option", "Third Option"])},
                "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"]},
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                "titledMulti": {"type": "array",
                    "items": {"anyOf": choices(["First Choice", "Second Choice", "Third Choice"])}}}),
            &[],
        ),
    };
    let answer = context
        .peer
        .create_elicitation(typed(question["params"].clone())?)
        .await;
    let answer = serde_json::to_value(answer.map_err(to_error_data)?).unwrap_or_default();
    let action = answer["action"].as_str().unwrap_or_default();
    Ok(text(&format!(
        "Elicitation completed: action={action}, content={}",
        answer["content"]
    )))
}

/// A result that asks the client, with the state to bring along.
fn require(questions: Vec<(&str, Value)>, state: Option<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(typed::<InputRequiredResult>(required(questions, state))?.into())
}

fn required(questions: Vec<(&str, Value)>, state: Option<String>) -> Value {
    let mut result = json!({"resultType": "input_required", "inputRequests": Value::from_iter(questions)});
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    result
}

/// The accepted content of an answer.
fn accepted<'a>(responses: Option<&'a InputResponses>, key: &str) -> Option<&'a Value> {
    responses?.get(key).filter(|answer| answer.is_object())
}

/// A state that only this process can make.
fn sealed(state: &str) -> String {
    static SECRET: LazyLock<u128> = LazyLock::new(rand::random);
    let seal = to_hexadecimal(&Sha256::digest(format!("{}\n{state}", *SECRET)));
    format!("{state}.{seal}")
}

fn answer_in_rounds(
    call: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let answer_to = |key: &str| accepted(call.input_responses.as_ref(), key);
    let state = call.request_state.as_deref();
    if let Some(state) = state
        && ![sealed("1"), sealed("2")]
            .iter()
            .any(|sealed_state| sealed_state == state)
    {
        return Err(ErrorData::invalid_params("the request state was changed", None));
    }
    let finished =
        |message: String| Ok(complete_result::<CallToolResult>(json!({"content": [text(&message)]}))?.into());
    let roots = || json!({"method": "roots/list", "params": {}});
    let confirmation = || elicitation("Please confirm", &json!({"ok": {"type": "boolean"}}), &["ok"]);
    match &*call.name {
        "test_input_required_result_elicitation" => match answer_to("user_name") {
            Some(answer) => finished(format!(
                "Hello, {}!",
                answer["content"]["name"].as_str().unwrap_or("you")
            )),
            None => require(vec![("user_name", name_question("What is your name?"))], None),
        },
        "test_input_required_result_sampling" => match answer_to("capital_question") {
            Some(answer) => finished(answer["content"].to_string()),
            None => require(
                vec![("capital_question", sampling("What is the capital of France?", 100))],
                None,
            ),
        },
        "test_input_required_result_list_roots" => match answer_to("client_roots") {
            Some(answer) => finished(answer["roots"].to_string()),
            None => require(vec![("client_roots", roots())], None),
        },
        "test_input_required_result_multiple_inputs" => {
            let keys = ["user_name", "greeting", "client_roots"];
            if keys.iter().all(|key| answer_to(key).is_some()) {
                return finished("All answers came.".to_owned());
            }
            let questions = vec![
                ("user_name", name_question("What is your name?")),
                ("greeting", sampling("Generate a greeting", 50)),
                ("client_roots", roots()),
            ];
            require(questions, Some(sealed("1")))
        }
        "test_input_required_result_multi_round" => match (answer_to("step1"), answer_to("step2"), state) {
            (_, Some(_), Some(_)) => finished("Both steps are done.".to_owned()),
            (Some(_), None, Some(_)) => {
                let colour = json!({"color": {"type": "string"}});
                let question = elicitation("Step 2: What is your favorite color?", &colour, &["color"]);
                require(vec![("step2", question)], Some(sealed("2")))
            }
            _ => require(
                vec![("step1", name_question("Step 1: What is your name?"))],
                Some(sealed("1")),
            ),
        },
        "test_input_required_result_capabilities" => {
            let declared = context.client_capabilities().unwrap_or_default();
            let mut questions = Vec::new();
            if declared.sampling.is_some() {
                questions.push(("greeting", sampling("Generate a greeting", 50)));
            }
            if declared.elicitation.is_some() {
                questions.push(("user_name", name_question("What is your name?")));
            }
            require(questions, Some(sealed("1")))
        }
        _ => match (answer_to("confirm"), state) {
            (Some(_), Some(_)) => finished("state-ok".to_owned()),
            _ => require(vec![("confirm", confirmation())], Some(sealed("1"))),
        },
    }
}

fn fixture_resources() -> impl Iterator<Item = Resource> {
    let addresses = ["test://static-text", "test://static-binary", "test://watched-resource"];
    addresses
        .into_iter()
        .map(|uri| Resource::new(uri, uri).with_description("For the conformance suite."))
}

fn fixture_template() -> ResourceTemplate {
    ResourceTemplate::new("test://template/{id}/data", "test-template").with_description("For the suite.")
}

/// Reads a fixture resource; `None` if no fixture has the address.
fn read_fixture_resource(uri: &str) -> Option<Result<ReadResourceResult, ErrorData>> {
    let content = match uri {
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PICTURE}),
        "test://static-text" | "test://watched-resource" => json!({
            "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."
        }),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"uri": uri, "mimeType": "application/json", "text": text.to_string()})
        }
    };
    Some(complete_result(json!({ "contents": [content] })))
}

fn fixture_prompts() -> Vec<Prompt> {
    let prompts: [(&str, &[&str]); 5] = [
        ("test_simple_prompt", &[]),
        ("test_prompt_with_arguments", &["arg1", "arg2"]),
        ("test_prompt_with_embedded_resource", &["resourceUri"]),
        ("test_prompt_with_image", &[]),
        ("test_input_required_result_prompt", &[]),
    ];
    let prompts = prompts.into_iter().filter_map(|(name, arguments)| {
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|name| json!({"name": name, "required": true}))
            .collect();
        typed(json!({"name": name, "description": "For the conformance suite.", "arguments": arguments})).ok()
    });
    prompts.collect()
}

/// Builds a fixture prompt; `None` if no fixture has the name.
fn get_fixture_prompt(request: &GetPromptRequestParams) -> Option<Result<GetPromptResponse, ErrorData>> {
    let argument = |name: &str| {
        let argument_text = request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name)?.as_str());
        argument_text.unwrap_or_default().to_owned()
    };
    let contents = match request.name.as_str() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => vec![text(&format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        ))],
        "test_prompt_with_embedded_resource" => vec![
            json!({"type": "resource", "resource": {"uri": argument("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing."}}),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![picture(), text("Please analyze the image above.")],
        "test_input_required_result_prompt" => {
            let Some(answer) = accepted(request.input_responses.as_ref(), "user_context") else {
                let context = json!({"context": {"type": "string"}});
                let question = elicitation("What context should the prompt use?", &context, &["context"]);
                let result = typed::<InputRequiredResult>(required(vec![("user_context", question)], None));
                return Some(result.map(Into::into));
            };
            vec![text(&format!("Context: {}", answer["content"]["context"]))]
        }
        _ => return None,
    };
    let messages: Vec<Value> = contents
        .into_iter()
        .map(|content| json!({"role": "user", "content": content}))
        .collect();
    Some(complete_result::<GetPromptResult>(json!({ "messages": messages })).map(Into::into))
}
