//! Facts. `read` answers, `confirm` says what recall may use, `write` inserts and reconciles, `edit` is what people do, `fold`
//! recomputes the cached results, `embeddings` finds vectors of other models, `worded` is recall without an index, `names` says who is who. This file maps rows to values and hands each call on.

mod confirm;
mod edit;
mod embeddings;
pub(super) mod fold;
mod names;
mod read;
mod replaced;
mod timeline;
mod verdicts;
mod worded;
pub(super) mod write;

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Engine, outbox, rows::Columns};
use crate::{
    ids::{DialogueId, FactId, NpcId, WorldId},
    memory::{
        fact::{
            Audience, Fact, FactKind, FactView, Importance, Invalid, InvalidReason, Invalidation, NewFact, Polarity,
            Statement, Tense, Viewpoint,
        },
        reconcile::Verdict,
    },
    ports::{
        Page, PageRequest, StoreError, StoreResult,
        ledger::{
            audit::Edit,
            facts::{
                Confirmation, Contradiction, EmbeddedBy, FactEdit, FactFilter, FactHistoryEntry, FactPatch, FactStore,
                JudgedPair, MemoryPosition, NamingFact, OutboxRow, RecallBody, ReconcileOutcome, Reconciliation,
                Standing, TimelineRows, Worded,
            },
        },
        vectors::IndexPoint,
    },
    tenancy::TenantScope,
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

/// Of a knower in the row `p`, the newest facts that say who is who, off an index of their own. At `$4`, `$5` at most.
macro_rules! newest_names {
    ($privacy:expr) => {
        concat!(
            "SELECT k.fact FROM fact_knowers k",
            by_index!("knowers_of_names"),
            " WHERE k.tenant = $1 AND k.world = $2 AND k.knower = ",
            key_of!("p", 0),
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

fn polarity_named(name: &str) -> Option<Polarity> {
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

fn tense_named(name: &str) -> Option<Tense> {
    [Tense::Past, Tense::Present, Tense::Future]
        .into_iter()
        .find(|tense| tense_name(*tense) == name)
}

fn importance(columns: &mut Columns<'_>) -> StoreResult<Importance> {
    let value = columns.number()?;
    Importance::new(value).ok_or_else(|| StoreError::Corrupt(format!("{value} is no importance")))
}

/// Content, keywords, importance, pinned: four columns of a view.
fn view(columns: &mut Columns<'_>) -> StoreResult<FactView> {
    Ok(FactView {
        content: columns.next()?,
        keywords: columns.json()?,
        importance: importance(columns)?,
        pinned: columns.next()?,
    })
}

/// When, why and by what: three columns of the cached invalidation.
fn invalid(columns: &mut Columns<'_>) -> StoreResult<Option<Invalid>> {
    let at = columns.maybe_time()?;
    let reason: Option<&str> = columns.next()?;
    let by = columns.maybe_id()?;
    let Some(at) = at else { return Ok(None) };
    let reason = reason
        .and_then(InvalidReason::parse)
        .ok_or_else(|| StoreError::Corrupt("an invalid fact without a reason".to_owned()))?;
    Ok(Some(Invalid { at, reason, by }))
}

/// Ids of facts with `+` between them.
fn replacing(text: &str) -> StoreResult<Vec<FactId>> {
    let ids = text.split('+').filter(|id| !id.is_empty());
    ids.map(|id| {
        id.parse()
            .map_err(|_| StoreError::Corrupt(format!("`{id}` is no fact")))
    })
    .collect()
}

/// The dialogue and the number of the turn that a fact was learned from.
fn source(columns: &mut Columns<'_>) -> StoreResult<Option<(DialogueId, u32)>> {
    let dialogue = columns.maybe_id()?;
    let turn: Option<i64> = columns.next()?;
    Ok(dialogue.zip(turn.and_then(|number| u32::try_from(number).ok())))
}

/// The columns of [`fact_columns!`].
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
        replaced_by: replacing(columns.next()?)?,
        statement: Statement {
            subject: columns.next()?,
            predicate: columns.next()?,
            object: columns.next()?,
            content: columns.next()?,
            keywords: columns.json()?,
            speaker: columns.next()?,
            kind: FactKind::parse_lenient(columns.next()?),
            importance: importance(columns)?,
            polarity: columns.named(polarity_named)?,
            tense: columns.named(tense_named)?,
            pinned: columns.next()?,
        },
        view: view(columns)?,
        valid_at: columns.time()?,
        invalid: invalid(columns)?,
        expires_at: columns.maybe_time()?,
        cause: columns.cause()?,
        source: source(columns)?,
        derived_from: columns.json()?,
        pii: columns.json()?,
        authored: columns.next()?,
        version: columns.number()?,
    })
}

#[async_trait]
impl FactStore for SqlFactStore {
    async fn confirm(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<Confirmation> {
        confirm::confirm(&self.0, scope.tenant(), viewpoint, ids, at).await
    }
    async fn bodies(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<RecallBody>> {
        read::bodies(&self.0, scope.tenant(), ids).await
    }
    async fn standing(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        gossip: bool,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Standing> {
        read::standing(&self.0, scope.tenant(), viewpoint, gossip, at, limit).await
    }

    async fn worded(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Worded>> {
        worded::worded(&self.0, scope.tenant(), viewpoint, at, limit).await
    }

    async fn names(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<NamingFact>> {
        names::names(&self.0, scope.tenant(), viewpoint, at, limit).await
    }

    async fn memory_position(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> StoreResult<MemoryPosition> {
        read::memory_position(&self.0, scope.tenant(), world, npcs).await
    }
    async fn timeline(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        since: DateTime<Utc>,
        ids: &[FactId],
    ) -> StoreResult<TimelineRows> {
        timeline::timeline(&self.0, scope.tenant(), world, audience, since, ids).await
    }
    async fn asked_to_forget(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<String>> {
        timeline::asked_to_forget(&self.0, scope.tenant(), dialogue, from, to).await
    }
    async fn verdicts(&self, scope: &TenantScope, pairs: &[[u8; 32]]) -> StoreResult<HashMap<[u8; 32], Verdict>> {
        read::verdicts(&self.0, scope.tenant(), pairs).await
    }
    async fn keep_verdicts(&self, scope: &TenantScope, judged: &[JudgedPair]) -> StoreResult<()> {
        verdicts::keep_verdicts(&self.0, scope.tenant(), judged).await
    }
    async fn reconcile(&self, scope: &TenantScope, result: &Reconciliation) -> StoreResult<ReconcileOutcome> {
        write::reconcile(&self.0, scope.tenant(), result).await
    }

    async fn create(&self, scope: &TenantScope, fact: &NewFact, settles: bool, edit: &Edit) -> StoreResult<()> {
        edit::create(&self.0, scope.tenant(), fact, settles, edit).await
    }
    async fn get(&self, scope: &TenantScope, id: FactId) -> StoreResult<Option<Fact>> {
        let mut connection = self.0.read(scope).await?;
        read::one(&mut connection, scope.tenant(), id).await
    }
    async fn contradictions(
        &self,
        scope: &TenantScope,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<Contradiction>> {
        read::contradictions(&self.0, scope.tenant(), ids, at).await
    }
    async fn list(&self, scope: &TenantScope, filter: &FactFilter, page: &PageRequest) -> StoreResult<Page<Fact>> {
        read::list(&self.0, scope.tenant(), filter, page).await
    }
    async fn edit(
        &self,
        scope: &TenantScope,
        id: FactId,
        patch: &FactPatch,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEdit> {
        edit::correct(&self.0, scope.tenant(), id, patch, if_version, edit).await
    }
    async fn remove(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEdit> {
        edit::remove(&self.0, scope.tenant(), id, if_version, edit).await
    }
    async fn restore(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEdit> {
        edit::restore(&self.0, scope.tenant(), id, if_version, edit).await
    }
    async fn history(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<FactHistoryEntry>> {
        read::history(&self.0, scope.tenant(), id).await
    }
    async fn invalidated_by(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<Invalidation>> {
        read::invalidated_by(&self.0, scope.tenant(), id).await
    }

    async fn outbox(&self, limit: u32) -> StoreResult<Vec<OutboxRow>> {
        outbox::waiting(&self.0, limit).await
    }
    async fn points(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>> {
        outbox::points(&self.0, scope.tenant(), ids).await
    }
    async fn outbox_done(&self, seqs: &[i64]) -> StoreResult<()> {
        outbox::done(&self.0, seqs).await
    }
    async fn all_points(&self, scope: &TenantScope, after: Option<FactId>, limit: u32) -> StoreResult<Vec<IndexPoint>> {
        outbox::all_points(&self.0, scope.tenant(), after, limit).await
    }

    async fn unembedded(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<(FactId, String)>> {
        embeddings::missing(&self.0, scope.tenant(), after, limit).await
    }
    async fn put_embeddings(&self, scope: &TenantScope, embeddings: &[(FactId, Vec<f32>)]) -> StoreResult<()> {
        embeddings::put(&self.0, scope.tenant(), embeddings).await
    }
    async fn embedded_by(&self, scope: &TenantScope, at: DateTime<Utc>) -> StoreResult<Vec<EmbeddedBy>> {
        embeddings::by_model(&self.0, scope.tenant(), at).await
    }
}
