//! Verdicts about pairs of statements: what was judged before is looked up, the rest is asked once, in lists.
//!
//! Verdicts are kept by the contents of their pairs. Those of a single call are written with what comes of them; where there
//! are several calls, each as soon as it is given, so that a job that runs out of time has lost nothing of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use minijinja::context;
use serde::{Deserialize, Deserializer};

use crate::{
    dialogue::{
        Services,
        jobs::{JobError, ask_json_or_salvage},
        models::salvage_list,
        prompt::{Template, escape_untrusted},
    },
    memory::{
        authored::Language,
        fact::Statement,
        reconcile::{JudgeVerdict, pair_hash},
        timeline::{JudgeAnswer, JudgeBudget, UnjudgedPair},
    },
    ports::{
        StoreResult,
        ledger::facts::JudgedPair,
        llm::{JsonSchema, LlmError, Task},
    },
    tenancy::TenantScope,
};

/// Calls made at once; the tenant's model routes bound what runs in all.
const CONCURRENT_JUDGE_CALLS: usize = 4;

/// What the answer needs beside its entries.
const ANSWER_TOKENS: u32 = 8;

#[derive(Deserialize)]
struct VerdictListAnswer {
    verdicts: Vec<VerdictEntry>,
}

/// A verdict and the number of its pair, from 1; without a number pairs count in order.
#[derive(Deserialize)]
struct VerdictEntry {
    #[serde(default, alias = "number", alias = "n", deserialize_with = "number")]
    pair: Option<usize>,
    verdict: String,
}

/// Models write 1, "1" and "#1".
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let digits: String = value.to_string().chars().filter(char::is_ascii_digit).collect();
    Ok(digits.parse().ok())
}

/// What is known about pairs, by the hash of their contents.
#[derive(Default)]
pub(super) struct KnownVerdicts(HashMap<[u8; 32], JudgeAnswer>);

impl KnownVerdicts {
    /// What is known without asking anybody.
    pub(super) fn verdict_of(&self, older: &Statement, newer: &Statement) -> JudgeAnswer {
        let pair = pair_hash(&older.content, &newer.content);
        self.0.get(&pair).copied().unwrap_or(JudgeAnswer::NotAsked)
    }
}

/// Finds verdicts; each pair is asked about once.
pub(super) struct Judge<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    language: Language,
    /// How many more calls may be made.
    calls: usize,
    /// Whether somebody comes again where it is away.
    asked_again: bool,
    /// Why it is, for now; what it is not asked then stays as it is.
    away: Option<LlmError>,
    pub answers: KnownVerdicts,
    /// What it said that is not kept yet.
    pub unkept: Vec<JudgedPair>,
}

impl<'a> Judge<'a> {
    /// Makes `most` calls at most: pairs beyond stay as they are.
    pub(super) fn new(services: &'a Services, scope: &'a TenantScope, language: Language, most: usize) -> Self {
        Self {
            services,
            scope,
            language,
            calls: most,
            asked_again: false,
            away: None,
            answers: KnownVerdicts::default(),
            unkept: Vec::new(),
        }
    }

    /// The same where somebody comes again, if `patient`: what the judge does not answer for now is left, and it says so.
    pub(super) fn with_patience(self, patient: bool) -> Self {
        Self {
            asked_again: patient,
            ..self
        }
    }

    /// Why somebody is to come again.
    pub(super) fn away_reason(&self) -> Option<&LlmError> {
        self.away.as_ref()
    }

    /// Keeps what it said, where nothing comes of it. A ledger that is away costs the verdicts alone.
    pub(super) async fn store_verdicts(&mut self) {
        let unkept = std::mem::take(&mut self.unkept);
        if !unkept.is_empty()
            && let Err(error) = self.services.ledger.facts.store_verdicts(self.scope, &unkept).await
        {
            tracing::warn!(%error, "verdicts were not kept; their pairs may be judged again");
        }
    }

    /// Reads verdicts off the ledger; those that nobody has given yet are left.
    pub(super) async fn look_up_verdicts(&mut self, pairs: Vec<UnjudgedPair>) -> StoreResult<Vec<UnjudgedPair>> {
        let hash = |asked: &UnjudgedPair| pair_hash(&asked.older.content, &asked.newer.content);
        let mut left: Vec<([u8; 32], UnjudgedPair)> = pairs.into_iter().map(|asked| (hash(&asked), asked)).collect();
        left.retain(|(pair, _)| !self.answers.0.contains_key(pair));
        let sought: Vec<[u8; 32]> = left.iter().map(|(pair, _)| *pair).collect();
        let known = self.services.ledger.facts.load_verdicts(self.scope, &sought).await?;
        left.retain(|(pair, _)| !known.contains_key(pair));
        let said = known
            .into_iter()
            .map(|(pair, verdict)| (pair, JudgeAnswer::Verdict(verdict)));
        self.answers.0.extend(said);
        Ok(left.into_iter().map(|(_, asked)| asked).collect())
    }

