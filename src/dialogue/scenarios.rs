//! What an NPC may tell of its own past (ALGORITHMS §4): as much as the player it talks with has unlocked.
//!
//! Progress follows from the state of the world, which every turn reads; so what unlocked something and was
//! unsaid unlocks it no more. What is locked is not read from the ledger at all.

use chrono::{DateTime, SubsecRound as _, Utc};

use super::{Services, intent::Classified, recall::TRACED, remember::HandError, turn::TurnInput};
use crate::{
    ids::{NpcId, PlayerId, ScenarioId},
    memory::{
        authored::{Npc, World},
        fact::Cause,
        keywords::{self, TermWeights},
        party,
        progress::{self, Progress, Standing, Whom},
        scenario::{self, Scenario, ScenarioScore},
        scoring::dot,
        state::{StateChange, WorldState},
        trace::CandidateFate,
        turn::{Intent, RECENT_TURNS},
    },
    ports::{
        StoreResult,
        embedder::EmbedAs,
        ledger::{
            audit::Edit,
            authored::PutOutcome,
            scenarios::{Embedding, Unlocked},
            state::NewStateChange,
        },
        llm::LlmError,
    },
    tenancy::TenantScope,
};

/// What is known of a player and an NPC's past before the line is sorted.
#[derive(Debug, Default)]
pub(super) struct Known {
    standing: Standing,
    /// What is unlocked, where it had to be read already.
    unlocked: Option<Vec<Unlocked>>,
    /// Unlocked or told lately, the latest first; and when.
    recent: Vec<(ScenarioId, String, DateTime<Utc>)>,
}

impl Known {
    /// Titles of what was unlocked or told lately. Nothing that is locked is among them.
    pub(super) fn titles(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(|(_, title, _)| title.as_str())
    }
}

/// One scenario that may be told.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub scenario: Scenario,
    pub score: ScenarioScore,
    pub recent: bool,
    /// `TooWeak`, or what it is for as long as nothing has decided: `BeyondTopK`.
    pub fate: CandidateFate,
}

/// What a turn that is about the NPC's past has of it.
#[derive(Debug)]
pub(super) struct Past {
    /// How far the player has come; `None`: there is no player.
    pub progress: Option<Progress>,
    /// The line asks for it.
    pub asked: bool,
    /// Best first.
    pub hits: Vec<Hit>,
}

fn whom(npc: &Npc) -> Whom<'_> {
    Whom {
        id: &npc.id,
        name: &npc.name,
    }
}

/// Where a player stands with an NPC.
pub async fn standing(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    npc: &Npc,
    player: &PlayerId,
) -> StoreResult<Standing> {
    let state = services.bodies.world(services, scope, &world.id).await?;
    let rules = world.settings.overridden_by(&npc.settings);
    Ok(progress::standing(
        &state.milestones,
        rules.unlock_rules(),
        whom(npc),
        Some(player),
    ))
}

/// Reads what has to be known before a line is sorted: whether anything was unlocked or told lately, and what.
/// Where nothing can have been, the ledger is not asked.
pub(super) async fn known(services: &Services, input: &TurnInput, state: &WorldState) -> StoreResult<Known> {
    let (npc, checkpoint) = (&input.npc, &input.checkpoint);
    if !npc.has_scenarios {
        return Ok(Known::default());
    }
    let rules = input.world.settings.unlock_rules();
    let standing = progress::standing(&state.milestones, rules, whom(npc), input.player.as_ref());
    let since = checkpoint.recent_since(input.dialogue.created_at);
    if checkpoint.recently_unlocked.is_empty() && !standing.rose_after(since) {
        return Ok(Known {
            standing,
            ..Known::default()
        });
    }
    let unlocked = unlocked(services, input, &standing).await?;
    let lately = |scenario: &Scenario| {
        let unlocked = standing.since(scenario.required_progress).filter(|at| *at >= since);
        unlocked.max(checkpoint.told_at(&scenario.id))
    };
    let mut recent: Vec<_> = unlocked
        .iter()
        .map(|unlocked| &unlocked.scenario)
        .filter_map(|scenario| Some((scenario.id.clone(), scenario.title.clone(), lately(scenario)?)))
        .collect();
    recent.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    // An author may unlock hundreds at once.
    recent.truncate(services.settings.scenarios.top_k * RECENT_TURNS);
    Ok(Known {
        standing,
        unlocked: Some(unlocked),
        recent,
    })
}

async fn unlocked(services: &Services, input: &TurnInput, standing: &Standing) -> StoreResult<Vec<Unlocked>> {
    let (world, npc) = (&input.world.id, &input.npc.id);
    let scenarios = &services.ledger.scenarios;
    scenarios.within(&input.scope, world, npc, standing.progress()).await
}

