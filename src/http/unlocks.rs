//! Rules that raise a player's progress, as a world's author writes them.

use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::display_name;
use colloquy_core::ids::NpcId;
use colloquy_memory::{
    progress::{Progress, UnlockRule, UnlockWhen},
    state_block::MAX_NAME_CHARS,
};

/// A rule that raises a player's progress with an NPC. The rule applies while the condition is part of the world's
/// state, and ends if a rewind takes the condition back.
#[derive(Debug, Clone, Deserialize, Serialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct UnlockBody {
    #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    npc: NpcId,
    /// The progress that the player gets.
    #[garde(range(min = 1, max = 1_000_000))]
    #[schema(minimum = 1, maximum = 1_000_000)]
    progress: u32,
    #[garde(dive, custom(one_condition))]
    #[schema(inline)]
    when: WhenBody,
}

/// The condition: one of `item`, `location`, `met`, or `relationship` with `at_least`. Names are compared without case,
/// in the form of the world's state.
#[derive(Debug, Clone, Default, Deserialize, Serialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct WhenBody {
    /// The player obtained this item.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    item: Option<String>,
    /// The player was at this location.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    location: Option<String>,
    /// The player met this person, or the person met the player. If a state block names an NPC by id, the NPC's display
    /// name does not match.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    met: Option<String>,
    /// The NPC's relationship with the player reached `at_least`. Stored under the NPC's name or id: two NPCs with the
    /// same name share relationships. A renamed NPC starts again.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    relationship: Option<String>,
    #[garde(range(min = 1, max = 100))]
    #[schema(minimum = 1, maximum = 100)]
    at_least: Option<i32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn one_condition(when: &WhenBody, (): &()) -> garde::Result {
    let conditions = [&when.item, &when.location, &when.met, &when.relationship];
    if conditions.into_iter().flatten().count() != 1 {
        return Err(garde::Error::new(
            "must name one of item, location, met and relationship, and no more",
        ));
    }
    if when.relationship.is_some() != when.at_least.is_some() {
        return Err(garde::Error::new("relationship and at_least go together"));
    }
    Ok(())
}

impl From<UnlockBody> for UnlockRule {
    fn from(body: UnlockBody) -> Self {
        let WhenBody {
            item,
            location,
            met,
            relationship,
            at_least,
        } = body.when;
        let when = match (item, location, met) {
            (Some(item), ..) => UnlockWhen::Item { item },
            (_, Some(location), _) => UnlockWhen::Location { location },
            (.., Some(met)) => UnlockWhen::Met { met },
            // Both fields were checked before.
            _ => UnlockWhen::Relationship {
                relationship: relationship.unwrap_or_default(),
                at_least: at_least.unwrap_or(100),
            },
        };
        Self {
            npc: body.npc,
            progress: Progress::new(body.progress).unwrap_or_default(),
            when,
        }
    }
}
