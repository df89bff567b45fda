//! A player's progress with an NPC (docs/memory.md#progress).
//!
//! No row stores progress as a number. Progress follows from the standing changes of a world, by the rules of the
//! world. A rewind therefore also locks the scenarios that the rewound turns unlocked.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};

use super::milestones::{Milestones, PlayerMilestones};
pub use super::unlock_rule::{NpcNames, Progress, UnlockRule, UnlockWhen};
use colloquy_core::ids::PlayerId;

/// A player's progress with an NPC, with its moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressState {
    /// The progress values that still count, each with the moment that raised progress to the value.
    raised: Vec<(Progress, DateTime<Utc>)>,
    set: Progress,
}

/// Returns the progress of `player` with an NPC: the highest of the backend's last value and the rules whose condition
/// a standing change met. Without a player the progress is 0.
#[must_use]
pub fn progress_state(
    milestones: &Milestones,
    rules: &[UnlockRule],
    npc: &NpcNames<'_>,
    player: Option<&PlayerId>,
) -> ProgressState {
    player
        .and_then(|player| milestones.of_player(player))
        .map_or_else(ProgressState::default, |reached| {
            state_from_milestones(reached, rules, npc)
        })
}

fn state_from_milestones(reached: &PlayerMilestones, rules: &[UnlockRule], npc: &NpcNames<'_>) -> ProgressState {
    let of_rules = rules.iter().filter(|rule| rule.npc == *npc.id).filter_map(|rule| {
        let moment = reached.first_reached_at(&rule.when, npc)?;
        Some((rule.progress, moment))
    });
    let mut raised: Vec<_> = reached.backend_progress(npc.id).chain(of_rules).collect();
    raised.retain(|(progress, _)| *progress > Progress::NONE);
    // The result does not depend on the order of the rules.
    raised.sort_unstable_by_key(|&(progress, moment)| (Reverse(progress), moment));
    let backend_progress = reached.backend_progress(npc.id).map(|(progress, _)| progress).max();
    let state = ProgressState {
        raised,
        set: backend_progress.unwrap_or_default(),
    };
    debug_assert!(
        state.progress() >= state.set,
        "the value of the backend is a part of the progress"
    );
    state
}

