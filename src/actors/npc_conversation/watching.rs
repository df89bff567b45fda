//! Who watches a conversation, and how one that was away catches up.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{NpcConversation, Phase};
use crate::{
    actors::{
        Listener, SessionError,
        event_log::{Missed, event_of, events_of},
        handle::{Ask, Attached},
    },
    dialogue::events::DialogueEvent,
};

impl NpcConversation {
    pub(super) fn attach(
        &mut self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        ask: Ask<Attached>,
        ctx: &mut Context<Self>,
    ) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let Some(seen) = last_seq else {
            return ask.answer(self.seat(listener, None, Vec::new()));
        };
        match self.log.missed(seen) {
            Missed::Kept => {}
            Missed::Expired => return ask.answer(Err(SessionError::ResumeExpired { last_seq: seen })),
            Missed::Lost => {
                let failed = self.log.turn_lost(loaded.npc.clone());
                return ask.answer(self.seat(listener, Some(seen), failed.into_iter().collect()));
            }
            Missed::InLedger => {
                let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
                let head = loaded.dialogue.head_turn;
                // No more than a conversation may have lines.
                let most = u32::try_from(self.node.settings.replay_events).unwrap_or(u32::MAX);
                let read = async move {
                    let turns = ports.ledger.dialogues.turns(&scope, id, 1, head);
                    tokio::try_join!(turns, ports.ledger.rewinds.since(&scope, id, seen, most))
                };
                ctx.spawn(read.into_actor(self).map(move |read, talk, _| {
                    ask.answer(match read {
                        Ok((turns, moves)) => {
                            let told = moves.iter().map(|rewound| event_of(talk.key.1, rewound));
                            let mut earlier: Vec<DialogueEvent> = turns
                                .iter()
                                .flat_map(|turn| events_of(turn, None))
                                .chain(told)
                                .collect();
                            earlier.sort_by_key(|event| event.seq);
                            talk.seat(listener, Some(seen), earlier)
                        }
                        Err(error) => Err(error.into()),
                    });
                }));
                return;
            }
        }
        ask.answer(self.seat(listener, Some(seen), Vec::new()));
    }

    fn seat(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Result<Attached, SessionError> {
        let Phase::Ready(loaded) = &self.phase else {
            return Err(self.busy());
        };
        let (listener, replayed, head_seq) =
            self.log
                .attach(listener, last_seq, earlier)
                .ok_or(SessionError::Overloaded {
                    retry_after: Duration::from_secs(1),
                })?;
        Ok(Attached {
            head_seq,
            head_turn: loaded.dialogue.head_turn,
            replayed,
            listener,
        })
    }
}
