//! A world without actors: its stores and who is in it. What a history does to it is in `living`, what
//! people change in `manual_corrections`, how it is said again in `replayer`, what can be seen of it in `seen`.

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
    config::Config,
    dialogue::{
        Services, jobs,
        models::{ModelLimits, ModelRouter, RouteTable},
        npc_conversation::SceneMember,
        prompt::Templates,
        recall::MemoryCache,
        settings::DialogueSettings,
    },
    ids::{DialogueId, DialogueKind, FactId, NodeId, NpcId, PlayerId, SaveId, TurnId},
    memory::{
        authored::{Language, Npc, Persona, World as AuthoredWorld, WorldSettings},
        fact::{Cause, Fact, Viewpoint},
        turn::Turn,
    },
    ports::{
        PageRequest,
        clock::{Clock as _, IdSource, ManualClock},
        disabled_tenants::DisabledTenants,
        embedder::Embedder as _,
        ledger::{
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
    history::{AMONG_NPCS, Adjective, BY_ACK, Fruit, JOINED, ManualEdit, SayOp, TALKS},
    model::{FruitEmbedder, ReplayModel},
    prompt_recorder::{NextPrompt, PromptRecordingStore},
    store::{ReplayStore, StorePlace},
};

/// To whom Ergen belongs.
const GUILD: &str = "guild";
/// When every history begins.
const BEGINNING: &str = "2026-03-01T09:00:00Z";
/// How much time passes with everything that happens.
const STEP: Duration = Duration::from_secs(1);

// What is the same in every world is made once: there are thousands of them.
static TEMPLATES: LazyLock<Arc<Templates>> = LazyLock::new(|| Arc::new(Templates::load(None).unwrap()));
static SETTINGS: LazyLock<Arc<DialogueSettings>> = LazyLock::new(|| {
    let mut settings = Config::embedded_defaults().dialogue_settings();
    // Few enough that some histories have one fade, or go.
    settings.summaries.first_after_turns = 2;
    settings.summaries.then_every_turns = 1;
    settings.summaries.keep = 2;
    settings.summaries.buffer_min_turns = 2;
    Arc::new(settings)
});

/// A fact by what is the same of it in every world in which it was learned: its words, when they were
/// said, and who heard them.
type FactName = (String, DateTime<Utc>, String);

fn name_of(fact: &Fact) -> FactName {
    let knowers = fact.audience.audience_key();
    (fact.statement.content.clone(), fact.valid_at, knowers)
}

/// A correction as it was made, to be made again.
#[derive(Debug, Clone)]
enum RecordedCorrection {
    Fact {
        fact: FactId,
        name: FactName,
        how: ManualEdit,
        /// What new keywords came to: they depend on those that it showed.
        keywords: Option<Vec<String>>,
    },
    Written {
        fruit: Fruit,
        adjective: Adjective,
        long: bool,
    },
    /// How far a player has come with Mira.
    Progress { second: bool, to: u8 },
}

/// A session in which a player joined the NPCs.
#[derive(Debug, Clone, Copy)]
struct JoinedSession {
    at: DateTime<Utc>,
    /// Number of the NPCs' line that it goes on from.
    line: u32,
    /// That line has stood ever since.
    open: bool,
}

pub struct ReplayWorld {
    services: Services,
    player: Arc<ReplayModel>,
    clock: Arc<ManualClock>,
    /// What the prompt of the next turn had, when it was said before.
    recorded: NextPrompt,
    scope: TenantScope,
    authored: AuthoredWorld,
    npcs: BTreeMap<NpcId, Npc>,
    node: NodeId,
    /// Those that every history begins with, and behind them those that `joined` tells of.
    talks: Vec<DialogueId>,
    joined: Vec<JoinedSession>,
    /// With which of the joined sessions there were, and were open.
    saves: Vec<(SaveId, Vec<bool>)>,
    corrections: Vec<(DateTime<Utc>, RecordedCorrection)>,
    lines: Vec<(usize, SayOp)>,
    /// Facts that were looked for by name.
    learned: Mutex<BTreeMap<FactName, FactId>>,
    place: StorePlace,
}

impl ReplayWorld {
    /// A world in which nothing has happened. `shares`: what players tell its NPCs in private is told to others.
    pub async fn new(shares: bool) -> Self {
        let embedder = Arc::new(FruitEmbedder::new());
        let store = ReplayStore::open_empty(BEGINNING.parse().unwrap(), embedder.info()).await;
        let (clock, mut ledger) = (store.clock, store.ledger);
        let recorded = NextPrompt::default();
        ledger.dialogues = Arc::new(PromptRecordingStore {
            inner: ledger.dialogues,
            next: recorded.clone(),
        });
        let player = Arc::new(ReplayModel::default());
        let llm: Arc<dyn Llm> = player.clone();
        let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
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
        let mut npcs = [npc("mira", "Mira", now), npc("ergen", "Ergen", now)];
        npcs[1].factions = vec![GUILD.parse().unwrap()];
        let mut world = Self {
            authored: authored(now, shares),
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
        };
        world.author_world().await;
        world
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
        self.author_past().await;
        for talk in 0..TALKS {
            let dialogue = self.dialogue(talk);
            ledger.dialogues.create_dialogue(&self.scope, &dialogue).await.unwrap();
            self.talks.push(dialogue.id);
        }
    }

    fn dialogue(&self, talk: u8) -> Dialogue {
        let now = self.clock.now();
        let (kind, npcs, witnesses): (_, &[&str], &[&str]) = match talk {
            AMONG_NPCS => (DialogueKind::NpcConversation, &["ergen", "mira"], &[]),
            JOINED => (DialogueKind::Session, &["ergen", "mira"], &[]),
            3 => (DialogueKind::Session, &["ergen"], &["mira"]),
            _ => (DialogueKind::Session, &["mira"], &[]),
        };
        let named = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let player = if talk == 2 { "p2" } else { "p1" };
        // Ergen hears of it through the guild.
        let factions = if talk == 2 {
            vec![GUILD.parse().unwrap()]
        } else {
            vec![]
        };
        let playback = if talk == BY_ACK {
            Playback::Ack
        } else {
            Playback::Immediate
        };
        Dialogue {
            id: self.services.ids.next_dialogue_id(kind),
            world: self.authored.id.clone(),
            npcs: named(npcs),
            player: (talk != AMONG_NPCS).then(|| -> PlayerId { player.parse().unwrap() }),
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

    /// Who talks in a dialogue of NPCs.
    fn cast(&self, dialogue: &Dialogue) -> Vec<SceneMember> {
        let member = |npc: &NpcId| SceneMember {
            id: npc.clone(),
            name: self.npcs[npc].name.clone(),
        };
        dialogue.npcs.iter().map(member).collect()
    }

    fn edit(&self, action: &'static str) -> AuditEdit {
        AuditEdit {
            id: self.services.ids.next_id(),
            audit_id: self.services.ids.next_id(),
            subject: "designer".to_owned(),
            role: Role::Backend,
            player: None,
            at: self.clock.now(),
            action,
            object: "x".to_owned(),
        }
    }

    fn advance_to(&self, at: DateTime<Utc>) {
        self.clock.advance((at - self.clock.now()).to_std().unwrap());
    }

    /// Everything that an NPC knows.
    fn viewpoint(&self, npc: &NpcId) -> Viewpoint {
        Viewpoint {
            world: self.authored.id.clone(),
            npc: npc.clone(),
            factions: self.npcs[npc].factions.clone(),
            player: None,
            watchers: colloquy::memory::fact::Watchers::default(),
            sees_all_players: true,
        }
    }

    /// Where a dialogue of a history is; `None`: nobody has joined, or what was joined there is closed.
    fn place_of(&self, talk: u8) -> Option<usize> {
        if talk < JOINED {
            return Some(talk.into());
        }
        let last = self.joined.last()?;
        last.open.then(|| self.talks.len() - 1)
    }

    /// Opens the session of a player who joins the NPCs at this line of theirs.
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

    /// The turns of a dialogue that stand.
    async fn turns(&self, talk: usize) -> Vec<Turn> {
        let dialogues = &self.services.ledger.dialogues;
        let turns = dialogues.load_turns(&self.scope, self.talks[talk], 1, u32::MAX >> 1);
        turns.await.unwrap()
    }

    /// Every fact that somebody wrote or said in words that stand, valid or not.
    async fn facts(&self) -> BTreeMap<FactName, Fact> {
        let all = self.stored_facts().await.into_iter();
        all.filter(|(stands, _)| *stands)
            .map(|(_, fact)| (name_of(&fact), fact))
            .collect()
    }

    /// Every fact that there is, and whether the words that said it stand, or somebody wrote it.
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
                at: self.clock.now(),
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
                    _ => true,
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

fn authored(now: DateTime<Utc>, shares: bool) -> AuthoredWorld {
    AuthoredWorld {
        id: "vale".parse().unwrap(),
        name: "Vale".to_owned(),
        premise: String::new(),
        language: Language::En,
        rules: vec![],
        settings: WorldSettings {
            share_between_players: Some(shares),
            unlocks: Some(past::rules()),
            ..WorldSettings::default()
        },
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
        settings: WorldSettings::default(),
        has_scenarios: true,
        version: 1,
        updated_at: now,
    }
}
