#![allow(clippy::unwrap_used)]

use colloquy_core::scope::Role;
use colloquy_ports::llm::Task;
use secrecy::ExposeSecret;

use super::{
    layers::{self, SettingKind},
    rules::{StoresBuilt, check_built},
    *,
};

fn with_env(vars: &[(&str, &str)]) -> ConfigSources {
    ConfigSources {
        env: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ConfigSources::default()
    }
}

fn faults(vars: &[(&str, &str)]) -> Vec<ConfigFault> {
    Config::load(&with_env(vars)).unwrap_err().0
}

fn keys(faults: &[ConfigFault]) -> Vec<&str> {
    faults.iter().map(|f| f.key.as_str()).collect()
}

#[test]
fn defaults_match_the_documented_numbers() {
    let config = Config::embedded_defaults();
    assert_eq!(config.server.listen, "127.0.0.1:8080");
    assert_eq!(config.turn.max_line_chars, 2000);
    assert_eq!(config.actors, colloquy_actors::ActorSettings::default());
    assert_eq!(config.chat, colloquy_http::ChatSettings::default());
    for (task, section) in Task::ALL.iter().zip(config.llm.tasks.named_tasks()) {
        let defaults = colloquy_dialogue::models::TaskDefaults::for_task(*task);
        assert_eq!(task.as_str(), section.0);
        assert_eq!(
            u128::from(section.1.timeout_ms),
            defaults.timeout.as_millis(),
            "{task:?}"
        );
        assert_eq!(section.1.max_output_tokens, defaults.max_output_tokens, "{task:?}");
        assert!((section.1.temperature - defaults.temperature).abs() < 1e-6, "{task:?}");
    }
    assert_eq!(
        config.recall.weights_for(None),
        colloquy_memory::scoring::RecallWeights::FOUR_FACTOR
    );
    assert_eq!(config.ledger_url().expose_secret(), "sqlite://./data/colloquy.db");
    assert_eq!(config.ledger_name(), "sqlite://./data/colloquy.db");
    assert!(config.llm.base_url.is_none() && config.auth.hs256_secret.is_none());
}

#[test]
fn numbers_and_ranges_correspond_one_to_one() {
    let merged = layers::merge_layers(&ConfigSources::default()).unwrap();
    for (key, kind) in &merged.known_settings {
        if matches!(kind, SettingKind::Integer | SettingKind::Number) {
            assert!(rules::range_of(key).is_some(), "{key} has no range");
        }
    }
    for (key, low, high) in ranges::RANGES {
        let key = key.replace('*', "reply");
        assert!(merged.kind_of(&key).is_some(), "{key} is not a setting");
        assert!(low < high, "{key}");
    }
}

#[test]
fn default_settings_are_all_documented() {
    let mut explained = false;
    for line in DEFAULTS.lines() {
        match line.trim() {
            "" => explained = false,
            comment if comment.starts_with('#') => explained = true,
            section if section.starts_with('[') => explained |= section.starts_with("[llm.tasks."),
            setting => {
                let grouped = [
                    "llm.tasks",
                    "model =",
                    "timeout_ms =",
                    "max_output",
                    "temperature",
                    "fallback",
                ];
                assert!(
                    explained || grouped.iter().any(|g| setting.starts_with(g)) || setting.starts_with("base_url"),
                    "no comment above: {setting}"
                );
            }
        }
    }
}

#[test]
fn environment_overrides_file_and_file_overrides_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("colloquy.toml");
    std::fs::write(&path, "[turn]\nmax_queued = 7\nseal_s = 5\n").unwrap();
    let config = Config::load(&ConfigSources {
        file: Some(path),
        ..with_env(&[("COLLOQUY__TURN__MAX_QUEUED", "9"), ("OTHER__TURN__MAX_QUEUED", "1")])
    })
    .unwrap();
    assert_eq!(
        (config.turn.max_queued, config.turn.seal_s, config.turn.max_line_chars),
        (9, 5, 2000)
    );
}

