//! What one knower may know, on one shelf per player it is private to.
//!
//! The split by privacy is what keeps an NPC that ten thousand players confided in as quick as one
//! that met a single player: a search only touches the open shelf and the asking player's own.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use chrono::{DateTime, Utc};

use super::{Change, counting::TermCounts, shelf::Shelf};
use crate::{
    ids::{FactId, PlayerId},
    memory::{fact::Viewpoint, keywords::TermWeights},
    ports::vectors::{Candidate, Comparison, IndexPoint, LegLimits, Memories, Proposal},
};

/// A search, detached from its caller so that it can run on another thread.
pub(super) struct Search {
    sees: Sees,
    pub(super) embedding: Option<Vec<f32>>,
    pub(super) terms: TermWeights,
    pub(super) limits: LegLimits,
    /// Whether what is found will be scored.
    pub(super) hints: bool,
    /// Only these points.
    pub(super) only: Option<Only>,
}

/// Which points are compared with a vector.
#[derive(Clone)]
pub(super) struct Only {
    pub(super) audience: Whose,
    /// About any of these.
    pub(super) subjects: Option<Vec<u64>>,
    /// That began before.
    pub(super) before: Option<DateTime<Utc>>,
}

/// An audience, by its short form.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    This(u64),
    AnyBut(u64),
}

impl Whose {
    pub(super) fn is(self, audience: u64) -> bool {
        match self {
            Self::This(this) => this == audience,
            Self::AnyBut(this) => this != audience,
        }
    }
}

pub(super) enum Sees {
    /// The open shelf, and this player's.
    Player(Option<PlayerId>),
    /// Only the shelf with this privacy.
    Only(Option<PlayerId>),
    Everything,
}

impl Sees {
    pub(super) fn of(viewpoint: &Viewpoint) -> Self {
        if viewpoint.sees_all_players {
            Self::Everything
        } else {
            Self::Player(viewpoint.player.clone())
        }
    }
}

impl Search {
    pub(super) fn propose(proposal: &Proposal<'_>) -> Self {
        Self {
            sees: Sees::of(proposal.viewpoint),
            embedding: proposal.embedding.map(<[f32]>::to_vec),
            terms: proposal.terms.clone(),
            limits: proposal.limits,
            hints: true,
            only: None,
        }
    }

    pub(super) fn similar(with: Comparison<'_>) -> Self {
        let (sees, audience) = match with.memories {
            Memories::Of(audience) => (Sees::Only(audience.private_to.clone()), Whose::This(short(audience))),
            Memories::Overlapping(audience) => {
                let player = audience.private_to.clone();
                let sees = player.map_or(Sees::Everything, |player| Sees::Player(Some(player)));
                (sees, Whose::AnyBut(short(audience)))
            }
        };
        Self {
            sees,
            embedding: Some(with.embedding.to_vec()),
            terms: TermWeights::default(),
            limits: LegLimits {
                dense: with.limit,
                sparse: 0,
                important: 0,
                recent: 0,
            },
            hints: false,
            only: Some(Only {
                audience,
                subjects: with
                    .subjects
                    .map(|subjects| subjects.iter().map(|key| short(key.as_str())).collect()),
                before: with.before,
            }),
        }
    }
}

/// A short form of an audience, or of a subject. A collision only proposes one candidate too many; whoever asked
/// compares the ledger's own.
pub(super) fn short<T: Hash + ?Sized>(of: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[derive(Default)]
pub(super) struct Partition {
    shelves: HashMap<Option<PlayerId>, Shelf>,
    /// Which shelf a fact is on.
    places: HashMap<FactId, Option<PlayerId>>,
    /// Of the shelves, counted along.
    shelved: u64,
}

impl Partition {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(point) => self.put(point),
            Change::Drop(fact) => self.drop_fact(*fact),
        }
    }

    pub(super) fn put(&mut self, point: &IndexPoint) {
        self.drop_fact(point.fact);
        let owner = point.audience.private_to.clone();
        let of_owner = self.shelves.entry(owner.clone()).or_default();
        self.shelved -= of_owner.bytes();
        of_owner.put(point);
        self.shelved += of_owner.bytes();
        self.places.insert(point.fact, owner);
    }

    fn drop_fact(&mut self, fact: FactId) {
        let Some(owner) = self.places.remove(&fact) else { return };
        if let Some(shelf) = self.shelves.get_mut(&owner) {
            self.shelved -= shelf.bytes();
            shelf.remove(fact);
            if shelf.is_empty() {
                self.shelves.remove(&owner);
            } else {
                self.shelved += shelf.bytes();
            }
        }
    }

    /// Adds the best of each leg to `best`, with exact cosines.
    pub(super) fn search(&self, search: &Search, best: &mut HashMap<FactId, Candidate>) {
        for shelf in self.seen_by(&search.sees) {
            shelf.search(search, best);
        }
    }

    /// Adds how many facts there are to be seen, and how many of them have each term.
    pub(super) fn count_terms(&self, sees: &Sees, terms: &TermWeights, counts: &mut TermCounts) {
        for shelf in self.seen_by(sees) {
            shelf.count_terms(terms, counts);
        }
    }

    /// How many points a search would scan.
    pub(super) fn visible(&self, search: &Search) -> usize {
        self.seen_by(&search.sees).map(Shelf::len).sum()
    }

    pub(super) fn has(&self, fact: FactId) -> bool {
        self.places.contains_key(&fact)
    }

    pub(super) fn facts(&self) -> Vec<FactId> {
        self.places.keys().copied().collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.shelved + self.places.len() as u64 * 48
    }

    fn seen_by<'a>(&'a self, sees: &Sees) -> impl Iterator<Item = &'a Shelf> + use<'a> {
        let (named, all): (Vec<Option<PlayerId>>, bool) = match sees {
            Sees::Everything => (Vec::new(), true),
            Sees::Only(owner) => (vec![owner.clone()], false),
            Sees::Player(None) => (vec![None], false),
            Sees::Player(player) => (vec![None, player.clone()], false),
        };
        let everything = all.then(|| self.shelves.values()).into_iter().flatten();
        named
            .into_iter()
            .filter_map(|owner| self.shelves.get(&owner))
            .chain(everything)
    }
}
