//! Episodes. A reconciliation, or the commit of a turn, inserts them; `rewinds::derived_rows` takes them back and reinstates
//! them.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    context::{Connection, Engine},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, json_list, parse_text, to_micros, vector_to_bytes, without_nul},
    statements::{BoundQuery, execute, fetch_all},
};
use colloquy_core::{
    ids::{TenantId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{episode::Episode, fact::Importance};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::episodes::{
        EmbeddedEpisode, EpisodePair, EpisodeRequest, EpisodeRow, EpisodeStore, EpisodeVector, FoundEpisodes,
    },
};

pub(super) struct SqlEpisodeStore(pub(super) Arc<Engine>);

/// The columns of [`read_episode`].
macro_rules! episode_columns {
    () => {
        "cause_id, dialogue, number, world, npc, player, place, text, importance, locked_by, at"
    };
}
macro_rules! of_pair {
    () => {
        "episodes WHERE tenant = $1 AND world = $2 AND npc = $3 AND player = $4"
    };
}

/// Inserts an episode. `$values` are the values of the columns in their order, in a SELECT. A turn has one episode: a second
/// changes nothing, but counts as a changed row.
macro_rules! insert_episode_row {
    ($values:literal, $when:expr) => {
        concat!(
            "INSERT INTO episodes (tenant, world, npc, dialogue, number, at, cause_kind, cause_id, player, place, text,
                importance, locked_by, embedding_model, embedding)
             SELECT ",
            $values,
            " WHERE ",
            $when,
            " ON CONFLICT (tenant, cause_id) DO UPDATE SET text = episodes.text"
        )
    };
}
pub(super) use insert_episode_row;

const INSERT_EPISODE: &str = insert_episode_row!(
    "$1, $2, $3, $4, $5, $6, 'turn', $7, $8, $9, $10, $11, $12, $13, $14",
    "TRUE"
);
/// A shortened turn without an extraction keeps the episode.
const COPY_EPISODE: &str = "INSERT INTO episodes (tenant, world, npc, player, dialogue, number, place, text, importance,
        locked_by, at, embedding_model, embedding, cause_kind, cause_id)
    SELECT tenant, world, npc, player, dialogue, number, place, text, importance, locked_by, at, embedding_model, embedding,
        cause_kind, $3 FROM episodes WHERE tenant = $1 AND cause_id = $2
    ON CONFLICT (tenant, cause_id) DO NOTHING";
/// Rows come first: their columns decide the types of the others. The turns of standing episodes are read from indexes alone.
pub(super) const FIND_EPISODES: &str = concat!(
    "SELECT seq, embedding_model, embedding, ",
    episode_columns!(),
    " FROM (SELECT seq, embedding_model, embedding, ",
    episode_columns!(),
    " FROM ",
    of_pair!(),
    " AND seq > $5 ORDER BY seq DESC LIMIT $6) v
     UNION ALL SELECT NULL, NULL, NULL, string_agg(cause_id, ','), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
     FROM (SELECT cause_id FROM ",
    of_pair!(),
    " AND lifted_at IS NULL ORDER BY at DESC, cause_id DESC LIMIT $7) r
     UNION ALL SELECT NULL, NULL, NULL, string_agg(cause_id, ','), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
     FROM (SELECT cause_id FROM ",
    of_pair!(),
    " AND lifted_at IS NULL AND importance >= $8 ORDER BY importance DESC, at DESC, cause_id DESC LIMIT $9) i"
);
const STANDING_EPISODES: &str = concat!(
    "SELECT ",
    episode_columns!(),
    " FROM episodes WHERE tenant = $1 AND ",
    unindexed!("world"),
    " = $2 AND ",
    unindexed!("npc"),
    " = $3 AND ",
    unindexed!("player"),
    " = $4 AND lifted_at IS NULL AND cause_id ",
    in_json_list!("$5")
);
const LIST_EPISODES: &str = concat!(
    "SELECT ",
    episode_columns!(),
    " FROM ",
    of_pair!(),
    " AND lifted_at IS NULL AND ($5 IS NULL OR (at, cause_id) < (
            SELECT c.at, c.cause_id FROM episodes c WHERE c.tenant = $1 AND c.cause_id = $5))
      ORDER BY at DESC, cause_id DESC LIMIT $6"
);
const UNEMBEDDED: &str = "SELECT cause_id, text FROM episodes
    WHERE tenant = $1 AND cause_id > $2 AND embedding_model <> $3 ORDER BY cause_id LIMIT $4";
