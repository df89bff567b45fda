//! The scripted model's view of a prompt: the prompt's text, parsed by the headings and delimiters of the shipped
//! templates. The model has no other knowledge.

use super::korean;
use colloquy_memory::authored::Language;
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// A reply prompt.
#[derive(Debug, Default)]
pub(super) struct ReplyView {
    pub language: Language,
    pub npc: String,
    pub world: String,
    /// True if the persona's way of speaking asks for polite Korean.
    pub polite: bool,
    pub cues: Vec<String>,
    pub wants_state: bool,
    pub line: String,
    /// True without a player's line: the NPC speaks first.
    pub greets: bool,
    /// Facts and present circumstances, the newest of each block first.
    pub facts: Vec<String>,
    /// The persona's text about the NPC.
    pub persona: String,
    pub pinned: Vec<String>,
    pub summaries: Vec<String>,
    pub world_state: Vec<String>,
    /// What the NPC knows of the world, without the names of the entries.
    pub lore: Vec<String>,
    /// The actions for which the NPC may ask.
    pub actions: Vec<String>,
    /// What became of actions, latest first.
    pub outcomes: Vec<String>,
    /// The NPC's own past, as far as told to this player: title and text, best first.
    pub past: Vec<(String, String)>,
    /// Speakers and lines of an NPC conversation, oldest first.
    pub overheard: Vec<(String, String)>,
    /// Earlier lines of the player and of the NPC, oldest first.
    pub player_lines: Vec<String>,
    pub replied: Vec<String>,
}

regex!(EN_SELF, r"(?m)^You are (?P<npc>.+?), a character in (?P<world>.+?)\. ");
regex!(KO_SELF, r"(?m)^당신은 (?P<world>.+)의 등장인물 (?P<npc>.+?)이다\. ");
regex!(
    CUE_LINE,
    r"(?m)^- (?:You may use these cue tags|다음 태그만)[^:]*: (?P<tags>.+)$"
);
regex!(TAG, r"<([^<>]+)>");
regex!(DATED, r"^\[[^\]]*\] (?P<text>.+)$");
regex!(
    CLAIMED,
    r"^(?:The player says|Player \S+ says|플레이어의 말|플레이어 \S+의 말): (?P<text>.+)$"
);
regex!(TOLD_BY_NPCS, r"^(?:[^:]{1,80} said|[^:]{1,80}의 말): (?P<text>.+)$");
regex!(
    WAYS_AND_DEATHS,
    r"^(?:From here one gets to|여기서 갈 수 있는 곳|Dead\b|죽은 이)"
);
regex!(POLITE, r"존댓말|높임|공손|정중|해요체|하십시오|예의|경어|존대");

impl ReplyView {
    pub fn from_messages(messages: &[ChatMessage]) -> Self {
        let mut view = Self::default();
        let mut lines = Vec::new();
        // Remembered facts, what authors let the NPC know, and facts from blocks about present circumstances.
        let mut facts = [Vec::new(), Vec::new(), Vec::new()];
        for message in messages {
            match message.role {
                ChatRole::Assistant => {
                    view.replied.push(message.content.trim().to_owned());
                    continue;
                }
                ChatRole::System | ChatRole::User => {}
            }
            let tagged = tagged_text(&message.content, "player_line");
            // The system prompt only explains the delimiter.
            let rest = match &tagged {
                Some(line) if message.role == ChatRole::User => {
                    lines.push(line.clone());
                    message.content.split("<player_line>").next().unwrap_or_default()
                }
                None if message.role == ChatRole::User && is_greeting(&message.content) => {
                    view.greets = true;
                    message.content.as_str()
                }
                None if let Some((notes, line)) = split_at_said_now(&message.content) => {
                    lines.push(line.trim().to_owned());
                    notes
                }
                None if message.role == ChatRole::User && is_unsaid_line(&message.content) => continue,
                None if message.role == ChatRole::User && !has_heading(&message.content) => {
                    lines.push(message.content.trim().to_owned());
                    continue;
                }
                _ => message.content.as_str(),
            };
            view.read_blocks(rest, &mut facts);
        }
        view.line = lines.pop().unwrap_or_default();
        view.player_lines = lines;
        // Each block has the newest at its end.
        view.facts = facts.into_iter().flat_map(|block| block.into_iter().rev()).collect();
        view
    }

