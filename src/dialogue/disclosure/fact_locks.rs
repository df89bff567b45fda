//! The locks of a fact that a turn taught.

use colloquy_core::planted_leak;
use colloquy_memory::{aliases::NameAliases, disclosure::locks::DisclosureLocks, fact::Statement, party};
use colloquy_ports::ledger::jobs::JobInput;

/// Returns the locks of a fact of a turn: `inherited_locks`, which the prompts hand on to the fact. A player's statement
/// about itself has no locks, unless `is_retold` says that it retells locked content to others. `names` are the aliases
/// of all persons.
pub(crate) fn locks_of_fact(
    job_input: &JobInput,
    statement: &Statement,
    names: &NameAliases,
    is_retold: impl FnOnce() -> bool,
    inherited_locks: impl FnOnce() -> DisclosureLocks,
) -> DisclosureLocks {
    let is_own = is_of_players(job_input, &statement.subject, names);
    let mut locks = if is_own && party::is_player(&statement.speaker) && !is_retold() {
        DisclosureLocks::default()
    } else {
        inherited_locks()
    };
    if planted_leak!("facts.locks") {
        return DisclosureLocks::default();
    }
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
