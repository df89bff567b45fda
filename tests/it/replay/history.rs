//! Random histories of a world: lines in several dialogues, manual corrections between them, and rewinds.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::adventure::PlayOp;

/// The number of dialogues at the start. Two sessions of p1 and one of p2 are with the same NPC. One session has a
/// second NPC in earshot. These NPCs have a conversation. One session acknowledges playback.
pub const TALKS: u8 = 6;
/// The dialogue without a player.
pub const AMONG_NPCS: u8 = 4;
/// The dialogue whose turns are learned after their playback.
pub const BY_ACK: u8 = 5;
/// The session in which a player joined the NPCs; the last one if several exist.
pub const JOINED: u8 = TALKS;

const FRUITS: [&str; 3] = ["grapes", "pears", "plums"];
const ADJECTIVES: [&str; 6] = ["red", "green", "blue", "sour", "sweet", "dry"];
const KINDS: [&str; 4] = ["preference", "event", "habit", "goal"];
/// The kind of facts that are goals.
pub const GOAL: &str = "goal";

/// Names a fruit. Every number is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fruit(pub u8);

/// Names an adjective. Every number is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjective(pub u8);

impl Fruit {
    pub const ALL: [Self; FRUITS.len()] = [Self(0), Self(1), Self(2)];
    pub fn name(self) -> &'static str {
        FRUITS[usize::from(self.0) % FRUITS.len()]
    }
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fruit| fruit.name() == name)
    }
    /// Returns the fruit in a text.
    pub fn find_in(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fruit| text.contains(fruit.name()))
    }
}

impl Adjective {
    pub const ALL: [Self; ADJECTIVES.len()] = [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5)];
    pub fn name(self) -> &'static str {
        ADJECTIVES[usize::from(self.0) % ADJECTIVES.len()]
    }
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|adjective| adjective.name() == name)
    }
    /// Returns the adjective in a text.
    pub fn find_in(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|adjective| text.contains(adjective.name()))
    }
}

/// One operation of a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Say(SayOp),
    /// A turn of the adventure.
    Play(PlayOp),
    /// The backend answers an action. `pick` chooses one of those that stand without an answer.
    Answer {
        pick: u16,
        refused: bool,
    },
    /// A person changes a fact. `pick` chooses the fact.
    Edit {
        pick: u16,
        how: ManualEdit,
    },
    /// A person writes a fact, which may have been valid for a long time.
    Write {
        fruit: Fruit,
        adjective: Adjective,
        long: bool,
    },
    /// A dialogue is rewound to a turn. `to` is the share of turns in 1/65536, and `heard` the share of the last reply.
    Rewind {
        talk: u8,
        to: u16,
        heard: Option<u16>,
    },
    /// A cut reply is resumed.
    Uncut {
        talk: u8,
    },
    /// The last reply of a session is regenerated, or the model fails.
    Anew {
        talk: u8,
        fails: bool,
    },
    /// A player joins the NPCs at their last line.
    Join,
    /// The last reply of the session [`BY_ACK`] was played to its end.
    Played,
    /// The backend sets the progress of the first or second player with Mira.
    Progress {
        second: bool,
        to: u8,
    },
    /// The backend reports events about the first or second player: hit points, and a change of an attribute.
    Events {
        second: bool,
        hp: u8,
        mana: i8,
    },
    /// The backend reports that hours of the game have passed.
    TimePassed {
        hours: u8,
    },
    /// The facts of both sellers are consolidated.
    Consolidate,
    /// A save is taken.
    Save,
    /// A save is restored, if any exists. `pick` chooses the save.
    Restore {
        pick: u16,
    },
    /// `jobs` pending jobs run, in order within a dialogue.
    Work {
        jobs: u8,
        seed: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ManualEdit {
    Remove,
    Restore,
    Pin(bool),
    Reword(Adjective),
    /// The visible keywords, including keywords of duplicates, and one additional keyword.
    Rekey(Fruit),
    /// A new importance.
    Weigh(u8),
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Taught(SayOp),
    Scripted(PlayOp),
}

/// A line and its effects.
#[expect(clippy::struct_excessive_bools, reason = "each is one more thing that a line may do")]
#[derive(Debug, Clone, PartialEq)]
pub struct SayOp {
    pub talk: u8,
    pub asks: Fruit,
    pub facts: Vec<TaughtFact>,
    /// The reply repeats the prompt's memory at this position, if there are enough.
    pub echoes: Option<u8>,
    pub forget: Option<Fruit>,
    /// The reply ends the prompt's goal at this position.
    pub ends: Option<u8>,
    /// The reply says that Hanna is called Anna.
    pub names: bool,
    /// A change of hit points in the reply's state block.
    pub state: Option<i8>,
    /// A further change to the player.
    pub gives: Option<StateGift>,
    /// True if the line asks about the NPC's own past.
    pub past: bool,
    /// True if the reply's state block says that nothing is new, rightly or not.
    pub nothing_new: bool,
    /// The length of the reply, in filler words.
    pub words: u8,
    /// True if the jobs are left for later.
    pub later: bool,
    /// The player interrupts after this share of the reply, in 1/65536.
    pub cut: Option<u16>,
}

/// A change to the player in a reply's state block. Every change unlocks a scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StateGift {
    Key,
    Tower,
    Trust,
    Meeting,
}

