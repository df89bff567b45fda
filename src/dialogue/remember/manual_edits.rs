//! Facts that people write over REST.

use super::{
    edit_error::ManualEditError,
    memory_update::AudienceMemory,
    pii::detect_pii,
    timeline_input::{NeighbourQuery, PlanIndex},
};
use crate::{Services, jobs::outbox::relay_or_log};
use colloquy_core::{ids::WorldId, scope::TenantScope};
use colloquy_memory::{
    agreement,
    disclosure::{audience::Audience, locks::DisclosureLocks},
    fact::{Cause, Fact, FactKind, Importance, NewFact, Statement},
    party::AUTHOR,
    reconcile, timeline,
};
use colloquy_ports::{StoreError, ledger::audit::Edit, llm::LlmError, vectors::MemoryScope};

/// A manual fact, written by a person.
#[derive(Debug, Clone)]
pub struct ManualFact {
    pub world: WorldId,
    pub audience: Audience,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    pub content: String,
    pub keywords: Vec<String>,
    pub kind: FactKind,
    pub importance: Importance,
    pub pinned: bool,
    pub valid_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// Embeds, writes and indexes a manual fact.
pub async fn write_manual_fact(
    services: &Services,
    scope: &TenantScope,
    fact: ManualFact,
    edit: &Edit,
) -> Result<Fact, ManualEditError> {
    let mut statement = Statement {
        polarity: agreement::polarity_of(&fact.content),
        tense: agreement::tense_of(&fact.content),
        speaker: AUTHOR.to_owned(),
        subject: fact.subject,
        predicate: fact.predicate,
        object: fact.object,
        content: fact.content,
        keywords: fact.keywords,
        kind: fact.kind,
        importance: fact.importance,
        pinned: fact.pinned,
    };
    // An author names the kind. An allergy is pinned as one that a player told.
    if statement.kind == FactKind::Constraint {
        reconcile::boost_if_vital(&mut statement);
    }
    let embedding = embed_text(services, scope, statement.embedded_text()).await?;
    let new_fact = NewFact {
        id: services.ids.next_id(),
        world: fact.world,
        audience: fact.audience,
        locks: DisclosureLocks::default(),
        valid_at: fact.valid_at.unwrap_or_else(|| services.clock.now()),
        expires_at: None,
        cause: Cause::Edit(edit.id),
        source: None,
        derived_from: Vec::new(),
        pii: detect_pii(&statement),
        authored: true,
        embedding,
        statement,
    };
    let settles = is_near_told_fact(services, scope, &new_fact).await?;
    services
        .ledger
        .facts
        .create_fact(scope, &new_fact, settles, edit)
        .await?;
    relay_or_log(services).await;
    let stored_fact = services.ledger.facts.load_fact(scope, new_fact.id).await?;
    stored_fact.ok_or_else(|| StoreError::Rejected(format!("{} was written and is not there", new_fact.id)).into())
}

/// True if a similar fact was told to an NPC that may know the new fact. Contradictions are then found in the
/// background, where a judge may be asked.
async fn is_near_told_fact(services: &Services, scope: &TenantScope, new_fact: &NewFact) -> Result<bool, StoreError> {
    let memory = AudienceMemory {
        services,
        scope,
        world: new_fact.world.clone(),
        audience: new_fact.audience.clone(),
        // Empty, because the memory is only read.
        npcs: Vec::new(),
    };
    let query = NeighbourQuery::for_statement(&new_fact.statement, &new_fact.embedding);
    let mut near_ids = Vec::new();
    let mut index = PlanIndex::Unused { is_complete: true };
    for memories in [
        MemoryScope::Of(&new_fact.audience),
        MemoryScope::Overlapping(&new_fact.audience),
    ] {
        match memory
            .find_similar(&mut index, memories, &query, None, timeline::MAX_NEAREST)
            .await
        {
            Ok(candidates) => near_ids.extend(candidates.iter().map(|candidate| candidate.fact)),
            // The background work finds out after the store is back.
            Err(error) if error.is_transient() => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    let bodies = services.ledger.facts.load_bodies(scope, &near_ids).await?;
    Ok(bodies.iter().any(|body| body.speaker != AUTHOR))
}

pub(super) async fn embed_text(
    services: &Services,
    scope: &TenantScope,
    text: String,
) -> Result<Vec<f32>, ManualEditError> {
    let mut vectors = services.embed_passages(scope, &[text]).await?;
    vectors
        .pop()
        .ok_or_else(|| LlmError::Broken("no vector came back".to_owned()).into())
}
