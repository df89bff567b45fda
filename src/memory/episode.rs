//! Episodes: one line about each turn of an NPC with a player, and the choice of lines for a prompt
//! (docs/algorithms.md#episodes).

use std::cell::OnceCell;

use chrono::{DateTime, Utc};

use super::{
    disclosure::locks::DisclosureLocks,
    fact::Importance,
    keywords::sentence_key,
    scoring::dot_product,
    sentences::split_sentences,
    trace::{EpisodeFate, EpisodeStage},
};
use colloquy_core::ids::{DialogueId, NpcId, PlayerId, TurnId, WorldId};

/// Longest text of an episode, in characters.
pub const MAX_EPISODE_CHARS: usize = 200;
/// Longest part of a player's line in an episode without a model, in characters.
pub const MAX_LINE_CHARS: usize = 150;
/// The number of the latest episodes of an NPC with a player that are compared with a line.
pub const MAX_COMPARED_EPISODES: usize = 2_000;
/// The lowest importance of recent and important episodes. Small talk is below, and only a similar line recalls it.
pub const MIN_IMPORTANT: u8 = 3;

/// What happened or was said in one turn. Only this NPC remembers it, and only with this player.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The turn, which is the cause. A turn has at most one episode.
    pub turn: TurnId,
    pub dialogue: DialogueId,
    /// The number of the turn in its dialogue.
    pub number: u32,
    pub world: WorldId,
    pub npc: NpcId,
    pub player: PlayerId,
    /// Where the player was, or else the NPC.
    pub place: Option<String>,
    /// One sentence of at most [`MAX_EPISODE_CHARS`] characters.
    pub text: String,
    pub importance: Importance,
    /// Conditions for the episode's disclosure to the player.
    pub locks: DisclosureLocks,
    /// When the turn was committed.
    pub committed_at: DateTime<Utc>,
}

/// How many episodes each stage gives to a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageCounts {
    /// The newest that are no small talk; 3.
    pub recent: usize,
    /// The most important; 3.
    pub important: usize,
    /// The most similar to the line; 3.
    pub similar: usize,
}

impl Default for StageCounts {
    /// Nine lines of about 30 tokens fill the section of 300 tokens.
    fn default() -> Self {
        Self {
            recent: 3,
            important: 3,
            similar: 3,
        }
    }
}

/// An episode that a prompt may have.
#[derive(Debug, Clone, Copy)]
pub struct EpisodeCandidate<'a> {
    pub episode: &'a Episode,
    /// The calibrated similarity with the line, in [0, 1], if it reaches the minimum.
    pub similarity: Option<f64>,
    /// A unit vector; empty if there is none.
    pub vector: &'a [f32],
}

/// The outcome for a considered candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedEpisode {
    /// The position among the candidates.
    pub index: usize,
    /// The first stage that considered the episode.
    pub stage: EpisodeStage,
    pub fate: EpisodeFate,
}

