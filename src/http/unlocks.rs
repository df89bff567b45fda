//! What raises a player's progress, as the author of a world writes it.

use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::display_name;
use crate::{
    ids::NpcId,
    memory::{
        progress::{Progress, UnlockRule, UnlockWhen},
        state_block::MAX_NAME_CHARS,
    },
};

/// Raises a player's progress with an NPC, once something has happened to the player, as the state of the world
/// says, and for as long as it stands.
#[derive(Debug, Deserialize, Serialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct UnlockBody {
    #[schema(value_type = String)]
    npc: NpcId,
    /// What it is raised to.
    #[garde(range(min = 1, max = 1_000_000))]
    #[schema(minimum = 1, maximum = 1_000_000)]
    progress: u32,
    #[garde(dive, custom(one_condition))]
    #[schema(inline)]
    when: WhenBody,
}

/// One of `item`, `location`, `met`, or `relationship` with `at_least`. Names are compared without their case, as the
/// state of the world has them.
#[derive(Debug, Default, Deserialize, Serialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct WhenBody {
    /// The player came by it.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    item: Option<String>,
    /// The player was there.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    location: Option<String>,
    /// The player met somebody, or was met. A state block that names an NPC by its id does not meet the NPC's display name.
    #[garde(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))]
    #[schema(min_length = 1, max_length = 64)]
    met: Option<String>,
    /// What the NPC feels towards the player was as strong as `at_least`. It goes by the name of the NPC, or its id: two
    /// NPCs of one name share what they feel, and one that is renamed begins anew.
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
            // That both are there was checked.
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
