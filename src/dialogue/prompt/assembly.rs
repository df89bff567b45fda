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
    authored::Language,
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
    let language = material.npc.language;
    let count = |text: &str| templates.count_tokens(material.counter, text);
    let asked = BlockRequest::from_settings(budgets);
    let system = match material.scene {
        _ if material.own_prompt.is_some() => {
            templates.render_addition_to_own_prompt(material.world, material.npc, material.directives, asked)?
        }
        None => templates.render_system(material.world, material.npc, material.directives, asked)?,
        Some(scene) => render_scene_system(templates, language, material, scene, asked)?.into(),
    };
    let line = render_line(templates, material)?;
    let goes_on = continuation_messages(templates, material, asked)?;
    let system_tokens = count(&system);
    let line_tokens = count(&line) + own_prompt_tokens(material, &count);
    let fixed = system_tokens
        + line_tokens
        + 2 * FRAME_TOKENS
        + OPENING_TOKENS
        + goes_on
            .iter()
            .map(|message| count(&message.content) + FRAME_TOKENS)
            .sum::<u32>();
    if fixed > budgets.total_tokens {
        return Err(TurnError::PromptTooLarge {
            over: fixed - budgets.total_tokens,
        });
    }
    let mut left = budgets.total_tokens - fixed;

    let shown = ShownScenarios::select_fitting(templates, material, settings, left, &count)?;
    left = left.saturating_sub(shown.tokens());
    let standing = StandingContext::select_fitting(templates, material, budgets, shown, left, &count)?;
    left = left.saturating_sub(standing.tokens());
    let window = if let Some(own) = material.own_prompt {
        HistoryWindow::from_own_prompt(&own.history, &count)
    } else {
        let turns = history::render_turns(templates, material, &count)?;
        let room = history_room(budgets, left, line_tokens + standing.changing_tokens());
        HistoryWindow::fit_to_room(turns, room)
    };
    left = left.saturating_sub(window.tokens());

    let (mut fates, packable) = decide_hit_fates(material, &standing, &window, settings);
    let (memories, memory_tokens) = pack_hits(templates, material, settings, left, (packable, &mut fates))?;
    left = left.saturating_sub(memory_tokens);

    let mut selection = PromptSelection::new(standing, window, memories);
    selection.add_summaries(templates, material, budgets, left, &count)?;
    selection.add_episodes(templates, material, (budgets, &settings.episodes), left, &count)?;
    selection.add_insights(templates, material, budgets, left, &count)?;
    selection.add_lore(templates, material, budgets, left, &count)?;
    let (messages, message_tokens, tokens) = loop {
        let mut messages = selection.build_messages(templates, language, material, &system, &line)?;
        messages.extend(goes_on.iter().cloned());
        let of_messages = messages.iter().map(|message| count(&message.content) + FRAME_TOKENS);
        let message_tokens: Vec<u32> = of_messages.collect();
        let tokens = message_tokens.iter().sum::<u32>() + OPENING_TOKENS;
        // The parts were counted separately; the joined text may be slightly longer.
        if tokens <= budgets.total_tokens {
            break (messages, message_tokens, tokens);
        }
        if !selection.drop_least_important(&mut fates) {
            return Err(TurnError::PromptTooLarge {
                over: tokens - budgets.total_tokens,
            });
        }
    };
    let fixed_parts = FixedParts {
        system: &system,
        line: &line,
        goes_on: &goes_on,
        system_tokens,
        line_tokens,
    };
    let sections = selection.trace_sections(material, budgets, &fixed_parts, &count);
    let notes = selection.collect_notes(material);
    let (offers, outcomes) = selection.shown_actions();
    let (candidates, listed_hits) = trace_candidates(material, &selection, &fates);
    Ok(Prompt {
        hash: hash_messages(&messages),
        messages,
        message_tokens,
        sections,
        tokens,
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
        notes,
    })
}

/// Returns the line to which the NPC answers: the player's, or in an NPC conversation the cue.
fn render_line(templates: &Templates, material: &PromptMaterial<'_>) -> Result<Arc<str>, TurnError> {
    if let (None, Some(scene)) = (material.player, material.scene) {
        return Ok(scene.render_next_cue(templates, material.npc, material.history)?.into());
    }
    let language = material.npc.language;
    let line = if material.line.is_empty() {
        let own = material.own_prompt;
        let opening = ReplyOpening {
            name: &material.npc.name,
            is_known: material.knows_player(),
            is_silent: own.map_or(!material.history.is_empty(), |own| !own.history.is_empty()),
            is_own_prompt: own.is_some(),
        };
        templates.render_greeting(language, &opening)?
    } else {
        templates.render_line(language, material.line, material.hears_others)?
    };
    Ok(match material.history.last().and_then(|turn| turn.committed_at) {
        Some(before) => material.ages().mark_gap(templates, (before, None), line)?,
        None => line,
    })
}

