//! The only entry to the actors: get-or-spawn, admission, and a method for each request. The requests to conversations
//! of NPCs are in `npc_conversation/handle.rs`.
//!
//! The mailbox bound of actix protects nothing. Admission is therefore a permit (`ShareGuard`), taken before a message
//! is sent and carried by the message. At the limit, a caller gets an error with a time to wait; requests are never
//! queued.

mod asking;
mod curator_state;
mod draining;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub use super::messages::{AttachedListener, CREATED_SEQ, CreatedSession, SessionSnapshot};
pub use draining::DrainReport;

use super::{
    AcceptedLine, ActorSettings, DialogueError, InterruptCommand, InterruptOutcome, Listener, NewSession, OnBusy,
    PlayerLine, RegenerateCommand, ResumeCommand, chores,
    dialogue::rewind_run::REWIND_RETRY_AFTER,
    disabled_tenants, heartbeat,
    membership::Membership,
    messages::LastSeq,
    metrics::{ActorKind, ActorMetrics},
    registry::Registry,
    restore_notices, resume_token, rewind_notices,
    session::SessionRequest,
    use_cases::{Ports, UseCases},
};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, NodeId, SaveId, WorldId},
    scope::{Principal, TenantScope},
};
use colloquy_dialogue::{
    Services,
    preview::Preview,
    saves::RestoreRequest,
    turn::{ChatRequest, TurnError},
};
use colloquy_memory::{text::is_blank, turn::Intent};
use colloquy_ports::{
    StoreError,
    ledger::{
        dialogues::{Dialogue, DialogueOptions, DialogueStatus},
        saves::{RestoreOutcome, RestoredDialogue},
    },
    peers::Notice,
};

/// The dialogues of the local node: sessions, and conversations of NPCs. Cheap to clone.
#[derive(Clone)]
pub struct Dialogues {
    node: Arc<Registry>,
    chores: Arc<ChoresTask>,
}

struct ChoresTask {
    stop: CancellationToken,
    task: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Dialogues {
    /// Starts the actors' threads, the chores and the jobs that an earlier process left behind. Must be called on a
    /// thread with a running actix `System`.
    pub fn start(services: Services, node: NodeId, settings: ActorSettings) -> Self {
        Self::start_with_ports(Ports::from(&services), Arc::new(services), node, settings, None)
    }

    /// As [`Self::start`], for a node that has joined a cluster.
    pub fn start_in_cluster(services: Services, settings: ActorSettings, membership: Membership) -> Self {
        let ports = Ports::from(&services);
        let node = membership.neighbours.own_id();
        let membership = Some(Arc::new(membership));
        Self::start_with_ports(ports, Arc::new(services), node, settings, membership)
    }

    pub(super) fn start_with_ports(
        ports: Ports,
        use_cases: Arc<dyn UseCases>,
        node: NodeId,
        settings: ActorSettings,
        membership: Option<Arc<Membership>>,
    ) -> Self {
        let node = Registry::new(node, settings, ports, use_cases, membership);
        let stop = CancellationToken::new();
        let (finished, task) = oneshot::channel();
        let task_node = Arc::clone(&node);
        let task_stop = stop.clone();
        node.arbiter_for(&"chores").spawn(async move {
            tokio::join!(
                chores::run(Arc::clone(&task_node), task_stop.clone()),
                disabled_tenants::run(Arc::clone(&task_node), task_stop.clone()),
                heartbeat::run(task_node, task_stop)
            );
            // Only a draining server waits for the end of the chores.
            let _ = finished.send(());
        });
        Self {
            node,
            chores: Arc::new(ChoresTask {
                stop,
                task: Mutex::new(Some(task)),
            }),
        }
    }

    /// Returns the id of this node.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        self.node.id
    }

    /// Returns the actors' metrics.
    #[must_use]
    pub fn metrics(&self) -> &ActorMetrics {
        &self.node.metrics
    }

    /// Returns the number of actors in memory by kind.
    #[must_use]
    pub fn actor_counts(&self) -> [(&'static str, usize); 4] {
        let node = &self.node;
        [
            (ActorKind::Session.as_str(), node.sessions.len()),
            (ActorKind::NpcConversation.as_str(), node.conversations.len()),
            (ActorKind::Npc.as_str(), node.npcs.len()),
            (ActorKind::Curator.as_str(), node.curators.len()),
        ]
    }

    /// True if the node takes no new turns any more.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.node.is_draining()
    }

