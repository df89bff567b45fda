//! Replies: an answer from the prompt's memory, an acknowledgement of a statement, or a line for the occasion.

use serde_json::json;

use super::{
    actions::{self, KnownOutcome},
    claim::{self, ClaimVoice, ParsedClaim, Party},
    clauses,
    forget::{self, ForgetCommand},
    korean,
    lexicon::{self, Lexicon},
    memory::{self, RecallAnswer},
    npc_talk,
    prompt_memory::PromptMemory,
    prompt_view::ReplyView,
    question::{self, ParsedQuestion},
    render, speech, tasks,
};
use colloquy_memory::{
    authored::Language,
    fact::{FactKind, Polarity, Tense},
};
use colloquy_ports::llm::ChatMessage;

/// Answers a reply prompt.
pub(super) fn write_reply(messages: &[ChatMessage]) -> String {
    let view = ReplyView::from_messages(messages);
    let speaker = ReplySpeaker::new(&view);
    let reply = speaker.choose_reply();
    let mut text = speaker.with_cue(reply.occasion, reply.text);
    let mut state = reply.state;
    if let Some(action) = actions::find_named_action(&view) {
        state.get_or_insert_with(|| json!({}))["actions"] = json!([action]);
    }
    if let Some(state) = state.filter(|_| view.wants_state) {
        text.push_str("\n```state\n");
        text.push_str(&state.to_string());
        text.push_str("\n```");
    }
    text
}

struct SpokenReply {
    occasion: &'static str,
    text: String,
    state: Option<serde_json::Value>,
}

pub(super) struct ReplySpeaker<'a> {
    lexicon: &'static Lexicon,
    view: &'a ReplyView,
}

/// Values for a phrase's placeholders.
#[derive(Default)]
pub(super) struct PhraseValues {
    pub reported: String,
    pub sentence: String,
    pub topic: String,
}

impl SpokenReply {
    /// An answer to a question.
    fn answer(text: String) -> Self {
        Self {
            occasion: "answer",
            text,
            state: None,
        }
    }
}

impl PhraseValues {
    fn of_text(reported: &str, sentence: &str) -> Self {
        Self {
            reported: reported.to_owned(),
            sentence: sentence.to_owned(),
            topic: String::new(),
        }
    }
}

impl<'a> ReplySpeaker<'a> {
    pub(super) fn new(view: &'a ReplyView) -> Self {
        Self {
            lexicon: lexicon::lexicon_of(view.language),
            view,
        }
    }

    fn choose_reply(&self) -> SpokenReply {
        if self.view.greets {
            return self.reply_to_occasion("greet", None);
        }
        let line = &self.view.line;
        let occasion = classify_occasion(line);
        if let Some((name @ "order", _)) = &occasion {
            return self.plain_reply(name);
        }
        if let Some(outcome) = actions::find_outcome(self.view) {
            return self.tell_outcome(&outcome);
        }
        if tasks::asks_what_was_said(line)
            && let Some(text) = npc_talk::retell_overheard(self, self.view)
        {
            return SpokenReply::answer(text);
        }
        let wishes = forget::read_forget_commands(line, &self.view.npc);
        if !wishes.is_empty() {
            return self.plain_reply(match () {
                () if wishes.iter().any(ForgetCommand::is_of_safety) => "forget_never",
                () if wishes.iter().all(ForgetCommand::is_vague) => "forget_what",
                () => "forget",
            });
        }
        // The prompt has a scenario only if the line asks for it.
        if let Some((_, passage)) = self.view.past.first() {
            return self.tell_past(passage);
        }
        let claims = claim::read_claims(line, ClaimVoice::Player, &self.view.npc);
        if let Some(question) = question::read_question(line, &self.view.npc) {
            if let Some(("where", _)) = &occasion {
                return self.reply_to_occasion("where", None);
            }
            if let Some(reply) = self.answer_from_memory(&question) {
                return reply;
            }
            if let Some((name, place)) = occasion {
                return self.reply_to_occasion(name, place);
            }
            return self.plain_reply(match question.subject {
                Some(Party::Player | Party::Other(_)) => "unknown",
                _ if question.recall => "unknown",
                Some(Party::Npc) if !question.classes.is_empty() => "unknown_self",
                _ => "question",
            });
        }
        if let Some(reply) = self.acknowledge_claims(&claims) {
            return reply;
        }
        match occasion {
            Some((name, place)) => self.reply_to_occasion(name, place),
            None => self.plain_reply("ack_generic"),
        }
    }

