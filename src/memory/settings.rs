//! Settings of a tenant, a world, an NPC, or a session. Each is declared once, in [`all_settings`](crate::all_settings),
//! with its comment, unit and range.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    action_rule::ActionRule, attributes::AttributeRule, keywords::normalise_text, tiers::TierValue,
    unlock_rule::UnlockRule,
};

/// Gives the macro `$define` all settings: those of every tier, those that only worlds have, and the rules of progress. A
/// setting has its comment, its schema, its type, and in braces the rules for input, in the words of `garde`.
#[macro_export]
macro_rules! all_settings {
    ($define:ident) => {
        $define! {
            tiers {
                /// Recency decay λ per day; default 0.002. For games whose time runs at another speed.
                #[schema(minimum = 0, maximum = 10)]
                recency_lambda_per_day: f64 { range(min = 0.0, max = 10.0) },
                /// How long a line that points at the previous turn waits for what that turn taught, in ms; default 1,500.
                #[schema(maximum = 10_000)]
                longest_wait_for_memory_ms: u32 { range(max = 10_000) },
                /// When the intent of a line is classified. `beside_reply`: while the reply is asked for, with the prompt of the
                /// likeliest intent. `before_reply`: before the reply is asked for. `by_rules`: never, the words of the line
                /// decide. Default `beside_reply`.
                #[schema(inline)]
                intent_classification: $crate::settings::IntentClassification,
                /// How memories are weighted and selected.
                #[schema(inline)]
                recall: $crate::tiers::WorldRecall { custom(tier_group) },
                /// Budgets of prompts' sections, and the state block.
                #[schema(inline)]
                prompt: $crate::tiers::PromptTuning { custom(tier_group) },
                /// When a summary is due.
                #[schema(inline)]
                summaries: $crate::tiers::SummaryTuning { custom(tier_group) },
                /// Curation passes.
                #[schema(inline)]
                curation: $crate::tiers::CurationTuning { custom(tier_group) },
                /// Models per task, from the operator's list.
                #[schema(inline)]
                models: $crate::tiers::TaskModels { custom(tier_group) },
                /// How long NPCs remember what they learn.
                #[schema(inline)]
                retention: $crate::tiers::RetentionTuning { custom(tier_group) },
                /// True: private facts from one player may be used with other players. Default false.
                share_between_players: bool,
                /// True: NPCs tell every player about NPC conversations that are not open to the player. Default false.
                gossip: bool,
                /// With whom an NPC shares facts that the NPC told one player about itself. `shared`: with every player,
                /// if the fact names no player and has no private or locked source. `private`: only with that player.
                /// Default `private`.
                self_told: $crate::settings::SelfTold,
                /// Maximum change of a relationship in one turn; default 20.
                #[schema(minimum = 0, maximum = 1000)]
                max_relationship_delta: i32 { range(min = 0, max = 1000) },
                /// Maximum change of hit points in one turn; default 100.
                #[schema(minimum = 0, maximum = 1_000_000)]
                max_hp_delta: i32 { range(min = 0, max = 1_000_000) },
                /// When an NPC greets with its persona's greeting. `first`: at the first meeting with a player; later, the
                /// model greets with its memories. `always`: at every meeting. Default `first`.
                #[schema(inline)]
                greeting: $crate::settings::Greeting,
                /// The language of an NPC's replies: `own`, or the `player`'s (in NPC conversations the world's). Default
                /// `own`.
                #[schema(inline)]
                reply_language: $crate::settings::ReplyLanguage,
                /// Maximum amount of one item that one turn may give or take; default 1,000.
                #[schema(maximum = 9_999)]
                max_item_delta: u32 { range(max = 9_999) },
            }
            worlds {
                /// Moods of the world's NPCs. A mood from the model is mapped to a listed mood or dropped, so that no
                /// player's words leak to another player. Default: 20 words, such as `calm`, `happy`, `worried`. Only for
                /// worlds.
                #[schema(min_items = 1, max_items = 40)]
                moods: Vec<String> {
                    length(min = 1, max = MAX_WORDS),
                    inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label)))
                },
                /// Kinds of relationships: ASCII letters, digits, `_`, `-` and blanks; case does not matter. Other kinds
                /// are refused. Default `trust`, `affection`, `respect`, `fear`, `debt`, `loyalty`, `rivalry`,
                /// `hostility`. Only for worlds.
                #[schema(min_items = 1, max_items = 40)]
                relationship_kinds: Vec<String> {
                    length(min = 1, max = MAX_WORDS),
                    inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label), custom(ascii_kind)))
                },
                /// Synonyms: from a word to a listed mood or kind. Common English and Korean synonyms are built in (`신뢰`
                /// is `trust`). Only for worlds.
                synonyms: std::collections::BTreeMap<String, String> { custom(bounded_synonyms) },
                /// All existing items; changes of other items in a state block are refused. Default: any item. Only for
                /// worlds.
                #[schema(max_items = 500)]
                items: Vec<String> {
                    length(max = MAX_NAMES), inner(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))
                },
                /// All existing places; changes to other places in a state block are refused. Default: any place. Only
                /// for worlds.
                #[schema(max_items = 500)]
                places: Vec<String> {
                    length(max = MAX_NAMES), inner(inner(length(chars, max = MAX_NAME_CHARS), custom(display_name)))
                },
                /// Who changes an item, or brings somebody to a place: by name. `replies`: state blocks of replies, and
                /// the backend; `backend`: the backend alone. Default: `backend` for the items and places that conditions
                /// of lore, scenarios or actions name, or rules in `unlocks`; `replies` for all others. At most 500 names
                /// of 64 characters. Only for worlds.
                changed_by: std::collections::BTreeMap<String, $crate::attributes::AttributeAuthor> {
                    custom(changed_names)
                },
                /// The places next to a place. A link holds in both directions. In a state block, a character with a known
                /// place moves to linked places only, if its place has links. At most 500 places with 50 links each.
                /// Default: no links. Only for worlds.
                adjacent: std::collections::BTreeMap<String, Vec<String>> { custom(place_links) },
                /// Statuses of characters; other statuses are refused. `dead` is always a status. Default `alive`, `dead`,
                /// `wounded`, `unconscious`, `asleep`, `away`, `captive`, `hidden`. Only for worlds.
                #[schema(min_items = 1, max_items = 40)]
                statuses: Vec<String> {
                    length(min = 1, max = MAX_WORDS),
                    inner(inner(length(chars, max = MAX_WORD_CHARS), custom(one_line_label)))
                },
                /// True: dead NPCs answer and act. Default false. Only for worlds.
                ghosts_speak: bool,
                /// Attributes of the studio's own, tracked in the world's state. Default none. Only for worlds.
                #[schema(inline, max_items = 40)]
                state: Vec<$crate::attributes::AttributeRule> { custom(attribute_rules) },
                /// The clock of the world: its calendar, where it starts, and how fast it runs. Dates, ages, and conditions
                /// on the time go by the clock. Default: no clock. Only for worlds.
                #[schema(inline)]
                clock: $crate::clock_settings::ClockSettings { custom(clock_settings) },
                /// Actions that NPCs may ask the backend for. Default none. Only for worlds.
                #[schema(inline, max_items = 40)]
                actions: Vec<$crate::action_rule::ActionRule> { custom(action_rules) },
            }
            unlocks {
                /// Rules that raise a player's progress with an NPC, and so unlock its scenarios. Default none. Only for
                /// worlds. For each player, the first 512 items, places, persons and relationships count; later entries
                /// unlock nothing.
                #[schema(max_items = 50)]
                { length(max = 50), dive }
            }
        }
    };
}

