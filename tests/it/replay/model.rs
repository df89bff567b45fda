//! A model and an embedder whose answers depend only on their input, so that equal requests get equal answers.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

use async_trait::async_trait;
use colloquy::{
    memory::{calibration::Calibration, turn::Intent},
    ports::{
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task},
    },
};
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::history::{AMONG_NPCS, Adjective, Fruit, Line, SayOp, name_of};

/// The prefix of a line's name, in lines and replies.
const MARK: &str = "line-";
/// The marks around text that a reply repeats.
const QUOTE: (char, char) = ('«', '»');
/// The suffix of taught statements.
const TAUGHT: &str = "(fact ";
/// The suffix of NPCs' statements about themselves.
const OF_ITSELF: &str = "(told ";
/// The mark around a goal that a reply ends.
const ENDED_MARK: char = '†';
/// The word of goals, and the word in a reply that names Hanna.
const WANTS: &str = " wants ";
const NAMED: &str = "named";
/// The marks and words of an NPC's own past.
const PAST_MARKS: (char, char) = ('⟦', '⟧');
const PAST: (&str, &str) = ("There were ", "(scenario ");
/// A reply of this many words repeats the told past, for any question.
const TELLS_AGAIN: u8 = 5;

/// Plays a history: replies and extractions follow the history's line.
#[derive(Default)]
pub struct ReplayModel {
    lines: Mutex<BTreeMap<String, Line>>,
    next: Mutex<Option<NextReply>>,
}

/// The next reply to give.
#[derive(Debug, Clone)]
pub struct NextReply {
    /// The name of the answered line; empty if the line is no longer known.
    pub name: String,
    /// The recorded text, if the reply was given before.
    pub recorded: Option<String>,
    /// The number of characters after which the reply stops and never ends.
    pub hold_after: Option<usize>,
    /// True if the reply stops inside a state block.
    pub block: bool,
}

impl ReplayModel {
    /// Registers line `number`, and returns its text.
    pub fn learn(&self, number: usize, line: &Line) -> String {
        let name = name_of(number);
        self.lines.lock().insert(name.clone(), line.clone());
        match line {
            Line::Taught(say) => format!("What about {}? {MARK}{name}", say.asks.name()),
            Line::Scripted(play) => format!("{} {MARK}{name}", play.script().say),
        }
    }
    pub fn replies(&self, next: NextReply) {
        *self.next.lock() = Some(next);
    }
    /// Returns the name in the last line or reply of `text`.
    pub fn name_in(text: &str) -> Option<String> {
        let (_, rest) = text.rsplit_once(MARK)?;
        Some(rest.chars().take_while(char::is_ascii_lowercase).collect())
    }
    /// Returns the length in characters of a reply without memories in its prompt.
    pub fn chars_of_reply(name: &str, line: &Line) -> usize {
        whole_reply(name, line, "").chars().count()
    }

    fn line(&self, text: &str) -> Option<(String, Line)> {
        let name = Self::name_in(text)?;
        let line = self.lines.lock().get(&name).cloned()?;
        Some((name, line))
    }

    fn reply(&self, text: &str, next: &NextReply) -> String {
        let line = self.lines.lock().get(&next.name).cloned();
        let said = match (&next.recorded, &line) {
            (Some(recorded), _) => recorded.clone(),
            (None, Some(line)) => whole_reply(&next.name, line, text),
            (None, None) => panic!("no line of the history: {next:?}"),
        };
        let block = line.and_then(|line| match line {
            Line::Taught(say) => state_block(&say, &next.name),
            Line::Scripted(play) => play.script().block.clone(),
        });
        match block {
            Some(block) => format!("{said}\n~~~state\n{block}\n~~~"),
            None => said,
        }
    }

