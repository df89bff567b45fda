//! The operations of a history on a world.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use colloquy::{
    dialogue::{
        events::ReplyDone,
        heard::HeardLength,
        jobs,
        npc_conversation::{Scene, next_speaker},
        remember,
        requester::Requester,
        rewind::{self, DialogueTiers, OwnedDialogue, RewindError, RewindResponse, RewindTarget},
        saves::{self, RestoreRequest},
        turn::{self, Cut, TurnError, TurnFeed, TurnInput},
    },
    ids::{DialogueId, NpcId, SaveId},
    memory::turn::Turn,
    ports::{
        buffer::{BufferHead, BufferedTurn},
        clock::Clock as _,
        ledger::{
            dialogues::{OpenDialogue, OwnershipClaim},
            jobs::{Job, JobKind},
            saves::{RestoreOutcome, SaveOutcome},
        },
    },
    tenancy::{Principal, Role},
};
use tokio::sync::watch;

use super::{JoinedSession, RecordedCorrection, ReplayWorld, STEP};
use crate::replay::{
    history::{self, AMONG_NPCS, BY_ACK, Line, Op},
    model::{NextReply, ReplayModel},
};

struct DiscardingFeed;

impl TurnFeed for DiscardingFeed {
    fn send_delta(&self, _: u32, _: usize, _: &NpcId, _: &str) {}
    fn send_done(&self, _: ReplyDone) -> u64 {
        2
    }
    fn reserve_committed(&self) -> u64 {
        3
    }
}

/// Cuts the reply after its first text.
struct InterruptingFeed {
    hand: watch::Sender<Option<Cut>>,
}

impl TurnFeed for InterruptingFeed {
    fn send_delta(&self, _: u32, _: usize, _: &NpcId, _: &str) {
        self.hand.send_replace(Some(Cut::default()));
    }
    fn send_done(&self, _: ReplyDone) -> u64 {
        2
    }
    fn reserve_committed(&self) -> u64 {
        3
    }
}

impl ReplayWorld {
    pub async fn apply_op(&mut self, number: usize, op: &Op) {
        self.clock.advance(STEP);
        match op {
            Op::Say(say) => {
                let Some(talk) = self.place_of(say.talk) else { return };
                let said = Line::Taught(say.clone());
                let line = self.player.learn(number, &said);
                let name = history::name_of(number);
                let whole = ReplayModel::chars_of_reply(&name, &said);
                self.lines.push((number, said));
                self.player.replies(NextReply {
                    name,
                    recorded: None,
                    hold_after: say.cut.map(|cut| 1 + index_by_share(cut, whole.saturating_sub(1))),
                    block: false,
                });
                self.acknowledge_last(talk).await;
                self.say(talk, &line, say.cut.is_some()).await;
                if !say.later {
                    self.run_all_jobs().await;
                }
            }
            Op::Play(play) => self.play(number, *play).await,
            Op::Answer { .. } => self.answer_any(op).await,
            Op::Edit { pick, how } => self.correct_any(*pick, *how).await,
            Op::Write { fruit, adjective, long } => {
                self.write(*fruit, *adjective, *long).await;
                let written = RecordedCorrection::Written {
                    fruit: *fruit,
                    adjective: *adjective,
                    long: *long,
                };
                self.corrections.push((self.clock.now(), written));
            }
            Op::Progress { second, to } => {
                self.set_progress(*second, *to).await;
                let set = RecordedCorrection::Progress {
                    second: *second,
                    to: *to,
                };
                self.corrections.push((self.clock.now(), set));
            }
            Op::Events { second, hp, mana } => {
                self.report_events(*second, *hp, *mana).await;
                let reported = RecordedCorrection::Events {
                    second: *second,
                    hp: *hp,
                    mana: *mana,
                };
                self.corrections.push((self.clock.now(), reported));
            }
            Op::TimePassed { hours } => {
                self.pass_time(*hours).await;
                let passed = RecordedCorrection::TimePassed { hours: *hours };
                self.corrections.push((self.clock.now(), passed));
            }
            Op::Consolidate => {
                self.consolidate().await;
                self.corrections
                    .push((self.clock.now(), RecordedCorrection::Consolidated));
            }
            Op::Rewind { talk, to, heard } => {
                let Some(talk) = self.place_of(*talk) else { return };
                self.rewind(talk, *to, *heard).await;
                self.close_unsaid_joins().await;
            }
            Op::Uncut { talk } => {
                let Some(talk) = self.place_of(*talk) else { return };
                self.resume_reply(talk).await;
            }
            Op::Anew { talk, fails } => {
                let Some(talk) = self.place_of(*talk) else { return };
                self.regenerate_reply(talk, *fails).await;
            }
            Op::Join => self.join().await,
            Op::Played => self.acknowledge_last(BY_ACK.into()).await,
            Op::Save => {
                self.save().await;
            }
            Op::Restore { pick } => {
                if !self.saves.is_empty() {
                    let (save, _) = self.saves[usize::from(*pick) % self.saves.len()];
                    self.restore(save).await;
                }
            }
            Op::Work { jobs, seed } => self.run_some_jobs(usize::from(*jobs), *seed).await,
        }
    }

