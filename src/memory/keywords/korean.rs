//! Particles and endings of Korean words, so that "과일이", "과일을" and "과일" share a stem.
//!
//! A short table, not a dictionary (docs/algorithms.md#korean-keywords). If the table removes too much, the unchanged
//! word is still among a document's terms.

use std::{collections::HashSet, sync::LazyLock};

const ENDINGS_DATA: &str = include_str!("../../../config/lexicon/stopwords/ko_endings.txt");

const FIRST_SYLLABLE: u32 = 0xAC00;
const LAST_SYLLABLE: u32 = 0xD7A3;
/// Final consonants in the order of Unicode: no consonant is 0.
const FINAL_COUNT: u32 = 28;
const FINAL_N: u32 = 4;
const FINAL_L: u32 = 8;
const FINAL_SS: u32 = 20;

/// The sound that a particle needs before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParticleContext {
    Any,
    Consonant,
    Vowel,
    VowelOrL,
}

struct KoreanTables {
    /// Longest first.
    particles: Vec<(Vec<char>, ParticleContext)>,
    /// Longest first.
    endings: Vec<Vec<char>>,
    /// Endings after a quoted statement in place of "다", longest first.
    quoting: Vec<Vec<char>>,
    keep: HashSet<Vec<char>>,
}

static KOREAN_TABLES: LazyLock<KoreanTables> = LazyLock::new(|| {
    let mut tables = KoreanTables {
        particles: Vec::new(),
        endings: Vec::new(),
        quoting: Vec::new(),
        keep: HashSet::new(),
    };
    let mut section = "";
    for line in ENDINGS_DATA
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        for word in line.split_whitespace().map(|word| word.chars().collect::<Vec<char>>()) {
            match section {
                "[particles:any]" => tables.particles.push((word, ParticleContext::Any)),
                "[particles:consonant]" => tables.particles.push((word, ParticleContext::Consonant)),
                "[particles:vowel]" => tables.particles.push((word, ParticleContext::Vowel)),
                "[particles:ro]" => tables.particles.push((word, ParticleContext::VowelOrL)),
                "[endings]" => tables.endings.push(word),
                "[quoting]" => tables.quoting.push(word),
                _ => {
                    tables.keep.insert(word);
                }
            }
        }
    }
    tables.particles.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
    tables.endings.sort_by_key(|word| std::cmp::Reverse(word.len()));
    tables.quoting.sort_by_key(|word| std::cmp::Reverse(word.len()));
    tables
});

/// True if `c` is a whole Hangul syllable.
#[must_use]
pub fn is_hangul(c: char) -> bool {
    (FIRST_SYLLABLE..=LAST_SYLLABLE).contains(&u32::from(c))
}

/// Index of the final consonant of a syllable; 0: the syllable ends in a vowel, or `c` is no syllable.
fn final_consonant_of(c: char) -> u32 {
    if is_hangul(c) {
        (u32::from(c) - FIRST_SYLLABLE) % FINAL_COUNT
    } else {
        0
    }
}

/// True if a syllable has the ㅆ of the past tense (있 and 겠 have another ㅆ).
pub fn is_past_syllable(c: char) -> bool {
    final_consonant_of(c) == FINAL_SS && c != '있' && c != '겠'
}

/// True if a syllable ends in ㄹ, as in "할 거야".
pub fn ends_in_l(c: char) -> bool {
    final_consonant_of(c) == FINAL_L
}

fn without_final(c: char) -> char {
    char::from_u32(u32::from(c) - final_consonant_of(c)).unwrap_or(c)
}

fn with_vowel(c: char, vowel: u32) -> char {
    let offset = u32::from(c) - FIRST_SYLLABLE;
    let initial = offset / (21 * FINAL_COUNT);
    char::from_u32(FIRST_SYLLABLE + (initial * 21 + vowel) * FINAL_COUNT).unwrap_or(c)
}

/// Undoes the contraction of a stem with 아/어: 와 → 오, 줘 → 주, 마셔 → 마시, 해 → 하, 돼 → 되.
fn undo_contraction(c: char) -> char {
    const O: u32 = 8;
    const OE: u32 = 11;
    const U: u32 = 13;
    const I: u32 = 20;
    if c == '해' {
        return '하';
    }
    match (u32::from(c) - FIRST_SYLLABLE) / FINAL_COUNT % 21 {
        6 => with_vowel(c, I),
        9 => with_vowel(c, O),
        10 => with_vowel(c, OE),
        14 => with_vowel(c, U),
        _ => c,
    }
}

