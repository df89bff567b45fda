//! A world without actors: its stores and characters. `operations` applies a history, `manual_corrections` changes
//! facts, `replayer` replays a world, and `observation` reads the state.

mod harrow;
mod manual_corrections;
mod observation;
mod operations;
mod past;
mod replayer;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

use chrono::{DateTime, Utc};
use colloquy::{
    adapters::offline_embedder::OfflineEmbedder,
    config::Config,
    dialogue::{
        Services, jobs,
        models::{ModelLimits, ModelRouter, RouteTable},
        npc_conversation::SceneMember,
        prompt::Templates,
        recall::MemoryCache,
        settings::DialogueSettings,
    },
    ids::{DialogueId, DialogueKind, FactId, FactionId, NodeId, NpcId, PlayerId, SaveId, TenantId, TurnId},
    memory::{
        authored::{Language, Npc, Persona, SelfTold, TierSettings, World as AuthoredWorld, WorldSettings},
        calendar::GameTime,
        disclosure::audience::Viewpoint,
        fact::{Cause, Fact, InvalidReason},
        turn::Turn,
    },
    ports::{
        PageRequest,
        clock::{Clock as _, IdSource, ManualClock},
        disabled_tenants::DisabledTenants,
        embedder::Embedder,
        ledger::{
            actions::ActionAnswer,
            audit::Edit as AuditEdit,
            dialogues::{Dialogue, DialogueOptions, DialogueStatus, Playback},
            facts::FactFilter,
            tenants::Tenant,
        },
        llm::Llm,
    },
    tenancy::{Role, TenantScope},
};
use parking_lot::Mutex;

pub use self::observation::Observation;
use super::{
    adventure::{PAIRS, PlayOp},
    history::{AMONG_NPCS, Adjective, BY_ACK, Fruit, JOINED, Line, ManualEdit, TALKS},
    model::{FruitEmbedder, ReplayModel},
    on_a_runtime,
    prompt_recorder::{NextPrompt, PromptRecordingStore},
    store::{self, ReplayStore, StorePlace},
};

/// Ergen's faction.
const GUILD: &str = "guild";
/// The start time of all histories.
const BEGINNING: &str = "2026-03-01T09:00:00Z";
/// The time that passes with every operation.
const STEP: Duration = Duration::from_secs(1);

// Constants of all worlds are created once, because tests create thousands of worlds.
static TEMPLATES: LazyLock<Arc<Templates>> = LazyLock::new(|| Arc::new(Templates::load(None).unwrap()));
static SETTINGS: LazyLock<Arc<DialogueSettings>> = LazyLock::new(|| {
    let mut settings = Config::embedded_defaults().dialogue_settings();
    // What a node has counted is no part of a history.
    settings.turn.replies_without_block = 0;
    // Low enough that in some histories a summary fades or is evicted.
    settings.summaries.first_after_turns = 2;
    settings.summaries.then_every_turns = 1;
    settings.summaries.keep = 2;
    settings.summaries.buffer_min_turns = 2;
    settings.curation.every_turns = 2;
    settings.curation.consolidate_after_d = 0;
    // A replay makes its passes at other moments.
    settings.curation.player_passes_per_hour = 0;
    Arc::new(settings)
});

/// Identifies a fact across worlds: its words, its time, and its audience.
type FactName = (String, DateTime<Utc>, String);

fn name_of(fact: &Fact) -> FactName {
    let knowers = fact.audience.audience_key();
    (fact.statement.content.clone(), fact.valid_at, knowers)
}

/// Returns those of [`ReplayWorld::stored_facts`] that stand.
fn standing_by_name(stored: Vec<(bool, Fact)>) -> BTreeMap<FactName, Fact> {
    let standing = stored.into_iter().filter(|(stands, _)| *stands);
    standing.map(|(_, fact)| (name_of(&fact), fact)).collect()
}

/// A recorded correction, for the replay.
#[derive(Debug, Clone)]
enum RecordedCorrection {
    Fact {
        fact: FactId,
        name: FactName,
        how: ManualEdit,
        /// The resulting keywords, which depend on the visible keywords at the time.
        keywords: Option<Vec<String>>,
    },
    Written {
        fruit: Fruit,
        adjective: Adjective,
        long: bool,
    },
    /// A player's progress with Mira.
    Progress { second: bool, to: u8 },
    /// The backend's events about a player.
    Events { second: bool, hp: u8, mana: i8 },
    /// The facts were consolidated.
    Consolidated,
    /// Hours of the game, reported by the backend.
    TimePassed { hours: u8 },
    /// A restored save set the clock of the world.
    ClockSet { to: GameTime, ratio: f64 },
    /// The events before a turn of the script.
    Script(PlayOp),
    /// The backend's answer to an action of a standing turn.
    Answer {
        talk: usize,
        number: u32,
        name: String,
        answer: ActionAnswer,
    },
}

