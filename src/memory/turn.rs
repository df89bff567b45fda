//! Turns and checkpoints: the numbered history of a dialogue.

use chrono::{DateTime, SubsecRound as _, Utc};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use super::disclosure::{locks::DisclosureLocks, private_terms::PrivateTerms};
use colloquy_core::{
    ids::{ActionId, DialogueId, NpcId, PlayerId, ScenarioId, TurnId},
    scope::Role,
};

/// How a turn's reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, IntoStaticStr, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum TurnStatus {
    /// The model finished.
    Completed,
    /// The player cut off the reply. The text is the sent or heard part.
    Interrupted,
    /// The model failed; no turn was committed.
    Failed,
}

impl TurnStatus {
    /// The name on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// What the player's line asks about (docs/algorithms.md#intent-and-follow-ups).
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Intent {
    #[default]
    Chat,
    Memory,
    Scenario,
    World,
    Overheard,
}

impl Intent {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in prompts, traces and the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
    /// The first intent named in a classifier's answer, if any.
    #[must_use]
    pub fn find_in(answer: &str) -> Option<Self> {
        let answer = answer.to_lowercase();
        let intents = Self::ALL.iter().copied();
        intents
            .filter_map(|intent| Some((answer.find(intent.as_str())?, intent)))
            .min_by_key(|(position, _)| *position)
            .map(|(_, intent)| intent)
    }
}

/// Tokens of one or more model calls, as reported by the endpoint. Tokens that the endpoint did not report are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Always 0 for players, like `cached_tokens`.
    pub prompt_tokens: u32,
    /// Prompt tokens served from the provider's cache; part of `prompt_tokens`.
    pub cached_tokens: u32,
    pub completion_tokens: u32,
}

impl Usage {
    /// Returns the usage without the prompt tokens: the length of a prompt would tell a player about its content.
    #[must_use]
    pub fn for_players(self) -> Self {
        Self {
            completion_tokens: self.completion_tokens,
            ..Self::default()
        }
    }

    /// Returns the usage as a caller of this role may see it.
    #[must_use]
    pub fn seen_by(self, role: Role) -> Self {
        match role {
            Role::Player => self.for_players(),
            _ => self,
        }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // Saturating: an endpoint may report any number.
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
    }
}

/// A committed turn. In a session: the player's line and the NPC's reply. In an NPC conversation: one NPC's line, with
/// `player_text` empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub dialogue: DialogueId,
    /// The turn's number in its dialogue, from 1.
    pub number: u32,
    pub status: TurnStatus,
    pub player: Option<PlayerId>,
    pub player_text: String,
    pub npc: NpcId,
    /// The reply without its state block, as the player saw or heard it.
    pub reply_text: String,
    /// Rises when the text is cut later. Jobs of an older version may not write.
    pub text_version: u32,
    /// Emotion and gesture tags cut from the text.
    pub cues: Vec<String>,
    pub usage: Usage,
    pub started_at: DateTime<Utc>,
    pub committed_at: DateTime<Utc>,
    /// Event sequence numbers. A resume after a restart replays `turn.started`, `reply.done` and `turn.committed` from
    /// them.
    pub seqs: TurnSeqs,
}

impl Turn {
    /// True if the NPC spoke first: the turn has a player, but no line of the player.
    #[must_use]
    pub fn is_greeting(&self) -> bool {
        self.player.is_some() && self.player_text.is_empty()
    }
}

/// True if a text has the end of a sentence. A cut reply without a whole sentence has told of no completed act.
#[must_use]
pub fn has_whole_sentence(text: &str) -> bool {
    text.contains(['.', '!', '?', '…', '。', '！', '？'])
}

/// Event sequence numbers of a turn's three durable events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSeqs {
    pub started: u64,
    pub done: u64,
    pub committed: u64,
}

/// Number of turns for which an unlocked or told scenario stays recent (docs/algorithms.md#scenarios).
pub const RECENT_TURNS: usize = RECENT_TURN_COUNT as usize;
const RECENT_TURN_COUNT: u32 = 5;

