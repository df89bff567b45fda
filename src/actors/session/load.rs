//! What a session reads from the stores: the dialogue with its ownership, the buffer, the summaries.

use std::{sync::Arc, time::Duration, time::Instant};

use crate::{
    actors::{
        SessionError,
        cast::Cast,
        meters::FencedWrite,
        registry::{Node, SessionKey},
    },
    ids::{DialogueId, NpcId, PlayerId, TurnId},
    memory::{
        fact::Cause,
        summary::Summary,
        turn::{Checkpoint, Turn},
    },
    ports::{
        StoreError, StoreResult,
        buffer::{BufferHead, BufferSnapshot, BufferedTurn},
        ledger::{
            dialogues::{Claim, Dialogue, DialogueStatus, OpenDialogue, OwnerWrite},
            rewinds::Rewound,
        },
    },
    tenancy::TenantScope,
};

/// Moves of the head told when a dialogue is read anew; of more, only the first.
const MOVES_TOLD: u32 = 64;

/// A dialogue as its owner holds it.
pub(in crate::actors) struct Loaded {
    pub dialogue: Arc<Dialogue>,
    /// `None` in an NPC conversation.
    pub player: Option<PlayerId>,
    /// Who speaks when nobody else is meant: the one who spoke last.
    pub npc: NpcId,
    pub closed: bool,
    pub epoch: u64,
    pub head: Option<TurnId>,
    pub checkpoint: Checkpoint,
    pub history: Arc<Vec<BufferedTurn>>,
    pub summaries: Arc<Vec<Summary>>,
    pub next_seq: u64,
    /// A turn that went to be said anew, in whose place none was committed yet.
    pub replacing: Option<TurnId>,
    /// The last turn, if its facts are being extracted or about to be.
    pub awaited: Option<TurnId>,
    /// Moves of the head that those who listen have not been told of, in order.
    pub moved_meanwhile: Vec<Rewound>,
    pub cast: Cast,
    /// When ownership was taken or renewed.
    pub renewed: Instant,
}

impl Loaded {
    /// A turn that ran while a summary landed knows nothing of it: what was summarised only grows.
    pub fn keep_summarised(&mut self, other: &Checkpoint) {
        let ours = &mut self.checkpoint;
        if other.summarised_through > ours.summarised_through {
            ours.summarised_through = other.summarised_through;
            ours.summarised_at = other.summarised_at;
        }
        ours.buffer_from = ours.buffer_from.max(other.buffer_from);
    }

    /// Whether the last of the moves that nobody was told of made it closed, as only a restore can.
    pub fn ended_by_restore(&self) -> bool {
        let last = self.moved_meanwhile.last();
        self.closed && self.replacing.is_none() && last.is_some_and(|rewound| rewound.at == self.dialogue.updated_at)
    }

    /// Drops what is no longer in the buffer.
    pub fn trim(&mut self) {
        let from = self.checkpoint.buffer_from;
        if self.history.first().is_some_and(|turn| turn.number < from) {
            Arc::make_mut(&mut self.history).retain(|turn| turn.number >= from);
        }
    }
}

