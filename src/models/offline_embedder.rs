//! The offline embedder: no model, only hashed words, pieces of words and a small table of concepts.
//!
//! The embedder is purely lexical. It recognises a paraphrase by shared words, a broader category by a fact's keywords,
//! and a few dozen concepts ("afraid", "무서워" → fear) by name. The quality is good enough to show memory at work
//! without an API key. The result has the same bits on every platform.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use async_trait::async_trait;

use colloquy_memory::{calibration::Calibration, keywords};
use colloquy_ports::{
    embedder::{EmbedAs, Embedder, EmbedderInfo},
    llm::LlmError,
};

/// The name of the vector space. A changed weight or concept makes another space and needs a new name, so that vectors
/// of the two are not compared.
pub const MODEL: &str = "colloquy-offline";
/// The length of every vector.
pub const DIMENSIONS: usize = 512;

/// The relative weights of a word, a fact's keyword, a concept and a piece of a word. Chosen on
/// `config/calibration/pairs.tsv`; the tests show the results there.
const WORD_WEIGHT: f32 = 1.0;
const KEYWORD_WEIGHT: f32 = 0.8;
const CONCEPT_WEIGHT: f32 = 0.7;
const PIECE_WEIGHT: f32 = 0.35;
/// Separates "likes" from "hates" and from "used to like", since the sentences share nearly every word.
const REVERSAL_WEIGHT: f32 = 1.1;
/// `1 + ln(n)` for n mentions, as constants, so that the result does not depend on a platform's logarithm.
const MENTION_WEIGHTS: [f32; 5] = [0.0, 1.0, 1.693_147, 2.098_612, 2.386_294];

/// Measured on `config/calibration/pairs.tsv`. Cosines of unrelated texts have a median of 0.00 and at most 0.16.
/// Questions and their answers have 0.6 to 0.8, and paraphrases 0.7 and up. `same` is high, since words alone hardly
/// prove two facts the same. `related` is below "lives in Oakford" / "lives in Riverton".
const CALIBRATION: Calibration = Calibration {
    floor: 0.0,
    ceiling: 0.95,
    answer: Some(0.8),
    same: 0.99,
    related: 0.43,
};

/// Concepts by whole English word, and by the beginning of a Korean word.
struct Concepts {
    english: HashMap<&'static str, Vec<&'static str>>,
    korean: Vec<(&'static str, &'static str)>,
}

static CONCEPTS: LazyLock<Concepts> = LazyLock::new(|| {
    let mut english: HashMap<_, Vec<_>> = HashMap::new();
    for (concept, word) in parse_concept_rows(include_str!("../../config/lexicon/en/concepts.tsv")) {
        english.entry(word).or_default().push(concept);
    }
    let korean = parse_concept_rows(include_str!("../../config/lexicon/ko/concepts.tsv"))
        .map(|(concept, word)| (word, concept))
        .collect();
    Concepts { english, korean }
});

fn parse_concept_rows(source: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    source
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .flat_map(|(concept, words)| words.split(',').map(move |word| (concept, word.trim())))
}

/// An embedder without a model.
#[derive(Debug, Clone)]
pub struct OfflineEmbedder {
    info: EmbedderInfo,
}

impl OfflineEmbedder {
    #[must_use]
    pub fn new() -> Self {
        Self {
            info: EmbedderInfo {
                model: MODEL.to_owned(),
                dimensions: DIMENSIONS,
                calibration: CALIBRATION,
                offline: true,
            },
        }
    }
}

impl Default for OfflineEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Embedder for OfflineEmbedder {
    /// Embeds both kinds alike, except that a question's "not" and "once" are ignored: they do not describe the
    /// question's topic. Never fails.
    async fn embed_texts(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        Ok(texts.iter().map(|text| embed_text(kind, text)).collect())
    }

    fn info(&self) -> &EmbedderInfo {
        &self.info
    }
}

/// The kind of a feature. Separates a word from a concept of the same name.
#[derive(Clone, Copy)]
enum Feature {
    Term = 1,
    Concept = 2,
    Piece = 3,
    /// Only for texts without any other feature.
    Raw = 4,
}

