//! What a pass reads: the turns since the last pass, the state of the world after them, the facts and authored texts to
//! compare them with, the earlier findings, the narrative memory, and what other sessions have left
//! ([`CarriedMaterial`]).

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Value, context};

use super::{
    carried::CarriedMaterial,
    comparison::load_comparison,
    hidden_values::HiddenValues,
    prompt_ids::{finding_id, insight_id},
    turn_values::turn_values,
    world_state::DialogueChanges,
};
use crate::{
    Services,
    game_time::WorldDays,
    jobs::load_cast,
    npc_conversation::SceneMember,
    prompt::{attribute_text, escape_untrusted},
    redaction::{self, PreparedRemovals},
    summarise::count_within_budget,
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
    llm::Task,
};

/// The most turns that a pass reads. A backlog takes several passes.
const MAX_TURNS_READ: u32 = 60;
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
#[expect(clippy::too_many_lines, reason = "one read after the other, each with its own use")]
pub(super) async fn load_material(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
) -> Result<Option<PassMaterial>, StoreError> {
    let ledger = &services.ledger;
    let dialogue = said.dialogue.id;
    let curation = ledger
        .curation
        .load_dialogue_curation(scope, dialogue, MAX_SHOWN_FINDINGS)
        .await?;
    let DialogueCuration { last_pass, findings } = curation;
    let last_pass_at = last_pass.as_ref().map(|pass| pass.at);
    let (read, memory) = last_pass.map_or((0, String::new()), |pass| (pass.to_turn, pass.memory));
    let from = read.saturating_add(1);
    let to = said.turn.number.min(read.saturating_add(MAX_TURNS_READ));
    let mut turns = if from <= to {
        ledger.dialogues.load_turns(scope, dialogue, from, to).await?
    } else {
        Vec::new()
    };
    let counter = services.models.counter_for_task(Task::Curation);
    let count = |text: &str| services.prompts.count_tokens(counter, text);
    let sizes = turns
        .iter()
        .map(|turn| count(&turn.player_text).saturating_add(count(&turn.reply_text)));
    let sizes: Vec<u32> = sizes.collect();
    turns.truncate(count_within_budget(&sizes, services.settings.curation.max_turn_tokens));
    let Some(last) = turns.last().cloned() else {
        return Ok(None);
    };
    let requests = ledger
        .facts
        .list_forget_requests(scope, dialogue, 1, last.number)
        .await?;
    let mut forgotten = requests.clone();
    let corrected = load_corrected_statements(services, scope, said, &last).await?;
    forgotten.extend(
        corrected
            .iter()
            .filter(|removed| !still_holds(removed))
            .map(|removed| removed.content.clone()),
    );
    let lines = memory.lines().filter_map(|line| without_content(line, &forgotten));
    let memory = lines.collect::<Vec<_>>().join("\n");
    let cast = load_cast(services, scope, said).await?;
    let changes = DialogueChanges::load(services, scope, said, &last).await?;
    let present = services
        .memory_cache
        .world_state(services, scope, &said.world.id)
        .await?;
    let dead = changes.known_dead(&cast, &present);
    let compared = load_comparison(services, scope, said, &cast, (from, &turns), &forgotten, &dead).await?;
    let state = changes.state_values(said, &cast, &present, (from, &turns), &compared.named_dead);
    let hidden = HiddenValues::load(services, scope, said, &cast, &present, &turns).await?;
    let past = load_told_past(services, scope, said, &turns).await?;
    let mut findings = findings;
    let own_findings = findings.len();
    let carried = CarriedMaterial::load(services, scope, said, &last, last_pass_at).await?;
    findings.extend(carried.findings.iter().cloned());
    let days = WorldDays::load(services, scope, &said.world).await?;
    let (day, _) = days.day_of(said.npc.language, last.started_at);
    let forgotten_turns = ledger.facts.list_forgotten_turns(scope, dialogue, last.number).await?;
    mask_forgotten(&mut turns, &requests, &forgotten_turns);
    redaction::mask_corrected_lines(&PreparedRemovals::new(&corrected), &mut turns);
    let shown = turns.iter().map(|turn| {
        // A note of a turn of which something was forgotten may tell that in other words.
        let is_whole = !forgotten_turns.contains(&turn.number);
        let sentences = changes.sentences_of_turn(turn).into_iter().filter(|_| is_whole);
        let sentences: Vec<String> = sentences
            .filter_map(|sentence| without_content(sentence, &forgotten))
            .map(|sentence| escape_untrusted(&sentence))
            .collect();
        context! { happened => sentences, ..turn_values(said, &cast, &days, turn) }
    });
    let shown: Vec<Value> = shown.collect();
    let names: Vec<String> = cast.iter().map(|(member, _)| escape_untrusted(&member.name)).collect();
    let members: Vec<Value> = cast.iter().map(member_values).collect();
    let world = &said.world;
    let rules: Vec<String> = world.rules.iter().map(|rule| escape_untrusted(rule)).collect();
    let values = context! {
        has_player => said.turn.player.is_some(),
        listeners => names,
        world => context! { name => escape_untrusted(&world.name), premise => escape_untrusted(&world.premise), rules },
        cast => members,
        canon => compared.authored,
        learned => compared.learned,
        entries => compared.lore,
        told_past => past.values().map(|text| escape_untrusted(text)).collect::<Vec<_>>(),
        state,
        findings => finding_values(&findings, own_findings, &forgotten),
        insights => insight_values(&carried.insights, &forgotten),
        earlier_notes => carried.notes.clone(),
        earlier_turns => carried.turn_values(said, &cast, &days),
        forgotten => requests.iter().map(|words| escape_untrusted(words)).collect::<Vec<_>>(),
        calendar => days.calendar_text(),
        turns => shown,
    };
    let participants = Participants {
        player: last.player.clone(),
        npc_names: cast.iter().map(|(member, _)| member.name.clone()).collect(),
    };
    Ok(Some(PassMaterial {
        from,
        last,
        findings,
        memory,
        forgotten,
        insights: carried.insights,
        past: past.into_keys().collect(),
        day,
        hidden,
        participants,
        values,
    }))
}

