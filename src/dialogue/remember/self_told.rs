//! What an NPC tells of itself it tells everybody: it has one life, whoever asks, unless the world says otherwise.
//!
//! Such a fact is known to those who heard it, as any other, and private to no player. A fact is one if all of this holds:
//! - a player was there, the NPC that replied said it, and it is about that NPC or what is the NPC's own ("Mira's brother");
//! - it is of the NPC's life as it is or was, and no promise, plan or opinion, which are of the moment and of whoever asks;
//! - it names no player, by the id, by the words that models have for players, nor as somebody who is spoken to;
//! - it is not locked;
//! - it has no word in common with what was private in any prompt of the dialogue so far, nor with what the player has said
//!   in it, that is more than small talk ([`PrivateTerms`]), and says something beyond both;
//! - the player has said nothing in a script in which it has no word: there is no telling what words of two languages share.
//!
//! The last is strict: a word that falls together is enough for a fact to stay private. A thing that is told in other words
//! altogether cannot be told from the NPC's own, but by what it names.

use std::collections::BTreeSet;

use super::{InjectedMemory, extraction::FreshFact};
use crate::{
    dialogue::{Services, jobs::JobInput},
    ids::PlayerId,
    memory::{
        authored::SelfTold,
        fact::{Audience, FactKind, Statement, Tense},
        keywords, party,
        private_terms::PrivateTerms,
        timeline::JudgeBudgetShare,
    },
    ports::{StoreResult, ledger::facts::Extraction},
    tenancy::TenantScope,
};

/// Turns of a dialogue whose lines are looked through. In a longer one nothing is told to others any more.
const MAX_TURNS_COMPARED: u32 = 500;
/// How models speak of whoever the NPC talks with.
const PLAYER_WORDS: [&str; 23] = [
    "player",
    "the user",
    "you",
    "your",
    "yours",
    "guest",
    "traveller",
    "traveler",
    "stranger",
    "visitor",
    "adventurer",
    "newcomer",
    "플레이어",
    "사용자",
    "당신",
    "손님",
    "여행자",
    "나그네",
    "모험가",
    "방문객",
    "그대",
    "자네",
    "너",
];

/// Those of `facts` that every player may hear of, and the others.
pub(super) async fn split_shared(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
    injected: &InjectedMemory,
    facts: Vec<FreshFact>,
) -> StoreResult<(Vec<FreshFact>, Vec<FreshFact>)> {
    let is_own = |fresh: &FreshFact| injected.is_free && is_of_its_life(&fresh.statement, &said.npc.name);
    let Some(player) = said.sharing_with() else {
        return Ok((Vec::new(), facts));
    };
    if said.turn.number > MAX_TURNS_COMPARED || !facts.iter().any(is_own) {
        return Ok((Vec::new(), facts));
    }
    let (dialogues, dialogue, last) = (&services.ledger.dialogues, said.turn.dialogue, said.turn.number);
    let (turns, confided) = tokio::try_join!(
        dialogues.load_turns(scope, dialogue, 1, last),
        dialogues.load_confided(scope, dialogue, last)
    )?;
    // Of some turn nobody knows.
    let Some(confided) = confided else {
        return Ok((Vec::new(), facts));
    };
    let lines = || turns.iter().map(|turn| turn.player_text.as_str());
    let spoken: BTreeSet<u32> = lines().flat_map(scripts_of).collect();
    let confided = confided.with_lines(lines());
    Ok(facts.into_iter().partition(|fresh| {
        is_own(fresh)
            && !names_player(&fresh.statement, player)
            && spoken.is_subset(&scripts_of(&fresh.statement.content))
            && !can_rest_on_confided(&fresh.statement, &said.npc.name, &confided)
    }))
}

/// What the turn brought to the memory of what every player may hear of: facts alone, be they news or not. The rest is kept
/// with `own`, that of the player's.
pub(super) fn shared_extraction(own: &Extraction) -> Extraction {
    Extraction {
        audience: Audience {
            private_to: None,
            ..own.audience.clone()
        },
        forget: Vec::new(),
        ends: Vec::new(),
        quoted: Vec::new(),
        room: JudgeBudgetShare::LESSER,
        ..own.clone()
    }
}

impl JobInput {
    /// The player to whom it would be private what the NPC tells of itself, where the world shares that.
    fn sharing_with(&self) -> Option<&PlayerId> {
        let settings = &self.world.settings;
        let shares = settings.self_told.unwrap_or(SelfTold::Shared) == SelfTold::Shared;
        self.audience()
            .private_to
            .and(self.turn.player.as_ref())
            .filter(|_| shares)
    }
}

/// Whether it is the word of the NPC of that name about its own life.
fn is_of_its_life(statement: &Statement, npc: &str) -> bool {
    let (key, own) = (party::subject_key(&statement.subject), party::subject_key(npc));
    let is_own = key
        .strip_prefix(&own)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let lasts = matches!(
        statement.kind,
        FactKind::Preference
            | FactKind::Event
            | FactKind::Relationship
            | FactKind::Habit
            | FactKind::PersonalInfo
            | FactKind::Timeline
            | FactKind::Profile
    );
    statement.speaker == npc && is_own && lasts && statement.tense != Tense::Future
}

/// All texts of it that anybody would be shown.
fn statement_texts(statement: &Statement) -> impl Iterator<Item = &str> {
    let keywords = statement.keywords.iter().map(String::as_str);
    [
        statement.content.as_str(),
        &statement.object,
        &statement.subject,
        &statement.predicate,
    ]
    .into_iter()
    .chain(keywords)
}