    /// Opens the dialogue as an actor does.
    pub(super) async fn open(&self, talk: usize) -> OpenDialogue {
        let now = self.clock.now();
        let until = now + Duration::from_mins(1);
        let dialogues = &self.services.ledger.dialogues;
        let claim = dialogues
            .claim_ownership(&self.scope, self.talks[talk], self.node, now, until)
            .await
            .unwrap();
        let OwnershipClaim::Owned(open) = claim else {
            panic!("{claim:?}")
        };
        self.take_over(&open).await;
        *open
    }

    /// Takes over the buffer of the previous owner, as a session does. The buffer must match the ledger.
    async fn take_over(&self, open: &OpenDialogue) {
        let (buffers, id) = (&self.services.buffers, open.dialogue.id);
        let Some(kept) = buffers.load_buffer(&self.scope, id).await.unwrap() else {
            return;
        };
        let head = BufferHead {
            epoch: open.epoch,
            turn: open.head,
        };
        if kept.head.turn != head.turn || kept.head.epoch + 1 != head.epoch {
            return;
        }
        // If all its turns went into a lost summary, the buffer has no turns.
        let Some(from) = kept.turns.first().map(|turn| turn.number) else {
            return;
        };
        let dialogues = &self.services.ledger.dialogues;
        let turns = dialogues.load_turns(&self.scope, id, from, u32::MAX).await.unwrap();
        let said: Vec<BufferedTurn> = turns.iter().map(Into::into).collect();
        assert_eq!(kept.turns, said, "what is taken over is what was said");
        assert!(
            buffers
                .truncate_buffer(&self.scope, id, kept.head, u32::MAX, head)
                .await
                .unwrap()
        );
    }

    /// Returns the next turn of a dialogue. For NPCs among themselves, `line` is the topic.
    pub(super) async fn input(&self, talk: usize, line: &str) -> TurnInput {
        let open = self.open(talk).await;
        let ledger = &self.services.ledger;
        let summaries = ledger
            .summaries
            .load_summaries(&self.scope, open.dialogue.id)
            .await
            .unwrap();
        let mut checkpoint = open.checkpoint.clone();
        checkpoint.apply_summaries(&summaries, self.services.settings.summaries.buffer_min_turns);
        let from = checkpoint.buffer_from.max(1);
        let turns = ledger
            .dialogues
            .load_turns(&self.scope, open.dialogue.id, from, open.dialogue.head_turn)
            .await
            .unwrap();
        let history: Vec<BufferedTurn> = turns.iter().map(Into::into).collect();
        let among_npcs = open.dialogue.player.is_none();
        let cast = self.cast(&open.dialogue);
        let speaker = if among_npcs {
            next_speaker(&cast, &history).unwrap()
        } else {
            open.dialogue.npcs[0].clone()
        };
        let scene = among_npcs.then(|| {
            Arc::new(Scene {
                cast,
                topic: Some(line.to_owned()),
                last: false,
                ..Scene::default()
            })
        });
        TurnInput {
            scope: self.scope.clone(),
            node: self.node,
            world: Arc::new(self.authored.clone()),
            npc: Arc::new(self.npcs[&speaker].clone()),
            directives: Arc::from([]),
            player: open.dialogue.player.clone(),
            charged_player: None,
            scene,
            epoch: open.epoch,
            id: self.services.ids.next_id(),
            number: open.dialogue.head_turn + 1,
            previous: open.head,
            replacing: open.replacing,
            line: if among_npcs { String::new() } else { line.to_owned() },
            key: None,
            chat: None,
            continuation: None,
            known_intent: None,
            history: Arc::new(history),
            summaries: Arc::new(summaries),
            checkpoint,
            accepted_at: self.clock.monotonic_now(),
            started_at: self.clock.now(),
            queue_ms: 0.0,
            memory_wait_ms: 0.0,
            memory_wait: None,
            started_seq: open.next_seq,
            dialogue: Arc::new(open.dialogue),
        }
    }

