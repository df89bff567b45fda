//! The pause before a failed job runs again.

use std::time::Duration;

const MAX_RETRY_PAUSE: Duration = Duration::from_mins(10);

/// Returns the pause after `failures` earlier failures: `base`, doubled for each failure, up to ten minutes. `random`
/// adds up to a quarter, because jobs that failed together should not retry together.
#[must_use]
pub fn retry_pause(base: Duration, failures: u32, random: u16) -> Duration {
    let pause = base.saturating_mul(1 << failures.min(20)).min(MAX_RETRY_PAUSE);
    pause + pause.mul_f64(f64::from(random) / f64::from(u16::MAX) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_with_jitter_and_is_bounded() {
        let base = Duration::from_secs(2);
        assert_eq!(retry_pause(base, 0, 0), base);
        assert_eq!(retry_pause(base, 3, 0), 8 * base);
        assert_eq!(retry_pause(base, 0, u16::MAX), Duration::from_millis(2_500));
        assert_eq!(retry_pause(base, 4_000_000, 0), MAX_RETRY_PAUSE);
    }
}