fn names_player(statement: &Statement, player: &PlayerId) -> bool {
    let id = keywords::sentence_key(player.as_str());
    statement_texts(statement).any(|text| {
        let words = format!(" {} ", keywords::sentence_key(text));
        let has = |name: &str| words.contains(&format!(" {name} "));
        // Korean particles follow a name without a space.
        let is_korean = |name: &str| !name.is_ascii() && words.contains(&format!(" {name}"));
        has(&id)
            || PLAYER_WORDS.iter().any(|name| has(name) || is_korean(name))
            || words.split(' ').any(|word| word.starts_with("player"))
    })
}

/// The scripts of the words of a text, by their place in Unicode. Two letters ("OK") are no word of a language.
fn scripts_of(text: &str) -> BTreeSet<u32> {
    let words = text.split(|c: char| !c.is_alphabetic());
    let telling = words.filter(|word| word.chars().count() > 2 || !word.is_ascii());
    telling.flat_map(str::chars).map(script_of).collect()
}

fn script_of(c: char) -> u32 {
    match u32::from(c) {
        // Latin with all its accents.
        0..=0x24f | 0x1e00..=0x1eff => 0,
        // Hangul, as syllables and as letters.
        0x1100..=0x11ff | 0x3130..=0x318f | 0xa960..=0xa97f | 0xac00..=0xd7ff => 1,
        // Chinese characters and what is written between them.
        0x3040..=0x30ff | 0x3400..=0x9fff | 0xf900..=0xfaff | 0x20000.. => 2,
        other => other >> 8,
    }
}

/// Whether it may rest on what is private. The NPC's own name tells nothing.
fn can_rest_on_confided(statement: &Statement, npc: &str, confided: &PrivateTerms) -> bool {
    let name = keywords::informative_terms(npc);
    let others: Vec<&str> = statement_texts(statement).collect();
    let said = format!("{} {}", statement.content, statement.object);
    confided.may_underlie(&said, &others, &name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::memory::fact::{Importance, Polarity};

    fn told(subject: &str, speaker: &str, content: &str) -> Statement {
        Statement {
            subject: subject.to_owned(),
            predicate: "be".to_owned(),
            object: String::new(),
            content: content.to_owned(),
            keywords: vec![],
            speaker: speaker.to_owned(),
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            polarity: Polarity::Positive,
            tense: Tense::Present,
            pinned: false,
        }
    }

    #[test]
    fn npc_life_statements_are_about_itself_or_its_relations() {
        for (subject, speaker, own) in [
            ("Mira", "Mira", true),
            ("mira", "Mira", true),
            ("Mira's brother", "Mira", true),
            ("Miranda", "Mira", false),
            ("Mira", "player:p1", false),
            ("player:p1", "Mira", false),
            ("player:p1's sister", "Mira", false),
            ("Ergen", "Mira", false),
        ] {
            assert_eq!(
                is_of_its_life(&told(subject, speaker, "x"), "Mira"),
                own,
                "{subject} {speaker}"
            );
        }
        for (kind, tense, own) in [
            (FactKind::Event, Tense::Past, true),
            (FactKind::Event, Tense::Future, false),
            (FactKind::Goal, Tense::Present, false),
            (FactKind::Opinion, Tense::Present, false),
            (FactKind::Note, Tense::Present, false),
        ] {
            let statement = Statement {
                kind,
                tense,
                ..told("Mira", "Mira", "x")
            };
            assert_eq!(is_of_its_life(&statement, "Mira"), own, "{kind:?} {tense:?}");
        }
    }

    #[test]
    fn statement_that_names_a_player_belongs_to_that_player() {
        let player = "rowan".parse().unwrap();
        for (content, names) in [
            ("Mira likes ale.", false),
            ("Mira likes rowan berries.", true),
            ("Mira trusts Rowan.", true),
            ("Mira trusts the player.", true),
            ("Mira plays with many players.", true),
            ("Mira will wait for you.", true),
            ("Mira remembers the traveller.", true),
            ("Mira hides a stranger.", true),
            ("미라는 그 나그네를 숨겨 주었다.", true),
            ("Mira has young hens.", false),
            ("미라는 플레이어를 믿는다.", true),
            ("미라는 에일을 좋아한다.", false),
        ] {
            assert_eq!(
                names_player(&told("Mira", "Mira", content), &player),
                names,
                "{content}"
            );
        }
    }

    #[test]
    fn words_of_two_scripts_are_distinguished() {
        let is_within = |line: &str, content: &str| scripts_of(line).is_subset(&scripts_of(content));
        assert!(is_within("What do you sing?", "Mira sings the Miller's Grey Mare."));
        assert!(is_within("OK, 뭘 불러요?", "미라는 도라지꽃을 좋아한다."));
        assert!(!is_within("I am pregnant.", "미라도 임신한 여자를 숨기고 있다."));
        assert!(!is_within("임신했어요", "Mira hides a pregnant woman."));
        assert!(!is_within("我怀孕了", "Mira hides a pregnant woman."));
        assert!(is_within("…!", "Mira sings."));
    }

    #[test]
    fn statement_with_a_confided_word_stays_private() {
        let confided =
            PrivateTerms::default().with_lines(["Do you like songs?", "My sister Anna hides the silver key."]);
        let song = "Mira's favourite song is the Miller's Grey Mare.";
        let mut statement = told("Mira", "Mira", song);
        assert!(!can_rest_on_confided(&statement, "Mira", &confided));
        statement.keywords = vec!["song".into(), "silver".into()];
        assert!(
            can_rest_on_confided(&statement, "Mira", &confided),
            "keywords are shown as well"
        );
        for content in ["Mira hid a key once.", "Mira likes songs.", "Mira knows Anna."] {
            assert!(
                can_rest_on_confided(&told("Mira", "Mira", content), "Mira", &confided),
                "{content}"
            );
        }
    }
}
