//! A world without actors: what a history does to it, what replaying does, and what can be seen of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

use chrono::{DateTime, Utc};
use colloquy::{
    adapters::{
        in_process::{
            buffers::{BufferLimits, InProcessBuffers},
            fact_index::{FactIndexOptions, InProcessFactIndex},
        },
        sqlite::{self, SqliteOptions},
    },
    config::Config,
    dialogue::{
        Services,
        events::ReplyDone,
        jobs,
        models::{ModelLimits, Models, RouteTable},
        prompt::{self, Templates},
        recall::BodyCache,
        remember::{self, Correction, HandWritten},
        rewind::{self, Moved, RewindError, RewindRequest, Target},
        saves::{self, RestoreRequest},
        turn::{self, Cut, TurnError, TurnFeed, TurnInput},
    },
    ids::{DialogueId, DialogueKind, FactId, NodeId, NpcId, PlayerId, SaveId},
    memory::{
        authored::{Language, Npc, Persona, World as AuthoredWorld, WorldSettings},
        fact::{Audience, Fact, FactKind, Importance, InvalidReason, Knower, Viewpoint},
        state,
        turn::{Turn, TurnStatus},
    },
    ports::{
        PageRequest,
        buffer::BufferedTurn,
        clock::{Clock as _, IdSource, ManualClock},
        ledger::{
            audit::Edit as AuditEdit,
            dialogues::{Claim, Dialogue, DialogueOptions, DialogueStatus, OpenDialogue},
            facts::FactFilter,
            jobs::Job,
            saves::{RestoreOutcome, SaveOutcome},
            tenants::Tenant,
        },
        llm::Llm,
    },
    tenancy::{Principal, Role, TenantScope},
};
use tokio::sync::watch;

use super::{
    history::{ADJECTIVES, Edit, FRUITS, Op, Say, TALKS},
    model::{Angles, Player},
};

/// When every history begins.
const BEGINNING: &str = "2026-03-01T09:00:00Z";
/// How much time passes with everything that happens.
const STEP: Duration = Duration::from_secs(1);

static TEMPLATES: LazyLock<Arc<Templates>> = LazyLock::new(|| Arc::new(Templates::load(None).unwrap()));

/// An empty ledger, made once and copied for every run.
static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.db");
    let text = path.to_str().unwrap().to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(sqlite::migrate(&text)).unwrap();
    })
    .join()
    .unwrap();
    std::fs::read(path).unwrap()
});

/// A correction as it was made, to be made again.
#[derive(Debug, Clone)]
enum Corrected {
    Fact { fact: FactId, content: String, how: Edit },
    Written { fruit: u8, adjective: u8 },
}

/// Everything that can be seen of a world once nothing is under way, in lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    transcripts: Vec<String>,
    facts: Vec<String>,
    summaries: Vec<String>,
    state: Vec<String>,
    prompts: Vec<String>,
    /// Facts that the index lacks, or has too many of.
    index: Vec<String>,
}

/// The lines of one part.
type Part = fn(&Seen) -> Vec<String>;

