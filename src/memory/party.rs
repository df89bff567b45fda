//! The subject and the speaker of a statement.
//!
//! A player is stored as `player:<id>`. A statement of one player about the player is therefore never compared with, or
//! forgotten for, another player. Models know only one player, the partner of the dialogue, and read and write plain
//! `player`. Texts from a model are bound to the id; texts for a model are made plain.

use std::borrow::Cow;

use super::keywords::{is_hangul, korean_stem, normalise_text};
use colloquy_core::ids::PlayerId;

/// The speaker of authored text: no person in the world said the text.
pub const AUTHOR: &str = "author";
/// The models' word for the partner of the NPC.
pub const PLAYER: &str = "player";
/// Other words of models for the player.
const PLAYER_WORDS: [&str; 5] = ["player", "the player", "user", "the user", "플레이어"];
/// The marks of an owner, and the text of the owner in front of each mark.
const POSSESSIVE_MARKS: [(&str, &str); 3] = [
    ("'s ", "the player's "),
    ("\u{2019}s ", "the player's "),
    ("의 ", "플레이어의 "),
];

/// The stored name of a player: `player:p7`.
#[must_use]
pub fn player_key(player: &PlayerId) -> String {
    format!("{PLAYER}:{player}")
}

/// True if `name` means the player of the dialogue, without naming an id.
#[must_use]
pub fn means_player(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    PLAYER_WORDS.contains(&name.as_str())
}

/// Binds `player` in `name`, alone or as an owner ("the player's sister"), to the id of `player`. Without an id, only
/// the spelling of `player` is unified.
///
/// A name that already looks like a key is bound to no player, because a model repeats text that players type.
#[must_use]
pub fn bind_to_player(name: &str, player: Option<&PlayerId>) -> String {
    let key = player.map_or_else(|| PLAYER.to_owned(), player_key);
    if means_player(name) || name == key {
        return key;
    }
    let Some(player) = player else {
        return name.to_owned();
    };
    for (mark, _) in POSSESSIVE_MARKS {
        if let Some((owner, owned)) = name.split_once(mark)
            && (means_player(owner) || owner == key)
        {
            return format!("{}{mark}{}", player_key(player), owned.trim());
        }
    }
    if name
        .get(..PLAYER.len() + 1)
        .is_some_and(|start| start.eq_ignore_ascii_case("player:"))
    {
        return name.replacen(':', " ", 1);
    }
    name.to_owned()
}

/// The id of the player that `name` is, or belongs to.
#[must_use]
pub fn owner_id(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PLAYER)?.strip_prefix(':')?;
    let end = POSSESSIVE_MARKS.iter().filter_map(|(mark, _)| rest.find(mark)).min();
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// The words of a stored name without the id of a player: `sister` of `player:p7's sister`, nothing of `player:p7`.
/// Other names are not changed.
#[must_use]
pub fn owned_name(name: &str) -> &str {
    let Some(id) = owner_id(name) else {
        return if name == PLAYER { "" } else { name };
    };
    let rest = &name[PLAYER.len() + 1 + id.len()..];
    POSSESSIVE_MARKS
        .iter()
        .find_map(|(mark, _)| rest.strip_prefix(mark))
        .unwrap_or_default()
}

/// The owner in a name: `Mira` in `Mira's sister`, `Mira's sister` in `Mira's sister's dog`. Empty: nobody owns it.
#[must_use]
pub fn owner_part(name: &str) -> &str {
    let marks = POSSESSIVE_MARKS.iter().filter_map(|(mark, _)| name.rfind(*mark));
    &name[..marks.max().unwrap_or_default()]
}

/// True if `name` is a player: a player's key, or `player` itself.
#[must_use]
pub fn is_player(name: &str) -> bool {
    name == PLAYER || owner_id(name).is_some_and(|id| id.len() + PLAYER.len() + 1 == name.len())
}

/// The key for the comparison of subjects: without case, articles and punctuation, and without particles of Korean
/// names. Owners look the same in both languages. Facts keep their original spelling.
///
/// `The Lantern Inn` and `lantern inn` share a key; `미라의 동생` and `미라의 동생이` do too. A player's id is not changed.
#[must_use]
pub fn subject_key(name: &str) -> String {
    if let Some(id) = owner_id(name) {
        let end = PLAYER.len() + 1 + id.len();
        let (player, rest) = name.split_at(end);
        let mark = POSSESSIVE_MARKS.iter().find_map(|(mark, _)| rest.strip_prefix(mark));
        return match mark.map(words_key_of) {
            Some(owned) if !owned.is_empty() => format!("{player}/{owned}"),
            _ => player.to_owned(),
        };
    }
    let name = normalise_text(name).replace('\u{2019}', "'");
    let parts: Vec<String> = POSSESSIVE_MARKS
        .iter()
        .find_map(|(mark, _)| name.split_once(mark))
        .map_or_else(
            || vec![words_key_of(&name)],
            |(owner, possession)| vec![words_key_of(owner), words_key_of(possession)],
        );
    let key = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    // A name of signs only is its own key.
    if key.is_empty() { name.trim().to_owned() } else { key }
}

/// The words of a name, without articles. A Korean last word loses its particles.
fn words_key_of(name: &str) -> String {
    let name = normalise_text(name);
    let words = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    if words.len() > 1 && matches!(words[0].as_str(), "the" | "a" | "an") {
        words.remove(0);
    }
    if let Some(last) = words.last_mut()
        && last.chars().count() > 2
        && last.chars().all(is_hangul)
    {
        *last = korean_stem(&last.chars().collect::<Vec<_>>()).into_iter().collect();
    }
    words.join(" ")
}