/// The world of a history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Two sellers of fruit. `shares`: NPCs share what players tell in private. `ratio`: game seconds per real second.
    Vale { shares: bool, ratio: f64 },
    /// The world of the adventure.
    Harrow,
}

/// A session in which a player joined the NPCs.
#[derive(Debug, Clone, Copy)]
struct JoinedSession {
    at: DateTime<Utc>,
    /// The number of the NPC line where the session starts.
    line: u32,
    /// True if the line has stood ever since.
    open: bool,
}

impl Stage {
    fn embedder(self) -> Arc<dyn Embedder> {
        match self {
            Self::Vale { .. } => Arc::new(FruitEmbedder::new()),
            Self::Harrow => Arc::new(OfflineEmbedder::new()),
        }
    }
}

/// A SQLite ledger with a world without turns, written once and copied for every run.
struct AuthoredFile {
    bytes: Vec<u8>,
    tenant: TenantId,
    authored: AuthoredWorld,
    talks: Vec<DialogueId>,
}

static AUTHORED: Mutex<Vec<(Stage, Arc<AuthoredFile>)>> = Mutex::new(Vec::new());

impl AuthoredFile {
    fn of(stage: Stage) -> Arc<Self> {
        let mut known = AUTHORED.lock();
        if let Some((_, file)) = known.iter().find(|(of, _)| *of == stage) {
            return file.clone();
        }
        // Another thread, because this one may run a future.
        let file = std::thread::spawn(move || on_a_runtime(Self::write(stage)));
        let file = Arc::new(file.join().unwrap());
        known.push((stage, file.clone()));
        file
    }

    async fn write(stage: Stage) -> Self {
        let world = ReplayWorld::author(stage).await;
        world.services.ledger.maintenance.close_connections().await;
        Self {
            bytes: world.place.read_file(),
            tenant: world.scope.tenant().clone(),
            authored: world.authored,
            talks: world.talks,
        }
    }
}

pub struct ReplayWorld {
    stage: Stage,
    services: Services,
    player: Arc<ReplayModel>,
    clock: Arc<ManualClock>,
    /// The recorded contents of the next turn's prompt, in a replay.
    recorded: NextPrompt,
    scope: TenantScope,
    authored: AuthoredWorld,
    npcs: BTreeMap<NpcId, Npc>,
    node: NodeId,
    /// The initial dialogues, then the sessions in `joined`.
    talks: Vec<DialogueId>,
    joined: Vec<JoinedSession>,
    /// Saves, with the open state of the joined sessions at the time.
    saves: Vec<(SaveId, Vec<bool>)>,
    corrections: Vec<(DateTime<Utc>, RecordedCorrection)>,
    lines: Vec<(usize, Line)>,
    /// Facts that were looked up by name.
    learned: Mutex<BTreeMap<FactName, FactId>>,
    place: StorePlace,
}

impl ReplayWorld {
    /// Creates a world without turns.
    pub async fn new(stage: Stage) -> Self {
        if store::is_on_postgres() {
            return Self::author(stage).await;
        }
        let (embedder, file) = (stage.embedder(), AuthoredFile::of(stage));
        let (beginning, tenant) = (BEGINNING.parse().unwrap(), file.tenant.clone());
        let store = ReplayStore::open_copy(&file.bytes, tenant, beginning, embedder.info()).await;
        let mut world = Self::on(stage, store, embedder);
        jobs::activate_index(&world.services).await.unwrap();
        world.authored.clone_from(&file.authored);
        world.talks.clone_from(&file.talks);
        world
    }

    /// Writes a world without turns into an empty store.
    async fn author(stage: Stage) -> Self {
        let embedder = stage.embedder();
        let store = ReplayStore::open_empty(BEGINNING.parse().unwrap(), embedder.info()).await;
        let mut world = Self::on(stage, store, embedder);
        world.author_world().await;
        world
    }