/// Takes ownership and reads everything a session goes on from. Those who listen have seen the events up to
/// number `told`, if anybody has seen any.
pub(in crate::actors) async fn load(
    node: Arc<Node>,
    key: SessionKey,
    told: Option<u64>,
) -> Result<Loaded, SessionError> {
    let (scope, id) = &key;
    let ports = &node.ports;
    let renewed = ports.clock.instant();
    let now = ports.clock.now();
    let until = now + Duration::from_secs(node.settings.ownership_s);
    let run_out = match &node.membership {
        Some(several) => several.neighbours.dead_by(now),
        None => now,
    };
    let claim = ports.ledger.dialogues.claim(scope, *id, node.id, run_out, until);
    let open = match claim.await? {
        Claim::Owned(open) => *open,
        Claim::OwnedBy { node: owner, .. } => {
            node.note_owner(&key, owner).await;
            return Err(SessionError::Elsewhere { node: owner });
        }
        Claim::NotFound => return Err(SessionError::NotFound),
    };
    if let Some(before) = open.taken_from {
        node.meters.took_over();
        tracing::debug!(dialogue = %id, %before, "took a dialogue over");
    }
    let first = open.dialogue.npcs.first().cloned().ok_or(SessionError::NotFound)?;
    let (history, rest, meanwhile, cast) = tokio::join!(
        history(&node, &key, &open),
        async {
            let Some(head) = open.head else {
                return Ok((Vec::new(), false));
            };
            tokio::try_join!(
                ports.ledger.summaries.kept(scope, *id),
                ports.ledger.jobs.extracting(scope, *id, head, now)
            )
        },
        async {
            match told {
                Some(told) => ports.ledger.rewinds.since(scope, *id, told, MOVES_TOLD).await,
                None => Ok(Vec::new()),
            }
        },
        // Read now so that the first turn need not; what is wrong with it shows when a turn needs it.
        Cast::read(&node, scope, &open.dialogue.world, &open.dialogue.npcs),
    );
    let (summaries, extracting) = rest?;
    let mut history = history?;
    let npc = speaker(&node, scope, &open.dialogue, &history).await?.unwrap_or(first);
    let mut checkpoint = open.checkpoint;
    checkpoint.catch_up(&summaries, ports.settings.summaries.buffer_min_turns);
    history.retain(|turn| turn.number >= checkpoint.buffer_from);
    Ok(Loaded {
        closed: open.dialogue.status == DialogueStatus::Closed,
        player: open.dialogue.player.clone(),
        npc,
        epoch: open.epoch,
        head: open.head,
        checkpoint,
        history: Arc::new(history),
        summaries: Arc::new(summaries),
        next_seq: open.next_seq,
        replacing: open.replacing,
        awaited: open.head.filter(|_| extracting),
        // One that was made since ownership was taken is told by whoever made it.
        moved_meanwhile: meanwhile?
            .into_iter()
            .filter(|rewound| rewound.epoch < open.epoch)
            .collect(),
        // Not read: the first turn tries again.
        cast: cast.unwrap_or_else(|_| Cast::unread(&open.dialogue.npcs)),
        renewed,
        dialogue: Arc::new(open.dialogue),
    })
}

/// Who speaks when nobody else is meant: the one who spoke last, here or where the dialogue was joined, or
/// the first. `None`: nobody is there.
async fn speaker(
    node: &Node,
    scope: &TenantScope,
    dialogue: &Dialogue,
    history: &[BufferedTurn],
) -> StoreResult<Option<NpcId>> {
    let joined = match (history.last(), dialogue.cause) {
        (Some(last), _) => return Ok(Some(last.npc.clone())),
        (None, Some(Cause::Turn(turn))) => node.ports.ledger.dialogues.turn(scope, turn).await?,
        (None, _) => None,
    };
    let joined = joined.map(|found| found.turn.npc);
    let joined = joined.filter(|npc| dialogue.npcs.contains(npc));
    Ok(joined.or_else(|| dialogue.npcs.first().cloned()))
}

/// Reads again what a move of the head changed; ownership stays.
pub(in crate::actors) async fn moved(
    node: Arc<Node>,
    (scope, id): SessionKey,
    epoch: u64,
    head: Option<TurnId>,
) -> StoreResult<Reread> {
    let ledger = &node.ports.ledger;
    let key = (scope.clone(), id);
    let (dialogue, checkpoint, summaries) = tokio::try_join!(
        ledger.dialogues.get(&scope, id),
        ledger.dialogues.checkpoint(&scope, id),
        ledger.summaries.kept(&scope, id),
    )?;
    let dialogue = dialogue.ok_or_else(|| StoreError::Corrupt("a dialogue is gone".to_owned()))?;
    let mut checkpoint = checkpoint.unwrap_or_default();
    checkpoint.catch_up(&summaries, node.ports.settings.summaries.buffer_min_turns);
    let open = OpenDialogue {
        dialogue,
        epoch,
        head,
        checkpoint,
        replacing: None,
        next_seq: 0,
        taken_from: None,
    };
    let history = history(&node, &key, &open).await?;
    let awaited = match head {
        Some(turn) => {
            let now = node.ports.clock.now();
            let extracting = ledger.jobs.extracting(&scope, id, turn, now).await?;
            head.filter(|_| extracting)
        }
        None => None,
    };
    let npc = speaker(&node, &scope, &open.dialogue, &history).await?;
    Ok(Reread {
        npc,
        dialogue: open.dialogue,
        checkpoint: open.checkpoint,
        history,
        summaries,
        awaited,
    })
}

/// What [`moved`] read.
pub(in crate::actors) struct Reread {
    pub dialogue: Dialogue,
    pub npc: Option<NpcId>,
    pub checkpoint: Checkpoint,
    pub history: Vec<BufferedTurn>,
    pub summaries: Vec<Summary>,
    pub awaited: Option<TurnId>,
}

