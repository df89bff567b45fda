//! The cached results of a fact: its view and its earliest standing invalidation.
//!
//! A transaction that writes or lifts an invalidation, or edits a fact, must refresh the affected facts here. A changed
//! fact gets a new version and an outbox row, and a duplicate's change propagates to the fact that absorbed the
//! duplicate.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Deserialize;
use serde_json::json;

use super::super::{
    context::Connection,
    rows::{Columns, from_micros, json_list, to_micros},
    statements::{execute, fetch_all},
};
use super::{StoredWording, read_cached_invalidation, read_view};
use colloquy_core::{
    ids::{FactId, TenantId},
    planted_leak,
};
use colloquy_memory::{
    consolidation::{lowered_importance, sentence_hash},
    disclosure::audience::Knower,
    fact::{EffectiveInvalidation, FoldedFact, Importance, InvalidReason},
    reconcile,
};
use colloquy_ports::{StoreError, StoreResult};

/// Selects the inputs of a fold, a row per fact: the statement and the cached results. JSON columns hold the standing
/// invalidations, the edits, the duplicates folded into the fact, the fact's premises, and its conclusions. Premises and
/// conclusions are looked up as values: in a join, Postgres would read all facts.
const SELECT_FOLD_INPUTS: &str = concat!(
    "SELECT f.id, f.content, f.keywords, f.importance, f.pinned,
        f.view_content, f.view_keywords, f.view_importance, f.view_pinned,
        f.invalid_at, f.invalid_reason, f.invalid_by, f.expires_at, f.valid_at, f.authored,
        (SELECT ",
    json_rows!(
        "'at', i.at, 'id', i.id, 'reason', i.reason, 'by', i.by_fact,
         'corrected', CASE WHEN i.reason = 'superseded' AND EXISTS (SELECT 1 FROM facts n
            WHERE n.tenant = i.tenant AND n.id = i.by_fact AND (n.authored = TRUE OR n.corrects = i.fact)) THEN 'yes' END"
    ),
    "
           FROM invalidations i WHERE i.tenant = f.tenant AND i.fact = f.id AND i.lifted_at IS NULL),
        (SELECT ",
    json_rows!(concat!("'at', e.at, 'id', e.edit, 'patch', ", json_of!("e.patch"))),
    "
           FROM fact_edits e WHERE e.tenant = f.tenant AND e.fact = f.id),
        (SELECT ",
    json_rows!(concat!(
        "'at', i.at, 'fact', d.id, 'valid_at', d.valid_at, 'content', d.view_content, 'keywords', ",
        json_of!("d.view_keywords"),
        ", 'importance', d.view_importance, 'pinned', ",
        json_flag!("d.view_pinned")
    )),
    "
           FROM invalidations i JOIN facts d ON d.tenant = i.tenant AND d.id = i.fact
           WHERE i.tenant = f.tenant AND i.by_fact = f.id AND i.reason = 'duplicate' AND i.lifted_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM invalidations u WHERE u.tenant = d.tenant AND u.fact = d.id
                             AND u.reason = 'unsaid' AND u.lifted_at IS NULL)),
        (SELECT ",
    json_rows!(
        "'fact', l.premise, 'sentence', l.sentence,
         'content', (SELECT p.view_content FROM facts p WHERE p.tenant = l.tenant AND p.id = l.premise),
         'invalid_at', (SELECT q.invalid_at FROM facts q WHERE q.tenant = l.tenant AND q.id = l.premise),
         'edited_at', (SELECT MAX(h.at) FROM fact_edits h WHERE h.tenant = l.tenant AND h.fact = l.premise)"
    ),
    "
           FROM fact_premises l WHERE l.tenant = f.tenant AND l.conclusion = f.id),
        (SELECT ",
    json_rows!(
        "'fact', m.conclusion, 'beside', m.beside, 'stands', CASE WHEN EXISTS (SELECT 1 FROM facts c
            WHERE c.tenant = m.tenant AND c.id = m.conclusion AND c.invalid_at IS NULL) THEN 'yes' END"
    ),
    "
           FROM fact_premises m",
    by_index!("fact_premises_of_fact"),
    " WHERE m.tenant = f.tenant AND m.premise = f.id),
        f.knowers,
        (SELECT MAX(k.taken_out_at) FROM fact_knowers k WHERE k.tenant = f.tenant AND k.fact = f.id)
    FROM facts f WHERE f.tenant = $1 AND f.id ",
    in_json_list!("$2")
);

