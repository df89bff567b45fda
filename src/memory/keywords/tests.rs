use proptest::prelude::*;

use super::*;

fn fact(content: &str, keywords: &[&str]) -> TermWeights {
    document_terms(
        content,
        &keywords.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(),
    )
}

fn covers(query: &str, doc: &TermWeights) -> f64 {
    query_coverage(&query_terms(query), doc)
}

/// Each query must cover its fact well, and every other fact of the table far less.
#[test]
fn queries_find_their_fact_in_both_languages() {
    let table: &[(&str, &str, &[&str])] = &[
        (
            "내가 좋아하는 과일이 뭐였지?",
            "플레이어는 포도를 좋아한다",
            &["포도", "과일", "음식", "선호"],
        ),
        (
            "what is my sister called?",
            "The player has a sister named Anna",
            &["sister", "family", "anna"],
        ),
        (
            "내 고양이 이름 기억해?",
            "플레이어는 나비라는 고양이를 키운다",
            &["고양이", "반려동물", "나비"],
        ),
        (
            "우리 어디서 싸웠지?",
            "플레이어는 어둠의 숲에서 고블린과 싸웠다",
            &["싸움", "고블린", "전투"],
        ),
        (
            "Where did I lose the ruby ring?",
            "The player lost a ruby ring at the old mill",
            &["ring", "ruby", "jewelry", "mill"],
        ),
        (
            "내 직업이 뭐라고 했지?",
            "플레이어의 직업은 대장장이이다",
            &["직업", "대장장이"],
        ),
        (
            "왕의 검은 누가 훔쳤어?",
            "도둑이 왕의 검을 훔쳤다",
            &["검", "도둑", "절도"],
        ),
        (
            "내 HP 포션은 몇 개야?",
            "플레이어는 HP포션을 3개 샀다",
            &["hp", "포션", "아이템"],
        ),
        (
            "am I allergic to peanuts?",
            "The player has a peanut allergy",
            &["peanut", "allergy", "allergic", "health"],
        ),
    ];
    let docs: Vec<TermWeights> = table
        .iter()
        .map(|(_, content, keywords)| fact(content, keywords))
        .collect();
    for (at, (query, content, _)) in table.iter().enumerate() {
        let own = covers(query, &docs[at]);
        assert!(own >= 0.45, "{query} covers {content} by {own:.2} only");
        for (other, doc) in docs.iter().enumerate().filter(|(other, _)| *other != at) {
            let strange = covers(query, doc);
            assert!(
                strange < own * 0.5,
                "{query}: {strange:.2} of `{}` against {own:.2}",
                table[other].1
            );
        }
    }
}

#[test]
fn shared_taste_alone_is_not_an_answer() {
    let query = "what fruit do I like?";
    let right = covers(
        query,
        &fact("The player likes grapes", &["grape", "fruit", "food", "preference"]),
    );
    let wrong = covers(
        query,
        &fact("The player likes swords", &["sword", "weapon", "preference"]),
    );
    assert!(right > 0.8 && wrong < 0.3, "{right:.2} {wrong:.2}");
    let query = "내가 좋아하는 과일이 뭐였지?";
    let wrong = covers(query, &fact("플레이어는 검술을 좋아한다", &["검술", "무예", "선호"]));
    assert!(wrong < 0.35, "{wrong:.2}");
}

#[test]
fn particles_do_not_hide_a_noun() {
    let doc = fact("과일", &[]);
    for word in [
        "과일",
        "과일이",
        "과일을",
        "과일은",
        "과일도",
        "과일에는",
        "과일이야?",
        "과일들이",
    ] {
        assert!(covers(word, &doc) > 0.7, "{word}");
    }
    let doc = fact("HP를 회복하는 물약", &[]);
    assert!(covers("hp가", &doc) > 0.8);
}

#[test]
fn stem_cut_too_short_still_finds_its_word() {
    for word in ["민주주의", "고속도로", "신의", "오솔길이", "대화가"] {
        let doc = fact(word, &[]);
        assert!(covers(&format!("{word}를"), &doc) > 0.5, "{word}");
        assert!(covers(word, &doc) > 0.5, "{word}");
    }
}

#[test]
fn unicode_forms_of_a_text_are_equal() {
    assert_eq!(query_terms("ＧＲＡＰＥ　Ｆｒｕｉｔ"), query_terms("grape fruit"));
    assert_eq!(query_terms("포도"), query_terms("포도"), "decomposed jamo");
    assert_eq!(query_terms("King’s"), query_terms("kings"));
    assert_eq!(normalise_text("Ⅳ"), "iv");
}

#[test]
fn uninformative_words_cover_no_fact() {
    for query in ["", "what is it?", "뭐야 그게", "…!?", "the of and"] {
        assert_eq!(query_terms(query), TermWeights::default(), "{query}");
        assert!(covers(query, &fact("the of and 뭐야", &[])).abs() < f64::EPSILON);
    }
}

#[test]
fn mentions_saturate() {
    let once = covers("grape", &fact("grape", &[]));
    let often = covers("grape", &fact(&"grape ".repeat(50), &[]));
    assert!(once > 0.8 && often > once && often <= 1.0);
}

#[test]
fn scripts_without_spaces_are_searchable() {
    let doc = fact("プレイヤーは葡萄が好きです", &["葡萄", "果物"]);
    assert!(covers("葡萄は?", &doc) > 0.5);
    assert!(covers("剣", &doc) < 0.1);
}

proptest! {
    #[test]
    fn terms_are_sorted_unique_and_bounded(text in "\\PC{0,200}", keywords in prop::collection::vec("\\PC{0,20}", 0..4)) {
        for TermWeights(terms) in [query_terms(&text), document_terms(&text, &keywords)] {
            prop_assert!(terms.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(terms.iter().all(|(_, weight)| *weight > 0.0 && *weight <= 1.0));
        }
    }

    #[test]
    fn coverage_is_between_zero_and_one(query in "[a-z가-힣 ]{0,60}", doc in "[a-z가-힣 ]{0,60}") {
        let share = covers(&query, &fact(&doc, &[]));
        prop_assert!((0.0..=1.0).contains(&share));
    }

    #[test]
    fn text_covers_itself(text in "([a-z]{5,9}|[가-힣]{2,5})( [가-힣]{2,4}){0,4}") {
        let terms = query_terms(&text);
        let share = query_coverage(&terms, &document_terms(&text, &[]));
        prop_assert!(terms.0.is_empty() || share > 0.8, "{share}");
    }
}

#[test]
fn reported_speech_is_found_by_its_verb() {
    let tea = fact("플레이어는 생강차를 마신다.", &[]);
    let spy = fact("에르겐은 왕궁 첩자였다고 플레이어에게 말했다.", &[]);
    let bridge = fact("소금나루 다리가 무너졌다고 한다.", &[]);
    for asked in ["뭐 마신다고 했더라?", "뭐 마신댔지?", "뭐 마신다더라?"] {
        assert!(covers(asked, &tea) > covers(asked, &spy), "{asked}");
        assert!(covers(asked, &tea) > covers(asked, &bridge), "{asked}");
    }
    for other in [&spy, &bridge] {
        // No more than the single syllable of "다".
        assert!(covers("어디 안 좋다고", other) < 0.08);
    }
}
