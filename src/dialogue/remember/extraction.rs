//! Extracts the facts of a turn with a small model, and checks the answer.

use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use minijinja::context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    block_sentences::BlockSentences,
    embedding::embed_learned,
    injected_memory::{InjectedMemory, MAX_PROMISES, OpenPromise},
    known_texts::{TurnWords, end_of_line},
    learned::LearnedFacts,
    statements::SpokenLines,
    text_limits::{MAX_CONTENT_CHARS, MAX_KEYWORD_CHARS, MAX_KEYWORDS, MAX_PART_CHARS, bounded_text, parse_number},
};
use crate::{
    Services,
    game_time::WorldDays,
    jobs::{JobError, ask_json_or_salvage, cast_members},
    knowledge::plain_episode,
    models::salvage_list,
    npc_conversation::Scene,
    prompt::{Template, escape_untrusted},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    agreement,
    authored::Language,
    calendar::date_relative_days,
    episode::{MAX_EPISODE_CHARS, clip_line, importance_of_forgetting},
    fact::{FactKind, Importance, InvalidReason, Statement},
    keywords,
    party::PLAYER,
    reconcile,
    text::is_ignorable,
    timeline::PromiseEnd,
};
use colloquy_ports::{
    buffer::{BufferedTurn, mark_if_interrupted},
    ledger::jobs::JobInput,
    llm::{JsonSchema, Task},
};

/// The maximum number of facts of one turn. Further facts are noise.
const MAX_FACTS: usize = 12;

#[derive(Serialize, Deserialize)]
struct ExtractionAnswer {
    facts: Vec<Value>,
    #[serde(default)]
    forget: Vec<Value>,
    /// The promises that are over, by their numbers in the prompt.
    #[serde(default, skip_serializing)]
    ends: Vec<Value>,
    /// The same promises by fact, for a later attempt with this answer. Numbers are valid for one prompt only.
    #[serde(default, rename = "ended")]
    promise_ends: Vec<PromiseEnd>,
    /// What happened in the turn: `text` and `importance`.
    #[serde(default)]
    episode: Value,
}

/// Asks the small model, or uses the answer that an earlier attempt stored (`stored_answer`). Checks the answer and
/// embeds the facts and the episode.
pub(super) async fn extract_learned(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    injected: &InjectedMemory,
    stored_answer: Option<&str>,
) -> Result<LearnedFacts, JobError> {
    let answer = if let Some(answer) = stored_answer.and_then(|text| serde_json::from_str(text).ok()) {
        answer
    } else {
        let mut answer = ask_extraction(services, scope, job_input, injected).await?;
        answer.promise_ends = parse_endings(&answer.ends, &injected.promises);
        answer
    };
    let lines = SpokenLines::of_turn(job_input);
    let mut statements: Vec<Statement> = Vec::new();
    for value in answer.facts.iter().take(MAX_FACTS) {
        let Some(mut statement) = lines.parse_statement(value) else {
            continue;
        };
        let gist = keywords::sentence_key(&statement.content);
        let repeated = statements
            .iter()
            .any(|other| keywords::sentence_key(&other.content) == gist);
        if !repeated {
            reconcile::boost_if_vital(&mut statement);
            statements.push(statement);
        }
    }
    // Only a player can ask to forget.
    let forget: Vec<String> = answer
        .forget
        .iter()
        .filter(|_| job_input.turn.player.is_some())
        .filter_map(|text| bounded_text(text.as_str(), MAX_CONTENT_CHARS))
        .take(MAX_FACTS)
        .collect();
    let mut episode = match &job_input.turn.player {
        Some(_) => {
            let (text, importance) = read_episode(services, job_input, &answer.episode)?;
            let days = WorldDays::load(services, scope, &job_input.world).await?;
            let dated = date_relative_days(&text, days.moment_at(job_input.turn.started_at));
            Some((clip_line(&dated, MAX_EPISODE_CHARS), importance))
        }
        None => None,
    };
    if let Some((_, importance)) = episode.as_mut().filter(|_| !forget.is_empty()) {
        *importance = importance_of_forgetting(*importance);
    }
    let (facts, episode) = embed_learned(services, scope, statements, episode).await?;
    Ok(LearnedFacts {
        facts,
        forget,
        ends: answer.promise_ends.clone(),
        episode,
        answer: serde_json::json!(answer).to_string(),
    })
}

async fn ask_extraction(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    injected: &InjectedMemory,
) -> Result<ExtractionAnswer, JobError> {
    let prompt = render_prompt(services, scope, job_input, injected).await?;
    let by_player = job_input.turn.player.is_some();
    // A long turn may need more tokens than the model may write. The finished entries are used.
    let salvage = |text: &str| {
        let facts = salvage_list(text, "facts");
        let forget = salvage_list(text, "forget");
        let ends = salvage_list(text, "ends");
        (!facts.is_empty() || !forget.is_empty() || !ends.is_empty()).then_some(ExtractionAnswer {
            facts,
            forget,
            ends,
            promise_ends: Vec::new(),
            episode: Value::Null,
        })
    };
    let (answer, _) = ask_json_or_salvage(
        services,
        scope,
        Task::Extraction,
        prompt,
        facts_schema(by_player),
        salvage,
    )
    .await?;
    Ok(answer)
}

