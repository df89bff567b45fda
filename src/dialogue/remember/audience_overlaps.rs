//! Which facts of overlapping audiences are compared with the facts of a memory. Pure functions.

use std::collections::HashMap;

use colloquy_core::ids::{FactId, WorldId};
use colloquy_memory::{
    calibration::Calibration,
    disclosure::audience::Audience,
    fact::Fact,
    party,
    reconcile::StatementFeatures,
    scoring::dot_product,
    timeline::{AudienceOverlap, KnownFact},
};
use colloquy_ports::vectors::Candidate;

/// Returns the overlaps of a fact and the similar facts that a search has found.
pub(super) fn overlaps_with(fact: FactId, candidates: &[Candidate]) -> impl Iterator<Item = AudienceOverlap> {
    let other_candidates = candidates.iter().filter(move |candidate| candidate.fact != fact);
    other_candidates.map(move |candidate| AudienceOverlap {
        local_fact: fact,
        foreign_fact: candidate.fact,
        cosine: candidate.cosine,
    })
}

/// Returns the overlap of a manual fact and a similar fact of a turn.
pub(super) fn overlap_of_pair(
    calibration: &Calibration,
    manual_fact: &KnownFact,
    turn_fact: &KnownFact,
) -> Option<AudienceOverlap> {
    let key = |known: &KnownFact| party::subject_key(&known.fact.statement.subject);
    let gist = |known: &KnownFact| StatementFeatures::from_statement(&known.fact.statement);
    let cosine = dot_product(manual_fact.vector_as_said(), &turn_fact.vector);
    let is_near = || {
        cosine >= calibration.cosine_at(calibration.related)
            || gist(manual_fact).common_matter(&gist(turn_fact)).is_one_matter
    };
    (key(manual_fact) == key(turn_fact) && is_near()).then_some(AudienceOverlap {
        local_fact: manual_fact.fact.id,
        foreign_fact: turn_fact.fact.id,
        cosine,
    })
}

/// Removes overlaps whose fact is not in the memory or in an overlapping audience by the ledger. An index may lag.
pub(super) fn retain_overlapping(
    mut overlaps: Vec<AudienceOverlap>,
    (world, audience): (&WorldId, &Audience),
    known_facts: &[KnownFact],
    foreign_facts: &HashMap<FactId, Fact>,
) -> Vec<AudienceOverlap> {
    overlaps.retain(
        |AudienceOverlap { foreign_fact, .. }| match foreign_facts.get(foreign_fact) {
            // The premises of a conclusion are compared.
            Some(fact) => fact.world == *world && !fact.is_conclusion() && fact.audience.overlaps_audience(audience),
            None => known_facts.iter().any(|known| known.fact.id == *foreign_fact),
        },
    );
    overlaps
}

#[cfg(test)]
mod tests;