    /// Says what became of an action, with the words of the game.
    fn tell_outcome(&self, outcome: &KnownOutcome) -> SpokenReply {
        let mut text = self.pick_phrase(outcome.occasion, &PhraseValues::default());
        if let Some(answer_text) = &outcome.text {
            text.push(' ');
            text.push_str(answer_text);
            if !answer_text.ends_with(['.', '!', '?', '\u{2026}']) {
                text.push('.');
            }
        }
        SpokenReply::answer(text)
    }

    /// Answers a question; `None` if the prompt has no answer.
    fn answer_from_memory(&self, question: &ParsedQuestion) -> Option<SpokenReply> {
        match memory::answer_question(question, self.view) {
            RecallAnswer::Known { now, former } => {
                let all_are = |holds: fn(&ParsedClaim) -> bool| now.iter().all(|m| m.claim.as_ref().is_some_and(holds));
                let about_self = all_are(|claim| claim.subject == Party::Npc);
                let about_other = now
                    .iter()
                    .any(|m| m.claim.as_ref().is_some_and(|c| matches!(c.subject, Party::Other(_))));
                let negative = all_are(|claim| claim.polarity == Polarity::Negative);
                let past = all_are(|claim| claim.tense == Tense::Past);
                let occasion = match () {
                    () if about_self && now.iter().all(|m| m.of_persona) => "answer_persona",
                    () if about_self => "answer_self",
                    () if now.iter().any(|m| m.claim.is_none()) => "known",
                    () if question.yes_no && negative && can_answer_no(question) => "answer_no",
                    () if question.yes_no && !question.recall && !past && !about_other => "answer_yes",
                    () if about_other => "answer_other",
                    () => "answer",
                };
                let mut text = self.pick_phrase(occasion, &self.phrase_values(&now)?);
                self.add_phrase(&mut text, "former", former);
                Some(SpokenReply::answer(text))
            }
            RecallAnswer::About(memories) => {
                let values = self.phrase_values(&memories)?;
                Some(SpokenReply::answer(self.pick_phrase("about", &values)))
            }
            RecallAnswer::Passage { text, world } => {
                let sentence = if lexicon::language_of(&text) == Language::Ko {
                    text
                } else {
                    speech::spoken_sentence(Language::En, &text, &self.view.npc)
                };
                let values = PhraseValues::of_text(sentence.trim_end_matches('.'), &sentence);
                let occasion = if world { "world" } else { "summary" };
                Some(SpokenReply::answer(self.pick_phrase(occasion, &values)))
            }
            RecallAnswer::Unknown => None,
        }
    }

    /// Combines several memories into one phrase.
    fn phrase_values(&self, memories: &[PromptMemory]) -> Option<PhraseValues> {
        let reported: Option<Vec<String>> = memories
            .iter()
            .map(|memory| speech::reported_clause(self.view.language, &memory.content, &self.view.npc))
            .collect();
        let reported = match (reported, self.view.language) {
            (Some(reported), Language::En) => reported.join(", and "),
            (Some(reported), Language::Ko) => reported.join("고, "),
            // A statement in the other language is quoted unchanged.
            (None, Language::En) => format!("“{}”", memories.first()?.content),
            (None, Language::Ko) => format!("“{}”라", memories.first()?.content),
        };
        let sentences = memories
            .iter()
            .map(|memory| speech::spoken_sentence(self.view.language, &memory.content, &self.view.npc))
            .collect::<Vec<_>>()
            .join(" ");
        Some(PhraseValues::of_text(&reported, &sentences))
    }

