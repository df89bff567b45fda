//! The search for designers: the same scores, over facts that are valid or were valid.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    body_reading::{diversify_hits, is_same_statement, max_packable, near_duplicate_cosine},
    hit::admit_hits,
    names::read_names,
    query::SearchQuery,
    ranking::{RankedCandidate, best_first, rank_body, rank_candidates},
    request::{RecallClock, RecallRequest},
    retrieval::{propose_confirmed, recall_facts, weigh_terms},
};
use crate::{
    Services,
    disclosure::{Disclosable, Gate},
};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    aliases::SpeakerAndListener,
    authored::World,
    disclosure::audience::Viewpoint,
    fact::Fact,
    game_clock::GameClock,
    keywords::{self, FactTexts, TermStatistics, TermWeights},
    party,
    scoring::dot_product,
    state::WorldState,
    trace::{CallTrace, ScoreParts, TopicGate},
};
use colloquy_ports::{
    PageRequest, StoreError,
    embedder::EmbedAs,
    ledger::facts::{FactFilter, RecallBody},
    vectors::CandidateLimits,
};

/// A hit of a designer's search.
#[derive(Debug, Clone)]
pub struct SearchHit {
    fact: Disclosable<Fact>,
    pub score: ScoreParts,
}

impl SearchHit {
    #[must_use]
    pub fn fact(&self) -> &Fact {
        &self.fact
    }
    /// Returns the fact, which may be told to the viewpoint of the search.
    #[must_use]
    pub fn into_fact(self) -> Fact {
        self.fact.into_inner()
    }
}

/// The maximum number of facts in a search of the past, newest first.
const MAX_PAST_FACTS: usize = 2_000;
/// The ledger's maximum page size.
const FACTS_PER_PAGE: u32 = 200;
/// A time that is older than now by at most this much counts as now.
const NOW_TOLERANCE: TimeDelta = TimeDelta::seconds(1);
/// The number of full facts read in parallel.
const CONCURRENT_READS: usize = 8;

/// Runs the hybrid search for `GET …/facts?q=`: best first, at most `limit`, as of `moment`.
///
/// The index has only facts valid now. For a time in the past, the ledger answers from the newest 2,000 facts valid
/// then. If the embedder fails, keywords must suffice, and the call's trace has the reason.
pub async fn search_facts(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    query: &str,
    moment: DateTime<Utc>,
    limit: usize,
) -> Result<(Vec<SearchHit>, Vec<CallTrace>), StoreError> {
    // A time just past counts as now, because the caller read the clock earlier.
    let is_past = moment + NOW_TOLERANCE < services.clock.now();
    let embedded = EmbeddedQuery::prepare(services, scope, world, viewpoint, query, moment).await?;
    let usual = CandidateLimits::default();
    let limits = CandidateLimits {
        dense: usual.dense.max(limit),
        sparse: usual.sparse.max(limit),
        ..usual
    };
    let mut request = embedded.request(scope, world, viewpoint, limits, moment);
    request.set_clock(GameClock::new(&world.settings, &embedded.state));
    let hits = if is_past {
        search_past(services, &request, limit).await?
    } else {
        let terms = weigh_terms(services, &request).await;
        let request = RecallRequest {
            terms: &terms,
            ..request
        };
        let proposed = propose_confirmed(services, &request).await?;
        if let Some(error) = &proposed.without_index {
            tracing::warn!(%error, "searched in the ledger, by words and among the newest facts");
        }
        let ranked = rank_candidates(services, &request, proposed.facts).await?;
        read_full_hits(services, scope, ranked, limit).await?
    };
    Ok((hits, vec![embedded.call]))
}

/// Returns the facts that a prompt would show for a question about memory, best first. The budget of tokens is not
/// looked at. If the embedder fails, keywords must suffice, and the call's trace has the reason.
///
/// # Errors
/// If the ledger does not answer.
pub async fn shown_facts(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    query: &str,
) -> Result<(Vec<FactId>, CallTrace), StoreError> {
    let moment = services.clock.now();
    let embedded = EmbeddedQuery::prepare(services, scope, world, viewpoint, query, moment).await?;
    let settings = &services.settings.recall;
    let request = embedded.request(scope, world, viewpoint, CandidateLimits::default(), moment);
    let clock = GameClock::new(&world.settings, &embedded.state);
    let hits = recall_facts(services, request, async { Ok(clock) }).await?.facts;
    let gate = TopicGate::Asked;
    let admitted = admit_hits(&hits, gate, viewpoint.npc.as_str(), &|_| false);
    let duplicate_cosine = near_duplicate_cosine(services);
    let mut chosen: Vec<usize> = Vec::new();
    for (index, hit) in hits.iter().enumerate() {
        let is_copy = |other: &usize| is_same_statement(&hits[*other].body, &hit.body, duplicate_cosine);
        if hit.weakness(admitted[index], gate, settings.min_score).is_none() && !chosen.iter().any(is_copy) {
            chosen.push(index);
        }
    }
    chosen.truncate(max_packable(settings));
    let chosen = diversify_hits(&hits, chosen, settings.diversity);
    let shown_ids = chosen.into_iter().take(settings.top_k);
    let shown_ids = shown_ids.map(|index| hits[index].body.id).collect();
    Ok((shown_ids, embedded.call))
}

/// A query with its vector and the state of the world.
struct EmbeddedQuery {
    query: SearchQuery,
    embedding: Option<Vec<f32>>,
    state: Arc<WorldState>,
    call: CallTrace,
}

