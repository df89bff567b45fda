//! The requests to conversations of NPCs.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use ulid::Ulid;

use super::ConversationRequest;
use crate::{
    DialogueError, InterruptCommand, InterruptOutcome, Listener, NewConversation, NewSession,
    dialogue::rewind_run::REWIND_RETRY_AFTER,
    handle::Dialogues,
    messages::{AttachedListener, ConversationSnapshot, CreatedSession},
    node::ActorDirectory,
    running_turn::TurnOutcome,
};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, NpcId, PlayerId, WorldId},
    scope::{Principal, TenantScope},
};
use colloquy_memory::fact::Cause;
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueOptions, DialogueStatus, Playback};

/// How often a player joins at another line when the line of each attempt is rewound first.
const MAX_JOIN_ATTEMPTS: usize = 4;

/// Returns the id of the session in which a player joins a conversation with `key`. The id is always the same, so a
/// repeated request finds the first request's session, even after a crash. The id sorts with the conversation.
#[must_use]
pub fn joined_session_id(conversation: DialogueId, player: &PlayerId, key: &str) -> DialogueId {
    const RANDOM: u128 = (1 << 80) - 1;
    let digest: [u8; 32] = Sha256::new()
        .chain_update(conversation.to_string())
        .chain_update([0])
        .chain_update(player.as_str())
        .chain_update([0])
        .chain_update(key)
        .finalize()
        .into();
    let mixed = digest
        .iter()
        .take(16)
        .fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte));
    let conversation_bits = conversation.as_u128();
    DialogueId::new(
        DialogueKind::Session,
        Ulid((conversation_bits & !RANDOM) | (mixed & RANDOM)),
    )
}