    /// How much may be asked about what one turn taught: what the fixed text of the prompt leaves.
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

    /// Asks about every pair, as many in one call as there is room for. A judge that fails changes nothing.
    ///
    /// # Errors
    /// If the verdicts of one of several calls could not be kept.
    pub(super) async fn ask_pairs(&mut self, pairs: Vec<UnjudgedPair>, room: &JudgeBudget) -> Result<(), JobError> {
        let mut asked = HashSet::new();
        let mut questions = Vec::new();
        for question in pairs {
            let pair = pair_hash(&question.older.content, &question.newer.content);
            if !self.answers.0.contains_key(&pair) && asked.insert(pair) {
                questions.push((pair, question));
            }
        }
        let mut calls = if self.away.is_some() {
            Vec::new()
        } else {
            batch_questions(questions, room)
        };
        let beyond = calls.split_off(calls.len().min(self.calls));
        self.calls -= calls.len();
        if !beyond.is_empty() {
            tracing::warn!(calls = beyond.len(), "too many pairs to judge; the rest stays as it is");
        }
        let (services, scope, language) = (self.services, self.scope, self.language);
        let several = calls.len() > 1;
        // One list that fails may be to blame itself. What is under way by then is kept as well.
        let (mut calls, mut under_way) = (calls.into_iter(), FuturesUnordered::new());
        let (mut said, mut failed) = (0, 0);
        loop {
            while under_way.len() < CONCURRENT_JUDGE_CALLS
                && failed < said + CONCURRENT_JUDGE_CALLS
                && let Some(list) = calls.next()
            {
                under_way.push(async move { ask_model(services, scope, language, &list).await });
            }
            let Some(answer) = under_way.next().await else {
                break;
            };
            match answer {
                Ok(judged) => {
                    if several {
                        services.ledger.facts.store_verdicts(scope, &judged).await?;
                    }
                    said += 1;
                    let verdicts = judged.iter();
                    let verdicts = verdicts.map(|judged| (judged.pair, JudgeAnswer::Verdict(judged.verdict)));
                    self.answers.0.extend(verdicts);
                    if !several {
                        self.unkept.extend(judged);
                    }
                }
                Err(JobError::Model(error)) if self.asked_again && error.is_transient() => {
                    self.away = Some(error);
                    failed += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, "pairs were not judged; their facts stay as they are");
                }
            }
        }
        for pair in asked {
            self.answers.0.entry(pair).or_insert(JudgeAnswer::NoAnswer);
        }
        Ok(())
    }
}

/// A pair under its hash.
type PairQuestion = ([u8; 32], UnjudgedPair);

/// Pairs in lists that fit into one call each, in their order.
fn batch_questions(questions: Vec<PairQuestion>, room: &JudgeBudget) -> Vec<Vec<PairQuestion>> {
    let mut lists: Vec<Vec<PairQuestion>> = Vec::new();
    let mut left = 0;
    for question in questions {
        let tokens = room.pair_tokens(&question.1.older, &question.1.newer);
        match lists.last_mut() {
            Some(list) if tokens <= left => {
                left -= tokens;
                list.push(question);
            }
            _ => {
                left = room.tokens.saturating_sub(tokens);
                lists.push(vec![question]);
            }
        }
    }
    lists
}

/// What a model says of a list. A pair that it does not name has no verdict.
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
    let schema = JsonSchema {
        name: "verdicts",
        schema: serde_json::json!({
            "type": "object",
            "properties": { "verdicts": { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "pair": { "type": "integer" },
                    "verdict": { "type": "string", "enum": ["same", "contradicts", "independent"] },
                },
                "required": ["pair", "verdict"],
                "additionalProperties": false,
            } } },
            "required": ["verdicts"],
            "additionalProperties": false,
        }),
    };
    let prompt = services.prompts.render(language, Template::Judge, context! { pairs })?;
    // What an answer says before it breaks off counts.
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

/// The verdicts of an answer about `pairs` pairs, by their places from 0. Of two about one pair the first counts.
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
