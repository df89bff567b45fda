//! The locks of the facts and the episode that a turn teaches.

use super::{locks_by_words::LocksByWords, retelling::build_retelling_check, retelling_check::RetellingCheck};
use crate::Services;
use colloquy_core::{planted_leak, scope::TenantScope};
use colloquy_memory::{
    aliases::NameAliases,
    disclosure::{locks::DisclosureLocks, secrecy::Secrecy},
    fact::Statement,
    party,
    trace::{ScenarioTrace, TurnTrace},
};
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
    /// Reads the locks from the trace of the turn. Without a trace, the prompt had no locked content.
    pub(crate) async fn load(services: &Services, scope: &TenantScope, job_input: &JobInput) -> StoreResult<Self> {
        let Some(trace) = &job_input.trace else {
            return Ok(Self::default());
        };
        let has_player = job_input.turn.player.is_some();
        let private = if has_player {
            LocksByWords::of_told(services, scope, job_input, trace).await?
        } else {
            LocksByWords::default()
        };
        Ok(Self {
            of_prompts: trace.locks.clone(),
            private,
            is_private: has_player && job_input.audience().private_to.is_some(),
            ..Self::default()
        })
    }

    /// True if statements of a player must be compared with locked content ([`Self::compare_with`]).
    pub(crate) fn needs_comparison(&self, job_input: &JobInput) -> bool {
        !self.of_prompts.is_empty() && job_input.turn.player.is_some()
    }

    /// Reads the locked content that a player's statements are compared with. `aliases` are those of all persons.
    pub(crate) async fn compare_with(
        &mut self,
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        aliases: NameAliases,
    ) -> StoreResult<()> {
        let past = job_input.trace.as_ref().map(shown_past).unwrap_or_default();
        let locks = &self.of_prompts;
        self.retelling_check = build_retelling_check(services, scope, job_input, locks, &past, &aliases).await?;
        self.aliases = aliases;
        Ok(())
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

/// Returns the NPC's past and the open lore, as the prompt had them.
fn shown_past(trace: &TurnTrace) -> Vec<String> {
    let scenarios = trace.scenarios.iter().filter_map(ScenarioTrace::shown_content);
    let open_lore = trace.lore.iter().filter(|traced| traced.secrecy == Secrecy::Open);
    let lore = open_lore.filter_map(|traced| traced.shown_text.as_deref());
    scenarios.chain(lore).map(str::to_owned).collect()
}

/// True if a subject is a player or belongs to a player, by any of its names. Never true for the NPC.
fn is_of_players(job_input: &JobInput, subject: &str, aliases: &NameAliases) -> bool {
    let npc = party::subject_key(&job_input.npc.name);
    let all_names: Vec<&str> = std::iter::once(subject).chain(aliases.other_names(subject)).collect();
    let is_players = |name: &&str| party::is_player(name) || party::owner_id(name).is_some();
    all_names.iter().any(is_players) && all_names.iter().all(|name| party::subject_key(name) != npc)
}
