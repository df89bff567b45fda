//! The listeners of a dialogue, and the replay of missed events.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{actor::DialogueActor, kind::DialogueBehaviour};
use crate::{
    DialogueError, Listener,
    event_log::{MissedEvents, event_of_rewind, events_of_turn},
    messages::{AttachedListener, ReplyHandle},
};
use colloquy_dialogue::events::DialogueEvent;

impl<K: DialogueBehaviour> DialogueActor<K> {
    /// Adds a listener. With `last_seq`, later events are first delivered again in order: from memory, or read from the
    /// ledger.
    pub fn on_attach(
        &mut self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        reply: ReplyHandle<AttachedListener>,
        ctx: &mut Context<Self>,
    ) {
        let Some(loaded) = self.state.loaded() else {
            return reply.answer(Err(self.overloaded_error()));
        };
        let Some(last_seen) = last_seq else {
            return reply.answer(self.seat_listener(listener, None, Vec::new()));
        };
        match self.log.locate_missed(last_seen) {
            MissedEvents::InMemory => reply.answer(self.seat_listener(listener, Some(last_seen), Vec::new())),
            MissedEvents::Expired => reply.answer(Err(DialogueError::ResumeExpired { last_seq: last_seen })),
            MissedEvents::Lost => {
                let failed = self.log.lost_turn_event(loaded.npc.clone());
                reply.answer(self.seat_listener(listener, Some(last_seen), failed.into_iter().collect()));
            }
            MissedEvents::InLedger => self.read_missed_events(listener, last_seen, reply, ctx),
        }
    }

    /// Reads the turns and rewinds after event `last_seen` again, up to a limit.
    fn read_missed_events(
        &self,
        listener: Arc<dyn Listener>,
        last_seen: u64,
        reply: ReplyHandle<AttachedListener>,
        ctx: &mut Context<Self>,
    ) {
        let max_rewinds = u32::try_from(self.node.settings.replay_events).unwrap_or(u32::MAX);
        let head = self.head_turn();
        let from = head.saturating_sub(K::max_replayed_turns(self).max(1)) + 1;
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let reading = async move {
            let turns = async {
                if head == 0 {
                    return Ok(Vec::new());
                }
                ports.ledger.dialogues.load_turns(&scope, id, from, head).await
            };
            let rewinds = ports
                .ledger
                .rewinds
                .list_rewinds_since(&scope, id, last_seen, max_rewinds);
            tokio::try_join!(turns, rewinds)
        };
        ctx.spawn(reading.into_actor(self).map(move |rows, actor, _| {
            let (turns, rewinds) = match rows {
                Ok(rows) => rows,
                Err(error) => return reply.answer(Err(error.into())),
            };
            let has_all_turns = from == 1 || turns.first().is_some_and(|turn| turn.seqs.started <= last_seen + 1);
            if !has_all_turns || rewinds.len() >= max_rewinds as usize {
                return reply.answer(Err(DialogueError::ResumeExpired { last_seq: last_seen }));
            }
            let of_rewinds = rewinds.iter().map(|rewound| event_of_rewind(actor.key.1, rewound));
            let of_turns = turns.iter().flat_map(|turn| events_of_turn(turn, None));
            let mut earlier: Vec<DialogueEvent> = of_turns.chain(of_rewinds).collect();
            earlier.sort_by_key(|event| event.seq);
            reply.answer(actor.seat_listener(listener, Some(last_seen), earlier));
        }));
    }

    fn seat_listener(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Result<AttachedListener, DialogueError> {
        let Some(loaded) = self.state.loaded() else {
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
