//! Days and moments for the prompts of jobs and for readers: of the world's clock, or of real time.

use std::sync::Arc;

use chrono::{DateTime, Datelike as _, Utc};

use super::Services;
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::{Language, World},
    calendar::{Calendar, GameMoment, gregorian_weekdays},
    game_clock::GameClock,
    state::WorldState,
};
use colloquy_ports::StoreResult;

/// The days of a world.
pub struct WorldDays<'w> {
    world: &'w World,
    /// `None`: the world has no clock.
    state: Option<Arc<WorldState>>,
}

impl<'w> WorldDays<'w> {
    /// Reads the clock, if the world has a clock.
    ///
    /// # Errors
    /// The state of the world cannot be read.
    pub async fn load(services: &Services, scope: &TenantScope, world: &'w World) -> StoreResult<Self> {
        let state = match world.settings.clock {
            Some(_) => Some(services.memory_cache.world_state(services, scope, &world.id).await?),
            None => None,
        };
        Ok(Self { world, state })
    }

    fn clock(&self) -> Option<GameClock<'_>> {
        GameClock::new(&self.world.settings, self.state.as_deref()?)
    }

    /// Returns the date in numbers, and the weekday in the language of the prompt, because small models compute weekdays
    /// wrongly from a date. The weekday is empty if the calendar has no weeks.
    pub(crate) fn day_of(&self, language: Language, real_time: DateTime<Utc>) -> (String, String) {
        if let Some(clock) = self.clock() {
            let moment = clock.game_time_at(real_time);
            let weekday = moment.weekday(language).unwrap_or_default();
            return (moment.date_text(), weekday.to_owned());
        }
        let day = real_time.weekday().num_days_from_monday() as usize;
        let name = gregorian_weekdays(language).get(day).copied();
        let date = real_time.format("%Y-%m-%d").to_string();
        (date, name.unwrap_or_default().to_owned())
    }

    /// Returns the moment of the world's clock or, without one, of real time.
    pub(crate) fn moment_at(&self, real_time: DateTime<Utc>) -> GameMoment<'_> {
        let clock = self.clock();
        clock.map_or_else(
            || GameMoment::from_real(real_time),
            |clock| clock.game_time_at(real_time),
        )
    }

    /// Returns the moment of the game, such as `1024-03-05 14:30`. `None`: the world has no clock.
    #[must_use]
    pub fn game_time_text(&self, real_time: DateTime<Utc>) -> Option<String> {
        self.clock().map(|clock| clock.game_time_at(real_time).text())
    }

    /// Returns the months and weekdays of the world's own calendar; empty with the Gregorian calendar.
    pub(crate) fn calendar_text(&self) -> String {
        let calendar = self.clock().and_then(GameClock::calendar);
        calendar.map(Calendar::describe).unwrap_or_default()
    }
}
