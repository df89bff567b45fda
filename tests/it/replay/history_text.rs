//! Histories as readable and writable text, with one operation per line.
//!
//! ```text
//! # Text after a hash is a remark for the reader.
//! say 0 asks=pears learns=player:red-grapes:preference:5:hated learns=hanna:dry-plums:habit:3 hp=-4 words=2 later
//! edit 3 reword=blue
//! rewind 0 to=40000 heard=3000
//! ```

use std::fmt::{self, Write as _};

use super::{
    adventure::PlayOp,
    history::{Adjective, Fruit, ManualEdit, Op, SayOp, StateGift, TaughtFact},
};

impl fmt::Display for TaughtFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = match (self.of_hanna, self.as_anna) {
            (true, true) => "anna",
            (true, false) => "hanna",
            (false, true) => "nobody",
            (false, false) if self.of_itself => "itself",
            (false, false) => "player",
        };
        let (adjective, fruit) = (self.adjective.name(), self.fruit.name());
        write!(f, "{subject}:{adjective}-{fruit}:{}:{}", self.kind(), self.importance)?;
        f.write_str(if self.negative { ":hated" } else { "" })?;
        f.write_str(if self.past { ":once" } else { "" })?;
        f.write_str(if self.vital { ":vital" } else { "" })
    }
}

impl fmt::Display for SayOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "say {} asks={}", self.talk, self.asks.name())?;
        for fact in &self.facts {
            write!(f, " learns={fact}")?;
        }
        let echoes = self.echoes.map(|place| place.to_string());
        let forget = self.forget.map(|fruit| fruit.name().to_owned());
        let ends = self.ends.map(|place| place.to_string());
        let state = self.state.map(|change| change.to_string());
        let gives = self.gives.map(|gift| gift.name().to_owned());
        let cut = self.cut.map(|cut| cut.to_string());
        let keyed = [
            ("echoes", echoes),
            ("forget", forget),
            ("ends", ends),
            ("hp", state),
            ("gives", gives),
            ("cut", cut),
        ];
        for (key, value) in keyed {
            value.map_or(Ok(()), |value| write!(f, " {key}={value}"))?;
        }
        f.write_str(if self.past { " past" } else { "" })?;
        f.write_str(if self.names { " names" } else { "" })?;
        f.write_str(if self.nothing_new { " nothing_new" } else { "" })?;
        write!(f, " words={}{}", self.words, if self.later { " later" } else { "" })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say(say) => write!(f, "{say}"),
            Self::Play(play) => {
                let (turn, second) = (play.turn + 1, if play.second { " second" } else { "" });
                write!(f, "play {turn}{second}{}", if play.later { " later" } else { "" })?;
                play.cut.map_or(Ok(()), |cut| write!(f, " cut={cut}"))
            }
            Self::Answer { pick, refused } => write!(f, "answer {pick}{}", if *refused { " refused" } else { "" }),
            Self::Edit { pick, how } => match how {
                ManualEdit::Remove => write!(f, "edit {pick} remove"),
                ManualEdit::Restore => write!(f, "edit {pick} restore"),
                ManualEdit::Pin(pinned) => write!(f, "edit {pick} pin={pinned}"),
                ManualEdit::Reword(adjective) => write!(f, "edit {pick} reword={}", adjective.name()),
                ManualEdit::Rekey(fruit) => write!(f, "edit {pick} rekey={}", fruit.name()),
                ManualEdit::Weigh(importance) => write!(f, "edit {pick} weigh={importance}"),
            },
            Self::Write { fruit, adjective, long } => {
                write!(
                    f,
                    "write {} {}{}",
                    adjective.name(),
                    fruit.name(),
                    if *long { " long" } else { "" }
                )
            }
            Self::Rewind { talk, to, heard } => {
                write!(f, "rewind {talk} to={to}")?;
                heard.map_or(Ok(()), |heard| write!(f, " heard={heard}"))
            }
            Self::Uncut { talk } => write!(f, "uncut {talk}"),
            Self::Anew { talk, fails } => write!(f, "anew {talk}{}", if *fails { " fails" } else { "" }),
            Self::Join => write!(f, "join"),
            Self::Played => write!(f, "played"),
            Self::Progress { second, to } => write!(f, "progress {} to={to}", u8::from(*second) + 1),
            Self::Events { second, hp, mana } => write!(f, "events {} hp={hp} mana={mana}", u8::from(*second) + 1),
            Self::TimePassed { hours } => write!(f, "time {hours}"),
            Self::Consolidate => write!(f, "consolidate"),
            Self::Save => write!(f, "save"),
            Self::Restore { pick } => write!(f, "restore {pick}"),
            Self::Work { jobs, seed } => write!(f, "work {jobs} seed={seed}"),
        }
    }
}

