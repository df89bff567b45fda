//! Reads a state block and turns it into bounded state changes.

mod relationships;

use std::collections::HashMap;

use super::{
    MAX_BLOCK_BYTES, actions,
    flow::{self, BlockValue},
    rules::{ParsedStateBlock, StateBlockError, StateRules},
    values::{clean_line, clip_chars, exact_number, field_text, is_nothing, parse_counted, parse_flag, whole_number},
};
use crate::{
    actions::MAX_ACTIONS_PER_TURN,
    attributes::{self, AttributeAuthor, AttributeType, AttributeValue},
    keywords::normalise_text,
    state::StateChange,
    vocabulary::Vocabulary,
};

/// The player's name in state changes.
const PLAYER: &str = "player";

/// Reads a closed block. `speaker_npc` names the NPC that spoke. `mood` belongs to this NPC. Place, hit points, items
/// and meetings belong to the player, or to the speaker without a player.
///
/// # Errors
/// The block is too long, or completely unreadable. Single bad entries are in [`ParsedStateBlock::rejected`] instead.
/// An empty block is valid and changes no state.
pub fn parse_closed(block: &str, speaker_npc: &str, rules: &StateRules) -> Result<ParsedStateBlock, StateBlockError> {
    if block.len() > MAX_BLOCK_BYTES {
        return Err(StateBlockError::TooLong { max: MAX_BLOCK_BYTES });
    }
    if block.trim().is_empty() || block.trim() == "{}" {
        return Ok(ParsedStateBlock::default());
    }
    let entries = flow::parse_entries(block);
    if entries.is_empty() {
        return Err(StateBlockError::NotABlock);
    }
    let stayed = entries
        .iter()
        .any(|(key, value)| key == "location_moved" && parse_flag(value) == Some(false));
    let mut reader = StateBlockReader {
        block,
        speaker: speaker_npc,
        rules,
        out: ParsedStateBlock::default(),
        counts: HashMap::new(),
        hit_points: HashMap::new(),
        attributes: HashMap::new(),
    };
    let mut known_keys = 0;
    for (key, value) in &entries {
        known_keys += usize::from(reader.read_entry(key, value, stayed));
    }
    if known_keys == 0 {
        Err(StateBlockError::NoKnownKey)
    } else {
        Ok(reader.out)
    }
}

struct StateBlockReader<'a> {
    block: &'a str,
    speaker: &'a str,
    rules: &'a StateRules,
    out: ParsedStateBlock,
    /// The counts of each character's items, gained and lost, so far.
    counts: HashMap<(String, String, bool), u32>,
    /// The changes of each character's hit points so far.
    hit_points: HashMap<String, i32>,
    /// The changes of each number of a character or the world so far.
    attributes: HashMap<(Option<String>, String), f64>,
}

