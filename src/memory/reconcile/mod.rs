//! Dedupe and conflict: the effect of a new statement on known facts (docs/algorithms.md#dedupe-and-conflict).

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use strum::{EnumString, IntoStaticStr};

use super::{
    agreement,
    aliases::states_name,
    calibration::Calibration,
    fact::{FactKind, FoldedFact, InvalidReason, Statement, Tense},
};

mod denials;
mod promises;
mod rules;
mod safety;
mod topic;

pub use rules::{CommonMatter, StatementFeatures, verdict_by_rules};
pub use safety::boost_if_vital;
pub use topic::StatementTopic;

/// A judge's answer about an older and a newer statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum JudgeVerdict {
    Same,
    Contradicts,
    Independent,
}

impl JudgeVerdict {
    /// The name in prompts and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// The relation of a new statement to an old fact, before a judge is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The same fact again.
    Same,
    /// A judge has to decide.
    Judge,
    Independent,
}

/// The effect of a new fact on an old fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The new fact invalidates the old fact.
    InvalidateOld(InvalidReason),
    /// The old fact is protected. The new fact is written as a duplicate that the old fact invalidates.
    FoldNewIntoOld,
    /// The old fact is protected and contradicted: both stay, and a person is asked.
    FlagOld,
    KeepBoth,
}

/// Compares a new statement with a valid statement about the same subject (docs/algorithms.md#dedupe-and-conflict).
///
/// A judge is asked only if the answer can count. `common` computes the common matter when needed. Statements about one
/// matter are compared at any distance: "the player's sister lives in Oakford", "Anna moved to Greystone".
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
    let is_same = similarity >= f64::from(calibration.same);
    let both_intend = are_intentions(new, old);
    if both_intend && !is_same && !common().is_one_matter {
        // Promises of different deeds never touch each other.
        return Relation::Independent;
    }
    if takes_back(new, old) {
        return Relation::Judge;
    }
    if differ_in_time(new, old) {
        return if rules::reports_change(new, old, common()) {
            Relation::Judge
        } else {
            Relation::Independent
        };
    }
    if is_same && agreement::statements_agree(new, old) {
        return Relation::Same;
    }
    let happened = |statement: &Statement| statement.kind == FactKind::Event && statement.tense == Tense::Past;
    // An event stays true after any later event. But the last of two moves tells the present home.
    let both_happened = happened(new) && happened(old);
    let comparable = || rules::may_hide_change(new.kind, old.kind) && common().topic.is_some();
    if is_same || both_intend || new.kind == old.kind && !both_happened || comparable() {
        Relation::Judge
    } else {
        Relation::Independent
    }
}

/// Decides about an old fact, which is `protected` if pinned or authored. A missing verdict changes no fact, because
/// over-invalidation is the worse error.
///
/// The judge cannot let a former taste erase a present taste, or the reverse: "used to like apples" and "likes apples"
/// are both dated facts.
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
        // An event is not the same as its result.
        Some(JudgeVerdict::Same) if differ_in_time(new, old) => Decision::KeepBoth,
        Some(JudgeVerdict::Contradicts)
            if differ_in_time(new, old)
                && !takes_back(new, old)
                && !rules::reports_change(
                    new,
                    old,
                    StatementFeatures::from_statement(new).common_matter(&StatementFeatures::from_statement(old)),
                ) =>
        {
            Decision::KeepBoth
        }
        // Opposite statements are never one fact, with any verdict.
        Some(JudgeVerdict::Same) if new.polarity != old.polarity => Decision::KeepBoth,
        Some(JudgeVerdict::Same) if protected || stays_with_repetition(new, old) => Decision::FoldNewIntoOld,
        Some(JudgeVerdict::Contradicts) if !protected && is_foreign_word_on_promise(new, old) => Decision::KeepBoth,
        Some(JudgeVerdict::Contradicts) if !protected && repeats_promise_vaguely(new, old) => Decision::FoldNewIntoOld,
        Some(JudgeVerdict::Same) => Decision::InvalidateOld(InvalidReason::Duplicate),
        Some(JudgeVerdict::Contradicts) if protected => Decision::FlagOld,
        Some(JudgeVerdict::Contradicts) => Decision::InvalidateOld(InvalidReason::Superseded),
        Some(JudgeVerdict::Independent) | None => Decision::KeepBoth,
    }
}