const STORE_EMBEDDING: &str = "UPDATE episodes SET embedding_model = $3, embedding = $4
    WHERE tenant = $1 AND cause_id = $2 AND embedding_model <> $3";

/// Inserts an episode, unless its turn has one.
pub(super) async fn insert_episode(
    connection: &mut Connection,
    tenant: &TenantId,
    embedded: &EmbeddedEpisode,
) -> StoreResult<()> {
    let episode = &embedded.episode;
    let inserting = bind!(
        INSERT_EPISODE;
        tenant, episode.world, episode.npc, episode.dialogue, i64::from(episode.number),
        to_micros(episode.committed_at), episode.turn
    );
    execute(connection, bind_episode(inserting, embedded)).await.map(drop)
}

/// Binds the columns of an episode from the player on.
pub(super) fn bind_episode<'q>(query: BoundQuery<'q>, embedded: &EmbeddedEpisode) -> BoundQuery<'q> {
    let EmbeddedEpisode { episode, vector } = embedded;
    let place = episode.place.as_deref().map(|place| without_nul(place).into_owned());
    // No name of a model is empty, so a missing vector counts as that of another model.
    let (model, vector) = match vector {
        EpisodeVector::NotCompared => (None, None),
        EpisodeVector::Missing => (Some(String::new()), None),
        EpisodeVector::Stored(embedding) => (
            Some(without_nul(&embedding.model).into_owned()),
            Some(vector_to_bytes(&embedding.vector)),
        ),
    };
    query
        .bind(episode.player.to_string())
        .bind(place)
        .bind(without_nul(&episode.text).into_owned())
        .bind(i64::from(episode.importance.get()))
        .bind(episode.locks.to_string())
        .bind(model)
        .bind(vector)
}

/// Gives a turn that replaces another the episode of the other, if there is one.
pub(super) async fn copy_episode(
    connection: &mut Connection,
    tenant: &TenantId,
    source: TurnId,
    target: TurnId,
) -> StoreResult<()> {
    execute!(connection, COPY_EPISODE; tenant, source, target)
        .await
        .map(drop)
}

fn read_episode(columns: &mut Columns<'_>) -> StoreResult<Episode> {
    Ok(Episode {
        turn: columns.id()?,
        dialogue: columns.id()?,
        number: columns.number()?,
        world: columns.id()?,
        npc: columns.id()?,
        player: columns.id()?,
        place: columns.next()?,
        text: columns.next()?,
        importance: {
            let importance = columns.number()?;
            Importance::new(importance).ok_or_else(|| StoreError::Corrupt(format!("{importance} is no importance")))?
        },
        locks: columns.id()?,
        committed_at: columns.time()?,
    })
}

/// Binds the values of [`FIND_EPISODES`].
pub(super) fn bind_episode_request<'q>(
    query: BoundQuery<'q>,
    scope: &TenantScope,
    request: &EpisodeRequest<'_>,
) -> BoundQuery<'q> {
    let EpisodeRequest { pair, .. } = *request;
    bind_to!(
        query;
        scope.tenant(), pair.world, pair.npc, pair.player, request.after, i64::from(request.rows),
        i64::from(request.recent), i64::from(request.min_importance), i64::from(request.important)
    )
}

