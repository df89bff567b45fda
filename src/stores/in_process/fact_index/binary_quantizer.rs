//! One bit per dimension of each vector, for the first scan of a large segment.
//!
//! The number of bytes read limits a scan, and the bits are an eighth of the 8-bit form. A bit tells on which side of
//! the segment's mean a vector lies. With many embedders, all vectors share most of their direction, so only the
//! difference from the mean separates them. The weight of a bit is the query's own distance from the mean; four
//! dimensions of the query share a score of 8 bits. The result is a shortlist, which is compared in 8 bits. The best of
//! the shortlist are compared in full precision.

use super::block_scores::{BLOCK, ByteScores, ScoreTables};

/// The least number of vectors for a quantizer. A smaller segment is read whole in 8 bits, in about a millisecond.
pub(super) const MIN_QUANTIZED_VECTORS: usize = 16_000;
/// The least number of dimensions. Shorter vectors have too few bits to differ.
const MIN_QUANTIZED_DIMENSIONS: usize = 128;
/// The shortlist's share of all vectors: one in so many. Measured with questions against 30,000 vectors, mixed from a
/// small e5 model's vectors of 2,600 sentences. A fiftieth had 99.7 % of the nearest 30; a twentieth had all.
const SHORTLIST_DIVISOR: usize = 25;
/// The greatest score of four dimensions. A score and its negative share a byte.
const HALF_RANGE: f32 = 127.0;

#[derive(Debug)]
pub(super) struct BinaryQuantizer {
    mean: Vec<f32>,
    /// Bytes per vector.
    width: usize,
    /// `width` arrays per block of vectors: the first bytes of all its vectors, then the second bytes, and so on.
    bits: Vec<[u8; BLOCK]>,
    lengths: Vec<BitScale>,
}

/// The scale of a vector's bits, which the bits themselves do not show.
#[derive(Debug, Clone, Copy)]
struct BitScale {
    /// The vector's distance from the mean along one dimension, as used for all its bits.
    stride: f32,
    /// Half the square of the vector's distance from the mean.
    half_square: f32,
}

/// A query in a form for comparison with bits.
struct PreparedQuery {
    tables: ScoreTables,
    /// The score of a vector at the mean.
    middle: f32,
    /// The value of one unit of score, in the unit of the vectors.
    step: f32,
}

impl BinaryQuantizer {
    /// Builds a quantizer of consecutive vectors in `exact`. Slots that are `is_empty_slot` do not count in the mean.
    /// Returns `None` for vectors with too few dimensions.
    pub(super) fn from_vectors(
        dimensions: usize,
        exact: &[f32],
        is_empty_slot: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        if dimensions < MIN_QUANTIZED_DIMENSIONS {
            return None;
        }
        let mut mean = vec![0.0_f32; dimensions];
        let mut count = 0.0_f32;
        for (_, vector) in exact
            .chunks_exact(dimensions)
            .enumerate()
            .filter(|(slot, _)| !is_empty_slot(*slot))
        {
            mean.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
            count += 1.0;
        }
        for sum in &mut mean {
            *sum /= count.max(1.0);
        }
        let width = dimensions.div_ceil(8);
        let mut sketch = Self {
            mean,
            width,
            bits: Vec::with_capacity((exact.len() / dimensions).div_ceil(BLOCK) * width),
            lengths: Vec::with_capacity(exact.len() / dimensions),
        };
        for vector in exact.chunks_exact(dimensions) {
            sketch.push(vector);
        }
        Some(sketch)
    }