/// The `IN` repeats the join condition: without the repetition SQLite's planner walks the tenant's facts.
const STORE_VIEWS: &str = batch!(
    concat!(
        "UPDATE facts SET view_content = v.value ->> 1, view_keywords = v.value ->> 2,
            view_importance = CAST(v.value ->> 3 AS BIGINT), view_pinned = (v.value ->> 4 = 'yes'),
            invalid_at = CAST(v.value ->> 5 AS BIGINT), invalid_reason = v.value ->> 6, invalid_by = v.value ->> 7,
            earlier_wordings = v.value ->> 10, version = version + 1
         FROM ",
        json_arrays_table!("$2"),
        " v WHERE facts.tenant = $1 AND facts.id = ",
        row_key!("v", 0),
        " AND facts.id IN (SELECT ",
        row_key!("w", 0),
        " FROM ",
        json_arrays_table!("$2"),
        " w)"
    ),
    concat!(
        "UPDATE fact_knowers SET importance = CAST(v.value ->> 3 AS BIGINT), pinned = (v.value ->> 4 = 'yes'),
            ends_at = CAST(v.value ->> 8 AS BIGINT), taken_out_at = CAST(v.value ->> 9 AS BIGINT),
            promise_over = COALESCE(v.value ->> 6 IN ('fulfilled', 'given_up', 'overdue'), FALSE),
            version = version + 1
         FROM ",
        json_arrays_table!("$2"),
        " v WHERE fact_knowers.tenant = $1 AND fact_knowers.fact = ",
        row_key!("v", 0),
        " AND fact_knowers.fact IN (SELECT ",
        row_key!("w", 0),
        " FROM ",
        json_arrays_table!("$2"),
        " w)"
    ),
    concat!(
        "INSERT INTO outbox (tenant, fact) SELECT $1, v.value ->> 0 FROM ",
        json_arrays_table!("$2"),
        " v"
    )
);

/// The limit of fold rounds. Chains of duplicates are a few facts long; a longer chain can only be a ring.
const MAX_FOLD_ROUNDS: usize = 1_000;

#[derive(Deserialize)]
struct StandingInvalidation {
    #[serde(rename = "at")]
    ended_at: i64,
    id: String,
    reason: String,
    #[serde(rename = "by")]
    ended_by: Option<String>,
    /// Set if the causing fact corrects this fact, or if an author wrote it.
    corrected: Option<String>,
}

/// A person's correction.
#[derive(Deserialize)]
pub(super) struct ViewEditRow {
    #[serde(rename = "at")]
    edited_at: i64,
    id: String,
    patch: ViewPatch,
}

/// The part of a person's correction that shows in the view.
#[derive(Default, Deserialize)]
struct ViewPatch {
    content: Option<String>,
    keywords: Option<Vec<String>>,
    importance: Option<Importance>,
    pinned: Option<bool>,
}

#[derive(Deserialize)]
struct FoldedDuplicate {
    #[serde(rename = "at")]
    ended_at: i64,
    fact: FactId,
    valid_at: i64,
    #[serde(flatten)]
    view: FoldedFact,
}

/// A fact that the model has read for the conclusion.
#[derive(Deserialize)]
struct Premise {
    fact: FactId,
    /// The hash of the sentence that was read.
    sentence: String,
    /// The present sentence; `None`: the premise was deleted.
    content: Option<String>,
    invalid_at: Option<i64>,
    /// When a person edited the premise last.
    edited_at: Option<i64>,
}

/// A fact for whose conclusion the model has read the fact.
#[derive(Deserialize)]
struct Conclusion {
    fact: FactId,
    /// 1: the conclusion does not stand for the fact.
    #[serde(rename = "beside")]
    is_context: u8,
    /// `None`: the conclusion has ended.
    stands: Option<String>,
}

struct FoldInput {
    id: FactId,
    base: FoldedFact,
    cached_view: FoldedFact,
    cached_invalid: Option<EffectiveInvalidation>,
    cached_taken_out: Option<i64>,
    expires_at: Option<i64>,
    valid_at: i64,
    authored: bool,
    standing: Vec<StandingInvalidation>,
    edits: Vec<ViewEditRow>,
    duplicates: Vec<FoldedDuplicate>,
    premises: Vec<Premise>,
    conclusions: Vec<Conclusion>,
    knowers: BTreeSet<Knower>,
}

impl FoldInput {
    /// Returns when and by which premise the fact has fallen: the earliest end of a premise, or the edit after which a premise
    /// says something else. A premise that was deleted has never been one.
    fn fallen_premise(&self) -> Option<(i64, FactId)> {
        let ends = self.premises.iter().filter_map(|premise| {
            let says_the_same = premise.content.as_deref().map(sentence_hash) == Some(premise.sentence.clone());
            let invalid_at = match premise.invalid_at {
                Some(invalid_at) => invalid_at,
                None if says_the_same => return None,
                None => premise.edited_at.unwrap_or(self.valid_at),
            };
            Some((invalid_at.max(self.valid_at), premise.fact))
        });
        ends.min()
    }

