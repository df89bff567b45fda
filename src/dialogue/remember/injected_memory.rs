//! The memory that a turn's prompt had.

use chrono::{DateTime, Utc};

use crate::{disclosure::TaughtLocks, prompt::escape_untrusted};
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::party;
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
    /// The locks of what the turn teaches.
    pub locks: TaughtLocks,
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
