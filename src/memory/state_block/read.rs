//! Reads a state block and turns it into bounded state changes.

use super::{
    MAX_BLOCK_BYTES,
    flow::{self, Value},
};
use crate::memory::{keywords::normalise, state::StateChange, text::is_ignorable, vocabulary::Vocabulary};

/// Longest name, place, item or mood, in Unicode scalar values.
pub const MAX_NAME_CHARS: usize = 64;
/// How the player is called in state changes.
const PLAYER: &str = "player";

/// Bounds of what one block may change.
#[derive(Debug, Clone, PartialEq)]
pub struct StateRules {
    /// Most that one turn may change one relationship; 20.
    pub max_relationship_delta: i32,
    /// Most that one turn may change hit points; 100.
    pub max_hp_delta: i32,
    /// Most of one item that one turn may give, and take; 1,000.
    pub max_item_delta: u32,
    /// Longest name, place, item or mood, in Unicode scalar values; 64.
    pub max_name_chars: usize,
    /// Longest sentence in events and notes, in Unicode scalar values; 200.
    pub max_text_chars: usize,
    /// Most entries of one list; 16.
    pub max_list: usize,
    /// Who may be named in relationships and meetings, besides the player and the speaker.
    /// Empty: anybody.
    pub known_names: Vec<String>,
    /// Names under which the NPC knows the player; each is read as `player`.
    pub player_names: Vec<String>,
    /// No player is there, as where NPCs talk among themselves: what a block changes is the speaker's.
    pub without_player: bool,
    /// The words for moods and relationships.
    pub vocabulary: Vocabulary,
    /// All items of the world; `None`: any.
    pub items: Option<Vec<String>>,
    /// All places of the world; `None`: any.
    pub places: Option<Vec<String>>,
}

impl Default for StateRules {
    fn default() -> Self {
        Self {
            max_relationship_delta: 20,
            max_hp_delta: 100,
            max_item_delta: 1_000,
            max_name_chars: MAX_NAME_CHARS,
            max_text_chars: 200,
            max_list: 16,
            known_names: Vec::new(),
            player_names: Vec::new(),
            without_player: false,
            vocabulary: Vocabulary::default(),
            items: None,
            places: None,
        }
    }
}

/// What a block says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    pub changes: Vec<StateChange>,
    /// What was left out or cut down and why, in words, for the trace.
    pub rejected: Vec<String>,
}

/// Why a block cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateBlockError {
    #[error("the state block is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("the state block has no `key: value` line and is not an object")]
    NotABlock,
    /// It reads as something, but no key of a state block is in it.
    #[error("the state block has none of the known keys")]
    NoKnownKey,
}

/// Reads a block that was closed. `speaker_npc` names the NPC that spoke: `mood` is its own; place, hit points,
/// items and meetings are the player's, or the speaker's where there is no player.
///
/// # Errors
/// When the block is too long or nothing in it can be read; single bad entries are in
/// [`Parsed::rejected`] instead. An empty block is fine and changes nothing.
pub fn parse(block: &str, speaker_npc: &str, rules: &StateRules) -> Result<Parsed, StateBlockError> {
    read(block, true, speaker_npc, rules)
}

/// As [`parse`], for a block that broke off: the last value, if the text ends inside it, is left out. Where that is all
/// there is, nothing can be read.
///
/// # Errors
/// As [`parse`].
pub fn parse_unclosed(block: &str, speaker_npc: &str, rules: &StateRules) -> Result<Parsed, StateBlockError> {
    read(block, false, speaker_npc, rules)
}

