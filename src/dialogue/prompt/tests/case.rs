//! A turn whose prompt a test assembles.

use super::{
    super::{
        assembly::assemble_prompt, context::PromptContext, dead_character::DeadCharacter,
        own_prompt::enlarge_for_own_prompt,
    },
    *,
};
use crate::{
    disclosure::{Disclosable, open_correction},
    knowledge::{
        Corrections, Episodes, FoundFacts, GatheredKnowledge, Identity, Insights, Scenarios, StandingFacts, Summaries,
        WorldLines,
    },
    recall::NEAR_DUPLICATE_COSINE,
    turn::TurnInput,
};
use colloquy_core::{ids::NodeId, scope::TenantScope};
use colloquy_memory::{directive::SelectedDirectives, turn::Checkpoint};
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueOptions, DialogueStatus};

/// A turn with what the turn gathered.
pub(super) struct PromptCase {
    pub world: World,
    pub npc: Npc,
    pub directives: SelectedDirectives,
    pub line: String,
    pub history: Vec<BufferedTurn>,
    pub summaries: Vec<Summary>,
    pub outdated: Vec<RemovedStatement>,
    pub standing: Vec<Fact>,
    pub world_lines: Vec<String>,
    pub actions: TurnActions,
    pub hits: Vec<RecallHit>,
    pub episodes: Vec<EpisodeHit>,
    pub insights: Vec<Insight>,
    pub past: Option<NpcPast>,
    pub opened: Vec<OpenedScenario>,
    pub state: WorldState,
    pub meeting: Option<Meeting>,
    pub gate: TopicGate,
    pub counter: TokenCounter,
    pub player: Option<PlayerId>,
    pub scene: Option<Scene>,
    pub witnesses: Vec<SceneMember>,
    pub near_duplicate_cosine: f32,
}

impl PromptCase {
    pub(super) fn of(language: Language, line: &str) -> Self {
        Self {
            world: world(language),
            npc: npc(language),
            directives: SelectedDirectives::default(),
            line: line.to_owned(),
            history: vec![],
            summaries: vec![],
            outdated: vec![],
            standing: vec![],
            world_lines: vec![],
            actions: TurnActions::default(),
            hits: vec![],
            episodes: vec![],
            insights: vec![],
            past: None,
            opened: vec![],
            state: WorldState::default(),
            meeting: None,
            gate: TopicGate::Open,
            counter: TokenCounter::Estimated,
            player: Some("p7".parse().unwrap()),
            scene: None,
            witnesses: vec![],
            near_duplicate_cosine: NEAR_DUPLICATE_COSINE,
        }
    }
    #[allow(clippy::disallowed_methods, reason = "the prompt does not depend on the clock")]
    fn input(&self) -> TurnInput {
        TurnInput {
            scope: TenantScope::new("t".parse().unwrap()),
            node: NodeId::from_u128(0),
            world: Arc::new(self.world.clone()),
            npc: Arc::new(self.npc.clone()),
            directives: Arc::new([]),
            dialogue: Arc::new(Dialogue {
                id: dialogue(),
                world: self.world.id.clone(),
                npcs: vec![self.npc.id.clone()],
                player: self.player.clone(),
                witnesses: vec![],
                resume_token_hash: vec![],
                status: DialogueStatus::Open,
                options: DialogueOptions::default(),
                cause: None,
                created_at: at(0),
                updated_at: at(0),
                head_turn: 0,
            }),
            player: self.player.clone(),
            charged_player: None,
            scene: None,
            epoch: 0,
            id: TurnId::from_u128(0),
            number: 1,
            previous: None,
            replacing: None,
            line: self.line.clone(),
            key: None,
            chat: None,
            continuation: None,
            known_intent: None,
            history: Arc::new(self.history.clone()),
            summaries: Arc::new(self.summaries.clone()),
            checkpoint: Checkpoint::default(),
            accepted_at: std::time::Instant::now(),
            started_at: at(3),
            queue_ms: 0.0,
            memory_wait_ms: 0.0,
            memory_wait: None,
            started_seq: 0,
        }
    }
    fn knowledge(&self) -> GatheredKnowledge {
        GatheredKnowledge {
            scenarios: Scenarios {
                past: self.past.clone(),
                opened: self.opened.clone(),
                tells: vec![],
            },
            identity: Identity {
                meeting: self.meeting.clone().map(Disclosable::sample),
            },
            standing_facts: StandingFacts(Arc::new(all_open(&self.standing))),
            corrections: Corrections(self.outdated.iter().cloned().map(open_correction).collect()),
            world_lines: WorldLines(Disclosable::sample(self.world_lines.clone())),
            actions: self.actions.clone(),
            found_facts: FoundFacts {
                hits: self.hits.clone(),
                found_count: self.hits.len(),
                gate: self.gate,
            },
            summaries: Summaries(all_open(&self.summaries)),
            episodes: Episodes(self.episodes.clone()),
            insights: Insights(all_open(&self.insights)),
            ..GatheredKnowledge::default()
        }
    }
    pub(super) fn assemble(&self, settings: &DialogueSettings) -> Result<Prompt, TurnError> {
        let input = self.input();
        let knowledge = self.knowledge();
        let summaries = all_open(&self.summaries);
        let count = |text: &str| TEMPLATES.count_tokens(self.counter, text);
        let context = PromptContext {
            templates: &TEMPLATES,
            settings: enlarge_for_own_prompt(settings, None, &count),
            input: &input,
            scene: self.scene.as_ref(),
            witnesses: &self.witnesses,
            standing: &knowledge.standing_facts.0,
            summaries: &summaries,
            dead: DeadCharacter::find_in(&self.state),
            clock: None,
            counter: self.counter,
            near_duplicate_cosine: self.near_duplicate_cosine,
        };
        assemble_prompt(&context, &knowledge, &self.directives)
    }
}

/// Returns rows that a gate would have opened.
fn all_open<T: Clone>(rows: &[T]) -> Vec<Disclosable<T>> {
    rows.iter().cloned().map(Disclosable::sample).collect()
}
