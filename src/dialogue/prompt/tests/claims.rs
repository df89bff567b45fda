//! Attribution in every slot: only statements of authors and of the game are canon.

use super::*;

/// A case: language, subject, speaker, the attribution of a found statement, and the heading of the statement's state
/// section without a search.
type ClaimRow = (Language, &'static str, &'static str, &'static str, Option<&'static str>);

const ROWS: &[ClaimRow] = &[
    // Statements about the NPC, other people and the world.
    (Language::En, "Mira", "player:p7", "The player says: ", None),
    (
        Language::En,
        "Mira the innkeeper",
        "player:p7",
        "The player says: ",
        None,
    ),
    (Language::En, "the innkeeper", "player:p7", "The player says: ", None),
    (Language::En, "mira's heart", "player:p7", "The player says: ", None),
    (Language::En, "Mira's brother", "player:p7", "The player says: ", None),
    (Language::En, "the Lantern Inn", "player:p7", "The player says: ", None),
    (Language::En, "Mirabelle", "player:p7", "The player says: ", None),
    (
        Language::En,
        "player:p7's sister",
        "player:p7",
        "The player says: ",
        None,
    ),
    (Language::En, "Mira", "player:p8", "Player p8 says: ", None),
    (Language::En, "player:p8", "player:p8", "Player p8 says: ", None),
    (Language::En, "the mill", "Mira", "You said: ", None),
    (Language::En, "player:p7", "Mira", "You said: ", None),
    (Language::En, "Dorran", "Dorran", "Dorran said: ", None),
    (Language::En, "the mill", "Dorran", "Dorran said: ", None),
    (Language::Ko, "에르겐", "player:p7", "플레이어의 말: ", None),
    (Language::Ko, "에르겐의 동생", "player:p8", "플레이어 p8의 말: ", None),
    (Language::Ko, "등불 여관", "player:p7", "플레이어의 말: ", None),
    (Language::Ko, "방앗간", "미라", "미라의 말: ", None),
    // Statements of people about themselves.
    (
        Language::En,
        "player:p7",
        "player:p7",
        "The player says: ",
        Some("[What the player says of themselves]"),
    ),
    (
        Language::En,
        "Mira",
        "Mira",
        "You said: ",
        Some("[What you have told of yourself]"),
    ),
    (
        Language::Ko,
        "player:p7",
        "player:p7",
        "플레이어의 말: ",
        Some("[플레이어의 자기 이야기]"),
    ),
    (
        Language::Ko,
        "에르겐",
        "에르겐",
        "당신의 말: ",
        Some("[당신의 자기 이야기]"),
    ),
    // Statements of authors.
    (Language::En, "Mira", "author", "", Some("[Current state (canon)]")),
    (Language::Ko, "에르겐", "author", "", Some("[현재 상태]")),
];

/// Returns the heading and text of the first line that contains `part`.
fn block_with<'t>(text: &'t str, part: &str) -> Option<(&'t str, &'t str)> {
    let mut heading = "";
    for line in text.lines() {
        if line.starts_with('[') && line.ends_with(']') {
            heading = line;
        } else if line.contains(part) {
            return Some((heading, line));
        }
    }
    None
}

#[test]
fn statements_are_attributed_to_their_speaker() {
    for &(language, subject, speaker, attribution, block) in ROWS {
        let content = "It is so and so.";
        let row = format!("{subject} by {speaker}");
        let mut case = PromptCase::of(language, "x");
        let mut found = hit(1, content, 0.9, 0.9, 0);
        let body = Arc::make_mut(&mut found.body);
        (body.subject, body.speaker) = (subject.to_owned(), speaker.to_owned());
        case.hits = vec![found];
        let text = shown(&case.assemble(&settings()).unwrap().messages);
        let (heading, line) = block_with(&text, content).unwrap_or_else(|| panic!("{row}: {text}"));
        // What authors wrote holds regardless of its date.
        let (headings, mark) = if speaker == "author" {
            (["[What you know of the world]", "[아는 세상]"], "- ")
        } else {
            (["[What you remember]", "[기억]"], "] ")
        };
        assert!(headings.contains(&heading), "{row}: {text}");
        let (_, said) = line.split_once(mark).unwrap();
        assert!(said.starts_with(attribution), "{row}: {line}");
        // A fact about another player is marked, because its sentence says `the player` too.
        let about = if subject == "player:p8" {
            "(about another player, p8) "
        } else {
            ""
        };
        assert_eq!(said, format!("{attribution}{about}{content}"), "{row}");

        for kind in FactKind::ALL.iter().copied().filter(|kind| kind.is_mutable_state()) {
            let mut entry = fact(2, kind, content, false);
            (entry.statement.subject, entry.statement.speaker) = (subject.to_owned(), speaker.to_owned());
            entry.authored = speaker == "author";
            let case = PromptCase {
                standing: vec![entry],
                ..PromptCase::of(language, "x")
            };
            let text = shown(&case.assemble(&settings()).unwrap().messages);
            let promises = matches!(kind, FactKind::Goal) && speaker != "author";
            let is_duty = promises && (subject, speaker) == ("player:p7", "Mira");
            let expected = match block {
                None if is_duty => Some("[What you told the player to do]"),
                Some(_) if promises && language == Language::En => Some("[Open promises and goals]"),
                Some(_) if promises => Some("[남은 약속과 목표]"),
                block => block,
            };
            let stands = block_with(&text, content);
            assert_eq!(stands.map(|(heading, _)| heading), expected, "{row}, {kind:?}: {text}");
            let says_who = stands
                .is_none_or(|(_, line)| !promises || is_duty || line.ends_with(&format!("{attribution}{content}")));
            assert!(says_who, "{row}: {text}");
        }
    }
}

