//! The keyword factor of recall: BM25, with inverse document frequency over the facts of one memory.
//!
//! Indexing fixes the part of a fact: mentions and length ([`fact_terms`]). The search computes the part of a query:
//! the rarity of each term in the memory ([`TermStatistics::weigh_query`]). The score is a sum over the common terms,
//! equal wherever the two parts meet.

use std::collections::BTreeMap;

use super::{TermForms, TermWeights, count_mentions, for_each_term, korean, strongest_terms};
use crate::party;

/// k1 of BM25: how soon further mentions stop to count.
const MENTION_SATURATION: f32 = 1.2;
/// b of BM25: how much a long fact lowers the value of its mentions.
const LENGTH_SHARE: f32 = 0.4;
/// Informative words of a usual fact: one sentence with a few keywords. The average of the memory has no advantage: the
/// ranking of ten long dialogues was the same to a thousandth. With the average, every new fact would change all
/// scores.
const USUAL_WORDS: f32 = 9.0;
/// Facts without the term that are added to every memory. Otherwise all words would seem common among a few facts.
const PRIOR_FACTS: f64 = 50.0;
/// The number of common rare words that give 1 - 1/e of the factor.
const RARE_WORDS: f64 = 1.25;

/// Terms of a search text, including phrases of two informative words. Each has its general information weight, in
/// (0, 1].
#[must_use]
pub fn search_terms(text: &str) -> TermWeights {
    let forms = TermForms {
        phrases: true,
        ..TermForms::STEMS
    };
    strongest_terms(text, forms)
}

/// The texts of a fact that are searched by words.
#[derive(Debug, Clone, Copy, Default)]
pub struct FactTexts<'a> {
    pub content: &'a str,
    pub keywords: &'a [String],
    pub subject: &'a str,
    pub predicate: &'a str,
    pub object: &'a str,
}

/// Terms of a fact for an index. The value of a term for a query is in (0, 2.2), about 1 for a single mention in a
/// usual sentence.
///
/// Words of subject, predicate and object that the content lacks count as one mention, and not for the length: "rents
/// a room above the mill" is also found by its predicate `live in`.
#[must_use]
pub fn fact_terms(fact: FactTexts<'_>) -> TermWeights {
    let forms = TermForms {
        all: true,
        phrases: true,
        ..TermForms::STEMS
    };
    let (mut mentions, words) = count_mentions(fact.content, fact.keywords, forms);
    for text in structure_texts(&fact) {
        for_each_term(text, forms, &mut |term, _, _| {
            mentions.entry(term).or_insert(1.0);
        });
    }
    #[expect(clippy::cast_precision_loss, reason = "a fact has few words")]
    let length = 1.0 - LENGTH_SHARE + LENGTH_SHARE * words as f32 / USUAL_WORDS;
    TermWeights(
        mentions
            .into_iter()
            .map(|(term, count)| {
                (
                    term,
                    count * (MENTION_SATURATION + 1.0) / (count + MENTION_SATURATION * length),
                )
            })
            .collect(),
    )
}

/// The texts of subject, predicate and object that may have words beside the content.
fn structure_texts<'a>(fact: &FactTexts<'a>) -> impl Iterator<Item = &'a str> {
    let content = fact.content;
    // A player's id is no word. "다" of a predicate such as "살다" is no part of its stem.
    let subject = party::owned_name(fact.subject);
    let predicate = fact
        .predicate
        .strip_suffix('다')
        .filter(|stem| stem.ends_with(korean::is_hangul))
        .unwrap_or(fact.predicate);
    [subject, predicate, fact.object]
        .into_iter()
        .filter(move |text| !text.is_empty() && !content.contains(text))
}

/// The number of facts in a memory, and the number of facts with each term.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TermStatistics {
    pub facts: u64,
    /// By term; a missing term is in no fact.
    pub with_term: BTreeMap<u64, u64>,
}