impl Seen {
    /// What is compared, the most telling first.
    pub const PARTS: [(&'static str, Part); 6] = [
        ("transcripts", |seen| seen.transcripts.clone()),
        ("facts", |seen| seen.facts.clone()),
        ("summaries", |seen| seen.summaries.clone()),
        ("states", |seen| seen.state.clone()),
        ("prompts", |seen| seen.prompts.clone()),
        ("indexes", |seen| seen.index.clone()),
    ];
}

/// What has to be fed to an empty world so that it becomes the same.
pub struct Record {
    turns: Vec<(usize, Turn)>,
    corrections: Vec<(DateTime<Utc>, Corrected)>,
    lines: Vec<(String, usize, Say)>,
    end: DateTime<Utc>,
}

pub struct World {
    services: Services,
    player: Arc<Player>,
    clock: Arc<ManualClock>,
    scope: TenantScope,
    authored: AuthoredWorld,
    npcs: BTreeMap<NpcId, Npc>,
    node: NodeId,
    talks: Vec<DialogueId>,
    saves: Vec<SaveId>,
    corrections: Vec<(DateTime<Utc>, Corrected)>,
    lines: Vec<(String, usize, Say)>,
    _folder: tempfile::TempDir,
}

struct Deaf;

impl TurnFeed for Deaf {
    fn delta(&self, _: u32, _: usize, _: &NpcId, _: &str) {}
    fn done(&self, _: ReplyDone) -> u64 {
        2
    }
    fn reserve_committed(&self) -> u64 {
        3
    }
}

/// Cuts as soon as anything was said.
struct CutsIn {
    hand: watch::Sender<Option<Cut>>,
}

impl TurnFeed for CutsIn {
    fn delta(&self, _: u32, _: usize, _: &NpcId, _: &str) {
        self.hand.send_replace(Some(Cut::default()));
    }
    fn done(&self, _: ReplyDone) -> u64 {
        2
    }
    fn reserve_committed(&self) -> u64 {
        3
    }
}

fn npc(id: &str, name: &str, now: DateTime<Utc>) -> Npc {
    Npc {
        world: "vale".parse().unwrap(),
        id: id.parse().unwrap(),
        name: name.to_owned(),
        persona: Persona {
            description: "Sells fruit.".to_owned(),
            ..Persona::default()
        },
        language: Language::En,
        factions: vec![],
        model: None,
        settings: WorldSettings::default(),
        version: 1,
        updated_at: now,
    }
}

impl World {
    /// A world in which nothing has happened.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("colloquy.db");
        std::fs::write(&path, &*EMPTY).unwrap();
        let clock = ManualClock::at(BEGINNING.parse().unwrap());
        let options = SqliteOptions {
            readers: 1,
            ..SqliteOptions::default()
        };
        let store = sqlite::open(path.to_str().unwrap(), options, clock.clone())
            .await
            .unwrap();
        let player = Arc::new(Player::default());
        let llm: Arc<dyn Llm> = player.clone();
        let mut settings = Config::defaults().dialogue();
        settings.summaries.first_after_turns = 3;
        settings.summaries.then_every_turns = 2;
        settings.summaries.keep = 2;
        settings.summaries.buffer_min_turns = 2;
        let ids = Arc::new(IdSource::random(clock.clone()));
        let services = Services {
            settings: Arc::new(settings),
            ledger: store.ledger(),
            buffers: Arc::new(InProcessBuffers::new(BufferLimits::default())),
            index: Arc::new(InProcessFactIndex::new(
                store.point_source(),
                FactIndexOptions::default(),
            )),
            embedder: Arc::new(Angles::new()),
            models: Arc::new(Models::with_limits(
                RouteTable::uniform(&llm),
                ModelLimits::default(),
                clock.clone(),
            )),
            prompts: TEMPLATES.clone(),
            bodies: Arc::new(BodyCache::new(1_000)),
            clock: clock.clone(),
            ids: ids.clone(),
        };
        let now = clock.now();
        let npcs = [npc("mira", "Mira", now), npc("ergen", "Ergen", now)];
        let mut world = Self {
            authored: AuthoredWorld {
                id: "vale".parse().unwrap(),
                name: "Vale".to_owned(),
                premise: String::new(),
                language: Language::En,
                rules: vec![],
                settings: WorldSettings {
                    share_between_players: Some(true),
                    ..WorldSettings::default()
                },
                version: 1,
                updated_at: now,
            },
            npcs: npcs.into_iter().map(|npc| (npc.id.clone(), npc)).collect(),
            node: ids.next(),
            scope: TenantScope::new("demo".parse().unwrap()),
            talks: Vec::new(),
            saves: Vec::new(),
            corrections: Vec::new(),
            lines: Vec::new(),
            services,
            player,
            clock,
            _folder: folder,
        };
        world.author().await;
        world
    }

