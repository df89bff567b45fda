//! Assembly of messages from the gathered knowledge, within every budget.
//!
//! Pure: no function here calls a store or a model. Stable sections come first (docs/algorithms.md#prompt-assembly).
//! The order: 1 persona and rules, 2 pinned facts and summaries, 3 raw turns, 4 parts that change every turn.

use minijinja::{Value, context};
use sha2::{Digest as _, Sha256};

use super::{
    assembled_prompt::Prompt,
    content_hash::ContentHash,
    context::PromptContext,
    fixed_parts::FixedParts,
    frame_tokens::FRAME_TOKENS,
    history::{self, HistoryWindow},
    templates::Template,
    untrusted::escape_untrusted,
};
use crate::{
    knowledge::{
        GatheredKnowledge, HISTORY_RANK, RenderedValues, Section, SectionSize, SectionSizes, SelectedKnowledge,
        TemplateValues, ToldParts, trace_standing_facts,
    },
    settings::PromptSettings,
    turn::TurnError,
};
use colloquy_memory::{
    directive::SelectedDirectives,
    text::to_hexadecimal,
    trace::{SectionTrace, TurnTrace},
};
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// The tokens that open the answer, once per prompt.
const OPENING_TOKENS: u32 = 3;
/// The tokens of the line and the state block are rounded up to a multiple of this; history gets the rest. Small
/// changes between turns then do not move the start of the history.
const ROUND_TOKENS: u32 = 256;

/// Assembles the prompt.
///
/// # Errors
/// The fixed parts alone are too long, or a template cannot be rendered.
pub(crate) fn assemble_prompt(
    context: &PromptContext<'_>,
    knowledge: &GatheredKnowledge,
    directives: &SelectedDirectives,
) -> Result<Prompt, TurnError> {
    let budgets = &context.settings.prompt;
    let is_known_by_talks = knowledge.identity.meeting.is_some();
    let fixed = FixedParts::render(context, directives, is_known_by_talks)?;
    let fixed_tokens = fixed.tokens() + OPENING_TOKENS;
    let over = fixed_tokens.saturating_sub(budgets.total_tokens);
    if over > 0 {
        return Err(TurnError::PromptTooLarge { over });
    }
    let mut selection = Selection::select(context, knowledge, &fixed, budgets.total_tokens - fixed_tokens)?;
    let fitted = selection.fit_messages(&fixed)?;
    debug_assert!(fitted.tokens <= budgets.total_tokens, "a prompt fits its budget");
    debug_assert!(
        fitted.message_tokens.len() == fitted.messages.len(),
        "the tokens of each message are counted"
    );
    let told_parts = selection.told_facts();
    let mut trace = TurnTrace {
        candidates: trace_standing_facts(context, &told_parts, &knowledge.found_facts),
        directives: directives.traces.clone(),
        sections: selection.trace_sections(&fixed),
        prompt_tokens: fitted.tokens,
        prompt_hash: hash_messages(&fitted.messages),
        notes: selection.collect_notes(),
        ..TurnTrace::default()
    };
    for section in selection.knowledge.sections() {
        section.add_trace(&mut trace);
    }
    Ok(Prompt {
        messages: fitted.messages,
        message_tokens: fitted.message_tokens,
        trace,
    })
}

/// The parts of a prompt that can be dropped.
struct Selection<'a> {
    context: &'a PromptContext<'a>,
    knowledge: SelectedKnowledge<'a>,
    history: HistoryWindow,
}

/// The messages of a prompt within its budget.
struct FittedMessages {
    messages: Vec<ChatMessage>,
    message_tokens: Vec<u32>,
    tokens: u32,
}

impl<'a> Selection<'a> {
    /// Selects the knowledge and the raw turns, each within its budget.
    fn select(
        context: &'a PromptContext<'a>,
        knowledge: &'a GatheredKnowledge,
        fixed: &FixedParts,
        remaining_tokens: u32,
    ) -> Result<Self, TurnError> {
        let select_history = |remaining_tokens, changing_tokens: u32| {
            if let Some(own_prompt) = context.input.own_prompt() {
                let count = |text: &str| context.count(text);
                return Ok(HistoryWindow::from_own_prompt(&own_prompt.history, &count));
            }
            let turns = history::render_turns(context)?;
            let changing_tokens = fixed.line_tokens + changing_tokens;
            let room = history_room(&context.settings.prompt, remaining_tokens, changing_tokens);
            Ok(HistoryWindow::fit_to_room(turns, room))
        };
        let (knowledge, history) = knowledge.select(context, remaining_tokens, select_history)?;
        Ok(Self {
            context,
            knowledge,
            history,
        })
    }