    /// Reads the NPC, its world, its language and its cues.
    fn read_identity(&mut self, text: &str) {
        if let Some(captures) = EN_SELF.captures(text) {
            self.language = Language::En;
            captures["npc"].clone_into(&mut self.npc);
            captures["world"].clone_into(&mut self.world);
        } else if let Some(captures) = KO_SELF.captures(text) {
            self.language = Language::Ko;
            captures["npc"].clone_into(&mut self.npc);
            captures["world"].clone_into(&mut self.world);
        }
        if let Some(captures) = CUE_LINE.captures(text) {
            self.cues = TAG
                .captures_iter(&captures["tags"])
                .map(|tag| tag[1].to_owned())
                .collect();
        }
    }

    fn read_blocks(&mut self, text: &str, facts: &mut [Vec<String>; 3]) {
        self.read_identity(text);
        self.wants_state |= text.contains("\n```state\n");
        let mut heading = "";
        for line in text.lines() {
            if line.starts_with('[') && line.trim_end().ends_with(']') {
                heading = line.trim();
                continue;
            }
            if heading == "[말투]" {
                self.polite |= POLITE.is_match(line);
            }
            if matches!(heading, "[Persona]" | "[페르소나]") {
                self.persona.push_str(line);
                self.persona.push('\n');
            }
            let Some(item) = line.strip_prefix("- ") else { continue };
            let Some(block) = Block::of_heading(heading) else {
                continue;
            };
            match block {
                Block::Persons => match split_attribution(item) {
                    (name, true) => facts[2].push(name),
                    (text, false) => {
                        let is_summary = |label: &str| label.ends_with(", in short") || label.contains("이야기 요약");
                        let summary = text.split_once(": ").filter(|(label, _)| is_summary(label));
                        self.summaries.extend(summary.map(|(_, summary)| summary.to_owned()));
                    }
                },
                Block::Pinned => self.pinned.push(split_attribution(item).0),
                Block::Summary => self.summaries.push(strip_date(item).to_owned()),
                Block::OfPlayer => facts[2].push(strip_date(item).to_owned()),
                Block::Present => facts[2].push(split_attribution(strip_date(item)).0),
                // Lists and their instructions are no words of an NPC.
                Block::World if WAYS_AND_DEATHS.is_match(item) => {}
                Block::World => self.world_state.push(item.to_owned()),
                // Lore has a name in front, and a fact that authors wrote has none.
                Block::Lore => match item.split_once(": ") {
                    Some((_, text)) => self.lore.push(text.to_owned()),
                    None => facts[1].push(item.to_owned()),
                },
                Block::Actions => self.actions.push(item.to_owned()),
                Block::Outcomes => self.outcomes.push(strip_date(item).to_owned()),
                Block::Overheard => self.overheard.push(split_name(item)),
                Block::Past => self.past.push(split_name(item)),
                Block::Memory => facts[0].push(split_attribution(strip_date(item)).0),
            }
        }
    }
}

/// True if the message stands for a line which the player has not said.
fn is_greeting(text: &str) -> bool {
    text.lines().any(|line| {
        matches!(
            line,
            "[They come up to you]" | "[다가온 플레이어]" | "[The chat begins]" | "[대화의 시작]"
        )
    })
}

/// True if the message stands for an unsaid line in the history.
fn is_unsaid_line(text: &str) -> bool {
    let marks = [
        "[The player came up to you]",
        "[플레이어가 다가왔다]",
        "[The player says nothing]",
        "[플레이어는 아무 말도 하지 않는다]",
    ];
    marks.contains(&text.trim())
}

