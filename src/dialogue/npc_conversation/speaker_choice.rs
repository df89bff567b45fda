//! Asks a model for the next speaker: a small call on the `intent` route, before a line begins. The call cannot fail a
//! line. If the answer is late, or names no participant, the rule decides.

use minijinja::context;
use serde::Deserialize;

use super::{addressing::find_addressed, limits::MIN_NPCS};
use crate::{
    Services,
    models::{ModelRequest, parse_json_answer},
    prompt::{Template, TemplateError, escape_untrusted},
    scene::SceneMember,
    world_events::living_members,
};
use colloquy_core::{ids::NpcId, scope::TenantScope};
use colloquy_memory::authored::{Language, World};
use colloquy_ports::{
    buffer::BufferedTurn,
    ledger::dialogues::{Dialogue, NextSpeaker},
    llm::{ChatMessage, ChatRole, JsonSchema, Task},
};

/// The number of newest lines that the model reads.
const MAX_PROMPTED_LINES: usize = 6;

#[derive(Deserialize)]
struct SpeakerAnswer {
    next: String,
}

/// Works like [`next_speaker`] among the living, but asks a model if the dialogue wants so and the choice is open: after
/// the first line, with three or more NPCs. `None`: fewer than two NPCs are alive.
pub async fn choose_speaker(
    services: &Services,
    scope: &TenantScope,
    dialogue: &Dialogue,
    world: &World,
    cast: &[SceneMember],
    history: &[BufferedTurn],
) -> Option<NpcId> {
    let cast = match living_members(services, scope, world, cast).await {
        Ok(living) => living,
        // The line itself reads the state again.
        Err(error) => {
            tracing::info!(world = %world.id, %error, "the dead among the NPCs are not known");
            cast.to_vec()
        }
    };
    if cast.len() < MIN_NPCS {
        return None;
    }
    if dialogue.options.next_speaker == NextSpeaker::Rule {
        return next_speaker(&cast, history);
    }
    let cast = cast.as_slice();
    let language = world.language;
    let other_members: Vec<&SceneMember> = match history.last() {
        Some(last) => cast.iter().filter(|member| member.id != last.npc).collect(),
        None => Vec::new(),
    };
    if other_members.len() > 1
        && let Some(chosen) = ask_next_speaker(services, scope, dialogue, language, cast, &other_members, history).await
    {
        return Some(chosen);
    }
    next_speaker(cast, history)
}

async fn ask_next_speaker(
    services: &Services,
    scope: &TenantScope,
    dialogue: &Dialogue,
    language: Language,
    cast: &[SceneMember],
    other_members: &[&SceneMember],
    history: &[BufferedTurn],
) -> Option<NpcId> {
    let prompt = match render_prompt(services, dialogue, language, cast, other_members, history) {
        Ok(prompt) => prompt,
        Err(error) => {
            tracing::warn!(dialogue = %dialogue.id, %error, "nobody was asked who speaks next");
            return None;
        }
    };
    let request = ModelRequest {
        task: Task::Intent,
        messages: vec![ChatMessage::new(ChatRole::User, prompt)],
        json_schema: Some(speaker_schema(other_members)),
        model: services.named_model(Task::Intent),
        more_room: false,
        client: None,
    };
    match services.models.request_completion(scope, request).await.0 {
        Ok(answer) => parse_named_speaker(&answer.text, other_members),
        Err(error) => {
            tracing::info!(dialogue = %dialogue.id, %error, "no model said who speaks next");
            None
        }
    }
}

fn render_prompt(
    services: &Services,
    dialogue: &Dialogue,
    language: Language,
    cast: &[SceneMember],
    other_members: &[&SceneMember],
    history: &[BufferedTurn],
) -> Result<String, TemplateError> {
    let name_of = |npc: &NpcId| {
        let member = cast.iter().find(|member| member.id == *npc);
        escape_untrusted(member.map_or(npc.as_str(), |member| &member.name))
    };
    let candidates: Vec<_> = other_members
        .iter()
        .map(|member| context! { id => member.id.as_str(), name => escape_untrusted(&member.name) })
        .collect();
    let lines: Vec<_> = history[history.len().saturating_sub(MAX_PROMPTED_LINES)..]
        .iter()
        .map(|turn| context! { name => name_of(&turn.npc), text => escape_untrusted(&turn.reply_text) })
        .collect();
    let topic = dialogue
        .options
        .topic
        .as_deref()
        .map(escape_untrusted)
        .unwrap_or_default();
    let values = context! { candidates, said => lines, topic };
    services.prompts.render(language, Template::ConversationNext, values)
}

/// Returns the NPC that an answer names: by id, as requested, or in free text.
fn parse_named_speaker(answer: &str, other_members: &[&SceneMember]) -> Option<NpcId> {
    let text = parse_json_answer::<SpeakerAnswer>(answer).map_or_else(|_| answer.to_owned(), |answer| answer.next);
    let by_id = other_members.iter().find(|member| member.id.as_str() == text.trim());
    let speaker = by_id
        .copied()
        .or_else(|| find_addressed(other_members.iter().copied(), &text));
    speaker.map(|member| member.id.clone())
}

/// Allows only the id of a possible speaker.
fn speaker_schema(other_members: &[&SceneMember]) -> JsonSchema {
    let ids: Vec<&str> = other_members.iter().map(|member| member.id.as_str()).collect();
    let next = serde_json::json!({ "type": "string", "enum": ids });
    JsonSchema::for_object("next_speaker", serde_json::json!({ "next": next }))
}

/// Returns the next speaker:
/// - Before the first line: the first NPC of the cast.
/// - If the last line names another NPC: that NPC.
/// - Otherwise: the NPC that has been silent for longest.
///
/// `None`: the cast is empty, or has no other NPC.
#[must_use]
pub fn next_speaker(cast: &[SceneMember], history: &[BufferedTurn]) -> Option<NpcId> {
    let Some(last) = history.last() else {
        return cast.first().map(|member| member.id.clone());
    };
    let other_members = || cast.iter().filter(|member| member.id != last.npc);
    let quietest = || {
        // On a tie `min_by_key` takes the first, which keeps the order of the cast.
        other_members().min_by_key(|member| {
            history
                .iter()
                .rposition(|turn| turn.npc == member.id)
                .map(|index| index + 1)
        })
    };
    find_addressed(other_members(), &last.reply_text)
        .or_else(quietest)
        .map(|member| member.id.clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn speaker_answer_names_an_allowed_speaker() {
        let member = |id: &str, name: &str| SceneMember {
            id: id.parse().unwrap(),
            name: name.to_owned(),
            factions: vec![],
        };
        let mira = member("mira", "Mira");
        let tomas = member("tomas", "토마스");
        let others = [&mira, &tomas];
        for (answer, npc) in [
            (r#"{"next": "tomas"}"#, Some("tomas")),
            (r#"{"next": " mira "}"#, Some("mira")),
            (r#"{"next": "토마스"}"#, Some("tomas")),
            ("Mira speaks next.", Some("mira")),
            (r#"{"next": "ergen"}"#, None),
            (r#"{"next": ""}"#, None),
            ("", None),
        ] {
            assert_eq!(
                parse_named_speaker(answer, &others),
                npc.map(|npc| npc.parse().unwrap()),
                "{answer}"
            );
        }
        let allowed = speaker_schema(&others).schema["properties"]["next"]["enum"].clone();
        assert_eq!(allowed, serde_json::json!(["mira", "tomas"]));
    }
}
