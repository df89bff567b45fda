//! Answers a question from the prompt: the line itself, earlier lines, facts, state, pinned facts and the persona.
//! Newer statements come first, and former statements are told as former. A player's claim about the NPC only counts
//! without other knowledge.

use super::{
    claim::{self, ClaimVoice, ParsedClaim, Party},
    forget::{self, ForgetCommand},
    lexicon,
    prompt_memory::PromptMemory,
    prompt_view::ReplyView,
    question::ParsedQuestion,
};
use colloquy_memory::{
    authored::Language,
    fact::{FactKind, Polarity, Tense},
};

/// The result of a search in memory.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(super) enum RecallAnswer {
    /// Present statements, and a former statement.
    Known {
        now: Vec<PromptMemory>,
        former: Option<PromptMemory>,
    },
    /// The first memories about the player, for an open question.
    About(Vec<PromptMemory>),
    /// A sentence of a summary or of the world state.
    Passage {
        text: String,
        world: bool,
    },
    Unknown,
}

/// Returns all memories of the prompt, newest first, without memories that a newer memory contradicts.
fn collect_memories(view: &ReplyView) -> Vec<PromptMemory> {
    let mut memories: Vec<PromptMemory> = Vec::new();
    // Statements before a request to forget are skipped; statements after the request are new.
    let mut wishes = Vec::new();
    let lines = std::iter::once(&view.line).chain(view.player_lines.iter().rev());
    for line in lines {
        for claim in claim::read_claims(line, ClaimVoice::Player, &view.npc)
            .into_iter()
            .rev()
        {
            let memory = PromptMemory::from_claim(&claim);
            if !is_forgotten(&wishes, &memory) {
                add_memory(&mut memories, memory);
            }
        }
        wishes.extend(forget::read_forget_commands(line, &view.npc));
    }
    for line in view.replied.iter().rev() {
        for claim in claim::read_claims(line, ClaimVoice::Npc, &view.npc) {
            let memory = PromptMemory::from_claim(&claim);
            if !is_forgotten(&wishes, &memory) {
                add_memory(&mut memories, memory);
            }
        }
    }
    for content in view.facts.iter().chain(&view.pinned) {
        let memory = PromptMemory::new(content, claim::read_record(content, &view.npc));
        if !is_forgotten(&wishes, &memory) {
            add_memory(&mut memories, memory);
        }
    }
    memories
}

/// True if a request to forget means this memory. Health limits are never forgotten.
fn is_forgotten(wishes: &[ForgetCommand], memory: &PromptMemory) -> bool {
    let of_safety = memory
        .claim
        .as_ref()
        .is_some_and(|claim| claim.kind == FactKind::Constraint);
    !of_safety && wishes.iter().any(|wish| wish.means_memory(memory))
}

fn add_memory(memories: &mut Vec<PromptMemory>, new: PromptMemory) {
    let stale = memories.iter().any(|other| match (&other.claim, &new.claim) {
        (Some(other), Some(new)) => other.says_same(new) || super::judge::is_contradiction(new, other),
        _ => other.content == new.content,
    });
    if !stale {
        memories.push(new);
    }
}

/// Searches the memories for the answer.
pub(super) fn answer_question(question: &ParsedQuestion, view: &ReplyView) -> RecallAnswer {
    let mut memories = collect_memories(view);
    let subject = question.subject.as_ref();
    // Only questions about the NPC itself read the persona.
    if subject == Some(&Party::Npc) {
        for claim in claim::read_persona(&view.persona, &view.npc) {
            let memory = PromptMemory::from_claim(&claim);
            let memory = PromptMemory {
                of_persona: true,
                ..memory
            };
            add_memory(&mut memories, memory);
        }
    }
    let about: Vec<&PromptMemory> = memories
        .iter()
        .filter(|m| subject.is_none_or(|s| m.is_about(s)))
        .collect();
    let lexicons = [Language::En, Language::Ko].map(lexicon::lexicon_of);
    let listed = |noun: &String| lexicons.iter().any(|l| l.knows_word(noun) || l.is_category(noun));
    let (firm, loose): (Vec<&String>, Vec<&String>) = question.nouns.iter().partition(|noun| listed(noun));
    let touches = |memory: &PromptMemory, nouns: &[&String]| nouns.iter().any(|noun| memory.terms.contains(noun));
    let classed = |memory: &PromptMemory| memory.claim.as_ref().is_some_and(|claim| class_fits(question, claim));
    let mut hits: Vec<&PromptMemory> = about.clone();
    if question.classes.is_empty() {
        hits.retain(|m| touches(m, &firm) || touches(m, &loose));
    } else {
        hits.retain(|m| classed(m));
        let on_topic: Vec<&PromptMemory> = hits.iter().copied().filter(|m| touches(m, &firm)).collect();
        if !firm.is_empty() && (is_about_taste(question) || !on_topic.is_empty()) {
            hits = on_topic;
        } else if hits.iter().any(|m| touches(m, &loose)) {
            hits.retain(|m| touches(m, &loose));
        }
    }
    if hits.is_empty() && !question.nouns.is_empty() {
        hits.clone_from(&about);
        hits.retain(|m| m.claim.is_none() && (touches(m, &firm) || touches(m, &loose)));
    }
    if hits.is_empty() && question.classes.is_empty() && question.nouns.is_empty() {
        if matches!(subject, Some(Party::Other(_))) {
            // "What do you know of Hob?"
            hits = about;
        } else if question.recall && !about.is_empty() {
            return RecallAnswer::About(about.into_iter().take(3).cloned().collect());
        }
    }
    // On the NPC itself, the persona outranks every player.
    if hits.iter().any(|m| m.of_persona) {
        hits.retain(|m| m.of_persona);
    }
    let passage = || find_passage(question, view).unwrap_or(RecallAnswer::Unknown);
    answer_by_time(question, hits).unwrap_or_else(passage)
}

