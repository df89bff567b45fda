//! The locks of the facts and the episode that a turn teaches.

use super::{locks_by_words::LocksByWords, retelling::build_retelling_check, retelling_check::RetellingCheck};
use crate::Services;
use colloquy_core::{planted_leak, scope::TenantScope};
use colloquy_memory::{aliases::NameAliases, disclosure::locks::DisclosureLocks, fact::Statement, party};
use colloquy_ports::{StoreResult, ledger::jobs::JobInput};

/// The locks that the prompts of a dialogue hand on to what its turn teaches.
#[derive(Debug, Default)]
pub(crate) struct TaughtLocks {
    /// Those of all prompts so far: a model may retell content in any words.
    of_prompts: DisclosureLocks,
    /// Those of what only the player of the turn hears: of what the dialogue may have told, and of locked memories.
    private: LocksByWords,
    /// True if the facts are private to the player.
    is_private: bool,
    /// The check for players' statements about themselves that retell locked content. `None`: no retelling is possible.
    retelling_check: Option<RetellingCheck>,
    /// The aliases of all persons.
    aliases: NameAliases,
}

impl TaughtLocks {
    /// Reads the locks from the trace of the turn, and the locked content that a player's statements are compared with.
    /// Without a trace, the prompt had no locked content. `aliases` reads those of all persons, if needed.
    pub(crate) async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        aliases: impl Future<Output = StoreResult<NameAliases>>,
    ) -> StoreResult<Self> {
        let Some(trace) = &job_input.trace else {
            return Ok(Self::default());
        };
        let mut taught_locks = Self {
            of_prompts: trace.locks.clone(),
            ..Self::default()
        };
        if job_input.turn.player.is_none() {
            return Ok(taught_locks);
        }
        taught_locks.private = LocksByWords::of_told(services, scope, job_input, trace).await?;
        taught_locks.is_private = job_input.audience().private_to.is_some();
        if !trace.locks.is_empty() {
            taught_locks.aliases = aliases.await?;
            taught_locks.retelling_check =
                build_retelling_check(services, scope, job_input, trace, &taught_locks.aliases).await?;
        }
        Ok(taught_locks)
    }

    /// Returns the locks of the turn's episode.
    pub(crate) fn of_episode(&self, text: &str) -> DisclosureLocks {
        self.private.locks_of(&[text])
    }

    /// Returns the locks of a fact. A player's statement about itself has none, if the statement does not retell locked
    /// content to others.
    pub(crate) fn of_fact(&self, job_input: &JobInput, statement: &Statement) -> DisclosureLocks {
        let is_retold = || {
            let check = self.retelling_check.as_ref();
            check.is_some_and(|check| check.is_retold_by(statement))
        };
        let is_own = is_of_players(job_input, &statement.subject, &self.aliases);
        let mut locks = if is_own && party::is_player(&statement.speaker) && !is_retold() {
            DisclosureLocks::default()
        } else {
            self.inherited_by(statement)
        };
        if planted_leak!("facts.locks") {
            return DisclosureLocks::default();
        }
        if job_input.turn.player.is_none() {
            locks.0.extend(job_input.dialogue.options.watchers().hearers_lock());
        }
        locks
    }

    fn inherited_by(&self, statement: &Statement) -> DisclosureLocks {
        if !self.is_private {
            return self.of_prompts.clone();
        }
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords);
        self.private.locks_of(&texts.collect::<Vec<_>>())
    }
}

/// True if a subject is a player or belongs to a player, by any of its names. Never true for the NPC.
fn is_of_players(job_input: &JobInput, subject: &str, aliases: &NameAliases) -> bool {
    let npc = party::subject_key(&job_input.npc.name);
    let all_names: Vec<&str> = std::iter::once(subject).chain(aliases.other_names(subject)).collect();
    let is_players = |name: &&str| party::is_player(name) || party::owner_id(name).is_some();
    all_names.iter().any(is_players) && all_names.iter().all(|name| party::subject_key(name) != npc)
}
