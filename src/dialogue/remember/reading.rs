//! What a plan is made from: what was said in a memory since a moment, and what may be near it, in this memory and beside it.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::reconciling::{Addition, Memory};
use crate::{
    dialogue::jobs::{JobError, outbox::relay_outbox_of},
    ids::{FactId, PlayerId},
    memory::{
        fact::{Fact, FactView, NewFact, Statement},
        keywords, party,
        reconcile::Gist,
        scoring::dot,
        timeline::{self, Known, Naming, Overlap, Request, SaidThen, Timeline},
    },
    ports::{
        StoreResult,
        embedder::EmbedAs,
        ledger::facts::{Extraction, TimelineRows},
        vectors::{Candidate, Comparison, Memories},
    },
};

/// Nearest facts that are read. More than count, since some will not have held at their moment.
const NEIGHBOURS: usize = timeline::NEAREST + 16;

/// The same for a statement that names a topic.
const NEIGHBOURS_OF_TOPIC: usize = timeline::NEAREST_OF_TOPIC + 16;

/// What facts of a memory are compared with.
pub(super) struct Sought<'a> {
    /// The keys of whom or what they are about; `None`: whatever.
    subjects: Option<Vec<String>>,
    vector: &'a [f32],
    /// What is of one topic is compared however far away it is.
    names_topic: bool,
}

impl<'a> Sought<'a> {
    /// What is of the same subject as a statement.
    pub(super) fn as_in(statement: &Statement, vector: &'a [f32]) -> Self {
        Self::by_names(statement, vec![party::subject_key(&statement.subject)], vector)
    }

    /// The same by all the keys of its subject.
    fn by_names(statement: &Statement, keys: Vec<String>, vector: &'a [f32]) -> Self {
        Self {
            names_topic: Gist::of(statement).topic().is_some(),
            ..Self::about(keys, vector)
        }
    }

    fn about(keys: Vec<String>, vector: &'a [f32]) -> Self {
        Self {
            subjects: Some(keys),
            vector,
            names_topic: false,
        }
    }
}

/// Vectors of requests to forget, by their words.
pub(super) type Requests = HashMap<String, Vec<f32>>;

/// What a plan is made from, or the requests whose vectors it takes.
pub(super) enum Read {
    Whole(Timeline),
    Lacks(Vec<String>),
}

