//! The names of a timeline, as they were told at each moment.

use chrono::{DateTime, Utc};

use super::Known;
use crate::memory::names::{self, Names, Told};

/// The facts that name their subjects. All of a memory's are in its timeline, wherever that begins.
#[derive(Debug, Clone)]
pub struct Naming<'a>(Vec<&'a Known>);

impl<'a> Naming<'a> {
    /// What is of another memory is not all here, and names nobody.
    #[must_use]
    pub fn of(known: impl IntoIterator<Item = &'a Known>) -> Self {
        let known = known.into_iter();
        let names = |known: &&Known| !known.foreign && names::is_name(&known.fact.statement);
        Self(known.filter(names).collect())
    }

    /// Who was who at `at`.
    #[must_use]
    pub fn at(&self, at: DateTime<Utc>) -> Names {
        Names::of(&self.standing(at))
    }

    /// What had been told of names at `at`. What a statement ended, be it for saying the same, is no less a name; what a
    /// person took out is none from then on.
    #[must_use]
    pub fn standing(&self, at: DateTime<Utc>) -> Vec<Told<'a>> {
        let stood = |known: &&&'a Known| {
            let mut by_people = known.ends.iter().filter(|end| end.turn.is_none());
            known.begins() <= at
                && by_people.all(|end| end.at > at || end.restored_at.is_some_and(|restored| restored <= at))
        };
        let told = self.0.iter().filter(stood);
        told.filter_map(|known| Told::of(&known.fact.statement, known.fact.authored))
            .collect()
    }
}
