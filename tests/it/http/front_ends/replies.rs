//! The answers of the server, as chat programs read them.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Response;
use serde_json::Value;

use crate::http::openai_schema;

/// The replies of one answer, by the index of the choice.
pub struct ReplyReader<'a> {
    label: &'a str,
    pub texts: BTreeMap<u64, String>,
    ended: BTreeSet<u64>,
}

impl<'a> ReplyReader<'a> {
    pub fn new(label: &'a str) -> Self {
        Self {
            label,
            texts: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    pub fn read_whole(&mut self, answer: &Value) {
        for choice in answer["choices"].as_array().unwrap() {
            self.add_choice(choice, &choice["message"]);
        }
    }

    /// Reads a stream to its end, or hangs up after so many characters of the first choice.
    pub async fn read_stream(&mut self, mut response: Response, stop_after: Option<usize>) {
        assert_eq!(
            response.headers()["content-type"],
            "text/event-stream",
            "{}",
            self.label
        );
        let mut unread: Vec<u8> = Vec::new();
        while !self.has_chars(stop_after) {
            let chunk = response.chunk().await.unwrap();
            unread.extend(chunk.unwrap_or_else(|| panic!("{}: the stream ended without [DONE]", self.label)));
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n')
                && !self.has_chars(stop_after)
            {
                let line: Vec<u8> = unread.drain(..=end).collect();
                let line = String::from_utf8(line).unwrap();
                if line == "data: [DONE]\n" {
                    return;
                }
                self.read_line(line.trim_end_matches('\n'));
            }
        }
    }

    fn has_chars(&self, stop_after: Option<usize>) -> bool {
        let chars = self.texts.get(&0).map_or(0, |text| text.chars().count());
        stop_after.is_some_and(|stop| chars >= stop)
    }

    /// Reads a line of a stream. The programs read comments and lines that begin with `data: `.
    fn read_line(&mut self, line: &str) {
        let label = self.label;
        if line.is_empty() || line.starts_with(':') {
            return;
        }
        assert!(!line.ends_with('\r'), "{label}: RisuAI does not read {line:?}");
        let json = line.strip_prefix("data: ");
        let json = json.unwrap_or_else(|| panic!("{label}: not all programs read {line:?}"));
        let event: Value = serde_json::from_str(json).unwrap();
        openai_schema::assert_valid_event(&event);
        let choices = event["choices"].as_array();
        let choices = choices.unwrap_or_else(|| panic!("{label}: {event} has no choices"));
        assert!(choices.len() <= 1, "{label}: SillyTavern reads one choice of {event}");
        for choice in choices {
            assert!(choice["delta"].is_object(), "{label}: {event} has no delta");
            self.add_choice(choice, &choice["delta"]);
        }
    }

    fn add_choice(&mut self, choice: &Value, message: &Value) {
        let index = choice["index"].as_u64().unwrap();
        let text = message["content"].as_str().unwrap_or_default();
        self.texts.entry(index).or_default().push_str(text);
        if choice["finish_reason"].is_string() {
            self.ended.insert(index);
        }
    }

    /// Checks that all choices have words and, after a whole answer, an end.
    pub fn check(&self, choices: u64, is_whole: bool) {
        let label = self.label;
        assert!(self.texts.keys().copied().eq(0..choices), "{label}: {:?}", self.texts);
        assert!(
            self.texts.values().all(|text| !text.trim().is_empty()),
            "{label}: a reply without text"
        );
        assert!(
            !is_whole || self.ended.len() == self.texts.len(),
            "{label}: a reply without an end"
        );
    }
}