    /// Says a line, and gets the prepared reply. If the reply stops in the middle, the turn is cut. False: no turn was
    /// committed, because nothing was heard or the NPC is dead.
    pub(super) async fn say(&self, talk: usize, line: &str, cut: bool) -> bool {
        let input = self.input(talk, line).await;
        self.run_turn(input, cut).await
    }

    async fn run_turn(&self, input: TurnInput, cut: bool) -> bool {
        let (hand, watch) = watch::channel(None);
        let outcome = if cut {
            turn::run_turn(&self.services, input, &InterruptingFeed { hand }, watch).await
        } else {
            turn::run_turn(&self.services, input, &DiscardingFeed, watch).await
        };
        match outcome {
            Ok(_) => true,
            Err(TurnError::CutBeforeReply | TurnError::NpcDead) => false,
            Err(error) => panic!("a turn failed: {error}"),
        }
    }

    async fn rewind_open(&self, open: &OpenDialogue, target: RewindTarget) -> Result<RewindResponse, RewindError> {
        let requester = Requester {
            who: self.player_principal(),
            key: None,
            action: "session.rewind",
        };
        let dialogue = OwnedDialogue {
            scope: self.scope.clone(),
            node: self.node,
            id: open.dialogue.id,
            world: open.dialogue.world.clone(),
            epoch: open.epoch,
            head: open.head,
            head_turn: open.dialogue.head_turn,
            fence: false,
            seq: open.next_seq,
            tiers: DialogueTiers::default(),
        };
        rewind::rewind_dialogue(&self.services, dialogue, target, requester.into()).await
    }

    fn player_principal(&self) -> Principal {
        Principal {
            subject: "player".to_owned(),
            tenant: self.scope.tenant().clone(),
            role: Role::Backend,
            player: None,
            world: None,
            issued: colloquy::tenancy::TokenIdentity::default(),
            expires_at: DateTime::<Utc>::MAX_UTC,
        }
    }

    /// Takes a save of the current state.
    pub async fn save(&mut self) -> SaveId {
        let taken = saves::take_save(
            &self.services,
            &self.player_principal(),
            &self.authored.id,
            String::new(),
        )
        .await
        .unwrap();
        let SaveOutcome::Saved(save) = taken else {
            panic!("{taken:?}")
        };
        let open = self.joined.iter().map(|joined| joined.open).collect();
        self.saves.push((save.id, open));
        save.id
    }

    /// Restores a save.
    pub async fn restore(&mut self, save: SaveId) {
        self.clock.advance(STEP);
        let before = self.last_of_clock().await;
        let request = RestoreRequest {
            scope: self.scope.clone(),
            world: self.authored.id.clone(),
            save,
            key: None,
            seq_gap: 0,
            who: self.player_principal(),
        };
        let outcome = saves::restore_save(&self.services, request).await.unwrap();
        assert!(matches!(outcome, RestoreOutcome::Done { .. }), "{outcome:?}");
        let after = self.last_of_clock().await;
        if after != before {
            let (to, ratio) = (after.game, after.ratio);
            let set = RecordedCorrection::ClockSet { to, ratio };
            self.corrections.push((self.clock.now(), set));
        }
        let saved = self.saves.iter().find(|(id, _)| *id == save);
        let mut open = saved.into_iter().flat_map(|(_, open)| open);
        for joined in &mut self.joined {
            // Sessions opened after the save are closed.
            joined.open = open.next().copied().unwrap_or(false);
        }
        for talk in 0..self.talks.len() {
            let open = self.open(talk).await;
            self.assert_buffer_matches(talk, open.dialogue.head_turn).await;
        }
    }

