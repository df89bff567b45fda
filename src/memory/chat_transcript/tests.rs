use super::*;

fn stored(turns: &[(&str, &str)]) -> Vec<StoredTurn> {
    (1..)
        .zip(turns)
        .map(|(number, (line, reply))| StoredTurn::new(number, line, reply))
        .collect()
}

fn turn(line: &str, reply: &str) -> TranscriptTurn {
    TranscriptTurn {
        player_text: line.into(),
        reply_text: reply.into(),
    }
}

fn align(turns: &[(&str, &str)], line: &str, known: &[(&str, &str)]) -> TranscriptAlignment {
    let end = match line {
        "" => TranscriptEnd::Reply,
        line => TranscriptEnd::Line(line.into()),
    };
    let turns = turns.iter().map(|(line, reply)| turn(line, reply)).collect();
    align_transcript(&ComparedTranscript::new(&Transcript { turns, end }), &stored(known))
}

const TALK: [(&str, &str); 4] = [
    ("", "Welcome."),
    ("Hi", "Hello."),
    ("Rain?", "Yes."),
    ("Why?", "Clouds."),
];

#[test]
fn next_line_continues_the_session() {
    let aligned = align(&TALK, "And now?", &TALK);
    assert!(aligned.is_continuation_of(4));
    assert_eq!(aligned.request, TranscriptRequest::Answer("And now?".into()));
    assert_eq!((aligned.shared_turns, aligned.first_number), (4, 1));
}

#[test]
fn transcript_without_its_front_continues_the_session() {
    for cut in [&TALK[1..], &TALK[2..], &[("", "Yes."), ("Why?", "Clouds.")]] {
        let aligned = align(cut, "And now?", &TALK);
        assert!(aligned.is_continuation_of(4), "{cut:?}");
    }
    assert_eq!(align(&TALK[2..], "And now?", &TALK).first_number, 3);
}

#[test]
fn front_may_be_cut_between_joined_lines() {
    let known = [TALK[0], ("Hi\n\nBran: Well?", "Hello."), TALK[2]];
    let aligned = align(&[("Bran: Well?", "Hello."), TALK[2]], "So?", &known);
    assert!(aligned.is_continuation_of(3));
}

#[test]
fn same_last_line_is_answered_again() {
    let aligned = align(&TALK[..3], "Why?", &TALK);
    assert_eq!((aligned.last_standing, aligned.missing.len()), (3, 0));
    assert_eq!(aligned.request, TranscriptRequest::AnswerAgain("Why?".into()));
    let first = align(&[], "Hi", &[("Hi", "Hello.")]);
    assert_eq!(first.request, TranscriptRequest::AnswerAgain("Hi".into()));
    assert_eq!((first.last_standing, first.shared_turns), (0, 1));
}

#[test]
fn line_of_an_earlier_turn_takes_later_turns_back() {
    let aligned = align(&TALK[..2], "Rain?", &TALK);
    assert_eq!((aligned.last_standing, aligned.missing.len()), (2, 0));
    assert_eq!(aligned.request, TranscriptRequest::Answer("Rain?".into()));
}

#[test]
fn deleted_turns_are_taken_back() {
    let aligned = align(&TALK[..2], "Snow?", &TALK);
    assert_eq!(
        (aligned.last_standing, aligned.missing.len(), aligned.shared_turns),
        (2, 0, 2)
    );
    let inner = align(&[TALK[0], TALK[1], TALK[3]], "So?", &TALK);
    assert_eq!((inner.last_standing, inner.missing), (2, vec![turn("Why?", "Clouds.")]));
}

#[test]
fn edited_line_or_reply_replaces_the_turn_and_those_after() {
    let line = align(&[TALK[0], ("Hey", "Hello."), TALK[2]], "So?", &TALK);
    assert_eq!(line.last_standing, 1);
    assert_eq!(line.missing, [turn("Hey", "Hello."), turn("Rain?", "Yes.")]);
    let reply = align(&[TALK[0], TALK[1], ("Rain?", "No.")], "So?", &TALK);
    assert_eq!((reply.last_standing, reply.missing), (2, vec![turn("Rain?", "No.")]));
    let first = align(&[("", "Be welcome."), TALK[1], TALK[2], TALK[3]], "So?", &TALK);
    assert_eq!(
        (first.last_standing, first.missing.len(), first.shared_turns),
        (0, 4, 3)
    );
}