/// Returns the promises that the model ends, without repetition. Numbers outside the prompt are left out.
fn parse_endings(ends: &[Value], promises: &[OpenPromise]) -> Vec<PromiseEnd> {
    let mut promise_ends: Vec<PromiseEnd> = Vec::new();
    for value in ends {
        let promise = value.get("number").and_then(parse_number).and_then(|number| {
            let mut numbers = (1..=promises.len()).zip(promises);
            numbers.find_map(|(nth, promise)| (nth.to_string() == number.to_string()).then_some(promise.fact))
        });
        let reason = value
            .get("how")
            .and_then(Value::as_str)
            .and_then(|reason| InvalidReason::parse(&reason.trim().to_lowercase()))
            .filter(|reason| InvalidReason::ENDS_OF_PROMISES.contains(reason));
        if let (Some(fact), Some(reason)) = (promise, reason)
            && promise_ends.iter().all(|other| other.fact != fact)
        {
            promise_ends.push(PromiseEnd { fact, how: reason });
        }
    }
    promise_ends
}

/// Renders the prompt for the small model: lines of a player and an NPC, or of an NPC to other NPCs.
async fn render_prompt(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    injected: &InjectedMemory,
) -> Result<String, JobError> {
    let turn = &job_input.turn;
    let npc = &job_input.npc;
    let days = WorldDays::load(services, scope, &job_input.world).await?;
    let (date, weekday) = days.day_of(npc.language, turn.started_at);
    let reply = escape_untrusted(&mark_if_interrupted(turn.reply_text.clone(), turn.status));
    let scene = Scene {
        cast: cast_members(services, scope, job_input).await?,
        ..Scene::default()
    };
    let earlier_lines: Vec<String> = job_input
        .before
        .iter()
        .flat_map(|turn| lines_of(turn, &scene, npc.language))
        .collect();
    let words = TurnWords::of_turn(job_input);
    let sentences = BlockSentences::of_turn(job_input);
    let escape_all = |texts: &[&str]| texts.iter().map(|text| escape_untrusted(text)).collect::<Vec<_>>();
    let template = match turn.player {
        Some(_) => Template::Extraction,
        None => Template::ConversationExtraction,
    };
    let values = context! {
        npc_name => npc.name.as_str(),
        line => escape_untrusted(&turn.player_text),
        hears_others => job_input.dialogue.options.other_speakers(&turn.player_text).next().is_some(),
        listeners => scene.other_names(&npc.id),
        reply,
        events => escape_all(&sentences.events),
        notes => escape_all(&sentences.notes),
        known => injected.known_for(&words),
        world => injected.world_for(&words),
        open => injected.open_promises(&date, |moment| days.day_of(npc.language, moment).0),
        subjects => &injected.subjects,
        before => earlier_lines,
        date,
        weekday,
        calendar => days.calendar_text(),
    };
    Ok(services.prompts.render(npc.language, template, values)?)
}

impl InjectedMemory {
    /// Returns the open promises as the prompt shows them on a date, such as `2026-11-25`. `date_of` gives such a date
    /// of a moment.
    fn open_promises(&self, date: &str, date_of: impl Fn(DateTime<Utc>) -> String) -> Vec<minijinja::Value> {
        let to_value = |promise: &OpenPromise| {
            let made_on = promise.made_at.map(&date_of);
            let overdue = made_on.is_some_and(|made_on| agreement::is_overdue(&promise.text, &made_on, date));
            context! { text => promise.text.as_str(), overdue }
        };
        self.promises.iter().map(to_value).collect()
    }
}

/// Returns the lines of a turn with their speakers. A greeting, or a line between NPCs, has no player line.
fn lines_of(turn: &BufferedTurn, scene: &Scene, language: Language) -> impl Iterator<Item = String> + use<> {
    let player = match language {
        Language::En => PLAYER,
        Language::Ko => "플레이어",
    };
    let line = (!turn.player_text.is_empty()).then(|| spoken_line(player, &turn.player_text));
    line.into_iter()
        .chain([spoken_line(&scene.name_of(&turn.npc), &turn.reply_text)])
}

fn spoken_line(name: &str, text: &str) -> String {
    format!("{name}: {}", escape_untrusted(&end_of_line(text)))
}

/// Returns the model's episode, or a plain line if the model gave none.
fn read_episode(services: &Services, job_input: &JobInput, value: &Value) -> Result<(String, Importance), JobError> {
    let text = value
        .as_str()
        .or_else(|| value.get("text")?.as_str())
        .unwrap_or_default();
    let visible: String = text.chars().filter(|c| !is_ignorable(*c)).collect();
    let text = clip_line(&visible, MAX_EPISODE_CHARS);
    if text.is_empty() {
        let intent = job_input.trace.as_ref().map(|trace| trace.intent);
        return Ok(plain_episode(
            services,
            &job_input.npc,
            &job_input.turn.player_text,
            intent,
        )?);
    }
    let importance = value.get("importance").and_then(parse_number);
    Ok((text, importance.map_or(Importance::DEFAULT, Importance::from_clamped)))
}