/// The dialogue's mutable state after a turn: ids and counters, not copies (docs/internals/rewinds.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The turn of this checkpoint; 0 before the first turn.
    pub turn: u32,
    /// The last turn covered by a summary.
    pub summarised_through: u32,
    /// When the last summary was stored.
    pub summarised_at: Option<DateTime<Utc>>,
    /// The first turn in the buffer, where the prompt's history starts. Moves in blocks.
    pub buffer_from: u32,
    /// Scenarios that recent prompts showed. Each entry has the NPC, the scenario, and the last turn before which the
    /// scenario counts as recent. Every turn that showed the scenario adds an entry. The ledger decides whether a
    /// scenario is still unlocked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recently_unlocked: Vec<(NpcId, ScenarioId, u32)>,
    /// Scenarios that whole replies of the dialogue told, by the NPC, with the times of the last two turns that told them;
    /// at most 256, the latest last. A cut reply tells nothing, so that the NPC may tell the scenario again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told_scenarios: Vec<(NpcId, ScenarioId, DateTime<Utc>)>,
    /// Commit times of the last turns, oldest first, at most [`RECENT_TURNS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<DateTime<Utc>>,
    /// The locked content in the prompts of the dialogue so far. `None`: unknown, in a row from an older build.
    pub locks: Option<DisclosureLocks>,
    /// The part of `locks` that the dialogue may have told. Private facts and private summaries get locks only from these.
    /// `None`: unknown, and they get locks from all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_locks: Option<DisclosureLocks>,
    /// The player's private content in the prompt of this turn. The player's own lines, and summaries already in an
    /// earlier turn, are left out. `None`: unknown. The union over all turns is therefore the private content of the
    /// whole dialogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confided: Option<PrivateTerms>,
    /// The last actions whose outcome a prompt told, each with the turn that told it; at most 128.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told_actions: Vec<(ActionId, u32)>,
    /// True if the last speaking NPC ended the conversation.
    #[serde(rename = "ended", default, skip_serializing_if = "std::ops::Not::not")]
    pub has_ended: bool,
}

/// The most actions in [`Checkpoint::told_actions`]: more than a prompt of any NPC may tell again.
const MAX_TOLD_ACTIONS: usize = 128;

/// The most scenarios in [`Checkpoint::told_scenarios`]: more than one dialogue tells, with a bound for the row's size.
const MAX_TOLD_SCENARIOS: usize = 256;