impl Memory<'_> {
    /// What was said since, and the facts before that may be near any of it. `is_indexed`: nothing waited for the index when
    /// it was read where memory stands.
    pub(super) async fn timeline(
        &self,
        since: DateTime<Utc>,
        addition: Option<&Addition>,
        requests: &Requests,
        mut is_indexed: bool,
    ) -> Result<Read, JobError> {
        let (mut asked, mut overlaps) = (BTreeSet::new(), Vec::new());
        if let Some(addition) = addition {
            let forget = &addition.extraction.forget;
            if let Some(lacks) = lacking(forget, requests) {
                return Ok(Read::Lacks(lacks));
            }
            asked.extend(addition.extraction.ends.iter().map(|ending| ending.fact));
            if !addition.facts.is_empty() {
                // A new fact may only repeat them; a request to forget is compared with what is near it.
                asked.extend(&addition.extraction.injected);
            }
            let fresh = addition.fresh.iter();
            let mut sought: Vec<Sought<'_>> = fresh
                .map(|fresh| Sought::as_in(&fresh.statement, &fresh.embedding))
                .collect();
            let player = addition.extraction.player.as_ref();
            sought.extend(forget.iter().flat_map(|text| self.meant(&requests[text], player)));
            if !sought.is_empty() {
                self.index(&mut is_indexed).await?;
            }
            asked.extend(self.near(&sought, since).await?);
            let beside = Memories::Overlapping(&self.audience);
            // What is sought for fresh facts comes first, in their order.
            for (fresh, sought) in addition.fresh.iter().zip(&sought) {
                overlaps.extend(self.overlaps(beside, fresh.id, sought).await?);
            }
            asked.extend(overlaps.iter().map(|overlap: &Overlap| overlap.there));
        }
        let mut rows = self.rows(since, &asked).await?;
        if let Some(lacks) = lacking(rows.extractions.iter().flat_map(|said| &said.forget), requests) {
            return Ok(Read::Lacks(lacks));
        }
        let mut said: Vec<SaidThen> = rows
            .extractions
            .iter()
            .map(|extraction| said_then(extraction, requests))
            .collect();
        let fresh: Vec<Known> = addition
            .iter()
            .flat_map(|addition| &addition.facts)
            .map(as_known)
            .collect();
        // Usually the turn is the latest word. If not, what was said since is gone through once more.
        let said_since = rows
            .known
            .iter()
            .filter(|known| !known.foreign && known.fact.valid_at >= since);
        let naming = Naming::of(rows.known.iter().chain(&fresh));
        let mut since_then: Vec<Sought<'_>> = said_since
            .map(|known| {
                let names = naming.at(known.fact.valid_at);
                let statement = &known.fact.statement;
                Sought::by_names(statement, names.keys(&statement.subject), known.vector_as_said())
            })
            .collect();
        since_then.extend(fresh.iter().filter_map(|known| by_other_names(known, &naming)));
        if let Some(addition) = addition {
            since_then.extend(self.by_names_of_player(&addition.extraction, requests, &naming));
        }
        for said in &said {
            let requests = said.forget.iter();
            since_then.extend(requests.flat_map(|request| self.meant(&request.vector, said.player.as_ref())));
        }
        for extraction in &rows.extractions {
            since_then.extend(self.by_names_of_player(extraction, requests, &naming));
        }
        if !since_then.is_empty() || !said.is_empty() {
            self.index(&mut is_indexed).await?;
            let more = self.near(&since_then, since).await?;
            asked.extend(more);
            for known in rows.known.iter().filter(|known| known.may_stand_again(since)) {
                let sought = Sought::as_in(&known.fact.statement, known.vector_as_said());
                let beside = Memories::Overlapping(&self.audience);
                overlaps.extend(self.overlaps(beside, known.fact.id, &sought).await?);
                if known.fact.authored {
                    let told = Memories::Of(&self.audience);
                    overlaps.extend(self.overlaps(told, known.fact.id, &sought).await?);
                    // What is learned only now is in no index.
                    overlaps.extend(fresh.iter().filter_map(|fresh| self.overlap(known, fresh)));
                }
            }
            asked.extend(overlaps.iter().map(|overlap| overlap.there));
            asked.extend(said.iter().flat_map(|said| &said.injected));
            asked.extend(said.iter().flat_map(|said| &said.ends).map(|ending| ending.fact));
            rows = self.rows(since, &asked).await?;
        }
        let mut known = rows.known;
        if let Some(addition) = addition {
            said.push(said_then(&addition.extraction, requests));
            known.extend(fresh);
        }
        Ok(Read::Whole(Timeline {
            since,
            audience: Some(self.audience.clone()),
            said,
            overlaps: self.of_overlapping(overlaps, &known, &rows.elsewhere),
            known,
            elsewhere: rows.elsewhere,
        }))
    }

    /// Whatever was written before it was read where memory stands must be seen by the searches. What is written after moves
    /// `memory_seq`.
    async fn index(&self, is_indexed: &mut bool) -> StoreResult<()> {
        if !std::mem::replace(is_indexed, true) {
            relay_outbox_of(self.services, self.scope).await?;
        }
        Ok(())
    }

    /// What a person wrote and what is learned of an earlier turn, if they are near each other.
    fn overlap(&self, written: &Known, fresh: &Known) -> Option<Overlap> {
        let calibration = self.services.embedder.info().calibration;
        let key = |known: &Known| party::subject_key(&known.fact.statement.subject);
        let gist = |known: &Known| Gist::of(&known.fact.statement);
        let cosine = dot(written.vector_as_said(), &fresh.vector);
        let is_near =
            || cosine >= calibration.cosine_at(calibration.related) || gist(written).common(&gist(fresh)).is_one_matter;
        (key(written) == key(fresh) && is_near()).then_some(Overlap {
            here: written.fact.id,
            there: fresh.fact.id,
            cosine,
        })
    }

    /// What of `memories` is near a fact of this one.
    async fn overlaps(&self, memories: Memories<'_>, here: FactId, sought: &Sought<'_>) -> StoreResult<Vec<Overlap>> {
        let found = self.similar(memories, sought, None, timeline::NEAREST).await?;
        let others = found.iter().filter(|found| found.fact != here);
        let overlaps = others.map(|found| Overlap {
            here,
            there: found.fact,
            cosine: found.cosine,
        });
        Ok(overlaps.collect())
    }

    /// Those that the ledger knows as facts of this memory, or of overlapping audiences: an index may lag.
    fn of_overlapping(
        &self,
        mut overlaps: Vec<Overlap>,
        known: &[Known],
        elsewhere: &HashMap<FactId, Fact>,
    ) -> Vec<Overlap> {
        overlaps.retain(|Overlap { there, .. }| match elsewhere.get(there) {
            Some(fact) => fact.world == self.world && fact.audience.overlaps(&self.audience),
            None => known.iter().any(|known| known.fact.id == *there),
        });
        overlaps
    }

    async fn rows(&self, since: DateTime<Utc>, asked: &BTreeSet<FactId>) -> StoreResult<TimelineRows> {
        let asked: Vec<FactId> = asked.iter().copied().collect();
        let facts = &self.services.ledger.facts;
        facts
            .timeline(self.scope, &self.world, &self.audience, since, &asked)
            .await
    }

    /// Where what a player asks to forget is looked for: in all of the memory; and where others hear it, too, also among
    /// what is about the player, however much of theirs is nearer.
    fn meant<'v>(&self, vector: &'v [f32], player: Option<&PlayerId>) -> impl Iterator<Item = Sought<'v>> + use<'v> {
        let anything = player.map(|_| Sought {
            subjects: None,
            vector,
            names_topic: false,
        });
        let shared = player.filter(|player| self.audience.private_to.as_ref() != Some(*player));
        let own = shared.map(|player| Sought::about(vec![party::key_of(player)], vector));
        anything.into_iter().chain(own)
    }

    /// The same by the other names of the player and of those who are the player's, where others hear it.
    fn by_names_of_player<'v>(
        &self,
        said: &Extraction,
        requests: &'v Requests,
        naming: &Naming<'_>,
    ) -> Vec<Sought<'v>> {
        let player = said.player.as_ref();
        let Some(player) = player.filter(|player| self.audience.private_to.as_ref() != Some(*player)) else {
            return Vec::new();
        };
        let names = naming.at(said.said_at);
        let is_players = |name: &&str| party::owner(name) == Some(player.as_str());
        let groups = names.groups().map(Iterator::collect::<Vec<&str>>);
        let of_player = groups.filter(|group| group.iter().any(is_players));
        let keys: Vec<String> = of_player.flatten().map(party::subject_key).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let vectors = said.forget.iter().map(|text| requests[text].as_slice());
        vectors.map(|vector| Sought::about(keys.clone(), vector)).collect()
    }

    /// Facts of this memory from before `since` that are near any of these; what was said since is read anyway.
    async fn near(&self, sought: &[Sought<'_>], since: DateTime<Utc>) -> StoreResult<BTreeSet<FactId>> {
        let mut found = BTreeSet::new();
        for sought in sought {
            let of = Memories::Of(&self.audience);
            let limit = if sought.names_topic {
                NEIGHBOURS_OF_TOPIC
            } else {
                NEIGHBOURS
            };
            let near = self.similar(of, sought, Some(since), limit).await?;
            found.extend(near.iter().map(|candidate| candidate.fact));
        }
        Ok(found)
    }

    /// What of `memories` is near what is sought, nearest first.
    pub(super) async fn similar(
        &self,
        memories: Memories<'_>,
        sought: &Sought<'_>,
        before: Option<DateTime<Utc>>,
        limit: usize,
    ) -> StoreResult<Vec<Candidate>> {
        let calibration = self.services.embedder.info().calibration;
        let with = Comparison {
            world: &self.world,
            memories,
            subjects: sought.subjects.as_deref(),
            before,
            embedding: sought.vector,
            min_cosine: if sought.names_topic {
                -1.0
            } else {
                calibration.cosine_at(calibration.related)
            },
            limit,
        };
        // Thousands may be sought one after the other, and an index in this process does not wait for anything.
        tokio::task::yield_now().await;
        self.services.index.similar(self.scope, with).await
    }

    /// Embeds requests to forget, to be compared with facts.
    pub(super) async fn embed(&self, texts: Vec<String>, requests: &mut Requests) -> Result<(), JobError> {
        let services = self.services;
        let (vectors, _) = services
            .models
            .embed(self.scope, services.embedder.as_ref(), EmbedAs::Passage, &texts)
            .await;
        requests.extend(texts.into_iter().zip(vectors?));
        Ok(())
    }
}

