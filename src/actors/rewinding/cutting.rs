//! Cuts of the turn that runs, in a session or a conversation: who asked is told once it has ended.

use std::sync::Arc;

use crate::{
    actors::{Interrupted, TakeBack, handle::Ask, registry::Node, running::Running, session::load::Loaded},
    dialogue::turn::CutBy,
    ids::TurnId,
    memory::turn::{Turn, TurnStatus},
    ports::ledger::rewinds::Rewound,
    tenancy::Principal,
};

/// Somebody asked to cut the turn that runs.
pub(in crate::actors) struct PendingCut {
    id: TurnId,
    pub number: u32,
    /// The turn, once it is committed.
    said: Option<Arc<Turn>>,
    /// It was cut before the first character of its reply, and is none.
    dropped: bool,
    /// What was heard, in Unicode scalar values of what was sent so far, as the client counted.
    heard: Option<usize>,
    /// The commit writes down who asked, if there is one.
    noted: bool,
    pub wish: TakeBack,
    pub ask: Ask<Interrupted>,
}

/// What a cut has come to, once the turn has ended.
pub(in crate::actors) enum CutCame {
    /// It had been said to its end by then: it is to be cut where it was heard, in Unicode scalar values.
    TooLate(usize),
    /// It was cut before the first character of its reply: what its key is kept with.
    Dropped(Arc<Rewound>),
    /// What who asked is told, and its key is kept with.
    To(Interrupted, Arc<Rewound>),
}

impl PendingCut {
    /// `noted`: the commit writes down who asked.
    pub fn of(running: &Running, heard: Option<usize>, noted: bool, wish: TakeBack, ask: Ask<Interrupted>) -> Self {
        Self {
            id: running.id,
            number: running.number,
            said: None,
            dropped: false,
            heard,
            noted,
            wish,
            ask,
        }
    }

    /// A turn was committed, with the cuts of these keys: if it is this one, nothing is left to keep of them.
    pub fn committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        if self.id == turn.id {
            self.said = Some(Arc::clone(turn));
            self.wish.key.take_if(|key| keys.contains(key));
        }
    }

    /// A turn was cut before the first character of its reply.
    pub fn dropped(&mut self, turn: TurnId) {
        self.dropped |= self.id == turn;
    }

    /// Whether the turn's own cut, which is `by` somebody, is this one.
    pub fn is(&self, by: &CutBy) -> bool {
        self.noted && self.wish.key == by.key && self.wish.who.subject == by.who.subject
    }

    /// Who asked, if nothing else writes that down once the turn is taken back with others.
    pub fn asked(&self, action: &'static str) -> Option<(Principal, &'static str)> {
        (!self.noted || self.dropped).then(|| (self.wish.who.clone(), action))
    }

    /// What it has come to in the dialogue as it is now.
    pub fn came(&self, loaded: &Loaded, node: &Node) -> CutCame {
        let nothing = loaded.nothing_moved(node);
        let chars = match &self.said {
            Some(turn) => turn.reply_text.chars().count(),
            // Whether it was committed, its own task never learned.
            None if loaded.head == Some(self.id) => usize::MAX,
            None => 0,
        };
        if let Some(heard) = self.heard.filter(|heard| *heard < chars) {
            return CutCame::TooLate(heard);
        }
        let cut = self.said.as_ref().filter(|turn| turn.status == TurnStatus::Interrupted);
        if let Some(turn) = cut {
            let cut = Rewound::live_cut(nothing.id, nothing.world, nothing.epoch, turn);
            return CutCame::To(Interrupted::Cut { turn: turn.number }, Arc::new(cut));
        }
        if self.dropped {
            return CutCame::Dropped(Arc::new(nothing.dropped(self.number)));
        }
        let head_turn = nothing.head_turn;
        CutCame::To(Interrupted::Idle { head_turn }, Arc::new(nothing))
    }
}
