//! Verdicts about pairs of statements. Known verdicts are looked up; the other pairs are asked once, in lists.
//!
//! Verdicts are stored by the contents of their pairs. A single call's verdicts are written with the result. With
//! several calls, each call's verdicts are written at once, so a job that runs out of time loses none of them.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use minijinja::context;
use serde::{Deserialize, Deserializer};

use super::judge_calls::{KnownVerdicts, PairHash, PairQuestion, may_start_call, plan_calls};
use crate::{
    Services,
    jobs::{JobError, ask_json_or_salvage},
    models::salvage_list,
    prompt::{Template, escape_untrusted},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::Language,
    reconcile::JudgeVerdict,
    timeline::{JudgeAnswer, JudgeBudget, UnjudgedPair},
};
use colloquy_ports::{
    StoreResult,
    ledger::facts::JudgedPair,
    llm::{JsonSchema, LlmError, Task},
};

/// The tokens of an answer besides its entries.
const ANSWER_TOKENS: u32 = 8;

#[derive(Deserialize)]
struct VerdictListAnswer {
    verdicts: Vec<VerdictEntry>,
}

/// A verdict with the number of its pair, from 1. Pairs without a number count in order.
#[derive(Deserialize)]
struct VerdictEntry {
    #[serde(default, alias = "number", alias = "n", deserialize_with = "number")]
    pair: Option<usize>,
    verdict: String,
}

/// Accepts 1, "1" and "#1", because models write all three.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let digits: String = value.to_string().chars().filter(char::is_ascii_digit).collect();
    Ok(digits.parse().ok())
}

/// Finds verdicts. Asks about each pair once.
pub(super) struct Judge<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    language: Language,
    /// The number of calls left.
    calls: usize,
    /// True if the caller retries later when the judge is away.
    is_patient: bool,
    /// The error if the judge is away. Unjudged pairs then stay unchanged for now.
    outage: Option<LlmError>,
    pub answers: KnownVerdicts,
    /// The judge's verdicts that are not stored yet.
    pub unstored: Vec<JudgedPair>,
}

impl<'a> Judge<'a> {
    /// Limits the judge to `max_calls` calls. Pairs beyond the limit stay unchanged.
    pub(super) fn new(services: &'a Services, scope: &'a TenantScope, language: Language, max_calls: usize) -> Self {
        Self {
            services,
            scope,
            language,
            calls: max_calls,
            is_patient: false,
            outage: None,
            answers: KnownVerdicts::default(),
            unstored: Vec::new(),
        }
    }

    /// If `patient`, the caller retries later. Pairs without an answer are then left, and the judge reports the error.
    pub(super) fn with_patience(self, patient: bool) -> Self {
        Self {
            is_patient: patient,
            ..self
        }
    }

    /// Returns the error that requires a later retry.
    pub(super) fn away_reason(&self) -> Option<&LlmError> {
        self.outage.as_ref()
    }

    /// Stores verdicts that no result has written. If the ledger is away, only these verdicts are lost.
    pub(super) async fn store_verdicts(&mut self) {
        let unstored = std::mem::take(&mut self.unstored);
        if !unstored.is_empty()
            && let Err(error) = self.services.ledger.facts.store_verdicts(self.scope, &unstored).await
        {
            tracing::warn!(%error, "verdicts were not kept; their pairs may be judged again");
        }
    }

    /// Loads verdicts from the ledger. Returns the pairs without a verdict.
    pub(super) async fn look_up_verdicts(&mut self, pairs: Vec<UnjudgedPair>) -> StoreResult<Vec<UnjudgedPair>> {
        let mut remaining: Vec<PairQuestion> = self.answers.unknown_pairs(pairs).collect();
        let hashes: Vec<PairHash> = remaining.iter().map(|(pair, _)| *pair).collect();
        let stored = self.services.ledger.facts.load_verdicts(self.scope, &hashes).await?;
        remaining.retain(|(pair, _)| !stored.contains_key(pair));
        let answers = stored
            .into_iter()
            .map(|(pair, verdict)| (pair, JudgeAnswer::Verdict(verdict)));
        self.answers.add_answers(answers);
        Ok(remaining.into_iter().map(|(_, question)| question).collect())
    }

    /// Returns the token budget for the pairs of one turn: the limit without the prompt's fixed text.
    ///
    /// # Errors
    /// If the prompt cannot be rendered.
    pub(super) fn prompt_room(&self) -> Result<JudgeBudget, JobError> {
        let services = self.services;
        let counter = services.models.counter_for_task(Task::Judge);
        let fixed = services.prompts.render(
            self.language,
            Template::Judge,
            context! { pairs => Vec::<String>::new() },
        )?;
        let fixed = services
            .prompts
            .count_tokens(counter, &fixed)
            .saturating_add(ANSWER_TOKENS);
        Ok(JudgeBudget {
            tokens: services.settings.jobs.judge_tokens.saturating_sub(fixed),
            counter,
        })
    }