    /// The later changes of the view, in order. Duplicates that ended at the same time are sorted by when they were
    /// said, because the order of learning is random.
    fn view_events(&self) -> impl Iterator<Item = ViewEvent<'_>> {
        let edits = self.edits.iter().map(|edit| {
            let order = (edit.edited_at, edit.edited_at, edit.id.clone());
            (order, ViewEvent::Edit(edit.edited_at, &edit.patch))
        });
        let duplicates = self.duplicates.iter().map(|duplicate| {
            let order = (duplicate.ended_at, duplicate.valid_at, duplicate.fact.to_string());
            (order, ViewEvent::Duplicate(duplicate))
        });
        let mut events: Vec<_> = edits.chain(duplicates).collect();
        events.sort_by(|(a, _), (b, _)| a.cmp(b));
        events.into_iter().map(|(_, event)| event)
    }

    /// True if a conclusion stands for the fact, and no person has set the fact's importance.
    fn is_concluded(&self) -> bool {
        self.conclusions
            .iter()
            .any(|conclusion| conclusion.is_context == 0 && conclusion.stands.is_some())
            && self.edits.iter().all(|edit| edit.patch.importance.is_none())
    }

    /// The facts whose view or end depends on the end of this fact.
    fn dependents(&self) -> impl Iterator<Item = FactId> + '_ {
        let premises = self.premises.iter().map(|premise| premise.fact);
        premises.chain(self.conclusions.iter().map(|conclusion| conclusion.fact))
    }
}

/// The outcome of a refresh.
#[derive(Default)]
pub(in super::super) struct FoldOutcome {
    /// Facts that had no invalidation before.
    pub valid_before: BTreeSet<FactId>,
    /// Facts that have no invalidation now.
    pub valid_after: BTreeSet<FactId>,
    /// All knowers of the refreshed facts.
    pub knowers: BTreeSet<Knower>,
}

fn read_fold_input(columns: &mut Columns<'_>) -> StoreResult<FoldInput> {
    Ok(FoldInput {
        id: columns.id()?,
        base: read_view(columns)?,
        cached_view: read_view(columns)?,
        cached_invalid: read_cached_invalidation(columns)?,
        expires_at: columns.next()?,
        valid_at: columns.next()?,
        authored: columns.next()?,
        standing: columns.json()?,
        edits: columns.json()?,
        duplicates: columns.json()?,
        premises: columns.json()?,
        conclusions: columns.json()?,
        knowers: columns.json()?,
        cached_taken_out: columns.next()?,
    })
}

/// Recomputes `facts` and all facts that their changes reach.
pub(in super::super) async fn refresh_views(
    connection: &mut Connection,
    tenant: &TenantId,
    facts: BTreeSet<FactId>,
) -> StoreResult<FoldOutcome> {
    let mut folded = FoldOutcome::default();
    let mut round = facts;
    for nth in 0..MAX_FOLD_ROUNDS {
        if round.is_empty() {
            return Ok(folded);
        }
        let (outcome, reached) = refresh_views_once(connection, tenant, &round).await?;
        if nth == 0 {
            folded = outcome;
        }
        round = reached;
    }
    Err(StoreError::Corrupt(
        "facts that are duplicates of each other in a ring".to_owned(),
    ))
}

