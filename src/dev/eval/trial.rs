//! Runs a set on temporary stores without a server. Facts are written to a temporary ledger. Questions take the same
//! path as `GET …/facts?q=`: index, confirmation and score.
//!
//! The clock follows the times of the set. A fact is written when it begins to hold, and a question is asked at its
//! own time. A question thus sees only the facts known then, and a set gives the same figures on any day.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    eval_set::{EvalSet, SetFact, SetQuestion},
    measures::place_of_first,
    memo::MemoEmbedder,
    progress::ProgressPrinter,
};
use colloquy_core::{
    ids::{FactId, TenantId},
    scope::{Role, TenantScope},
};
use colloquy_dialogue::{Services, jobs, recall};
use colloquy_memory::{
    agreement,
    authored::{Language, Npc, Persona, TierSettings, World, WorldSettings},
    disclosure::{
        audience::{Audience, Knower, Viewpoint, Watchers},
        locks::DisclosureLocks,
    },
    fact::{Cause, NewFact, Statement},
    scoring::RecallWeights,
    trace::{CallTrace, ScoreParts},
};
use colloquy_ports::{
    clock::{IdSource, ManualClock},
    embedder::EmbedAs,
    ledger::{audit::Edit, tenants::Tenant, usage::AuthoredLimits},
};

/// The number of texts in one embedder call.
const EMBED_BATCH: usize = 32;
/// The number of concurrent embedder calls.
const EMBED_CALLS: usize = 2;
/// The number of concurrent fact writes, and of concurrent questions.
const MAX_CONCURRENT: usize = 8;
/// The depth to which the expected facts of a missed question are searched.
const MISS_SEARCH_DEPTH: usize = 200;

/// An order of the found facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankingOrder {
    /// The order by the configured weights.
    Total,
    Recency,
    Importance,
    Relevance,
    Keyword,
}

impl RankingOrder {
    /// The orders by a single factor.
    pub const FACTORS: [Self; 4] = [Self::Recency, Self::Importance, Self::Relevance, Self::Keyword];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Recency => "recency",
            Self::Importance => "importance",
            Self::Relevance => "relevance",
            Self::Keyword => "keyword",
        }
    }

    /// Returns the weights of this order; `None` selects the configured weights.
    fn recall_weights(self) -> Option<RecallWeights> {
        let only = |factor| f64::from(u8::from(self == factor));
        (self != Self::Total).then(|| RecallWeights {
            recency: only(Self::Recency),
            importance: only(Self::Importance),
            relevance: only(Self::Relevance),
            keyword: only(Self::Keyword),
        })
    }
}

/// A found fact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedFact {
    /// The fact's position in the set.
    pub fact: usize,
    pub score: ScoreParts,
}

#[derive(Debug, Clone)]
pub struct QuestionOutcome {
    /// The found facts, best first, at most K.
    pub total: Vec<RankedFact>,
    /// Positions of facts, at most K, in the order of [`RankingOrder::FACTORS`]. Empty if factors were not requested.
    pub factors: Vec<Vec<usize>>,
    /// The answers that are not among the first K, by their position in the question. Each has the first of its facts
    /// found further down, with the place, if any.
    pub missed: Vec<(usize, Option<(usize, RankedFact)>)>,
    /// Positions of the facts that a prompt would show for the question.
    pub shown_facts: Vec<usize>,
}

/// A temporary ledger with the services to search it.
pub struct EvalTrial {
    services: Services,
    clock: Arc<ManualClock>,
    scope: TenantScope,
    world: World,
    by_id: HashMap<FactId, usize>,
}

impl EvalTrial {
    /// Opens a trial on the services of `open_services`, whose ledger is empty.
    ///
    /// # Errors
    /// If the set has no facts, the services cannot be opened, or the ledger cannot be written.
    pub async fn open(
        set: &EvalSet,
        open_services: impl AsyncFnOnce(Arc<ManualClock>, Arc<IdSource>) -> anyhow::Result<Services>,
    ) -> anyhow::Result<Self> {
        let start = set.facts.iter().map(|fact| fact.valid_at).min();
        let clock = ManualClock::starting_at(start.context("the set has no facts")?);
        // The ids contain no randomness: of two equal scores, the smaller id ranks first.
        let ids = Arc::new(IdSource::new(clock.clone(), Box::new(|| 0)));
        let mut services = open_services(clock.clone(), ids).await?;
        services.embedder = Arc::new(MemoEmbedder::new(services.embedder.clone()));
        let tenant: TenantId = "eval".parse()?;
        let now = services.clock.now();
        let world = World {
            id: "eval".parse()?,
            name: "Eval".to_owned(),
            premise: String::new(),
            language: Language::En,
            rules: Vec::new(),
            settings: WorldSettings::default(),
            lore_version: 0,
            tenant: colloquy_memory::authored::TenantTier::default(),
            version: 0,
            updated_at: now,
        };
        let trial = Self {
            scope: TenantScope::new(tenant.clone()),
            services,
            clock,
            world,
            by_id: HashMap::new(),
        };
        trial.write_authored(tenant, set, now).await?;
        Ok(trial)
    }

