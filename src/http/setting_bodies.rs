//! Settings as an author writes them, with their rules.

use std::collections::BTreeMap;

use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    unlocks::UnlockBody,
    validate::{
        action_rules, attribute_rules, changed_names, clock_settings, display_name, one_line_label, place_links,
    },
};
use colloquy_memory::{
    all_settings,
    authored::{TierSettings, WorldSettings},
    state_block::MAX_NAME_CHARS,
    tiers::TierValue,
    vocabulary::{MAX_SYNONYMS, MAX_WORD_CHARS, MAX_WORDS},
};

/// Defines the bodies, with the rules for input.
macro_rules! define_bodies {
    (
        tiers { $($(#[$meta:meta])* $field:ident: $type:ty $({ $($rule:tt)* })?,)+ }
        worlds { $($(#[$world_meta:meta])* $world_field:ident: $world_type:ty $({ $($world_rule:tt)* })?,)+ }
        unlocks { $(#[$unlock_meta:meta])* { $($unlock_rule:tt)* } }
    ) => {
        /// Settings of a tenant, an NPC or a session. A lower tier overrides the tiers above.
        #[derive(Debug, Clone, Default, Deserialize, Validate, ToSchema)]
        #[garde(allow_unvalidated)]
        #[serde(default, deny_unknown_fields)]
        pub struct TierSettingsBody {
            $($(#[$meta])* $(#[garde($($rule)*)])? $field: Option<$type>,)+
        }

        /// Settings of a world. A lower tier overrides those that are not only for worlds.
        #[derive(Debug, Clone, Default, Deserialize, Validate, ToSchema)]
        #[garde(allow_unvalidated)]
        #[serde(default, deny_unknown_fields)]
        pub struct WorldSettingsBody {
            $($(#[$meta])* $(#[garde($($rule)*)])? $field: Option<$type>,)+
            $($(#[$world_meta])* $(#[garde($($world_rule)*)])? $world_field: Option<$world_type>,)+
            $(#[$unlock_meta])*
            #[garde($($unlock_rule)*)]
            unlocks: Option<Vec<UnlockBody>>,
        }

        impl From<TierSettingsBody> for TierSettings {
            fn from(body: TierSettingsBody) -> Self {
                Self { $($field: body.$field,)+ }
            }
        }

        impl From<WorldSettingsBody> for WorldSettings {
            fn from(body: WorldSettingsBody) -> Self {
                Self {
                    $($field: body.$field,)+
                    $($world_field: body.$world_field,)+
                    unlocks: body.unlocks.map(|rules| rules.into_iter().map(Into::into).collect()),
                }
            }
        }
    };
}

all_settings!(define_bodies);

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn tier_group<T: TierValue>(group: &Option<T>, (): &()) -> garde::Result {
    let fault = group.as_ref().and_then(TierValue::find_fault);
    fault.map_or(Ok(()), |fault| Err(garde::Error::new(fault)))
}

/// Maximum number of item names, and of place names, of a world.
const MAX_NAMES: usize = 500;

#[expect(clippy::ptr_arg, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn ascii_kind(word: &String, (): &()) -> garde::Result {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if word.chars().all(plain) {
        Ok(())
    } else {
        let rule = "must be of ASCII letters, digits, `_`, `-` and blanks";
        Err(garde::Error::new(rule))
    }
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn bounded_synonyms(synonyms: &Option<BTreeMap<String, String>>, (): &()) -> garde::Result {
    let synonyms = synonyms.iter().flatten();
    if synonyms.clone().count() > MAX_SYNONYMS {
        return Err(garde::Error::new(format!("length is greater than {MAX_SYNONYMS}")));
    }
    for word in synonyms.flat_map(|(synonym, meaning)| [synonym, meaning]) {
        one_line_label(word, &())?;
        if word.chars().count() > MAX_WORD_CHARS {
            let rule = format!("a word is longer than {MAX_WORD_CHARS} characters");
            return Err(garde::Error::new(rule));
        }
    }
    Ok(())
}
