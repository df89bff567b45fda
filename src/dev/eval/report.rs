//! The results as values: averages over all questions and per factor, language and tag; the comparison of two
//! settings; every question with its results. `--json` writes this report unchanged.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    eval_set::{EvalSet, SetQuestion},
    measures::{MetricAverages, RankingMetrics, ShownAverages, average_metrics, average_shown, ranking_metrics},
    significance::{PairedComparison, compare_paired},
    trial::{QuestionOutcome, RankedFact, RankingOrder},
};
use colloquy_memory::{scoring::RecallWeights, trace::ScoreParts};

/// The version of the report format. It rises when a field changes its meaning.
const REPORT_FORMAT: u32 = 1;

/// The report of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvalReport {
    pub format: u32,
    pub version: &'static str,
    pub set: String,
    pub k: usize,
    pub facts: usize,
    pub questions: usize,
    pub memories: usize,
    pub settings: EvalSettings,
    pub overall: MetricAverages,
    #[serde(rename = "shown")]
    pub shown_facts: ShownAverages,
    /// The averages of rankings by a single factor.
    pub factors: BTreeMap<&'static str, MetricAverages>,
    pub languages: BTreeMap<String, MetricAverages>,
    pub tags: BTreeMap<String, MetricAverages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<ReportComparison>,
    pub by_question: Vec<QuestionReport>,
}

/// The settings of recall.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvalSettings {
    /// The settings file, or `configuration`.
    pub name: String,
    pub embedder: String,
    pub weights: RecallWeights,
    pub recency_lambda_per_day: f64,
}

/// The same questions under other settings, with the differences (first minus second).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportComparison {
    pub settings: EvalSettings,
    pub overall: MetricAverages,
    #[serde(rename = "shown")]
    pub shown_facts: ShownAverages,
    pub languages: BTreeMap<String, MetricAverages>,
    pub tags: BTreeMap<String, MetricAverages>,
    pub recall: PairedComparison,
    pub hit: PairedComparison,
    pub mrr: PairedComparison,
}

/// One question with its results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionReport {
    pub id: String,
    pub text: String,
    pub language: String,
    pub tags: Vec<String>,
    #[serde(flatten)]
    pub figures: RankingMetrics,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<RankingMetrics>,
    pub answers: Vec<AnswerReport>,
    /// The found facts, best first, at most K.
    #[serde(rename = "found")]
    pub ranking: Vec<FoundReport>,
    /// The ids of the facts that a prompt would show.
    #[serde(rename = "shown")]
    pub shown_facts: Vec<String>,
}

/// An answer of the question. If several facts count as this answer, the fact ranked first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerReport {
    pub fact: String,
    pub content: String,
    /// The other facts that count as this answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<String>,
    /// The place, from 1, which may be beyond K; `None` if the fact was not found.
    pub place: Option<usize>,
    pub score: Option<ScoreParts>,
}

/// A found fact.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundReport {
    pub fact: String,
    pub content: String,
    pub score: ScoreParts,
}

/// The outcomes of a set under some settings.
pub struct EvalRun<'a> {
    pub settings: EvalSettings,
    /// The outcomes, in the order of the questions.
    pub outcomes: &'a [QuestionOutcome],
}

impl EvalReport {
    pub fn from_runs(name: String, set: &EvalSet, k: usize, run: EvalRun<'_>, against: Option<EvalRun<'_>>) -> Self {
        let metrics = metrics_by_question(set, run.outcomes, k);
        let comparison = against.map(|run| {
            let averages = shown_averages(set, run.outcomes);
            (metrics_by_question(set, run.outcomes, k), averages, run.settings)
        });
        let factors = RankingOrder::FACTORS.into_iter().enumerate();
        let factors = factors.map(|(index, factor)| (factor.name(), factor_averages(set, run.outcomes, k, index)));
        let other_figures = comparison.as_ref().map(|(figures, ..)| figures.as_slice());
        let by_question = question_reports(set, &run, &metrics, other_figures);
        Self {
            format: REPORT_FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            set: name,
            k,
            facts: set.facts.len(),
            questions: set.questions.len(),
            memories: set.memory_ids().len(),
            settings: run.settings,
            overall: average_answered(set, &metrics),
            shown_facts: shown_averages(set, run.outcomes),
            factors: factors.collect(),
            languages: averages_by_group(set, &metrics, question_language),
            tags: averages_by_group(set, &metrics, |question| question.tags.clone()),
            against: comparison.map(|(comparison, averages, settings)| {
                ReportComparison::from_metrics(set, settings, averages, &metrics, &comparison)
            }),
            by_question,
        }
    }

    /// Returns the questions with a missing answer, lowest recall first.
    pub fn missed_questions(&self) -> Vec<&QuestionReport> {
        let mut missed: Vec<&QuestionReport> = self
            .by_question
            .iter()
            .filter(|question| question.figures.recall < 1.0 && !question.answers.is_empty())
            .collect();
        missed.sort_by(|a, b| a.figures.recall.total_cmp(&b.figures.recall));
        missed
    }
}

