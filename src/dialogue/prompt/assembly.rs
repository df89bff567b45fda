//! Assembly of messages from the gathered material, within every budget.
//!
//! Pure: no function here calls a store or a model. Stable sections come first (docs/algorithms.md#prompt-assembly).
//! The order: 1 persona and rules, 2 pinned facts and summaries, 3 raw turns, 4 parts that change every turn.

use std::{cell::LazyCell, collections::HashSet, sync::Arc};

use minijinja::context;
use sha2::{Digest as _, Sha256};

use super::{
    assembled_prompt::Prompt,
    attribution::attribute_statement,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    history::{self, HistoryWindow},
    material::PromptMaterial,
    own_prompt::{enlarge_for_own_prompt, own_prompt_tokens},
    player_identity::player_own_names,
    scenarios::ShownScenarios,
    selection::{PromptSelection, StandingContext, sections::FixedParts},
    system::{BlockRequest, system_values},
    templates::{ReplyOpening, Template, Templates},
    untrusted::escape_untrusted,
};
use crate::{
    npc_conversation::{END_MARK, Scene},
    recall::{self, MAX_TRACED, RecallHit},
    settings::{DialogueSettings, PromptSettings},
    turn::TurnError,
};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    agreement::canonical_words,
    fact::Statement,
    packing::{PackingBudget, pack_texts},
    party,
    text::to_hexadecimal,
    trace::{CandidateFate, CandidateTrace, ScoreParts},
};
use colloquy_ports::{
    ledger::facts::RecallBody,
    llm::{ChatMessage, ChatRole},
};

/// The score of a fact that is in the prompt without a search, except its importance.
const UNSCORED: ScoreParts = ScoreParts {
    recency: 0.0,
    importance: 0.0,
    relevance: 0.0,
    keyword: 0.0,
    total: 0.0,
    cosine: 0.0,
};

/// The tokens that open the answer, once per prompt.
const OPENING_TOKENS: u32 = 3;
/// The tokens of the line and the state block are rounded up to a multiple of this; history gets the rest. Small
/// changes between turns then do not move the start of the history.
const ROUND_TOKENS: u32 = 256;

impl PromptMaterial<'_> {
    /// True if the NPC has talked with the player before, or has heard the player's name from the player.
    fn knows_player(&self) -> bool {
        let has_name = || !player_own_names(self.reader(), self.standing).is_empty();
        self.meeting.is_some() || !self.history.is_empty() || !self.summaries.is_empty() || has_name()
    }
}

/// Assembles the prompt.
pub(crate) fn assemble_prompt(
    templates: &Templates,
    settings: &DialogueSettings,
    material: &PromptMaterial<'_>,
) -> Result<Prompt, TurnError> {
    let settings = &*enlarge_for_own_prompt(settings, templates, material);
    let budgets = &settings.prompt;
    let count = |text: &str| templates.count_tokens(material.counter, text);
    let fixed = render_fixed(templates, budgets, material, &count)?;
    let fixed_tokens = tokens_of_fixed(&fixed, &count);
    if fixed_tokens > budgets.total_tokens {
        return Err(TurnError::PromptTooLarge {
            over: fixed_tokens - budgets.total_tokens,
        });
    }
    let remaining_tokens = budgets.total_tokens - fixed_tokens;
    let (mut selection, mut fates) = select_parts(
        templates,
        settings,
        material,
        fixed.line_tokens,
        remaining_tokens,
        &count,
    )?;
    let fitted = fit_messages(templates, budgets, material, &fixed, &mut selection, &mut fates)?;
    let (offers, outcomes) = selection.shown_actions();
    let (candidates, listed_hits) = trace_candidates(material, &selection, &fates);
    Ok(Prompt {
        hash: hash_messages(&fitted.messages),
        messages: fitted.messages,
        message_tokens: fitted.message_tokens,
        sections: selection.trace_sections(material, budgets, &fixed, &count),
        tokens: fitted.tokens,
        candidates,
        listed_hits,
        scenarios: selection.trace_past(material),
        opened: selection.opened_scenarios(material),
        lore: selection.trace_lore(material),
        offers,
        outcomes,
        actions_left_out: selection.dropped_actions(),
        summaries: selection.shown_summaries(),
        episodes: selection.trace_episodes(material),
        directives: material.directives.traces.clone(),
        insights: selection.trace_insights(material),
        notes: selection.collect_notes(material),
    })
}

