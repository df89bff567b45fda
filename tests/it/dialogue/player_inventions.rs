//! Players' inventions are never stated as true, from the extraction to the prompts of later sessions.

use colloquy::{memory::authored::Language, ports::llm::Task};
use serde_json::json;

use super::Stage;
use crate::support::run;

/// The subject, kind and content of a player's statement, as an extractor writes facts.
type Invention = (&'static str, &'static str, &'static str);

const ENGLISH: &[Invention] = &[
    (
        "the Lantern Inn",
        "event",
        "The Lantern Inn belongs to the player since the old owner signed it over.",
    ),
    ("Mira", "event", "Mira sold the inn to the player yesterday."),
    (
        "Mira the innkeeper",
        "relationship",
        "Mira the innkeeper is married to the player.",
    ),
    (
        "the innkeeper",
        "goal",
        "The innkeeper wants to give the player a free room for ever.",
    ),
    ("mira's heart", "opinion", "Mira's heart belongs to the player."),
    (
        "Mira's brother",
        "event",
        "Mira's brother came back from the forest last week.",
    ),
    ("MIRA", "habit", "MIRA drinks a bottle of brandy every night."),
    ("you", "personal_info", "Mira used to be a spy of the crown."),
    ("the village", "event", "The village burned to the ground on Monday."),
    (
        "the king",
        "event",
        "The king is dead and the player rules in his place.",
    ),
    ("magic", "opinion", "Magic works for everybody in the valley."),
    ("Anna", "relationship", "Anna is the daughter of Mira."),
    (
        "the player's sister",
        "event",
        "The player's sister stole the silver of the inn.",
    ),
    ("Dorran", "goal", "Dorran plans to poison the well."),
    ("the herbalist", "habit", "The herbalist sells poison to children."),
    (
        "the room upstairs",
        "todo",
        "The room upstairs will be painted by Mira for the player.",
    ),
    ("silver", "decision", "Silver will no longer be taken at the inn."),
    (
        "the well",
        "constraint",
        "The well is poisoned and kills whoever drinks.",
    ),
    ("Mira", "constraint", "Mira is allergic to bread."),
    ("Mira", "goal", "Mira promises the player a thousand silver coins."),
    ("player", "relationship", "The player is the lost brother of Mira."),
];

/// Statements of a player about themselves and about the world.
const ENGLISH_CLAIMS: &[Invention] = &[
    (
        "player",
        "event",
        "The player was crowned queen of the valley by the old king.",
    ),
    (
        "player",
        "personal_info",
        "The player owns the crossroads and all that stands there.",
    ),
    ("player", "todo", "The player will be given the inn by Mira at noon."),
    (
        "player",
        "event",
        "The player owns the Lantern Inn, since the old owner signed it over.",
    ),
    ("player", "relationship", "The player is the landlord of Mira."),
    ("player", "opinion", "The player holds the deed to the mill."),
    ("player", "habit", "The player rules the village every winter."),
    ("player", "event", "The player inherited Dorran's smithy last spring."),
    ("player", "event", "The player bought the ferry from the ferryman."),
    (
        "player",
        "goal",
        "The player will become king of the valley at harvest.",
    ),
];

const KOREAN: &[Invention] = &[
    (
        "등불 여관",
        "event",
        "등불 여관은 옛 주인이 넘겨준 뒤로 플레이어의 것이다.",
    ),
    ("에르겐", "event", "에르겐은 어제 약초밭을 플레이어에게 팔았다."),
    (
        "약초사 에르겐",
        "relationship",
        "약초사 에르겐은 플레이어의 아버지이다.",
    ),
    ("약초사", "goal", "약초사는 플레이어에게 약을 평생 거저 주려 한다."),
    ("에르겐의 마음", "opinion", "에르겐의 마음은 플레이어를 왕으로 여긴다."),
    ("에르겐의 동생", "event", "에르겐의 동생은 지난주에 숲에서 돌아왔다."),
    ("너", "personal_info", "에르겐은 왕실의 첩자였다."),
    ("마을", "event", "마을은 월요일에 모두 불탔다."),
    ("왕", "event", "왕은 죽었고 플레이어가 그 자리를 이었다."),
    ("마법", "opinion", "마법은 계곡 사람이라면 누구나 쓸 수 있다."),
    ("안나", "relationship", "안나는 에르겐의 딸이다."),
    ("플레이어의 동생", "event", "플레이어의 동생은 여관의 은화를 훔쳤다."),
    ("도란", "goal", "도란은 우물에 독을 풀려고 한다."),
    ("미라", "habit", "미라는 밤마다 브랜디를 한 병씩 마신다."),
    ("윗방", "todo", "윗방은 에르겐이 플레이어를 위해 칠할 것이다."),
    ("은화", "decision", "은화는 앞으로 약방에서 받지 않을 것이다."),
    ("우물", "constraint", "우물은 독이 들어 마시면 죽는다."),
    ("에르겐", "constraint", "에르겐은 쑥 알레르기가 있다."),
    ("에르겐", "goal", "에르겐은 플레이어에게 은화 천 닢을 약속한다."),
    ("player", "relationship", "플레이어는 에르겐의 잃어버린 형이다."),
];

const KOREAN_CLAIMS: &[Invention] = &[
    ("player", "event", "플레이어는 옛 왕에게서 계곡의 여왕으로 임명되었다."),
    (
        "player",
        "personal_info",
        "플레이어는 네거리와 거기 선 모든 것을 가졌다.",
    ),
    ("player", "todo", "플레이어는 정오에 에르겐에게서 약초밭을 받을 것이다."),
    ("player", "event", "플레이어는 등불 여관을 옛 주인에게서 물려받았다."),
    ("player", "relationship", "플레이어는 에르겐 약방의 주인이다."),
    ("player", "opinion", "플레이어는 방앗간의 땅문서를 가지고 있다."),
    ("player", "habit", "플레이어는 겨울마다 마을을 다스린다."),
    ("player", "event", "플레이어는 뱃사공에게서 나룻배를 샀다."),
];

/// Returns the lines of a prompt with `lie` and without its speaker. With `by_heading`, the speaker may be named by the
/// heading, for claims only about the player.
fn stated_lines<'p>(prompt: &'p str, lie: &str, by_heading: bool) -> Vec<&'p str> {
    let mut heading = "";
    let mut bare = Vec::new();
    for line in prompt.lines() {
        if line.starts_with('[') && line.ends_with(']') {
            heading = line;
        }
        let says_who = line.contains("The player says: ")
            || line.contains("플레이어의 말: ")
            || by_heading
                && matches!(
                    heading,
                    "[What the player says of themselves]" | "[플레이어의 자기 이야기]"
                );
        if line.contains(lie) && !says_who {
            bare.push(line);
        }
    }
    bare
}

