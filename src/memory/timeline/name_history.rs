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
    pub fn from_known(known: impl IntoIterator<Item = &'a KnownFact>) -> Self {
        let known = known.into_iter();
        let names = |known: &&KnownFact| !known.foreign && aliases::states_name(&known.fact.statement);
        Self(known.filter(names).collect())
    }

    /// The names at `at`.
    #[must_use]
    pub fn aliases_at(&self, at: DateTime<Utc>) -> NameAliases {
        NameAliases::from_assertions(&self.assertions_at(at))
    }

    /// The assertions of names at `at`. A name stays after a statement ended its fact, for example as a duplicate. A
    /// name removed by a person is gone from then on.
    #[must_use]
    pub fn assertions_at(&self, at: DateTime<Utc>) -> Vec<NameAssertion<'a>> {
        let stood = |known: &&&'a KnownFact| {
            let mut by_people = known.ends.iter().filter(|end| end.turn.is_none());
            known.begins_at() <= at
                && by_people.all(|end| end.at > at || end.restored_at.is_some_and(|restored| restored <= at))
        };
        let told = self.0.iter().filter(stood);
        told.filter_map(|known| NameAssertion::from_statement(&known.fact.statement, known.fact.authored))
            .collect()
    }
}