    async fn author(&mut self) {
        let ledger = &self.services.ledger;
        let tenant = Tenant {
            id: self.scope.tenant().clone(),
            name: "Demo".to_owned(),
            enabled: true,
            created_at: self.clock.now(),
        };
        ledger.tenants.ensure(&tenant).await.unwrap();
        let edit = self.edit("world.put");
        ledger
            .authored
            .put_world(&self.scope, &self.authored, None, &edit)
            .await
            .unwrap();
        for npc in self.npcs.values() {
            let edit = self.edit("npc.put");
            ledger.authored.put_npc(&self.scope, npc, None, &edit).await.unwrap();
        }
        for talk in 0..TALKS {
            let now = self.clock.now();
            let dialogue = Dialogue {
                id: self.services.ids.dialogue(DialogueKind::Session),
                world: self.authored.id.clone(),
                npcs: vec![if talk == 3 { "ergen" } else { "mira" }.parse().unwrap()],
                player: Some(player_of(talk)),
                witnesses: if talk == 3 {
                    vec!["mira".parse().unwrap()]
                } else {
                    vec![]
                },
                resume_token_hash: vec![],
                status: DialogueStatus::Open,
                options: DialogueOptions::default(),
                cause: None,
                created_at: now,
                updated_at: now,
                head_turn: 0,
            };
            ledger.dialogues.create(&self.scope, &dialogue).await.unwrap();
            self.talks.push(dialogue.id);
        }
    }

    fn edit(&self, action: &'static str) -> AuditEdit {
        AuditEdit {
            id: self.services.ids.next(),
            audit_id: self.services.ids.next(),
            subject: "designer".to_owned(),
            role: Role::Backend,
            player: None,
            at: self.clock.now(),
            action,
            object: "x".to_owned(),
        }
    }

    // --- what happens ---

    pub async fn happens(&mut self, number: usize, op: &Op) {
        self.clock.advance(STEP);
        match op {
            Op::Say(say) => {
                let line = self.player.learn(number, say);
                self.lines.push((line.clone(), number, say.clone()));
                let whole = Player::reply(&super::history::name_of(number), say).chars().count();
                let cut = say.cut.map(|cut| 1 + share(cut, whole.saturating_sub(1)));
                self.say(usize::from(say.talk), &line, cut).await;
                if !say.later {
                    self.work(usize::MAX, 0).await;
                }
            }
            Op::Edit { pick, how } => self.correct_any(*pick, *how).await,
            Op::Write { fruit, adjective } => {
                self.write(*fruit, *adjective).await;
                let written = Corrected::Written {
                    fruit: *fruit,
                    adjective: *adjective,
                };
                self.corrections.push((self.clock.now(), written));
            }
            Op::Rewind { talk, to, heard } => self.rewind(usize::from(*talk), *to, *heard).await,
            Op::Uncut { talk } => self.uncut(usize::from(*talk)).await,
            Op::Save => {
                self.save().await;
            }
            Op::Restore { pick } => {
                if !self.saves.is_empty() {
                    let save = self.saves[usize::from(*pick) % self.saves.len()];
                    self.restore(save).await;
                }
            }
            Op::Work { jobs, seed } => self.work(usize::from(*jobs), *seed).await,
        }
    }

    /// The dialogue as an actor would take it up.
    async fn open(&self, talk: usize) -> OpenDialogue {
        let now = self.clock.now();
        let until = now + Duration::from_mins(1);
        let dialogues = &self.services.ledger.dialogues;
        let claim = dialogues
            .claim(&self.scope, self.talks[talk], self.node, now, until)
            .await
            .unwrap();
        let Claim::Owned(open) = claim else { panic!("{claim:?}") };
        *open
    }

