//! `colloquy calibrate`: measures the meaning of an embedder's cosines. The labelled pairs are in Korean and English
//! and cover the kinds of facts that NPCs store (`config/calibration/pairs.tsv`).

use std::fmt;

use colloquy_memory::calibration::{Calibration, FitError, PairLabel, fit_calibration};
use colloquy_ports::{
    embedder::{EmbedAs, Embedder},
    llm::LlmError,
};

const SHIPPED_PAIRS: &str = include_str!("../../config/calibration/pairs.tsv");

/// The reason why calibration failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CalibrateError {
    #[error("line {line} of the pairs: {reason}")]
    Pairs { line: usize, reason: String },
    #[error("the embedder failed: {0}")]
    Embedder(#[from] LlmError),
    /// Also returned when the model separates no pairs.
    #[error(transparent)]
    Fit(#[from] FitError),
}

/// Two texts with the label of their relation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelledPair {
    label: PairLabel,
    first_as: EmbedAs,
    first: String,
    second: String,
}

/// The raw cosines of all pairs with one label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineSpread {
    pub pairs: usize,
    /// The cosines at the 10th (`low`), 50th (`median`) and 90th (`high`) percentile.
    pub low: f32,
    pub median: f32,
    pub high: f32,
}

/// The result of a calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationReport {
    pub model: String,
    pub dimensions: usize,
    pub calibration: Calibration,
    pub same: CosineSpread,
    pub related: CosineSpread,
    pub unrelated: CosineSpread,
    /// The probability that a paraphrase is nearer than an unrelated pair, 0.5–1.
    pub separation: f64,
    /// The probability that a related pair is nearer than an unrelated pair. Related pairs include a question and its
    /// answer.
    pub related_separation: f64,
}

/// Measures `embedder` on the pairs shipped with the server.
///
/// # Errors
/// If the embedder fails, or separates no pairs.
pub async fn measure_shipped_pairs(embedder: &dyn Embedder) -> Result<CalibrationReport, CalibrateError> {
    measure_pairs(embedder, SHIPPED_PAIRS).await
}

/// Measures `embedder` on custom pairs in the format of `config/calibration/pairs.tsv`.
///
/// # Errors
/// As for [`measure_shipped_pairs`], and for a line that cannot be read.
pub async fn measure_pairs(embedder: &dyn Embedder, pairs: &str) -> Result<CalibrationReport, CalibrateError> {
    let pairs = parse_pairs(pairs)?;
    let mut cosines = Vec::with_capacity(pairs.len());
    for first_as in [EmbedAs::Query, EmbedAs::Passage] {
        let chosen: Vec<&LabelledPair> = pairs.iter().filter(|pair| pair.first_as == first_as).collect();
        let firsts: Vec<String> = chosen.iter().map(|pair| pair.first.clone()).collect();
        let seconds: Vec<String> = chosen.iter().map(|pair| pair.second.clone()).collect();
        let firsts = embedder.embed_texts(first_as, &firsts).await?;
        let seconds = embedder.embed_texts(EmbedAs::Passage, &seconds).await?;
        for ((pair, a), b) in chosen.iter().zip(&firsts).zip(&seconds) {
            let cosine: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            // Rounding may move the cosine of two equal unit vectors slightly above 1.
            cosines.push((cosine.clamp(-1.0, 1.0), *pair));
        }
    }
    let labelled = |keep: fn(&LabelledPair) -> bool| -> Vec<(f32, PairLabel)> {
        cosines
            .iter()
            .filter(|(_, pair)| keep(pair))
            .map(|(cosine, pair)| (*cosine, pair.label))
            .collect()
    };
    let overall = fit_calibration(&labelled(|_| true))?;
    let facts = fit_calibration(&labelled(|pair| pair.first_as == EmbedAs::Passage))?;
    let sorted_cosines = |label| {
        let mut values: Vec<f32> = cosines
            .iter()
            .filter(|(_, pair)| pair.label == label)
            .map(|(cosine, _)| *cosine)
            .collect();
        values.sort_by(f32::total_cmp);
        values
    };
    let mut answers: Vec<f32> = cosines
        .iter()
        .filter(|(_, pair)| pair.first_as == EmbedAs::Query && pair.label != PairLabel::Unrelated)
        .map(|(cosine, _)| *cosine)
        .collect();
    answers.sort_by(f32::total_cmp);
    let same = sorted_cosines(PairLabel::Same);
    let related = sorted_cosines(PairLabel::Related);
    let unrelated = sorted_cosines(PairLabel::Unrelated);
    Ok(CalibrationReport {
        model: embedder.info().model.clone(),
        dimensions: embedder.info().dimensions,
        calibration: Calibration {
            answer: answer_cosine(&answers, overall.floor),
            ..with_thresholds_of(overall, facts)
        },
        separation: chance_nearer(&same, &unrelated),
        related_separation: chance_nearer(&related, &unrelated),
        same: cosine_spread(&same),
        related: cosine_spread(&related),
        unrelated: cosine_spread(&unrelated),
    })
}

