//! Korean spelling rules: particles depend on the final sound of a word.

/// True for a Hangul syllable or letter.
pub(super) fn is_hangul(c: char) -> bool {
    matches!(c, '가'..='힣' | 'ㄱ'..='ㅎ' | 'ㅏ'..='ㅣ')
}

/// True for a whole Hangul syllable, whose last sound is known.
pub(super) fn is_syllable(c: char) -> bool {
    matches!(c, '가'..='힣')
}

/// Returns the final consonant of a syllable block: 0 for no consonant, 8 for ㄹ.
fn final_of(c: char) -> u32 {
    match c {
        '가'..='힣' => (u32::from(c) - u32::from('가')) % 28,
        // In Korean, the numbers 영 일 삼 육 칠 팔 end in a consonant, as do words that end in these letters.
        '1' | '7' | '8' | 'l' | 'L' => 8,
        '0' | '3' | '6' | 'm' | 'n' | 'M' | 'N' => 1,
        _ => 0,
    }
}

fn last_final(word: &str) -> u32 {
    word.chars().next_back().map_or(0, final_of)
}

/// True if the word ends in a consonant.
pub(super) fn ends_in_consonant(word: &str) -> bool {
    last_final(word) != 0
}

/// True if the syllable ends in ㅆ, like past stems (했, 었, 렸).
pub(super) fn is_past_stem(c: char) -> bool {
    is_hangul(c) && final_of(c) == 20
}

/// Returns the form of the particle that fits `word`. The argument `particle` is the form after a consonant.
pub(super) fn fitting_particle(word: &str, particle: &str) -> String {
    let closed = ends_in_consonant(word);
    match particle {
        "은" if !closed => "는",
        "이" if !closed => "가",
        "을" if !closed => "를",
        "과" if !closed => "와",
        "이다" if !closed => "다",
        "이었다" if !closed => "였다",
        "으로" if !closed || last_final(word) == 8 => "로",
        "이라" if !closed => "라",
        "이에요" if !closed => "예요",
        other => other,
    }
    .to_owned()
}

/// True if `particle`, as written, can follow `word`. Also true after foreign letters and emojis, whose reading only
/// the writer knows.
pub(super) fn can_follow(word: &str, particle: &str) -> bool {
    if !word.chars().next_back().is_some_and(is_syllable) {
        return !word.is_empty();
    }
    match particle {
        "은" | "이" | "을" => ends_in_consonant(word),
        "는" | "가" | "를" => !ends_in_consonant(word),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_agree_with_the_final_sound() {
        assert_eq!(fitting_particle("포도", "을"), "를");
        assert_eq!(fitting_particle("수박", "을"), "을");
        assert_eq!(fitting_particle("민수", "이다"), "다");
        assert_eq!(fitting_particle("서울", "으로"), "로");
        assert_eq!(fitting_particle("숲", "으로"), "으로");
        assert_eq!(fitting_particle("Mira", "은"), "는");
        assert!(can_follow("수박", "이") && !can_follow("포도", "이"));
        for (word, object) in [
            ("BTS", "를"),
            ("Python", "을"),
            ("HTML", "을"),
            ("3D", "를"),
            ("🍇", "를"),
        ] {
            assert_eq!(fitting_particle(word, "을"), object, "{word}");
            assert!(can_follow(word, "을") && can_follow(word, "를"), "{word}");
        }
    }
}
