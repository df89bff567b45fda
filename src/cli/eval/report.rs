//! What was measured, as values: averages over all questions, per factor, language and tag, the comparison of two
//! settings, and every question with what came up. `--json` writes it as it is.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    measures::{Averages, Figures, averages, figures},
    paired::{Comparison, compare},
    set::{EvalSet, SetQuestion},
    trial::{Asked, Ordering, Ranked},
};
use crate::memory::{scoring::RecallWeights, trace::ScoreParts};

/// The version of the report's form; rises when a field changes its meaning.
const FORMAT: u32 = 1;

/// One run of a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    pub format: u32,
    pub version: &'static str,
    pub set: String,
    pub k: usize,
    pub facts: usize,
    pub questions: usize,
    pub memories: usize,
    pub settings: Settings,
    pub overall: Averages,
    /// Each factor alone.
    pub factors: BTreeMap<&'static str, Averages>,
    pub languages: BTreeMap<String, Averages>,
    pub tags: BTreeMap<String, Averages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    pub by_question: Vec<QuestionReport>,
}

/// What recall was set to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Settings {
    /// The settings file, or `configuration`.
    pub name: String,
    pub embedder: String,
    pub weights: RecallWeights,
    pub recency_lambda_per_day: f64,
}

/// The same questions under other settings, and how the two differ (the first less the second).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Against {
    pub settings: Settings,
    pub overall: Averages,
    pub languages: BTreeMap<String, Averages>,
    pub tags: BTreeMap<String, Averages>,
    pub recall: Comparison,
    pub hit: Comparison,
    pub mrr: Comparison,
}

/// One question and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct QuestionReport {
    pub id: String,
    pub text: String,
    pub language: String,
    pub tags: Vec<String>,
    #[serde(flatten)]
    pub figures: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Figures>,
    pub answers: Vec<AnswerReport>,
    /// What came up, best first, at most K.
    pub found: Vec<FoundReport>,
}

/// What answers the question: of several facts of which any will do the one that came up first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AnswerReport {
    pub fact: String,
    pub content: String,
    /// The other facts that will do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<String>,
    /// From 1, also behind K; `None`: it did not come up at all.
    pub place: Option<usize>,
    pub score: Option<ScoreParts>,
}

/// A fact that came up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FoundReport {
    pub fact: String,
    pub content: String,
    pub score: ScoreParts,
}

/// A set as it was asked under some settings.
pub(super) struct Run<'a> {
    pub settings: Settings,
    /// In the order of the questions.
    pub asked: &'a [Asked],
}

impl Report {
    pub(super) fn of(name: String, set: &EvalSet, k: usize, run: Run<'_>, against: Option<Run<'_>>) -> Self {
        let all = figures_of(set, run.asked, k);
        let other = against.map(|run| (figures_of(set, run.asked, k), run.settings));
        let factors = Ordering::FACTORS.into_iter().enumerate();
        let factors = factors.map(|(at, factor)| (factor.name(), alone(set, run.asked, k, at)));
        let other_figures = other.as_ref().map(|(figures, _)| figures.as_slice());
        let by_question = by_question(set, &run, &all, other_figures);
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            set: name,
            k,
            facts: set.facts.len(),
            questions: set.questions.len(),
            memories: set.memories().len(),
            settings: run.settings,
            overall: averages(&all),
            factors: factors.collect(),
            languages: grouped(set, &all, language),
            tags: grouped(set, &all, |question| question.tags.clone()),
            against: other.map(|(other, settings)| Against::of(set, settings, &all, &other)),
            by_question,
        }
    }

    /// The questions that miss an answer, those that found least first.
    pub(super) fn misses(&self) -> Vec<&QuestionReport> {
        let mut missed: Vec<&QuestionReport> = self
            .by_question
            .iter()
            .filter(|question| question.figures.recall < 1.0)
            .collect();
        missed.sort_by(|a, b| a.figures.recall.total_cmp(&b.figures.recall));
        missed
    }
}

impl Against {
    fn of(set: &EvalSet, settings: Settings, first: &[Figures], second: &[Figures]) -> Self {
        let compared = |of: fn(&Figures) -> f64| {
            let figures = |all: &[Figures]| all.iter().map(of).collect::<Vec<f64>>();
            compare(&figures(first), &figures(second))
        };
        Self {
            settings,
            overall: averages(second),
            languages: grouped(set, second, language),
            tags: grouped(set, second, |question| question.tags.clone()),
            recall: compared(|figures| figures.recall),
            hit: compared(|figures| figures.hit),
            mrr: compared(|figures| figures.reciprocal_rank),
        }
    }
}

fn language(question: &SetQuestion) -> Vec<String> {
    vec![question.language.clone()]
}

fn figures_of(set: &EvalSet, asked: &[Asked], k: usize) -> Vec<Figures> {
    let pairs = set.questions.iter().zip(asked);
    pairs
        .map(|(question, asked)| {
            let ranking: Vec<usize> = asked.total.iter().map(|ranked| ranked.fact).collect();
            figures(&ranking, &question.answers, k)
        })
        .collect()
}

/// The averages of the ranking by one factor.
fn alone(set: &EvalSet, asked: &[Asked], k: usize, factor: usize) -> Averages {
    let all: Vec<Figures> = set
        .questions
        .iter()
        .zip(asked)
        .filter_map(|(question, asked)| Some(figures(asked.factors.get(factor)?, &question.answers, k)))
        .collect();
    averages(&all)
}