    pub(super) fn push(&mut self, vector: &[f32]) {
        let lane = self.lengths.len() % BLOCK;
        if lane == 0 {
            self.bits.resize(self.bits.len() + self.width, [0; BLOCK]);
        }
        let block = self.bits.len() - self.width;
        let mut sum = 0.0_f32;
        let mut square = 0.0_f32;
        let bytes = vector.chunks(8).zip(self.mean.chunks(8));
        for (bits, (vector, mean)) in self.bits[block..].iter_mut().zip(bytes) {
            let mut byte = 0_u8;
            for (bit, (x, mean)) in vector.iter().zip(mean).enumerate() {
                let difference = x - mean;
                byte |= u8::from(difference > 0.0) << bit;
                sum += difference.abs();
                square += difference * difference;
            }
            bits[lane] = byte;
        }
        self.lengths.push(BitScale {
            stride: if sum > 0.0 { square / sum } else { 0.0 },
            half_square: square / 2.0,
        });
    }

    pub(super) fn approximate_bytes(&self) -> usize {
        self.bits.capacity() * BLOCK + self.lengths.capacity() * size_of::<BitScale>() + self.mean.len() * 4
    }

    /// Returns the shortlist, in slot order: the vectors that seem nearest among the `is_visible`, at least `min_slots`
    /// slots.
    pub(super) fn shortlist_slots(
        &self,
        query: &[f32],
        min_slots: usize,
        is_visible: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let prepared = self.prepare_query(query);
        let max_slots = (self.lengths.len() / SHORTLIST_DIVISOR).max(min_slots).max(1);
        // The list grows to twice its size before the worse half is dropped. On average, each entry is then compared
        // only a few times, in any order of input.
        let mut listed: Vec<(f32, usize)> = Vec::with_capacity(max_slots * 2);
        let better = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let mut bar = f32::NEG_INFINITY;
        let blocks = self.bits.chunks_exact(self.width).zip(self.lengths.chunks(BLOCK));
        let nearness = blocks.flat_map(|(bits, lengths)| prepared.estimate_nearness(bits, lengths));
        for (slot, nearness) in nearness.take(self.lengths.len()).enumerate() {
            if nearness <= bar || !is_visible(slot) {
                continue;
            }
            listed.push((nearness, slot));
            if listed.len() == max_slots * 2 {
                listed.select_nth_unstable_by(max_slots - 1, better);
                listed.truncate(max_slots);
                bar = listed[max_slots - 1].0;
            }
        }
        if listed.len() > max_slots {
            listed.select_nth_unstable_by(max_slots - 1, better);
            listed.truncate(max_slots);
        }
        let mut slots: Vec<usize> = listed.into_iter().map(|(_, slot)| slot).collect();
        slots.sort_unstable();
        slots
    }

    fn prepare_query(&self, query: &[f32]) -> PreparedQuery {
        let apart: Vec<f32> = query.iter().zip(&self.mean).map(|(x, mean)| x - mean).collect();
        // Four dimensions share a table, and the largest sum of four determines the unit.
        let largest = apart.chunks(4).map(|four| four.iter().map(|x| x.abs()).sum());
        let step = largest.fold(0.0, f32::max) / HALF_RANGE;
        let tables: Vec<ByteScores> = apart.chunks(8).map(|eight| byte_scores(eight, step)).collect();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred bytes")]
        let middle = 2.0 * HALF_RANGE * tables.len() as f32;
        PreparedQuery {
            tables: ScoreTables::new(&tables),
            middle,
            step,
        }
    }
}

/// Returns the scores of eight dimensions of the query's distance from the mean: the distances of set bits, less those
/// of the other bits. `HALF_RANGE` stands for zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to 254, and 0 without a number"
)]
fn byte_scores(apart: &[f32], step: f32) -> ByteScores {
    std::array::from_fn(|index| {
        let half = index / 16;
        let bits = index % 16;
        let dimensions = apart.iter().skip(4 * half).take(4).enumerate();
        let score: f32 = dimensions
            .map(|(bit, x)| if (bits >> bit) & 1 == 1 { *x } else { -*x })
            .sum();
        (score / step + HALF_RANGE).round() as u8
    })
}