fn render_fixed(
    templates: &Templates,
    budgets: &PromptSettings,
    material: &PromptMaterial<'_>,
    count: &dyn Fn(&str) -> u32,
) -> Result<FixedParts, TurnError> {
    let block_request = BlockRequest::from_settings(budgets);
    let PromptMaterial {
        world, npc, directives, ..
    } = *material;
    let system = match material.scene {
        _ if material.own_prompt.is_some() => {
            templates.render_addition_to_own_prompt(world, npc, directives, block_request)?
        }
        None => templates.render_system(world, npc, directives, block_request)?,
        Some(scene) => render_scene_system(templates, material, scene, block_request)?.into(),
    };
    let line = render_line(templates, material)?;
    Ok(FixedParts {
        continuation: continuation_messages(templates, material, block_request)?,
        system_tokens: count(&system),
        line_tokens: count(&line) + own_prompt_tokens(material, count),
        system,
        line,
    })
}

/// Returns the tokens that the fixed parts take in the prompt, with their frames.
fn tokens_of_fixed(fixed: &FixedParts, count: &dyn Fn(&str) -> u32) -> u32 {
    let continuation = fixed.continuation.iter();
    let continuation = continuation.map(|message| count(&message.content) + FRAME_TOKENS);
    fixed.system_tokens + fixed.line_tokens + 2 * FRAME_TOKENS + OPENING_TOKENS + continuation.sum::<u32>()
}

/// Selects the other parts, each within its budget. Returns also the fates of the hits.
fn select_parts(
    templates: &Templates,
    settings: &DialogueSettings,
    material: &PromptMaterial<'_>,
    line_tokens: u32,
    mut remaining_tokens: u32,
    count: &dyn Fn(&str) -> u32,
) -> Result<(PromptSelection, Vec<CandidateFate>), TurnError> {
    let budgets = &settings.prompt;
    let past = ShownScenarios::select_fitting(templates, material, settings, remaining_tokens, count)?;
    remaining_tokens = remaining_tokens.saturating_sub(past.tokens());
    let standing = StandingContext::select_fitting(templates, material, budgets, past, remaining_tokens, count)?;
    remaining_tokens = remaining_tokens.saturating_sub(standing.tokens());
    let window = if let Some(own_prompt) = material.own_prompt {
        HistoryWindow::from_own_prompt(&own_prompt.history, count)
    } else {
        let turns = history::render_turns(templates, material, count)?;
        let room = history_room(budgets, remaining_tokens, line_tokens + standing.changing_tokens());
        HistoryWindow::fit_to_room(turns, room)
    };
    remaining_tokens = remaining_tokens.saturating_sub(window.tokens());

    let (mut fates, packable) = decide_hit_fates(material, &standing, &window, settings);
    let (memories, memory_tokens) = pack_hits(templates, material, settings, remaining_tokens, packable, &mut fates)?;
    remaining_tokens = remaining_tokens.saturating_sub(memory_tokens);

    let mut selection = PromptSelection::new(standing, window, memories);
    selection.add_summaries(templates, material, budgets, remaining_tokens, count)?;
    selection.add_episodes(templates, material, settings, remaining_tokens, count)?;
    selection.add_insights(templates, material, budgets, remaining_tokens, count)?;
    selection.add_lore(templates, material, budgets, remaining_tokens, count)?;
    Ok((selection, fates))
}

