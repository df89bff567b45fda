//! The one way in: get-or-spawn, admission, and a method per thing a session can be asked.
//!
//! The mailbox bound of actix protects nothing, so admission is a permit ([`Share`]) taken before a
//! message is sent and carried by it. Full means an error with a time to wait, never a queue.

mod draining;

use std::{sync::Arc, time::Duration};

use actix::{Addr, Handler};
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub use draining::Drained;

use super::{
    Accepted, ActorSettings, Interrupted, Line, Listener, NewSession, OnBusy, SessionError, TakeBack, TakeUp, chores,
    disabled,
    mailbox::{Kind, Mailbox, Posted, send},
    membership::{self, Membership},
    meters::ActorMeters,
    npc_conversation::handle::NpcConversations,
    registry::{LastSeq, Node},
    restoring, resume_token,
    rewinding::{self, MOMENT},
    session::Request,
    use_cases::{Ports, UseCases},
};
use crate::{
    dialogue::{Services, prompt::Preview, saves::RestoreRequest, turn::TurnError},
    ids::{DialogueId, DialogueKind, NodeId, SaveId, TenantId, WorldId},
    memory::{summary::Summary, text::is_blank, turn::Checkpoint},
    ports::{
        StoreError,
        buffer::BufferedTurn,
        ledger::{
            dialogues::{Dialogue, DialogueOptions, DialogueStatus},
            saves::{RestoreOutcome, RestoredDialogue},
        },
        peers::Notice,
    },
    shares::Share,
    tenancy::{Principal, TenantScope},
};

/// A session that was just made.
#[derive(Debug, Clone)]
pub struct CreatedSession {
    pub dialogue: Dialogue,
    /// Shown once; only its hash is kept.
    pub resume_token: String,
}

/// What came of attaching a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    pub head_seq: u64,
    pub head_turn: u32,
    /// Missed events that were delivered again, in order, before this returned.
    pub replayed: usize,
    /// Pass to `detach`.
    pub listener: u64,
}

/// A session's state as the context preview and the REST resource show it.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub dialogue: Arc<Dialogue>,
    pub history: Arc<Vec<BufferedTurn>>,
    pub summaries: Arc<Vec<Summary>>,
    pub checkpoint: Checkpoint,
    pub head_seq: u64,
    pub running_turn: Option<u32>,
    pub queued: usize,
    pub at: DateTime<Utc>,
}

/// `seq` of `session.created`. The dialogue's own events come after it.
pub const CREATED_SEQ: u64 = 1;

/// A request's way back, and its permit, which is free again once it was answered.
pub(super) struct Ask<T> {
    reply: oneshot::Sender<Result<T, SessionError>>,
    permit: Share<TenantId>,
    /// What whoever asks is doing.
    span: tracing::Span,
}

impl<T> Ask<T> {
    pub(super) fn span(&self) -> &tracing::Span {
        &self.span
    }

    pub(super) fn answer(self, answer: Result<T, SessionError>) {
        drop(self.permit);
        // Whoever asked may have gone away.
        let _ = self.reply.send(answer);
    }
}

/// The sessions of this node. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    node: Arc<Node>,
    chores: Arc<Chores>,
}

struct Chores {
    stop: CancellationToken,
    task: Mutex<Option<oneshot::Receiver<()>>>,
}

/// How often a request is given to a fresh actor when the one it went to stopped just then.
const ATTEMPTS: usize = 4;
impl Sessions {
    /// Starts the actors' threads, the chores and the jobs an earlier process left behind.
    /// Must be called on a thread with a running actix `System`.
    pub fn start(services: Services, node: NodeId, settings: ActorSettings) -> Self {
        Self::start_with(Ports::from(&services), Arc::new(services), node, settings, None)
    }

    /// As [`Self::start`], of a node that is one of several and has joined them.
    pub fn start_among(services: Services, settings: ActorSettings, membership: Membership) -> Self {
        let (ports, node) = (Ports::from(&services), membership.neighbours.own());
        let membership = Some(Arc::new(membership));
        Self::start_with(ports, Arc::new(services), node, settings, membership)
    }

    pub(super) fn start_with(
        ports: Ports,
        use_cases: Arc<dyn UseCases>,
        node: NodeId,
        settings: ActorSettings,
        membership: Option<Arc<Membership>>,
    ) -> Self {
        let node = Node::new(node, settings, ports, use_cases, membership);
        let stop = CancellationToken::new();
        let (done, task) = oneshot::channel();
        let (their_node, their_stop) = (Arc::clone(&node), stop.clone());
        node.arbiter(&"chores").spawn(async move {
            tokio::join!(
                chores::run(Arc::clone(&their_node), their_stop.clone()),
                disabled::run(Arc::clone(&their_node), their_stop.clone()),
                membership::run(their_node, their_stop)
            );
            // Nobody waits for it unless the server drains.
            let _ = done.send(());
        });
        Self {
            node,
            chores: Arc::new(Chores {
                stop,
                task: Mutex::new(Some(task)),
            }),
        }
    }

