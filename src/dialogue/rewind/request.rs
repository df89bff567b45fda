//! The target of a rewind, the dialogue that is rewound, and the answers.

use std::{borrow::Cow, sync::Arc};

use chrono::{DateTime, Utc};

use crate::{Services, heard::HeardLength, requester::Requesters, turn::PartialReply};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, NodeId, NpcId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{TierSettings, World},
    turn::{Intent, Turn},
};
use colloquy_ports::{
    StoreError, StoreResult,
    clock::IdSource,
    ledger::rewinds::{InterruptOutcome, RewindCommit, RewindOrigin, RewindRecord},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindTarget {
    /// This turn becomes the head; 0 means no turn. With `heard`, its reply ends there too. If no text was heard, the
    /// turn goes as well.
    Turn { number: u32, heard: Option<HeardLength> },
    /// Turn `number` becomes the head with its full reply. The next turn goes, to be generated again.
    Regenerate { number: u32 },
    /// As `Regenerate`, but the new reply begins with the words of the old reply ([`AppliedRewind::unfinished`]).
    GoOn { number: u32 },
    /// The turn that went for a regenerate stands again, because no new turn came.
    Reinstate { turn: TurnId },
    /// The last turn without its recent cut. A turn cut mid-stream goes, and its speaker continues it
    /// ([`AppliedRewind::unfinished`]). With `may_continue` false, the request was not counted as a line, and such a turn
    /// is not resumed.
    Resume { may_continue: bool },
}

impl RewindTarget {
    /// Returns whether an NPC conversation is paused after the rewind. An interrupt pauses the conversation until a
    /// caller resumes the conversation. `None`: no change, as in every session.
    #[must_use]
    pub fn paused_after(self, dialogue: DialogueKind) -> Option<bool> {
        match (dialogue, self) {
            (DialogueKind::NpcConversation, Self::Turn { .. }) => Some(true),
            (DialogueKind::NpcConversation, Self::Resume { .. }) => Some(false),
            _ => None,
        }
    }

    /// Returns the number of the head after the rewind, if the whole last reply was heard. `head_turn`: the number
    /// before.
    #[must_use]
    pub fn head_turn_after(self, head_turn: u32) -> u32 {
        match self {
            Self::Turn { number, .. } | Self::Regenerate { number } | Self::GoOn { number } => number,
            Self::Reinstate { .. } => head_turn + 1,
            Self::Resume { .. } => head_turn,
        }
    }

    /// Returns the rank of the target: a lower rank goes further back. For the same turn, counts in different units
    /// compare as if no character had two UTF-16 units.
    #[must_use]
    pub fn rank(self) -> impl Ord {
        match self {
            Self::Turn { number, heard } => (number, heard.map_or(usize::MAX, HeardLength::units), 0),
            // A permanent rewind of the turn wins.
            Self::Regenerate { number } | Self::GoOn { number } => (number, usize::MAX, 1),
            Self::Resume { .. } | Self::Reinstate { .. } => (u32::MAX, usize::MAX, 2),
        }
    }

    /// True if a head with number `head` satisfies the target already.
    #[must_use]
    pub fn is_reached_at(self, head: u32) -> bool {
        match self {
            Self::Turn { number, heard } => number > head || (number == head && heard.is_none()),
            Self::Regenerate { number } | Self::GoOn { number } => number >= head,
            // A turn was unsaid since, so no reply can be resumed.
            Self::Resume { .. } | Self::Reinstate { .. } => true,
        }
    }
}

/// A dialogue before a rewind, as its owner knows the dialogue.
#[derive(Debug, Clone)]
pub struct OwnedDialogue {
    pub scope: TenantScope,
    pub node: NodeId,
    pub id: DialogueId,
    pub world: WorldId,
    /// The owner's epoch. A rewind increments the epoch.
    pub epoch: u64,
    pub head: Option<TurnId>,
    /// The number of the head.
    pub head_turn: u32,
    /// True if a running turn must not commit. The epoch then rises even if every turn stays.
    pub fence: bool,
    /// The `seq` of the event that reports the rewind.
    pub seq: u64,
    pub tiers: DialogueTiers,
}

/// The settings of a dialogue's tiers, as far as its owner has them in memory. They decide which jobs a shortened turn has.
#[derive(Debug, Clone, Default)]
pub struct DialogueTiers {
    /// The world as each NPC of the dialogue sees it ([`World::for_npc`]). The rows of other NPCs are read.
    pub worlds: Vec<(NpcId, Arc<World>)>,
    pub session: Option<Box<TierSettings>>,
}

impl DialogueTiers {
    /// Returns the services with the merged settings for turns of `npc`. Without the rows of the NPC or its world, the
    /// configuration is left.
    pub(super) async fn tune<'s>(
        &self,
        services: &'s Services,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
    ) -> StoreResult<Cow<'s, Services>> {
        let held_world = self.worlds.iter().find(|(id, _)| id == npc);
        let world = if let Some((_, world)) = held_world {
            Some(Arc::clone(world))
        } else {
            let authored = &services.ledger.authored;
            let (world, row) =
                tokio::try_join!(authored.load_world(scope, world), authored.load_npc(scope, world, npc))?;
            world.zip(row).map(|(world, npc)| Arc::new(world).for_npc(&npc))
        };
        Ok(world.map_or(Cow::Borrowed(services), |world| match &self.session {
            None => services.tuned_by(&world.settings),
            Some(session) => services.tuned_by(&world.settings.overridden_by(session)),
        }))
    }
}

