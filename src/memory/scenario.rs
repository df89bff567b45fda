//! Scenarios: an NPC's memories of its own past. Each is locked until a player has enough progress
//! (docs/algorithms.md#scenarios).

use std::cmp::Reverse;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    calibration::Calibration,
    condition::Condition,
    disclosure::secrecy::{Tell, fault_of_conditions},
    embedded_text::embedded_text,
    keywords::{self, TermWeights},
    scoring::RecallWeights,
    unlock_rule::Progress,
};
use colloquy_core::ids::{NpcId, ScenarioId, WorldId};

/// Most scenarios of one NPC.
pub const MAX_SCENARIOS_PER_NPC: u32 = 500;

/// A scenario as it is stored: a memory of an NPC's own past.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ScenarioView)]
pub struct Scenario {
    #[serde(rename = "world_id")]
    #[schema(value_type = String)]
    pub world: WorldId,
    #[serde(rename = "npc_id")]
    #[schema(value_type = String)]
    pub npc: NpcId,
    #[schema(value_type = String)]
    pub id: ScenarioId,
    pub title: String,
    pub content: String,
    pub keywords: Vec<String>,
    /// Other words of players for the scenario.
    pub synonyms: Vec<String>,
    /// Locked for players with less progress.
    #[schema(value_type = u32)]
    pub required_progress: Progress,
    /// The conditions under which the NPC may tell the scenario; all must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<Condition>,
    /// What the NPC shows while the scenario may not be told. Without a tell, no prompt has any of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tell: Option<Tell>,
    /// The `ETag`, without its quotes.
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

impl Scenario {
    /// True if the scenario is locked for some players.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        self.required_progress.get() > 0 || !self.when.is_empty()
    }
    /// All faults of the conditions and the tell, each with its field.
    #[must_use]
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let conditions = fault_of_conditions(&self.when).map(|fault| ("when", fault));
        let pointless = self.tell.is_some() && !self.is_conditional();
        let pointless = pointless.then(|| {
            let fault = "a tell needs `required_progress` or `when`: otherwise the scenario is always told";
            ("tell", fault.to_owned())
        });
        let tell = self.tell.iter().flat_map(Tell::find_faults);
        conditions.into_iter().chain(pointless).chain(tell).collect()
    }
    /// The text of the scenario's vector.
    #[must_use]
    pub fn embedded_text(&self) -> String {
        embedded_text(&self.title_and_content(), &self.keywords_and_synonyms())
    }
    /// The words of the keyword search.
    #[must_use]
    pub fn keyword_terms(&self) -> TermWeights {
        keywords::document_terms(&self.title_and_content(), &self.keywords_and_synonyms())
    }
    fn title_and_content(&self) -> String {
        format!("{}. {}", self.title, self.content)
    }
    fn keywords_and_synonyms(&self) -> Vec<String> {
        self.keywords.iter().chain(&self.synonyms).cloned().collect()
    }
}

/// What is new about a scenario for the player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ScenarioNews {
    /// The player may hear the scenario for the first time since one of the last turns.
    Opened,
    /// The NPC has told the scenario in this dialogue.
    Told,
}

/// A line asks for a scenario whose words are at least this share of the line's informative words.
const ASKING_SHARE: f64 = 0.3;

/// How a scenario bears on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioBearing {
    /// The line has the title, a keyword or a synonym, or mostly words of the scenario.
    Words,
    /// The line has a similar meaning.
    Meaning,
    None,
}

impl ScenarioBearing {
    /// Decides how a scenario with this score bears on a line. `is_named`: the line has its title, a keyword or a synonym.
    #[must_use]
    pub fn decide(calibration: &Calibration, is_named: bool, score: &ScenarioScore) -> Self {
        if is_named || score.keyword >= ASKING_SHARE {
            Self::Words
        } else if score.cosine > 0.0 && score.cosine >= f64::from(calibration.bearing_cosine()) {
            Self::Meaning
        } else {
            Self::None
        }
    }
}

/// How well a scenario fits a line. Each part except `cosine` is in [0, 1].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScenarioScore {
    /// The cosine, calibrated to [0, 1].
    pub relevance: f64,
    pub keyword: f64,
    /// Relevance .5 and keywords .2, as in the score of a fact, scaled to sum to 1.
    pub total: f64,
    /// The raw cosine, in [-1, 1]; 0 without a vector.
    pub cosine: f64,
}

/// Scores a scenario for a line, by the two factors of recall that compare words. Without a vector (`cosine` is
/// `None`), keywords alone count.
#[must_use]
pub fn score_scenario(calibration: &Calibration, cosine: Option<f32>, keyword: f64) -> ScenarioScore {
    let weights = RecallWeights::FOUR_FACTOR;
    let total_weight = weights.relevance + weights.keyword;
    let cosine = cosine.filter(|cosine| cosine.is_finite());
    let share = |value: f64| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
    let relevance = cosine.map_or(0.0, |cosine| share(calibration.relevance_of(cosine.clamp(-1.0, 1.0))));
    let keyword = share(keyword);
    ScenarioScore {
        relevance,
        keyword,
        total: share((weights.relevance * relevance + weights.keyword * keyword) / total_weight),
        cosine: cosine.map_or(0.0, |cosine| f64::from(cosine.clamp(-1.0, 1.0))),
    }
}

