//! A studio's own values in the state of a world: rules of a world's author, and the values that they allow.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{keywords::normalise_text, party};

/// Most attributes of one world, and most values of a text attribute.
pub const MAX_ATTRIBUTES: usize = 40;
pub const MAX_ATTRIBUTE_VALUES: usize = 40;
/// The largest absolute number of an attribute: numbers up to this value are exact in JSON.
pub const MAX_ATTRIBUTE_NUMBER: f64 = 1e12;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AttributeValue {
    Flag(bool),
    Number(f64),
    Text(String),
}

impl AttributeValue {
    /// `None`: a flag or a text.
    pub(crate) const fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Flag(_) | Self::Text(_) => None,
        }
    }
}

/// The sort of values of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum AttributeType {
    Number,
    /// One of the listed `values`.
    Text,
    Flag,
}

/// Who has a value of an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum AttributeOwner {
    /// Every player and every NPC.
    #[default]
    Characters,
    Players,
    Npcs,
    /// The world as a whole.
    World,
}

/// Whose prompts show an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttributeAudience {
    /// Every NPC that is near the character.
    #[default]
    All,
    /// The NPC whose value it is. Values of players are in no prompt.
    Owner,
    /// Only `GET …/state`.
    Backend,
}

/// Who may change an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttributeAuthor {
    /// State blocks of replies, and the backend.
    #[default]
    Replies,
    /// The backend alone.
    Backend,
}

/// One attribute of a world, as its author defines it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeRule {
    /// The name in prompts and events: 1 to 32 characters, one line.
    #[schema(min_length = 1, max_length = 32)]
    pub name: String,
    #[serde(rename = "type")]
    #[schema(inline)]
    pub value_type: AttributeType,
    /// The allowed texts, for the type `text`: 1 to 40 of 32 characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 40)]
    pub values: Vec<String>,
    /// The least number. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest number. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The largest change of the number in one turn. Default: no limit but `min` and `max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delta: Option<f64>,
    /// The value before the first change. Default: for numbers `min`; for the other types none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub initial: Option<AttributeValue>,
    /// Who has the attribute. Default `characters`.
    #[serde(rename = "of", default)]
    pub owner: AttributeOwner,
    /// Who sees it. Default `all`.
    #[serde(default)]
    pub seen_by: AttributeAudience,
    /// Who changes it. Default `replies`.
    #[serde(default)]
    pub changed_by: AttributeAuthor,
}

/// Why a value does not fit a rule, in words that begin after the attribute's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error("takes {0}")]
    WrongType(&'static str),
    #[error("must be one of {0}")]
    UnlistedText(String),
    #[error("must be {0} to {1}")]
    OutOfBounds(String, String),
}

impl AttributeRule {
    /// The least and the greatest number.
    #[must_use]
    pub fn bounds(&self) -> (f64, f64) {
        (self.min.unwrap_or(0.0), self.max.unwrap_or(100.0))
    }

    /// The number before the first change.
    #[must_use]
    pub fn initial_number(&self) -> f64 {
        match self.initial {
            Some(AttributeValue::Number(number)) => number,
            _ => self.bounds().0,
        }
    }

    /// The value before the first change, if there is one.
    #[must_use]
    pub fn initial_value(&self) -> Option<AttributeValue> {
        match self.value_type {
            AttributeType::Number => Some(AttributeValue::Number(self.initial_number())),
            AttributeType::Text | AttributeType::Flag => self.initial.clone(),
        }
    }

    /// True if `owner` has this attribute: a character's name in the state, or `None` for the world.
    #[must_use]
    pub fn is_owned_by(&self, owner: Option<&str>) -> bool {
        match (self.owner, owner) {
            (AttributeOwner::World, owner) => owner.is_none(),
            (_, None) => false,
            (AttributeOwner::Characters, Some(_)) => true,
            (AttributeOwner::Players, Some(owner)) => party::is_player(owner),
            (AttributeOwner::Npcs, Some(owner)) => !party::is_player(owner),
        }
    }

