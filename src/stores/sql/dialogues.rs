//! Dialogues. `ownership` has their owners; `turns` reads and writes their turns.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::QueryBuilder;

use super::{
    context::{Db, Engine, acquire_lock, store_error},
    meetings,
    pages::{fetch_page, page_row_limit},
    rows::{Columns, to_json, to_micros, unreadable_json_error, without_nul},
    scope::LedgerLock,
    statements::{execute, fetch_all, fetch_optional},
    turns,
};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, NpcId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    directive::KeyPattern,
    disclosure::private_terms::PrivateTerms,
    fact::Cause,
    summary::Meeting,
    trace::{ScenarioTrace, TurnTrace},
    turn::{Checkpoint, Turn},
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::dialogues::{
        Dialogue, DialogueFilter, DialogueOptions, DialogueStatus, DialogueStore, KeyedTurn, OverheardConversation,
    },
};

pub(super) struct SqlDialogueStore(pub(super) Arc<Engine>);

/// The columns of [`read_dialogue`], for the table alias `$d` (with its dot).
macro_rules! dialogue_columns {
    ($d:literal) => {
        prefixed!(
            $d; id, world, npcs, player, witnesses, resume_token_hash, status, options, cause_kind, cause_id,
            created_at, updated_at, head_turn
        )
    };
}
pub(super) use dialogue_columns;

const INSERT_DIALOGUE: &str = batch!(
    "INSERT INTO dialogues
        (tenant, id, world, npcs, player, witnesses, resume_token_hash, status, created_at, updated_at, head_turn,
         options, cause_kind, cause_id, chat_key)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
    concat!(
        "INSERT INTO participants (tenant, world, npc, part, dialogue)
         SELECT $1, $3, v.value, 'speaker', $2 FROM ",
        json_texts_table!("$4"),
        " v WHERE TRUE ON CONFLICT DO NOTHING"
    ),
    concat!(
        "INSERT INTO participants (tenant, world, npc, part, dialogue)
         SELECT $1, $3, v.value, 'witness', $2 FROM ",
        json_texts_table!("$6"),
        " v WHERE TRUE ON CONFLICT DO NOTHING"
    )
);
/// Locks the turn that opens a dialogue. A concurrent rewind of the turn waits, then closes the dialogue.
const LOCK_OPENING_TURN: &str = concat!(
    "SELECT 1 FROM turns WHERE tenant = $1 AND id = $2 AND stands = TRUE",
    for_update!()
);
const DIALOGUE_BY_ID: &str = concat!(
    "SELECT ",
    dialogue_columns!(""),
    " FROM dialogues WHERE tenant = $1 AND id = $2"
);
/// Reads only dialogues in which the NPC took part, by key from there on, latest first. Ids of conversations begin with
/// their kind.
const CONVERSATIONS_HEARD: &str = "SELECT d.id, d.head_turn, d.options FROM participants p
        CROSS JOIN dialogues d CROSS JOIN turns t
    WHERE p.tenant = $1 AND p.world = $2 AND p.npc = $3 AND p.part IN ('speaker', 'witness')
      AND p.dialogue >= 'con_' AND p.dialogue < 'con`'
      AND d.tenant = $1 AND d.id = p.dialogue
      AND t.tenant = $1 AND t.id = d.head_turn_id
    ORDER BY t.committed_at DESC, d.id DESC LIMIT 64";
const CONFIDED_BY_TURN: &str = concat!(
    "SELECT ",
    member_of!("c.body", "confided"),
    " FROM turns t LEFT JOIN checkpoints c ON c.tenant = t.tenant AND c.turn = t.id
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number <= $3"
);
const SCENARIOS_BY_TURN: &str = concat!(
    "SELECT ",
    member_of!("c.body", "scenarios"),
    " FROM turns t JOIN traces c ON c.tenant = t.tenant AND c.turn = t.id
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number BETWEEN $3 AND $4
      AND ",
    member_of!("c.body", "scenarios"),
    " IS NOT NULL ORDER BY t.number"
);
const SET_RESUME_TOKEN: &str = "UPDATE dialogues SET resume_token_hash = $3 WHERE tenant = $1 AND id = $2";
const HEAD_CHECKPOINT: &str = "SELECT c.body FROM dialogues d
    LEFT JOIN checkpoints c ON c.tenant = d.tenant AND c.turn = d.head_turn_id
    WHERE d.tenant = $1 AND d.id = $2";

const fn status_name(status: DialogueStatus) -> &'static str {
    match status {
        DialogueStatus::Open => "open",
        DialogueStatus::Closed => "closed",
    }
}