fn embed_text(kind: EmbedAs, text: &str) -> Vec<f32> {
    let (content, keywords) = split_keywords(text);
    let mut features = BTreeMap::new();
    let mut concepts = BTreeMap::new();
    for (part, weight) in [(content, WORD_WEIGHT), (keywords, KEYWORD_WEIGHT)] {
        for &(term, informative) in &keywords::whole_terms(part).0 {
            let entry: &mut f32 = features.entry(feature_key(Feature::Term, term)).or_default();
            *entry = entry.max(weight * informative);
        }
        for word in split_words(part) {
            count_concepts(&word, &mut concepts);
            add_pieces(&word, weight, &mut features);
        }
    }
    for (concept, mentions) in concepts {
        let tf = MENTION_WEIGHTS[mentions.min(MENTION_WEIGHTS.len() - 1)];
        if kind == EmbedAs::Query && concept.starts_with('!') {
            continue;
        }
        // Concepts that reverse a statement are marked with `!` and count once.
        let weight = if concept.starts_with('!') {
            REVERSAL_WEIGHT
        } else {
            CONCEPT_WEIGHT * tf
        };
        features.insert(feature_key(Feature::Concept, fnv_hash(concept)), weight);
    }
    if features.is_empty() {
        let letters: Vec<char> = keywords::normalise_text(text).chars().collect();
        for pair in letters.windows(2) {
            features.insert(
                feature_key(Feature::Raw, fnv_hash(&pair.iter().collect::<String>())),
                1.0,
            );
        }
    }
    project_features(&features)
}

/// Splits `content (Keywords: k1, k2)` into its two parts (`memory::embedded_text`).
fn split_keywords(text: &str) -> (&str, &str) {
    text.strip_suffix(')')
        .and_then(|text| text.rsplit_once(" (Keywords: "))
        .unwrap_or((text, ""))
}

