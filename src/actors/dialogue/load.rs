//! Reads of a dialogue from the stores: the dialogue with its ownership, the buffer, the summaries.

use std::{sync::Arc, time::Duration, time::Instant};

use chrono::{DateTime, Utc};

use crate::{
    DialogueError,
    event_log::{EventLog, LedgerPosition},
    messages::DialogueKey,
    metrics::FencedWrite,
    node::Node,
    participants::Participants,
};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, NpcId, PlayerId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{fact::Cause, summary::Summary, turn::Checkpoint};
use colloquy_ports::{
    StoreError, StoreResult,
    buffer::{BufferHead, BufferSnapshot, BufferedTurn},
    ledger::{
        dialogues::{Dialogue, DialogueStatus, OpenDialogue, OwnerWriteOutcome, OwnershipClaim},
        jobs::ExtractionStatus,
        rewinds::RewindRecord,
    },
};

/// Rewinds published when a dialogue is loaded again; beyond the limit, only the first rewinds.
const MAX_MISSED_REWINDS: u32 = 64;

/// A dialogue in the memory of its owner.
pub(crate) struct LoadedDialogue {
    pub dialogue: Arc<Dialogue>,
    /// `None` in an NPC conversation.
    pub player: Option<PlayerId>,
    /// The default speaker: the last speaker.
    pub npc: NpcId,
    pub closed: bool,
    pub epoch: u64,
    pub head: Option<TurnId>,
    pub checkpoint: Checkpoint,
    pub history: Arc<Vec<BufferedTurn>>,
    pub summaries: Arc<Vec<Summary>>,
    pub next_seq: u64,
    /// A turn rewound for a replacement, while the replacement is not committed yet.
    pub replacing: Option<TurnId>,
    /// The state of the last turn's fact extraction.
    pub extraction: ExtractionStatus,
    /// The highest number of a line of an NPC conversation, standing or unsaid; 0 in a session.
    pub highest_line: u32,
    /// Rewinds that the listeners do not know yet, in order.
    pub missed_rewinds: Vec<RewindRecord>,
    pub participants: Participants,
    /// When ownership was taken or renewed.
    pub ownership_renewed_at: Instant,
}

impl LoadedDialogue {
    /// Merges summary progress into the checkpoint. A turn that ran while a summary landed does not know the summary;
    /// the summarised range only grows.
    pub fn merge_summary_progress(&mut self, other: &Checkpoint) {
        let ours = &mut self.checkpoint;
        if other.summarised_through > ours.summarised_through {
            ours.summarised_through = other.summarised_through;
            ours.summarised_at = other.summarised_at;
        }
        ours.buffer_from = ours.buffer_from.max(other.buffer_from);
    }

    /// True if the last unknown rewind closed the dialogue, as only a restore can.
    pub fn is_closed_by_restore(&self) -> bool {
        let last = self.missed_rewinds.last();
        self.closed
            && self.replacing.is_none()
            && last.is_some_and(|rewound| rewound.rewound_at == self.dialogue.updated_at)
    }

    /// Drops turns before the start of the buffer.
    pub fn trim_history(&mut self) {
        let from = self.checkpoint.buffer_from;
        if self.history.first().is_some_and(|turn| turn.number < from) {
            Arc::make_mut(&mut self.history).retain(|turn| turn.number >= from);
        }
    }
}

/// Takes ownership and reads the whole state of a dialogue. The listeners know the rewinds up to event `last_seq`, if
/// any.
pub(crate) async fn load_dialogue(
    node: Arc<Node>,
    key: DialogueKey,
    last_seq: Option<u64>,
) -> Result<LoadedDialogue, DialogueError> {
    let (scope, id) = &key;
    let ports = &node.ports;
    let ownership_renewed_at = ports.clock.monotonic_now();
    let now = ports.clock.now();
    let open = claim_dialogue(&node, &key, now).await?;
    let first_npc = open.dialogue.npcs.first().cloned().ok_or(DialogueError::NotFound)?;
    let (history, summaries_and_extraction, missed_rewinds, highest_line, participants) = tokio::join!(
        load_history(&node, &key, &open),
        async {
            let Some(head) = open.head else {
                return Ok((Vec::new(), ExtractionStatus::None));
            };
            tokio::try_join!(
                ports.ledger.summaries.load_summaries(scope, *id),
                ports.ledger.jobs.load_extraction_status(scope, *id, head, now)
            )
        },
        load_missed_rewinds(&node, &key, last_seq),
        load_highest_line(&node, &key),
        // Read early to spare the first turn the read. A failed read shows when a turn needs the rows.
        Participants::read_all(&node, scope, &open.dialogue.world, &open.dialogue.npcs),
    );
    let (summaries, extraction) = summaries_and_extraction?;
    let mut history = history?;
    let npc = last_speaker(&node, scope, &open.dialogue, &history)
        .await?
        .unwrap_or(first_npc);
    let mut checkpoint = open.checkpoint;
    checkpoint.apply_summaries(&summaries, ports.settings.summaries.buffer_min_turns);
    history.retain(|turn| turn.number >= checkpoint.buffer_from);
    Ok(LoadedDialogue {
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
        extraction,
        highest_line: highest_line?,
        // Rewinds since the takeover are published by the actor that made them.
        missed_rewinds: missed_rewinds?
            .into_iter()
            .filter(|rewound| rewound.epoch < open.epoch)
            .collect(),
        // Not read: the first turn tries again.
        participants: participants.unwrap_or_else(|_| Participants::new_unread(&open.dialogue.npcs)),
        ownership_renewed_at,
        dialogue: Arc::new(open.dialogue),
    })
}

