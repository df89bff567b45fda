//! NPCs among themselves: one opens the topic, each shares what its prompt remembers of it, reacts and
//! asks back, and one takes its leave. And what is answered when a player asks what they talked about.

use super::{
    prompt_view::ReplyView,
    reply::{PhraseValues, ReplySpeaker},
    speech,
};
use crate::{
    memory::authored::Language,
    ports::llm::{ChatMessage, ChatRole},
};

/// Lines of its own after which a speaker takes its leave.
const MAX_OWN_LINES: usize = 3;
/// The last lines that are told again.
const RETOLD_LINES: usize = 4;
/// The tag that ends a conversation, as the prompt names it.
const END_TAG: &str = "<end_conversation>";

/// What a prompt for a line among NPCs holds beside what every prompt does.
struct TalkPrompt {
    topic: Option<String>,
    opening: bool,
    last: bool,
    /// What the others said, oldest first.
    heard: Vec<String>,
}

impl TalkPrompt {
    fn from_messages(messages: &[ChatMessage]) -> Option<Self> {
        let cue = &messages.last()?.content;
        let at = ["[Your line]", "[당신의 대사]"]
            .iter()
            .find_map(|mark| cue.find(mark))?;
        let cue = &cue[at..];
        let says = |en: &str, ko: &str| cue.contains(en) || cue.contains(ko);
        let system = messages.first().map_or("", |message| message.content.as_str());
        let topic = ["[What you talk about]\n", "[이야깃거리]\n"]
            .iter()
            .find_map(|heading| system.split_once(heading))
            .and_then(|(_, rest)| rest.lines().next())
            .map(|line| line.trim().trim_end_matches(['.', '?', '!']).to_owned());
        let heard = messages
            .iter()
            .filter(|message| message.role == ChatRole::User)
            .filter_map(|message| {
                // Its tag names who spoke.
                let text = message.content.split_once('>')?.1;
                message
                    .content
                    .starts_with("<npc_line")
                    .then(|| text.trim_end_matches("</npc_line>").trim().to_owned())
            })
            .collect();
        Some(Self {
            topic,
            opening: says("You speak first", "먼저 말을 꺼낸다"),
            last: says("the last line of the conversation", "마지막 대사다"),
            heard,
        })
    }
}

/// The next line, if that is what a prompt asks for.
pub(super) fn next_line(messages: &[ChatMessage]) -> Option<String> {
    let talk = TalkPrompt::from_messages(messages)?;
    let mut view = ReplyView::from_messages(messages);
    view.line = talk.heard.last().or(talk.topic.as_ref()).cloned().unwrap_or_default();
    let speaker = ReplySpeaker::new(&view);
    let said = |text: &String| {
        let bare = text.trim_end_matches('.');
        talk.heard.iter().chain(&view.replied).any(|line| line.contains(bare))
    };
    let told = |content: &String| speech::spoken_sentence(view.language, content, &view.npc);
    // What the others just said is in memory too by now: only news is shared.
    let news = view
        .facts
        .iter()
        .map(|(content, _)| content)
        .filter(|content| {
            !talk
                .heard
                .iter()
                .any(|line| line.contains(content.trim_end_matches('.')))
        })
        .map(told)
        .find(|text| !said(text));
    let values = PhraseValues {
        told: news.clone().unwrap_or_default().trim_end_matches('.').to_owned(),
        whole: news.clone().unwrap_or_default(),
        named: talk.topic.clone().unwrap_or_default(),
    };
    let mut parts = Vec::new();
    if talk.opening {
        let occasion = if talk.topic.is_some() {
            "talk_open"
        } else {
            "talk_greet"
        };
        parts.push(speaker.pick_phrase(occasion, &values));
    } else {
        parts.push(speaker.pick_phrase("talk_react", &values));
    }
    let leaves = talk.last || (!talk.opening && news.is_none() && view.replied.len() + 1 >= MAX_OWN_LINES);
    if news.is_some() {
        parts.push(speaker.pick_phrase("talk_share", &values));
    }
    if leaves {
        parts.push(speaker.pick_phrase("talk_leave", &values));
        parts.push(END_TAG.to_owned());
    } else {
        parts.push(speaker.pick_phrase("talk_ask", &values));
    }
    Some(parts.join(" "))
}

/// What the NPC and others said, as it tells it to a player.
pub(super) fn retell_overheard(speaker: &ReplySpeaker<'_>, view: &ReplyView) -> Option<String> {
    let from = view.overheard.len().saturating_sub(RETOLD_LINES);
    let lines = view.overheard.get(from..).filter(|lines| !lines.is_empty())?;
    let mut parts = vec![speaker.pick_phrase("retell", &PhraseValues::default())];
    for (name, text) in lines {
        let own = *name == view.npc;
        parts.push(match (view.language, own) {
            (Language::En, true) => format!("I said: “{text}”"),
            (Language::En, false) => format!("{name} said: “{text}”"),
            (Language::Ko, true) => format!("나: “{text}”"),
            (Language::Ko, false) => format!("{name}: “{text}”"),
        });
    }
    Some(parts.join(" "))
}
