#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::{presets::*, *};

fn load_file(text: &str, vars: &[(&str, &str)]) -> Result<Config, ConfigFaults> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("colloquy.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(&ConfigSources {
        file: Some(path),
        env: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ConfigSources::default()
    })
}

fn faults(text: &str, vars: &[(&str, &str)]) -> Vec<(String, String)> {
    let ConfigFaults(faults) = load_file(text, vars).unwrap_err();
    faults.into_iter().map(|fault| (fault.key, fault.message)).collect()
}

#[test]
fn every_preset_is_a_valid_configuration_with_its_facts() {
    for preset in &PRESETS {
        let text = format!("[llm]\npreset = \"{}\"\nmodel = \"m\"\n", preset.name);
        let llm = load_file(&text, &[]).unwrap().llm;
        assert_eq!(llm.base_url.as_deref(), Some(preset.base_url));
        assert_eq!(llm.supports_json_schema, preset.supports_json_schema, "{}", preset.name);
        assert_eq!(llm.supports_json_object, preset.supports_json_object, "{}", preset.name);
        assert_eq!(llm.explicit_cache_marks, preset.explicit_cache_marks, "{}", preset.name);
        assert_eq!(
            llm.max_completion_tokens, preset.max_completion_tokens,
            "{}",
            preset.name
        );
        assert_eq!(llm.stream_usage, preset.stream_usage, "{}", preset.name);
        assert_eq!(llm.tokenizer, preset.tokenizer, "{}", preset.name);
        assert_eq!(llm.reasoning, preset.reasoning, "{}", preset.name);
        assert_eq!(
            llm.main_endpoint().reasoning_fields(),
            preset.reasoning_field.fields(preset.reasoning),
            "{}",
            preset.name
        );
    }
}

#[test]
fn explicit_setting_wins_over_a_preset_and_an_empty_text_does_not() {
    let text = "[llm]\npreset = \"ollama\"\nmodel = \"m\"\nbase_url = \"\"\nsupports_json_schema = false\n\
                reasoning = \"low\"\n[llm.extra_body]\nkeep_alive = \"1h\"\n";
    let llm = load_file(text, &[]).unwrap().llm;
    assert_eq!(llm.base_url.as_deref(), Some("http://127.0.0.1:11434/v1"));
    assert!(!llm.supports_json_schema);
    let endpoint = llm.main_endpoint();
    assert_eq!(json!(endpoint.reasoning_fields()), json!({"reasoning_effort": "low"}));
    assert_eq!(json!(endpoint.extra_body), json!({"keep_alive": "1h"}));
    let llm = load_file(text, &[("COLLOQUY__LLM__BASE_URL", "http://10.0.0.7:11434/v1")])
        .unwrap()
        .llm;
    assert_eq!(llm.base_url.as_deref(), Some("http://10.0.0.7:11434/v1"));
}

#[test]
fn each_endpoint_has_a_preset_of_its_own() {
    let text = "[llm]\npreset = \"deepseek\"\nmodel = \"deepseek-chat\"\napi_key = \"k\"\n\
                [llm.tasks.reply]\nmodel = \"local:qwen3:8b\"\n\
                [llm.endpoints.local]\npreset = \"ollama\"\nstream_usage = false\n\
                [llm.endpoints.plain]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    let llm = load_file(text, &[]).unwrap().llm;
    let local = llm.resolve_model("local:qwen3:8b");
    assert_eq!(
        (local.section().as_str(), local.model),
        ("llm.endpoints.local", "qwen3:8b")
    );
    assert_eq!(local.settings.base_url, "http://127.0.0.1:11434/v1");
    assert!(local.settings.supports_json_schema && !local.settings.stream_usage);
    assert_eq!(local.settings.reasoning, Some(ReasoningLevel::Off));
    let main = llm.resolve_model("deepseek-chat");
    assert_eq!(main.section(), "llm");
    assert!(!main.settings.supports_json_schema && main.settings.supports_json_object);
    assert_eq!(main.settings.base_url, "https://api.deepseek.com/v1");
    let plain = llm.resolve_model("plain:m").settings;
    assert!(plain.reasoning_fields().is_empty() && plain.supports_json_schema && plain.stream_usage);
    // The environment names a preset as well.
    let set = ("COLLOQUY__LLM__ENDPOINTS__PLAIN__PRESET", "mistral");
    let llm = load_file(text, &[set]).unwrap().llm;
    let plain = llm.resolve_model("plain:m").settings;
    assert_eq!(
        (plain.base_url.as_str(), plain.stream_usage),
        ("http://127.0.0.1:9/v1", false)
    );
}

