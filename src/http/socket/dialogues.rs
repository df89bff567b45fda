//! What a socket does with sessions: opens and resumes them, speaks in them, cuts their replies,
//! closes them.

use std::sync::Arc;

use super::{
    ear::{Ear, as_told},
    events::{self, InterruptDone, SessionCreated, SessionResumed},
    messages::{
        Include, PlayerInterrupt, PlayerRegenerate, PlayerResume, PlayerSay, ReplyPlayed, SessionCreate, SessionResume,
    },
    protocol::{Inner, Opened},
};
use crate::{
    actors::{
        Accepted, Interrupted, Line, Published, TakeBack, TakeUp, event_of, events_of,
        handle::{CREATED_SEQ, CreatedSession},
        player_socket::{Connection, close},
        resume_token,
    },
    dialogue::events::EventBody,
    http::{
        errors::{Code, Problem},
        rewinds::heard_of,
        sessions::{SessionBody, new_session, reachable},
    },
    ids::{DialogueId, PlayerId},
    tenancy::{Principal, Role},
};

impl Inner {
    pub(super) async fn create(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        message: SessionCreate,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        self.room_for_one_more()?;
        let include = allowed_includes(who, &message.include)?;
        let new = new_session(
            who,
            SessionBody {
                world_id: message.world_id,
                npc_id: message.npc_id,
                npc_ids: message.npc_ids,
                player_id: message.player_id,
                witnesses: message.witnesses,
                playback: message.playback,
                greeting: message.greeting,
            },
        )?;
        if message.greeting {
            self.state.limits.player(&who.tenant, &new.player)?;
        }
        let created = self.state.sessions.create(&who.scope(), new).await?;
        let id = created.dialogue.id;
        self.enter(connection, who, created, include, re).await?;
        if message.greeting {
            self.state.sessions.greet(&who.scope(), id, re.map(Arc::from)).await?;
        }
        Ok(())
    }

    /// Listens to a session that was just made, or found again, and tells of it.
    pub(super) async fn enter(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        created: CreatedSession,
        include: &[Include],
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let scope = who.scope();
        let id = created.dialogue.id;
        let before = self.heard_by(id);
        if before.is_none() {
            self.room_for_one_more()?;
        }
        let ear = Ear::new(connection.clone(), who.role, include).owning(self, id);
        let ear = Arc::new(ear.in_place_of(before.as_ref().map(|(_, ear)| ear.clone())));
        let attached = self.state.sessions.attach(&scope, id, ear.clone(), None).await?;
        if let Some((listener, _)) = before {
            self.state.sessions.detach(&scope, id, listener);
        }
        let _ = connection.send(events::write(&SessionCreated {
            kind: "session.created",
            re,
            dialogue_id: id,
            seq: CREATED_SEQ,
            session_id: id,
            resume_token: &created.resume_token,
            head_turn: attached.head_turn,
        }));
        self.remember(connection, who, id, attached.listener, ear, created.dialogue.player);
        Ok(())
    }

    pub(super) async fn resume(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        message: SessionResume,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        if !self.open.lock().contains_key(&id) {
            self.room_for_one_more()?;
        }
        let include = allowed_includes(who, &message.include)?;
        let dialogue = reachable(&self.state, who, id).await?;
        let mut ear = Ear::new(connection.clone(), who.role, include);
        if let Some(token) = &message.resume_token {
            if who.role == Role::Viewer {
                let problem = Problem::new(Code::Forbidden, "a viewer watches a session and does not take it over");
                return Err(problem.param("resume_token"));
            }
            if !resume_token::matches(token, &dialogue.resume_token_hash) {
                return Err(Problem::new(Code::WrongResumeToken, "the resume token is wrong").param("resume_token"));
            }
            ear = ear.owning(self, id);
        }
        let scope = who.scope();
        // Twice in one dialogue would hear everything twice; one that cannot be resumed still hears.
        let before = self.heard_by(id);
        let ear = Arc::new(ear.in_place_of(before.as_ref().map(|(_, ear)| ear.clone())));
        let attached = self
            .state
            .sessions
            .attach(&scope, id, ear.clone(), message.last_seq)
            .await?;
        if let Some((listener, _)) = before {
            self.state.sessions.detach(&scope, id, listener);
        }
        let _ = connection.send(events::write(&SessionResumed {
            kind: "session.resumed",
            re,
            dialogue_id: id,
            head_seq: attached.head_seq,
            head_turn: attached.head_turn,
            replayed: attached.replayed,
        }));
        self.remember(connection, who, id, attached.listener, ear, dialogue.player);
        Ok(())
    }

