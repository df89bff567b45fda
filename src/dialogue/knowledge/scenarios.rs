//! The NPC's own past (docs/algorithms.md#scenarios). An NPC tells as much of it as the player has unlocked.
//!
//! Progress follows from the world state, which every turn reads. An unsaid cause therefore unlocks nothing any more.
//! Scenarios that need more progress are never read from the ledger. The conditions of the others are checked before
//! anything else sees them.

mod known;
mod section;
mod unlock;

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, SubsecRound as _, Utc};

use self::known::RecentScenario;
pub use self::unlock::{ScenarioUnlock, UnlockTrigger};
pub(crate) use self::{
    known::{GuardedScenario, KnownScenarios, NpcPast, OpenedScenario, ScenarioHit},
    section::Scenarios,
};
use super::kind::LineSearch;
use crate::{
    Services,
    disclosure::{Disclosable, open_scenarios, open_tell},
    recall::MAX_TRACED,
    remember::ManualEditError,
    turn::TurnInput,
};
use colloquy_core::{
    ids::{NpcId, PlayerId, ScenarioId},
    planted_leak,
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    condition::ConditionContext,
    fact::Cause,
    keywords::{self, TermWeights},
    lore::NameLookup,
    party,
    progress::{self, NpcNames, Progress, ProgressState},
    scenario::{self, Scenario, ScenarioBearing, ScenarioScore},
    scoring::dot_product,
    state::{StateChange, WorldState},
    trace::CandidateFate,
    turn::{Intent, RECENT_TURNS},
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        audit::Edit,
        authored::PutOutcome,
        jobs::JobInput,
        scenarios::{EmbeddedScenario, Embedding, ScenarioTitle},
        state::NewStateChange,
    },
    llm::LlmError,
};

fn identify_npc(npc: &Npc) -> NpcNames<'_> {
    NpcNames::new(&npc.id, &npc.name)
}

/// True if the turn may tell of the NPC's past. Only a player's line can ask for the past. Lines between NPCs do not.
pub(crate) fn can_tell_past(input: &TurnInput) -> bool {
    input.npc.has_scenarios && input.player.is_some() && !input.is_greeting()
}

pub async fn player_standing(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    npc: &Npc,
    player: &PlayerId,
) -> StoreResult<ProgressState> {
    let state = services.memory_cache.world_state(services, scope, &world.id).await?;
    let rules = world.settings.unlock_rules();
    Ok(progress::progress_state(
        &state.milestones,
        rules,
        &identify_npc(npc),
        Some(player),
    ))
}

/// Reads the recently unlocked or told scenarios before the line is classified. Asks the ledger only if one is
/// possible.
pub(crate) async fn read_known_scenarios(
    services: &Services,
    input: &TurnInput,
    state: &WorldState,
) -> StoreResult<KnownScenarios> {
    let npc = &input.npc;
    let checkpoint = &input.checkpoint;
    let rules = input.world.settings.unlock_rules();
    let standing = progress::progress_state(&state.milestones, rules, &identify_npc(npc), input.player.as_ref());
    let since = checkpoint.recently_unlocked_since(input.dialogue.created_at);
    if checkpoint.recently_unlocked.is_empty() && !standing.may_have_risen_after(since) {
        return Ok(KnownScenarios {
            standing,
            ..KnownScenarios::default()
        });
    }
    let scenarios = &services.ledger.scenarios;
    let titles = scenarios.list_unlocked_titles(&input.scope, &input.world.id, &npc.id, standing.progress());
    let context = input.condition_context(state);
    let latest_event = |titled: &ScenarioTitle| {
        let unlocked = standing
            .enough_since(titled.required_progress)
            .filter(|moment| *moment >= since);
        let told_at = checkpoint.last_told_at(&npc.id, &titled.id);
        Some((unlocked.max(told_at)?, unlocked.is_some()))
    };
    let open_titles = open_scenarios(titles.await?, standing.progress(), &context);
    let mut recent: Vec<_> = open_titles
        .iter()
        .filter_map(|titled| Some((latest_event(titled)?, titled)))
        .map(|((latest_at, opened), titled)| RecentScenario {
            id: titled.id.clone(),
            title: titled.as_ref().map(|titled| titled.title.clone()),
            latest_at,
            opened,
            is_told: known::is_told(checkpoint, &standing, &npc.id, &titled.id, titled.required_progress),
        })
        .collect();
    recent.sort_by(|a, b| b.latest_at.cmp(&a.latest_at).then_with(|| a.id.cmp(&b.id)));
    // An author may unlock hundreds of scenarios at once.
    recent.truncate(services.settings.scenarios.top_k * RECENT_TURNS);
    Ok(KnownScenarios {
        standing,
        recent,
        open_titles: Some(open_titles),
    })
}

