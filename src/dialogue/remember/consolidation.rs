//! Consolidation: a model puts older facts about the same topic into one fact (docs/algorithms.md#consolidation).
//!
//! A scan of a world queues jobs for groups of facts that have changed since their last consolidation. The job of a turn
//! consolidates the groups of the turn's facts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
};

use chrono::{DateTime, Days, Utc};
use minijinja::{Value, context};
use serde::Deserialize;
use serde_json::json;

use super::{
    pii::detect_pii,
    text_limits::{MAX_KEYWORD_CHARS, MAX_KEYWORDS, bounded_text, distinct_keywords},
};
use crate::{
    Services,
    curate::CurationBudget,
    game_time::WorldDays,
    jobs::{JobError, JobReport, ask_json, outbox::relay_or_log},
    models::tallied_usage,
    prompt::{Template, attribute_text, escape_untrusted},
};
use colloquy_core::{
    ids::{TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    consolidation::{ConcludedSentence, FactGroup, MAX_CONCLUSIONS, Week, is_premise},
    disclosure::{audience::Audience, locks::DisclosureLocks},
    fact::{Cause, Fact, NewFact, Statement},
    party,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        consolidation::{ConsolidationCommit, ConsolidationOutcome, GroupKey, MAX_FACTS_OF_WEEK, ScanPlace},
        jobs::{Job, JobInput},
    },
    llm::{JsonSchema, LlmError, Task},
};

/// Longest sentence of a conclusion, in characters.
const MAX_SENTENCE_CHARS: usize = 300;
/// Longest predicate or object, in characters.
const MAX_PART_CHARS: usize = 120;
/// The facts that a scan reads at once.
const FACTS_PER_PAGE: u32 = 500;
/// The most jobs that a look queues in a world. The others follow with the next look, within an hour.
const MAX_QUEUED_PER_LOOK: u32 = 200;
/// The most worlds of a tenant that are looked through at once. The others follow an hour later.
const WORLDS_PER_LOOK: u32 = 100;

#[derive(Deserialize)]
struct Answer {
    conclusions: Vec<serde_json::Value>,
}

/// A conclusion in an answer.
#[derive(Deserialize)]
struct ConclusionAnswer {
    #[serde(rename = "of")]
    premises: Vec<usize>,
    #[serde(default)]
    predicate: String,
    #[serde(default)]
    object: String,
    content: String,
    #[serde(default)]
    keywords: Vec<String>,
}

/// Looks through the tenant's worlds that were not looked through for `curation.consolidate_every_d` days. Returns the
/// number of queued jobs.
pub async fn queue_due_consolidations(services: &Services, scope: &TenantScope) -> StoreResult<u32> {
    let interval_days = services.settings.curation.consolidate_every_d;
    let now = services.clock.now();
    let Some(scan_before) = now
        .checked_sub_days(Days::new(interval_days.into()))
        .filter(|_| interval_days > 0)
    else {
        return Ok(0);
    };
    let store = &services.ledger.consolidation;
    let mut queued = 0;
    for world in store.list_worlds_to_scan(scope, scan_before, WORLDS_PER_LOOK).await? {
        match queue_consolidations(services, scope, &world).await {
            Ok(count) => queued += count,
            Err(error) => tracing::warn!(%world, %error, "the facts of a world could not be looked through"),
        }
    }
    Ok(queued)
}

/// Looks through the old facts of a world, and queues a job for each group that has changed since its last consolidation.
/// Returns the number of queued jobs. Old are the facts of the weeks that were over `curation.consolidate_after_d` days
/// ago; with 0 days, all facts.
pub async fn queue_consolidations(services: &Services, scope: &TenantScope, world: &WorldId) -> StoreResult<u32> {
    let store = &services.ledger.consolidation;
    let now = services.clock.now();
    let until = oldest_fresh_moment(services.settings.curation.consolidate_after_d, now);
    store
        .end_expired_conclusions(scope, world, services.ids.next_id(), now)
        .await?;
    let consolidated = store.load_consolidated(scope, world).await?;
    let mut scan = GroupScan {
        services,
        scope,
        consolidated,
        facts: Vec::new(),
        now,
        queued: 0,
    };
    let mut after = None;
    loop {
        let page = store
            .list_taught_facts(scope, world, after.as_ref(), until, FACTS_PER_PAGE)
            .await?;
        let is_last = page.len() < FACTS_PER_PAGE as usize;
        after = page.last().map(|fact| ScanPlace {
            audience: fact.audience.audience_key(),
            valid_at: fact.valid_at,
            fact: fact.id,
        });
        for fact in page {
            scan.add_fact(fact).await?;
        }
        if scan.queued >= MAX_QUEUED_PER_LOOK {
            return Ok(scan.queued);
        }
        if is_last {
            break;
        }
    }
    scan.queue_groups().await?;
    store.mark_scanned(scope, world, now).await?;
    Ok(scan.queued)
}