impl TermStatistics {
    #[must_use]
    pub fn count_terms<'a>(query: &TermWeights, facts: impl IntoIterator<Item = &'a TermWeights>) -> Self {
        let mut counted = Self::default();
        for fact in facts {
            counted.facts += 1;
            for (term, _) in &query.0 {
                if fact.0.binary_search_by_key(term, |entry| entry.0).is_ok() {
                    *counted.with_term.entry(*term).or_default() += 1;
                }
            }
        }
        debug_assert!(
            counted.with_term.values().all(|count| *count <= counted.facts),
            "no term is in more facts than there are"
        );
        counted
    }

    /// Weighs the query's terms by their power to distinguish the facts: the inverse document frequency of BM25,
    /// relative to a term that no fact has.
    #[must_use]
    pub fn weigh_query(&self, query: &TermWeights) -> TermWeights {
        #[expect(clippy::cast_precision_loss, reason = "counts of facts")]
        let idf = |with_term: u64| {
            let fact_count = self.facts as f64 + PRIOR_FACTS;
            let with_term = with_term.min(self.facts) as f64;
            (1.0 + (fact_count - with_term + 0.5) / (with_term + 0.5)).ln()
        };
        let max_idf = idf(0);
        let weighed = query.0.iter().map(|&(term, weight)| {
            let with_term = self.with_term.get(&term).copied().unwrap_or(0);
            #[expect(clippy::cast_possible_truncation, reason = "a share")]
            let rarity = (idf(with_term) / max_idf) as f32;
            (term, weight * rarity)
        });
        TermWeights(weighed.collect())
    }
}

/// The score of a fact for a weighed query: the sum over the common terms, about 1 for each rare word. At least 0.
#[must_use]
pub fn bm25_score(query: &TermWeights, fact: &TermWeights) -> f64 {
    debug_assert!(
        [query, fact].iter().all(|terms| terms.0.is_sorted_by(|a, b| a.0 < b.0)),
        "terms are sorted, each once"
    );
    let mut fact = fact.0.as_slice();
    // Both lists are sorted, so the search continues after the last hit.
    bm25_score_by(query, |term| match fact.binary_search_by_key(&term, |entry| entry.0) {
        Ok(index) => {
            let weight = fact[index].1;
            fact = &fact[index + 1..];
            Some(weight)
        }
        Err(index) => {
            fact = &fact[index..];
            None
        }
    })
}

/// [`bm25_score`] of a fact with terms stored elsewhere: `weight_of` is called for each term of the query, in order.
#[must_use]
pub fn bm25_score_by(query: &TermWeights, mut weight_of: impl FnMut(u64) -> Option<f32>) -> f64 {
    query
        .0
        .iter()
        .filter_map(|&(term, weight)| Some(f64::from(weight) * f64::from(weight_of(term)?)))
        .sum()
}