    fn on(stage: Stage, store: ReplayStore, embedder: Arc<dyn Embedder>) -> Self {
        let (clock, mut ledger) = (store.clock, store.ledger);
        let recorded = NextPrompt::default();
        let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
        ledger.turns = Arc::new(PromptRecordingStore {
            dialogues: ledger.dialogues.clone(),
            inner: ledger.turns,
            ids: ids.clone(),
            next: recorded.clone(),
        });
        let player = Arc::new(ReplayModel::default());
        let llm: Arc<dyn Llm> = player.clone();
        let services = Services {
            settings: SETTINGS.clone(),
            ledger,
            buffers: store.buffers,
            index: store.index,
            embedder,
            models: Arc::new(ModelRouter::with_limits(
                RouteTable::with_single_model(&llm),
                ModelLimits::default(),
                clock.clone(),
            )),
            prompts: TEMPLATES.clone(),
            memory_cache: Arc::new(MemoryCache::new(1_000)),
            reconcile_backoff: Arc::default(),
            disabled: DisabledTenants::default(),
            clock: clock.clone(),
            ids: ids.clone(),
        };
        let now = clock.now();
        let (authored, npcs) = match stage {
            Stage::Vale { shares, ratio } => {
                let mut npcs = vec![npc("mira", "Mira", now), npc("ergen", "Ergen", now)];
                npcs[1].factions = vec![GUILD.parse().unwrap()];
                (authored(now, shares, ratio), npcs)
            }
            Stage::Harrow => (harrow::authored(now), harrow::npcs(now)),
        };
        Self {
            stage,
            authored,
            npcs: npcs.into_iter().map(|npc| (npc.id.clone(), npc)).collect(),
            node: ids.next_id(),
            scope: TenantScope::new(store.tenant),
            talks: Vec::new(),
            joined: Vec::new(),
            saves: Vec::new(),
            corrections: Vec::new(),
            lines: Vec::new(),
            learned: Mutex::default(),
            recorded,
            services,
            player,
            clock,
            place: store.place,
        }
    }

    async fn author_world(&mut self) {
        let ledger = &self.services.ledger;
        let tenant = Tenant {
            id: self.scope.tenant().clone(),
            name: "Demo".to_owned(),
            enabled: true,
            budget: None,
            created_at: self.clock.now(),
            version: 1,
        };
        ledger.tenants.ensure_tenant(&tenant).await.unwrap();
        jobs::activate_index(&self.services).await.unwrap();
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
        match self.stage {
            Stage::Vale { .. } => {
                self.author_past().await;
                self.author_lore().await;
            }
            Stage::Harrow => self.author_harrow().await,
        }
        for talk in 0..TALKS {
            let dialogue = self.dialogue(talk);
            let ledger = &self.services.ledger;
            ledger.dialogues.create_dialogue(&self.scope, &dialogue).await.unwrap();
            self.talks.push(dialogue.id);
        }
    }

    fn dialogue(&self, talk: u8) -> Dialogue {
        if self.stage == Stage::Harrow {
            let (npc, player) = PAIRS[usize::from(talk)];
            return self.new_dialogue(
                DialogueKind::Session,
                (&[npc], &[]),
                Some(player),
                vec![],
                talk == BY_ACK,
            );
        }
        let (kind, npcs, witnesses): (_, &[&str], &[&str]) = match talk {
            AMONG_NPCS => (DialogueKind::NpcConversation, &["ergen", "mira"], &[]),
            JOINED => (DialogueKind::Session, &["ergen", "mira"], &[]),
            3 => (DialogueKind::Session, &["ergen"], &["mira"]),
            _ => (DialogueKind::Session, &["mira"], &[]),
        };
        let player = if talk == 2 { "p2" } else { "p1" };
        let player = (talk != AMONG_NPCS).then_some(player);
        // Ergen hears the dialogue through the guild.
        let factions = if talk == 2 {
            vec![GUILD.parse().unwrap()]
        } else {
            vec![]
        };
        self.new_dialogue(kind, (npcs, witnesses), player, factions, talk == BY_ACK)
    }

    fn new_dialogue(
        &self,
        kind: DialogueKind,
        (npcs, witnesses): (&[&str], &[&str]),
        player: Option<&str>,
        factions: Vec<FactionId>,
        by_ack: bool,
    ) -> Dialogue {
        let now = self.clock.now();
        let named = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let playback = if by_ack { Playback::Ack } else { Playback::Immediate };
        Dialogue {
            id: self.services.ids.next_dialogue_id(kind),
            world: self.authored.id.clone(),
            npcs: named(npcs),
            player: player.map(|player| -> PlayerId { player.parse().unwrap() }),
            witnesses: named(witnesses),
            resume_token_hash: vec![],
            status: DialogueStatus::Open,
            options: DialogueOptions {
                playback,
                factions,
                ..DialogueOptions::default()
            },
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        }
    }

    /// Returns the speakers of an NPC conversation.
    fn cast(&self, dialogue: &Dialogue) -> Vec<SceneMember> {
        let member = |npc: &NpcId| SceneMember::of_npc(&self.npcs[npc]);
        dialogue.npcs.iter().map(member).collect()
    }

