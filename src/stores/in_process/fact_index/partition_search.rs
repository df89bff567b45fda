//! What a search of a partition looks for.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use chrono::{DateTime, Utc};

use colloquy_core::{ids::PlayerId, planted_leak};
use colloquy_memory::{disclosure::audience::Viewpoint, keywords::TermWeights};
use colloquy_ports::vectors::{CandidateLimits, CandidateQuery, MemoryScope, SimilarFactsQuery};

/// A search without references to its caller, so that another thread can run it.
pub(super) struct PartitionSearch {
    pub(super) sees: Visibility,
    pub(super) embedding: Option<Vec<f32>>,
    pub(super) terms: TermWeights,
    pub(super) limits: CandidateLimits,
    /// True if the caller will score the candidates.
    pub(super) hints: bool,
    /// A filter of points, if any.
    pub(super) only: Option<PointFilter>,
}

/// Selects the points to compare with a vector.
#[derive(Clone)]
pub(super) struct PointFilter {
    pub(super) audience: AudienceFilter,
    /// Facts about these subjects.
    pub(super) subjects: Option<Vec<u64>>,
    /// Facts that began earlier.
    pub(super) before: Option<DateTime<Utc>>,
}

/// An audience, by its short hash.
#[derive(Clone, Copy)]
pub(super) enum AudienceFilter {
    This(u64),
    AnyBut(u64),
}

impl AudienceFilter {
    pub(super) fn matches_audience(self, audience: u64) -> bool {
        match self {
            Self::This(this) => this == audience,
            Self::AnyBut(this) => this != audience,
        }
    }
}

pub(super) enum Visibility {
    /// The open segment, and this player's segment.
    Player(Option<PlayerId>),
    /// Only the segment with this privacy.
    Only(Option<PlayerId>),
    Everything,
}

impl Visibility {
    pub(super) fn of_viewpoint(viewpoint: &Viewpoint) -> Self {
        if viewpoint.sees_all_players || planted_leak!("facts.audience") {
            Self::Everything
        } else {
            Self::Player(viewpoint.player.clone())
        }
    }
}

impl PartitionSearch {
    pub(super) fn for_candidates(proposal: &CandidateQuery<'_>) -> Self {
        Self {
            sees: Visibility::of_viewpoint(proposal.viewpoint),
            embedding: proposal.embedding.map(<[f32]>::to_vec),
            terms: proposal.terms.clone(),
            limits: proposal.limits,
            hints: true,
            only: None,
        }
    }

    pub(super) fn for_similarity(with: SimilarFactsQuery<'_>) -> Self {
        let (sees, audience) = match with.memories {
            MemoryScope::Of(audience) => (
                Visibility::Only(audience.private_to.clone()),
                AudienceFilter::This(short_hash(audience)),
            ),
            MemoryScope::Overlapping(audience) => {
                let player = audience.private_to.clone();
                let sees = player.map_or(Visibility::Everything, |player| Visibility::Player(Some(player)));
                (sees, AudienceFilter::AnyBut(short_hash(audience)))
            }
        };
        Self {
            sees,
            embedding: Some(with.embedding.to_vec()),
            terms: TermWeights::default(),
            limits: CandidateLimits {
                dense: with.limit,
                sparse: 0,
                important: 0,
                recent: 0,
            },
            hints: false,
            only: Some(PointFilter {
                audience,
                subjects: with
                    .subjects
                    .map(|subjects| subjects.iter().map(|key| short_hash(key.as_str())).collect()),
                before: with.before,
            }),
        }
    }
}

/// Returns a short hash of an audience or a subject. A collision only causes a wrong candidate, since the caller
/// compares the ledger's own data.
pub(super) fn short_hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
