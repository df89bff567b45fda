//! Speaker and subject are never confused: a table of lines in both languages with their facts.

use super::{
    claim::{self, ClaimVoice},
    lexicon, tasks,
};
use colloquy_memory::{authored::Language, fact::FactKind};

fn prompt(speaker: &str, text: &str, known: &[&str]) -> (String, &'static str) {
    let npc = match lexicon::language_of(text) {
        Language::En => "Mira",
        Language::Ko => "에르겐",
    };
    let (line, reply) = if speaker == "player" { (text, "") } else { ("", text) };
    let known: String = known.iter().map(|fact| format!("<known>{fact}</known>\n")).collect();
    let prompt = format!(
        "{known}<npc_name>{npc}</npc_name>\n<player_line>\n{line}\n</player_line>\n<npc_reply>\n{reply}\n</npc_reply>\n"
    );
    (prompt, npc)
}

fn facts(speaker: &str, text: &str, known: &[&str]) -> Vec<serde_json::Value> {
    tasks::extract_facts(&prompt(speaker, text, known).0)["facts"]
        .as_array()
        .unwrap()
        .clone()
}

fn cases() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    include_str!("speaker_cases.tsv")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let mut cells = line.split('\t');
            (
                cells.next().unwrap(),
                cells.next().unwrap(),
                cells.next().unwrap_or("").trim(),
            )
        })
}