impl PreparedQuery {
    /// Returns an estimate for each vector of a block, larger for nearer vectors. Only the order counts; the bits merely
    /// suggest the distance.
    #[expect(clippy::cast_precision_loss, reason = "at most 64 × dimensions, far below 2^24")]
    fn estimate_nearness(&self, bits: &[[u8; BLOCK]], lengths: &[BitScale]) -> [f32; BLOCK] {
        let scores = self.tables.score_block(bits);
        let mut nearness = [0.0; BLOCK];
        for (lane, (score, length)) in nearness.iter_mut().zip(scores.into_iter().zip(lengths)) {
            *lane = (score as f32 - self.middle) * self.step * length.stride - length.half_square;
        }
        nearness
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    const DIMENSIONS: usize = 256;

    /// Vectors like those of real embedders: a common direction, clusters, and some dimensions larger than the rest.
    #[allow(clippy::cast_precision_loss, reason = "small counts")]
    fn vectors(count: usize, rng: &mut StdRng) -> Vec<f32> {
        let mut any = |scale: f32| -> Vec<f32> {
            (0..DIMENSIONS)
                .map(|at| {
                    let narrowing = 1.0 / (1.0 + at as f32 / 128.0);
                    scale * narrowing * rng.random_range(-1.0..1.0_f32)
                })
                .collect()
        };
        let common = any(3.0);
        let centres: Vec<Vec<f32>> = (0..64).map(|_| any(0.7)).collect();
        let mut all = Vec::with_capacity(count * DIMENSIONS);
        for n in 0..count {
            let own = any(0.7);
            let centre = &centres[n % centres.len()];
            let vector: Vec<f32> = (0..DIMENSIONS).map(|at| common[at] + centre[at] + own[at]).collect();
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            all.extend(vector.into_iter().map(|x| x / norm));
        }
        all
    }

    #[test]
    fn shortlist_contains_the_nearest() {
        let mut rng = StdRng::seed_from_u64(7);
        let all = vectors(8_000, &mut rng);
        let sketch = BinaryQuantizer::from_vectors(DIMENSIONS, &all, |_| false).unwrap();
        let mut found = 0;
        let mut wanted = 0;
        // Every third slot is hidden.
        let seen = |slot: usize| !slot.is_multiple_of(3);
        for n in 0..20 {
            let query = &all[n * 377 * DIMENSIONS..][..DIMENSIONS];
            let mut nearest: Vec<(f32, usize)> = all
                .chunks_exact(DIMENSIONS)
                .enumerate()
                .filter(|(slot, _)| seen(*slot))
                .map(|(slot, vector)| (vector.iter().zip(query).map(|(a, b)| a * b).sum(), slot))
                .collect();
            nearest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            let listed = sketch.shortlist_slots(query, 90, seen);
            assert!(listed.len() == 8_000 / SHORTLIST_DIVISOR && listed.is_sorted());
            assert!(listed.iter().all(|slot| seen(*slot)));
            wanted += 30;
            found += nearest[..30].iter().filter(|(_, slot)| listed.contains(slot)).count();
        }
        assert!(found * 100 >= wanted * 98, "{found} of {wanted}");
    }

    #[test]
    fn shortlist_reaches_its_limit_even_among_equals() {
        let mut rng = StdRng::seed_from_u64(3);
        let one = vectors(1, &mut rng);
        let all = one.repeat(1_000);
        let mut sketch = BinaryQuantizer::from_vectors(DIMENSIONS, &all, |_| false).unwrap();
        assert_eq!(
            sketch.shortlist_slots(&one, 200, |_| true),
            (0..200).collect::<Vec<_>>()
        );
        assert_eq!(sketch.shortlist_slots(&one, 5_000, |_| true).len(), 1_000);
        assert_eq!(
            sketch.shortlist_slots(&one, 200, |slot| slot < 7),
            [0, 1, 2, 3, 4, 5, 6]
        );
        sketch.push(&one);
        assert_eq!(sketch.shortlist_slots(&one, 5_000, |slot| slot > 998), [999, 1_000]);
        assert!(BinaryQuantizer::from_vectors(2, &[1.0, 0.0], |_| false).is_none());
    }
}
