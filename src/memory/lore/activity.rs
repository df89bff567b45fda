//! How long entries stay without a mention.
//!
//! The turns of the dialogue are the only source. A rewind that removes a turn therefore removes its mentions.

use super::layer::LoreLayer;

/// The turns that mention one entry, in a dialogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mentions(Vec<u32>);

impl Mentions {
    /// The numbers of the turns, in rising order.
    #[must_use]
    pub fn of_turns(turns: impl IntoIterator<Item = u32>) -> Self {
        Self(turns.into_iter().collect())
    }

    /// Adds a later turn.
    pub fn add_turn(&mut self, turn: u32) {
        if self.0.last() != Some(&turn) {
            self.0.push(turn);
        }
    }

    /// True if the entry is left out of turn `now`. An entry without a mention counts from the beginning of the
    /// dialogue.
    #[must_use]
    pub fn is_decayed(&self, layer: LoreLayer, now: u32) -> bool {
        let last = self.0.last().copied().unwrap_or(0);
        layer
            .decay_turns()
            .is_some_and(|turns| now.saturating_sub(last) > turns)
    }
}

/// True if a mention before turn `now` keeps the entry in the prompt.
#[must_use]
pub fn is_sticky(mentions: &Mentions, sticky: u32, now: u32) -> bool {
    let mut before = mentions.0.iter().rev().filter(|turn| **turn < now);
    before.next().is_some_and(|last| now - last <= sticky)
}

/// True if the entry rests in turn `now`: it stayed until `sticky` turns after the mention that brought it, and rests
/// for `cooldown` turns. Mentions during a rest bring nothing.
#[must_use]
pub fn is_in_cooldown(mentions: &Mentions, sticky: u32, cooldown: u32, now: u32) -> bool {
    if cooldown == 0 {
        return false;
    }
    // The first turn after the present stay, and the first turn after the rest.
    let mut stay: Option<(u32, u32)> = None;
    for &turn in mentions.0.iter().filter(|turn| **turn < now) {
        let is_resting = stay.is_some_and(|(ends, rested)| (ends..rested).contains(&turn));
        if is_resting {
            continue;
        }
        let ends = turn.saturating_add(sticky).saturating_add(1);
        stay = Some((ends, ends.saturating_add(cooldown)));
    }
    stay.is_some_and(|(ends, rested)| (ends..rested).contains(&now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mention_resets_the_decay_of_its_layer() {
        for (layer, mentioned, last_turn) in [
            (LoreLayer::A3, None, Some(7)),
            (LoreLayer::A3, Some(10), Some(17)),
            (LoreLayer::A4, None, Some(3)),
            (LoreLayer::A4, Some(10), Some(13)),
            (LoreLayer::A1, None, None),
            (LoreLayer::A2, Some(1), None),
        ] {
            let mentions = Mentions::of_turns(mentioned);
            let from = mentioned.unwrap_or(1);
            let shown = (from..200).take_while(|now| !mentions.is_decayed(layer, *now)).last();
            assert_eq!(shown, last_turn.or(Some(199)), "{layer:?} {mentioned:?}");
        }
    }

    #[test]
    fn entry_stays_and_then_rests() {
        let mentions = Mentions::of_turns([5, 6, 9]);
        let stays = |now| is_sticky(&mentions, 2, now);
        let shown: Vec<u32> = (1..=14).filter(|now| stays(*now)).collect();
        assert_eq!(shown, [6, 7, 8, 10, 11]);
        // A stay of no turn, and a rest of three: the mention at 6 falls into the rest of 5.
        let rests: Vec<u32> = (1..=14).filter(|now| is_in_cooldown(&mentions, 0, 3, *now)).collect();
        assert_eq!(rests, [6, 7, 8, 10, 11, 12]);
        assert!((1..=14).all(|now| !is_in_cooldown(&mentions, 2, 0, now)));
    }
}