    /// Writes the tenant, the world and one NPC per memory.
    async fn write_authored(&self, tenant: TenantId, set: &EvalSet, now: DateTime<Utc>) -> anyhow::Result<()> {
        let ledger = &self.services.ledger;
        ledger
            .tenants
            .ensure_tenant(&Tenant {
                id: tenant,
                name: "Eval".to_owned(),
                enabled: true,
                budget: None,
                created_at: now,
                version: 1,
            })
            .await?;
        let edit = self.new_edit("world.put", self.world.id.to_string());
        ledger.authored.put_world(&self.scope, &self.world, None, &edit).await?;
        for memory in set.memory_ids() {
            let npc = Npc {
                world: self.world.id.clone(),
                id: memory.clone(),
                name: memory.to_string(),
                persona: Persona::default(),
                language: Language::En,
                factions: Vec::new(),
                model: None,
                settings: TierSettings::default(),
                has_scenarios: false,
                has_tells: false,
                version: 0,
                updated_at: now,
            };
            let edit = self.new_edit("npc.put", memory.to_string());
            ledger.authored.put_npc(&self.scope, &npc, None, &edit).await?;
        }
        Ok(())
    }

    fn new_edit(&self, action: &'static str, object: String) -> Edit {
        Edit {
            id: self.services.ids.next_id(),
            audit_id: self.services.ids.next_id(),
            subject: "eval".to_owned(),
            role: Role::Admin,
            player: None,
            made_at: self.services.clock.now(),
            action,
            object,
            limits: AuthoredLimits::default(),
        }
    }

    /// The name of the embedder's model.
    pub fn embedder_model(&self) -> String {
        self.services.embedder.info().model.clone()
    }

