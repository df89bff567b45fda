//! Random histories of a world: what is said where, what people correct in between, and what is
//! taken back.

use std::fmt;

use proptest::prelude::*;
use serde_json::{Value, json};

pub const FRUITS: [&str; 3] = ["grapes", "pears", "plums"];
pub const ADJECTIVES: [&str; 6] = ["red", "green", "blue", "sour", "sweet", "dry"];
/// Dialogues of a history: two of one player and one of another with the same NPC, and one with two
/// NPCs in earshot.
pub const TALKS: u8 = 4;

/// One thing that happens.
#[derive(Clone)]
pub enum Op {
    Say(Say),
    /// A person changes a fact; `pick` chooses among those there are.
    Edit {
        pick: u16,
        how: Edit,
    },
    /// A person writes a fact.
    Write {
        fruit: u8,
        adjective: u8,
    },
    /// A dialogue is taken back to `to` of its turns, in 1/65536; of the last one's reply, so much is heard.
    Rewind {
        talk: u8,
        to: u16,
        heard: Option<u16>,
    },
    /// A cut reply is taken up again.
    Uncut {
        talk: u8,
    },
    /// A save is taken.
    Save,
    /// A save is loaded, if there is any; `pick` chooses.
    Restore {
        pick: u16,
    },
    /// So many of the jobs that wait are done, those of one dialogue in their order.
    Work {
        jobs: u8,
        seed: u8,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum Edit {
    Remove,
    Restore,
    Pin(bool),
    Reword(u8),
    Weigh(u8),
}

/// One line each, so that a history that fails can be read.
impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say(say) => {
                write!(f, "say {} words={}", say.talk, say.words)?;
                for fact in &say.facts {
                    let fruit = FRUITS[usize::from(fruit_of(fact))];
                    let adjective = ADJECTIVES[usize::from(fact.adjective) % ADJECTIVES.len()];
                    write!(f, " [{adjective} {fruit}")?;
                    write!(f, "{}", if fact.negative { " hated" } else { "" })?;
                    write!(f, "{} kind={}]", if fact.past { " once" } else { "" }, fact.kind)?;
                }
                for (what, value) in [("forget", say.forget.map(i32::from)), ("hp", say.state.map(i32::from))] {
                    value.map_or(Ok(()), |value| write!(f, " {what}={value}"))?;
                }
                say.cut.map_or(Ok(()), |cut| write!(f, " cut={cut}"))?;
                write!(f, "{}", if say.later { " later" } else { "" })
            }
            Self::Edit { pick, how } => write!(f, "edit {pick} {how:?}"),
            Self::Write { fruit, adjective } => write!(f, "write {fruit} {adjective}"),
            Self::Rewind { talk, to, heard } => write!(f, "rewind {talk} to={to} heard={heard:?}"),
            Self::Uncut { talk } => write!(f, "uncut {talk}"),
            Self::Save => write!(f, "save"),
            Self::Restore { pick } => write!(f, "restore {pick}"),
            Self::Work { jobs, seed } => write!(f, "work {jobs} seed={seed}"),
        }
    }
}

fn fruit_of(fact: &Taught) -> u8 {
    fact.fruit % 3
}

/// A line and what comes of it.
#[derive(Debug, Clone)]
pub struct Say {
    pub talk: u8,
    pub asks: u8,
    pub facts: Vec<Taught>,
    pub forget: Option<u8>,
    /// A change of hit points in the reply's state block.
    pub state: Option<i8>,
    /// How long the reply is.
    pub words: u8,
    /// Whether its jobs are left for later.
    pub later: bool,
    /// The player cuts in after so much of the reply, in 1/65536.
    pub cut: Option<u16>,
}

/// A fact that a line teaches.
#[derive(Debug, Clone)]
pub struct Taught {
    pub fruit: u8,
    pub adjective: u8,
    pub negative: bool,
    pub past: bool,
    pub importance: u8,
    pub kind: u8,
}

impl Taught {
    /// As an extractor writes it. No two are in the same words.
    pub fn statement(&self, line: &str, nth: usize) -> Value {
        let fruit = FRUITS[usize::from(self.fruit) % FRUITS.len()];
        let adjective = ADJECTIVES[usize::from(self.adjective) % ADJECTIVES.len()];
        let verb = if self.negative { "hates" } else { "likes" };
        let nth = ["first", "second", "third"][nth % 3];
        let kind = ["preference", "event", "habit"][usize::from(self.kind) % 3];
        json!({
            "subject": "player", "speaker": "player", "predicate": "like", "object": fruit,
            "content": format!("The player {verb} {adjective} {fruit} (fact {line} {nth})"),
            "keywords": [fruit, "fruit", adjective],
            "kind": kind,
            "importance": self.importance % 10 + 1,
            "polarity": if self.negative { "negative" } else { "positive" },
            "tense": if self.past { "past" } else { "present" },
        })
    }
}

/// The name of line `number`: letters only, since numbers are compared between facts.
pub fn name_of(number: usize) -> String {
    let digit = |n: usize| char::from(b'a' + u8::try_from(n % 26).expect("below 26"));
    [digit(number / 676), digit(number / 26), digit(number)]
        .iter()
        .collect()
}

fn taught() -> impl Strategy<Value = Taught> {
    (
        0..3_u8,
        0..6_u8,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
        0..10_u8,
        0..6_u8,
    )
        .prop_map(|(fruit, adjective, negative, past, importance, kind)| Taught {
            fruit,
            adjective,
            negative,
            past,
            importance,
            kind: kind.saturating_sub(3),
        })
}

fn say() -> impl Strategy<Value = Op> {
    (
        0..TALKS,
        0..3_u8,
        prop::collection::vec(taught(), 0..=2),
        prop::option::weighted(0.08, 0..3_u8),
        prop::option::weighted(0.3, -9..10_i8),
        0..6_u8,
        prop::bool::weighted(0.3),
        prop::option::weighted(0.1, any::<u16>()),
    )
        .prop_map(|(talk, asks, facts, forget, state, words, later, cut)| {
            Op::Say(Say {
                talk,
                asks,
                facts,
                forget,
                state,
                words,
                later,
                cut,
            })
        })
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        Just(Edit::Remove),
        Just(Edit::Restore),
        any::<bool>().prop_map(Edit::Pin),
        (0..6_u8).prop_map(Edit::Reword),
        (0..10_u8).prop_map(Edit::Weigh),
    ]
}

/// Histories of up to `longest` things.
pub fn histories(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        10 => say(),
        2 => (any::<u16>(), edit()).prop_map(|(pick, how)| Op::Edit { pick, how }),
        1 => (0..3_u8, 0..6_u8).prop_map(|(fruit, adjective)| Op::Write { fruit, adjective }),
        3 => (0..TALKS, any::<u16>(), prop::option::weighted(0.5, any::<u16>()))
            .prop_map(|(talk, to, heard)| Op::Rewind { talk, to, heard }),
        1 => (0..TALKS).prop_map(|talk| Op::Uncut { talk }),
        2 => (0..6_u8, any::<u8>()).prop_map(|(jobs, seed)| Op::Work { jobs, seed }),
        1 => Just(Op::Save),
        1 => any::<u16>().prop_map(|pick| Op::Restore { pick }),
    ];
    prop::collection::vec(op, 3..=longest)
}