    /// Adds a phrase about another memory, if there is one.
    fn add_phrase(&self, text: &mut String, occasion: &str, memory: Option<PromptMemory>) {
        if let Some(values) = memory.and_then(|memory| self.phrase_values(&[memory])) {
            text.push(' ');
            text.push_str(&self.pick_phrase(occasion, &values));
        }
    }

    /// Tells the NPC's own past, in the author's words.
    fn tell_past(&self, passage: &str) -> SpokenReply {
        SpokenReply::answer(self.pick_phrase("past", &PhraseValues::of_text(passage, passage)))
    }

    fn acknowledge_claims(&self, claims: &[ParsedClaim]) -> Option<SpokenReply> {
        let top = claims.iter().map(|claim| claim.importance).max()?;
        // The last of the most important claims: "not apples any more, grapes now" is about the grapes.
        let chief = claims.iter().rev().find(|claim| claim.importance == top)?;
        let memory = PromptMemory::from_claim(chief);
        let mut values = self.phrase_values(std::slice::from_ref(&memory))?;
        values.topic.clone_from(&chief.object);
        let occasion = match (chief.class.as_str(), chief.kind) {
            _ if chief.subject == Party::Npc => "ack_you",
            ("name", _) if chief.subject == Party::Player => "ack_name",
            ("allergy", _) if chief.polarity == Polarity::Negative => "ack_not_so",
            (_, FactKind::Constraint) => "ack_constraint",
            _ if chief.tense == Tense::Past && chief.kind == FactKind::Preference => "ack_past",
            (_, FactKind::Preference) if chief.subject != Party::Player => "ack_other",
            (_, FactKind::Preference) if chief.polarity == Polarity::Negative => "ack_dislike",
            (_, FactKind::Preference) => "ack_like",
            (_, FactKind::Goal) if chief.subject == Party::Player => "ack_goal",
            _ => "ack_other",
        };
        let text = self.pick_phrase(occasion, &values);
        Some(SpokenReply {
            occasion,
            text,
            state: None,
        })
    }

    fn reply_to_occasion(&self, name: &'static str, place: Option<String>) -> SpokenReply {
        let known_name = self.player_name();
        let with_name = match name {
            "greet" => "greet_name",
            "bye" => "bye_name",
            _ => name,
        };
        let mut values = PhraseValues::default();
        let mut occasion = name;
        let mut state = None;
        if let Some(player) = known_name.filter(|_| with_name != name) {
            occasion = with_name;
            values.topic = player;
        } else if let Some(place) = place {
            state = Some(json!({ "location": place, "location_moved": true }));
            values.topic = place;
        } else if let Some(mood) = occasion_mood(self.view.language, name) {
            state = Some(json!({ "mood": mood }));
        }
        SpokenReply {
            occasion: name,
            text: self.pick_phrase(occasion, &values),
            state,
        }
    }

    fn plain_reply(&self, occasion: &'static str) -> SpokenReply {
        SpokenReply {
            occasion,
            text: self.pick_phrase(occasion, &PhraseValues::default()),
            state: None,
        }
    }

    /// Returns the player's name, if the prompt has the name in the NPC's language.
    fn player_name(&self) -> Option<String> {
        let ask = ParsedQuestion::for_name();
        let RecallAnswer::Known { now, .. } = memory::answer_question(&ask, self.view) else {
            return None;
        };
        now.first()?.claim.as_ref().map(|claim| claim.object.clone())
    }

    /// Returns one phrase of the occasion, chosen by the line. Skips phrases said before, if possible.
    pub(super) fn pick_phrase(&self, occasion: &str, values: &PhraseValues) -> String {
        let polite = format!("{occasion}.polite");
        let choices = match self.lexicon.phrase_variants(&polite) {
            polite if self.view.polite && !polite.is_empty() => polite,
            _ => self.lexicon.phrase_variants(occasion),
        };
        let start = phrase_fingerprint(&self.view.line);
        let rendered =
            (0..choices.len()).map(|step| self.fill_phrase(&choices[(start + step) % choices.len()], values));
        let said_before = |text: &String| self.view.replied.iter().any(|reply| reply.contains(text.as_str()));
        rendered
            .clone()
            .find(|text| !said_before(text))
            .or_else(|| rendered.clone().nth(self.view.replied.len() % choices.len().max(1)))
            .unwrap_or_default()
    }

