//! Facts. This file maps rows to values and dispatches each call:
//! - `queries` reads, `confirm` decides which facts recall may use, `names` finds the facts about names;
//! - `reconciliation` inserts and reconciles, `edit` has people's changes, `fold` recomputes the cached results;
//! - `embeddings` finds vectors of other models, `keyword_search` serves recall without an index.

mod confirm;
mod edit;
mod embeddings;
mod fact_replacements;
pub(super) mod fold;
mod keyword_search;
mod names;
mod queries;
pub(super) mod reconciliation;
mod timeline;
mod verdicts;

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Engine, outbox, rows::Columns};
use colloquy_core::{
    ids::{DialogueId, FactId, NpcId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    fact::{
        Audience, EffectiveInvalidation, Fact, FactKind, FoldedFact, Importance, InvalidReason, Invalidation, NewFact,
        Polarity, Statement, Tense, Viewpoint,
    },
    reconcile::JudgeVerdict,
};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::{
        audit::Edit,
        facts::{
            Contradiction, EmbeddingModelCount, FactConfirmation, FactEditOutcome, FactFilter, FactHistoryEntry,
            FactPatch, FactStore, JudgedPair, KeywordFact, MemoryPosition, NamingFact, OutboxRow, RecallBody,
            ReconcileOutcome, Reconciliation, StandingMemory, TimelineRows,
        },
    },
    vectors::IndexPoint,
};

pub(super) struct SqlFactStore(pub(super) Arc<Engine>);

macro_rules! fact_columns {
    () => {
        "f.id, f.world, f.knowers, f.private_to, f.locked_by, f.replaced_by, f.subject, f.predicate, f.object, f.content, f.keywords,
         f.speaker,
         f.kind, f.importance, f.polarity, f.tense, f.pinned, f.view_content, f.view_keywords, f.view_importance,
         f.view_pinned, f.valid_at, f.invalid_at, f.invalid_reason, f.invalid_by, f.expires_at, f.cause_kind,
         f.cause_id, f.source_dialogue, f.source_turn, f.derived_from, f.pii, f.authored, f.version"
    };
}
use fact_columns;

/// Selects a partition's newest facts about names from an index of their own: the facts valid at `$4`, at most `$5`.
/// The knower is in the row `p`.
macro_rules! newest_names {
    ($privacy:expr) => {
        concat!(
            "SELECT k.fact FROM fact_knowers k",
            by_index!("knowers_of_names"),
            " WHERE k.tenant = $1 AND k.world = $2 AND k.knower = ",
            row_key!("p", 0),
            $privacy,
            " AND k.names_subject = TRUE AND k.valid_at <= $4 AND (k.ends_at IS NULL OR k.ends_at > $4)
             ORDER BY k.valid_at DESC, k.fact DESC LIMIT $5"
        )
    };
}
use newest_names;

const fn polarity_name(polarity: Polarity) -> &'static str {
    match polarity {
        Polarity::Positive => "positive",
        Polarity::Negative => "negative",
    }
}

fn parse_polarity(name: &str) -> Option<Polarity> {
    [Polarity::Positive, Polarity::Negative]
        .into_iter()
        .find(|polarity| polarity_name(*polarity) == name)
}

const fn tense_name(tense: Tense) -> &'static str {
    match tense {
        Tense::Past => "past",
        Tense::Present => "present",
        Tense::Future => "future",
    }
}

fn parse_tense(name: &str) -> Option<Tense> {
    [Tense::Past, Tense::Present, Tense::Future]
        .into_iter()
        .find(|tense| tense_name(*tense) == name)
}

fn read_importance(columns: &mut Columns<'_>) -> StoreResult<Importance> {
    let value = columns.number()?;
    Importance::new(value).ok_or_else(|| StoreError::Corrupt(format!("{value} is no importance")))
}

/// Reads the four columns of a view: content, keywords, importance, pinned.
fn read_view(columns: &mut Columns<'_>) -> StoreResult<FoldedFact> {
    Ok(FoldedFact {
        content: columns.next()?,
        keywords: columns.json()?,
        importance: read_importance(columns)?,
        pinned: columns.next()?,
    })
}

/// Reads the three columns of the cached invalidation: time, reason, and causing fact.
fn read_cached_invalidation(columns: &mut Columns<'_>) -> StoreResult<Option<EffectiveInvalidation>> {
    let at = columns.maybe_time()?;
    let reason: Option<&str> = columns.next()?;
    let by = columns.maybe_id()?;
    let Some(at) = at else { return Ok(None) };
    let reason = reason
        .and_then(InvalidReason::parse)
        .ok_or_else(|| StoreError::Corrupt("an invalid fact without a reason".to_owned()))?;
    Ok(Some(EffectiveInvalidation { at, reason, by }))
}

/// Parses fact ids separated by `+`.
fn parse_replaced_by(text: &str) -> StoreResult<Vec<FactId>> {
    let ids = text.split('+').filter(|id| !id.is_empty());
    ids.map(|id| {
        id.parse()
            .map_err(|_| StoreError::Corrupt(format!("`{id}` is no fact")))
    })
    .collect()
}

/// Reads the dialogue and number of the turn from which a fact was learned.
fn read_source(columns: &mut Columns<'_>) -> StoreResult<Option<(DialogueId, u32)>> {
    let dialogue = columns.maybe_id()?;
    let turn: Option<i64> = columns.next()?;
    Ok(dialogue.zip(turn.and_then(|number| u32::try_from(number).ok())))
}

