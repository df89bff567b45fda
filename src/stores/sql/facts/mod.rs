//! Facts. This file maps rows to values. A file implements each part of the port:
//! - `recall` reads for a turn, and `confirm` decides which facts recall may use;
//! - `timeline` reads for reconciliation; `reconciliation`, `verdicts` and `fact_replacements` write its results;
//! - `edit` and `replacement` have people's changes, `lists` what people see, `flags` what people should check, and
//!   `fold` recomputes the cached results;
//! - `consolidation` has conclusions from older facts;
//! - `pass_facts` reads for curation passes;
//! - `embeddings` finds vectors of other models.

mod confirm;
mod consolidation;
mod edit;
mod embeddings;
mod fact_replacements;
mod flag_entries;
mod flags;
pub(super) mod fold;
mod lists;
pub(super) mod pass_facts;
mod recall;
pub(super) mod reconciliation;
mod replacement;
mod similarity;
mod timeline;
mod verdicts;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(super) use self::recall::{bind_standing, standing_statement};
use super::{
    context::Engine,
    rows::{self, Columns},
};
use colloquy_core::ids::{DialogueId, FactId};
use colloquy_memory::{
    disclosure::audience::Audience,
    fact::{
        EarlierWording, EffectiveInvalidation, Fact, FactKind, FoldedFact, Importance, InvalidReason, Polarity,
        Statement, Tense,
    },
};
use colloquy_ports::{StoreError, StoreResult, ledger::facts::FactStore};

pub(super) struct SqlFactStore(pub(super) Arc<Engine>);

macro_rules! fact_columns {
    () => {
        "f.id, f.world, f.knowers, f.private_to, f.locked_by, f.replaced_by, f.subject, f.predicate, f.object, f.content, f.keywords,
         f.speaker,
         f.kind, f.importance, f.polarity, f.tense, f.pinned, f.view_content, f.view_keywords, f.view_importance,
         f.view_pinned, f.valid_at, f.invalid_at, f.invalid_reason, f.invalid_by, f.expires_at, f.cause_kind,
         f.cause_id, f.source_dialogue, f.source_turn, f.derived_from, f.pii, f.authored, f.corrects, f.earlier_wordings, f.version"
    };
}
use fact_columns;

const fn polarity_name(polarity: Polarity) -> &'static str {
    match polarity {
        Polarity::Positive => "positive",
        Polarity::Negative => "negative",
    }
}

fn read_polarity(columns: &mut Columns<'_>) -> StoreResult<Polarity> {
    columns.named([Polarity::Positive, Polarity::Negative], polarity_name)
}

const fn tense_name(tense: Tense) -> &'static str {
    match tense {
        Tense::Past => "past",
        Tense::Present => "present",
        Tense::Future => "future",
    }
}

fn read_tense(columns: &mut Columns<'_>) -> StoreResult<Tense> {
    columns.named([Tense::Past, Tense::Present, Tense::Future], tense_name)
}

pub(super) fn read_importance(columns: &mut Columns<'_>) -> StoreResult<Importance> {
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
    let invalid_at = columns.maybe_time()?;
    let reason: Option<&str> = columns.next()?;
    let ended_by = columns.maybe_id()?;
    let Some(invalid_at) = invalid_at else { return Ok(None) };
    let reason = reason
        .and_then(InvalidReason::parse)
        .ok_or_else(|| StoreError::Corrupt("an invalid fact without a reason".to_owned()))?;
    Ok(Some(EffectiveInvalidation {
        ended_at: invalid_at,
        reason,
        ended_by,
    }))
}

/// A stored sentence, and when it was replaced, in microseconds.
#[derive(Serialize, Deserialize)]
struct StoredWording(String, i64);

fn read_earlier_wordings(columns: &mut Columns<'_>) -> StoreResult<Vec<EarlierWording>> {
    let stored: Vec<StoredWording> = columns.json()?;
    let wordings = stored.into_iter().map(|StoredWording(content, until)| {
        let until = rows::from_micros(until)?;
        Ok(EarlierWording { content, until })
    });
    wordings.collect()
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
    Ok(dialogue.zip(columns.maybe_number()?))
}

/// Reads the columns of [`fact_columns!`].
pub(super) fn read_fact(columns: &mut Columns<'_>) -> StoreResult<Fact> {
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
            polarity: read_polarity(columns)?,
            tense: read_tense(columns)?,
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
        corrects: columns.maybe_id()?,
        earlier_wordings: read_earlier_wordings(columns)?,
        version: columns.number()?,
    })
}

/// Returns the prefix of the ids of invalidations that one statement writes: a full id without its last 16 characters, which
/// are those of each fact's id. `cause` is the id of what has caused them, or another fresh id.
pub(super) fn invalidation_id_prefix(cause: &str) -> String {
    /// The number of characters taken from `cause`, which give 45 random bits.
    const OWN_CHARS: usize = 9;
    let random_part = cause.get(cause.len() - OWN_CHARS..).expect("an id is ASCII and longer");
    format!("inv_0{random_part}")
}

impl FactStore for SqlFactStore {}