/// The stem of a run of Hangul syllables. Empty only for an empty run.
pub fn stem_korean(word: &[char]) -> Vec<char> {
    let tables = &*KOREAN_TABLES;
    if tables.keep.contains(word) {
        return word.to_vec();
    }
    let mut stem = without_quotation(word, tables).unwrap_or_else(|| word.to_vec());
    if let Some(verb) = verb_stem(&stem, tables) {
        return verb;
    }
    // "친구들과는": up to three particles.
    for _ in 0..3 {
        let Some(start) = particle_start(&stem, tables) else {
            break;
        };
        stem.truncate(start);
        if tables.keep.contains(&stem) {
            break;
        }
    }
    stem
}

/// The quoted statement of a word: 마신다고, 마신다더라 and 마신댔지 quote 마신다.
fn without_quotation(word: &[char], tables: &KoreanTables) -> Option<Vec<char>> {
    let ending = tables.quoting.iter().find(|ending| word.ends_with(ending))?;
    let quoted = &word[..word.len() - ending.len()];
    // 기댔다 means "leaned": 댔 after a single open syllable is part of a verb, not a quotation.
    let is_verb = ending[0] == '댔' && quoted.len() == 1 && quoted.iter().all(|c| final_consonant_of(*c) == 0);
    (!quoted.is_empty() && !is_verb).then(|| quoted.iter().copied().chain(['다']).collect())
}

/// Adds to a name the particle that fits its last sound. `particle` is the form after a consonant (이, 은, 을, 과). Names
/// in other letters get both forms, because their pronunciation is unknown.
#[must_use]
pub fn with_particle(name: String, particle: &str) -> String {
    let (after_vowel, either) = match particle {
        "이" => ("가", "이(가)"),
        "은" => ("는", "은(는)"),
        "을" => ("를", "을(를)"),
        "과" => ("와", "와(과)"),
        other => (other, other),
    };
    let fitting = match name.chars().next_back() {
        Some(last) if is_hangul(last) && final_consonant_of(last) == 0 => after_vowel,
        Some(last) if is_hangul(last) => particle,
        _ => either,
    };
    name + fitting
}

/// True if a run is one particle, as "를" in "HP를".
pub fn is_particle(word: &[char]) -> bool {
    KOREAN_TABLES.particles.iter().any(|(particle, _)| particle == word)
}

/// True if a run consists of particles only, as "한테는" in "누나한테는".
pub fn is_only_particles(word: &[char]) -> bool {
    // Whether the word up to each place consists of particles. Some particles consist of others, so that a search by
    // recursion would take exponential time.
    let mut reached = vec![false; word.len() + 1];
    reached[0] = true;
    for index in 0..word.len() {
        if reached[index] {
            for (particle, _) in &KOREAN_TABLES.particles {
                if !particle.is_empty() && word[index..].starts_with(particle) {
                    reached[index + particle.len()] = true;
                }
            }
        }
    }
    reached[word.len()]
}

fn particle_start(word: &[char], tables: &KoreanTables) -> Option<usize> {
    tables.particles.iter().find_map(|(particle, after)| {
        if particle.len() >= word.len() || !word.ends_with(particle) {
            return None;
        }
        let start = word.len() - particle.len();
        let last = final_consonant_of(word[start - 1]);
        let fits = match after {
            ParticleContext::Any => true,
            ParticleContext::Consonant => last != 0,
            // "는" is a particle after a vowel, and an ending of a verb (먹는) after a consonant.
            ParticleContext::Vowel => last == 0 || particle.as_slice() == ['는'],
            ParticleContext::VowelOrL => last == 0 || last == FINAL_L,
        };
        fits.then_some(start)
    })
}

fn verb_stem(word: &[char], tables: &KoreanTables) -> Option<Vec<char>> {
    let without_ending = |in_past: bool| {
        let is_past = |ending: &[char]| ending.iter().any(|&c| is_past_syllable(c));
        let fits =
            |ending: &&Vec<char>| ending.len() < word.len() && word.ends_with(ending) && is_past(ending) == in_past;
        tables
            .endings
            .iter()
            .find(fits)
            .map(|ending| word[..word.len() - ending.len()].to_vec())
    };
    // 과일이었지 before 먹었지: the past of the copula belongs to the ending.
    if let Some(stem) = without_ending(true)
        .or_else(|| past_stem(word))
        .or_else(|| without_ending(false))
    {
        return Some(stem);
    }
    let (&last, rest) = word.split_last()?;
    let &before = rest.last()?;
    let mut stem = rest.to_vec();
    if last == '다' && final_consonant_of(before) == FINAL_N {
        // 간다, 마신다
        *stem.last_mut()? = without_final(before);
    } else if last == '요' && undo_contraction(before) != before {
        // 마셔요, 와요
        *stem.last_mut()? = undo_contraction(before);
    } else if !(last == '다' && word.len() > 2) {
        return None;
    }
    Some(without_light_verb(stem))
}

