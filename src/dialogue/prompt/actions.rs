//! Actions in a prompt: those for which the NPC may ask, and what became of those for which it asked.

use std::sync::Arc;

use minijinja::{Value, context};

use super::{
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    material::PromptMaterial,
    template_error::TemplateError,
    templates::Templates,
};

/// The maximum length of all lines about possible actions, in characters: a schema alone may have 2,000 bytes.
const MAX_OFFER_CHARS: usize = 3_000;
/// The maximum length of all lines about settled actions, in characters.
const MAX_OUTCOMES_CHARS: usize = 1_200;
/// The maximum length of both.
pub(super) const MAX_ACTION_CHARS: usize = MAX_OFFER_CHARS + MAX_OUTCOMES_CHARS;
/// A line that fits: its position among all, its text, and its tokens.
type ShownLine = (usize, Arc<str>, u32);

/// The lines that fit. An outcome never takes the place of an offer.
#[derive(Default)]
pub(super) struct ShownActions {
    offers: Vec<ShownLine>,
    outcomes: Vec<ShownLine>,
    dropped: usize,
}

impl ShownActions {
    /// Selects the lines that fit, and takes their tokens from `remaining_tokens`. An outcome says which hearers do not
    /// know of it.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        remaining_tokens: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TemplateError> {
        let lines = material.action_lines;
        let remarked = lines.outcomes.iter().map(|outcome| {
            let remark = material.remark_for_dialogue(outcome.dialogue);
            let text = remark.add_to(templates, material, outcome.line.to_string())?;
            Ok(text.into())
        });
        let remarked = remarked.collect::<Result<Vec<Arc<str>>, TemplateError>>()?;
        Ok(Self::fit_lines(&lines.offers, &remarked, remaining_tokens, count))
    }

    fn fit_lines(
        offers: &[Arc<str>],
        outcomes: &[Arc<str>],
        remaining_tokens: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Self {
        let mut fit = |lines: &[Arc<str>], mut chars: usize| {
            let mut fitting = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                let length = line.chars().count();
                let tokens = count(line) + ITEM_TOKENS;
                if length <= chars && tokens <= *remaining_tokens {
                    chars -= length;
                    *remaining_tokens -= tokens;
                    fitting.push((index, line.clone(), tokens));
                }
            }
            fitting
        };
        let fitting_offers = fit(offers, MAX_OFFER_CHARS);
        let fitting_outcomes = fit(outcomes, MAX_OUTCOMES_CHARS);
        Self {
            dropped: offers.len() + outcomes.len() - fitting_offers.len() - fitting_outcomes.len(),
            offers: fitting_offers,
            outcomes: fitting_outcomes,
        }
    }

    /// Drops the last outcome, and then the last offer. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let dropped = self.outcomes.pop().or_else(|| self.offers.pop()).is_some();
        self.dropped += usize::from(dropped);
        dropped
    }
    /// Returns the tokens of the lines, with headings.
    pub(super) fn tokens(&self) -> u32 {
        let list = |lines: &[ShownLine]| {
            let line_tokens: u32 = lines.iter().map(|line| line.2).sum();
            line_tokens
                + if lines.is_empty() {
                    0
                } else {
                    HEADING_TOKENS + FRAME_TOKENS
                }
        };
        list(&self.offers) + list(&self.outcomes)
    }
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }
    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        for lines in [&self.offers, &self.outcomes] {
            hash.add_number(u32::from(lines.is_empty()));
            for (_, line, _) in lines {
                hash.add_text(line);
            }
        }
    }
    pub(super) fn template_values(&self) -> Value {
        let texts = |lines: &[ShownLine]| lines.iter().map(|line| Value::from(&*line.1)).collect::<Vec<_>>();
        context! { offers => texts(&self.offers), outcomes => texts(&self.outcomes) }
    }
    /// Returns the positions of the shown offers, and of the shown outcomes.
    pub(super) fn shown(&self) -> (Vec<usize>, Vec<usize>) {
        let places = |lines: &[ShownLine]| lines.iter().map(|line| line.0).collect();
        (places(&self.offers), places(&self.outcomes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_never_take_the_place_of_offers() {
        let long = |sign: &str, count| vec![Arc::from(sign.repeat(500)); count];
        let offers = long("o", 7);
        let outcomes = long("x", 4);
        let count = |text: &str| u32::try_from(text.len()).unwrap();
        let mut remaining_tokens = 100_000;
        let mut shown = ShownActions::fit_lines(&offers, &outcomes, &mut remaining_tokens, &count);
        assert_eq!(shown.shown(), ((0..6).collect(), vec![0, 1]));
        assert_eq!(shown.dropped_count(), 3);
        for _ in 0..2 {
            assert!(shown.drop_last());
        }
        assert_eq!(shown.shown(), ((0..6).collect(), vec![]));
        let mut remaining_tokens = 1_100;
        let shown = ShownActions::fit_lines(&offers, &outcomes, &mut remaining_tokens, &count);
        assert_eq!(shown.shown(), (vec![0, 1], vec![]));
    }
}
