//! Events of the game that a backend reports: the authority for the state of a world.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    attributes::{self, AttributeType, AttributeValue},
    authored::WorldSettings,
    calendar::{SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE},
    clock_settings::ClockSettings,
    game_clock::MAX_DAYS_PASSED,
    keywords::normalise_text,
    party,
    state::{MAX_HELD, MAX_HP, StateChange},
    state_block::MAX_NAME_CHARS,
    text::{check_label, check_name},
    vocabulary::Vocabulary,
};
use colloquy_core::ids::PlayerId;

/// Most events of one request.
pub const MAX_EVENTS: usize = 200;
/// Longest sentence of an event or a note, in Unicode scalar values.
pub const MAX_SENTENCE_CHARS: usize = 200;

/// What a backend reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WorldEventType {
    /// `who` is now at the place `to`.
    Location,
    /// The hit points of `who` are `value`, or change by `change`.
    Hp,
    /// The status of `who` is now `to`.
    Status,
    /// The mood of `who` is now `to`.
    Mood,
    /// `who` gets `count` (default 1) of `item`.
    ItemGained,
    /// `who` loses `count` (default 1) of `item`.
    ItemLost,
    /// `who` has `count` of `item`.
    ItemCount,
    /// `whom` is with `who`.
    Met,
    /// `whom` is no longer with `who`.
    Separated,
    /// The relationship `kind` of `who` to `whom` has the strength `value`, or changes by `change`.
    Relationship,
    /// The `attribute` of `who` (not set: of the world) is `value`, or changes by `change`.
    Attribute,
    /// Something happened: one sentence in `text`.
    Event,
    /// Something worth noting: one sentence in `text`.
    Note,
    /// The clock of the world shows `to`, a date or a date and a time.
    TimeSet,
    /// `days`, `hours` and `minutes` of the game pass.
    TimePassed,
}

/// One event of the game. `type` says which other fields are needed; further fields are refused.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldEvent {
    #[serde(rename = "type")]
    #[schema(inline)]
    pub event_type: WorldEventType,
    /// Name or id of an NPC, `player:` with the id of a player, or another name.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    pub who: Option<String>,
    /// As `who`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    pub whom: Option<String>,
    /// A place, a status or a mood; or a moment of the game in the numbers of its calendar, such as `1024-03-05 14:30`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    pub to: Option<String>,
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    pub item: Option<String>,
    /// 0 to 9,999.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 9_999)]
    pub count: Option<u32>,
    /// A kind of relationship of the world.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    pub kind: Option<String>,
    /// An attribute of the world, as in `settings.state`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    pub attribute: Option<String>,
    /// The new value: hit points 0 to 100, a strength -100 to 100, or an attribute's value.
    #[serde(default)]
    #[schema(inline)]
    pub value: Option<AttributeValue>,
    /// A change of the number.
    #[serde(default)]
    pub change: Option<f64>,
    /// One sentence of at most 200 characters.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    pub text: Option<String>,
    /// 0 to 10,000 days of the game.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000)]
    pub days: Option<u32>,
    /// Hours of the game.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 240_000)]
    pub hours: Option<u32>,
    /// Minutes of the game.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 14_400_000)]
    pub minutes: Option<u32>,
}

/// A fault of one field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFault {
    pub field: &'static str,
    pub reason: String,
}

/// What an event may name.
#[derive(Debug)]
pub struct EventRules<'w> {
    pub settings: &'w WorldSettings,
    pub vocabulary: Vocabulary,
    /// The name in the state of every NPC, by its normalised name or id.
    pub npc_names: BTreeMap<String, String>,
}

impl WorldEvent {
    /// The names in `who` and `whom` that are no player.
    pub fn named_people(&self) -> impl Iterator<Item = &str> {
        let names = [&self.who, &self.whom].into_iter().flatten();
        names
            .map(|name| name.trim())
            .filter(|name| party::owner_id(name).is_none())
    }

    /// The event as a change of state.
    ///
    /// # Errors
    /// Every fault of the event.
    pub fn to_change(&self, rules: &EventRules<'_>) -> Result<StateChange, Vec<EventFault>> {
        let mut reader = EventReader {
            event: self,
            rules,
            used: Vec::new(),
            faults: Vec::new(),
        };
        let change = reader.read_change();
        reader.refuse_unused_fields();
        match change {
            Some(change) if reader.faults.is_empty() => Ok(change),
            _ => Err(reader.faults),
        }
    }
}

