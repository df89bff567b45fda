//! Gathers the context of a turn in parallel: embedding and recall, intent, standing memory and world state.

use std::sync::Arc;

use chrono::{DateTime, Utc};
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
    knowledge::{EarlyReading, EarlyReads, FoundFacts, GatheredKnowledge, LineSearch, MemoryOfTurn, player_own_names},
    prompt::{self, DeadCharacter, Prompt, PromptContext, PromptReader},
    recall,
    scene::{Scene, SceneMember},
};
use colloquy_memory::{
    authored::{Greeting, Npc},
    game_clock::GameClock,
    state::WorldState,
    tokens::TokenCounter,
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

    /// Sets the intent. Only a classifier's answer with the same needs may replace an expected intent.
    pub(super) fn set_intent(&mut self, classification: Classification) {
        let Classification {
            mut classified,
            failure,
            intent_ms,
        } = classification;
        self.calls.extend(classified.call.take());
        self.notes.extend(failure);
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
    source: IntentSource,
) -> Result<GatheredContext, TurnError> {
    let watch = Stopwatch::start_at(input.accepted_at, services.clock.as_ref());
    let state = StateOfTurn::new(services, input);
    let gathering = Gathering {
        services,
        input,
        state: &state,
        watch: &watch,
    };
    Box::pin(gathering.gather(source)).await
}

/// The gathering of one turn's context.
///
/// Recall is speculative: it does not wait for the intent. An intent therefore costs only the time that its call takes
/// longer than recall. With `recall.speculative` off, the intent comes first, and the search covers only the needs of the
/// intent.
#[derive(Clone, Copy)]
pub(super) struct Gathering<'a> {
    pub services: &'a Services,
    pub input: &'a TurnInput,
    pub state: &'a StateOfTurn<'a>,
    pub watch: &'a Stopwatch<'a>,
}

/// What a turn reads before it knows what its line asks for.
#[derive(Clone)]
pub(super) struct FirstReads<'a> {
    world_state: Arc<WorldState>,
    scene: Option<Scene>,
    witnesses: Vec<SceneMember>,
    recalled: LineRecall<'a>,
    reads: EarlyReads<'a>,
}

/// The intent of a line, with the call of the classifier.
#[derive(Clone)]
pub(super) struct Classification {
    pub classified: ClassifiedIntent,
    /// A note, if the classifier was asked and its answer was not used.
    failure: Option<String>,
    intent_ms: f64,
}

impl Classification {
    /// The likeliest intent by the words of the line.
    pub(super) fn expected(input: &TurnInput) -> Self {
        Self {
            classified: ClassifiedIntent::by_rules(&input.line),
            failure: None,
            intent_ms: 0.0,
        }
    }
}

impl<'a> Gathering<'a> {
    /// Gathers the context, with one source of the intent.
    pub(super) async fn gather(self, source: IntentSource) -> Result<GatheredContext, TurnError> {
        let searches_at_once = self.services.settings.recall.speculative || matches!(source, IntentSource::Assumed);
        let (first_reads, classification) = if searches_at_once && self.input.given_reply().is_none() {
            // The intent is asked first: the others work while it is awaited.
            let (classification, first_reads) = tokio::join!(self.classify(source), self.read_before_intent());
            (first_reads?, classification?)
        } else {
            self.read_after_intent(source).await?
        };
        self.find_for_intent(first_reads, classification).await
    }

    /// Returns the intent of the line.
    ///
    /// # Errors
    /// The store's. A classifier that fails is no error.
    pub(super) async fn classify(self, source: IntentSource) -> StoreResult<Classification> {
        // The classifier reads the recently unlocked scenarios.
        let known_scenarios = self.state.known_scenarios().await?;
        let classifying = classify_line(self.services, self.input, source, known_scenarios);
        let (classified, intent_ms) = self
            .watch
            .time_work(classifying.instrument(debug_span!("turn.intent")))
            .await;
        Ok(Classification {
            failure: classified.note_of_failure(source),
            classified,
            intent_ms,
        })
    }

