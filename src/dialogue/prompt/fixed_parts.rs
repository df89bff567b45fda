//! The parts of a prompt that are never dropped: the persona with its rules, the line, and the beginning of a cut reply.

use std::sync::Arc;

use minijinja::context;

use super::{
    context::PromptContext,
    frame_tokens::FRAME_TOKENS,
    own_prompt::own_prompt_tokens,
    system::{BlockRequest, system_values},
    templates::{ReplyOpening, Template},
    untrusted::escape_untrusted,
};
use crate::{
    knowledge::player_own_names,
    npc_conversation::{END_MARK, Scene},
    turn::TurnError,
};
use colloquy_memory::directive::SelectedDirectives;
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// The parts of a prompt that no selection drops.
pub(super) struct FixedParts {
    pub system: Arc<str>,
    pub line: Arc<str>,
    /// The messages that continue a cut reply.
    pub continuation: Vec<ChatMessage>,
    pub system_tokens: u32,
    /// The tokens of the line, with the messages of a chat program around the line.
    pub line_tokens: u32,
    continuation_tokens: u32,
}

impl FixedParts {
    /// Renders the parts. `has_met`: the NPC has met the player in another session.
    ///
    /// # Errors
    /// A template that cannot be rendered.
    pub(super) fn render(
        context: &PromptContext<'_>,
        directives: &SelectedDirectives,
        has_met: bool,
    ) -> Result<Self, TurnError> {
        let block_request = BlockRequest::from_settings(&context.settings.prompt);
        let input = context.input;
        let templates = context.templates;
        let system = match context.scene {
            _ if input.own_prompt().is_some() => {
                templates.render_addition_to_own_prompt(&input.world, &input.npc, directives, block_request)?
            }
            None => templates.render_system(&input.world, &input.npc, directives, block_request)?,
            Some(scene) => render_scene_system(context, scene, directives, block_request)?.into(),
        };
        let line = render_line(context, has_met)?;
        let count = |text: &str| context.count(text);
        let own_prompt = input.own_prompt();
        let continuation = continuation_messages(context, block_request)?;
        let continuation_tokens = continuation
            .iter()
            .map(|message| count(&message.content) + FRAME_TOKENS);
        Ok(Self {
            system_tokens: count(&system),
            line_tokens: count(&line) + own_prompt.map_or(0, |own_prompt| own_prompt_tokens(own_prompt, &count)),
            continuation_tokens: continuation_tokens.sum(),
            system,
            line,
            continuation,
        })
    }

    /// Returns the tokens that the parts take in the prompt, with their frames.
    pub(super) const fn tokens(&self) -> u32 {
        self.system_tokens + self.line_tokens + 2 * FRAME_TOKENS + self.continuation_tokens
    }
}

/// Returns the line to which the NPC answers: the player's, or in an NPC conversation the cue.
fn render_line(context: &PromptContext<'_>, has_met: bool) -> Result<Arc<str>, TurnError> {
    let input = context.input;
    let templates = context.templates;
    if let (None, Some(scene)) = (&input.player, context.scene) {
        return Ok(scene.render_next_cue(templates, &input.npc, &input.history)?.into());
    }
    let line = if input.line.is_empty() {
        let opening = ReplyOpening {
            name: &input.npc.name,
            is_known: has_met || knows_player(context),
            is_silent: input
                .own_prompt()
                .map_or(!input.history.is_empty(), |own_prompt| !own_prompt.history.is_empty()),
            is_own_prompt: input.own_prompt().is_some(),
        };
        templates.render_greeting(context.language(), &opening)?
    } else {
        let hears_others = input.dialogue.options.other_speakers(&input.line).next().is_some();
        templates.render_line(context.language(), &input.line, hears_others)?
    };
    Ok(match input.history.last().and_then(|turn| turn.committed_at) {
        Some(previous_at) => context.ages().mark_gap(templates, previous_at, None, line)?,
        None => line,
    })
}

/// True if the NPC has talked with the player in this dialogue, or has heard the player's name from the player.
fn knows_player(context: &PromptContext<'_>) -> bool {
    let has_name = || !player_own_names(context.reader(), context.standing).is_empty();
    !context.input.history.is_empty() || !context.summaries.is_empty() || has_name()
}

/// Returns the messages that continue a cut reply: its beginning as the NPC's own words, and the request.
fn continuation_messages(
    context: &PromptContext<'_>,
    block_request: BlockRequest,
) -> Result<Vec<ChatMessage>, TurnError> {
    let Some(unfinished) = &context.input.continuation else {
        return Ok(Vec::new());
    };
    let request = context.templates.render(
        context.language(),
        Template::ReplyGoOn,
        context! { is_whole => unfinished.is_whole, ask_for_state => block_request.state },
    )?;
    Ok(vec![
        ChatMessage::new(ChatRole::Assistant, unfinished.beginning().text),
        ChatMessage::new(ChatRole::User, request),
    ])
}

/// Renders the first section for a scene with several NPCs, including who they are.
fn render_scene_system(
    context: &PromptContext<'_>,
    scene: &Scene,
    directives: &SelectedDirectives,
    block_request: BlockRequest,
) -> Result<String, TurnError> {
    let input = context.input;
    let template = match input.player {
        Some(_) => Template::ReplySystem,
        None => Template::ConversationSystem,
    };
    let other_names = scene.other_names(&input.npc.id);
    let topic = scene.topic.as_deref().map(escape_untrusted).unwrap_or_default();
    let values = context! {
        topic,
        end_mark => END_MARK,
        several => true,
        ..system_values(&input.world, &input.npc, directives, block_request, other_names)
    };
    Ok(context.templates.render(context.language(), template, values)?)
}
