//! Gathers the context of a turn in parallel: embedding and recall, intent, standing memory and world state.

use std::sync::Arc;

use tracing::{Instrument as _, debug_span};

use super::{
    gathered_context::GatheredContext,
    input::{TurnError, TurnInput},
    living_scene::{load_witnesses, scene_of_the_living},
    prompt_locks,
    speak::{AUTHORED_GREETING, AuthoredWords, GIVEN_REPLY},
    stopwatch::Stopwatch,
    world_state::StateOfTurn,
};
use crate::{
    Services, acquaintance,
    actions::{self, TurnActions},
    episodes::{self, ReadEpisodes},
    insights,
    intent::{ClassifiedIntent, IntentSource, SearchedSources, classify_line},
    locks,
    lore::{self, FoundLore, LoreOfTurn},
    overheard,
    prompt::{self, DeadCharacter, Prompt, PromptMaterial, PromptReader},
    recall::{self, RecallClock, RecallHit, RecallRequest, RecallResult, SearchQuery},
    redaction::{self, MAX_STANDING_FACTS, PreparedRemovals},
    scenarios::{self, KnownScenarios},
};
use colloquy_memory::{
    aliases::SpeakerAndListener,
    authored::{Greeting, Npc},
    game_clock::GameClock,
    insight::EarlierInsight,
    keywords::TermWeights,
    party,
    tokens::TokenCounter,
    trace::{CallTrace, Timings},
    turn::Intent,
};
use colloquy_ports::{
    StoreError, StoreResult,
    embedder::EmbedAs,
    ledger::facts::{RecallBody, StandingMemory},
    llm::Task,
};

