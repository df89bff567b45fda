//! Episodes with their vectors in this node's memory. Rows with a vector of the embedder's model never change while
//! they are here, so a turn reads only those written since, and the last few again: a write with a lower `seq` may be
//! committed later. Whether an episode stands is asked of the ledger.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use moka::sync::Cache;
use parking_lot::Mutex;

use colloquy_core::{
    ids::{NpcId, PlayerId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::episode::{Episode, MAX_COMPARED_EPISODES};
use colloquy_ports::ledger::episodes::{EpisodePair, EpisodeRow};

/// The size of all cached episodes of a node, in bytes.
const MAX_CACHED_BYTES: u64 = 128 * 1024 * 1024;
/// The size of a row besides its text and its vector, in bytes.
const ROW_BYTES: usize = 512;
/// Rows that no turn has added to for this time leave memory.
const REREAD_AFTER: Duration = Duration::from_mins(10);

/// The number of the last rows that every turn reads again. So many episodes of one pair are not written while the write
/// of another lasts.
const REREAD_ROWS: usize = 4;

type PairKey = (TenantId, WorldId, NpcId, PlayerId);

/// The episodes of the pairs that spoke last.
pub(crate) struct EpisodeCache(Cache<PairKey, Arc<Mutex<PairEpisodes>>>);

impl Default for EpisodeCache {
    fn default() -> Self {
        let bytes = |_: &_, pair: &Arc<Mutex<PairEpisodes>>| u32::try_from(pair.lock().bytes).unwrap_or(u32::MAX);
        let cache = Cache::builder()
            .weigher(bytes)
            .max_capacity(MAX_CACHED_BYTES)
            .time_to_live(REREAD_AFTER);
        Self(cache.build())
    }
}

impl EpisodeCache {
    /// Returns the episodes of a pair that this node has, perhaps none.
    pub(super) fn cached_episodes(&self, scope: &TenantScope, pair: EpisodePair<'_>) -> Arc<Mutex<PairEpisodes>> {
        self.0.get(&key_of(scope, pair)).unwrap_or_default()
    }

    /// Adds rows that were read after `pair_episodes`. `model` is the embedder's.
    pub(super) fn add_rows(
        &self,
        scope: &TenantScope,
        pair: EpisodePair<'_>,
        pair_episodes: &Arc<Mutex<PairEpisodes>>,
        rows: Vec<EpisodeRow>,
        model: &str,
    ) {
        if pair_episodes.lock().add(rows, model) {
            // The cache weighs the pair again.
            self.0.insert(key_of(scope, pair), Arc::clone(pair_episodes));
        }
    }
}

fn key_of(scope: &TenantScope, pair: EpisodePair<'_>) -> PairKey {
    (
        scope.tenant().clone(),
        pair.world.clone(),
        pair.npc.clone(),
        pair.player.clone(),
    )
}

/// The latest episodes of a pair, at most [`MAX_COMPARED_EPISODES`]. They may be lifted.
#[derive(Debug, Default)]
pub(crate) struct PairEpisodes {
    /// By `seq`.
    rows: BTreeMap<i64, EpisodeRow>,
    /// The `seq` of the first row whose vector is missing or of another model than the embedder's.
    first_outdated: Option<i64>,
    bytes: usize,
}

impl PairEpisodes {
    /// Returns the `seq` after which rows are read: that of the last row but [`REREAD_ROWS`]; 0 for few rows. Rows from
    /// the first one with an outdated vector on are read again.
    pub(super) fn read_after(&self) -> i64 {
        let last_rows = self.rows.keys().rev().nth(REREAD_ROWS).map_or(0, |seq| *seq);
        self.first_outdated.map_or(last_rows, |seq| last_rows.min(seq - 1))
    }

    /// Adds rows. Returns `false` if all of them were here.
    fn add(&mut self, rows: Vec<EpisodeRow>, model: &str) -> bool {
        let is_outdated = |row: &EpisodeRow| row.model.as_ref().is_some_and(|row_model| row_model != model);
        let mut has_outdated = self.first_outdated.is_some();
        let mut is_changed = false;
        for row in rows {
            if self
                .rows
                .get(&row.seq)
                .is_some_and(|existing| existing.model == row.model)
            {
                continue;
            }
            is_changed = true;
            has_outdated |= is_outdated(&row);
            self.bytes += bytes_of(&row);
            let replaced = self.rows.insert(row.seq, row);
            self.bytes -= replaced.as_ref().map_or(0, bytes_of);
        }
        while self.rows.len() > MAX_COMPARED_EPISODES {
            let oldest = self.rows.pop_first();
            self.bytes -= oldest.map_or(0, |(_, row)| bytes_of(&row));
        }
        let first_outdated = self.rows.values().find(|row| has_outdated && is_outdated(row));
        self.first_outdated = first_outdated.map(|row| row.seq);
        is_changed
    }

    fn of_turns(&self, turns: &BTreeSet<TurnId>) -> impl Iterator<Item = &EpisodeRow> {
        self.rows.values().filter(|row| turns.contains(&row.episode.turn))
    }

    /// Returns the episodes of these turns, as far as they are here.
    pub(super) fn episodes_of(&self, turns: &BTreeSet<TurnId>) -> Vec<Episode> {
        self.of_turns(turns).map(|row| row.episode.clone()).collect()
    }

    /// Returns the vectors of these turns by the embedder's model.
    pub(super) fn vectors_of(&self, turns: &BTreeSet<TurnId>, model: &str) -> HashMap<TurnId, Arc<[f32]>> {
        let rows = self.of_turns(turns).filter(|row| row.model.as_deref() == Some(model));
        rows.map(|row| (row.episode.turn, Arc::clone(&row.vector))).collect()
    }

    /// Returns the rows with a vector of the embedder's model.
    pub(super) fn of_model<'v>(&'v self, model: &'v str) -> impl Iterator<Item = &'v EpisodeRow> {
        let rows = self.rows.values();
        rows.filter(move |row| row.model.as_deref() == Some(model))
    }
}

fn bytes_of(row: &EpisodeRow) -> usize {
    ROW_BYTES + row.episode.text.len() + 4 * row.vector.len()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use colloquy_core::ids::{DialogueId, DialogueKind};
    use colloquy_memory::{disclosure::locks::DisclosureLocks, fact::Importance};

    fn row(seq: i64) -> EpisodeRow {
        EpisodeRow {
            seq,
            episode: Episode {
                turn: turn(seq),
                dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
                number: 1,
                world: "vale".parse().expect("an id"),
                npc: "mira".parse().expect("an id"),
                player: "p1".parse().expect("an id"),
                place: None,
                text: "They met.".to_owned(),
                importance: Importance::from_clamped(3.0),
                locks: DisclosureLocks::default(),
                committed_at: DateTime::UNIX_EPOCH,
            },
            model: Some("m".to_owned()),
            vector: [1.0].into(),
        }
    }

    fn turn(seq: i64) -> TurnId {
        TurnId::from_u128(seq.unsigned_abs().into())
    }

    #[test]
    fn latest_rows_stay() {
        let most = i64::try_from(MAX_COMPARED_EPISODES).unwrap_or(i64::MAX);
        let mut episodes = PairEpisodes::default();
        assert!(episodes.add((1..=most).rev().map(row).collect(), "m"));
        assert!(episodes.add(vec![row(most + 2), row(most + 1), row(most)], "m"));
        assert!(!episodes.add(vec![row(most + 2), row(most)], "m"), "known rows");
        assert_eq!(episodes.read_after(), most - 2);
        assert_eq!(episodes.bytes, MAX_COMPARED_EPISODES * bytes_of(&row(1)));
        assert_eq!(episodes.of_model("m").count(), MAX_COMPARED_EPISODES);
        assert_eq!(episodes.of_model("other").count(), 0);
        let wanted = [turn(2), turn(3), turn(most)].into();
        let found: Vec<i64> = episodes.of_turns(&wanted).map(|row| row.seq).collect();
        assert_eq!(found, [3, most]);
    }

    #[test]
    fn rows_without_a_vector_of_the_embedder_are_read_again() {
        let of = |seq, model: &str| EpisodeRow {
            model: Some(model.to_owned()),
            ..row(seq)
        };
        let mut episodes = PairEpisodes::default();
        episodes.add((1..=9).map(|seq| of(seq, "m")).collect(), "new");
        assert_eq!(episodes.read_after(), 0);
        let others = (1..=9).filter(|seq| *seq != 3);
        episodes.add(others.map(|seq| of(seq, "new")).collect(), "new");
        assert_eq!(episodes.read_after(), 2, "one is left");
        assert!(episodes.add(vec![of(3, "new")], "new"));
        assert_eq!(episodes.read_after(), 5);
        assert!(episodes.add(vec![of(10, "")], "new"), "without a vector");
        assert!(episodes.add((11..=19).map(|seq| of(seq, "new")).collect(), "new"));
        assert_eq!(episodes.read_after(), 9);
        assert!(episodes.add(vec![of(10, "new")], "new"));
        assert_eq!(episodes.read_after(), 15);
    }
}
