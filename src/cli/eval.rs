//! `colloquy eval`: how well facts are found, on a set of facts and questions.
//!
//! The set is written to a temporary ledger and searched in the same way as for a game. The configured stores are not
//! touched. `docs/eval.md` explains the format and the figures.

mod chart;
mod eval_set;
mod measures;
mod memo;
mod progress;
mod report;
mod significance;
mod table;
mod trial;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::{
    eval_set::EvalSet,
    report::{EvalReport, EvalRun, EvalSettings},
    trial::{EvalTrial, QuestionOutcome},
};
use super::process::{block_on, print_text};
use crate::config::{Config, ConfigSources};
use colloquy_telemetry as telemetry;

#[derive(Debug, clap::Args)]
pub(super) struct EvalArgs {
    /// Facts and questions as JSON Lines (docs/eval.md). The default is the set shipped with the server.
    #[arg(value_name = "FILE")]
    set: Option<PathBuf>,
    /// The number of first results that count, 1 to 100.
    #[arg(short, long = "k", value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    k: u8,
    /// A file of settings, such as [recall.weights], applied over the configuration.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Another file of settings over the configuration, to compare on the same questions.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The number of missed questions to print, each with the facts found instead.
    #[arg(long, value_name = "N", default_value_t = 0)]
    misses: usize,
    /// Write the whole report as JSON, every question included.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the figures as an SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const SHIPPED_SET: &str = include_str!("../../config/eval/memories.jsonl");
const SHIPPED_NAME: &str = "config/eval/memories.jsonl";

pub(super) fn run(args: &EvalArgs, sources: &ConfigSources) -> anyhow::Result<()> {
    let configured = |override_file: Option<&PathBuf>| -> anyhow::Result<Config> {
        let mut sources = sources.clone();
        sources.override_file = override_file.cloned();
        Ok(Config::load(&sources)?)
    };
    let first_config = configured(args.settings.as_ref())?;
    let second_config = args.against.as_ref().map(|path| configured(Some(path))).transpose()?;
    telemetry::start_logging(&first_config.telemetry.log, first_config.telemetry.format)?;
    let (name, set) = match &args.set {
        Some(path) => (path.display().to_string(), eval_set::read_set(path)?),
        None => (
            SHIPPED_NAME.to_owned(),
            eval_set::parse_set(SHIPPED_SET).context(SHIPPED_NAME)?,
        ),
    };
    let k = usize::from(args.k);
    let report = block_on(async {
        let (settings, outcomes) = run_trial(&set, &first_config, args.settings.as_deref(), k, true).await?;
        let comparison = match &second_config {
            Some(config) => Some(run_trial(&set, config, args.against.as_deref(), k, false).await?),
            None => None,
        };
        let against = comparison.as_ref().map(|(settings, outcomes)| EvalRun {
            settings: settings.clone(),
            outcomes,
        });
        let run = EvalRun {
            settings,
            outcomes: &outcomes,
        };
        anyhow::Ok(EvalReport::from_runs(name, &set, k, run, against))
    })?;
    print_text(&table::render_tables(&report))?;
    print_text(&table::render_misses(&report, args.misses))?;
    if let Some(path) = &args.json {
        write_file(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if let Some(path) = &args.svg {
        write_file(path, chart::render_svg(&report))?;
    }
    Ok(())
}

fn write_file(path: &Path, text: String) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs the set under one configuration, on temporary stores.
async fn run_trial(
    set: &EvalSet,
    config: &Config,
    file: Option<&Path>,
    k: usize,
    factors: bool,
) -> anyhow::Result<(EvalSettings, Vec<QuestionOutcome>)> {
    let folder = tempfile::tempdir().context("cannot make a folder for the throw-away ledger")?;
    let trial = EvalTrial::open_in_folder(config, folder.path(), set).await?;
    let recall = &config.recall;
    let settings = EvalSettings {
        name: file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string()),
        embedder: trial.embedder_model(),
        weights: recall.weights_for(None),
        recency_lambda_per_day: recall.recency_lambda_per_day,
    };
    let outcomes = trial.run_set(set, k, factors).await?;
    Ok((settings, outcomes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn shipped_eval_set_is_large_and_half_korean() {
        let set = eval_set::parse_set(SHIPPED_SET).unwrap();
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
        let set = eval_set::parse_set(SHIPPED_SET).unwrap();
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