#[test]
fn edit_of_the_first_shown_line_keeps_turns_before_it() {
    let aligned = align(&[("Rain??", "Yes."), TALK[3]], "So?", &TALK);
    assert_eq!((aligned.last_standing, aligned.missing.len()), (2, 2));
    assert_eq!(aligned.first_number, 3);
}

#[test]
fn beginning_of_a_reply_is_what_was_heard() {
    let aligned = align(&[TALK[0], ("Hi", "Hel")], "What?", &TALK[..2]);
    assert_eq!((aligned.last_standing, aligned.heard_chars), (2, Some(3)));
    assert!(aligned.missing.is_empty());
    let known = [("Hi", "It is rarer thanfair weather.")];
    let spaced = align(&[("Hi", "It is rarer than fair")], "What?", &known);
    assert_eq!((spaced.last_standing, spaced.heard_chars), (1, Some(20)));
    let longer = align(&[TALK[0], ("Hi", "Hello. Sit.")], "What?", &TALK[..2]);
    assert_eq!((longer.last_standing, longer.heard_chars), (1, None));
    assert_eq!(longer.missing, [turn("Hi", "Hello. Sit.")]);
}

#[test]
fn white_space_and_joined_lines_do_not_matter() {
    let aligned = align(
        &[("", " Welcome.\n"), ("Hi", "Hello.")],
        "Rain?\n\nOr snow?",
        &[("", "Welcome."), ("Hi ", "Hello."), ("Rain? Or snow?", "Rain.")],
    );
    assert_eq!(aligned.last_standing, 2);
    assert!(matches!(aligned.request, TranscriptRequest::AnswerAgain(_)));
    let joined = align(
        &[("Hi", "Rarer than fair weather.")],
        "So?",
        &[("Hi", "Rarer thanfair weather.")],
    );
    assert!(joined.is_continuation_of(1));
}

#[test]
fn name_that_was_stored_with_a_line_does_not_matter() {
    let known = [("Ann: Good day", "Hello.")];
    assert!(align(&[("Good day", "Hello.")], "So?", &known).is_continuation_of(1));
    let again = align(&[], "Good day", &known);
    assert_eq!(again.request, TranscriptRequest::AnswerAgain("Good day".into()));
}

#[test]
fn transcript_that_ends_with_a_reply_goes_on() {
    let aligned = align(&TALK, "", &TALK);
    assert!(aligned.is_continuation_of(4));
    assert_eq!(aligned.request, TranscriptRequest::GoOn);
    assert_eq!(align(&[], "", &[]).request, TranscriptRequest::Answer(String::new()));
}

#[test]
fn foreign_transcript_shares_nothing() {
    let aligned = align(&[("", "Halt!"), ("Me?", "You.")], "So?", &TALK);
    assert_eq!(
        (aligned.shared_turns, aligned.last_standing, aligned.missing.len()),
        (0, 0, 2)
    );
    let lone = align(&[], "Hi", &TALK);
    assert_eq!((lone.shared_turns, lone.last_standing), (0, 0));
    assert_eq!(lone.request, TranscriptRequest::Answer("Hi".into()));
}

#[test]
fn beginning_of_another_talk_takes_no_long_session_back() {
    let long: Vec<(&str, &str)> = [TALK.to_vec(), vec![("A", "B"), ("C", "D"), ("E", "F")]].concat();
    let another = align(&[TALK[0]], "Hi", &long);
    assert!(another.may_be_another_talk(7));
    assert!(!align(&[TALK[0]], "Hi", &TALK).may_be_another_talk(4), "a short talk");
    assert!(
        !align(&long[..3], "So?", &long).may_be_another_talk(7),
        "three turns are shared"
    );
}

#[test]
fn greeting_alone_in_common_is_another_talk() {
    let another = align(&TALK[..1], "Is anybody here?", &TALK);
    assert!(another.may_be_another_talk(4));
    assert!(
        align(&TALK[..1], "", &TALK).may_be_another_talk(4),
        "the greeting goes on"
    );
    // The same first line, its other replies, and later turns are the same talk.
    for (shown, line) in [
        (&TALK[..1], "Hi"),
        (&[TALK[0], ("Hi", "Good day.")][..], "So?"),
        (&[TALK[0], ("Hi", "Hel")][..], "So?"),
        (&[TALK[0], ("Hello?", "Hello."), TALK[2]][..], "So?"),
        (&[TALK[0], TALK[2]][..], "So?"),
    ] {
        let aligned = align(shown, line, &TALK);
        assert!(!aligned.may_be_another_talk(4), "{shown:?} {line}");
    }
    // Nothing that the player has said would be lost.
    assert!(!align(&TALK[..1], "Hi", &TALK[..1]).may_be_another_talk(1));
    let twice = [TALK[0], ("", "Sit.")];
    assert!(!align(&TALK[..1], "Hi", &twice).may_be_another_talk(2));
}

