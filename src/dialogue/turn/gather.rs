//! What a turn needs before it can speak, gathered side by side: the line's embedding and recall,
//! its intent, what always stands in the prompt, and how the world is.

use std::sync::Arc;

use tracing::{Instrument as _, debug_span};

use super::{TurnError, TurnInput, stopwatch::Stopwatch};
use crate::{
    dialogue::{
        Services, acquaintance,
        intent::{self, ClassifiedIntent},
        locks, overheard,
        prompt::{self, Prompt, PromptMaterial, PromptReader, world_lines},
        recall::{self, RecallHit, RecallRequest, RecallResult, SearchQuery, TopicGate},
        redaction,
        scenarios::{self, KnownScenarios, NpcPast},
    },
    memory::{
        aliases::SpeakerAndListener,
        authored::Greeting,
        fact::Fact,
        keywords::TermWeights,
        locks::DisclosureLocks,
        party,
        state::WorldState,
        summary::{Meeting, Summary},
        tokens::TokenCounter,
        trace::{CallTrace, Timings},
        turn::Intent,
    },
    ports::{
        StoreError, StoreResult,
        embedder::EmbedAs,
        ledger::facts::{RecallBody, StandingMemory},
        llm::Task,
    },
};

/// Standing facts read of each sort, more than any budget takes, and those that were taken out of memory.
pub(in crate::dialogue) const MAX_STANDING_FACTS: u32 = 50;

/// Where the intent comes from.
#[derive(Debug, Clone, Copy)]
pub(in crate::dialogue) enum IntentSource {
    /// The classifier.
    Model,
    /// Nobody is asked.
    Assumed(Intent),
}

impl IntentSource {
    /// NPCs among themselves always recall in full, as does one that greets: there is nobody's line to sort.
    pub(super) fn for_turn(input: &TurnInput) -> Self {
        match input.player {
            Some(_) if !input.is_greeting() => Self::Model,
            _ => Self::Assumed(Intent::Memory),
        }
    }
}

/// What was gathered.
pub(in crate::dialogue) struct GatheredContext {
    pub intent: ClassifiedIntent,
    pub query: String,
    pub hits: Vec<RecallHit>,
    /// How strictly those have to be about the line.
    pub gate: TopicGate,
    pub standing: Vec<Fact>,
    pub world_lines: Vec<String>,
    /// When the NPC last talked with the player, in another session.
    pub meeting: Option<Meeting>,
    /// Of what was said in the dialogue before its history, as they may be told.
    pub summaries: Vec<Summary>,
    /// What NPCs said to each other, where the turn needs it.
    pub overheard: overheard::OverheardLines,
    /// What the dialogue had had before that not every player may hear of.
    pub locks_before: DisclosureLocks,
    /// What the NPC may tell of its own past, where the turn needs it.
    pub past: Option<NpcPast>,
    pub counter: TokenCounter,
    pub calls: Vec<CallTrace>,
    pub notes: Vec<String>,
    /// `embed`, `recall` and `intent` are set.
    pub timings: Timings,
}

impl GatheredContext {
    /// The words that the persona greets with, where it has any and is to say them: no model is asked for them.
    pub(super) fn greeting_words<'i>(&self, input: &'i TurnInput) -> Option<&'i str> {
        let always = input.world.settings.greeting == Some(Greeting::Always);
        input.greeting_words().filter(|_| always || self.meeting.is_none())
    }

    /// Under what name the NPC knows the player, if it told one.
    pub(in crate::dialogue) fn known_player_name(&self, input: &TurnInput) -> Option<&str> {
        let reader = PromptReader {
            language: input.npc.language,
            npc: &input.npc.name,
            player: input.player.as_ref(),
        };
        let told = prompt::player_own_name(reader, &self.standing)?;
        Some(told.statement.object.as_str())
    }

    /// Assembles the prompt from it.
    pub(in crate::dialogue) fn assemble_prompt(
        &self,
        services: &Services,
        input: &TurnInput,
    ) -> Result<Prompt, TurnError> {
        let material = PromptMaterial {
            world: &input.world,
            npc: &input.npc,
            dialogue: input.dialogue.id,
            player: input.player.as_ref(),
            scene: input.scene.as_deref(),
            overheard: &self.overheard.lines,
            past: self.past.as_ref(),
            line: &input.line,
            continued_text: input
                .continuation
                .as_ref()
                .map(|unfinished| unfinished.beginning().text),
            history: &input.history,
            summaries: &self.summaries,
            standing: &self.standing,
            world_lines: self.world_lines.clone(),
            hits: &self.hits,
            near_duplicate_cosine: recall::near_duplicate_cosine(services),
            gate: self.gate,
            counter: self.counter,
            now: input.started_at,
            meeting: self.meeting.as_ref(),
        };
        prompt::assemble_prompt(&services.prompts, &services.settings, &material)
    }
}

