//! The settings of prompts in tests.

use crate::settings::{
    CurationSettings, DialogueSettings, FixedBudgets, JobSettings, PassLimits, PromptSettings, RecallSettings,
    RetentionSettings, SaveSettings, ScenarioSettings, SummarySettings, TurnSettings,
};
use colloquy_memory::{authored::IntentClassification, scoring::RecallWeights};

pub(super) fn settings() -> DialogueSettings {
    DialogueSettings {
        turn: TurnSettings {
            max_line_chars: 2_000,
            max_queued: 4,
            wait_for_memory_ms: 300,
            longest_wait_for_memory_ms: 0,
            intent_classification: IntentClassification::default(),
            replies_without_block: 0,
            timeout_ms: 120_000,
            seal_s: 30,
            cut_hold_s: 30,
            playback_timeout_s: 60,
        },
        prompt: PromptSettings {
            total_tokens: 8_000,
            pinned_tokens: 400,
            summary_tokens: 1_200,
            history_tokens: 6_000,
            overheard_tokens: 600,
            scene_note_tokens: 400,
            scenario_tokens: 1_000,
            episode_tokens: 300,
            insight_tokens: 200,
            lore_tokens: 800,
            memory_tokens: 1_200,
            fixed: FixedBudgets {
                acquaintance_tokens: 150,
                ..FixedBudgets::default()
            },
            state_block: true,
            ask_for_state: true,
            ask_if_nothing_new: true,
            templates_dir: None,
        },
        recall: RecallSettings {
            preset: None,
            diversity: 0.0,
            weights: RecallWeights::FOUR_FACTOR,
            recency_lambda_per_day: 0.002,
            top_k: 8,
            min_score: 0.05,
            speculative: true,
        },
        scenarios: ScenarioSettings::default(),
        curation: CurationSettings {
            every_turns: 10,
            min_turns: 4,
            limits: PassLimits::default(),
            consolidate_every_d: 0,
            consolidate_after_d: 7,
            player_passes_per_hour: 12,
            calls_per_day: 0,
            tokens_per_day: 0,
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
            npc_usage_d: 400,
            audit_d: 400,
            unsaid_d: 30,
            unchanged_d: 1,
            webhooks_d: 30,
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
        },
        models: colloquy_memory::tiers::TaskModels::default(),
    }
}
