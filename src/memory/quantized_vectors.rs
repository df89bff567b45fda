//! Vectors in 8 bits, a quarter of the memory of the exact ones: the first scan of every search among many vectors. The
//! caller compares the best in full precision.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use simsimd::SpatialSimilarity as _;

/// Vectors of equal length, one after the other, each with a step of its own.
#[derive(Debug, Default)]
pub struct QuantizedVectors {
    dimensions: usize,
    values: Vec<i8>,
    /// The size of a step of each vector; 0: the vector cannot be compared. Apart from the values, since the number of
    /// bytes read limits a scan.
    steps: Vec<f32>,
}

/// A vector that is compared with others.
#[derive(Debug)]
pub struct QuantizedQuery {
    values: Vec<i8>,
    step: f32,
}

impl QuantizedQuery {
    #[must_use]
    pub fn new(vector: &[f32]) -> Self {
        let (values, step) = quantize(vector);
        Self { values, step }
    }
}

/// A finite score with a total order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderedScore(pub f32);

impl Eq for OrderedScore {}
impl Ord for OrderedScore {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}
impl PartialOrd for OrderedScore {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl QuantizedVectors {
    /// Returns the length of the vectors; 0 before the first vector that is not empty.
    #[must_use]
    pub const fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Adds a vector. The first vector that is not empty decides the length. Returns `false` for a vector of another
    /// length, which cannot be compared.
    pub fn push(&mut self, vector: &[f32]) -> bool {
        if self.dimensions == 0 && !vector.is_empty() {
            self.dimensions = vector.len();
            self.values.resize(self.steps.len() * self.dimensions, 0);
        }
        let has_length = !vector.is_empty() && vector.len() == self.dimensions;
        let (values, step) = if has_length {
            quantize(vector)
        } else {
            (vec![0; self.dimensions], 0.0)
        };
        self.values.extend(values);
        self.steps.push(step);
        has_length
    }

    /// Makes a vector incomparable.
    pub fn hide(&mut self, index: usize) {
        self.steps[index] = 0.0;
    }

    #[must_use]
    pub fn is_comparable(&self, index: usize) -> bool {
        self.steps[index] != 0.0
    }

    /// Returns the vectors at `indexes`, in this order.
    #[must_use]
    pub fn select(&self, indexes: impl Iterator<Item = usize>) -> Self {
        let mut selected = Self {
            dimensions: self.dimensions,
            ..Self::default()
        };
        for index in indexes {
            selected.values.extend_from_slice(self.values_of(index));
            selected.steps.push(self.steps[index]);
        }
        selected
    }

    /// Returns the `limit` vectors at `indexes` that seem nearest, in no particular order. Scores are cosines in steps of
    /// the query. The query has the length of the vectors.
    #[must_use]
    pub fn nearest(
        &self,
        query: &QuantizedQuery,
        limit: usize,
        indexes: impl Iterator<Item = usize>,
    ) -> Vec<(OrderedScore, usize)> {
        let mut best: BinaryHeap<Reverse<(OrderedScore, usize)>> = BinaryHeap::with_capacity(limit + 1);
        let mut bar = f32::NEG_INFINITY;
        for (index, score) in self.scores(query, indexes) {
            if score <= bar {
                continue;
            }
            best.push(Reverse((OrderedScore(score), index)));
            if best.len() > limit {
                best.pop();
                bar = best.peek().map_or(bar, |Reverse((score, _))| score.0);
            }
        }
        best.into_iter().map(|Reverse(entry)| entry).collect()
    }

    /// Returns the positions of the unit vectors whose cosine with the query may be above `min_cosine`, each with a
    /// number that its cosine does not exceed. No such vector is left out.
    #[must_use]
    pub fn cosine_bounds(&self, query: &QuantizedQuery, min_cosine: f32) -> Vec<(usize, f32)> {
        if self.dimensions == 0 || query.values.len() != self.dimensions {
            return Vec::new();
        }
        let comparable = (0..self.steps.len()).filter(|index| self.is_comparable(*index));
        let bounds = self.scores(query, comparable).map(|(index, score)| {
            let cosine = score * query.step;
            (index, cosine + self.rounding_error(self.steps[index], query.step))
        });
        bounds.filter(|(_, bound)| *bound > min_cosine).collect()
    }

    /// Returns the allocated bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.values.capacity() + 4 * self.steps.capacity()
    }

    pub fn shrink_to_fit(&mut self) {
        self.values.shrink_to_fit();
        self.steps.shrink_to_fit();
    }

    /// Returns the cosines of the vectors at `indexes`, in steps of the query. The sum of the products is an exact
    /// number on every machine.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 127² × dimensions, exact enough for a first scan"
    )]
    fn scores(
        &self,
        query: &QuantizedQuery,
        indexes: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = (usize, f32)> {
        indexes.map(|index| {
            let product = i8::dot(&query.values, self.values_of(index)).unwrap_or_default();
            (index, product as f32 * self.steps[index])
        })
    }

    fn values_of(&self, index: usize) -> &[i8] {
        &self.values[index * self.dimensions..(index + 1) * self.dimensions]
    }

    /// The most by which rounding changes the cosine of two unit vectors: each value is off by half a step, and the sum of
    /// the sizes of a unit vector's values is at most the root of its length.
    #[expect(clippy::cast_precision_loss, reason = "a few thousand dimensions")]
    fn rounding_error(&self, left_step: f32, right_step: f32) -> f32 {
        let length = self.dimensions as f32;
        length.sqrt() * (left_step + right_step) / 2.0 + length * left_step * right_step / 4.0
    }
}

/// Returns the vector in 8 bits, and the size of a step; 0 for a vector without a direction.
#[expect(clippy::cast_possible_truncation, reason = "scaled to ±127 first")]
fn quantize(vector: &[f32]) -> (Vec<i8>, f32) {
    let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return (vec![0; vector.len()], 0.0);
    }
    let step = largest / 127.0;
    let values = vector
        .iter()
        .map(|value| (value / step).round().clamp(-127.0, 127.0) as i8);
    (values.collect(), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_vectors_are_those_with_the_best_scores() {
        let mut vectors = QuantizedVectors::default();
        assert!(!vectors.push(&[]), "no length is decided yet");
        for vector in [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.8, 0.6]] {
            assert!(vectors.push(&vector));
        }
        assert!(!vectors.push(&[1.0]), "another length");
        vectors.hide(1);
        let comparable: Vec<usize> = (0..6).filter(|index| vectors.is_comparable(*index)).collect();
        assert_eq!(comparable, [2, 3, 4]);
        let query = QuantizedQuery::new(&[1.0, 0.0]);
        let nearest = |vectors: &QuantizedVectors, limit, indexes: &[usize]| {
            let mut found = vectors.nearest(&query, limit, indexes.iter().copied());
            found.sort_unstable_by(|a, b| b.cmp(a));
            found.into_iter().map(|(_, index)| index).collect::<Vec<_>>()
        };
        assert_eq!(nearest(&vectors, 2, &comparable), [4, 2]);
        assert_eq!(nearest(&vectors, 5, &comparable), [4, 2, 3]);
        let selected = vectors.select([4, 2].into_iter());
        assert_eq!(nearest(&selected, 1, &[0, 1]), [0]);
        assert_eq!((selected.steps.len(), selected.dimensions()), (2, 2));
    }
}