/// What the NPC may tell of its past in this turn: where the line asks for it, or where nobody could tell what it
/// asks for.
pub(super) async fn look(
    services: &Services,
    input: &TurnInput,
    known: Known,
    classified: &Classified,
    embedding: Option<&[f32]>,
    terms: &TermWeights,
) -> StoreResult<Option<Past>> {
    let asked = classified.intent == Intent::Scenario;
    if !input.npc.has_scenarios || input.is_greeting() || !(asked || classified.in_full) {
        return Ok(None);
    }
    let rows = match known.unlocked {
        Some(rows) => rows,
        None => unlocked(services, input, &known.standing).await?,
    };
    let info = services.embedder.info();
    let scored: Vec<_> = rows
        .iter()
        .map(|row| {
            let comparable = embedding.filter(|_| row.embedding.model == info.model);
            let cosine = comparable.map(|embedding| dot(embedding, &row.embedding.vector));
            let keyword = keywords::coverage(terms, &row.scenario.terms());
            scenario::score(&info.calibration, cosine, keyword)
        })
        .collect();
    let mut order: Vec<_> = rows
        .iter()
        .zip(scored)
        .enumerate()
        .map(|(at, (row, score))| {
            let recent = known.recent.iter().find(|(id, ..)| *id == row.scenario.id);
            (score, recent.map(|(.., at)| *at), &row.scenario.id, at)
        })
        .collect();
    let points = keywords::is_pointing(&input.heard());
    scenario::best_first(points, &mut order);
    let settings = &services.settings.scenarios;
    let hits = order.into_iter().map(|(score, recent, _, at)| Hit {
        scenario: rows[at].scenario.clone(),
        score,
        recent: recent.is_some(),
        // What is pointed at need not be named.
        fate: if score.total >= settings.min_score || (points && recent.is_some()) {
            CandidateFate::BeyondTopK
        } else {
            CandidateFate::TooWeak
        },
    });
    Ok(Some(Past {
        progress: input.player.as_ref().map(|_| known.standing.progress()),
        asked,
        hits: hits.take(TRACED).collect(),
    }))
}

/// A scenario that a player may hear of from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewlyUnlocked {
    pub scenario: ScenarioId,
    pub title: String,
    pub npc: NpcId,
}

/// What was unlocked by what happened at `at`, of whichever NPC the world has rules for. `npc` is one of them that
/// is at hand.
pub(super) async fn unlocked_at(
    services: &Services,
    scope: &TenantScope,
    (world, npc): (&World, &Npc),
    player: &PlayerId,
    at: DateTime<Utc>,
) -> StoreResult<Vec<NewlyUnlocked>> {
    let rules = world.settings.unlock_rules();
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let at = at.trunc_subsecs(6);
    let state = services.bodies.world(services, scope, &world.id).await?;
    let met = |rule: &&progress::UnlockRule| state.milestones.reached(player, &rule.when, None) == Some(at);
    let mut npcs: Vec<&NpcId> = rules.iter().filter(met).map(|rule| &rule.npc).collect();
    npcs.sort_unstable();
    npcs.dedup();
    let mut all = Vec::new();
    for id in npcs {
        let other = if *id == npc.id {
            None
        } else {
            services.ledger.authored.npc(scope, &world.id, id).await?
        };
        let Some(npc) = other
            .as_ref()
            .or((*id == npc.id).then_some(npc))
            .filter(|npc| npc.has_scenarios)
        else {
            continue;
        };
        let standing = progress::standing(&state.milestones, rules, whom(npc), Some(player));
        let scenarios = &services.ledger.scenarios;
        let rows = scenarios.within(scope, &world.id, id, standing.progress()).await?;
        let new = rows.into_iter().map(|row| row.scenario);
        let new = new.filter(|scenario| standing.since(scenario.required_progress) == Some(at));
        all.extend(new.map(|scenario| NewlyUnlocked {
            scenario: scenario.id,
            title: scenario.title,
            npc: scenario.npc,
        }));
    }
    Ok(all)
}

/// As [`unlocked_at`], for whom it is only news: nothing fails for it.
pub(super) async fn newly_unlocked(
    services: &Services,
    scope: &TenantScope,
    of: (&World, &Npc),
    player: Option<&PlayerId>,
    changes: &[StateChange],
    at: DateTime<Utc>,
) -> Vec<NewlyUnlocked> {
    let Some(player) = player.filter(|_| !changes.is_empty()) else {
        return Vec::new();
    };
    match unlocked_at(services, scope, of, player, at).await {
        Ok(unlocked) => unlocked,
        Err(error) => {
            tracing::warn!(%error, "what was unlocked could not be read, and is not told");
            Vec::new()
        }
    }
}

/// Embeds and writes a scenario.
pub async fn write(
    services: &Services,
    scope: &TenantScope,
    scenario: &Scenario,
    if_version: Option<u32>,
    edit: &Edit,
) -> Result<PutOutcome, HandError> {
    let embeddings = embed(services, scope, std::slice::from_ref(scenario)).await?;
    let Some(embedding) = embeddings.first() else {
        return Err(LlmError::Broken("no vector came back".to_owned()).into());
    };
    let scenarios = &services.ledger.scenarios;
    Ok(scenarios.put(scope, scenario, embedding, if_version, edit).await?)
}

/// The vectors of scenarios, in their order.
pub(super) async fn embed(
    services: &Services,
    scope: &TenantScope,
    scenarios: &[Scenario],
) -> Result<Vec<Embedding>, LlmError> {
    let texts: Vec<String> = scenarios.iter().map(Scenario::embedded_text).collect();
    let embedder = services.embedder.as_ref();
    let (vectors, _) = services.models.embed(scope, embedder, EmbedAs::Passage, &texts).await;
    let model = &embedder.info().model;
    let embeddings = vectors?.into_iter().map(|vector| Embedding {
        model: model.clone(),
        vector,
    });
    Ok(embeddings.collect())
}

/// Sets a player's progress with an NPC, as the backend says it is. What rules of the world raised it to counts
/// besides. `false`: the backend had set it so already, and nothing is written.
pub async fn set_progress(
    services: &Services,
    scope: &TenantScope,
    (world, npc): (&World, &Npc),
    player: &PlayerId,
    to: Progress,
    edit: &Edit,
) -> StoreResult<bool> {
    if standing(services, scope, world, npc, player).await?.set() == to {
        return Ok(false);
    }
    let change = NewStateChange {
        id: services.ids.next(),
        world: world.id.clone(),
        dialogue: None,
        change: StateChange::Progress {
            who: party::key_of(player),
            npc: npc.id.clone(),
            to,
        },
        cause: Cause::Edit(edit.id),
        at: edit.at,
    };
    services.ledger.state.record(scope, &change, edit).await?;
    Ok(true)
}
