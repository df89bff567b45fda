//! An evaluation set: the facts of NPCs, the questions, and the facts that answer each question. One JSON object per
//! line.
//!
//! Owns the format and its checks. All faults are reported at once, each with its line.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    path::Path,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;

use colloquy_core::ids::NpcId;
use colloquy_memory::{
    fact::{FactKind, Importance},
    party,
};

/// The largest accepted file, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum number of facts, and of questions.
const MAX_ROWS: usize = 50_000;
/// The longest sentence or question, in characters, as over REST.
const MAX_TEXT: usize = 2_000;
/// The longest subject, speaker or predicate, in characters.
const MAX_NAME: usize = 200;
/// The longest object, in characters.
const MAX_OBJECT: usize = 500;
/// The maximum number of keywords of a fact, and the length of each in characters.
const MAX_KEYWORDS: (usize, usize) = (32, 64);
/// The longest id, tag or language, in characters.
const MAX_LABEL: usize = 64;
/// The maximum number of tags in a row.
const MAX_TAGS: usize = 16;
/// The number of faults shown; further faults are only counted.
const MAX_SHOWN_FAULTS: usize = 20;
/// The memory of rows without a `memory`.
const DEFAULT_MEMORY: &str = "npc";
/// The start of facts if no fact of the set names a time.
const DEFAULT_START: DateTime<Utc> = DateTime::from_timestamp(1_767_225_600, 0).expect("2026-01-01");

/// A fact of the set, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct SetFact {
    pub id: String,
    pub memory: NpcId,
    pub content: String,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    pub speaker: String,
    pub kind: FactKind,
    pub importance: Importance,
    pub keywords: Vec<String>,
    pub valid_at: DateTime<Utc>,
    pub language: String,
    pub tags: Vec<String>,
}

/// A question of the set, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct SetQuestion {
    pub id: String,
    pub memory: NpcId,
    pub text: String,
    /// The expected answers; empty for a line that no fact answers. Each is a list of positions in [`EvalSet::facts`];
    /// any fact of the list counts. No inner list is empty.
    pub answers: Vec<Vec<usize>>,
    /// The time of the question. Facts that begin later are not known yet.
    pub asked_at: DateTime<Utc>,
    pub language: String,
    pub tags: Vec<String>,
}

/// A checked set.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalSet {
    pub facts: Vec<SetFact>,
    pub questions: Vec<SetQuestion>,
}

impl EvalSet {
    /// The distinct memories of all facts. Questions use no others.
    pub fn memory_ids(&self) -> BTreeSet<&NpcId> {
        self.facts.iter().map(|fact| &fact.memory).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct EvalSetFaults {
    /// The first faults.
    first_faults: Vec<String>,
    further_count: usize,
}

impl fmt::Display for EvalSetFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the set cannot be used:")?;
        for fault in &self.first_faults {
            write!(f, "\n  {fault}")?;
        }
        if self.further_count > 0 {
            write!(f, "\n  and {} more faults", self.further_count)?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetRow {
    fact: Option<FactRow>,
    question: Option<QuestionRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FactRow {
    id: String,
    memory: Option<String>,
    content: String,
    subject: Option<String>,
    predicate: Option<String>,
    object: Option<String>,
    speaker: Option<String>,
    kind: Option<FactKind>,
    importance: Option<Importance>,
    #[serde(default)]
    keywords: Vec<String>,
    valid_at: Option<DateTime<Utc>>,
    language: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionRow {
    id: String,
    memory: Option<String>,
    text: String,
    answers: Vec<AnswerRow>,
    #[serde(rename = "at")]
    asked_at: Option<DateTime<Utc>>,
    language: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
}

/// An id, or a list of ids of which any counts.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnswerRow {
    One(String),
    AnyOf(Vec<String>),
}

impl AnswerRow {
    fn ids(&self) -> &[String] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::AnyOf(ids) => ids,
        }
    }
}

/// Reads a set from a file.
///
/// # Errors
/// If the file cannot be read, is too large, or is not a set ([`EvalSetFaults`]).
pub fn read_set(path: &Path) -> anyhow::Result<EvalSet> {
    use anyhow::Context as _;
    let size = std::fs::metadata(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .len();
    anyhow::ensure!(
        size <= MAX_BYTES,
        "{} has {size} bytes; a set has at most {MAX_BYTES}",
        path.display()
    );
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_set(&text).with_context(|| path.display().to_string())
}

/// Parses a set: one object per line, `{"fact": …}` or `{"question": …}`. Empty lines and lines that begin with `#`
/// are skipped.
pub fn parse_set(text: &str) -> Result<EvalSet, EvalSetFaults> {
    let mut reader = SetReader::default();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            reader.read_row(index + 1, line);
        }
    }
    reader.into_set()
}

/// The rows read until now, each with its line.
#[derive(Default)]
struct SetReader {
    facts: Vec<(usize, FactRow)>,
    questions: Vec<(usize, QuestionRow)>,
    faults: Vec<String>,
}

impl SetReader {
    fn add_fault(&mut self, line: usize, fault: impl fmt::Display) {
        self.faults.push(format!("line {line}: {fault}"));
    }

