//! Renders a report for a terminal.

use std::fmt::Write as _;

use super::{
    measures::{MetricAverages, ShownAverages},
    report::{EvalReport, EvalSettings, QuestionReport, ReportComparison},
    significance::PairedComparison,
};
use colloquy_memory::trace::ScoreParts;

/// The number of characters shown of a fact.
const SHOWN_CHARS: usize = 100;
/// The number of facts shown in place of a missed answer.
const SHOWN_FOUND: usize = 3;

/// Renders the tables.
pub fn render_tables(report: &EvalReport) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = write_tables(&mut out, report);
    out
}

fn write_tables(out: &mut String, report: &EvalReport) -> std::fmt::Result {
    let k = report.k;
    writeln!(
        out,
        "{}: {} facts in {} memories, {} questions; K = {k}",
        report.set, report.facts, report.memories, report.questions
    )?;
    writeln!(out, "{}", describe_settings(&report.settings))?;
    if let Some(against) = &report.against {
        writeln!(out, "against {}", describe_settings(&against.settings))?;
    }
    let against = report.against.as_ref();
    writeln!(
        out,
        "\n{:<26}{:>10}{:>11}{:>9}{:>8}{}",
        "",
        "questions",
        format!("Recall@{k}"),
        format!("Hit@{k}"),
        "MRR",
        if against.is_some() {
            "   Recall and MRR against"
        } else {
            ""
        }
    )?;
    write_row(out, "total", &report.overall, against.map(|against| &against.overall))?;
    write_shown(out, &report.shown_facts, against.map(|against| &against.shown_facts))?;
    for (factor, averages) in &report.factors {
        write_row(out, &format!("  {factor} alone"), averages, None)?;
    }
    writeln!(out, "by language")?;
    for (language, averages) in &report.languages {
        let compared = against.and_then(|against| against.languages.get(language));
        write_row(out, &format!("  {language}"), averages, compared)?;
    }
    if !report.tags.is_empty() {
        writeln!(out, "by tag")?;
    }
    for (tag, averages) in &report.tags {
        let compared = against.and_then(|against| against.tags.get(tag));
        write_row(out, &format!("  {tag}"), averages, compared)?;
    }
    against.map_or(Ok(()), |against| write_comparison(out, report, against))
}

fn describe_settings(settings: &EvalSettings) -> String {
    let name = &settings.name;
    let embedder = &settings.embedder;
    let weights = settings.weights;
    format!(
        "{name}: embedder {embedder}; weights: relevance {}, keyword {}, recency {}, importance {}; λ {} a day",
        weights.relevance, weights.keyword, weights.recency, weights.importance, settings.recency_lambda_per_day
    )
}

fn write_row(
    out: &mut String,
    name: &str,
    averages: &MetricAverages,
    against: Option<&MetricAverages>,
) -> std::fmt::Result {
    let questions = averages.questions;
    let recall = averages.recall;
    let hit = averages.hit;
    let mrr = averages.mrr;
    write!(out, "{name:<26}{questions:>10}{recall:>11.3}{hit:>9.3}{mrr:>8.3}")?;
    if let Some(compared) = against {
        write!(out, "   {:+.3}  {:+.3}", recall - compared.recall, mrr - compared.mrr)?;
    }
    writeln!(out)
}

fn write_shown(out: &mut String, shown_facts: &ShownAverages, against: Option<&ShownAverages>) -> std::fmt::Result {
    write!(
        out,
        "  Precision@shown {:.3}; {:.1} facts shown for a question",
        shown_facts.precision, shown_facts.facts
    )?;
    if let Some(strangers) = shown_facts.without_answer {
        write!(out, ", {strangers:.1} for a line without an answer")?;
    }
    if let Some(compared) = against {
        let precision = shown_facts.precision - compared.precision;
        let facts = shown_facts.facts - compared.facts;
        write!(out, "   {precision:+.3}  {facts:+.1}")?;
    }
    writeln!(out)
}

fn write_comparison(out: &mut String, report: &EvalReport, against: &ReportComparison) -> std::fmt::Result {
    writeln!(
        out,
        "\nthe first less the second, question by question (two-sided sign-flip permutation test, bootstrap interval)\n\
         {:<12}{:>8}{:>8}{:>12}{:>20}{:>9}{:>8}{:>7}{:>7}",
        "", "first", "second", "difference", "95 % interval", "p", "better", "worse", "equal"
    )?;
    let first = &report.overall;
    let second = &against.overall;
    for (name, a, b, comparison) in [
        (
            format!("Recall@{}", report.k),
            first.recall,
            second.recall,
            &against.recall,
        ),
        (format!("Hit@{}", report.k), first.hit, second.hit, &against.hit),
        ("MRR".to_owned(), first.mrr, second.mrr, &against.mrr),
    ] {
        let PairedComparison {
            difference,
            low,
            high,
            p,
            better,
            worse,
            equal,
        } = comparison;
        let interval = format!("{low:+.3} to {high:+.3}");
        writeln!(
            out,
            "{name:<12}{a:>8.3}{b:>8.3}{difference:>+12.3}{interval:>20}{p:>9.4}{better:>8}{worse:>7}{equal:>7}"
        )?;
    }
    Ok(())
}

/// Renders the first `count` misses: the question, the expected answers and the facts found instead.
pub fn render_misses(report: &EvalReport, count: usize) -> String {
    let missed = report.missed_questions();
    let mut out = String::new();
    if count == 0 {
        return out;
    }
    let _ = writeln!(
        out,
        "\n{} of {} questions miss an answer{}",
        missed.len(),
        // Lines without an answer cannot miss one.
        report.overall.questions,
        if missed.len() > count {
            format!("; the first {count}:")
        } else {
            String::new()
        }
    );
    for question in missed.into_iter().take(count) {
        let _ = write_miss(&mut out, question, report.k);
    }
    out
}

fn write_miss(out: &mut String, question: &QuestionReport, k: usize) -> std::fmt::Result {
    writeln!(
        out,
        "\n{} [{}] {}",
        question.id,
        question.tags.join(", "),
        shorten_line(&question.text)
    )?;
    for answer in question
        .answers
        .iter()
        .filter(|answer| answer.place.is_none_or(|place| place > k))
    {
        let fact = &answer.fact;
        let content = shorten_line(&answer.content);
        if let (Some(place), Some(score)) = (answer.place, &answer.score) {
            writeln!(
                out,
                "  expected, at {place}: {fact}: {content}\n    {}",
                describe_score(score)
            )?;
        } else {
            writeln!(out, "  expected, not among the candidates: {fact}: {content}")?;
        }
    }
    for (index, found_fact) in question.ranking.iter().take(SHOWN_FOUND).enumerate() {
        let content = shorten_line(&found_fact.content);
        writeln!(
            out,
            "  {}. {}: {content}\n    {}",
            index + 1,
            found_fact.fact,
            describe_score(&found_fact.score)
        )?;
    }
    Ok(())
}

fn describe_score(score: &ScoreParts) -> String {
    format!(
        "score {:.3}: relevance {:.3} (cosine {:.3}), keyword {:.3}, recency {:.3}, importance {:.3}",
        score.total, score.relevance, score.cosine, score.keyword, score.recency, score.importance
    )
}

/// Returns the text as a single line, shortened to `SHOWN_CHARS`.
fn shorten_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN_CHARS {
        return line;
    }
    line.chars().take(SHOWN_CHARS).chain(['…']).collect()
}