fn read(block: &str, closed: bool, speaker_npc: &str, rules: &StateRules) -> Result<Parsed, StateBlockError> {
    if block.len() > MAX_BLOCK_BYTES {
        return Err(StateBlockError::TooLong { max: MAX_BLOCK_BYTES });
    }
    if block.trim().is_empty() || block.trim() == "{}" {
        return Ok(Parsed::default());
    }
    let (entries, lost) = if closed {
        (flow::entries(block), None)
    } else {
        flow::whole_entries(block)
    };
    if entries.is_empty() {
        return Err(StateBlockError::NotABlock);
    }
    let stayed = entries
        .iter()
        .any(|(key, value)| key == "location_moved" && flag(value) == Some(false));
    let mut reader = Reader {
        speaker: speaker_npc,
        rules,
        out: Parsed::default(),
        counts: Vec::new(),
    };
    if !closed {
        reader.reject(match lost {
            Some(key) if !key.is_empty() => format!(
                "it was not closed; the last value, of `{}`, is left out",
                clip(&key, 40)
            ),
            Some(_) => "it was not closed; what it ends in the middle of is left out".to_owned(),
            None => "it was not closed; all its values are whole".to_owned(),
        });
    }
    let mut known = 0;
    for (key, value) in &entries {
        known += usize::from(reader.entry(key, value, stayed));
    }
    if known == 0 {
        Err(StateBlockError::NoKnownKey)
    } else {
        Ok(reader.out)
    }
}

struct Reader<'a> {
    speaker: &'a str,
    rules: &'a StateRules,
    out: Parsed,
    /// How many of each item were gained and lost so far.
    counts: Vec<((String, bool), u32)>,
}

