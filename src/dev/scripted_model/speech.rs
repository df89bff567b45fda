//! Turns remembered sentences into speech. "The player likes grapes." becomes "you like grapes". "플레이어는 포도를
//! 좋아한다." becomes "포도를 좋아한다", ready for "…고 했지".

use super::{korean, lexicon, render};
use colloquy_memory::authored::Language;

/// Returns a remembered sentence in the NPC's words, without a full stop. `None`: the sentence is in another language
/// than the NPC's, or its form cannot be converted.
pub(super) fn reported_clause(language: Language, content: &str, npc: &str) -> Option<String> {
    let content = content.trim().trim_end_matches(['.', '!', '。']).trim();
    if content.is_empty()
        || lexicon::language_of(content) != language && lexicon::language_of(&content.replace(npc, "")) != language
    {
        return None;
    }
    match language {
        Language::En => Some(english_speech(content, npc)),
        Language::Ko => korean_reported_clause(content, npc),
    }
}

/// Returns the same words as a complete sentence.
pub(super) fn spoken_sentence(language: Language, content: &str, npc: &str) -> String {
    let text = content.trim().trim_end_matches(['.', '。']);
    match language {
        Language::En => format!("{}.", render::capitalise(&english_speech(text, npc))),
        Language::Ko => format!("{}.", drop_subject(text, npc)),
    }
}

fn english_speech(content: &str, npc: &str) -> String {
    let mut text = content.to_owned();
    for (from, to) in [
        ("The player's ", "your "),
        ("the player's ", "your "),
        ("The player ", "you "),
        ("the player ", "you "),
    ] {
        text = text.replace(from, to);
    }
    if let Some(start) = text.strip_suffix("the player") {
        text = format!("{start}you");
    }
    if !npc.is_empty() {
        if let Some(rest) = text.strip_prefix(&format!("{npc}'s ")) {
            text = format!("my {rest}");
        } else if let Some(rest) = text.strip_prefix(&format!("{npc} ")) {
            text = conjugate_verb("I", rest);
        }
        text = text.replace(&format!(" {npc}'s "), " my ");
        if !text.contains(&format!(" and {npc} ")) {
            text = text.replace(&format!(" {npc} "), " me ");
        }
        if let Some(start) = text.strip_suffix(&format!(" {npc}")) {
            text = format!("{start} me");
        }
    }
    match text.strip_prefix("you ") {
        Some(rest) => conjugate_verb("you", rest),
        None => text,
    }
}

/// Conjugates the verb of a third-person sentence for "I" or "you".
fn conjugate_verb(subject: &str, rest: &str) -> String {
    let mut words: Vec<String> = rest.split(' ').map(str::to_owned).collect();
    let verb_index = words
        .iter()
        .position(|word| {
            ![
                "no", "longer", "now", "always", "often", "usually", "never", "also", "still", "really",
            ]
            .contains(&word.as_str())
        })
        .unwrap_or(0);
    if let Some(verb) = words.get_mut(verb_index) {
        *verb = match (verb.as_str(), subject) {
            ("is", "I") => "am".to_owned(),
            ("is", _) => "are".to_owned(),
            ("was", "you") => "were".to_owned(),
            ("has", _) => "have".to_owned(),
            ("does", _) => "do".to_owned(),
            ("was", _) => "was".to_owned(),
            (other, _) => base_form(other),
        };
    }
    format!("{subject} {}", words.join(" "))
}

fn base_form(verb: &str) -> String {
    if let Some(stem) = verb.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    for end in ["ches", "shes", "sses", "xes", "zes", "oes"] {
        if verb.ends_with(end) {
            return verb[..verb.len() - 2].to_owned();
        }
    }
    match verb.strip_suffix('s') {
        Some(stem) if !stem.ends_with('s') && stem.len() > 1 => stem.to_owned(),
        _ => verb.to_owned(),
    }
}