/// Returns the part of the past that this turn may tell, if the line asks for the past or the intent is unknown. Whatever
/// the intent, a line gets the open scenarios that it names, and a line that points back what was just told or unlocked.
async fn find_tellable_past(
    search: &LineSearch<'_>,
    mut known_scenarios: KnownScenarios,
) -> StoreResult<Option<NpcPast>> {
    let LineSearch {
        services,
        input,
        state,
        classified,
        embedding,
        terms,
        ..
    } = *search;
    if !can_tell_past(input) {
        return Ok(None);
    }
    let is_asked = classified.intent == Intent::Scenario;
    let is_about_past = is_asked || classified.in_full;
    let open_titles = known_scenarios.open_titles.take();
    let heard_text = input.heard_text();
    let search = PastSearch {
        services,
        input,
        context: input.condition_context(state),
        known_scenarios: &known_scenarios,
        just_now: known_scenarios.since_last_turn(&input.checkpoint).collect(),
        line: NameLookup::in_text(&heard_text),
        points_back: keywords::refers_back(&heard_text),
        is_asked,
    };
    if !is_about_past && (!search.points_back || search.just_now.is_empty()) {
        // Contents and vectors are read only for a line that names an open scenario.
        let titles = match open_titles {
            Some(titles) => titles,
            None => search.load_titles().await?,
        };
        if !search.names_open_title(&titles) {
            return Ok(None);
        }
    }
    let mut rows = search.load_rows().await?;
    let named_ids = search.find_named(&rows);
    rows.retain(|row| {
        let id = &row.scenario.id;
        is_about_past || named_ids.contains(id) || search.points_back && search.just_now.contains(id)
    });
    Ok(Some(NpcPast {
        progress: known_scenarios.standing.progress(),
        is_asked,
        hits: search.rank(&rows, &named_ids, embedding, terms),
    }))
}

/// The search of one line in the NPC's past.
struct PastSearch<'a> {
    services: &'a Services,
    input: &'a TurnInput,
    context: ConditionContext<'a>,
    known_scenarios: &'a KnownScenarios,
    /// The scenarios that were told or unlocked since the last turn.
    just_now: BTreeSet<&'a ScenarioId>,
    line: NameLookup,
    points_back: bool,
    is_asked: bool,
}