/// Splits the last message of a chat program into what the server adds, and the line.
fn split_at_said_now(text: &str) -> Option<(&str, &str)> {
    let mut marks = ["\n[Said now]\n", "\n[지금 한 말]\n"].into_iter();
    marks.find_map(|mark| text.split_once(mark))
}

/// A block that changes from turn to turn.
#[derive(Clone, Copy)]
enum Block {
    Persons,
    Pinned,
    Summary,
    OfPlayer,
    /// State, promises, and the NPC's own words about itself.
    Present,
    World,
    Lore,
    Actions,
    Outcomes,
    Memory,
    Past,
    Overheard,
}

impl Block {
    fn of_heading(heading: &str) -> Option<Self> {
        Some(match heading {
            "[Who this is]" | "[이 사람]" => Self::Persons,
            "[Always keep in mind]" | "[항상 기억할 것]" => Self::Pinned,
            "[Earlier in this conversation, in short]" | "[이 대화 요약]" => Self::Summary,
            "[What the player says of themselves]" | "[플레이어의 자기 이야기]" => Self::OfPlayer,
            "[Current state (canon)]"
            | "[현재 상태]"
            | "[Open promises and goals]"
            | "[남은 약속과 목표]"
            | "[What you have told of yourself]"
            | "[당신의 자기 이야기]" => Self::Present,
            "[The world now]" | "[현재 세계]" => Self::World,
            "[What you know of the world]" | "[아는 세상]" => Self::Lore,
            "[What you may ask for]" | "[요청할 수 있는 것]" => Self::Actions,
            "[What became of what you asked for]" | "[요청한 것의 결과]" => Self::Outcomes,
            "[What you remember]" | "[기억]" => Self::Memory,
            "[Your past]" | "[당신의 과거]" => Self::Past,
            "[What was said among you]" | "[방금 당신들끼리 나눈 말]" => Self::Overheard,
            _ => return None,
        })
    }
}

/// True if the message has a block. A player's line may look like a heading, so headings only count in messages without
/// a delimited line.
fn has_heading(text: &str) -> bool {
    text.lines().any(|line| Block::of_heading(line.trim()).is_some())
}

/// Splits "name: text".
fn split_name(item: &str) -> (String, String) {
    let (name, text) = item.split_once(": ").unwrap_or(("", item));
    (name.to_owned(), text.to_owned())
}

fn strip_date(item: &str) -> &str {
    DATED
        .captures(item)
        .and_then(|captures| captures.name("text"))
        .map_or(item, |text| text.as_str())
}

/// Returns a statement without its speaker, and true if the speaker was a player.
pub(super) fn split_attribution(item: &str) -> (String, bool) {
    if let Some(captures) = CLAIMED.captures(item) {
        return (captures["text"].to_owned(), true);
    }
    let text = TOLD_BY_NPCS.captures(item).and_then(|captures| captures.name("text"));
    (text.map_or(item, |text| text.as_str()).to_owned(), false)
}

/// Returns the text between `<name>` and the last `</name>`, trimmed.
pub(super) fn tagged_text(text: &str, name: &str) -> Option<String> {
    let open = format!("<{name}>");
    let close = format!("</{name}>");
    let end = text.rfind(&close)?;
    let start = text[..end].rfind(&open)? + open.len();
    Some(text[start..end].trim().to_owned())
}

/// Returns every `<name>…</name>` of a text, in order.
pub(super) fn all_tagged<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let open = format!("<{name}>");
    let close = format!("</{name}>");
    let mut fragments = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(open.as_str()) {
        let Some((inside, after)) = after.split_once(close.as_str()) else {
            break;
        };
        fragments.push(inside.trim());
        rest = after;
    }
    fragments
}

/// Returns the language of a task's instructions.
pub(super) fn language_of_instructions(text: &str) -> Language {
    let hangul = text.chars().filter(|c| korean::is_hangul(*c)).count();
    let latin = text.chars().filter(char::is_ascii_alphabetic).count();
    // A Korean template has keys and examples in Latin letters. A Hangul syllable counts as about two letters.
    if hangul * 2 > latin { Language::Ko } else { Language::En }
}
