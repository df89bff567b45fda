//! What a pass has noted so far.

use serde::Deserialize;
use serde_json::Value;

use super::{insights::NewInsight, material::PassMaterial, prompt_ids::index_of_id};
use crate::{Services, prompt::escape_untrusted};
use colloquy_core::ids::{DialogueId, WorldId};
use colloquy_memory::{
    curation::{
        Decision, EditRefusal, Finding, FindingKind, MAX_FINDING_CHARS, MAX_FINDINGS_PER_PASS, MAX_REASON_CHARS,
        MemoryEdit, NarrativeMemory, StandingDecision,
    },
    episode::clip_line,
    insight::{EarlierInsight, MAX_INSIGHT_CHARS, MAX_INSIGHTS_PER_PASS, Participants},
    party::subject_key,
    summary::without_content,
};
use colloquy_ports::ledger::curation::ModelDecision;

/// The most edits in an answer.
pub(super) const MAX_EDITS: usize = 24;

/// A finding in an answer.
#[derive(Deserialize)]
struct FindingAnswer {
    /// The id of an earlier finding in the prompt. Empty: a new finding.
    #[serde(default)]
    about: String,
    kind: Option<FindingKind>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    turns: Vec<u32>,
    #[serde(default = "open")]
    decision: Decision,
    #[serde(default)]
    reason: String,
}

fn open() -> Decision {
    Decision::Open
}

#[derive(Deserialize)]
struct EditAnswer {
    edit: EditName,
    #[serde(default)]
    text: String,
    #[serde(default, rename = "by")]
    replacement: String,
}

#[derive(Deserialize)]
struct InsightAnswer {
    /// The id of an insight in the prompt. Empty: a new insight.
    #[serde(default)]
    about: String,
    #[serde(default)]
    entity: String,
    text: String,
    #[serde(default)]
    turns: Vec<u32>,
}

/// The parts of an answer.
#[derive(Default)]
pub(super) struct StepParts {
    pub findings: Vec<Value>,
    pub edits: Vec<Value>,
    pub insights: Vec<Value>,
}

impl StepParts {
    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.edits.is_empty() && self.insights.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum EditName {
    Append,
    Replace,
    Remove,
}

/// What became of a part of an answer.
pub(super) struct EditOutcome {
    /// `finding`, `edit` or `insight`.
    pub part: &'static str,
    /// From 1.
    pub number: usize,
    /// `None`: noted or done.
    pub fault: Option<&'static str>,
    /// The number that belongs to the fault.
    pub fault_number: usize,
}

/// A new finding.
struct NewFinding {
    kind: FindingKind,
    text: String,
    turns: Vec<u32>,
    decision: Decision,
    reason: String,
}

/// The result of a pass.
pub(super) struct PassResult {
    pub steps: u32,
    pub memory: String,
    pub findings: Vec<Finding>,
    pub decisions: Vec<ModelDecision>,
}

pub(super) struct PassDraft {
    known_findings: Vec<Finding>,
    first_turn: u32,
    last_turn: u32,
    memory: NarrativeMemory,
    findings: Vec<NewFinding>,
    decisions: Vec<ModelDecision>,
    participants: Participants,
    /// The insights in the prompt.
    shown_insights: Vec<EarlierInsight>,
    insights: Vec<NewInsight>,
    steps: u32,
    /// The parts of answers that were used, and that were not.
    used: usize,
    refused: usize,
}

impl PassDraft {
    pub(super) fn new(material: &PassMaterial, memory_chars: usize) -> Self {
        Self {
            known_findings: material.findings.clone(),
            first_turn: material.from,
            last_turn: material.last.number,
            memory: NarrativeMemory::new(material.memory.clone(), memory_chars),
            findings: Vec::new(),
            decisions: Vec::new(),
            participants: material.participants.clone(),
            shown_insights: material.insights.clone(),
            insights: Vec::new(),
            steps: 0,
            used: 0,
            refused: 0,
        }
    }

    pub(super) fn memory(&self) -> &NarrativeMemory {
        &self.memory
    }

    /// True if the answers had parts, and none of them could be used.
    pub(super) fn is_refused(&self) -> bool {
        self.used == 0 && self.refused > 0
    }

