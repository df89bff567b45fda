//! What recall looks for, and what it finds.

use chrono::{DateTime, Utc};

use super::query::SpokenLine;
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::World,
    calendar::{GameMoment, GameTime, NamedPeriod},
    disclosure::audience::Viewpoint,
    game_clock::GameClock,
    keywords::TermWeights,
    scoring::FactAge,
};
use colloquy_ports::{StoreError, vectors::CandidateLimits};

/// A search, with its viewpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecallRequest<'a> {
    pub scope: &'a TenantScope,
    pub world: &'a World,
    pub viewpoint: &'a Viewpoint,
    /// A unit vector. `None`: the embedder failed, and keywords must suffice.
    pub embedding: Option<&'a [f32]>,
    /// The terms with their general weights, independent of the searched memory.
    pub terms: &'a TermWeights,
    pub limits: CandidateLimits,
    pub moment: DateTime<Utc>,
    /// The line, which may name a time, and things of its speaker or its listener.
    pub line: SpokenLine<'a>,
    pub clock: RecallClock<'a>,
}

/// The time by which facts age.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecallClock<'a> {
    /// The clock of the world; `None`: real time.
    game: Option<GameClock<'a>>,
    /// The past days that the line names.
    named_period: Option<NamedPeriod>,
}

/// The result of recall, with or without the index.
#[derive(Debug)]
pub(crate) struct RecallResult<T> {
    /// The facts, best first.
    pub facts: Vec<T>,
    /// The number of found facts, of which `facts` may have only the best.
    pub found_count: usize,
    /// The error of the index, if the index did not answer. The ledger was then searched.
    pub without_index: Option<StoreError>,
}

impl<'a> RecallRequest<'a> {
    /// Sets the clock, and looks for a time in the line.
    pub(super) fn set_clock(&mut self, game: Option<GameClock<'a>>) {
        let today = match game {
            Some(clock) => clock.game_time_now(self.moment),
            None => GameMoment::from_real(self.moment),
        };
        let named_period = NamedPeriod::in_line(self.line.text, today);
        self.clock = RecallClock { game, named_period };
    }

    /// The age of a fact in days of the game, or in real days without a clock.
    pub(super) fn age_of(&self, from: DateTime<Utc>) -> FactAge {
        let RecallClock { game, named_period } = self.clock;
        if let Some(named_period) = named_period {
            let game_time = game.map_or_else(|| GameTime::from_real(from), |clock| clock.game_time_at(from).time);
            return FactAge::FromNamedTime(named_period.days_from(game_time));
        }
        FactAge::Days(match game {
            Some(clock) => {
                let game_time = clock.game_time_at(from).time;
                let now = clock.game_time_now(self.moment).time;
                now.days_since(game_time)
            }
            None => days_between(from, self.moment),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of centuries fit 52 bits")]
fn days_between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).num_milliseconds() as f64 / 86_400_000.0
}