/// Refreshes `facts` once; also returns the facts that absorbed a changed fact.
async fn refresh_views_once(
    connection: &mut Connection,
    tenant: &TenantId,
    facts: &BTreeSet<FactId>,
) -> StoreResult<(FoldOutcome, BTreeSet<FactId>)> {
    let rows = fetch_all!(connection, SELECT_FOLD_INPUTS; tenant, json_list(facts)).await?;
    let materials = Columns::read_rows(&rows, read_fold_input)?;
    let materials: HashMap<_, _> = materials.into_iter().map(|material| (material.id, material)).collect();

    let mut computed = ComputedViews::default();
    for id in facts {
        compute_view(*id, &materials, &mut computed, &mut HashSet::new());
    }
    let mut changed = Vec::new();
    let mut folded = FoldOutcome::default();
    let mut reached = BTreeSet::new();
    for (id, view) in &computed.views {
        let Some(material) = materials.get(id) else { continue };
        let invalid = earliest_end(material)?;
        folded
            .valid_before
            .extend(material.cached_invalid.is_none().then_some(*id));
        folded.valid_after.extend(invalid.is_none().then_some(*id));
        folded.knowers.extend(material.knowers.iter().cloned());
        let view_changed = *view != material.cached_view;
        let wordings = computed.wordings.get(id).map_or(&[][..], Vec::as_slice);
        let taken_out_at = taken_out_at(material, invalid.as_ref(), &view.content, wordings);
        if !view_changed && invalid == material.cached_invalid && taken_out_at == material.cached_taken_out {
            continue;
        }
        let expires_at = material
            .expires_at
            .filter(|_| !view.pinned || !material.premises.is_empty());
        changed.push(view_row(
            *id,
            view,
            invalid.as_ref(),
            expires_at,
            wordings,
            taken_out_at,
        )?);
        if view_changed {
            reached.extend(folded_into(material).filter(|parent| !facts.contains(parent)));
        }
        if view.content != material.cached_view.content || invalid != material.cached_invalid {
            reached.extend(material.dependents());
        }
    }
    if !changed.is_empty() {
        execute!(connection, STORE_VIEWS; tenant, serde_json::Value::from(changed).to_string()).await?;
    }
    Ok((folded, reached))
}

fn view_row(
    id: FactId,
    view: &FoldedFact,
    invalid: Option<&EffectiveInvalidation>,
    expires_at: Option<i64>,
    wordings: &[StoredWording],
    taken_out_at: Option<i64>,
) -> StoreResult<serde_json::Value> {
    let invalid_at = invalid.map(|invalid| to_micros(invalid.ended_at));
    let ends_at = [invalid_at, expires_at].into_iter().flatten().min();
    Ok(json!([
        id,
        view.content,
        // A text, not an array: the column holds JSON.
        super::super::rows::to_json(&view.keywords)?,
        view.importance,
        if view.pinned { "yes" } else { "no" },
        invalid_at,
        invalid.map(|invalid| invalid.reason.as_str()),
        invalid.and_then(|invalid| invalid.ended_by),
        ends_at,
        taken_out_at,
        super::super::rows::to_json(wordings)?,
    ]))
}

/// Returns when words of the fact ceased to hold last: when the fact was taken out of memory, or when a person replaced
/// a sentence other than the present `content`. `None`: never. What people did to a fact whose turn does not stand
/// concerns no later line: the line may be said again. A request to forget stays.
fn taken_out_at(
    material: &FoldInput,
    invalid: Option<&EffectiveInvalidation>,
    content: &str,
    wordings: &[StoredWording],
) -> Option<i64> {
    let is_said = !material
        .standing
        .iter()
        .any(|end| end.reason == InvalidReason::Unsaid.as_str());
    let is_taken_out = |invalid: &&EffectiveInvalidation| match invalid.reason {
        InvalidReason::Forgotten => true,
        InvalidReason::Removed => is_said,
        InvalidReason::Superseded if is_said => {
            let successor = invalid.ended_by.map(|successor| successor.to_string());
            let mut ends = material.standing.iter();
            ends.any(|end| end.corrected.is_some() && end.ended_by == successor)
        }
        _ => false,
    };
    let taken_out = invalid.filter(is_taken_out).map(|invalid| to_micros(invalid.ended_at));
    // A person may restore an earlier sentence.
    let mut replaced = wordings.iter().rev().filter(|wording| wording.0 != content);
    taken_out.max(replaced.next().filter(|_| is_said).map(|wording| wording.1))
}

/// Returns the facts of which the fact is a standing duplicate.
fn folded_into(material: &FoldInput) -> impl Iterator<Item = FactId> + '_ {
    material
        .standing
        .iter()
        .filter(|invalidation| invalidation.reason == InvalidReason::Duplicate.as_str())
        .filter_map(|invalidation| invalidation.ended_by.as_deref()?.parse().ok())
}

/// Returns the first reason why the fact ended: an invalidation, or the end of a premise.
fn earliest_end(material: &FoldInput) -> StoreResult<Option<EffectiveInvalidation>> {
    let stored = earliest_invalidation(&material.standing)?;
    let Some((ended_at, premise)) = material.fallen_premise() else {
        return Ok(stored);
    };
    let ended_at = from_micros(ended_at)?;
    Ok(Some(stored.filter(|stored| stored.ended_at <= ended_at).unwrap_or(
        EffectiveInvalidation {
            ended_at,
            reason: InvalidReason::PremiseGone,
            ended_by: Some(premise),
        },
    )))
}