    fn answer(&self, request: &LlmRequest) -> String {
        let texts: Vec<&str> = request
            .messages
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        let text = texts.join("\n");
        let schema = request.json_schema.as_ref().map(|schema| schema.name);
        match request.task {
            Task::Reply => {
                let next = self.next.lock().clone().expect("a reply is to be given");
                self.reply(&text, &next)
            }
            Task::Intent => {
                let past = match self.line(&text) {
                    Some((_, Line::Scripted(play))) => return play.script().intent.clone(),
                    Some((_, Line::Taught(say))) => say.past,
                    None => false,
                };
                let intent = if past { Intent::Scenario } else { Intent::Memory };
                intent.as_str().to_owned()
            }
            Task::Extraction if schema == Some("state") => {
                let line = self.line(&text);
                // The rest of a cut reply still gives the gift, if the gift was heard.
                let given = line.and_then(|(name, line)| {
                    let heard = heard_part(&text, &name)?;
                    match line {
                        Line::Taught(say) => state(&say, &name).filter(|_| heard.contains("gift")),
                        Line::Scripted(play) => play.extracted_block(heard),
                    }
                });
                given.unwrap_or_else(|| json!({})).to_string()
            }
            Task::Extraction => self.extraction(&text).to_string(),
            Task::Judge => verdicts(&text).to_string(),
            Task::Summary => summary(&text).to_string(),
            Task::Curation if schema == Some("consolidation") => consolidation(&text).to_string(),
            Task::Curation => curation(&text).to_string(),
        }
    }

    /// Extracts only facts from the heard part of the reply.
    fn extraction(&self, text: &str) -> Value {
        let Some((name, line)) = self.line(text) else {
            return json!({ "facts": [], "forget": [] });
        };
        let heard = heard_part(text, &name).unwrap_or_default();
        let say = match line {
            Line::Taught(say) => say,
            Line::Scripted(play) => return play.extraction(&name, heard),
        };
        let taught = say.facts.iter().enumerate();
        let mut facts: Vec<Value> = taught
            .filter(|(nth, _)| heard.contains(&format!("fact{}", letter(*nth))))
            .map(|(nth, fact)| fact.fact_statement(&name, nth, say.talk == AMONG_NPCS))
            .collect();
        facts.extend(repeated_statement(heard));
        facts.extend(past_statement(heard));
        if say.names && heard.contains(NAMED) {
            facts.push(naming_fact(&name));
        }
        let ends = ended_promise(heard, text);
        let forget = say.forget.map(|fruit| format!("the player likes red {}", fruit.name()));
        json!({
            "facts": facts, "forget": Vec::from_iter(forget), "ends": Vec::from_iter(ends), "episode": episode(&name, &facts)
        })
    }
}

/// Returns a conclusion for each subject and speaker with several memories. Its mark has the marks of all of them.
fn consolidation(text: &str) -> Value {
    let mut topics: BTreeMap<(&str, &str), Vec<(usize, &str)>> = BTreeMap::new();
    for line in text.lines() {
        let Some((number, rest)) = line.split_once(". <memory about=\"") else {
            continue;
        };
        let parts: Vec<&str> = rest.split('"').collect();
        let content = rest
            .split_once('>')
            .and_then(|(_, content)| content.strip_suffix("</memory>"));
        if let (Ok(number), [about, _, from, ..], Some(content)) = (number.parse(), &parts[..], content) {
            topics.entry((about, from)).or_default().push((number, content));
        }
    }
    let conclusions = topics
        .into_values()
        .filter(|memories| memories.len() > 1)
        .map(|memories| {
            let marks = memories.iter().filter_map(|(_, content)| {
                let (_, mark) = content.split_once(TAUGHT).or_else(|| content.split_once(OF_ITSELF))?;
                mark.split([' ', ')']).next()
            });
            let marks: String = marks.collect();
            let first = memories[0].1;
            let fruit = Fruit::find_in(first).unwrap_or(Fruit::ALL[0]).name();
            let whoever = first
                .split(" likes ")
                .next()
                .and_then(|whoever| whoever.split(" hates ").next())
                .unwrap_or_default();
            let of: Vec<usize> = memories.iter().map(|(number, _)| *number).collect();
            json!({
                "of": of, "predicate": "like", "object": fruit, "keywords": [fruit, "much"],
                "content": format!("{whoever} likes much {fruit} {TAUGHT}{marks} first)"),
            })
        });
    json!({ "conclusions": conclusions.collect::<Vec<_>>() })
}

