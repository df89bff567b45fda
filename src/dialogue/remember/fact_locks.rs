//! The locks of a fact that a turn taught.

use super::injected_memory::InjectedMemory;
use colloquy_memory::{aliases::NameAliases, fact::Statement, locks::DisclosureLocks, party};
use colloquy_ports::ledger::jobs::JobInput;

/// Returns the locks of a fact of a turn: the locks of all prompts so far, because a model may retell content in any words.
/// For a fact private to the player: the locks of what the dialogue may have told, of lore only with a word of the fact.
///
/// A player's statement about itself has no locks, unless it retells locked content to others.
pub(super) fn locks_of(job_input: &JobInput, statement: &Statement, injected: &InjectedMemory) -> DisclosureLocks {
    let is_own = is_of_players(job_input, &statement.subject, &injected.names);
    let is_told = || {
        injected
            .retelling_check
            .as_ref()
            .is_some_and(|check| check.is_retold_by(statement))
    };
    let mut locks = if is_own && party::is_player(&statement.speaker) && !is_told() {
        DisclosureLocks::default()
    } else {
        injected.locks_of(statement)
    };
    if job_input.turn.player.is_none() {
        locks.0.extend(job_input.dialogue.options.watchers().hearers_lock());
    }
    locks
}

/// True if a subject is a player or belongs to a player, by any of its names. Never true for the NPC.
fn is_of_players(job_input: &JobInput, subject: &str, names: &NameAliases) -> bool {
    let npc = party::subject_key(&job_input.npc.name);
    let all_names: Vec<&str> = std::iter::once(subject).chain(names.other_names(subject)).collect();
    let is_players = |name: &&str| party::is_player(name) || party::owner_id(name).is_some();
    all_names.iter().any(is_players) && all_names.iter().all(|name| party::subject_key(name) != npc)
}