/// Returns the first moment whose facts are too new for a consolidation at `now`.
fn oldest_fresh_moment(after_d: u32, now: DateTime<Utc>) -> DateTime<Utc> {
    match now.checked_sub_days(Days::new(after_d.into())) {
        Some(moment) if after_d > 0 => Week::of(moment).begins_at(),
        // Also what was said at this moment.
        _ => now.checked_add_days(Days::new(1)).unwrap_or(now),
    }
}

/// Collects the facts of an audience and a week, which follow each other in a scan.
struct GroupScan<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    consolidated: HashMap<GroupKey, String>,
    /// Facts of one audience and week.
    facts: Vec<Fact>,
    now: DateTime<Utc>,
    queued: u32,
}

impl GroupScan<'_> {
    async fn add_fact(&mut self, fact: Fact) -> StoreResult<()> {
        let is_next = self.facts.first().is_some_and(|first| {
            first.audience != fact.audience || Week::of(first.valid_at) != Week::of(fact.valid_at)
        });
        if is_next {
            self.queue_groups().await?;
        }
        // As many as the job reads.
        if self.facts.len() < MAX_FACTS_OF_WEEK {
            self.facts.push(fact);
        }
        Ok(())
    }

    async fn queue_groups(&mut self) -> StoreResult<()> {
        for group in FactGroup::from_facts(mem::take(&mut self.facts), self.now) {
            if self.consolidated.get(&GroupKey::from(&group)) == Some(&group.material_hash()) {
                continue;
            }
            let Some(turn) = group.facts.last().and_then(turn_of) else {
                continue;
            };
            let store = &self.services.ledger.consolidation;
            let job = self.services.ids.next_id();
            self.queued += u32::from(store.queue_consolidation(self.scope, turn, job, self.now).await?);
        }
        Ok(())
    }
}

fn turn_of(fact: &Fact) -> Option<TurnId> {
    match fact.cause {
        Cause::Turn(turn) => Some(turn),
        _ => None,
    }
}

/// Consolidates the groups of the facts of the job's turn.
///
/// # Errors
/// [`JobError::OverCurationBudget`] if the tenant's calls or tokens of the day are used up. The job then waits.
pub(crate) async fn consolidate_facts(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
) -> Result<JobReport, JobError> {
    let store = &services.ledger.consolidation;
    let now = services.clock.now();
    let taught = store.list_facts_of_turn(scope, job_input.turn.id).await?;
    let premises = taught.into_iter().filter(|fact| is_premise(fact, now));
    let groups: BTreeMap<(String, Week), Audience> = premises
        .map(|fact| ((fact.audience.audience_key(), Week::of(fact.valid_at)), fact.audience))
        .collect();
    if !groups.is_empty() {
        let consolidation = Consolidation {
            services,
            scope,
            job,
            job_input,
            budget: CurationBudget::load(services, scope).await?,
        };
        let mut failed = None;
        for ((_, week), audience) in groups {
            failed = consolidation.consolidate_week(&audience, week).await.err().or(failed);
        }
        relay_or_log(services).await;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
    Ok(JobReport::default())
}

struct Consolidation<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    job: &'a Job,
    job_input: &'a JobInput,
    budget: CurationBudget,
}

