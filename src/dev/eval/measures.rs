//! Quality measures of a ranking, per question and on average. Pure.

use serde::Serialize;

/// The measures of one question's ranking, each in [0, 1].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankingMetrics {
    /// The share of the answers among the first K.
    pub recall: f64,
    /// 1 if any answer is among the first K.
    pub hit: f64,
    /// 1 / the place of the first answer; 0 if no answer is among the first K.
    pub reciprocal_rank: f64,
}

/// Averages over questions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricAverages {
    pub questions: usize,
    pub recall: f64,
    pub hit: f64,
    pub mrr: f64,
}

/// What prompts show, on average over questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ShownAverages {
    /// The facts shown for a question that has answers.
    pub facts: f64,
    /// The share of the shown facts that answer their question, over questions for which a fact is shown.
    pub precision: f64,
    /// The facts shown for a line without an answer; `None`: the set has no such lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_answer: Option<f64>,
}

/// Averages (shown facts, answers) of questions. Any item of a group counts as an answer.
pub fn average_shown<'a, T: PartialEq + 'a>(
    outcomes: impl IntoIterator<Item = (&'a [T], &'a [Vec<T>])>,
) -> ShownAverages {
    let mut answered_count = 0;
    let mut shown_count = 0;
    let mut facts = 0;
    let mut precision = 0.0;
    let mut unanswered_count = 0;
    let mut stranger_count = 0;
    for (shown_facts, answers) in outcomes {
        if answers.is_empty() {
            unanswered_count += 1;
            stranger_count += shown_facts.len();
            continue;
        }
        answered_count += 1;
        facts += shown_facts.len();
        if !shown_facts.is_empty() {
            shown_count += 1;
            let right = shown_facts
                .iter()
                .filter(|fact| answers.iter().any(|group| group.contains(fact)));
            precision += count_as_f64(right.count()) / count_as_f64(shown_facts.len());
        }
    }
    ShownAverages {
        facts: count_as_f64(facts) / count_as_f64(answered_count.max(1)),
        precision: precision / count_as_f64(shown_count.max(1)),
        without_answer: (unanswered_count > 0).then(|| count_as_f64(stranger_count) / count_as_f64(unanswered_count)),
    }
}

/// Measures a ranking, best first, by its first `k` items. Any item of a group of `answers` counts as this answer.
/// Without answers all measures are 0.
pub fn ranking_metrics<T: PartialEq>(ranking: &[T], answers: &[Vec<T>], k: usize) -> RankingMetrics {
    let mut found_count = 0_usize;
    let mut best_place = None::<usize>;
    for place in answers.iter().filter_map(|group| place_of_first(ranking, group, k)) {
        found_count += 1;
        best_place = Some(best_place.map_or(place, |best| best.min(place)));
    }
    RankingMetrics {
        recall: if answers.is_empty() {
            0.0
        } else {
            count_as_f64(found_count) / count_as_f64(answers.len())
        },
        hit: if found_count > 0 { 1.0 } else { 0.0 },
        reciprocal_rank: best_place.map_or(0.0, |place| 1.0 / count_as_f64(place)),
    }
}

/// Returns the place (from 1) of the first member of `group` among the first `k`.
pub fn place_of_first<T: PartialEq>(ranking: &[T], group: &[T], k: usize) -> Option<usize> {
    let index = ranking.iter().take(k).position(|ranked| group.contains(ranked));
    index.map(|index| index + 1)
}

/// Averages the measures. All averages of an empty list are 0.
pub fn average_metrics<'a>(metrics: impl IntoIterator<Item = &'a RankingMetrics>) -> MetricAverages {
    let mut sums = MetricAverages {
        questions: 0,
        recall: 0.0,
        hit: 0.0,
        mrr: 0.0,
    };
    for figures in metrics {
        sums.questions += 1;
        sums.recall += figures.recall;
        sums.hit += figures.hit;
        sums.mrr += figures.reciprocal_rank;
    }
    let count = count_as_f64(sums.questions.max(1));
    MetricAverages {
        questions: sums.questions,
        recall: sums.recall / count,
        hit: sums.hit / count,
        mrr: sums.mrr / count,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a set has at most 50,000 rows")]
pub fn count_as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn measures_match_figures_computed_by_hand() {
        // Of three answers, two are at places 2 and 4 of five. The third is missing.
        let ranking = ["a", "b", "c", "d", "e"];
        let figures_at = |k| ranking_metrics(&ranking, &[vec!["d"], vec!["b"], vec!["z"]], k);
        let metrics = figures_at(5);
        assert!(close(metrics.recall, 2.0 / 3.0) && close(metrics.hit, 1.0) && close(metrics.reciprocal_rank, 0.5));
        let metrics = figures_at(3);
        assert!(close(metrics.recall, 1.0 / 3.0) && close(metrics.hit, 1.0) && close(metrics.reciprocal_rank, 0.5));
        let metrics = figures_at(1);
        assert!(close(metrics.recall, 0.0) && close(metrics.hit, 0.0) && close(metrics.reciprocal_rank, 0.0));
    }

    #[test]
    fn answer_group_is_satisfied_by_any_of_its_facts_once() {
        let two = ranking_metrics(&["b", "a", "c"], &[vec!["a", "b"], vec!["d", "c"]], 2);
        assert!(close(two.recall, 0.5) && close(two.reciprocal_rank, 1.0));
    }

    #[test]
    fn measures_of_empty_results_do_not_divide_by_zero() {
        assert_eq!(ranking_metrics(&[], &[vec!["a"]], 10), ranking_metrics(&["a"], &[], 10));
        assert_eq!(average_metrics([]).questions, 0);
        assert!(close(average_metrics([]).mrr, 0.0));
    }

    #[test]
    fn shown_facts_are_measured_by_hand() {
        let one = [vec!["a"], vec!["b", "c"]];
        let all: [(&[&str], &[Vec<&str>]); 4] = [
            // Two of four shown facts answer.
            (&["a", "x", "c", "y"], &one),
            (&["b"], &one),
            // Nothing is shown: no precision.
            (&[], &one),
            (&["x", "y", "z"], &[]),
        ];
        let averages = average_shown(all);
        assert!(close(averages.facts, 5.0 / 3.0) && close(averages.precision, 0.75));
        assert_eq!(averages.without_answer, Some(3.0));
        assert_eq!(average_shown::<&str>([]), ShownAverages::default());
    }

    #[test]
    fn averages_are_over_questions_and_not_over_answers() {
        let one_of_four = ranking_metrics(&["a"], &[vec!["a"], vec!["b"], vec!["c"], vec!["d"]], 10);
        let one_of_one = ranking_metrics(&["x", "y", "a"], &[vec!["a"]], 10);
        let all = average_metrics([&one_of_four, &one_of_one]);
        assert_eq!(all.questions, 2);
        assert!(close(all.recall, 0.625) && close(all.hit, 1.0));
        assert!(close(all.mrr, f64::midpoint(1.0, 1.0 / 3.0)));
    }
}
