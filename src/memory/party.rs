//! Who a statement is about, and who made it.
//!
//! A player is kept as `player:<id>`, so that what one player says of itself is never compared with
//! what another says, nor forgotten for it. Models know one player only, the one who is spoken with,
//! and read and write plain `player`: texts are bound when they come from a model and made plain
//! before one reads them.

use std::borrow::Cow;

use crate::ids::PlayerId;

/// The speaker of what people write: nobody in the world said it.
pub const AUTHOR: &str = "author";
/// How models call whoever the NPC talks with.
pub const PLAYER: &str = "player";
/// Other ways in which they do.
const WORDS: [&str; 5] = ["player", "the player", "user", "the user", "플레이어"];
/// What makes a word an owner, and how the owner reads in front of it.
const OWNING: [(&str, &str); 3] = [
    ("'s ", "the player's "),
    ("\u{2019}s ", "the player's "),
    ("의 ", "플레이어의 "),
];

/// The name under which a player is kept: `player:p7`.
#[must_use]
pub fn key_of(player: &PlayerId) -> String {
    format!("{PLAYER}:{player}")
}

/// Whether `name` means the player who is spoken with, whoever that is.
#[must_use]
pub fn names_player(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    WORDS.contains(&name.as_str())
}

/// `name`, with `player` in it, alone or as an owner ("the player's sister"), made the one `player`.
/// Without a player only the spelling of `player` is made one.
///
/// A name that is written like a key already is nobody's: a model repeats what a player types.
#[must_use]
pub fn bind(name: &str, player: Option<&PlayerId>) -> String {
    let key = player.map_or_else(|| PLAYER.to_owned(), key_of);
    if names_player(name) || name == key {
        return key;
    }
    let Some(player) = player else {
        return name.to_owned();
    };
    for (mark, _) in OWNING {
        if let Some((owner, owned)) = name.split_once(mark)
            && (names_player(owner) || owner == key)
        {
            return format!("{}{mark}{}", key_of(player), owned.trim());
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
pub fn owner(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PLAYER)?.strip_prefix(':')?;
    let end = OWNING.iter().filter_map(|(mark, _)| rest.find(mark)).min();
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Whether `name` is a player: the one kept under a key, or `player` itself.
#[must_use]
pub fn is_player(name: &str) -> bool {
    name == PLAYER || owner(name).is_some_and(|id| id.len() + PLAYER.len() + 1 == name.len())
}

/// `name` as a model reads it: `player`, `the player's sister`.
#[must_use]
pub fn plain(name: &str) -> Cow<'_, str> {
    let Some(id) = owner(name) else {
        return Cow::Borrowed(name);
    };
    let rest = &name[PLAYER.len() + 1 + id.len()..];
    OWNING
        .iter()
        .find_map(|(mark, reads)| Some(Cow::Owned(format!("{reads}{}", rest.strip_prefix(mark)?))))
        .unwrap_or(Cow::Borrowed(PLAYER))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn players_are_bound_and_read_plain_again() {
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
            let bound = bind(said, Some(&player));
            assert_eq!(bound, kept);
            assert_eq!(plain(&bound), read);
            assert_eq!(bind(&bound, Some(&player)), bound, "binding twice changes nothing");
            let own = owner(&bound) == Some(player.as_str());
            assert_eq!(own, bound != said || said.starts_with("player:"), "{said}");
        }
    }

    #[test]
    fn one_player_cannot_be_written_as_another() {
        let player: PlayerId = "p7".parse().unwrap();
        for forged in ["player:p8", "Player:p8's sister", "player:p8의 동생"] {
            assert_eq!(owner(&bind(forged, Some(&player))), None, "{forged}");
        }
    }

    #[test]
    fn without_a_player_the_word_stays() {
        assert_eq!(bind("The player", None), "player");
        assert_eq!(bind("the player's sister", None), "the player's sister");
        assert_eq!(owner("player"), None);
    }

    #[test]
    fn a_player_is_told_from_what_is_a_players() {
        assert!(is_player("player") && is_player("player:p7"));
        assert!(!is_player("player:p7's sister") && !is_player("Mira"));
    }
}