impl PastSearch<'_> {
    async fn load_titles(&self) -> StoreResult<Vec<Disclosable<ScenarioTitle>>> {
        let TurnInput { scope, world, npc, .. } = self.input;
        let scenarios = &self.services.ledger.scenarios;
        let progress = self.known_scenarios.standing.progress();
        let titles = scenarios.list_unlocked_titles(scope, &world.id, &npc.id, progress);
        Ok(open_scenarios(titles.await?, progress, &self.context))
    }

    fn names_open_title(&self, titles: &[Disclosable<ScenarioTitle>]) -> bool {
        let mut titles = titles.iter();
        titles.any(|titled| is_scenario_named(&self.line, &titled.title, &titled.keywords, &titled.synonyms))
    }

    /// Reads the open scenarios, with their contents and vectors.
    async fn load_rows(&self) -> StoreResult<Vec<Disclosable<EmbeddedScenario>>> {
        let TurnInput { scope, world, npc, .. } = self.input;
        let scenarios = &self.services.ledger.scenarios;
        let progress = if planted_leak!("scenario.locked") {
            Progress::new(Progress::MAX).unwrap_or_default()
        } else {
            self.known_scenarios.standing.progress()
        };
        let rows = scenarios.list_unlocked_scenarios(scope, &world.id, &npc.id, progress);
        Ok(open_scenarios(rows.await?, progress, &self.context))
    }

    fn find_named(&self, rows: &[Disclosable<EmbeddedScenario>]) -> BTreeSet<ScenarioId> {
        let scenarios = rows.iter().map(|row| &row.scenario);
        let named_scenarios = scenarios
            .filter(|scenario| is_scenario_named(&self.line, &scenario.title, &scenario.keywords, &scenario.synonyms));
        named_scenarios.map(|scenario| scenario.id.clone()).collect()
    }

    fn rank(
        &self,
        rows: &[Disclosable<EmbeddedScenario>],
        named_ids: &BTreeSet<ScenarioId>,
        embedding: Option<&[f32]>,
        terms: &TermWeights,
    ) -> Vec<ScenarioHit> {
        let info = self.services.embedder.info();
        let scores = rows.iter().map(|row| {
            let comparable = embedding.filter(|_| row.embedding.model == info.model);
            let cosine = comparable.map(|embedding| dot_product(embedding, &row.embedding.vector));
            let keyword = keywords::query_coverage(terms, &row.scenario.keyword_terms());
            scenario::score_scenario(&info.calibration, cosine, keyword)
        });
        let mut order: Vec<_> = rows
            .iter()
            .zip(scores)
            .enumerate()
            .map(|(index, (row, score))| {
                let mut recent = self.known_scenarios.recent.iter();
                let recent = recent.find(|recent| recent.id == row.scenario.id);
                (score, recent.map(|recent| recent.latest_at), &row.scenario.id, index)
            })
            .collect();
        scenario::sort_best_first(self.points_back, &mut order);
        let hits = order.into_iter().map(|(score, recent, _, index)| {
            let scenario = rows[index].as_ref().map(|row| row.scenario.clone());
            let is_named = named_ids.contains(&scenario.id);
            self.hit_of(scenario, score, recent.is_some(), is_named)
        });
        hits.take(MAX_TRACED).collect()
    }

    fn hit_of(
        &self,
        scenario: Disclosable<Scenario>,
        score: ScenarioScore,
        is_recent: bool,
        is_named: bool,
    ) -> ScenarioHit {
        let calibration = &self.services.embedder.info().calibration;
        let checkpoint = &self.input.checkpoint;
        let bearing = ScenarioBearing::decide(calibration, is_named, &score);
        let is_strong = bearing != ScenarioBearing::None && score.total >= self.services.settings.scenarios.min_score;
        // A line may point back at a recent scenario without its name, and a further question about the past goes on with
        // what was just told ("Would you let me read it?").
        let goes_on = self.is_asked
            && self.just_now.contains(&scenario.id)
            && checkpoint.told_at(&self.input.npc.id, &scenario.id).is_some();
        let is_pointed_at = self.points_back && is_recent || goes_on;
        ScenarioHit {
            news: self.known_scenarios.news_of(checkpoint, &scenario),
            scenario,
            score,
            recent: is_recent,
            by_meaning: bearing == ScenarioBearing::Meaning && !is_pointed_at,
            fate: if is_strong || is_named || is_pointed_at {
                CandidateFate::BeyondTopK
            } else {
                CandidateFate::TooWeak
            },
        }
    }
}

/// True if a text names a scenario: by its title, a keyword or a synonym.
fn is_scenario_named(text: &NameLookup, title: &str, keywords: &[String], synonyms: &[String]) -> bool {
    let mut names = keywords.iter().chain(synonyms).map(String::as_str).chain([title]);
    names.any(|name| text.has_name(name))
}

/// The most scenarios with a tell that a turn considers.
const MAX_TELLS: u32 = 100;

