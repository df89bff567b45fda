//! How long the jobs of a turn wait, unless a line follows earlier.

use chrono::TimeDelta;

use crate::settings::TurnSettings;
use colloquy_ports::ledger::dialogues::Playback;

/// The longest waits of jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobHolds {
    /// The time after a cut.
    after_cut: TimeDelta,
    /// The time for the acknowledgement of the playback.
    playback: TimeDelta,
}

impl JobHolds {
    pub(super) fn new(settings: &TurnSettings) -> Self {
        Self {
            after_cut: settings.cut_hold(),
            playback: TimeDelta::seconds(i64::from(settings.playback_timeout_s)),
        }
    }

    /// Returns how long the jobs of a turn wait. `None`: they start at once. `was_cut`: the reply was cut on request.
    ///
    /// - A reply cut on request is committed as its heard part. Meanwhile it may be resumed, or cut again.
    /// - Unheard text teaches nothing, and only the client's playback acknowledgement tells the heard part. A reply that
    ///   ended with the server or the session waits for it too.
    pub(super) fn hold_after(self, playback: Playback, was_cut: bool) -> Option<TimeDelta> {
        match (was_cut, playback) {
            (true, _) => Some(self.after_cut).filter(|hold| !hold.is_zero()),
            (false, Playback::Ack) => Some(self.playback),
            (false, Playback::Immediate) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_reply_waits_for_a_resume_and_a_whole_reply_for_its_playback() {
        let holds = JobHolds {
            after_cut: TimeDelta::seconds(30),
            playback: TimeDelta::seconds(60),
        };
        for (playback, was_cut, seconds) in [
            (Playback::Immediate, false, None),
            (Playback::Immediate, true, Some(30)),
            (Playback::Ack, false, Some(60)),
            (Playback::Ack, true, Some(30)),
        ] {
            let hold = holds.hold_after(playback, was_cut);
            assert_eq!(hold.map(|hold| hold.num_seconds()), seconds, "{playback:?} {was_cut}");
        }
    }
}
