//! Gathers the context of a turn in parallel: embedding and recall, intent, standing memory and world state.

use std::sync::Arc;

use tracing::{Instrument as _, debug_span};

use super::{
    gathered_context::GatheredContext,
    input::{TurnError, TurnInput},
    line_recall::{LineRecall, NeededSearches, recall_for_line},
    living_scene::{load_witnesses, scene_of_the_living},
    prompt_locks,
    speak::{AUTHORED_GREETING, AuthoredWords, GIVEN_REPLY},
    stopwatch::Stopwatch,
    world_state::StateOfTurn,
};
use crate::{
    Services, acquaintance,
    actions::{self, TurnActions},
    episodes::{self, EpisodeHit, ReadEpisodes},
    insights,
    intent::{ClassifiedIntent, IntentSource, SearchedSources, classify_line},
    locks,
    lore::FoundLore,
    overheard::{self, OverheardLines},
    prompt::{self, DeadCharacter, Prompt, PromptMaterial, PromptReader},
    recall,
    redaction::{self, MAX_STANDING_FACTS, PreparedRemovals},
    scenarios::{self, KnownScenarios, NpcPast},
    scene::{Scene, SceneMember},
};
use colloquy_memory::{
    authored::{Greeting, Npc},
    game_clock::GameClock,
    insight::{EarlierInsight, Insight},
    keywords::TermWeights,
    locks::DisclosureLocks,
    state::WorldState,
    summary::Meeting,
    tokens::TokenCounter,
    trace::{CallTrace, TopicGate},
};
use colloquy_ports::{
    StoreResult,
    ledger::{facts::StandingMemory, scenarios::ScenarioTell},
    llm::Task,
};

impl GatheredContext {
    /// Returns the words that the NPC says without a model: the reply that a chat program has shown before, or the
    /// persona's authored greeting, if the NPC says the greeting now.
    pub(super) fn authored_words<'i>(&self, input: &'i TurnInput) -> Option<AuthoredWords<'i>> {
        if let Some(given_reply) = input.given_reply() {
            return Some(AuthoredWords {
                text: &given_reply.text,
                origin: GIVEN_REPLY,
            });
        }
        let always = input.world.settings.greeting == Some(Greeting::Always);
        let greeting = input.greeting_words().filter(|_| always || self.meeting.is_none());
        greeting.map(|text| AuthoredWords {
            text,
            origin: AUTHORED_GREETING,
        })
    }

    /// Returns the names that the player has told the NPC, the first told first.
    pub(crate) fn known_player_names(&self, input: &TurnInput) -> Vec<&str> {
        let reader = PromptReader {
            language: input.npc.language,
            npc: &input.npc.name,
            player: input.player.as_ref(),
        };
        let own_name_facts = prompt::player_own_names(reader, &self.standing).into_iter();
        own_name_facts.map(|fact| fact.statement.object.as_str()).collect()
    }

    /// Assembles the prompt from the gathered context.
    pub(crate) fn assemble_prompt(&self, services: &Services, input: &TurnInput) -> Result<Prompt, TurnError> {
        let material = PromptMaterial {
            world: &input.world,
            npc: &input.npc,
            directives: &input.selected_directives(),
            dialogue: input.dialogue.id,
            player: input.player.as_ref(),
            scene: self.scene.as_ref(),
            witnesses: &self.witnesses,
            overheard: &self.overheard.lines,
            past: self.past.as_ref(),
            opened: &self.opened,
            tells: &self.tells,
            lore: self.lore.as_ref(),
            episodes: &self.episodes,
            insights: &self.insights,
            scene_notes: input.chat.as_ref().map_or(&[], |chat| &chat.scene_notes),
            own_prompt: input.own_prompt(),
            line: &input.line,
            hears_others: input.dialogue.options.other_speakers(&input.line).next().is_some(),
            continues_whole: input
                .continuation
                .as_ref()
                .is_some_and(|unfinished| unfinished.is_whole),
            continued_text: input
                .continuation
                .as_ref()
                .map(|unfinished| unfinished.beginning().text),
            history: &input.history,
            summaries: &self.summaries,
            outdated: &self.outdated,
            standing: &self.standing,
            dead: DeadCharacter::find_in(&self.state),
            world_lines: self.world_lines.clone(),
            action_lines: &self.actions.lines,
            hits: &self.hits,
            near_duplicate_cosine: recall::near_duplicate_cosine(services),
            gate: self.gate,
            counter: self.counter,
            now: input.started_at,
            clock: GameClock::new(&input.world.settings, &self.state),
            meeting: self.meeting.as_ref(),
        };
        prompt::assemble_prompt(&services.prompts, &services.settings, &material)
    }
}

