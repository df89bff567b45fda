//! What a socket does with conversations of NPCs: watches them, cuts into them, joins them.

use std::sync::Arc;

use super::{
    dialogues::{allowed_includes, tell_if_repeated, tell_interrupted},
    ear::Ear,
    events::{self, ConversationCreated},
    messages::{ConversationInterrupt, ConversationWatch},
    protocol::Inner,
};
use crate::{
    actors::{
        Line, OnBusy, SessionError, TakeBack,
        handle::{CREATED_SEQ, CreatedSession},
        npc_conversation::handle::joined_id,
        player_socket::Connection,
    },
    http::{
        errors::{Code, Problem},
        npc_conversations::{interruptible, joining, reachable},
        rewinds::heard_of,
    },
    ids::DialogueId,
    ports::ledger::dialogues::DialogueStatus,
    tenancy::{Principal, Role},
};

impl Inner {
    /// Watching again takes up after `last_seq`; it never hears anything twice.
    pub(super) async fn watch(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        message: ConversationWatch,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.conversation_id;
        if !self.open.lock().contains_key(&id) {
            self.room_for_one_more()?;
        }
        let include = allowed_includes(who, &message.include)?;
        let dialogue = reachable(&self.state, who, id).await?;
        if dialogue.status == DialogueStatus::Closed {
            return Err(Problem::new(
                Code::ConversationEnded,
                "this conversation has ended; read its turns",
            ));
        }
        let scope = who.scope();
        let before = self.heard_by(id);
        let heard_by = before.as_ref().map(|(_, ear)| ear.clone());
        let ear = Arc::new(Ear::new(connection.clone(), who.role, include).in_place_of(heard_by));
        let conversations = self.state.sessions.npc_conversations();
        // A viewer changes nothing, and spends nothing.
        let wakes = who.role != Role::Viewer;
        let attached = conversations
            .attach(&scope, id, ear.clone(), message.last_seq, wakes)
            .await?;
        if let Some((listener, _)) = before {
            conversations.detach(&scope, id, listener);
        }
        let _ = connection.send(events::write(&ConversationCreated {
            kind: "npc_conversation.created",
            re,
            dialogue_id: id,
            seq: CREATED_SEQ,
            npc_ids: &dialogue.npcs,
            topic: dialogue.options.topic.as_deref(),
            auto: dialogue.options.auto,
            paused: dialogue.options.paused,
            head_turn: attached.head_turn,
            head_seq: attached.head_seq,
            replayed: attached.replayed,
        }));
        self.remember(connection, who, id, attached.listener, ear, None);
        Ok(())
    }

    pub(super) fn unwatch(&self, who: &Principal, id: DialogueId) -> Result<(), Problem> {
        let Some(opened) = self.open.lock().remove(&id) else {
            return Err(
                Problem::new(Code::NotFound, "this conversation is not watched on this socket")
                    .param("conversation_id"),
            );
        };
        self.state
            .sessions
            .npc_conversations()
            .detach(&who.scope(), id, opened.listener);
        Ok(())
    }

    pub(super) async fn cut_in(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        message: ConversationInterrupt,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.conversation_id;
        let dialogue = interruptible(&self.state, who, id).await?;
        let (scope, key) = (who.scope(), message.key);
        let conversations = self.state.sessions.npc_conversations();
        let speaks = match &message.text {
            None => None,
            Some(text) => {
                let player = joining(who, message.player_id.clone())?;
                self.state.sessions.may_say(text)?;
                if self.state.sessions.is_draining() {
                    // Before anything is cut for a line that could not be said.
                    return Err(SessionError::Draining.into());
                }
                self.state.limits.player(&who.tenant, &player)?;
                let session = key.as_deref().map(|key| joined_id(id, &player, key));
                if session.is_none_or(|session| self.heard_by(session).is_none()) {
                    self.room_for_one_more()?;
                }
                if let Some(key) = &key
                    && let Some(joined) = conversations.joined(&scope, id, &player, key, text).await?
                {
                    // The first time it got as far as that, or to its end.
                    let (text, key) = (text.clone(), Some(key.clone()));
                    return self.speak_first(connection, who, joined, text, key, re).await;
                }
                conversations.may_join(&scope, &dialogue).await?;
                Some((player, text.clone()))
            }
        };
        let counted = (message.heard_chars, message.heard_utf16);
        let heard = heard_of(&self.state, &scope, id, message.turn, counted).await?;
        let player = speaks.as_ref().map(|(player, _)| player.clone());
        let wish = TakeBack {
            turn: message.turn,
            heard,
            key: key.clone(),
            if_head: message.if_head,
            who: Principal {
                player: player.or_else(|| who.player.clone()),
                ..who.clone()
            },
        };
        let done = conversations.interrupt(&scope, id, wish).await?;
        tell_interrupted(connection, who, id, &done, re);
        let Some((player, text)) = speaks else {
            return Ok(());
        };
        let created = conversations.join(&scope, id, player, key.as_deref()).await?;
        self.speak_first(connection, who, created, text, key, re).await
    }

    /// Listens to the session of a player who cut in, and says its line.
    async fn speak_first(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        joined: CreatedSession,
        text: String,
        key: Option<String>,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let session = joined.dialogue.id;
        self.enter(connection, who, joined, &[], re).await?;
        let line = Line {
            text,
            to: None,
            key,
            on_busy: OnBusy::Queue,
            re: re.map(Arc::from),
            who: Some(who.clone()),
        };
        let re = line.re.clone();
        // Its events come through the ear, a failure among them.
        let accepted = self.state.sessions.say(&who.scope(), session, line).await?;
        tell_if_repeated(connection, who, accepted, re.as_ref());
        Ok(())
    }
}