/// The buffer, if it is the one the ledger describes, or else built anew from the ledger.
async fn history(node: &Node, (scope, id): &SessionKey, open: &OpenDialogue) -> StoreResult<Vec<BufferedTurn>> {
    if open.head.is_none() {
        return Ok(Vec::new());
    }
    let buffers = &node.ports.buffers;
    let head = BufferHead {
        epoch: open.epoch,
        turn: open.head,
    };
    match kept(node, (scope, *id), open, head).await {
        Ok(Some(mut turns)) => {
            turns.retain(|turn| turn.number >= open.checkpoint.buffer_from);
            return Ok(turns);
        }
        Ok(None) => {}
        // The buffer is only a copy.
        Err(error) => tracing::warn!(dialogue = %id, %error, "the buffer could not be read"),
    }
    let from = open.checkpoint.buffer_from.max(1);
    let turns = node
        .ports
        .ledger
        .dialogues
        .turns(scope, *id, from, open.dialogue.head_turn)
        .await?;
    let snapshot = BufferSnapshot {
        head,
        turns: turns.iter().map(buffered).collect(),
    };
    if let Err(error) = buffers.replace(scope, *id, &snapshot).await {
        tracing::warn!(dialogue = %id, %error, "the buffer could not be written");
    }
    Ok(snapshot.turns)
}

/// What the buffer has, if it may be believed.
async fn kept(
    node: &Node,
    (scope, id): (&TenantScope, DialogueId),
    open: &OpenDialogue,
    head: BufferHead,
) -> StoreResult<Option<Vec<BufferedTurn>>> {
    let buffers = &node.ports.buffers;
    // After a rewind it may begin too late: a summary that had taken turns out of it is gone.
    let Some(kept) = buffers
        .load(scope, id)
        .await?
        .filter(|kept| begins_by(&kept.turns, open))
    else {
        return Ok(None);
    };
    // Taking ownership raises the epoch by one and moves nothing, so what the owner before left is what stands; it
    // is this one's from now on, unless somebody has just written another.
    let is_handed_over = kept.head.turn == head.turn && kept.head.epoch + 1 == head.epoch;
    let is_ours =
        kept.head == head || (is_handed_over && buffers.truncate(scope, id, kept.head, u32::MAX, head).await?);
    Ok(is_ours.then_some(kept.turns))
}

fn begins_by(turns: &[BufferedTurn], open: &OpenDialogue) -> bool {
    let from = open.checkpoint.buffer_from.max(1);
    turns
        .first()
        .map_or(from > open.dialogue.head_turn, |first| first.number <= from)
}

/// A turn as the buffer keeps it.
pub(in crate::actors) fn buffered(turn: &Turn) -> BufferedTurn {
    turn.into()
}

/// Prolongs ownership. `false`: it was lost.
pub(in crate::actors) async fn renew(node: Arc<Node>, (scope, id): SessionKey, epoch: u64) -> StoreResult<bool> {
    let until = node.ports.clock.now() + Duration::from_secs(node.settings.ownership_s);
    let renewed = node.ports.ledger.dialogues.renew(&scope, id, epoch, until).await;
    if let Ok(false) = renewed {
        node.meters.fenced(FencedWrite::Renew);
    }
    renewed
}

/// Marks the dialogue closed.
pub(in crate::actors) async fn close(node: Arc<Node>, (scope, id): SessionKey, epoch: u64) -> StoreResult<OwnerWrite> {
    let dialogues = &node.ports.ledger.dialogues;
    let closed = dialogues.close(&scope, id, epoch, node.ports.clock.now()).await;
    if let Ok(OwnerWrite::Fenced) = closed {
        node.meters.fenced(FencedWrite::Close);
    }
    closed
}

/// Gives ownership up. If that fails it stays this node's, which is asked for the dialogue as before.
/// `next_seq`: see [`settled_next`](crate::actors::event_log::EventLog::settled_next).
pub(in crate::actors) async fn release(node: Arc<Node>, (scope, id): SessionKey, epoch: u64, next_seq: u64) {
    if let Err(error) = node.ports.ledger.dialogues.release(&scope, id, epoch, next_seq).await {
        tracing::warn!(dialogue = %id, %error, "ownership could not be given up");
    }
}

/// What summarising changed, read again.
pub(in crate::actors) async fn summarised(node: Arc<Node>, (scope, id): SessionKey) -> StoreResult<Vec<Summary>> {
    node.ports.ledger.summaries.kept(&scope, id).await
}