/// Returns the tells of the scenarios that the line names and that the player may not hear. A line that points back also
/// names what the last turn named.
async fn find_tells(
    services: &Services,
    input: &TurnInput,
    state: &WorldState,
    progress: Progress,
) -> StoreResult<Vec<GuardedScenario>> {
    if !can_tell_past(input) || !input.npc.has_tells {
        return Ok(Vec::new());
    }
    let scenarios = &services.ledger.scenarios;
    let tells = scenarios.list_tells(&input.scope, &input.world.id, &input.npc.id, MAX_TELLS);
    let tells = tells.await?;
    let context = input.condition_context(state);
    let line = input.heard_text();
    let mut texts = vec![NameLookup::in_text(&line)];
    if keywords::refers_back(&line)
        && let Some(last) = input.history.last()
    {
        texts.extend([&last.player_text, &last.reply_text].map(|text| NameLookup::in_text(text)));
    }
    let guarded = tells.into_iter().filter_map(|hidden| {
        let tell = open_tell(&hidden, progress, &context)?;
        let is_in = |text| is_scenario_named(text, &hidden.title, &hidden.keywords, &hidden.synonyms);
        texts.iter().any(is_in).then_some(GuardedScenario {
            id: hidden.id,
            title: hidden.title,
            tell,
        })
    });
    Ok(guarded.collect())
}

/// The maximum number of unlocks announced for one turn. An author may unlock hundreds at once, and a returning
/// listener gets only the dialogue's latest 256 events.
pub const MAX_ANNOUNCED_UNLOCKS: usize = 32;

impl UnlockTrigger {
    /// Builds the trigger of a turn that was committed at `moment`. `None`: the turn cannot have unlocked a scenario.
    pub(crate) fn from_turn(input: &TurnInput, changes: &[StateChange], moment: DateTime<Utc>) -> Option<Self> {
        let player = input.player.as_ref().filter(|_| !changes.is_empty())?;
        let rules = input.world.settings.unlock_rules();
        (!rules.is_empty()).then(|| Self {
            scope: input.scope.clone(),
            world: Arc::clone(&input.world),
            npc: Arc::clone(&input.npc),
            player: player.clone(),
            changed_at: moment,
        })
    }

    /// Builds the trigger of a job's state changes. `None`: the changes cannot have unlocked a scenario.
    pub(crate) fn from_job(scope: &TenantScope, job_input: &JobInput, changes: &[StateChange]) -> Option<Self> {
        let player = job_input.turn.player.as_ref().filter(|_| !changes.is_empty())?;
        let rules = job_input.world.settings.unlock_rules();
        (!rules.is_empty()).then(|| Self {
            scope: scope.clone(),
            world: Arc::clone(&job_input.world),
            npc: Arc::new(job_input.npc.clone()),
            player: player.clone(),
            changed_at: job_input.turn.committed_at,
        })
    }

    /// Returns the new unlocks for all NPCs with rules in the world; at most [`MAX_ANNOUNCED_UNLOCKS`].
    async fn read_unlocked(&self, services: &Services) -> StoreResult<Vec<ScenarioUnlock>> {
        let scope = &self.scope;
        let world = &self.world;
        let rules = world.settings.unlock_rules();
        // The ledger stores times in microseconds.
        let reached_at = self.changed_at.trunc_subsecs(6);
        let state = services.memory_cache.world_state(services, scope, &world.id).await?;
        let Some(reached) = state.milestones.of_player(&self.player) else {
            return Ok(Vec::new());
        };
        let met = rules
            .iter()
            .filter(|rule| reached.is_first_reached_at(&rule.when, reached_at));
        let npcs: BTreeSet<&NpcId> = met.map(|rule| &rule.npc).collect();
        let mut unlocks = Vec::new();
        for id in npcs {
            if unlocks.len() >= MAX_ANNOUNCED_UNLOCKS {
                break;
            }
            let other_npc = if *id == self.npc.id {
                None
            } else {
                services.ledger.authored.load_npc(scope, &world.id, id).await?
            };
            let own_npc = (*id == self.npc.id).then_some(&*self.npc);
            let Some(npc) = other_npc.as_ref().or(own_npc).filter(|npc| npc.has_scenarios) else {
                continue;
            };
            let standing = progress::progress_state(&state.milestones, rules, &identify_npc(npc), Some(&self.player));
            let scenarios = &services.ledger.scenarios;
            let titles = scenarios
                .list_unlocked_titles(scope, &world.id, id, standing.progress())
                .await?;
            let settings = &world.settings;
            let player = Some(&self.player);
            let context = ConditionContext::new(&state, settings, npc, player, self.changed_at);
            let open = open_scenarios(titles, standing.progress(), &context).into_iter();
            let new = open.filter(|titled| standing.enough_since(titled.required_progress) == Some(reached_at));
            unlocks.extend(new.map(|titled| ScenarioUnlock {
                scenario: titled.id.clone(),
                title: titled.into_inner().title,
                npc: id.clone(),
            }));
        }
        unlocks.truncate(MAX_ANNOUNCED_UNLOCKS);
        Ok(unlocks)
    }
}