struct EventReader<'e> {
    event: &'e WorldEvent,
    rules: &'e EventRules<'e>,
    /// The fields that the type needs.
    used: Vec<&'static str>,
    faults: Vec<EventFault>,
}

/// A new number, or a change of a number.
enum NumberChange {
    To(f64),
    By(f64),
}

impl EventReader<'_> {
    fn read_change(&mut self) -> Option<StateChange> {
        let event = self.event;
        Some(match event.event_type {
            WorldEventType::Location => {
                let who = self.person("who");
                let to = self.listed("to", self.rules.settings.places.as_deref());
                StateChange::Location { who: who?, to: to? }
            }
            WorldEventType::Hp => self.hit_points()?,
            WorldEventType::Status => {
                let who = self.person("who");
                let status = self.word(Vocabulary::status_named);
                StateChange::Status {
                    who: who?,
                    status: status?,
                }
            }
            WorldEventType::Mood => {
                let who = self.person("who");
                let mood = self.word(Vocabulary::mood_named);
                StateChange::Mood { who: who?, mood: mood? }
            }
            WorldEventType::ItemGained | WorldEventType::ItemLost => self.moved_item()?,
            WorldEventType::ItemCount => {
                let who = self.person("who");
                let item = self.item();
                let to = self.count(0, None);
                StateChange::ItemCount {
                    who: who?,
                    item: item?,
                    to: to?,
                }
            }
            WorldEventType::Met | WorldEventType::Separated => {
                let (who, whom) = self.pair();
                let who = who?;
                let whom = whom?;
                if event.event_type == WorldEventType::Met {
                    StateChange::Met { who, whom }
                } else {
                    StateChange::Separated { who, whom }
                }
            }
            WorldEventType::Relationship => self.relationship()?,
            WorldEventType::Attribute => self.attribute()?,
            WorldEventType::Event => StateChange::Happened { text: self.sentence()? },
            WorldEventType::Note => StateChange::Note { text: self.sentence()? },
            WorldEventType::TimeSet => self.time_set()?,
            WorldEventType::TimePassed => self.time_passed()?,
        })
    }

    fn add_fault(&mut self, field: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        self.faults.push(EventFault { field, reason });
    }

    /// The text of a field that the type needs.
    fn text(&mut self, field: &'static str) -> Option<String> {
        let event = self.event;
        self.used.push(field);
        let text = match field {
            "who" => &event.who,
            "whom" => &event.whom,
            "to" => &event.to,
            "item" => &event.item,
            "kind" => &event.kind,
            "attribute" => &event.attribute,
            _ => &event.text,
        };
        if text.is_none() {
            let kind: &str = event.event_type.into();
            self.add_fault(field, format!("is missing; an event of the type `{kind}` needs it"));
        }
        text.clone()
    }

    fn name(&mut self, field: &'static str) -> Option<String> {
        let text = self.text(field)?;
        let name = text.trim();
        if let Err(fault) = check_name(name) {
            self.add_fault(field, fault.to_string());
            return None;
        }
        if name.chars().count() > MAX_NAME_CHARS {
            self.add_fault(field, format!("is longer than {MAX_NAME_CHARS} characters"));
            return None;
        }
        Some(name.to_owned())
    }

    fn hit_points(&mut self) -> Option<StateChange> {
        let who = self.person("who");
        let number = self.number(0.0, f64::from(MAX_HP));
        Some(match (who?, number?) {
            (who, NumberChange::To(to)) => StateChange::Hp { who, to: whole(to) },
            (who, NumberChange::By(delta)) => StateChange::HpDelta {
                who,
                delta: whole(delta),
            },
        })
    }

    /// A gained or a lost item.
    fn moved_item(&mut self) -> Option<StateChange> {
        let who = self.person("who");
        let item = self.item();
        let count = self.count(1, Some(1));
        let who = who?;
        let item = item?;
        let count = count?;
        Some(if self.event.event_type == WorldEventType::ItemGained {
            StateChange::ItemGained { who, item, count }
        } else {
            StateChange::ItemLost { who, item, count }
        })
    }

    fn relationship(&mut self) -> Option<StateChange> {
        let (from, to) = self.pair();
        let kind = self.kind();
        let number = self.number(-100.0, 100.0);
        let from = from?;
        let to = to?;
        let kind = kind?;
        Some(match number? {
            NumberChange::To(strength) => StateChange::RelationshipStrength {
                from,
                to,
                kind,
                strength: whole(strength),
            },
            NumberChange::By(delta) => StateChange::Relationship {
                from,
                to,
                kind,
                delta: whole(delta),
            },
        })
    }

    /// A character's name in the state.
    fn person(&mut self, field: &'static str) -> Option<String> {
        let player = match field {
            "whom" => self.event.whom.as_deref(),
            _ => self.event.who.as_deref(),
        };
        if let Some(id) = player.and_then(|name| name.trim().strip_prefix("player:")) {
            self.used.push(field);
            return match id.parse::<PlayerId>() {
                Ok(id) => Some(party::player_key(&id)),
                Err(error) => {
                    self.add_fault(field, error.to_string());
                    None
                }
            };
        }
        let name = self.name(field)?;
        let is_key = name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("player:"));
        if is_key || party::means_player(&name) {
            self.add_fault(field, "must name the player: `player:` and the id");
            return None;
        }
        let npc_name = self.rules.npc_names.get(&normalise_text(&name));
        Some(npc_name.cloned().unwrap_or(name))
    }

    fn pair(&mut self) -> (Option<String>, Option<String>) {
        let who = self.person("who");
        let whom = self.person("whom");
        if who.is_some() && who == whom {
            self.add_fault("whom", "must be somebody else than `who`");
        }
        (who, whom)
    }

    fn listed(&mut self, field: &'static str, list: Option<&[String]>) -> Option<String> {
        let name = self.name(field)?;
        let Some(list) = list else { return Some(name) };
        let normalised = normalise_text(&name);
        let listed_name = list.iter().find(|listed| normalise_text(listed) == normalised).cloned();
        if listed_name.is_none() {
            self.add_fault(field, "is not listed in the settings of this world");
        }
        listed_name
    }

    fn item(&mut self) -> Option<String> {
        self.listed("item", self.rules.settings.items.as_deref())
    }

    fn count(&mut self, min: u32, default: Option<u32>) -> Option<u32> {
        self.used.push("count");
        let count = self.event.count.or(default);
        match count {
            None => self.add_fault("count", "is missing; an event of the type `item_count` needs it"),
            Some(count) if !(min..=MAX_HELD).contains(&count) => {
                self.add_fault("count", format!("must be {min} to {MAX_HELD}"));
                return None;
            }
            Some(_) => {}
        }
        count
    }

    fn word(&mut self, find: impl for<'v> Fn(&'v Vocabulary, &str) -> Option<&'v str>) -> Option<String> {
        let text = self.text("to")?;
        let word = find(&self.rules.vocabulary, &text).map(str::to_owned);
        if word.is_none() {
            let kind: &str = self.event.event_type.into();
            self.add_fault("to", format!("is no {kind} of this world"));
        }
        word
    }

    fn kind(&mut self) -> Option<String> {
        let text = self.text("kind")?;
        let known_kind = self.rules.vocabulary.kind_named(&text).map(str::to_owned);
        if known_kind.is_none() {
            self.add_fault("kind", "is no kind of relationship of this world");
        }
        known_kind
    }

    fn sentence(&mut self) -> Option<String> {
        let text = self.text("text")?;
        if let Err(fault) = check_label(&text) {
            self.add_fault("text", fault.to_string());
            return None;
        }
        if text.chars().count() > MAX_SENTENCE_CHARS {
            self.add_fault("text", format!("is longer than {MAX_SENTENCE_CHARS} characters"));
            return None;
        }
        Some(text)
    }

    /// `value` or `change`, one of them.
    fn number(&mut self, min: f64, max: f64) -> Option<NumberChange> {
        self.used.extend(["value", "change"]);
        let range = max - min;
        match (&self.event.value, self.event.change) {
            (Some(AttributeValue::Number(to)), None) if (min..=max).contains(to) => Some(NumberChange::To(*to)),
            (Some(AttributeValue::Number(_)), None) => {
                self.add_fault("value", format!("must be {min} to {max}"));
                None
            }
            (Some(_), None) => {
                self.add_fault("value", "must be a number");
                None
            }
            (None, Some(change)) if change.abs() <= range => Some(NumberChange::By(change)),
            (None, Some(_)) => {
                self.add_fault("change", format!("must be -{range} to {range}"));
                None
            }
            (Some(_), Some(_)) => {
                self.add_fault("change", "must not be beside `value`");
                None
            }
            (None, None) => {
                self.add_fault("value", "is missing, and so is `change`");
                None
            }
        }
    }

    fn attribute(&mut self) -> Option<StateChange> {
        self.used.extend(["value", "change"]);
        let subject = self.event.who.is_some().then(|| self.person("who"));
        let raw_name = self.text("attribute")?;
        let who = match subject {
            Some(who) => Some(who?),
            None => None,
        };
        let Some(rule) = attributes::find_rule(self.rules.settings.attribute_rules(), &raw_name) else {
            self.add_fault("attribute", "is no attribute of this world");
            return None;
        };
        if !rule.is_owned_by(who.as_deref()) {
            self.add_fault("who", format!("has no attribute `{}`", rule.name));
            return None;
        }
        let name = rule.name.clone();
        if rule.value_type == AttributeType::Number {
            let (min, max) = rule.bounds();
            let start = rule.initial_number();
            return Some(match self.number(min, max)? {
                NumberChange::To(to) => StateChange::Attribute {
                    who,
                    name,
                    to: AttributeValue::Number(to),
                },
                NumberChange::By(delta) => StateChange::AttributeDelta {
                    who,
                    name,
                    delta,
                    start,
                    min,
                    max,
                },
            });
        }
        if self.event.change.is_some() {
            self.add_fault("change", "is for numbers");
        }
        let Some(value) = &self.event.value else {
            self.add_fault("value", "is missing");
            return None;
        };
        match rule.checked_value(value) {
            Ok(to) => Some(StateChange::Attribute { who, name, to }),
            Err(error) => {
                self.add_fault("value", error.to_string());
                None
            }
        }
    }

    /// The clock of the world; a fault of the type, if the world has none.
    fn clock(&mut self) -> Option<&ClockSettings> {
        let rules = self.rules;
        if rules.settings.clock.is_none() {
            self.add_fault("type", "is for worlds with a clock; this world has no `settings.clock`");
        }
        rules.settings.clock.as_ref()
    }

    fn time_set(&mut self) -> Option<StateChange> {
        let text = self.text("to");
        let clock = self.clock()?.clone();
        match clock.parse_time(&text?) {
            Ok(to) => Some(StateChange::Time { to, ratio: clock.ratio }),
            Err(error) => {
                self.add_fault("to", error.to_string());
                None
            }
        }
    }

    fn time_passed(&mut self) -> Option<StateChange> {
        self.used.extend(["days", "hours", "minutes"]);
        let seconds_of = |count: Option<u32>, length: i64| i64::from(count.unwrap_or(0)).saturating_mul(length);
        let event = self.event;
        let seconds = seconds_of(event.days, SECONDS_PER_DAY)
            .saturating_add(seconds_of(event.hours, SECONDS_PER_HOUR))
            .saturating_add(seconds_of(event.minutes, SECONDS_PER_MINUTE));
        let (start, ratio) = self.clock().map(|clock| (clock.start_time(), clock.ratio))?;
        if !(SECONDS_PER_MINUTE..=MAX_DAYS_PASSED * SECONDS_PER_DAY).contains(&seconds) {
            let rule = format!("must be, with `days` and `hours`, 1 minute to {MAX_DAYS_PASSED} days");
            self.add_fault("minutes", rule);
            return None;
        }
        Some(StateChange::TimePassed { seconds, start, ratio })
    }

    /// A field without a meaning for the type is a mistake of the sender.
    fn refuse_unused_fields(&mut self) {
        let event = self.event;
        let fields = [
            ("who", event.who.is_some()),
            ("whom", event.whom.is_some()),
            ("to", event.to.is_some()),
            ("item", event.item.is_some()),
            ("count", event.count.is_some()),
            ("kind", event.kind.is_some()),
            ("attribute", event.attribute.is_some()),
            ("value", event.value.is_some()),
            ("change", event.change.is_some()),
            ("text", event.text.is_some()),
            ("days", event.days.is_some()),
            ("hours", event.hours.is_some()),
            ("minutes", event.minutes.is_some()),
        ];
        let kind: &str = event.event_type.into();
        let used = std::mem::take(&mut self.used);
        for (field, _) in fields
            .into_iter()
            .filter(|(field, is_set)| *is_set && !used.contains(field))
        {
            self.add_fault(field, format!("has no meaning for an event of the type `{kind}`"));
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be within ±200 before")]
fn whole(number: f64) -> i32 {
    number.round() as i32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