#[test]
fn texts_in_the_environment_stay_texts() {
    let config = Config::load(&with_env(&[
        ("COLLOQUY__LLM__BASE_URL", "http://127.0.0.1:9/v1"),
        ("COLLOQUY__LLM__MODEL", "7"),
        ("COLLOQUY__LLM__API_KEY", "123456"),
        ("COLLOQUY__LLM__ENDPOINTS__LOCAL__BASE_URL", "http://127.0.0.1:10/v1"),
        ("COLLOQUY__LLM__TASKS__REPLY__FALLBACK", "local:a:7b, scripted"),
        ("COLLOQUY__TENANTS", "[\"studio-a\", studio-b]"),
        ("COLLOQUY__PROMPT__STATE_BLOCK", "0"),
    ]))
    .unwrap();
    assert_eq!(config.llm.model.as_deref(), Some("7"));
    assert_eq!(config.llm.api_key.as_ref().unwrap().expose_secret(), "123456");
    assert_eq!(config.llm.tasks.reply.fallback, ["local:a:7b", "scripted"]);
    let (endpoint, model) = config.llm.endpoint_of("local:a:7b");
    assert_eq!((endpoint.unwrap().0, model), ("local", "a:7b"));
    assert_eq!(config.llm.endpoint_of("llama3:8b").1, "llama3:8b");
    assert_eq!(config.tenants.len(), 2);
    assert!(!config.prompt.state_block);
}

#[test]
fn config_faults_are_all_listed_with_key_and_source() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(
        &path,
        "nonsense = 1\n[turn]\nmax_queue = 1\nmax_line_chars = \"long\"\n[telemetry]\nformat = \"xml\"\n",
    )
    .unwrap();
    let ConfigFaults(found) = Config::load(&ConfigSources {
        file: Some(path.clone()),
        ..with_env(&[
            ("COLLOQUY__RECALL__TOP_K", "0"),
            ("COLLOQUY__RECALL__MIN_SCORE", "high"),
            ("COLLOQUY__LISTEN", "0.0.0.0:1"),
            ("COLLOQUY__SERVER__WORKERS", "-1"),
        ])
    })
    .unwrap_err();
    let mut found_keys = keys(&found);
    found_keys.sort_unstable();
    assert_eq!(
        found_keys,
        [
            "listen",
            "nonsense",
            "recall.min_score",
            "recall.top_k",
            "server.workers",
            "telemetry.format",
            "turn.max_line_chars",
            "turn.max_queue",
        ]
    );
    let text = ConfigFaults(found).to_string();
    assert!(
        text.contains("8 faults") && text.contains("did you mean server.listen"),
        "{text}"
    );
    assert!(
        text.contains(&format!("turn.max_queue (from {})", path.display())),
        "{text}"
    );
    assert!(
        text.contains("recall.top_k (from the environment): must be from 1 to 200, not 0"),
        "{text}"
    );
}

#[test]
fn ledger_url_is_shown_without_its_password() {
    for (url, name) in [
        (
            "postgres://colloquy:p%40ss@db:5432/colloquy?sslmode=require&password=hidden",
            "postgres://colloquy@db:5432/colloquy",
        ),
        ("postgres://db/colloquy", "postgres://db/colloquy"),
        ("postgresql://me:se@cret@db/colloquy", "postgresql://me@db/colloquy"),
        ("postgresql://me:a?hidden@db/colloquy", "postgresql://…"),
        ("sqlite:///srv/a@b.db", "sqlite:///srv/a@b.db"),
    ] {
        let mut config = Config::embedded_defaults();
        config.ledger.url = Some(url.into());
        assert_eq!(config.ledger_name(), name);
        assert!(!format!("{config:?}").contains("hidden"), "{config:?}");
    }
}

#[test]
fn unreadable_urls_are_shown_without_their_passwords() {
    let found = faults(&[
        ("COLLOQUY__LEDGER__URL", "postgres://u:hidden@/x y"),
        ("COLLOQUY__BUFFER__URL", "redis://:hidden@cache:port"),
        ("COLLOQUY__VECTORS__URL", "http://qdrant:port"),
        ("COLLOQUY__LLM__BASE_URL", "ftp://x"),
        ("COLLOQUY__EMBEDDER__BASE_URL", "http://"),
    ]);
    for key in [
        "ledger.url",
        "buffer.url",
        "vectors.url",
        "llm.base_url",
        "llm.model",
        "embedder.base_url",
        "embedder.model",
    ] {
        assert!(keys(&found).contains(&key), "{key} is missing in {found:?}");
    }
    assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
}