    fn edit(&self, action: &'static str) -> AuditEdit {
        AuditEdit {
            id: self.services.ids.next_id(),
            audit_id: self.services.ids.next_id(),
            subject: "designer".to_owned(),
            role: Role::Backend,
            player: None,
            made_at: self.clock.now(),
            action,
            object: "x".to_owned(),
            limits: colloquy::ports::ledger::usage::AuthoredLimits::default(),
        }
    }

    fn advance_to(&self, at: DateTime<Utc>) {
        self.clock.advance((at - self.clock.now()).to_std().unwrap());
    }

    /// Returns the viewpoint of an NPC with all its knowledge.
    fn viewpoint(&self, npc: &NpcId) -> Viewpoint {
        Viewpoint {
            world: self.authored.id.clone(),
            npc: npc.clone(),
            factions: self.npcs[npc].factions.clone(),
            player: None,
            watchers: colloquy::memory::disclosure::audience::Watchers::default(),
            sees_all_players: true,
        }
    }

    /// Returns the position of a dialogue; `None` if no player has joined, or the joined session is closed.
    fn place_of(&self, talk: u8) -> Option<usize> {
        if talk < JOINED {
            return Some(talk.into());
        }
        let last = self.joined.last()?;
        last.open.then(|| self.talks.len() - 1)
    }

    /// Opens the session of a player who joins the NPCs at a line.
    async fn open_joined(&mut self, joined: JoinedSession, cause: Option<TurnId>) {
        let dialogue = Dialogue {
            cause: cause.map(Cause::Turn),
            ..self.dialogue(JOINED)
        };
        let dialogues = &self.services.ledger.dialogues;
        dialogues.create_dialogue(&self.scope, &dialogue).await.unwrap();
        self.talks.push(dialogue.id);
        self.joined.push(joined);
    }

    /// Returns the standing turns of a dialogue.
    async fn turns(&self, talk: usize) -> Vec<Turn> {
        let dialogues = &self.services.ledger.dialogues;
        let turns = dialogues.load_turns(&self.scope, self.talks[talk], 1, u32::MAX >> 1);
        turns.await.unwrap()
    }

    /// Returns the facts that were written manually or in standing turns, valid or not.
    async fn facts(&self) -> BTreeMap<FactName, Fact> {
        standing_by_name(self.stored_facts().await)
    }

    /// Returns all facts, each with whether its turn stands or a person wrote the fact. A conclusion without its premises does
    /// not stand.
    async fn stored_facts(&self) -> Vec<(bool, Fact)> {
        let mut standing: BTreeSet<TurnId> = BTreeSet::new();
        for talk in 0..self.talks.len() {
            standing.extend(self.turns(talk).await.iter().map(|turn| turn.id));
        }
        let mut all = Vec::new();
        for npc in self.npcs.keys() {
            let filter = FactFilter {
                viewpoint: self.viewpoint(npc),
                subject: None,
                kind: None,
                from: None,
                to: None,
                as_of: self.clock.now(),
                include_invalid: true,
                flagged: false,
            };
            let page = PageRequest {
                limit: 200,
                after: None,
            };
            let facts = &self.services.ledger.facts;
            let page = facts.list_facts(&self.scope, &filter, &page).await.unwrap();
            assert!(page.next.is_none(), "a page is too short for all facts");
            all.extend(page.items.into_iter().map(|fact| {
                let stands = match fact.cause {
                    Cause::Turn(turn) => standing.contains(&turn),
                    _ => fact
                        .invalid
                        .as_ref()
                        .is_none_or(|end| end.reason != InvalidReason::PremiseGone),
                };
                (stands, fact)
            }));
        }
        all
    }

    pub async fn close(self) {
        self.place.reset_for_next_world(&self.services.ledger).await;
    }
}

fn authored(now: DateTime<Utc>, shares: bool, ratio: f64) -> AuthoredWorld {
    AuthoredWorld {
        id: "vale".parse().unwrap(),
        name: "Vale".to_owned(),
        premise: String::new(),
        language: Language::En,
        rules: vec![],
        settings: WorldSettings {
            share_between_players: Some(shares),
            self_told: Some(SelfTold::Shared),
            unlocks: Some(past::rules()),
            changed_by: Some(past::changed_by_replies()),
            state: Some(vec![past::mana()]),
            actions: Some(vec![past::salute()]),
            clock: Some(past::clock(ratio)),
            ..WorldSettings::default()
        },
        lore_version: 0,
        tenant: colloquy::memory::authored::TenantTier::default(),
        version: 1,
        updated_at: now,
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
        settings: TierSettings::default(),
        has_scenarios: true,
        has_tells: false,
        version: 1,
        updated_at: now,
    }
}