impl ReportComparison {
    fn from_metrics(
        set: &EvalSet,
        settings: EvalSettings,
        shown_facts: ShownAverages,
        first: &[RankingMetrics],
        second: &[RankingMetrics],
    ) -> Self {
        let compared = |metric: fn(&RankingMetrics) -> f64| {
            let figures = |metrics: &[RankingMetrics]| answered(set, metrics).map(metric).collect::<Vec<f64>>();
            compare_paired(&figures(first), &figures(second))
        };
        Self {
            settings,
            overall: average_answered(set, second),
            shown_facts,
            languages: averages_by_group(set, second, question_language),
            tags: averages_by_group(set, second, |question| question.tags.clone()),
            recall: compared(|figures| figures.recall),
            hit: compared(|figures| figures.hit),
            mrr: compared(|figures| figures.reciprocal_rank),
        }
    }
}

/// The measures of the questions that have answers.
fn answered<'a>(set: &'a EvalSet, metrics: &'a [RankingMetrics]) -> impl Iterator<Item = &'a RankingMetrics> {
    let pairs = set.questions.iter().zip(metrics);
    pairs.filter_map(|(question, figures)| (!question.answers.is_empty()).then_some(figures))
}

fn average_answered(set: &EvalSet, metrics: &[RankingMetrics]) -> MetricAverages {
    average_metrics(answered(set, metrics))
}

fn shown_averages(set: &EvalSet, outcomes: &[QuestionOutcome]) -> ShownAverages {
    let pairs = set.questions.iter().zip(outcomes);
    average_shown(pairs.map(|(question, outcome)| (outcome.shown_facts.as_slice(), question.answers.as_slice())))
}

fn question_language(question: &SetQuestion) -> Vec<String> {
    vec![question.language.clone()]
}

fn metrics_by_question(set: &EvalSet, outcomes: &[QuestionOutcome], k: usize) -> Vec<RankingMetrics> {
    let pairs = set.questions.iter().zip(outcomes);
    pairs
        .map(|(question, outcome)| {
            let ranking: Vec<usize> = outcome.total.iter().map(|ranked| ranked.fact).collect();
            ranking_metrics(&ranking, &question.answers, k)
        })
        .collect()
}

/// Returns the averages of the rankings by one factor.
fn factor_averages(set: &EvalSet, outcomes: &[QuestionOutcome], k: usize, factor: usize) -> MetricAverages {
    let metrics: Vec<RankingMetrics> = set
        .questions
        .iter()
        .zip(outcomes)
        .filter(|(question, _)| !question.answers.is_empty())
        .filter_map(|(question, outcome)| Some(ranking_metrics(outcome.factors.get(factor)?, &question.answers, k)))
        .collect();
    average_metrics(&metrics)
}

fn averages_by_group(
    set: &EvalSet,
    metrics: &[RankingMetrics],
    groups_of: impl Fn(&SetQuestion) -> Vec<String>,
) -> BTreeMap<String, MetricAverages> {
    let mut groups: BTreeMap<String, Vec<&RankingMetrics>> = BTreeMap::new();
    let pairs = set.questions.iter().zip(metrics);
    for (question, figures) in pairs.filter(|(question, _)| !question.answers.is_empty()) {
        for group in groups_of(question) {
            groups.entry(group).or_default().push(figures);
        }
    }
    groups
        .into_iter()
        .map(|(group, figures)| (group, average_metrics(figures)))
        .collect()
}

fn question_reports(
    set: &EvalSet,
    run: &EvalRun<'_>,
    metrics: &[RankingMetrics],
    against: Option<&[RankingMetrics]>,
) -> Vec<QuestionReport> {
    let questions = set.questions.iter().zip(run.outcomes).enumerate();
    questions
        .map(|(index, (question, outcome))| QuestionReport {
            id: question.id.clone(),
            text: question.text.clone(),
            language: question.language.clone(),
            tags: question.tags.clone(),
            figures: metrics[index],
            against: against.map(|against| against[index]),
            answers: answer_reports(set, question, outcome),
            ranking: outcome.total.iter().map(|ranked| found_report(set, ranked)).collect(),
            shown_facts: outcome
                .shown_facts
                .iter()
                .map(|&fact| set.facts[fact].id.clone())
                .collect(),
        })
        .collect()
}

fn found_report(set: &EvalSet, ranked: &RankedFact) -> FoundReport {
    let fact = &set.facts[ranked.fact];
    FoundReport {
        fact: fact.id.clone(),
        content: fact.content.clone(),
        score: ranked.score,
    }
}

