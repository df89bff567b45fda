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
    repetitions, turn_that_said, vector_at,
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
    meant: HashMap<TurnId, Vec<Vec<(usize, f32)>>>,
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
        let said = self.known.iter().filter(|known| known.fact.valid_at >= self.since);
        let requests: usize = self.turns.iter().map(|said| said.forget.len()).sum();
        (said.count() + requests).saturating_mul(self.known.len()) > MAX_INLINE_COMPARISONS
    }
}

impl PreparedTimeline {
    /// Compares the statements since the timeline's moment with all earlier statements.
    #[must_use]
    pub fn new(calibration: &Calibration, mut timeline: Timeline) -> Self {
        timeline.known.sort_by_key(|known| (known.fact.valid_at, known.fact.id));
        timeline.known.dedup_by_key(|known| known.fact.id);
        let known = &timeline.known;
        let gists: Vec<OnceLock<StatementFeatures>> = known.iter().map(|_| OnceLock::new()).collect();
        let keys: Vec<String> = known.iter().map(|known| subject_key_of(&known.fact)).collect();
        let mut of_subject: HashMap<&str, Vec<usize>> = HashMap::new();
        for (nth, key) in keys.iter().enumerate() {
            of_subject.entry(key).or_default().push(nth);
        }
        let naming = NameHistory::from_known(known);
        // The names seldom change from one fact to the next.
        let (mut told, mut names) = (Vec::new(), NameAliases::default());
        let said_at: HashMap<TurnId, DateTime<Utc>> = timeline.turns.iter().map(|said| (said.turn, said.at)).collect();
        let near = known
            .iter()
            .enumerate()
            .map(|(nth, new)| {
                let turn = turn_that_said(&new.fact).filter(|_| new.fact.valid_at >= timeline.since);
                let Some(turn) = turn else { return Vec::new() };
                let at = said_at.get(&turn).copied().unwrap_or(new.fact.valid_at);
                let stands = naming.assertions_at(at);
                if stands != told {
                    names = NameAliases::from_assertions(&stands);
                    told = stands;
                }
                let subjects = names.keys_of(&new.fact.statement.subject);
                let others = subjects
                    .iter()
                    .filter_map(|key| of_subject.get(key.as_str()))
                    .flatten()
                    .copied();
                let others = others.filter(|old| *old != nth && known[*old].may_hold(timeline.since, at));
                find_near(calibration, known, &gists, (nth, at), others)
            })
            .collect();
        let meant = timeline
            .turns
            .iter()
            .filter(|said| said.at >= timeline.since && !said.forget.is_empty())
            .map(|said| (said.turn, find_meant(calibration, &timeline, said)))
            .collect();
        Self {
            overlaps: overlaps::comparable_pairs(calibration, &timeline),
            timeline,
            near,
            meant,
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
        self.timeline.known
    }

    pub(super) fn features_of(&self, fact: usize) -> &StatementFeatures {
        features_once(&self.timeline.known, &self.gists, fact)
    }

    pub(super) fn overlap_pairs(&self) -> &[AudienceOverlap] {
        &self.overlaps
    }

    pub(super) fn near_facts(&self, new: usize) -> &[NearFact] {
        &self.near[new]
    }

    pub(super) fn meant_facts(&self, turn: TurnId, request: usize) -> &[(usize, f32)] {
        self.meant
            .get(&turn)
            .and_then(|requests| requests.get(request))
            .map_or(&[], Vec::as_slice)
    }
}

/// The key under which facts are compared.
fn subject_key_of(fact: &Fact) -> String {
    party::subject_key(&fact.statement.subject)
}

/// Computed once, and only for facts with near facts.
fn features_once<'g>(
    known: &[KnownFact],
    gists: &'g [OnceLock<StatementFeatures>],
    fact: usize,
) -> &'g StatementFeatures {
    gists[fact].get_or_init(|| StatementFeatures::from_statement(&known[fact].fact.statement))
}

/// The facts of `others` that are near `new` at its moment, with the same limit as the index. For a statement that
/// names a topic, all facts with a vector.
fn find_near(
    calibration: &Calibration,
    known: &[KnownFact],
    gists: &[OnceLock<StatementFeatures>],
    (new, at): (usize, DateTime<Utc>),
    others: impl Iterator<Item = usize>,
) -> Vec<NearFact> {
    // The original wording counts, not later edits.
    let (fact, vector) = (&known[new].fact, vector_at(&known[new], at));
    let least = calibration.cosine_at(calibration.related);
    let names_topic = features_once(known, gists, new).is_compared_at_any_distance();
    let (independent, touched): (Vec<NearFact>, Vec<NearFact>) = others
        .map(|old| (old, vector_at(&known[old], at)))
        .filter(|(_, other)| vector.len() == other.len() && !vector.is_empty())
        .map(|(old, other)| (old, dot_product(vector, other)))
        .filter(|(_, cosine)| *cosine >= least || names_topic)
        .map(|(old, cosine)| {
            let common = || {
                let (newer, older) = (features_once(known, gists, new), features_once(known, gists, old));
                if known[old].fact.statement.speaker == fact.statement.speaker {
                    newer.matter_of_speaker(older)
                } else {
                    newer.common_matter(older)
                }
            };
            NearFact {
                old,
                cosine,
                relation: relation_in_memory(calibration, fact, &known[old], cosine, common),
                is_one_matter: names_topic && common().is_one_matter,
            }
        })
        .partition(|near| near.relation == Relation::Independent);
    // Separate limits: facts beyond the effect of `new`, or ended by then, must not push out the facts it may affect.
    let mut near = keep_nearest(touched, NearFact::sort_key);
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
fn find_meant(calibration: &Calibration, timeline: &Timeline, said: &SpokenTurn) -> Vec<Vec<(usize, f32)>> {
    let least = calibration.cosine_at(calibration.related);
    let names = NameHistory::from_known(&timeline.known).aliases_at(said.at);
    let meant = |vector: &[f32]| {
        let known = timeline.known.iter().enumerate();
        let near = known
            .filter(|(_, known)| {
                !known.foreign
                    && known.may_hold(timeline.since, said.at)
                    && (is_players_own(&known.fact, said.player.as_ref(), &names)
                        || is_said_of_player(&known.fact, said.player.as_ref()))
            })
            .map(|(old, known)| (old, dot_product(vector, vector_at(known, said.at))))
            .filter(|(_, cosine)| *cosine >= least)
            .collect();
        keep_nearest(near, |(old, cosine)| (*cosine, *old))
    };
    said.forget.iter().map(|request| meant(&request.vector)).collect()
}

/// The nearest facts in order; equally near facts are ordered from the oldest. A repeated statement has ended except
/// for its last repetition, so the latest facts stay when there are too many.
fn keep_nearest<T>(mut near: Vec<T>, of: impl Fn(&T) -> (f32, usize)) -> Vec<T> {
    if near.len() > MAX_KEPT_NEAR {
        near.sort_by(|a, b| {
            let ((a, a_place), (b, b_place)) = (of(a), of(b));
            b.total_cmp(&a).then(Reverse(a_place).cmp(&Reverse(b_place)))
        });
        near.truncate(MAX_KEPT_NEAR);
    }
    sort_nearest_first(&mut near, of);
    near
}

fn sort_nearest_first<T>(near: &mut [T], of: impl Fn(&T) -> (f32, usize)) {
    near.sort_by(|a, b| {
        let ((a, a_place), (b, b_place)) = (of(a), of(b));
        b.total_cmp(&a).then(a_place.cmp(&b_place))
    });
}