/// Returns a finding about the last turn, a decision about the oldest open finding, edits of the notes, and insights. Insights
/// of several passes and dialogues are about the same entities.
fn curation(text: &str) -> Value {
    let inside = |text: &str, open: &str, close: &str| {
        let (_, rest) = text.split_once(open)?;
        rest.split_once(close).map(|(inside, _)| inside.to_owned())
    };
    let last = text.rsplit_once("<turn number=\"").map_or("", |(_, last)| last);
    let number: usize = last
        .split('"')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default();
    let said = inside(last, "<player>", "</player>").or_else(|| inside(last, "\">", "</npc>"));
    let said: String = said.unwrap_or_default().chars().take(60).collect();
    let mut findings = Vec::new();
    let mut open = text
        .lines()
        .filter(|line| line.starts_with("<finding id=") && line.contains("decision=\"open\">"));
    if let Some(id) = open.next().and_then(|line| inside(line, "<finding id=\"", "\"")) {
        let decision = ["intended", "fixed", "open"][number % 3];
        findings.push(json!({ "about": id, "decision": decision, "reason": format!("By turn {number}.") }));
    }
    let kind = ["contradiction", "foreshadowing", "event"][said.len() % 3];
    findings
        .push(json!({ "about": "", "kind": kind, "text": said, "turns": [number, number, 9_999], "decision": "open" }));
    let notes = inside(text, "<notes>", "</notes>").unwrap_or_default();
    let mut edits = vec![json!({ "edit": "append", "text": format!("{number}: {said}"), "by": "" })];
    if let Some(oldest) = notes
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .filter(|_| number.is_multiple_of(4))
    {
        edits.push(json!({ "edit": "remove", "text": oldest, "by": "" }));
    }
    let entity = match number % 3 {
        0 if last.contains("<player>") => "the player",
        1 => "Mira",
        _ => Fruit::find_in(&said).map_or("Hanna", Fruit::name),
    };
    let name = ReplayModel::name_in(&said).unwrap_or_default();
    let insights = json!([
        { "entity": entity, "text": format!("Seen in turn {number} of {name}.") },
        { "entity": "Ergen", "text": format!("Also seen in {name}.") },
    ]);
    json!({ "findings": findings, "edits": edits, "insights": insights, "done": true })
}

/// Returns the episode of a line: the first fact in other words. Some lines have none, and some are small talk.
fn episode(name: &str, facts: &[Value]) -> Value {
    let sum = name.bytes().map(usize::from).sum::<usize>();
    let told = facts.first().and_then(|fact| fact["content"].as_str());
    match told {
        Some(told) if sum % 3 > 0 => json!({ "text": format!("In {name}, {told}"), "importance": 1 + sum % 10 }),
        _ => Value::Null,
    }
}

/// Returns the reply's state block; `None` without a change.
fn state(say: &SayOp, name: &str) -> Option<Value> {
    // Only words of the world's list are kept; other words change nothing.
    const MOODS: [&str; 4] = ["worried", "기쁨", "Calm", "secretly"];
    let mood = MOODS[name.bytes().map(usize::from).sum::<usize>() % MOODS.len()];
    let mut block = json!({ "mood": format!("{mood}: {name}") });
    if let Some(hp) = say.state {
        block["hp_change"] = json!(hp);
        // A reply asks; the extraction of a cut reply reads the same block, and must not ask.
        block["actions"] = json!([{"name": "salute", "arguments": {"strength": hp}}]);
    }
    if let Some(gift) = say.gives {
        gift.add_to_block(&mut block);
    }
    (say.state.is_some() || say.gives.is_some()).then_some(block)
}

/// Returns the state block of a whole reply.
fn state_block(say: &SayOp, name: &str) -> Option<Value> {
    let mut block = state(say, name);
    if say.nothing_new {
        block.get_or_insert_with(|| json!({}))["nothing_new"] = json!(true);
    }
    block
}

/// Returns the whole reply to a line and `prompt`, without its state block.
fn whole_reply(name: &str, line: &Line, prompt: &str) -> String {
    match line {
        Line::Taught(say) => reply(name, say, prompt),
        Line::Scripted(play) => play.reply(&format!("{MARK}{name}")),
    }
}

