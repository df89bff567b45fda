//! The check of a turn's prompt: assembled again from the ledger, and compared by its hash.

use serde::Serialize;
use utoipa::ToSchema;

use super::material::{self, RereadTurn, TracedTurn};
use crate::{
    Services,
    prompt::Prompt,
    turn::{AUTHORED_GREETING, GIVEN_REPLY, TurnError, TurnInput, present_settings},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    trace::{PromptSources, SectionTrace, TurnTrace},
    turn::Turn,
};
use colloquy_ports::{StoreResult, ledger::dialogues::Dialogue};

/// Whether the prompt of a turn can be assembled again from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct Verification {
    /// True: the messages are byte for byte the same, by their SHA-256. `null`: there is nothing to compare, and `reasons`
    /// says why.
    pub same: Option<bool>,
    /// The SHA-256 of the messages as they are assembled now, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_hash: Option<String>,
    /// The sections whose content or size is another now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub different_sections: Vec<SectionDifference>,
    /// What has changed since the turn and may have changed the prompt, in words. Empty if `same` is true.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A section of a prompt that is another now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SectionDifference {
    pub name: String,
    /// The tokens in the turn, and now. 0: the prompt has no such section.
    pub tokens_then: u32,
    pub tokens_now: u32,
}

impl Verification {
    fn nothing_to_compare(reason: &str) -> Self {
        Self {
            reasons: vec![reason.to_owned()],
            ..Self::default()
        }
    }

    fn different(mut reasons: Vec<String>) -> Self {
        if reasons.is_empty() {
            reasons.push(
                "no edit since the turn is known: rows were changed or removed otherwise, or another build of the \
                 server assembled the prompt"
                    .to_owned(),
            );
        }
        Self {
            same: Some(false),
            reasons,
            ..Self::default()
        }
    }

    fn compare(trace: &TurnTrace, prompt: Prompt, reasons: Vec<String>) -> Self {
        if prompt.trace.prompt_hash == trace.prompt_hash {
            return Self {
                same: Some(true),
                prompt_hash: Some(prompt.trace.prompt_hash),
                ..Self::default()
            };
        }
        Self {
            different_sections: different_sections(&trace.sections, &prompt.trace.sections),
            prompt_hash: Some(prompt.trace.prompt_hash),
            ..Self::different(reasons)
        }
    }
}

/// Assembles the prompt of a standing turn again, and compares it with the hash in the trace.
///
/// # Errors
/// The store's.
pub(super) async fn verify_prompt(
    services: &Services,
    scope: &TenantScope,
    dialogue: &Dialogue,
    turn: &Turn,
    trace: &TurnTrace,
) -> StoreResult<Verification> {
    if trace.calls.iter().any(|call| call.model == AUTHORED_GREETING) {
        let reason = "the NPC said the greeting of its persona: no model has seen a prompt";
        return Ok(Verification::nothing_to_compare(reason));
    }
    if trace.calls.iter().any(|call| call.model == GIVEN_REPLY) {
        let reason = "a chat program has shown the reply before: no model has seen a prompt";
        return Ok(Verification::nothing_to_compare(reason));
    }
    let Some(sources) = &trace.sources else {
        let reason =
            "an earlier build of the server wrote the trace, which does not say what the prompt was assembled from";
        return Ok(Verification::nothing_to_compare(reason));
    };
    if sources.own_prompt {
        let reason = "the prompt had the messages of a chat program, which are not stored";
        return Ok(Verification::nothing_to_compare(reason));
    }
    let mut reasons = Vec::new();
    let traced = TracedTurn {
        dialogue,
        turn,
        trace,
        sources,
    };
    let assembled = match material::reread_turn(services, scope, traced, &mut reasons).await {
        Ok(None) => return Ok(Verification::different(reasons)),
        Ok(Some(RereadTurn { input, gathered })) => {
            let services = &*services.tuned_by(&input.world.settings);
            reasons.extend(configuration_reasons(services, &input, sources));
            gathered.assemble_prompt(services, &input)
        }
        Err(error) => Err(error),
    };
    match assembled {
        Ok(prompt) => Ok(Verification::compare(trace, prompt, reasons)),
        Err(TurnError::Store(error)) => Err(error),
        Err(error) => {
            reasons.push(format!("the prompt cannot be assembled any more: {error}"));
            Ok(Verification::different(reasons))
        }
    }
}

/// Names edits of the world and the NPC, and changes of templates and settings.
fn configuration_reasons(services: &Services, input: &TurnInput, sources: &PromptSources) -> Vec<String> {
    let world = &input.world;
    let npc = &input.npc;
    let mut reasons = Vec::new();
    for (kind, id, used_version, present_version) in [
        ("world", world.id.as_str(), sources.world_version, world.version),
        ("NPC", npc.id.as_str(), sources.npc_version, npc.version),
    ] {
        if used_version != present_version {
            reasons.push(format!(
                "the {kind} `{id}` was edited: the turn had version {used_version}, and now it has version {present_version}"
            ));
        }
    }
    if sources.templates != services.prompts.source_hash() {
        reasons.push("the prompt templates were changed".to_owned());
    }
    if sources.settings != present_settings(services, world, npc) {
        reasons.push(
            "the settings of prompts were changed, or another model with another token counter answers".to_owned(),
        );
    }
    reasons
}

/// Returns the sections that differ, in the order of the trace, and then those that are new.
fn different_sections(traced: &[SectionTrace], present: &[SectionTrace]) -> Vec<SectionDifference> {
    let find = |sections: &[SectionTrace], name: &str| {
        let section = sections.iter().find(|section| section.name == name);
        section.map_or((0, String::new()), |section| (section.tokens, section.hash.clone()))
    };
    let new = present
        .iter()
        .filter(|section| !traced.iter().any(|old| old.name == section.name));
    let names = traced.iter().chain(new).map(|section| section.name.as_str());
    let compared = names.map(|name| (name, find(traced, name), find(present, name)));
    let different = compared.filter(|(_, traced, present)| traced != present);
    let difference = different.map(|(name, traced, present)| SectionDifference {
        name: name.to_owned(),
        tokens_then: traced.0,
        tokens_now: present.0,
    });
    difference.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, tokens: u32, hash: &str) -> SectionTrace {
        SectionTrace {
            name: name.to_owned(),
            tokens,
            budget: 100,
            near_budget: false,
            dropped: vec![],
            hash: hash.to_owned(),
        }
    }

    #[test]
    fn sections_with_other_content_are_named() {
        let then = [
            section("system", 9, "a"),
            section("state", 5, "b"),
            section("lore", 7, "c"),
        ];
        let now = [
            section("system", 9, "d"),
            section("state", 5, "b"),
            section("memory", 3, "e"),
        ];
        let names: Vec<_> = different_sections(&then, &now)
            .into_iter()
            .map(|other| (other.name, other.tokens_then, other.tokens_now))
            .collect();
        let section_named = |name: &str, then, now| (name.to_owned(), then, now);
        assert_eq!(
            names,
            [
                section_named("system", 9, 9),
                section_named("lore", 7, 0),
                section_named("memory", 0, 3)
            ]
        );
    }

    #[test]
    fn difference_always_has_a_reason() {
        assert_eq!(Verification::different(vec![]).reasons.len(), 1);
        assert_eq!(Verification::different(vec!["edited".to_owned()]).reasons, ["edited"]);
    }
}
