//! Ages of statements in words.

use chrono::{DateTime, Utc};
use minijinja::context;

use super::templates::{Template, TemplateError, Templates};
use colloquy_memory::authored::Language;

/// The time and language of a prompt. Days begin at midnight UTC.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgeFormatter {
    pub language: Language,
    pub now: DateTime<Utc>,
}

impl AgeFormatter {
    /// Returns the date, such as `2026-11-25`.
    pub(super) fn today(self) -> String {
        self.now.format("%Y-%m-%d").to_string()
    }

    /// Returns an age such as "3 days ago". A date in the future counts as today.
    pub(super) fn describe_age(self, templates: &Templates, at: DateTime<Utc>) -> Result<String, TemplateError> {
        let days = (self.now.date_naive() - at.date_naive()).num_days().max(0);
        templates.render(self.language, Template::Ago, context! { days })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_naturally() {
        let templates = Templates::load(None).unwrap();
        let now: DateTime<Utc> = "2026-11-25T00:10:00Z".parse().unwrap();
        for (at, english, korean) in [
            ("2026-11-26T00:00:00Z", "earlier today", "오늘"),
            ("2026-11-25T00:00:00Z", "earlier today", "오늘"),
            ("2026-11-24T23:59:00Z", "yesterday", "어제"),
            ("2026-11-23T01:00:00Z", "2 days ago", "그저께"),
            ("2026-11-12T01:00:00Z", "13 days ago", "13일 전"),
            ("2026-11-11T01:00:00Z", "2 weeks ago", "2주 전"),
            ("2026-09-26T01:00:00Z", "2 months ago", "2달 전"),
            ("2024-11-20T01:00:00Z", "2 years ago", "2년 전"),
        ] {
            for (language, expected) in [(Language::En, english), (Language::Ko, korean)] {
                let ages = AgeFormatter { language, now };
                assert_eq!(
                    ages.describe_age(&templates, at.parse().unwrap()).unwrap(),
                    expected,
                    "{at}"
                );
            }
        }
    }
}