/// Returns the new unlocks. An error is only logged, because unlocks are mere news.
pub async fn find_newly_unlocked(services: &Services, unlocking: &UnlockTrigger) -> Vec<ScenarioUnlock> {
    match unlocking.read_unlocked(services).await {
        Ok(unlocked) => unlocked,
        Err(error) => {
            tracing::warn!(%error, "what was unlocked could not be read, and is not told");
            Vec::new()
        }
    }
}

/// Embeds and writes a scenario. A scenario that the ledger would refuse is not embedded.
pub async fn write_scenario(
    services: &Services,
    scope: &TenantScope,
    scenario: &Scenario,
    if_version: Option<u32>,
    edit: &Edit,
) -> Result<PutOutcome, ManualEditError> {
    let scenarios = &services.ledger.scenarios;
    if let Some(refused) = scenarios.check_put(scope, scenario, if_version).await? {
        return Ok(refused);
    }
    let embeddings = embed_scenarios(services, scope, std::slice::from_ref(scenario)).await?;
    let Some(embedding) = embeddings.first() else {
        return Err(LlmError::Broken("no vector came back".to_owned()).into());
    };
    Ok(scenarios
        .put_scenario(scope, scenario, embedding, if_version, edit)
        .await?)
}

/// Returns the vectors of scenarios, in the same order.
pub(crate) async fn embed_scenarios(
    services: &Services,
    scope: &TenantScope,
    scenarios: &[Scenario],
) -> Result<Vec<Embedding>, LlmError> {
    let texts: Vec<String> = scenarios.iter().map(Scenario::embedded_text).collect();
    let vectors = services.embed_passages(scope, &texts).await?;
    let model = &services.embedder.info().model;
    let embeddings = vectors.into_iter().map(|vector| Embedding {
        model: model.clone(),
        vector,
    });
    Ok(embeddings.collect())
}

/// Sets a player's progress with an NPC to the backend's value. Progress from the world's rules counts besides. Returns
/// `false` if the backend had already set this value; nothing is written then.
pub async fn set_progress(
    services: &Services,
    scope: &TenantScope,
    (world, npc): (&World, &Npc),
    player: &PlayerId,
    to: Progress,
    edit: &Edit,
) -> StoreResult<bool> {
    let state = services.memory_cache.world_state(services, scope, &world.id).await?;
    let reached = state.milestones.of_player(player);
    let latest_value = reached.and_then(|reached| reached.backend_progress(&npc.id).last());
    if latest_value.map_or(Progress::NONE, |(progress, _)| progress) == to {
        return Ok(false);
    }
    // The last value must count, even if this node's clock is behind.
    let moment = reached.map_or(edit.made_at, |reached| {
        reached.next_backend_moment(&npc.id, edit.made_at)
    });
    let change = NewStateChange {
        id: services.ids.next_id(),
        world: world.id.clone(),
        dialogue: None,
        change: StateChange::Progress {
            who: party::player_key(player),
            npc: npc.id.clone(),
            to,
        },
        cause: Cause::Edit(edit.id),
        changed_at: moment,
    };
    services
        .ledger
        .state
        .record_changes(scope, &world.id, &[change], edit)
        .await?;
    Ok(true)
}
