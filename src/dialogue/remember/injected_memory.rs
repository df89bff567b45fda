//! The memory that a turn's prompt had.

use chrono::{DateTime, Utc};

use super::retelling_check::RetellingCheck;
use crate::{
    disclosure::{LocksByWords, locks_of_fact},
    prompt::escape_untrusted,
};
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::{aliases::NameAliases, disclosure::locks::DisclosureLocks, fact::Statement, party};
use colloquy_ports::ledger::jobs::JobInput;

/// The maximum number of names shown to models for reuse.
const MAX_SUBJECTS: usize = 16;
/// The maximum number of open promises and goals that a model sees and may end.
pub(super) const MAX_PROMISES: usize = 12;

/// The memory that the turn's prompt had, and that must not come back as new facts.
#[derive(Debug, Default)]
pub(super) struct InjectedMemory {
    pub ids: Vec<FactId>,
    /// `ids`, and also facts that an NPC told other NPCs from its own memory.
    pub quoted: Vec<FactId>,
    /// The texts of `ids` without `promises`, as the prompt had them. Each text names its speaker, and also another
    /// player if the text is about that player.
    pub texts: Vec<String>,
    /// The lore and the NPC's past of the prompt, which the NPC may retell.
    pub world: Vec<String>,
    /// The locks of what several listeners may hear: the locks of all prompts of the dialogue so far.
    pub locks: DisclosureLocks,
    /// The locks of what only the player of the turn hears: those of content that the dialogue may have disclosed, and of
    /// locked memories of the prompt.
    pub(super) private_locks: LocksByWords,
    /// True if the facts are private to the player.
    pub(super) is_private: bool,
    /// True if no prompt of the dialogue had locked content.
    pub(super) is_free: bool,
    /// The NPC's past, as the prompt had it.
    pub(super) past: Vec<String>,
    /// The check for players' statements about themselves that retell locked content. `None`: no retelling is possible.
    pub(super) retelling_check: Option<RetellingCheck>,
    /// The aliases of all persons, read if a prompt had locked content.
    pub(super) names: NameAliases,
    /// The open promises and goals among `ids`, in the order in which models see them.
    pub promises: Vec<OpenPromise>,
    /// The subjects of memories near the turn, in the wording for models, without the player and the NPC.
    pub subjects: Vec<String>,
}

/// An open promise or goal that the turn's prompt had.
#[derive(Debug)]
pub(super) struct OpenPromise {
    pub fact: FactId,
    pub text: String,
    /// When the promise was made. `None`: its text names no day, or the fact was removed.
    pub made_at: Option<DateTime<Utc>>,
}

impl InjectedMemory {
    /// Returns the locks of a fact of the turn.
    pub(super) fn locks_of_fact(&self, job_input: &JobInput, statement: &Statement) -> DisclosureLocks {
        let is_retold = || {
            let check = self.retelling_check.as_ref();
            check.is_some_and(|check| check.is_retold_by(statement))
        };
        let inherited_locks = || self.inherited_locks(statement);
        locks_of_fact(job_input, statement, &self.names, is_retold, inherited_locks)
    }
    /// Returns the locks of all prompts so far, because a model may retell content in any words. For a fact private to
    /// the player: the locks of what the dialogue may have told, of lore only with a word of the fact.
    fn inherited_locks(&self, statement: &Statement) -> DisclosureLocks {
        if !self.is_private {
            return self.locks.clone();
        }
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords);
        self.private_locks.locks_of(&texts.collect::<Vec<_>>())
    }
    /// Records a subject under a single name. A relative of another player is not recorded.
    pub(super) fn record_subject(&mut self, subject: &str, job_input: &JobInput) {
        let owner = party::owner_id(subject);
        let of_another = owner.is_some() && owner != job_input.turn.player.as_ref().map(PlayerId::as_str);
        if self.subjects.len() == MAX_SUBJECTS
            || of_another
            || party::is_player(subject)
            || subject == job_input.npc.name
        {
            return;
        }
        let name = escape_untrusted(&party::plain_name(subject));
        let key = party::subject_key(&name);
        if !name.is_empty() && self.subjects.iter().all(|other| party::subject_key(other) != key) {
            self.subjects.push(name);
        }
    }
}