/// Sorts scenarios, in a total order. If the line points back (`points`), recent scenarios come first, the latest at
/// the top. Then comes the better score, and equal scores are sorted by id.
pub fn sort_best_first(points: bool, scored: &mut [(ScenarioScore, Option<DateTime<Utc>>, &ScenarioId, usize)]) {
    scored.sort_by(|a, b| {
        let key = |recent: Option<DateTime<Utc>>| points.then_some(Reverse(recent));
        key(a.1)
            .cmp(&key(b.1))
            .then_with(|| b.0.total.total_cmp(&a.0.total))
            .then_with(|| a.2.cmp(b.2))
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lore::is_named_in;

    #[test]
    fn scenario_score_uses_the_weights_of_recall() {
        let parts = score_scenario(&Calibration::IDENTITY, Some(0.8), 0.5);
        let relevance = Calibration::IDENTITY.relevance_of(0.8);
        assert!((parts.total - (0.5 * relevance + 0.2 * 0.5) / 0.7).abs() < 1e-6);
        let words = score_scenario(&Calibration::IDENTITY, None, 1.0);
        assert!((words.total - 0.2 / 0.7).abs() < 1e-9 && words.relevance == 0.0);
        let both = score_scenario(&Calibration::IDENTITY, Some(1.0), 1.0);
        assert!((both.total - 1.0).abs() < 1e-9);
    }

    fn dry_cellar() -> Scenario {
        Scenario {
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            id: "well".parse().unwrap(),
            title: "The dry cellar".to_owned(),
            content: "Her brother fell in.".to_owned(),
            keywords: vec!["sorrow".to_owned()],
            synonyms: vec!["우물".to_owned()],
            required_progress: Progress::NONE,
            when: vec![],
            tell: None,
            version: 1,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn scenario_bears_on_a_line_by_its_words_or_a_near_meaning() {
        let e5 = Calibration::preset_for_model("multilingual-e5-small").unwrap();
        let scenario = dry_cellar();
        let bearing = |line: &str, cosine: f32| {
            let keyword = keywords::query_coverage(&keywords::query_terms(line), &scenario.keyword_terms());
            let score = score_scenario(&e5, Some(cosine), keyword);
            let names = scenario.keywords.iter().chain(&scenario.synonyms);
            let is_named = names.chain([&scenario.title]).any(|name| is_named_in(line, name));
            ScenarioBearing::decide(&e5, is_named, &score)
        };
        for (line, cosine, expected) in [
            (
                "Why is there such sorrow in your eyes tonight, captain?",
                0.70,
                ScenarioBearing::Words,
            ),
            ("Tell me of the dry cellar.", 0.70, ScenarioBearing::Words),
            ("What happened down there?", 0.86, ScenarioBearing::Meaning),
            // Unrelated texts have such cosines.
            ("Smoked or pickled herring?", 0.83, ScenarioBearing::None),
        ] {
            assert_eq!(bearing(line, cosine), expected, "{line}");
        }
    }

    #[test]
    fn scenario_is_found_by_each_of_its_words() {
        let scenario = dry_cellar();
        let terms = scenario.keyword_terms();
        for line in ["that cellar?", "your brother", "what sorrow", "우물에 대해 말해 줘"] {
            assert!(
                keywords::query_coverage(&keywords::query_terms(line), &terms) > 0.15,
                "{line}"
            );
        }
        assert!(keywords::query_coverage(&keywords::query_terms("Do you like grapes?"), &terms) < 0.01);
        for part in ["The dry cellar", "Her brother", "sorrow", "우물"] {
            assert!(scenario.embedded_text().contains(part), "{part}");
        }
    }

    #[test]
    fn scenarios_referred_to_come_first_and_the_latest_of_them_last() {
        let ids: Vec<ScenarioId> = ["a", "b", "c", "d"].map(|id| id.parse().unwrap()).into();
        let of = |total| ScenarioScore {
            total,
            ..ScenarioScore::default()
        };
        let at = |second| DateTime::from_timestamp(second, 0);
        let mut scored = vec![
            (of(0.9), None, &ids[0], 0),
            (of(0.1), at(3), &ids[1], 1),
            (of(0.2), at(5), &ids[2], 2),
            (of(0.9), None, &ids[3], 3),
        ];
        let order = |scored: &[(ScenarioScore, Option<DateTime<Utc>>, &ScenarioId, usize)]| {
            scored.iter().map(|entry| entry.3).collect::<Vec<_>>()
        };
        sort_best_first(true, &mut scored);
        assert_eq!(order(&scored), [2, 1, 0, 3]);
        sort_best_first(false, &mut scored);
        assert_eq!(order(&scored), [0, 3, 2, 1]);
    }

    proptest! {
        #[test]
        fn scenario_score_is_bounded(cosine in prop::option::of(any::<f32>()), keyword in any::<f64>()) {
            let parts = score_scenario(&Calibration::IDENTITY, cosine, keyword);
            for part in [parts.relevance, parts.keyword, parts.total] {
                prop_assert!((0.0..=1.0).contains(&part));
            }
        }
    }
}