/// Returns the first invalidation. The write order is random, so reasons of the same moment are sorted by
/// the causing fact. A request to forget comes last.
fn earliest_invalidation(invalidations: &[StandingInvalidation]) -> StoreResult<Option<EffectiveInvalidation>> {
    let Some(first) = invalidations
        .iter()
        .filter(|row| !(planted_leak!("facts.unsaid") && row.reason == InvalidReason::Unsaid.as_str()))
        .min_by_key(|row| (row.ended_at, row.ended_by.is_none(), &row.ended_by, &row.id))
    else {
        return Ok(None);
    };
    let corrupt = || StoreError::Corrupt(format!("the invalidation {} cannot be read", first.id));
    Ok(Some(EffectiveInvalidation {
        ended_at: chrono::DateTime::from_timestamp_micros(first.ended_at).ok_or_else(corrupt)?,
        reason: InvalidReason::parse(&first.reason).ok_or_else(corrupt)?,
        ended_by: match &first.ended_by {
            Some(ended_by) => Some(ended_by.parse().map_err(|_| corrupt())?),
            None => None,
        },
    }))
}

/// Applies people's edits to a statement, without the duplicates folded into it.
pub(super) fn apply_edits(mut statement: FoldedFact, mut edits: Vec<ViewEditRow>) -> FoldedFact {
    edits.sort_by(|a, b| (a.edited_at, &a.id).cmp(&(b.edited_at, &b.id)));
    for edit in &edits {
        apply_patch(&mut statement, &edit.patch);
    }
    statement
}

/// A later change of a view.
enum ViewEvent<'m> {
    /// With its time.
    Edit(i64, &'m ViewPatch),
    Duplicate(&'m FoldedDuplicate),
}

/// The views of facts, and the sentences that edits have replaced.
#[derive(Default)]
struct ComputedViews {
    views: HashMap<FactId, FoldedFact>,
    wordings: HashMap<FactId, Vec<StoredWording>>,
}

/// Computes the view of a fact: the statement, then its edits and duplicates in the order of their times. An edit
/// replaces the values that it sets. Newer wording wins, by when the statement was said and not by when the row was
/// written. In a protected fact, only a person's edit changes the wording.
fn compute_view(
    id: FactId,
    materials: &HashMap<FactId, FoldInput>,
    computed: &mut ComputedViews,
    visiting: &mut HashSet<FactId>,
) -> Option<FoldedFact> {
    if let Some(view) = computed.views.get(&id) {
        return Some(view.clone());
    }
    let material = materials.get(&id)?;
    if !visiting.insert(id) {
        // In a ring, the cached view is as good as any.
        return Some(material.cached_view.clone());
    }
    let mut view = material.base.clone();
    let mut replaced = Vec::new();
    let mut wording_order = (material.valid_at, id);
    for event in material.view_events() {
        match event {
            ViewEvent::Edit(edited_at, edit) => {
                let before = view.content.clone();
                apply_patch(&mut view, edit);
                if view.content != before {
                    replaced.push(StoredWording(before, edited_at));
                }
            }
            ViewEvent::Duplicate(duplicate) => {
                let other = compute_view(duplicate.fact, materials, computed, visiting)
                    .unwrap_or_else(|| duplicate.view.clone());
                let duplicate_order = (duplicate.valid_at, duplicate.fact);
                if duplicate_order < wording_order {
                    view = reconcile::fold_duplicates(&other, &[view]);
                    continue;
                }
                let mut folded = reconcile::fold_duplicates(&view, &[other]);
                if material.authored || view.pinned {
                    folded.content = view.content;
                } else {
                    wording_order = duplicate_order;
                }
                view = folded;
            }
        }
    }
    if material.is_concluded() {
        view.importance = lowered_importance(view.importance);
    }
    computed.wordings.insert(id, replaced);
    visiting.remove(&id);
    computed.views.insert(id, view.clone());
    Some(view)
}

fn apply_patch(view: &mut FoldedFact, patch: &ViewPatch) {
    if let Some(content) = &patch.content {
        view.content.clone_from(content);
    }
    if let Some(keywords) = &patch.keywords {
        view.keywords.clone_from(keywords);
    }
    if let Some(importance) = patch.importance {
        view.importance = importance;
    }
    if let Some(pinned) = patch.pinned {
        view.pinned = pinned;
    }
}

#[cfg(test)]
mod wording_tests;

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn fold_touches_only_the_rows_it_names() {
            let indexes = ["invalidations_of_fact", "invalidations_by_fact", "fact_premises_of_fact (tenant=? AND premise=?)"];
            assert_searches(SELECT_FOLD_INPUTS, &indexes).await;
            for statement in STORE_VIEWS.split(';') {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