    /// Reads and searches all that the turn may need, whatever its intent.
    ///
    /// # Errors
    /// The store's, or the NPC is dead.
    pub(super) async fn read_before_intent(self) -> Result<FirstReads<'a>, TurnError> {
        let reading = self.early_reading(Some(self.services.clock.now()));
        let standing = reading.memory.take(|memory| &mut memory.standing);
        let recalling = self.recall(NeededSearches::ALL, standing);
        let (recalled, reads) = tokio::join!(recalling, self.read_early(&reading));
        self.to_first_reads(recalled, reads).await
    }

    /// Reads the intent, and then searches what the intent needs.
    async fn read_after_intent(self, source: IntentSource) -> Result<(FirstReads<'a>, Classification), TurnError> {
        let (services, input) = (self.services, self.input);
        let now = services.clock.now();
        let reading = self.early_reading(None);
        let (classification, reads) = tokio::join!(self.classify(source), self.read_early(&reading));
        let needed = match &classification {
            Ok(classification) => NeededSearches::for_intent(input, &classification.classified),
            Err(_) => NeededSearches::NONE,
        };
        let viewpoint = input.viewpoint();
        let gossip = input.world.settings.allows_gossip();
        let facts = &services.ledger.facts;
        let standing = facts.load_standing(&input.scope, &viewpoint, gossip, now, MAX_STANDING_FACTS);
        let recalled = self.recall(needed, standing).await;
        let first_reads = self.to_first_reads(recalled, reads).await?;
        Ok((first_reads, classification?))
    }

    /// `standing_as_of`: the moment of the standing facts, if they are read with the other memory.
    fn early_reading(self, standing_as_of: Option<DateTime<Utc>>) -> EarlyReading<'a> {
        let Self { services, input, .. } = self;
        EarlyReading {
            services,
            input,
            memory: MemoryOfTurn::new(services, input, standing_as_of),
        }
    }

    async fn read_early(self, reading: &EarlyReading<'a>) -> Result<EarlyReads<'a>, TurnError> {
        // The first step that needs the state finds the state read.
        let (reads, state) = tokio::join!(EarlyReads::read_all(reading), self.state.load());
        state?;
        reads
    }

    async fn recall(
        self,
        needed: NeededSearches,
        standing: impl Future<Output = StoreResult<StandingMemory>>,
    ) -> Result<LineRecall<'a>, TurnError> {
        recall_for_line(self.services, self.input, needed, standing, self.state, self.watch).await
    }

    async fn to_first_reads(
        self,
        recalled: Result<LineRecall<'a>, TurnError>,
        reads: Result<EarlyReads<'a>, TurnError>,
    ) -> Result<FirstReads<'a>, TurnError> {
        let world_state = Arc::clone(self.state.load().await?);
        let scene = scene_of_the_living(self.input, &world_state)?;
        let witnesses = load_witnesses(self.services, self.input, &world_state).await?;
        let mut reads = reads?;
        reads.scenarios = self.state.known_scenarios().await?.clone();
        Ok(FirstReads {
            world_state,
            scene,
            witnesses,
            recalled: recalled?,
            reads,
        })
    }

    /// Finds what the prompt may have, with the intent of the line.
    ///
    /// # Errors
    /// The store's, or a template that cannot be rendered.
    pub(super) async fn find_for_intent(
        self,
        first_reads: FirstReads<'a>,
        classification: Classification,
    ) -> Result<GatheredContext, TurnError> {
        let Self { services, input, .. } = self;
        let FirstReads {
            world_state,
            scene,
            witnesses,
            mut recalled,
            mut reads,
        } = first_reads;
        let classified = &classification.classified;
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
        let told_texts =
            disclosure::redact_texts(&removals, &input.dialogue, &input.history, &input.summaries, meeting);
        reads.lore = recalled.lore.take();
        reads.found_facts = FoundFacts {
            hits: std::mem::take(&mut recalled.hits),
            found_count: recalled.found_count,
            gate: recall::gate_for_turn(input, classified, recalled.query.says_nothing),
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
        let mut gathered = GatheredContext {
            scene,
            witnesses,
            not_searched: classified.list_unsearched(input, searched),
            redacted: told_texts.redacting_facts(&removals, knowledge.episodes.has_redacted()),
            knowledge,
            place: prompt::place_of_turn(input, &world_state),
            state: world_state,
            state_position: self.state.position().await?,
            locks_before,
            counter: reply_counter(services, &input.npc),
            calls: recalled.call.take().into_iter().collect(),
            timings: recalled.timings(),
            query: recalled.query.text,
            notes: recalled.notes,
            intent: ClassifiedIntent::clone(classified),
        };
        gathered.set_intent(classification);
        Ok(gathered)
    }
}

/// Leaves out the past that only its meaning brings, if the line names something that the NPC keeps to itself.
fn keep_to_tells(knowledge: &mut GatheredKnowledge) {
    let has_tell = !knowledge.scenarios.tells.is_empty() || knowledge.lore.has_tell();
    if let Some(past) = knowledge.scenarios.past.as_mut().filter(|_| has_tell) {
        past.leave_out_found_by_meaning();
    }
}

/// Returns the token counter of the model that answers.
pub(crate) fn reply_counter(services: &Services, npc: &Npc) -> TokenCounter {
    match services.reply_model(npc) {
        Some(model) => services.models.counter_for_model(&model),
        None => services.models.counter_for_task(Task::Reply),
    }
}