/// True if the old statement stays where a newer statement says the same: a name stays in the place where it was first
/// told, a promise stays its maker's word, and a vaguer wording replaces no day, amount or name.
fn stays_with_repetition(new: &Statement, old: &Statement) -> bool {
    let is_own_word = |statement: &Statement| statement.subject == statement.speaker;
    let keeps_speaker = states_name(new) && states_name(old) || new.is_open_promise() && old.is_open_promise();
    if keeps_speaker && is_own_word(new) != is_own_word(old) {
        return is_own_word(old);
    }
    states_name(new) && states_name(old) || agreement::is_vaguer(&new.content, &old.content)
}

/// True if one party speaks of the other party's promise. Only its maker changes a promise.
fn is_foreign_word_on_promise(new: &Statement, old: &Statement) -> bool {
    new.is_open_promise() && old.is_open_promise() && new.speaker != old.speaker
}

/// True if a speaker repeats an own open promise without its day, amount or name. A judge may take the missing detail
/// for a contradiction. A denial takes the promise back, and another deed is a change of mind.
fn repeats_promise_vaguely(new: &Statement, old: &Statement) -> bool {
    let polarities = |statement: &Statement| (statement.polarity, agreement::polarity_of(&statement.content));
    new.is_open_promise()
        && old.is_open_promise()
        && new.speaker == old.speaker
        && polarities(new) == polarities(old)
        && agreement::is_vaguer(&new.content, &old.content)
        && StatementFeatures::from_statement(new).promises_like(&StatementFeatures::from_statement(old))
}

/// True if a speaker takes back what the same speaker said of the subject: the same verb and thing, affirmed and
/// denied, or a thing that was never so. A former state and its end in the present ("used to like", "does not like")
/// are both true. So tenses may differ only if a statement tells an event, and neither tells of the future.
fn takes_back(new: &Statement, old: &Statement) -> bool {
    if new.speaker != old.speaker || new.polarity == old.polarity {
        return false;
    }
    let tells_event = new.kind == FactKind::Event || old.kind == FactKind::Event;
    let is_future = new.tense == Tense::Future || old.tense == Tense::Future;
    let of_one_time = new.tense == old.tense || tells_event && !is_future;
    of_one_time && rules::share_verb_and_object(new, old) || says_never(new, old)
}

/// True if the new statement says that the old one was never so. A promise ends in other ways.
fn says_never(new: &Statement, old: &Statement) -> bool {
    old.tense != Tense::Future
        && !old.is_open_promise()
        && denials::is_denial_for_all_time(new)
        && StatementFeatures::from_statement(new).denies_for_all_time(&StatementFeatures::from_statement(old))
}

/// True if both statements tell what somebody promises or means to do, in whatever tense.
fn are_intentions(new: &Statement, old: &Statement) -> bool {
    let is_intention = |statement: &Statement| statement.kind.is_intention(statement.tense);
    is_intention(new) && is_intention(old)
}

/// True if only one of the statements is about the past, or if they differ in tense alone. "Owes" and "will bring" are
/// both open promises.
fn differ_in_time(new: &Statement, old: &Statement) -> bool {
    !are_intentions(new, old)
        && new.tense != old.tense
        && (new.tense == Tense::Past || old.tense == Tense::Past || new.polarity == old.polarity)
}

/// Folds a fact with its standing duplicates, oldest to newest. The view has the newest wording that lacks no day,
/// amount or name of an earlier wording, the highest importance and all keywords. It is pinned if any duplicate was
/// pinned.
#[must_use]
pub fn fold_duplicates(base: &FoldedFact, duplicates: &[FoldedFact]) -> FoldedFact {
    let mut view = base.clone();
    for duplicate in duplicates {
        if !agreement::is_vaguer(&duplicate.content, &view.content) {
            view.content.clone_from(&duplicate.content);
        }
        view.importance = view.importance.max(duplicate.importance);
        view.pinned |= duplicate.pinned;
        for keyword in &duplicate.keywords {
            if !view
                .keywords
                .iter()
                .any(|listed| listed.to_lowercase() == keyword.to_lowercase())
            {
                view.keywords.push(keyword.clone());
            }
        }
    }
    view
}

/// The key of a stored verdict: SHA-256 of both contents, older first.
#[must_use]
pub fn pair_hash(older: &str, newer: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    // The length comes first, so that different pairs never give the same bytes.
    hash.update((older.len() as u64).to_le_bytes());
    hash.update(older);
    hash.update(newer);
    hash.finalize().into()
}

#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod tests;