/// Packs hits into their budget, and sets their fates. Returns position and text of those that fit, and their tokens.
fn pack_hits(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    settings: &DialogueSettings,
    left: u32,
    (packable, fates): (Vec<usize>, &mut [CandidateFate]),
) -> Result<(Vec<(usize, String)>, u32), TurnError> {
    let packable = diversify_hits(material, packable, settings.recall.diversity);
    let texts = attribute_hits(templates, material, &packable)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let left = left.saturating_sub(HEADING_TOKENS + FRAME_TOKENS);
    let budget = PackingBudget {
        top_k: settings.recall.top_k,
        total_tokens: settings.prompt.memory_tokens.min(left),
        item_tokens: settings.prompt.memory_item_tokens,
    };
    let packing = pack_texts(&texts, budget, ITEM_TOKENS, &material.counter);
    for (&at, &fate) in packable.iter().zip(&packing.fates) {
        fates[at] = fate;
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
    let text = |at: &usize| {
        let body = &material.hits[*at].body;
        let reader = material.reader();
        let text = attribute_statement(templates, reader, &body.subject, &body.speaker, &body.view.content)?;
        let remark = material.remark_for_knowers(&body.knowers);
        let remark = remark.with_dead(&material.dead, (&body.subject, body.tense), body.valid_at);
        Ok(remark.add_to(templates, material, text)?)
    };
    hits.iter().map(text).collect()
}

/// Returns the messages that continue a cut reply: its beginning as the NPC's own words, and the request.
fn continuation_messages(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    asked: BlockRequest,
) -> Result<Vec<ChatMessage>, TurnError> {
    let Some(said) = material.continued_text else {
        return Ok(Vec::new());
    };
    let request = templates.render(
        material.npc.language,
        Template::ReplyGoOn,
        context! { is_whole => material.continues_whole, ask_for_state => asked.state },
    )?;
    Ok(vec![
        ChatMessage::new(ChatRole::Assistant, said),
        ChatMessage::new(ChatRole::User, request),
    ])
}

/// Returns the room for raw turns. If all turns fit, the room is their size. Otherwise the changing parts are rounded
/// up first.
fn history_room(budgets: &PromptSettings, left: u32, changing: u32) -> impl Fn(u32) -> u32 {
    let budget = budgets.history_tokens;
    let reserve = changing.next_multiple_of(ROUND_TOKENS) - changing;
    move |wanted| {
        if wanted <= budget.min(left) {
            wanted
        } else {
            budget.min(left.saturating_sub(reserve))
        }
    }
}

/// Renders the first section for a scene with several NPCs, including who they are.
fn render_scene_system(
    templates: &Templates,
    language: Language,
    material: &PromptMaterial<'_>,
    scene: &Scene,
    asked: BlockRequest,
) -> Result<String, TurnError> {
    let template = match material.player {
        Some(_) => Template::ReplySystem,
        None => Template::ConversationSystem,
    };
    let others = scene.other_names(&material.npc.id);
    let topic = scene.topic.as_deref().map(escape_untrusted).unwrap_or_default();
    let values = context! {
        topic,
        end_mark => END_MARK,
        several => true,
        ..system_values(material.world, material.npc, material.directives, asked, others)
    };
    Ok(templates.render(language, template, values)?)
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
    let mut kept: Vec<&RecallBody> = Vec::new();
    let stands = |hit: &RecallHit| standing.facts.fate_of(hit.body.id).is_some();
    let admitted = recall::admit_hits(material.hits, material.gate, &material.npc.name, &stands);
    let shown_sentences = LazyCell::new(|| sentences_of_shown_facts(material, standing));
    for (at, hit) in material.hits.iter().enumerate() {
        let body = &hit.body;
        let near = |other: &&RecallBody| recall::is_same_statement(other, body, material.near_duplicate_cosine);
        let fate = if let Some(standing_fate) = standing.facts.fate_of(body.id) {
            standing_fate
        } else if standing.facts.redated_ids.contains(&body.id) {
            CandidateFate::NearDuplicate
        } else if material.player.is_none() && is_just_said(material, history, body) {
            CandidateFate::InHistory
        } else if let Some(weakness) = hit.weakness(admitted[at], material.gate, settings.recall.min_score) {
            weakness
        } else if kept.len() >= recall::max_packable(&settings.recall) {
            CandidateFate::BeyondTopK
        } else if kept.iter().any(near) {
            CandidateFate::NearDuplicate
        } else {
            // Recall stops reading at this number of different facts. It does not know the standing facts, so a repeated
            // standing fact counts.
            kept.push(body);
            if !shown_sentences.contains(&comparable_sentence(&body.subject, &body.speaker, &body.view.content)) {
                packable.push(at);
                continue;
            }
            CandidateFate::NearDuplicate
        };
        fates[at] = fate;
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
    let shown = material
        .standing
        .iter()
        .filter(|fact| fact.invalid.is_none() && standing.facts.fate_of(fact.id).is_some());
    let sentences = shown.map(|fact| {
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
    let wanted = material.world.settings.recall.and_then(|recall| recall.diversity);
    let diversity = wanted.unwrap_or(configured);
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
    let mut others = MAX_TRACED.saturating_sub(unscored);
    for candidate in hits {
        let in_prompt = matches!(
            candidate.fate,
            CandidateFate::Used | CandidateFate::Pinned | CandidateFate::InStateBlock
        );
        if in_prompt || others > 0 {
            others = others.saturating_sub(1);
            traced.push(candidate);
        }
    }
    let listed = traced.len() - unscored;
    (traced, listed)
}
