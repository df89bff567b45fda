//! `colloquy eval`: how well facts are found, on a set of facts and questions.
//!
//! The set is written to a throw-away ledger and asked as a game would ask; nothing of the configured stores is
//! touched. `docs/eval.md` explains the format and how to read the figures.

mod chart;
mod measures;
mod memo;
mod paired;
mod progress;
mod report;
mod set;
mod table;
mod trial;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::{
    report::{Report, Run, Settings},
    set::EvalSet,
    trial::{Asked, Trial},
};
use super::{block_on, print_text};
use crate::{
    config::{Config, Sources},
    telemetry,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Facts and questions as JSON Lines (docs/eval.md); without one, the set that ships with the server.
    #[arg(value_name = "FILE")]
    set: Option<PathBuf>,
    /// How many of the first facts count, 1 to 100.
    #[arg(short, long = "k", value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    k: u8,
    /// Settings over the configuration, a file with such as [recall.weights].
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Other settings over the configuration, to compare with on the same questions.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Questions that miss an answer to print, with what came up in its place.
    #[arg(long, value_name = "N", default_value_t = 0)]
    misses: usize,
    /// Write everything as JSON, every question included.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the figures as an SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The set that ships with the server.
const SHIPPED: &str = include_str!("../../config/eval/memories.jsonl");
const SHIPPED_NAME: &str = "config/eval/memories.jsonl";

pub(super) fn run(args: &Args, sources: &Sources) -> anyhow::Result<()> {
    let configured = |over: Option<&PathBuf>| -> anyhow::Result<Config> {
        let mut sources = sources.clone();
        sources.over = over.cloned();
        Ok(Config::load(&sources)?)
    };
    let first = configured(args.settings.as_ref())?;
    let second = args.against.as_ref().map(|path| configured(Some(path))).transpose()?;
    telemetry::start_logging(&first.telemetry.log, first.telemetry.format)?;
    let (name, set) = match &args.set {
        Some(path) => (path.display().to_string(), set::read(path)?),
        None => (SHIPPED_NAME.to_owned(), set::parse(SHIPPED).context(SHIPPED_NAME)?),
    };
    let k = usize::from(args.k);
    let report = block_on(async {
        let (settings, asked) = ask(&set, &first, args.settings.as_deref(), k, true).await?;
        let other = match &second {
            Some(config) => Some(ask(&set, config, args.against.as_deref(), k, false).await?),
            None => None,
        };
        let against = other.as_ref().map(|(settings, asked)| Run {
            settings: settings.clone(),
            asked,
        });
        let run = Run {
            settings,
            asked: &asked,
        };
        anyhow::Ok(Report::of(name, &set, k, run, against))
    })?;
    print_text(&table::table(&report))?;
    print_text(&table::misses(&report, args.misses))?;
    if let Some(path) = &args.json {
        write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if let Some(path) = &args.svg {
        write(path, chart::svg(&report))?;
    }
    Ok(())
}

fn write(path: &Path, text: String) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Asks the set under one configuration, on stores of its own.
async fn ask(
    set: &EvalSet,
    config: &Config,
    file: Option<&Path>,
    k: usize,
    factors: bool,
) -> anyhow::Result<(Settings, Vec<Asked>)> {
    let folder = tempfile::tempdir().context("cannot make a folder for the throw-away ledger")?;
    let trial = Trial::open(config, folder.path(), set).await?;
    let recall = config.dialogue().recall;
    let settings = Settings {
        name: file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string()),
        embedder: trial.embedder(),
        weights: recall.weights,
        recency_lambda_per_day: recall.recency_lambda_per_day,
    };
    let asked = trial.ask(set, k, factors).await?;
    Ok((settings, asked))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn the_shipped_set_is_large_and_half_korean() {
        let set = set::parse(SHIPPED).unwrap();
        let of = |language: &str, rows: &[&str]| rows.iter().filter(|row| **row == language).count();
        let facts: Vec<&str> = set.facts.iter().map(|fact| fact.language.as_str()).collect();
        let questions: Vec<&str> = set
            .questions
            .iter()
            .map(|question| question.language.as_str())
            .collect();
        for rows in [&facts, &questions] {
            assert!(rows.len() >= 240, "{}", rows.len());
            assert_eq!(of("en", rows), of("ko", rows));
            assert_eq!(of("en", rows) * 2, rows.len());
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
    fn the_shipped_set_has_questions_of_every_class_and_says_nothing_twice() {
        let set = set::parse(SHIPPED).unwrap();
        let mut tags: BTreeMap<&str, usize> = BTreeMap::new();
        for question in &set.questions {
            assert!(!question.tags.is_empty(), "{} has no tag", question.id);
            for tag in &question.tags {
                *tags.entry(tag).or_default() += 1;
            }
        }
        for (class, least) in [
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
                tags.get(class).is_some_and(|count| *count >= least),
                "{class}: {tags:?}"
            );
        }
        let said: BTreeSet<&str> = set.facts.iter().map(|fact| fact.content.as_str()).collect();
        assert_eq!(said.len(), set.facts.len());
        let asked: BTreeSet<(&str, &str)> = set
            .questions
            .iter()
            .map(|question| (question.memory.as_str(), question.text.as_str()))
            .collect();
        assert_eq!(asked.len(), set.questions.len());
    }
}
