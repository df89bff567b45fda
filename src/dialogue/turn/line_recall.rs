//! The search for what a line may be about: its embedding, the facts and the lore.

use tracing::{Instrument as _, debug_span};

use super::{
    input::{TurnError, TurnInput},
    stopwatch::Stopwatch,
    world_state::StateOfTurn,
};
use crate::{
    Services,
    intent::ClassifiedIntent,
    knowledge::{
        lore::{self, LoreOfTurn},
        scenarios,
    },
    recall::{self, RecallClock, RecallHit, RecallRequest, RecallResult, SearchQuery},
};
use colloquy_memory::{
    aliases::SpeakerAndListener,
    keywords::TermWeights,
    party,
    trace::{CallTrace, Timings},
    turn::Intent,
};
use colloquy_ports::{
    StoreResult,
    embedder::EmbedAs,
    ledger::facts::{RecallBody, StandingMemory},
    vectors::CandidateLimits,
};

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
pub(super) struct NeededSearches {
    /// The embedding of the line, which is also compared with the NPC's past.
    embedding: bool,
    pub facts: bool,
}

impl NeededSearches {
    pub(super) const ALL: Self = Self {
        embedding: true,
        facts: true,
    };
    pub(super) const NONE: Self = Self {
        embedding: false,
        facts: false,
    };

    /// Returns the searches for an intent. Small talk needs no memories, and a question about the NPC's past only the
    /// past.
    pub(super) fn for_intent(input: &TurnInput, classified: &ClassifiedIntent) -> Self {
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
#[derive(Clone)]
pub(super) struct LineRecall<'a> {
    pub query: SearchQuery,
    pub standing: StandingMemory,
    /// The query's embedding. `None`: the line was empty, the search was not needed, or the embedder failed.
    pub embedding: Option<Vec<f32>>,
    pub hits: Vec<RecallHit>,
    /// The number of found facts.
    pub found_count: usize,
    pub lore: Option<LoreOfTurn<'a>>,
    /// The embedder call, if the embedder was asked.
    pub call: Option<CallTrace>,
    pub notes: Vec<String>,
    pub embed_ms: f64,
    pub recall_ms: f64,
}

impl LineRecall<'_> {
    /// Returns the informative words of the line, or else the words of the things that the line points at.
    pub(super) fn telling_terms(&self) -> &TermWeights {
        if self.query.words.0.is_empty() {
            &self.query.terms
        } else {
            &self.query.words
        }
    }

    pub(super) fn timings(&self) -> Timings {
        Timings {
            embed: self.embed_ms,
            recall: self.recall_ms,
            ..Timings::default()
        }
    }

    pub(super) fn keep_facts_for_greeting(&mut self) {
        debug_assert!(
            self.hits.len() <= self.found_count,
            "hits are a part of the found facts"
        );
        let count_before = self.hits.len();
        self.hits.retain(|hit| can_be_greeted_with(&hit.body));
        let left_out = count_before - self.hits.len();
        self.found_count -= left_out;
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
pub(super) async fn recall_for_line<'a>(
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
        found_count: 0,
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
    if needed.facts && !line.trim().is_empty() && !recalled.standing.names.is_empty() {
        recalled.search_with_names(services, input, state, watch).await?;
    }
    Ok(recalled)
}

impl LineRecall<'_> {
    /// Searches again if a named person has other names. The aliases come with the standing memory.
    async fn search_with_names(
        &mut self,
        services: &Services,
        input: &TurnInput,
        state: &StateOfTurn<'_>,
        watch: &Stopwatch<'_>,
    ) -> Result<(), TurnError> {
        let viewpoint = input.viewpoint();
        let naming_facts = std::mem::take(&mut self.standing.names);
        let names = recall::merge_open_names(services, &input.scope, &input.world, &viewpoint, naming_facts).await?;
        let speaker = input.player.as_ref().map(party::player_key);
        let speakers = SpeakerAndListener {
            speaker: speaker.as_deref(),
            listener: Some(input.npc.name.as_str()),
        };
        let terms_before = self.query.terms.clone();
        self.query.add_names(&names, speakers);
        if self.query.terms != terms_before {
            self.search_facts(services, input, state, watch).await?;
        }
        Ok(())
    }

    async fn embed_query(&mut self, services: &Services, input: &TurnInput, watch: &Stopwatch<'_>) {
        let texts = [self.query.text.clone()];
        // An empty line has nothing to compare with. Recall then proposes important or new facts.
        let texts_to_embed = if texts[0].trim().is_empty() { &[] } else { &texts[..] };
        let embedding =
            services
                .models
                .embed_texts(&input.scope, services.embedder.as_ref(), EmbedAs::Query, texts_to_embed);
        let ((embedded, call), embed_ms) = watch.time_work(embedding.instrument(debug_span!("turn.embed"))).await;
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
        let request = RecallRequest {
            scope: &input.scope,
            world: &input.world,
            viewpoint: &viewpoint,
            embedding: self.embedding.as_deref(),
            terms: &self.query.terms,
            limits: CandidateLimits::default(),
            // The present time, not the turn's start: facts of the previous turn may have landed since.
            moment: services.clock.now(),
            line: self.query.line(),
            clock: RecallClock::default(),
        };
        let searching = recall::recall_facts(services, request, state.clock()).instrument(debug_span!("turn.recall"));
        let (result, recall_ms) = watch.time_work(searching).await;
        let RecallResult {
            facts,
            found_count,
            without_index,
        } = result?;
        if let Some(error) = without_index {
            let note =
                format!("recall in the ledger, by words and among the newest facts: the index did not answer: {error}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.hits = facts;
        self.found_count = found_count;
        self.recall_ms += recall_ms;
        Ok(())
    }
}