fn reply(name: &str, say: &SayOp, prompt: &str) -> String {
    let mut words = vec![format!("Reply {MARK}{name}:")];
    words.extend((0..say.facts.len()).map(|nth| format!("fact{}", letter(nth))));
    let remembered = || prompt.lines().filter_map(statement_in);
    if let Some(statement) = say.echoes.and_then(|place| remembered().nth(usize::from(place))) {
        words.push(format!("{}{statement}{}", QUOTE.0, QUOTE.1));
    }
    let goals = || prompt.lines().filter(|line| line.contains(WANTS)).filter_map(mark_in);
    if let Some(goal) = say.ends.and_then(|place| goals().nth(usize::from(place))) {
        words.push(format!("{ENDED_MARK}{goal}{ENDED_MARK}"));
    }
    words.extend(say.names.then(|| NAMED.to_owned()));
    let past = || prompt.lines().filter_map(past_in).next_back();
    if let Some(past) = (say.past || say.words == TELLS_AGAIN).then(past).flatten() {
        words.push(format!("{}{past}{}", PAST_MARKS.0, PAST_MARKS.1));
    }
    words.push("gift".to_owned());
    words.extend((0..say.words).map(|_| "word".to_owned()));
    words.join(" ")
}

/// Returns the taught statement in a line of a prompt.
fn statement_in(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("- [")?;
    let from = ["The player ", "The character ", "Hanna ", "Anna "]
        .iter()
        .filter_map(|whoever| rest.find(whoever))
        .min()?;
    let taught = |mark: &'static str| Some((mark, rest[from..].split_once(mark)?));
    let (mark, (before, behind)) = taught(TAUGHT).or_else(|| taught(OF_ITSELF))?;
    let end = behind.find(')')?;
    let length = before.len() + mark.len() + end + ')'.len_utf8();
    Some(&rest[from..from + length])
}

/// Returns the unique mark of the statement in a line of a prompt.
fn mark_in(line: &str) -> Option<&str> {
    let from = line.rfind(TAUGHT)?;
    let end = line[from..].find(')')?;
    Some(&line[from..=from + end])
}

/// Returns the goal that the reply ends, by its number in the extraction prompt.
fn ended_promise(heard: &str, prompt: &str) -> Option<Value> {
    let (goal, _) = heard.split_once(ENDED_MARK)?.1.split_once(ENDED_MARK)?;
    let mut open = prompt.lines().filter_map(|line| line.strip_prefix("<open number=\""));
    let (number, _) = open.find(|line| line.contains(goal))?.split_once('"')?;
    Some(json!({ "number": number.parse::<u32>().ok()?, "how": "fulfilled" }))
}

/// Returns Hanna's other name, as an extractor writes facts.
fn naming_fact(line: &str) -> Value {
    json!({
        "subject": "Hanna", "speaker": "player", "predicate": "be named", "object": "Anna",
        "content": format!("Hanna is called Anna (fact {line} named)"), "keywords": ["name"],
        "kind": "personal_info", "importance": 7, "polarity": "positive", "tense": "present",
    })
}

/// Returns the statement about an NPC's past in a line of a prompt, even in an earlier reply.
fn past_in(line: &str) -> Option<&str> {
    let from = line.rfind(PAST.0)?;
    let (before, behind) = line[from..].split_once(PAST.1)?;
    let length = before.len() + PAST.1.len() + behind.find(')')? + ')'.len_utf8();
    Some(&line[from..from + length])
}

/// Returns the NPC's statement about its past, as an extractor writes facts.
fn past_statement(heard: &str) -> Option<Value> {
    let (content, _) = heard.split_once(PAST_MARKS.0)?.1.split_once(PAST_MARKS.1)?;
    let fruit = Fruit::find_in(content)?;
    let name = if content.contains("(scenario mira") {
        "Mira"
    } else {
        "Ergen"
    };
    Some(json!({
        "subject": name, "speaker": name, "predicate": "tells of", "object": fruit.name(), "content": content,
        "keywords": [fruit.name(), "past"], "kind": "other", "importance": 5, "polarity": "positive", "tense": "past",
    }))
}

/// Returns the part of the reply to line `name` in `text`.
fn heard_part<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, heard) = text.rsplit_once(&format!("Reply {MARK}{name}:"))?;
    Some(heard)
}

