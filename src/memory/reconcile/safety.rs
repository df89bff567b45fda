//! Facts that must never be forgotten (docs/memory.md#a-fact): allergies, chronic conditions, taboos, safety limits.

use std::sync::LazyLock;

use crate::{
    fact::{FactKind, Importance, Polarity, Statement, Tense},
    keywords::normalise_text,
    party,
};

const SAFETY_TERMS_DATA: &str = include_str!("../../../config/lexicon/safety/terms.txt");
/// The least importance of a vital fact.
const MIN_VITAL_IMPORTANCE: f64 = 9.0;
/// A constraint of a player is vital in any wording from this importance on, whoever speaks of it. The extraction
/// prompt rates a danger to life 10.
const RATED_VITAL: f64 = 10.0;
/// The same for a present constraint that the player tells of itself. Models rate an illness or an allergy a little
/// below a danger to life, and other limits far below.
const RATED_VITAL_BY_PLAYER: f64 = 8.0;

struct SafetyPhrase {
    text: String,
    /// Korean words have particles at the end and compounds at the front, so most match anywhere.
    anywhere: bool,
    whole: bool,
}

static SAFETY_TERMS: LazyLock<Vec<Vec<SafetyPhrase>>> = LazyLock::new(|| {
    SAFETY_TERMS_DATA
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split(" + ").map(parse_phrase).collect())
        .collect()
});

fn parse_phrase(text: &str) -> SafetyPhrase {
    let begins = text.starts_with('^');
    let ends_word = text.ends_with('$');
    let text = normalise_text(text.trim_matches(['^', '$']));
    SafetyPhrase {
        anywhere: !begins && !text.is_ascii(),
        whole: ends_word,
        text,
    }
}

/// Pins allergies, chronic conditions, taboos and safety limits, and raises their importance to 9 or more.
///
/// Only constraints are pinned. A condition that a model filed as personal becomes a constraint. Other statements stay
/// unchanged, and so do denied conditions ("has no allergies"), promises and events ("wrote the allergy on the form").
pub fn boost_if_vital(statement: &mut Statement) {
    if may_be_constraint(statement) && is_vital(statement) {
        statement.kind = FactKind::Constraint;
        statement.pinned = true;
        statement.importance = statement.importance.max(Importance::from_clamped(MIN_VITAL_IMPORTANCE));
    }
}

fn may_be_constraint(statement: &Statement) -> bool {
    let is_personal = matches!(
        statement.kind,
        FactKind::PersonalInfo | FactKind::Profile | FactKind::Other
    );
    statement.kind == FactKind::Constraint || is_personal && statement.tense != Tense::Past
}

fn is_vital(statement: &Statement) -> bool {
    let text = normalise_text(&format!("{} {}", statement.content, statement.object)).replace('’', "'");
    let limits = matches!(statement.kind, FactKind::Constraint);
    // A symptom names no allergy ("peanuts make my throat swell"), but the extraction prompt says how to rate it.
    if limits && is_rated_vital(statement) {
        return true;
    }
    let names_danger = SAFETY_TERMS
        .iter()
        .any(|phrases| phrases.iter().all(|phrase| phrase_occurs(&text, phrase)));
    if !names_danger {
        return false;
    }
    // "Don't mention my brother" is a taboo although it denies; "no allergies" is no allergy.
    let prohibition = ["mention", "talk about", "taboo", "금기", "지 말", "지 마"]
        .iter()
        .any(|word| text.contains(word));
    prohibition || limits || statement.polarity == Polarity::Positive
}

/// True if the importance of a player's constraint makes it vital.
fn is_rated_vital(statement: &Statement) -> bool {
    let is_own = statement.subject == statement.speaker && statement.tense == Tense::Present;
    let min_importance = if is_own { RATED_VITAL_BY_PLAYER } else { RATED_VITAL };
    party::is_player(&statement.subject) && statement.importance >= Importance::from_clamped(min_importance)
}

fn phrase_occurs(text: &str, phrase: &SafetyPhrase) -> bool {
    text.match_indices(phrase.text.as_str()).any(|(start, hit)| {
        let begins = phrase.anywhere || !text[..start].ends_with(char::is_alphanumeric);
        let ends = !phrase.whole || !text[start + hit.len()..].starts_with(char::is_alphanumeric);
        begins && ends
    })
}
