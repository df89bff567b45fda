//! Requests to take a dialogue back: collected while a move is under way, so that whoever asks at the
//! same time is told one outcome, that of the lowest turn; and what is the same about a move before and
//! after it. For sessions and NPC conversations alike; moving the head is `dialogue::rewind`.

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, fut::wrap_future};
use futures_util::FutureExt;

use super::{
    Interrupted, SessionError,
    curator::Unsaid,
    handle::Ask,
    registry::{Node, SessionKey, send},
    session::{WasClosed, load::Loaded},
    use_cases::UseCases,
};
use crate::{
    dialogue::rewind::{Moved, RewindError, RewindRequest, Target},
    ids::{DialogueId, DialogueKind, TurnId},
    ports::{
        StoreError,
        ledger::rewinds::{KnownKeys, Rewound},
        peers::Notice,
    },
    tenancy::{Principal, TenantScope},
};

/// When whoever asked of a dialogue that is elsewhere, or is another by now, may ask again.
pub(super) const MOMENT: Duration = Duration::from_millis(200);

/// One request, and whom to answer.
pub(super) struct Wish<A> {
    pub target: Target,
    pub key: Option<String>,
    pub who: Principal,
    /// For the audit log.
    pub action: &'static str,
    pub caller: A,
}

/// The move to make now.
#[derive(Debug, Clone)]
pub(super) struct Goal {
    pub target: Target,
    pub key: Option<String>,
    /// Keys of the others whom it serves.
    pub also: Vec<String>,
    pub who: Principal,
    pub action: &'static str,
}

/// What is asked of one dialogue.
pub(super) struct Moves<A> {
    /// Not served by any move yet.
    waiting: Vec<Wish<A>>,
    /// Who hears the outcome once nothing is asked any more.
    callers: Vec<A>,
    /// Keys of those whom a move served that was asked for by others and is written already.
    keys: Vec<String>,
    /// Keys that are written with the move under way.
    written: Vec<String>,
    under_way: bool,
}

impl<A> Default for Moves<A> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            callers: Vec::new(),
            keys: Vec::new(),
            written: Vec::new(),
            under_way: false,
        }
    }
}

impl<A> Moves<A> {
    /// Whether anything is asked or under way: nothing else may happen to the dialogue then.
    pub fn is_busy(&self) -> bool {
        self.under_way || !self.waiting.is_empty()
    }

    /// Whether the ledger is being asked.
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    pub fn add(&mut self, wish: Wish<A>) {
        self.waiting.push(wish);
    }

    /// Everybody who is to be told of something.
    pub fn callers(&self) -> impl Iterator<Item = &A> {
        self.callers.iter().chain(self.waiting.iter().map(|wish| &wish.caller))
    }

    /// One more who hears the outcome of the move under way.
    pub fn also_tell(&mut self, caller: A) {
        self.callers.push(caller);
    }

    /// The lowest of what is asked; all that was asked so far is served by it. `None`: a move is under
    /// way, or nothing is asked.
    ///
    /// What was to be said anew is put back by a move of its own: should the other one come to nothing, it
    /// is still asked.
    pub fn begin(&mut self) -> Option<Goal> {
        if self.under_way || self.waiting.is_empty() {
            return None;
        }
        let puts_back = |wish: &Wish<A>| matches!(wish.target, Target::Again { .. });
        let alone = self.waiting.iter().all(puts_back);
        let (served, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|wish| alone || !puts_back(wish));
        self.waiting = later;
        let mut lowest: Option<Goal> = None;
        // Of those who are told of an earlier move: what is asked now must not be taken for theirs.
        let told = std::mem::take(&mut self.keys);
        let mut keys = Vec::new();
        for wish in served {
            let lower = lowest.as_ref().is_none_or(|goal| rank(wish.target) < rank(goal.target));
            let mut other = wish.key;
            if lower {
                let goal = Goal {
                    target: wish.target,
                    key: other.take(),
                    also: Vec::new(),
                    who: wish.who,
                    action: wish.action,
                };
                other = lowest.replace(goal).and_then(|before| before.key);
            }
            keys.extend(other);
            self.callers.push(wish.caller);
        }
        self.under_way = true;
        let mut goal = lowest?;
        keys.retain(|key| !told.contains(key));
        // A move with a key is written even where nothing is to be moved.
        goal.key = goal.key.or_else(|| keys.pop());
        goal.also = told;
        goal.also.extend(keys);
        goal.also.retain(|key| goal.key.as_ref() != Some(key));
        self.written = goal.key.iter().chain(&goal.also).cloned().collect();
        Some(goal)
    }

