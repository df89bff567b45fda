//! Measures how well facts are found, on a set of facts and questions. `docs/eval.md` explains the format and the
//! figures.

mod chart;
mod eval_set;
mod measures;
mod memo;
mod progress;
mod report;
mod significance;
mod table;
mod trial;

use anyhow::Context as _;

pub use self::{
    chart::render_svg,
    eval_set::{EvalSet, parse_set, read_set},
    report::{EvalReport, EvalRun, EvalSettings},
    table::{render_misses, render_tables},
    trial::{EvalTrial, QuestionOutcome},
};

/// The file of the set shipped with the server.
pub const SHIPPED_NAME: &str = "config/eval/memories.jsonl";

/// Returns the set shipped with the server.
///
/// # Errors
/// If the set has faults.
pub fn shipped_set() -> anyhow::Result<EvalSet> {
    parse_set(include_str!("../../../config/eval/memories.jsonl")).context(SHIPPED_NAME)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn shipped_eval_set_is_large_and_half_korean() {
        let set = shipped_set().unwrap();
        let count_rows = |language: &str, rows: &[&str]| rows.iter().filter(|row| **row == language).count();
        let facts: Vec<&str> = set.facts.iter().map(|fact| fact.language.as_str()).collect();
        let questions: Vec<&str> = set
            .questions
            .iter()
            .map(|question| question.language.as_str())
            .collect();
        for rows in [&facts, &questions] {
            assert!(rows.len() >= 240, "{}", rows.len());
            assert_eq!(count_rows("en", rows), count_rows("ko", rows));
            assert_eq!(count_rows("en", rows) * 2, rows.len());
        }
        let mut per_memory: BTreeMap<&str, usize> = BTreeMap::new();
        for fact in &set.facts {
            *per_memory.entry(fact.memory.as_str()).or_default() += 1;
        }
        assert!(
            per_memory.len() >= 4 && per_memory.values().all(|facts| (40..=80).contains(facts)),
            "{per_memory:?}"
        );
    }

    #[test]
    fn shipped_eval_set_has_every_question_class_and_no_duplicates() {
        let set = shipped_set().unwrap();
        let mut tags: BTreeMap<&str, usize> = BTreeMap::new();
        for question in &set.questions {
            assert!(!question.tags.is_empty(), "{} has no tag", question.id);
            for tag in &question.tags {
                *tags.entry(tag).or_default() += 1;
            }
        }
        for (class, min_count) in [
            ("near_miss", 40),
            ("changed", 20),
            ("alias", 20),
            ("broader", 20),
            ("paraphrase", 20),
            ("number_date", 20),
            ("negation", 15),
            ("elliptic", 5),
            ("particles", 4),
            ("mixed_script", 4),
            ("several", 8),
        ] {
            assert!(
                tags.get(class).is_some_and(|count| *count >= min_count),
                "{class}: {tags:?}"
            );
        }
        let contents: BTreeSet<&str> = set.facts.iter().map(|fact| fact.content.as_str()).collect();
        assert_eq!(contents.len(), set.facts.len());
        let texts: BTreeSet<(&str, &str)> = set
            .questions
            .iter()
            .map(|question| (question.memory.as_str(), question.text.as_str()))
            .collect();
        assert_eq!(texts.len(), set.questions.len());
    }
}
