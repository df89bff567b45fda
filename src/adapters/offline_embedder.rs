//! The offline embedder: lexical, deterministic, nothing to load.
//!
//! A text is hashed into a fixed number of dimensions by its keyword terms (weighted by how
//! informative they are in general) and, more softly, by the character trigrams of its words. So
//! texts are near when they share words or stems, and the broader categories that extraction adds
//! to a fact ("grape, fruit, food") are what lets "what fruit do I like?" find it. It knows no
//! meanings: a paraphrase without shared words is not found. The server says so at start.

use async_trait::async_trait;

use crate::{
    memory::{calibration::Calibration, keywords},
    ports::{
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        llm::LlmError,
    },
};

const MODEL: &str = "colloquy-offline";
const DIMENSIONS: usize = 384;
/// What all trigrams of a word weigh together, next to 1 for the word itself.
const TRIGRAMS: f32 = 0.35;

/// Hashed words and trigrams as unit vectors.
#[derive(Debug)]
pub struct OfflineEmbedder {
    info: EmbedderInfo,
}

impl OfflineEmbedder {
    /// The one there is.
    #[must_use]
    pub fn new() -> Self {
        let calibration = Calibration::preset(MODEL).unwrap_or(Calibration::IDENTITY);
        Self { info: EmbedderInfo { model: MODEL.to_owned(), dimensions: DIMENSIONS, calibration, offline: true } }
    }
}

impl Default for OfflineEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Embedder for OfflineEmbedder {
    async fn embed(&self, _kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        Ok(texts.iter().map(|text| embed(text)).collect())
    }

    fn info(&self) -> &EmbedderInfo {
        &self.info
    }
}

fn embed(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS];
    // Query weights are how informative a term is in general, whatever the store holds.
    for (term, weight) in keywords::query_terms(text).0 {
        add(&mut vector, term, weight);
    }
    let normal = keywords::normalise(text);
    for word in normal.split(|c: char| !c.is_alphanumeric()).filter(|word| word.is_ascii() && word.len() > 4) {
        let grams = word.len() - 2;
        #[expect(clippy::cast_precision_loss, reason = "a word's length")]
        let weight = TRIGRAMS / (grams as f32).sqrt();
        for gram in word.as_bytes().windows(3) {
            add(&mut vector, hash(gram), weight);
        }
    }
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|x| *x /= norm);
    } else {
        // Nothing to go by ("…", "?!"): a fixed direction, near to nothing in particular.
        vector[0] = 1.0;
    }
    vector
}

/// Signed feature hashing: collisions cancel instead of piling up.
fn add(vector: &mut [f32], feature: u64, weight: f32) {
    let mixed = feature.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    #[expect(clippy::cast_possible_truncation, reason = "reduced to an index")]
    let at = (mixed >> 33) as usize % vector.len();
    vector[at] += if mixed & 1 == 0 { weight } else { -weight };
}

/// FNV-1a, the same on every platform.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f32 {
        embed(a).iter().zip(embed(b)).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn vectors_are_unit_whatever_the_text() {
        for text in ["", "?!", "The player likes grapes.", "나는 포도를 좋아해", &"grape ".repeat(5_000)] {
            let norm = embed(text).iter().map(|x| x * x).sum::<f32>().sqrt();
            assert!((norm - 1.0).abs() < 1e-3, "{text:.20}: {norm}");
        }
    }

    #[test]
    fn broader_categories_bring_a_question_to_its_fact() {
        let grapes = "The player likes grapes. (Keywords: grape, fruit, food, preference)";
        let sister = "The player's sister lives in Harbour Town. (Keywords: sister, family, town)";
        let asked = "what fruit do I like?";
        assert!(cosine(asked, grapes) > cosine(asked, sister) + 0.2);

        let podo = "플레이어는 포도를 좋아한다. (Keywords: 포도, 과일, 음식, 선호)";
        let dongsaeng = "플레이어의 동생은 항구 마을에 산다. (Keywords: 동생, 가족, 마을)";
        let asked = "내가 좋아하는 과일이 뭐였지?";
        assert!(cosine(asked, podo) > cosine(asked, dongsaeng) + 0.15);
    }
}