    /// The move has ended with `head` as the last turn. What was asked meanwhile and is so already
    /// needs no other. Whom to answer, unless something lower is still asked: then [`Self::begin`].
    pub fn ended(&mut self, head: u32) -> Vec<A> {
        self.under_way = false;
        let (served, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|wish| is_so(wish.target, head));
        self.waiting = waiting;
        for wish in served {
            self.keys.extend(wish.key);
            self.callers.push(wish.caller);
        }
        let written = std::mem::take(&mut self.written);
        if self.waiting.is_empty() {
            return std::mem::take(&mut self.callers);
        }
        // They are told of what comes next, and so is whoever repeats their keys.
        self.keys.extend(written);
        Vec::new()
    }

    /// These are to be kept with what the next move comes to, or this one.
    pub fn owe(&mut self, keys: impl IntoIterator<Item = String>) {
        self.keys.extend(keys);
    }

    /// Keys of those who are told of the last move though it was written without them.
    pub fn take_keys(&mut self) -> Vec<String> {
        std::mem::take(&mut self.keys)
    }

    /// The move came to nothing: whom to tell. What was asked since is still asked.
    pub fn failed(&mut self) -> Vec<A> {
        self.under_way = false;
        self.written.clear();
        std::mem::take(&mut self.callers)
    }

    /// Gives everything up: whom to tell.
    pub fn give_up(&mut self) -> Vec<A> {
        let mut callers = self.failed();
        callers.extend(self.waiting.drain(..).map(|wish| wish.caller));
        callers
    }
}

/// What the last moves took back one after another, for whoever asked too late to be served by them.
#[derive(Default)]
pub(super) struct Gone {
    last: Option<Arc<Rewound>>,
    turns: BTreeSet<u32>,
}

impl Gone {
    /// The head was moved from `before`, and turn `ended`, which ran, ended with that.
    pub fn note(&mut self, before: Option<TurnId>, rewound: &Arc<Rewound>, ended: Option<u32>) {
        if self.last.as_ref().is_none_or(|last| last.head != before) {
            self.turns.clear();
        }
        self.turns.extend(rewound.removed.iter().copied().chain(ended));
        self.turns.retain(|turn| *turn > rewound.head_turn);
        self.last = Some(Arc::clone(rewound));
    }

    /// The last move, if `turn` went with it or with those just before it and nothing was said since.
    pub fn with(&self, turn: u32, head: Option<TurnId>) -> Option<Arc<Rewound>> {
        let last = self.last.as_ref().filter(|last| last.head == head)?;
        self.turns.contains(&turn).then(|| Arc::clone(last))
    }
}

impl Loaded {
    /// What whoever asks to take back what does not stand is told, and its key is kept with.
    pub(super) fn nothing_moved(&self, node: &Node) -> Rewound {
        let (ports, dialogue) = (&node.ports, &self.dialogue);
        let head = (self.head, dialogue.head_turn);
        Rewound::nothing(
            ports.ids.next(),
            dialogue.world.clone(),
            self.epoch,
            head,
            ports.clock.now(),
        )
    }

    /// Asks for a move of this dialogue's head. `fence`: a turn is under way that must not commit; `seq`:
    /// of the event that will tell of it.
    pub(super) fn rewind_request(
        &self,
        node: &Node,
        (scope, dialogue): &SessionKey,
        goal: Goal,
        fence: bool,
        seq: u64,
    ) -> RewindRequest {
        RewindRequest {
            scope: scope.clone(),
            node: node.id,
            dialogue: *dialogue,
            world: self.dialogue.world.clone(),
            epoch: self.epoch,
            head_turn: self.dialogue.head_turn,
            head: self.head,
            fence,
            target: goal.target,
            paused: goal
                .target
                .pauses()
                .filter(|_| dialogue.kind() == DialogueKind::NpcConversation),
            key: goal.key,
            also: goal.also,
            seq,
            who: goal.who,
            action: goal.action,
        }
    }
}