    /// Takes what is usable of an answer, and returns what became of each part.
    pub(super) fn apply_step(&mut self, parts: StepParts) -> Vec<EditOutcome> {
        let StepParts {
            findings,
            edits,
            insights,
        } = parts;
        self.steps += 1;
        let mut outcomes = Vec::new();
        for (number, finding) in (1..).zip(findings) {
            let fault = self.note_finding(finding).err();
            outcomes.push(EditOutcome {
                part: "finding",
                number,
                fault,
                fault_number: 0,
            });
        }
        for (number, edit) in (1..).zip(edits) {
            let (fault, fault_number) = match parse_edit(edit) {
                None => (Some("unreadable"), 0),
                Some(_) if number > MAX_EDITS => (Some("too_many"), 0),
                Some(edit) => describe_refusal(self.memory.apply_edit(&edit).err()),
            };
            outcomes.push(EditOutcome {
                part: "edit",
                number,
                fault,
                fault_number,
            });
        }
        for (number, insight) in (1..).zip(insights) {
            let fault = self.note_insight(insight).err();
            outcomes.push(EditOutcome {
                part: "insight",
                number,
                fault,
                fault_number: 0,
            });
        }
        let used = outcomes.iter().filter(|outcome| outcome.fault.is_none()).count();
        self.used += used;
        self.refused += outcomes.len() - used;
        outcomes
    }

    /// Notes a finding, or a decision about an earlier one.
    fn note_finding(&mut self, answer: Value) -> Result<(), &'static str> {
        let answer: FindingAnswer = serde_json::from_value(answer).map_err(|_| "unreadable")?;
        let reason = one_line(&answer.reason, MAX_REASON_CHARS);
        if !answer.about.trim().is_empty() {
            let index = index_of_id(&answer.about, 'F')
                .filter(|index| *index < self.known_findings.len())
                .ok_or("unknown_id")?;
            return self.decide_finding(index, answer.decision, reason);
        }
        let kind = answer.kind.ok_or("unreadable")?;
        let text = one_line(&answer.text, MAX_FINDING_CHARS);
        if text.is_empty() {
            return Err("empty");
        }
        // A model may repeat an earlier finding in place of its id.
        if let Some(index) = self
            .known_findings
            .iter()
            .position(|finding| finding.is_same(kind, &text))
        {
            return self.decide_finding(index, answer.decision, reason);
        }
        if self.findings.iter().any(|new| new.kind == kind && new.text == text) {
            return Err("repeated");
        }
        if self.findings.len() == MAX_FINDINGS_PER_PASS {
            return Err("too_many");
        }
        let mut turns: Vec<u32> = answer
            .turns
            .into_iter()
            .filter(|turn| (1..=self.last_turn).contains(turn))
            .collect();
        turns.sort_unstable();
        turns.dedup();
        self.findings.push(NewFinding {
            kind,
            text,
            turns,
            decision: answer.decision,
            reason,
        });
        Ok(())
    }