impl Checkpoint {
    /// Records the commit of turn `number` at `committed_at`, with these scenarios of `npc` in the prompt.
    pub fn record_commit(
        &mut self,
        number: u32,
        committed_at: DateTime<Utc>,
        npc: &NpcId,
        scenarios: impl IntoIterator<Item = ScenarioId>,
    ) {
        let until = number.saturating_add(RECENT_TURN_COUNT);
        debug_assert!(self.turn <= number, "a checkpoint records no commit of an earlier turn");
        self.recently_unlocked.retain(|(.., until)| *until > number);
        self.recently_unlocked
            .extend(scenarios.into_iter().map(|scenario| (npc.clone(), scenario, until)));
        // The ledger stores times with this precision.
        self.commits.push(committed_at.trunc_subsecs(6));
        let kept_count = self.commits.len().min(RECENT_TURNS);
        self.commits.drain(..self.commits.len() - kept_count);
        debug_assert!(
            self.commits.len() <= RECENT_TURNS,
            "a checkpoint has the commits of the recent turns"
        );
    }
    /// Records that the reply of `npc`, committed at `told_at`, told these scenarios.
    pub fn record_told_scenarios(
        &mut self,
        npc: &NpcId,
        told_at: DateTime<Utc>,
        scenarios: impl IntoIterator<Item = ScenarioId>,
    ) {
        for scenario in scenarios {
            // The time before the latest counts again if the latest reply is cut.
            let is_told =
                |(teller, told_scenario, _): &(NpcId, ScenarioId, _)| teller == npc && *told_scenario == scenario;
            if self.told_scenarios.iter().filter(|entry| is_told(entry)).count() > 1
                && let Some(oldest) = self.told_scenarios.iter().position(is_told)
            {
                self.told_scenarios.remove(oldest);
            }
            self.told_scenarios
                .push((npc.clone(), scenario, told_at.trunc_subsecs(6)));
        }
        let surplus = self.told_scenarios.len().saturating_sub(MAX_TOLD_SCENARIOS);
        self.told_scenarios.drain(..surplus);
    }
    /// Takes back what the last turn told, because its reply was cut.
    pub fn forget_told_by_last_turn(&mut self) {
        let last = self.commits.last().copied();
        self.told_scenarios.retain(|(.., told_at)| Some(*told_at) != last);
    }
    /// When a reply of `npc` in the dialogue last told `scenario`.
    #[must_use]
    pub fn told_at(&self, npc: &NpcId, scenario: &ScenarioId) -> Option<DateTime<Utc>> {
        let mut latest_first = self.told_scenarios.iter().rev();
        latest_first
            .find(|(teller, told_scenario, _)| teller == npc && told_scenario == scenario)
            .map(|entry| entry.2)
    }
    /// Records that the prompt of this turn told the outcomes of `actions`.
    pub fn record_told_actions(&mut self, actions: impl IntoIterator<Item = ActionId>) {
        for action in actions {
            self.told_actions.retain(|(told_action, _)| *told_action != action);
            self.told_actions.push((action, self.turn));
        }
        let kept_count = self.told_actions.len().min(MAX_TOLD_ACTIONS);
        self.told_actions.drain(..self.told_actions.len() - kept_count);
    }
    /// The last turn whose prompt told the outcome of `action`.
    #[must_use]
    pub fn action_told_in(&self, action: ActionId) -> Option<u32> {
        let entry = self
            .told_actions
            .iter()
            .find(|(told_action, _)| *told_action == action)?;
        Some(entry.1)
    }
    /// The start of the recent period: scenarios unlocked since then are recent. `began_at`: when the dialogue began.
    #[must_use]
    pub fn recently_unlocked_since(&self, began_at: DateTime<Utc>) -> DateTime<Utc> {
        if self.commits.len() < RECENT_TURNS {
            began_at
        } else {
            self.commits[0]
        }
    }
    /// When `scenario` of `npc` was last told, if recently.
    #[must_use]
    pub fn last_told_at(&self, npc: &NpcId, scenario: &ScenarioId) -> Option<DateTime<Utc>> {
        let unlocks = self.recently_unlocked.iter();
        let unlocks = unlocks.filter(|(teller, told_scenario, _)| teller == npc && told_scenario == scenario);
        let until = unlocks.map(|(.., until)| *until).max()?;
        let remaining_turns = until.checked_sub(self.turn)?;
        // A scenario told by the last turn stays recent for all `RECENT_TURNS`.
        let ago = RECENT_TURNS.checked_sub(usize::try_from(remaining_turns).ok()?)?;
        self.commits
            .iter()
            .rev()
            .nth(ago)
            .copied()
            .filter(|_| remaining_turns > 0)
    }
    /// The turns that told recent scenarios, in order.
    #[must_use]
    pub fn turns_told_in(&self) -> Vec<u32> {
        let numbers = self.recently_unlocked.iter();
        let mut numbers: Vec<u32> = numbers
            .filter_map(|(.., until)| until.checked_sub(RECENT_TURN_COUNT))
            .collect();
        numbers.dedup();
        numbers
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn half_a_sentence_is_no_whole_sentence() {
        for whole in ["Take it. And", "Go!", "가져가. 그리", "何。", "Well…"] {
            assert!(has_whole_sentence(whole), "{whole}");
        }
        for half in ["Take it and", "내일 아—", "", "Well, I"] {
            assert!(!has_whole_sentence(half), "{half}");
        }
    }

    fn whole(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    /// The checkpoint after turns of `mira`, one a second. She tells `well` in turns 2 and 3, and `tower` in turn 3.
    fn checkpoint_after(turns: u32, mira: &NpcId, [well, tower]: [&ScenarioId; 2]) -> Checkpoint {
        let mut checkpoint = Checkpoint::default();
        for number in 1..=turns {
            let at = DateTime::from_timestamp(number.into(), 1).unwrap();
            let told = match number {
                2 => vec![well.clone()],
                3 => vec![well.clone(), tower.clone()],
                _ => vec![],
            };
            checkpoint.record_told_scenarios(mira, at, told.clone());
            checkpoint.record_commit(number, at, mira, told);
            checkpoint.turn = number;
        }
        checkpoint
    }

    #[test]
    fn scenario_is_recent_for_five_turns() {
        let [well, tower]: [ScenarioId; 2] = ["well", "tower"].map(|id| id.parse().unwrap());
        let [mira, ergen]: [NpcId; 2] = ["mira", "ergen"].map(|id| id.parse().unwrap());
        let began = whole(0);
        let checkpoint = Checkpoint::default();
        assert_eq!(
            (checkpoint.turns_told_in(), checkpoint.recently_unlocked_since(began)),
            (vec![], began)
        );
        for number in 1..=9 {
            let checkpoint = checkpoint_after(number, &mira, [&well, &tower]);
            let well_at = (2..=7)
                .contains(&number)
                .then(|| whole(if number == 2 { 2 } else { 3 }));
            assert_eq!(checkpoint.last_told_at(&mira, &well), well_at, "after turn {number}");
            assert_eq!(checkpoint.last_told_at(&ergen, &well), None, "it is another one's");
            assert_eq!(
                checkpoint.last_told_at(&mira, &tower).is_some(),
                (3..=7).contains(&number),
                "after turn {number}"
            );
            let told_in: Vec<u32> = [2, 3]
                .into_iter()
                .filter(|told| (*told..*told + 5).contains(&number))
                .collect();
            assert_eq!(checkpoint.turns_told_in(), told_in, "after turn {number}");
            // Before the next turn, a scenario unlocked at the fifth turn back is still recent.
            let since = if number < 5 {
                began
            } else {
                whole(i64::from(number) - 4)
            };
            assert_eq!(checkpoint.recently_unlocked_since(began), since);
        }
    }

    #[test]
    fn last_two_tellings_are_known_for_the_whole_dialogue() {
        let [well, tower]: [ScenarioId; 2] = ["well", "tower"].map(|id| id.parse().unwrap());
        let [mira, ergen]: [NpcId; 2] = ["mira", "ergen"].map(|id| id.parse().unwrap());
        let mut checkpoint = checkpoint_after(9, &mira, [&well, &tower]);
        assert_eq!(
            checkpoint.told_scenarios,
            [
                (mira.clone(), well.clone(), whole(2)),
                (mira.clone(), well.clone(), whole(3)),
                (mira.clone(), tower.clone(), whole(3))
            ]
        );
        let mut cut = checkpoint.clone();
        cut.commits = vec![whole(3)];
        cut.forget_told_by_last_turn();
        assert_eq!(
            [&well, &tower].map(|told| cut.told_at(&mira, told)),
            [Some(whole(2)), None],
            "the earlier reply stands"
        );
        assert_eq!(checkpoint.told_at(&mira, &well), Some(whole(3)));
        assert_eq!(checkpoint.told_at(&ergen, &well), None);
        let at_last_turn = DateTime::from_timestamp(9, 1).unwrap();
        checkpoint.record_told_scenarios(&mira, at_last_turn, [well.clone()]);
        let told = checkpoint.told_scenarios.iter().filter(|told| told.1 == well);
        assert!(told.map(|told| told.2).eq([whole(3), whole(9)]), "the last two");
        assert!(checkpoint.recently_unlocked.is_empty() && checkpoint.commits.len() == RECENT_TURNS);
    }
}