/// Takes ownership of a dialogue for `ownership_s`.
async fn claim_dialogue(node: &Node, key: &DialogueKey, now: DateTime<Utc>) -> Result<OpenDialogue, DialogueError> {
    let (scope, id) = key;
    let until = now + Duration::from_secs(node.settings.ownership_s);
    let dead_cutoff = match &node.membership {
        Some(membership) => membership.neighbours.dead_cutoff(now),
        None => now,
    };
    let dialogues = &node.ports.ledger.dialogues;
    let claim = dialogues.claim_ownership(scope, *id, node.id, dead_cutoff, until);
    let open = match claim.await? {
        OwnershipClaim::Owned(open) => *open,
        OwnershipClaim::OwnedBy { node: owner, .. } => {
            node.cache_owner(key, owner).await;
            return Err(DialogueError::NotOwner { node: owner });
        }
        OwnershipClaim::NotFound => return Err(DialogueError::NotFound),
    };
    if let Some(before) = open.taken_from {
        node.metrics.count_takeover();
        tracing::debug!(dialogue = %id, %before, "took a dialogue over");
    }
    Ok(open)
}

/// Reads the rewinds after event `last_seq`. `None`: no listener waits for rewinds.
async fn load_missed_rewinds(
    node: &Node,
    (scope, id): &DialogueKey,
    last_seq: Option<u64>,
) -> StoreResult<Vec<RewindRecord>> {
    let Some(last_seq) = last_seq else {
        return Ok(Vec::new());
    };
    let rewinds = &node.ports.ledger.rewinds;
    rewinds
        .list_rewinds_since(scope, *id, last_seq, MAX_MISSED_REWINDS)
        .await
}

/// Reads the highest number of a line of an NPC conversation; 0 in a session.
async fn load_highest_line(node: &Node, (scope, id): &DialogueKey) -> StoreResult<u32> {
    match id.kind() {
        DialogueKind::Session => Ok(0),
        DialogueKind::NpcConversation => node.ports.ledger.rewinds.load_highest_turn(scope, *id).await,
    }
}

/// Returns the default speaker: the last speaker, here or where the dialogue was joined, or the first NPC. `None`: no
/// NPC takes part.
async fn last_speaker(
    node: &Node,
    scope: &TenantScope,
    dialogue: &Dialogue,
    history: &[BufferedTurn],
) -> StoreResult<Option<NpcId>> {
    let joined = match (history.last(), dialogue.cause) {
        (Some(last), _) => return Ok(Some(last.npc.clone())),
        (None, Some(Cause::Turn(turn))) => node.ports.ledger.dialogues.load_turn(scope, turn).await?,
        (None, _) => None,
    };
    let joined = joined.map(|keyed_turn| keyed_turn.turn.npc);
    let joined = joined.filter(|npc| dialogue.npcs.contains(npc));
    Ok(joined.or_else(|| dialogue.npcs.first().cloned()))
}

/// Reads again the rows that a rewind changed; ownership stays.
pub(crate) async fn reread_after_rewind(
    node: Arc<Node>,
    (scope, id): DialogueKey,
    epoch: u64,
    head: Option<TurnId>,
) -> StoreResult<RereadDialogue> {
    let ledger = &node.ports.ledger;
    let key = (scope.clone(), id);
    let (dialogue, checkpoint, summaries) = tokio::try_join!(
        ledger.dialogues.load_dialogue(&scope, id),
        ledger.dialogues.load_checkpoint(&scope, id),
        ledger.summaries.load_summaries(&scope, id),
    )?;
    let dialogue = dialogue.ok_or_else(|| StoreError::Corrupt("a dialogue is gone".to_owned()))?;
    let mut checkpoint = checkpoint.unwrap_or_default();
    checkpoint.apply_summaries(&summaries, node.ports.settings.summaries.buffer_min_turns);
    let open = OpenDialogue {
        dialogue,
        epoch,
        head,
        checkpoint,
        replacing: None,
        next_seq: 0,
        taken_from: None,
    };
    let history = load_history(&node, &key, &open).await?;
    let now = node.ports.clock.now();
    let extraction = match head {
        Some(turn) => ledger.jobs.load_extraction_status(&scope, id, turn, now).await?,
        None => ExtractionStatus::None,
    };
    let npc = last_speaker(&node, &scope, &open.dialogue, &history).await?;
    Ok(RereadDialogue {
        npc,
        dialogue: open.dialogue,
        checkpoint: open.checkpoint,
        history,
        summaries,
        extraction,
    })
}

