//! What a socket does with conversations of NPCs: watches them, cuts into them, joins them.

use std::sync::Arc;

use super::{
    dialogues::allowed_includes,
    ear::Ear,
    events::{self, ConversationCreated},
    messages::{ConversationInterrupt, ConversationWatch},
    protocol::Inner,
};
use crate::{
    actors::{Accepted, Line, OnBusy, TakeBack, handle::CREATED_SEQ, player_socket::Connection},
    http::{
        errors::{Code, Problem},
        npc_conversations::{joining, reachable},
        rewinds::heard_of,
    },
    ids::DialogueId,
    ports::ledger::dialogues::DialogueStatus,
    tenancy::Principal,
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
        let before = self
            .open
            .lock()
            .get(&id)
            .map(|opened| (opened.listener, opened.ear.clone()));
        let heard_by = before.as_ref().map(|(_, ear)| ear.clone());
        let ear = Arc::new(Ear::new(connection.clone(), include).in_place_of(heard_by));
        let conversations = self.state.sessions.npc_conversations();
        let attached = conversations.attach(&scope, id, ear.clone(), message.last_seq).await?;
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
        reachable(&self.state, who, id).await?;
        let counted = (message.heard_chars, message.heard_utf16);
        let heard = heard_of(&self.state, &who.scope(), id, message.turn, counted).await?;
        let player = match &message.text {
            Some(_) => Some(joining(who, message.player_id)?),
            None => None,
        };
        if player.is_some() {
            self.room_for_one_more()?;
        }
        let scope = who.scope();
        let conversations = self.state.sessions.npc_conversations();
        let wish = TakeBack {
            turn: message.turn,
            heard,
            key: message.key,
            if_head: message.if_head,
            who: Principal {
                player: player.clone().or_else(|| who.player.clone()),
                ..who.clone()
            },
        };
        conversations.interrupt(&scope, id, wish).await?;
        let (Some(player), Some(text)) = (player, message.text) else {
            return Ok(());
        };
        self.state.limits.player(&who.tenant, &player)?;
        let created = conversations.join(&scope, id, player).await?;
        let session = created.dialogue.id;
        self.enter(connection, who, created, &[], re).await?;
        let line = Line {
            text,
            to: None,
            key: None,
            on_busy: OnBusy::Queue,
            re: re.map(Arc::from),
            who: None,
        };
        // Its events come through the ear, a failure among them.
        match self.state.sessions.say(&scope, session, line).await? {
            Accepted::Turn { .. } | Accepted::Repeated(_) => Ok(()),
        }
    }
}