/// Gathers the context for a preview, which has no stopwatch of its own.
pub(crate) async fn gather_for_preview(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
) -> Result<GatheredContext, TurnError> {
    let watch = Stopwatch::start_at(input.accepted_at, services.clock.as_ref());
    Box::pin(gather_timed(services, input, classify, &watch)).await
}

/// Gathers the context in parallel.
///
/// Recall is speculative: it does not wait for the intent. The assembly of the prompt leaves out unneeded results. An
/// intent therefore costs only the time that its call takes longer than recall. With `recall.speculative` off, the
/// intent comes first, and the search covers only the needs of the intent.
pub(super) async fn gather_timed(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
    watch: &Stopwatch<'_>,
) -> Result<GatheredContext, TurnError> {
    let state = StateOfTurn::new(services, input);
    let reads = read_before_search(services, input, classify, &state, watch).await?;
    let classified = reads.classified;
    let mut recalled = reads.recalled;
    let StandingMemory {
        mut facts,
        taken_out: removed_statements,
        ended_promises,
        ..
    } = std::mem::take(&mut recalled.standing);
    let removals = PreparedRemovals::new(&removed_statements);
    facts.extend(redaction::retain_unforgotten(&removals, ended_promises));
    let standing = locks::filter_open_facts(services, &input.scope, &input.world, &input.viewpoint(), facts).await?;
    if input.is_greeting() {
        recalled.keep_facts_for_greeting();
    }
    let lore = recalled.lore.take();
    let lore = lore.map(|prepared| prepared.find(classified.is_about_something(), &standing));
    let opened = reads.known_scenarios.opened();
    let search = RelatedSearch {
        services,
        input,
        state: &reads.world_state,
        classified: &classified,
        embedding: recalled.embedding.as_deref(),
        terms: recalled.telling_terms(),
        removals: &removals,
    };
    let searching = Box::pin(search.run(reads.known_scenarios, reads.past_talks?, lore.as_ref()));
    let related = searching.await?;
    let history = &input.history;
    let meeting = reads.meeting?;
    let redacted = redaction::redact_texts(&removals, &input.dialogue, history, &input.summaries, meeting.as_ref());
    let searched = SearchedSources {
        facts: services.settings.recall.speculative || NeededSearches::for_intent(input, &classified).facts,
        scenarios: related.past.is_some(),
        overheard: !related.overheard.lines.is_empty(),
    };
    let timings = recalled.timings(reads.intent_ms);
    Ok(GatheredContext {
        scene: reads.scene,
        witnesses: reads.witnesses,
        not_searched: classified.list_unsearched(input, searched),
        intent: classified,
        query: recalled.query.text,
        hits: recalled.hits,
        found_facts: recalled.found_count,
        redacted: redacted.redacting_facts(&removals, &related.episodes),
        gate: reads.gate,
        standing,
        world_lines: reads.world_lines,
        place: prompt::place_of_turn(input, &reads.world_state),
        state: reads.world_state,
        state_position: state.position().await?,
        actions: reads.actions,
        meeting: redacted.meeting,
        summaries: redacted.summaries,
        outdated: redacted.outdated,
        overheard: related.overheard,
        locks_before: related.locks_before,
        past: related.past,
        opened,
        tells: related.tells,
        lore,
        episodes: related.episodes,
        insights: related.insights,
        counter: reply_counter(services, &input.npc),
        calls: reads.calls,
        timings,
        notes: recalled.notes,
    })
}

