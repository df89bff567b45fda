//! The questions for language models, from `config/doctor/questions.toml`.

use anyhow::Context as _;
use figment::{
    Figment,
    providers::{Format as _, Toml},
};
use serde::Deserialize;

const QUESTIONS: &str = include_str!("../../../config/doctor/questions.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Questions {
    pub hello_en: String,
    pub hello_ko: String,
    pub story: String,
    pub prose: String,
    pub words: String,
    pub intent: String,
    pub change_en: String,
    pub change_ko: String,
    /// The word that the answer to a long prompt must have.
    pub secret: String,
    first_line: String,
    filler: String,
    last_line: String,
}

impl Questions {
    pub(super) fn read() -> anyhow::Result<Self> {
        Figment::from(Toml::string(QUESTIONS))
            .extract()
            .context("config/doctor/questions.toml")
    }

    /// Returns a prompt of about `tokens` tokens by this count, at least its first and last line.
    pub(super) fn long_prompt(&self, tokens: u32, count: impl Fn(&str) -> u32) -> String {
        let frame = count(&self.first_line) + count(&self.last_line);
        let line = |n: u32| self.filler.replace("{n}", &n.to_string());
        let lines = tokens.saturating_sub(frame) / (count(&line(1_000)) + 1).max(1);
        let filler = (1..=lines).map(line);
        let all_lines = [self.first_line.clone()]
            .into_iter()
            .chain(filler)
            .chain([self.last_line.clone()]);
        all_lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn long_prompt_begins_with_the_secret_and_has_its_length() {
        let questions = Questions::read().unwrap();
        let words = |text: &str| u32::try_from(text.split_whitespace().count()).unwrap();
        let long = questions.long_prompt(2_000, words);
        assert!(long.lines().next().unwrap().contains(&questions.secret));
        assert_eq!(long.matches(&questions.secret).count(), 1);
        assert!((1_800..=2_000).contains(&words(&long)), "{}", words(&long));
        assert_eq!(questions.long_prompt(0, words).lines().count(), 2);
    }
}
