//! The near facts of a timeline. The search is most of the work of a replay and needs no verdict, so the search happens
//! once.

use std::{cmp::Reverse, collections::HashMap, sync::OnceLock};

use chrono::{DateTime, Utc};

use super::{
    SpokenTurn, Timeline,
    endings::is_said_of_player,
    is_players_own,
    known_fact::KnownFact,
    name_history::NameHistory,
    overlaps::{self, AudienceOverlap},
    repetitions, turn_that_said,
};
use crate::{
    aliases::NameAliases,
    calibration::Calibration,
    fact::Fact,
    party,
    reconcile::{CommonMatter, Relation, StatementFeatures, compare_statements},
    scoring::dot_product,
};
use colloquy_core::ids::TurnId;

/// Most near facts stored for a statement: of the facts that it may affect, of the other facts, and for each request.
///
/// The number is higher than the number of compared facts, because some facts will have ended by then. It is bounded,
/// because all facts of a talkative player are near each other.
const MAX_KEPT_NEAR: usize = 256;
/// Most comparisons on the calling thread: a few milliseconds of work. More would delay the dialogues of that thread.
const MAX_INLINE_COMPARISONS: usize = 20_000;

/// A timeline in order, with the facts that each of its statements may affect.
#[derive(Debug)]
pub struct PreparedTimeline {
    timeline: Timeline,
    /// For each fact, the near facts that may hold at its statement, nearest first. Empty for facts from before the
    /// timeline.
    near: Vec<Vec<NearFact>>,
    /// For each turn's requests to forget, in order, the facts that may be meant, nearest first.
    meant_facts: HashMap<TurnId, Vec<Vec<(usize, f32)>>>,
    gists: Vec<OnceLock<StatementFeatures>>,
    /// Pairs with facts of other memories, nearest first.
    overlaps: Vec<AudienceOverlap>,
}

/// A near fact, by its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct NearFact {
    pub old: usize,
    /// The cosine of the two vectors, in [-1, 1].
    pub cosine: f32,
    pub relation: Relation,
    /// True if the two facts are compared at any distance of their sentences.
    pub is_one_matter: bool,
}

impl NearFact {
    fn sort_key(&self) -> (f32, usize) {
        (self.cosine, self.old)
    }
}

impl Timeline {
    /// True if the timeline is too much work for the calling thread.
    #[must_use]
    pub fn needs_own_thread(&self) -> bool {
        let spoken_facts = self
            .known_facts
            .iter()
            .filter(|known_fact| known_fact.fact.valid_at >= self.since);
        let requests: usize = self.turns.iter().map(|spoken_turn| spoken_turn.forget.len()).sum();
        (spoken_facts.count() + requests).saturating_mul(self.known_facts.len()) > MAX_INLINE_COMPARISONS
    }
}

impl PreparedTimeline {
    /// Compares the statements since the timeline's moment with all earlier statements.
    #[must_use]
    pub fn new(calibration: &Calibration, mut timeline: Timeline) -> Self {
        timeline
            .known_facts
            .sort_by_key(|known_fact| (known_fact.fact.valid_at, known_fact.fact.id));
        timeline.known_facts.dedup_by_key(|known_fact| known_fact.fact.id);
        let known_facts = &timeline.known_facts;
        let gists: Vec<OnceLock<StatementFeatures>> = known_facts.iter().map(|_| OnceLock::new()).collect();
        let keys: Vec<String> = known_facts
            .iter()
            .map(|known_fact| subject_key_of(&known_fact.fact))
            .collect();
        let mut of_subject: HashMap<&str, Vec<usize>> = HashMap::new();
        for (nth, key) in keys.iter().enumerate() {
            of_subject.entry(key).or_default().push(nth);
        }
        let naming = NameHistory::from_known(known_facts);
        // The names seldom change from one fact to the next.
        let mut assertions = Vec::new();
        let mut names = NameAliases::default();
        let said_at: HashMap<TurnId, DateTime<Utc>> = timeline
            .turns
            .iter()
            .map(|spoken_turn| (spoken_turn.turn, spoken_turn.committed_at))
            .collect();
        let near = known_facts
            .iter()
            .enumerate()
            .map(|(nth, new)| {
                let turn = turn_that_said(&new.fact).filter(|_| new.fact.valid_at >= timeline.since);
                let Some(turn) = turn else { return Vec::new() };
                let moment = said_at.get(&turn).copied().unwrap_or(new.fact.valid_at);
                let current_assertions = naming.assertions_at(moment);
                if current_assertions != assertions {
                    names = NameAliases::from_assertions(&current_assertions);
                    assertions = current_assertions;
                }
                let subjects = names.keys_of(&new.fact.statement.subject);
                let other_facts = subjects
                    .iter()
                    .filter_map(|key| of_subject.get(key.as_str()))
                    .flatten()
                    .copied();
                let other_facts =
                    other_facts.filter(|old| *old != nth && known_facts[*old].may_hold(timeline.since, moment));
                find_near(calibration, known_facts, &gists, nth, moment, other_facts)
            })
            .collect();
        Self {
            overlaps: overlaps::comparable_pairs(calibration, &timeline),
            meant_facts: find_meant_by_turn(calibration, &timeline),
            timeline,
            near,
            gists,
        }
    }