#[test]
fn subject_and_speaker_are_never_confused() {
    let mut wrong = Vec::new();
    let mut languages = [0, 0];
    for (speaker, text, expected) in cases() {
        let (_, npc) = prompt(speaker, text, &[]);
        languages[usize::from(npc != "Mira")] += 1;
        let found = facts(speaker, text, &[]);
        let shown: Vec<String> = found
            .iter()
            .map(|fact| {
                let sign = if fact["polarity"] == "positive" { "+" } else { "-" };
                let text = |key: &str| fact[key].as_str().unwrap().to_owned();
                format!(
                    "{} | {} | {} | {sign} | {}",
                    text("subject"),
                    text("predicate"),
                    text("object"),
                    text("tense")
                )
            })
            .collect();
        let said_by = if speaker == "player" { "player" } else { npc };
        let shown = shown.join(" ; ");
        if shown != expected || found.iter().any(|fact| fact["speaker"] != said_by) {
            wrong.push(format!("{speaker}: {text}\n  expected {expected}\n  found    {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(languages.iter().all(|count| *count >= 50), "{languages:?}");
}

/// A stored sentence is read back as the same claim. Comparisons and answers depend on the round trip.
#[test]
fn content_is_parsed_back_into_its_source_claim() {
    for (speaker, text, _) in cases() {
        let (_, npc) = prompt(speaker, text, &[]);
        let voice = if speaker == "player" {
            ClaimVoice::Player
        } else {
            ClaimVoice::Npc
        };
        for claim in claim::read_claims(text, voice, npc) {
            let Some(read) = claim::read_record(&claim.content, npc) else {
                panic!("`{}` cannot be read back", claim.content);
            };
            assert!(claim.says_same(&read), "{claim:#?}\n{read:#?}");
            assert_eq!(claim.content, read.content);
        }
    }
}

#[test]
fn known_facts_are_not_extracted_again() {
    for (speaker, text, _) in cases() {
        let found = facts(speaker, text, &[]);
        let contents: Vec<&str> = found.iter().map(|fact| fact["content"].as_str().unwrap()).collect();
        assert!(facts(speaker, text, &contents).is_empty(), "{text}");
    }
    assert!(facts("player", "I really love grapes!", &["The player loves grapes."]).is_empty());
    assert_eq!(
        facts("player", "I like grapes", &["The player used to like grapes."]).len(),
        1
    );
    assert_eq!(facts("player", "I like grapes", &["Mira likes grapes."]).len(), 1);
}

#[test]
fn contents_stand_alone_and_carry_keywords_with_broader_categories() {
    let cases = [
        (
            "I like grapes.",
            "The player likes grapes.",
            "grape, grapes, fruit, food, preference",
        ),
        (
            "나는 포도를 좋아해.",
            "플레이어는 포도를 좋아한다.",
            "포도, 과일, 음식, 선호",
        ),
        (
            "내 동생은 포도를 좋아해.",
            "플레이어의 동생은 포도를 좋아한다.",
            "포도, 과일, 음식, 선호, 동생, 가족",
        ),
        (
            "I'm allergic to peanuts.",
            "The player is allergic to peanuts.",
            "peanut, peanuts, nut, food, allergy, health, danger",
        ),
        ("너는 차를 좋아하지.", "에르겐은 차를 좋아한다.", "차, 음료, 선호"),
        (
            "이제 사과는 안 좋아해.",
            "플레이어는 더 이상 사과를 좋아하지 않는다.",
            "사과, 과일, 음식, 선호",
        ),
        (
            "I no longer like apples.",
            "The player no longer likes apples.",
            "apple, apples, fruit, food, preference",
        ),
        (
            "My parents like tea.",
            "The player's parents like tea.",
            "tea, drink, preference, parents, family, relative",
        ),
    ];
    for (text, content, keywords) in cases {
        let found = facts("player", text, &[]);
        assert_eq!(found[0]["content"], content);
        let words: Vec<&str> = found[0]["keywords"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect();
        assert_eq!(words.join(", "), keywords, "{text}");
    }
}

#[test]
fn forget_request_names_a_known_fact() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "Forget that I like plums.",
            &["The player likes pears.", "The player loves plums."],
            &["The player loves plums."],
        ),
        ("Please forget I like plums.", &[], &["The player likes plums."]),
        (
            "Could you forget everything about my sister?",
            &["The player's sister likes tea.", "The player likes tea."],
            &["The player's sister likes tea."],
        ),
        (
            "Never mind what I said about plums.",
            &["The player likes plums."],
            &["The player likes plums."],
        ),
        ("Forget it.", &["The player likes plums."], &[]),
        ("Don't forget that I like plums.", &[], &[]),
        (
            "내가 자두를 좋아한다는 거 잊어 줘.",
            &["플레이어는 자두를 좋아한다.", "플레이어는 배를 좋아한다."],
            &["플레이어는 자두를 좋아한다."],
        ),
        (
            "제가 자두를 좋아한다고 한 건 잊어 주세요.",
            &[],
            &["플레이어는 자두를 좋아한다."],
        ),
        (
            "자두는 잊어버려.",
            &["플레이어는 자두를 좋아한다."],
            &["플레이어는 자두를 좋아한다."],
        ),
        (
            "내 동생에 대해 말한 건 다 잊어 줘.",
            &["플레이어의 동생은 차를 좋아한다.", "플레이어는 차를 좋아한다."],
            &["플레이어의 동생은 차를 좋아한다."],
        ),
        ("내가 자두를 좋아한다는 거 잊지 마.", &[], &[]),
        ("약속을 잊어버렸어.", &[], &[]),
    ];
    for (line, known, expected) in cases {
        let answer = tasks::extract_facts(&prompt("player", line, known).0);
        assert_eq!(answer["forget"], serde_json::json!(expected), "{line}");
        if !expected.is_empty() {
            assert_eq!(answer["facts"], serde_json::json!([]), "{line}");
        }
    }
}

#[test]
fn health_limits_are_constraints_of_high_importance() {
    for text in [
        "I'm allergic to peanuts.",
        "나는 땅콩 알레르기가 있어.",
        "I'm a vegetarian.",
        "저는 새우를 못 먹어요.",
    ] {
        let fact = &facts("player", text, &[])[0];
        assert_eq!(
            FactKind::parse_lenient(fact["kind"].as_str().unwrap()),
            FactKind::Constraint,
            "{text}"
        );
        assert!(fact["importance"].as_u64().unwrap() >= 9, "{text}");
    }
}

/// Otherwise the model would learn facts from its own answers.
#[test]
fn npc_claims_about_itself_are_not_facts() {
    let mut taught = Vec::new();
    for language in [Language::En, Language::Ko] {
        let (told, npc) = match language {
            Language::En => ("you like grapes", "Mira"),
            Language::Ko => ("포도를 좋아한다", "에르겐"),
        };
        for phrase in lexicon::lexicon_of(language)
            .all_phrases()
            .filter(|phrase| !phrase.contains("{world}") && !phrase.contains("npc"))
        {
            let text = phrase
                .replace("{a}", told)
                .replace("{A}", told)
                .replace("{x}", "Tom")
                .replace("{X}", "Tom");
            let found = claim::read_claims(&text, ClaimVoice::Npc, npc);
            if let Some(claim) = found.first() {
                taught.push(format!("{text} -> {}", claim.content));
            }
        }
    }
    assert!(taught.is_empty(), "{}", taught.join("\n"));
}

mod proptests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn extraction_reads_any_text_without_panic(line in "\\PC{0,120}", reply in "(I|you|나는|포도를|좋아해|like|my|,|\\.| |'s|가|\u{130}){0,30}") {
            let text = format!("<npc_name>미라</npc_name><player_line>{line}</player_line><npc_reply>{reply}</npc_reply>");
            prop_assert!(tasks::extract_facts(&text)["facts"].is_array());
            let _ = tasks::classify_intent(&text);
            let _ = tasks::summarise_turns(&format!("<npc_name>x</npc_name><player>{line}</player><npc>{reply}</npc>"));
        }
    }
}
