//! Curation passes with their findings and decisions; `rewinds::derived_rows` takes them back and reinstates them.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, NaiveTime, TimeDelta, Utc};

use super::{
    audit,
    context::{Connection, Engine, acquire_lock},
    facts::pass_facts,
    insights::{self, player_column},
    job_fence::pass_fence,
    jobs,
    joint_read::JointRead,
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_json, to_micros, without_nul},
    scope::LedgerLock,
    statements::{BoundQuery, execute, fetch_optional, fetch_scalar},
    turns,
    webhooks::events::{Event, finding_event, write_events},
};
use colloquy_core::{
    ids::{DialogueId, FindingId, JobId, PlayerId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    curation::{CurationPass, Decision, Finding, FindingKind, PassMethod, StandingDecision},
    disclosure::locks::DisclosureLocks,
    state::StateChange,
    trace::StoryPart,
};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::{
        audit::Edit,
        curation::{
            CarriedCuration, CarriedSentence, CurationStore, DialogueCuration, FindingFilter, ModelDecision,
            PassCommit, PassFactQuery, PassFacts, PersonDecision, PlayerPasses, StoryRow,
        },
        dialogues::Dialogue,
    },
};

/// What a pass is shown of a player's other sessions: open findings, notes of the newest sessions, unread turns, and the
/// newest events and notes of state blocks.
const MAX_CARRIED_FINDINGS: u32 = 20;
const MAX_CARRIED_PASSES: u32 = 3;
const MAX_CARRIED_TURNS: u32 = 12;
const MAX_CARRIED_SENTENCES: u32 = 5;
/// The most findings and notes of a turn's story.
const MAX_STORY_ROWS: u32 = 12;

pub(super) struct SqlCurationStore(pub(super) Arc<Engine>);

/// The columns of [`read_pass`].
macro_rules! select_passes {
    ($rest:expr) => {
        concat!(
            "SELECT id, world, dialogue, from_turn, to_turn, method, steps, memory, at FROM curation_passes WHERE tenant = $1 ",
            $rest
        )
    };
}
/// The decision about the finding `f` that counts: a person's before the model's, and then the last one.
macro_rules! decision_that_counts {
    () => {
        "(SELECT c.seq FROM curation_decisions c WHERE c.tenant = $1 AND c.finding = f.id AND c.lifted_at IS NULL
            ORDER BY CASE WHEN c.decided_by IS NULL THEN 1 ELSE 0 END, c.seq DESC LIMIT 1)"
    };
}
/// The columns of [`read_finding`]: findings with the decision that counts.
macro_rules! select_findings {
    ($rest:expr) => {
        concat!(
            "SELECT f.id, f.world, f.dialogue, f.kind, f.text, f.turns, f.at, d.decision, d.reason, d.decided_by, d.at
             FROM curation_findings f CROSS JOIN curation_decisions d
             WHERE f.tenant = $1 AND f.lifted_at IS NULL AND d.tenant = $1 AND d.seq = ",
            decision_that_counts!(),
            " ",
            $rest
        )
    };
}