/// The result of [`reread_after_rewind`].
pub(crate) struct RereadDialogue {
    pub dialogue: Dialogue,
    pub npc: Option<NpcId>,
    pub checkpoint: Checkpoint,
    pub history: Vec<BufferedTurn>,
    pub summaries: Vec<Summary>,
    pub extraction: ExtractionStatus,
}

/// Returns the buffer if it matches the ledger's head, or else builds the buffer again from the ledger.
async fn load_history(node: &Node, (scope, id): &DialogueKey, open: &OpenDialogue) -> StoreResult<Vec<BufferedTurn>> {
    if open.head.is_none() {
        return Ok(Vec::new());
    }
    let buffers = &node.ports.buffers;
    let head = BufferHead {
        epoch: open.epoch,
        turn: open.head,
    };
    match load_buffered_history(node, scope, *id, open, head).await {
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
        .load_turns(scope, *id, from, open.dialogue.head_turn)
        .await?;
    let snapshot = BufferSnapshot {
        head,
        turns: turns.iter().map(BufferedTurn::from).collect(),
    };
    if let Err(error) = buffers.replace_buffer(scope, *id, &snapshot).await {
        tracing::warn!(dialogue = %id, %error, "the buffer could not be written");
    }
    Ok(snapshot.turns)
}

/// Returns the turns of the buffer, if the buffer is valid.
async fn load_buffered_history(
    node: &Node,
    scope: &TenantScope,
    id: DialogueId,
    open: &OpenDialogue,
    head: BufferHead,
) -> StoreResult<Option<Vec<BufferedTurn>>> {
    let buffers = &node.ports.buffers;
    // After a rewind the buffer may begin too late: a summary that had removed turns from the buffer is gone.
    let Some(buffer) = buffers
        .load_buffer(scope, id)
        .await?
        .filter(|buffer| has_full_history(&buffer.turns, open))
    else {
        return Ok(None);
    };
    // Taking ownership raises the epoch by one and moves no head, so the previous owner's buffer stands. The buffer
    // gets the new epoch, unless another writer has just replaced the buffer.
    let is_handed_over = buffer.head.turn == head.turn && buffer.head.epoch + 1 == head.epoch;
    let is_ours = buffer.head == head
        || (is_handed_over && buffers.truncate_buffer(scope, id, buffer.head, u32::MAX, head).await?);
    Ok(is_ours.then_some(buffer.turns))
}

fn has_full_history(turns: &[BufferedTurn], open: &OpenDialogue) -> bool {
    let from = open.checkpoint.buffer_from.max(1);
    turns
        .first()
        .map_or(from > open.dialogue.head_turn, |first| first.number <= from)
}

/// Extends ownership. `false`: the node has lost the dialogue.
pub(crate) async fn renew_ownership(node: Arc<Node>, (scope, id): DialogueKey, epoch: u64) -> StoreResult<bool> {
    let until = node.ports.clock.now() + Duration::from_secs(node.settings.ownership_s);
    let renewed = node
        .ports
        .ledger
        .dialogues
        .renew_ownership(&scope, id, epoch, until)
        .await;
    if let Ok(false) = renewed {
        node.metrics.count_fenced_write(FencedWrite::Renew);
    }
    renewed
}

/// Marks the dialogue closed.
pub(crate) async fn close_dialogue(
    node: Arc<Node>,
    (scope, id): DialogueKey,
    epoch: u64,
) -> StoreResult<OwnerWriteOutcome> {
    let dialogues = &node.ports.ledger.dialogues;
    let closed = dialogues
        .close_dialogue(&scope, id, epoch, node.ports.clock.now())
        .await;
    if let Ok(OwnerWriteOutcome::Fenced) = closed {
        node.metrics.count_fenced_write(FencedWrite::Close);
    }
    closed
}

/// Releases ownership. After a failure the node stays the owner and gets requests as before. `next_seq`: see
/// [`next_seq_if_quiet`](crate::event_log::EventLog::next_seq_if_quiet).
pub(crate) async fn release_ownership(node: Arc<Node>, (scope, id): DialogueKey, epoch: u64, next_seq: u64) {
    if let Err(error) = node
        .ports
        .ledger
        .dialogues
        .release_ownership(&scope, id, epoch, next_seq)
        .await
    {
        tracing::warn!(dialogue = %id, %error, "ownership could not be given up");
    }
}

impl LoadedDialogue {
    /// Updates the event log from the dialogue that was just loaded.
    pub(crate) fn sync_event_log(&self, node: &Node, key: &DialogueKey, log: &EventLog) {
        let last_seq = node.last_seqs.get(key);
        // The gap grows with each load. Two processes that are killed one after the other then share no number.
        let gap = (node.settings.replay_events as u64).saturating_mul(self.epoch);
        let start = LedgerPosition {
            ledger_next: self.next_seq,
            head_turn: self.dialogue.head_turn,
            epoch: self.epoch,
            gap,
            among_others: node.membership.is_some(),
        };
        log.on_loaded(start, last_seq);
    }
}