pub(super) fn read_dialogue(columns: &mut Columns<'_>) -> StoreResult<Dialogue> {
    Ok(Dialogue {
        id: columns.id()?,
        world: columns.id()?,
        npcs: columns.json()?,
        player: columns.maybe_id()?,
        witnesses: columns.json()?,
        resume_token_hash: columns.next()?,
        status: columns.named([DialogueStatus::Open, DialogueStatus::Closed], status_name)?,
        options: columns.json()?,
        cause: columns.maybe_cause()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
        head_turn: columns.number()?,
    })
}

/// Parses a checkpoint; without a row, no turn stands yet and the default applies.
pub(super) fn parse_checkpoint(body: Option<&str>) -> StoreResult<Checkpoint> {
    body.map_or_else(
        || Ok(Checkpoint::default()),
        |body| serde_json::from_str(body).map_err(unreadable_json_error),
    )
}

fn push_kind(query: &mut QueryBuilder<Db>, kind: DialogueKind) {
    // Ids begin with their kind, and `_` sorts before every letter that could follow the prefix.
    let (from, below) = match kind {
        DialogueKind::Session => ("ses_", "ses`"),
        DialogueKind::NpcConversation => ("con_", "con`"),
    };
    query.push(" AND id >= ").push_bind(from);
    query.push(" AND id < ").push_bind(below);
}

fn push_key_pattern(query: &mut QueryBuilder<Db>, tenant: &str, pattern: &KeyPattern) {
    const ESCAPED: &str = " ESCAPE '\\'";
    query
        .push(" AND world LIKE ")
        .push_bind(to_like_pattern(&pattern.world))
        .push(ESCAPED);
    if let Some(npc) = &pattern.npc {
        query
            .push(" AND id IN (SELECT dialogue FROM participants WHERE part = 'speaker' AND tenant = ")
            .push_bind(tenant.to_owned())
            .push(" AND npc LIKE ")
            .push_bind(to_like_pattern(npc))
            .push(ESCAPED)
            .push(")");
    }
    if let Some((kind, id)) = &pattern.dialogue {
        push_kind(query, *kind);
        query.push(" AND id LIKE ").push_bind(to_like_pattern(id)).push(ESCAPED);
    }
}

/// Returns the pattern of `LIKE` for a part of a key pattern.
fn to_like_pattern(part: &str) -> String {
    part.replace('_', "\\_").replace('*', "%").replace('?', "_")
}

/// Adds the conditions on the NPCs that speak or hear.
fn push_participants(query: &mut QueryBuilder<Db>, tenant: &str, filter: &DialogueFilter) {
    let parts = [
        (
            &filter.npc,
            " AND id IN (SELECT dialogue FROM participants WHERE part = 'speaker' AND tenant = ",
        ),
        (
            &filter.heard_by,
            " AND id IN (SELECT dialogue FROM participants WHERE tenant = ",
        ),
    ];
    for (npc, among) in parts {
        let Some(npc) = npc else { continue };
        query
            .push(among)
            .push_bind(tenant.to_owned())
            .push(" AND npc = ")
            .push_bind(npc.as_str().to_owned());
        if let Some(world) = &filter.world {
            query.push(" AND world = ").push_bind(world.as_str().to_owned());
        }
        query.push(")");
    }
}

fn list_query(scope: &TenantScope, filter: &DialogueFilter, page: &PageRequest) -> QueryBuilder<Db> {
    let tenant = scope.tenant().as_str();
    let mut query = QueryBuilder::new(concat!(
        "SELECT ",
        dialogue_columns!(""),
        " FROM dialogues WHERE tenant = "
    ));
    query.push_bind(tenant.to_owned());
    if let Some(world) = &filter.world {
        query.push(" AND world = ").push_bind(world.as_str().to_owned());
    }
    if let Some(player) = &filter.player {
        query.push(" AND player = ").push_bind(player.as_str().to_owned());
    }
    if let Some(chat_key) = &filter.chat_key {
        query.push(" AND chat_key = ").push_bind(chat_key.clone());
    }
    if let Some(status) = filter.status {
        query.push(" AND status = ").push_bind(status_name(status));
    }
    if let Some(kind) = filter.kind {
        push_kind(&mut query, kind);
    }
    push_participants(&mut query, tenant, filter);
    if let Some(pattern) = &filter.key {
        push_key_pattern(&mut query, tenant, pattern);
    }
    if let Some(after) = &page.after {
        query
            .push(" AND (created_at, id) < (SELECT created_at, id FROM dialogues WHERE tenant = ")
            .push_bind(tenant.to_owned())
            .push(" AND id = ")
            .push_bind(without_nul(after).into_owned())
            .push(")");
    }
    query
        .push(" ORDER BY created_at DESC, id DESC LIMIT ")
        .push_bind(page_row_limit(page));
    query
}

