//! The score of an entry for one line (docs/algorithms.md#lore).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::layer::LoreLayer;

/// The entries nearest to the line by meaning that are candidates.
pub const LORE_CANDIDATES: usize = 10;
const AT_PLAYERS_PLACE: f64 = 3.0;
const NEARBY_CHARACTER: f64 = 2.0;
const KNOWN_CHARACTER: f64 = 1.0;

/// How an entry is tied to the scene.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoreTies {
    /// The entry's place is where the player is.
    pub at_place: bool,
    /// A character of the entry is near.
    pub nearby: bool,
    /// The player has a relationship with a character of the entry.
    pub related: bool,
}

/// The parts of an entry's score.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoreScore {
    /// The similarity of line and entry, calibrated to [0, 1]; 1 if the line has its name.
    pub similarity: f64,
    /// 3 at the player's place, or 0.
    pub place: f64,
    /// 2 for a character that is near, or 0.
    pub nearby: f64,
    /// 1 for a character to whom the player has a relationship, or 0.
    pub relation: f64,
    /// A1 2.0, A2 1.5, A3 0.5, A4 0.
    pub layer: f64,
    pub total: f64,
}

impl LoreScore {
    /// Scores an entry. `similarity` outside [0, 1] counts as the nearer bound.
    #[must_use]
    pub fn new(similarity: f64, ties: LoreTies, layer: LoreLayer) -> Self {
        let weight_if = |value: f64, applies: bool| if applies { value } else { 0.0 };
        let similarity = if similarity.is_nan() {
            0.0
        } else {
            similarity.clamp(0.0, 1.0)
        };
        let place = weight_if(AT_PLAYERS_PLACE, ties.at_place);
        let nearby = weight_if(NEARBY_CHARACTER, ties.nearby);
        let relation = weight_if(KNOWN_CHARACTER, ties.related);
        let layer = layer.weight();
        Self {
            similarity,
            place,
            nearby,
            relation,
            layer,
            total: similarity + place + nearby + relation + layer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lore::Mentions;

    /// The player is in the Dark Forest and has just met the goblin king. The secret was last named four turns ago.
    #[test]
    fn lore_scores_are_those_of_the_worked_example() {
        let none = LoreTies::default();
        let here = LoreTies {
            at_place: true,
            ..LoreTies::default()
        };
        let near = LoreTies {
            nearby: true,
            ..LoreTies::default()
        };
        let entries = [
            ("Dark Forest", LoreLayer::A1, 0.9, here, Some(1), Some("5.9")),
            ("goblin king", LoreLayer::A2, 0.7, near, Some(1), Some("4.2")),
            ("Great Collapse", LoreLayer::A1, 0.3, none, None, Some("2.3")),
            ("Silver Keep", LoreLayer::A3, 0.1, none, Some(5), Some("0.6")),
            ("Ergen's secret", LoreLayer::A4, 0.0, none, Some(4), None),
        ];
        for (name, layer, similarity, ties, mentioned_ago, score) in entries {
            let turn = 20;
            let mentions = Mentions::of_turns(mentioned_ago.map(|ago| turn - ago));
            let scored = (!mentions.is_decayed(layer, turn))
                .then(|| format!("{:.1}", LoreScore::new(similarity, ties, layer).total));
            assert_eq!(scored.as_deref(), score, "{name}");
        }
    }

    #[test]
    fn relationship_adds_one_and_bad_similarities_are_bounded() {
        let ties = LoreTies {
            related: true,
            ..LoreTies::default()
        };
        let total = |similarity| LoreScore::new(similarity, ties, LoreLayer::A4).total;
        for (similarity, expected) in [(f64::NAN, 1.0), (-1.0, 1.0), (2.0, 2.0)] {
            assert!((total(similarity) - expected).abs() < 1e-9, "{similarity}");
        }
    }
}
