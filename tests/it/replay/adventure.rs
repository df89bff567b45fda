//! Histories drawn from the script of the adventure: its lines in random order, with the events before them.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::history::Op;
use crate::support::adventure_script::{Script, ScriptTurn, read_script};

pub static SCRIPT: LazyLock<Script> = LazyLock::new(read_script);

/// The NPC and the player of each dialogue.
pub const PAIRS: [(&str, &str); 6] = [
    ("mira", "p1"),
    ("tom", "p1"),
    ("bram", "p1"),
    ("hanna", "p1"),
    ("krug", "p1"),
    // Its turns are learned after their playback, as in `history::BY_ACK`.
    ("mira", "p2"),
];

/// The turns with a state block, by position.
static TURNS_WITH_BLOCKS: LazyLock<Vec<u8>> = LazyLock::new(|| turns_that(|turn| turn.block.is_some()));
/// The turns that rightly ask for an action.
static TURNS_THAT_ASK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let asks = |block: &Value| block.get("actions").is_some();
    turns_that(|turn| turn.plant.is_none() && turn.block.as_ref().is_some_and(asks))
});

fn turns_that(hold: impl Fn(&ScriptTurn) -> bool) -> Vec<u8> {
    let turns = (0..).zip(&SCRIPT.turns);
    turns.filter(|(_, turn)| hold(turn)).map(|(nth, _)| nth).collect()
}

/// A turn of the script: first its events, then its line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlayOp {
    /// The position in the script, from 0. Every number is valid.
    pub turn: u8,
    /// True if the second player says the line, which is possible with Mira alone.
    pub second: bool,
    /// True if the jobs are left for later.
    pub later: bool,
    /// The player interrupts after this share of the reply, in 1/65536. The largest shares cut the state block.
    pub cut: Option<u16>,
}

/// Cuts from this share on come after the words, inside the state block.
const IN_THE_BLOCK: u16 = 56_000;

impl PlayOp {
    pub fn script(self) -> &'static ScriptTurn {
        &SCRIPT.turns[usize::from(self.turn) % SCRIPT.turns.len()]
    }

    /// Returns the position of the dialogue.
    pub fn talk(self) -> u8 {
        let turn = self.script();
        let player = if self.second { "p2" } else { turn.player.as_str() };
        let known = (0..).zip(PAIRS).find(|(_, pair)| *pair == (turn.to.as_str(), player));
        let of_npc = || (0..).zip(PAIRS).find(|(_, (npc, _))| *npc == turn.to);
        known.or_else(of_npc).map_or(0, |(talk, _)| talk)
    }

    /// True if the player interrupts inside the state block.
    pub fn is_cut_in_block(self) -> bool {
        self.script().block.is_some() && self.cut.is_some_and(|share| share >= IN_THE_BLOCK)
    }

    /// Returns the whole reply, without its state block. `mark` names the line.
    pub fn reply(self, mark: &str) -> String {
        format!("Reply {mark}: {}", self.script().reply)
    }

    /// Returns the state block that a model reads from the heard part of the reply, if the part is long enough.
    pub fn extracted_block(self, heard: &str) -> Option<Value> {
        let turn = self.script();
        let heard = heard.trim_start().chars().zip(turn.reply.chars());
        let heard = heard.take_while(|(heard, given)| heard == given).count();
        if heard * 2 < turn.reply.chars().count() {
            return None;
        }
        let mut block = turn.block.clone()?;
        // A late job must not end a life: lines that the NPC said meanwhile would then be lines of the dead.
        for change in block["changes"].as_array_mut().into_iter().flatten() {
            change.as_object_mut()?.remove("status");
        }
        Some(block)
    }

    /// Returns what an extractor learns from the line and the heard part of the reply.
    pub fn extraction(self, name: &str, heard: &str) -> Value {
        let turn = self.script();
        let said = turn.say.lines().next().unwrap_or_default();
        let kind = if said.contains("like") { "preference" } else { "event" };
        let fact = |whose: &str, who: &str, content: String, text: &str| {
            let words: Vec<String> = text
                .split(|letter: char| !letter.is_alphanumeric())
                .filter(|word| word.len() > 3)
                .map(str::to_lowercase)
                .collect();
            json!({
                "subject": whose, "speaker": who, "predicate": "say",
                "object": words.last().map_or("something", String::as_str), "content": content,
                "keywords": words.iter().take(3).collect::<Vec<_>>(), "kind": kind,
                "importance": 1 + turn.say.len() % 10, "polarity": "positive", "tense": "past",
            })
        };
        let mut facts = vec![fact(
            "player",
            "player",
            format!("The player said: {said} (fact {name} first)"),
            said,
        )];
        // Some replies are statements of the NPC about itself.
        if self.turn.is_multiple_of(3) && heard.contains(turn.reply.as_str()) {
            let content = format!("The character said: {} (told q{name})", turn.reply);
            facts.push(fact("the character", "the character", content, &turn.reply));
        }
        let episode = match self.turn % 4 {
            0 => Value::Null,
            importance => {
                let text = format!("In {name}, the player said to {}: {said}", turn.to);
                json!({"text": text, "importance": importance * 3})
            }
        };
        json!({"facts": facts, "forget": [], "ends": [], "episode": episode})
    }
}