/// Where what is near a fact is looked for by the other names that the memory has for whoever it speaks of, if it has any.
fn by_other_names<'k>(known: &'k Known, naming: &Naming<'_>) -> Option<Sought<'k>> {
    let keys = naming.at(known.fact.valid_at).keys(&known.fact.statement.subject);
    (keys.len() > 1).then(|| Sought::by_names(&known.fact.statement, keys, &known.vector))
}

/// Those of `texts` that have no vector yet, each once; `None`: all have one.
fn lacking<'t>(texts: impl IntoIterator<Item = &'t String>, requests: &Requests) -> Option<Vec<String>> {
    let lacking: BTreeSet<&String> = texts.into_iter().filter(|text| !requests.contains_key(*text)).collect();
    (!lacking.is_empty()).then(|| lacking.into_iter().cloned().collect())
}

/// With the vectors of its requests, which must be known.
fn said_then(extraction: &Extraction, requests: &Requests) -> SaidThen {
    let forget = extraction.forget.iter().map(|text| Request {
        terms: keywords::query_terms(text),
        vector: requests[text].clone(),
    });
    SaidThen {
        turn: extraction.turn,
        at: extraction.said_at,
        player: extraction.player.clone(),
        forget: forget.collect(),
        ends: extraction.ends.clone(),
        injected: extraction.injected.clone(),
        room: extraction.room,
    }
}

fn as_known(new: &NewFact) -> Known {
    Known {
        fact: as_fact(new),
        vector: new.embedding.clone(),
        written_at: new.valid_at,
        edits: Vec::new(),
        ends: Vec::new(),
        foreign: false,
    }
}

/// A fact as it will be once it is written.
fn as_fact(new: &NewFact) -> Fact {
    Fact {
        id: new.id,
        world: new.world.clone(),
        audience: new.audience.clone(),
        locks: new.locks.clone(),
        replaced_by: Vec::new(),
        view: FactView::of(&new.statement),
        statement: new.statement.clone(),
        valid_at: new.valid_at,
        invalid: None,
        expires_at: new.expires_at,
        cause: new.cause,
        source: new.source,
        derived_from: new.derived_from.clone(),
        pii: new.pii.clone(),
        authored: new.authored,
        version: 1,
    }
}
