//! Verdicts about pairs of statements: what was judged before is looked up, the rest is asked once.
//!
//! A verdict is kept as soon as it is given, by the contents of its pair. So a job that runs out of time
//! has lost nothing of what its judge has said.

use std::collections::{HashMap, HashSet};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use minijinja::context;
use serde::Deserialize;

use crate::{
    dialogue::{
        Services,
        jobs::{JobError, ask_json},
        prompt::{Template, untrusted},
    },
    memory::{
        authored::Language,
        fact::Statement,
        reconcile::{Verdict, pair_hash},
        timeline::{Judged, Unasked},
    },
    ports::{
        StoreResult,
        ledger::facts::JudgedPair,
        llm::{JsonSchema, LlmError, Task},
    },
    tenancy::TenantScope,
};

/// Pairs asked about at once; the tenant's model routes bound what runs in all.
const SIDE_BY_SIDE: usize = 4;

#[derive(Deserialize)]
struct Answer {
    verdict: String,
}

/// What is known about pairs, by the hash of their contents.
#[derive(Default)]
pub(super) struct Answers(HashMap<[u8; 32], Judged>);

impl Answers {
    /// What is known without asking anybody.
    pub(super) fn of(&self, older: &Statement, newer: &Statement) -> Judged {
        let pair = pair_hash(&older.content, &newer.content);
        self.0.get(&pair).copied().unwrap_or(Judged::Unasked)
    }
}

/// Finds verdicts; each pair is asked about once.
pub(super) struct Judge<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    language: Language,
    /// How many more pairs may be asked about.
    room: usize,
    /// Whether somebody comes again where it is away.
    asked_again: bool,
    /// Why it is, for now; what it is not asked then stays as it is.
    away: Option<LlmError>,
    pub answers: Answers,
}

impl<'a> Judge<'a> {
    /// Asks about `most` pairs at most: those beyond stay as they are.
    pub(super) fn new(services: &'a Services, scope: &'a TenantScope, language: Language, most: usize) -> Self {
        Self {
            services,
            scope,
            language,
            room: most,
            asked_again: false,
            away: None,
            answers: Answers::default(),
        }
    }

    /// The same where somebody comes again, if `patient`: what the judge does not answer for now is left, and it says so.
    pub(super) fn patient(self, patient: bool) -> Self {
        Self {
            asked_again: patient,
            ..self
        }
    }

    /// Why somebody is to come again.
    pub(super) fn away(&self) -> Option<&LlmError> {
        self.away.as_ref()
    }

    /// Reads verdicts off the ledger; those that nobody has given yet are left.
    pub(super) async fn look_up(&mut self, pairs: Vec<Unasked>) -> StoreResult<Vec<Unasked>> {
        let hash = |asked: &Unasked| pair_hash(&asked.older.content, &asked.newer.content);
        let mut left: Vec<([u8; 32], Unasked)> = pairs.into_iter().map(|asked| (hash(&asked), asked)).collect();
        left.retain(|(pair, _)| !self.answers.0.contains_key(pair));
        let sought: Vec<[u8; 32]> = left.iter().map(|(pair, _)| *pair).collect();
        let known = self.services.ledger.facts.verdicts(self.scope, &sought).await?;
        left.retain(|(pair, _)| !known.contains_key(pair));
        let said = known.into_iter().map(|(pair, verdict)| (pair, Judged::Said(verdict)));
        self.answers.0.extend(said);
        Ok(left.into_iter().map(|(_, asked)| asked).collect())
    }

    /// Asks about every pair, nearest first. A judge that fails changes nothing.
    ///
    /// # Errors
    /// If a verdict could not be kept.
    pub(super) async fn ask(&mut self, mut pairs: Vec<Unasked>) -> Result<(), JobError> {
        pairs.sort_by(|a, b| b.cosine.total_cmp(&a.cosine));
        let mut asked = HashSet::new();
        let mut questions = Vec::new();
        for question in pairs {
            let pair = pair_hash(&question.older.content, &question.newer.content);
            if self.answers.0.contains_key(&pair) || !asked.insert(pair) {
                continue;
            }
            questions.push((pair, question));
        }
        if self.away.is_some() {
            questions.clear();
        } else {
            let beyond = questions.split_off(questions.len().min(self.room));
            self.room -= questions.len();
            if !beyond.is_empty() {
                tracing::warn!(pairs = beyond.len(), "too many pairs to judge; the rest stays as it is");
            }
        }
        let (services, scope, language) = (self.services, self.scope, self.language);
        // One pair that fails may be to blame itself. What is under way by then is kept as well.
        let (mut questions, mut under_way) = (questions.into_iter(), FuturesUnordered::new());
        let (mut said, mut failed) = (0, 0);
        loop {
            while under_way.len() < SIDE_BY_SIDE
                && failed < said + SIDE_BY_SIDE
                && let Some((pair, question)) = questions.next()
            {
                under_way.push(async move { (pair, ask_model(services, scope, language, &question).await) });
            }
            let Some((pair, answer)) = under_way.next().await else {
                break;
            };
            let answer = match answer {
                Ok((verdict, model)) => {
                    let judged = JudgedPair { pair, verdict, model };
                    services.ledger.facts.keep_verdict(scope, &judged).await?;
                    said += 1;
                    Judged::Said(verdict)
                }
                Err(JobError::Model(error)) if self.asked_again && error.is_transient() => {
                    self.away = Some(error);
                    failed += 1;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "a pair was not judged; both facts stay as they are");
                    Judged::Silent
                }
            };
            self.answers.0.insert(pair, answer);
        }
        for pair in asked {
            self.answers.0.entry(pair).or_insert(Judged::Silent);
        }
        Ok(())
    }
}

async fn ask_model(
    services: &Services,
    scope: &TenantScope,
    language: Language,
    question: &Unasked,
) -> Result<(Verdict, String), JobError> {
    let values = context! {
        older => untrusted(&question.older.content),
        newer => untrusted(&question.newer.content),
        kind => question.newer.kind.as_str(),
    };
    let schema = JsonSchema {
        name: "verdict",
        schema: serde_json::json!({
            "type": "object",
            "properties": { "verdict": { "type": "string", "enum": ["same", "contradicts", "independent"] } },
            "required": ["verdict"],
            "additionalProperties": false,
        }),
    };
    let prompt = services.prompts.render(language, Template::Judge, values)?;
    let (answer, model): (Answer, _) = ask_json(services, scope, Task::Judge, prompt, schema).await?;
    let verdict = Verdict::parse(answer.verdict.trim().to_lowercase().as_str())
        .ok_or_else(|| JobError::Unusable("the judge named no verdict".to_owned()))?;
    Ok((verdict, model))
}
