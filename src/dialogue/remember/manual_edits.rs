//! Manual edits: facts that people write and correct over REST.

use super::{reconciliation::AudienceMemory, timeline_reading::NeighbourQuery};
use crate::{Services, jobs::outbox::relay_or_log};
use colloquy_core::{
    ids::{FactId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    agreement,
    fact::{Audience, Cause, Fact, FactKind, Importance, NewFact, Statement, embedded_text},
    locks::DisclosureLocks,
    party::AUTHOR,
    timeline,
};
use colloquy_ports::{
    StoreError,
    ledger::{
        audit::Edit,
        facts::{FactEditOutcome, FactHistoryEntry, FactPatch},
    },
    llm::LlmError,
    vectors::MemoryScope,
};

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

/// A person's correction of a fact. Unset fields stay unchanged.
#[derive(Debug, Clone, Default)]
pub struct FactCorrection {
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub importance: Option<Importance>,
    pub pinned: Option<bool>,
}

/// The reason why a manual fact was not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ManualEditError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Without an embedding, recall could not find the fact.
    #[error("the embedder failed: {0}")]
    Embedder(#[from] LlmError),
}

/// The maximum number of reads for one correction, while others write to the fact.
const MAX_CORRECTION_READS: usize = 8;

/// Embeds, writes and indexes a manual fact.
pub async fn write_manual_fact(
    services: &Services,
    scope: &TenantScope,
    fact: ManualFact,
    edit: &Edit,
) -> Result<Fact, ManualEditError> {
    let statement = Statement {
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
    let embedding = embed_text(services, scope, statement.embedded_text()).await?;
    let new = NewFact {
        id: services.ids.next_id(),
        world: fact.world,
        audience: fact.audience,
        locks: DisclosureLocks::default(),
        valid_at: fact.valid_at.unwrap_or_else(|| services.clock.now()),
        expires_at: None,
        cause: Cause::Edit(edit.id),
        source: None,
        derived_from: Vec::new(),
        pii: super::extraction::detect_pii(&statement),
        authored: true,
        embedding,
        statement,
    };
    let settles = is_near_told_fact(services, scope, &new).await?;
    services.ledger.facts.create_fact(scope, &new, settles, edit).await?;
    relay_or_log(services).await;
    let written = services.ledger.facts.load_fact(scope, new.id).await?;
    written.ok_or_else(|| StoreError::Rejected(format!("{} was written and is not there", new.id)).into())
}

/// True if a similar fact was told to an NPC that may know the new fact. Contradictions are then found in the
/// background, where a judge may be asked.
async fn is_near_told_fact(services: &Services, scope: &TenantScope, new: &NewFact) -> Result<bool, StoreError> {
    let memory = AudienceMemory {
        services,
        scope,
        world: new.world.clone(),
        audience: new.audience.clone(),
        // Empty, because the memory is only read.
        npcs: Vec::new(),
    };
    let sought = NeighbourQuery::for_statement(&new.statement, &new.embedding);
    let mut near = Vec::new();
    for memories in [MemoryScope::Of(&new.audience), MemoryScope::Overlapping(&new.audience)] {
        match memory
            .find_similar(memories, &sought, None, timeline::MAX_NEAREST)
            .await
        {
            Ok(found) => near.extend(found.iter().map(|found| found.fact)),
            // The background work finds out after the store is back.
            Err(error) if error.is_transient() => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    let bodies = services.ledger.facts.load_bodies(scope, &near).await?;
    Ok(bodies.iter().any(|body| body.speaker != AUTHOR))
}

/// Corrects a fact, and embeds it again if its text changes. Without `if_version`, concurrent edits stay, and the
/// correction applies on top of them.
pub async fn correct_fact(
    services: &Services,
    scope: &TenantScope,
    id: FactId,
    correction: FactCorrection,
    if_version: Option<u32>,
    edit: &Edit,
) -> Result<FactEditOutcome, ManualEditError> {
    for _ in 1..MAX_CORRECTION_READS {
        let outcome = correct_once(services, scope, id, &correction, if_version, edit).await?;
        let overtaken = if_version.is_none() && matches!(outcome, FactEditOutcome::VersionMismatch { .. });
        if !overtaken {
            return Ok(outcome);
        }
    }
    correct_once(services, scope, id, &correction, if_version, edit).await
}

/// Corrects a fact, unless another writer changes the fact between the read and the write.
async fn correct_once(
    services: &Services,
    scope: &TenantScope,
    id: FactId,
    correction: &FactCorrection,
    if_version: Option<u32>,
    edit: &Edit,
) -> Result<FactEditOutcome, ManualEditError> {
    let facts = &services.ledger.facts;
    let mut patch = FactPatch {
        content: correction.content.clone(),
        keywords: correction.keywords.clone(),
        importance: correction.importance,
        pinned: correction.pinned,
        embedding: None,
    };
    let mut expected = if_version;
    if correction.content.is_some() || correction.keywords.is_some() {
        let Some(fact) = facts.load_fact(scope, id).await? else {
            return Ok(FactEditOutcome::NotFound);
        };
        let own = own_text_of(services, scope, &fact).await?;
        let content = correction.content.as_ref().unwrap_or(&own.0);
        let keywords = correction.keywords.as_ref().unwrap_or(&own.1);
        if (content, keywords) != (&own.0, &own.1) {
            patch.embedding = Some(embed_text(services, scope, embedded_text(content, keywords)).await?);
        }
        // The embedding decision belongs to the text as read. If another writer changes the text, the ledger must
        // refuse.
        expected.get_or_insert(fact.version);
    }
    let outcome = facts.edit_fact(scope, id, &patch, expected, edit).await?;
    if matches!(outcome, FactEditOutcome::Done(_)) {
        relay_or_log(services).await;
    }
    Ok(outcome)
}

/// Returns the fact's own sentence and keywords: from its statement, or from a person's edits. Texts merged from
/// duplicates do not count, because a duplicate may be unsaid while the vector stays.
async fn own_text_of(
    services: &Services,
    scope: &TenantScope,
    fact: &Fact,
) -> Result<(String, Vec<String>), StoreError> {
    let history = services.ledger.facts.load_history(scope, fact.id).await?;
    let edited = |field: &str| {
        history.iter().rev().find_map(|entry| match entry {
            FactHistoryEntry::Edited { patch, .. } => patch.get(field).cloned(),
            _ => None,
        })
    };
    let content = edited("content").and_then(|value| serde_json::from_value(value).ok());
    let keywords = edited("keywords").and_then(|value| serde_json::from_value(value).ok());
    Ok((
        content.unwrap_or_else(|| fact.statement.content.clone()),
        keywords.unwrap_or_else(|| fact.statement.keywords.clone()),
    ))
}

async fn embed_text(services: &Services, scope: &TenantScope, text: String) -> Result<Vec<f32>, ManualEditError> {
    let mut vectors = services.embed_passages(scope, &[text]).await?;
    vectors
        .pop()
        .ok_or_else(|| LlmError::Broken("no vector came back".to_owned()).into())
}