    /// Builds the messages. Drops the least important parts until the whole fits.
    fn fit_messages(&mut self, fixed: &FixedParts) -> Result<FittedMessages, TurnError> {
        let total_tokens = self.context.settings.prompt.total_tokens;
        loop {
            let mut messages = self.build_messages(fixed)?;
            messages.extend(fixed.continuation.iter().cloned());
            let message_tokens = messages
                .iter()
                .map(|message| self.context.count(&message.content) + FRAME_TOKENS);
            let message_tokens: Vec<u32> = message_tokens.collect();
            let tokens = message_tokens.iter().sum::<u32>() + OPENING_TOKENS;
            // The parts were counted separately; the joined text may be slightly longer.
            if tokens <= total_tokens {
                return Ok(FittedMessages {
                    messages,
                    message_tokens,
                    tokens,
                });
            }
            if !self.drop_least_important() {
                return Err(TurnError::PromptTooLarge {
                    over: tokens - total_tokens,
                });
            }
        }
    }

    /// Drops the least important remaining part, in the order of the table of the kinds of knowledge. Returns `false` if
    /// only persona and line are left.
    fn drop_least_important(&mut self) -> bool {
        let mut sections = self.knowledge.ranked_sections();
        sections.push((HISTORY_RANK, &mut self.history));
        sections.sort_by_key(|(rank, _)| *rank);
        sections.into_iter().any(|(_, section)| section.drop_least())
    }

    /// Returns the facts that the prompt has without a search.
    fn told_facts(&self) -> ToldParts<'_> {
        let mut told_parts = ToldParts::default();
        self.knowledge.identity.add_told(&mut told_parts);
        self.knowledge.standing_facts.add_told(&mut told_parts);
        told_parts
    }

    /// Returns the messages of all four sections.
    fn build_messages(&self, fixed: &FixedParts) -> Result<Vec<ChatMessage>, TurnError> {
        let context = self.context;
        let own_prompt = context.input.own_prompt();
        let mut messages = own_prompt.map_or_else(Vec::new, |own_prompt| own_prompt.head.clone());
        let mut first = ChatMessage::new(ChatRole::System, &*fixed.system);
        first.cache_breakpoint = true;
        messages.push(first);
        let RenderedValues { lasting, changing } = self.template_values()?.into_rendered();
        let memory = render_values(context, Template::ReplyMemory, lasting)?;
        if !memory.is_empty() {
            messages.push(ChatMessage::new(ChatRole::System, memory));
        }
        messages.extend(self.history.messages());
        let changing = render_values(context, Template::ReplyContext, changing)?;
        if let Some(own_prompt) = own_prompt.filter(|own_prompt| own_prompt.has_line()) {
            let changing = if changing.is_empty() {
                changing
            } else {
                let mark = context
                    .templates
                    .render(context.language(), Template::ReplySaidNow, context! {})?;
                format!("{changing}\n\n{}", mark.trim())
            };
            messages.extend(own_prompt.last_after(&changing));
            return Ok(messages);
        }
        messages.extend(own_prompt.iter().flat_map(|own_prompt| own_prompt.last.iter().cloned()));
        let last = if changing.is_empty() {
            fixed.line.to_string()
        } else {
            format!("{changing}\n\n{}", fixed.line)
        };
        messages.push(ChatMessage::new(ChatRole::User, last));
        Ok(messages)
    }

    /// Returns the values of all sections.
    fn template_values(&self) -> Result<TemplateValues<'_>, TurnError> {
        let context = self.context;
        let sections = self.knowledge.sections();
        let mut dialogues = Vec::new();
        for section in &sections {
            section.add_dialogues(&mut dialogues);
        }
        let mut values = TemplateValues::new(context, dialogues);
        for section in &sections {
            section.add_values(&mut values)?;
        }
        let is_dated = context.clock.is_some() || sections.iter().any(|section| section.is_dated());
        let today = if is_dated {
            context.ages().today(context.templates)?
        } else {
            String::new()
        };
        let witnesses = context.witnesses.iter().map(|member| escape_untrusted(&member.name));
        let witnesses: Vec<String> = witnesses.collect();
        values.add_scene(today, witnesses);
        Ok(values)
    }

    /// Returns sizes, dropped content and hashes per section: the persona, the sections in the order in which they get
    /// room, and the line.
    fn trace_sections(&self, fixed: &FixedParts) -> Vec<SectionTrace> {
        let budgets = &self.context.settings.prompt;
        let total_tokens = budgets.total_tokens;
        let mut sizes = SectionSizes::default();
        let system_size = SectionSize::new("system", fixed.system_tokens, total_tokens, 0, "");
        sizes.add(system_size, |hash| hash.add_text(&fixed.system));
        for section in self.knowledge.sections() {
            section.add_sizes(budgets, &mut sizes);
        }
        self.history.add_sizes(budgets, &mut sizes);
        let line_size = SectionSize::new("line", fixed.line_tokens, total_tokens, 0, "");
        sizes.add(line_size, |hash| {
            hash.add_text(&fixed.line);
            add_messages(hash, &fixed.continuation);
        });
        sizes.into_traces()
    }

    /// Returns notes for a person who asks why content is missing.
    fn collect_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        self.history.add_notes(&mut notes);
        for section in self.knowledge.sections() {
            section.add_notes(&mut notes);
        }
        notes
    }
}

