//! Lines of NPCs in a conversation with each other. The first NPC opens the topic. Each shares its memories of the
//! topic, reacts and asks back; one says goodbye. This module also answers a player's question about the conversation.

use super::{
    prompt_view::ReplyView,
    reply::{PhraseValues, ReplySpeaker},
    speech,
};
use colloquy_memory::authored::Language;
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// The number of a speaker's own lines before a goodbye.
const MAX_OWN_LINES: usize = 3;
/// The number of last lines for a retelling.
const RETOLD_LINES: usize = 4;
/// The tag that ends a conversation, as the prompt names it.
const END_TAG: &str = "<end_conversation>";

/// The parts of a prompt for NPC conversations beside the parts of every prompt.
struct TalkPrompt {
    topic: Option<String>,
    opening: bool,
    last: bool,
    /// The other NPCs' lines, oldest first.
    heard_lines: Vec<String>,
}

impl TalkPrompt {
    fn from_messages(messages: &[ChatMessage]) -> Option<Self> {
        let cue = &messages.last()?.content;
        let start = ["[Your line]", "[당신의 대사]"]
            .iter()
            .find_map(|mark| cue.find(mark))?;
        let cue = &cue[start..];
        let has_words = |en: &str, ko: &str| cue.contains(en) || cue.contains(ko);
        let system = messages.first().map_or("", |message| message.content.as_str());
        let topic = ["[What you talk about]\n", "[이야깃거리]\n"]
            .iter()
            .find_map(|heading| system.split_once(heading))
            .and_then(|(_, rest)| rest.lines().next())
            .map(|line| line.trim().trim_end_matches(['.', '?', '!']).to_owned());
        let heard_lines = messages
            .iter()
            .filter(|message| message.role == ChatRole::User)
            .filter_map(|message| {
                // The tag names the speaker.
                let text = message.content.split_once('>')?.1;
                message
                    .content
                    .starts_with("<npc_line")
                    .then(|| text.trim_end_matches("</npc_line>").trim().to_owned())
            })
            .collect();
        Some(Self {
            topic,
            opening: has_words("You speak first", "먼저 말을 꺼낸다"),
            last: has_words("the last line of the conversation", "마지막 대사다"),
            heard_lines,
        })
    }
}

/// Returns the next line, if the prompt asks for a line of an NPC conversation.
pub(super) fn next_line(messages: &[ChatMessage]) -> Option<String> {
    let talk = TalkPrompt::from_messages(messages)?;
    let mut view = ReplyView::from_messages(messages);
    view.line = talk
        .heard_lines
        .last()
        .or(talk.topic.as_ref())
        .cloned()
        .unwrap_or_default();
    let speaker = ReplySpeaker::new(&view);
    let is_said = |text: &String| {
        let bare = text.trim_end_matches('.');
        talk.heard_lines
            .iter()
            .chain(&view.replied)
            .any(|line| line.contains(bare))
    };
    let spoken_form = |content: &String| speech::spoken_sentence(view.language, content, &view.npc);
    // The other NPCs' last lines are in memory too by now. Only news is shared.
    let news = view
        .facts
        .iter()
        .filter(|content| {
            !talk
                .heard_lines
                .iter()
                .any(|line| line.contains(content.trim_end_matches('.')))
        })
        .map(spoken_form)
        .find(|text| !is_said(text));
    let values = PhraseValues {
        reported: news.clone().unwrap_or_default().trim_end_matches('.').to_owned(),
        sentence: news.clone().unwrap_or_default(),
        topic: talk.topic.clone().unwrap_or_default(),
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

/// Returns a conversation of the NPC and other NPCs, as told to a player.
pub(super) fn retell_overheard(speaker: &ReplySpeaker<'_>, view: &ReplyView) -> Option<String> {
    let from = view.overheard.len().saturating_sub(RETOLD_LINES);
    let lines = view.overheard.get(from..).filter(|lines| !lines.is_empty())?;
    let mut parts = vec![speaker.pick_phrase("retell", &PhraseValues::default())];
    for (name, text) in lines {
        let is_own = *name == view.npc;
        parts.push(match (view.language, is_own) {
            (Language::En, true) => format!("I said: “{text}”"),
            (Language::En, false) => format!("{name} said: “{text}”"),
            (Language::Ko, true) => format!("나: “{text}”"),
            (Language::Ko, false) => format!("{name}: “{text}”"),
        });
    }
    Some(parts.join(" "))
}