impl Dialogues {
    /// Creates a conversation, and starts a self-paced conversation.
    pub async fn create_conversation(
        &self,
        scope: &TenantScope,
        new_conversation: NewConversation,
    ) -> Result<Dialogue, DialogueError> {
        let node = self.node();
        let now = node.ports.clock.now();
        let dialogue = Dialogue {
            id: node.ports.ids.next_dialogue_id(DialogueKind::NpcConversation),
            world: new_conversation.world,
            npcs: new_conversation.npcs,
            player: None,
            witnesses: new_conversation.witnesses,
            resume_token_hash: Vec::new(),
            status: DialogueStatus::Open,
            options: DialogueOptions {
                chat_key: None,
                topic: new_conversation.topic,
                max_turns: new_conversation.max_turns,
                auto: new_conversation.auto,
                paused: false,
                playback: Playback::Immediate,
                next_speaker: new_conversation.next_speaker,
                factions: new_conversation.factions,
                watchers: new_conversation.watchers,
                open: new_conversation.open,
                interrupters: new_conversation.interrupters,
                settings: None,
            },
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        self.create_dialogue(scope, &dialogue).await?;
        if new_conversation.auto {
            self.wake_conversation(scope, dialogue.id).await;
        }
        Ok(dialogue)
    }

    /// Wakes a self-paced conversation that is not in memory. If no room is free, the conversation exists all the same
    /// and continues at the next request.
    pub async fn wake_conversation(&self, scope: &TenantScope, id: DialogueId) {
        if let Err(error) = self.conversation_snapshot(scope, id).await {
            tracing::info!(dialogue = %id, %error, "a conversation could not go on now");
        }
    }

    /// Returns the state of the conversation.
    pub async fn conversation_snapshot(
        &self,
        scope: &TenantScope,
        id: DialogueId,
    ) -> Result<ConversationSnapshot, DialogueError> {
        self.send_request(scope, id, |reply| ConversationRequest::Snapshot { reply })
            .await
    }

    /// Adds a listener. With `last_seq`, later events are first delivered again in order. A self-paced conversation
    /// that is not in memory continues if the listener `wakes` the conversation; otherwise it sleeps until another
    /// request.
    pub async fn watch_conversation(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        wakes: bool,
    ) -> Result<AttachedListener, DialogueError> {
        let request = |reply| ConversationRequest::Attach {
            listener: Arc::clone(&listener),
            last_seq,
            wakes,
            reply,
        };
        self.send_request(scope, id, request).await
    }

    /// Requests one line, even during a pause. The receiver gets the line, and fails when the conversation ends or the
    /// server drains first.
    pub async fn say_next_line(
        &self,
        scope: &TenantScope,
        id: DialogueId,
    ) -> Result<tokio::sync::oneshot::Receiver<TurnOutcome>, DialogueError> {
        self.send_request(scope, id, |reply| ConversationRequest::Step { reply })
            .await
    }

    /// Cuts the running line or rewinds to an earlier line, and pauses the conversation. Answers once the result is
    /// durable. `command.turn` unset: the running line.
    pub async fn interrupt_conversation(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        command: InterruptCommand,
    ) -> Result<InterruptOutcome, DialogueError> {
        self.send_request(scope, id, |reply| ConversationRequest::Interrupt {
            command: command.clone(),
            reply,
        })
        .await
    }

    /// Continues after a pause. A line that was cut a moment ago is resumed if no later line exists. Harmless without a
    /// pause.
    pub async fn resume_conversation(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        who: &Principal,
    ) -> Result<ConversationSnapshot, DialogueError> {
        self.send_request(scope, id, |reply| ConversationRequest::Resume {
            who: who.clone(),
            reply,
        })
        .await
    }

    /// Opens a session of a player with all NPCs of the conversation. The conversation pauses (`joined`), and a running
    /// line is cut. With a `key`, [`Self::find_joined_session`] finds the session from then on.
    pub async fn join_conversation(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        player: PlayerId,
        key: Option<&str>,
    ) -> Result<CreatedSession, DialogueError> {
        let session = match key {
            Some(key) => joined_session_id(id, &player, key),
            None => self.node().ports.ids.next_dialogue_id(DialogueKind::Session),
        };
        if key.is_some()
            && let Some(joined) = self.read_joined_session(scope, session).await?
        {
            return Ok(joined);
        }
        for _ in 0..MAX_JOIN_ATTEMPTS {
            if let Some(joined) = self.join_at_current_line(scope, id, session, player.clone()).await? {
                return Ok(joined);
            }
        }
        Err(DialogueError::Overloaded {
            retry_after: REWIND_RETRY_AFTER,
        })
    }

    /// Opens `session` at the present line of the conversation. `None`: the line was rewound meanwhile.
    async fn join_at_current_line(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        session: DialogueId,
        player: PlayerId,
    ) -> Result<Option<CreatedSession>, DialogueError> {
        let point = self
            .send_request(scope, id, |reply| ConversationRequest::Join { reply })
            .await?;
        failpoint!("join.placed");
        let mut witnesses = point.dialogue.witnesses.clone();
        self.remove_deleted_npcs(scope, &point.dialogue.world, &mut witnesses)
            .await?;
        let new_session = NewSession {
            world: point.dialogue.world.clone(),
            npcs: point.dialogue.npcs.clone(),
            player,
            witnesses,
            factions: point.dialogue.options.factions.clone(),
            playback: point.dialogue.options.playback,
            settings: None,
            cause: point.head.map(Cause::Turn),
            chat_key: None,
        };
        match self.create_session_with_id(scope, session, new_session).await {
            // A repeat of the request may have been handled meanwhile.
            Err(error @ DialogueError::Store(_)) => match self.read_joined_session(scope, session).await? {
                Some(joined) => Ok(Some(joined)),
                None => Err(error),
            },
            created => {
                failpoint!("join.made");
                created
            }
        }
    }

    /// Checks that a session with all NPCs of the conversation could be opened.
    ///
    /// # Errors
    /// The conversation has ended, or an NPC was deleted.
    pub async fn check_joinable(&self, scope: &TenantScope, dialogue: &Dialogue) -> Result<(), DialogueError> {
        if dialogue.status == DialogueStatus::Closed {
            return Err(DialogueError::Ended);
        }
        for npc in &dialogue.npcs {
            self.node().read_authored(scope, &dialogue.world, npc).await?;
        }
        Ok(())
    }

    /// Finds the session that a player opened by joining with the key to say `text`. The resume token is new, and the
    /// previous token is void. `None`: no join used the key.
    ///
    /// # Errors
    /// The session is closed, or the key's line is unsaid or has another text.
    pub async fn find_joined_session(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        player: &PlayerId,
        key: &str,
        text: &str,
    ) -> Result<Option<CreatedSession>, DialogueError> {
        let session = joined_session_id(id, player, key);
        let dialogues = &self.node().ports.ledger.dialogues;
        match dialogues.load_turn_by_key(scope, session, key).await? {
            Some(keyed_turn) if keyed_turn.turn.player_text != text => return Err(DialogueError::KeyReused),
            Some(keyed_turn) if !keyed_turn.stands => return Err(DialogueError::TurnUnsaid),
            Some(_) | None => {}
        }
        self.read_joined_session(scope, session).await
    }

    async fn read_joined_session(
        &self,
        scope: &TenantScope,
        session: DialogueId,
    ) -> Result<Option<CreatedSession>, DialogueError> {
        let dialogues = &self.node().ports.ledger.dialogues;
        let Some(dialogue) = dialogues.load_dialogue(scope, session).await? else {
            return Ok(None);
        };
        if dialogue.status == DialogueStatus::Closed {
            return Err(DialogueError::Closed);
        }
        let token = self.renew_resume_token(scope, session).await?;
        Ok(token.map(|resume_token| CreatedSession { dialogue, resume_token }))
    }

    /// Removes witnesses that were deleted meanwhile; the rest stay.
    async fn remove_deleted_npcs(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &mut Vec<NpcId>,
    ) -> Result<(), DialogueError> {
        let mut existing = Vec::with_capacity(npcs.len());
        for npc in npcs.drain(..) {
            match self.node().read_authored(scope, world, &npc).await {
                Ok(_) => existing.push(npc),
                Err(DialogueError::NoNpc(_)) => {}
                Err(error) => return Err(error),
            }
        }
        *npcs = existing;
        Ok(())
    }

    /// Ends the conversation. A running line is cut and committed first.
    pub async fn end_conversation(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        reason: &'static str,
    ) -> Result<(), DialogueError> {
        self.send_request(scope, id, |reply| ConversationRequest::End { reason, reply })
            .await
    }
}