    async fn input(&self, talk: usize, line: &str) -> TurnInput {
        let open = self.open(talk).await;
        let ledger = &self.services.ledger;
        let summaries = ledger.summaries.kept(&self.scope, open.dialogue.id).await.unwrap();
        let mut checkpoint = open.checkpoint.clone();
        checkpoint.catch_up(&summaries, self.services.settings.summaries.buffer_min_turns);
        let from = checkpoint.buffer_from.max(1);
        let turns = ledger
            .dialogues
            .turns(&self.scope, open.dialogue.id, from, open.dialogue.head_turn)
            .await
            .unwrap();
        let history: Vec<BufferedTurn> = turns.iter().map(Into::into).collect();
        let npc = &self.npcs[&open.dialogue.npcs[0]];
        TurnInput {
            scope: self.scope.clone(),
            node: self.node,
            world: Arc::new(self.authored.clone()),
            npc: Arc::new(npc.clone()),
            player: open.dialogue.player.clone(),
            scene: None,
            epoch: open.epoch,
            id: self.services.ids.next(),
            number: open.dialogue.head_turn + 1,
            previous: open.head,
            line: line.to_owned(),
            key: None,
            goes_on: None,
            history: Arc::new(history),
            summaries: Arc::new(summaries),
            checkpoint,
            accepted_at: self.clock.instant(),
            started_at: self.clock.now(),
            queue_ms: 0.0,
            memory_wait_ms: 0.0,
            started_seq: open.next_seq,
            dialogue: Arc::new(open.dialogue),
        }
    }

    /// Says a line; the player cuts in after `cut` characters of the reply.
    async fn say(&self, talk: usize, line: &str, cut: Option<usize>) {
        let input = self.input(talk, line).await;
        let (hand, watch) = watch::channel(None);
        let outcome = match cut {
            Some(chars) => {
                self.player.hold_after(chars);
                turn::run(&self.services, input, &CutsIn { hand }, watch).await
            }
            None => turn::run(&self.services, input, &Deaf, watch).await,
        };
        match outcome {
            Ok(_) | Err(TurnError::CutBeforeReply) => {}
            Err(error) => panic!("a turn failed: {error}"),
        }
    }

    fn request(&self, open: &OpenDialogue, target: Target) -> RewindRequest {
        RewindRequest {
            scope: self.scope.clone(),
            node: self.node,
            dialogue: open.dialogue.id,
            world: open.dialogue.world.clone(),
            epoch: open.epoch,
            head_turn: open.dialogue.head_turn,
            head: open.head,
            fence: false,
            target,
            key: None,
            seq: open.next_seq,
            who: self.who(),
            action: "session.rewind",
        }
    }

    fn who(&self) -> Principal {
        Principal {
            subject: "player".to_owned(),
            tenant: self.scope.tenant().clone(),
            role: Role::Backend,
            player: None,
            world: None,
            expires_at: DateTime::<Utc>::MAX_UTC,
        }
    }

    /// Takes a save of where everything stands.
    pub async fn save(&mut self) -> SaveId {
        let taken = saves::take(&self.services, &self.who(), &self.authored.id, String::new())
            .await
            .unwrap();
        let SaveOutcome::Saved(save) = taken else {
            panic!("{taken:?}")
        };
        self.saves.push(save.id);
        save.id
    }

    /// Loads a save.
    pub async fn restore(&mut self, save: SaveId) {
        self.clock.advance(STEP);
        let request = RestoreRequest {
            scope: self.scope.clone(),
            world: self.authored.id.clone(),
            save,
            key: None,
            seq_gap: 0,
            who: self.who(),
        };
        let outcome = saves::restore(&self.services, request).await.unwrap();
        assert!(matches!(outcome, RestoreOutcome::Done { .. }), "{outcome:?}");
        for talk in 0..self.talks.len() {
            let open = self.open(talk).await;
            self.buffer_follows(talk, open.dialogue.head_turn).await;
        }
    }

    /// Does everything that waits.
    pub async fn rest(&self) {
        self.work(usize::MAX, 0).await;
    }

    async fn rewind(&mut self, talk: usize, to: u16, heard: Option<u16>) {
        let open = self.open(talk).await;
        let number = u32::try_from(share(to, open.dialogue.head_turn as usize)).unwrap();
        let heard_chars = match heard {
            Some(heard) if number > 0 => {
                let dialogues = &self.services.ledger.dialogues;
                let turns = dialogues
                    .turns(&self.scope, open.dialogue.id, number, number)
                    .await
                    .unwrap();
                Some(share(heard, turns[0].reply_text.chars().count()))
            }
            _ => None,
        };
        let request = self.request(&open, Target::Turn { number, heard_chars });
        let moved = rewind::rewind(&self.services, request).await.unwrap();
        if let Moved::Done(made) = moved {
            self.buffer_follows(talk, made.rewound.head_turn).await;
        }
    }