/// A step of the generator. Positions are relative to the last turn that was played.
#[derive(Debug, Clone)]
enum Step {
    /// Turns ahead, and the rest of the operation.
    Ahead(u8, PlayOp),
    Anywhere(PlayOp),
    WithBlock(u8, PlayOp),
    /// Asks for an action, and the backend answers it.
    Asks(u8, PlayOp, Op),
    /// In the dialogue of the last turn, or else in the named one.
    InTalk(Option<u8>, Op),
    Other(Op),
}

fn play() -> impl Strategy<Value = PlayOp> {
    (
        0..100_u8,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.15, any::<u16>()),
    )
        .prop_map(|(turn, second, later, cut)| PlayOp {
            turn,
            second,
            later,
            cut,
        })
}

fn answer() -> impl Strategy<Value = Op> {
    (any::<u16>(), any::<bool>()).prop_map(|(pick, refused)| Op::Answer { pick, refused })
}

fn talk() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.3, 0..6_u8)
}

/// Returns histories of the adventure with up to `longest` operations.
pub fn histories(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    let step = prop_oneof![
        11 => (1..=4_u8, play()).prop_map(|(ahead, play)| Step::Ahead(ahead, play)),
        1 => play().prop_map(Step::Anywhere),
        3 => (any::<u8>(), play()).prop_map(|(pick, play)| Step::WithBlock(pick, play)),
        3 => (talk(), any::<u16>(), prop::option::weighted(0.5, any::<u16>()))
            .prop_map(|(talk, to, heard)| Step::InTalk(talk, Op::Rewind { talk: 0, to, heard })),
        1 => talk().prop_map(|talk| Step::InTalk(talk, Op::Uncut { talk: 0 })),
        1 => (talk(), prop::bool::weighted(0.3))
            .prop_map(|(talk, fails)| Step::InTalk(talk, Op::Anew { talk: 0, fails })),
        2 => (any::<u8>(), play(), answer()).prop_map(|(pick, play, answer)| Step::Asks(pick, play, answer)),
        1 => answer().prop_map(Step::Other),
        1 => (1..=100_u8).prop_map(|hours| Step::Other(Op::TimePassed { hours })),
        1 => Just(Step::Other(Op::Played)),
        1 => (0..6_u8, any::<u8>()).prop_map(|(jobs, seed)| Step::Other(Op::Work { jobs, seed })),
        1 => Just(Step::Other(Op::Save)),
        1 => any::<u16>().prop_map(|pick| Step::Other(Op::Restore { pick })),
    ];
    // A failing history shrinks by steps that are left out.
    let step = prop::option::weighted(0.98, step);
    (0..100_u8, prop::collection::vec(step, 8..=longest)).prop_map(|(start, steps)| {
        let (mut at, mut last) = (start, 0);
        let mut ops = Vec::with_capacity(steps.len());
        for step in steps.into_iter().flatten() {
            let picked = |of: &[u8], pick: u8| of[usize::from(pick) % of.len()];
            let (turn, play, then) = match step {
                Step::Ahead(ahead, play) => ((at + ahead) % 100, play, None),
                Step::Anywhere(play) => (play.turn, play, None),
                Step::WithBlock(pick, play) => (picked(&TURNS_WITH_BLOCKS, pick), play, None),
                Step::Asks(pick, play, answer) => {
                    let whole = PlayOp { cut: None, ..play };
                    (picked(&TURNS_THAT_ASK, pick), whole, Some(answer))
                }
                Step::InTalk(talk, op) => {
                    ops.push(in_talk(op, talk.unwrap_or(last)));
                    continue;
                }
                Step::Other(op) => {
                    ops.push(op);
                    continue;
                }
            };
            let play = PlayOp { turn, ..play };
            (at, last) = (turn, play.talk());
            ops.push(Op::Play(play));
            ops.extend(then);
        }
        ops
    })
}

/// Returns the operation on another dialogue.
fn in_talk(op: Op, talk: u8) -> Op {
    match op {
        Op::Rewind { to, heard, .. } => Op::Rewind { talk, to, heard },
        Op::Uncut { .. } => Op::Uncut { talk },
        Op::Anew { fails, .. } => Op::Anew { talk, fails },
        other => other,
    }
}