    fn read_row(&mut self, line: usize, text: &str) {
        match serde_json::from_str::<SetRow>(text) {
            Ok(SetRow {
                fact: Some(fact),
                question: None,
            }) => self.facts.push((line, fact)),
            Ok(SetRow {
                fact: None,
                question: Some(question),
            }) => self.questions.push((line, question)),
            Ok(_) => self.add_fault(line, "a row has either `fact` or `question`"),
            Err(error) => {
                // The row is a single line, and the message already names its number.
                let message = error.to_string().replace(" at line 1 column ", " at column ");
                self.add_fault(line, message);
            }
        }
    }

    fn into_set(mut self) -> Result<EvalSet, EvalSetFaults> {
        let facts = std::mem::take(&mut self.facts);
        let questions = std::mem::take(&mut self.questions);
        for (kind, count) in [("facts", facts.len()), ("questions", questions.len())] {
            if count > MAX_ROWS {
                self.faults
                    .push(format!("{count} {kind}; a set has at most {MAX_ROWS}"));
            } else if count == 0 && self.faults.is_empty() {
                self.faults.push(format!("there are no {kind}"));
            }
        }
        if facts.len() > MAX_ROWS || questions.len() > MAX_ROWS {
            return Err(self.into_faults());
        }
        let start = facts.iter().filter_map(|(_, fact)| fact.valid_at).min();
        let facts = self.check_facts(facts, start.unwrap_or(DEFAULT_START));
        let questions = self.check_questions(questions, &facts);
        if self.faults.is_empty() {
            Ok(EvalSet {
                facts: facts.into_iter().map(|(_, fact)| fact).collect(),
                questions,
            })
        } else {
            Err(self.into_faults())
        }
    }

    fn into_faults(mut self) -> EvalSetFaults {
        let further_count = self.faults.len().saturating_sub(MAX_SHOWN_FAULTS);
        self.faults.truncate(MAX_SHOWN_FAULTS);
        EvalSetFaults {
            first_faults: self.faults,
            further_count,
        }
    }

    fn check_facts(&mut self, rows: Vec<(usize, FactRow)>, start: DateTime<Utc>) -> Vec<(usize, SetFact)> {
        let mut lines: HashMap<String, usize> = HashMap::new();
        let mut facts = Vec::with_capacity(rows.len());
        for (line, row) in rows {
            self.check_label(line, "id", &row.id);
            if let Some(first_line) = lines.insert(row.id.clone(), line) {
                self.add_fault(line, format!("the fact `{}` is on line {first_line} already", row.id));
            }
            self.check_text(line, "content", &row.content, MAX_TEXT);
            for (field, value, longest) in [
                ("subject", &row.subject, MAX_NAME),
                ("predicate", &row.predicate, MAX_NAME),
                ("object", &row.object, MAX_OBJECT),
                ("speaker", &row.speaker, MAX_NAME),
            ] {
                if let Some(value) = value {
                    self.check_text(line, field, value, longest);
                }
            }
            if row.keywords.len() > MAX_KEYWORDS.0 {
                self.add_fault(line, format!("more than {} keywords", MAX_KEYWORDS.0));
            }
            for keyword in &row.keywords {
                self.check_text(line, "keywords", keyword, MAX_KEYWORDS.1);
            }
            let language = self.checked_language(line, row.language, &row.content);
            let tags = self.check_tags(line, row.tags);
            let Some(memory) = self.parse_memory(line, row.memory.as_deref()) else {
                continue;
            };
            let fact = SetFact {
                memory,
                subject: row.subject.unwrap_or_else(|| party::PLAYER.to_owned()),
                predicate: row.predicate.unwrap_or_else(|| "said".to_owned()),
                object: row
                    .object
                    .unwrap_or_else(|| row.content.chars().take(MAX_OBJECT).collect()),
                speaker: row.speaker.unwrap_or_else(|| party::PLAYER.to_owned()),
                kind: row.kind.unwrap_or(FactKind::Note),
                importance: row.importance.unwrap_or(Importance::DEFAULT),
                keywords: row.keywords,
                valid_at: row.valid_at.unwrap_or(start),
                id: row.id,
                content: row.content,
                language,
                tags,
            };
            facts.push((line, fact));
        }
        facts
    }

