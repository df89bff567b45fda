//! Socket messages about sessions: create, resume, say, interrupt, close.

use std::sync::Arc;

use super::{
    events::{self, InterruptDone, SessionCreated, SessionResumed},
    messages::{PlayerInterrupt, PlayerRegenerate, PlayerResume, PlayerSay, ReplyPlayed, SessionCreate, SessionResume},
    socket_state::{OpenedDialogue, SocketState},
    subscription::{DialogueSubscription, event_viewer},
};
use crate::{
    errors::{Code, Problem},
    reachable_sessions::reachable_session,
    rewinds::{is_limited_cut, needs_continuation, parse_heard},
    sessions::{SessionBody, parse_new_session},
    socket::player_socket::{SocketConnection, close_code},
};
use colloquy_actors::{
    AcceptedLine, InterruptCommand, InterruptOutcome, PlayerLine, ResumeCommand, VisibleEvent, event_of_rewind,
    events_of_turn,
    handle::{CREATED_SEQ, CreatedSession},
    resume_token,
};
use colloquy_core::{
    ids::{DialogueId, PlayerId},
    scope::{Principal, Role},
};
use colloquy_dialogue::disclosure::EventViewer;

impl SocketState {
    pub(super) async fn create_session(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        message: SessionCreate,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        self.check_session_limit()?;
        let viewer = event_viewer(principal.role, &message.include)?;
        let new_session = parse_new_session(
            principal,
            SessionBody {
                world_id: message.world_id,
                npc_id: message.npc_id,
                npc_ids: message.npc_ids,
                player_id: message.player_id,
                witnesses: message.witnesses,
                playback: message.playback,
                greeting: message.greeting,
                settings: None,
            },
        )?;
        self.state
            .limits
            .check_new_session(&principal.tenant, principal.player.as_ref())?;
        if message.greeting {
            self.state
                .limits
                .check_player_turn(&principal.tenant, &new_session.player)?;
        }
        let created = self
            .state
            .sessions
            .create_session(&principal.scope(), new_session)
            .await?;
        let id = created.dialogue.id;
        self.enter_session(connection, principal, created, viewer, re).await?;
        if message.greeting {
            self.state
                .sessions
                .request_greeting(&principal.scope(), id, re.map(Arc::from), None)
                .await?;
        }
        Ok(())
    }

    /// Subscribes to a session that was created or found again, and sends `session.created`.
    pub(super) async fn enter_session(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        created: CreatedSession,
        viewer: EventViewer,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let scope = principal.scope();
        let id = created.dialogue.id;
        let earlier = self.subscription_of(id);
        if earlier.is_none() {
            self.check_session_limit()?;
        }
        let subscription = DialogueSubscription::new(connection.clone(), viewer).owned_by(self, id);
        let subscription = Arc::new(subscription.replacing_earlier(earlier.as_ref()));
        let attached = self
            .state
            .sessions
            .attach_listener(&scope, id, subscription.clone(), None)
            .await?;
        if let Some((listener, _)) = earlier {
            self.state.sessions.detach_listener(&scope, id, listener);
        }
        let _ = connection.send_text(events::write_event(&SessionCreated {
            re,
            dialogue_id: id,
            seq: CREATED_SEQ,
            session_id: id,
            resume_token: &created.resume_token,
            head_turn: attached.head_turn,
        }));
        self.record_subscription(
            connection,
            principal,
            id,
            attached.listener,
            subscription,
            created.dialogue.player,
        );
        Ok(())
    }

    pub(super) async fn resume_session(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        message: SessionResume,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        if !self.open.lock().contains_key(&id) {
            self.check_session_limit()?;
        }
        let viewer = event_viewer(principal.role, &message.include)?;
        let dialogue = reachable_session(&self.state, principal, id).await?;
        let mut subscription = DialogueSubscription::new(connection.clone(), viewer);
        if let Some(token) = &message.resume_token {
            if principal.role == Role::Viewer {
                let problem = Problem::new(Code::Forbidden, "a viewer watches a session and does not take it over");
                return Err(problem.with_param("resume_token"));
            }
            if !resume_token::token_matches(token, &dialogue.resume_token_hash) {
                return Err(
                    Problem::new(Code::WrongResumeToken, "the resume token is wrong").with_param("resume_token")
                );
            }
            subscription = subscription.owned_by(self, id);
        }
        let scope = principal.scope();
        // Two subscriptions would deliver each event twice. If the resume fails, the earlier subscription stays.
        let earlier = self.subscription_of(id);
        let subscription = Arc::new(subscription.replacing_earlier(earlier.as_ref()));
        let attached = self
            .state
            .sessions
            .attach_listener(&scope, id, subscription.clone(), message.last_seq)
            .await?;
        if let Some((listener, _)) = earlier {
            self.state.sessions.detach_listener(&scope, id, listener);
        }
        let _ = connection.send_text(events::write_event(&SessionResumed {
            re,
            dialogue_id: id,
            head_seq: attached.head_seq,
            head_turn: attached.head_turn,
            replayed: attached.replayed,
        }));
        self.record_subscription(
            connection,
            principal,
            id,
            attached.listener,
            subscription,
            dialogue.player,
        );
        Ok(())
    }

