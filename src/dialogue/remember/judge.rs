//! Verdicts about pairs of statements: what was judged before is looked up, the rest is asked once.

use std::collections::HashMap;

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
        timeline::Judged,
    },
    ports::{
        StoreResult,
        ledger::facts::JudgedPair,
        llm::{JsonSchema, Task},
    },
    tenancy::TenantScope,
};

#[derive(Deserialize)]
struct Answer {
    verdict: String,
}

/// What is known about pairs; each is asked about once.
pub(super) struct Judge<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    language: Language,
    answers: HashMap<[u8; 32], Judged>,
    /// What the ledger does not have yet.
    pub judged: Vec<JudgedPair>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(services: &'a Services, scope: &'a TenantScope, language: Language) -> Self {
        Self {
            services,
            scope,
            language,
            answers: HashMap::new(),
            judged: Vec::new(),
        }
    }

    /// What is known without asking anybody.
    pub(super) fn known(&self, older: &Statement, newer: &Statement) -> Judged {
        let pair = pair_hash(&older.content, &newer.content);
        self.answers.get(&pair).copied().unwrap_or(Judged::Unasked)
    }

    /// Reads verdicts off the ledger; those that nobody has given yet are left.
    pub(super) async fn look_up(
        &mut self,
        pairs: Vec<(Statement, Statement)>,
    ) -> StoreResult<Vec<(Statement, Statement)>> {
        let mut left = Vec::new();
        for (older, newer) in pairs {
            let pair = pair_hash(&older.content, &newer.content);
            if self.answers.contains_key(&pair) {
                continue;
            }
            match self.services.ledger.facts.verdict(self.scope, &pair).await? {
                Some(verdict) => {
                    self.answers.insert(pair, Judged::Said(verdict));
                }
                None => left.push((older, newer)),
            }
        }
        Ok(left)
    }

    /// Asks about every pair. A judge that fails changes nothing.
    pub(super) async fn ask(&mut self, pairs: Vec<(Statement, Statement)>) {
        for (older, newer) in pairs {
            let pair = pair_hash(&older.content, &newer.content);
            if self.answers.contains_key(&pair) {
                continue;
            }
            let answer = match self.ask_model(&older, &newer).await {
                Ok((verdict, model)) => {
                    self.judged.push(JudgedPair { pair, verdict, model });
                    Judged::Said(verdict)
                }
                Err(error) => {
                    tracing::warn!(%error, "a pair was not judged; both facts stay");
                    Judged::Silent
                }
            };
            self.answers.insert(pair, answer);
        }
    }

    async fn ask_model(&self, older: &Statement, newer: &Statement) -> Result<(Verdict, String), JobError> {
        let values = context! {
            older => untrusted(&older.content),
            newer => untrusted(&newer.content),
            kind => newer.kind.as_str(),
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
        let prompt = self.services.prompts.render(self.language, Template::Judge, values)?;
        let (answer, model): (Answer, _) = ask_json(self.services, self.scope, Task::Judge, prompt, schema).await?;
        let verdict = Verdict::parse(answer.verdict.trim().to_lowercase().as_str())
            .ok_or_else(|| JobError::Unusable("the judge named no verdict".to_owned()))?;
        Ok((verdict, model))
    }
}
