//! What a pass reads: the turns since the last pass, the state of the world after them, the facts and authored texts to
//! compare them with, the earlier findings, the narrative memory, and what other sessions have left
//! ([`CarriedMaterial`]).

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Value, context};

use super::{
    carried::CarriedMaterial,
    comparison::{ComparisonValues, load_comparison},
    hidden_values::HiddenValues,
    prompt_ids::{finding_id, insight_id},
    turn_values::turn_values,
    unread_turns::UnreadTurns,
    world_state::DialogueChanges,
};
use crate::{
    Services,
    disclosure::{self, PreparedRemovals},
    game_time::WorldDays,
    jobs::load_cast,
    npc_conversation::SceneMember,
    prompt::{attribute_text, escape_untrusted},
};
use colloquy_core::{ids::ScenarioId, scope::TenantScope};
use colloquy_memory::{
    authored::Npc,
    curation::Finding,
    insight::{EarlierInsight, Participants},
    party,
    summary::without_content,
    turn::Turn,
};
use colloquy_ports::{
    StoreError,
    ledger::{curation::DialogueCuration, facts::RemovedStatement, jobs::JobInput},
};

/// The newest earlier findings that a prompt shows.
const MAX_SHOWN_FINDINGS: u32 = 60;
/// The most told scenarios that a prompt shows.
const MAX_SHOWN_PAST: usize = 5;
/// The most characters of a told scenario.
const MAX_PAST_CHARS: usize = 1_000;

/// The material of a pass.
pub(super) struct PassMaterial {
    /// The first turn.
    pub from: u32,
    /// The last turn: the cause of the pass.
    pub last: Turn,
    /// Earlier findings: first those of the dialogue, then open ones of other sessions, each oldest first.
    pub findings: Vec<Finding>,
    /// The narrative memory after the last pass.
    pub memory: String,
    /// What the player asked to forget, and what people have removed or corrected.
    pub forgotten: Vec<String>,
    /// The insights that hold, oldest first.
    pub insights: Vec<EarlierInsight>,
    /// The memories of the NPCs' past that turns of the pass told.
    pub past: BTreeSet<ScenarioId>,
    /// The day of the last turn.
    pub day: String,
    /// Places and items of others that the pass has not read.
    pub hidden: HiddenValues,
    /// Those who take part, by name.
    pub participants: Participants,
    /// The values of the prompt that stay the same in all calls.
    pub values: Value,
}

/// Returns the material of a pass up to the job's turn. `None`: all turns have been read.
pub(super) async fn load_material(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
) -> Result<Option<PassMaterial>, StoreError> {
    let ledger = &services.ledger;
    let dialogue = job_input.dialogue.id;
    let curation = ledger
        .curation
        .load_dialogue_curation(scope, dialogue, MAX_SHOWN_FINDINGS)
        .await?;
    let DialogueCuration {
        last_pass,
        mut findings,
    } = curation;
    let last_pass_at = last_pass.as_ref().map(|pass| pass.last_turn_at);
    let (last_read_turn, memory) = last_pass.map_or((0, String::new()), |pass| (pass.to_turn, pass.memory));
    let mut unread = UnreadTurns::load(services, scope, job_input, last_read_turn).await?;
    let Some(last) = unread.turns.last().cloned() else {
        return Ok(None);
    };
    let withdrawn = WithdrawnTexts::load(services, scope, job_input, &last).await?;
    let memory = withdrawn.strike_lines(&memory);
    let world = WorldMaterial::load(services, scope, job_input, &unread, &last, &withdrawn.texts).await?;
    let past = load_told_past(services, scope, job_input, &unread.turns).await?;
    let own_findings = findings.len();
    let carried = CarriedMaterial::load(services, scope, job_input, &last, last_pass_at).await?;
    findings.extend(carried.findings.iter().cloned());
    let days = WorldDays::load(services, scope, &job_input.world).await?;
    let (day, _) = days.day_of(job_input.npc.language, last.started_at);
    let forgotten_turns = ledger.facts.list_forgotten_turns(scope, dialogue, last.number).await?;
    mask_forgotten(&mut unread.turns, &withdrawn.requests, &forgotten_turns);
    disclosure::mask_corrected_lines(&PreparedRemovals::new(&withdrawn.corrected), &mut unread.turns);
    let cast = &world.cast;
    let turns = unread.turns.iter().map(|turn| {
        let sentences = world.sentences_of_turn(turn, &withdrawn.texts, &forgotten_turns);
        context! { happened => sentences, ..turn_values(job_input, cast, &days, turn) }
    });
    let turns: Vec<Value> = turns.collect();
    let values = context! {
        canon => world.compared.authored,
        learned => world.compared.learned,
        entries => world.compared.lore,
        told_past => past.values().map(|text| escape_untrusted(text)).collect::<Vec<_>>(),
        state => world.state,
        findings => finding_values(&findings, own_findings, &withdrawn.texts),
        insights => insight_values(&carried.insights, &withdrawn.texts),
        earlier_notes => carried.notes.clone(),
        earlier_turns => carried.turn_values(job_input, cast, &days),
        forgotten => withdrawn.requests.iter().map(|words| escape_untrusted(words)).collect::<Vec<_>>(),
        calendar => days.calendar_text(),
        turns,
        ..scene_values(job_input, cast)
    };
    let participants = Participants {
        player: last.player.clone(),
        npc_names: cast.iter().map(|(member, _)| member.name.clone()).collect(),
    };
    Ok(Some(PassMaterial {
        from: unread.from,
        last,
        findings,
        memory,
        forgotten: withdrawn.texts,
        insights: carried.insights,
        past: past.into_keys().collect(),
        day,
        hidden: world.hidden,
        participants,
        values,
    }))
}

