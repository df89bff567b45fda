//! The disclosure locks of a turn's prompt: the content of the dialogue's prompts, and the possible disclosures of the
//! reply.

use std::collections::{BTreeSet, HashSet};

use super::{
    locks_by_words::{silent_terms, words_of},
    prompt_disclosures::Disclosures,
};
use crate::{
    Services,
    prompt::Prompt,
    turn::{GatheredContext, TurnInput},
};
use colloquy_core::ids::ScenarioId;
use colloquy_memory::{
    disclosure::{
        locks::{DisclosureLock, DisclosureLocks},
        private_terms::PrivateTerms,
    },
    scenario::Scenario,
    trace::LockedWords,
};
use colloquy_ports::{PageRequest, StoreResult};

/// The page size for reading scenarios.
const SCENARIOS_PER_PAGE: u32 = 200;

/// Returns the locks of the dialogue's earlier prompts, with the locks of the reply that this turn continues. If an
/// older build did not record the locks: every scenario of the speakers that needs progress.
pub(crate) async fn locks_before_turn(services: &Services, input: &TurnInput) -> StoreResult<DisclosureLocks> {
    let stored_locks = match &input.continuation {
        Some(unfinished) => unfinished.locks.clone(),
        None if input.checkpoint.turn == 0 => Some(DisclosureLocks::default()),
        None => input.checkpoint.locks.clone(),
    };
    if let Some(locks) = stored_locks {
        return Ok(locks);
    }
    let mut locks = DisclosureLocks::default();
    for npc in &input.dialogue.npcs {
        let mut page = PageRequest {
            limit: SCENARIOS_PER_PAGE,
            after: None,
        };
        loop {
            let scenarios = &services.ledger.scenarios;
            let stored_page = scenarios
                .list_scenarios(&input.scope, &input.world.id, npc, &page)
                .await?;
            let conditional = stored_page.items.into_iter().filter(Scenario::is_conditional);
            locks.0.extend(conditional.map(|scenario| DisclosureLock::Scenario {
                npc: scenario.npc,
                scenario: scenario.id,
            }));
            let Some(next) = stored_page.next else { break };
            page.after = Some(next);
        }
    }
    Ok(locks)
}

/// What a turn may disclose: the locked and the private content of the dialogue's prompts so far.
pub(crate) struct TurnDisclosures {
    /// The locks of all the dialogue's prompts up to this turn. An NPC may come back to a told memory at any later turn.
    pub locks: DisclosureLocks,
    /// The locks that the dialogue may have disclosed:
    /// - locks of the NPC's past and of conversations between NPCs, from the moment when a prompt has the content;
    /// - locks of memories, and of lore about deaths for which no line asked, that share a word with the texts spoken in
    ///   this turn or an earlier turn.
    pub told_locks: DisclosureLocks,
    /// The locked texts of the prompt whose locks are not all in `told_locks`, and those locked with lore: a told lock of
    /// lore counts only for texts with a word of the entry, or of such a memory.
    pub undisclosed_words: Vec<LockedWords>,
    /// The private content of this turn's prompt: facts, episodes, insights from sessions with the player, new summaries
    /// since the previous turn, and the last meeting's summary. Includes the content of a continued reply, but not the
    /// player's own lines. `None`: the content is unknown.
    pub confided: Option<PrivateTerms>,
}

impl TurnDisclosures {
    /// Returns what a turn with this prompt may disclose. `spoken_texts` are the lines of the turn.
    pub(crate) fn of_turn(
        input: &TurnInput,
        gathered: &GatheredContext,
        prompt: &Prompt,
        spoken_texts: &[&str],
    ) -> Self {
        let disclosures = gathered.knowledge.disclosures(input, &prompt.trace);
        let locked_words = locked_words(input, gathered, &disclosures);
        let mut locks = gathered.locks_before.clone();
        let mut told_locks = told_locks_before(input).unwrap_or_else(|| gathered.locks_before.clone());
        for disclosed in [&mut locks, &mut told_locks] {
            disclosed.extend_with(&disclosures.told_at_once);
        }
        for text in &locked_words {
            locks.extend_with(&text.locks);
            if text.words.may_be_told_by(spoken_texts) {
                told_locks.extend_with(&text.locks);
            }
        }
        let is_undisclosed =
            |text: &LockedWords| !text.locks.are_subset_of(&told_locks) || text.locks.lore_keys().next().is_some();
        Self {
            undisclosed_words: locked_words.into_iter().filter(is_undisclosed).collect(),
            confided: confided_before(input).map(|mut confided| {
                confided.extend_with(&disclosures.confided);
                confided
            }),
            locks,
            told_locks,
        }
    }
}

/// Returns the locks that the dialogue may have disclosed before this turn. `None`: an older build did not record them.
fn told_locks_before(input: &TurnInput) -> Option<DisclosureLocks> {
    match &input.continuation {
        Some(unfinished) => unfinished.told_locks.clone(),
        None if input.checkpoint.turn == 0 => Some(DisclosureLocks::default()),
        None => input.checkpoint.told_locks.clone(),
    }
}

/// Returns the private content of the reply that this turn continues. `None`: the content is unknown.
fn confided_before(input: &TurnInput) -> Option<PrivateTerms> {
    match &input.continuation {
        Some(unfinished) => unfinished.confided.clone(),
        None => Some(PrivateTerms::default()),
    }
}

fn locked_words(input: &TurnInput, gathered: &GatheredContext, disclosures: &Disclosures) -> Vec<LockedWords> {
    if disclosures.has_no_texts() {
        return Vec::new();
    }
    disclosures.locked_words(&silent_terms_of(input, gathered))
}

/// Returns the scenarios in the prompt of which the reply tells.
pub(crate) fn told_scenarios(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    reply: &str,
) -> Vec<ScenarioId> {
    let shown_ids: HashSet<ScenarioId> = prompt.shown_scenarios().collect();
    let past = gathered.knowledge.scenarios.hits();
    let mut shown_scenarios = past
        .map(|hit| &hit.scenario)
        .filter(|scenario| shown_ids.contains(&scenario.id))
        .peekable();
    if shown_scenarios.peek().is_none() {
        return Vec::new();
    }
    let silent = silent_terms_of(input, gathered);
    let told_scenarios = shown_scenarios.filter(|scenario| words_of(&[&scenario.content], &silent).is_told_by(reply));
    told_scenarios.map(|scenario| scenario.id.clone()).collect()
}

/// Returns the terms that identify no text: the names of the speakers are in every text, and words of promising in many.
fn silent_terms_of(input: &TurnInput, gathered: &GatheredContext) -> BTreeSet<u32> {
    let names = gathered.known_player_names(input).into_iter();
    silent_terms(names.chain([input.npc.name.as_str()]))
}