    /// The listener and the subscription that this socket already has in a dialogue.
    pub(super) fn subscription_of(&self, id: DialogueId) -> Option<(u64, Arc<DialogueSubscription>)> {
        let open_dialogues = self.open.lock();
        open_dialogues
            .get(&id)
            .map(|opened| (opened.listener, opened.subscription.clone()))
    }

    pub(super) fn check_session_limit(&self) -> Result<(), Problem> {
        let max = self.state.settings.max_sessions_per_socket;
        let watched = self.watched_worlds.lock().len();
        if self.open.lock().len() + watched + self.tunnels.lock().routes.len() < max {
            Ok(())
        } else {
            Err(Problem::new(
                Code::TooManySessions,
                format!("one socket may have {max} sessions, conversations and worlds"),
            ))
        }
    }

    pub(super) fn record_subscription(
        &self,
        connection: &SocketConnection,
        principal: &Principal,
        id: DialogueId,
        listener: u64,
        subscription: Arc<DialogueSubscription>,
        player: Option<PlayerId>,
    ) {
        let attached = subscription.clone();
        self.open.lock().insert(
            id,
            OpenedDialogue {
                listener,
                subscription,
                player,
            },
        );
        // Meanwhile the socket may have closed, or a newer socket may have replaced it. The cleanup of both cases ran
        // before this entry existed.
        if connection.is_gone() || attached.is_replaced() {
            let opened = self.open.lock().remove(&id);
            if let Some(opened) = opened {
                self.state
                    .sessions
                    .detach_listener(&principal.scope(), id, opened.listener);
            }
        }
    }

    /// Removes a session that a newer connection took over. The socket stays open if other sessions remain.
    pub(super) fn on_session_replaced(
        &self,
        connection: &SocketConnection,
        id: DialogueId,
        subscription: &DialogueSubscription,
    ) {
        let is_last = {
            let mut open_dialogues = self.open.lock();
            if open_dialogues
                .get(&id)
                .is_some_and(|opened| std::ptr::eq(Arc::as_ptr(&opened.subscription), subscription))
            {
                open_dialogues.remove(&id);
            }
            open_dialogues.is_empty() && self.watched_worlds.lock().is_empty()
        };
        let problem = Problem::new(Code::Replaced, "the session was resumed on a newer connection");
        self.send_error(connection, &problem, None, Some(id));
        if is_last {
            connection.close_after_flush(close_code::REPLACED, "replaced by a newer connection");
        }
    }

    pub(super) async fn say_line(
        &self,
        connection: &SocketConnection,
        principal: &Principal,
        message: PlayerSay,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let player = self.with_open(message.session_id, |opened| opened.player.clone())?;
        if let Some(player) = player {
            self.state.limits.check_player_turn(&principal.tenant, &player)?;
        }
        let line = PlayerLine {
            text: message.text,
            to: message.to,
            key: message.key,
            on_busy: message.on_busy,
            re: re.map(Arc::from),
            who: Some(principal.clone()),
            chat: None,
        };
        let re = line.re.clone();
        let accepted = self
            .state
            .sessions
            .say_line(&principal.scope(), message.session_id, line)
            .await?;
        send_if_repeated(connection, principal, accepted, re.as_ref());
        Ok(())
    }

    pub(super) async fn interrupt_turn(
        &self,
        connection: &SocketConnection,
        principal: &Principal,
        message: PlayerInterrupt,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        let player = self.with_open(id, |opened| opened.player.clone())?;
        let heard_length = parse_heard(message.heard_chars, message.heard_utf16)?;
        let command = InterruptCommand {
            turn: message.turn,
            heard_length,
            key: message.key,
            if_head: message.if_head,
            who: principal.clone(),
        };
        if let Some(player) = player.filter(|_| is_limited_cut(&command)) {
            self.state.limits.check_player_cut(&principal.tenant, &player)?;
        }
        match self
            .state
            .sessions
            .interrupt_dialogue(&principal.scope(), id, command)
            .await?
        {
            InterruptOutcome::Idle { head_turn } => Err(Problem::new(
                Code::TurnNotRunning,
                format!("no reply is running; the last turn is {head_turn}"),
            )),
            outcome => {
                send_interrupt_outcome(connection, principal, id, &outcome, re);
                Ok(())
            }
        }
    }