/// What a pass must not repeat.
struct WithdrawnTexts {
    /// What the player asked to forget.
    requests: Vec<String>,
    /// What people removed or corrected.
    corrected: Vec<RemovedStatement>,
    /// The requests, and the corrected statements that do not hold in other words.
    texts: Vec<String>,
}

impl WithdrawnTexts {
    async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        last: &Turn,
    ) -> Result<Self, StoreError> {
        let facts = &services.ledger.facts;
        let requests = facts
            .list_forget_requests(scope, job_input.dialogue.id, 1, last.number)
            .await?;
        let corrected = load_corrected_statements(services, scope, job_input, last).await?;
        let mut texts = requests.clone();
        texts.extend(
            corrected
                .iter()
                .filter(|removed| !still_holds(removed))
                .map(|removed| removed.content.clone()),
        );
        Ok(Self {
            requests,
            corrected,
            texts,
        })
    }

    fn strike_lines(&self, memory: &str) -> String {
        let lines = memory.lines().filter_map(|line| without_content(line, &self.texts));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The people of a pass, the state of their world, and what its turns are compared with.
struct WorldMaterial {
    cast: Vec<(SceneMember, Option<Npc>)>,
    changes: DialogueChanges,
    compared: ComparisonValues,
    state: Vec<Value>,
    hidden: HiddenValues,
}

impl WorldMaterial {
    async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        unread: &UnreadTurns,
        last: &Turn,
        withdrawn: &[String],
    ) -> Result<Self, StoreError> {
        let cast = load_cast(services, scope, job_input).await?;
        let changes = DialogueChanges::load(services, scope, job_input, last).await?;
        let present = services
            .memory_cache
            .world_state(services, scope, &job_input.world.id)
            .await?;
        let dead = changes.known_dead(&cast, &present);
        let compared = load_comparison(services, scope, job_input, &cast, unread, withdrawn, &dead).await?;
        let state = changes.state_values(job_input, &cast, &present, unread, &compared.named_dead);
        let hidden = HiddenValues::load(services, scope, job_input, &cast, &present, &unread.turns).await?;
        Ok(Self {
            cast,
            changes,
            compared,
            state,
            hidden,
        })
    }

    /// Returns the events and notes of a turn. A note of a turn of which something was forgotten may tell that in other
    /// words.
    fn sentences_of_turn(&self, turn: &Turn, withdrawn: &[String], forgotten_turns: &[u32]) -> Vec<String> {
        if forgotten_turns.contains(&turn.number) {
            return Vec::new();
        }
        let sentences = self.changes.sentences_of_turn(turn).into_iter();
        sentences
            .filter_map(|sentence| without_content(sentence, withdrawn))
            .map(|sentence| escape_untrusted(&sentence))
            .collect()
    }
}

fn scene_values(job_input: &JobInput, cast: &[(SceneMember, Option<Npc>)]) -> Value {
    let names: Vec<String> = cast.iter().map(|(member, _)| escape_untrusted(&member.name)).collect();
    let members: Vec<Value> = cast.iter().map(member_values).collect();
    let world = &job_input.world;
    let rules: Vec<String> = world.rules.iter().map(|rule| escape_untrusted(rule)).collect();
    context! {
        has_player => job_input.turn.player.is_some(),
        listeners => names,
        world => context! { name => escape_untrusted(&world.name), premise => escape_untrusted(&world.premise), rules },
        cast => members,
    }
}