    /// Writes every fact and asks every question, in the order of their times. Returns the outcomes in the order of
    /// the questions. With `factors`, each question is also asked by each factor alone.
    pub async fn run_set(mut self, set: &EvalSet, k: usize, factors: bool) -> anyhow::Result<Vec<QuestionOutcome>> {
        self.embed_texts(set).await?;
        let mut outcomes: Vec<Option<QuestionOutcome>> = vec![None; set.questions.len()];
        let mut progress = ProgressPrinter::new("asked", set.questions.len(), self.services.clock.clone());
        for step in steps_in_order(set) {
            match step {
                TrialStep::Write(facts) => self.write_facts(set, &facts).await?,
                TrialStep::Ask(questions) => {
                    self.advance_clock_to(set.questions[questions[0]].asked_at)?;
                    let asking = questions
                        .iter()
                        .map(|&index| self.ask_question(&set.questions[index], k, factors));
                    let mut answers = stream::iter(asking).buffered(MAX_CONCURRENT);
                    let mut positions = questions.iter();
                    while let (Some(answer), Some(&index)) = (answers.next().await, positions.next()) {
                        let id = &set.questions[index].id;
                        outcomes[index] = Some(answer.with_context(|| format!("the question `{id}`"))?);
                        progress.add_done(1);
                    }
                }
            }
        }
        self.services.ledger.maintenance.close_connections().await;
        outcomes
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| anyhow!("a question was not asked"))
    }

    /// Embeds every text in batches. Later questions and writes find their vectors in the cache.
    async fn embed_texts(&self, set: &EvalSet) -> anyhow::Result<()> {
        let facts = set
            .facts
            .iter()
            .map(|fact| statement_of(fact).embedded_text())
            .collect();
        let questions = set.questions.iter().map(|question| question.text.clone()).collect();
        let texts: [(EmbedAs, Vec<String>); 2] = [(EmbedAs::Passage, facts), (EmbedAs::Query, questions)];
        let count = texts.iter().map(|(_, texts)| texts.len()).sum();
        let mut progress = ProgressPrinter::new("embedded", count, self.services.clock.clone());
        let calls = texts
            .iter()
            .flat_map(|(kind, texts)| texts.chunks(EMBED_BATCH).map(|batch| self.embed_batch(*kind, batch)));
        let mut calls = stream::iter(calls).buffered(EMBED_CALLS);
        while let Some(vectors) = calls.next().await {
            progress.add_done(vectors?.len());
        }
        Ok(())
    }

    async fn embed_batch(&self, kind: EmbedAs, texts: &[String]) -> anyhow::Result<Vec<Vec<f32>>> {
        let embedder = self.services.embedder.as_ref();
        let models = &self.services.models;
        let (vectors, _) = models.embed_texts(&self.scope, embedder, kind, texts).await;
        let vectors = vectors.context("the embedder failed")?;
        anyhow::ensure!(
            vectors.len() == texts.len(),
            "the embedder gave {} vectors for {} texts",
            vectors.len(),
            texts.len()
        );
        Ok(vectors)
    }

    async fn write_facts(&mut self, set: &EvalSet, facts: &[usize]) -> anyhow::Result<()> {
        let Some(newest) = facts.iter().map(|&index| set.facts[index].valid_at).max() else {
            return Ok(());
        };
        self.advance_clock_to(newest)?;
        let texts: Vec<String> = facts
            .iter()
            .map(|&index| statement_of(&set.facts[index]).embedded_text())
            .collect();
        let vectors = self.embed_batch(EmbedAs::Passage, &texts).await?;
        let mut rows = Vec::with_capacity(facts.len());
        for (&index, embedding) in facts.iter().zip(vectors) {
            let fact = &set.facts[index];
            // Ids rise in the order of the set, regardless of the order of the writes.
            let edit = self.new_edit("fact.create", fact.id.clone());
            let row = NewFact {
                id: self.services.ids.next_id(),
                world: self.world.id.clone(),
                audience: Audience {
                    knowers: [Knower::Npc(fact.memory.clone())].into(),
                    private_to: None,
                },
                locks: DisclosureLocks::default(),
                statement: statement_of(fact),
                valid_at: fact.valid_at,
                expires_at: None,
                cause: Cause::Edit(edit.id),
                source: None,
                derived_from: Vec::new(),
                pii: Vec::new(),
                authored: true,
                embedding,
            };
            self.by_id.insert(row.id, index);
            rows.push((row, edit));
        }
        let store = &self.services.ledger.facts;
        stream::iter(
            rows.iter()
                .map(|(row, edit)| store.create_fact(&self.scope, row, false, edit)),
        )
        .buffered(MAX_CONCURRENT)
        .try_collect::<()>()
        .await?;
        while jobs::relay_outbox(&self.services).await? > 0 {}
        Ok(())
    }

    /// Advances the clock of the ledger. The clock never goes back, because the steps are in the order of time.
    fn advance_clock_to(&self, moment: DateTime<Utc>) -> anyhow::Result<()> {
        let remaining = (moment - self.clock_now()).to_std().unwrap_or(Duration::ZERO);
        self.clock.advance(remaining);
        anyhow::ensure!(self.clock_now() >= moment, "{moment} is not a time that can be reached");
        Ok(())
    }

    fn clock_now(&self) -> DateTime<Utc> {
        self.services.clock.now()
    }

    async fn ask_question(&self, question: &SetQuestion, k: usize, factors: bool) -> anyhow::Result<QuestionOutcome> {
        let total = self.search_facts(question, RankingOrder::Total, k).await?;
        let mut by_factor = Vec::new();
        for factor in RankingOrder::FACTORS.into_iter().filter(|_| factors) {
            let ranked = self.search_facts(question, factor, k).await?;
            by_factor.push(ranked.into_iter().map(|ranked| ranked.fact).collect());
        }
        let ranking: Vec<usize> = total.iter().map(|ranked| ranked.fact).collect();
        let answers = question.answers.iter().enumerate();
        let missing_answers: Vec<(usize, &Vec<usize>)> = answers
            .filter(|(_, group)| place_of_first(&ranking, group, k).is_none())
            .collect();
        let mut missed = Vec::with_capacity(missing_answers.len());
        if !missing_answers.is_empty() {
            let deep = self
                .search_facts(question, RankingOrder::Total, MISS_SEARCH_DEPTH.max(k))
                .await?;
            for (answer, group) in missing_answers {
                let position = deep.iter().position(|ranked| group.contains(&ranked.fact));
                missed.push((answer, position.map(|position| (position + 1, deep[position]))));
            }
        }
        Ok(QuestionOutcome {
            total,
            factors: by_factor,
            missed,
            shown_facts: self.shown_facts(question).await?,
        })
    }

    async fn shown_facts(&self, question: &SetQuestion) -> anyhow::Result<Vec<usize>> {
        let viewpoint = self.viewpoint_of(question);
        let search = recall::shown_facts(&self.services, &self.scope, &self.world, &viewpoint, &question.text);
        let (fact_ids, call) = search.await?;
        ensure_embedded(call)?;
        Ok(fact_ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect())
    }

    fn viewpoint_of(&self, question: &SetQuestion) -> Viewpoint {
        Viewpoint {
            world: self.world.id.clone(),
            npc: question.memory.clone(),
            factions: Vec::new(),
            player: None,
            watchers: Watchers::default(),
            sees_all_players: true,
        }
    }

    async fn search_facts(
        &self,
        question: &SetQuestion,
        order: RankingOrder,
        limit: usize,
    ) -> anyhow::Result<Vec<RankedFact>> {
        let mut services = self.services.clone();
        if let Some(weights) = order.recall_weights() {
            let mut settings = (*services.settings).clone();
            (settings.recall.preset, settings.recall.weights) = (None, weights);
            services.settings = Arc::new(settings);
        }
        let viewpoint = self.viewpoint_of(question);
        let (hits, calls) = recall::search_facts(
            &services,
            &self.scope,
            &self.world,
            &viewpoint,
            &question.text,
            self.clock_now(),
            limit,
        )
        .await?;
        calls.into_iter().try_for_each(ensure_embedded)?;
        Ok(hits
            .into_iter()
            .filter_map(|hit| {
                Some(RankedFact {
                    fact: *self.by_id.get(&hit.fact().id)?,
                    score: hit.score,
                })
            })
            .collect())
    }
}