    /// The listener and the ear that hear a dialogue for this socket already.
    pub(super) fn heard_by(&self, id: DialogueId) -> Option<(u64, Arc<Ear>)> {
        let open = self.open.lock();
        open.get(&id).map(|opened| (opened.listener, opened.ear.clone()))
    }

    pub(super) fn room_for_one_more(&self) -> Result<(), Problem> {
        let max = self.state.settings.max_sessions_per_socket;
        if self.open.lock().len() + self.tunnels.lock().routes.len() < max {
            Ok(())
        } else {
            Err(Problem::new(
                Code::TooManySessions,
                format!("one socket may have {max} sessions open"),
            ))
        }
    }

    pub(super) fn remember(
        &self,
        connection: &Connection,
        who: &Principal,
        id: DialogueId,
        listener: u64,
        ear: Arc<Ear>,
        player: Option<PlayerId>,
    ) {
        let lost = ear.clone();
        self.open.lock().insert(id, Opened { listener, ear, player });
        // While the session was being opened the socket may have closed, or lost it to a newer one;
        // `on_close` or `lose` ran before there was anything to take off.
        if connection.is_gone() || lost.is_replaced() {
            let opened = self.open.lock().remove(&id);
            if let Some(opened) = opened {
                self.state.sessions.detach(&who.scope(), id, opened.listener);
            }
        }
    }

    /// A newer connection took the session over. The socket stays if it has others.
    pub(super) fn lose(&self, connection: &Connection, id: DialogueId, ear: &Ear) {
        let last = {
            let mut open = self.open.lock();
            if open
                .get(&id)
                .is_some_and(|opened| std::ptr::eq(Arc::as_ptr(&opened.ear), ear))
            {
                open.remove(&id);
            }
            open.is_empty()
        };
        let problem = Problem::new(Code::Replaced, "the session was resumed on a newer connection");
        self.tell(connection, &problem, None, Some(id));
        if last {
            connection.close(close::REPLACED, "replaced by a newer connection");
        }
    }

    pub(super) async fn say(
        &self,
        connection: &Connection,
        who: &Principal,
        message: PlayerSay,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let player = self.with_open(message.session_id, |opened| opened.player.clone())?;
        if let Some(player) = player {
            self.state.limits.player(&who.tenant, &player)?;
        }
        let line = Line {
            text: message.text,
            to: message.to,
            key: message.key,
            on_busy: message.on_busy,
            re: re.map(Arc::from),
            who: Some(who.clone()),
        };
        let re = line.re.clone();
        let accepted = self.state.sessions.say(&who.scope(), message.session_id, line).await?;
        tell_if_repeated(connection, who, accepted, re.as_ref());
        Ok(())
    }

    pub(super) async fn interrupt(
        &self,
        connection: &Connection,
        who: &Principal,
        message: PlayerInterrupt,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        self.with_open(id, |_| ())?;
        let counted = (message.heard_chars, message.heard_utf16);
        let heard = heard_of(&self.state, &who.scope(), id, message.turn, counted).await?;
        let wish = TakeBack {
            turn: message.turn,
            heard,
            key: message.key,
            if_head: message.if_head,
            who: who.clone(),
        };
        match self.state.sessions.interrupt(&who.scope(), id, wish).await? {
            done @ (Interrupted::Cut { .. } | Interrupted::Rewound(_)) => {
                tell_interrupted(connection, who, id, &done, re);
                Ok(())
            }
            Interrupted::Idle { head_turn } => Err(Problem::new(
                Code::TurnNotRunning,
                format!("no reply is running; the last turn is {head_turn}"),
            )),
        }
    }