#[test]
fn unknown_preset_is_refused_with_the_list_of_presets() {
    for (key, text) in [
        ("llm.preset", "[llm]\npreset = \"olama\"\n"),
        (
            "llm.endpoints.local.preset",
            "[llm.endpoints.local]\npreset = \"olama\"\nbase_url = \"http://127.0.0.1:9/v1\"\n",
        ),
    ] {
        let found = faults(text, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, key);
        for name in PRESET_NAMES {
            assert!(found[0].1.contains(name), "{found:?}");
        }
        assert!(found[0].1.contains("olama"), "{found:?}");
    }
}

#[test]
fn field_that_the_server_sets_is_refused_in_an_extra_body() {
    for field in ["messages", "temperature", "max_tokens", "stream", "response_format"] {
        let text = format!(
            "[llm]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n[llm.extra_body]\n{field} = 1\ntop_k = 4\n"
        );
        let found = faults(&text, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "llm.extra_body");
        assert!(found[0].1.contains(field) && !found[0].1.contains("top_k"), "{found:?}");
    }
    let of_endpoint = "[llm.endpoints.a]\npreset = \"vllm\"\n[llm.endpoints.a.extra_body]\nmodel = \"x\"\n";
    assert_eq!(faults(of_endpoint, &[])[0].0, "llm.endpoints.a.extra_body");
}

#[test]
fn extra_body_is_read_from_the_environment_as_json() {
    let base = "[llm]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n[llm.extra_body]\nmin_p = 0.05\n";
    let llm = load_file(
        base,
        &[
            (
                "COLLOQUY__LLM__EXTRA_BODY",
                r#"{"top_k": 40, "options": {"num_ctx": 8192}}"#,
            ),
            ("COLLOQUY__LLM__EXTRA_BODY__SEED", "7"),
            ("COLLOQUY__LLM__EXTRA_BODY__TAG", "npc"),
        ],
    )
    .unwrap()
    .llm;
    assert_eq!(
        json!(llm.extra_body),
        json!({"min_p": 0.05, "top_k": 40, "options": {"num_ctx": 8192}, "seed": 7, "tag": "npc"})
    );
    let found = faults(base, &[("COLLOQUY__LLM__EXTRA_BODY", "top_k=40")]);
    assert_eq!(found[0].0, "llm.extra_body");
    assert!(found[0].1.contains("a table"), "{found:?}");
}

#[test]
fn stop_texts_and_levels_of_reasoning_are_checked() {
    let with = |lines: &str| format!("[llm]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n{lines}\n");
    let llm = load_file(&with("stop = [\"\\nPlayer:\", \"###\"]"), &[]).unwrap().llm;
    assert_eq!(llm.stop, ["\nPlayer:", "###"]);
    assert_eq!(faults(&with("stop = [\"\\n\"]"), &[])[0].0, "llm.stop");
    let without_preset = faults(&with("reasoning = \"off\""), &[]);
    assert!(without_preset[0].1.contains("llm.preset"), "{without_preset:?}");
    let unknown = faults(&with("reasoning = \"little\""), &[]);
    assert!(unknown[0].1.contains("off, low, medium, high"), "{unknown:?}");
    let no_field = faults(
        "[llm]\npreset = \"lmstudio\"\nmodel = \"m\"\nreasoning = \"off\"\n",
        &[],
    );
    assert!(
        no_field[0].1.contains("lmstudio") && no_field[0].1.contains("llm.extra_body"),
        "{no_field:?}"
    );
}