/// Reads the rows of [`FIND_EPISODES`].
pub(super) fn read_found_episodes<'r>(rows: impl Iterator<Item = Columns<'r>>) -> StoreResult<FoundEpisodes> {
    let mut episodes = FoundEpisodes::default();
    for mut columns in rows {
        let seq: Option<i64> = columns.next()?;
        let model: Option<String> = columns.next()?;
        let vector = columns.maybe_vector()?;
        if let Some(seq) = seq {
            episodes.rows.push(EpisodeRow {
                seq,
                model,
                vector: vector.into(),
                episode: read_episode(&mut columns)?,
            });
            continue;
        }
        let turns: Option<&str> = columns.next()?;
        for turn in turns.into_iter().flat_map(|turns| turns.split(',')) {
            episodes.standing.insert(parse_text(turn)?);
        }
    }
    Ok(episodes)
}

#[async_trait]
impl EpisodeStore for SqlEpisodeStore {
    async fn find_episodes(&self, scope: &TenantScope, request: &EpisodeRequest<'_>) -> StoreResult<FoundEpisodes> {
        let query = bind_episode_request(sqlx::query(FIND_EPISODES), scope, request);
        let rows = fetch_all(&mut *self.0.acquire_reader(scope).await?, query).await?;
        read_found_episodes(rows.iter().map(Columns::new))
    }
    async fn load_standing_episodes(
        &self,
        scope: &TenantScope,
        pair: EpisodePair<'_>,
        turns: &[TurnId],
    ) -> StoreResult<Vec<Episode>> {
        let query = bind!(
            STANDING_EPISODES;
            scope.tenant(), pair.world, pair.npc, pair.player, json_list(turns)
        );
        self.0.fetch_all(scope, query, read_episode).await
    }
    async fn list_episodes(
        &self,
        scope: &TenantScope,
        pair: EpisodePair<'_>,
        page: &PageRequest,
    ) -> StoreResult<Page<Episode>> {
        let query = bind!(
            LIST_EPISODES;
            scope.tenant(), pair.world, pair.npc, pair.player, page_cursor(page),
            page_row_limit(page)
        );
        fetch_page(&self.0, scope, query, page, read_episode, |episode| {
            episode.turn.to_string()
        })
        .await
    }
    async fn list_unembedded(
        &self,
        scope: &TenantScope,
        model: &str,
        after: Option<TurnId>,
        limit: u32,
    ) -> StoreResult<Vec<(TurnId, String)>> {
        let after = after.map(|turn| turn.to_string()).unwrap_or_default();
        let query = bind!(UNEMBEDDED; scope.tenant(), after, without_nul(model), i64::from(limit));
        self.0
            .fetch_all(scope, query, |columns| Ok((columns.id()?, columns.next()?)))
            .await
    }
    async fn store_embeddings(
        &self,
        scope: &TenantScope,
        model: &str,
        vectors: &[(TurnId, Vec<f32>)],
    ) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let model = without_nul(model).into_owned();
        let vectors = vectors.to_vec();
        write_transaction!(self.0, scope, |connection| {
            for (turn, vector) in &vectors {
                execute!(connection, STORE_EMBEDDING; tenant, turn, model, vector_to_bytes(vector)).await?;
            }
            Ok(())
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn episodes_are_found_in_index_order() {
            let found = plan(FIND_EPISODES).await;
            for part in ["episodes_in_order (", "episodes_of_pair (", "episodes_by_importance ("] {
                assert!(found.contains(part), "no `{part}` in\n{found}");
            }
            let listed = plan(LIST_EPISODES).await;
            assert!(listed.contains("episodes_of_pair ("), "{listed}");
            for plan in [found, listed] {
                assert!(!plan.contains("TEMP B-TREE"), "{plan}");
            }
            assert_searches(STANDING_EPISODES, &["episodes_by_cause (tenant=? AND cause_id=?)"]).await;
            assert_searches(UNEMBEDDED, &["episodes_by_cause (tenant=? AND cause_id>?)"]).await;
            assert_searches(STORE_EMBEDDING, &["episodes_by_cause"]).await;
        }
    }
}
