//! Test whether two settings differ on the same questions by more than chance.
//!
//! The test is a two-sided sign-flip permutation test of the mean of the paired differences. The test is exact if few
//! questions differ, else it uses 10,000 random flips. The interval is a percentile bootstrap over questions. Both
//! are seeded, so the same figures always give the same result.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::Serialize;

use super::measures::count_as_f64;

/// The number of random flips, and of bootstrap resamples.
const RESAMPLING_ROUNDS: usize = 10_000;
/// The maximum number of differing questions for the exact test, which enumerates all sign flips.
const MAX_EXACT_QUESTIONS: usize = 13;
const SEED: u64 = 20_260_101;
/// Smaller differences count as equal, because sums in another order may differ by rounding.
const EPSILON: f64 = 1e-12;

/// The comparison of two settings on the same questions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedComparison {
    /// The mean of the first minus the mean of the second.
    pub difference: f64,
    /// The bounds (`low`, `high`) of the 95 % interval of the difference.
    pub low: f64,
    pub high: f64,
    /// The two-sided p-value: the probability of a difference at least this far from 0 if the settings were alike.
    pub p: f64,
    /// The number of questions on which the first settings are better, worse and equal.
    pub better: usize,
    pub worse: usize,
    pub equal: usize,
}

/// Compares two lists of figures for the same questions, in the same order.
pub fn compare_paired(first: &[f64], second: &[f64]) -> PairedComparison {
    let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| a - b).collect();
    let uneven: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|difference| difference.abs() > EPSILON)
        .collect();
    let better = uneven.iter().filter(|difference| **difference > 0.0).count();
    let mean = |sum: f64| sum / count_as_f64(differences.len().max(1));
    let (low, high) = bootstrap_interval(&differences);
    PairedComparison {
        difference: mean(uneven.iter().sum()),
        low,
        high,
        p: sign_flip_p_value(&uneven),
        better,
        worse: uneven.len() - better,
        equal: differences.len() - uneven.len(),
    }
}

/// Returns the share of sign flips with a sum at least as far from 0. Equal questions are left out: a flip does not
/// change them.
fn sign_flip_p_value(uneven: &[f64]) -> f64 {
    let observed_sum = uneven.iter().sum::<f64>().abs() - EPSILON;
    if uneven.len() <= MAX_EXACT_QUESTIONS {
        let ways = 1_usize << uneven.len();
        let as_far = (0..ways).filter(|way| {
            let signed = uneven.iter().enumerate();
            let sum: f64 = signed
                .map(|(index, d)| if way >> index & 1 == 1 { -d } else { *d })
                .sum();
            sum.abs() >= observed_sum
        });
        return count_as_f64(as_far.count()) / count_as_f64(ways);
    }
    let mut random = StdRng::seed_from_u64(SEED);
    let as_far = (0..RESAMPLING_ROUNDS).filter(|_| {
        let sum: f64 = uneven
            .iter()
            .map(|d| if random.random::<bool>() { -d } else { *d })
            .sum();
        sum.abs() >= observed_sum
    });
    // The observed assignment counts as one of the flips.
    count_as_f64(as_far.count() + 1) / count_as_f64(RESAMPLING_ROUNDS + 1)
}

fn bootstrap_interval(differences: &[f64]) -> (f64, f64) {
    if differences.is_empty() {
        return (0.0, 0.0);
    }
    let mut random = StdRng::seed_from_u64(SEED);
    let mut means: Vec<f64> = (0..RESAMPLING_ROUNDS)
        .map(|_| {
            let sum: f64 = (0..differences.len())
                .map(|_| differences[random.random_range(0..differences.len())])
                .sum();
            sum / count_as_f64(differences.len())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (
        means[RESAMPLING_ROUNDS / 40],
        means[RESAMPLING_ROUNDS - 1 - RESAMPLING_ROUNDS / 40],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_settings_have_no_difference() {
        let same = [0.0, 0.5, 1.0];
        let compared = compare_paired(&same, &same);
        assert!(compared.difference.abs() < EPSILON && (compared.p - 1.0).abs() < EPSILON);
        assert_eq!((compared.better, compared.worse, compared.equal), (0, 0, 3));
        assert!((compare_paired(&[], &[]).p - 1.0).abs() < EPSILON);
    }

    #[test]
    fn differences_when_few_are_enumerated_exactly() {
        // Five questions are better by 1. Of 32 ways to flip, only all positive and all negative are as far from 0.
        let compared = compare_paired(&[1.0; 5], &[0.0; 5]);
        assert!((compared.p - 2.0 / 32.0).abs() < EPSILON, "{compared:?}");
        assert_eq!((compared.better, compared.worse, compared.equal), (5, 0, 0));
        // One question is better and one worse: every flip is at least as far from 0.
        let even = compare_paired(&[1.0, 0.0], &[0.0, 1.0]);
        assert!((even.p - 1.0).abs() < EPSILON && even.difference.abs() < EPSILON);
    }

    #[test]
    fn differences_when_many_are_sampled() {
        // Of 100 questions, 20 are better and 2 worse. A sign test gives 1.2e-4 for this case.
        let mut first = vec![0.5; 100];
        let second = vec![0.5; 100];
        first[..20].fill(1.0);
        first[20..22].fill(0.0);
        let compared = compare_paired(&first, &second);
        assert!((compared.difference - 0.09).abs() < 1e-9);
        assert!(compared.p < 0.002, "{compared:?}");
        assert!(compared.low > 0.0 && compared.low < 0.09 && compared.high > 0.09 && compared.high < 0.2);
        assert_eq!(compared, compare_paired(&first, &second), "it is seeded");
        let back = compare_paired(&second, &first);
        assert!((back.difference + 0.09).abs() < 1e-9 && (back.p - compared.p).abs() < EPSILON);
    }

    #[test]
    fn noise_is_not_a_difference() {
        let first: Vec<f64> = (0..200).map(|n| f64::from(n % 2)).collect();
        let second: Vec<f64> = (0..200).map(|n| f64::from((n + 1) % 2)).collect();
        let compared = compare_paired(&first, &second);
        assert!(
            compared.p > 0.5 && compared.low < 0.0 && compared.high > 0.0,
            "{compared:?}"
        );
    }
}