impl StateGift {
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Key, "key"),
        (Self::Tower, "tower"),
        (Self::Trust, "trust"),
        (Self::Meeting, "meeting"),
    ];
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(gift, _)| *gift == self)
            .map_or("", |(_, name)| name)
    }
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(gift, _)| *gift)
    }
    /// Adds the change to a state block.
    pub fn add_to_block(self, block: &mut Value) {
        let (key, value) = match self {
            Self::Key => ("items_gained", json!(["silver key"])),
            Self::Tower => ("location", json!("Tower")),
            Self::Trust => (
                "relationship_changes",
                json!([{"from": "Mira", "to": "player", "type": "trust", "delta": 6}]),
            ),
            Self::Meeting => ("npc_met", json!(["Ergen"])),
        };
        block[key] = value;
    }
}

/// A fact taught by a line.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one more thing that a sentence may be"
)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaughtFact {
    /// The fact is about Hanna, whom all NPCs may mention, and not about the player.
    pub of_hanna: bool,
    /// The fact uses Hanna's other name.
    pub as_anna: bool,
    /// The fact is the NPC's statement about itself.
    pub of_itself: bool,
    pub fruit: Fruit,
    pub adjective: Adjective,
    pub negative: bool,
    pub past: bool,
    /// The fact is pinned, and must not be forgotten.
    pub vital: bool,
    /// The importance, from 1 to 10.
    pub importance: u8,
    pub kind: u8,
}

impl TaughtFact {
    pub fn kind(self) -> &'static str {
        KINDS[usize::from(self.kind) % KINDS.len()]
    }
    pub fn kind_named(name: &str) -> Option<u8> {
        (0..)
            .zip(KINDS)
            .find_map(|(kind, known)| (known == name).then_some(kind))
    }
    /// Returns the fact as an extractor writes facts. The words of all facts differ.
    pub fn fact_statement(self, line: &str, nth: usize, among_npcs: bool) -> Value {
        let (fruit, adjective) = (self.fruit.name(), self.adjective.name());
        let verb = match (self.negative, self.kind() == GOAL) {
            (true, _) => "hates",
            (false, true) => "wants",
            (false, false) => "likes",
        };
        let nth = ["first", "second", "third"][nth % 3];
        if self.of_itself {
            return self.self_statement(line, verb);
        }
        let taboo = if self.vital { ", a taboo" } else { "" };
        let (subject, whoever) = match (self.of_hanna || among_npcs, self.as_anna) {
            (true, true) => ("Anna", "Anna"),
            (true, false) => ("Hanna", "Hanna"),
            (false, _) => ("player", "The player"),
        };
        json!({
            "subject": subject, "speaker": "player", "predicate": "like", "object": fruit,
            "content": format!("{whoever} {verb} {adjective} {fruit}{taboo} (fact {line} {nth})"),
            "keywords": [fruit, "fruit", adjective],
            "kind": self.kind(),
            "importance": self.importance,
            "polarity": if self.negative { "negative" } else { "positive" },
            "tense": if self.past { "past" } else { "present" },
        })
    }
}

impl TaughtFact {
    /// Returns the fact as a self-fact of the NPC. Its words differ from players' words, except for the topic.
    fn self_statement(self, line: &str, verb: &str) -> Value {
        let (fruit, adjective) = (self.fruit.name(), self.adjective.name());
        json!({
            "subject": "the character", "speaker": "the character", "predicate": "like", "object": fruit,
            "content": format!("The character {verb} {adjective} {fruit} (told q{line})"),
            "keywords": [fruit, adjective],
            "kind": self.kind(),
            "importance": self.importance,
            "polarity": if self.negative { "negative" } else { "positive" },
            "tense": if self.past { "past" } else { "present" },
        })
    }
}