/// Who may hear what an NPC told one player about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SelfTold {
    /// Every player may, unless the statement names a player or rests on private or locked content.
    Shared,
    /// Only the same player may, as with other private statements.
    Private,
}

/// When an NPC greets with the greeting of its persona, if the persona has a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Greeting {
    /// At the first meeting with a player. Later greetings come from the model, with the NPC's memories.
    First,
    /// At every greeting.
    Always,
}

/// When the intent of a line is classified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntentClassification {
    /// While the reply is asked for. The prompt has the likeliest intent by the words of the line. The reply waits for the
    /// classifier, and is asked for again if the classified intent changes the prompt.
    #[default]
    BesideReply,
    /// Before the reply is asked for.
    BeforeReply,
    /// Not at all: the words of the line decide.
    ByRules,
}

/// The language of an NPC's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyLanguage {
    /// The NPC's own language, whatever language the player speaks.
    Own,
    /// The language of the player's line; in NPC conversations the language of the world.
    Player,
}

/// Defines the settings as they are stored and answered, and how tiers override each other.
macro_rules! define_settings {
    (
        tiers { $($(#[$meta:meta])* $field:ident: $type:ty $({ $($rule:tt)* })?,)+ }
        worlds { $($(#[$world_meta:meta])* $world_field:ident: $world_type:ty $({ $($world_rule:tt)* })?,)+ }
        unlocks { $(#[$unlock_meta:meta])* { $($unlock_rule:tt)* } }
    ) => {
        /// Settings of a tenant, an NPC or a session. Precedence: session, NPC, world, tenant, configuration. Unset values
        /// come from the next tier.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct TierSettings {
            $($(#[$meta])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)+
        }

        /// Settings of a world: those of every tier, and the rules that only worlds have.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct WorldSettings {
            $($(#[$meta])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)+
            $(
                $(#[$world_meta])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $world_field: Option<$world_type>,
            )+
            $(#[$unlock_meta])*
            #[serde(skip_serializing_if = "Option::is_none")]
            pub unlocks: Option<Vec<UnlockRule>>,
        }

        impl WorldSettings {
            /// The names of the settings that only worlds have.
            pub const WORLD_RULES: &[&str] = &[$(stringify!($world_field),)+ "unlocks"];

            /// These settings, overridden by the settings of a lower tier.
            #[must_use]
            pub fn overridden_by(&self, lower: &TierSettings) -> Self {
                Self { $($field: merge_values(self.$field.as_ref(), lower.$field.as_ref()),)+ ..self.clone() }
            }

            /// These settings of a world, with the tenant's settings where the world has none.
            #[must_use]
            pub fn with_defaults(&self, tenant: &TierSettings) -> Self {
                Self { $($field: merge_values(tenant.$field.as_ref(), self.$field.as_ref()),)+ ..self.clone() }
            }
        }
    };
}

all_settings!(define_settings);

/// A single value: the value of the lower tier counts.
macro_rules! single_values {
    ($($type:ty),+) => {
        $(impl TierValue for $type {
            fn overridden_by(&self, lower: &Self) -> Self {
                *lower
            }
        })+
    };
}
single_values!(
    f64,
    u32,
    i32,
    bool,
    SelfTold,
    Greeting,
    ReplyLanguage,
    IntentClassification
);

fn merge_values<T: TierValue>(upper: Option<&T>, lower: Option<&T>) -> Option<T> {
    match (upper, lower) {
        (Some(upper), Some(lower)) => Some(upper.overridden_by(lower)),
        (upper, lower) => lower.or(upper).cloned(),
    }
}

impl WorldSettings {
    /// True if NPCs tell any player about their conversations with each other.
    #[must_use]
    pub fn allows_gossip(&self) -> bool {
        self.gossip.unwrap_or(false)
    }

    /// The attributes of the studio's own.
    #[must_use]
    pub fn attribute_rules(&self) -> &[AttributeRule] {
        self.state.as_deref().unwrap_or_default()
    }

    /// The actions that NPCs may ask for.
    #[must_use]
    pub fn action_rules(&self) -> &[ActionRule] {
        self.actions.as_deref().unwrap_or_default()
    }

    /// True if dead NPCs answer and act.
    #[must_use]
    pub fn lets_ghosts_speak(&self) -> bool {
        self.ghosts_speak.unwrap_or(false)
    }

    /// True if the world has a list of its items.
    #[must_use]
    pub const fn lists_items(&self) -> bool {
        self.items.is_some()
    }

    /// The places next to `place`, in the spelling of the settings; empty: no links are known. Case does not matter.
    #[must_use]
    pub fn places_next_to(&self, place: &str) -> Vec<&str> {
        let is_place = |name: &str| normalise_text(name) == normalise_text(place);
        let links = self.adjacent.iter().flatten();
        let mut places: Vec<&str> = links
            .flat_map(|(from, neighbours)| neighbours.iter().map(move |to| (from.as_str(), to.as_str())))
            .filter_map(|(from, to)| match (is_place(from), is_place(to)) {
                (true, false) => Some(to),
                (false, true) => Some(from),
                _ => None,
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The rules that raise a player's progress.
    #[must_use]
    pub fn unlock_rules(&self) -> &[UnlockRule] {
        self.unlocks.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npc_settings_override_only_what_they_set_of_the_world() {
        let world = WorldSettings {
            recency_lambda_per_day: Some(0.5),
            share_between_players: Some(true),
            gossip: Some(true),
            self_told: Some(SelfTold::Private),
            max_relationship_delta: Some(10),
            greeting: Some(Greeting::Always),
            unlocks: Some(vec![]),
            moods: Some(vec!["calm".into()]),
            items: Some(vec!["rope".into()]),
            ..WorldSettings::default()
        };
        let npc = TierSettings {
            share_between_players: Some(false),
            max_hp_delta: Some(0),
            greeting: Some(Greeting::First),
            reply_language: Some(ReplyLanguage::Player),
            ..TierSettings::default()
        };
        let both = WorldSettings {
            recency_lambda_per_day: Some(0.5),
            share_between_players: Some(false),
            gossip: Some(true),
            self_told: Some(SelfTold::Private),
            max_relationship_delta: Some(10),
            max_hp_delta: Some(0),
            greeting: Some(Greeting::First),
            reply_language: Some(ReplyLanguage::Player),
            unlocks: Some(vec![]),
            moods: Some(vec!["calm".into()]),
            items: Some(vec!["rope".into()]),
            ..WorldSettings::default()
        };
        assert_eq!(world.overridden_by(&npc), both);
    }

    #[test]
    fn settings_of_worlds_are_refused_for_other_tiers() {
        for name in WorldSettings::WORLD_RULES {
            let settings = serde_json::json!({*name: null});
            assert!(
                serde_json::from_value::<WorldSettings>(settings.clone()).is_ok(),
                "{name}"
            );
            assert!(serde_json::from_value::<TierSettings>(settings).is_err(), "{name}");
        }
    }
}