    /// The timeline, in the order of the statements.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The facts, in the order of the statements.
    #[must_use]
    pub fn into_known(self) -> Vec<KnownFact> {
        self.timeline.known_facts
    }

    pub(super) fn features_of(&self, fact: usize) -> &StatementFeatures {
        features_once(&self.timeline.known_facts, &self.gists, fact)
    }

    pub(super) fn overlap_pairs(&self) -> &[AudienceOverlap] {
        &self.overlaps
    }

    pub(super) fn near_facts(&self, new: usize) -> &[NearFact] {
        &self.near[new]
    }

    pub(super) fn meant_facts(&self, turn: TurnId, request: usize) -> &[(usize, f32)] {
        self.meant_facts
            .get(&turn)
            .and_then(|requests| requests.get(request))
            .map_or(&[], Vec::as_slice)
    }
}

/// The facts that may be meant by each request to forget of the timeline, by turn.
fn find_meant_by_turn(calibration: &Calibration, timeline: &Timeline) -> HashMap<TurnId, Vec<Vec<(usize, f32)>>> {
    let turns = timeline.turns.iter();
    turns
        .filter(|spoken_turn| spoken_turn.committed_at >= timeline.since && !spoken_turn.forget.is_empty())
        .map(|spoken_turn| (spoken_turn.turn, find_meant(calibration, timeline, spoken_turn)))
        .collect()
}

/// The key under which facts are compared.
fn subject_key_of(fact: &Fact) -> String {
    party::subject_key(&fact.statement.subject)
}

/// Computed once, and only for facts with near facts.
fn features_once<'g>(
    known_facts: &[KnownFact],
    gists: &'g [OnceLock<StatementFeatures>],
    fact: usize,
) -> &'g StatementFeatures {
    gists[fact].get_or_init(|| StatementFeatures::from_statement(&known_facts[fact].fact.statement))
}

/// The facts of `candidates` that are near `new` at its moment, with the same limit as the index. For a statement that
/// names a topic, all facts with a vector.
fn find_near(
    calibration: &Calibration,
    known_facts: &[KnownFact],
    gists: &[OnceLock<StatementFeatures>],
    new: usize,
    moment: DateTime<Utc>,
    candidates: impl Iterator<Item = usize>,
) -> Vec<NearFact> {
    // The original wording counts, not later edits.
    let fact = &known_facts[new].fact;
    let vector = known_facts[new].vector_at(moment);
    let min_cosine = calibration.cosine_at(calibration.related);
    let names_topic = features_once(known_facts, gists, new).is_compared_at_any_distance();
    let (independent, affected): (Vec<NearFact>, Vec<NearFact>) = candidates
        .map(|old| (old, known_facts[old].vector_at(moment)))
        .filter(|(_, other)| vector.len() == other.len() && !vector.is_empty())
        .map(|(old, other)| (old, dot_product(vector, other)))
        .filter(|(_, cosine)| *cosine >= min_cosine || names_topic)
        .map(|(old, cosine)| {
            let common = || {
                let newer = features_once(known_facts, gists, new);
                let older = features_once(known_facts, gists, old);
                if known_facts[old].fact.statement.speaker == fact.statement.speaker {
                    newer.matter_of_speaker(older)
                } else {
                    newer.common_matter(older)
                }
            };
            NearFact {
                old,
                cosine,
                relation: relation_in_memory(calibration, fact, &known_facts[old], cosine, common),
                is_one_matter: names_topic && common().is_one_matter,
            }
        })
        .partition(|near| near.relation == Relation::Independent);
    // Separate limits: facts beyond the effect of `new`, or ended by then, must not push out the facts it may affect.
    let mut near = keep_nearest(affected, NearFact::sort_key);
    near.extend(keep_nearest(independent, NearFact::sort_key));
    sort_nearest_first(&mut near, NearFact::sort_key);
    near
}