/// Returns the statement that the NPC repeats, as an extractor writes facts.
fn repeated_statement(heard: &str) -> Option<Value> {
    let (content, _) = heard.split_once(QUOTE.0)?.1.split_once(QUOTE.1)?;
    let fruit = Fruit::find_in(content)?;
    let itself = content.starts_with("The character ");
    let subject = match content.split(' ').next() {
        _ if itself => "the character",
        Some("Hanna") => "Hanna",
        Some("Anna") => "Anna",
        _ => "player",
    };
    Some(json!({
        "subject": subject, "speaker": if itself { "the character" } else { "Mira" }, "predicate": "like", "object": fruit.name(), "content": content,
        "keywords": [fruit.name(), "said again"], "kind": "preference", "importance": 5,
        "polarity": if content.contains(" hates ") { "negative" } else { "positive" }, "tense": "present",
    }))
}

fn letter(nth: usize) -> char {
    char::from(b'a' + u8::try_from(nth % 26).expect("below 26"))
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns a verdict for every pair, depending only on its two statements.
fn verdicts(text: &str) -> Value {
    let pairs = text
        .lines()
        .filter(|line| line.contains("<newer>") && (line.contains(TAUGHT) || line.contains(OF_ITSELF)));
    let verdict = |(nth, pair): (usize, &str)| {
        let pair = pair.split_once(' ').map_or(pair, |(_, statements)| statements);
        let verdict = match hash(pair) % 5 {
            0 | 1 => "contradicts",
            2 => "same",
            _ => "independent",
        };
        json!({ "pair": nth + 1, "verdict": verdict })
    };
    let verdicts: Vec<Value> = pairs.enumerate().map(verdict).collect();
    json!({ "verdicts": verdicts })
}

/// Returns a summary that names the covered turns and the summary before.
fn summary(text: &str) -> Value {
    let of: Vec<&str> = text
        .split(MARK)
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default())
        .collect();
    let heard = text.matches("word").count() + text.matches("fact").count();
    let summary = format!("Sum of {} ({heard})", of.join(" "));
    json!({ "importance": hash(&summary) % 10 + 1, "summary": summary })
}

#[async_trait]
impl Llm for ReplayModel {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        Ok(Completion {
            text: self.answer(request),
            usage: colloquy::memory::turn::Usage::default(),
            model: "player".to_owned(),
            at_cap: false,
            tool_calls: Vec::new(),
        })
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let answer = self.answer(request);
        let stop = self
            .next
            .lock()
            .as_ref()
            .and_then(|next| Some((next.hold_after?, next.block)));
        if let Some((chars, block)) = stop {
            let mut heard: String = answer.chars().take(chars).collect();
            if block {
                heard.push_str("\n~~~state\n{");
            }
            return Ok(stream::iter([Ok(Chunk::Text(heard))]).chain(stream::pending()).boxed());
        }
        Ok(stream::iter([Ok(Chunk::Text(answer))]).boxed())
    }
    fn model(&self) -> &'static str {
        "player"
    }
}

/// Two dimensions per fruit, and one for all other text.
const DIMENSIONS: usize = 2 * Fruit::ALL.len() + 1;

/// Vectors of fruits are at right angles, and of adjectives 12 degrees apart. One adjective apart is the same fact, two
/// to four are near, and another fruit is far.
pub struct FruitEmbedder(EmbedderInfo);

impl FruitEmbedder {
    pub fn new() -> Self {
        Self(EmbedderInfo {
            model: "angles".to_owned(),
            dimensions: DIMENSIONS,
            calibration: Calibration::IDENTITY,
            offline: true,
        })
    }
}

#[async_trait]
impl Embedder for FruitEmbedder {
    async fn embed_texts(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        let vector = |text: &String| {
            let mut vector = vec![0.0_f32; DIMENSIONS];
            match Fruit::find_in(text) {
                Some(fruit) => {
                    let adjective = Adjective::find_in(text).unwrap_or(Adjective(0));
                    let angle = (12.0 * f32::from(adjective.0)).to_radians();
                    let at = 2 * usize::from(fruit.0);
                    (vector[at], vector[at + 1]) = (angle.cos(), angle.sin());
                }
                None => vector[DIMENSIONS - 1] = 1.0,
            }
            vector
        };
        Ok(texts.iter().map(vector).collect())
    }
    fn info(&self) -> &EmbedderInfo {
        &self.0
    }
}