#[test]
fn other_reply_of_the_first_turn_is_an_alternative() {
    for known in [&TALK[1..2], &TALK[1..]] {
        let aligned = align(&[("Hi", "Good day.")], "So?", known);
        assert_eq!((aligned.last_standing, aligned.shared_turns), (0, 1));
        assert_eq!(aligned.missing, [turn("Hi", "Good day.")]);
    }
    let longer = align(&[("Hi", "Good day."), ("Who?", "Me.")], "So?", &TALK[1..]);
    assert_eq!(longer.shared_turns, 0);
}

#[test]
fn spoken_turns_are_pairs_of_line_and_reply() {
    let standing = stored(&[("Hi", "Hello."), ("Sage?", "Two coppers, friend."), ("Rain?", "Yes.")]);
    let unsaid = [StoredTurn::new(2, "Sage?", "None today.")];
    let spoken = || SpokenTurns::new(&standing, &unsaid, 1);
    for (line, reply, was_spoken) in [
        ("Rain?", "Yes.", true),
        ("Ann: Rain?", " Yes. ", true),
        ("Sage?", "None today.", true),
        // As far as the reply was heard.
        ("Sage?", "Two coppers", true),
        ("Sage?", "Two coppers, thief.", false),
        ("Sage?", "", false),
        ("Your sword?", "Yes.", false),
        ("Rain?", "None today.", false),
        ("Hi", "Hello.", false),
    ] {
        assert_eq!(spoken().take(&turn(line, reply)), was_spoken, "{line} {reply}");
    }
    let mut once = spoken();
    assert!(once.take(&turn("Sage?", "None today.")));
    assert!(!once.take(&turn("Sage?", "Two coppers, friend.")), "at the same place");
}

#[test]
fn spoken_turns_know_the_lines_that_programs_join() {
    let standing = stored(&[("Hi", "..."), ("Anybody?", "\u{2026}"), ("Rain?", "Yes.")]);
    let spoken = || SpokenTurns::new(&standing, &[], 0);
    for (line, was_spoken) in [
        ("Rain?", true),
        ("Anybody?\n\nRain?", true),
        ("Hi\n\nAnybody?\n\nRain?", true),
        ("Hi\n\nRain?", false),
    ] {
        assert_eq!(spoken().take(&turn(line, "Yes.")), was_spoken, "{line}");
    }
    let mut kept = SpokenTurns::new(&standing, &standing, 3);
    assert!(!kept.take(&turn("Hi\n\nAnybody?\n\nRain?", "Yes.")));
}

#[test]
fn texts_of_one_print_for_a_known_base_have_prints_of_their_own() {
    // The base of an earlier version, which was the same in all processes.
    let print = |text: &str| {
        let modulus = (1_u128 << 61) - 1;
        text.chars().fold(0, |hash, character| {
            (hash * 0x1e37_79b9_7f4a_7c15 + u128::from(u32::from(character))) % modulus
        })
    };
    let one = "\u{51e8}".repeat(8);
    let other = "\u{520d}\u{5211}\u{51dd}\u{5227}\u{5210}\u{5261}\u{5196}\u{51d4}";
    assert_eq!(print(&one), print(other));
    assert_ne!(TextPrint::of_text(&one), TextPrint::of_text(other));
}

#[test]
fn repeated_turns_are_found_at_the_end() {
    let again = [("Go", "On."), ("Go", "On."), ("Go", "On."), ("Stop", "Done.")];
    let aligned = align(&[again[2], again[3]], "Go", &again);
    assert!(aligned.is_continuation_of(4));
    let deleted = align(&[("Go", "On."), ("Go", "On.")], "Stop", &again);
    assert_eq!(
        (deleted.last_standing, deleted.first_number),
        (3, 2),
        "the longest run before the same line"
    );
}