    /// The conversations of this node.
    #[must_use]
    pub fn npc_conversations(&self) -> NpcConversations {
        NpcConversations(self.clone())
    }

    /// What the actors measure.
    #[must_use]
    pub fn meters(&self) -> &ActorMeters {
        &self.node.meters
    }

    /// Actors in memory, by what they are.
    #[must_use]
    pub fn actors(&self) -> [(&'static str, usize); 4] {
        let node = &self.node;
        [
            (Kind::Session.as_str(), node.sessions.len()),
            (Kind::NpcConversation.as_str(), node.conversations.len()),
            (Kind::Npc.as_str(), node.npcs.len()),
            (Kind::Curator.as_str(), node.curators.len()),
        ]
    }

    /// Whether this node takes no new turns any more.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.node.is_draining()
    }

    /// Requests whose message waits in a mailbox or is being answered, and how many there may be.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        (self.node.admission.in_use(), self.node.admission.total())
    }

    /// How many requests to dialogues, and how many dialogues in memory, got no place.
    #[must_use]
    pub fn refused(&self) -> (u64, u64) {
        (self.node.admission.refused(), self.node.live.refused())
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Stops the actors' threads. After `drain`, once nothing sends any more.
    pub fn stop(&self) {
        self.node.stop_threads();
    }

    /// Makes a session (a ledger row; its actor starts with the first message).
    pub async fn create(&self, scope: &TenantScope, new: NewSession) -> Result<CreatedSession, SessionError> {
        let id = self.node.ports.ids.dialogue(DialogueKind::Session);
        let created = self.create_as(scope, id, new).await?;
        created.ok_or(SessionError::Overloaded { retry_after: MOMENT })
    }

    /// As [`Self::create`], under an id that no session has yet. `None`: the turn that was to open it was taken
    /// back meanwhile.
    pub(super) async fn create_as(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        new: NewSession,
    ) -> Result<Option<CreatedSession>, SessionError> {
        let node = &self.node;
        if node.is_draining() {
            return Err(SessionError::Draining);
        }
        for npc in new.npcs.iter().chain(&new.witnesses) {
            node.authored(scope, &new.world, npc).await?;
        }
        let budgets = &node.ports.budgets;
        let place = budgets.dialogue(&node.ports.ledger, scope, Some(&new.player)).await?;
        let resume_token = resume_token::generate();
        let now = node.ports.clock.now();
        let dialogue = Dialogue {
            id,
            world: new.world,
            npcs: new.npcs,
            player: Some(new.player),
            witnesses: new.witnesses,
            resume_token_hash: resume_token::hash(&resume_token),
            status: DialogueStatus::Open,
            options: DialogueOptions {
                playback: new.playback,
                factions: new.factions,
                ..DialogueOptions::default()
            },
            cause: new.cause,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        if !node.ports.ledger.dialogues.create(scope, &dialogue).await? {
            return Ok(None);
        }
        place.keep();
        // No other process gave out numbers of this one.
        let first = LastSeq {
            seq: CREATED_SEQ,
            epoch: 0,
        };
        node.last_seqs.insert((scope.clone(), dialogue.id), first);
        Ok(Some(CreatedSession { dialogue, resume_token }))
    }

    /// Gives a session a new resume token; the one before is void. `None`: there is no such session.
    pub async fn renew_resume_token(
        &self,
        scope: &TenantScope,
        id: DialogueId,
    ) -> Result<Option<String>, SessionError> {
        let token = resume_token::generate();
        let dialogues = &self.node.ports.ledger.dialogues;
        let known = dialogues
            .set_resume_token(scope, id, &resume_token::hash(&token))
            .await?;
        Ok(known.then_some(token))
    }

    /// Whether a line may be said at all, in whichever session.
    pub fn may_say(&self, text: &str) -> Result<(), SessionError> {
        let max = self.node.ports.settings.turn.max_line_chars;
        if is_blank(text) {
            return Err(SessionError::LineEmpty);
        }
        // Bytes are never fewer than characters, so most lines need not be counted.
        if text.len() > max && text.chars().nth(max).is_some() {
            return Err(SessionError::LineTooLong { max });
        }
        Ok(())
    }

    /// Speaks a line.
    pub async fn say(&self, scope: &TenantScope, id: DialogueId, line: Line) -> Result<Accepted, SessionError> {
        let accepted_at = self.node.ports.clock.instant();
        self.may_say(&line.text)?;
        self.ask(scope, id, |ask| Request::Say {
            line: line.clone(),
            accepted_at,
            ask,
        })
        .await
    }

    /// Has the NPC speak first, in a session in which nothing was said yet. It is a turn whose line is empty.
    pub async fn greet(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        re: Option<Arc<str>>,
    ) -> Result<Accepted, SessionError> {
        let accepted_at = self.node.ports.clock.instant();
        self.ask(scope, id, |ask| Request::Say {
            line: Line {
                text: String::new(),
                to: None,
                key: None,
                on_busy: OnBusy::Reject,
                re: re.clone(),
                who: None,
            },
            accepted_at,
            ask,
        })
        .await
    }

    /// Cuts the running reply, or an earlier one: then what followed it never happened. `wish.turn`
    /// unset: whichever runs.
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

    /// Takes the dialogue back to `wish.turn` (unset: to before its first); what followed never happened.
    pub async fn rewind(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        wish: TakeBack,
    ) -> Result<Interrupted, SessionError> {
        self.ask(scope, id, |ask| Request::Rewind {
            wish: wish.clone(),
            ask,
        })
        .await
    }

    /// Takes the last turn back and says its line anew; `key` makes a retry safe and is the new turn's.
    pub async fn regenerate(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        who: &Principal,
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
    ) -> Result<Accepted, SessionError> {
        self.ask(scope, id, |ask| Request::Regenerate {
            key: key.clone(),
            if_head,
            re: re.clone(),
            who: who.clone(),
            ask,
        })
        .await
    }

    /// The client has played a reply to its end: with `playback: ack` it is learned from now.
    pub async fn played(&self, scope: &TenantScope, id: DialogueId, turn: u32) -> Result<(), SessionError> {
        self.ask(scope, id, |ask| Request::Played { turn, ask }).await
    }

    /// Takes a reply that was cut a moment ago up again, if nothing was said since.
    pub async fn resume(&self, scope: &TenantScope, id: DialogueId, wish: TakeUp) -> Result<Interrupted, SessionError> {
        self.ask(scope, id, |ask| Request::Resume {
            wish: wish.clone(),
            ask,
        })
        .await
    }

    /// Puts every dialogue of a world where a save has it. What ran in them never happened, and those who
    /// listen have been told when this returns.
    pub async fn restore(
        &self,
        who: &Principal,
        world: &WorldId,
        save: SaveId,
        key: Option<String>,
    ) -> Result<RestoreOutcome, StoreError> {
        let node = &self.node;
        let request = RestoreRequest {
            scope: who.scope(),
            world: world.clone(),
            save,
            key,
            seq_gap: node.settings.replay_events as u64,
            who: who.clone(),
        };
        let mut outcome = node.use_cases.restore(request).await?;
        if let RestoreOutcome::Done { dialogues, .. } = &mut outcome {
            let dialogues = std::mem::take(dialogues);
            let (scope, theirs) = (who.scope(), dialogues.clone());
            tokio::join!(
                restoring::tell_peers(node, &scope, theirs),
                restoring::tell(node, &scope, dialogues)
            );
            failpoint!("restore.told");
            // What is valid again is found by whoever asks once this has returned.
            if let Err(error) = node.use_cases.relay_outbox().await {
                tracing::warn!(%error, "the index does not know yet what a loaded save made valid again");
            }
        }
        Ok(outcome)
    }

    /// Another node loaded a save: what ran here never happened.
    pub async fn was_restored(&self, scope: &TenantScope, dialogues: Vec<RestoredDialogue>) {
        restoring::tell(&self.node, scope, dialogues).await;
    }

    /// Adds a listener. With `last_seq`, events after it are delivered again first, in order. Then
    /// comes what a running reply has said so far, as one delta from its beginning.
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

    /// Takes a listener off. Unknown ones are fine. Never spawns an actor.
    pub fn detach(&self, scope: &TenantScope, id: DialogueId, listener: u64) {
        self.node.detach(&(scope.clone(), id), listener);
    }

    /// Another node took back what these sessions were joined from: they are closed.
    pub async fn were_closed(&self, scope: &TenantScope, sessions: Vec<DialogueId>) {
        rewinding::tell_closed(&self.node, scope, sessions).await;
    }

    /// How the session stands.
    pub async fn view(&self, scope: &TenantScope, id: DialogueId) -> Result<SessionView, SessionError> {
        self.ask(scope, id, |ask| Request::View { ask }).await
    }

    /// Ends the session; listeners are told. A running reply is cut and committed first; lines that
    /// wait are let go.
    pub async fn close(&self, scope: &TenantScope, id: DialogueId, reason: &'static str) -> Result<(), SessionError> {
        self.ask(scope, id, |ask| Request::Close { reason, ask }).await
    }

    /// The prompt `text` would get, without calling the reply model.
    pub async fn preview(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        text: String,
    ) -> Result<Result<Preview, TurnError>, SessionError> {
        let input = self
            .ask(scope, id, |ask| Request::Prepare {
                text: text.clone(),
                ask,
            })
            .await?;
        Ok(self.node.use_cases.preview(&input).await)
    }

    /// Returns once this node has the dialogue, which it takes if nobody has. What else is wrong with the dialogue is for whoever
    /// uses it to find.
    ///
    /// # Errors
    /// Another node has it, or this one stops.
    pub async fn ensure_owned(&self, scope: &TenantScope, id: DialogueId) -> Result<(), SessionError> {
        let key = (scope.clone(), id);
        let viewed = match id.kind() {
            // An actor that is there answers nothing before it is needed: it may be busy.
            DialogueKind::Session if self.node.sessions.live(&key).is_some() => return Ok(()),
            DialogueKind::NpcConversation if self.node.conversations.live(&key).is_some() => return Ok(()),
            DialogueKind::Session => self.view(scope, id).await.err(),
            DialogueKind::NpcConversation => self.npc_conversations().view(scope, id).await.err(),
        };
        match viewed {
            Some(error @ (SessionError::Elsewhere { .. } | SessionError::Draining)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Drops cached worlds and NPCs after an edit, so the next turn sees it.
    pub fn forget_authored(&self, scope: &TenantScope, world: &WorldId) {
        self.node.forget_authored(scope, world);
    }

    /// As [`Self::forget_authored`], on every node.
    pub async fn forget_authored_everywhere(&self, scope: &TenantScope, world: &WorldId) {
        self.forget_authored(scope, world);
        let Some(several) = &self.node.membership else { return };
        let notice = Notice::Authored {
            tenant: scope.tenant().clone(),
            world: world.clone(),
        };
        if let Err(error) = several.peers.tell(&notice).await {
            tracing::warn!(%error, "not every node heard of an edit; those that did not look again within a minute");
        }
    }

    /// How many session actors live, for metrics and tests.
    #[must_use]
    pub fn live(&self) -> usize {
        self.node.live.in_use()
    }

    /// Requests to sessions that may still be taken on, of `max_in_flight`.
    #[must_use]
    pub fn free_permits(&self) -> usize {
        self.node.admission.total() - self.node.admission.in_use()
    }

    #[cfg(test)]
    pub(super) fn node_for_test(&self) -> &Arc<Node> {
        &self.node
    }

    #[cfg(test)]
    pub(super) fn session_for_test(&self, key: &super::registry::SessionKey) -> Addr<super::session::Session> {
        self.node.sessions.live(key).expect("the test made it")
    }

    /// Gives a session something to do, with a permit; again to a fresh actor if the first one
    /// stopped before it came to it.
    async fn ask<T>(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        request: impl Fn(Ask<T>) -> Request,
    ) -> Result<T, SessionError> {
        if id.kind() != DialogueKind::Session {
            return Err(SessionError::NotFound);
        }
        let key = (scope.clone(), id);
        let is_here = self.node.sessions.live(&key).is_some();
        if let Some(node) = self.node.owned_elsewhere(&key, is_here).await {
            return Err(SessionError::Elsewhere { node });
        }
        ask(
            &self.node,
            scope.tenant(),
            async || self.node.session(&key).await,
            request,
        )
        .await
    }
}

/// Gives the actor of a dialogue something to do, with a permit; again to a fresh one if the first
/// stopped before it came to it.
pub(super) async fn ask<A, M, T>(
    node: &Node,
    tenant: &TenantId,
    actor: impl AsyncFn() -> Result<Addr<A>, SessionError>,
    request: impl Fn(Ask<T>) -> M,
) -> Result<T, SessionError>
where
    A: Mailbox + Handler<Posted<M>>,
    M: Send + 'static,
{
    for _ in 0..ATTEMPTS {
        let permit = node.admission.take(tenant)?;
        let addr = actor().await?;
        let (reply, answer) = oneshot::channel();
        let span = tracing::Span::current();
        if send(node, &addr, request(Ask { reply, permit, span })).await.is_err() {
            continue;
        }
        if let Ok(answer) = answer.await {
            return answer;
        }
    }
    Err(SessionError::Overloaded {
        retry_after: Duration::from_secs(1),
    })
}