    /// Asks about all pairs, with as many per call as fit. A judge that fails changes nothing.
    ///
    /// # Errors
    /// If the verdicts of one of several calls could not be stored.
    pub(super) async fn ask_pairs(&mut self, pairs: Vec<UnjudgedPair>, budget: &JudgeBudget) -> Result<(), JobError> {
        let plan = plan_calls(pairs, &self.answers, budget, self.calls, self.outage.is_some());
        self.calls -= plan.calls.len();
        if plan.excess_calls > 0 {
            tracing::warn!(
                calls = plan.excess_calls,
                "too many pairs to judge; the rest stays as it is"
            );
        }
        let services = self.services;
        let scope = self.scope;
        let language = self.language;
        let has_several = plan.calls.len() > 1;
        // After a failure, verdicts of calls still running are stored too.
        let mut calls = plan.calls.into_iter();
        let mut running = FuturesUnordered::new();
        let mut answered_calls = 0;
        let mut failed_calls = 0;
        loop {
            while may_start_call(running.len(), answered_calls, failed_calls)
                && let Some(list) = calls.next()
            {
                running.push(async move { ask_model(services, scope, language, &list).await });
            }
            let Some(answer) = running.next().await else {
                break;
            };
            match answer {
                Ok(judged) => {
                    if has_several {
                        services.ledger.facts.store_verdicts(scope, &judged).await?;
                    }
                    answered_calls += 1;
                    let verdicts = judged.iter();
                    let verdicts = verdicts.map(|judged| (judged.pair, JudgeAnswer::Verdict(judged.verdict)));
                    self.answers.add_answers(verdicts);
                    if !has_several {
                        self.unstored.extend(judged);
                    }
                }
                Err(JobError::Model(error)) if self.is_patient && error.is_transient() => {
                    self.outage = Some(error);
                    failed_calls += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, "pairs were not judged; their facts stay as they are");
                }
            }
        }
        self.answers.mark_unanswered(plan.pairs);
        Ok(())
    }
}

/// Asks a model about a list. A pair that the answer omits has no verdict.
async fn ask_model(
    services: &Services,
    scope: &TenantScope,
    language: Language,
    list: &[PairQuestion],
) -> Result<Vec<JudgedPair>, JobError> {
    let pairs: Vec<_> = list
        .iter()
        .map(|(_, question)| {
            context! {
                older => escape_untrusted(&question.older.content),
                newer => escape_untrusted(&question.newer.content),
            }
        })
        .collect();
    let verdict = JsonSchema::object(serde_json::json!({
        "pair": { "type": "integer" },
        "verdict": { "type": "string", "enum": ["same", "contradicts", "independent"] },
    }));
    let verdicts = serde_json::json!({ "verdicts": { "type": "array", "items": verdict } });
    let schema = JsonSchema::for_object("verdicts", verdicts);
    let prompt = services.prompts.render(language, Template::Judge, context! { pairs })?;
    // The finished entries of a broken answer count.
    let salvage = |text: &str| {
        let entries = salvage_list(text, "verdicts").into_iter();
        let verdicts: Vec<VerdictEntry> = entries.filter_map(|entry| serde_json::from_value(entry).ok()).collect();
        (!verdicts.is_empty()).then_some(VerdictListAnswer { verdicts })
    };
    let (answer, model) = ask_json_or_salvage(services, scope, Task::Judge, prompt, schema, salvage).await?;
    let judged = parse_verdicts(&answer, list.len());
    if judged.is_empty() {
        return Err(JobError::Unusable("the judge named no verdict".to_owned()));
    }
    let judged = judged.into_iter().map(|(nth, verdict)| JudgedPair {
        pair: list[nth].0,
        verdict,
        model: model.clone(),
    });
    Ok(judged.collect())
}

/// Returns the verdicts for `pairs` pairs, by index from 0. If a pair has two verdicts, the first counts.
fn parse_verdicts(answer: &VerdictListAnswer, pairs: usize) -> BTreeMap<usize, JudgeVerdict> {
    let mut judged = BTreeMap::new();
    for (place, entry) in answer.verdicts.iter().enumerate() {
        let number = entry.pair.unwrap_or(place + 1);
        let verdict = JudgeVerdict::parse(entry.verdict.trim().to_lowercase().as_str());
        if let (Some(verdict), Some(nth)) = (verdict, number.checked_sub(1).filter(|nth| *nth < pairs)) {
            judged.entry(nth).or_insert(verdict);
        }
    }
    judged
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use JudgeVerdict::{Contradicts, Independent, Same};

    #[test]
    fn judge_answer_is_parsed_by_pair_number() {
        let judged = |text: &str, pairs| {
            let answer: VerdictListAnswer = serde_json::from_str(text).unwrap();
            parse_verdicts(&answer, pairs).into_iter().collect::<Vec<_>>()
        };
        let answer = r#"{"verdicts": [{"pair": 2, "verdict": "Same "}, {"pair": "1", "verdict": "contradicts"}]}"#;
        assert_eq!(judged(answer, 3), [(0, Contradicts), (1, Same)], "the third has none");
        let answer = r##"{"verdicts": [{"verdict": "same"}, {"number": "#2", "verdict": "independent"}]}"##;
        assert_eq!(judged(answer, 2), [(0, Same), (1, Independent)]);
        let answer = r#"{"verdicts": [{"pair": 0, "verdict": "same"}, {"pair": 9, "verdict": "same"},
            {"pair": 1, "verdict": "perhaps"}, {"pair": 2, "verdict": "same"}, {"pair": 2, "verdict": "independent"}]}"#;
        assert_eq!(judged(answer, 2), [(1, Same)]);
    }
}
