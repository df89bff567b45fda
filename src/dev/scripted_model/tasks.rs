//! The small tasks: intent, extraction, summary, state.

use serde_json::{Value, json};

use super::{
    claim::{self, ClaimVoice, ParsedClaim, Party, lower_case_words},
    forget, judge, lexicon,
    prompt_view::{all_tagged, language_of_instructions, split_attribution, tagged_text},
    question,
    reply::{self, with_particle},
};
use colloquy_memory::{
    authored::Language,
    fact::{Polarity, Tense},
    joined_lines::player_words,
    turn::Intent,
};

/// Returns the intent of the player's line.
pub(super) fn classify_intent(prompt: &str) -> Intent {
    let line = tagged_text(prompt, "player_line").unwrap_or_default();
    let lexicon = lexicon::lexicon_of(lexicon::language_of(&line));
    let lower = lexicon.normalise_text(line.trim()).to_lowercase();
    let pointing = has_titles(prompt);
    let is = |name: &str| lexicon.has_intent(name, &lower);
    if is("overheard") {
        return Intent::Overheard;
    }
    if pointing && is("scenario.pointing") {
        return Intent::Scenario;
    }
    if is("memory") {
        return Intent::Memory;
    }
    let Some(question) = question::read_question(&line, "") else {
        regex!(STORY, "tell me|들려|이야기해|얘기해|말해 ?줘|알려 ?줘");
        return match () {
            () if !STORY.is_match(&lower) => Intent::Chat,
            () if is("scenario") => Intent::Scenario,
            () if is("world") => Intent::World,
            () => Intent::Chat,
        };
    };
    match question.subject {
        Some(Party::Player) => Intent::Memory,
        Some(Party::Other(_)) if !question.classes.is_empty() => Intent::Memory,
        _ if question.recall => Intent::Memory,
        _ if is("scenario") => Intent::Scenario,
        // "What do you like?": the NPC may have said the answer earlier.
        Some(Party::Npc) if !question.classes.is_empty() => Intent::Memory,
        _ if is("world") => Intent::World,
        _ => Intent::Chat,
    }
}

/// True if a small call asks for the next of several speakers.
pub(super) fn wants_speaker(prompt: &str, schema: Option<&str>) -> bool {
    schema == Some("next_speaker") || (prompt.contains("<candidate>") && prompt.contains("<said>"))
}

/// Returns the candidate whom the last line addresses, by name or id; empty if the line names no candidate.
pub(super) fn next_speaker(prompt: &str) -> Value {
    let spoken_lines = all_tagged(prompt, "said");
    // The speaker's name is in front of the words.
    let line = spoken_lines
        .last()
        .and_then(|spoken_line| spoken_line.split_once(": "))
        .map_or("", |(_, line)| line);
    let line = lower_case_words(line);
    let place = |name: &str| {
        let name = lower_case_words(name);
        // Korean endings follow a name directly.
        let is = |word: &String, part: &String| word == part || !part.is_ascii() && word.starts_with(part.as_str());
        let calls = |window: &[String]| window.iter().zip(&name).all(|(word, part)| is(word, part));
        (!name.is_empty())
            .then(|| line.windows(name.len()).position(calls))
            .flatten()
    };
    let called = all_tagged(prompt, "candidate")
        .into_iter()
        .filter_map(|candidate| candidate.split_once(": "))
        .filter_map(|(id, name)| Some((place(name).or_else(|| place(id))?, id)))
        .min();
    json!({ "next": called.map_or("", |(_, id)| id) })
}

/// True if a line asks about a conversation of NPCs.
pub(super) fn asks_what_was_said(line: &str) -> bool {
    let lexicon = lexicon::lexicon_of(lexicon::language_of(line));
    let lower = lexicon.normalise_text(line.trim()).to_lowercase();
    lexicon.has_intent("overheard", &lower)
}

fn has_titles(prompt: &str) -> bool {
    let instructions = prompt.split("<player_line>").next().unwrap_or_default();
    [
        "Memories the character has just spoken of:",
        "인물이 방금 이야기한 기억:",
        "Memories the character is ready to speak of since a moment ago:",
        "인물이 이제 막 이야기할 수 있게 된 기억:",
    ]
    .iter()
    .any(|heading| instructions.contains(heading))
}

