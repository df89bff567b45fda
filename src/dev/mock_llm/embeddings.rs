//! Vectors of the mock server: lexical, so texts with common words are near each other.

use colloquy_models::offline_embedder::{fnv_hash, scale_to_unit};

/// Returns a unit vector of `dimensions` from the words of `text` and their character trigrams.
pub(super) fn embed_words(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.0_f32; dimensions];
    let mut add = |piece: &str, weight: f32| {
        let hash = fnv_hash(piece);
        let place = usize::try_from(hash >> 1).unwrap_or(usize::MAX) % dimensions;
        vector[place] += if hash & 1 == 0 { weight } else { -weight };
    };
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let word = word.to_lowercase();
        add(&word, 1.0);
        let ends: Vec<usize> = word
            .char_indices()
            .map(|(start, _)| start)
            .chain([word.len()])
            .collect();
        for window in ends.windows(4) {
            add(&word[window[0]..window[3]], 0.3);
        }
    }
    scale_to_unit(&mut vector);
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f32 {
        let (a, b) = (embed_words(a, 256), embed_words(b, 256));
        a.iter().zip(&b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn texts_that_share_words_are_near() {
        assert!((cosine("I like grapes", "I like grapes") - 1.0).abs() < 1e-5);
        assert!(cosine("I like grapes", "grapes I like a lot") > 0.5);
        assert!(cosine("나는 포도를 좋아해", "포도를 좋아해") > 0.5);
        assert!(cosine("I like grapes", "the bridge fell down") < 0.4);
        assert!((cosine("", "!?") - 1.0).abs() < 1e-5);
    }
}