/// The possible effect of a new fact on an old fact of its memory. Facts with other locks may say the same too
/// ([`repetitions::end_across_locks`]).
fn relation_in_memory(
    calibration: &Calibration,
    new: &Fact,
    old: &KnownFact,
    cosine: f32,
    common: impl Fn() -> CommonMatter,
) -> Relation {
    if old.foreign {
        return relation_between(calibration, new, &old.fact, cosine, common);
    }
    let old = &old.fact;
    if !new.locks.are_subset_of(&old.locks) && !repetitions::repeats_with_more_locks(new, old) {
        return Relation::Independent;
    }
    compare_statements(calibration, &new.statement, &old.statement, cosine, common)
}

/// The possible effect of a new fact on an old fact of another memory. Readers of the old fact must be able to hear its
/// end, and a folded fact must not reveal more than the remaining fact.
pub(super) fn relation_between(
    calibration: &Calibration,
    new: &Fact,
    old: &Fact,
    cosine: f32,
    common: impl Fn() -> CommonMatter,
) -> Relation {
    if !new.locks.are_subset_of(&old.locks) {
        return Relation::Independent;
    }
    match compare_statements(calibration, &new.statement, &old.statement, cosine, common) {
        Relation::Same if new.locks != old.locks => Relation::Independent,
        relation => relation,
    }
}

/// For each request of a turn, the facts that may be meant: the player's facts, and the NPC's private facts about the
/// player.
fn find_meant(calibration: &Calibration, timeline: &Timeline, spoken_turn: &SpokenTurn) -> Vec<Vec<(usize, f32)>> {
    let min_cosine = calibration.cosine_at(calibration.related);
    let names = NameHistory::from_known(&timeline.known_facts).aliases_at(spoken_turn.committed_at);
    let meant_facts = |vector: &[f32]| {
        let known_facts = timeline.known_facts.iter().enumerate();
        let near = known_facts
            .filter(|(_, known_fact)| {
                !known_fact.foreign
                    && known_fact.may_hold(timeline.since, spoken_turn.committed_at)
                    && (is_players_own(&known_fact.fact, spoken_turn.player.as_ref(), &names)
                        || is_said_of_player(&known_fact.fact, spoken_turn.player.as_ref()))
            })
            .map(|(old, known_fact)| (old, dot_product(vector, known_fact.vector_at(spoken_turn.committed_at))))
            .filter(|(_, cosine)| *cosine >= min_cosine)
            .collect();
        keep_nearest(near, |(old, cosine)| (*cosine, *old))
    };
    spoken_turn
        .forget
        .iter()
        .map(|request| meant_facts(&request.vector))
        .collect()
}

/// The nearest facts in order; equally near facts are ordered from the oldest. A repeated statement has ended except
/// for its last repetition, so the latest facts stay when there are too many.
fn keep_nearest<T>(mut near: Vec<T>, rank: impl Fn(&T) -> (f32, usize)) -> Vec<T> {
    if near.len() > MAX_KEPT_NEAR {
        near.sort_by(|a, b| {
            let (a, a_place) = rank(a);
            let (b, b_place) = rank(b);
            b.total_cmp(&a).then(Reverse(a_place).cmp(&Reverse(b_place)))
        });
        near.truncate(MAX_KEPT_NEAR);
    }
    sort_nearest_first(&mut near, rank);
    debug_assert!(
        near.len() <= MAX_KEPT_NEAR,
        "a statement has a bounded number of near facts"
    );
    near
}

fn sort_nearest_first<T>(near: &mut [T], rank: impl Fn(&T) -> (f32, usize)) {
    near.sort_by(|a, b| {
        let (a, a_place) = rank(a);
        let (b, b_place) = rank(b);
        b.total_cmp(&a).then(a_place.cmp(&b_place))
    });
}
