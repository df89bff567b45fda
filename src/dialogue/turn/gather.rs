//! Gathers the context of a turn in parallel: embedding and recall, intent, standing memory and world state.

use std::sync::Arc;

use tracing::{Instrument as _, debug_span};

use super::{
    gathered_context::GatheredContext,
    input::{TurnError, TurnInput},
    line_recall::{LineRecall, NeededSearches, recall_for_line},
    living_scene::{load_witnesses, scene_of_the_living},
    speak::{AUTHORED_GREETING, AuthoredWords, GIVEN_REPLY},
    stopwatch::Stopwatch,
    world_state::StateOfTurn,
};
use crate::{
    Services,
    disclosure::{self, Gate, MAX_STANDING_FACTS, PreparedRemovals},
    intent::{ClassifiedIntent, IntentSource, SearchedSources, classify_line},
    knowledge::{
        EarlyReading, EarlyReads, FoundFacts, GatheredKnowledge, LineSearch, player_own_names,
        scenarios::{self, KnownScenarios},
    },
    prompt::{self, DeadCharacter, Prompt, PromptContext, PromptReader},
    recall,
    scene::{Scene, SceneMember},
};
use colloquy_memory::{
    authored::{Greeting, Npc},
    game_clock::GameClock,
    state::WorldState,
    tokens::TokenCounter,
    trace::{CallTrace, TopicGate},
};
use colloquy_ports::{StoreResult, ledger::facts::StandingMemory, llm::Task};

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
        let greeting = input
            .greeting_words()
            .filter(|_| always || self.knowledge.identity.meeting.is_none());
        greeting.map(|text| AuthoredWords {
            text,
            origin: AUTHORED_GREETING,
        })
    }

    /// Replaces the expected intent by the answer of the classifier, which was asked beside the reply.
    pub(super) fn set_classified_intent(&mut self, classification: Classification) {
        let Classification {
            mut classified,
            intent_ms,
            ..
        } = classification;
        self.calls.extend(classified.call.take());
        self.notes.extend(classified.note_of_failure(IntentSource::Model));
        self.timings.intent = intent_ms;
        self.intent = classified;
    }

    /// Returns the names that the player has told the NPC, the first told first.
    pub(crate) fn known_player_names(&self, input: &TurnInput) -> Vec<&str> {
        let reader = PromptReader {
            language: input.npc.language,
            npc: &input.npc.name,
            player: input.player.as_ref(),
        };
        let own_name_facts = player_own_names(reader, &self.knowledge.standing_facts.0).into_iter();
        own_name_facts.map(|fact| fact.statement.object.as_str()).collect()
    }

    /// Assembles the prompt from the gathered context.
    pub(crate) fn assemble_prompt(&self, services: &Services, input: &TurnInput) -> Result<Prompt, TurnError> {
        let templates = &services.prompts;
        let count = |text: &str| templates.count_tokens(self.counter, text);
        let context = PromptContext {
            templates,
            settings: prompt::enlarge_for_own_prompt(&services.settings, input.own_prompt(), &count),
            input,
            scene: self.scene.as_ref(),
            witnesses: &self.witnesses,
            standing: &self.knowledge.standing_facts.0,
            summaries: &self.knowledge.summaries.0,
            dead: DeadCharacter::find_in(&self.state),
            clock: GameClock::new(&input.world.settings, &self.state),
            counter: self.counter,
            near_duplicate_cosine: recall::near_duplicate_cosine(services),
        };
        prompt::assemble_prompt(&context, &self.knowledge, &input.selected_directives())
    }
}

/// Gathers the context for a preview, which has no stopwatch of its own.
pub(crate) async fn gather_for_preview(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
) -> Result<GatheredContext, TurnError> {
    let watch = Stopwatch::start_at(input.accepted_at, services.clock.as_ref());
    let state = StateOfTurn::new(services, input);
    Box::pin(gather_timed(services, input, classify, &state, &watch)).await
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
    state: &StateOfTurn<'_>,
    watch: &Stopwatch<'_>,
) -> Result<GatheredContext, TurnError> {
    let FirstReads {
        world_state,
        scene,
        witnesses,
        classification,
        gate,
        calls,
        mut recalled,
        mut reads,
    } = read_before_search(services, input, classify, state, watch).await?;
    let Classification {
        classified, intent_ms, ..
    } = &classification;
    let StandingMemory {
        mut facts,
        taken_out: removed_statements,
        ended_promises,
        ..
    } = std::mem::take(&mut recalled.standing);
    let removals = PreparedRemovals::new(&removed_statements);
    facts.extend(disclosure::retain_unforgotten(&removals, ended_promises));
    let standing = Gate::of_turn(services, input).open_facts(facts).await?;
    if input.is_greeting() {
        recalled.keep_facts_for_greeting();
    }
    let meeting = reads.identity.as_ref();
    let told_texts = disclosure::redact_texts(&removals, &input.dialogue, &input.history, &input.summaries, meeting);
    reads.lore = recalled.lore.take();
    reads.found_facts = FoundFacts {
        hits: std::mem::take(&mut recalled.hits),
        found_count: recalled.found_count,
        gate,
    };
    let search = LineSearch {
        services,
        input,
        state: &world_state,
        classified,
        embedding: recalled.embedding.as_deref(),
        terms: recalled.telling_terms(),
        standing: &Arc::new(standing),
        removals: &removals,
        told_texts: &told_texts,
    };
    let (mut knowledge, locks_before) =
        tokio::try_join!(Box::pin(GatheredKnowledge::find_all(&search, reads)), async {
            Ok(disclosure::locks_before_turn(services, input).await?)
        })?;
    keep_to_tells(&mut knowledge);
    let searched = SearchedSources {
        facts: services.settings.recall.speculative || NeededSearches::for_intent(input, classified).facts,
        scenarios: knowledge.scenarios.past.is_some(),
        overheard: !knowledge.overheard.is_empty(),
    };
    let timings = recalled.timings(*intent_ms);
    Ok(GatheredContext {
        scene,
        witnesses,
        not_searched: classified.list_unsearched(input, searched),
        query: recalled.query.text,
        redacted: told_texts.redacting_facts(&removals, knowledge.episodes.has_redacted()),
        knowledge,
        place: prompt::place_of_turn(input, &world_state),
        state: world_state,
        state_position: state.position().await?,
        locks_before,
        counter: reply_counter(services, &input.npc),
        calls,
        timings,
        notes: recalled.notes,
        intent: classification.classified,
    })
}