/// 마셨다 → 마시, 갔어 → 가, 먹었던 → 먹, 좋아했었지 → 좋아.
fn past_stem(word: &[char]) -> Option<Vec<char>> {
    let index = word.iter().position(|&c| is_past_syllable(c))?;
    let mut stem = word[..=index].to_vec();
    // An ending must follow; otherwise the word is no verb.
    let after = &word[index + 1..];
    let first = after.first()?;
    if !"다어지던는습네을고으니나거죠더".contains(*first) {
        return None;
    }
    let syllable = stem.pop()?;
    if !matches!(syllable, '었' | '았' | '였') || stem.is_empty() {
        stem.push(undo_contraction(without_final(syllable)));
    }
    Some(without_light_verb(stem))
}

/// 공부하 → 공부: the noun carries the meaning.
fn without_light_verb(mut stem: Vec<char>) -> Vec<char> {
    if stem.len() >= 2 && matches!(stem.last(), Some('하' | '되')) {
        stem.pop();
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem_of(word: &str) -> String {
        stem_korean(&word.chars().collect::<Vec<_>>()).into_iter().collect()
    }

    #[test]
    fn particles_are_stripped() {
        for (word, expected) in [
            ("과일이", "과일"),
            ("과일을", "과일"),
            ("과일", "과일"),
            ("과일은", "과일"),
            ("과일이야", "과일"),
            ("과일이었지", "과일"),
            ("포도를", "포도"),
            ("포도는", "포도"),
            ("포도", "포도"),
            ("포도도", "포도"),
            ("검을", "검"),
            ("마을", "마을"),
            ("마을에서는", "마을"),
            ("고양이", "고양이"),
            ("고양이가", "고양이"),
            ("친구들과는", "친구"),
            ("학교에서", "학교"),
            ("서울로", "서울"),
            ("숲으로", "숲"),
            ("에르겐에게", "에르겐"),
            ("민수랑", "민수"),
            ("플레이어는", "플레이어"),
        ] {
            assert_eq!(stem_of(word), expected, "{word}");
        }
    }

    #[test]
    fn verbs_are_reduced_to_a_stem() {
        for (word, expected) in [
            ("좋아하는", "좋아"),
            ("좋아한다", "좋아"),
            ("좋아해", "좋아해"),
            ("좋아해요", "좋아"),
            ("좋아했던", "좋아"),
            ("좋아했었지", "좋아"),
            ("먹는", "먹"),
            ("먹는다", "먹"),
            ("먹었어", "먹"),
            ("마신다", "마시"),
            ("마셨다", "마시"),
            ("마셔요", "마시"),
            ("갔어", "가"),
            ("왔지", "오"),
            ("싸웠다", "싸우"),
            ("공부했어", "공부"),
            ("여행하고", "여행"),
            // A quoted statement of another person.
            ("마신다고", "마시"),
            ("마신다더라", "마시"),
            ("마신댔지", "마시"),
            ("마신댔던가", "마시"),
            ("마시냐고", "마시"),
            ("마시자고", "마시"),
            ("먹는다던데", "먹"),
            ("산댔더라", "사"),
            ("좋아한다면서", "좋아"),
            ("아프댔던가", "아프"),
            ("첩자라고", "첩자"),
            ("무너졌다고", "무너지"),
            ("좋다고", "좋다"),
            ("없댔지", "없다"),
            ("바다는", "바다"),
            ("기댔다", "기대"),
        ] {
            assert_eq!(stem_of(word), expected, "{word}");
        }
    }

    #[test]
    fn particles_agree_with_the_final_sound() {
        for (name, particle, expected) in [
            ("옥분", "과", "옥분과"),
            ("미라", "과", "미라와"),
            ("옥분", "이", "옥분이"),
            ("미라", "이", "미라가"),
            ("미라, 에르겐", "은", "미라, 에르겐은"),
            ("미라", "을", "미라를"),
            ("Mira", "과", "Mira와(과)"),
            ("Mira", "이", "Mira이(가)"),
            ("", "이", "이(가)"),
        ] {
            assert_eq!(with_particle(name.to_owned(), particle), expected);
        }
    }

    #[test]
    fn stemming_never_empties_a_word() {
        use proptest::prelude::*;
        for word in ["은", "이", "에서", "하는", "다", "요", "들", "가"] {
            assert!(!stem_of(word).is_empty(), "{word}");
        }
        proptest!(|(word in "[가-힣]{1,8}")| {
            prop_assert!(!stem_of(&word).is_empty());
        });
    }
}
