//! The choice of the next speaker among the living, before the line begins.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, SpawnHandle, WrapFuture};

use super::NpcConversation;
use crate::participants::ParticipantRecords;
use colloquy_core::ids::{NpcId, TurnId};

/// The query for the next speaker, and its answer.
#[derive(Default)]
pub(super) struct SpeakerQuery {
    /// The line after which the speaker is being chosen.
    pending: Option<(Option<TurnId>, SpawnHandle)>,
    /// The line and the chosen speaker.
    chosen: Option<(Option<TurnId>, Option<NpcId>)>,
}

/// The speaker of the next line.
pub(super) enum SpeakerChoice {
    /// `None`: fewer than two NPCs are alive.
    Known(Option<NpcId>),
    /// The conversation continues after the answer.
    Pending,
}

impl NpcConversation {
    pub(super) fn choose_speaker(&mut self, rows: &ParticipantRecords, ctx: &mut Context<Self>) -> SpeakerChoice {
        let Some(loaded) = self.state.loaded() else {
            return SpeakerChoice::Known(None);
        };
        let head = loaded.head;
        // A query after a rewound line is cancelled.
        if let Some((after, asking)) = self.kind.speaker_query.pending {
            if after == head {
                return SpeakerChoice::Pending;
            }
            ctx.cancel_future(asking);
            self.kind.speaker_query.pending = None;
        }
        if let Some((_, npc)) = self
            .kind
            .speaker_query
            .chosen
            .take()
            .filter(|(after, _)| *after == head)
        {
            return SpeakerChoice::Known(npc);
        }
        let use_cases = Arc::clone(&self.node.use_cases);
        let scope = self.key.0.clone();
        let dialogue = Arc::clone(&loaded.dialogue);
        let history = Arc::clone(&loaded.history);
        let world = Arc::clone(&rows.world);
        let members = rows.members();
        let ask = async move {
            use_cases
                .next_speaker(&scope, &dialogue, &world, &members, &history)
                .await
        };
        let asking = ctx.spawn(ask.into_actor(self).map(move |npc, talk, ctx| {
            talk.kind.speaker_query = SpeakerQuery {
                pending: None,
                chosen: Some((head, npc)),
            };
            talk.run_next_steps(ctx);
        }));
        self.kind.speaker_query.pending = Some((head, asking));
        SpeakerChoice::Pending
    }
}