/// What a turn reads before it knows what it is about.
struct FirstReads<'a> {
    world_state: Arc<WorldState>,
    scene: Option<Scene>,
    witnesses: Vec<SceneMember>,
    world_lines: Vec<String>,
    actions: TurnActions,
    known_scenarios: KnownScenarios,
    classified: ClassifiedIntent,
    intent_ms: f64,
    /// How closely the hits must match the line.
    gate: TopicGate,
    calls: Vec<CallTrace>,
    recalled: LineRecall<'a>,
    meeting: StoreResult<Option<Meeting>>,
    past_talks: StoreResult<PastTalks>,
}

async fn read_before_search<'a>(
    services: &'a Services,
    input: &'a TurnInput,
    classify: IntentSource,
    state: &'a StateOfTurn<'a>,
    watch: &Stopwatch<'_>,
) -> Result<FirstReads<'a>, TurnError> {
    let reads = Box::pin(read_side_by_side(services, input, classify, state, watch)).await;
    let world_state = Arc::clone(state.load().await?);
    let scene = scene_of_the_living(input, &world_state)?;
    let witnesses = load_witnesses(services, input, &world_state).await?;
    let mut recalled = reads.recalled?;
    let Classification {
        known_scenarios,
        mut classified,
        intent_ms,
    } = reads.classification?;
    let (world_lines, actions) = reads.surroundings?;
    let mut calls: Vec<CallTrace> = recalled.call.take().into_iter().collect();
    calls.extend(classified.call.take());
    recalled.notes.extend(classified.note_of_failure(classify));
    Ok(FirstReads {
        world_state,
        scene,
        witnesses,
        world_lines,
        actions,
        known_scenarios,
        intent_ms,
        gate: recall::gate_for_turn(input, &classified, recalled.query.says_nothing),
        calls,
        classified,
        recalled,
        meeting: reads.meeting,
        past_talks: reads.past_talks,
    })
}

/// The reads of a turn that do not wait for each other.
struct ParallelReads<'a> {
    recalled: Result<LineRecall<'a>, TurnError>,
    classification: StoreResult<Classification>,
    meeting: StoreResult<Option<Meeting>>,
    past_talks: StoreResult<PastTalks>,
    surroundings: Result<(Vec<String>, TurnActions), TurnError>,
}

async fn read_side_by_side<'a>(
    services: &'a Services,
    input: &'a TurnInput,
    classify: IntentSource,
    state: &'a StateOfTurn<'a>,
    watch: &Stopwatch<'_>,
) -> ParallelReads<'a> {
    let viewpoint = input.viewpoint();
    let now = services.clock.now();
    let gossip = input.world.settings.allows_gossip();
    let facts = &services.ledger.facts;
    let standing = facts.load_standing(&input.scope, &viewpoint, gossip, now, MAX_STANDING_FACTS);
    let classifying = classify_timed(services, input, classify, state, watch);
    let surroundings = read_surroundings(services, input, state);
    let meeting = acquaintance::last_meeting(services, input);
    let past_talks = read_past_talks(services, input);
    let searches_at_once = services.settings.recall.speculative || matches!(classify, IntentSource::Assumed);
    if searches_at_once && input.given_reply().is_none() {
        let recalling = recall_for_line(services, input, NeededSearches::ALL, standing, state, watch);
        // The intent is asked first: the others work while it is awaited.
        let (classification, recalled, meeting, past_talks, surroundings) =
            tokio::join!(classifying, recalling, meeting, past_talks, surroundings);
        return ParallelReads {
            recalled,
            classification,
            meeting,
            past_talks,
            surroundings,
        };
    }
    let (classification, meeting, past_talks, surroundings) =
        tokio::join!(classifying, meeting, past_talks, surroundings);
    let needed = match &classification {
        Ok(classification) => NeededSearches::for_intent(input, &classification.classified),
        Err(_) => NeededSearches::NONE,
    };
    ParallelReads {
        recalled: recall_for_line(services, input, needed, standing, state, watch).await,
        classification,
        meeting,
        past_talks,
        surroundings,
    }
}

