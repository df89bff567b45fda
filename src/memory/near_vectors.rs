//! The vectors that are nearest to a query, among many. A first look bounds each cosine. Exact cosines are computed only as far
//! as somebody asks for the next nearest vector.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use crate::quantized_vectors::{OrderedScore, QuantizedQuery, QuantizedVectors};

/// Vectors with fewer other numbers than zeros, one in so many, are stored by dimension. Those of the offline embedder are.
const SPARSE_PART: usize = 4;

/// Unit vectors of equal length, in the order of the list, for a first look.
#[derive(Debug)]
pub enum NearVectors {
    Coarse(QuantizedVectors),
    Sparse(SparseVectors),
}

impl NearVectors {
    /// Prepares the vectors. Empty vectors are near to nothing.
    #[must_use]
    pub fn new(vectors: &[Vec<f32>]) -> Self {
        let value_count: usize = vectors.iter().map(Vec::len).sum();
        let numbers = vectors.iter().flatten().filter(|value| **value != 0.0).count();
        if numbers * SPARSE_PART < value_count {
            return Self::Sparse(SparseVectors::new(vectors));
        }
        let mut coarse = QuantizedVectors::default();
        for vector in vectors {
            coarse.push(vector);
        }
        coarse.shrink_to_fit();
        Self::Coarse(coarse)
    }

    /// Returns the positions of the vectors whose cosine with the query may be above `min_cosine`, and those of
    /// `always`, with their cosines, nearest first; equal ones in the order of positions. No vector above `min_cosine`
    /// is left out.
    ///
    /// Lazy: `exact` returns a cosine, and is only asked for vectors that may come next.
    pub fn nearest_first<'v>(
        &self,
        query: &[f32],
        min_cosine: f32,
        always: &HashSet<usize>,
        exact: impl Fn(usize) -> f32 + 'v,
    ) -> Box<dyn Iterator<Item = (usize, f32)> + 'v> {
        match self {
            Self::Coarse(vectors) => {
                let mut bounds = vectors.cosine_bounds(&QuantizedQuery::new(query), min_cosine);
                bounds.retain(|(index, _)| !always.contains(index));
                bounds.extend(always.iter().map(|index| (*index, f32::MAX)));
                Box::new(sort_lazily(bounds, exact))
            }
            Self::Sparse(vectors) => {
                let cosines = vectors.cosines(query).into_iter().enumerate();
                let listed = cosines.filter(|(index, cosine)| *cosine > min_cosine || always.contains(index));
                let mut heap: BinaryHeap<Near> = listed.map(near).collect();
                Box::new(std::iter::from_fn(move || {
                    heap.pop().map(|(cosine, index)| (index.0, cosine.0))
                }))
            }
        }
    }

    /// Returns the size of the vectors in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Coarse(vectors) => vectors.memory_bytes(),
            Self::Sparse(vectors) => vectors.memory_bytes(),
        }
    }
}

/// Returns the positions with their exact cosines, nearest first. `bounds` are positions with numbers that the cosines do not
/// exceed.
fn sort_lazily(bounds: Vec<(usize, f32)>, exact: impl Fn(usize) -> f32) -> impl Iterator<Item = (usize, f32)> {
    let mut bounds: BinaryHeap<Near> = bounds.into_iter().map(near).collect();
    let mut exact_cosines: BinaryHeap<Near> = BinaryHeap::new();
    std::iter::from_fn(move || {
        while let Some(next) = bounds.peek()
            && exact_cosines.peek().is_none_or(|best| best.0 <= next.0)
        {
            let (_, Reverse(index)) = bounds.pop()?;
            exact_cosines.push(near((index, exact(index))));
        }
        exact_cosines.pop().map(|(cosine, index)| (index.0, cosine.0))
    })
}

/// A cosine or its bound, and the position. The greatest is the nearest.
type Near = (OrderedScore, Reverse<usize>);

const fn near((index, cosine): (usize, f32)) -> Near {
    (OrderedScore(cosine), Reverse(index))
}

/// Vectors of which most numbers are zero: for each dimension, the positions and numbers of the vectors that have one there.
#[derive(Debug)]
pub struct SparseVectors {
    /// The cosines with a query that shares no dimension.
    base_cosines: Vec<f32>,
    by_dimension: Vec<Vec<(u32, f32)>>,
}

impl SparseVectors {
    fn new(vectors: &[Vec<f32>]) -> Self {
        let dimensions = vectors.iter().map(Vec::len).max().unwrap_or(0);
        // Vectors of another length cannot be compared.
        let is_comparable = |vector: &Vec<f32>| dimensions > 0 && vector.len() == dimensions;
        let mut by_dimension = vec![Vec::new(); dimensions];
        for (row, vector) in (0_u32..).zip(vectors).filter(|(_, vector)| is_comparable(vector)) {
            let numbers = by_dimension.iter_mut().zip(vector).filter(|(_, value)| **value != 0.0);
            numbers.for_each(|(rows, value)| rows.push((row, *value)));
        }
        let least_cosines = vectors
            .iter()
            .map(|vector| if is_comparable(vector) { 0.0 } else { f32::MIN });
        Self {
            base_cosines: least_cosines.collect(),
            by_dimension,
        }
    }