    async fn uncut(&mut self, talk: usize) {
        let open = self.open(talk).await;
        let request = self.request(&open, Target::Uncut);
        match rewind::rewind(&self.services, request).await {
            Ok(_) | Err(RewindError::NothingToResume) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A buffer that claims to be the ledger's is.
    async fn buffer_follows(&self, talk: usize, head_turn: u32) {
        let dialogue = self.talks[talk];
        let kept = self.services.buffers.load(&self.scope, dialogue).await.unwrap();
        let Some(kept) = kept else { return };
        let ledger = &self.services.ledger.dialogues;
        let turns = ledger.turns(&self.scope, dialogue, 1, u32::MAX >> 1).await.unwrap();
        let head = turns.last().map(|turn| turn.id);
        let claims = kept.head.turn == head && head.is_some();
        if claims {
            let from = kept.turns.first().map_or(head_turn + 1, |turn| turn.number);
            let expected: Vec<BufferedTurn> = turns
                .iter()
                .filter(|turn| turn.number >= from)
                .map(Into::into)
                .collect();
            assert_eq!(kept.turns, expected);
        }
    }

    /// Does at most `most` jobs; `seed` mixes the dialogues, whose own jobs keep their order. Then
    /// memories are settled and the index follows.
    async fn work(&self, most: usize, seed: u8) {
        let ledger = &self.services.ledger;
        let mut left = most;
        loop {
            ledger.jobs.release_all(self.node).await.unwrap();
            let now = self.clock.now();
            let leased = ledger
                .jobs
                .lease(&self.scope, self.node, now, now + Duration::from_mins(1), 1_000)
                .await
                .unwrap();
            let mut lanes: BTreeMap<DialogueId, Vec<Job>> = BTreeMap::new();
            for job in leased {
                lanes.entry(job.dialogue).or_default().push(job);
            }
            if lanes.is_empty() || left == 0 {
                break;
            }
            let mut turn = usize::from(seed);
            while !lanes.is_empty() && left > 0 {
                let lane = *lanes.keys().nth(turn % lanes.len()).unwrap();
                let jobs = lanes.get_mut(&lane).unwrap();
                let job = jobs.remove(0);
                if jobs.is_empty() {
                    lanes.remove(&lane);
                }
                jobs::run(&self.services, &self.scope, &job).await.unwrap();
                turn = turn * 7 + 3;
                left -= 1;
            }
        }
        if most == usize::MAX || seed.is_multiple_of(2) {
            while remember::settle_all(&self.services, &self.scope).await.unwrap() > 0 {}
        }
        while jobs::relay_outbox(&self.services).await.unwrap() > 0 {}
    }

    // --- corrections ---

    async fn facts(&self) -> Vec<Fact> {
        let mut all = BTreeMap::new();
        for npc in self.npcs.keys() {
            let filter = FactFilter {
                viewpoint: Viewpoint {
                    world: self.authored.id.clone(),
                    npc: npc.clone(),
                    factions: vec![],
                    player: None,
                    sees_all_players: true,
                },
                subject: None,
                kind: None,
                from: None,
                to: None,
                at: self.clock.now(),
                include_invalid: true,
            };
            let page = PageRequest {
                limit: 200,
                after: None,
            };
            let facts = &self.services.ledger.facts;
            for fact in facts.list(&self.scope, &filter, &page).await.unwrap().items {
                let unsaid = fact.invalid.as_ref().map(|invalid| invalid.reason) == Some(InvalidReason::Unsaid);
                if !unsaid {
                    all.insert(fact.statement.content.clone(), fact);
                }
            }
        }
        all.into_values().collect()
    }

    async fn correct_any(&mut self, pick: u16, how: Edit) {
        let facts = self.facts().await;
        if facts.is_empty() {
            return;
        }
        let fact = &facts[usize::from(pick) % facts.len()];
        self.correct(fact.id, how).await;
        let corrected = Corrected::Fact {
            fact: fact.id,
            content: fact.statement.content.clone(),
            how,
        };
        self.corrections.push((self.clock.now(), corrected));
    }

    async fn correct(&self, fact: FactId, how: Edit) {
        let facts = &self.services.ledger.facts;
        let edit = self.edit("fact.edit");
        let correction = match how {
            Edit::Remove => {
                facts.remove(&self.scope, fact, None, &edit).await.unwrap();
                return;
            }
            Edit::Restore => {
                facts.restore(&self.scope, fact, None, &edit).await.unwrap();
                return;
            }
            Edit::Pin(pinned) => Correction {
                pinned: Some(pinned),
                ..Correction::default()
            },
            Edit::Reword(adjective) => {
                let known = facts.get(&self.scope, fact).await.unwrap().unwrap();
                let adjective = ADJECTIVES[usize::from(adjective) % ADJECTIVES.len()];
                let object = known.statement.object;
                Correction {
                    content: Some(format!("It is {adjective} {object} (corrected)")),
                    ..Correction::default()
                }
            }
            Edit::Weigh(importance) => Correction {
                importance: Some(Importance::clamped(f64::from(importance))),
                ..Correction::default()
            },
        };
        remember::correct(&self.services, &self.scope, fact, correction, None, &edit)
            .await
            .unwrap();
    }

    async fn write(&self, fruit: u8, adjective: u8) {
        let (fruit, adjective) = (
            FRUITS[usize::from(fruit) % FRUITS.len()],
            ADJECTIVES[usize::from(adjective) % ADJECTIVES.len()],
        );
        let fact = HandWritten {
            world: self.authored.id.clone(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::Npc("mira".parse().unwrap())]),
                private_to: None,
            },
            subject: "player:p1".to_owned(),
            predicate: "like".to_owned(),
            object: fruit.to_owned(),
            content: format!(
                "The player likes {adjective} {fruit}, by hand {}",
                self.clock.now().timestamp()
            ),
            keywords: vec![fruit.to_owned()],
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            pinned: false,
            valid_at: None,
        };
        let edit = self.edit("fact.create");
        remember::write_by_hand(&self.services, &self.scope, fact, &edit)
            .await
            .unwrap();
    }