    pub(super) async fn regenerate(
        &self,
        connection: &Connection,
        who: &Principal,
        message: PlayerRegenerate,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        let player = self.with_open(id, |opened| opened.player.clone())?;
        if let Some(player) = player {
            self.state.limits.player(&who.tenant, &player)?;
        }
        let re: Option<Arc<str>> = re.map(Arc::from);
        let accepted = self
            .state
            .sessions
            .regenerate(&who.scope(), id, who, message.key, message.if_head, re.clone())
            .await?;
        tell_if_repeated(connection, who, accepted, re.as_ref());
        Ok(())
    }

    pub(super) async fn played(&self, who: &Principal, message: ReplyPlayed) -> Result<(), Problem> {
        self.with_open(message.session_id, |_| ())?;
        Ok(self
            .state
            .sessions
            .played(&who.scope(), message.session_id, message.turn)
            .await?)
    }

    pub(super) async fn take_up(
        &self,
        who: &Principal,
        message: PlayerResume,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.session_id;
        self.with_open(id, |_| ())?;
        let wish = TakeUp {
            key: message.key,
            re: re.map(Arc::from),
            who: who.clone(),
        };
        // `dialogue.rewound` tells of it.
        self.state.sessions.resume(&who.scope(), id, wish).await?;
        Ok(())
    }

    pub(super) async fn close(&self, who: &Principal, id: DialogueId) -> Result<(), Problem> {
        self.with_open(id, |_| ())?;
        self.state
            .sessions
            .close(&who.scope(), id, "closed by the client")
            .await?;
        let opened = self.open.lock().remove(&id);
        if let Some(opened) = opened {
            self.state.sessions.detach(&who.scope(), id, opened.listener);
        }
        Ok(())
    }

    fn with_open<T>(&self, id: DialogueId, look: impl FnOnce(&Opened) -> T) -> Result<T, Problem> {
        self.open.lock().get(&id).map(look).ok_or_else(|| {
            Problem::new(
                Code::NotFound,
                "this session is not open on this socket; send session.create or session.resume first",
            )
            .param("session_id")
        })
    }
}

/// What an interrupt came to, for the one who asked: the events that all are told may have gone out long ago.
pub(super) fn tell_interrupted(
    connection: &Connection,
    who: &Principal,
    dialogue: DialogueId,
    done: &Interrupted,
    re: Option<&str>,
) {
    let Some(re) = re else { return };
    let (interrupted, turn) = match done {
        Interrupted::Rewound(rewound) => {
            let mut event = event_of(dialogue, rewound);
            event.re = Some(Arc::from(re));
            if who.role == Role::Player
                && let EventBody::DialogueRewound(rewound) = event.body
            {
                event.body = EventBody::DialogueRewound(rewound.for_players());
            }
            let _ = connection.deliver(&Published::new(event));
            return;
        }
        Interrupted::Cut { turn } => (true, *turn),
        Interrupted::Idle { head_turn } => (false, *head_turn),
    };
    let _ = connection.send(events::write(&InterruptDone {
        kind: "interrupt.done",
        re,
        dialogue_id: dialogue,
        interrupted,
        turn,
    }));
}

/// A turn that runs is told of by its events, a failure among them; one that was committed long ago again.
pub(super) fn tell_if_repeated(connection: &Connection, who: &Principal, accepted: Accepted, re: Option<&Arc<str>>) {
    if let Accepted::Repeated(turn) = accepted {
        for event in events_of(&turn, re) {
            let told = as_told(&Published::new(event), who.role == Role::Player);
            let _ = connection.deliver(&told);
        }
    }
}

/// The optional events `who` may ask for.
pub(super) fn allowed_includes<'a>(who: &Principal, asked: &'a [Include]) -> Result<&'a [Include], Problem> {
    if asked.is_empty() || matches!(who.role, Role::Admin | Role::Backend | Role::Viewer) {
        Ok(asked)
    } else {
        Err(Problem::new(
            Code::Forbidden,
            "only admins, backends and viewers may get these events",
        )
        .param("include"))
    }
}
