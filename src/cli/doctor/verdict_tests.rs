#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::{super::report::Verdict, *};
use crate::config::{Config, ConfigSources, LlmSection};

fn section(vars: &[(&str, &str)]) -> LlmSection {
    let base = [
        ("COLLOQUY__LLM__BASE_URL", "http://127.0.0.1:9/v1"),
        ("COLLOQUY__LLM__MODEL", "m"),
    ];
    let env = base.iter().chain(vars);
    Config::load(&ConfigSources {
        env: env.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ConfigSources::default()
    })
    .unwrap()
    .llm
}

fn with_view<T>(vars: &[(&str, &str)], judge: impl FnOnce(&EndpointView<'_>) -> T) -> T {
    let endpoint = section(vars).main_endpoint();
    judge(&EndpointView {
        section: "llm",
        settings: &endpoint,
    })
}

fn keys(check: &Check) -> Vec<(&str, serde_json::Value)> {
    check
        .changes
        .iter()
        .map(|change| (change.key.as_str(), change.value.clone()))
        .collect()
}

const STREAM: StreamSample = StreamSample {
    pieces: 20,
    chars: 90,
    first_ms: 300.0,
    whole_ms: 2_000.0,
    at_cap: false,
};
const THOUGHTS: ObservedThoughts = ObservedThoughts {
    any: true,
    prefilled: false,
};

#[test]
fn failure_names_the_setting_that_mends_it() {
    for (error, advice) in [
        (
            LlmError::Unavailable("401 Unauthorized (invalid_api_key)".into()),
            "llm.api_key",
        ),
        (LlmError::Unavailable("404 Not Found".into()), "llm.base_url"),
        (
            LlmError::Unavailable("connection refused".into()),
            "start the model server",
        ),
        (LlmError::Timeout, "within 9 s"),
        (
            LlmError::RateLimited {
                retry_after: Some(Duration::ZERO),
            },
            "limits requests",
        ),
        (
            LlmError::Broken("the model thought and gave no answer".into()),
            "llm.preset",
        ),
    ] {
        let check = with_view(&[], |endpoint| judge_failure(&error, endpoint, "http://h/v1", 9));
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.advice.contains(advice), "{check}");
    }
    let error = LlmError::Broken("the model thought and gave no answer".into());
    let check = with_view(&[("COLLOQUY__LLM__PRESET", "gemini")], |endpoint| {
        judge_failure(&error, endpoint, "h", 9)
    });
    assert_eq!(keys(&check), [("llm.reasoning", "off".into())]);
}

#[test]
fn stream_in_one_piece_or_at_the_end_is_no_stream() {
    assert_eq!(judge_stream(&STREAM).verdict, Verdict::Ok);
    let whole = StreamSample { pieces: 1, ..STREAM };
    assert_eq!(judge_stream(&whole).verdict, Verdict::Warn);
    let word = StreamSample { chars: 5, ..whole };
    assert_eq!(judge_stream(&word).verdict, Verdict::Ok);
    let collected = StreamSample {
        first_ms: 1_950.0,
        ..STREAM
    };
    assert_eq!(judge_stream(&collected).verdict, Verdict::Warn);
    let quick = StreamSample {
        first_ms: 20.0,
        whole_ms: 21.0,
        ..STREAM
    };
    assert_eq!(judge_stream(&quick).verdict, Verdict::Ok);
    let silent = StreamSample {
        pieces: 0,
        chars: 0,
        ..STREAM
    };
    assert_eq!(judge_stream(&silent).verdict, Verdict::Fail);
}

#[test]
fn slow_first_word_has_a_remedy() {
    let no_thoughts = ObservedThoughts::default();
    let slow = StreamSample {
        first_ms: 4_000.0,
        ..STREAM
    };
    with_view(&[("COLLOQUY__LLM__PRESET", "ollama")], |endpoint| {
        assert_eq!(judge_first_token(&STREAM, no_thoughts, endpoint).verdict, Verdict::Ok);
        let check = judge_first_token(&slow, no_thoughts, endpoint);
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.changes.is_empty() && check.advice.contains("smaller"), "{check}");
        assert_eq!(
            keys(&judge_first_token(&slow, THOUGHTS, endpoint)),
            [("llm.reasoning", "off".into())]
        );
    });
}

#[test]
fn thoughts_are_turned_off_where_the_preset_knows_how() {
    let no_thoughts = ObservedThoughts::default();
    with_view(&[("COLLOQUY__LLM__PRESET", "gemini")], |endpoint| {
        assert_eq!(judge_thoughts(no_thoughts, endpoint).verdict, Verdict::Ok);
        assert_eq!(
            keys(&judge_thoughts(THOUGHTS, endpoint)),
            [("llm.reasoning", "off".into())]
        );
    });
    let check = with_view(&[], |endpoint| judge_thoughts(THOUGHTS, endpoint));
    assert!(
        check.changes.is_empty() && check.advice.contains("llm.preset"),
        "{check}"
    );
    let prefilled = ObservedThoughts {
        any: true,
        prefilled: true,
    };
    let check = with_view(&[], |endpoint| judge_thoughts(prefilled, endpoint));
    assert_eq!(keys(&check), [("llm.reasoning_prefilled", true.into())]);
}

