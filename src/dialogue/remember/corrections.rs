//! Corrections of facts by people over REST, and decisions about flagged facts.
//!
//! A correction of the wording, the importance or the pin changes the view of a fact. A statement and its dates never
//! change, so their correction is a new fact in place of the corrected one.

use chrono::{DateTime, Utc};

use super::{edit_error::ManualEditError, manual_edits::embed_text, pii::detect_pii};
use crate::{Services, jobs::outbox::relay_or_log};
use colloquy_core::{
    ids::{FactId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    agreement,
    embedded_text::embedded_fact_text,
    fact::{Fact, FactKind, Importance, NewFact, Statement},
    flags::{FlagDecision, FlagKind},
    party,
};
use colloquy_ports::{
    StoreError,
    ledger::{
        audit::Edit,
        facts::{FactEditOutcome, FactHistoryEntry, FactPatch, ReplacementFact},
        flags::{FactChange, FlagDecisionWrite, FlagOutcome},
    },
};

/// The maximum number of reads for one correction, while others write to the fact.
const MAX_CORRECTION_READS: usize = 8;

/// A person's correction of a fact. Unset fields stay unchanged.
#[derive(Debug, Clone, Default)]
pub struct FactCorrection {
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub importance: Option<Importance>,
    pub pinned: Option<bool>,
    /// In a private fact, `player` means the player of the fact.
    pub subject: Option<String>,
    pub predicate: Option<String>,
    pub object: Option<String>,
    pub kind: Option<FactKind>,
    /// Since when the fact holds.
    pub valid_at: Option<DateTime<Utc>>,
    /// Until when the fact held: later than `valid_at`, and not in the future.
    pub invalid_at: Option<DateTime<Utc>>,
}

impl FactCorrection {
    /// True if the correction changes the statement or the dates of a fact, beside its view.
    fn changes_statement(&self, fact: &Fact) -> bool {
        fn differs<T: PartialEq>(new_value: Option<&T>, present: &T) -> bool {
            new_value.is_some_and(|new_value| new_value != present)
        }
        let statement = &fact.statement;
        differs(self.subject_for(fact).as_ref(), &statement.subject)
            || differs(self.predicate.as_ref(), &statement.predicate)
            || differs(self.object.as_ref(), &statement.object)
            || differs(self.kind.as_ref(), &statement.kind)
            || differs(self.valid_at.as_ref(), &fact.valid_at)
            || differs(
                self.invalid_at.map(Some).as_ref(),
                &fact.invalid.as_ref().map(|end| end.ended_at),
            )
    }

    /// True if the fact has all corrected values.
    fn is_applied(&self, fact: &Fact) -> bool {
        let view = &fact.view;
        !self.changes_statement(fact)
            && self.content.as_ref().is_none_or(|content| *content == view.content)
            && self.keywords.as_ref().is_none_or(|keywords| *keywords == view.keywords)
            && self.importance.is_none_or(|importance| importance == view.importance)
            && self.pinned.is_none_or(|pinned| pinned == view.pinned)
    }

    fn subject_for(&self, fact: &Fact) -> Option<String> {
        let subject = self.subject.as_ref()?;
        Some(match &fact.audience.private_to {
            Some(player) => party::bind_to_player(subject, Some(player)),
            None => subject.clone(),
        })
    }

    /// The corrected statement of a fact.
    fn statement_for(&self, fact: &Fact) -> Statement {
        let old = fact.statement.clone();
        let view = fact.view.clone();
        let content = self.content.clone().unwrap_or(view.content);
        let is_reworded = content != old.content;
        Statement {
            polarity: if is_reworded {
                agreement::polarity_of(&content)
            } else {
                old.polarity
            },
            tense: if is_reworded {
                agreement::tense_of(&content)
            } else {
                old.tense
            },
            subject: self.subject_for(fact).unwrap_or(old.subject),
            predicate: self.predicate.clone().unwrap_or(old.predicate),
            object: self.object.clone().unwrap_or(old.object),
            content,
            keywords: self.keywords.clone().unwrap_or(view.keywords),
            speaker: old.speaker,
            kind: self.kind.unwrap_or(old.kind),
            importance: self.importance.unwrap_or(view.importance),
            pinned: self.pinned.unwrap_or(view.pinned),
        }
    }
}

/// A change of a fact as read from the ledger.
struct PlannedChange {
    change: FactChange,
    /// The version of the fact on which the change was planned.
    expected: Option<u32>,
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
    let Some(fact) = facts.load_fact(scope, id).await? else {
        return Ok(FactEditOutcome::NotFound);
    };
    let PlannedChange { change, expected } = plan_change(services, scope, &fact, correction, if_version).await?;
    let outcome = match change {
        FactChange::Patch(patch) => facts.edit_fact(scope, id, &patch, expected, edit).await?,
        FactChange::Replacement(replacement) => facts.replace_fact(scope, id, &replacement, expected, edit).await?,
    };
    if matches!(outcome, FactEditOutcome::Done(_)) {
        relay_or_log(services).await;
    }
    Ok(outcome)
}

/// Plans a correction of a fact as read.
async fn plan_change(
    services: &Services,
    scope: &TenantScope,
    fact: &Fact,
    correction: &FactCorrection,
    if_version: Option<u32>,
) -> Result<PlannedChange, ManualEditError> {
    if correction.changes_statement(fact) {
        // The new fact has the other values of the fact as read.
        return Ok(PlannedChange {
            change: FactChange::Replacement(Box::new(plan_replacement(services, scope, fact, correction).await?)),
            expected: Some(if_version.unwrap_or(fact.version)),
        });
    }
    let mut patch = FactPatch {
        content: correction.content.clone(),
        keywords: correction.keywords.clone(),
        importance: correction.importance,
        pinned: correction.pinned,
        embedding: None,
        pii: None,
    };
    let mut expected = if_version;
    if correction.content.is_some() || correction.keywords.is_some() {
        let (own_content, own_keywords) = own_text_of(services, scope, fact).await?;
        let content = correction.content.as_ref().unwrap_or(&own_content);
        let keywords = correction.keywords.as_ref().unwrap_or(&own_keywords);
        if (content, keywords) != (&own_content, &own_keywords) {
            let text = embedded_fact_text(&fact.statement.subject, content, keywords);
            patch.embedding = Some(embed_text(services, scope, text).await?);
        }
        if correction.content.is_some() {
            patch.pii = Some(detect_pii(&correction.statement_for(fact)));
        }
        // The embedding decision belongs to the text as read. If another writer changes the text, the ledger must
        // refuse.
        expected.get_or_insert(fact.version);
    }
    Ok(PlannedChange {
        change: FactChange::Patch(patch),
        expected,
    })
}

/// Plans the fact that takes the place of a fact with a corrected statement or corrected dates. The new fact falls with
/// the turn of the corrected fact, and is known to the same.
async fn plan_replacement(
    services: &Services,
    scope: &TenantScope,
    fact: &Fact,
    correction: &FactCorrection,
) -> Result<ReplacementFact, ManualEditError> {
    let statement = correction.statement_for(fact);
    let embedding = embed_text(services, scope, statement.embedded_text()).await?;
    let new = NewFact {
        id: services.ids.next_id(),
        world: fact.world.clone(),
        audience: fact.audience.clone(),
        locks: fact.locks.clone(),
        valid_at: correction.valid_at.unwrap_or(fact.valid_at),
        // What a person has corrected does not expire, unless it rests on facts that do.
        expires_at: fact.expires_at.filter(|_| fact.is_conclusion()),
        cause: fact.cause,
        source: fact.source,
        derived_from: fact.derived_from.clone(),
        pii: detect_pii(&statement),
        authored: fact.authored,
        embedding,
        statement,
    };
    Ok(ReplacementFact {
        fact: new,
        invalid_at: correction.invalid_at,
    })
}

/// A person's decision about a flag.
#[derive(Debug, Clone)]
pub struct FlagVerdict {
    pub flag: FlagKind,
    pub decision: FlagDecision,
    /// May be empty.
    pub reason: String,
    /// With [`FlagDecision::Corrected`].
    pub correction: Option<FactCorrection>,
}

/// Stores a person's decision about a flag of a fact, with its effect on the fact.
pub async fn decide_flag(
    services: &Services,
    scope: &TenantScope,
    (world, fact): (&WorldId, FactId),
    verdict: &FlagVerdict,
    edit: &Edit,
) -> Result<FlagOutcome, ManualEditError> {
    for _ in 1..MAX_CORRECTION_READS {
        let outcome = decide_once(services, scope, world, fact, verdict, edit).await?;
        if !matches!(outcome, FlagOutcome::VersionMismatch { .. }) {
            return Ok(outcome);
        }
    }
    decide_once(services, scope, world, fact, verdict, edit).await
}

async fn decide_once(
    services: &Services,
    scope: &TenantScope,
    world: &WorldId,
    id: FactId,
    verdict: &FlagVerdict,
    edit: &Edit,
) -> Result<FlagOutcome, ManualEditError> {
    let facts = &services.ledger.facts;
    let mut write = FlagDecisionWrite {
        flag: verdict.flag,
        decision: verdict.decision,
        reason: verdict.reason.clone(),
        change: None,
        if_version: None,
    };
    if let Some(correction) = &verdict.correction {
        let Some(fact) = facts.load_fact(scope, id).await? else {
            return Ok(FlagOutcome::NotFound);
        };
        let replacing = match fact.invalid.as_ref().and_then(|invalidation| invalidation.ended_by) {
            Some(successor) => facts
                .load_fact(scope, successor)
                .await?
                .filter(|successor| successor.corrects == Some(id)),
            None => None,
        };
        // A repeated correction changes nothing, whether the first one changed the fact or replaced it.
        if !correction.is_applied(replacing.as_ref().unwrap_or(&fact)) {
            let planned = plan_change(services, scope, &fact, correction, None).await?;
            (write.change, write.if_version) = (Some(planned.change), planned.expected);
        }
    }
    let outcome = facts.decide_flag(scope, world, id, &write, edit).await?;
    if matches!(outcome, FlagOutcome::Decided(_)) {
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
    let latest_edit = |field: &str| {
        history.iter().rev().find_map(|entry| match entry {
            FactHistoryEntry::Edited { patch, .. } => patch.get(field).cloned(),
            _ => None,
        })
    };
    let content = latest_edit("content").and_then(|value| serde_json::from_value(value).ok());
    let keywords = latest_edit("keywords").and_then(|value| serde_json::from_value(value).ok());
    Ok((
        content.unwrap_or_else(|| fact.statement.content.clone()),
        keywords.unwrap_or_else(|| fact.statement.keywords.clone()),
    ))
}
