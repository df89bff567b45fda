//! Settings that became constants. A configuration that still has such a setting is refused.

/// The removed settings of each section, with the values that hold.
const REMOVED_SETTINGS: &[(&str, &str)] = &[
    ("actors", "max_listeners 16, replay_events 256, replay_s 120"),
    ("auth", "max_tickets 100000, tenant_cache_s 10, ticket_ttl_s 30"),
    (
        "chat",
        "heartbeat_ms 10000, imported_turns_per_line 20, max_choices 4, max_event_bytes 262144",
    ),
    ("conversation", "longest_pause_ms 6000"),
    ("curation", "max_steps 4, max_turn_tokens 12000, memory_chars 4000"),
    ("episodes", "important 3, min_similarity 0.33, recent 3, similar 3"),
    (
        "http",
        "default_page 50, head_timeout_ms 5000, sse_queue 1024, write_timeout_ms 30000",
    ),
    ("ledger", "acquire_timeout_ms 5000, busy_timeout_ms 5000"),
    ("limits", "max_keys 100000"),
    (
        "prompt",
        "acquaintance_tokens 300, lore_item_tokens 250, memory_item_tokens 150, scenario_item_tokens 400, \
         state_chars 1500",
    ),
    (
        "recall",
        "body_cache 200000, dense 30, important 10, near_duplicate_cosine 0.95, recent 10, sparse 30",
    ),
    ("scenarios", "min_score 0.15, top_k 3"),
    ("socket", "close_delay_ms 50, max_queued_bytes 1048576"),
    ("turn", "intent_turns 3"),
    ("vectors", "hnsw_ef 200, write_timeout_ms 10000"),
    ("webhooks", "rotation_overlap_h 24"),
];

/// Returns the value that holds in place of the removed setting `key`. `None`: `key` is no removed setting.
pub(super) fn constant_of(key: &str) -> Option<&'static str> {
    let (section, name) = key.rsplit_once('.')?;
    let (_, settings) = REMOVED_SETTINGS.iter().find(|(removed, _)| *removed == section)?;
    let mut settings = settings.split(", ");
    settings.find_map(|setting| setting.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::config::{Config, ConfigFaults, ConfigSources};

    #[test]
    fn removed_settings_are_refused_with_the_values_that_hold() {
        let env = [
            ("COLLOQUY__LIMITS__MAX_KEYS", "5"),
            ("COLLOQUY__ACTORS__REPLAY_EVENTS", "9"),
            ("COLLOQUY__EPISODES__RECENT", "many"),
            ("COLLOQUY__RECALL__DENS", "1"),
        ];
        let sources = ConfigSources {
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..ConfigSources::default()
        };
        let ConfigFaults(found) = Config::load(&sources).unwrap_err();
        let message_of = |key: &str| found.iter().find(|fault| fault.key == key).unwrap().message.as_str();
        assert_eq!(
            message_of("limits.max_keys"),
            "this setting was removed, and 100000 always holds; delete the key"
        );
        let replayed = colloquy_actors::ActorSettings::default().replay_events;
        assert!(message_of("actors.replay_events").contains(&format!("and {replayed} always")));
        assert!(message_of("episodes.recent").contains("and 3 always"));
        assert!(message_of("recall.dens").contains("no such setting"));
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