/// The messages of a prompt within its budget.
struct FittedMessages {
    messages: Vec<ChatMessage>,
    message_tokens: Vec<u32>,
    tokens: u32,
}

/// Builds the messages. Drops the least important parts until the whole fits.
fn fit_messages(
    templates: &Templates,
    budgets: &PromptSettings,
    material: &PromptMaterial<'_>,
    fixed: &FixedParts,
    selection: &mut PromptSelection,
    fates: &mut [CandidateFate],
) -> Result<FittedMessages, TurnError> {
    let language = material.npc.language;
    let count = |text: &str| templates.count_tokens(material.counter, text);
    loop {
        let mut messages = selection.build_messages(templates, language, material, &fixed.system, &fixed.line)?;
        messages.extend(fixed.continuation.iter().cloned());
        let message_tokens = messages.iter().map(|message| count(&message.content) + FRAME_TOKENS);
        let message_tokens: Vec<u32> = message_tokens.collect();
        let tokens = message_tokens.iter().sum::<u32>() + OPENING_TOKENS;
        // The parts were counted separately; the joined text may be slightly longer.
        if tokens <= budgets.total_tokens {
            return Ok(FittedMessages {
                messages,
                message_tokens,
                tokens,
            });
        }
        if !selection.drop_least_important(fates) {
            return Err(TurnError::PromptTooLarge {
                over: tokens - budgets.total_tokens,
            });
        }
    }
}

/// Returns the line to which the NPC answers: the player's, or in an NPC conversation the cue.
fn render_line(templates: &Templates, material: &PromptMaterial<'_>) -> Result<Arc<str>, TurnError> {
    if let (None, Some(scene)) = (material.player, material.scene) {
        return Ok(scene.render_next_cue(templates, material.npc, material.history)?.into());
    }
    let language = material.npc.language;
    let line = if material.line.is_empty() {
        let own_prompt = material.own_prompt;
        let opening = ReplyOpening {
            name: &material.npc.name,
            is_known: material.knows_player(),
            is_silent: own_prompt.map_or(!material.history.is_empty(), |own_prompt| {
                !own_prompt.history.is_empty()
            }),
            is_own_prompt: own_prompt.is_some(),
        };
        templates.render_greeting(language, &opening)?
    } else {
        templates.render_line(language, material.line, material.hears_others)?
    };
    Ok(match material.history.last().and_then(|turn| turn.committed_at) {
        Some(previous_at) => material.ages().mark_gap(templates, previous_at, None, line)?,
        None => line,
    })
}

/// Packs hits into their budget, and sets their fates. Returns position and text of those that fit, and their tokens.
fn pack_hits(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    settings: &DialogueSettings,
    remaining_tokens: u32,
    packable: Vec<usize>,
    fates: &mut [CandidateFate],
) -> Result<(Vec<(usize, String)>, u32), TurnError> {
    let packable = diversify_hits(material, packable, settings.recall.diversity);
    let texts = attribute_hits(templates, material, &packable)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let remaining_tokens = remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS);
    let budget = PackingBudget {
        top_k: settings.recall.top_k,
        total_tokens: settings.prompt.memory_tokens.min(remaining_tokens),
        item_tokens: settings.prompt.memory_item_tokens,
    };
    let packing = pack_texts(&texts, budget, ITEM_TOKENS, &material.counter);
    for (&index, &fate) in packable.iter().zip(&packing.fates) {
        fates[index] = fate;
    }
    let items = packing.items.iter();
    let memories = items.map(|item| (packable[item.index], item.text.to_owned()));
    Ok((memories.collect(), packing.tokens))
}

/// Returns the texts of hits, each with its speaker.
fn attribute_hits(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    hits: &[usize],
) -> Result<Vec<String>, TurnError> {
    let text = |index: &usize| {
        let body = &material.hits[*index].body;
        let reader = material.reader();
        let text = attribute_statement(templates, reader, &body.subject, &body.speaker, &body.view.content)?;
        let remark = material.remark_for_knowers(&body.knowers);
        let remark = remark.with_dead(&material.dead, &body.subject, body.tense, body.valid_at);
        Ok(remark.add_to(templates, material, text)?)
    };
    hits.iter().map(text).collect()
}