const LAST_PASS: &str = select_passes!("AND dialogue = $2 AND lifted_at IS NULL ORDER BY to_turn DESC LIMIT 1");
/// Findings that wait for a decision, and those with a person's decision, come before newer ones.
const LATEST_FINDINGS: &str = select_findings!(
    "AND f.dialogue = $2
     ORDER BY CASE WHEN d.decision = 'open' OR d.decided_by IS NOT NULL THEN 0 ELSE 1 END, f.id DESC LIMIT $3"
);
const FINDING_BY_ID: &str = select_findings!("AND f.id = $2");
const LIST_FINDINGS: &str = select_findings!(
    "AND f.world = $2 AND f.id < CASE WHEN $3 IS NULL THEN '~' ELSE $3 END AND f.dialogue = COALESCE($4, f.dialogue)
        AND f.kind = COALESCE($5, f.kind) AND d.decision = COALESCE($6, d.decision)
     ORDER BY f.id DESC LIMIT $7"
);
/// `turns` is a JSON array of numbers without spaces.
const FINDINGS_OF_TURN: &str = select_findings!(
    "AND f.dialogue = $2 AND replace(replace(f.turns, '[', ','), ']', ',') LIKE $3 ORDER BY f.id LIMIT $4"
);
const LIST_PASSES: &str = select_passes!(
    "AND world = $2 AND id < CASE WHEN $3 IS NULL THEN '~' ELSE $3 END AND dialogue = COALESCE($4, dialogue)
        AND lifted_at IS NULL ORDER BY id DESC LIMIT $5"
);
/// The newest other sessions of the player `$2` with the NPCs `$4`. `|| ''` keeps SQLite from the index of the world's
/// sessions: those of the player are fewer.
macro_rules! other_sessions {
    ($rest:literal) => {
        in_subquery!(concat!(
            "SELECT o.id FROM dialogues o WHERE o.tenant = $1 AND o.player = $2 AND o.world || '' = $3 AND o.npcs = $4
                AND o.id <> $5 AND o.created_at <= $6 ",
            $rest,
            " ORDER BY o.created_at DESC, o.id DESC LIMIT 20"
        ))
    };
}
const CARRIED_FINDINGS: &str = select_findings!(concat!(
    "AND f.at <= $6 AND d.decision = 'open' AND d.decided_by IS NULL AND f.dialogue ",
    other_sessions!(""),
    " ORDER BY f.id DESC LIMIT $7"
));
const CARRIED_PASSES: &str = select_passes!(concat!(
    "AND lifted_at IS NULL AND at <= $6 AND memory <> '' AND dialogue ",
    other_sessions!(""),
    " AND NOT EXISTS (SELECT 1 FROM curation_passes n WHERE n.tenant = $1 AND n.dialogue = curation_passes.dialogue
        AND n.lifted_at IS NULL AND n.at <= $6 AND n.to_turn > curation_passes.to_turn)
      ORDER BY at DESC, id DESC LIMIT $7"
));
/// `$7`: the time of the dialogue's own last pass.
const CARRIED_TURNS: &str = concat!(
    "SELECT ",
    turns::turn_columns!(),
    " FROM turns t WHERE t.tenant = $1 AND t.stands = TRUE AND t.committed_at <= $6 AND t.committed_at > $7 AND t.dialogue ",
    other_sessions!("AND o.status <> 'open'"),
    " AND NOT EXISTS (SELECT 1 FROM curation_passes p WHERE p.tenant = $1 AND p.dialogue = t.dialogue
            AND p.lifted_at IS NULL AND p.to_turn >= t.number)
      AND NOT EXISTS (SELECT 1 FROM curation_passes p WHERE p.tenant = $1 AND p.lifted_at IS NULL AND p.at >= t.committed_at
            AND p.at <= $6 AND p.dialogue ",
    other_sessions!(""),
    ") ORDER BY t.committed_at DESC, t.number DESC LIMIT $8"
);
/// Events and notes begin with their tags. Those of a turn that asked to forget may tell what is to be forgotten.
const CARRIED_SENTENCES: &str = concat!(
    "SELECT e.dialogue, t.number, e.change FROM state_events e CROSS JOIN turns t
     WHERE e.tenant = $1 AND e.world = $3 AND e.lifted_at IS NULL AND e.at <= $6
        AND substr(e.change, 1, 15) IN ('{\"change\":\"happ', '{\"change\":\"note') AND e.dialogue ",
    other_sessions!(""),
    " AND e.cause_kind = 'turn' AND t.tenant = $1 AND t.id = e.cause_id
        AND NOT EXISTS (SELECT 1 FROM extractions x WHERE x.tenant = $1 AND x.turn = t.id AND x.forget <> '[]')
      ORDER BY e.at DESC, e.seq DESC LIMIT $7"
);
/// The locks of what each session may have told up to `$6`, from the checkpoint of its last turn.
const CARRIED_LOCKS: &str = concat!(
    "SELECT d.id, COALESCE(",
    member_of!("c.body", "told_locks"),
    ", ",
    member_of!("c.body", "locks"),
    ") FROM dialogues d CROSS JOIN turns t CROSS JOIN checkpoints c WHERE d.tenant = $1 AND d.id ",
    other_sessions!(""),
    " AND t.tenant = $1 AND t.dialogue = d.id AND t.stands = TRUE AND t.number = (
        SELECT n.number FROM turns n WHERE n.tenant = $1 AND n.dialogue = d.id AND n.stands = TRUE AND n.committed_at <= $6
        ORDER BY n.number DESC LIMIT 1)
      AND c.tenant = $1 AND c.turn = t.id"
);
/// The newest sessions of the player `$2` with the NPCs `$4`.
macro_rules! sessions_of_pair {
    () => {
        in_subquery!(
            "SELECT o.id FROM dialogues o WHERE o.tenant = $1 AND o.player = $2 AND o.world || '' = $3 AND o.npcs = $4
                AND o.created_at <= $5 ORDER BY o.created_at DESC, o.id DESC LIMIT 4"
        )
    };
}
/// Notes of the last pass of each session, and open findings, each with the locks of what the prompts of its session had.
pub(super) const STORY: &str = concat!(
    "SELECT s.part, s.dialogue, s.text, s.turns, s.noted_at, (SELECT ",
    member_of!("c.body", "locks"),
    " FROM turns t CROSS JOIN checkpoints c WHERE t.tenant = $1 AND t.dialogue = s.dialogue AND t.stands = TRUE
        AND t.committed_at <= $5 AND c.tenant = $1 AND c.turn = t.id ORDER BY t.number DESC LIMIT 1)
     FROM (
        SELECT 'note' AS part, p.dialogue AS dialogue, p.memory AS text, '[]' AS turns, p.at AS noted_at, p.id AS id
        FROM curation_passes p WHERE p.tenant = $1 AND p.lifted_at IS NULL AND p.memory <> '' AND p.at <= $5 AND p.dialogue ",
    sessions_of_pair!(),
    " AND NOT EXISTS (SELECT 1 FROM curation_passes n WHERE n.tenant = $1 AND n.dialogue = p.dialogue
            AND n.lifted_at IS NULL AND n.at <= $5 AND n.to_turn > p.to_turn)
        UNION ALL SELECT f.kind, f.dialogue, f.text, f.turns, f.at, f.id
        FROM curation_findings f CROSS JOIN curation_decisions d
        WHERE f.tenant = $1 AND f.lifted_at IS NULL AND f.at <= $5 AND f.dialogue ",
    sessions_of_pair!(),
    " AND d.tenant = $1 AND d.decision = 'open' AND d.seq = ",
    decision_that_counts!(),
    " ORDER BY noted_at DESC, id LIMIT $6
     ) s ORDER BY s.noted_at DESC, s.id"
);
const PLAYER_PASSES: &str = "SELECT
        (SELECT COUNT(*) FROM curation_passes p WHERE p.tenant = $1 AND p.player = $2 AND p.player <> '' AND p.at > $3),
        (SELECT MIN(p.at) FROM curation_passes p WHERE p.tenant = $1 AND p.player = $2 AND p.player <> '' AND p.at > $3),
        (SELECT CAST(COALESCE(SUM(p.steps), 0) AS BIGINT) FROM curation_passes p
            WHERE p.tenant = $1 AND p.player = $2 AND p.player <> '' AND p.at >= $4)";