/// Returns a history as text, after the writer's remarks.
pub fn write_history(remarks: &str, history: &[Op]) -> String {
    let mut text = String::new();
    for remark in remarks.lines() {
        let _ = writeln!(text, "# {remark}");
    }
    for op in history {
        let _ = writeln!(text, "{op}");
    }
    text
}

/// Parses a history.
///
/// # Errors
/// Names the first invalid line, with the reason.
pub fn read_history(text: &str) -> Result<Vec<Op>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| read_op(line).map_err(|why| format!("line {}: {why}: {line}", at + 1)))
        .collect()
}

fn read_op(line: &str) -> Result<Op, String> {
    let mut words = line.split_whitespace();
    let what = words.next().unwrap_or_default();
    let mut next = || words.next().ok_or("something is missing");
    let op = match what {
        "say" => {
            let talk = number(next()?)?;
            return read_say(talk, words).map(Op::Say);
        }
        "play" => {
            let turn = number(next()?)?;
            return read_play(turn, words).map(Op::Play);
        }
        "answer" => Op::Answer {
            pick: number(next()?)?,
            refused: match words.next() {
                None => false,
                Some("refused") => true,
                Some(_) => return Err("an action is only done or refused".to_owned()),
            },
        },
        "edit" => Op::Edit {
            pick: number(next()?)?,
            how: read_edit(next()?)?,
        },
        "write" => Op::Write {
            adjective: adjective(next()?)?,
            fruit: fruit(next()?)?,
            long: match words.next() {
                None => false,
                Some("long") => true,
                Some(_) => return Err("what is written has been true for long or has not".to_owned()),
            },
        },
        "rewind" => Op::Rewind {
            talk: number(next()?)?,
            to: number(value_of("to", next()?)?)?,
            heard: words.next().map(|word| number(value_of("heard", word)?)).transpose()?,
        },
        "uncut" => Op::Uncut { talk: number(next()?)? },
        "anew" => Op::Anew {
            talk: number(next()?)?,
            fails: match words.next() {
                None => false,
                Some("fails") => true,
                Some(_) => return Err("a reply said anew only fails or does not".to_owned()),
            },
        },
        "join" => Op::Join,
        "played" => Op::Played,
        "progress" => Op::Progress {
            second: number::<u8>(next()?)? == 2,
            to: number(value_of("to", next()?)?)?,
        },
        "events" => Op::Events {
            second: number::<u8>(next()?)? == 2,
            hp: number(value_of("hp", next()?)?)?,
            mana: number(value_of("mana", next()?)?)?,
        },
        "time" => Op::TimePassed {
            hours: number(next()?)?,
        },
        "consolidate" => Op::Consolidate,
        "save" => Op::Save,
        "restore" => Op::Restore { pick: number(next()?)? },
        "work" => Op::Work {
            jobs: number(next()?)?,
            seed: number(value_of("seed", next()?)?)?,
        },
        _ => return Err("nothing of that kind happens".to_owned()),
    };
    words.next().map_or(Ok(op), |word| Err(format!("`{word}` is too much")))
}

/// `turn` is counted from 1, as in the script.
fn read_play<'a>(turn: u8, words: impl Iterator<Item = &'a str>) -> Result<PlayOp, String> {
    let mut play = PlayOp {
        turn: turn.checked_sub(1).ok_or("the first turn is 1")?,
        second: false,
        later: false,
        cut: None,
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("second", "") => play.second = true,
            ("later", "") => play.later = true,
            ("cut", share) => play.cut = Some(number(share)?),
            _ => return Err(format!("`{word}` says nothing of a turn")),
        }
    }
    Ok(play)
}