/// Returns the messages that continue a cut reply: its beginning as the NPC's own words, and the request.
fn continuation_messages(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    block_request: BlockRequest,
) -> Result<Vec<ChatMessage>, TurnError> {
    let Some(continued_text) = material.continued_text else {
        return Ok(Vec::new());
    };
    let request = templates.render(
        material.npc.language,
        Template::ReplyGoOn,
        context! { is_whole => material.continues_whole, ask_for_state => block_request.state },
    )?;
    Ok(vec![
        ChatMessage::new(ChatRole::Assistant, continued_text),
        ChatMessage::new(ChatRole::User, request),
    ])
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

/// Renders the first section for a scene with several NPCs, including who they are.
fn render_scene_system(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    scene: &Scene,
    block_request: BlockRequest,
) -> Result<String, TurnError> {
    let template = match material.player {
        Some(_) => Template::ReplySystem,
        None => Template::ConversationSystem,
    };
    let other_names = scene.other_names(&material.npc.id);
    let topic = scene.topic.as_deref().map(escape_untrusted).unwrap_or_default();
    let values = context! {
        topic,
        end_mark => END_MARK,
        several => true,
        ..system_values(material.world, material.npc, material.directives, block_request, other_names)
    };
    Ok(templates.render(material.npc.language, template, values)?)
}

/// Decides the fate of every hit. The second list has the positions of hits that may be packed.
fn decide_hit_fates(
    material: &PromptMaterial<'_>,
    standing: &StandingContext,
    history: &HistoryWindow,
    settings: &DialogueSettings,
) -> (Vec<CandidateFate>, Vec<usize>) {
    let mut fates = vec![CandidateFate::BeyondTopK; material.hits.len()];
    let mut packable = Vec::new();
    let mut distinct_bodies: Vec<&RecallBody> = Vec::new();
    let is_standing = |hit: &RecallHit| standing.facts.fate_of(hit.body.id).is_some();
    let admitted = recall::admit_hits(material.hits, material.gate, &material.npc.name, &is_standing);
    let shown_sentences = LazyCell::new(|| sentences_of_shown_facts(material, standing));
    for (index, hit) in material.hits.iter().enumerate() {
        let body = &hit.body;
        let is_near_duplicate =
            |other: &&RecallBody| recall::is_same_statement(other, body, material.near_duplicate_cosine);
        let fate = if let Some(standing_fate) = standing.facts.fate_of(body.id) {
            standing_fate
        } else if standing.facts.redated_ids.contains(&body.id) {
            CandidateFate::NearDuplicate
        } else if material.player.is_none() && is_just_said(material, history, body) {
            CandidateFate::InHistory
        } else if let Some(weakness) = hit.weakness(admitted[index], material.gate, settings.recall.min_score) {
            weakness
        } else if distinct_bodies.len() >= recall::max_packable(&settings.recall) {
            CandidateFate::BeyondTopK
        } else if distinct_bodies.iter().any(is_near_duplicate) {
            CandidateFate::NearDuplicate
        } else {
            // Recall stops reading at this number of different facts. It does not know the standing facts, so a repeated
            // standing fact counts.
            distinct_bodies.push(body);
            if !shown_sentences.contains(&comparable_sentence(&body.subject, &body.speaker, &body.view.content)) {
                packable.push(index);
                continue;
            }
            CandidateFate::NearDuplicate
        };
        fates[index] = fate;
    }
    (fates, packable)
}

/// Subject, speaker and comparable words of a fact.
type ComparableSentence<'f> = (&'f str, &'f str, Vec<String>);

fn comparable_sentence<'f>(subject: &'f str, speaker: &'f str, content: &str) -> ComparableSentence<'f> {
    (subject, speaker, canonical_words(content))
}

/// Returns the sentences of the standing facts in the prompt. What was told once more to others is a fact of its own,
/// with the same sentence.
fn sentences_of_shown_facts<'f>(
    material: &PromptMaterial<'f>,
    standing: &StandingContext,
) -> HashSet<ComparableSentence<'f>> {
    let shown_facts = material
        .standing
        .iter()
        .filter(|fact| fact.invalid.is_none() && standing.facts.fate_of(fact.id).is_some());
    let sentences = shown_facts.map(|fact| {
        let statement = &fact.statement;
        comparable_sentence(&statement.subject, &statement.speaker, &fact.view.content)
    });
    sentences.collect()
}

