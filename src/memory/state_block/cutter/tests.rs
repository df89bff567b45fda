//! Tests with every spelling of a block and every split into deltas.

use proptest::prelude::*;

use super::*;

fn cues() -> Vec<String> {
    ["smile", "sigh", "Small Bow", "미소"].map(str::to_owned).to_vec()
}

fn cut(deltas: &[&str]) -> (String, CutReply) {
    let mut cutter = StreamCutter::new(&cues());
    let mut visible: String = deltas.iter().map(|delta| cutter.push(delta)).collect();
    let ended = cutter.finish_reply();
    visible.push_str(&ended.visible_tail);
    (visible, ended)
}

#[test]
fn state_block_is_cut_in_all_its_spellings() {
    for fence in [
        "```state\nmood: calm\n```",
        "```State\nmood: calm\n```\n",
        "``` state \nmood: calm\n```  \n\n",
        "````state\nmood: calm\n````",
        "~~~state\nmood: calm\n~~~",
        "```STATE mood: calm```",
        "```state\nmood: calm",
        "```state\nmood: calm\n``",
        "```state\nmood: calm\n``````",
    ] {
        let (visible, ended) = cut(&["Well met.\n\n", fence]);
        assert_eq!(visible, "Well met.", "{fence:?}");
        assert_eq!(
            ended.state_block.as_deref().map(str::trim),
            Some("mood: calm"),
            "{fence:?}"
        );
    }
}

#[test]
fn open_state_block_is_reported() {
    assert!(!cut(&["A ```state\nmood: calm"]).1.closed);
    assert!(cut(&["A ```state\nmood: calm\n```"]).1.closed);
}

#[test]
fn truncated_reply_may_end_in_a_bare_fence() {
    let (visible, ended) = cut(&["그래.\n```state"]);
    assert_eq!((visible.as_str(), ended.state_block.as_deref()), ("그래.", Some("")));
}

#[test]
fn fence_lookalikes_pass_unchanged() {
    for text in [
        "```rust\nfn main() {}\n```",
        "```statement\nx\n```",
        "```state_of_mind",
        "안녕~~ 반가워~~~ 또 보자~",
        "a ``code`` b",
        "trailing ```sta",
        "end ``` ",
        "state: calm",
        "1 < 2 and <b>bold</b> <smi",
        "<unknown> <smiley> < smile>",
        "  leading and trailing \n",
        "",
    ] {
        let (visible, ended) = cut(&[text]);
        assert_eq!(visible, text);
        assert_eq!(
            ended,
            CutReply {
                visible_tail: ended.visible_tail.clone(),
                ..CutReply::default()
            },
            "{text:?}"
        );
    }
}

#[test]
fn false_fence_may_hide_a_true_fence() {
    let (visible, ended) = cut(&["x ```st```state\nmood: calm\n```"]);
    assert_eq!(visible, "x ```st");
    assert_eq!(ended.state_block.as_deref(), Some("\nmood: calm\n"));
}

#[test]
fn text_after_a_block_is_shown_and_the_last_block_counts() {
    let (visible, ended) = cut(&["One.\n```state\nmood: a\n```\nTwo.\n```state\nmood: b\n```\n"]);
    assert_eq!(visible, "One.\nTwo.");
    assert_eq!(ended.state_block.as_deref(), Some("\nmood: b\n"));
}

#[test]
fn halves_of_a_mark_are_not_joined_by_a_cut() {
    for (text, shown) in [
        ("~~~``` State\n```state\nmood: calm\n", "~~~\nstate\nmood: calm"),
        ("~~~ ```state\na\n``` state\n", "~~~ \nstate"),
        ("~~```state\na\n```~state\n", "~~\n~state"),
        ("```st<smile>ate\nmood: calm", "```st\nate\nmood: calm"),
        ("``<smile>`state", "``\n`state"),
        // Marks that arrive together are no fence, so no line break separates them.
        ("안녕~~ <미소> 반가워", "안녕~~ 반가워"),
        ("~~~<smile> hi", "~~~ hi"),
        ("wait~<smile>state", "wait~state"),
    ] {
        let (visible, _) = cut(&[text]);
        assert_eq!(visible.trim_end(), shown, "{text:?}");
        assert_eq!(StreamCutter::new(&[]).push(&visible).trim_end(), shown, "{text:?}");
    }
}