    /// `value` in the spelling of the rule.
    ///
    /// # Errors
    /// The value has another type, is not listed, or is out of bounds.
    pub fn checked_value(&self, value: &AttributeValue) -> Result<AttributeValue, AttributeError> {
        match (self.value_type, value) {
            (AttributeType::Flag, AttributeValue::Flag(_)) => Ok(value.clone()),
            (AttributeType::Number, AttributeValue::Number(number)) => {
                let (min, max) = self.bounds();
                if (min..=max).contains(number) {
                    Ok(value.clone())
                } else {
                    Err(AttributeError::OutOfBounds(min.to_string(), max.to_string()))
                }
            }
            (AttributeType::Text, AttributeValue::Text(text)) => {
                let normalised = normalise_text(text.trim());
                let listed = self.values.iter().find(|value| normalise_text(value) == normalised);
                listed
                    .map(|value| AttributeValue::Text(value.clone()))
                    .ok_or_else(|| AttributeError::UnlistedText(self.values.join(", ")))
            }
            (AttributeType::Flag, _) => Err(AttributeError::WrongType("true or false")),
            (AttributeType::Number, _) => Err(AttributeError::WrongType("a number")),
            (AttributeType::Text, _) => Err(AttributeError::WrongType("a text")),
        }
    }
}

/// The rule for `name`, whose case does not matter.
#[must_use]
pub fn find_rule<'r>(rules: &'r [AttributeRule], name: &str) -> Option<&'r AttributeRule> {
    let normalised_name = normalise_text(name.trim());
    rules.iter().find(|rule| normalise_text(&rule.name) == normalised_name)
}

impl std::fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value_type: AttributeType, of: AttributeOwner) -> AttributeRule {
        AttributeRule {
            name: "Mana".to_owned(),
            value_type,
            values: vec!["Squire".to_owned(), "기사".to_owned()],
            min: None,
            max: Some(50.0),
            max_delta: None,
            initial: None,
            owner: of,
            seen_by: AttributeAudience::All,
            changed_by: AttributeAuthor::Replies,
        }
    }

    #[test]
    fn attribute_value_has_the_type_the_list_and_the_bounds_of_its_rule() {
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let number = AttributeValue::Number;
        for (value_type, value, expected) in [
            (AttributeType::Number, number(50.0), Ok(number(50.0))),
            (
                AttributeType::Number,
                number(50.5),
                Err(AttributeError::OutOfBounds("0".to_owned(), "50".to_owned())),
            ),
            (
                AttributeType::Number,
                text("50"),
                Err(AttributeError::WrongType("a number")),
            ),
            (AttributeType::Text, text(" squire "), Ok(text("Squire"))),
            (
                AttributeType::Text,
                text("king"),
                Err(AttributeError::UnlistedText("Squire, 기사".to_owned())),
            ),
            (
                AttributeType::Text,
                number(1.0),
                Err(AttributeError::WrongType("a text")),
            ),
            (
                AttributeType::Flag,
                AttributeValue::Flag(true),
                Ok(AttributeValue::Flag(true)),
            ),
            (
                AttributeType::Flag,
                number(1.0),
                Err(AttributeError::WrongType("true or false")),
            ),
        ] {
            assert_eq!(
                rule(value_type, AttributeOwner::Characters).checked_value(&value),
                expected
            );
        }
        let numbers = rule(AttributeType::Number, AttributeOwner::World);
        assert_eq!(numbers.initial_value(), Some(number(0.0)));
        assert!(
            rule(AttributeType::Number, AttributeOwner::World)
                .checked_value(&number(f64::NAN))
                .is_err()
        );
    }

    #[test]
    fn attribute_is_owned_by_its_sort_of_character() {
        for (of, player, npc, world) in [
            (AttributeOwner::Characters, true, true, false),
            (AttributeOwner::Players, true, false, false),
            (AttributeOwner::Npcs, false, true, false),
            (AttributeOwner::World, false, false, true),
        ] {
            let rule = rule(AttributeType::Flag, of);
            let owned = [Some("player:p7"), Some("Mira"), None].map(|who| rule.is_owned_by(who));
            assert_eq!(owned, [player, npc, world], "{of:?}");
        }
        let rules = [rule(AttributeType::Flag, AttributeOwner::World)];
        assert!(find_rule(&rules, " MANA").is_some() && find_rule(&rules, "man").is_none());
    }
}