/// Moves the head. A panic is told as a failed store: what was written, only the ledger knows.
pub(super) async fn run(use_cases: Arc<dyn UseCases>, request: RewindRequest) -> Result<Moved, RewindError> {
    let moving = AssertUnwindSafe(use_cases.rewind(request)).catch_unwind();
    moving
        .await
        .unwrap_or_else(|_panic| Err(StoreError::Rejected("the rewind panicked".into()).into()))
}

/// What whoever repeats a key is told again.
pub(super) fn repeated(rewound: Rewound) -> Interrupted {
    if rewound.is_live_cut() {
        return Interrupted::Cut {
            turn: rewound.head_turn,
        };
    }
    if rewound.is_nothing() {
        return Interrupted::Idle {
            head_turn: rewound.head_turn,
        };
    }
    Interrupted::Rewound(Arc::new(rewound))
}

/// Keeps what those who came with these keys are told, since no move of their own does.
pub(super) async fn note(
    node: Arc<Node>,
    (scope, dialogue): SessionKey,
    keys: Vec<String>,
    outcome: Arc<Rewound>,
    known: KnownKeys,
) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = keys.into_iter().map(|key| (node.ports.ids.next(), key)).collect();
    node.ports
        .ledger
        .rewinds
        .note_keys(&scope, dialogue, &keys, &outcome, known)
        .await
}

/// Answers with `told`; first, a key is kept with the outcome it stands for, so that it takes back nothing that
/// is said later.
pub(super) fn keep<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &SessionKey,
    key: Option<String>,
    (told, outcome): (Interrupted, Arc<Rewound>),
    ask: Ask<Interrupted>,
    ctx: &mut Context<A>,
) {
    let Some(key) = key else {
        return ask.answer(Ok(told));
    };
    let kept = note(Arc::clone(node), dialogue.clone(), vec![key], outcome, KnownKeys::Stay);
    ctx.spawn(wrap_future(async move {
        match kept.await {
            Ok(()) => ask.answer(Ok(told)),
            Err(error) => ask.answer(Err(error.into())),
        }
    }));
}

/// Why nothing was moved, as whoever asked is told.
pub(super) fn refused(error: &RewindError) -> SessionError {
    match error {
        RewindError::Store(error) => error.clone().into(),
        RewindError::Fenced => SessionError::Overloaded { retry_after: MOMENT },
        RewindError::NoSuchTurn { turn, head_turn } => SessionError::NoSuchTurn {
            turn: *turn,
            head_turn: *head_turn,
        },
        RewindError::NothingToResume => SessionError::NothingToResume,
    }
}

/// Whether only the ledger knows what was written, and who owns the dialogue now.
pub(super) fn is_doubtful(error: &RewindError) -> bool {
    matches!(error, RewindError::Store(_) | RewindError::Fenced)
}

/// Tells sessions that live here that they are closed. Those that do not.
pub(super) async fn tell_closed(node: &Node, scope: &TenantScope, closed: Vec<DialogueId>) -> Vec<DialogueId> {
    let mut elsewhere = Vec::new();
    for id in closed {
        match node.sessions.live(&(scope.clone(), id)) {
            Some(session) => {
                // One that stops just now reads that it is closed when it comes back.
                let _ = send(&session, WasClosed("rewound")).await;
            }
            None => elsewhere.push(id),
        }
    }
    elsewhere
}

