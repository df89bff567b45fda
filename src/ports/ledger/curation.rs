//! Curation passes, their findings, and the decisions about findings.

use std::collections::BTreeMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, dialogues::Dialogue, new_job::JobFence};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{DialogueId, FindingId, JobId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    curation::{CurationPass, Decision, Finding, FindingKind},
    disclosure::{audience::Knower, locks::DisclosureLocks},
    fact::Fact,
    insight::Insight,
    trace::{StoryPart, TaskUsage},
    turn::Turn,
};

/// The curation of a dialogue, as the next pass needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DialogueCuration {
    /// The last pass that stands.
    pub last_pass: Option<CurationPass>,
    /// Findings that stand, oldest first: those that wait for a decision, those with a person's decision, and the
    /// newest others.
    pub findings: Vec<Finding>,
}

/// An event or a note of a state block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedSentence {
    pub dialogue: DialogueId,
    /// The number of the turn whose reply had the block.
    pub turn: u32,
    pub text: String,
}

/// What earlier sessions of a player with the same NPCs have left for a pass over a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CarriedCuration {
    /// Findings that wait for a decision, oldest first.
    pub findings: Vec<Finding>,
    /// The last pass of each of the newest sessions that have notes, oldest first.
    pub passes: Vec<CurationPass>,
    /// The turns of ended sessions that no pass has read, said since the last pass of any of the sessions, in order.
    pub turns: Vec<Turn>,
    /// The newest events and notes of state blocks, oldest first, without those of turns that asked to forget something.
    pub sentences: Vec<CarriedSentence>,
    /// The locks of what each of these sessions may have told. A session of which they are unknown is not among them.
    pub told_locks: BTreeMap<DialogueId, DisclosureLocks>,
}

/// What a curation pass noted about the talks of a player with an NPC alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryRow {
    pub part: StoryPart,
    pub dialogue: DialogueId,
    /// The text of an open finding, or all notes of the last pass of a session, line by line.
    pub text: String,
    /// When the last turn of the pass was committed.
    pub noted_at: DateTime<Utc>,
    /// The turns that a finding is about. Empty for notes.
    pub turns: Vec<u32>,
    /// The locks of what the prompts of the session had. `None`: they are unknown.
    pub locks: Option<DisclosureLocks>,
}

/// The passes of a player's sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlayerPasses {
    /// Passes over turns of the last hour, and the time of the first of these turns.
    pub last_hour: u32,
    pub first_at: Option<DateTime<Utc>>,
    /// Answers of the model in passes of today.
    pub answers_today: u64,
}

/// Which facts a pass compares with its turns.
#[derive(Debug, Clone, PartialEq)]
pub struct PassFactQuery {
    pub world: WorldId,
    pub dialogue: DialogueId,
    /// The first and the last turn of the pass.
    pub turns: (u32, u32),
    /// The player of the last turn. Facts that are private to other players are left out.
    pub player: Option<PlayerId>,
    /// The knowers of authored facts: an NPC of the dialogue, its factions, and everybody.
    pub knowers: Vec<Knower>,
    /// The time of the last turn.
    pub said_at: DateTime<Utc>,
    /// Facts that have ended or expired by this time are left out.
    pub now: DateTime<Utc>,
    /// The most facts of each list.
    pub limit: u32,
}

/// The facts that a pass compares with its turns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassFacts {
    /// Facts that turns of the dialogue taught: those of turns before the pass first, then the most important, then the
    /// newest.
    pub learned: Vec<Fact>,
    /// Facts that people wrote: the most important first, then the newest.
    pub authored: Vec<Fact>,
}

/// A decision of the model about an earlier finding.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelDecision {
    pub finding: FindingId,
    pub decision: Decision,
    pub reason: String,
}

/// A pass with its changes, in one transaction with the end of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct PassCommit {
    pub fence: JobFence,
    /// The last turn that the pass read. The job's turn may be later.
    pub cause: TurnId,
    /// The model usage of the job.
    pub calls: Vec<TaskUsage>,
    /// The player of the last turn.
    pub player: Option<PlayerId>,
    pub pass: CurationPass,
    /// New findings, each with the model's decision.
    pub findings: Vec<Finding>,
    /// Decisions about earlier findings, also those of the player's other sessions.
    pub decisions: Vec<ModelDecision>,
    /// New insights, for each NPC of the dialogue that an insight is not about.
    pub insights: Vec<Insight>,
}

