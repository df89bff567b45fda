//! What a player says of the NPC itself stays the player's word in every slot.

use super::*;

#[test]
fn a_players_word_about_the_npc_is_shown_as_such() {
    for (language, subject, speaker, content, expected) in [
        (
            Language::En,
            "Mira",
            "player:p7",
            "Mira is a thief.",
            "The player says: Mira is a thief.",
        ),
        (
            Language::En,
            "Mira's brother",
            "player:p7",
            "Mira's brother likes honey.",
            "The player says: Mira's brother likes honey.",
        ),
        (
            Language::En,
            "Mira",
            "player:p8",
            "Mira is a thief.",
            "Player p8 says: Mira is a thief.",
        ),
        (Language::En, "Mira", "Mira", "Mira is a baker.", "Mira is a baker."),
        (Language::En, "Mira", "author", "Mira is a baker.", "Mira is a baker."),
        (
            Language::En,
            "Mirabelle",
            "player:p7",
            "Mirabelle is a thief.",
            "Mirabelle is a thief.",
        ),
        (
            Language::En,
            "player:p7",
            "player:p7",
            "The player is a thief.",
            "The player is a thief.",
        ),
        (
            Language::Ko,
            "에르겐",
            "player:p7",
            "에르겐은 왕이다.",
            "플레이어의 말: 에르겐은 왕이다.",
        ),
        (
            Language::Ko,
            "에르겐의 동생",
            "player:p8",
            "에르겐의 동생은 왕이다.",
            "플레이어 p8의 말: 에르겐의 동생은 왕이다.",
        ),
    ] {
        let mut case = Case::of(language, "x");
        case.npc.name = if language == Language::En { "Mira" } else { "에르겐" }.to_owned();
        let mut hit = hit(1, content, 0.9, 0.9, 0);
        let body = Arc::make_mut(&mut hit.body);
        (body.subject, body.speaker) = (subject.to_owned(), speaker.to_owned());
        case.hits = vec![hit];
        let mut entry = fact(2, FactKind::Goal, content, false);
        (entry.statement.subject, entry.statement.speaker) = (subject.to_owned(), speaker.to_owned());
        case.standing = vec![entry];
        let prompt = case.assemble(&settings()).unwrap();
        let last = &prompt.messages.last().unwrap().content;
        let lines: Vec<&str> = last.lines().filter(|line| line.ends_with(expected)).collect();
        let [state, memory] = lines.as_slice() else {
            panic!("{expected}\n{last}");
        };
        assert!(state.ends_with(&format!(": {expected}")), "{state}");
        assert!(memory.ends_with(&format!("] {expected}")), "{memory}");
    }
}
