//! The settings of prompts in tests.

use crate::settings::{
    DialogueSettings, JobSettings, PromptSettings, RecallSettings, RetentionSettings, SaveSettings, ScenarioSettings,
    SummarySettings, TurnSettings,
};
use colloquy_memory::scoring::RecallWeights;

pub(super) fn settings() -> DialogueSettings {
    DialogueSettings {
        turn: TurnSettings {
            max_line_chars: 2_000,
            max_queued: 4,
            wait_for_memory_ms: 300,
            timeout_ms: 120_000,
            intent_turns: 3,
            seal_s: 30,
            playback_timeout_s: 60,
        },
        prompt: PromptSettings {
            total_tokens: 8_000,
            acquaintance_tokens: 150,
            pinned_tokens: 400,
            summary_tokens: 1_200,
            history_tokens: 6_000,
            overheard_tokens: 600,
            scenario_tokens: 1_000,
            scenario_item_tokens: 400,
            episode_tokens: 300,
            lore_tokens: 800,
            lore_item_tokens: 250,
            memory_tokens: 1_200,
            memory_item_tokens: 150,
            state_chars: 1_500,
            state_block: true,
            ask_for_state: true,
            templates_dir: None,
        },
        recall: RecallSettings {
            preset: None,
            diversity: 0.0,
            weights: RecallWeights::FOUR_FACTOR,
            recency_lambda_per_day: 0.002,
            top_k: 8,
            dense: 30,
            sparse: 30,
            important: 10,
            recent: 10,
            near_duplicate_cosine: 0.95,
            min_score: 0.05,
            speculative: true,
            body_cache: 1_000,
        },
        episodes: serde_json::from_str(r#"{"recent": 3, "important": 3, "similar": 3, "min_similarity": 0.3}"#)
            .unwrap(),
        scenarios: ScenarioSettings {
            top_k: 3,
            min_score: 0.15,
        },
        summaries: SummarySettings {
            first_after_turns: 10,
            then_every_turns: 20,
            then_every_s: 3_600,
            after_silence_s: 3_600,
            min_turns: 4,
            force_turns: 30,
            force_tokens: 6_000,
            keep: 5,
            buffer_min_turns: 8,
        },
        saves: SaveSettings { max_per_world: 100 },
        retention: RetentionSettings {
            done_jobs_d: 90,
            traces_d: 90,
            verdicts_d: 90,
            unsaid_d: 30,
            unchanged_d: 1,
        },
        jobs: JobSettings {
            max_attempts: 8,
            max_useless: 2,
            give_up_after_s: 86_400,
            lease_s: 120,
            retry_base_s: 2,
            concurrency: 8,
            poll_s: 5,
            judge_tokens: 800,
        },
        conversation: crate::settings::ConversationSettings {
            max_turns: 20,
            pause_ms: 0,
            reading_ms_per_char: 0,
            longest_pause_ms: 0,
        },
    }
}