/// Which findings a list has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FindingFilter {
    pub kind: Option<FindingKind>,
    pub decision: Option<Decision>,
    pub dialogue: Option<DialogueId>,
}

/// A person's decision about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonDecision<'a> {
    pub decision: Decision,
    /// At most [`MAX_REASON_CHARS`](colloquy_memory::curation::MAX_REASON_CHARS) characters.
    pub reason: &'a str,
}

/// Curation. The last turn that a pass read is its cause. A rewind of this turn takes the pass back, with its findings,
/// decisions and insights, and they stand again with the turn. Decisions of persons are edits, which no rewind takes
/// back.
#[async_trait]
pub trait CurationStore: Send + Sync {
    /// Returns the last pass of a dialogue, and at most `limit` of its findings.
    async fn load_dialogue_curation(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        limit: u32,
    ) -> StoreResult<DialogueCuration>;
    /// Returns what other sessions of the dialogue's player with the same NPCs have left, up to `until`. `last_pass` is
    /// the time of the dialogue's own last pass. Nothing for an NPC conversation.
    async fn load_carried_curation(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        until: DateTime<Utc>,
        last_pass: Option<DateTime<Utc>>,
    ) -> StoreResult<CarriedCuration>;
    /// Returns the open findings and the notes of the newest four sessions of a session's player with the same NPCs, up to
    /// `until`, newest first. Nothing for an NPC conversation.
    async fn load_story(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        until: DateTime<Utc>,
    ) -> StoreResult<Vec<StoryRow>>;
    /// Returns a player's passes of the hour and the day (UTC) before `now`, also those that were taken back.
    async fn count_player_passes(
        &self,
        scope: &TenantScope,
        player: &PlayerId,
        now: DateTime<Utc>,
    ) -> StoreResult<PlayerPasses>;
    /// Returns the facts that a pass compares with its turns.
    ///
    /// - Learned facts: those of the dialogue's standing turns up to the last one of the pass. Of the ends of a fact, those
    /// count that turns of the dialogue or people caused, and requests to forget. Turns of other dialogues count for
    /// nothing else: a rewind there would take them back.
    /// - Authored facts: those without locks that were valid at [`PassFactQuery::said_at`].
    async fn load_pass_facts(&self, scope: &TenantScope, query: &PassFactQuery) -> StoreResult<PassFacts>;
    /// Stores a pass with its findings, decisions and insights, and ends the job. Returns `false` if the fence is
    /// closed, or if a standing pass has read a turn of the new pass. The job then ends without another write.
    ///
    /// A decision is not stored if a person, or another pass, has decided meanwhile.
    async fn commit_pass(&self, scope: &TenantScope, commit: &PassCommit) -> StoreResult<bool>;
    /// Queues a pass up to the last turn of a dialogue, as job `job`. Returns `false` without such a turn, or if its
    /// job is pending or dead.
    async fn queue_pass(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> StoreResult<bool>;
    /// Stores a person's decision with its audit row, and returns the finding. `None`: no such finding stands in this
    /// world.
    async fn decide_finding(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        finding: FindingId,
        decision: PersonDecision<'_>,
        edit: &Edit,
    ) -> StoreResult<Option<Finding>>;
    /// Returns a world's findings that stand, newest first. The cursor is the id of a finding.
    async fn list_findings(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        filter: FindingFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Finding>>;
    /// Returns at most `limit` findings of a dialogue that stand and name the turn with this number, oldest first.
    async fn list_findings_of_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        number: u32,
        limit: u32,
    ) -> StoreResult<Vec<Finding>>;
    /// Returns a world's passes that stand, newest first. The cursor is the id of a pass.
    async fn list_passes(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        dialogue: Option<DialogueId>,
        page: &PageRequest,
    ) -> StoreResult<Page<CurationPass>>;
}
