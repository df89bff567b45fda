//! The size of the extraction prompt of an ordinary turn, which every line costs, and its events and notes, which few
//! lines have.

use minijinja::context;

use super::*;
use crate::prompt::Template;

/// Renders an ordinary turn's prompt: five known facts, two open promises, four earlier lines; with the events and
/// notes of its state block.
fn render(template: Template, language: Language, [events, notes]: [&[&str]; 2]) -> String {
    let values = match language {
        Language::En => context! {
            npc_name => "Captain Voss",
            subjects => ["Piet", "the player's cousin", "Lucas Brand", "the Larkspur"],
            known => [
                "The player says: The player's name is Ida Marrable.",
                "The player says: Friends call the player Wren.",
                "The player says: Mussels close the player's throat.",
                "Voss said: Voss gives the boat Magpie to nobody.",
                "The player says: The player's cousin is called Piet and has red hair.",
            ],
            world => ["The Larkspur: A schooner that went down off the Teeth with all hands."],
            open => [
                context! { text => "The player says: The player brings Voss the chart on 0212-02-15.", overdue => true },
                context! { text => "Voss said: Voss keeps the player's secret.", overdue => false },
            ],
            before => [
                "player: Do you still have herring, or is it too late in the day?",
                "Captain Voss: For you there is always herring. Smoked or pickled?",
                "player: The smoked one, always.",
                "Captain Voss: Good. Sit down, then, and tell me what the road was like.",
            ],
            calendar => "",
            date => "0212-02-12",
            weekday => "Saltday",
            line => "Long. I owe forty shillings to a man called Corbin, so I cannot go back. When do you sail for Morrow?",
            reply => "At first light on the day the fever lifts, not an hour earlier. Bring me the chart and your debt is \
                      nobody's business on my deck. I give you my word on that, and my word is dearer than forty shillings.",
        },
        Language::Ko => context! {
            npc_name => "윤하람",
            subjects => ["김민수", "플레이어의 사촌", "플레이어의 누나", "까망이"],
            known => [
                "플레이어의 말: 플레이어의 이름은 이도윤이다.",
                "플레이어의 말: 플레이어의 별명은 똘이이다.",
                "플레이어의 말: 플레이어는 천식이 있다.",
                "윤하람의 말: 윤하람은 유자차를 좋아한다.",
                "플레이어의 말: 플레이어는 주말마다 횟집에서 아르바이트를 한다.",
            ],
            world => ["까망이: 구관 뒤에 사는 검은 고양이."],
            open => [
                context! { text => "플레이어의 말: 플레이어는 2024-04-11에 귤을 가져오기로 했다.", overdue => true },
                context! { text => "윤하람의 말: 윤하람은 플레이어의 비밀을 말하지 않기로 했다.", overdue => false },
            ],
            before => [
                "플레이어: 선배, 아직 안 가셨네요. 책 반납하러 왔어요.",
                "윤하람: 응, 오늘은 늦게까지 남아 있으려고. 그 책 재미있었어?",
                "플레이어: 네, 끝이 좀 슬펐지만요.",
                "윤하람: 다음 권도 있는데 빌려 갈래?",
            ],
            calendar => "",
            date => "2024-04-12",
            weekday => "금요일",
            line => "네, 빌릴게요. 그런데 언제까지 돌려드려야 해요? 저 다음 주에 항구동으로 이사 가거든요.",
            reply => "모레 가져가면 25일까지지. 이사 가느라 정신없겠다. 짐 옮기는 날 말해 주면 도와줄게. \
                      그리고 귤은 잊지 않았지? 어제까지 가져온다고 했잖아.",
        },
    };
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let values = context! { listeners => ["Teague"], events => owned(events), notes => owned(notes), hears_others => false, ..values };
    TEMPLATES.render(language, template, values).unwrap()
}

#[test]
fn extraction_prompt_of_an_ordinary_turn_is_small() {
    for (language, counter, most) in [
        (Language::En, TokenCounter::O200k, 1_600),
        (Language::Ko, TokenCounter::O200k, 1_400),
        // For a model without a known vocabulary, which needs no more than this.
        (Language::En, TokenCounter::Estimated, 1_600),
    ] {
        let tokens = counter.count_tokens(&render(Template::Extraction, language, [&[], &[]]));
        assert!(tokens <= most, "{language:?}: {tokens} tokens by {counter:?}");
    }
}

#[test]
fn events_and_notes_stand_behind_the_reply_and_are_explained_where_there_are_any() {
    let event = "<event>A bell rang.</event>";
    for (template, behind) in [
        (Template::Extraction, &[event, "<note>The player lies.</note>"][..]),
        // All listeners learn the facts of a line, and nobody said a note.
        (Template::ConversationExtraction, &[event][..]),
    ] {
        for language in [Language::En, Language::Ko] {
            let without = render(template, language, [&[], &[]]);
            assert!(without.ends_with("</npc_reply>"), "{without}");
            let with = render(template, language, [&["A bell\nrang."], &["The player lies."]]);
            assert!(
                with.ends_with(&format!("</npc_reply>\n{}", behind.join("\n"))),
                "{with}"
            );
            let added = with.lines().filter(|line| without.lines().all(|other| other != *line));
            let added: Vec<&str> = added.collect();
            assert_eq!(added[1..], *behind, "{with}");
            assert!(added[0].contains("event") && added[0].contains("speaker"), "{with}");
        }
    }
}