    /// Returns the cosine of each vector with the query. Vectors that cannot be compared have a very low one.
    fn cosines(&self, query: &[f32]) -> Vec<f32> {
        if query.len() != self.by_dimension.len() {
            return vec![f32::MIN; self.base_cosines.len()];
        }
        let mut sums = self.base_cosines.clone();
        for (rows, query_value) in self
            .by_dimension
            .iter()
            .zip(query)
            .filter(|(_, query_value)| **query_value != 0.0)
        {
            for (row, value) in rows {
                sums[*row as usize] += query_value * value;
            }
        }
        sums
    }

    fn memory_bytes(&self) -> usize {
        let rows: usize = self.by_dimension.iter().map(|rows| 24 + 8 * rows.capacity()).sum();
        rows + 4 * self.base_cosines.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;
    use crate::scoring::dot_product;

    fn unit(values: &[f32]) -> Vec<f32> {
        let norm = values.iter().map(|x| x * x).sum::<f32>().sqrt();
        values.iter().map(|x| x / norm).collect()
    }

    /// A value that is zero in most cases of `zeros`.
    fn value(zeros: u32) -> impl Strategy<Value = f32> {
        prop_oneof![zeros => Just(0.0_f32), 1 => -1.0_f32..1.0]
    }

    fn vectors() -> impl Strategy<Value = (Vec<Vec<f32>>, Vec<f32>)> {
        prop_oneof![Just(0), Just(9)].prop_flat_map(|zeros| {
            let vector = || prop::collection::vec(value(zeros), 48);
            (prop::collection::vec(vector(), 1..40), vector())
        })
    }

    proptest! {
        #[test]
        fn near_vectors_are_found_nearest_first((all, line) in vectors(), least in -0.5_f32..0.9) {
            let is_vector = |values: &[f32]| values.iter().any(|value| *value != 0.0);
            prop_assume!(is_vector(&line));
            let line = unit(&line);
            let mut all: Vec<Vec<f32>> = all.iter().filter(|values| is_vector(values)).map(|values| unit(values)).collect();
            prop_assume!(!all.is_empty());
            all.insert(0, Vec::new());
            let near = NearVectors::new(&all);
            let mut expected: Vec<(usize, f32)> = (1..all.len()).map(|at| (at, dot_product(&line, &all[at]))).collect();
            // The order of additions moves a cosine a little.
            prop_assume!(expected.iter().all(|(_, cosine)| (cosine - least).abs() > 1e-5));
            expected.retain(|(_, cosine)| *cosine > least);
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let (looked_at, other) = (RefCell::new(HashSet::new()), HashSet::from([1]));
            let exact = |at: usize| {
                looked_at.borrow_mut().insert(at);
                dot_product(&line, &all[at])
            };
            let found: Vec<(usize, f32)> = near.nearest_first(&line, least, &other, exact).collect();
            prop_assert!(found.iter().any(|(at, _)| *at == 1), "the other is missing: {found:?}");
            for (at, cosine) in &found {
                prop_assert!((dot_product(&line, &all[*at]) - cosine).abs() < 1e-5);
            }
            let found: Vec<usize> = found.iter().filter(|(_, cosine)| *cosine > least).map(|(at, _)| *at).collect();
            prop_assert_eq!(found, expected.iter().map(|(at, _)| *at).collect::<Vec<_>>());
            // The look is no mere formality: far vectors are left out.
            for at in looked_at.into_inner().difference(&other) {
                prop_assert!(dot_product(&line, &all[*at]) > least - 0.2);
            }
        }
    }

    #[test]
    fn vectors_of_another_length_are_never_near() {
        let dense = vec![vec![1.0, 0.0], vec![1.0], vec![0.0, 0.0], vec![0.6, 0.8]];
        let mut sparse = vec![vec![0.0; 9], vec![1.0], vec![0.0; 9], vec![0.0; 9]];
        sparse[0][0] = 1.0;
        sparse[3][..2].copy_from_slice(&[0.6, 0.8]);
        let mut long = vec![0.0; 9];
        long[0] = 1.0;
        for (vectors, line) in [(dense, vec![1.0, 0.0]), (sparse, long)] {
            let near = NearVectors::new(&vectors);
            let found = |line: &[f32]| {
                let nearest = near.nearest_first(line, 0.1, &HashSet::new(), |at| dot_product(line, &vectors[at]));
                nearest.map(|(at, _)| at).collect::<Vec<_>>()
            };
            assert_eq!(found(&line), [0, 3], "{near:?}");
            assert_eq!(found(&[1.0]), [0; 0], "{near:?}");
        }
        let none = NearVectors::new(&[]);
        assert_eq!(none.nearest_first(&[1.0], 0.0, &HashSet::new(), |_| 1.0).count(), 0);
    }

    #[test]
    fn vectors_far_from_the_nearest_are_not_looked_at_exactly() {
        let looked_at = RefCell::new(Vec::new());
        let bounds = vec![(0, 0.5), (1, 0.9), (2, 0.7), (3, 0.2)];
        let mut nearest = sort_lazily(bounds, |at| {
            looked_at.borrow_mut().push(at);
            [0.45, 0.6, 0.65, 0.1][at]
        });
        assert_eq!(nearest.next(), Some((2, 0.65)));
        assert_eq!(*looked_at.borrow(), [1, 2]);
        assert_eq!(nearest.map(|(at, _)| at).collect::<Vec<_>>(), [1, 0, 3]);
    }
}