fn drop_subject(content: &str, npc: &str) -> String {
    let player = ["플레이어에게는 ", "플레이어는 ", "플레이어가 ", "플레이어의 "].map(str::to_owned);
    let npc_subjects = ["에게는 ", "은 ", "는 ", "이 ", "가 ", "의 "].map(|particle| format!("{npc}{particle}"));
    player
        .iter()
        .chain(npc_subjects.iter().filter(|_| !npc.is_empty()))
        .find_map(|start| content.strip_prefix(start.as_str()))
        .map_or_else(|| spoken_to(content), spoken_to)
}

/// "플레이어를 사랑한다", said to the player.
fn spoken_to(text: &str) -> String {
    [
        ("플레이어를", "당신을"),
        ("플레이어는", "당신은"),
        ("플레이어가", "당신이"),
        ("플레이어와", "당신과"),
        ("플레이어로", "당신으로"),
        ("플레이어다", "당신이다"),
        ("플레이어", "당신"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns the quotable stem, the same before 고, 는 and 니. "포도다" → "포도라", "좋아한다" stays.
fn korean_reported_clause(content: &str, npc: &str) -> Option<String> {
    let text = drop_subject(content, npc);
    let stem = text.strip_suffix('다')?;
    if let Some(noun) = stem
        .strip_suffix('이')
        .filter(|noun| korean::ends_in_consonant(noun) || noun.ends_with('이'))
    {
        return Some(format!("{noun}이라"));
    }
    let last = stem.chars().next_back()?;
    let adjective = ['크', '프', '쁘', '니', '르', '여', '였'].contains(&last);
    if !korean::ends_in_consonant(stem) && !adjective {
        // A noun with the copula. After an open noun ("제빵사이다"), the 이 of 이다 is dropped.
        let noun = stem
            .strip_suffix('이')
            .filter(|noun| noun.chars().count() > 1)
            .unwrap_or(stem);
        return Some(format!("{noun}라"));
    }
    Some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn english_memories_are_addressed_to_the_player() {
        let cases = [
            ("The player likes grapes.", "you like grapes"),
            ("The player no longer likes apples.", "you no longer like apples"),
            ("The player now prefers apples.", "you now prefer apples"),
            ("The player is allergic to nuts.", "you are allergic to nuts"),
            ("The player was born in Vale.", "you were born in Vale"),
            ("The player has a dog.", "you have a dog"),
            ("The player does not eat meat.", "you do not eat meat"),
            ("The player's name is Tom.", "your name is Tom"),
            ("The player's sister likes tea.", "your sister likes tea"),
            ("The player teaches magic.", "you teach magic"),
            ("Mira promised to help.", "I promised to help"),
            ("Mira is afraid of the player.", "I am afraid of you"),
            ("The player likes Mira.", "you like me"),
            ("The player's boss is Tess.", "your boss is Tess"),
        ];
        for (content, expected) in cases {
            assert_eq!(reported_clause(Language::En, content, "Mira").unwrap(), expected);
        }
        assert_eq!(
            reported_clause(Language::En, "플레이어는 포도를 좋아한다.", "Mira"),
            None
        );
    }

    #[test]
    fn korean_memories_can_be_quoted() {
        let cases = [
            ("플레이어는 포도를 좋아한다.", "포도를 좋아한다"),
            ("플레이어의 이름은 민수다.", "이름은 민수라"),
            ("플레이어의 이름은 지영이다.", "이름은 지영이라"),
            ("플레이어는 상인이다.", "상인이라"),
            ("플레이어는 제빵사이다.", "제빵사라"),
            ("플레이어의 동생은 차를 좋아한다.", "동생은 차를 좋아한다"),
            ("플레이어에게는 고양이가 있다.", "고양이가 있다"),
            ("에르겐은 돕겠다고 약속했다.", "돕겠다고 약속했다"),
            ("플레이어의 엄마는 플레이어를 사랑한다.", "엄마는 당신을 사랑한다"),
            ("플레이어가 가장 좋아하는 과일은 포도다.", "가장 좋아하는 과일은 포도라"),
        ];
        for (content, expected) in cases {
            assert_eq!(
                reported_clause(Language::Ko, content, "에르겐").unwrap(),
                expected,
                "{content}"
            );
        }
    }
}