/// Gathers for a preview, which has no stopwatch of its own.
pub(in crate::dialogue) async fn gather_for_preview(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
) -> Result<GatheredContext, TurnError> {
    let watch = Stopwatch::start_at(input.accepted_at, services.clock.as_ref());
    gather_timed(services, input, classify, &watch).await
}

/// Gathers side by side. Recall does not wait for the intent: it is speculative, and what the line has no use for is
/// left out when the prompt is assembled. So the only thing an intent costs is the time its call takes beyond recall's.
/// Where that is switched off (`recall.speculative`), the intent comes first, and only what it needs is searched for.
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
    let world = services
        .memory_cache
        .world_state(services, &input.scope, &input.world.id);
    let sorted = async {
        if scenarios::can_tell_past(input) {
            return classify_with_past(services, input, classify, watch, world).await;
        }
        let known = KnownScenarios::default();
        let (world, classified) = tokio::join!(world, classify_line(services, input, classify, &known, watch));
        Ok::<_, StoreError>((world?, known, classified))
    };
    let meeting = acquaintance::last_meeting(services, input);
    let (recalled, sorted, meeting) =
        if services.settings.recall.speculative || !matches!(classify, IntentSource::Model) {
            let recalled = recall_for_line(services, input, NeededSearches::ALL, standing, watch);
            tokio::join!(recalled, sorted, meeting)
        } else {
            let (sorted, meeting) = tokio::join!(sorted, meeting);
            let needed = match &sorted {
                Ok((.., (classified, _))) => NeededSearches::for_intent(input, classified),
                Err(_) => NeededSearches::NONE,
            };
            let recalled = recall_for_line(services, input, needed, standing, watch).await;
            (recalled, sorted, meeting)
        };
    let mut recalled = recalled?;
    let (world, known, (mut classified, intent_ms)) = sorted?;
    let gate = TopicGate::for_turn(input, &classified, recalled.query.says_nothing);
    let mut calls: Vec<CallTrace> = recalled.call.take().into_iter().collect();
    calls.extend(classified.call.take());
    if classified.source != intent::INTENT_SOURCE_MODEL && matches!(classify, IntentSource::Model) {
        recalled
            .notes
            .push(format!("the intent was not classified; {}", classified.source));
    }
    let lines = world_lines(
        &services.prompts,
        input.npc.language,
        world.as_ref(),
        &input.npc,
        input.player.as_ref(),
        input.scene.as_deref(),
    )?;
    let StandingMemory {
        facts, taken_out: gone, ..
    } = std::mem::take(&mut recalled.standing);
    let standing = locks::filter_open_facts(services, &input.scope, &input.world, &viewpoint, facts).await?;
    if input.is_greeting() {
        recalled.hits.retain(|hit| can_be_greeted_with(&hit.body));
    }
    let (embedding, terms) = (recalled.embedding.as_deref(), recalled.telling_terms());
    let (overheard, locks_before, past) = tokio::try_join!(
        overheard::read_overheard_lines(services, input, classified.intent),
        locks::locks_before_turn(services, input),
        scenarios::find_tellable_past(services, input, known, &classified, embedding, terms),
    )?;
    Ok(GatheredContext {
        intent: classified,
        query: recalled.query.text,
        hits: recalled.hits,
        gate,
        standing,
        world_lines: lines,
        meeting: meeting?.map(|meeting| redaction::redact_meeting(&gone, meeting)),
        summaries: redaction::redact_summaries(&gone, input.dialogue.created_at, &input.summaries),
        overheard,
        locks_before,
        past,
        counter: match services.models.allowed_npc_model(&input.npc) {
            Some(model) => services.models.counter_for_model(model),
            None => services.models.counter_for_task(Task::Reply),
        },
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

/// Nobody asked for anything: what is locked would lock what others might hear of all that is learned in the session, but for what stands in each of its
/// prompts anyway. What somebody said of others is nothing to begin with, nor what a player claims of the world.
fn can_be_greeted_with(body: &RecallBody) -> bool {
    let is_claim = || party::is_player(&body.speaker) && !body.statement().is_about_speaker_alone();
    let is_hearsay = body.speaker != party::AUTHOR && (body.speaker != body.subject || is_claim());
    body.locks.is_empty() && !is_hearsay
}

/// The state of the world, what is known of the NPC's past, and what the line is after: the classifier is told
/// what was unlocked lately, and that follows from the state.
async fn classify_with_past(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
    watch: &Stopwatch<'_>,
    world: impl Future<Output = Result<Arc<WorldState>, StoreError>>,
) -> Result<(Arc<WorldState>, KnownScenarios, (ClassifiedIntent, f64)), StoreError> {
    let world = world.await?;
    let known = scenarios::read_known_scenarios(services, input, &world).await?;
    let classified = classify_line(services, input, classify, &known, watch).await;
    Ok((world, known, classified))
}

/// What the line is after, and how long it took to ask, in ms.
async fn classify_line(
    services: &Services,
    input: &TurnInput,
    classify: IntentSource,
    known: &KnownScenarios,
    watch: &Stopwatch<'_>,
) -> (ClassifiedIntent, f64) {
    match classify {
        IntentSource::Model => {
            let classifying = intent::classify_intent(services, input, known);
            watch
                .time_wait(classifying.instrument(debug_span!("turn.intent")))
                .await
        }
        IntentSource::Assumed(intent) => {
            let assumed = ClassifiedIntent {
                intent,
                source: "not asked".to_owned(),
                in_full: true,
                call: None,
            };
            (assumed, 0.0)
        }
    }
}

/// What is searched for in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NeededSearches {
    /// The line is embedded, which the NPC's past is compared with, too.
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

    /// Small talk needs no memories, and a question about the NPC's past none but those of it.
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

/// What came of the search.
struct LineRecall {
    query: SearchQuery,
    standing: StandingMemory,
    /// Of the query; `None`: nothing was said, nothing was to be searched for, or the embedder failed.
    embedding: Option<Vec<f32>>,
    hits: Vec<RecallHit>,
    /// Of the embedder, if it was asked.
    call: Option<CallTrace>,
    notes: Vec<String>,
    embed_ms: f64,
    recall_ms: f64,
}

impl LineRecall {
    /// The words of the line, or, if it has none that tell, of what it points at.
    fn telling_terms(&self) -> &TermWeights {
        if self.query.words.0.is_empty() {
            &self.query.terms
        } else {
            &self.query.words
        }
    }
}

/// Embeds the line and searches with it, as far as either is needed; reads what stands meanwhile.
async fn recall_for_line(
    services: &Services,
    input: &TurnInput,
    needed: NeededSearches,
    standing: impl Future<Output = StoreResult<StandingMemory>>,
    watch: &Stopwatch<'_>,
) -> Result<LineRecall, TurnError> {
    let line = input.heard_text();
    let query = match input.player {
        Some(_) => SearchQuery::for_line(&line, &input.npc.name, &input.history, &input.summaries),
        // What others said to it since it last spoke is all that there is to go by.
        None => SearchQuery::from_text(&line),
    };
    let mut recalled = LineRecall {
        query,
        standing: StandingMemory::default(),
        embedding: None,
        hits: Vec::new(),
        call: None,
        notes: Vec::new(),
        embed_ms: 0.0,
        recall_ms: 0.0,
    };
    let searching = async {
        if needed.embedding {
            recalled.embed_query(services, input, watch).await;
        }
        if needed.facts {
            recalled.search_facts(services, input, watch).await?;
        }
        Ok::<_, TurnError>(())
    };
    let (searched, standing) = tokio::join!(searching, standing);
    searched?;
    recalled.standing = standing?;
    // Who is who comes with what stands. Where a line speaks of somebody who has other names, it is searched for by those as well.
    if needed.facts && !line.trim().is_empty() && !recalled.standing.names.is_empty() {
        let (viewpoint, names) = (input.viewpoint(), std::mem::take(&mut recalled.standing.names));
        let names = recall::merge_open_names(services, &input.scope, &input.world, &viewpoint, names).await?;
        let speaker = input.player.as_ref().map(party::player_key);
        let spoken = SpeakerAndListener {
            speaker: speaker.as_deref(),
            listener: input.player.is_some().then_some(input.npc.name.as_str()),
        };
        let without = recalled.query.terms.clone();
        recalled.query.add_names(&names, spoken);
        if recalled.query.terms != without {
            recalled.search_facts(services, input, watch).await?;
        }
    }
    Ok(recalled)
}

impl LineRecall {
    async fn embed_query(&mut self, services: &Services, input: &TurnInput, watch: &Stopwatch<'_>) {
        let texts = [self.query.text.clone()];
        // Where nothing was said there is nothing to compare with: what is important or new is proposed.
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
            // Not when the turn began: what the previous one taught may have landed since.
            at: services.clock.now(),
        };
        let searching = recall::recall_facts(services, sought).instrument(debug_span!("turn.recall"));
        let (found, recall_ms) = watch.time_work(searching).await;
        let RecallResult { facts, without_index } = found?;
        if let Some(error) = without_index {
            let note = format!("recall by words alone, in the ledger: the index did not answer: {error}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.hits = facts;
        self.recall_ms += recall_ms;
        Ok(())
    }
}