/// Tells those whom moves of heads concern beside the dialogues themselves: sessions that were `closed`
/// with turns of theirs, and the curator.
pub(super) async fn tell_others(node: Arc<Node>, scope: TenantScope, moved: Vec<DialogueId>, closed: Vec<DialogueId>) {
    let elsewhere = tell_closed(&node, &scope, closed).await;
    if let Some(curator) = node.curator(&scope) {
        // A curator that stops just now leaves it to the next one.
        let _ = send(&curator, Unsaid(moved)).await;
    }
    if let Some(several) = node.membership.as_ref().filter(|_| !elsewhere.is_empty()) {
        let notice = Notice::Closed {
            tenant: scope.tenant().clone(),
            sessions: elsewhere,
        };
        if let Err(error) = several.peers.tell(&notice).await {
            tracing::warn!(%error, "not every node heard of closed sessions; those that did not learn of it when they write");
        }
    }
}

/// Lower goes further back.
fn rank(target: Target) -> (u32, usize, u8) {
    match target {
        Target::Turn { number, heard_chars } => (number, heard_chars.unwrap_or(usize::MAX), 0),
        // Whoever takes the turn back for good wins.
        Target::Anew { number } => (number, usize::MAX, 1),
        Target::Uncut | Target::Again { .. } => (u32::MAX, usize::MAX, 2),
    }
}