    /// Notes an insight. A later one of the pass about the same entity replaces it. One with the id of a shown insight
    /// stands in its place; without a text, it takes the shown one back. So does one without an id and a text, for all
    /// shown ones about its entity.
    fn note_insight(&mut self, answer: Value) -> Result<(), &'static str> {
        let InsightAnswer {
            about,
            entity,
            text,
            turns,
        } = serde_json::from_value(answer).map_err(|_| "unreadable")?;
        let text = clip_line(&text, MAX_INSIGHT_CHARS);
        if !about.trim().is_empty() {
            let index = index_of_id(&about, 'I').filter(|index| *index < self.shown_insights.len());
            let shown_insight = &self.shown_insights[index.ok_or("unknown_id")?];
            let replaced = shown_insight.clone();
            return self.add_insight(replaced.insight.entity.clone(), text, &turns, Some(replaced));
        }
        if entity.trim().is_empty() {
            return Err("no_entity");
        }
        let entity = self.participants.bind_entity(&entity).ok_or("no_player")?;
        if !text.is_empty() {
            return self.add_insight(entity, text, &turns, None);
        }
        let key = subject_key(&entity);
        let same_entity = self
            .shown_insights
            .iter()
            .filter(|earlier| earlier.insight.entity_key() == key);
        let untrue: Vec<EarlierInsight> = same_entity.cloned().collect();
        if untrue.is_empty() {
            return Err("empty");
        }
        for replaced in untrue {
            self.add_insight(replaced.insight.entity.clone(), String::new(), &turns, Some(replaced))?;
        }
        Ok(())
    }

    fn add_insight(
        &mut self,
        entity: String,
        text: String,
        turns: &[u32],
        replaced: Option<EarlierInsight>,
    ) -> Result<(), &'static str> {
        let read_turns = self.first_turn..=self.last_turn;
        let mut named_turns: Vec<u32> = turns.iter().copied().filter(|turn| read_turns.contains(turn)).collect();
        named_turns.sort_unstable();
        named_turns.dedup();
        let new = NewInsight {
            // Without numbers, the insight may rest on each of the turns.
            turns: if named_turns.is_empty() {
                read_turns.collect()
            } else {
                named_turns
            },
            entity,
            text,
            rests_on: replaced
                .as_ref()
                .map(EarlierInsight::bases_of_replacement)
                .unwrap_or_default(),
            inherited_locks: replaced.map(|replaced| replaced.insight.locks).unwrap_or_default(),
        };
        let key = subject_key(&new.entity);
        let is_same = |insight: &NewInsight| {
            let have_texts = !insight.text.is_empty() && !new.text.is_empty();
            subject_key(&insight.entity) == key && (have_texts || insight.rests_on.first() == new.rests_on.first())
        };
        let existing = self.insights.iter().position(is_same);
        match existing {
            Some(index) => self.insights[index] = new,
            None if self.insights.len() == MAX_INSIGHTS_PER_PASS => return Err("too_many"),
            None => self.insights.push(new),
        }
        Ok(())
    }

    /// Returns the insights of the pass, and leaves none.
    pub(super) fn take_insights(&mut self) -> Vec<NewInsight> {
        std::mem::take(&mut self.insights)
    }

    /// Decides about an earlier finding. Only an open one is decided, and only once.
    fn decide_finding(&mut self, index: usize, decision: Decision, reason: String) -> Result<(), &'static str> {
        let finding = &self.known_findings[index];
        if !finding.is_open_to_model() || self.decisions.iter().any(|decided| decided.finding == finding.id) {
            return Err("decided");
        }
        if decision != Decision::Open {
            self.decisions.push(ModelDecision {
                finding: finding.id,
                decision,
                reason,
            });
        }
        Ok(())
    }

    /// Replaces the memory by as much of a text as fits. An empty text replaces nothing.
    pub(super) fn write_memory(&mut self, text: &str) {
        let lines = text.lines().map(escape_untrusted).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join("\n");
        if !text.is_empty() {
            self.memory.write_anew(&text);
        }
    }

    /// Returns what the pass noted, without anything that the player asked to forget, and without new lines that tell what
    /// the pass has not read: an NPC may read the notes.
    pub(super) fn into_result(
        self,
        services: &Services,
        material: &PassMaterial,
        world: &WorldId,
        dialogue: DialogueId,
    ) -> PassResult {
        let forgotten = &material.forgotten;
        let committed_at = material.last.committed_at;
        let is_old = |line: &str| material.memory.lines().any(|old_line| old_line == line);
        let is_readable = |line: &&str| is_old(line) || !material.hidden.are_told_by(line);
        let lines = self.memory.as_str().lines().filter(is_readable);
        let lines = lines.filter_map(|line| without_content(line, forgotten));
        let memory = lines.collect::<Vec<_>>().join("\n");
        let readable_findings = self
            .findings
            .into_iter()
            .filter(|new| !material.hidden.are_told_by(&new.text));
        let findings = readable_findings.filter_map(|new| {
            Some(Finding {
                id: services.ids.next_id(),
                world: world.clone(),
                dialogue,
                kind: new.kind,
                text: without_content(&new.text, forgotten)?,
                turns: new.turns,
                found_at: committed_at,
                decided: StandingDecision {
                    decision: new.decision,
                    reason: without_content(&new.reason, forgotten).unwrap_or_default(),
                    decided_by: None,
                    decided_at: committed_at,
                },
            })
        });
        PassResult {
            steps: self.steps,
            memory,
            findings: findings.collect(),
            decisions: self
                .decisions
                .into_iter()
                .map(|decided| ModelDecision {
                    reason: without_content(&decided.reason, forgotten).unwrap_or_default(),
                    ..decided
                })
                .collect(),
        }
    }
}

fn parse_edit(edit: Value) -> Option<MemoryEdit> {
    let EditAnswer {
        edit,
        text,
        replacement,
    } = serde_json::from_value(edit).ok()?;
    // Prompts show the memory escaped, line by line.
    let escaped = |text: &str| text.lines().map(escape_untrusted).collect::<Vec<_>>().join("\n");
    let text = escaped(&text);
    Some(match edit {
        EditName::Append => MemoryEdit::Append { text },
        EditName::Replace => MemoryEdit::Replace {
            text,
            by: escaped(&replacement),
        },
        EditName::Remove => MemoryEdit::Remove { text },
    })
}

fn describe_refusal(refusal: Option<EditRefusal>) -> (Option<&'static str>, usize) {
    match refusal {
        None => (None, 0),
        Some(EditRefusal::Empty) => (Some("empty"), 0),
        Some(EditRefusal::NotFound) => (Some("not_found"), 0),
        Some(EditRefusal::NotUnique(times)) => (Some("not_unique"), times),
        Some(EditRefusal::TooLong(excess)) => (Some("too_long"), excess),
    }
}

/// Returns the text on one line, cut to a number of characters.
fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(max_chars).collect()
}