/// # Errors
/// The embedder failed. A search without a vector uses words alone, and its figures would not describe this embedder.
fn ensure_embedded(call: CallTrace) -> anyhow::Result<()> {
    call.error
        .map_or(Ok(()), |error| Err(anyhow!("the embedder failed: {error}")))
}

fn statement_of(fact: &SetFact) -> Statement {
    Statement {
        subject: fact.subject.clone(),
        predicate: fact.predicate.clone(),
        object: fact.object.clone(),
        content: fact.content.clone(),
        keywords: fact.keywords.clone(),
        speaker: fact.speaker.clone(),
        kind: fact.kind,
        importance: fact.importance,
        polarity: agreement::polarity_of(&fact.content),
        tense: agreement::tense_of(&fact.content),
        pinned: false,
    }
}

/// A step of the trial, executed concurrently.
#[derive(Debug, PartialEq)]
enum TrialStep {
    /// Facts with no question between them.
    Write(Vec<usize>),
    /// Questions of the same moment.
    Ask(Vec<usize>),
}

/// Returns the steps in the order of time. A question sees the facts that begin at its own moment.
fn steps_in_order(set: &EvalSet) -> Vec<TrialStep> {
    let facts = set
        .facts
        .iter()
        .enumerate()
        .map(|(index, fact)| (fact.valid_at, false, index));
    let questions = set
        .questions
        .iter()
        .enumerate()
        .map(|(index, q)| (q.asked_at, true, index));
    let mut events: Vec<(DateTime<Utc>, bool, usize)> = facts.chain(questions).collect();
    events.sort_unstable();
    let alike = |a: &(DateTime<Utc>, bool, usize), b: &(DateTime<Utc>, bool, usize)| a.1 == b.1 && (!a.1 || a.0 == b.0);
    events
        .chunk_by(alike)
        .map(|chunk| {
            let indexes: Vec<usize> = chunk.iter().map(|event| event.2).collect();
            if chunk[0].1 {
                TrialStep::Ask(indexes)
            } else {
                TrialStep::Write(indexes)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::eval_set::parse_set;

    const SET: &str = r#"
{"fact": {"id": "old", "content": "The player likes grapes.", "valid_at": "2026-01-01T00:00:00Z"}}
{"fact": {"id": "other", "content": "Mira keeps a cat.", "valid_at": "2026-01-02T00:00:00Z"}}
{"fact": {"id": "new", "content": "The player likes plums now, and grapes no more.", "valid_at": "2026-03-01T00:00:00Z"}}
{"question": {"id": "then", "text": "Does the player like grapes?", "answers": ["old"], "at": "2026-02-01T00:00:00Z"}}
{"question": {"id": "now", "text": "Does the player like plums?", "answers": ["new"]}}
{"question": {"id": "cat", "text": "Who keeps a cat?", "answers": ["other"]}}
"#;

    #[test]
    fn trial_steps_follow_time() {
        let set = parse_set(SET).unwrap();
        assert_eq!(
            steps_in_order(&set),
            [
                TrialStep::Write(vec![0, 1]),
                TrialStep::Ask(vec![0]),
                TrialStep::Write(vec![2]),
                TrialStep::Ask(vec![1, 2]),
            ]
        );
    }
}