/// Whether nothing is left to do for `target` once turn `head` is the last one.
fn is_so(target: Target, head: u32) -> bool {
    match target {
        Target::Turn { number, heard_chars } => number > head || (number == head && heard_chars.is_none()),
        Target::Anew { number } => number >= head,
        // Something was unsaid since: there is nothing to take up.
        Target::Uncut | Target::Again { .. } => true,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;
    use crate::{memory::turn::Turn, tenancy::Role};

    fn wish(number: u32, heard_chars: Option<usize>, caller: u32) -> Wish<u32> {
        Wish {
            target: Target::Turn { number, heard_chars },
            key: Some(format!("k{caller}")),
            who: Principal {
                subject: "s".into(),
                tenant: "t".parse().unwrap(),
                role: Role::Backend,
                player: None,
                world: None,
                expires_at: DateTime::<Utc>::MAX_UTC,
            },
            action: "session.rewind",
            caller,
        }
    }

    #[test]
    fn the_lowest_turn_wins_and_everybody_is_told() {
        let mut moves = Moves::default();
        for (number, heard, caller) in [(7, None, 1), (3, Some(9), 2), (3, Some(4), 3), (5, None, 4)] {
            moves.add(wish(number, heard, caller));
        }
        let goal = moves.begin().unwrap();
        assert_eq!(
            (goal.target, goal.key.as_deref()),
            (
                Target::Turn {
                    number: 3,
                    heard_chars: Some(4)
                },
                Some("k3")
            )
        );
        assert!(moves.begin().is_none(), "one at a time");
        assert_eq!(moves.ended(3), [1, 2, 3, 4]);
        assert!(!moves.is_busy());
    }

    #[test]
    fn keys_of_those_who_are_told_of_a_later_move_come_with_it() {
        let mut moves = Moves::default();
        moves.add(wish(5, None, 1));
        moves.add(wish(6, None, 2));
        assert_eq!(moves.begin().unwrap().also, ["k2"]);
        moves.add(wish(3, None, 3));
        assert!(moves.ended(5).is_empty(), "something lower is asked");
        let goal = moves.begin().unwrap();
        assert_eq!(
            (goal.key.as_deref(), goal.also.as_slice()),
            (Some("k3"), ["k1".to_owned(), "k2".to_owned()].as_slice())
        );
        assert_eq!(moves.ended(3), [1, 2, 3]);
        moves.add(wish(1, None, 4));
        assert!(moves.begin().unwrap().also.is_empty(), "they have been told");
    }

    #[test]
    fn whoever_asks_too_late_is_told_of_the_last_of_the_moves_that_took_it_back() {
        let id = |n: u128| Some(TurnId::from_u128(n));
        let moved = |to: u32, removed: &[u32]| {
            let turn = Turn {
                id: TurnId::from_u128(u128::from(to)),
                dialogue: DialogueId::new(crate::ids::DialogueKind::Session, ulid::Ulid(1)),
                number: to,
                status: crate::memory::turn::TurnStatus::Completed,
                player: None,
                player_text: String::new(),
                npc: "mira".parse().unwrap(),
                reply_text: String::new(),
                text_version: 1,
                cues: Vec::new(),
                usage: crate::memory::turn::Usage::default(),
                started_at: DateTime::UNIX_EPOCH,
                committed_at: DateTime::UNIX_EPOCH,
                seqs: crate::memory::turn::TurnSeqs::default(),
            };
            Arc::new(Rewound {
                removed: removed.to_vec(),
                seq: 9,
                ..Rewound::live_cut(crate::ids::RewindId::from_u128(1), "vale".parse().unwrap(), 1, &turn)
            })
        };
        let mut gone = Gone::default();
        gone.note(id(6), &moved(4, &[5, 6]), Some(7));
        let last = moved(2, &[3, 4]);
        gone.note(id(4), &last, None);
        for turn in 3..=7 {
            assert_eq!(gone.with(turn, id(2)), Some(Arc::clone(&last)), "{turn}");
        }
        assert_eq!(gone.with(2, id(2)), None);
        assert_eq!(gone.with(8, id(2)), None);
        assert_eq!(gone.with(3, id(30)), None, "something was said since");
        let other = moved(20, &[30]);
        gone.note(id(30), &other, None);
        assert_eq!(gone.with(5, id(20)), None);
    }

    #[test]
    fn what_is_put_back_is_still_asked_when_a_lower_move_comes_to_nothing() {
        let again = || Wish {
            target: Target::Again {
                turn: TurnId::from_u128(1),
            },
            ..wish(0, None, 1)
        };
        let mut moves = Moves::default();
        moves.add(again());
        moves.add(wish(4, None, 2));
        assert_eq!(moves.begin().unwrap().key.as_deref(), Some("k2"));
        assert_eq!(moves.failed(), [2]);
        let goal = moves.begin().unwrap();
        assert_eq!(goal.target, again().target);
        assert_eq!(moves.ended(5), [1]);
        // Whoever takes its turn back for good has decided.
        moves.add(again());
        moves.add(wish(4, None, 2));
        moves.begin().unwrap();
        assert_eq!(moves.ended(4), [2, 1]);
        assert!(!moves.is_busy());
    }

    #[test]
    fn every_key_goes_with_the_move_that_serves_it() {
        let mut moves = Moves::default();
        moves.add(wish(7, None, 1));
        moves.add(wish(3, None, 2));
        moves.add(wish(5, None, 3));
        let goal = moves.begin().unwrap();
        assert_eq!(goal.key.as_deref(), Some("k2"));
        assert_eq!(goal.also, ["k1", "k3"]);
        moves.add(wish(4, None, 4));
        assert_eq!(moves.ended(3), [1, 2, 3, 4]);
        assert_eq!(moves.take_keys(), ["k4"], "it came when the move was written");
        // The lowest has none.
        moves.add(Wish {
            key: None,
            ..wish(1, None, 5)
        });
        moves.add(wish(2, None, 6));
        let goal = moves.begin().unwrap();
        assert_eq!((goal.key.as_deref(), goal.also.len()), (Some("k6"), 0));
    }

    #[test]
    fn answers_are_held_until_nothing_lower_is_asked() {
        let mut moves = Moves::default();
        moves.add(wish(7, None, 1));
        moves.begin().unwrap();
        moves.add(wish(9, None, 2));
        moves.add(wish(4, None, 3));
        assert_eq!(moves.ended(7), [0; 0]);
        let goal = moves.begin().unwrap();
        assert_eq!(goal.key.as_deref(), Some("k3"));
        assert_eq!(moves.ended(4), [1, 2, 3]);
    }

    #[test]
    fn what_failed_is_told_to_those_it_was_made_for() {
        let mut moves = Moves::default();
        moves.add(wish(7, None, 1));
        moves.begin().unwrap();
        moves.add(wish(4, None, 2));
        assert_eq!(moves.failed(), [1]);
        assert!(moves.is_busy());
        assert_eq!(moves.give_up(), [2]);
        assert!(!moves.is_busy());
    }
}