    async fn rewind(&mut self, talk: usize, to: u16, heard: Option<u16>) {
        let open = self.open(talk).await;
        let number = u32::try_from(index_by_share(to, open.dialogue.head_turn as usize)).unwrap();
        let heard = match heard {
            Some(heard) if number > 0 => {
                let dialogues = &self.services.ledger.dialogues;
                let turns = dialogues
                    .load_turns(&self.scope, open.dialogue.id, number, number)
                    .await
                    .unwrap();
                let chars = index_by_share(heard, turns[0].reply_text.chars().count());
                Some(HeardLength::Chars(chars))
            }
            _ => None,
        };
        let target = RewindTarget::Turn { number, heard };
        let moved = self.rewind_open(&open, target).await.unwrap();
        if let RewindResponse::Done(made) = moved {
            self.assert_buffer_matches(talk, made.rewound.head_turn).await;
        }
    }

    async fn resume_reply(&mut self, talk: usize) {
        let open = self.open(talk).await;
        let target = RewindTarget::Resume { may_continue: true };
        let unfinished = match self.rewind_open(&open, target).await {
            Ok(RewindResponse::Done(made)) => made.unfinished,
            Ok(_) | Err(RewindError::NothingToResume) => None,
            Err(error) => panic!("{error}"),
        };
        // A reply cut mid-stream is continued, if the heard part identifies its line.
        if let Some(unfinished) = unfinished {
            let line = unfinished.turn.player_text.clone();
            let name = ReplayModel::name_in(&format!("{line} {}", unfinished.turn.reply_text));
            let said = self.lines.iter().map(|(number, _)| history::name_of(*number));
            let Some(name) = name.filter(|name| said.into_iter().any(|said| said == *name)) else {
                return self.assert_stands_again(talk).await;
            };
            self.player.replies(NextReply {
                name,
                recorded: None,
                hold_after: None,
                block: false,
            });
            // The new text is later than the rewind.
            self.clock.advance(STEP);
            let mut input = self.input(talk, &line).await;
            input.continuation = Some(Arc::new(unfinished));
            if !self.run_turn(input, false).await {
                self.assert_stands_again(talk).await;
            }
        }
    }

    /// Regenerates the last reply of a session. If the model fails, the old reply stands again.
    async fn regenerate_reply(&mut self, talk: usize, fails: bool) {
        let open = self.open(talk).await;
        let Some(head) = open.head else { return };
        let last = self
            .services
            .ledger
            .dialogues
            .load_turn(&self.scope, head)
            .await
            .unwrap();
        let line = last.unwrap().turn.player_text;
        let number = open.dialogue.head_turn - 1;
        let target = RewindTarget::Regenerate { number };
        self.rewind_open(&open, target).await.unwrap();
        if fails {
            return self.assert_stands_again(talk).await;
        }
        self.clock.advance(STEP);
        self.player.replies(NextReply {
            name: ReplayModel::name_in(&line).unwrap(),
            recorded: None,
            hold_after: None,
            block: false,
        });
        if !self.say(talk, &line, false).await {
            self.assert_stands_again(talk).await;
        }
    }

    /// Reinstates turns that were to be resumed and were not, as the server does.
    pub async fn reinstate_cut_turn(&mut self) {
        for talk in 0..self.talks.len() {
            self.assert_stands_again(talk).await;
        }
    }

    async fn assert_stands_again(&mut self, talk: usize) {
        let open = self.open(talk).await;
        if let Some(turn) = open.replacing {
            let target = RewindTarget::Reinstate { turn };
            self.rewind_open(&open, target).await.unwrap();
        }
    }

    /// Asserts that a buffer with the ledger's head matches the ledger.
    async fn assert_buffer_matches(&self, talk: usize, head_turn: u32) {
        let kept = self
            .services
            .buffers
            .load_buffer(&self.scope, self.talks[talk])
            .await
            .unwrap();
        let Some(kept) = kept else { return };
        let turns = self.turns(talk).await;
        let head = turns.last().map(|turn| turn.id);
        if kept.head.turn == head && head.is_some() {
            let from = kept.turns.first().map_or(head_turn + 1, |turn| turn.number);
            let expected: Vec<BufferedTurn> = turns
                .iter()
                .filter(|turn| turn.number >= from)
                .map(Into::into)
                .collect();
            assert_eq!(kept.turns, expected);
        }
    }

