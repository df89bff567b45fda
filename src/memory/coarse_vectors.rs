//! Unit vectors with one byte per dimension: a quick first look at many vectors, a quarter of the memory of the exact ones.

use simsimd::SpatialSimilarity as _;

/// Vectors of equal length, in the order of their addition.
#[derive(Debug, Default)]
pub struct CoarseVectors {
    dimensions: usize,
    /// All vectors, one after the other.
    values: Vec<i8>,
    /// The size of a step of each vector; 0: the vector cannot be compared.
    steps: Vec<f32>,
}

/// A vector that is compared with others.
#[derive(Debug)]
pub struct CoarseQuery {
    values: Vec<i8>,
    step: f32,
}

impl CoarseQuery {
    #[must_use]
    pub fn new(vector: &[f32]) -> Self {
        let (values, step) = quantise(vector);
        Self { values, step }
    }
}

impl CoarseVectors {
    /// Adds a vector. The first vector that is not empty decides the length; others cannot be compared.
    pub fn push(&mut self, vector: &[f32]) {
        if self.dimensions == 0 && !vector.is_empty() {
            self.dimensions = vector.len();
            self.values.resize(self.steps.len() * self.dimensions, 0);
        }
        if vector.is_empty() || vector.len() != self.dimensions {
            self.values.resize(self.values.len() + self.dimensions, 0);
            self.steps.push(0.0);
            return;
        }
        let (values, step) = quantise(vector);
        self.values.extend(values);
        self.steps.push(step);
    }

    /// Returns the positions of the vectors whose cosine with the query may be above `least`. No such vector is left out.
    pub fn near<'a>(&'a self, query: &'a CoarseQuery, least: f32) -> impl Iterator<Item = usize> + 'a {
        let is_comparable = self.dimensions > 0 && query.values.len() == self.dimensions;
        let vectors = self.values.chunks_exact(self.dimensions.max(1)).zip(&self.steps);
        let all = vectors.enumerate().filter(move |_| is_comparable);
        all.filter(move |(_, (values, step))| {
            **step > 0.0 && cosine(values, &query.values) * **step * query.step + self.error(**step, query.step) > least
        })
        .map(|(at, _)| at)
    }

    /// Returns the size of the vectors in bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.values.len() + 4 * self.steps.len()
    }

    /// The most by which rounding changes the cosine of two unit vectors: each value is off by half a step, and the sum of
    /// the sizes of a unit vector's values is at most the root of its length.
    #[allow(clippy::cast_precision_loss)]
    fn error(&self, one: f32, other: f32) -> f32 {
        let length = self.dimensions as f32;
        length.sqrt() * (one + other) / 2.0 + length * one * other / 4.0
    }
}

/// Returns the values in steps of the second result.
#[allow(clippy::cast_possible_truncation)]
fn quantise(vector: &[f32]) -> (Vec<i8>, f32) {
    let most = vector.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let step = most / 127.0;
    if !(step > 0.0 && step.is_finite()) {
        return (vec![0; vector.len()], 0.0);
    }
    let values = vector
        .iter()
        .map(|value| (value / step).round().clamp(-127.0, 127.0) as i8);
    (values.collect(), step)
}

/// The sum of the products: an exact number on every machine.
#[allow(clippy::cast_possible_truncation)]
fn cosine(a: &[i8], b: &[i8]) -> f32 {
    i8::dot(a, b).unwrap_or_default() as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scoring::dot_product;

    fn unit(values: &[f32]) -> Vec<f32> {
        let norm = values.iter().map(|x| x * x).sum::<f32>().sqrt();
        values.iter().map(|x| x / norm).collect()
    }

    proptest! {
        #[test]
        fn vectors_above_the_limit_are_never_left_out(
            all in prop::collection::vec(prop::collection::vec(-1.0_f32..1.0, 48), 1..40),
            line in prop::collection::vec(-1.0_f32..1.0, 48),
            least in -0.5_f32..0.9,
        ) {
            let line = unit(&line);
            let all: Vec<Vec<f32>> = all.iter().map(|values| unit(values)).collect();
            let mut coarse = CoarseVectors::default();
            coarse.push(&[]);
            for vector in &all {
                coarse.push(vector);
            }
            let query = CoarseQuery::new(&line);
            let near: Vec<usize> = coarse.near(&query, least).collect();
            for (at, vector) in all.iter().enumerate() {
                if dot_product(&line, vector) > least {
                    prop_assert!(near.contains(&(at + 1)));
                }
            }
            // The look is no mere formality: far vectors are left out.
            for at in near {
                prop_assert!(dot_product(&line, &all[at - 1]) > least - 0.2);
            }
        }
    }

    #[test]
    fn vectors_of_another_length_are_never_near() {
        let mut coarse = CoarseVectors::default();
        for vector in [&[1.0, 0.0][..], &[1.0], &[0.0, 0.0], &[0.6, 0.8]] {
            coarse.push(vector);
        }
        let near = |line: &[f32]| coarse.near(&CoarseQuery::new(line), 0.1).collect::<Vec<_>>();
        assert_eq!(near(&[1.0, 0.0]), [0, 3]);
        assert_eq!(near(&[1.0]), [0; 0]);
        assert_eq!(CoarseVectors::default().near(&CoarseQuery::new(&[1.0]), 0.0).count(), 0);
    }
}