#[test]
fn answer_in_another_language_is_noticed() {
    for (text, language, verdict) in [
        ("Well met, friend.", Language::En, Verdict::Ok),
        ("어서 오세요, 친구.", Language::Ko, Verdict::Ok),
        ("어서 오세요, Mira.", Language::Ko, Verdict::Ok),
        ("Well met, friend.", Language::Ko, Verdict::Warn),
        ("어서 오세요.", Language::En, Verdict::Warn),
        ("…", Language::En, Verdict::Warn),
    ] {
        assert_eq!(judge_language(text, language).verdict, verdict, "{text}");
    }
}

#[test]
fn formats_that_the_endpoint_refuses_or_ignores_are_changed() {
    use FormatOutcome::{Enforced, Ignored, Refused};
    let judge = |vars: &[(&str, &str)], schema, object| {
        let samples = FormatSamples {
            schema,
            object,
            in_words: true,
        };
        with_view(vars, |endpoint| judge_format(samples, endpoint))
    };
    let check = judge(&[], Enforced, None);
    assert_eq!((check.verdict, check.changes.len()), (Verdict::Ok, 0));
    let check = judge(&[], Refused, Some(Enforced));
    assert_eq!(check.verdict, Verdict::Fail);
    let object = [
        ("llm.supports_json_schema", false.into()),
        ("llm.supports_json_object", true.into()),
    ];
    assert_eq!(keys(&check), object);
    let check = judge(&[], Ignored, Some(Ignored));
    assert_eq!(check.verdict, Verdict::Warn);
    assert_eq!(keys(&check), [("llm.supports_json_schema", false.into())]);
    let off = [("COLLOQUY__LLM__SUPPORTS_JSON_SCHEMA", "false")];
    assert_eq!(judge(&off, Ignored, Some(Ignored)).verdict, Verdict::Ok);
    assert_eq!(
        keys(&judge(&off, Enforced, None)),
        [("llm.supports_json_schema", true.into())]
    );
    let with_object = [off[0], ("COLLOQUY__LLM__SUPPORTS_JSON_OBJECT", "true")];
    let check = judge(&with_object, Refused, Some(Refused));
    assert_eq!(check.verdict, Verdict::Fail);
    assert_eq!(
        keys(&check),
        [
            ("llm.supports_json_schema", false.into()),
            ("llm.supports_json_object", false.into())
        ]
    );
    let weak = FormatSamples {
        schema: Ignored,
        object: Some(Ignored),
        in_words: false,
    };
    let check = with_view(&off, |endpoint| judge_format(weak, endpoint));
    assert_eq!(check.verdict, Verdict::Warn);
    assert!(check.advice.contains("llm.tasks.extraction"), "{check}");
}

#[test]
fn missing_state_blocks_are_told_with_what_follows() {
    use BlockSample::{Missing, Readable, Unreadable};
    assert_eq!(
        judge_state_block(&[Readable(true), Readable(false)], 4).verdict,
        Verdict::Ok
    );
    let check = judge_state_block(&[Missing, Readable(true)], 4);
    assert_eq!((check.verdict, check.changes.len()), (Verdict::Warn, 0));
    assert!(
        check.finding.contains("1 of 2") && check.advice.contains("reply 4"),
        "{check}"
    );
    let check = judge_state_block(&[Missing, Unreadable("no closing fence".into())], 0);
    assert!(check.finding.contains("no closing fence"), "{check}");
    assert_eq!(keys(&check), [("turn.replies_without_block", 4.into())]);
}

#[test]
fn context_that_is_too_short_fails() {
    let short = ContextSample {
        counted: 300,
        reported: 200,
        repeated: true,
    };
    let whole = ContextSample {
        counted: 7_500,
        reported: 5_000,
        repeated: true,
    };
    assert_eq!(judge_context(&whole, Some(&short)).verdict, Verdict::Ok);
    let cut_sample = ContextSample {
        reported: 3_900,
        ..whole
    };
    assert_eq!(judge_context(&cut_sample, Some(&short)).verdict, Verdict::Fail);
    let lost = ContextSample {
        repeated: false,
        ..whole
    };
    assert_eq!(judge_context(&lost, Some(&short)).verdict, Verdict::Warn);
    let unknown = ContextSample { reported: 0, ..whole };
    assert_eq!(judge_context(&unknown, None).verdict, Verdict::Ok);
}

#[test]
fn late_classification_gets_a_longer_limit() {
    assert_eq!(judge_intent(300.0, 2_000, true).verdict, Verdict::Ok);
    assert_eq!(judge_intent(300.0, 2_000, false).verdict, Verdict::Warn);
    let late = judge_intent(2_400.0, 2_000, true);
    assert_eq!(keys(&late), [("llm.tasks.intent.timeout_ms", 4_000.into())]);
}

#[test]
fn model_that_the_endpoint_does_not_list_is_told_with_similar_names() {
    let listed: Vec<String> = [
        "gpt-5",
        "models/gemini-3",
        "llama3:latest",
        "qwen3:8b",
        "phi4",
        "qwen2",
        "o7",
    ]
    .map(str::to_owned)
    .to_vec();
    for name in ["gpt-5", "gemini-3", "llama3", "qwen3:8b", "phi4:free"] {
        assert_eq!(
            judge_listing(&listed, name, "u").unwrap().verdict,
            Verdict::Ok,
            "{name}"
        );
    }
    let check = judge_listing(&listed, "qwen3:14b", "u").unwrap();
    assert_eq!(check.verdict, Verdict::Warn);
    assert_eq!(
        check.finding,
        "u does not list `qwen3:14b`, but has `qwen3:8b`, `qwen2`, `gpt-5`, `models/gemini-3`, `llama3:latest` and 2 more"
    );
    assert_eq!(judge_listing(&[], "m", "u"), None);
}