regex!(OPEN_PROMISE, r#"<open number="\d+">([^<]*)</open>"#);

/// Returns the facts of a turn, in the format of the extraction prompt.
pub(super) fn extract_facts(prompt: &str) -> Value {
    let npc = tagged_text(prompt, "npc_name").unwrap_or_default();
    let line = tagged_text(prompt, "player_line").unwrap_or_default();
    let reply = tagged_text(prompt, "npc_reply").unwrap_or_default();
    // Without the speakers.
    let known_texts: Vec<String> = all_tagged(prompt, "known")
        .into_iter()
        .chain(
            OPEN_PROMISE
                .captures_iter(prompt)
                .filter_map(|open| Some(open.get(1)?.as_str())),
        )
        .map(|text| split_attribution(text).0)
        .collect();
    let known_records: Vec<(Vec<String>, Option<ParsedClaim>)> = known_texts
        .iter()
        .map(|text| (lower_case_words(text), claim::read_record(text, &npc)))
        .collect();
    let mut new_claims: Vec<(ParsedClaim, ClaimVoice)> = Vec::new();
    // The words of others in a line are theirs.
    let said_by_player = player_words(&line).map(|words| (words, ClaimVoice::Player));
    for (text, voice) in said_by_player.chain([(reply.as_str(), ClaimVoice::Npc)]) {
        for claim in claim::read_claims(text, voice, &npc) {
            let is_known = known_records.iter().any(|(words_known, record)| {
                *words_known == lower_case_words(&claim.content)
                    || record.as_ref().is_some_and(|record| record.says_same(&claim))
            });
            // An NPC's introduction by its own name repeats the persona.
            let own_name = claim.class == "name" && claim.subject == Party::Npc && claim.object == npc;
            if !is_known && !own_name && !new_claims.iter().any(|(other, _)| other.says_same(&claim)) {
                new_claims.push((claim, voice));
            }
        }
    }
    let facts: Vec<Value> = new_claims
        .iter()
        .map(|(claim, voice)| fact_json(claim, *voice, &npc))
        .collect();
    let known_lines: Vec<&str> = known_texts.iter().map(String::as_str).collect();
    let mut requests: Vec<String> = Vec::new();
    for wish in player_words(&line).flat_map(|words| forget::read_forget_commands(words, &npc)) {
        requests.extend(wish.forget_texts(&known_lines, &npc));
    }
    json!({ "facts": facts, "forget": requests, "ends": [], "episode": episode_json(&new_claims) })
}

/// Returns the most important claim as the episode of the turn. Without a claim, the text is empty.
fn episode_json(claims: &[(ParsedClaim, ClaimVoice)]) -> Value {
    // Of equal claims, the first.
    let strongest = claims.iter().rev().max_by_key(|(claim, _)| claim.importance);
    match strongest {
        Some((claim, _)) => json!({ "text": claim.content, "importance": claim.importance }),
        None => json!({ "text": "", "importance": 1 }),
    }
}

fn fact_json(claim: &ParsedClaim, voice: ClaimVoice, npc: &str) -> Value {
    json!({
        "subject": claim.subject_name,
        "predicate": claim.predicate,
        "object": claim.object,
        "content": claim.content,
        "keywords": claim.keywords,
        "speaker": if voice == ClaimVoice::Npc { npc } else { "player" },
        "kind": claim.kind.as_str(),
        "importance": claim.importance,
        "polarity": match claim.polarity { Polarity::Positive => "positive", Polarity::Negative => "negative" },
        "tense": match claim.tense { Tense::Past => "past", Tense::Present => "present", Tense::Future => "future" },
    })
}

/// True if an extraction call is the fall-back for an unparsable state block.
pub(super) fn wants_state(prompt: &str, schema: Option<&str>) -> bool {
    schema.is_some_and(|name| name.contains("state"))
        || (prompt.contains("\"hp_change\"") && prompt.contains("\"location_moved\""))
}

/// The longest summary, in characters.
const SUMMARY_CHARS: usize = 700;

// A line of a stretch of turns. Spoken text has its own `<` and `>` escaped.
regex!(
    STRETCH_LINE,
    r#"<player>(?P<line>[^<]*)</player>|<npc(?: from="(?P<name>[^"]*)")?>(?P<text>[^<]*)</npc>"#
);

/// One spoken line of the stretch.
pub(super) struct SpokenLine<'a> {
    /// The speaker; empty for the player.
    pub name: &'a str,
    pub text: &'a str,
}

/// Returns the lines of a summary prompt, in order, each with its speaker; `npc` if the prompt names no speaker.
pub(super) fn read_stretch<'a>(prompt: &'a str, npc: &'a str) -> Vec<SpokenLine<'a>> {
    let lines = STRETCH_LINE.captures_iter(prompt).filter_map(|line| {
        let (name, text) = match line.name("line") {
            Some(text) => ("", text),
            None => (line.name("name").map_or(npc, |name| name.as_str()), line.name("text")?),
        };
        let text = text.as_str().trim();
        // The player's line is empty if the NPC greeted first.
        (!text.is_empty()).then_some(SpokenLine { name, text })
    });
    lines.collect()
}