/// Reads the columns of [`fact_columns!`].
fn read_fact(mut columns: Columns<'_>) -> StoreResult<Fact> {
    let columns = &mut columns;
    Ok(Fact {
        id: columns.id()?,
        world: columns.id()?,
        audience: Audience {
            knowers: columns.json()?,
            private_to: columns.maybe_id()?,
        },
        locks: columns.id()?,
        replaced_by: parse_replaced_by(columns.next()?)?,
        statement: Statement {
            subject: columns.next()?,
            predicate: columns.next()?,
            object: columns.next()?,
            content: columns.next()?,
            keywords: columns.json()?,
            speaker: columns.next()?,
            kind: FactKind::parse_lenient(columns.next()?),
            importance: read_importance(columns)?,
            polarity: columns.parse_with(parse_polarity)?,
            tense: columns.parse_with(parse_tense)?,
            pinned: columns.next()?,
        },
        view: read_view(columns)?,
        valid_at: columns.time()?,
        invalid: read_cached_invalidation(columns)?,
        expires_at: columns.maybe_time()?,
        cause: columns.cause()?,
        source: read_source(columns)?,
        derived_from: columns.json()?,
        pii: columns.json()?,
        authored: columns.next()?,
        version: columns.number()?,
    })
}

#[async_trait]
impl FactStore for SqlFactStore {
    async fn confirm_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<FactConfirmation> {
        confirm::confirm_candidates(&self.0, scope.tenant(), viewpoint, ids, at).await
    }
    async fn load_bodies(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<RecallBody>> {
        queries::load_bodies(&self.0, scope.tenant(), ids).await
    }
    async fn load_standing(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        gossip: bool,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<StandingMemory> {
        queries::load_standing(&self.0, scope.tenant(), viewpoint, gossip, at, limit).await
    }

    async fn list_keyword_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<KeywordFact>> {
        keyword_search::load_keyword_facts(&self.0, scope.tenant(), viewpoint, at, limit).await
    }

    async fn list_naming_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<NamingFact>> {
        names::load_naming_facts(&self.0, scope.tenant(), viewpoint, at, limit).await
    }

    async fn memory_position(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> StoreResult<MemoryPosition> {
        queries::load_memory_position(&self.0, scope.tenant(), world, npcs).await
    }
    async fn load_timeline(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        since: DateTime<Utc>,
        ids: &[FactId],
    ) -> StoreResult<TimelineRows> {
        timeline::load_timeline(&self.0, scope.tenant(), world, audience, since, ids).await
    }
    async fn list_forget_requests(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<String>> {
        timeline::load_forget_requests(&self.0, scope.tenant(), dialogue, from, to).await
    }
    async fn load_verdicts(
        &self,
        scope: &TenantScope,
        pairs: &[[u8; 32]],
    ) -> StoreResult<HashMap<[u8; 32], JudgeVerdict>> {
        queries::load_verdicts(&self.0, scope.tenant(), pairs).await
    }
    async fn store_verdicts(&self, scope: &TenantScope, judged: &[JudgedPair]) -> StoreResult<()> {
        verdicts::store_verdicts(&self.0, scope.tenant(), judged).await
    }
    async fn commit_reconciliation(
        &self,
        scope: &TenantScope,
        result: &Reconciliation,
    ) -> StoreResult<ReconcileOutcome> {
        reconciliation::reconcile_memory(&self.0, scope.tenant(), result).await
    }

    async fn create_fact(&self, scope: &TenantScope, fact: &NewFact, settles: bool, edit: &Edit) -> StoreResult<()> {
        edit::create_fact(&self.0, scope.tenant(), fact, settles, edit).await
    }
    async fn load_fact(&self, scope: &TenantScope, id: FactId) -> StoreResult<Option<Fact>> {
        let mut connection = self.0.acquire_reader(scope).await?;
        queries::load_fact(&mut connection, scope.tenant(), id).await
    }
    async fn list_contradictions(
        &self,
        scope: &TenantScope,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<Contradiction>> {
        queries::load_contradictions(&self.0, scope.tenant(), ids, at).await
    }
    async fn list_facts(
        &self,
        scope: &TenantScope,
        filter: &FactFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Fact>> {
        queries::list_facts(&self.0, scope.tenant(), filter, page).await
    }
    async fn edit_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        patch: &FactPatch,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        edit::correct_fact(&self.0, scope.tenant(), id, patch, if_version, edit).await
    }
    async fn remove_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        edit::remove_fact(&self.0, scope.tenant(), id, if_version, edit).await
    }
    async fn restore_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        edit::restore_fact(&self.0, scope.tenant(), id, if_version, edit).await
    }
    async fn load_history(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<FactHistoryEntry>> {
        queries::load_history(&self.0, scope.tenant(), id).await
    }
    async fn list_invalidated_by(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<Invalidation>> {
        queries::load_invalidated_by(&self.0, scope.tenant(), id).await
    }

    async fn load_outbox(&self, limit: u32) -> StoreResult<Vec<OutboxRow>> {
        outbox::load_outbox(&self.0, limit).await
    }
    async fn load_points(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>> {
        outbox::load_points(&self.0, scope.tenant(), ids).await
    }
    async fn mark_outbox_done(&self, seqs: &[i64]) -> StoreResult<()> {
        outbox::delete_outbox_rows(&self.0, seqs).await
    }
    async fn list_all_points(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<IndexPoint>> {
        outbox::load_points_after(&self.0, scope.tenant(), after, limit).await
    }

    async fn list_unembedded(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<(FactId, String)>> {
        embeddings::load_unembedded(&self.0, scope.tenant(), after, limit).await
    }
    async fn store_embeddings(&self, scope: &TenantScope, embeddings: &[(FactId, Vec<f32>)]) -> StoreResult<()> {
        embeddings::store_embeddings(&self.0, scope.tenant(), embeddings).await
    }
    async fn count_by_embedding_model(
        &self,
        scope: &TenantScope,
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<EmbeddingModelCount>> {
        embeddings::count_by_model(&self.0, scope.tenant(), at).await
    }
}