#[test]
fn hearsay_about_limits_of_others_is_not_pinned() {
    for (subject, speaker, stands) in [
        ("player:p7", "player:p7", Some("- The player says: It is so.")),
        ("player:p7's child", "player:p7", Some("- The player says: It is so.")),
        ("Mira", "Mira", Some("- You said: It is so.")),
        ("Mira", "author", Some("- It is so.")),
        ("Mira", "player:p7", None),
        ("Dorran", "player:p7", None),
        ("player:p7", "Mira", None),
        ("player:p8", "player:p8", None),
    ] {
        let mut entry = fact(2, FactKind::Constraint, "It is so.", true);
        (entry.statement.subject, entry.statement.speaker) = (subject.to_owned(), speaker.to_owned());
        entry.authored = speaker == "author";
        let mut case = PromptCase::of(Language::En, "x");
        case.standing = vec![entry];
        let text = shown(&case.assemble(&settings()).unwrap().messages);
        let line = block_with(&text, "It is so.");
        let expected = stands.map(|line| ("[Always keep in mind]", line));
        assert_eq!(line, expected, "{subject} by {speaker}");
    }
}

#[test]
fn game_reports_are_canon_with_their_time() {
    let mut entry = fact(2, FactKind::Event, "The mill burned down.", false);
    entry.statement.speaker = "Dorran".to_owned();
    entry.cause = Cause::Event(colloquy_core::ids::EventId::from_u128(1));
    let mut case = PromptCase::of(Language::En, "x");
    case.standing = vec![entry];
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    let expected = ("[Current state (canon)]", "- [3 days ago] The mill burned down.");
    assert_eq!(block_with(&text, "mill"), Some(expected));
}

#[test]
fn memories_are_ordered_by_time() {
    let mut case = PromptCase::of(Language::En, "x");
    let of = |id, content: &str, score, day| {
        let mut hit = hit(id, content, score, 0.9, usize::try_from(id).unwrap());
        Arc::make_mut(&mut hit.body).valid_at = at(day);
        hit
    };
    case.hits = vec![
        of(1, "Anna lives in Rivermouth.", 0.9, -30),
        of(2, "Anna likes boats.", 0.8, 2),
        of(3, "Anna lives in Oakford.", 0.7, 3),
    ];
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("Anna")).collect();
    assert_eq!(
        lines,
        [
            "- [4 weeks ago] The player says: Anna lives in Rivermouth.",
            "- [yesterday] The player says: Anna likes boats.",
            "- [earlier today] The player says: Anna lives in Oakford.",
        ]
    );
    assert!(text.contains("\nToday is 2026-01-04."), "{text}");
}

#[test]
fn memories_of_one_moment_are_in_spoken_order() {
    let mut case = PromptCase::of(Language::En, "x");
    case.hits = vec![
        hit(3, "Mira keeps the inn.", 0.9, 0.9, 3),
        hit(1, "The inn belongs to the player.", 0.7, 0.9, 3),
        hit(2, "The old owner signed it over.", 0.8, 0.9, 3),
    ];
    for hit in &mut case.hits {
        Arc::make_mut(&mut hit.body).valid_at = at(3);
    }
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    let places: Vec<usize> = ["belongs to the player", "signed it over", "keeps the inn"]
        .iter()
        .map(|words| text.find(words).unwrap())
        .collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn npc_deeds_with_the_player_are_not_about_itself() {
    for (content, kind, stands) in [
        ("Mira lost her brother.", FactKind::Event, true),
        ("Mira sold the player a jar of salve.", FactKind::Event, false),
        ("미라는 플레이어에게 고약을 팔았다.", FactKind::Event, false),
        ("Mira likes the player's songs.", FactKind::Opinion, true),
        ("Mira will keep walnuts away from the player.", FactKind::Goal, true),
    ] {
        let mut entry = fact(2, kind, content, false);
        (entry.statement.subject, entry.statement.speaker) = ("Mira".to_owned(), "Mira".to_owned());
        assert_eq!(entry.may_stand(), stands, "{content}");
        let mut case = PromptCase::of(Language::En, "x");
        case.standing = vec![entry];
        let text = shown(&case.assemble(&settings()).unwrap().messages);
        assert_eq!(block_with(&text, content).is_some(), stands, "{text}");
    }
}

#[test]
fn promises_have_a_reserved_budget() {
    let mut case = PromptCase::of(Language::En, "x");
    let habit = "The player does this and that every day. ".repeat(5);
    case.standing = (10..30).map(|id| fact(id, FactKind::Habit, &habit, false)).collect();
    let mut promise = fact(1, FactKind::Todo, "The player will bring salt.", false);
    promise.view.importance = Importance::new(1).unwrap();
    case.standing.push(promise.clone());
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    let line = block_with(&text, "salt");
    let expected = "- [3 days ago] The player says: The player will bring salt.";
    assert_eq!(line, Some(("[Open promises and goals]", expected)));
    // Promises may use all of the room if no other fact needs it.
    let promised = |id: u128| format!("The player will bring a sack of salt to mill number {id} by the river.");
    case.standing = (10..20)
        .map(|id| fact(id, FactKind::Todo, &promised(id), false))
        .collect();
    let text = shown(&case.assemble(&settings()).unwrap().messages);
    assert_eq!(text.matches("a sack of salt").count(), 10, "{text}");
    // A past promise is not open.
    promise.statement.tense = Tense::Past;
    case.standing = vec![promise];
    assert!(!shown(&case.assemble(&settings()).unwrap().messages).contains("salt"));
}