impl GatheredContext {
    /// Returns the words that the NPC says without a model: the reply that a chat program has shown before, or the
    /// persona's authored greeting, if the NPC says the greeting now.
    pub(super) fn authored_words<'i>(&self, input: &'i TurnInput) -> Option<AuthoredWords<'i>> {
        if let Some(given) = input.given_reply() {
            return Some(AuthoredWords {
                text: &given.text,
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
        let told = prompt::player_own_names(reader, &self.standing).into_iter();
        told.map(|fact| fact.statement.object.as_str()).collect()
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
#[expect(clippy::too_many_lines, reason = "the parallel reads of a turn stand side by side")]
pub(super) async fn gather_timed(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
    watch: &Stopwatch<'_>,
) -> Result<GatheredContext, TurnError> {
    let viewpoint = input.viewpoint();
    let now = services.clock.now();
    let gossip = input.world.settings.allows_gossip();
    let standing = &services.ledger.facts;
    let standing = standing.load_standing(&input.scope, &viewpoint, gossip, now, MAX_STANDING_FACTS);
    let state = StateOfTurn::new(services, input);
    let sorted = async {
        // The classifier reads the recently unlocked scenarios, which depend on the state.
        let known = if scenarios::can_tell_past(input) {
            scenarios::read_known_scenarios(services, input, state.load().await?).await?
        } else {
            KnownScenarios::default()
        };
        let classifying = classify_line(services, input, classify, &known).instrument(debug_span!("turn.intent"));
        let classified = watch.time_wait(classifying).await;
        Ok::<_, StoreError>((known, classified))
    };
    let around = read_surroundings(services, input, &state);
    let meeting = acquaintance::last_meeting(services, input);
    let reading = read_past_talks(services, input);
    let searches_at_once = services.settings.recall.speculative || matches!(classify, IntentSource::Assumed);
    let (recalled, sorted, meeting, read, around) = if searches_at_once && input.given_reply().is_none() {
        let recalled = recall_for_line(services, input, NeededSearches::ALL, standing, &state, watch);
        // The intent is asked first: the others work while it is awaited.
        let (sorted, recalled, meeting, read, around) = tokio::join!(sorted, recalled, meeting, reading, around);
        (recalled, sorted, meeting, read, around)
    } else {
        let (sorted, meeting, read, around) = tokio::join!(sorted, meeting, reading, around);
        let needed = match &sorted {
            Ok((_, (classified, _))) => NeededSearches::for_intent(input, classified),
            Err(_) => NeededSearches::NONE,
        };
        let recalled = recall_for_line(services, input, needed, standing, &state, watch).await;
        (recalled, sorted, meeting, read, around)
    };
    let world = Arc::clone(state.load().await?);
    let scene = scene_of_the_living(input, &world)?;
    let witnesses = load_witnesses(services, input, &world).await?;
    let mut recalled = recalled?;
    let (known, (mut classified, intent_ms)) = sorted?;
    let (lines, actions) = around?;
    let gate = recall::gate_for_turn(input, &classified, recalled.query.says_nothing);
    let mut calls: Vec<CallTrace> = recalled.call.take().into_iter().collect();
    calls.extend(classified.call.take());
    recalled.notes.extend(classified.note_of_failure(classify));
    let StandingMemory {
        mut facts,
        taken_out,
        ended_promises,
        ..
    } = std::mem::take(&mut recalled.standing);
    let removals = PreparedRemovals::new(&taken_out);
    facts.extend(redaction::retain_unforgotten(&removals, ended_promises));
    let standing = locks::filter_open_facts(services, &input.scope, &input.world, &viewpoint, facts).await?;
    if input.is_greeting() {
        recalled.keep_facts_for_greeting();
    }
    let lore = recalled.lore.take();
    let lore = lore.map(|prepared| prepared.find(classified.is_about_something(), &standing));
    let embedding = recalled.embedding.as_deref();
    let terms = recalled.telling_terms();
    let place = prompt::place_of_turn(input, &world);
    let progress = known.progress();
    let opened = known.opened();
    let compared = embedding.filter(|_| classified.is_about_something());
    let (read_episodes, read_insights) = read?;
    let (overheard, locks_before, mut past, tells, episodes, insights) = tokio::try_join!(
        overheard::read_overheard_lines(services, input, classified.intent),
        prompt_locks::locks_before_turn(services, input),
        scenarios::find_tellable_past(services, input, (&world, known), &classified, embedding, terms),
        scenarios::find_tells(services, input, &world, progress),
        episodes::find_candidates(services, input, read_episodes, compared, &removals),
        insights::find_usable(services, input, read_insights, &removals),
    )?;
    let has_tell = !tells.is_empty() || lore.as_ref().is_some_and(FoundLore::has_tell);
    if let Some(past) = past.as_mut().filter(|_| has_tell) {
        past.leave_out_found_by_meaning();
    }
    let told = redaction::redact_texts(
        &removals,
        (&input.dialogue, &input.history),
        &input.summaries,
        meeting?.as_ref(),
    );
    let searched = SearchedSources {
        facts: services.settings.recall.speculative || NeededSearches::for_intent(input, &classified).facts,
        scenarios: past.is_some(),
        overheard: !overheard.lines.is_empty(),
    };
    Ok(GatheredContext {
        scene,
        witnesses,
        not_searched: classified.list_unsearched(input, searched),
        intent: classified,
        query: recalled.query.text,
        hits: recalled.hits,
        found_facts: recalled.found,
        redacted: told.redacting_facts(&removals, &episodes),
        gate,
        standing,
        world_lines: lines,
        state: world,
        state_position: state.position().await?,
        actions,
        meeting: told.meeting,
        summaries: told.summaries,
        outdated: told.outdated,
        overheard,
        locks_before,
        past,
        opened,
        tells,
        lore,
        episodes,
        insights,
        place,
        counter: reply_counter(services, &input.npc),
        calls,
        notes: recalled.notes,
        timings: Timings {
            embed: recalled.embed_ms,
            recall: recalled.recall_ms,
            intent: intent_ms,
            ..Timings::default()
        },
    })
}

/// Reads the episodes and the insights of earlier talks.
async fn read_past_talks(services: &Services, input: &TurnInput) -> StoreResult<(ReadEpisodes, Vec<EarlierInsight>)> {
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

/// True if a greeting may use the fact. Excluded are:
/// - Locked facts. The player has asked for nothing, and a locked fact in the prompt would lock the session's new
///   knowledge from other players. Standing facts are exempt, because each prompt of the session has them anyway.
/// - Hearsay about other people, and a player's claims about the world. Neither is a way to begin a talk.
fn can_be_greeted_with(body: &RecallBody) -> bool {
    let is_claim = || party::is_player(&body.speaker) && !body.statement().is_about_speaker_alone();
    let is_hearsay = body.speaker != party::AUTHOR && (body.speaker != body.subject || is_claim());
    body.locks.is_empty() && !is_hearsay
}

/// The searches that a turn needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NeededSearches {
    /// The embedding of the line, which is also compared with the NPC's past.
    embedding: bool,
    facts: bool,
}

impl NeededSearches {
    const ALL: Self = Self {
        embedding: true,
        facts: true,
    };
    const NONE: Self = Self {
        embedding: false,
        facts: false,
    };

    /// Returns the searches for an intent. Small talk needs no memories, and a question about the NPC's past only the
    /// past.
    fn for_intent(input: &TurnInput, classified: &ClassifiedIntent) -> Self {
        match classified.intent {
            _ if classified.in_full => Self::ALL,
            Intent::Chat => Self::NONE,
            Intent::Scenario if scenarios::can_tell_past(input) => Self {
                embedding: true,
                facts: false,
            },
            Intent::Scenario | Intent::Memory | Intent::World | Intent::Overheard => Self::ALL,
        }
    }
}

/// The result of the search.
struct LineRecall<'a> {
    query: SearchQuery,
    standing: StandingMemory,
    /// The query's embedding. `None`: the line was empty, the search was not needed, or the embedder failed.
    embedding: Option<Vec<f32>>,
    hits: Vec<RecallHit>,
    /// The number of found facts.
    found: usize,
    lore: Option<LoreOfTurn<'a>>,
    /// The embedder call, if the embedder was asked.
    call: Option<CallTrace>,
    notes: Vec<String>,
    embed_ms: f64,
    recall_ms: f64,
}

impl LineRecall<'_> {
    /// Returns the informative words of the line, or else the words of the things that the line points at.
    fn telling_terms(&self) -> &TermWeights {
        if self.query.words.0.is_empty() {
            &self.query.terms
        } else {
            &self.query.words
        }
    }

    fn keep_facts_for_greeting(&mut self) {
        let before = self.hits.len();
        self.hits.retain(|hit| can_be_greeted_with(&hit.body));
        let left_out = before - self.hits.len();
        self.found -= left_out;
        if left_out > 0 {
            let note = format!("a greeting has no hearsay and no locked facts: {left_out} facts were left out");
            self.notes.push(note);
        }
    }
}

async fn prepare_lore<'a>(
    services: &'a Services,
    input: &'a TurnInput,
    state: &'a StateOfTurn<'_>,
    embedding: Option<Vec<f32>>,
) -> StoreResult<Option<LoreOfTurn<'a>>> {
    // A world without lore needs no state here.
    if input.world.lore_version == 0 {
        return Ok(None);
    }
    let prepared = lore::prepare_lore(services, input, state.load().await?, embedding);
    prepared.await.map(Some)
}