/// Leaves out the past that only its meaning brings, if the line names something that the NPC keeps to itself.
fn keep_to_tells(knowledge: &mut GatheredKnowledge) {
    let has_tell = !knowledge.scenarios.tells.is_empty() || knowledge.lore.has_tell();
    if let Some(past) = knowledge.scenarios.past.as_mut().filter(|_| has_tell) {
        past.leave_out_found_by_meaning();
    }
}

/// What a turn reads before it knows what it is about.
struct FirstReads<'a> {
    world_state: Arc<WorldState>,
    scene: Option<Scene>,
    witnesses: Vec<SceneMember>,
    classification: Classification,
    /// How closely the hits must match the line.
    gate: TopicGate,
    calls: Vec<CallTrace>,
    recalled: LineRecall<'a>,
    reads: EarlyReads<'a>,
}

async fn read_before_search<'a>(
    services: &'a Services,
    input: &'a TurnInput,
    classify: IntentSource,
    state: &'a StateOfTurn<'a>,
    watch: &Stopwatch<'_>,
) -> Result<FirstReads<'a>, TurnError> {
    let side_by_side = Box::pin(read_side_by_side(services, input, classify, state, watch)).await;
    let world_state = Arc::clone(state.load().await?);
    let scene = scene_of_the_living(input, &world_state)?;
    let witnesses = load_witnesses(services, input, &world_state).await?;
    let mut recalled = side_by_side.recalled?;
    let mut classification = side_by_side.classification?;
    let mut reads = side_by_side.reads?;
    reads.scenarios = std::mem::take(&mut classification.known_scenarios);
    let classified = &mut classification.classified;
    let mut calls: Vec<CallTrace> = recalled.call.take().into_iter().collect();
    calls.extend(classified.call.take());
    recalled.notes.extend(classified.note_of_failure(classify));
    Ok(FirstReads {
        world_state,
        scene,
        witnesses,
        gate: recall::gate_for_turn(input, classified, recalled.query.says_nothing),
        classification,
        calls,
        recalled,
        reads,
    })
}

/// The reads of a turn that do not wait for each other.
struct ParallelReads<'a> {
    recalled: Result<LineRecall<'a>, TurnError>,
    classification: StoreResult<Classification>,
    reads: Result<EarlyReads<'a>, TurnError>,
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
    let reading = EarlyReading { services, input };
    let reads = async {
        // The first step that needs the state finds the state read.
        let (reads, state) = tokio::join!(EarlyReads::read_all(&reading), state.load());
        state?;
        reads
    };
    let searches_at_once = services.settings.recall.speculative || matches!(classify, IntentSource::Assumed);
    if searches_at_once && input.given_reply().is_none() {
        let recalling = recall_for_line(services, input, NeededSearches::ALL, standing, state, watch);
        // The intent is asked first: the others work while it is awaited.
        let (classification, recalled, reads) = tokio::join!(classifying, recalling, reads);
        return ParallelReads {
            recalled,
            classification,
            reads,
        };
    }
    let (classification, reads) = tokio::join!(classifying, reads);
    let needed = match &classification {
        Ok(classification) => NeededSearches::for_intent(input, &classification.classified),
        Err(_) => NeededSearches::NONE,
    };
    ParallelReads {
        recalled: recall_for_line(services, input, needed, standing, state, watch).await,
        classification,
        reads,
    }
}

/// The intent of a line, with the scenarios that the classifier has read.
pub(super) struct Classification {
    known_scenarios: KnownScenarios,
    pub classified: ClassifiedIntent,
    intent_ms: f64,
}

/// Returns the intent of the line, and how long the classifier took.
///
/// # Errors
/// The store's. A classifier that fails is no error.
pub(super) async fn classify_timed(
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
    let (classified, intent_ms) = watch.time_work(classifying).await;
    Ok(Classification {
        known_scenarios,
        classified,
        intent_ms,
    })
}

/// Returns the token counter of the model that answers.
pub(crate) fn reply_counter(services: &Services, npc: &Npc) -> TokenCounter {
    match services.reply_model(npc) {
        Some(model) => services.models.counter_for_model(&model),
        None => services.models.counter_for_task(Task::Reply),
    }
}