/// Returns a digest of turns: the statements that still hold at the end, the last question, and the end of the talk.
pub(super) fn summarise_turns(prompt: &str) -> Value {
    let instructions = prompt.split("<turn ").next().unwrap_or_default();
    let language = language_of_instructions(instructions.split("<npc_name>").next().unwrap_or_default());
    let npc = tagged_text(prompt, "npc_name").unwrap_or_default();
    let earlier = all_tagged(prompt, "earlier").join(" ");
    let stretch = read_stretch(prompt, &npc);
    let mut claims: Vec<ParsedClaim> = Vec::new();
    let mut question_line = None;
    let mut importance = 2_u8;
    for stretch_line in &stretch {
        let (voice, about) = match stretch_line.name {
            "" => (ClaimVoice::Player, npc.as_str()),
            name => (ClaimVoice::Npc, name),
        };
        for claim in claim::read_claims(stretch_line.text, voice, about) {
            importance = importance.max(claim.importance.saturating_sub(1));
            claims.retain(|older| !judge::is_contradiction(older, &claim));
            if !claims.iter().any(|older| older.content == claim.content) && !earlier.contains(&claim.content) {
                claims.push(claim);
            }
        }
        importance = importance.max(line_importance(stretch_line.text));
        if reply::asks_anything(stretch_line.text) && (stretch_line.name.is_empty() || npc.is_empty()) {
            question_line = Some(stretch_line);
        }
    }
    let mut sentences: Vec<String> = claims.into_iter().map(|claim| claim.content).collect();
    if let Some(spoken_line) = question_line {
        let asker = speaker_name(spoken_line, language);
        let question = shorten_text(spoken_line.text, 80);
        sentences.push(match language {
            Language::En => format!("{asker} asked: “{question}”."),
            Language::Ko => format!("{} 물었다: “{question}”.", with_particle(&asker, "이")),
        });
    }
    sentences.extend(describe_end(&stretch, language));
    json!({ "summary": join_sentences(&sentences), "importance": importance.clamp(1, 10) })
}

fn speaker_name(spoken_line: &SpokenLine<'_>, language: Language) -> String {
    match (spoken_line.name, language) {
        ("", Language::En) => "The player".to_owned(),
        ("", Language::Ko) => "플레이어".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// Returns a sentence about the last line and its reply.
fn describe_end(stretch: &[SpokenLine<'_>], language: Language) -> Option<String> {
    let last = &stretch[stretch.len().saturating_sub(2)..];
    let speaker_name = |spoken_line| speaker_name(spoken_line, language);
    // The sentence has its own full stop.
    let quoted = |spoken_line: &SpokenLine<'_>| shorten_text(spoken_line.text.trim_end_matches('.'), 80);
    Some(match (last, language) {
        ([line, reply], Language::En) => {
            let first = if line.name.is_empty() {
                "the player".to_owned()
            } else {
                speaker_name(line)
            };
            let second = speaker_name(reply);
            let line = quoted(line);
            let reply = quoted(reply);
            format!("At the end {first} said “{line}”, and {second} answered “{reply}”.")
        }
        ([line, reply], Language::Ko) => {
            let first = with_particle(&speaker_name(line), "은");
            let second = speaker_name(reply);
            let line = quoted(line);
            let reply = quoted(reply);
            format!("마지막에 {first} “{line}”라고 말했고, {second}의 대답은 “{reply}”였다.")
        }
        ([only], Language::En) => format!("{} said “{}”.", speaker_name(only), quoted(only)),
        ([only], Language::Ko) => {
            let name = with_particle(&speaker_name(only), "은");
            format!("{name} “{}”라고 말했다.", quoted(only))
        }
        _ => return None,
    })
}

/// Joins the sentences that fit into a summary.
fn join_sentences(sentences: &[String]) -> String {
    let mut text = String::new();
    for sentence in sentences {
        if text.chars().count() + sentence.chars().count() > SUMMARY_CHARS {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(sentence);
    }
    text
}

/// Returns the importance of a line's words, 0–10.
fn line_importance(text: &str) -> u8 {
    let language = lexicon::language_of(text);
    let tokens = lower_case_words(text);
    let table = lexicon::lexicon_of(language).word_list("importance").iter();
    let fitting = table
        .filter_map(|entry| entry.split_once('='))
        .filter(|(word, _)| match language {
            Language::En => tokens.iter().any(|token| token == word),
            // Stems: "배신" matches 배신했다 and 배신자.
            Language::Ko => tokens.iter().any(|token| token.starts_with(word)),
        });
    fitting.filter_map(|(_, weight)| weight.parse().ok()).max().unwrap_or(0)
}

pub(super) fn shorten_text(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        text.to_owned()
    } else {
        text.chars().take(max_chars - 1).chain(['…']).collect()
    }
}