impl OwnedDialogue {
    /// Returns the commit of a rewind for `requesters`, still without the new head and what depends on it.
    #[must_use]
    pub fn draft_rewind(
        &self,
        ids: &IdSource,
        moment: DateTime<Utc>,
        target: RewindTarget,
        requesters: &Requesters,
    ) -> RewindCommit {
        let other_keys = requesters.other_keys();
        RewindCommit {
            id: ids.next_id(),
            rewound_at: moment,
            dialogue: self.id,
            world: self.world.clone(),
            epoch: self.epoch,
            origin: match (target, self.head) {
                // A reinstated turn must stand even if the dialogue was closed meanwhile.
                (RewindTarget::Reinstate { .. }, _) => RewindOrigin::Reinstatement,
                // A player who joined at the cut turn has continued from the cut.
                (RewindTarget::Resume { .. }, Some(cut)) => RewindOrigin::Resume { cut },
                _ => RewindOrigin::Request,
            },
            to: None,
            replacement: None,
            replacing: self.head.filter(|_| matches!(target, RewindTarget::Regenerate { .. })),
            paused: target.paused_after(self.id.kind()),
            held_until: matches!(target, RewindTarget::Resume { .. }).then_some(moment),
            key: requesters.own_key().cloned(),
            other_keys: other_keys.map(|key| (ids.next_id(), key.clone())).collect(),
            seq: self.seq,
            edits: requesters.audit_edits(ids, moment, self.id),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum RewindResponse {
    /// The head was moved.
    Done(Box<AppliedRewind>),
    /// The key has this outcome already; nothing was written.
    Repeated(InterruptOutcome),
    /// The head is there already; only the keys were written.
    Unchanged,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AppliedRewind {
    pub rewound: Arc<RewindRecord>,
    /// The turn that replaced the cut turn.
    pub replacement: Option<Turn>,
    /// The intent of the line that is answered again, if the classifier named it.
    pub intent: Option<Intent>,
    /// The reply that the next turn continues. If that turn does not come, the reply stands again as it was cut
    /// ([`RewindRecord::replacing`]).
    pub unfinished: Option<PartialReply>,
}

/// The reason why a head was not moved. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RewindError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another node owns the dialogue now.
    #[error("this dialogue moved to another node")]
    Fenced,
    #[error("the dialogue is closed")]
    Closed,
    #[error("there is no turn {turn}; the last one is {head_turn}")]
    NoSuchTurn { turn: u32, head_turn: u32 },
    /// The last turn was not cut, was cut too long ago, or another line followed.
    #[error("there is no cut reply to take up again")]
    NothingToResume,
}