    // --- replaying ---

    /// Ends what is under way, and says what an empty world is to be fed.
    pub async fn record(&mut self) -> Record {
        self.clock.advance(STEP);
        self.work(usize::MAX, 0).await;
        let mut turns = Vec::new();
        for (talk, dialogue) in self.talks.iter().enumerate() {
            let dialogues = &self.services.ledger.dialogues;
            let standing = dialogues.turns(&self.scope, *dialogue, 1, u32::MAX >> 1).await.unwrap();
            turns.extend(standing.into_iter().map(|turn| (talk, turn)));
        }
        turns.sort_by_key(|(_, turn)| turn.committed_at);
        // A correction lives while its fact lives. What is learned from a turn of which less was heard is
        // learned anew.
        let living: BTreeSet<FactId> = self.facts().await.into_iter().map(|fact| fact.id).collect();
        let lives = |corrected: &Corrected| match corrected {
            Corrected::Fact { fact, .. } => living.contains(fact),
            Corrected::Written { .. } => true,
        };
        let corrections = self.corrections.iter().filter(|(_, corrected)| lives(corrected));
        Record {
            turns,
            corrections: corrections.cloned().collect(),
            lines: self.lines.clone(),
            end: self.clock.now(),
        }
    }

    /// Feeds what stands, in order, each with its consequences before the next.
    pub async fn replay(&mut self, record: &Record) {
        let mut corrections = record.corrections.iter().peekable();
        for (talk, turn) in &record.turns {
            while let Some((at, corrected)) = corrections.next_if(|(at, _)| *at < turn.committed_at) {
                self.correct_again(*at, corrected).await;
            }
            self.advance_to(turn.committed_at);
            let (_, number, say) = record
                .lines
                .iter()
                .find(|(line, ..)| *line == turn.player_text)
                .unwrap();
            self.player.learn(*number, say);
            let cut = (turn.status == TurnStatus::Interrupted).then(|| turn.reply_text.chars().count());
            self.say(*talk, &turn.player_text, cut).await;
            self.work(usize::MAX, 0).await;
        }
        for (at, corrected) in corrections {
            self.correct_again(*at, corrected).await;
        }
        self.advance_to(record.end);
        self.work(usize::MAX, 0).await;
    }