#[test]
fn cues_are_cut_and_reported() {
    let (visible, ended) = cut(&["<smile> Hello <SIGH/>there. <small bow>"]);
    assert_eq!(visible, "Hello there.");
    assert_eq!(ended.cues, ["smile", "sigh", "Small Bow"]);
    assert_eq!(ended.cues_at, [0, 5, 12]);
    let (visible, ended) = cut(&["어서 와. <미소> 잘 지냈어?"]);
    assert_eq!(
        (visible.as_str(), ended.cues),
        ("어서 와. 잘 지냈어?", vec!["미소".to_owned()])
    );
}

#[test]
fn tags_are_text_when_no_cues_are_configured() {
    let mut cutter = StreamCutter::new(&[]);
    assert_eq!(cutter.push("<smile> hi"), "<smile> hi");
    assert_eq!(cutter.finish_reply(), CutReply::default());
}

#[test]
fn cutter_holds_back_no_more_than_needed() {
    let mut cutter = StreamCutter::new(&cues());
    assert_eq!(cutter.push("Hi"), "Hi");
    assert_eq!(cutter.push(" "), "");
    assert_eq!(cutter.push("``"), "");
    assert_eq!(cutter.push("x"), " ``x");
    assert_eq!(cutter.push("<sm"), "");
    assert_eq!(cutter.push("o"), "<smo");
    assert_eq!(cutter.push("```s"), "");
    assert_eq!(cutter.push("e"), "```se");
}

#[test]
fn endless_block_is_bounded() {
    let mut cutter = StreamCutter::new(&[]);
    assert_eq!(cutter.push("```state\n"), "");
    for _ in 0..1_000 {
        assert_eq!(cutter.push(&"note: 가나다\n".repeat(100)), "");
    }
    let kept = cutter.finish_reply().state_block.unwrap_or_default().len();
    assert!(kept <= MAX_BLOCK_BYTES + 4, "{kept}");
}

/// Texts of relevant pieces, so that fences and cues really occur.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z가-힣 .\n]{0,6}".prop_map(String::from),
        2 => prop::sample::select(vec![
            "```state", "```", "~~~state", "~~~", "``", "`", "~", "````", "``` State\n", "\nmood: calm\n", "<smile>", "<smi", "<",
            ">", "/", "<sigh />", "state", "st", "<미소>", "<Small Bow>", " ", "\n\n", "é", "🙂",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn cutter_result_does_not_depend_on_the_split(text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = cut(&[&text]);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let by_char: Vec<&str> = chars.iter().map(String::as_str).collect();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(chars.len());
        let mut from = 0;
        let deltas: Vec<String> = ends.into_iter().map(|end| { let delta = chars[from..end].concat(); from = end; delta }).collect();
        let deltas: Vec<&str> = deltas.iter().map(String::as_str).collect();
        for other in [cut(&by_char), cut(&deltas)] {
            prop_assert_eq!(&other.0, &whole.0);
            prop_assert_eq!(&other.1.state_block, &whole.1.state_block);
            prop_assert_eq!(other.1.closed, whole.1.closed);
            prop_assert_eq!(&other.1.cues, &whole.1.cues);
        }
    }

    #[test]
    fn state_block_is_never_visible(text in texts()) {
        let (visible, ended) = cut(&[&text]);
        // Another cutter must find no block in the shown text.
        let mut again = StreamCutter::new(&[]);
        let mut shown = again.push(&visible);
        let left = again.finish_reply();
        shown.push_str(&left.visible_tail);
        prop_assert_eq!(&shown, &visible);
        prop_assert_eq!(left.state_block, None);
        for mark in ["```state\n", "~~~state\n", "``` state\n"] {
            prop_assert!(!visible.to_lowercase().contains(mark), "{visible:?}");
            prop_assert!(!text.to_lowercase().contains(mark) || ended.state_block.is_some());
        }
    }

    #[test]
    fn text_without_marks_is_unchanged(text in "[^`~<]{0,200}") {
        prop_assert_eq!(cut(&[&text]).0, text);
    }
}
