//! What a turn needs before it can speak, gathered side by side: the line's embedding and recall,
//! its intent, what always stands in the prompt, and how the world is.

use std::sync::Arc;

use tracing::{Instrument as _, debug_span};

use super::{TurnError, TurnInput, stopwatch::Stopwatch};
use crate::{
    dialogue::{
        Services, acquaintance,
        intent::{self, Classified},
        locks, overheard,
        prompt::{self, Material, Prompt, Reader, world_lines},
        recall::{self, Found, Gate, Hit, Query, Sought},
        scenarios::{self, Known, Past},
        taken_out,
    },
    memory::{
        authored::Greeting,
        fact::Fact,
        keywords::TermWeights,
        locks::Locks,
        names::Spoken,
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
        ledger::facts::{RecallBody, Standing},
        llm::Task,
    },
};

/// Standing facts read of each sort, more than any budget takes, and those that were taken out of memory.
pub(in crate::dialogue) const STANDING: u32 = 50;

/// Where the intent comes from.
#[derive(Debug, Clone, Copy)]
pub(in crate::dialogue) enum Classify {
    /// The classifier.
    Model,
    /// Nobody is asked.
    As(Intent),
}

impl Classify {
    /// NPCs among themselves always recall in full, as does one that greets: there is nobody's line to sort.
    pub(super) fn of(input: &TurnInput) -> Self {
        match input.player {
            Some(_) if !input.is_greeting() => Self::Model,
            _ => Self::As(Intent::Memory),
        }
    }
}

/// What was gathered.
pub(in crate::dialogue) struct Gathered {
    pub intent: Classified,
    pub query: String,
    pub hits: Vec<Hit>,
    /// How strictly those have to be about the line.
    pub gate: Gate,
    pub standing: Vec<Fact>,
    pub world_lines: Vec<String>,
    /// When the NPC last talked with the player, in another session.
    pub meeting: Option<Meeting>,
    /// Of what was said in the dialogue before its history, as they may be told.
    pub summaries: Vec<Summary>,
    /// What NPCs said to each other, where the turn needs it.
    pub overheard: overheard::Told,
    /// What the dialogue had had before that not every player may hear of.
    pub locks_before: Locks,
    /// What the NPC may tell of its own past, where the turn needs it.
    pub past: Option<Past>,
    pub counter: TokenCounter,
    pub calls: Vec<CallTrace>,
    pub notes: Vec<String>,
    /// `embed`, `recall` and `intent` are set.
    pub timings: Timings,
}

impl Gathered {
    /// The words that the persona greets with, where it has any and is to say them: no model is asked for them.
    pub(super) fn own_words<'i>(&self, input: &'i TurnInput) -> Option<&'i str> {
        let always = input.world.settings.greeting == Some(Greeting::Always);
        input.own_words().filter(|_| always || self.meeting.is_none())
    }

    /// Under what name the NPC knows the player, if it told one.
    pub(in crate::dialogue) fn players_name(&self, input: &TurnInput) -> Option<&str> {
        let reader = Reader {
            language: input.npc.language,
            npc: &input.npc.name,
            player: input.player.as_ref(),
        };
        let told = prompt::own_name(reader, &self.standing)?;
        Some(told.statement.object.as_str())
    }

    /// Assembles the prompt from it.
    pub(in crate::dialogue) fn prompt(&self, services: &Services, input: &TurnInput) -> Result<Prompt, TurnError> {
        let material = Material {
            world: &input.world,
            npc: &input.npc,
            dialogue: input.dialogue.id,
            player: input.player.as_ref(),
            scene: input.scene.as_deref(),
            overheard: &self.overheard.lines,
            past: self.past.as_ref(),
            line: &input.line,
            goes_on: input.goes_on.as_ref().map(|unfinished| unfinished.beginning().text),
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
        prompt::assemble(&services.prompts, &services.settings, &material)
    }
}

/// Gathers for a preview, which has no stopwatch of its own.
pub(in crate::dialogue) async fn gather(
    services: &Services,
    input: &TurnInput,
    classify: Classify,
) -> Result<Gathered, TurnError> {
    let watch = Stopwatch::since(input.accepted_at, services.clock.as_ref());
    gather_timed(services, input, classify, &watch).await
}

