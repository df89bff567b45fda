//! Rules about language models and the embedder.

use std::collections::BTreeSet;

use super::values::is_http;
use crate::config::{
    presets::ReasoningField,
    sections::{Config, EndpointSection},
};
use colloquy_models::openai::RESERVED_FIELDS;

/// The most texts at which a reply may end. Endpoints allow 4 to 16.
const MAX_STOP_TEXTS: usize = 16;

/// Checks the fields that the requests to an endpoint have.
fn check_endpoint(section: &str, endpoint: &EndpointSection, fault: &mut impl FnMut(&str, String)) {
    for field in endpoint.extra_body.keys() {
        if RESERVED_FIELDS.contains(&field.as_str()) {
            let setting = match field.as_str() {
                "model" => format!("set {section}.model or llm.tasks.*.model"),
                "temperature" => format!("set llm.tasks.*.temperature, or {section}.send_temperature"),
                "max_tokens" | "max_completion_tokens" => "set llm.tasks.*.max_output_tokens".to_owned(),
                "stop" => format!("set {section}.stop"),
                "response_format" => format!("set {section}.supports_json_schema"),
                "stream_options" => format!("set {section}.stream_usage"),
                _ => "leave it out".to_owned(),
            };
            fault(
                &format!("{section}.extra_body"),
                format!("`{field}` is a field that the server sets itself: {setting}"),
            );
        }
    }
    if endpoint.stop.iter().any(|text| text.trim().is_empty()) || endpoint.stop.len() > MAX_STOP_TEXTS {
        fault(
            &format!("{section}.stop"),
            format!("must have at most {MAX_STOP_TEXTS} texts, none of them empty or white space alone"),
        );
    }
    let Some(level) = endpoint.reasoning else { return };
    let key = format!("{section}.reasoning");
    match endpoint.known_preset() {
        None => fault(
            &key,
            format!(
                "needs {section}.preset, which knows the endpoint's field; or set the field in {section}.extra_body"
            ),
        ),
        Some(preset) if preset.reasoning_field == ReasoningField::None => fault(
            &key,
            format!(
                "`{}` cannot be sent: the preset `{}` knows no field for it; set the field in {section}.extra_body",
                level.as_str(),
                preset.name
            ),
        ),
        Some(_) => {}
    }
}

/// Returns the distinct models that may be called but have no price.
fn unpriced_models(config: &Config) -> BTreeSet<&str> {
    let llm = &config.llm;
    let routes = llm
        .tasks
        .named_tasks()
        .into_iter()
        .flat_map(|(_, task)| task.model.iter().chain(&task.fallback));
    let called = routes
        .chain(&llm.model)
        .chain(&llm.npc_models)
        .chain(&config.embedder.model);
    let names = called
        .filter(|name| *name != "scripted")
        .map(|name| llm.endpoint_of(name).1);
    names
        .filter(|name| llm.prices.iter().all(|price| price.model != *name))
        .collect()
}

const NOT_HTTP: &str = "must be a URL that starts with http:// or https://";

pub(super) fn check_models(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let llm = &config.llm;
    if llm.base_url.as_ref().is_some_and(|url| !is_http(url)) {
        fault("llm.base_url", NOT_HTTP.into());
    }
    match (&llm.base_url, &llm.model) {
        (Some(_), None) if llm.tasks.named_tasks().iter().any(|(_, task)| task.model.is_none()) => fault(
            "llm.model",
            "must be set when llm.base_url or llm.preset is, unless every llm.tasks.* names a model".into(),
        ),
        (None, Some(_)) => fault("llm.base_url", "must be set when llm.model is".into()),
        (None, None) if llm.api_key.is_some() => fault(
            "llm.base_url",
            "must be set when llm.api_key is, for example https://api.openai.com/v1".into(),
        ),
        _ => {}
    }
    check_endpoint("llm", &llm.main_endpoint(), fault);
    for (name, endpoint) in &llm.endpoints {
        let key = format!("llm.endpoints.{name}");
        check_endpoint(&key, endpoint, fault);
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            fault(&key, "an endpoint's name has only letters, digits, _ and -".into());
        }
        if !is_http(&endpoint.base_url) {
            fault(&format!("{key}.base_url"), NOT_HTTP.into());
        }
    }
    for (name, task) in llm.tasks.named_tasks() {
        let chain = task.model.iter().chain(&task.fallback);
        for model in chain {
            if llm.base_url.is_none() && model != "scripted" && llm.endpoint_of(model).0.is_none() {
                fault(
                    &format!("llm.tasks.{name}"),
                    format!("`{model}` needs llm.base_url, or an endpoint in front: \"endpoint:model\""),
                );
            }
        }
    }
    for model in &llm.npc_models {
        if llm.endpoint_of(model).0.is_some() {
            fault(
                "llm.npc_models",
                format!("`{model}` must be without an endpoint: NPCs are answered by that of llm.tasks.reply"),
            );
        }
    }
    if config.budgets.cost_per_day > 0.0 {
        for model in unpriced_models(config) {
            fault(
                "budgets.cost_per_day",
                format!("needs a price of `{model}` in llm.prices"),
            );
        }
    }
    if llm.retry.backoff_min_ms > llm.retry.backoff_max_ms {
        fault(
            "llm.retry.backoff_min_ms",
            "must not be above llm.retry.backoff_max_ms".into(),
        );
    }
    check_embedder(config, fault);
}

fn check_embedder(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let embedder = &config.embedder;
    if embedder.base_url.as_ref().is_some_and(|url| !is_http(url)) {
        fault("embedder.base_url", NOT_HTTP.into());
    }
    match (&embedder.base_url, &embedder.model) {
        (Some(_), None) => fault("embedder.model", "must be set when embedder.base_url is".into()),
        (None, Some(_)) => fault("embedder.base_url", "must be set when embedder.model is".into()),
        _ => {}
    }
    if let Some(c) = &embedder.calibration {
        if c.floor >= c.ceiling {
            fault(
                "embedder.calibration.floor",
                "must be below embedder.calibration.ceiling".into(),
            );
        }
        if c.answer.is_some_and(|answer| answer <= c.floor) {
            fault(
                "embedder.calibration.answer",
                "must be above embedder.calibration.floor".into(),
            );
        }
        if c.related >= c.same {
            fault(
                "embedder.calibration.related",
                "must be below embedder.calibration.same".into(),
            );
        }
    }
}