const IS_RANGE_READ: &str = "SELECT EXISTS (SELECT 1 FROM curation_passes
    WHERE tenant = $1 AND dialogue = $2 AND to_turn >= $3 AND lifted_at IS NULL)";
const INSERT_PASS: &str = "INSERT INTO curation_passes
        (tenant, id, world, dialogue, from_turn, to_turn, method, steps, memory, player, cause_kind, cause_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'turn', $11, $12)";
const INSERT_FINDING: &str = "INSERT INTO curation_findings
        (tenant, id, world, dialogue, kind, text, turns, cause_kind, cause_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'turn', $8, $9)";
/// Selecting from the findings excludes those of other worlds and tenants. The caller names only findings that the pass
/// was shown: those of the dialogue, and of the player's other sessions.
const INSERT_MODEL_DECISION: &str =
    "INSERT INTO curation_decisions (tenant, finding, decision, reason, cause_kind, cause_id, at)
    SELECT f.tenant, f.id, $4, $5, 'turn', $6, $7 FROM curation_findings f
    WHERE f.tenant = $1 AND f.id = $2 AND f.world = $3 AND f.lifted_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM curation_decisions d WHERE d.tenant = $1 AND d.finding = f.id
                      AND d.lifted_at IS NULL AND (d.decision <> 'open' OR d.decided_by IS NOT NULL))";
