//! The turns that a pass reads.

use crate::{Services, summarise::count_within_budget};
use colloquy_core::scope::TenantScope;
use colloquy_memory::turn::Turn;
use colloquy_ports::{StoreResult, ledger::jobs::JobInput, llm::Task};

/// The most turns that a pass reads. A backlog takes several passes.
const MAX_TURNS_READ: u32 = 60;

/// The turns of a pass: those after the last pass, up to the job's turn at most.
pub(super) struct UnreadTurns {
    /// The number of the first turn.
    pub from: u32,
    pub turns: Vec<Turn>,
}

impl UnreadTurns {
    /// Reads the turns after `last_read_turn`, as far as the budget of tokens goes.
    pub(super) async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        last_read_turn: u32,
    ) -> StoreResult<Self> {
        let from = last_read_turn.saturating_add(1);
        let to = job_input.turn.number.min(last_read_turn.saturating_add(MAX_TURNS_READ));
        let mut turns = if from <= to {
            let dialogues = &services.ledger.dialogues;
            dialogues.load_turns(scope, job_input.dialogue.id, from, to).await?
        } else {
            Vec::new()
        };
        let counter = services.models.counter_for_task(Task::Curation);
        let count = |text: &str| services.prompts.count_tokens(counter, text);
        let sizes = turns
            .iter()
            .map(|turn| count(&turn.player_text).saturating_add(count(&turn.reply_text)));
        let sizes: Vec<u32> = sizes.collect();
        turns.truncate(count_within_budget(
            &sizes,
            services.settings.curation.limits.max_turn_tokens,
        ));
        Ok(Self { from, turns })
    }
}
