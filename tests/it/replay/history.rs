//! Random histories of a world: what is said where, what people correct in between, and what is
//! taken back.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Dialogues that every history begins with: two of one player and one of another with the same NPC, one with
/// two NPCs in earshot, one of these two with each other, and one whose player says what was played.
pub const TALKS: u8 = 6;
/// The dialogue in which no player speaks.
pub const AMONG_NPCS: u8 = 4;
/// The dialogue that learns from a turn once it was played.
pub const BY_ACK: u8 = 5;
/// The session in which a player joined the NPCs, the last one if there are several.
pub const JOINED: u8 = TALKS;

const FRUITS: [&str; 3] = ["grapes", "pears", "plums"];
const ADJECTIVES: [&str; 6] = ["red", "green", "blue", "sour", "sweet", "dry"];
const KINDS: [&str; 4] = ["preference", "event", "habit", "goal"];
/// What somebody has a goal says.
pub const GOAL: &str = "goal";

/// Names a fruit; every number does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fruit(pub u8);

/// Names an adjective; every number does.
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
    /// The fruit that a text is about.
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
    /// The adjective that a text has.
    pub fn find_in(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|adjective| text.contains(adjective.name()))
    }
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Say(SayOp),
    /// A person changes a fact; `pick` chooses among those there are.
    Edit {
        pick: u16,
        how: ManualEdit,
    },
    /// A person writes a fact, which may have been true for long.
    Write {
        fruit: Fruit,
        adjective: Adjective,
        long: bool,
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
    /// The last reply of a session is said anew, or is to be and the model fails.
    Anew {
        talk: u8,
        fails: bool,
    },
    /// A player joins the NPCs where they are.
    Join,
    /// Somebody has heard the last reply of the session that says so to its end.
    Played,
    /// The backend says how far the first player has come with Mira, or the second.
    Progress {
        second: bool,
        to: u8,
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

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ManualEdit {
    Remove,
    Restore,
    Pin(bool),
    Reword(Adjective),
    /// The keywords that it shows, those of its duplicates among them, and one more unless it is there.
    Rekey(Fruit),
    /// A new importance.
    Weigh(u8),
}

/// A line and what comes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SayOp {
    pub talk: u8,
    pub asks: Fruit,
    pub facts: Vec<TaughtFact>,
    /// The reply repeats what stands in this place of what its prompt remembers, if so much does.
    pub echoes: Option<u8>,
    pub forget: Option<Fruit>,
    /// The reply says that of the goals its prompt has, the one in this place is over.
    pub ends: Option<u8>,
    /// It says that Hanna is called Anna.
    pub names: bool,
    /// A change of hit points in the reply's state block.
    pub state: Option<i8>,
    /// What else it does to the player.
    pub gives: Option<StateGift>,
    /// Whether the line asks about the NPC's own past.
    pub past: bool,
    /// How long the reply is.
    pub words: u8,
    /// Whether its jobs are left for later.
    pub later: bool,
    /// The player cuts in after so much of the reply, in 1/65536.
    pub cut: Option<u16>,
}

/// What a reply's state block does to the player, each of which unlocks something.
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
    /// Adds it to a state block.
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

/// A fact that a line teaches.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one more thing that a sentence may be"
)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaughtFact {
    /// Of somebody whom every NPC may speak of, not of the player.
    pub of_hanna: bool,
    /// Who goes by another name.
    pub as_anna: bool,
    /// Of the NPC, by itself.
    pub of_itself: bool,
    pub fruit: Fruit,
    pub adjective: Adjective,
    pub negative: bool,
    pub past: bool,
    /// Nobody may forget it: it is pinned.
    pub vital: bool,
    /// 1 to 10.
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
    /// As an extractor writes it. No two are in the same words.
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
    /// The same of what the NPC says of itself, which has no word in common with what players say but for what it is about.
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

/// The name of line `number`: letters only, since numbers are compared between facts.
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
    let past = (prop::option::weighted(0.3, gift()), prop::bool::weighted(0.3));
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
        past,
        0..6_u8,
        prop::bool::weighted(0.3),
        prop::option::weighted(0.1, any::<u16>()),
    )
        .prop_map(
            |(talk, asks, facts, echoes, (forget, ends, names), state, (gives, past), words, later, cut)| {
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
                    words,
                    later,
                    cut,
                })
            },
        )
}

/// A dialogue in which a player speaks.
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

/// Histories of up to `longest` things.
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
        2 => (0..6_u8, any::<u8>()).prop_map(|(jobs, seed)| Op::Work { jobs, seed }),
        1 => Just(Op::Save),
        1 => any::<u16>().prop_map(|pick| Op::Restore { pick }),
    ];
    prop::collection::vec(op, 3..=longest)
}