fn grouped(
    set: &EvalSet,
    all: &[Figures],
    groups_of: impl Fn(&SetQuestion) -> Vec<String>,
) -> BTreeMap<String, Averages> {
    let mut groups: BTreeMap<String, Vec<&Figures>> = BTreeMap::new();
    for (question, figures) in set.questions.iter().zip(all) {
        for group in groups_of(question) {
            groups.entry(group).or_default().push(figures);
        }
    }
    groups
        .into_iter()
        .map(|(group, figures)| (group, averages(figures)))
        .collect()
}

fn by_question(set: &EvalSet, run: &Run<'_>, all: &[Figures], against: Option<&[Figures]>) -> Vec<QuestionReport> {
    let questions = set.questions.iter().zip(run.asked).enumerate();
    questions
        .map(|(at, (question, asked))| QuestionReport {
            id: question.id.clone(),
            text: question.text.clone(),
            language: question.language.clone(),
            tags: question.tags.clone(),
            figures: all[at],
            against: against.map(|against| against[at]),
            answers: answers(set, question, asked),
            found: asked.total.iter().map(|ranked| found(set, ranked)).collect(),
        })
        .collect()
}

fn found(set: &EvalSet, ranked: &Ranked) -> FoundReport {
    let fact = &set.facts[ranked.fact];
    FoundReport {
        fact: fact.id.clone(),
        content: fact.content.clone(),
        score: ranked.score,
    }
}

fn answers(set: &EvalSet, question: &SetQuestion, asked: &Asked) -> Vec<AnswerReport> {
    let of = |(at, group): (usize, &Vec<usize>)| {
        let near = asked.total.iter().position(|ranked| group.contains(&ranked.fact));
        let further = asked.missed.iter().find(|missed| missed.0 == at);
        let placed = near
            .map(|near| (near + 1, asked.total[near]))
            .or_else(|| further.and_then(|missed| missed.1));
        let fact = placed.map(|(_, ranked)| ranked.fact).or(group.first().copied())?;
        let others = group.iter().filter(|other| **other != fact);
        Some(AnswerReport {
            fact: set.facts[fact].id.clone(),
            content: set.facts[fact].content.clone(),
            or: others.map(|other| set.facts[*other].id.clone()).collect(),
            place: placed.map(|placed| placed.0),
            score: placed.map(|placed| placed.1.score),
        })
    };
    question.answers.iter().enumerate().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::eval::set::parse;

    const SET: &str = r#"
{"fact": {"id": "a", "content": "A"}}
{"fact": {"id": "b", "content": "나"}}
{"question": {"id": "one", "text": "A?", "answers": ["a"], "tags": ["x"]}}
{"question": {"id": "two", "text": "나?", "answers": ["b"], "tags": ["x", "y"]}}
"#;

    fn ranked(fact: usize) -> Ranked {
        Ranked {
            fact,
            score: ScoreParts {
                recency: 1.0,
                importance: 0.5,
                relevance: 0.5,
                keyword: 0.5,
                total: 0.5,
                cosine: 0.5,
            },
        }
    }

    fn asked(total: &[usize], missed: Vec<(usize, Option<(usize, Ranked)>)>) -> Asked {
        Asked {
            total: total.iter().copied().map(ranked).collect(),
            factors: vec![total.to_vec(); 4],
            missed,
        }
    }

    fn settings(name: &str) -> Settings {
        Settings {
            name: name.to_owned(),
            embedder: "offline".to_owned(),
            weights: RecallWeights::FOUR_FACTOR,
            recency_lambda_per_day: 0.002,
        }
    }

    #[test]
    fn groups_questions_and_misses() {
        let set = parse(SET).unwrap();
        let first = [asked(&[0, 1], vec![]), asked(&[0], vec![(0, Some((7, ranked(1))))])];
        let second = [asked(&[1, 0], vec![]), asked(&[1], vec![])];
        let run = |name, asked| Run {
            settings: settings(name),
            asked,
        };
        let report = Report::of("set".into(), &set, 10, run("a", &first), Some(run("b", &second)));
        assert_eq!((report.facts, report.questions, report.memories), (2, 2, 1));
        assert!((report.overall.recall - 0.5).abs() < 1e-9 && (report.overall.mrr - 0.5).abs() < 1e-9);
        assert!((report.languages["en"].recall - 1.0).abs() < 1e-9 && report.languages["ko"].recall < 1e-9);
        assert_eq!((report.tags["x"].questions, report.tags["y"].questions), (2, 1));
        assert!((report.factors["keyword"].recall - 0.5).abs() < 1e-9);
        let misses = report.misses();
        assert_eq!((misses.len(), misses[0].id.as_str()), (1, "two"));
        assert_eq!(
            (misses[0].answers[0].place, misses[0].found[0].fact.as_str()),
            (Some(7), "a")
        );
        let against = report.against.as_ref().unwrap();
        assert!((against.overall.recall - 1.0).abs() < 1e-9 && (against.overall.mrr - 0.75).abs() < 1e-9);
        assert!((against.recall.difference + 0.5).abs() < 1e-9 && (against.mrr.difference + 0.25).abs() < 1e-9);
        assert_eq!((against.mrr.better, against.mrr.worse), (1, 1));
    }
}
