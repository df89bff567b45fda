//! The vectors of episodes in this node's memory. Vectors of a pair never change while they are here, so a turn reads only
//! those written since, and the last few again: a write with a lower `seq` may be committed later. Whether an episode stands is
//! asked of the ledger.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use moka::sync::Cache;

use colloquy_core::{
    ids::{NpcId, PlayerId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::episode::MAX_COMPARED_EPISODES;
use colloquy_ports::ledger::episodes::{EpisodePair, EpisodeVector};

/// The size of all cached vectors of a node, in bytes.
const MAX_CACHED_BYTES: u64 = 128 * 1024 * 1024;
/// The size of a vector besides its numbers, in bytes.
const ENTRY_BYTES: usize = 128;
/// Vectors that no turn has added to for this time leave memory.
const REREAD_AFTER: Duration = Duration::from_mins(10);

/// The number of the last vectors that every turn reads again. So many episodes of one pair are not written while the write
/// of another lasts.
const REREAD_ROWS: usize = 4;

type PairKey = (TenantId, WorldId, NpcId, PlayerId);

/// The vectors of the pairs that spoke last.
pub(crate) struct EpisodeCache(Cache<PairKey, Arc<PairVectors>>);

impl Default for EpisodeCache {
    fn default() -> Self {
        let bytes = |_: &_, pair: &Arc<PairVectors>| u32::try_from(pair.bytes()).unwrap_or(u32::MAX);
        let cache = Cache::builder()
            .weigher(bytes)
            .max_capacity(MAX_CACHED_BYTES)
            .time_to_live(REREAD_AFTER);
        Self(cache.build())
    }
}

impl EpisodeCache {
    /// Returns the vectors of a pair that this node has, perhaps none.
    pub(super) fn cached_vectors(&self, scope: &TenantScope, pair: EpisodePair<'_>) -> Arc<PairVectors> {
        self.0.get(&key_of(scope, pair)).unwrap_or_default()
    }

    /// Adds vectors that were read after `known`, and returns all.
    pub(super) fn add_vectors(
        &self,
        scope: &TenantScope,
        pair: EpisodePair<'_>,
        known: Arc<PairVectors>,
        read: Vec<EpisodeVector>,
    ) -> Arc<PairVectors> {
        if read.iter().all(|row| known.has(row)) {
            return known;
        }
        let mut vectors = PairVectors::clone(&known);
        vectors.add(read);
        let vectors = Arc::new(vectors);
        self.0.insert(key_of(scope, pair), Arc::clone(&vectors));
        vectors
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

/// The latest vectors of a pair, at most [`MAX_COMPARED_EPISODES`]. Their episodes may be lifted.
#[derive(Debug, Clone, Default)]
pub(crate) struct PairVectors {
    /// By `seq`.
    rows: BTreeMap<i64, Arc<EpisodeVector>>,
}

impl PairVectors {
    /// Returns the `seq` after which vectors are read: that of the last vector but [`REREAD_ROWS`]; 0 for few vectors, and as
    /// long as a vector is of another model.
    pub(super) fn read_after(&self, model: &str) -> i64 {
        if self.rows.values().any(|row| row.model != model) {
            return 0;
        }
        self.rows.keys().rev().nth(REREAD_ROWS).map_or(0, |seq| *seq)
    }
    fn has(&self, row: &EpisodeVector) -> bool {
        let known = self.rows.get(&row.seq);
        known.is_some_and(|known| known.model == row.model)
    }

    fn add(&mut self, read: Vec<EpisodeVector>) {
        self.rows.extend(read.into_iter().map(|row| (row.seq, Arc::new(row))));
        while self.rows.len() > MAX_COMPARED_EPISODES {
            self.rows.pop_first();
        }
    }

    /// Returns the vectors of the embedder's model.
    pub(super) fn of_model<'v>(&'v self, model: &'v str) -> impl Iterator<Item = (TurnId, &'v Arc<[f32]>)> {
        let rows = self.rows.values().filter(move |row| row.model == model);
        rows.map(|row| (row.turn, &row.vector))
    }

    fn bytes(&self) -> usize {
        self.rows.values().map(|row| ENTRY_BYTES + 4 * row.vector.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: i64) -> EpisodeVector {
        EpisodeVector {
            seq,
            turn: TurnId::from_u128(seq.unsigned_abs().into()),
            model: "m".to_owned(),
            vector: [1.0].into(),
        }
    }

    #[test]
    fn latest_vectors_stay() {
        let most = i64::try_from(MAX_COMPARED_EPISODES).unwrap_or(i64::MAX);
        let mut vectors = PairVectors::default();
        vectors.add((1..=most).rev().map(row).collect());
        vectors.add(vec![row(most + 2), row(most + 1)]);
        assert_eq!(vectors.read_after("m"), most - 2);
        assert_eq!(vectors.read_after("another"), 0);
        assert!(vectors.has(&row(most + 2)) && !vectors.has(&row(2)));
        assert_eq!(vectors.of_model("m").count(), MAX_COMPARED_EPISODES);
        assert_eq!(vectors.of_model("other").count(), 0);
        let first = vectors.of_model("m").next().map(|(turn, _)| turn);
        assert_eq!(first, Some(TurnId::from_u128(3)));
    }
}