    pub(super) async fn regenerate_turn(
        &self,
        connection: &SocketConnection,
        principal: &Principal,
        message: PlayerRegenerate,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        let player = self.with_open(id, |opened| opened.player.clone())?;
        if let Some(player) = player {
            self.state.limits.check_player_turn(&principal.tenant, &player)?;
        }
        let re: Option<Arc<str>> = re.map(Arc::from);
        let accepted = self
            .state
            .sessions
            .regenerate_reply(
                &principal.scope(),
                id,
                principal,
                message.key,
                message.if_head,
                re.clone(),
            )
            .await?;
        send_if_repeated(connection, principal, accepted, re.as_ref());
        Ok(())
    }

    pub(super) async fn on_reply_played(&self, principal: &Principal, message: ReplyPlayed) -> Result<(), Problem> {
        self.with_open(message.session_id, |_| ())?;
        Ok(self
            .state
            .sessions
            .mark_played(&principal.scope(), message.session_id, message.turn)
            .await?)
    }

    pub(super) async fn resume_turn(
        &self,
        principal: &Principal,
        message: PlayerResume,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        let player = self.with_open(id, |opened| opened.player.clone())?;
        let dialogue = reachable_session(&self.state, principal, id).await?;
        let may_continue = needs_continuation(&self.state, &principal.scope(), &dialogue).await?;
        match player {
            Some(player) if may_continue => self.state.limits.check_player_turn(&principal.tenant, &player)?,
            Some(player) => self.state.limits.check_player_cut(&principal.tenant, &player)?,
            None => {}
        }
        let command = ResumeCommand {
            key: message.key,
            re: re.map(Arc::from),
            who: principal.clone(),
            may_continue,
        };
        // `dialogue.rewound` carries the result.
        self.state
            .sessions
            .resume_dialogue(&principal.scope(), id, command)
            .await?;
        Ok(())
    }

    pub(super) async fn close_session(&self, principal: &Principal, id: DialogueId) -> Result<(), Problem> {
        self.with_open(id, |_| ())?;
        self.state
            .sessions
            .close_dialogue(&principal.scope(), id, "closed by the client")
            .await?;
        let opened = self.open.lock().remove(&id);
        if let Some(opened) = opened {
            self.state
                .sessions
                .detach_listener(&principal.scope(), id, opened.listener);
        }
        Ok(())
    }

    fn with_open<T>(&self, id: DialogueId, look: impl FnOnce(&OpenedDialogue) -> T) -> Result<T, Problem> {
        self.open.lock().get(&id).map(look).ok_or_else(|| {
            Problem::new(
                Code::NotFound,
                "this session is not open on this socket; send session.create or session.resume first",
            )
            .with_param("session_id")
        })
    }
}

/// Sends an interrupt's result to its caller. The shared events may have gone out long ago.
pub(super) fn send_interrupt_outcome(
    connection: &SocketConnection,
    principal: &Principal,
    dialogue: DialogueId,
    outcome: &InterruptOutcome,
    re: Option<&str>,
) {
    let Some(re) = re else { return };
    let (interrupted, turn) = match outcome {
        InterruptOutcome::Rewound(rewound) => {
            let mut event = event_of_rewind(dialogue, rewound);
            event.re = Some(Arc::from(re));
            let visible_event = VisibleEvent::of_event(event, &EventViewer::of_role(principal.role));
            let _ = visible_event.map(|event| connection.deliver_event(&event));
            return;
        }
        InterruptOutcome::Cut { turn } | InterruptOutcome::Dropped { turn } => (true, *turn),
        InterruptOutcome::Idle { head_turn } => (false, *head_turn),
    };
    let _ = connection.send_text(events::write_event(&InterruptDone {
        re,
        dialogue_id: dialogue,
        interrupted,
        turn,
    }));
}

/// Repeats the events of a turn that was committed before. A running turn sends its own events, failures included.
pub(super) fn send_if_repeated(
    connection: &SocketConnection,
    principal: &Principal,
    accepted: AcceptedLine,
    re: Option<&Arc<str>>,
) {
    if let AcceptedLine::Repeated(turn) = accepted {
        for event in events_of_turn(&turn, re) {
            let visible_event = VisibleEvent::of_event(event, &EventViewer::of_role(principal.role));
            let _ = visible_event.map(|event| connection.deliver_event(&event));
        }
    }
}