fn read_say<'a>(talk: u8, words: impl Iterator<Item = &'a str>) -> Result<SayOp, String> {
    let mut say = SayOp {
        talk,
        asks: Fruit(0),
        facts: Vec::new(),
        echoes: None,
        forget: None,
        ends: None,
        names: false,
        state: None,
        gives: None,
        past: false,
        nothing_new: false,
        words: 0,
        later: false,
        cut: None,
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "asks" => say.asks = fruit(value)?,
            "learns" => say.facts.push(read_taught(value)?),
            "echoes" => say.echoes = Some(number(value)?),
            "forget" => say.forget = Some(fruit(value)?),
            "ends" => say.ends = Some(number(value)?),
            "names" => say.names = true,
            "hp" => say.state = Some(number(value)?),
            "gives" => say.gives = Some(StateGift::named(value).ok_or_else(|| format!("`{value}` is no gift"))?),
            "past" => say.past = true,
            "nothing_new" => say.nothing_new = true,
            "cut" => say.cut = Some(number(value)?),
            "words" => say.words = number(value)?,
            "later" => say.later = true,
            _ => return Err(format!("`{word}` says nothing of a line")),
        }
    }
    Ok(say)
}

fn read_taught(text: &str) -> Result<TaughtFact, String> {
    let mut parts = text.split(':');
    let mut next = || parts.next().ok_or_else(|| format!("`{text}` is no whole fact"));
    let subject = next()?;
    let object = next()?;
    let kind = next()?;
    let importance = number(next()?)?;
    let rest: Vec<&str> = parts.collect();
    let (adjective_name, fruit_name) = object
        .split_once('-')
        .ok_or_else(|| format!("`{object}` is no fruit"))?;
    Ok(TaughtFact {
        of_hanna: ["hanna", "anna"].contains(&subject),
        as_anna: ["anna", "nobody"].contains(&subject),
        of_itself: subject == "itself",
        adjective: adjective(adjective_name)?,
        fruit: fruit(fruit_name)?,
        kind: TaughtFact::kind_named(kind).ok_or_else(|| format!("`{kind}` is no kind"))?,
        importance,
        negative: rest.contains(&"hated"),
        past: rest.contains(&"once"),
        vital: rest.contains(&"vital"),
    })
}

fn read_edit(text: &str) -> Result<ManualEdit, String> {
    Ok(match text.split_once('=').unwrap_or((text, "")) {
        ("remove", _) => ManualEdit::Remove,
        ("restore", _) => ManualEdit::Restore,
        ("pin", pinned) => ManualEdit::Pin(pinned == "true"),
        ("reword", word) => ManualEdit::Reword(adjective(word)?),
        ("rekey", name) => ManualEdit::Rekey(fruit(name)?),
        ("weigh", importance) => ManualEdit::Weigh(number(importance)?),
        _ => return Err(format!("`{text}` is no edit")),
    })
}

fn value_of<'a>(key: &str, word: &'a str) -> Result<&'a str, String> {
    let value = word.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
    value.ok_or_else(|| format!("`{word}` ought to be {key}=…"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no such number"))
}

fn fruit(name: &str) -> Result<Fruit, String> {
    Fruit::named(name).ok_or_else(|| format!("`{name}` is no fruit"))
}

fn adjective(name: &str) -> Result<Adjective, String> {
    Adjective::named(name).ok_or_else(|| format!("`{name}` is no adjective"))
}

proptest::proptest! {
    #[test]
    fn history_round_trips_as_text(history in super::history::histories(24)) {
        proptest::prop_assert_eq!(read_history(&write_history("a remark\nof two lines", &history)), Ok(history));
    }

    #[test]
    fn adventure_round_trips_as_text(history in super::adventure::histories(24)) {
        proptest::prop_assert_eq!(read_history(&write_history("", &history)), Ok(history));
    }
}