/// Embeds the line and searches with the embedding, as far as needed. Reads the standing memory in parallel.
async fn recall_for_line<'a>(
    services: &'a Services,
    input: &'a TurnInput,
    needed: NeededSearches,
    standing: impl Future<Output = StoreResult<StandingMemory>>,
    state: &'a StateOfTurn<'_>,
    watch: &Stopwatch<'_>,
) -> Result<LineRecall<'a>, TurnError> {
    let line = input.heard_text();
    let query = match input.player {
        Some(_) => SearchQuery::for_line(&line, &input.npc.name, &input.history, &input.summaries),
        // The lines since the NPC last spoke are the only query.
        None => SearchQuery::to_listener(&line, &input.npc.name),
    };
    let mut recalled = LineRecall {
        query,
        standing: StandingMemory::default(),
        embedding: None,
        hits: Vec::new(),
        found: 0,
        lore: None,
        call: None,
        notes: Vec::new(),
        embed_ms: 0.0,
        recall_ms: 0.0,
    };
    let searching = async {
        if needed.embedding {
            recalled.embed_query(services, input, watch).await;
        }
        let embedding = recalled.embedding.clone();
        let finding = prepare_lore(services, input, state, embedding);
        let searching = async {
            if needed.facts {
                recalled.search_facts(services, input, state, watch).await?;
            }
            Ok::<_, TurnError>(())
        };
        let (searched, lore) = tokio::join!(searching, finding);
        searched?;
        Ok::<_, TurnError>(lore?)
    };
    let (searched, standing) = tokio::join!(searching, standing);
    recalled.lore = searched?;
    recalled.standing = standing?;
    // The aliases come with the standing memory. If a named person has other names, a second search uses these names
    // too.
    if needed.facts && !line.trim().is_empty() && !recalled.standing.names.is_empty() {
        let viewpoint = input.viewpoint();
        let names = std::mem::take(&mut recalled.standing.names);
        let names = recall::merge_open_names(services, &input.scope, &input.world, &viewpoint, names).await?;
        let speaker = input.player.as_ref().map(party::player_key);
        let spoken = SpeakerAndListener {
            speaker: speaker.as_deref(),
            listener: Some(input.npc.name.as_str()),
        };
        let without = recalled.query.terms.clone();
        recalled.query.add_names(&names, spoken);
        if recalled.query.terms != without {
            recalled.search_facts(services, input, state, watch).await?;
        }
    }
    Ok(recalled)
}