impl ProgressState {
    /// The player's progress.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.raised.first().map_or(Progress::NONE, |(progress, _)| *progress)
    }
    /// The backend's last value; 0: never set.
    #[must_use]
    pub fn backend_progress(&self) -> Progress {
        self.set
    }
    /// Since when the player's progress has been at least `required`, counting only events that still count. `None`:
    /// locked, or open from the beginning.
    #[must_use]
    pub fn enough_since(&self, required: Progress) -> Option<DateTime<Utc>> {
        if required == Progress::NONE {
            return None;
        }
        let enough = self.raised.iter().filter(|(progress, _)| *progress >= required);
        enough.map(|(_, moment)| *moment).min()
    }
    /// True if something may have been unlocked at or after `moment`.
    #[must_use]
    pub fn may_have_risen_after(&self, moment: DateTime<Utc>) -> bool {
        self.raised.iter().any(|(_, risen_at)| *risen_at >= moment)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::{super::unlock_rule::UnlockWhen, *};
    use crate::state::{StateChange, WorldState, fold_changes};
    use colloquy_core::ids::NpcId;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }
    fn progress(value: u32) -> Progress {
        Progress::new(value).unwrap()
    }
    fn mira() -> NpcId {
        "mira".parse().unwrap()
    }
    fn gained(item: &str) -> StateChange {
        StateChange::ItemGained {
            who: "player:p7".to_owned(),
            item: item.to_owned(),
            count: 1,
        }
    }
    fn trusts(delta: i32) -> StateChange {
        StateChange::Relationship {
            from: "Mira".to_owned(),
            to: "player:p7".to_owned(),
            kind: "trust".to_owned(),
            delta,
        }
    }
    fn sets(to: u32) -> StateChange {
        StateChange::Progress {
            who: "player:p7".to_owned(),
            npc: mira(),
            to: progress(to),
        }
    }
    fn rule(value: u32, when: UnlockWhen) -> UnlockRule {
        UnlockRule {
            npc: mira(),
            progress: progress(value),
            when,
        }
    }
    fn item(name: &str) -> UnlockWhen {
        UnlockWhen::Item { item: name.to_owned() }
    }
    fn of(state: &WorldState, rules: &[UnlockRule]) -> ProgressState {
        let (id, player) = (mira(), "p7".parse().unwrap());
        progress_state(&state.milestones, rules, &NpcNames::new(&id, "Mira"), Some(&player))
    }
    fn folded(changes: &[(i64, StateChange)]) -> WorldState {
        fold_changes(changes.iter().map(|(second, change)| (change, at(*second))))
    }

    #[test]
    fn progress_rules_apply_only_while_their_event_stands() {
        let rules = [
            rule(1, item("Silver Key")),
            rule(
                2,
                UnlockWhen::Location {
                    location: "tower".into(),
                },
            ),
            rule(3, UnlockWhen::Met { met: "Bram".into() }),
            rule(
                4,
                UnlockWhen::Relationship {
                    relationship: "trust".into(),
                    at_least: 40,
                },
            ),
        ];
        let to = StateChange::Location {
            who: "player:p7".into(),
            to: "the Tower".into(),
        };
        let tower = StateChange::Location {
            who: "player:p7".into(),
            to: "Tower ".into(),
        };
        let met = StateChange::Met {
            who: "Bram".into(),
            whom: "player:p7".into(),
        };
        let mut changes = vec![(1, gained("silver key"))];
        for (next, expected) in [
            ((2, to), 1),
            ((3, tower), 2),
            ((4, trusts(39)), 2),
            ((5, trusts(1)), 4),
            ((6, met), 4),
        ] {
            changes.push(next);
            assert_eq!(
                of(&folded(&changes), &rules).progress(),
                progress(expected),
                "{changes:?}"
            );
        }
        let whole = of(&folded(&changes), &rules);
        let since: Vec<_> = [0, 1, 2, 3, 4, 5]
            .map(|value| whole.enough_since(progress(value)))
            .into();
        assert_eq!(since, [None, Some(at(1)), Some(at(3)), Some(at(5)), Some(at(5)), None]);
        // A strength that was reached once counts after fading; an unsaid change does not.
        changes.push((7, trusts(-40)));
        assert_eq!(of(&folded(&changes), &rules).progress(), progress(4));
        changes.remove(4);
        assert_eq!(of(&folded(&changes), &rules).progress(), progress(3));
    }

    #[test]
    fn progress_is_not_raised_by_npcs_or_other_players() {
        let rules = [rule(1, item("key")), rule(2, UnlockWhen::Met { met: "Bram".into() })];
        let of_another = StateChange::ItemGained {
            who: "player:p8".into(),
            item: "key".into(),
            count: 1,
        };
        let of_an_npc = StateChange::Met {
            who: "Mira".into(),
            whom: "Bram".into(),
        };
        let a_sister = StateChange::ItemGained {
            who: "player:p7's sister".into(),
            item: "key".into(),
            count: 1,
        };
        let nothing = StateChange::ItemGained {
            who: "player:p7".into(),
            item: "key".into(),
            count: 0,
        };
        let state = folded(&[(1, of_another), (2, of_an_npc), (3, a_sister), (4, nothing)]);
        assert_eq!(of(&state, &rules), ProgressState::default());
        let id = mira();
        let npc = NpcNames::new(&id, "Mira");
        assert_eq!(
            progress_state(&folded(&[(1, sets(5))]).milestones, &rules, &npc, None).progress(),
            Progress::NONE
        );
    }

    #[test]
    fn progress_last_set_by_the_backend_counts_from_its_moment() {
        let state = folded(&[(1, sets(5)), (2, sets(2)), (3, sets(4)), (4, sets(4))]);
        let backend = of(&state, &[]);
        assert_eq!(
            (backend.progress(), backend.backend_progress()),
            (progress(4), progress(4))
        );
        let since = [1, 2, 3, 4, 5].map(|value| backend.enough_since(progress(value)));
        assert_eq!(since, [Some(at(1)), Some(at(1)), Some(at(3)), Some(at(3)), None]);
        let with_a_rule = folded(&[(1, sets(5)), (2, sets(2)), (3, gained("key"))]);
        let both = of(&with_a_rule, &[rule(3, item("key"))]);
        assert_eq!((both.progress(), both.backend_progress()), (progress(3), progress(2)));
        assert!(both.may_have_risen_after(at(3)) && !both.may_have_risen_after(at(4)));
    }

    #[test]
    fn progress_rule_is_written_naturally() {
        for (text, when) in [
            (r#"{"item":"silver key"}"#, item("silver key")),
            (
                r#"{"location":"tower"}"#,
                UnlockWhen::Location {
                    location: "tower".into(),
                },
            ),
            (r#"{"met":"Bram"}"#, UnlockWhen::Met { met: "Bram".into() }),
            (
                r#"{"relationship":"trust","at_least":40}"#,
                UnlockWhen::Relationship {
                    relationship: "trust".into(),
                    at_least: 40,
                },
            ),
        ] {
            assert_eq!(serde_json::to_string(&when).unwrap(), text);
            assert_eq!(serde_json::from_str::<UnlockWhen>(text).unwrap(), when);
        }
        assert!(serde_json::from_str::<Progress>("1000001").is_err());
    }

    /// Events of one player and one NPC that rules ask for.
    fn happening() -> impl Strategy<Value = StateChange> {
        prop_oneof![
            (0..4_u8).prop_map(|n| gained(&format!("item {n}"))),
            (-60..60_i32).prop_map(trusts),
            (0..8_u32).prop_map(sets),
        ]
    }
    fn rules() -> impl Strategy<Value = Vec<UnlockRule>> {
        let when = prop_oneof![
            (0..4_u8).prop_map(|n| item(&format!("Item {n}"))),
            (1..=100_i32).prop_map(|at_least| UnlockWhen::Relationship {
                relationship: "Trust".into(),
                at_least
            }),
        ];
        prop::collection::vec((0..8_u32, when).prop_map(|(value, when)| rule(value, when)), 0..6)
    }

    /// The progress at one moment, computed only from the events until then.
    fn plainly(changes: &[(i64, StateChange)], rules: &[UnlockRule], until: i64) -> u32 {
        let (mut set, mut strength, mut strongest, mut items) = (0, 0, 0, Vec::new());
        for (_, change) in changes.iter().filter(|(second, _)| *second <= until) {
            match change {
                StateChange::Progress { to, .. } => set = to.get(),
                StateChange::ItemGained { item, .. } => items.push(item.to_lowercase()),
                StateChange::Relationship { delta, .. } => {
                    strength = (strength + delta).clamp(-100, 100);
                    strongest = strongest.max(strength);
                }
                _ => {}
            }
        }
        let met = rules.iter().filter(|rule| match &rule.when {
            UnlockWhen::Item { item } => items.contains(&item.to_lowercase()),
            UnlockWhen::Relationship { at_least, .. } => strongest >= *at_least,
            _ => false,
        });
        met.map(|rule| rule.progress.get())
            .chain([set])
            .max()
            .unwrap_or_default()
    }

    proptest! {
        #[test]
        fn progress_is_the_highest_of_the_standing_events(
            all in prop::collection::vec((happening(), any::<bool>()), 0..30), rules in rules(),
        ) {
            let numbered = (0..).zip(&all);
            let stands: Vec<_> = numbered.filter(|(_, (_, stands))| *stands).map(|(n, (change, _))| (n, change.clone())).collect();
            let now = of(&folded(&stands), &rules);
            let last = i64::try_from(all.len()).unwrap();
            prop_assert_eq!(now.progress().get(), plainly(&stands, &rules, last));
            let (set, done): (Vec<_>, Vec<_>) = stands.iter().cloned().partition(|(_, change)| matches!(change, StateChange::Progress { .. }));
            for required in 1..8_u32 {
                // The first moment from which the backend's value was enough, and the moments of rules that were
                // enough.
                let lacking = (-1..=last).rev().find(|moment| plainly(&set, &[], *moment) < required);
                let of_backend = lacking.filter(|moment| *moment < last).map(|moment| moment + 1);
                let met = |rule: &UnlockRule| {
                    let enough = rule.progress.get() >= required;
                    (0..=last).find(|moment| enough && plainly(&done, std::slice::from_ref(rule), *moment) >= required)
                };
                let expected = rules.iter().filter_map(met).chain(of_backend).min().map(at);
                prop_assert_eq!(now.enough_since(progress(required)), expected, "{} of {:?}", required, stands);
            }
        }

        #[test]
        fn progress_does_not_depend_on_the_order_of_rules(all in prop::collection::vec(happening(), 0..20), rules in rules()) {
            let changes: Vec<_> = (0..).zip(all).collect();
            let state = folded(&changes);
            let mut turned = rules.clone();
            turned.reverse();
            prop_assert_eq!(of(&state, &rules), of(&state, &turned));
        }
    }
}