    fn check_questions(&mut self, rows: Vec<(usize, QuestionRow)>, facts: &[(usize, SetFact)]) -> Vec<SetQuestion> {
        let by_id: HashMap<&str, usize> = facts
            .iter()
            .enumerate()
            .map(|(index, (_, fact))| (fact.id.as_str(), index))
            .collect();
        let mut newest: HashMap<&NpcId, DateTime<Utc>> = HashMap::new();
        for (_, fact) in facts {
            let entry = newest.entry(&fact.memory).or_insert(fact.valid_at);
            *entry = fact.valid_at.max(*entry);
        }
        let mut lines: HashMap<String, usize> = HashMap::new();
        let mut questions = Vec::with_capacity(rows.len());
        for (line, row) in rows {
            self.check_label(line, "id", &row.id);
            if let Some(first_line) = lines.insert(row.id.clone(), line) {
                self.add_fault(
                    line,
                    format!("the question `{}` is on line {first_line} already", row.id),
                );
            }
            self.check_text(line, "text", &row.text, MAX_TEXT);
            let language = self.checked_language(line, row.language, &row.text);
            let tags = self.check_tags(line, row.tags);
            let Some(memory) = self.parse_memory(line, row.memory.as_deref()) else {
                continue;
            };
            // Without a time in the row, the question is asked a day after the newest fact of its memory.
            let asked_at = row.asked_at.unwrap_or_else(|| {
                newest
                    .get(&memory)
                    .map_or(DEFAULT_START, |newest_at| *newest_at + TimeDelta::days(1))
            });
            let answers = self.resolve_answers(line, &row.answers, &memory, asked_at, &by_id, facts);
            questions.push(SetQuestion {
                id: row.id,
                memory,
                text: row.text,
                answers,
                asked_at,
                language,
                tags,
            });
        }
        questions
    }

    /// Resolves the answers of a question that is asked of `memory` at the time `asked_at`.
    fn resolve_answers(
        &mut self,
        line: usize,
        rows: &[AnswerRow],
        memory: &NpcId,
        asked_at: DateTime<Utc>,
        by_id: &HashMap<&str, usize>,
        facts: &[(usize, SetFact)],
    ) -> Vec<Vec<usize>> {
        if rows.iter().any(|row| row.ids().is_empty()) {
            self.add_fault(line, "`answers` names no fact");
        }
        let mut answers: Vec<Vec<usize>> = Vec::with_capacity(rows.len());
        for row in rows {
            let mut group = Vec::with_capacity(row.ids().len());
            for id in row.ids() {
                let Some(&position) = by_id.get(id.as_str()) else {
                    self.add_fault(line, format!("there is no fact `{id}`"));
                    continue;
                };
                let fact = &facts[position].1;
                if fact.memory != *memory {
                    let other_memory = &fact.memory;
                    self.add_fault(
                        line,
                        format!("the fact `{id}` is in the memory `{other_memory}`, not `{memory}`"),
                    );
                } else if fact.valid_at > asked_at {
                    self.add_fault(line, format!("the fact `{id}` is not known yet at {asked_at}"));
                } else if group.contains(&position) || answers.contains(&vec![position]) {
                    self.add_fault(line, format!("the fact `{id}` is named twice"));
                } else {
                    group.push(position);
                }
            }
            answers.push(group);
        }
        answers
    }

    fn parse_memory(&mut self, line: usize, name: Option<&str>) -> Option<NpcId> {
        match name.unwrap_or(DEFAULT_MEMORY).parse() {
            Ok(memory) => Some(memory),
            Err(error) => {
                self.add_fault(line, format!("`memory`: {error}"));
                None
            }
        }
    }

    fn check_text(&mut self, line: usize, field: &str, value: &str, longest: usize) {
        if value.trim().is_empty() || value.chars().count() > longest {
            self.add_fault(line, format!("`{field}` must be 1 to {longest} characters"));
        }
    }

    fn check_label(&mut self, line: usize, field: &str, value: &str) {
        self.check_text(line, field, value, MAX_LABEL);
    }

    fn check_tags(&mut self, line: usize, tags: Vec<String>) -> Vec<String> {
        if tags.len() > MAX_TAGS {
            self.add_fault(line, format!("more than {MAX_TAGS} tags"));
        }
        for tag in &tags {
            self.check_label(line, "tags", tag);
        }
        let mut unique_tags = BTreeSet::new();
        tags.into_iter().filter(|tag| unique_tags.insert(tag.clone())).collect()
    }

    /// Returns the row's language. The default is `ko` for a text with a Hangul syllable, else `en`.
    fn checked_language(&mut self, line: usize, language: Option<String>, text: &str) -> String {
        if let Some(language) = language {
            self.check_label(line, "language", &language);
            return language;
        }
        let korean = text.chars().any(|c| ('가'..='힣').contains(&c));
        if korean { "ko" } else { "en" }.to_owned()
    }
}

#[cfg(test)]
mod tests;
