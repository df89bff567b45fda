//! Content with the verdict of the gate.

use std::{ops::Deref, sync::Arc};

use colloquy_core::ids::FactId;
use colloquy_memory::fact::Fact;
use colloquy_ports::ledger::facts::{ConfirmedFact, RecallBody};

/// A row whose locks are open to all who hear a dialogue. What people removed from memory is still in the row: the
/// functions of `redaction.rs` make the row disclosable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unlocked<T>(T);

impl<T> Unlocked<T> {
    pub(super) const fn new(row: T) -> Self {
        Self(row)
    }
    pub(super) fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Unlocked<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Content that may be told to all who hear a dialogue. The sections of a prompt and the results of a search take nothing
/// else, and only the files of this folder give content the verdict. Other files render such content with
/// [`map`](Self::map), which keeps the verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Disclosable<T>(T);

impl<T> Disclosable<T> {
    /// Gives content the verdict.
    pub(super) const fn new(content: T) -> Self {
        Self(content)
    }
    /// Returns the content in another form. `change` renders or shortens the content, and adds nothing to it.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Disclosable<U> {
        Disclosable(change(self.0))
    }
    /// Returns the content in another form, as [`map`](Self::map) does.
    pub(crate) fn try_map<U, E>(self, change: impl FnOnce(T) -> Result<U, E>) -> Result<Disclosable<U>, E> {
        change(self.0).map(Disclosable)
    }
    /// Returns a part of the content, or the content without a part. `None`: nothing is left.
    pub(crate) fn filter_map<U>(self, change: impl FnOnce(T) -> Option<U>) -> Option<Disclosable<U>> {
        change(self.0).map(Disclosable)
    }
    pub(crate) const fn as_ref(&self) -> Disclosable<&T> {
        Disclosable(&self.0)
    }
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
    /// Returns two contents as one.
    pub(crate) fn zip<U>(self, other: Disclosable<U>) -> Disclosable<(T, U)> {
        Disclosable((self.0, other.0))
    }
    /// Returns content for a test.
    #[cfg(test)]
    pub(crate) const fn sample(content: T) -> Self {
        Self(content)
    }
}

impl<T> Disclosable<Vec<T>> {
    /// Returns each entry of a list with the verdict of the list.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Disclosable<&T>> {
        self.0.iter().map(Disclosable)
    }
    /// Returns each entry of a list with the verdict of the list.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = Disclosable<T>> {
        self.0.into_iter().map(Disclosable)
    }
}

impl<T> FromIterator<Disclosable<T>> for Disclosable<Vec<T>> {
    fn from_iter<I: IntoIterator<Item = Disclosable<T>>>(entries: I) -> Self {
        Self(entries.into_iter().map(Disclosable::into_inner).collect())
    }
}

impl<T> Deref for Disclosable<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Tests change their samples.
#[cfg(test)]
impl<T> std::ops::DerefMut for Disclosable<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A row that tells a fact.
pub(crate) trait TellsFact {
    fn fact_id(&self) -> FactId;
}
impl TellsFact for Fact {
    fn fact_id(&self) -> FactId {
        self.id
    }
}
impl TellsFact for Arc<RecallBody> {
    fn fact_id(&self) -> FactId {
        self.id
    }
}

impl Disclosable<ConfirmedFact> {
    /// Gives a row of the confirmed fact the verdict of the fact. `None`: the row tells another fact.
    pub(crate) fn cover<R: TellsFact>(&self, row: R) -> Option<Disclosable<R>> {
        (row.fact_id() == self.0.fact).then_some(Disclosable(row))
    }
}