/// Returns the statements that people removed or corrected between the beginning of the dialogue and its turn `last`,
/// so that a late pass reads the same.
async fn load_corrected_statements(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    last: &Turn,
) -> Result<Vec<RemovedStatement>, StoreError> {
    let mut removed = disclosure::load_removed(services, scope, job_input, last.committed_at).await?;
    removed.retain(|removed| !removed.is_forgotten && removed.removed_at >= job_input.dialogue.created_at);
    Ok(removed)
}

/// True if the correction has nearly the same words as the statement.
fn still_holds(removed: &RemovedStatement) -> bool {
    let correction = removed.correction.as_ref();
    correction.is_some_and(|correction| without_content(correction, &[&removed.content]).is_none())
}

fn member_values((member, npc): &(SceneMember, Option<Npc>)) -> Value {
    let description = npc.as_ref().map(|npc| escape_untrusted(&npc.persona.description));
    context! { name => attribute_text(&member.name), description => description.unwrap_or_default() }
}

/// Returns the memories of the NPCs' past that the prompts of turns had, with their texts.
async fn load_told_past(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    turns: &[Turn],
) -> Result<BTreeMap<ScenarioId, String>, StoreError> {
    let mut past = BTreeMap::new();
    let (Some(first), Some(last)) = (turns.first(), turns.last()) else {
        return Ok(past);
    };
    let dialogues = &services.ledger.dialogues;
    let scenarios = dialogues.load_traced_scenarios(scope, job_input.dialogue.id, first.number, last.number);
    for traced in scenarios.await? {
        if past.len() >= MAX_SHOWN_PAST {
            break;
        }
        if let Some(text) = traced.shown_content() {
            past.insert(traced.scenario.clone(), text.chars().take(MAX_PAST_CHARS).collect());
        }
    }
    Ok(past)
}

/// Masks what the player asked to forget in the lines of turns. `forgotten_turns` taught it.
fn mask_forgotten(turns: &mut [Turn], forgotten: &[String], forgotten_turns: &[u32]) {
    for turn in turns {
        let is_forgotten = forgotten_turns.contains(&turn.number);
        for text in [&mut turn.player_text, &mut turn.reply_text] {
            *text = masked(text, forgotten, is_forgotten);
        }
    }
}

/// Returns the line without the sentences that have the words of a request to forget, or a mask alone if the line
/// taught what is forgotten.
fn masked(line: &str, forgotten: &[String], is_forgotten: bool) -> String {
    let line = line.trim();
    disclosure::mask_rest(line, without_content(line, forgotten).filter(|_| !is_forgotten))
}

fn insight_values(insights: &[EarlierInsight], forgotten: &[String]) -> Vec<Value> {
    let values = insights.iter().enumerate().filter_map(|(index, earlier)| {
        let insight = &earlier.insight;
        let text = without_content(&insight.text, forgotten)?;
        let entity = attribute_text(&party::plain_name(&insight.entity));
        let id = insight_id(index);
        let day = attribute_text(&insight.day);
        Some(context! { id, day, entity, text => escape_untrusted(&text) })
    });
    values.collect()
}

/// `own_count`: so many of the first findings are of the dialogue. The others come from earlier sessions.
fn finding_values(findings: &[Finding], own_count: usize, forgotten: &[String]) -> Vec<Value> {
    let shown_text = |text: &str| escape_untrusted(&without_content(text, forgotten).unwrap_or_default());
    let values = findings.iter().enumerate().map(|(index, finding)| {
        context! {
            id => finding_id(index),
            kind => finding.kind.as_str(),
            decision => finding.decided.decision.as_str(),
            decided => !finding.is_open_to_model(),
            earlier => index >= own_count,
            text => shown_text(&finding.text),
            // The reason of a person is for the studio alone: an NPC may read the notes of the pass.
            reason => finding.decided.decided_by.is_none().then(|| shown_text(&finding.decided.reason)),
        }
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_words_and_the_lines_that_taught_them_are_masked() {
        let forgotten = ["The player's knee aches.".to_owned()];
        for (line, is_forgotten, shown) in [
            ("My knee aches. It rains.", false, "It rains. …"),
            ("Rest it well, and stay off the ice.", true, "…"),
            ("I like plums.", false, "I like plums."),
            ("Forget what I said of my aching knee.", false, "…"),
            ("", true, ""),
        ] {
            assert_eq!(masked(line, &forgotten, is_forgotten), shown, "{line}");
        }
        assert_eq!(
            masked(
                "무릎을 다쳤다고 했지요. 비가 오네요.",
                &["플레이어는 무릎을 다쳤다.".to_owned()],
                false
            ),
            "비가 오네요. …"
        );
        assert_eq!(
            masked("My knee aches.", &[], false),
            "My knee aches.",
            "nothing is to be forgotten"
        );
    }
}