fn answer_reports(set: &EvalSet, question: &SetQuestion, outcome: &QuestionOutcome) -> Vec<AnswerReport> {
    let answer_report = |(index, group): (usize, &Vec<usize>)| {
        let near = outcome.total.iter().position(|ranked| group.contains(&ranked.fact));
        let further = outcome.missed.iter().find(|missed| missed.0 == index);
        let placed = near
            .map(|near| (near + 1, outcome.total[near]))
            .or_else(|| further.and_then(|missed| missed.1));
        let fact = placed.map(|(_, ranked)| ranked.fact).or(group.first().copied())?;
        let other_facts = group.iter().filter(|candidate| **candidate != fact);
        Some(AnswerReport {
            fact: set.facts[fact].id.clone(),
            content: set.facts[fact].content.clone(),
            or: other_facts
                .map(|alternative| set.facts[*alternative].id.clone())
                .collect(),
            place: placed.map(|placed| placed.0),
            score: placed.map(|placed| placed.1.score),
        })
    };
    question.answers.iter().enumerate().filter_map(answer_report).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{eval_set::parse_set, table::render_misses};

    const SET: &str = r#"
{"fact": {"id": "a", "content": "A"}}
{"fact": {"id": "b", "content": "나"}}
{"question": {"id": "one", "text": "A?", "answers": ["a"], "tags": ["x"]}}
{"question": {"id": "two", "text": "나?", "answers": ["b"], "tags": ["x", "y"]}}
"#;

    fn ranked(fact: usize) -> RankedFact {
        RankedFact {
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

    fn asked(total: &[usize], missed: Vec<(usize, Option<(usize, RankedFact)>)>) -> QuestionOutcome {
        QuestionOutcome {
            total: total.iter().copied().map(ranked).collect(),
            factors: vec![total.to_vec(); 4],
            missed,
            shown_facts: total.to_vec(),
        }
    }

    fn settings(name: &str) -> EvalSettings {
        EvalSettings {
            name: name.to_owned(),
            embedder: "offline".to_owned(),
            weights: RecallWeights::FOUR_FACTOR,
            recency_lambda_per_day: 0.002,
        }
    }

    #[test]
    fn report_shows_groups_questions_and_misses() {
        let set = parse_set(SET).unwrap();
        let first = [asked(&[0, 1], vec![]), asked(&[0], vec![(0, Some((7, ranked(1))))])];
        let second = [asked(&[1, 0], vec![]), asked(&[1], vec![])];
        let run = |name, outcomes| EvalRun {
            settings: settings(name),
            outcomes,
        };
        let report = EvalReport::from_runs("set".into(), &set, 10, run("a", &first), Some(run("b", &second)));
        assert_eq!((report.facts, report.questions, report.memories), (2, 2, 1));
        assert!((report.overall.recall - 0.5).abs() < 1e-9 && (report.overall.mrr - 0.5).abs() < 1e-9);
        assert!((report.languages["en"].recall - 1.0).abs() < 1e-9 && report.languages["ko"].recall < 1e-9);
        assert_eq!((report.tags["x"].questions, report.tags["y"].questions), (2, 1));
        assert!((report.factors["keyword"].recall - 0.5).abs() < 1e-9);
        let misses = report.missed_questions();
        assert_eq!((misses.len(), misses[0].id.as_str()), (1, "two"));
        assert_eq!(
            (misses[0].answers[0].place, misses[0].ranking[0].fact.as_str()),
            (Some(7), "a")
        );
        let against = report.against.as_ref().unwrap();
        assert!((against.overall.recall - 1.0).abs() < 1e-9 && (against.overall.mrr - 0.75).abs() < 1e-9);
        assert!((against.recall.difference + 0.5).abs() < 1e-9 && (against.mrr.difference + 0.25).abs() < 1e-9);
        assert_eq!((against.mrr.better, against.mrr.worse), (1, 1));
    }

    #[test]
    fn line_without_an_answer_counts_only_for_what_prompts_show() {
        let line = r#"{"question": {"id": "three", "text": "Good day.", "answers": [], "tags": ["x"]}}"#;
        let set = parse_set(&format!("{SET}{line}\n")).unwrap();
        let all = [
            asked(&[0], vec![]),
            asked(&[0], vec![(0, None)]),
            asked(&[0, 1], vec![]),
        ];
        let run = EvalRun {
            settings: settings("a"),
            outcomes: &all,
        };
        let report = EvalReport::from_runs("set".into(), &set, 10, run, None);
        assert_eq!(
            (report.questions, report.overall.questions, report.tags["x"].questions),
            (3, 2, 2)
        );
        assert!((report.shown_facts.precision - 0.5).abs() < 1e-9 && (report.shown_facts.facts - 1.0).abs() < 1e-9);
        assert_eq!(report.shown_facts.without_answer, Some(2.0));
        let misses = render_misses(&report, 5);
        assert!(misses.contains("1 of 2 questions miss an answer"), "{misses}");
    }
}