/// True if a sentence mentions the player, in the models' words for the partner of the NPC.
#[must_use]
pub fn mentions_player(sentence: &str) -> bool {
    let sentence = normalise_text(sentence);
    let mut words = sentence.split(|c: char| !c.is_alphanumeric());
    words.any(|word| word == PLAYER || word.starts_with("플레이어"))
}

/// `name` for a model: `player`, `the player's sister`.
#[must_use]
pub fn plain_name(name: &str) -> Cow<'_, str> {
    let Some(id) = owner_id(name) else {
        return Cow::Borrowed(name);
    };
    let rest = &name[PLAYER.len() + 1 + id.len()..];
    POSSESSIVE_MARKS
        .iter()
        .find_map(|(mark, reads)| Some(Cow::Owned(format!("{reads}{}", rest.strip_prefix(mark)?))))
        .unwrap_or(Cow::Borrowed(PLAYER))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn player_references_are_bound_to_an_id_and_read_back_plain() {
        let player: PlayerId = "p7@studio.example:eu".parse().unwrap();
        for (said, kept, read) in [
            ("The Player", "player:p7@studio.example:eu", "player"),
            ("플레이어", "player:p7@studio.example:eu", "player"),
            (
                "the player's sister",
                "player:p7@studio.example:eu's sister",
                "the player's sister",
            ),
            (
                "User\u{2019}s dog",
                "player:p7@studio.example:eu\u{2019}s dog",
                "the player's dog",
            ),
            (
                "플레이어의 동생",
                "player:p7@studio.example:eu의 동생",
                "플레이어의 동생",
            ),
            ("Mira", "Mira", "Mira"),
            ("Mira's sister", "Mira's sister", "Mira's sister"),
            ("playerunknown", "playerunknown", "playerunknown"),
        ] {
            let bound = bind_to_player(said, Some(&player));
            assert_eq!(bound, kept);
            assert_eq!(plain_name(&bound), read);
            assert_eq!(
                bind_to_player(&bound, Some(&player)),
                bound,
                "binding twice changes nothing"
            );
            let own = owner_id(&bound) == Some(player.as_str());
            assert_eq!(own, bound != said || said.starts_with("player:"), "{said}");
        }
    }

    #[test]
    fn sentence_refers_to_the_player_or_does_not() {
        for sentence in [
            "Mira sold the player a salve.",
            "Mira knows The Player\u{2019}s knee.",
            "에르겐은 플레이어에게 약을 팔았다.",
        ] {
            assert!(mentions_player(sentence), "{sentence}");
        }
        for sentence in [
            "Mira sells salves.",
            "Mira hired two lute players.",
            "에르겐은 약을 판다.",
            "",
        ] {
            assert!(!mentions_player(sentence), "{sentence}");
        }
    }

    #[test]
    fn player_id_of_another_cannot_be_written() {
        let player: PlayerId = "p7".parse().unwrap();
        for forged in ["player:p8", "Player:p8's sister", "player:p8의 동생"] {
            assert_eq!(owner_id(&bind_to_player(forged, Some(&player))), None, "{forged}");
        }
    }

    #[test]
    fn player_word_stays_unbound_without_a_player() {
        assert_eq!(bind_to_player("The player", None), "player");
        assert_eq!(bind_to_player("the player's sister", None), "the player's sister");
        assert_eq!(owner_id("player"), None);
    }

    #[test]
    fn player_is_distinguished_from_belongings_of_a_player() {
        assert!(is_player("player") && is_player("player:p7"));
        assert!(!is_player("player:p7's sister") && !is_player("Mira"));
    }

    #[test]
    fn owner_stands_before_the_last_mark() {
        for (name, owner) in [
            ("Mira's sister", "Mira"),
            ("Mira's sister\u{2019}s dog", "Mira's sister"),
            ("미라의 동생", "미라"),
            ("Mira", ""),
            ("player:p7", ""),
        ] {
            assert_eq!(owner_part(name), owner, "{name}");
        }
    }

    #[test]
    fn spellings_of_a_subject_have_one_key() {
        for (spellings, key) in [
            (&["Mira", "mira", " MIRA ", "Mira."][..], "mira"),
            (&["The Lantern Inn", "the lantern inn", "Lantern Inn"], "lantern inn"),
            (
                &["Mira's sister", "mira\u{2019}s Sister", "미라의 동생"][..2],
                "mira/sister",
            ),
            (&["미라의 동생", "미라의 동생이", "미라의 동생은"], "미라/동생"),
            (&["참나무골", "참나무골은", "참나무골이"], "참나무골"),
            (&["player:P7", "player:P7"], "player:P7"),
            (
                &["player:P7's Sister", "player:P7\u{2019}s the sister"],
                "player:P7/sister",
            ),
            (&["player:P7의 동생이", "player:P7의 동생"], "player:P7/동생"),
            (&["the", "The"], "the"),
            (&["?!"], "?!"),
        ] {
            for spelling in spellings {
                assert_eq!(subject_key(spelling), key, "{spelling}");
            }
        }
        assert_ne!(subject_key("player:p7"), subject_key("player:P7"), "ids are not words");
        assert_ne!(subject_key("Mira"), subject_key("Mira's heart"));
    }
}