/// Returns the statements that people removed or corrected between the beginning of the dialogue and its turn `last`,
/// so that a late pass reads the same.
async fn load_corrected_statements(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
    last: &Turn,
) -> Result<Vec<RemovedStatement>, StoreError> {
    let mut removed = redaction::load_removed(services, scope, said, last.committed_at).await?;
    removed.retain(|removed| !removed.is_forgotten && removed.at >= said.dialogue.created_at);
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
    said: &JobInput,
    turns: &[Turn],
) -> Result<BTreeMap<ScenarioId, String>, StoreError> {
    let mut past = BTreeMap::new();
    for turn in turns {
        if past.len() >= MAX_SHOWN_PAST {
            break;
        }
        let dialogues = &services.ledger.dialogues;
        let trace = dialogues.load_trace(scope, said.dialogue.id, turn.number).await?;
        for traced in trace.iter().flat_map(|trace| &trace.scenarios) {
            if let Some(text) = traced.shown_content()
                && past.len() < MAX_SHOWN_PAST
            {
                past.insert(traced.scenario.clone(), text.chars().take(MAX_PAST_CHARS).collect());
            }
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
    redaction::mask_rest(line, without_content(line, forgotten).filter(|_| !is_forgotten))
}

fn insight_values(insights: &[EarlierInsight], forgotten: &[String]) -> Vec<Value> {
    let shown = insights.iter().enumerate().filter_map(|(at, earlier)| {
        let insight = &earlier.insight;
        let text = without_content(&insight.text, forgotten)?;
        let entity = attribute_text(&party::plain_name(&insight.entity));
        let id = insight_id(at);
        let day = attribute_text(&insight.day);
        Some(context! { id, day, entity, text => escape_untrusted(&text) })
    });
    shown.collect()
}

/// `own`: so many of the first findings are of the dialogue. The others come from earlier sessions.
fn finding_values(findings: &[Finding], own: usize, forgotten: &[String]) -> Vec<Value> {
    let shown = |text: &str| escape_untrusted(&without_content(text, forgotten).unwrap_or_default());
    let values = findings.iter().enumerate().map(|(at, finding)| {
        context! {
            id => finding_id(at),
            kind => finding.kind.as_str(),
            decision => finding.decided.decision.as_str(),
            decided => !finding.is_open_to_model(),
            earlier => at >= own,
            text => shown(&finding.text),
            reason => shown(&finding.decided.reason),
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