/// Chooses the episodes of a prompt in three stages: recent, important, similar. Returns every considered candidate once:
/// first those to use, a first of each stage, then a second of each stage, and so on; then the others.
///
/// A candidate with an exclusion, and a near-duplicate of a chosen episode, give their places to the next. `min_cosine`
/// is the raw cosine of near-duplicates.
pub fn choose_episodes(
    candidates: &[EpisodeCandidate<'_>],
    counts: StageCounts,
    min_cosine: f32,
    exclusion: impl Fn(&Episode) -> Option<EpisodeFate>,
) -> Vec<RankedEpisode> {
    let mut fates: Vec<Option<EpisodeFate>> = vec![None; candidates.len()];
    let keys: Vec<OnceCell<String>> = vec![OnceCell::new(); candidates.len()];
    let key = |index: usize| keys[index].get_or_init(|| sentence_key(&candidates[index].episode.text));
    let is_near = |left: usize, right: usize| {
        key(left) == key(right) || is_near_in_meaning(&candidates[left], &candidates[right], min_cosine)
    };
    let mut chosen: Vec<(usize, RankedEpisode)> = Vec::new();
    let mut rejected: Vec<RankedEpisode> = Vec::new();
    for (stage, count) in [
        (EpisodeStage::Recent, counts.recent),
        (EpisodeStage::Important, counts.important),
        (EpisodeStage::Similar, counts.similar),
    ] {
        let mut rank = 0;
        for index in stage_order(candidates, stage) {
            if rank == count {
                break;
            }
            if let Some(known_fate) = fates[index] {
                rank += usize::from(known_fate == EpisodeFate::Used);
                continue;
            }
            let is_repeated = || chosen.iter().any(|(_, other)| is_near(index, other.index));
            let fate = exclusion(candidates[index].episode)
                .or_else(|| is_repeated().then_some(EpisodeFate::NearDuplicate))
                .unwrap_or(EpisodeFate::Used);
            fates[index] = Some(fate);
            let ranked = RankedEpisode { index, stage, fate };
            if fate == EpisodeFate::Used {
                chosen.push((rank, ranked));
                rank += 1;
            } else {
                rejected.push(ranked);
            }
        }
    }
    debug_assert!(
        chosen.len() + rejected.len() == fates.iter().flatten().count(),
        "each considered episode is listed once"
    );
    debug_assert!(
        chosen.len() <= counts.recent + counts.important + counts.similar,
        "no stage gives more episodes than its count"
    );
    // The sort is stable: within a rank, the stages keep their order.
    chosen.sort_by_key(|(rank, _)| *rank);
    chosen.into_iter().map(|(_, ranked)| ranked).chain(rejected).collect()
}

/// Returns the positions of the candidates of a stage, best first.
fn stage_order(candidates: &[EpisodeCandidate<'_>], stage: EpisodeStage) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates.len())
        .filter(|index| match stage {
            EpisodeStage::Recent | EpisodeStage::Important => {
                candidates[*index].episode.importance.get() >= MIN_IMPORTANT
            }
            EpisodeStage::Similar => candidates[*index].similarity.is_some(),
        })
        .collect();
    let age = |index: usize| (candidates[index].episode.committed_at, candidates[index].episode.turn);
    order.sort_by(|&a, &b| {
        let better = match stage {
            EpisodeStage::Recent => std::cmp::Ordering::Equal,
            EpisodeStage::Important => candidates[b].episode.importance.cmp(&candidates[a].episode.importance),
            EpisodeStage::Similar => {
                let similarity = |index: usize| candidates[index].similarity.unwrap_or_default();
                similarity(b).total_cmp(&similarity(a))
            }
        };
        better.then_with(|| age(b).cmp(&age(a)))
    });
    order
}

/// True if two episodes tell the same by their vectors. Episodes with different numbers differ.
fn is_near_in_meaning(candidate: &EpisodeCandidate<'_>, other: &EpisodeCandidate<'_>, min_cosine: f32) -> bool {
    let digits = |candidate: &EpisodeCandidate<'_>| {
        let text = candidate.episode.text.chars();
        text.filter(char::is_ascii_digit).collect::<String>()
    };
    !candidate.vector.is_empty()
        && candidate.vector.len() == other.vector.len()
        && dot_product(candidate.vector, other.vector) >= min_cosine
        && digits(candidate) == digits(other)
}

/// The importance of an episode whose turn asks to forget something: only a similar line brings it into a prompt.
#[must_use]
pub fn importance_of_forgetting(importance: Importance) -> Importance {
    let lowered = importance.min(Importance::from_clamped(f64::from(MIN_IMPORTANT - 1)));
    debug_assert!(
        lowered.get() < MIN_IMPORTANT,
        "an episode of forgetting counts as small talk"
    );
    lowered
}

/// Returns the text on one line, cut to `max_chars` characters, with `…` for the rest.
#[must_use]
pub fn clip_line(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max_chars {
        return line;
    }
    let clipped: String = line.chars().take(max_chars.saturating_sub(1)).collect();
    // A word is not cut, unless it is very long.
    let end = clipped
        .rfind(' ')
        .filter(|end| *end > clipped.len() / 2)
        .unwrap_or(clipped.len());
    let line = format!("{}…", clipped[..end].trim_end());
    debug_assert!(
        line.chars().count() <= max_chars.max(1),
        "a cut line has at most the characters that were asked for"
    );
    line
}

/// Returns the first sentence of a text, on one line and cut to `max_chars` characters.
#[must_use]
pub fn first_sentence(text: &str, max_chars: usize) -> String {
    let mut sentences = split_sentences(text).filter(|sentence| !sentence.trim().is_empty());
    clip_line(sentences.next().unwrap_or_default(), max_chars)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use EpisodeFate::{InHistory, NearDuplicate, Used};
    use EpisodeStage::{Important, Recent, Similar};
    use colloquy_core::ids::DialogueKind;

    const COUNTS: StageCounts = StageCounts {
        recent: 2,
        important: 1,
        similar: 1,
    };

    fn episode(n: u32, importance: u8, text: &str) -> Episode {
        Episode {
            turn: TurnId::from_u128(u128::from(n)),
            dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
            number: n,
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            player: "p1".parse().unwrap(),
            place: None,
            text: text.to_owned(),
            importance: Importance::new(importance).unwrap(),
            locks: DisclosureLocks::default(),
            committed_at: DateTime::from_timestamp(i64::from(n), 0).unwrap(),
        }
    }

    fn candidates<'a>(episodes: &'a [Episode], similar: &[(usize, f64)]) -> Vec<EpisodeCandidate<'a>> {
        let of = |at: usize| similar.iter().find(|(similar, _)| *similar == at).map(|found| found.1);
        let all = episodes.iter().enumerate();
        all.map(|(at, episode)| EpisodeCandidate {
            episode,
            similarity: of(at),
            vector: &[],
        })
        .collect()
    }

    fn chosen(ranked: &[RankedEpisode]) -> Vec<(usize, EpisodeStage)> {
        let used = ranked.iter().filter(|ranked| ranked.fate == Used);
        used.map(|ranked| (ranked.index, ranked.stage)).collect()
    }

    #[test]
    fn stages_take_turns() {
        let all = [
            episode(1, 9, "They met the goblin chief."),
            episode(2, 3, "They spoke of the weather."),
            episode(3, 4, "The player asked for bread."),
            episode(4, 3, "The player sat down."),
            episode(5, 3, "The player left for the mill."),
        ];
        let ranked = choose_episodes(&candidates(&all, &[(2, 0.8), (1, 0.4)]), COUNTS, 0.95, |_| None);
        assert_eq!(
            chosen(&ranked),
            [(4, Recent), (0, Important), (2, Similar), (3, Recent)]
        );
    }

    #[test]
    fn excluded_and_repeated_episodes_give_their_places_to_the_next() {
        let all = [
            episode(1, 9, "They met the goblin chief."),
            episode(2, 8, "The player promised salt."),
            episode(3, 3, "They parted."),
            episode(4, 3, "They parted!"),
            episode(5, 9, "The player lost a ring."),
        ];
        let ranked = choose_episodes(&candidates(&all, &[]), COUNTS, 0.95, |episode| {
            (episode.number == 5).then_some(InHistory)
        });
        assert_eq!(chosen(&ranked), [(3, Recent), (0, Important), (1, Recent)]);
        let fate = |at: usize| {
            ranked
                .iter()
                .find(|ranked| ranked.index == at)
                .map(|ranked| ranked.fate)
        };
        assert_eq!((fate(4), fate(2)), (Some(InHistory), Some(NearDuplicate)));
    }

    #[test]
    fn small_talk_is_neither_recent_nor_important() {
        let all: Vec<Episode> = (1..=9).map(|n| episode(n, 2, &format!("Small talk {n}."))).collect();
        let ranked = choose_episodes(&candidates(&all, &[(3, 0.9)]), COUNTS, 0.95, |_| None);
        assert_eq!(chosen(&ranked), [(3, Similar)]);
    }

    #[test]
    fn near_vectors_are_duplicates_unless_their_numbers_differ() {
        let a = episode(1, 5, "The player gave 3 coins.");
        let b = episode(2, 5, "The player gave 5 coins.");
        let of = |episode| EpisodeCandidate {
            episode,
            similarity: None,
            vector: &[1.0, 0.0],
        };
        assert!(!is_near_in_meaning(&of(&a), &of(&b), 0.95));
        let c = episode(3, 5, "Three coins were given by the player.");
        let d = episode(4, 5, "The player gave three coins.");
        assert!(is_near_in_meaning(&of(&c), &of(&d), 0.95));
    }

    #[test]
    fn lines_are_cut_at_words() {
        assert_eq!(first_sentence("  I saw it.\nIt was red. ", 150), "I saw it.");
        assert_eq!(first_sentence("", 150), "");
        assert_eq!(clip_line("one two  three", 10), "one two…");
        assert_eq!(clip_line("안녕하세요여러분", 5), "안녕하세…");
    }

    proptest! {
        #[test]
        fn stages_keep_their_counts(
            rows in prop::collection::vec((1_u8..=10, 0_u8..4, prop::option::of(0.0_f64..1.0)), 0..30),
            recent in 0_usize..4, important in 0_usize..4, similar in 0_usize..4,
        ) {
            let all: Vec<Episode> = rows.iter().zip(1..).map(|(row, n)| episode(n, row.0, &format!("Text {}.", row.1 + 10 * row.0))).collect();
            let found: Vec<(usize, f64)> = rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.2?))).collect();
            let counts = StageCounts { recent, important, similar };
            let ranked = choose_episodes(&candidates(&all, &found), counts, 0.95, |episode| (episode.number.is_multiple_of(5)).then_some(InHistory));
            let mut seen: Vec<usize> = ranked.iter().map(|ranked| ranked.index).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), ranked.len(), "each once");
            let used = chosen(&ranked);
            for (stage, most) in [(Recent, recent), (Important, important), (Similar, similar)] {
                prop_assert!(used.iter().filter(|used| used.1 == stage).count() <= most);
            }
            for (at, _) in &used {
                prop_assert!(!all[*at].number.is_multiple_of(5));
                let same = used.iter().filter(|(other, _)| all[*other].text == all[*at].text).count();
                prop_assert_eq!(same, 1);
            }
            // The first chosen episodes are the newest that may be used.
            let may_be_recent = |episode: &&Episode| {
                !episode.number.is_multiple_of(5) && episode.importance.get() >= MIN_IMPORTANT
            };
            if recent > 0 && let Some(newest) = all.iter().rev().find(may_be_recent) {
                prop_assert!(used.iter().any(|(at, _)| all[*at].turn == newest.turn));
            }
        }

        #[test]
        fn clipped_lines_are_short(text in "[a-z가-힣 \n]{0,300}", most in 1_usize..200) {
            prop_assert!(clip_line(&text, most).chars().count() <= most);
        }
    }
}