impl Reader<'_> {
    /// Whose place, hit points, items and meetings a block tells.
    fn subject(&self) -> String {
        if self.rules.without_player {
            self.speaker.to_owned()
        } else {
            PLAYER.to_owned()
        }
    }

    /// Takes one entry; `false`: the key is not one of a state block.
    fn entry(&mut self, key: &str, value: &Value, stayed: bool) -> bool {
        match key {
            "location" if stayed => {}
            "location" => self.location(key, value),
            // Meant as a flag; some models name the place here instead.
            "location_moved" => {
                if flag(value).is_none() {
                    self.location(key, value);
                }
            }
            "hp_change" => self.hp(value),
            "items_gained" => self.items(key, value, true),
            "items_lost" => self.items(key, value, false),
            "npc_met" => self.people(key, value, |who, whom| StateChange::Met { who, whom }),
            "npc_separated" => self.people(key, value, |who, whom| StateChange::Separated { who, whom }),
            "relationship_changes" | "relationship_change" => self.relationships(value),
            "mood" => self.mood(key, value),
            "events" | "event" => self.sentences(key, value, |text| StateChange::Happened { text }),
            "notes" | "note" => self.sentences(key, value, |text| StateChange::Note { text }),
            other => {
                self.reject(format!("`{}` is not a key of a state block", clip(other, 40)));
                return false;
            }
        }
        true
    }

    fn one<'v>(&mut self, key: &str, value: &'v Value) -> Option<&'v str> {
        match value {
            Value::Text(text) => Some(text.as_str()),
            Value::List(items) => match items.as_slice() {
                [Value::Text(text)] => Some(text),
                [] => Some(""),
                _ => {
                    self.reject(format!("`{key}` must be one text"));
                    None
                }
            },
            Value::Map(_) => {
                self.reject(format!("`{key}` must be one text"));
                None
            }
        }
    }

    fn location(&mut self, key: &str, value: &Value) {
        let named = self.one(key, value).and_then(|text| self.name(key, text));
        if let Some(to) = named.and_then(|name| self.listed(key, name, self.rules.places.as_deref())) {
            let who = self.subject();
            self.out.changes.push(StateChange::Location { who, to });
        }
    }

    /// A word of the list, whatever else is written: free words would carry what one player said to all others.
    fn mood(&mut self, key: &str, value: &Value) {
        let Some(text) = self.one(key, value).map(clean).filter(|text| !is_nothing(text)) else {
            return;
        };
        let rules = self.rules;
        let Some(mood) = rules.vocabulary.mood(&text) else {
            return self.reject(format!("`{key}` names no mood of this world"));
        };
        self.out.changes.push(StateChange::Mood {
            who: self.speaker.to_owned(),
            mood: mood.to_owned(),
        });
    }

    /// `name` as the world's list spells it; without a list any is.
    fn listed(&mut self, key: &str, name: String, list: Option<&[String]>) -> Option<String> {
        let Some(list) = list else { return Some(name) };
        let wanted = normalise(&name);
        let found = list.iter().find(|listed| normalise(listed) == wanted).cloned();
        if found.is_none() {
            self.reject(format!("`{}` in `{key}` is not listed in this world", clip(&name, 64)));
        }
        found
    }

    fn hp(&mut self, value: &Value) {
        let Value::Text(text) = value else {
            return self.reject("`hp_change` must be a number".to_owned());
        };
        if is_nothing(text) {
            return;
        }
        let Some(wanted) = whole_number(text) else {
            return self.reject(format!("`hp_change` must be a number, not `{}`", clip(text, 40)));
        };
        let delta = self.bounded("hp_change", wanted, self.rules.max_hp_delta);
        if delta != 0 {
            let who = self.subject();
            self.out.changes.push(StateChange::HpDelta { who, delta });
        }
    }

    fn items(&mut self, key: &str, value: &Value, gained: bool) {
        for item in self.list(key, value) {
            let (name, count) = match &item {
                Value::Text(text) => counted(text),
                Value::Map(map) => {
                    let count = field(map, &["count", "quantity", "qty", "amount", "수량"]);
                    (
                        field(map, &["item", "name", "이름"]).unwrap_or_default(),
                        count.and_then(|text| whole_number(&text)).unwrap_or(1),
                    )
                }
                Value::List(_) => (String::new(), 0),
            };
            if is_nothing(&name) && matches!(item, Value::Text(_)) {
                continue;
            }
            let Ok(count @ 1..=9_999) = u32::try_from(count) else {
                self.reject(format!("a count in `{key}` must be 1 to 9999"));
                continue;
            };
            let named = self.name(key, &name);
            let listed = named.and_then(|name| self.listed(key, name, self.rules.items.as_deref()));
            if let Some(item) = listed
                && let Some(count) = self.within_cap(key, &item, gained, count)
            {
                let who = self.subject();
                self.out.changes.push(if gained {
                    StateChange::ItemGained { who, item, count }
                } else {
                    StateChange::ItemLost { who, item, count }
                });
            }
        }
    }

    /// What is left of `count` within the most of one item that one turn may give or take, however often a block names it.
    fn within_cap(&mut self, key: &str, item: &str, gained: bool, count: u32) -> Option<u32> {
        let of = (normalise(item), gained);
        let at = self
            .counts
            .iter()
            .position(|(known, _)| *known == of)
            .unwrap_or_else(|| {
                self.counts.push((of, 0));
                self.counts.len() - 1
            });
        let left = self.rules.max_item_delta.saturating_sub(self.counts[at].1);
        let taken = count.min(left);
        self.counts[at].1 += taken;
        if taken < count {
            self.reject(format!(
                "{count} of `{}` in `{key}` were cut to {taken}",
                clip(item, 64)
            ));
        }
        (taken > 0).then_some(taken)
    }

    fn people(&mut self, key: &str, value: &Value, change: impl Fn(String, String) -> StateChange) {
        for person in self.list(key, value) {
            let name = match person {
                Value::Text(text) => text,
                Value::Map(map) => field(&map, &["name", "npc", "이름"]).unwrap_or_default(),
                Value::List(_) => String::new(),
            };
            if is_nothing(&name) {
                continue;
            }
            let who = self.subject();
            if let Some(whom) = self.person(key, &name).filter(|whom| *whom != who) {
                self.out.changes.push(change(who, whom));
            }
        }
    }

    fn relationships(&mut self, value: &Value) {
        const KEY: &str = "relationship_changes";
        let listed = if matches!(value, Value::Map(_)) {
            vec![value.clone()]
        } else {
            self.list(KEY, value)
        };
        // The cap is per relationship and turn, however often a block names it.
        let mut spent: Vec<((String, String, String), i32)> = Vec::new();
        for change in listed {
            let Value::Map(map) = change else {
                if !matches!(&change, Value::Text(text) if is_nothing(text)) {
                    self.reject(format!("an entry of `{KEY}` must have from, to, type and delta"));
                }
                continue;
            };
            let from = field(&map, &["from"]).unwrap_or_default();
            let to = field(&map, &["to"]).unwrap_or_default();
            let kind = field(&map, &["type", "kind"]).filter(|kind| !is_nothing(kind));
            let Some(wanted) = field(&map, &["delta", "change"]).and_then(|text| whole_number(&text)) else {
                self.reject(format!("`delta` in `{KEY}` must be a number"));
                continue;
            };
            let (Some(from), Some(to)) = (self.person(KEY, &from), self.person(KEY, &to)) else {
                continue;
            };
            let rules = self.rules;
            let known = match &kind {
                Some(kind) => rules.vocabulary.kind(&clean(kind)),
                None => rules.vocabulary.plain_kind(),
            };
            let Some(kind) = known.map(str::to_owned) else {
                // What it names instead is not repeated: it may be what somebody said in private.
                self.reject(format!(
                    "the `type` of an entry of `{KEY}` is no kind of relationship of this world"
                ));
                continue;
            };
            if from == to {
                self.reject(format!("`{from}` cannot have a relationship with itself"));
                continue;
            }
            let key = (from, to, kind);
            let at = spent.iter().position(|entry| entry.0 == key).unwrap_or_else(|| {
                spent.push((key.clone(), 0));
                spent.len() - 1
            });
            let before = spent[at].1;
            let after = self.bounded(
                "delta",
                before.saturating_add(wanted),
                self.rules.max_relationship_delta,
            );
            spent[at].1 = after;
            if after != before {
                let (from, to, kind) = key;
                self.out.changes.push(StateChange::Relationship {
                    from,
                    to,
                    kind,
                    delta: after - before,
                });
            }
        }
    }

    fn sentences(&mut self, key: &str, value: &Value, change: impl Fn(String) -> StateChange) {
        for item in self.list(key, value) {
            let Value::Text(text) = item else {
                self.reject(format!("an entry of `{key}` must be a text"));
                continue;
            };
            if !is_nothing(&text) {
                self.out
                    .changes
                    .push(change(clip(&clean(&text), self.rules.max_text_chars)));
            }
        }
    }

    /// The items of a list, or of a text with commas; at most `max_list`.
    fn list(&mut self, key: &str, value: &Value) -> Vec<Value> {
        let mut items = match value {
            Value::List(items) => items.clone(),
            Value::Map(_) => vec![value.clone()],
            // Sentences have commas of their own.
            Value::Text(text) if matches!(key, "events" | "event" | "notes" | "note") => {
                vec![Value::Text(text.clone())]
            }
            Value::Text(text) => text
                .split([',', '，', '、'])
                .map(|item| Value::Text(item.trim().to_owned()))
                .collect(),
        };
        if items.len() > self.rules.max_list {
            self.reject(format!(
                "`{key}` has {} entries, the first {} count",
                items.len(),
                self.rules.max_list
            ));
            items.truncate(self.rules.max_list);
        }
        items
    }

    fn name(&mut self, key: &str, text: &str) -> Option<String> {
        let name = clean(text);
        if is_nothing(&name) {
            return None;
        }
        if name.chars().count() > self.rules.max_name_chars {
            self.reject(format!(
                "a text in `{key}` is longer than {} characters",
                self.rules.max_name_chars
            ));
            return None;
        }
        Some(name)
    }

    fn person(&mut self, key: &str, text: &str) -> Option<String> {
        let name = self.name(key, text)?;
        let lower = normalise(&name);
        let is_player = matches!(
            lower.as_str(),
            "player" | "the player" | "user" | "the user" | "you" | "플레이어" | "당신" | "유저"
        ) || self.rules.player_names.iter().any(|known| normalise(known) == lower);
        if is_player {
            if self.rules.without_player {
                self.reject(format!("no player is there, whom `{key}` could mean"));
                return None;
            }
            return Some(PLAYER.to_owned());
        }
        if matches!(name.to_lowercase().as_str(), "self" | "me" | "npc" | "나" | "저") {
            return Some(self.speaker.to_owned());
        }
        // That is how players are told apart in a world's state: a block speaks of its own player only.
        if lower.starts_with("player:") {
            self.reject(format!("`{}` in `{key}` is not for a block to name", clip(&name, 64)));
            return None;
        }
        let known = &self.rules.known_names;
        if known.is_empty() || name == self.speaker {
            return Some(name);
        }
        let found = known.iter().find(|known| normalise(known) == lower).cloned();
        if found.is_none() {
            self.reject(format!("`{}` in `{key}` is nobody known here", clip(&name, 64)));
        }
        found
    }

    fn bounded(&mut self, key: &str, wanted: i32, most: i32) -> i32 {
        let most = most.max(0);
        let bounded = wanted.clamp(-most, most);
        if bounded != wanted {
            self.reject(format!("`{key}` of {wanted} was cut to {bounded}"));
        }
        bounded
    }

    fn reject(&mut self, why: String) {
        if self.out.rejected.len() < 32 {
            self.out.rejected.push(why);
        }
    }
}