impl EmbeddedQuery {
    async fn prepare(
        services: &Services,
        scope: &TenantScope,
        world: &World,
        viewpoint: &Viewpoint,
        text: &str,
        moment: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let mut query = SearchQuery::from_text(text);
        let ((embedded, call), names) = tokio::join!(
            services.models.embed_texts(
                scope,
                services.embedder.as_ref(),
                EmbedAs::Query,
                std::slice::from_ref(&query.text),
            ),
            read_names(services, scope, world, viewpoint, moment),
        );
        let player = viewpoint.player.as_ref().map(party::player_key);
        let speakers = SpeakerAndListener {
            speaker: Some(player.as_deref().unwrap_or(party::PLAYER)),
            listener: None,
        };
        query.add_names(&names?, speakers);
        let state = match world.settings.clock {
            Some(_) => services.memory_cache.world_state(services, scope, &world.id).await?,
            None => Arc::default(),
        };
        Ok(Self {
            query,
            embedding: embedded.ok().and_then(|mut vectors| vectors.pop()),
            state,
            call,
        })
    }

    fn request<'a>(
        &'a self,
        scope: &'a TenantScope,
        world: &'a World,
        viewpoint: &'a Viewpoint,
        limits: CandidateLimits,
        moment: DateTime<Utc>,
    ) -> RecallRequest<'a> {
        RecallRequest {
            scope,
            world,
            viewpoint,
            embedding: self.embedding.as_deref(),
            terms: &self.query.terms,
            limits,
            moment,
            line: self.query.line(),
            clock: RecallClock::default(),
        }
    }
}

async fn read_full_hits(
    services: &Services,
    scope: &TenantScope,
    candidates: Vec<RankedCandidate>,
    limit: usize,
) -> Result<Vec<SearchHit>, StoreError> {
    let reads = candidates.into_iter().take(limit).map(|ranked| async move {
        let fact = services.ledger.facts.load_fact(scope, ranked.confirmed.fact).await?;
        let open_fact = fact.and_then(|fact| ranked.confirmed.cover(fact));
        Ok(open_fact.map(|fact| SearchHit {
            fact,
            score: ranked.score,
        }))
    });
    stream::iter(reads)
        .buffered(CONCURRENT_READS)
        .try_filter_map(|hit| async move { Ok(hit) })
        .try_collect()
        .await
}

async fn search_past(
    services: &Services,
    request: &RecallRequest<'_>,
    limit: usize,
) -> Result<Vec<SearchHit>, StoreError> {
    let facts = read_valid_facts(services, request).await?;
    let words: Vec<TermWeights> = facts
        .values()
        .map(|fact| {
            keywords::fact_terms(FactTexts {
                content: &fact.view.content,
                keywords: &fact.view.keywords,
                subject: &fact.statement.subject,
                predicate: &fact.statement.predicate,
                object: &fact.statement.object,
            })
        })
        .collect();
    let terms = TermStatistics::count_terms(request.terms, &words).weigh_query(request.terms);
    let request = &RecallRequest {
        terms: &terms,
        ..*request
    };
    let ids: Vec<FactId> = facts.keys().copied().collect();
    let embeddings: HashMap<FactId, Arc<[f32]>> = services
        .ledger
        .facts
        .load_bodies(request.scope, &ids)
        .await?
        .into_iter()
        .map(|body| (body.id, body.embedding))
        .collect();
    let mut ranked: Vec<RankedCandidate> = facts
        .values()
        .map(|fact| {
            let embedding = embeddings.get(&fact.id).cloned().unwrap_or_else(|| Arc::from([]));
            let cosine = request.embedding.map_or(0.0, |query| dot_product(query, &embedding));
            // The cache is bypassed, because it has the present bodies.
            let body = fact.as_ref().map(|fact| Arc::new(body_of(fact, embedding)));
            rank_body(services, request, body, cosine)
        })
        .collect();
    ranked.sort_by(best_first);
    Ok(ranked
        .into_iter()
        .take(limit)
        .filter_map(|ranked| {
            let fact = facts.get(&ranked.confirmed.fact)?.clone();
            Some(SearchHit {
                fact,
                score: ranked.score,
            })
        })
        .collect())
}

async fn read_valid_facts(
    services: &Services,
    request: &RecallRequest<'_>,
) -> Result<HashMap<FactId, Disclosable<Fact>>, StoreError> {
    let filter = FactFilter {
        viewpoint: request.viewpoint.clone(),
        subject: None,
        kind: None,
        from: None,
        to: None,
        as_of: request.moment,
        include_invalid: false,
        flagged: false,
    };
    let mut facts = HashMap::new();
    let mut after = None;
    while facts.len() < MAX_PAST_FACTS {
        let page_request = PageRequest {
            limit: FACTS_PER_PAGE,
            after,
        };
        let store = &services.ledger.facts;
        let page = store.list_facts(request.scope, &filter, &page_request).await?;
        let gate = Gate::new(services, request.scope, request.world, request.viewpoint);
        let open = gate.open_facts(page.items).await?;
        facts.extend(open.into_iter().map(|fact| (fact.id, fact)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(facts)
}

/// Returns the body of a fact as it is now.
pub(crate) fn body_of(fact: &Fact, embedding: Arc<[f32]>) -> RecallBody {
    RecallBody {
        id: fact.id,
        version: fact.version,
        subject: fact.statement.subject.clone(),
        predicate: fact.statement.predicate.clone(),
        object: fact.statement.object.clone(),
        speaker: fact.statement.speaker.clone(),
        polarity: fact.statement.polarity,
        tense: fact.statement.tense,
        kind: fact.statement.kind,
        view: fact.view.clone(),
        source: fact.source,
        locks: fact.locks.clone(),
        is_private: fact.audience.private_to.is_some(),
        knowers: Arc::new(fact.audience.knowers.clone()),
        valid_at: fact.valid_at,
        embedding,
    }
}