fn split_words(text: &str) -> Vec<String> {
    keywords::normalise_text(text)
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn count_concepts(word: &str, counts: &mut BTreeMap<&'static str, usize>) {
    let concepts = &*CONCEPTS;
    let singular = word.strip_suffix('s').unwrap_or(word);
    if let Some(matches) = concepts.english.get(word).or_else(|| concepts.english.get(singular)) {
        for concept in matches {
            *counts.entry(concept).or_default() += 1;
        }
        return;
    }
    let syllables = word.chars().count();
    for (start, concept) in &concepts.korean {
        // A single syllable begins too many long words to be meaningful.
        let short = start.chars().count() == 1;
        if word.starts_with(start) && (!short || syllables <= 3) {
            *counts.entry(concept).or_default() += 1;
        }
    }
}

/// Adds three-letter pieces of longer words: "blacksmith" and "smith", or "grape" and "grapes", share most pieces.
fn add_pieces(word: &str, weight: f32, features: &mut BTreeMap<u64, f32>) {
    let informative = keywords::whole_terms(word)
        .0
        .iter()
        .map(|term| term.1)
        .fold(0.0, f32::max);
    let letters: Vec<char> = word.chars().collect();
    if informative <= 0.0 || letters.len() < 4 || !letters.iter().all(char::is_ascii_alphabetic) {
        return;
    }
    // A long word has more pieces, but not more meaning.
    let pieces = f32::from(u16::try_from(letters.len() - 2).unwrap_or(u16::MAX));
    let piece_weight = PIECE_WEIGHT * weight * informative * 2.0 / pieces.sqrt();
    for piece in letters.windows(3) {
        let entry: &mut f32 = features
            .entry(feature_key(Feature::Piece, fnv_hash(&piece.iter().collect::<String>())))
            .or_default();
        *entry = entry.max(piece_weight);
    }
}

fn feature_key(feature: Feature, hash: u64) -> u64 {
    mix_bits(hash ^ ((feature as u64) << 56))
}

/// Returns the 64-bit FNV-1a hash: the same on every machine and in every version.
pub fn fnv_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finaliser of SplitMix64: every bit of the hash depends on every bit of the input.
fn mix_bits(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Adds the features to a vector by signed hashing, and scales the vector to length 1. Each feature has two places, so
/// that two features with a common place still differ in the other place.
fn project_features(features: &BTreeMap<u64, f32>) -> Vec<f32> {
    let mut vector = vec![0.0_f32; DIMENSIONS];
    for (&hash, &weight) in features {
        for half in [hash, mix_bits(hash.wrapping_add(0x9e37_79b9_7f4a_7c15))] {
            #[expect(clippy::cast_possible_truncation, reason = "the rest of a division by 512")]
            let place = (half % DIMENSIONS as u64) as usize;
            vector[place] += if half >> 63 == 0 { weight } else { -weight };
        }
    }
    scale_to_unit(&mut vector);
    vector
}

/// Scales a vector to length 1.
pub fn scale_to_unit(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        for x in vector {
            *x /= length;
        }
    } else {
        // A text without features still needs a unit vector, near only to other such texts.
        vector[0] = 1.0;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_memory::calibration::{PairLabel, fit_calibration};

    fn near(kind: EmbedAs, a: &str, b: &str) -> f32 {
        let b = embed_text(EmbedAs::Passage, b);
        embed_text(kind, a).iter().zip(b).map(|(x, y)| x * y).sum()
    }

    fn fact(content: &str, keywords: &str) -> String {
        format!("{content} (Keywords: {keywords})")
    }

    fn pairs() -> Vec<(PairLabel, EmbedAs, f32)> {
        include_str!("../../config/calibration/pairs.tsv")
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| {
                let cells: Vec<&str> = line.split('\t').collect();
                let label = match cells[0] {
                    "same" => PairLabel::Same,
                    "related" => PairLabel::Related,
                    _ => PairLabel::Unrelated,
                };
                let kind = if cells[1] == "query" {
                    EmbedAs::Query
                } else {
                    EmbedAs::Passage
                };
                (label, kind, near(kind, cells[2], cells[3]))
            })
            .collect()
    }

    /// Returns the share of (near, far) pairs in the right order.
    fn auc(near: &[f32], far: &[f32]) -> f64 {
        let right = near
            .iter()
            .flat_map(|n| far.iter().map(move |f| n > f))
            .filter(|right| *right)
            .count();
        f64::from(u32::try_from(right).unwrap()) / f64::from(u32::try_from(near.len() * far.len()).unwrap())
    }

    #[test]
    fn labelled_pairs_are_separated() {
        let all = pairs();
        let of = |label: PairLabel, kind: EmbedAs| -> Vec<f32> {
            all.iter()
                .filter(|pair| pair.0 == label && pair.1 == kind)
                .map(|pair| pair.2)
                .collect()
        };
        let unrelated = of(PairLabel::Unrelated, EmbedAs::Passage);
        let same = auc(&of(PairLabel::Same, EmbedAs::Passage), &unrelated);
        let answers = auc(
            &of(PairLabel::Related, EmbedAs::Query),
            &of(PairLabel::Unrelated, EmbedAs::Query),
        );
        assert!(same > 0.98, "paraphrases: {same}");
        assert!(answers > 0.93, "answers: {answers}");
        // Unrelated texts must not even reach a judge.
        let calibration = OfflineEmbedder::new().info.calibration;
        let related = f64::from(calibration.related);
        assert!(
            unrelated
                .iter()
                .all(|cosine| calibration.similarity_of(*cosine) < related)
        );
        assert!(fit_calibration(&all.iter().map(|pair| (pair.2, pair.0)).collect::<Vec<_>>()).is_ok());
        assert!(calibration.floor < calibration.ceiling && calibration.related < calibration.same);
    }

    #[test]
    fn possible_contradictions_are_sent_to_the_judge() {
        let calibration = OfflineEmbedder::new().info.calibration;
        let apples = fact("The player likes apples.", "apple, apples, fruit, food, preference");
        let sagwa = fact("플레이어는 사과를 좋아한다.", "사과, 과일, 음식, 선호");
        let judged = [
            (
                &apples,
                fact(
                    "The player hates apples.",
                    "apple, apples, fruit, food, preference, dislike",
                ),
            ),
            (
                &apples,
                fact(
                    "The player no longer likes apples.",
                    "apple, apples, fruit, food, preference",
                ),
            ),
            (
                &apples,
                fact(
                    "The player used to like apples.",
                    "apple, apples, fruit, food, preference",
                ),
            ),
            (
                &apples,
                fact("The player likes grapes.", "grape, grapes, fruit, food, preference"),
            ),
            (
                &sagwa,
                fact("플레이어는 사과를 싫어한다.", "사과, 과일, 음식, 선호, 싫음"),
            ),
            (
                &sagwa,
                fact("플레이어는 더 이상 사과를 좋아하지 않는다.", "사과, 과일, 음식, 선호"),
            ),
            (
                &sagwa,
                fact("플레이어는 예전에 사과를 좋아했다.", "사과, 과일, 음식, 선호"),
            ),
        ];
        let in_oakford = fact("The player lives in Oakford.", "oakford, home, place");
        let moved = (
            &in_oakford,
            fact("The player lives in Riverton.", "riverton, home, place"),
        );
        let minsu = fact("플레이어의 이름은 민수다.", "민수, 이름");
        let renamed = (&minsu, fact("플레이어의 이름은 철수다.", "철수, 이름"));
        for (older, newer) in judged.iter().chain([&moved, &renamed]) {
            let relevance = calibration.similarity_of(near(EmbedAs::Passage, older, newer));
            let zone = f64::from(calibration.related)..f64::from(calibration.same);
            assert!(zone.contains(&relevance), "{relevance:.2}: {older} / {newer}");
        }
        let loved = fact("The player loves apples.", "apple, apples, fruit, food, preference");
        assert!(calibration.similarity_of(near(EmbedAs::Passage, &apples, &loved)) >= f64::from(calibration.same));
    }

    #[test]
    fn category_query_finds_its_members() {
        let facts = [
            fact("The player likes grapes.", "grape, grapes, fruit, food, preference"),
            fact("The player likes tea.", "tea, drink, preference"),
            fact("The player has a dog.", "dog, pet, animal, possession"),
            fact("플레이어는 포도를 좋아한다.", "포도, 과일, 음식, 선호"),
            fact("플레이어는 고양이를 키운다.", "고양이, 반려동물, 동물"),
            fact("플레이어의 이름은 민수다.", "민수, 이름"),
        ];
        for (question, best) in [
            ("what fruit do I like?", 0),
            ("what animal do I have?", 2),
            ("내가 좋아하는 과일이 뭐였지?", 3),
            ("내 이름이 뭐였지?", 5),
        ] {
            let scores: Vec<f32> = facts.iter().map(|fact| near(EmbedAs::Query, question, fact)).collect();
            let top = (0..facts.len())
                .max_by(|a, b| scores[*a].total_cmp(&scores[*b]))
                .unwrap();
            assert_eq!(top, best, "{question}: {scores:?}");
        }
    }

    #[test]
    fn vectors_never_change() {
        // A digest of the signs reveals a platform or a change that alters the vector space.
        let vector = embed_text(
            EmbedAs::Passage,
            "The player likes grapes. 포도 (Keywords: grape, 과일)",
        );
        let signs: String = vector
            .iter()
            .map(|x| {
                if *x > 0.0 {
                    '+'
                } else if *x < 0.0 {
                    '-'
                } else {
                    '0'
                }
            })
            .collect();
        assert_eq!(format!("{:016x}", fnv_hash(&signs)), "d439a5c1ddbdc447");
    }

    proptest::proptest! {
        #[test]
        fn texts_all_have_a_unit_vector(text in "\\PC{0,60}") {
            let vector = embed_text(EmbedAs::Passage, &text);
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            proptest::prop_assert!(vector.len() == DIMENSIONS && (length - 1.0).abs() < 1e-3);
        }
    }
}
