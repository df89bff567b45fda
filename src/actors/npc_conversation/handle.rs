//! The way in to conversations of NPCs: a method per thing one can be asked.

use std::sync::Arc;

use super::Request;
use crate::{
    actors::{
        Interrupted, Listener, NewConversation, NewSession, SessionError, TakeBack,
        handle::{Ask, Attached, CREATED_SEQ, CreatedSession, Sessions, ask},
        running::Outcome,
    },
    ids::{DialogueId, DialogueKind, PlayerId, TurnId},
    memory::fact::Cause,
    ports::ledger::dialogues::{Dialogue, DialogueOptions, DialogueStatus, Playback},
    tenancy::{Principal, TenantScope},
};

/// How a conversation stands.
#[derive(Debug, Clone)]
pub struct ConversationView {
    pub dialogue: Arc<Dialogue>,
    pub head_seq: u64,
    pub running_turn: Option<u32>,
}

/// Where a player comes in.
#[derive(Debug, Clone)]
pub struct JoinPoint {
    pub dialogue: Arc<Dialogue>,
    /// The last line that was said.
    pub head: Option<TurnId>,
}

/// The conversations of this node. Cheap to clone.
#[derive(Clone)]
pub struct NpcConversations(pub(in crate::actors) Sessions);

impl NpcConversations {
    /// Makes a conversation and, if it paces itself, begins it.
    pub async fn create(&self, scope: &TenantScope, new: NewConversation) -> Result<Dialogue, SessionError> {
        let node = self.0.node();
        if node.is_draining() {
            return Err(SessionError::Draining);
        }
        for npc in new.npcs.iter().chain(&new.witnesses) {
            node.authored(scope, &new.world, npc).await?;
        }
        let now = node.ports.clock.now();
        let dialogue = Dialogue {
            id: node.ports.ids.dialogue(DialogueKind::NpcConversation),
            world: new.world,
            npcs: new.npcs,
            player: None,
            witnesses: new.witnesses,
            resume_token_hash: Vec::new(),
            status: DialogueStatus::Open,
            options: DialogueOptions {
                topic: new.topic,
                max_turns: new.max_turns,
                auto: new.auto,
                paused: false,
                playback: Playback::Immediate,
                next_speaker: new.next_speaker,
                factions: new.factions,
                watchers: new.watchers,
                open: new.open,
            },
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        node.ports.ledger.dialogues.create(scope, &dialogue).await?;
        // No other process gave out numbers of this one.
        node.last_seqs.insert((scope.clone(), dialogue.id), CREATED_SEQ);
        if new.auto {
            self.wake(scope, dialogue.id).await;
        }
        Ok(dialogue)
    }

    /// Has one that paces itself go on, should it not be in memory. It is there already if this fails
    /// for want of room, and goes on the next time.
    pub async fn wake(&self, scope: &TenantScope, id: DialogueId) {
        if let Err(error) = self.view(scope, id).await {
            tracing::info!(dialogue = %id, %error, "a conversation could not go on now");
        }
    }

    /// How it stands.
    pub async fn view(&self, scope: &TenantScope, id: DialogueId) -> Result<ConversationView, SessionError> {
        self.ask(scope, id, |ask| Request::View { ask }).await
    }

    /// Adds a listener. With `last_seq`, events after it are delivered again first, in order.
    pub async fn attach(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
    ) -> Result<Attached, SessionError> {
        self.ask(scope, id, |ask| Request::Attach {
            listener: Arc::clone(&listener),
            last_seq,
            ask,
        })
        .await
    }

    /// Takes a listener off. Unknown ones are fine.
    pub fn detach(&self, scope: &TenantScope, id: DialogueId, listener: u64) {
        self.0.detach(scope, id, listener);
    }

    /// Has one line said, paused or not. The receiver gets it, and fails when the conversation ended
    /// or the server drained first.
    pub async fn step(
        &self,
        scope: &TenantScope,
        id: DialogueId,
    ) -> Result<tokio::sync::oneshot::Receiver<Outcome>, SessionError> {
        self.ask(scope, id, |ask| Request::Step { ask }).await
    }

    /// Cuts the line that is being said, or goes back to an earlier one, and pauses; answers once that is
    /// durable. `wish.turn` unset: whichever is being said.
    pub async fn interrupt(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        wish: TakeBack,
    ) -> Result<Interrupted, SessionError> {
        self.ask(scope, id, |ask| Request::Interrupt {
            wish: wish.clone(),
            ask,
        })
        .await
    }

    /// Goes on after a pause; a line that was cut a moment ago is taken up again, if nothing was said
    /// since. Harmless when there was no pause.
    pub async fn resume(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        who: &Principal,
    ) -> Result<ConversationView, SessionError> {
        self.ask(scope, id, |ask| Request::Resume { who: who.clone(), ask })
            .await
    }

    /// Opens a session of a player with everybody who takes part. The conversation pauses (`joined`);
    /// a line that is being said is cut.
    pub async fn join(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        player: PlayerId,
    ) -> Result<CreatedSession, SessionError> {
        let point = self.ask(scope, id, |ask| Request::Join { ask }).await?;
        let new = NewSession {
            world: point.dialogue.world.clone(),
            npcs: point.dialogue.npcs.clone(),
            player,
            witnesses: point.dialogue.witnesses.clone(),
            playback: point.dialogue.options.playback,
            cause: point.head.map(Cause::Turn),
        };
        self.0.create(scope, new).await
    }

    /// Ends it. A line that is being said is cut and committed first.
    pub async fn end(&self, scope: &TenantScope, id: DialogueId, reason: &'static str) -> Result<(), SessionError> {
        self.ask(scope, id, |ask| Request::End { reason, ask }).await
    }

    async fn ask<T>(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        request: impl Fn(Ask<T>) -> Request,
    ) -> Result<T, SessionError> {
        if id.kind() != DialogueKind::NpcConversation {
            return Err(SessionError::NotFound);
        }
        let (node, key) = (self.0.node(), (scope.clone(), id));
        ask(node, || node.conversation(&key), request).await
    }
}
