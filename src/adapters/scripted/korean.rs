//! What Korean spelling demands: particles that follow the final sound of a word.

/// Whether a character is a Hangul syllable or letter.
pub(super) fn is_hangul(c: char) -> bool {
    matches!(c, '가'..='힣' | 'ㄱ'..='ㅎ' | 'ㅏ'..='ㅣ')
}

/// The final consonant of a syllable block: 0 for none, 8 for ㄹ.
fn final_of(c: char) -> u32 {
    match c {
        '가'..='힣' => (u32::from(c) - u32::from('가')) % 28,
        // Read as Korean reads them: 영 일 삼 육 칠 팔 end in a consonant.
        '1' | '7' | '8' | 'l' | 'L' | 'r' | 'R' => 8,
        '0' | '3' | '6' => 1,
        c if c.is_ascii_alphabetic() && !"aeiouyw".contains(c.to_ascii_lowercase()) => 1,
        _ => 0,
    }
}

/// Whether the word ends in a consonant.
pub(super) fn closes(word: &str) -> bool {
    word.chars().next_back().is_some_and(|c| final_of(c) != 0)
}

/// Whether the syllable ends in ㅆ, as past stems do (했, 었, 렸).
pub(super) fn is_past_stem(c: char) -> bool {
    is_hangul(c) && final_of(c) == 20
}

/// The particle in the form that fits `word`. `particle` is named by its form after a consonant.
pub(super) fn particle(word: &str, particle: &str) -> String {
    let closed = closes(word);
    match particle {
        "은" if !closed => "는",
        "이" if !closed => "가",
        "을" if !closed => "를",
        "과" if !closed => "와",
        "이다" if !closed => "다",
        "이었다" if !closed => "였다",
        "으로" if !closed || word.chars().next_back().is_some_and(|c| final_of(c) == 8) => "로",
        "이라" if !closed => "라",
        "이에요" if !closed => "예요",
        other => other,
    }
    .to_owned()
}

/// Whether `particle`, as written, can follow `word`.
pub(super) fn fits(word: &str, particle: &str) -> bool {
    match particle {
        "은" | "이" | "을" => closes(word),
        "는" | "가" | "를" => !closes(word),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_follow_the_last_sound() {
        assert_eq!(particle("포도", "을"), "를");
        assert_eq!(particle("수박", "을"), "을");
        assert_eq!(particle("민수", "이다"), "다");
        assert_eq!(particle("서울", "으로"), "로");
        assert_eq!(particle("숲", "으로"), "으로");
        assert_eq!(particle("Mira", "은"), "는");
        assert!(fits("수박", "이") && !fits("포도", "이"));
    }
}