/// Returns the name of line `number`, in letters only, because numbers in facts are compared.
pub fn name_of(number: usize) -> String {
    let digit = |n: usize| char::from(b'a' + u8::try_from(n % 26).expect("below 26"));
    [digit(number / 676), digit(number / 26), digit(number)]
        .iter()
        .collect()
}

fn fruit() -> impl Strategy<Value = Fruit> {
    (0..3_u8).prop_map(Fruit)
}

fn adjective() -> impl Strategy<Value = Adjective> {
    (0..6_u8).prop_map(Adjective)
}

fn taught() -> impl Strategy<Value = TaughtFact> {
    (
        (
            prop::bool::weighted(0.25),
            prop::bool::weighted(0.3),
            prop::bool::weighted(0.3),
        ),
        fruit(),
        adjective(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        1..=10_u8,
        0..7_u8,
    )
        .prop_map(
            |((of_hanna, as_anna, of_itself), fruit, adjective, negative, past, vital, importance, kind)| TaughtFact {
                of_hanna: of_hanna && !of_itself,
                as_anna: as_anna && !of_itself,
                of_itself,
                fruit,
                adjective,
                negative,
                past,
                vital,
                importance,
                kind: kind.saturating_sub(3),
            },
        )
}

fn gift() -> impl Strategy<Value = StateGift> {
    (0..StateGift::ALL.len()).prop_map(|nth| StateGift::ALL[nth].0)
}

fn say() -> impl Strategy<Value = Op> {
    let rest = (
        prop::option::weighted(0.3, gift()),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.15),
    );
    (
        0..=JOINED,
        fruit(),
        prop::collection::vec(taught(), 0..=2),
        prop::option::weighted(0.2, 0..3_u8),
        (
            prop::option::weighted(0.08, fruit()),
            prop::option::weighted(0.15, 0..2_u8),
            prop::bool::weighted(0.08),
        ),
        prop::option::weighted(0.3, -9..10_i8),
        rest,
        0..6_u8,
        prop::bool::weighted(0.3),
        prop::option::weighted(0.1, any::<u16>()),
    )
        .prop_map(
            |(
                talk,
                asks,
                facts,
                echoes,
                (forget, ends, names),
                state,
                (gives, past, nothing_new),
                words,
                later,
                cut,
            )| {
                Op::Say(SayOp {
                    talk,
                    asks,
                    facts,
                    echoes,
                    forget,
                    ends,
                    names,
                    state,
                    gives,
                    past,
                    nothing_new,
                    words,
                    later,
                    cut,
                })
            },
        )
}

/// Returns a dialogue with a player.
fn with_a_player() -> impl Strategy<Value = u8> {
    (0..JOINED).prop_map(|talk| if talk < AMONG_NPCS { talk } else { talk + 1 })
}

fn edit() -> impl Strategy<Value = ManualEdit> {
    prop_oneof![
        Just(ManualEdit::Remove),
        Just(ManualEdit::Restore),
        any::<bool>().prop_map(ManualEdit::Pin),
        adjective().prop_map(ManualEdit::Reword),
        fruit().prop_map(ManualEdit::Rekey),
        (1..=10_u8).prop_map(ManualEdit::Weigh),
    ]
}

/// Returns histories of up to `longest` operations.
pub fn histories(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        10 => say(),
        2 => (any::<u16>(), edit()).prop_map(|(pick, how)| Op::Edit { pick, how }),
        1 => (fruit(), adjective(), any::<bool>())
            .prop_map(|(fruit, adjective, long)| Op::Write { fruit, adjective, long }),
        3 => (0..=JOINED, any::<u16>(), prop::option::weighted(0.5, any::<u16>()))
            .prop_map(|(talk, to, heard)| Op::Rewind { talk, to, heard }),
        1 => (0..=JOINED).prop_map(|talk| Op::Uncut { talk }),
        1 => (with_a_player(), prop::bool::weighted(0.3)).prop_map(|(talk, fails)| Op::Anew { talk, fails }),
        1 => Just(Op::Join),
        1 => Just(Op::Played),
        1 => (any::<bool>(), 0..4_u8).prop_map(|(second, to)| Op::Progress { second, to }),
        1 => (any::<bool>(), 0..=100_u8, -60..=60_i8).prop_map(|(second, hp, mana)| Op::Events { second, hp, mana }),
        1 => (1..=100_u8).prop_map(|hours| Op::TimePassed { hours }),
        2 => Just(Op::Consolidate),
        2 => (0..6_u8, any::<u8>()).prop_map(|(jobs, seed)| Op::Work { jobs, seed }),
        1 => Just(Op::Save),
        1 => any::<u16>().prop_map(|pick| Op::Restore { pick }),
    ];
    prop::collection::vec(op, 3..=longest)
}