#[test]
fn config_names_the_command_that_builds_a_missing_store() {
    let mut config = Config::embedded_defaults();
    let missing = |config: &Config, built: StoresBuilt| {
        let mut found = Vec::new();
        check_built(config, built, &mut |key, what| found.push((key.to_owned(), what)));
        found
    };
    let (none, all) = (StoresBuilt::with_all(false), StoresBuilt::with_all(true));
    assert_eq!(missing(&config, none), [], "the embedded stores are always there");
    config.ledger.url = Some("postgres://db/colloquy".into());
    config.buffer.url = "redis://cache".into();
    config.vectors.url = "http://qdrant:6334".into();
    assert_eq!(missing(&config, all), []);
    let named = |store: &str| format!("this build has no {store}: use `cargo run --release`, or leave the setting out");
    assert_eq!(
        missing(&config, none),
        [
            ("ledger.url".to_owned(), named("Postgres")),
            ("buffer.url".to_owned(), named("Redis")),
            ("vectors.url".to_owned(), named("Qdrant")),
        ]
    );
}

#[test]
fn config_contradictions_are_listed_together() {
    let found = faults(&[
        ("COLLOQUY__RECALL__WEIGHTS__RECENCY", "0.5"),
        ("COLLOQUY__LEDGER__URL", "mysql://db/colloquy"),
        ("COLLOQUY__BUFFER__URL", "memcached://cache"),
        ("COLLOQUY__VECTORS__URL", "qdrant:6334"),
        ("COLLOQUY__VECTORS__COLLECTION", "a/b"),
        ("COLLOQUY__LLM__MODEL", "m"),
        ("COLLOQUY__EMBEDDER__BASE_URL", "ftp://x"),
        ("COLLOQUY__SUMMARIES__FORCE_TOKENS", "7000"),
        ("COLLOQUY__SERVER__LISTEN", "0.0.0.0:8080"),
        // Longer than one extraction, but shorter than two extractions with their judge calls.
        ("COLLOQUY__JOBS__LEASE_S", "80"),
        ("COLLOQUY__SOCKET__MAX_QUEUED", "256"),
        ("COLLOQUY__SOCKET__MAX_MESSAGE_BYTES", "8000"),
        ("COLLOQUY__HTTP__MAX_BODY_BYTES", "8000"),
        ("COLLOQUY__TURN__TIMEOUT_MS", "50000"),
    ]);
    for key in [
        "recall.weights",
        "ledger.url",
        "buffer.url",
        "vectors.url",
        "vectors.collection",
        "llm.base_url",
        "embedder.base_url",
        "summaries.force_tokens",
        "server.listen",
        "jobs.lease_s",
        "socket.max_queued",
        "socket.max_message_bytes",
        "http.max_body_bytes",
        "turn.timeout_ms",
    ] {
        assert!(keys(&found).contains(&key), "{key} is missing in {found:?}");
    }
}

#[test]
fn qdrant_is_shown_without_its_api_key() {
    let sources = |url: &str| ConfigSources {
        env: vec![
            ("COLLOQUY__VECTORS__URL".to_owned(), url.to_owned()),
            ("COLLOQUY__VECTORS__API_KEY".to_owned(), "open sesame".to_owned()),
        ],
        ..ConfigSources::default()
    };
    let config = Config::load(&sources("https://qdrant:6334")).unwrap();
    assert!(!config.vectors.is_embedded());
    assert!(!format!("{config:?}").contains("sesame"));
    let refused = Config::load(&sources("https://user:sesame@qdrant:6334")).unwrap_err();
    assert!(!refused.to_string().contains("sesame"), "{refused}");
}

#[test]
fn cluster_config_requires_shared_stores() {
    let alone = faults(&[
        ("COLLOQUY__NODE__URL", "http://10.0.0.7:8080/colloquy"),
        ("COLLOQUY__NODE__SECRET", "short"),
        ("COLLOQUY__NODE__HEARTBEAT_MS", "4000"),
    ]);
    let said: Vec<&str> = alone.iter().map(|fault| fault.message.as_str()).collect();
    for needed in [
        "nothing behind it",
        "32 bytes",
        "a Postgres",
        "the same tokens",
        "twice node.heartbeat_ms",
    ] {
        assert!(
            said.iter().any(|what| what.contains(needed)),
            "{needed} is missing in {said:?}"
        );
    }
    assert_eq!(
        keys(&faults(&[("COLLOQUY__NODE__SECRET", &"s".repeat(32))])),
        ["node.secret"]
    );
    let together = [
        ("COLLOQUY__NODE__URL", "http://10.0.0.7:8080"),
        ("COLLOQUY__NODE__SECRET", "a secret that all of the nodes know"),
        ("COLLOQUY__LEDGER__URL", "postgres://colloquy@db/colloquy"),
        ("COLLOQUY__AUTH__HS256_SECRET", "a secret that tokens are signed with"),
    ];
    assert!(Config::load(&with_env(&together)).is_ok());
}