/// Returns `overall` with the thresholds of `facts` converted to its scale. The scale serves recall, which compares
/// questions with facts. The thresholds serve reconciling, which compares facts with facts.
fn with_thresholds_of(overall: Calibration, facts: Calibration) -> Calibration {
    let rescale = |threshold| (facts.cosine_at(threshold) - overall.floor) / (overall.ceiling - overall.floor);
    let same = rescale(facts.same).clamp(0.5, 1.0);
    Calibration {
        same,
        related: rescale(facts.related).clamp(0.05, same * 0.95),
        ..overall
    }
}

/// Returns the upper quartile of the cosines of questions with their answers. Good answers thus score 1, and the
/// weaker half keeps an order. `None` for fewer than eight pairs, or if answers are no nearer than unrelated texts.
fn answer_cosine(cosines: &[f32], floor: f32) -> Option<f32> {
    let quartile = *cosines.get(cosines.len() * 3 / 4)?;
    (cosines.len() >= 8 && quartile > floor).then_some(quartile)
}

fn parse_pairs(text: &str) -> Result<Vec<LabelledPair>, CalibrateError> {
    let mut pairs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |reason: &str| CalibrateError::Pairs {
            line: index + 1,
            reason: reason.to_owned(),
        };
        let columns: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [label, first_as, first, second] = columns[..] else {
            return Err(wrong("four columns are needed, separated by tabs"));
        };
        if first.is_empty() || second.is_empty() {
            return Err(wrong("a text is empty"));
        }
        pairs.push(LabelledPair {
            label: match label {
                "same" => PairLabel::Same,
                "related" => PairLabel::Related,
                "unrelated" => PairLabel::Unrelated,
                _ => return Err(wrong("the label must be same, related or unrelated")),
            },
            first_as: match first_as {
                "query" => EmbedAs::Query,
                "fact" => EmbedAs::Passage,
                _ => return Err(wrong("the second column must be query or fact")),
            },
            first: first.to_owned(),
            second: second.to_owned(),
        });
    }
    Ok(pairs)
}

/// Returns the area under the ROC curve: how often a value of `near` exceeds a value of `far`. Ties count half.
fn chance_nearer(near: &[f32], far: &[f32]) -> f64 {
    let wins: f64 = near
        .iter()
        .flat_map(|a| far.iter().map(move |b| a.total_cmp(b)))
        .map(|order| match order {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        })
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand pairs")]
    let pair_count = (near.len() * far.len()).max(1) as f64;
    wins / pair_count
}

/// Summarises sorted values.
fn cosine_spread(values: &[f32]) -> CosineSpread {
    let decile = |tenths: usize| values.get(values.len().saturating_sub(1) * tenths / 10).copied();
    CosineSpread {
        pairs: values.len(),
        low: decile(1).unwrap_or_default(),
        median: decile(5).unwrap_or_default(),
        high: decile(9).unwrap_or_default(),
    }
}

impl fmt::Display for CosineSpread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} ({:.3} to {:.3} for eight in ten of {})",
            self.median, self.low, self.high, self.pairs
        )
    }
}