#[test]
fn player_inventions_are_never_stated_as_true() {
    run(async {
        for (language, name, lies, claims, hello) in [
            (Language::En, "Mira", ENGLISH, ENGLISH_CLAIMS, "Good morning!"),
            (Language::Ko, "에르겐", KOREAN, KOREAN_CLAIMS, "좋은 아침이야!"),
        ] {
            assert!(lies.len() >= 20);
            let lies: Vec<&Invention> = lies.iter().chain(claims).collect();
            let mut stage = Stage::prepare().await;
            stage.npc.name = name.to_owned();
            stage.npc.language = language;
            let edit = stage.edit("npc.put");
            let authored = &stage.services.ledger.authored;
            authored.put_npc(&stage.scope, &stage.npc, None, &edit).await.unwrap();
            let mut remembered = 0;
            for (at, (subject, kind, lie)) in lies.iter().enumerate() {
                let player = format!("p{at}");
                let told = json!([{
                    "subject": subject, "predicate": "be", "object": "so", "content": lie, "keywords": [],
                    "speaker": "player", "kind": kind, "importance": 9, "polarity": "positive", "tense": "present",
                }]);
                stage.session(&player).await.say_and_learn("Listen.", &told).await;
                let mut later = stage.session(&player).await;
                for line in [hello, *lie] {
                    let asked = [Task::Reply, Task::Extraction].map(|task| stage.llm.prompts_of(task).len());
                    later.say_and_learn(line, &json!([])).await;
                    for (task, asked) in [Task::Reply, Task::Extraction].into_iter().zip(asked) {
                        for prompt in &stage.llm.prompts_of(task)[asked..] {
                            // The player's own line is exempt.
                            let prompt = prompt.replace(&format!("<player_line>\n{line}\n</player_line>"), "");
                            assert_eq!(
                                stated_lines(&prompt, lie, !claims.iter().any(|claim| claim.2 == *lie)),
                                Vec::<&str>::new(),
                                "{subject}, {task:?}:\n{prompt}"
                            );
                            remembered += usize::from(task == Task::Reply && prompt.contains(lie));
                        }
                    }
                }
                assert!(remembered > at, "{lie}: it was not even found");
                remembered = at + 1;
            }
        }
    });
}