#[test]
fn dead_node_is_taken_over_within_ten_seconds() {
    let node = Config::load(&with_env(&[])).unwrap().node;
    // In the worst case, the node dies right after a heartbeat, and the others check once per heartbeat.
    assert!(node.lease_ms + node.heartbeat_ms <= 10_000, "{node:?}");
}

#[test]
fn jobs_run_with_the_concurrency_of_model_calls() {
    let jobs = |set: &[(&str, &str)]| {
        Config::load(&with_env(set))
            .unwrap()
            .dialogue_settings()
            .jobs
            .concurrency
    };
    assert_eq!(jobs(&[]), 48);
    assert_eq!(jobs(&[("COLLOQUY__LLM__TENANT_CONCURRENCY", "8")]), 6);
    assert_eq!(jobs(&[("COLLOQUY__LLM__TENANT_CONCURRENCY", "1")]), 1);
    assert_eq!(jobs(&[("COLLOQUY__JOBS__CONCURRENCY", "3")]), 3);
}

#[test]
fn config_contradictions_are_listed_beside_unknown_keys() {
    let found = faults(&[
        ("COLLOQUY__TURN__NOPE", "1"),
        ("COLLOQUY__RECALL__WEIGHTS__KEYWORD", "7"),
        ("COLLOQUY__SERVER__LISTEN", "0.0.0.0:1"),
    ]);
    let mut found = keys(&found);
    found.sort_unstable();
    assert_eq!(found, ["recall.weights.keyword", "server.listen", "turn.nope"]);
}

#[test]
fn public_address_requires_a_chosen_secret() {
    let open = ("COLLOQUY__SERVER__LISTEN", "0.0.0.0:8080");
    assert_eq!(keys(&faults(&[open])), ["server.listen"]);
    assert_eq!(
        keys(&faults(&[open, ("COLLOQUY__AUTH__HS256_SECRET", "short")])),
        ["auth.hs256_secret"]
    );
    assert!(Config::load(&with_env(&[open, ("COLLOQUY__AUTH__HS256_SECRET", &"s".repeat(32))])).is_ok());
    assert!(Config::load(&with_env(&[("COLLOQUY__SERVER__LISTEN", "[::1]:0")])).is_ok());
    assert!(Config::load(&with_env(&[("COLLOQUY__SERVER__LISTEN", "localhost:0")])).is_ok());
    assert_eq!(
        keys(&faults(&[("COLLOQUY__SERVER__LISTEN", "nowhere")])),
        ["server.listen"]
    );
}

#[test]
fn metrics_address_is_optional() {
    let listen = |address| ("COLLOQUY__TELEMETRY__METRICS_LISTEN", address);
    let found = faults(&[listen("somewhere")]);
    assert_eq!(keys(&found), ["telemetry.metrics_listen"]);
    assert!(
        found[0].message.contains("must be an IP address and a port"),
        "{found:?}"
    );
    for good in ["", "0.0.0.0:9464", "localhost:0"] {
        Config::load(&with_env(&[listen(good)])).unwrap();
    }
    assert_eq!(
        keys(&faults(&[("COLLOQUY__TELEMETRY__HASH_TENANTS", "perhaps")])),
        ["telemetry.hash_tenants"]
    );
}

