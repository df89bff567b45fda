//! The listeners of a conversation, and the replay of missed events.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{ConversationPhase, NpcConversation};
use crate::{
    actors::{
        DialogueError, Listener,
        event_log::{MissedEvents, event_of_rewind, events_of_turn},
        messages::{AttachedListener, ReplyHandle},
    },
    dialogue::events::DialogueEvent,
};

impl NpcConversation {
    pub(super) fn on_attach(
        &mut self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        ask: ReplyHandle<AttachedListener>,
        ctx: &mut Context<Self>,
    ) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let Some(seen) = last_seq else {
            return ask.answer(self.seat_listener(listener, None, Vec::new()));
        };
        match self.log.locate_missed(seen) {
            MissedEvents::InMemory => {}
            MissedEvents::Expired => return ask.answer(Err(DialogueError::ResumeExpired { last_seq: seen })),
            MissedEvents::Lost => {
                let failed = self.log.lost_turn_event(loaded.npc.clone());
                return ask.answer(self.seat_listener(listener, Some(seen), failed.into_iter().collect()));
            }
            MissedEvents::InLedger => {
                let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
                let head = loaded.dialogue.head_turn;
                // No more than a conversation may have lines.
                let most = u32::try_from(self.node.settings.replay_events).unwrap_or(u32::MAX);
                let read = async move {
                    let turns = ports.ledger.dialogues.load_turns(&scope, id, 1, head);
                    tokio::try_join!(turns, ports.ledger.rewinds.list_rewinds_since(&scope, id, seen, most))
                };
                ctx.spawn(read.into_actor(self).map(move |read, talk, _| {
                    ask.answer(match read {
                        Ok((turns, moves)) => {
                            let told = moves.iter().map(|rewound| event_of_rewind(talk.key.1, rewound));
                            let mut earlier: Vec<DialogueEvent> = turns
                                .iter()
                                .flat_map(|turn| events_of_turn(turn, None))
                                .chain(told)
                                .collect();
                            earlier.sort_by_key(|event| event.seq);
                            talk.seat_listener(listener, Some(seen), earlier)
                        }
                        Err(error) => Err(error.into()),
                    });
                }));
                return;
            }
        }
        ask.answer(self.seat_listener(listener, Some(seen), Vec::new()));
    }

    fn seat_listener(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Result<AttachedListener, DialogueError> {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded_error());
        };
        let (listener, replayed, head_seq) =
            self.log
                .attach_listener(listener, last_seq, earlier)
                .ok_or(DialogueError::Overloaded {
                    retry_after: Duration::from_secs(1),
                })?;
        Ok(AttachedListener {
            head_seq,
            head_turn: loaded.dialogue.head_turn,
            replayed,
            listener,
        })
    }
}