impl Consolidation<'_> {
    async fn consolidate_week(&self, audience: &Audience, week: Week) -> Result<(), JobError> {
        let store = &self.services.ledger.consolidation;
        let facts = store
            .list_facts_of_week(self.scope, &self.job_input.world.id, audience, week)
            .await?;
        let mut groups = FactGroup::from_facts(facts, self.services.clock.now());
        // The others have jobs of their own.
        let of_turn = |fact: &Fact| fact.cause == Cause::Turn(self.job_input.turn.id);
        groups.retain(|group| group.facts.iter().any(of_turn));
        let mut failed = None;
        for group in groups {
            // An answer that is of no use does not hold up the other groups.
            failed = self.consolidate_group(group).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Consolidates a group of facts, unless its present facts were consolidated. Facts that change meanwhile are left for
    /// the next scan.
    async fn consolidate_group(&self, group: FactGroup) -> Result<(), JobError> {
        let services = self.services;
        let scope = self.scope;
        let world = &self.job_input.world.id;
        let store = &services.ledger.consolidation;
        let material = group.material_hash();
        let stored_material = store.load_material(scope, world, &GroupKey::from(&group)).await?;
        if stored_material.as_ref() == Some(&material) {
            return Ok(());
        }
        let concluded = self.ask_model(&group).await?;
        let facts = self.new_facts(&group, concluded).await?;
        failpoint!("consolidation.made");
        let commit = ConsolidationCommit {
            fence: self.job.fence(),
            world: world.clone(),
            audience: group.audience,
            week: group.week,
            about: group.about,
            material,
            facts,
            ends: services.ids.next_id(),
        };
        let outcome = store.commit_consolidation(scope, &commit).await?;
        failpoint!("consolidation.durable");
        if outcome != ConsolidationOutcome::Committed {
            tracing::info!(%world, ?outcome, "the facts of a week were not consolidated");
        }
        Ok(())
    }

    /// Asks for the conclusions of a group. Each comes with the places of its premises in the group.
    async fn ask_model(&self, group: &FactGroup) -> Result<Vec<(BTreeSet<usize>, Statement)>, JobError> {
        self.budget.check(self.services)?;
        let prompt = self.render_prompt(group).await?;
        let (answer, _) =
            ask_json::<Answer>(self.services, self.scope, Task::Curation, prompt, answer_schema()).await?;
        let mut used = BTreeSet::new();
        let mut concluded = Vec::new();
        for value in answer.conclusions.into_iter().take(MAX_CONCLUSIONS) {
            let Some((premises, sentence)) = parse_conclusion(value) else {
                continue;
            };
            if !premises.is_disjoint(&used) {
                continue;
            }
            if let Some(statement) = group.conclude(&premises, sentence) {
                used.extend(&premises);
                concluded.push((premises, statement));
            }
        }
        Ok(concluded)
    }

    async fn render_prompt(&self, group: &FactGroup) -> Result<String, JobError> {
        let services = self.services;
        let job_input = self.job_input;
        let language = job_input.npc.language;
        let days = WorldDays::load(services, self.scope, &job_input.world).await?;
        let facts = group.facts.iter().map(|fact| {
            let (date, _) = days.day_of(language, fact.valid_at);
            context! {
                about => named(&fact.statement.subject),
                from => named(&fact.statement.speaker),
                day => date,
                text => escape_untrusted(&fact.view.content),
            }
        });
        let memories: Vec<Value> = facts.collect();
        let values = context! { memories, max_text => MAX_SENTENCE_CHARS, max_keywords => MAX_KEYWORDS };
        Ok(services.prompts.render(language, Template::Consolidation, values)?)
    }

    /// Embeds the conclusions, and returns them as facts.
    async fn new_facts(
        &self,
        group: &FactGroup,
        concluded: Vec<(BTreeSet<usize>, Statement)>,
    ) -> Result<Vec<NewFact>, JobError> {
        let texts: Vec<String> = concluded
            .iter()
            .map(|(_, statement)| statement.embedded_text())
            .collect();
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let vectors = self.services.embed_passages(self.scope, &texts).await?;
        if vectors.len() != texts.len() {
            let message = format!("{} vectors came back for {} texts", vectors.len(), texts.len());
            return Err(LlmError::Broken(message).into());
        }
        let facts = concluded
            .into_iter()
            .zip(vectors)
            .filter_map(|((premises, statement), embedding)| {
                let premises: Vec<&Fact> = premises.into_iter().map(|index| &group.facts[index]).collect();
                Some(NewFact {
                    id: self.services.ids.next_id(),
                    world: self.job_input.world.id.clone(),
                    audience: group.audience.clone(),
                    // Facts with locks are no premises.
                    locks: DisclosureLocks::default(),
                    // As all times of memory: when it was said, not when it was written.
                    valid_at: premises.iter().map(|premise| premise.valid_at).max()?,
                    // A conclusion keeps nothing beyond the retention of what the model has read.
                    expires_at: group.facts.iter().filter_map(|fact| fact.expires_at).min(),
                    cause: Cause::Job(self.job.id),
                    source: None,
                    derived_from: premises.iter().map(|premise| premise.id).collect(),
                    pii: detect_pii(&statement),
                    authored: false,
                    embedding,
                    statement,
                })
            });
        Ok(facts.collect())
    }
}

/// Returns a subject or speaker in the words for models.
fn named(name: &str) -> String {
    attribute_text(&party::plain_name(name))
}

fn parse_conclusion(value: serde_json::Value) -> Option<(BTreeSet<usize>, ConcludedSentence)> {
    let answer: ConclusionAnswer = serde_json::from_value(value).ok()?;
    let premises: BTreeSet<usize> = answer
        .premises
        .iter()
        .map(|number| number.checked_sub(1))
        .collect::<Option<_>>()?;
    let part = |text: &str| bounded_text(Some(text), MAX_PART_CHARS).unwrap_or_default();
    let keywords = answer.keywords.iter();
    let keywords = keywords.filter_map(|word| bounded_text(Some(word), MAX_KEYWORD_CHARS));
    let sentence = ConcludedSentence {
        predicate: part(&answer.predicate),
        object: part(&answer.object),
        content: bounded_text(Some(&answer.content), MAX_SENTENCE_CHARS)?,
        keywords: distinct_keywords(keywords.collect()),
    };
    Some((premises, sentence))
}

fn answer_schema() -> JsonSchema {
    let item = JsonSchema::object(json!({
        "of": { "type": "array", "items": { "type": "integer" }, "minItems": 2 },
        "predicate": { "type": "string", "maxLength": MAX_PART_CHARS },
        "object": { "type": "string", "maxLength": MAX_PART_CHARS },
        "content": { "type": "string", "maxLength": MAX_SENTENCE_CHARS },
        "keywords": { "type": "array", "items": { "type": "string" }, "maxItems": MAX_KEYWORDS },
    }));
    let conclusions = json!({ "type": "array", "maxItems": MAX_CONCLUSIONS, "items": item });
    JsonSchema::for_object("consolidation", json!({ "conclusions": conclusions }))
}