const INSERT_PERSON_DECISION: &str = "INSERT INTO curation_decisions
        (tenant, finding, decision, reason, decided_by, cause_kind, cause_id, at)
    SELECT f.tenant, f.id, $4, $5, $6, 'edit', $7, $8 FROM curation_findings f
    WHERE f.tenant = $1 AND f.id = $2 AND f.world = $3 AND f.lifted_at IS NULL";
/// A job of the turn that ended before runs again.
const QUEUE_PASS: &str = concat!(
    "INSERT INTO jobs (tenant, id, kind, dialogue, turn, text_version, status, due_at, created_at)
    SELECT $1, $3, 'curate', d.id, t.id, t.text_version, 'pending', $4, $4
    FROM dialogues d CROSS JOIN turns t WHERE d.tenant = $1 AND d.id = $2 AND t.tenant = $1 AND t.id = d.head_turn_id",
    jobs::or_run_again!()
);

fn read_pass(columns: &mut Columns<'_>) -> StoreResult<CurationPass> {
    Ok(CurationPass {
        id: columns.id()?,
        world: columns.id()?,
        dialogue: columns.id()?,
        from_turn: columns.number()?,
        to_turn: columns.number()?,
        method: columns.named(PassMethod::ALL, PassMethod::as_str)?,
        steps: columns.number()?,
        memory: columns.next()?,
        last_turn_at: columns.time()?,
    })
}

fn read_finding(columns: &mut Columns<'_>) -> StoreResult<Finding> {
    Ok(Finding {
        id: columns.id()?,
        world: columns.id()?,
        dialogue: columns.id()?,
        kind: columns.named(FindingKind::ALL, FindingKind::as_str)?,
        text: columns.next()?,
        turns: columns.json()?,
        found_at: columns.time()?,
        decided: StandingDecision {
            decision: columns.named(Decision::ALL, Decision::as_str)?,
            reason: columns.next()?,
            decided_by: columns.next()?,
            decided_at: columns.time()?,
        },
    })
}

fn read_sentence(columns: &mut Columns<'_>) -> StoreResult<CarriedSentence> {
    Ok(CarriedSentence {
        dialogue: columns.id()?,
        turn: columns.number()?,
        text: match columns.json::<StateChange>()? {
            StateChange::Happened { text } | StateChange::Note { text } => text,
            other => return Err(StoreError::Corrupt(format!("{other:?} is no event and no note"))),
        },
    })
}

/// Binds the values of [`STORY`].
pub(super) fn bind_story<'q>(
    query: BoundQuery<'q>,
    scope: &TenantScope,
    dialogue: &Dialogue,
    player: &PlayerId,
    until: DateTime<Utc>,
) -> StoreResult<BoundQuery<'q>> {
    let npcs = to_json(&dialogue.npcs)?;
    let max_rows = i64::from(MAX_STORY_ROWS);
    Ok(bind_to!(query; scope.tenant(), player, dialogue.world, npcs, to_micros(until), max_rows))
}