    /// A player joins the NPCs at their last line.
    async fn join(&mut self) {
        let lines = self.turns(AMONG_NPCS.into()).await;
        let Some(last) = lines.last() else { return };
        let joined = JoinedSession {
            at: self.clock.now(),
            line: last.number,
            open: true,
        };
        self.open_joined(joined, Some(last.id)).await;
    }

    /// Closes the sessions that start from unsaid lines.
    async fn close_unsaid_joins(&mut self) {
        let stand = self.turns(AMONG_NPCS.into()).await.len();
        for joined in &mut self.joined {
            joined.open &= joined.line as usize <= stand;
        }
    }

    /// Makes the jobs of the last reply due, as playback or another line does.
    pub(super) async fn acknowledge_last(&self, talk: usize) {
        let last = self.turns(talk).await.pop();
        self.acknowledge_turns(last).await;
    }

    /// Makes the jobs of all replies due.
    pub async fn acknowledge_all(&self) {
        for talk in 0..self.talks.len() {
            let turns = self.turns(talk).await;
            self.acknowledge_turns(turns).await;
        }
    }

    async fn acknowledge_turns(&self, turns: impl IntoIterator<Item = Turn>) {
        let (jobs, now) = (&self.services.ledger.jobs, self.clock.now());
        for turn in turns {
            jobs.make_due(&self.scope, turn.dialogue, turn.id, now).await.unwrap();
        }
    }

    /// Runs all pending jobs.
    pub async fn run_all_jobs(&self) {
        self.run_some_jobs(usize::MAX, 0).await;
    }

    /// Consolidates the facts that are known. Other jobs stay pending.
    pub async fn consolidate(&self) {
        let (scope, now) = (&self.scope, self.clock.now());
        remember::queue_consolidations(&self.services, scope, &self.authored.id)
            .await
            .unwrap();
        let jobs = &self.services.ledger.jobs;
        jobs.release_all_leases(self.node).await.unwrap();
        let until = now + Duration::from_mins(1);
        let leased = jobs.lease_due_jobs(scope, self.node, now, until, 1_000).await.unwrap();
        for job in leased.iter().filter(|job| job.kind == JobKind::Consolidate) {
            jobs::run_job(&self.services, scope, job).await.unwrap();
        }
    }

    /// Runs at most `most` jobs. `seed` mixes the dialogues, but the jobs of one dialogue keep their order. Then
    /// memories are reconciled and the index is updated.
    async fn run_some_jobs(&self, most: usize, seed: u8) {
        let ledger = &self.services.ledger;
        ledger.jobs.release_all_leases(self.node).await.unwrap();
        let now = self.clock.now();
        let leased = ledger
            .jobs
            .lease_due_jobs(&self.scope, self.node, now, now + Duration::from_mins(1), 1_000)
            .await
            .unwrap();
        let mut lanes: BTreeMap<DialogueId, VecDeque<Job>> = BTreeMap::new();
        for job in leased {
            lanes.entry(job.dialogue).or_default().push_back(job);
        }
        let (mut left, mut turn) = (most, usize::from(seed));
        // Jobs create no further jobs.
        while !lanes.is_empty() && left > 0 {
            let lane = *lanes.keys().nth(turn % lanes.len()).unwrap();
            let jobs = lanes.get_mut(&lane).unwrap();
            match jobs.pop_front() {
                Some(job) => {
                    jobs::run_job(&self.services, &self.scope, &job).await.unwrap();
                    left -= 1;
                }
                None => drop(lanes.remove(&lane)),
            }
            turn = turn.wrapping_mul(7).wrapping_add(3);
        }
        if most == usize::MAX || seed.is_multiple_of(2) {
            while remember::reconcile_dirty_memories(&self.services, &self.scope)
                .await
                .unwrap()
                > 0
            {}
        }
        while jobs::relay_outbox(&self.services).await.unwrap() > 0 {}
    }
}

/// Returns the share `share`/65536 of `of`; the largest share gives all of `of`.
pub(super) fn index_by_share(share: u16, of: usize) -> usize {
    (usize::from(share) * (of + 1)) >> 16
}