    /// Returns the requests that wait in a mailbox or are being answered, and their limit.
    #[must_use]
    pub fn in_flight_requests(&self) -> (usize, usize) {
        (self.node.admission.in_use(), self.node.admission.total())
    }

    /// Returns how many requests to dialogues were refused, and how many dialogues found no place in memory.
    #[must_use]
    pub fn refusal_counts(&self) -> (u64, u64) {
        (self.node.admission.refused_count(), self.node.residents.refused_count())
    }

    pub(super) fn node(&self) -> &Arc<Registry> {
        &self.node
    }

    /// Stops the actors' threads. Call after `drain_node`, once no more messages are sent.
    pub fn stop_threads(&self) {
        self.node.stop_threads();
    }

    /// Creates a session: a ledger row. The actor starts with the first message.
    pub async fn create_session(
        &self,
        scope: &TenantScope,
        new_session: NewSession,
    ) -> Result<CreatedSession, DialogueError> {
        let id = self.node.ports.ids.next_dialogue_id(DialogueKind::Session);
        let created = self.create_session_with_id(scope, id, new_session).await?;
        created.ok_or(DialogueError::Overloaded {
            retry_after: REWIND_RETRY_AFTER,
        })
    }

    /// As [`Self::create_session`], under an id that no session has yet. `None`: the turn that caused the session was
    /// rewound meanwhile.
    pub async fn create_session_with_id(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        new_session: NewSession,
    ) -> Result<Option<CreatedSession>, DialogueError> {
        let resume_token = resume_token::generate_token();
        let now = self.node.ports.clock.now();
        let dialogue = Dialogue {
            id,
            world: new_session.world,
            npcs: new_session.npcs,
            player: Some(new_session.player),
            witnesses: new_session.witnesses,
            resume_token_hash: resume_token::hash_token(&resume_token),
            status: DialogueStatus::Open,
            options: DialogueOptions {
                playback: new_session.playback,
                factions: new_session.factions,
                settings: new_session.settings,
                chat_key: new_session.chat_key,
                ..DialogueOptions::default()
            },
            cause: new_session.cause,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        let is_stored = self.create_dialogue(scope, &dialogue).await?;
        Ok(is_stored.then_some(CreatedSession { dialogue, resume_token }))
    }

    /// Stores a new dialogue. False: the turn that caused the dialogue was rewound meanwhile.
    pub(super) async fn create_dialogue(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
    ) -> Result<bool, DialogueError> {
        let node = &self.node;
        if node.is_draining() {
            return Err(DialogueError::Draining);
        }
        node.check_participants(scope, &dialogue.world, &dialogue.npcs, &dialogue.witnesses)
            .await?;
        let ledger = &node.ports.ledger;
        let budgets = &node.ports.budgets;
        let place = budgets
            .reserve_dialogue(ledger, scope, dialogue.player.as_ref())
            .await?;
        if !ledger.dialogues.create_dialogue(scope, dialogue).await? {
            return Ok(false);
        }
        place.mark_stored();
        // No other process has assigned sequence numbers of the new dialogue.
        let first = LastSeq {
            seq: CREATED_SEQ,
            epoch: 0,
        };
        node.last_seqs.insert((scope.clone(), dialogue.id), first);
        Ok(true)
    }

    /// Replaces a session's resume token; the previous token becomes void. `None`: the session does not exist.
    pub async fn renew_resume_token(
        &self,
        scope: &TenantScope,
        id: DialogueId,
    ) -> Result<Option<String>, DialogueError> {
        let token = resume_token::generate_token();
        let dialogues = &self.node.ports.ledger.dialogues;
        let is_known = dialogues
            .set_resume_token(scope, id, &resume_token::hash_token(&token))
            .await?;
        Ok(is_known.then_some(token))
    }

    /// Checks a line against the rules of all sessions: not blank and not too long.
    pub fn check_line(&self, text: &str) -> Result<(), DialogueError> {
        let max = self.node.ports.settings.turn.max_line_chars;
        if is_blank(text) {
            return Err(DialogueError::LineEmpty);
        }
        // A text has at least as many bytes as characters, so most lines need no count.
        if text.len() > max && text.chars().nth(max).is_some() {
            return Err(DialogueError::LineTooLong { max });
        }
        Ok(())
    }

    /// Sends a player's line.
    pub async fn say_line(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        line: PlayerLine,
    ) -> Result<AcceptedLine, DialogueError> {
        let accepted_at = self.node.ports.clock.monotonic_now();
        // The line of a turn that is only stored may be missing, and was shown before.
        if !line.has_given_reply() {
            self.check_line(&line.text)?;
        }
        self.send_request(scope, id, |reply| SessionRequest::Say {
            line: line.clone(),
            accepted_at,
            reply,
        })
        .await
    }

    /// Asks the NPC to speak first, in a session without turns. The greeting is a turn with an empty line.
    pub async fn request_greeting(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        re: Option<Arc<str>>,
        chat: Option<Arc<ChatRequest>>,
    ) -> Result<AcceptedLine, DialogueError> {
        let accepted_at = self.node.ports.clock.monotonic_now();
        self.send_request(scope, id, |reply| SessionRequest::Say {
            line: PlayerLine {
                text: String::new(),
                to: None,
                key: None,
                on_busy: OnBusy::Reject,
                re: re.clone(),
                who: None,
                chat: chat.clone(),
            },
            accepted_at,
            reply,
        })
        .await
    }

    /// Cuts the running reply, or an earlier reply; the turns after an earlier reply are then unsaid. `command.turn`
    /// unset: the running reply.
    pub async fn interrupt_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        command: InterruptCommand,
    ) -> Result<InterruptOutcome, DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Interrupt {
            command: command.clone(),
            reply,
        })
        .await
    }

    /// Rewinds the dialogue to `command.turn` (unset: to before the first turn). Later turns are unsaid.
    pub async fn rewind_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        command: InterruptCommand,
    ) -> Result<InterruptOutcome, DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Rewind {
            command: command.clone(),
            reply,
        })
        .await
    }

    /// Rewinds the last turn and says its line again. `key` makes a retry safe and becomes the key of the new turn.
    pub async fn regenerate_reply(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        principal: &Principal,
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
    ) -> Result<AcceptedLine, DialogueError> {
        let command = RegenerateCommand {
            key,
            if_head,
            re,
            who: principal.clone(),
            goes_on: false,
            chat: None,
        };
        self.replace_last_turn(scope, id, command).await
    }

    /// Rewinds the last turn, and says its line again or lets the NPC go on with its reply.
    pub async fn replace_last_turn(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        command: RegenerateCommand,
    ) -> Result<AcceptedLine, DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Regenerate {
            command: command.clone(),
            reply,
        })
        .await
    }

    /// Records that the client has played a reply to the end. With `playback: ack`, learning from the reply starts now.
    pub async fn mark_played(&self, scope: &TenantScope, id: DialogueId, turn: u32) -> Result<(), DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Played { turn, reply })
            .await
    }

    /// Resumes a reply that was cut a moment ago, if no later turn exists.
    pub async fn resume_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        command: ResumeCommand,
    ) -> Result<InterruptOutcome, DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Resume {
            command: command.clone(),
            reply,
        })
        .await
    }

    /// Restores every dialogue of a world from a save. Running turns are unsaid. The listeners have been notified when
    /// the call returns.
    pub async fn restore_world(
        &self,
        principal: &Principal,
        world: &WorldId,
        save: SaveId,
        key: Option<String>,
    ) -> Result<RestoreOutcome, StoreError> {
        let node = &self.node;
        let request = RestoreRequest {
            scope: principal.scope(),
            world: world.clone(),
            save,
            key,
            seq_gap: node.settings.replay_events as u64,
            who: principal.clone(),
        };
        let mut outcome = node.use_cases.restore_world(request).await?;
        if let RestoreOutcome::Done { dialogues, .. } = &mut outcome {
            let dialogues = std::mem::take(dialogues);
            let scope = principal.scope();
            let peer_dialogues = dialogues.clone();
            tokio::join!(
                restore_notices::notify_peers(node, &scope, peer_dialogues),
                restore_notices::notify_actors(node, &scope, dialogues)
            );
            failpoint!("restore.told");
            // Later callers find the facts that became valid again, because the outbox is relayed before the return.
            if let Err(error) = node.use_cases.relay_outbox().await {
                tracing::warn!(%error, "the index does not know yet what a loaded save made valid again");
            }
        }
        Ok(outcome)
    }

    /// Handles a save that another node restored: turns that run here are unsaid.
    pub async fn on_world_restored(&self, scope: &TenantScope, dialogues: Vec<RestoredDialogue>) {
        restore_notices::notify_actors(&self.node, scope, dialogues).await;
    }

    /// Adds a listener. With `last_seq`, later events are first delivered again in order. The text so far of a running
    /// reply follows as a single delta from its beginning.
    pub async fn attach_listener(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
    ) -> Result<AttachedListener, DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Attach {
            listener: Arc::clone(&listener),
            last_seq,
            reply,
        })
        .await
    }

    /// Removes a listener. An unknown listener is no error. Never spawns an actor.
    pub fn detach_listener(&self, scope: &TenantScope, id: DialogueId, listener: u64) {
        self.node.detach_listener(&(scope.clone(), id), listener);
    }

    /// Closes sessions whose origin turns another node has rewound.
    pub async fn on_sessions_closed(&self, scope: &TenantScope, sessions: Vec<DialogueId>) {
        rewind_notices::notify_closed(&self.node, scope, sessions).await;
    }

    /// Returns the state of the session.
    pub async fn snapshot(&self, scope: &TenantScope, id: DialogueId) -> Result<SessionSnapshot, DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Snapshot { reply })
            .await
    }

    /// Closes the session and notifies the listeners. A running reply is cut and committed first; queued lines are
    /// cancelled.
    pub async fn close_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        reason: &'static str,
    ) -> Result<(), DialogueError> {
        self.send_request(scope, id, |reply| SessionRequest::Close { reason, reply })
            .await
    }

    /// Returns the prompt for `text`, without calling the reply model. `None`: the intent is classified.
    pub async fn preview_prompt(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        text: String,
        intent: Option<Intent>,
    ) -> Result<Result<Preview, TurnError>, DialogueError> {
        let input = self
            .send_request(scope, id, |reply| SessionRequest::Prepare {
                text: text.clone(),
                reply,
            })
            .await?;
        Ok(self.node.use_cases.preview_prompt(&input, intent).await)
    }

    /// Returns once the node owns the dialogue. The node takes ownership if the dialogue has no owner. Later callers
    /// find other faults of the dialogue.
    ///
    /// # Errors
    /// Another node owns the dialogue, or the local node is draining.
    pub async fn ensure_owned(&self, scope: &TenantScope, id: DialogueId) -> Result<(), DialogueError> {
        let key = (scope.clone(), id);
        let viewed = match id.kind() {
            // A live actor is enough. The actor is not asked, because the actor may be busy.
            DialogueKind::Session if self.node.sessions.find_live(&key).is_some() => return Ok(()),
            DialogueKind::NpcConversation if self.node.conversations.find_live(&key).is_some() => return Ok(()),
            DialogueKind::Session => self.snapshot(scope, id).await.err(),
            DialogueKind::NpcConversation => self.conversation_snapshot(scope, id).await.err(),
        };
        match viewed {
            Some(error @ (DialogueError::NotOwner { .. } | DialogueError::Draining)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Drops cached worlds and NPCs after an edit, so that the next turn reads the edit.
    pub fn forget_authored(&self, scope: &TenantScope, world: &WorldId) {
        self.node.forget_authored(scope, world);
    }

    /// True for a node of several whose clock is not the ledger's.
    #[must_use]
    pub fn is_clock_off(&self) -> bool {
        let membership = self.node.membership.as_ref();
        membership.is_some_and(|membership| membership.neighbours.is_clock_off())
    }

    /// As [`Self::forget_authored`], on every node.
    pub async fn forget_authored_everywhere(&self, scope: &TenantScope, world: &WorldId) {
        self.forget_authored(scope, world);
        let Some(membership) = &self.node.membership else {
            return;
        };
        let notice = Notice::Authored {
            tenant: scope.tenant().clone(),
            world: world.clone(),
        };
        if let Err(error) = membership.peers.notify_peers(&notice).await {
            tracing::warn!(%error, "not every node heard of an edit; those that did not look again within a minute");
        }
    }

    /// Returns the number of live dialogue actors, for metrics and tests.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.node.residents.in_use()
    }

    /// Returns how many more requests to sessions the node accepts, of `max_in_flight`.
    #[must_use]
    pub fn free_permits(&self) -> usize {
        self.node.admission.total() - self.node.admission.in_use()
    }

    #[cfg(test)]
    pub(super) fn node_for_test(&self) -> &Arc<Registry> {
        &self.node
    }

    #[cfg(test)]
    pub(super) fn session_for_test(&self, key: &super::messages::DialogueKey) -> actix::Addr<super::session::Session> {
        self.node.sessions.find_live(key).expect("the test made it")
    }
}