impl LineRecall<'_> {
    async fn embed_query(&mut self, services: &Services, input: &TurnInput, watch: &Stopwatch<'_>) {
        let texts = [self.query.text.clone()];
        // An empty line has nothing to compare with. Recall then proposes important or new facts.
        let asked = if texts[0].trim().is_empty() { &[] } else { &texts[..] };
        let embedding = services
            .models
            .embed_texts(&input.scope, services.embedder.as_ref(), EmbedAs::Query, asked);
        let ((embedded, call), embed_ms) = watch.time_wait(embedding.instrument(debug_span!("turn.embed"))).await;
        match embedded {
            Ok(mut vectors) => self.embedding = vectors.pop(),
            Err(error) => {
                self.notes
                    .push(format!("recall by keywords alone: the embedder failed: {error}"));
            }
        }
        self.call = Some(call);
        self.embed_ms = embed_ms;
    }

    async fn search_facts(
        &mut self,
        services: &Services,
        input: &TurnInput,
        state: &StateOfTurn<'_>,
        watch: &Stopwatch<'_>,
    ) -> Result<(), TurnError> {
        let viewpoint = input.viewpoint();
        let sought = RecallRequest {
            scope: &input.scope,
            world: &input.world,
            viewpoint: &viewpoint,
            embedding: self.embedding.as_deref(),
            terms: &self.query.terms,
            limits: recall::leg_limits(&services.settings.recall),
            // The present time, not the turn's start: facts of the previous turn may have landed since.
            at: services.clock.now(),
            line: self.query.line(),
            clock: RecallClock::default(),
        };
        let searching = recall::recall_facts(services, sought, state.clock()).instrument(debug_span!("turn.recall"));
        let (result, recall_ms) = watch.time_work(searching).await;
        let RecallResult {
            facts,
            found,
            without_index,
        } = result?;
        if let Some(error) = without_index {
            let note =
                format!("recall in the ledger, by words and among the newest facts: the index did not answer: {error}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        (self.hits, self.found) = (facts, found);
        self.recall_ms += recall_ms;
        Ok(())
    }
}