/// Tells present statements, or former statements if the question is about the past or nothing present is known.
fn answer_by_time(question: &ParsedQuestion, hits: Vec<&PromptMemory>) -> Option<RecallAnswer> {
    let is_former = |m: &&PromptMemory| {
        m.claim.as_ref().is_some_and(|claim| {
            claim.tense == Tense::Past && !matches!(claim.class.as_str(), "born" | "raised" | "event" | "status")
        })
    };
    let (former, mut now): (Vec<&PromptMemory>, Vec<&PromptMemory>) = hits.into_iter().partition(is_former);
    // The favourite comes first.
    now.sort_by_key(|m| m.claim.as_ref().is_none_or(|claim| claim.class != "favourite"));
    if question.past && !former.is_empty() {
        return Some(known_answer(&former, None));
    }
    if !now.is_empty() {
        return Some(known_answer(&now, former.first().copied()));
    }
    (!former.is_empty()).then(|| known_answer(&former, None))
}

fn known_answer(now: &[&PromptMemory], former: Option<&PromptMemory>) -> RecallAnswer {
    RecallAnswer::Known {
        now: now.iter().take(3).map(|m| (*m).clone()).collect(),
        former: former.cloned(),
    }
}

fn is_about_taste(question: &ParsedQuestion) -> bool {
    question
        .classes
        .iter()
        .any(|class| matches!(class.as_str(), "like" | "dislike" | "have"))
}

fn class_fits(question: &ParsedQuestion, claim: &ParsedClaim) -> bool {
    question.classes.iter().any(|class| match class.as_str() {
        "dislike" => claim.class == "like" && claim.polarity == Polarity::Negative,
        // A yes-or-no question about a liking may be answered with "no".
        "like" => claim.class == "like" && (claim.polarity == Polarity::Positive || question.yes_no),
        // The Korean "I am Minsu" is a name only if the word is not listed.
        "be" => claim.class == "be" && !lexicon::lexicon_of(claim.language).knows_word(&claim.object),
        class => claim.class == class,
    })
}

/// Returns a sentence of the lore, of the world state or of a summary that shares nouns with the question.
fn find_passage(question: &ParsedQuestion, view: &ReplyView) -> Option<RecallAnswer> {
    let wishes: Vec<ForgetCommand> = std::iter::once(&view.line)
        .chain(&view.player_lines)
        .flat_map(|line| forget::read_forget_commands(line, &view.npc))
        .collect();
    let best = |texts: &[String]| {
        texts
            .iter()
            .flat_map(|text| split_sentences(text))
            .map(|sentence| {
                let memory = PromptMemory::new(sentence.trim(), None);
                let shared = question.nouns.iter().filter(|noun| memory.terms.contains(noun)).count();
                (shared, memory.content)
            })
            .filter(|(shared, text)| {
                *shared > 0 && !is_forgotten(&wishes, &PromptMemory::new(text, claim::read_record(text, &view.npc)))
            })
            .max_by_key(|(shared, _)| *shared)
            .map(|(_, text)| text)
    };
    best(&view.lore)
        .or_else(|| best(&view.world_state))
        .map(|text| RecallAnswer::Passage { text, world: true })
        .or_else(|| best(&view.summaries).map(|text| RecallAnswer::Passage { text, world: false }))
}

/// Returns the sentences of a text. A full stop inside a quotation ends no sentence.
fn split_sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    for (index, c) in text.char_indices() {
        match c {
            '“' => quoted = true,
            '”' => quoted = false,
            '.' | '!' | '?' if !quoted => {
                sentences.push(&text[start..=index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    sentences.push(&text[start..]);
    sentences.retain(|sentence| !sentence.trim().is_empty());
    sentences
}
