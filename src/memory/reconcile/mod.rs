//! Dedupe and conflict: what a new statement does to what is known (docs/algorithms.md#dedupe-and-conflict).

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    agreement,
    calibration::Calibration,
    fact::{FactKind, FoldedFact, InvalidReason, Statement, Tense},
};

mod rules;
mod safety;
mod topic;

pub use rules::{CommonMatter, StatementFeatures, verdict_by_rules};
pub use safety::boost_if_vital;
pub use topic::StatementTopic;

/// A judge's answer about an older and a newer statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeVerdict {
    Same,
    Contradicts,
    Independent,
}

impl JudgeVerdict {
    /// The name in prompts and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Contradicts => "contradicts",
            Self::Independent => "independent",
        }
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Same, Self::Contradicts, Self::Independent]
            .into_iter()
            .find(|verdict| verdict.as_str() == text)
    }
}

/// How a new statement stands to an old fact, before anybody has been asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The same fact once more.
    Same,
    /// A model has to say.
    Judge,
    Independent,
}

/// What happens to an old fact because of a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The old one gets an invalidation by the new one.
    InvalidateOld(InvalidReason),
    /// The old one is protected: the new one is written as its duplicate, invalid by the old one.
    FoldNewIntoOld,
    /// The old one is protected and contradicted: both stay, and a person is asked.
    FlagOld,
    KeepBoth,
}

/// Compares a new statement with a valid one of the same subject (docs/algorithms.md#dedupe-and-conflict). A judge is
/// asked only where the answer can count. `common` reads what both are about, where that matters. What is of one matter is
/// compared however far apart the sentences are: "the player's sister lives in Oakford", "Anna moved to Greystone".
#[must_use]
pub fn compare_statements(
    calibration: &Calibration,
    new: &Statement,
    old: &Statement,
    cosine: f32,
    common: impl Fn() -> CommonMatter,
) -> Relation {
    let similarity = calibration.similarity_of(cosine);
    if similarity.is_nan() || similarity < f64::from(calibration.related) && !common().is_one_matter {
        return Relation::Independent;
    }
    let same = similarity >= f64::from(calibration.same);
    if differ_in_time(new, old) {
        return if rules::reports_change(new, old, common()) {
            Relation::Judge
        } else {
            Relation::Independent
        };
    }
    if same && agreement::statements_agree(new, old) {
        return Relation::Same;
    }
    let happened = |statement: &Statement| statement.kind == FactKind::Event && statement.tense == Tense::Past;
    // What happened stays so, whatever happened later; but of two moves the last one tells where somebody lives.
    let both_happened = happened(new) && happened(old);
    let comparable = || rules::may_hide_change(new.kind, old.kind) && common().topic.is_some();
    if same || new.kind == old.kind && !both_happened || comparable() {
        Relation::Judge
    } else {
        Relation::Independent
    }
}

/// Decides about an old fact, which is `protected` if it is pinned or authored. A missing verdict changes nothing: over-invalidation is the worse error.
///
/// The judge is not believed where its answer would let a former taste erase a present one, or the
/// other way round: "used to like apples" and "likes apples" are both dated facts.
#[must_use]
pub fn decide_about_old(
    new: &Statement,
    old: &Statement,
    protected: bool,
    relation: Relation,
    verdict: Option<JudgeVerdict>,
) -> Decision {
    let verdict = match relation {
        Relation::Same => Some(JudgeVerdict::Same),
        Relation::Judge => verdict,
        Relation::Independent => None,
    };
    match verdict {
        // What happened is not what it made of things.
        Some(JudgeVerdict::Same) if differ_in_time(new, old) => Decision::KeepBoth,
        Some(JudgeVerdict::Contradicts)
            if differ_in_time(new, old)
                && !rules::reports_change(
                    new,
                    old,
                    StatementFeatures::from_statement(new).common_matter(&StatementFeatures::from_statement(old)),
                ) =>
        {
            Decision::KeepBoth
        }
        // Opposite statements are never one fact, whatever a judge says.
        Some(JudgeVerdict::Same) if new.polarity != old.polarity => Decision::KeepBoth,
        Some(JudgeVerdict::Same) if protected => Decision::FoldNewIntoOld,
        Some(JudgeVerdict::Same) => Decision::InvalidateOld(InvalidReason::Duplicate),
        Some(JudgeVerdict::Contradicts) if protected => Decision::FlagOld,
        Some(JudgeVerdict::Contradicts) => Decision::InvalidateOld(InvalidReason::Superseded),
        Some(JudgeVerdict::Independent) | None => Decision::KeepBoth,
    }
}

/// Whether one statement is about then and the other is not, or whether they differ in tense alone.
fn differ_in_time(new: &Statement, old: &Statement) -> bool {
    new.tense != old.tense && (new.tense == Tense::Past || old.tense == Tense::Past || new.polarity == old.polarity)
}

/// The view of a fact over its standing duplicates, oldest to newest: the newest wording, the
/// highest importance, all keywords, pinned if any was.
#[must_use]
pub fn fold_duplicates(base: &FoldedFact, duplicates: &[FoldedFact]) -> FoldedFact {
    let mut view = base.clone();
    for duplicate in duplicates {
        view.content.clone_from(&duplicate.content);
        view.importance = view.importance.max(duplicate.importance);
        view.pinned |= duplicate.pinned;
        for keyword in &duplicate.keywords {
            if !view
                .keywords
                .iter()
                .any(|known| known.to_lowercase() == keyword.to_lowercase())
            {
                view.keywords.push(keyword.clone());
            }
        }
    }
    view
}

/// The key under which a judged pair is kept: SHA-256 of both contents, older first.
#[must_use]
pub fn pair_hash(older: &str, newer: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Lengths first: no two different pairs run together to the same bytes.
    hash.update((older.len() as u64).to_le_bytes());
    hash.update(older);
    hash.update(newer);
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