pub(super) fn read_story_row(columns: &mut Columns<'_>) -> StoreResult<StoryRow> {
    Ok(StoryRow {
        part: columns.named(StoryPart::ALL, StoryPart::as_str)?,
        dialogue: columns.id()?,
        text: columns.next()?,
        turns: columns.json()?,
        noted_at: columns.time()?,
        locks: columns.maybe_id()?,
    })
}

fn read_told_locks(columns: &mut Columns<'_>) -> StoreResult<(DialogueId, Option<DisclosureLocks>)> {
    Ok((columns.id()?, columns.maybe_id()?))
}

/// Writes the rows of a pass.
async fn insert_pass(connection: &mut Connection, tenant: &TenantId, commit: &PassCommit) -> StoreResult<()> {
    let pass = &commit.pass;
    let cause = commit.cause;
    execute!(
        connection, INSERT_PASS;
        tenant, pass.id, pass.world, pass.dialogue, i64::from(pass.from_turn), i64::from(pass.to_turn),
        pass.method.as_str(), i64::from(pass.steps), without_nul(&pass.memory), player_column(commit.player.as_ref()), cause,
        to_micros(pass.last_turn_at)
    )
    .await?;
    for finding in &commit.findings {
        execute!(
            connection, INSERT_FINDING;
            tenant, finding.id, finding.world, finding.dialogue, finding.kind.as_str(), without_nul(&finding.text),
            to_json(&finding.turns)?, cause, to_micros(finding.found_at)
        )
        .await?;
    }
    let of_new = commit.findings.iter().map(|finding| ModelDecision {
        finding: finding.id,
        decision: finding.decided.decision,
        reason: finding.decided.reason.clone(),
    });
    for decided in of_new.chain(commit.decisions.iter().cloned()) {
        execute!(
            connection, INSERT_MODEL_DECISION;
            tenant, decided.finding, pass.world, decided.decision.as_str(), without_nul(&decided.reason), cause,
            to_micros(pass.last_turn_at)
        )
        .await?;
    }
    let findings = commit.findings.iter();
    let events: Vec<Event> = findings.map(|finding| finding_event(finding, cause)).collect();
    write_events(connection, tenant, &events).await?;
    insights::insert_insights(connection, tenant, cause, &commit.insights).await
}