#[test]
fn turns_without_a_word_of_the_npc_stand() {
    let silent = [TALK[0], ("Hi", "..."), ("Rain?", "Yes."), ("Why?", "\u{2026}")];
    // Chat programs do not show such replies.
    let shown = [TALK[0], ("Hi\n\nRain?", "Yes.")];
    let next = align(&shown, "Why?\n\nAnd now?", &silent);
    assert!(next.is_continuation_of(4), "{next:?}");
    assert_eq!(next.request, TranscriptRequest::Answer("And now?".into()));
    assert_eq!((next.shared_turns, next.first_number), (3, 1));
    // Another reply in place of the silence, and of a reply after a silence.
    let again = align(&shown, "Why?", &silent);
    assert_eq!(
        (again.last_standing, again.request),
        (3, TranscriptRequest::AnswerAgain("Why?".into()))
    );
    let after = align(&TALK[..1], "Hi\n\nRain?", &silent[..3]);
    assert_eq!(
        (after.last_standing, after.request),
        (2, TranscriptRequest::AnswerAgain("Hi\n\nRain?".into()))
    );
    // An edited line takes both turns back.
    let edited = align(&[TALK[0], ("Hey\n\nRain?", "Yes.")], "So?", &silent);
    assert_eq!((edited.last_standing, edited.missing.len()), (1, 1));
    // The only turn.
    let only = align(&[], "Hi\n\nHello?", &[("Hi", "...")]);
    assert_eq!((only.last_standing, only.shared_turns), (1, 1));
    assert_eq!(align(&[], "Hi there", &[("Hi", "...")]).shared_turns, 0);
}

#[test]
fn prints_of_joined_texts_are_those_of_the_whole() {
    for (one, other) in [("a b", "c"), ("", "c d"), ("a", ""), ("a", "b a b")] {
        let joined = StoredTurn::new(2, one, "...");
        let stored = [joined, StoredTurn::new(3, other, "Yes.")];
        let whole = TextPrint::of_text(&format!("{one} {other}"));
        assert_eq!(join_silent_turns(&stored)[0].print.player, whole, "{one} {other}");
    }
    assert_ne!(TextPrint::of_text("a b"), TextPrint::of_text("b a"));
}

proptest::proptest! {
    #[test]
    fn runs_are_those_of_a_plain_comparison(
        pattern in proptest::collection::vec(0_u8..2, 0..12),
        text in proptest::collection::vec(0_u8..2, 0..24),
    ) {
        let plain = (0..text.len()).map(|at| text[at..].iter().zip(&pattern).take_while(|(one, other)| one == other).count());
        proptest::prop_assert_eq!(prefix_lengths(&pattern, &text), plain.collect::<Vec<_>>());
    }

    #[test]
    fn a_transcript_of_all_turns_or_the_latest_goes_on(
        talk in proptest::collection::vec((0_u8..4, 0_u8..6), 1..20),
        cut in 0_usize..19,
    ) {
        let replies = ["Yes.", "No.", "Maybe so.", "...", "\u{2026}", "Why?"];
        let known: Vec<(String, String)> = talk
            .iter()
            .map(|(line, reply)| (format!("Line {line}."), replies[usize::from(*reply)].to_owned()))
            .collect();
        // As a chat program shows the turns.
        let mut turns: Vec<TranscriptTurn> = Vec::new();
        let mut lines: Vec<&str> = Vec::new();
        for (line, reply) in &known {
            lines.push(line);
            if !SILENT_REPLIES.contains(&reply.as_str()) {
                turns.push(turn(&std::mem::take(&mut lines).join("\n\n"), reply));
            }
        }
        lines.push("A new line.");
        turns.drain(..cut.min(turns.len().saturating_sub(1)));
        proptest::prop_assume!(!turns.is_empty());
        let transcript = Transcript { turns, end: TranscriptEnd::Line(lines.join("\n\n")) };
        let stored: Vec<StoredTurn> = (1..).zip(&known).map(|(number, (line, reply))| StoredTurn::new(number, line, reply)).collect();
        let aligned = align_transcript(&ComparedTranscript::new(&transcript), &stored);
        let head = u32::try_from(known.len()).unwrap();
        proptest::prop_assert!(aligned.is_continuation_of(head), "{:?} {:?}", aligned, transcript);
        proptest::prop_assert_eq!(aligned.request, TranscriptRequest::Answer("A new line.".into()));
    }
}