impl fmt::Display for CalibrationReport {
    /// Writes the figures, then lines to paste into the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} dimensions), raw cosines:", self.model, self.dimensions)?;
        writeln!(f, "  the same fact in other words  {}", self.same)?;
        writeln!(f, "  the same matter               {}", self.related)?;
        writeln!(f, "  unrelated                     {}", self.unrelated)?;
        writeln!(
            f,
            "separation from unrelated: {:.1} % of paraphrases, {:.1} % of related pairs\n",
            self.separation * 100.0,
            self.related_separation * 100.0
        )?;
        let Calibration {
            floor,
            ceiling,
            answer,
            same,
            related,
        } = self.calibration;
        writeln!(f, "[embedder.calibration]")?;
        writeln!(f, "floor = {floor:.3}")?;
        writeln!(f, "ceiling = {ceiling:.3}")?;
        if let Some(answer) = answer {
            writeln!(f, "answer = {answer:.3}")?;
        }
        writeln!(f, "same = {same:.3}")?;
        write!(f, "related = {related:.3}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fmt::Write as _;

    use async_trait::async_trait;

    use super::*;
    use colloquy_ports::embedder::EmbedderInfo;

    /// Embedder that places each text with a function of the test.
    struct Placed<F> {
        info: EmbedderInfo,
        place: F,
    }

    impl<F> Placed<F> {
        fn new(place: F) -> Self {
            Self {
                info: EmbedderInfo {
                    model: "placed".into(),
                    dimensions: 2,
                    calibration: Calibration::IDENTITY,
                    offline: true,
                },
                place,
            }
        }
    }

    #[async_trait]
    impl<F: Fn(&str) -> f32 + Send + Sync> Embedder for Placed<F> {
        async fn embed_texts(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
            let on_the_circle = |angle: f32| vec![angle.cos(), angle.sin()];
            Ok(texts.iter().map(|text| on_the_circle((self.place)(text))).collect())
        }
        fn info(&self) -> &EmbedderInfo {
            &self.info
        }
    }

    fn count(pairs: &[LabelledPair], label: PairLabel, korean: bool) -> usize {
        let is_korean = |text: &str| text.chars().any(|c| ('가'..='힣').contains(&c));
        pairs
            .iter()
            .filter(|pair| pair.label == label && is_korean(&pair.first) == korean)
            .count()
    }

    #[test]
    fn calibration_pairs_are_many_and_half_korean() {
        let pairs = parse_pairs(SHIPPED_PAIRS).unwrap();
        assert!(pairs.len() >= 120);
        for label in [PairLabel::Same, PairLabel::Related, PairLabel::Unrelated] {
            let english = count(&pairs, label, false);
            let korean = count(&pairs, label, true);
            assert!(english >= 20 && english == korean, "{label:?}: {english} and {korean}");
        }
        for (place, pair) in pairs.iter().enumerate() {
            assert!(!pairs[..place].contains(pair), "twice: {pair:?}");
        }
    }

    #[test]
    fn calibration_line_that_cannot_be_parsed_is_named() {
        for (text, says) in [
            ("same\tfact\tonly one", "line 1"),
            ("# fine\n\nequal\tfact\ta\tb", "line 3"),
            ("same\tanswer\ta\tb", "query or fact"),
            ("same\tfact\t \tb", "empty"),
        ] {
            let error = parse_pairs(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[tokio::test]
    async fn model_with_separation_is_measured() {
        // Each text begins with its angle in hundredths of a radian.
        let embedder = Placed::new(|text: &str| text.split(' ').next().unwrap().parse::<f32>().unwrap() / 100.0);
        let mut pairs = String::new();
        for n in 0..20 {
            for (label, angle) in [("same", 20 + n), ("related", 60 + n), ("unrelated", 120 + n)] {
                writeln!(pairs, "{label}\t{}\t0 a{n}\t{angle} b", ["fact", "query"][n % 2]).unwrap();
            }
        }
        let report = measure_pairs(&embedder, &pairs).await.unwrap();
        assert!((report.separation - 1.0).abs() < 1e-9 && (report.related_separation - 1.0).abs() < 1e-9);
        let same = report.same;
        let unrelated = report.unrelated;
        assert_eq!((same.pairs, unrelated.pairs), (20, 20));
        assert!(same.low < same.median && same.median < same.high);
        assert!(unrelated.high < report.related.low && report.related.high < same.low);
        let calibration = report.calibration;
        assert!(calibration.relevance_of(unrelated.median) < 0.2 && calibration.relevance_of(same.median) > 0.8);
        let printed = report.to_string();
        let table = printed.split_once("[embedder.calibration]\n").unwrap().1;
        let parsed: Calibration =
            figment::Figment::from(<figment::providers::Toml as figment::providers::Format>::string(table))
                .extract()
                .unwrap();
        assert!((parsed.floor - calibration.floor).abs() < 1e-3);
    }

    #[tokio::test]
    async fn model_without_separation_is_rejected() {
        let blind = Placed::new(|_: &str| 1.0);
        assert!(matches!(
            measure_shipped_pairs(&blind).await,
            Err(CalibrateError::Fit(FitError::SeparatesNothing { .. }))
        ));
        // The angle depends on the text's bytes, not on its meaning.
        let noise = Placed::new(|text: &str| {
            let hash = text
                .bytes()
                .fold(0_u16, |hash, b| hash.wrapping_mul(31).wrapping_add(u16::from(b)));
            f32::from(hash)
        });
        assert!(matches!(
            measure_shipped_pairs(&noise).await,
            Err(CalibrateError::Fit(_))
        ));
    }
}