#[async_trait]
impl DialogueStore for SqlDialogueStore {
    async fn create_dialogue(&self, scope: &TenantScope, dialogue: &Dialogue) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let dialogue = dialogue.clone();
        let npcs = to_json(&dialogue.npcs)?;
        let witnesses = to_json(&dialogue.witnesses)?;
        let options = to_json(&dialogue.options)?;
        write_transaction!(self.0, scope, |connection| {
            // During a restore the insert waits, so the restore does not affect the new dialogue.
            acquire_lock(connection, &tenant, LedgerLock::NewDialogue(&dialogue.world)).await?;
            if let Some(Cause::Turn(turn)) = dialogue.cause {
                let opening_turn = fetch_optional!(connection, LOCK_OPENING_TURN; tenant, turn).await?;
                if opening_turn.is_none() {
                    return Ok(false);
                }
            }
            let (cause_kind, cause_id) = dialogue.cause.map(|cause| cause.to_columns()).unzip();
            execute!(
                connection, INSERT_DIALOGUE;
                tenant, dialogue.id, dialogue.world, npcs, dialogue.player, witnesses, dialogue.resume_token_hash,
                status_name(dialogue.status), to_micros(dialogue.created_at), to_micros(dialogue.updated_at),
                i64::from(dialogue.head_turn), options, cause_kind, cause_id, dialogue.options.chat_key
            )
            .await?;
            Ok(true)
        })
        .await
    }
    async fn load_dialogue(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Dialogue>> {
        let query = bind!(DIALOGUE_BY_ID; scope.tenant(), id);
        self.0.fetch_optional(scope, query, read_dialogue).await
    }
    async fn list_dialogues(
        &self,
        scope: &TenantScope,
        filter: &DialogueFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Dialogue>> {
        let mut query = list_query(scope, filter, page);
        fetch_page(&self.0, scope, query.build(), page, read_dialogue, |dialogue| {
            dialogue.id.to_string()
        })
        .await
    }
    async fn find_last_overheard(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Option<OverheardConversation>> {
        let mut connection = self.0.acquire_reader(scope).await?;
        let mut rows = bind!(CONVERSATIONS_HEARD; scope.tenant(), world, npc).fetch(&mut *connection);
        // Reading stops at the first conversation that is open to the player.
        while let Some(row) = rows.try_next().await.map_err(store_error)? {
            let mut columns = Columns::new(&row);
            let conversation = OverheardConversation {
                dialogue: columns.id()?,
                last: columns.number()?,
                watchers: columns.json::<DialogueOptions>()?.watchers(),
            };
            if player.is_none_or(|player| conversation.watchers.includes_player(player)) {
                return Ok(Some(conversation));
            }
        }
        Ok(None)
    }
    async fn find_last_meeting(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: &PlayerId,
        apart_from: DialogueId,
        unlocked: bool,
    ) -> StoreResult<Option<Meeting>> {
        let query = sqlx::query(meetings::LAST_MEETINGS);
        let query = meetings::bind_last_meeting(query, scope, world, npc, player, apart_from, unlocked);
        let rows = fetch_all(&mut *self.0.acquire_reader(scope).await?, query).await?;
        meetings::read_last_meeting(rows.iter().map(Columns::new))
    }
    async fn set_resume_token(&self, scope: &TenantScope, id: DialogueId, hash: &[u8]) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let hash = hash.to_vec();
        write_transaction!(self.0, scope, |connection| {
            Ok(execute!(connection, SET_RESUME_TOKEN; tenant, id, hash).await? == 1)
        })
        .await
    }

    async fn load_turns(&self, scope: &TenantScope, id: DialogueId, from: u32, to: u32) -> StoreResult<Vec<Turn>> {
        let query = bind!(turns::STANDING_TURNS; scope.tenant(), id, i64::from(from), i64::from(to));
        let turns = self.0.fetch_all(scope, query, turns::read_turn).await?;
        Ok(turns.into_iter().map(|keyed| keyed.turn).collect())
    }
    async fn list_unsaid_turns(&self, scope: &TenantScope, id: DialogueId, limit: usize) -> StoreResult<Vec<Turn>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = bind!(turns::UNSAID_TURNS; scope.tenant(), id, limit);
        let turns = self.0.fetch_all(scope, query, turns::read_turn).await?;
        Ok(turns.into_iter().map(|keyed| keyed.turn).collect())
    }
    async fn load_turn(&self, scope: &TenantScope, id: TurnId) -> StoreResult<Option<KeyedTurn>> {
        let query = bind!(turns::TURN_BY_ID; scope.tenant(), id);
        self.0.fetch_optional(scope, query, turns::read_turn).await
    }
    async fn load_turn_by_key(&self, scope: &TenantScope, id: DialogueId, key: &str) -> StoreResult<Option<KeyedTurn>> {
        let query = bind!(turns::TURN_BY_KEY; scope.tenant(), id, key);
        self.0.fetch_optional(scope, query, turns::read_turn).await
    }
    async fn list_turn_keys(&self, scope: &TenantScope, id: DialogueId, limit: usize) -> StoreResult<Vec<String>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = bind!(turns::KEYS_OF_DIALOGUE; scope.tenant(), id, limit);
        self.0.fetch_all(scope, query, |columns| columns.next()).await
    }
    async fn load_trace(&self, scope: &TenantScope, id: DialogueId, number: u32) -> StoreResult<Option<TurnTrace>> {
        let query = bind!(turns::TRACE_OF_TURN; scope.tenant(), id, i64::from(number));
        self.0.fetch_optional(scope, query, |columns| columns.json()).await
    }
    async fn load_traced_scenarios(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<ScenarioTrace>> {
        let query = bind!(SCENARIOS_BY_TURN; scope.tenant(), id, i64::from(from), i64::from(to));
        let of_turns: Vec<Vec<ScenarioTrace>> = self.0.fetch_all(scope, query, |columns| columns.json()).await?;
        Ok(of_turns.into_iter().flatten().collect())
    }
    async fn load_confided(&self, scope: &TenantScope, id: DialogueId, last: u32) -> StoreResult<Option<PrivateTerms>> {
        let query = bind!(CONFIDED_BY_TURN; scope.tenant(), id, i64::from(last));
        let of_turns = self.0.fetch_all(scope, query, |columns| columns.maybe_json()).await?;
        Ok(of_turns
            .into_iter()
            .try_fold(PrivateTerms::default(), |mut terms, of_turn| {
                terms.extend_with(&of_turn?);
                Some(terms)
            }))
    }
    async fn load_checkpoint(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Checkpoint>> {
        let query = bind!(HEAD_CHECKPOINT; scope.tenant(), id);
        self.0
            .fetch_optional(scope, query, |columns| parse_checkpoint(columns.next()?))
            .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn dialogues_are_found_by_key_and_listed_by_index() {
            for statement in [DIALOGUE_BY_ID, HEAD_CHECKPOINT] {
                assert_searches(statement, &["sqlite_autoindex_dialogues_1 (tenant=? AND id=?)"]).await;
            }
            let indexes = ["turns_standing (tenant=? AND dialogue=? AND number<?)", "(tenant=? AND turn=?)"];
            assert_searches(CONFIDED_BY_TURN, &indexes).await;
            let indexes = ["turns_standing (tenant=? AND dialogue=? AND number>? AND number<?)", "(tenant=? AND turn=?)"];
            assert_searches(SCENARIOS_BY_TURN, &indexes).await;
            let of_npc = "tenant=? AND world=? AND npc=? AND part=? AND dialogue>? AND dialogue<?";
            assert_searches(
                CONVERSATIONS_HEARD,
                &[
                    of_npc,
                    "sqlite_autoindex_dialogues_1 (tenant=? AND id=?)",
                    "sqlite_autoindex_turns_1 (tenant=? AND id=?)",
                ],
            )
            .await;
            let scope = TenantScope::new("studio".parse().unwrap());
            let page = PageRequest {
                limit: 9,
                after: Some("ses_x".to_owned()),
            };
            let of_player = DialogueFilter {
                player: Some("p7".parse().unwrap()),
                ..DialogueFilter::default()
            };
            let of_talk = DialogueFilter {
                chat_key: Some("night".to_owned()),
                world: Some("vale".parse().unwrap()),
                npc: Some("ergen".parse().unwrap()),
                ..of_player.clone()
            };
            for (filter, index) in [
                (DialogueFilter::default(), "dialogues_newest"),
                (of_player, "dialogues_of_player"),
                (of_talk, "dialogues_of_talk (tenant=? AND player=? AND chat_key=?"),
            ] {
                let query = list_query(&scope, &filter, &page);
                assert_searches(query.sql().as_str(), &[index]).await;
                assert!(!plan(query.sql().as_str()).await.contains("TEMP B-TREE"));
            }
        }
    }
}