    fn fill_phrase(&self, phrase: &str, values: &PhraseValues) -> String {
        let npc = &self.view.npc;
        phrase
            .replace("{a}", &values.reported)
            .replace(
                "{A}",
                &if self.view.language == Language::En {
                    render::capitalise(&values.reported)
                } else {
                    values.sentence.clone()
                },
            )
            .replace("{X}", &render::capitalise(&values.topic))
            .replace("{x}", &values.topic)
            .replace("{x:으로}", &with_particle(&values.topic, "으로"))
            .replace("{x:이라}", &with_particle(&values.topic, "이라"))
            .replace("{npc:이라}", &with_particle(npc, "이라"))
            .replace("{npc}", npc)
            .replace("{world:예요}", &with_particle(&self.view.world, "이에요"))
            .replace("{world}", &self.view.world)
    }

    fn with_cue(&self, occasion: &str, text: String) -> String {
        let list = match occasion {
            "greet" | "thanks" | "praise" | "happy" | "ack_like" | "ack_name" => "cue.glad",
            "yes" | "go" | "ack_goal" | "ack_constraint" | "answer" => "cue.nod",
            "sad" | "insult" => "cue.sad",
            _ => return text,
        };
        let lexicons = [Language::En, Language::Ko].map(lexicon::lexicon_of);
        let fitting = |cue: &&String| {
            lexicons
                .iter()
                .any(|lexicon| lexicon.is_in_list(list, &cue.to_lowercase()))
        };
        match self.view.cues.iter().find(fitting) {
            Some(cue) => format!("<{cue}> {text}"),
            None => text,
        }
    }
}

/// True if "no" answers the question, given a negative memory.
fn can_answer_no(question: &ParsedQuestion) -> bool {
    question
        .classes
        .iter()
        .any(|class| class == "like" || class == "allergy")
}

pub(super) fn with_particle(word: &str, particle: &str) -> String {
    format!("{word}{}", korean::fitting_particle(word, particle))
}

fn occasion_mood(language: Language, occasion: &str) -> Option<&'static str> {
    Some(match (occasion, language) {
        ("thanks" | "praise" | "happy", Language::En) => "happy",
        ("thanks" | "praise" | "happy", Language::Ko) => "기쁨",
        ("insult", Language::En) => "annoyed",
        ("insult", Language::Ko) => "짜증",
        _ => return None,
    })
}

/// Returns the occasion of a line, and the place which the line names.
pub(super) fn classify_occasion(line: &str) -> Option<(&'static str, Option<String>)> {
    regex!(
        PLACE,
        r"(?i)^(?:우리 |이제 |그럼 |같이 |함께 )+|[\s.!?,~]+$|\s+(?:then|now|together|please)[.!?]*$"
    );
    let language = lexicon::language_of(line);
    let lexicon = lexicon::lexicon_of(language);
    let lower = lexicon.normalise_text(line.trim()).to_lowercase();
    let (name, pattern) = lexicon.occasions.iter().find(|(_, pattern)| pattern.is_match(&lower))?;
    let place = pattern
        .captures(&lower)
        .and_then(|captures| captures.name("x").map(|place| place.as_str().to_owned()))
        .map(|place| PLACE.replace_all(PLACE.replace_all(&place, "").trim(), "").into_owned())
        .filter(|place| !place.is_empty() && place.chars().count() <= 40);
    Some((name, place))
}

/// FNV-1a: the same on every platform and in every version.
pub(super) fn phrase_fingerprint(text: &str) -> usize {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    // The low bits of short texts are alike, so the high bits are folded in.
    usize::try_from((hash ^ (hash >> 15)) & 0xffff).unwrap_or_default()
}

/// True if the line has a question.
pub(super) fn asks_anything(line: &str) -> bool {
    clauses::is_question(lexicon::language_of(line), line)
}