/// Gathers side by side. Recall does not wait for the intent: it is speculative, and what the line has no use for is
/// left out when the prompt is assembled. So the only thing an intent costs is the time its call takes beyond recall's.
/// Where that is switched off (`recall.speculative`), the intent comes first, and only what it needs is searched for.
pub(super) async fn gather_timed(
    services: &Services,
    input: &TurnInput,
    classify: Classify,
    watch: &Stopwatch<'_>,
) -> Result<Gathered, TurnError> {
    let viewpoint = input.viewpoint();
    let now = services.clock.now();
    let gossip = input.world.settings.gossips();
    let standing = &services.ledger.facts;
    let standing = standing.standing(&input.scope, &viewpoint, gossip, now, STANDING);
    let world = services.bodies.world(services, &input.scope, &input.world.id);
    let sorted = async {
        if scenarios::may_be_told(input) {
            return sorted_with_past(services, input, classify, watch, world).await;
        }
        let known = Known::default();
        let (world, classified) = tokio::join!(world, classified(services, input, classify, &known, watch));
        Ok::<_, StoreError>((world?, known, classified))
    };
    let meeting = acquaintance::last_meeting(services, input);
    let (recalled, sorted, meeting) = if services.settings.recall.speculative || !matches!(classify, Classify::Model) {
        let recalled = recalled(services, input, Searches::ALL, standing, watch);
        tokio::join!(recalled, sorted, meeting)
    } else {
        let (sorted, meeting) = tokio::join!(sorted, meeting);
        let needed = match &sorted {
            Ok((.., (classified, _))) => Searches::needed(input, classified),
            Err(_) => Searches::NONE,
        };
        let recalled = recalled(services, input, needed, standing, watch).await;
        (recalled, sorted, meeting)
    };
    let mut recalled = recalled?;
    let (world, known, (mut classified, intent_ms)) = sorted?;
    let gate = Gate::of(input, &classified, recalled.query.says_nothing);
    let mut calls: Vec<CallTrace> = recalled.call.take().into_iter().collect();
    calls.extend(classified.call.take());
    if classified.source != intent::BY_MODEL && matches!(classify, Classify::Model) {
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
    let Standing {
        facts, taken_out: gone, ..
    } = std::mem::take(&mut recalled.standing);
    let standing = locks::open_facts(services, &input.scope, &input.world, &viewpoint, facts).await?;
    if input.is_greeting() {
        recalled.hits.retain(|hit| may_be_greeted_with(&hit.body));
    }
    let (embedding, terms) = (recalled.embedding.as_deref(), recalled.words());
    let (overheard, locks_before, past) = tokio::try_join!(
        overheard::lines(services, input, classified.intent),
        locks::before(services, input),
        scenarios::look(services, input, known, &classified, embedding, terms),
    )?;
    Ok(Gathered {
        intent: classified,
        query: recalled.query.text,
        hits: recalled.hits,
        gate,
        standing,
        world_lines: lines,
        meeting: meeting?.map(|meeting| taken_out::of_meeting(&gone, meeting)),
        summaries: taken_out::of_summaries(&gone, input.dialogue.created_at, &input.summaries),
        overheard,
        locks_before,
        past,
        counter: match services.models.model_of_npc(&input.npc) {
            Some(model) => services.models.counter_of(model),
            None => services.models.counter(Task::Reply),
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
fn may_be_greeted_with(body: &RecallBody) -> bool {
    let is_claim = || party::is_player(&body.speaker) && !body.statement().is_of_oneself();
    let is_hearsay = body.speaker != party::AUTHOR && (body.speaker != body.subject || is_claim());
    body.locks.is_empty() && !is_hearsay
}

/// The state of the world, what is known of the NPC's past, and what the line is after: the classifier is told
/// what was unlocked lately, and that follows from the state.
async fn sorted_with_past(
    services: &Services,
    input: &TurnInput,
    classify: Classify,
    watch: &Stopwatch<'_>,
    world: impl Future<Output = Result<Arc<WorldState>, StoreError>>,
) -> Result<(Arc<WorldState>, Known, (Classified, f64)), StoreError> {
    let world = world.await?;
    let known = scenarios::known(services, input, &world).await?;
    let classified = classified(services, input, classify, &known, watch).await;
    Ok((world, known, classified))
}

/// What the line is after, and how long it took to ask, in ms.
async fn classified(
    services: &Services,
    input: &TurnInput,
    classify: Classify,
    known: &Known,
    watch: &Stopwatch<'_>,
) -> (Classified, f64) {
    match classify {
        Classify::Model => {
            let classifying = intent::classify(services, input, known);
            watch.wait(classifying.instrument(debug_span!("turn.intent"))).await
        }
        Classify::As(intent) => {
            let assumed = Classified {
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
struct Searches {
    /// The line is embedded, which the NPC's past is compared with, too.
    embedding: bool,
    facts: bool,
}

impl Searches {
    const ALL: Self = Self {
        embedding: true,
        facts: true,
    };
    const NONE: Self = Self {
        embedding: false,
        facts: false,
    };

    /// Small talk needs no memories, and a question about the NPC's past none but those of it.
    fn needed(input: &TurnInput, classified: &Classified) -> Self {
        match classified.intent {
            _ if classified.in_full => Self::ALL,
            Intent::Chat => Self::NONE,
            Intent::Scenario if scenarios::may_be_told(input) => Self {
                embedding: true,
                facts: false,
            },
            Intent::Scenario | Intent::Memory | Intent::World | Intent::Overheard => Self::ALL,
        }
    }
}

/// What came of the search.
struct Recalled {
    query: Query,
    standing: Standing,
    /// Of the query; `None`: nothing was said, nothing was to be searched for, or the embedder failed.
    embedding: Option<Vec<f32>>,
    hits: Vec<Hit>,
    /// Of the embedder, if it was asked.
    call: Option<CallTrace>,
    notes: Vec<String>,
    embed_ms: f64,
    recall_ms: f64,
}

impl Recalled {
    /// The words of the line, or, if it has none that tell, of what it points at.
    fn words(&self) -> &TermWeights {
        if self.query.words.0.is_empty() {
            &self.query.terms
        } else {
            &self.query.words
        }
    }
}

/// Embeds the line and searches with it, as far as either is needed; reads what stands meanwhile.
async fn recalled(
    services: &Services,
    input: &TurnInput,
    needed: Searches,
    standing: impl Future<Output = StoreResult<Standing>>,
    watch: &Stopwatch<'_>,
) -> Result<Recalled, TurnError> {
    let line = input.heard();
    let query = match input.player {
        Some(_) => Query::of(&line, &input.npc.name, &input.history, &input.summaries),
        // What others said to it since it last spoke is all that there is to go by.
        None => Query::plain(&line),
    };
    let mut recalled = Recalled {
        query,
        standing: Standing::default(),
        embedding: None,
        hits: Vec::new(),
        call: None,
        notes: Vec::new(),
        embed_ms: 0.0,
        recall_ms: 0.0,
    };
    let searching = async {
        if needed.embedding {
            recalled.embed(services, input, watch).await;
        }
        if needed.facts {
            recalled.search(services, input, watch).await?;
        }
        Ok::<_, TurnError>(())
    };
    let (searched, standing) = tokio::join!(searching, standing);
    searched?;
    recalled.standing = standing?;
    // Who is who comes with what stands. Where a line speaks of somebody who has other names, it is searched for by those as well.
    if needed.facts && !line.trim().is_empty() && !recalled.standing.names.is_empty() {
        let (viewpoint, names) = (input.viewpoint(), std::mem::take(&mut recalled.standing.names));
        let names = recall::open_names(services, &input.scope, &input.world, &viewpoint, names).await?;
        let speaker = input.player.as_ref().map(party::key_of);
        let spoken = Spoken {
            speaker: speaker.as_deref(),
            listener: input.player.is_some().then_some(input.npc.name.as_str()),
        };
        let without = recalled.query.terms.clone();
        recalled.query.add_names(&names, spoken);
        if recalled.query.terms != without {
            recalled.search(services, input, watch).await?;
        }
    }
    Ok(recalled)
}

impl Recalled {
    async fn embed(&mut self, services: &Services, input: &TurnInput, watch: &Stopwatch<'_>) {
        let texts = [self.query.text.clone()];
        // Where nothing was said there is nothing to compare with: what is important or new is proposed.
        let asked = if texts[0].trim().is_empty() { &[] } else { &texts[..] };
        let embedding = services
            .models
            .embed(&input.scope, services.embedder.as_ref(), EmbedAs::Query, asked);
        let ((embedded, call), embed_ms) = watch.wait(embedding.instrument(debug_span!("turn.embed"))).await;
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

    async fn search(&mut self, services: &Services, input: &TurnInput, watch: &Stopwatch<'_>) -> Result<(), TurnError> {
        let viewpoint = input.viewpoint();
        let sought = Sought {
            scope: &input.scope,
            world: &input.world,
            viewpoint: &viewpoint,
            embedding: self.embedding.as_deref(),
            terms: &self.query.terms,
            limits: recall::limits(&services.settings.recall),
            // Not when the turn began: what the previous one taught may have landed since.
            at: services.clock.now(),
        };
        let searching = recall::recall(services, sought).instrument(debug_span!("turn.recall"));
        let (found, recall_ms) = watch.time(searching).await;
        let Found { facts, without_index } = found?;
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