#[async_trait]
impl CurationStore for SqlCurationStore {
    async fn load_dialogue_curation(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        limit: u32,
    ) -> StoreResult<DialogueCuration> {
        let tenant = scope.tenant();
        let mut read = JointRead::new();
        let pass = read.add(LAST_PASS, |query| Ok(bind_to!(query; tenant, dialogue)));
        let findings = read.add(LATEST_FINDINGS, |query| {
            Ok(bind_to!(query; tenant, dialogue, i64::from(limit)))
        });
        let found = read.fetch(&self.0, scope).await?;
        let mut findings = found.read_rows(findings, read_finding)?;
        findings.sort_by_key(|finding| finding.id);
        Ok(DialogueCuration {
            last_pass: found.read_rows(pass, read_pass)?.pop(),
            findings,
        })
    }
    async fn load_story(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        until: DateTime<Utc>,
    ) -> StoreResult<Vec<StoryRow>> {
        let Some(player) = &dialogue.player else {
            return Ok(Vec::new());
        };
        let query = bind_story(sqlx::query(STORY), scope, dialogue, player, until)?;
        self.0.fetch_all(scope, query, read_story_row).await
    }
    async fn load_carried_curation(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        until: DateTime<Utc>,
        last_pass: Option<DateTime<Utc>>,
    ) -> StoreResult<CarriedCuration> {
        let Some(player) = &dialogue.player else {
            return Ok(CarriedCuration::default());
        };
        let tenant = scope.tenant();
        let world = &dialogue.world;
        let id = dialogue.id;
        let npcs = to_json(&dialogue.npcs)?;
        let until = to_micros(until);
        let since = last_pass.map_or(0, to_micros);
        let bind_session = |query: BoundQuery<'static>| bind_to!(query; tenant, player, world, npcs, id, until);
        let mut read = JointRead::new();
        let findings = read.add(CARRIED_FINDINGS, |query| {
            Ok(bind_to!(bind_session(query); i64::from(MAX_CARRIED_FINDINGS)))
        });
        let passes = read.add(CARRIED_PASSES, |query| {
            Ok(bind_to!(bind_session(query); i64::from(MAX_CARRIED_PASSES)))
        });
        let turns = read.add(CARRIED_TURNS, |query| {
            Ok(bind_to!(bind_session(query); since, i64::from(MAX_CARRIED_TURNS)))
        });
        let sentences = read.add(CARRIED_SENTENCES, |query| {
            Ok(bind_to!(bind_session(query); i64::from(MAX_CARRIED_SENTENCES)))
        });
        let locks = read.add(CARRIED_LOCKS, |query| Ok(bind_session(query)));
        let found = read.fetch(&self.0, scope).await?;
        let turns = found.read_rows(turns, turns::read_turn)?.into_iter();
        let mut carried = CarriedCuration {
            findings: found.read_rows(findings, read_finding)?,
            passes: found.read_rows(passes, read_pass)?,
            turns: turns.map(|keyed| keyed.turn).collect(),
            sentences: found.read_rows(sentences, read_sentence)?,
            told_locks: BTreeMap::new(),
        };
        if carried == CarriedCuration::default() {
            return Ok(carried);
        }
        let told_locks = found.read_rows(locks, read_told_locks)?.into_iter();
        carried.told_locks = told_locks
            .filter_map(|(dialogue, locks)| Some((dialogue, locks?)))
            .collect();
        carried.findings.reverse();
        carried.passes.reverse();
        carried.turns.reverse();
        carried.sentences.reverse();
        Ok(carried)
    }
    async fn count_player_passes(
        &self,
        scope: &TenantScope,
        player: &PlayerId,
        now: DateTime<Utc>,
    ) -> StoreResult<PlayerPasses> {
        let today = now.date_naive().and_time(NaiveTime::MIN).and_utc();
        let query = bind!(
            PLAYER_PASSES; scope.tenant(), player, to_micros(now - TimeDelta::hours(1)), to_micros(today)
        );
        let read_row = |columns: &mut Columns<'_>| {
            Ok(PlayerPasses {
                last_hour: columns.number()?,
                first_at: columns.maybe_time()?,
                answers_today: columns.number()?,
            })
        };
        self.0.fetch_one(scope, query, read_row).await
    }
    async fn load_pass_facts(&self, scope: &TenantScope, query: &PassFactQuery) -> StoreResult<PassFacts> {
        pass_facts::load_pass_facts(&self.0, scope.tenant(), query).await
    }
    async fn commit_pass(&self, scope: &TenantScope, commit: &PassCommit) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let commit = commit.clone();
        let now = self.0.clock.now();
        write_transaction!(self.0, scope, |connection| {
            let dialogue = commit.pass.dialogue;
            acquire_lock(connection, &tenant, LedgerLock::Curation(dialogue)).await?;
            if !pass_fence(connection, &tenant, &commit.fence, &commit.calls, now).await? {
                return Ok(false);
            }
            if fetch_scalar!(connection, IS_RANGE_READ; tenant, dialogue, i64::from(commit.pass.from_turn)).await? {
                // Another job was faster, so this job is done.
                return Ok(false);
            }
            insert_pass(connection, &tenant, &commit).await?;
            failpoint!("pass.written");
            Ok(true)
        })
        .await
    }
    async fn queue_pass(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> StoreResult<bool> {
        let query = bind!(QUEUE_PASS; scope.tenant(), dialogue, job, to_micros(now));
        Ok(self.0.execute(scope, query).await? == 1)
    }
    async fn decide_finding(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        finding: FindingId,
        decision: PersonDecision<'_>,
        edit: &Edit,
    ) -> StoreResult<Option<Finding>> {
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let edit = edit.clone();
        let reason = without_nul(decision.reason).into_owned();
        let decision = decision.decision;
        write_transaction!(self.0, scope, |connection| {
            let decided = execute!(
                connection, INSERT_PERSON_DECISION;
                tenant, finding, world, decision.as_str(), reason, without_nul(&edit.subject), edit.id,
                to_micros(edit.made_at)
            )
            .await?;
            if decided == 0 {
                return Ok(None);
            }
            audit::record_audit(connection, &tenant, &edit).await?;
            let row = fetch_optional!(connection, FINDING_BY_ID; tenant, finding).await?;
            row.map(|row| read_finding(&mut Columns::new(&row))).transpose()
        })
        .await
    }
    async fn list_findings(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        filter: FindingFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Finding>> {
        let query = bind!(
            LIST_FINDINGS;
            scope.tenant(), world, page_cursor(page), filter.dialogue,
            filter.kind.map(FindingKind::as_str), filter.decision.map(Decision::as_str), page_row_limit(page)
        );
        fetch_page(&self.0, scope, query, page, read_finding, |finding| {
            finding.id.to_string()
        })
        .await
    }
    async fn list_findings_of_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        number: u32,
        limit: u32,
    ) -> StoreResult<Vec<Finding>> {
        let number_pattern = format!("%,{number},%");
        let query = bind!(FINDINGS_OF_TURN; scope.tenant(), dialogue, number_pattern, i64::from(limit));
        self.0.fetch_all(scope, query, read_finding).await
    }
    async fn list_passes(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        dialogue: Option<DialogueId>,
        page: &PageRequest,
    ) -> StoreResult<Page<CurationPass>> {
        let query = bind!(
            LIST_PASSES;
            scope.tenant(), world, page_cursor(page), dialogue, page_row_limit(page)
        );
        fetch_page(&self.0, scope, query, page, read_pass, |pass| pass.id.to_string()).await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn passes_and_findings_are_found_in_index_order() {
            for (statement, index) in [
                (LAST_PASS, "curation_passes_of_dialogue ("),
                (LATEST_FINDINGS, "curation_findings_of_dialogue ("),
                (FINDINGS_OF_TURN, "curation_findings_of_dialogue ("),
                (LIST_FINDINGS, "curation_findings_of_world ("),
                (LIST_PASSES, "curation_passes_of_world ("),
            ] {
                let plan = plan(statement).await;
                assert!(plan.contains(index), "{plan}");
                assert!(!plan.contains("SCAN") , "{plan}");
            }
            for statement in [CARRIED_FINDINGS, CARRIED_PASSES, CARRIED_TURNS, CARRIED_SENTENCES, CARRIED_LOCKS] {
                let plan = plan(statement).await;
                assert!(plan.contains("dialogues_of_player (tenant=? AND player=? AND created_at<?)"), "{plan}");
                assert!(!plan.contains("SCAN f") && !plan.contains("SCAN t") && !plan.contains("SCAN e") && !plan.contains("SCAN curation_passes"), "{plan}");
            }
            let story = plan(STORY).await;
            assert!(story.contains("dialogues_of_player (tenant=? AND player=? AND created_at<?)"), "{story}");
            let scans = story.lines().filter(|line| ["p", "n", "f", "d", "t", "c"].iter().any(|table| line.trim().ends_with(&format!("SCAN {table}"))));
            assert_eq!(scans.count(), 0, "{story}");
            let plan = plan(CARRIED_SENTENCES).await;
            assert!(plan.contains("state_events_of_dialogue (tenant=? AND world=? AND dialogue=? AND at<?)"), "{plan}");
            let of_player = "curation_passes_of_player (tenant=? AND player=? AND at>?)";
            assert_searches(PLAYER_PASSES, &[of_player]).await;
            assert_searches(IS_RANGE_READ, &["curation_passes_of_dialogue"]).await;
            assert_searches(INSERT_MODEL_DECISION, &["curation_decisions_of_finding"]).await;
            assert_searches(INSERT_PERSON_DECISION, &[]).await;
            assert_searches(QUEUE_PASS, &[]).await;
        }
    }
}