fn field(map: &[(String, Value)], names: &[&str]) -> Option<String> {
    map.iter()
        .find(|(key, _)| names.contains(&key.as_str()))
        .and_then(|(_, value)| match value {
            Value::Text(text) => Some(text.clone()),
            Value::List(_) | Value::Map(_) => None,
        })
}

/// One line, without control characters and without any that nobody sees.
fn clean(text: &str) -> String {
    let seen: String = text.chars().filter(|c| !is_ignorable(*c)).collect();
    seen.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn clip(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// How models write that there is nothing to say.
fn is_nothing(text: &str) -> bool {
    matches!(
        text.trim().to_lowercase().as_str(),
        "" | "none" | "null" | "n/a" | "nothing" | "-" | "~" | "없음" | "없다" | "unchanged" | "변화 없음"
    )
}

fn flag(value: &Value) -> Option<bool> {
    let Value::Text(text) = value else { return None };
    match text.trim().to_lowercase().as_str() {
        "true" | "yes" | "1" | "예" | "네" => Some(true),
        "false" | "no" | "0" | "아니오" | "아니요" => Some(false),
        text if is_nothing(text) => Some(false),
        _ => None,
    }
}

/// `-15`, `+3`, `−2`, `-15 HP`, `2.6` (rounded). Nothing else before the number.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i32 first")]
fn whole_number(text: &str) -> Option<i32> {
    let text = text.trim().replace('−', "-");
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.')))
        .unwrap_or(text.len());
    let number: f64 = text[..end].trim_start_matches('+').parse().ok()?;
    number
        .is_finite()
        .then(|| number.round().clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32)
}

/// `potion x2`, `potion (2)`, `2 potions` stays a name, `물약 2개`.
fn counted(text: &str) -> (String, i32) {
    let text = text.trim();
    if let Some((name, last)) = text.rsplit_once(' ') {
        let bare = last.trim_matches(['(', ')']);
        let digits = bare
            .trim_start_matches(['x', 'X', '×'])
            .trim_end_matches(['개', '병', '장', '자', '루']);
        let marked = digits.len() < last.len();
        if marked && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) {
            return (name.trim().to_owned(), digits.parse().unwrap_or(i32::MAX));
        }
    }
    (text.to_owned(), 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