/// True if the hit was learned from a line in the visible history. NPCs would otherwise repeat the line to each
/// other.
fn is_just_said(material: &PromptMaterial<'_>, history: &HistoryWindow, body: &RecallBody) -> bool {
    let (dialogue, turn) = body.source.unzip();
    dialogue == Some(material.dialogue) && turn.is_some_and(|turn| history.has_turn(turn))
}

/// Reorders `packable`: a hit that resembles a better hit moves behind dissimilar hits. The world's `diversity`
/// setting, or else `configured`, sets the strength.
fn diversify_hits(material: &PromptMaterial<'_>, packable: Vec<usize>, configured: f64) -> Vec<usize> {
    let world_diversity = material.world.settings.recall.and_then(|recall| recall.diversity);
    let diversity = world_diversity.unwrap_or(configured);
    recall::diversify_hits(material.hits, packable, diversity)
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

/// True if a line may end the statement as a promise: an open promise by its maker's word, or by an author's.
fn is_promise_to_end(statement: &Statement) -> bool {
    statement.is_promise_of_maker() || statement.speaker == party::AUTHOR && statement.is_open_promise()
}

/// Returns the trace of the standing facts in the prompt, and of hits; and the number of these hits.
fn trace_candidates(
    material: &PromptMaterial<'_>,
    selection: &PromptSelection,
    fates: &[CandidateFate],
) -> (Vec<CandidateTrace>, usize) {
    let scored: HashSet<FactId> = material.hits.iter().map(|hit| hit.body.id).collect();
    let standing = material
        .standing
        .iter()
        .filter(|fact| !scored.contains(&fact.id))
        .filter_map(|fact| {
            Some(CandidateTrace {
                fact: fact.id,
                subject: fact.statement.subject.clone(),
                speaker: material.reader().speaker_of(fact).to_owned(),
                content: fact.view.content.clone(),
                score: ScoreParts {
                    importance: fact.view.importance.factor(),
                    ..UNSCORED
                },
                fate: selection.standing_fate(fact.id)?,
                promise: fact.invalid.is_none() && is_promise_to_end(&fact.statement),
                over: fact.invalid.is_some(),
            })
        });
    let hits = material.hits.iter().zip(fates).map(|(hit, &fate)| CandidateTrace {
        fact: hit.body.id,
        subject: hit.body.subject.clone(),
        speaker: hit.body.speaker.clone(),
        content: hit.body.view.content.clone(),
        score: hit.score,
        fate,
        promise: is_promise_to_end(&hit.body.statement()),
        over: false,
    });
    // Candidates in the prompt are always traced; of the others, only the best.
    let mut traced: Vec<CandidateTrace> = standing.collect();
    let unscored = traced.len();
    let mut remaining_others = MAX_TRACED.saturating_sub(unscored);
    for candidate in hits {
        let in_prompt = matches!(
            candidate.fate,
            CandidateFate::Used | CandidateFate::Pinned | CandidateFate::InStateBlock
        );
        if in_prompt || remaining_others > 0 {
            remaining_others = remaining_others.saturating_sub(1);
            traced.push(candidate);
        }
    }
    let listed = traced.len() - unscored;
    (traced, listed)
}
