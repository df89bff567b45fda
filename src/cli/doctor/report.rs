//! The report: what was asked, what came of it, and what to change.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// The server works, with a drawback.
    Warn,
    /// The server does not work.
    Fail,
}

/// A setting, and the value that it should have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SettingChange {
    /// The dotted key.
    pub key: String,
    /// A text, a number, true or false, or a list of texts.
    pub value: Value,
}

impl SettingChange {
    pub(super) fn new(key: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Check {
    pub verdict: Verdict,
    /// What was asked, such as `stream`.
    #[serde(rename = "check")]
    pub name: &'static str,
    /// The model or store that was asked; empty for the machine.
    pub subject: String,
    pub finding: String,
    /// What to do; empty if there is nothing to do, or if the changes say all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
}

impl Check {
    pub(super) fn new(verdict: Verdict, name: &'static str, finding: impl Into<String>) -> Self {
        Self {
            verdict,
            name,
            subject: String::new(),
            finding: finding.into(),
            advice: String::new(),
            changes: Vec::new(),
        }
    }
    pub(super) fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self::new(Verdict::Ok, name, finding)
    }
    pub(super) fn warn(name: &'static str, finding: impl Into<String>) -> Self {
        Self::new(Verdict::Warn, name, finding)
    }
    pub(super) fn fail(name: &'static str, finding: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, name, finding)
    }
    pub(super) fn about(mut self, subject: &str) -> Self {
        subject.clone_into(&mut self.subject);
        self
    }
    /// Adds a sentence of advice.
    pub(super) fn advise(mut self, advice: impl AsRef<str>) -> Self {
        if !self.advice.is_empty() {
            self.advice.push(' ');
        }
        self.advice.push_str(advice.as_ref());
        self
    }
    pub(super) fn change(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.changes.push(SettingChange::new(key, value));
        self
    }
}

/// All checks, in the order in which they were made.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub checks: Vec<Check>,
}

impl Report {
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }
    /// Returns the changes of all checks, each key once. The change of an earlier check counts.
    pub(super) fn changes(&self) -> Vec<SettingChange> {
        let mut changes: Vec<SettingChange> = Vec::new();
        for change in self.checks.iter().flat_map(|check| &check.changes) {
            if changes.iter().all(|listed| listed.key != change.key) {
                changes.push(change.clone());
            }
        }
        changes
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        write!(f, "{verdict}  {}", self.name)?;
        if !self.subject.is_empty() {
            write!(f, " ({})", self.subject)?;
        }
        write!(f, ": {}", self.finding)?;
        if !self.advice.is_empty() {
            write!(f, "\n      {}", self.advice)?;
        }
        for change in &self.changes {
            write!(f, "\n      set {} = {}", change.key, change.value)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        writeln!(
            f,
            "\n{} ok, {} to look at, {} failed",
            self.count(Verdict::Ok),
            self.count(Verdict::Warn),
            self.count(Verdict::Fail)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_what_to_change_and_each_key_once() {
        let report = Report {
            checks: vec![
                Check::ok("settings", "the configuration is valid"),
                Check::warn("thoughts", "the model thinks")
                    .about("qwen3:8b")
                    .advise("Thoughts delay a reply.")
                    .change("llm.reasoning", "off"),
                Check::fail("stream", "refused")
                    .change("llm.reasoning", "low")
                    .change("llm.stream_usage", false),
            ],
        };
        assert_eq!(
            report.changes(),
            [
                SettingChange::new("llm.reasoning", "off"),
                SettingChange::new("llm.stream_usage", false),
            ]
        );
        let text = report.to_string();
        for part in [
            "ok    settings: the configuration is valid\n",
            "warn  thoughts (qwen3:8b): the model thinks\n      Thoughts delay a reply.\n",
            "\n      set llm.reasoning = \"off\"\n",
            "FAIL  stream: refused",
            "1 ok, 1 to look at, 1 failed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(Verdict::Fail.max(Verdict::Warn), Verdict::Fail);
    }
}
