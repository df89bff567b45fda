//! Socket messages about NPC conversations: watch, interrupt, join.

use std::sync::Arc;

use super::{
    dialogues::{send_if_repeated, send_interrupt_outcome},
    events::{self, ConversationCreated},
    messages::{ConversationInterrupt, ConversationWatch},
    socket_state::SocketState,
    subscription::{DialogueSubscription, event_viewer},
};
use crate::{
    errors::{Code, Problem},
    npc_conversations::{interruptible_conversation, joining_player, reachable_conversation},
    rewinds::parse_heard,
    socket::player_socket::SocketConnection,
};
use colloquy_actors::{
    DialogueError, InterruptCommand, OnBusy, PlayerLine,
    handle::{CREATED_SEQ, CreatedSession},
    npc_conversation::handle::joined_session_id,
};
use colloquy_core::{
    ids::{DialogueId, PlayerId},
    scope::{Principal, Role},
};
use colloquy_dialogue::disclosure::EventViewer;
use colloquy_ports::ledger::dialogues::DialogueStatus;

impl SocketState {
    /// Watches a conversation. A repeated watch continues after `last_seq` and delivers no event twice.
    pub(super) async fn watch_conversation(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        message: ConversationWatch,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.conversation_id;
        if !self.open.lock().contains_key(&id) {
            self.check_session_limit()?;
        }
        let viewer = event_viewer(principal.role, &message.include)?;
        let dialogue = reachable_conversation(&self.state, principal, id).await?;
        if dialogue.status == DialogueStatus::Closed {
            return Err(Problem::new(
                Code::ConversationEnded,
                "this conversation has ended; read its turns",
            ));
        }
        let scope = principal.scope();
        let earlier = self.subscription_of(id);
        let subscription = DialogueSubscription::new(connection.clone(), viewer);
        let subscription = Arc::new(subscription.replacing_earlier(earlier.as_ref()));
        let conversations = &self.state.sessions;
        // A viewer changes no state and spends no tokens.
        let wakes = principal.role != Role::Viewer;
        let attached = conversations
            .watch_conversation(&scope, id, subscription.clone(), message.last_seq, wakes)
            .await?;
        if let Some((listener, _)) = earlier {
            self.state.sessions.detach_listener(&scope, id, listener);
        }
        let _ = connection.send_text(events::write_event(&ConversationCreated {
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
        self.record_subscription(connection, principal, id, attached.listener, subscription, None);
        Ok(())
    }

    pub(super) fn unwatch_conversation(&self, principal: &Principal, id: DialogueId) -> Result<(), Problem> {
        let Some(opened) = self.open.lock().remove(&id) else {
            return Err(
                Problem::new(Code::NotFound, "this conversation is not watched on this socket")
                    .with_param("conversation_id"),
            );
        };
        self.state
            .sessions
            .detach_listener(&principal.scope(), id, opened.listener);
        Ok(())
    }

    pub(super) async fn interrupt_conversation(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        message: ConversationInterrupt,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let id = message.conversation_id;
        let dialogue = interruptible_conversation(&self.state, principal, id).await?;
        let scope = principal.scope();
        let key = message.key;
        let conversations = &self.state.sessions;
        let speaks = match &message.text {
            None => None,
            Some(text) => {
                let player = joining_player(principal, message.player_id.clone())?;
                let session = key.as_deref().map(|key| joined_session_id(id, &player, key));
                self.check_joining_line(principal, &player, text, session)?;
                if let Some(key) = &key
                    && let Some(joined) = conversations
                        .find_joined_session(&scope, id, &player, key, text)
                        .await?
                {
                    // An earlier attempt with this key already joined, or even finished.
                    let text = text.clone();
                    let key = Some(key.clone());
                    return self.enter_and_say(connection, principal, joined, text, key, re).await;
                }
                self.state
                    .limits
                    .check_new_session(&principal.tenant, principal.player.as_ref())?;
                conversations.check_joinable(&scope, &dialogue).await?;
                Some((player, text.clone()))
            }
        };
        let speaking_player = speaks.as_ref().map(|(player, _)| player);
        let command = InterruptCommand {
            turn: message.turn,
            heard_length: parse_heard(message.heard_chars, message.heard_utf16)?,
            key: key.clone(),
            if_head: message.if_head,
            who: Principal {
                player: speaking_player.or(principal.player.as_ref()).cloned(),
                ..principal.clone()
            },
        };
        if let Some(player) = &command.who.player {
            self.state.check_player_share(&scope, player).await?;
        }
        if speaks.is_none() {
            self.count_cut(principal)?;
        }
        let outcome = conversations.interrupt_conversation(&scope, id, command).await?;
        send_interrupt_outcome(connection, principal, id, &outcome, re);
        let Some((player, text)) = speaks else {
            return Ok(());
        };
        let created = conversations
            .join_conversation(&scope, id, player, key.as_deref())
            .await?;
        self.enter_and_say(connection, principal, created, text, key, re).await
    }

    /// Counts an interrupt of a player without a line. An interrupt with a line was counted as a line.
    fn count_cut(&self, principal: &Principal) -> Result<(), Problem> {
        if let Some(player) = &principal.player {
            self.state.limits.check_player_cut(&principal.tenant, player)?;
        }
        Ok(())
    }

    /// Checks before a cut that the player's line can be said. `session`: the session that the line joins, if the
    /// interrupt has a key.
    fn check_joining_line(
        &self,
        principal: &Principal,
        player: &PlayerId,
        text: &str,
        session: Option<DialogueId>,
    ) -> Result<(), Problem> {
        self.state.sessions.check_line(text)?;
        if self.state.sessions.is_draining() {
            return Err(DialogueError::Draining.into());
        }
        self.state.limits.check_player_turn(&principal.tenant, player)?;
        if session.is_none_or(|session| self.subscription_of(session).is_none()) {
            self.check_session_limit()?;
        }
        Ok(())
    }

    /// Subscribes to the session of a player who joined, and says the player's line.
    async fn enter_and_say(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        joined: CreatedSession,
        text: String,
        key: Option<String>,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let session = joined.dialogue.id;
        let viewer = EventViewer::of_role(principal.role);
        self.enter_session(connection, principal, joined, viewer, re).await?;
        let line = PlayerLine {
            text,
            to: None,
            key,
            on_busy: OnBusy::Queue,
            re: re.map(Arc::from),
            who: Some(principal.clone()),
            chat: None,
        };
        let re = line.re.clone();
        // The turn's events, failures included, come through the subscription.
        let accepted = self.state.sessions.say_line(&principal.scope(), session, line).await?;
        send_if_repeated(connection, principal, accepted, re.as_ref());
        Ok(())
    }
}