/// The keyword factor of a [`bm25_score`] sum, in [0, 1). The factor does not depend on other found facts.
#[must_use]
pub fn keyword_factor(sum: f64) -> f64 {
    if sum.is_nan() {
        0.0
    } else {
        -(-sum.max(0.0) / RARE_WORDS).exp_m1()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fact(content: &str) -> TermWeights {
        fact_terms(FactTexts {
            content,
            ..FactTexts::default()
        })
    }
    fn keyword(query: &str, of: &TermWeights, facts: &[TermWeights]) -> f64 {
        let query = search_terms(query);
        keyword_factor(bm25_score(
            &TermStatistics::count_terms(&query, facts).weigh_query(&query),
            of,
        ))
    }

    #[test]
    fn terms_of_many_facts_weigh_little() {
        let mut facts: Vec<TermWeights> = (0..40).map(|n| fact(&format!("Rowena saw tower{n}"))).collect();
        facts.push(fact("Rowena adopted a pony"));
        let of = |query| keyword(query, &facts[40], &facts);
        assert!(
            of("Rowena") < 0.16 && of("ponies") > 0.35,
            "{} {}",
            of("Rowena"),
            of("ponies")
        );
        assert!(of("Did Rowena adopt the pony?") > of("ponies"));
        // The same word in a memory without other mentions of the word.
        assert!(keyword("Rowena", &facts[40], &facts[40..]) > 0.3);
    }

    #[test]
    fn phrase_counts_more_than_its_words() {
        let (phrase, apart) = (
            fact("Ottilie joined the market guild downtown"),
            fact("Ottilie found a market after meeting a guild"),
        );
        let both = [phrase.clone(), fact("The guild wants a market")];
        let query = "Which market guild was it?";
        assert!(keyword(query, &phrase, &both) > keyword(query, &apart, &both) + 0.05);
        let ko = [
            fact("플레이어는 검은 숲에서 도깨비를 쓰러뜨렸다"),
            fact("숲에는 검은 고양이가 산다"),
        ];
        let query = "검은 숲에서 뭘 했지?";
        assert!(keyword(query, &ko[0], &ko) > keyword(query, &ko[1], &ko));
    }

    #[test]
    fn words_of_a_long_fact_count_less_and_keywords_more() {
        let weight = |terms: &TermWeights| {
            let grape = search_terms("grape").0[0].0;
            terms
                .0
                .iter()
                .find(|(term, _)| *term == grape)
                .map_or(0.0, |entry| entry.1)
        };
        let short = weight(&fact("The player likes grapes"));
        let long = weight(&fact(&format!(
            "The player likes grapes {}",
            "and towers and mills ".repeat(20)
        )));
        let named = weight(&fact_terms(FactTexts {
            content: "The player likes grapes",
            keywords: &["grape".to_owned()],
            ..FactTexts::default()
        }));
        assert!(long < short && short < named && named < 2.2, "{long} {short} {named}");
    }

    #[test]
    fn predicate_and_object_are_searched() {
        for (question, content, subject, predicate, object) in [
            (
                "Where do I live now?",
                "The player rents a room above the chandler's.",
                "player:p7",
                "live in",
                "a room above the chandler's",
            ),
            (
                "What does Wren fear?",
                "She runs from every horse.",
                "Wren",
                "fear",
                "horses",
            ),
            (
                "나 지금 어디 살아?",
                "플레이어는 잡화점 위층에 방을 얻었다.",
                "player:p7",
                "살다",
                "방",
            ),
        ] {
            let whole = FactTexts {
                content,
                subject,
                predicate,
                object,
                ..FactTexts::default()
            };
            let (whole, bare) = (fact_terms(whole), fact(content));
            let other = fact("The harbour was quiet. 항구는 조용했다.");
            let of = |fact: &TermWeights| keyword(question, fact, &[fact.clone(), other.clone()]);
            assert!(of(&whole) > of(&bare) + 0.1, "{question} {} {}", of(&whole), of(&bare));
        }
        // The owner's id is no word, and what the content has counts once.
        let terms = |subject| {
            fact_terms(FactTexts {
                content: "Anna sails",
                subject,
                object: "Anna",
                ..FactTexts::default()
            })
        };
        assert_eq!(terms("player:p7"), fact("Anna sails"));
        let sister = search_terms("sister").0[0].0;
        assert!(terms("player:p7's sister").0.iter().any(|(term, _)| *term == sister));
    }

    #[test]
    fn bm25_factor_rises_and_stays_below_one() {
        assert!(keyword_factor(0.0).abs() < f64::EPSILON && keyword_factor(f64::NAN).abs() < f64::EPSILON);
        assert!(keyword_factor(1.0) > 0.4 && keyword_factor(2.0) > keyword_factor(1.0) && keyword_factor(1e9) <= 1.0);
    }

    proptest! {
        #[test]
        fn rarer_terms_weigh_more(facts in 1_u64..200_000, some in 0_u64..1_000, more in 0_u64..1_000) {
            let query = TermWeights(vec![(1, 1.0), (2, 1.0)]);
            let with_term = [(1, some.min(facts)), (2, (some + more).min(facts))].into();
            let weighed = TermStatistics { facts, with_term }.weigh_query(&query);
            let [(_, rare), (_, common)] = weighed.0[..] else { unreachable!("two terms") };
            prop_assert!(rare >= common && common > 0.0 && rare <= 1.0, "{rare} {common}");
        }

        #[test]
        fn terms_of_facts_are_sorted_and_bounded(text in "\\PC{0,200}", keywords in prop::collection::vec("\\PC{0,20}", 0..4)) {
            let fact = FactTexts { content: &text, keywords: &keywords, object: &text, ..FactTexts::default() };
            let terms = fact_terms(fact).0;
            prop_assert!(terms.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(terms.iter().all(|(_, weight)| *weight > 0.0 && *weight < 2.2));
        }
    }
}