impl StateBlockReader<'_> {
    /// The owner of the place, hit points, items and meetings in a block.
    fn subject_name(&self) -> String {
        if self.rules.without_player {
            self.speaker.to_owned()
        } else {
            PLAYER.to_owned()
        }
    }

    fn is_dead(&self, name: &str) -> bool {
        self.rules.dead.iter().any(|dead_name| dead_name == name)
    }

    /// True if the character is dead, and the dead do not act.
    fn is_out_of_play(&self, name: &str) -> bool {
        !self.rules.ghosts_act && self.is_dead(name)
    }

    /// Reads one entry; `false`: the key does not belong to a state block.
    fn read_entry(&mut self, key: &str, value: &BlockValue, stayed: bool) -> bool {
        match key {
            "location" if stayed => {}
            // The key is a flag, but some models write the place here.
            "location_moved" if parse_flag(value).is_some() => {}
            "location" | "location_moved" | "hp_change" | "items_gained" | "items_lost" => {
                let character = self.subject_name();
                if self.is_out_of_play(&character) {
                    self.add_rejection(format!("`{key}` is of a dead character"));
                } else {
                    self.read_character_value(&character, key, value);
                }
            }
            "changes" | "change" => self.read_characters(value),
            "npc_met" => self.read_people(key, value, |who, whom| StateChange::Met { who, whom }),
            "npc_separated" => self.read_people(key, value, |who, whom| StateChange::Separated { who, whom }),
            "relationship_changes" | "relationship_change" => self.read_relationships(value),
            "mood" => {
                let character = self.speaker.to_owned();
                self.read_mood(&character, key, value);
            }
            "actions" | "action" => {
                let (actions, rejected) = actions::read_actions(self.block, key, value, &self.rules.actions);
                let room = MAX_ACTIONS_PER_TURN.saturating_sub(self.out.actions.len());
                self.out.actions.extend(actions.into_iter().take(room));
                for reason in rejected {
                    self.add_rejection(reason);
                }
            }
            "events" | "event" => self.read_sentences(key, value, |text| StateChange::Happened { text }),
            "notes" | "note" => self.read_sentences(key, value, |text| StateChange::Note { text }),
            "nothing_new" => self.read_nothing_new(key, value),
            other => {
                self.add_rejection(format!("`{}` is not a key of a state block", clip_chars(other, 40)));
                return false;
            }
        }
        true
    }

    /// Only the plain word counts: a doubtful value must not keep a turn out of memory.
    fn read_nothing_new(&mut self, key: &str, value: &BlockValue) {
        let is_true = matches!(value, BlockValue::Text(text) if text.trim().eq_ignore_ascii_case("true"));
        self.out.nothing_new = is_true;
        if !is_true && parse_flag(value) != Some(false) {
            self.add_rejection(format!("`{key}` must be true or left out"));
        }
    }

    fn single_text<'v>(&mut self, key: &str, value: &'v BlockValue) -> Option<&'v str> {
        match value {
            BlockValue::Text(text) => return Some(text),
            BlockValue::List(items) => match &items[..] {
                [BlockValue::Text(text)] => return Some(text),
                [] => return Some(""),
                _ => {}
            },
            BlockValue::Map(_) => {}
        }
        self.add_rejection(format!("`{key}` must be one text"));
        None
    }

    /// Reads an entry of `changes` for each character who is here, or for the world.
    fn read_characters(&mut self, value: &BlockValue) {
        const KEY: &str = "changes";
        for entry in self.list_items(KEY, value) {
            let BlockValue::Map(map) = entry else {
                if !matches!(&entry, BlockValue::Text(text) if is_nothing(text)) {
                    self.add_rejection(format!("an entry of `{KEY}` must have who, and what changed"));
                }
                continue;
            };
            let raw_name = field_text(&map, &["who", "name", "npc", "이름"]).unwrap_or_default();
            if matches!(normalise_text(&raw_name).as_str(), "world" | "the world" | "세계") {
                for (key, value) in map.iter().filter(|(key, _)| key == "attributes") {
                    self.read_attributes(None, key, value);
                }
                continue;
            }
            let present = self.rules.present.get(&normalise_text(&clean_line(&raw_name))).cloned();
            let Some(who) = present.or_else(|| self.checked_person(KEY, &raw_name)) else {
                continue;
            };
            let is_here = |name: &String| *name == who;
            if who != PLAYER && who != self.speaker && !self.rules.present.values().any(is_here) {
                self.add_rejection(format!("`{}` in `{KEY}` is not here", clip_chars(&who, 64)));
                continue;
            }
            if self.is_out_of_play(&who) {
                self.add_rejection(format!("`{}` in `{KEY}` is dead", clip_chars(&who, 64)));
                continue;
            }
            for (key, value) in &map {
                if !matches!(key.as_str(), "who" | "name" | "npc" | "이름") {
                    self.read_character_value(&who, key, value);
                }
            }
        }
    }

    /// Reads one value of a character.
    fn read_character_value(&mut self, character: &str, key: &str, value: &BlockValue) {
        match key {
            "location" | "location_moved" => self.read_location(character, key, value),
            "hp_change" => self.read_hp(character, value),
            "items_gained" => self.read_items(character, key, value, true),
            "items_lost" => self.read_items(character, key, value, false),
            "status" => self.read_status(character, key, value),
            "mood" if character != PLAYER => self.read_mood(character, key, value),
            "attributes" => self.read_attributes(Some(character), key, value),
            other => self.add_rejection(format!("`{}` is not a key of `changes`", clip_chars(other, 40))),
        }
    }

    fn read_location(&mut self, character: &str, key: &str, value: &BlockValue) {
        let text = self.single_text(key, value);
        let checked = text.and_then(|text| self.checked_name(key, text));
        let Some(to) = checked.and_then(|name| self.listed_name(key, name, self.rules.places.as_deref())) else {
            return;
        };
        if self.rules.backend_names.has_place(&to) || self.rules.immovable.contains(character) {
            let to = clip_chars(&to, 64);
            return self.add_rejection(format!("only the backend brings `{character}` to `{to}`"));
        }
        let is_place = |place: &String| normalise_text(place) == normalise_text(&to);
        if self
            .rules
            .reachable
            .get(character)
            .is_some_and(|places| !places.iter().any(is_place))
        {
            let to = clip_chars(&to, 64);
            return self.add_rejection(format!("`{character}` cannot get from its place to `{to}` in one turn"));
        }
        let character = character.to_owned();
        self.out.changes.push(StateChange::Location { who: character, to });
    }

    fn read_status(&mut self, character: &str, key: &str, value: &BlockValue) {
        if self.is_dead(character) {
            return self.add_rejection(format!(
                "`{}` is dead, and keeps that `{key}`",
                clip_chars(character, 64)
            ));
        }
        if let Some(status) = self.listed_word(key, value, Vocabulary::status_named) {
            let character = character.to_owned();
            self.out.changes.push(StateChange::Status { who: character, status });
        }
    }

    /// A word of the world's vocabulary. All other words are ignored: free words would show all players the private
    /// words of one player.
    fn listed_word(
        &mut self,
        key: &str,
        value: &BlockValue,
        find: impl for<'v> Fn(&'v Vocabulary, &str) -> Option<&'v str>,
    ) -> Option<String> {
        let text = self.single_text(key, value).map(clean_line);
        let text = text.filter(|text| !is_nothing(text))?;
        let word = find(&self.rules.vocabulary, &text).map(str::to_owned);
        if word.is_none() {
            self.add_rejection(format!("`{key}` names no {key} of this world"));
        }
        word
    }

    /// Reads attributes: numbers change the value, texts and flags replace it.
    fn read_attributes(&mut self, character: Option<&str>, key: &str, value: &BlockValue) {
        let BlockValue::Map(map) = value else {
            return self.add_rejection(format!("`{key}` must be an object of names and values"));
        };
        let rules = self.rules;
        for (name, value) in map.iter().take(rules.max_list) {
            let rule = attributes::find_rule(&rules.attributes, name).filter(|rule| rule.is_owned_by(character));
            let (Some(rule), BlockValue::Text(text)) = (rule, value) else {
                self.add_rejection(format!("`{}` is no attribute for this", clip_chars(name, 40)));
                continue;
            };
            if rule.changed_by == AttributeAuthor::Backend {
                self.add_rejection(format!("the attribute `{}` is the backend's", rule.name));
                continue;
            }
            let character = character.map(str::to_owned);
            let name = rule.name.clone();
            let change = match rule.value_type {
                AttributeType::Number => exact_number(text).map(|delta| {
                    let (min, max) = rule.bounds();
                    let max_delta = rule.max_delta.unwrap_or(max - min).abs();
                    // The limit holds per attribute and turn, over all entries of a block.
                    let total = self.attributes.entry((character.clone(), name.clone())).or_default();
                    let before = *total;
                    *total = (before + delta).max(-max_delta).min(max_delta);
                    StateChange::AttributeDelta {
                        who: character,
                        name,
                        delta: *total - before,
                        start: rule.initial_number(),
                        min,
                        max,
                    }
                }),
                AttributeType::Text => {
                    let to = rule.checked_value(&AttributeValue::Text(clean_line(text))).ok();
                    to.map(|to| StateChange::Attribute {
                        who: character,
                        name,
                        to,
                    })
                }
                AttributeType::Flag => parse_flag(value).map(|flag| StateChange::Attribute {
                    who: character,
                    name,
                    to: AttributeValue::Flag(flag),
                }),
            };
            match change {
                Some(change) => self.out.changes.push(change),
                None => self.add_rejection(format!("the value of the attribute `{}` does not fit it", rule.name)),
            }
        }
    }

    fn read_mood(&mut self, character: &str, key: &str, value: &BlockValue) {
        if let Some(mood) = self.listed_word(key, value, Vocabulary::mood_named) {
            let character = character.to_owned();
            self.out.changes.push(StateChange::Mood { who: character, mood });
        }
    }

    /// `name` in the spelling of the world's list. Without a list any name is allowed.
    fn listed_name(&mut self, key: &str, name: String, list: Option<&[String]>) -> Option<String> {
        let Some(list) = list else { return Some(name) };
        let normalised = normalise_text(&name);
        let listed_name = list.iter().find(|listed| normalise_text(listed) == normalised).cloned();
        if listed_name.is_none() {
            let name = clip_chars(&name, 64);
            self.add_rejection(format!("`{name}` in `{key}` is not listed in this world"));
        }
        listed_name
    }

    fn read_hp(&mut self, character: &str, value: &BlockValue) {
        let BlockValue::Text(text) = value else {
            return self.add_rejection("`hp_change` must be a number".to_owned());
        };
        if is_nothing(text) {
            return;
        }
        let Some(delta) = whole_number(text) else {
            return self.add_rejection(format!("`hp_change` must be a number, not `{}`", clip_chars(text, 40)));
        };
        // The limit holds per character and turn, over all entries of a block.
        let before = self.hit_points.get(character).copied().unwrap_or_default();
        let after = self.clamp_and_report("hp_change", before.saturating_add(delta), self.rules.max_hp_delta);
        self.hit_points.insert(character.to_owned(), after);
        if after != before {
            let character = character.to_owned();
            let delta = after - before;
            self.out.changes.push(StateChange::HpDelta { who: character, delta });
        }
    }

    fn read_items(&mut self, character: &str, key: &str, value: &BlockValue, gained: bool) {
        for item in self.list_items(key, value) {
            let (name, count) = match &item {
                BlockValue::Text(text) => parse_counted(text),
                BlockValue::Map(map) => {
                    let count = field_text(map, &["count", "quantity", "qty", "amount", "수량"]);
                    (
                        field_text(map, &["item", "name", "이름"]).unwrap_or_default(),
                        count.and_then(|text| whole_number(&text)).unwrap_or(1),
                    )
                }
                BlockValue::List(_) => (String::new(), 0),
            };
            if is_nothing(&name) && matches!(item, BlockValue::Text(_)) {
                continue;
            }
            let Ok(count @ 1..=9_999) = u32::try_from(count) else {
                self.add_rejection(format!("a count in `{key}` must be 1 to 9999"));
                continue;
            };
            let checked = self.checked_name(key, &name);
            let listed = checked.and_then(|name| self.listed_name(key, name, self.rules.items.as_deref()));
            if let Some(item) = listed.as_deref().filter(|item| self.rules.backend_names.has_item(item)) {
                let item = clip_chars(item, 64);
                self.add_rejection(format!("`{item}` in `{key}` is the backend's"));
                continue;
            }
            if let Some(item) = listed
                && let Some(count) = self.cap_item_count(character, key, &item, gained, count)
            {
                let character = character.to_owned();
                self.out.changes.push(if gained {
                    StateChange::ItemGained {
                        who: character,
                        item,
                        count,
                    }
                } else {
                    StateChange::ItemLost {
                        who: character,
                        item,
                        count,
                    }
                });
            }
        }
    }

    /// The allowed part of `count`: one turn may give or take only so many of one item, over all entries of a block.
    fn cap_item_count(&mut self, character: &str, key: &str, item: &str, gained: bool, count: u32) -> Option<u32> {
        let counted_item = (character.to_owned(), normalise_text(item), gained);
        let counted = self.counts.entry(counted_item).or_default();
        let allowed = count.min(self.rules.max_item_delta.saturating_sub(*counted));
        *counted += allowed;
        if allowed < count {
            let item = clip_chars(item, 64);
            self.add_rejection(format!("{count} of `{item}` in `{key}` were cut to {allowed}"));
        }
        (allowed > 0).then_some(allowed)
    }

    fn read_people(&mut self, key: &str, value: &BlockValue, change: impl Fn(String, String) -> StateChange) {
        for person in self.list_items(key, value) {
            let name = match person {
                BlockValue::Text(text) => text,
                BlockValue::Map(map) => field_text(&map, &["name", "npc", "이름"]).unwrap_or_default(),
                BlockValue::List(_) => String::new(),
            };
            if is_nothing(&name) {
                continue;
            }
            let subject = self.subject_name();
            let Some(other) = self.checked_person(key, &name).filter(|other| *other != subject) else {
                continue;
            };
            if self.is_out_of_play(&other) {
                self.add_rejection(format!("`{}` in `{key}` is dead", clip_chars(&other, 64)));
            } else {
                self.out.changes.push(change(subject, other));
            }
        }
    }
    fn read_sentences(&mut self, key: &str, value: &BlockValue, change: impl Fn(String) -> StateChange) {
        for item in self.list_items(key, value) {
            let BlockValue::Text(text) = item else {
                self.add_rejection(format!("an entry of `{key}` must be a text"));
                continue;
            };
            if !is_nothing(&text) {
                self.out
                    .changes
                    .push(change(clip_chars(&clean_line(&text), self.rules.max_text_chars)));
            }
        }
    }

    /// The items of a list, or of a text with commas; at most `max_list`.
    fn list_items(&mut self, key: &str, value: &BlockValue) -> Vec<BlockValue> {
        let mut items = match value {
            BlockValue::List(items) => items.clone(),
            BlockValue::Map(_) => vec![value.clone()],
            // Sentences contain commas.
            BlockValue::Text(text) if matches!(key, "events" | "event" | "notes" | "note") => {
                vec![BlockValue::Text(text.clone())]
            }
            BlockValue::Text(text) => text
                .split([',', '，', '、'])
                .map(|item| BlockValue::Text(item.trim().to_owned()))
                .collect(),
        };
        let count = items.len();
        let max = self.rules.max_list;
        if count > max {
            self.add_rejection(format!("`{key}` has {count} entries, the first {max} count"));
            items.truncate(max);
        }
        items
    }

    fn checked_name(&mut self, key: &str, text: &str) -> Option<String> {
        let name = clean_line(text);
        if is_nothing(&name) {
            return None;
        }
        let max_chars = self.rules.max_name_chars;
        if name.chars().count() > max_chars {
            self.add_rejection(format!("a text in `{key}` is longer than {max_chars} characters"));
            return None;
        }
        Some(name)
    }

    fn checked_person(&mut self, key: &str, text: &str) -> Option<String> {
        let name = self.checked_name(key, text)?;
        let lower = normalise_text(&name);
        let is_player = matches!(
            lower.as_str(),
            "player" | "the player" | "user" | "the user" | "you" | "플레이어" | "당신" | "유저"
        ) || self
            .rules
            .player_names
            .iter()
            .any(|player_name| normalise_text(player_name) == lower);
        if is_player {
            if self.rules.without_player {
                self.add_rejection(format!("no player is there, whom `{key}` could mean"));
                return None;
            }
            return Some(PLAYER.to_owned());
        }
        if matches!(name.to_lowercase().as_str(), "self" | "me" | "npc" | "나" | "저") {
            return Some(self.speaker.to_owned());
        }
        // A world's state separates players by this prefix. A block may mention only its own player.
        if lower.starts_with("player:") {
            let name = clip_chars(&name, 64);
            self.add_rejection(format!("`{name}` in `{key}` is not for a block to name"));
            return None;
        }
        let known_names = &self.rules.known_names;
        if known_names.is_empty() || name == self.speaker {
            return Some(name);
        }
        let known_person = known_names.iter().find(|name| normalise_text(name) == lower).cloned();
        if known_person.is_none() {
            self.add_rejection(format!("`{}` in `{key}` is nobody known here", clip_chars(&name, 64)));
        }
        known_person
    }

    fn clamp_and_report(&mut self, key: &str, change: i32, max: i32) -> i32 {
        let max = max.max(0);
        let bounded = change.clamp(-max, max);
        if bounded != change {
            self.add_rejection(format!("`{key}` of {change} was cut to {bounded}"));
        }
        bounded
    }

    fn add_rejection(&mut self, reason: String) {
        if self.out.rejected.len() < 32 {
            self.out.rejected.push(reason);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