#[test]
fn secrets_are_never_printed() {
    let config = Config::load(&with_env(&[
        ("COLLOQUY__AUTH__HS256_SECRET", "hidden-hidden-hidden-hidden-hidden"),
        ("COLLOQUY__LLM__BASE_URL", "http://127.0.0.1:9/v1"),
        ("COLLOQUY__LLM__MODEL", "m"),
        ("COLLOQUY__LLM__API_KEY", "hidden-key"),
        ("COLLOQUY__BUFFER__URL", "redis://:hidden@127.0.0.1"),
    ]))
    .unwrap();
    assert!(!format!("{config:?}").contains("hidden"));
    // The value stays hidden even in the error about it.
    let found = faults(&[
        ("COLLOQUY__SERVER__LISTEN", "0.0.0.0:1"),
        ("COLLOQUY__AUTH__HS256_SECRET", "hidden"),
        ("COLLOQUY__LLM__API_KEY", "hidden"),
    ]);
    assert!(!format!("{found:?}").contains("hidden"));
}

#[test]
fn config_file_that_cannot_be_parsed_is_not_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    for line in [
        "api_key = \"hidden-key",
        "api_key = hidden-key",
        "api_key = \"a\" hidden-key",
        "api_key = \"\"\"\n1 hidden-key",
    ] {
        std::fs::write(&path, format!("[llm]\n{line}\n")).unwrap();
        let error = Config::load(&ConfigSources {
            file: Some(path.clone()),
            ..ConfigSources::default()
        })
        .unwrap_err()
        .to_string();
        assert!(!error.contains("hidden"), "{error}");
        assert!(error.contains("line "), "{error}");
    }
}

#[test]
fn config_file_named_explicitly_must_exist() {
    let error = Config::load(&ConfigSources {
        file: Some("/nowhere/c.toml".into()),
        ..ConfigSources::default()
    })
    .unwrap_err();
    assert!(error.to_string().contains("/nowhere/c.toml"), "{error}");
}

#[test]
fn traces_need_an_address_and_a_build_that_sends_them() {
    assert!(Config::embedded_defaults().telemetry.trace_export().is_none());
    let set = |url| with_env(&[("COLLOQUY__TELEMETRY__TRACES_URL", url)]);
    let loaded = Config::load(&set("http://collector:4318/v1/traces"));
    if colloquy_telemetry::CAN_EXPORT {
        assert_eq!(loaded.unwrap().telemetry.trace_export().unwrap().service, "colloquy");
    } else {
        assert_eq!(keys(&loaded.unwrap_err().0), ["telemetry.traces_url"]);
    }
    let faults = Config::load(&set("collector:4318")).unwrap_err().0;
    assert_eq!(keys(&faults), ["telemetry.traces_url"]);
}

#[test]
fn prices_are_merged_from_every_layer_and_invalid_ones_are_named() {
    let sources = with_env(&[("COLLOQUY__LLM__PRICES", "small=0.4/0.1/1.6,large=2/0.5/8")]);
    let prices = Config::load(&sources).unwrap().llm.prices;
    let models: Vec<_> = prices.iter().map(|price| price.model.as_str()).collect();
    assert_eq!(models, ["small", "large"]);
    let faults = faults(&[("COLLOQUY__LLM__PRICES", "small=cheap")]);
    assert!(faults[0].key.starts_with("llm.prices"), "{faults:?}");
    assert!(faults[0].message.contains("prompt/cached/completion"), "{faults:?}");
}

