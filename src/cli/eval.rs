//! `colloquy eval`: how well facts are found, on a set of facts and questions.
//!
//! The set is written to a temporary ledger and searched in the same way as for a game. The configured stores are not
//! touched. `docs/eval.md` explains the format and the figures.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::process::{block_on, print_text};
use crate::{
    app::open_services,
    config::{Config, ConfigSources},
};
use colloquy_eval::{self as eval, EvalReport, EvalRun, EvalSet, EvalSettings, EvalTrial, QuestionOutcome};
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
        Some(path) => (path.display().to_string(), eval::read_set(path)?),
        None => (eval::SHIPPED_NAME.to_owned(), eval::shipped_set()?),
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
    print_text(&eval::render_tables(&report))?;
    print_text(&eval::render_misses(&report, args.misses))?;
    if let Some(path) = &args.json {
        write_file(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if let Some(path) = &args.svg {
        write_file(path, eval::render_svg(&report))?;
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
    let own_stores = with_own_stores(config, folder.path());
    let trial = EvalTrial::open(set, async |clock, ids| open_services(&own_stores, clock, ids).await).await?;
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

/// Returns the configuration with temporary stores in `folder` in place of the configured stores.
fn with_own_stores(config: &Config, folder: &Path) -> Config {
    let mut config = config.clone();
    folder.clone_into(&mut config.data_dir);
    config.ledger.url = None;
    config.node.url = None;
    config.buffer.url = "memory:".into();
    "embedded:".clone_into(&mut config.vectors.url);
    config
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use colloquy_eval::parse_set;

    const SET: &str = r#"
{"fact": {"id": "old", "content": "The player likes grapes.", "valid_at": "2026-01-01T00:00:00Z"}}
{"fact": {"id": "other", "content": "Mira keeps a cat.", "valid_at": "2026-01-02T00:00:00Z"}}
{"fact": {"id": "new", "content": "The player likes plums now, and grapes no more.", "valid_at": "2026-03-01T00:00:00Z"}}
{"question": {"id": "then", "text": "Does the player like grapes?", "answers": ["old"], "at": "2026-02-01T00:00:00Z"}}
{"question": {"id": "now", "text": "Does the player like plums?", "answers": ["new"]}}
{"question": {"id": "cat", "text": "Who keeps a cat?", "answers": ["other"]}}
"#;

    async fn run_with_defaults(set: &EvalSet, k: usize, factors: bool) -> Vec<QuestionOutcome> {
        let config = Config::embedded_defaults();
        run_trial(set, &config, None, k, factors).await.unwrap().1
    }

    #[tokio::test]
    async fn trial_question_is_answered_from_facts_known_at_its_time() {
        let set = parse_set(SET).unwrap();
        let outcomes = run_with_defaults(&set, 10, true).await;
        let facts = |index: usize| {
            outcomes[index]
                .total
                .iter()
                .map(|ranked| ranked.fact)
                .collect::<Vec<_>>()
        };
        assert_eq!(facts(0), [0, 1], "the newer fact is not known yet");
        assert_eq!((facts(1)[0], facts(2)[0]), (2, 1));
        // The newest fact is first for every question.
        assert_eq!(outcomes[2].factors[0], [2, 1, 0]);
        assert!(outcomes[2].shown_facts.contains(&1), "{:?}", outcomes[2].shown_facts);
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.factors.len() == 4 && outcome.missed.is_empty())
        );
    }

    #[tokio::test]
    async fn fact_that_names_a_person_is_stored_as_a_name() {
        let rows = r#"
{"fact": {"id": "name", "content": "The player's sister is called Anna.", "subject": "the player's sister", "predicate": "be named", "object": "Anna"}}
{"fact": {"id": "boat", "content": "Anna rows on the lake.", "subject": "Anna"}}
{"fact": {"id": "shop", "content": "The player's sister keeps a shop.", "subject": "the player's sister"}}
{"fact": {"id": "mill", "content": "The miller keeps geese.", "subject": "the miller"}}
{"question": {"id": "sister", "text": "What about my sister?", "answers": ["boat"]}}
{"question": {"id": "anna", "text": "Anna?", "answers": ["shop"]}}
"#;
        for is_named in [true, false] {
            let unnamed = rows.replace("be named", "be");
            let set = parse_set(if is_named { rows } else { &unnamed }).unwrap();
            let outcomes = run_with_defaults(&set, 10, false).await;
            for (question, answer) in [(0, 1), (1, 2)] {
                let mut ranked = outcomes[question].total.iter();
                let hit = ranked.find(|ranked| ranked.fact == answer).unwrap();
                assert_eq!(hit.score.keyword > 0.2, is_named, "{question}");
            }
        }
    }

    #[tokio::test]
    async fn missed_answer_is_searched_at_greater_depth() {
        let mut set = parse_set(SET).unwrap();
        set.questions[2].answers = vec![vec![2]];
        let outcomes = run_with_defaults(&set, 1, false).await;
        let (answer, hit) = outcomes[2].missed[0];
        let (place, ranked) = hit.unwrap();
        assert_eq!((outcomes[2].total.len(), answer, ranked.fact), (1, 0, 2));
        assert!(place > 1);
        assert!(outcomes[2].factors.is_empty());
    }
}
