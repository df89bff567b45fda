//! Texts that speak of dying.

use crate::keywords::sentence_key;

/// Words of dying. A blank is the edge of a word; a Korean word may go on with any ending.
const WORDS_OF_DYING: [&str; 36] = [
    " died ",
    " dying ",
    " dead ",
    " death ",
    " deaths ",
    " killed ",
    " murdered ",
    " perished ",
    " buried ",
    " burial ",
    " funeral ",
    " mourn",
    " passed away ",
    " 죽었",
    " 죽은 ",
    " 죽음",
    " 죽다니",
    " 죽던",
    " 죽으",
    " 죽였",
    " 죽인",
    " 돌아가셨",
    " 돌아가시",
    " 돌아가신",
    " 사망",
    " 별세",
    " 부고",
    " 장례",
    " 초상",
    " 문상",
    " 조문",
    " 빈소",
    " 세상을 떠",
    " 세상을 떴",
    " 숨졌",
    " 숨을 거",
];

/// True if a text speaks of dying, as in "Who died?" or "누가 죽었다며?".
#[must_use]
pub fn speaks_of_death(text: &str) -> bool {
    // "초상화" is a portrait, not a death.
    let words = format!(" {} ", sentence_key(text)).replace(" 초상화", " ");
    WORDS_OF_DYING.iter().any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_dying_are_recognised() {
        for (text, speaks) in [
            ("Did you hear who died at the face last week?", true),
            ("Is somebody DEAD?", true),
            ("When's the funeral?", true),
            ("She passed away, they say.", true),
            ("누가 죽었다며?", true),
            ("할멈이 돌아가셨다면서요.", true),
            ("장례는 언제예요?", true),
            ("어느 집에 초상이 났어요?", true),
            ("Is the deadline today?", false),
            ("I passed the mill.", false),
            ("초상화를 그려 주세요.", false),
            ("죽 한 그릇 주세요.", false),
            ("배고파 죽겠어요.", false),
            ("", false),
        ] {
            assert_eq!(speaks_of_death(text), speaks, "{text}");
        }
    }
}