/// The intent of a line, with the scenarios that the classifier has read.
struct Classification {
    known_scenarios: KnownScenarios,
    classified: ClassifiedIntent,
    intent_ms: f64,
}

async fn classify_timed(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
    state: &StateOfTurn<'_>,
    watch: &Stopwatch<'_>,
) -> StoreResult<Classification> {
    // The classifier reads the recently unlocked scenarios, which depend on the state.
    let known_scenarios = if scenarios::can_tell_past(input) {
        scenarios::read_known_scenarios(services, input, state.load().await?).await?
    } else {
        KnownScenarios::default()
    };
    let classifying = classify_line(services, input, classify, &known_scenarios).instrument(debug_span!("turn.intent"));
    let (classified, intent_ms) = watch.time_wait(classifying).await;
    Ok(Classification {
        known_scenarios,
        classified,
        intent_ms,
    })
}

/// What a turn finds once its intent and the standing memory are known.
struct RelatedMemory {
    overheard: OverheardLines,
    locks_before: DisclosureLocks,
    past: Option<NpcPast>,
    tells: Vec<ScenarioTell>,
    episodes: Vec<EpisodeHit>,
    insights: Vec<Insight>,
}

struct RelatedSearch<'a> {
    services: &'a Services,
    input: &'a TurnInput,
    state: &'a WorldState,
    classified: &'a ClassifiedIntent,
    /// The embedding and the informative words of the line.
    embedding: Option<&'a [f32]>,
    terms: &'a TermWeights,
    removals: &'a PreparedRemovals<'a>,
}

impl RelatedSearch<'_> {
    async fn run(
        &self,
        known_scenarios: KnownScenarios,
        past_talks: PastTalks,
        lore: Option<&FoundLore>,
    ) -> StoreResult<RelatedMemory> {
        let Self {
            services,
            input,
            state,
            classified,
            embedding,
            terms,
            removals,
        } = *self;
        let compared = embedding.filter(|_| classified.is_about_something());
        let progress = known_scenarios.progress();
        let (episodes, insights) = past_talks;
        let (overheard, locks_before, mut past, tells, episodes, insights) = tokio::try_join!(
            overheard::read_overheard_lines(services, input, classified.intent),
            prompt_locks::locks_before_turn(services, input),
            scenarios::find_tellable_past(services, input, state, known_scenarios, classified, embedding, terms),
            scenarios::find_tells(services, input, state, progress),
            episodes::find_candidates(services, input, episodes, compared, removals),
            insights::find_usable(services, input, insights, removals),
        )?;
        let has_tell = !tells.is_empty() || lore.is_some_and(FoundLore::has_tell);
        if let Some(past) = past.as_mut().filter(|_| has_tell) {
            past.leave_out_found_by_meaning();
        }
        Ok(RelatedMemory {
            overheard,
            locks_before,
            past,
            tells,
            episodes,
            insights,
        })
    }
}

/// The episodes and the insights of earlier talks.
type PastTalks = (ReadEpisodes, Vec<EarlierInsight>);

async fn read_past_talks(services: &Services, input: &TurnInput) -> StoreResult<PastTalks> {
    tokio::try_join!(
        episodes::read_episodes(services, input),
        insights::read_insights(services, input)
    )
}

/// Returns the token counter of the model that answers.
pub(crate) fn reply_counter(services: &Services, npc: &Npc) -> TokenCounter {
    match services.reply_model(npc) {
        Some(model) => services.models.counter_for_model(&model),
        None => services.models.counter_for_task(Task::Reply),
    }
}

/// Returns the lines about the world, and the actions. They do not depend on the intent.
async fn read_surroundings(
    services: &Services,
    input: &TurnInput,
    state: &StateOfTurn<'_>,
) -> Result<(Vec<String>, TurnActions), TurnError> {
    let (state, outcomes, resting) = tokio::try_join!(
        state.load(),
        actions::load_outcomes(services, input),
        actions::load_resting_actions(services, input),
    )?;
    let lines = prompt::world_lines_of_turn(&services.prompts, state, input)?;
    Ok((lines, TurnActions::new(services, input, state, &outcomes, &resting)?))
}
