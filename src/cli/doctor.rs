//! `colloquy doctor`: asks the configured model, embedder and stores real questions, and says what to change.
//!
//! The report has a verdict for each check. `--fix` writes the changes into the settings file.

mod embedder;
mod fix;
mod machine;
mod model;
mod prompt;
mod questions;
mod report;
mod verdicts;

use std::time::Duration;

use anyhow::bail;

use self::{
    fix::{FixedFile, variable_of},
    model::{ModelProbe, ModelSubject},
    questions::Questions,
    report::{Check, Report, Verdict},
};
use super::process::{block_on, print_text};
use crate::config::{Config, ConfigSources};
use colloquy_models::openai::HttpClient;
use colloquy_ports::llm::Task;
use colloquy_telemetry as telemetry;

/// The name of the scripted model in a chain.
const SCRIPTED_MODEL: &str = "scripted";

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
    /// Writes the proposed settings into the settings file, and shows the changed lines. Other settings and comments
    /// stay.
    #[arg(long)]
    fix: bool,
    /// The limit of a question, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Leaves out the prompt of `prompt.total_tokens`, which costs the most tokens and time.
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(args: &DoctorArgs, sources: &ConfigSources) -> anyhow::Result<()> {
    let report = match Config::load(sources) {
        Ok(config) => {
            telemetry::start_logging(&config.telemetry.log, config.telemetry.format)?;
            block_on(examine(&config, args))?
        }
        Err(faults) => Report {
            checks: vec![Check::fail("settings", faults.to_string()).advise("`colloquy config` prints all settings.")],
        },
    };
    if args.json {
        print_text(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else {
        print_text(&report.to_string())?;
    }
    let changes = report.changes();
    if args.fix {
        let fixed = FixedFile::prepare(sources, &changes)?;
        // The report on standard output may be JSON.
        for change in &fixed.shadowed {
            eprintln!(
                "{} is set by the environment: set {}={} there",
                change.key,
                variable_of(&change.key),
                change.value
            );
        }
        let path = fix::shown_path(&fixed.path);
        if fixed.is_changed() {
            fixed.write()?;
            eprintln!(
                "{path}:\n{}\nRun `colloquy doctor` again, and start the server anew.",
                fixed.diff()
            );
        } else {
            eprintln!("{path} needs no change");
        }
    } else if !changes.is_empty() && !args.json {
        print_text("`colloquy doctor --fix` writes the proposed settings into the settings file.\n")?;
    }
    match report.count(Verdict::Fail) {
        0 => Ok(()),
        1 => bail!("a check failed"),
        failed => bail!("{failed} checks failed"),
    }
}

/// Makes all checks.
async fn examine(config: &Config, args: &DoctorArgs) -> anyhow::Result<Report> {
    let limit = Duration::from_secs(args.timeout);
    let mut checks = vec![Check::ok("settings", "the settings are valid")];
    if let Err(error) = crate::app::check_config(config) {
        checks = vec![Check::fail("settings", format!("{error:#}"))];
    }
    checks.extend(machine::check_limits(config));
    checks.extend(examine_models(config, args, limit).await?);
    let of_embedder = embedder::ask_embedder(config, limit).await;
    checks.extend(of_embedder);
    checks.extend(machine::ask_stores(config, limit, config.embedder.dimensions).await);
    Ok(Report { checks })
}

async fn examine_models(config: &Config, args: &DoctorArgs, limit: Duration) -> anyhow::Result<Vec<Check>> {
    let subjects = subjects_of(config);
    let mut checks = Vec::new();
    if subjects
        .iter()
        .any(|subject| subject.name == SCRIPTED_MODEL && !subject.tasks.is_empty())
    {
        let finding = "the scripted model answers: it follows patterns, not meaning";
        checks.push(
            Check::warn("model", finding)
                .about(SCRIPTED_MODEL)
                .advise("Set llm.preset, llm.model and llm.api_key for a language model."),
        );
    }
    let probed_subjects: Vec<&ModelSubject<'_>> = subjects
        .iter()
        .filter(|subject| subject.name != SCRIPTED_MODEL)
        .collect();
    if probed_subjects.is_empty() {
        return Ok(checks);
    }
    let questions = Questions::read()?;
    let prompts = if config.prompt.ask_for_state {
        prompt::assemble_reply_prompts(config, &questions).await?
    } else {
        Vec::new()
    };
    let http = HttpClient::new()?;
    let probe = ModelProbe {
        config,
        http: &http,
        questions: &questions,
        prompts: &prompts,
        limit,
        with_long_prompt: !args.quick,
    };
    for subject in probed_subjects {
        checks.extend(check_key(subject));
        checks.extend(probe.ask_model(subject).await);
    }
    Ok(checks)
}

/// Says that a provider's API wants a key and none is set.
fn check_key(subject: &ModelSubject<'_>) -> Option<Check> {
    let settings = &subject.resolved.settings;
    let preset = settings.known_preset().filter(|preset| preset.needs_key)?;
    let is_missing = settings.api_key.is_none() && settings.base_url == preset.base_url;
    is_missing.then(|| {
        let key = format!("{}.api_key", subject.resolved.section());
        Check::fail("key", format!("the preset `{}` needs {key}", preset.name))
            .about(subject.name)
            .advise(format!("Set {key}, or {} in the environment.", variable_of(&key)))
    })
}

/// Returns the models of all routes, each once, with the tasks that ask it first.
fn subjects_of(config: &Config) -> Vec<ModelSubject<'_>> {
    let llm = &config.llm;
    let mut subjects: Vec<ModelSubject<'_>> = Vec::new();
    for (task, (_, section)) in Task::ALL.into_iter().zip(llm.tasks.named_tasks()) {
        let primary = section.model.as_deref().or(llm.model.as_deref());
        let primary = (primary.unwrap_or(SCRIPTED_MODEL), Some(task));
        let fallbacks = section.fallback.iter().map(|name| (name.as_str(), None));
        for (name, task) in std::iter::once(primary).chain(fallbacks) {
            match subjects.iter_mut().find(|existing| existing.name == name) {
                Some(existing) => existing.tasks.extend(task),
                None => subjects.push(ModelSubject {
                    name,
                    tasks: task.into_iter().collect(),
                    resolved: llm.resolve_model(name),
                }),
            }
        }
    }
    subjects
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> Config {
        Config::load(&ConfigSources {
            env: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ConfigSources::default()
        })
        .unwrap()
    }

    #[test]
    fn each_model_is_asked_once_for_all_of_its_tasks() {
        let config = config(&[
            ("COLLOQUY__LLM__PRESET", "openai"),
            ("COLLOQUY__LLM__MODEL", "large"),
            ("COLLOQUY__LLM__ENDPOINTS__LOCAL__PRESET", "ollama"),
            ("COLLOQUY__LLM__TASKS__INTENT__MODEL", "local:small"),
            ("COLLOQUY__LLM__TASKS__REPLY__FALLBACK", "local:small,scripted"),
        ]);
        let subjects = subjects_of(&config);
        let task_counts: Vec<_> = subjects
            .iter()
            .map(|subject| (subject.name, subject.tasks.len()))
            .collect();
        assert_eq!(task_counts, [("large", 5), ("local:small", 1), ("scripted", 0)]);
        assert_eq!(subjects[1].resolved.section(), "llm.endpoints.local");
        let missing = check_key(&subjects[0]).unwrap();
        assert!(missing.advice.contains("COLLOQUY__LLM__API_KEY"), "{missing}");
        assert_eq!(check_key(&subjects[1]), None);
    }

    #[test]
    fn without_a_model_only_the_scripted_model_is_named() {
        let subjects_of_default = config(&[]);
        let subjects = subjects_of(&subjects_of_default);
        assert_eq!(subjects.len(), 1);
        assert_eq!((subjects[0].name, subjects[0].tasks.len()), (SCRIPTED_MODEL, 6));
    }
}
