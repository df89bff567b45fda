//! The names of a timeline, as they were told at each moment.

use chrono::{DateTime, Utc};

use super::KnownFact;
use crate::memory::aliases::{self, NameAliases, NameAssertion};

/// The facts that name their subjects. All of a memory's are in its timeline, wherever that begins.
#[derive(Debug, Clone)]
pub struct NameHistory<'a>(Vec<&'a KnownFact>);

impl<'a> NameHistory<'a> {
    /// What is of another memory is not all here, and names nobody.
    #[must_use]
    pub fn from_known(known: impl IntoIterator<Item = &'a KnownFact>) -> Self {
        let known = known.into_iter();
        let names = |known: &&KnownFact| !known.foreign && aliases::states_name(&known.fact.statement);
        Self(known.filter(names).collect())
    }

    /// Who was who at `at`.
    #[must_use]
    pub fn aliases_at(&self, at: DateTime<Utc>) -> NameAliases {
        NameAliases::from_assertions(&self.assertions_at(at))
    }

    /// What had been told of names at `at`. What a statement ended, be it for saying the same, is no less a name; what a
    /// person took out is none from then on.
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