impl Section for HistoryWindow {
    fn tokens(&self) -> u32 {
        Self::tokens(self)
    }
    fn framed_tokens(&self) -> u32 {
        Self::tokens(self)
    }
    fn changing_tokens(&self) -> u32 {
        0
    }
    /// Drops the oldest block of turns.
    fn drop_least(&mut self) -> bool {
        self.drop_block()
    }
    fn add_values(&self, _values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        Ok(())
    }
    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.dropped_turns().map(|(from, to)| format!("turns {from} to {to}"));
        let size = SectionSize {
            name: "history",
            tokens: Self::tokens(self),
            budget: budgets.history_tokens,
            dropped: dropped.into_iter().collect(),
        };
        sizes.add(size, |hash| add_messages(hash, &self.messages()));
    }
    fn add_notes(&self, notes: &mut Vec<String>) {
        let dropped = self.dropped_turns();
        notes.extend(dropped.map(|(from, to)| format!("turns {from} to {to} did not fit the history budget")));
    }
}

/// Renders a template, without the white space at its end.
fn render_values(
    context: &PromptContext<'_>,
    template: Template,
    values: impl Into<Value>,
) -> Result<String, TurnError> {
    let text = context.templates.render(context.language(), template, values.into())?;
    Ok(text.trim_end().to_owned())
}

fn add_messages(hash: &mut ContentHash, messages: &[ChatMessage]) {
    for message in messages {
        hash.add_number(match message.role {
            ChatRole::System => 0,
            ChatRole::User => 1,
            ChatRole::Assistant => 2,
        });
        hash.add_text(&message.content);
    }
}

/// Returns the room for raw turns. If all turns fit, the room is their size. Otherwise the changing parts are rounded
/// up first.
fn history_room(budgets: &PromptSettings, remaining_tokens: u32, changing: u32) -> impl Fn(u32) -> u32 {
    let budget = budgets.history_tokens;
    let reserve = changing.next_multiple_of(ROUND_TOKENS) - changing;
    move |wanted_tokens| {
        if wanted_tokens <= budget.min(remaining_tokens) {
            wanted_tokens
        } else {
            budget.min(remaining_tokens.saturating_sub(reserve))
        }
    }
}

/// Returns the SHA-256 of roles and contents, each preceded by its length.
fn hash_messages(messages: &[ChatMessage]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        let role = match message.role {
            ChatRole::System => b's',
            ChatRole::User => b'u',
            ChatRole::Assistant => b'a',
        };
        hash.update([role]);
        hash.update((message.content.len() as u64).to_le_bytes());
        hash.update(&message.content);
        if let Some(as_sent) = &message.as_sent {
            // The same message has the same text: a map keeps its keys in order.
            hash.update(serde_json::to_vec(&**as_sent).unwrap_or_default());
        }
    }
    to_hexadecimal(&hash.finalize())
}
