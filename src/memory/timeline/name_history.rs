//! The known names of a timeline at each moment.

use chrono::{DateTime, Utc};

use super::known_fact::KnownFact;
use crate::aliases::{self, NameAliases, NameAssertion};

/// The facts that name their subjects. A timeline has all naming facts of its memory, wherever the timeline begins.
#[derive(Debug, Clone)]
pub struct NameHistory<'a>(Vec<&'a KnownFact>);

impl<'a> NameHistory<'a> {
    /// Collects the naming facts. Facts of another memory are left out, because the timeline has only some of them.
    #[must_use]
    pub fn from_known(known_facts: impl IntoIterator<Item = &'a KnownFact>) -> Self {
        let known_facts = known_facts.into_iter();
        let names = |known_fact: &&KnownFact| !known_fact.foreign && aliases::states_name(&known_fact.fact.statement);
        Self(known_facts.filter(names).collect())
    }

    /// The names at `moment`.
    #[must_use]
    pub fn aliases_at(&self, moment: DateTime<Utc>) -> NameAliases {
        NameAliases::from_assertions(&self.assertions_at(moment))
    }

    /// The assertions of names at `moment`. A name stays after a statement ended its fact, for example as a duplicate.
    /// A name removed by a person is gone from then on.
    #[must_use]
    pub fn assertions_at(&self, moment: DateTime<Utc>) -> Vec<NameAssertion<'a>> {
        let is_in_force = |known_fact: &&&'a KnownFact| {
            let mut by_people = known_fact.ends.iter().filter(|end| end.turn.is_none());
            known_fact.begins_at() <= moment
                && by_people
                    .all(|end| end.ended_at > moment || end.restored_at.is_some_and(|restored| restored <= moment))
        };
        let name_facts = self.0.iter().filter(is_in_force);
        name_facts
            .filter_map(|known_fact| {
                NameAssertion::from_statement(&known_fact.fact.statement, known_fact.fact.authored)
            })
            .collect()
    }
}
