//! Who says the next line, where a model is asked for it before the line begins.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, SpawnHandle, WrapFuture};

use super::{NpcConversation, Phase};
use crate::{
    actors::cast::Rows,
    dialogue::npc_conversation::next_speaker,
    ids::{NpcId, TurnId},
    ports::ledger::dialogues::NextSpeaker,
};

/// What a model was asked, and what it said.
#[derive(Default)]
pub(super) struct Choosing {
    /// After which line a model is being asked.
    asked: Option<(Option<TurnId>, SpawnHandle)>,
    /// After which line, and who.
    chosen: Option<(Option<TurnId>, Option<NpcId>)>,
}

/// Whose line it is.
pub(super) enum Speaker {
    /// `None`: nobody is there.
    Known(Option<NpcId>),
    /// A model is being asked; the conversation goes on once it has answered.
    Asked,
}

impl NpcConversation {
    pub(super) fn speaker(&mut self, rows: &Rows, ctx: &mut Context<Self>) -> Speaker {
        let Phase::Ready(loaded) = &self.phase else {
            return Speaker::Known(None);
        };
        let members = rows.members();
        if loaded.dialogue.options.next_speaker == NextSpeaker::Rule {
            return Speaker::Known(next_speaker(&members, &loaded.history));
        }
        let head = loaded.head;
        // Who speaks after a line that is gone is not asked any more.
        if let Some((after, asking)) = self.choosing.asked {
            if after == head {
                return Speaker::Asked;
            }
            ctx.cancel_future(asking);
            self.choosing.asked = None;
        }
        if let Some((_, npc)) = self.choosing.chosen.take().filter(|(after, _)| *after == head) {
            return Speaker::Known(npc);
        }
        let (use_cases, scope) = (Arc::clone(&self.node.use_cases), self.key.0.clone());
        let (dialogue, history) = (Arc::clone(&loaded.dialogue), Arc::clone(&loaded.history));
        let language = rows.world.language;
        let ask = async move {
            use_cases
                .next_speaker(&scope, &dialogue, language, &members, &history)
                .await
        };
        let asking = ctx.spawn(ask.into_actor(self).map(move |npc, talk, ctx| {
            talk.choosing = Choosing {
                asked: None,
                chosen: Some((head, npc)),
            };
            talk.advance(ctx);
        }));
        self.choosing.asked = Some((head, asking));
        Speaker::Asked
    }
}