#[test]
fn issuer_has_its_own_name_keys_tenants_and_roles() {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    const OTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
    let set = |changes: &[(&str, &str)]| {
        let mut values = vec![
            ("STUDIO__ISS", "https://login.studio.example"),
            ("STUDIO__JWKS_FILE", FILE),
            ("STUDIO__TENANTS", "studio-a,studio-b"),
            ("STUDIO__ROLES", "backend,player"),
        ];
        for (name, value) in changes {
            values.retain(|(other, _)| other != name);
            values.push((*name, *value));
        }
        let named: Vec<(String, &str)> = values
            .into_iter()
            .map(|(name, value)| match name.strip_prefix('/') {
                Some(name) => (format!("COLLOQUY__AUTH__{name}"), value),
                None => (format!("COLLOQUY__AUTH__ISSUERS__{name}"), value),
            })
            .collect();
        let vars: Vec<(&str, &str)> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Config::load(&with_env(&vars))
    };
    let config = set(&[]).unwrap();
    let studio = &config.auth.issuers["studio"];
    assert_eq!(studio.tenants, ["studio-a", "studio-b"]);
    assert_eq!(studio.roles, [Role::Backend, Role::Player]);
    assert!(!config.auth.needs_secret());
    let second = [
        ("PARTNER__ISS", "https://partner.example"),
        ("PARTNER__JWKS_FILE", OTHER),
        ("PARTNER__TENANTS", "*"),
        ("PARTNER__ROLES", "player"),
    ];
    assert!(set(&second).is_ok());
    for (changes, key) in [
        (vec![("STUDIO__ISS", "")], "auth.issuers.studio.iss"),
        (
            vec![("STUDIO__JWKS_FILE", "/nowhere.json")],
            "auth.issuers.studio.jwks_file",
        ),
        (vec![("STUDIO__PUBLIC_KEY_FILE", OTHER)], "auth.issuers.studio"),
        (
            vec![("STUDIO__PUBLIC_KEY_KID", "k")],
            "auth.issuers.studio.public_key_kid",
        ),
        (vec![("STUDIO__TENANTS", "")], "auth.issuers.studio.tenants"),
        (vec![("STUDIO__TENANTS", "NO,ok")], "auth.issuers.studio.tenants"),
        (vec![("STUDIO__TENANTS", "*,ok")], "auth.issuers.studio.tenants"),
        (vec![("STUDIO__ROLES", "")], "auth.issuers.studio.roles"),
        (vec![("STUDIO__ROLES", "root")], "auth.issuers.studio.roles.0"),
        (vec![("STUDIO__NOPE", "1")], "auth.issuers.studio.nope"),
        // Key files that two issuers share.
        (vec![("/JWKS_FILE", FILE)], "auth.issuers.studio.jwks_file"),
        (
            [&second[..1], &[("PARTNER__JWKS_FILE", FILE)], &second[2..]].concat(),
            "auth.issuers.studio.jwks_file",
        ),
        (
            [&[("PARTNER__ISS", "https://login.studio.example")], &second[1..]].concat(),
            "auth.issuers.studio.iss",
        ),
    ] {
        let ConfigFaults(found) = set(&changes).unwrap_err();
        assert_eq!(keys(&found), [key], "{changes:?}: {found:?}");
    }
}

#[test]
fn previous_secret_has_the_same_length_and_differs() {
    let long = "s".repeat(32);
    let auth = ("COLLOQUY__AUTH__HS256_SECRET", long.as_str());
    for wrong in ["short", long.as_str()] {
        let before = ("COLLOQUY__AUTH__HS256_PREVIOUS_SECRET", wrong);
        assert_eq!(keys(&faults(&[auth, before])), ["auth.hs256_previous_secret"]);
        let node = [
            ("COLLOQUY__NODE__URL", "http://10.0.0.7:8080"),
            ("COLLOQUY__NODE__SECRET", long.as_str()),
            ("COLLOQUY__LEDGER__URL", "postgres://x"),
            auth,
            ("COLLOQUY__NODE__PREVIOUS_SECRET", wrong),
        ];
        assert_eq!(keys(&faults(&node)), ["node.previous_secret"]);
    }
    let before = "t".repeat(32);
    let before = ("COLLOQUY__AUTH__HS256_PREVIOUS_SECRET", before.as_str());
    assert!(Config::load(&with_env(&[auth, before])).is_ok());
}

#[test]
fn budget_in_money_needs_the_price_of_every_model() {
    let priced = [
        ("COLLOQUY__LLM__BASE_URL", "http://127.0.0.1:1/v1"),
        ("COLLOQUY__LLM__MODEL", "large"),
        ("COLLOQUY__LLM__NPC_MODELS", r#"["small"]"#),
        ("COLLOQUY__BUDGETS__COST_PER_DAY", "5"),
    ];
    let found = faults(&[&priced[..], &[("COLLOQUY__LLM__PRICES", r#"["small=1/1/1"]"#)]].concat());
    assert_eq!(keys(&found), ["budgets.cost_per_day"]);
    assert!(found[0].message.contains("`large`"), "{}", found[0].message);
    let all = ("COLLOQUY__LLM__PRICES", r#"["small=1/1/1", "large=2/1/4"]"#);
    Config::load(&with_env(&[&priced[..], &[all]].concat())).unwrap();
    let wrong = [
        ("COLLOQUY__BUDGETS__WARN_AT", "1.5"),
        ("COLLOQUY__BUDGETS__TURNS", "-1"),
    ];
    assert_eq!(keys(&faults(&wrong)), ["budgets.turns", "budgets.warn_at"]);
}