    fn advance_to(&self, at: DateTime<Utc>) {
        self.clock.advance((at - self.clock.now()).to_std().unwrap());
    }

    async fn correct_again(&self, at: DateTime<Utc>, corrected: &Corrected) {
        self.advance_to(at);
        match corrected {
            Corrected::Written { fruit, adjective } => self.write(*fruit, *adjective).await,
            Corrected::Fact { content, how, .. } => {
                let facts = self.facts().await;
                if let Some(fact) = facts.iter().find(|fact| fact.statement.content == *content) {
                    self.correct(fact.id, *how).await;
                }
            }
        }
    }

    // --- what can be seen ---

    pub async fn seen(&self) -> Seen {
        let ledger = &self.services.ledger;
        let mut seen = Seen::default();
        for fact in self.facts().await {
            if fact.valid_at(self.clock.now()) {
                let (knowers, view) = (fact.audience.fingerprint(), &fact.view);
                seen.facts.push(format!(
                    "{knowers} | {} | {} | {:?} | {} | {} | {:?} | {}",
                    fact.statement.subject,
                    view.content,
                    view.keywords,
                    view.importance.get(),
                    view.pinned,
                    fact.statement.kind,
                    fact.valid_at,
                ));
            }
        }
        for (talk, dialogue) in self.talks.iter().enumerate() {
            let turns = ledger
                .dialogues
                .turns(&self.scope, *dialogue, 1, u32::MAX >> 1)
                .await
                .unwrap();
            seen.transcripts.extend(turns.iter().map(|turn| {
                let (said, reply, status) = (&turn.player_text, &turn.reply_text, turn.status.as_str());
                format!(
                    "{talk}: {} {said} -> {reply} ({status}, {})",
                    turn.number, turn.committed_at
                )
            }));
            let summaries = ledger.summaries.kept(&self.scope, *dialogue).await.unwrap();
            seen.summaries.extend(summaries.iter().map(|summary| {
                let (from, to, at) = (summary.from_turn, summary.to_turn, summary.created_at);
                format!(
                    "{talk}: {from}-{to} {} ({}, {at})",
                    summary.text,
                    summary.importance.get()
                )
            }));
            for fruit in FRUITS {
                let input = self.input(talk, &format!("What do you know of {fruit}?")).await;
                let preview = prompt::preview(&self.services, &input).await.unwrap();
                let texts = preview.messages.iter().flat_map(|message| message.content.lines());
                seen.prompts.extend(texts.map(|line| format!("{talk} {fruit}: {line}")));
            }
        }
        let changes = ledger.state.standing(&self.scope, &self.authored.id).await.unwrap();
        let folded = state::fold(changes.iter().map(|stored| &stored.change));
        seen.state = format!("{folded:#?}").lines().map(str::to_owned).collect();
        let indexed = self.services.index.count(&self.scope).await.unwrap();
        let wanted = jobs::expected_points(&self.services, &self.scope).await.unwrap();
        if indexed != wanted {
            seen.index
                .push(format!("{indexed} facts in the index, {wanted} in the ledger"));
        }
        seen
    }

    pub async fn close(self) {
        self.services.ledger.maintenance.close().await;
    }
}

/// The part of `of` that `share`/65536 is; all of it for the largest.
fn share(share: u16, of: usize) -> usize {
    (usize::from(share) * (of + 1)) >> 16
}

fn player_of(talk: u8) -> PlayerId {
    if talk == 2 { "p2" } else { "p1" }.parse().unwrap()
}