/// Returns the schema of an answer. Only a player's turn can have requests to forget.
fn facts_schema(by_player: bool) -> JsonSchema {
    static SCHEMAS: LazyLock<[JsonSchema; 2]> = LazyLock::new(|| [false, true].map(build_facts_schema));
    SCHEMAS[usize::from(by_player)].clone()
}

fn build_facts_schema(by_player: bool) -> JsonSchema {
    let text = |max: usize| serde_json::json!({ "type": "string", "maxLength": max });
    let texts = |max_items: usize, max: usize| serde_json::json!({ "type": "array", "maxItems": max_items, "items": text(max) });
    let fact = JsonSchema::object(serde_json::json!({
        "subject": text(MAX_PART_CHARS), "predicate": text(MAX_PART_CHARS), "object": text(MAX_PART_CHARS),
        "content": text(MAX_CONTENT_CHARS), "keywords": texts(MAX_KEYWORDS, MAX_KEYWORD_CHARS),
        "speaker": text(MAX_PART_CHARS),
        "kind": { "type": "string", "enum": FactKind::ALL },
        "importance": { "type": "integer", "minimum": 1, "maximum": 10 },
        "polarity": { "type": "string", "enum": ["positive", "negative"] },
        "tense": { "type": "string", "enum": ["past", "present", "future"] },
    }));
    let end = JsonSchema::object(serde_json::json!({
        "number": { "type": "integer", "minimum": 1, "maximum": MAX_PROMISES },
        "how": { "type": "string", "enum": InvalidReason::ENDS_OF_PROMISES },
    }));
    let mut properties = serde_json::json!({
        "facts": { "type": "array", "maxItems": MAX_FACTS, "items": fact },
        "ends": { "type": "array", "maxItems": MAX_PROMISES, "items": end },
    });
    if by_player {
        properties["forget"] = texts(MAX_FACTS, MAX_CONTENT_CHARS);
        properties["episode"] = JsonSchema::object(serde_json::json!({
            "text": text(MAX_EPISODE_CHARS),
            "importance": { "type": "integer", "minimum": 1, "maximum": 10 },
        }));
    }
    JsonSchema::for_object("facts", properties)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use colloquy_core::ids::FactId;

    #[test]
    fn promise_that_is_over_is_named_by_its_number_in_the_prompt() {
        let fact = FactId::from_u128;
        let promises = [(7, "salt"), (8, "honey")].map(|(id, text)| OpenPromise {
            fact: fact(id),
            text: text.to_owned(),
            made_at: None,
        });
        let ends = [
            json!({"number": 2, "how": "fulfilled"}),
            json!({"number": "1", "how": "Given_Up "}),
            json!({"number": 2, "how": "overdue"}),
            json!({"number": 3, "how": "fulfilled"}),
            json!({"number": 0, "how": "fulfilled"}),
            json!({"number": 1.5, "how": "fulfilled"}),
            json!({"number": 1, "how": "removed"}),
            json!("salt"),
        ];
        let of = |fact, how| PromiseEnd { fact, how };
        assert_eq!(
            parse_endings(&ends, &promises),
            [
                of(fact(8), InvalidReason::Fulfilled),
                of(fact(7), InvalidReason::GivenUp)
            ]
        );
        // A model cannot name facts itself: a member outside the schema is not read.
        let answer: ExtractionAnswer =
            serde_json::from_value(json!({"facts": [], "ends": [], "ended": [of(fact(9), InvalidReason::Fulfilled)]}))
                .unwrap();
        assert_eq!(parse_endings(&answer.ends, &promises), []);
    }

    #[test]
    fn promise_is_overdue_by_a_day_after_it_was_made() {
        let made = |day: &str, text: &str| OpenPromise {
            fact: FactId::from_u128(1),
            text: text.to_owned(),
            made_at: Some(format!("{day}T10:00:00Z").parse().unwrap()),
        };
        let known = InjectedMemory {
            promises: vec![
                made("2026-11-20", "The player returns the coat by 2026-11-24."),
                made(
                    "2026-11-25",
                    "The player returns the coat that Mira lent on 2026-11-24.",
                ),
            ],
            ..InjectedMemory::default()
        };
        let shown = known.open_promises("2026-11-25", |at| at.format("%Y-%m-%d").to_string());
        let marks: Vec<bool> = shown
            .iter()
            .map(|promise| promise.get_attr("overdue").unwrap().is_true())
            .collect();
        assert_eq!(marks, [true, false]);
    }

    #[test]
    fn forget_requests_and_episodes_come_only_from_players() {
        for by_player in [true, false] {
            let schema = facts_schema(by_player).schema;
            let required = schema["required"].as_array().unwrap();
            assert_eq!(required.contains(&json!("forget")), by_player);
            assert_eq!(schema["properties"]["forget"].is_object(), by_player);
            assert_eq!(required.contains(&json!("episode")), by_player);
        }
    }
}
