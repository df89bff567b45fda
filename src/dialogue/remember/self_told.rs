//! Facts that an NPC tells of itself. By default, these facts stay between the NPC and the player, as everything that was
//! told in private. In a world with `"self_told": "shared"`, all players may hear them: an NPC has one life for every
//! player.
//!
//! A shared fact is known to its hearers and private to no player. All these conditions must hold:
//! - A player was present. The replying NPC said the fact, about itself or its own people and things ("Mira's
//!   brother").
//! - The fact is about the NPC's life, present or past. Promises, plans and opinions depend on the moment and the
//!   listener.
//! - The fact names no player: not by id, not by models' words for players, and not by a word of address.
//! - The fact is not locked.
//! - The extraction was shown no events and no notes of the turn's state block. Nobody said these, and it is unknown
//!   which facts come from them.
//! - The fact shares no word beyond small talk ([`PrivateTerms`]) with private content of the dialogue's prompts, or
//!   with the player's lines. The fact also says something beyond these texts.
//! - The player has used no script that is missing in the fact. Shared words of two languages cannot be detected.
//!
//! The last two conditions are strict: a single common word keeps a fact private. A private matter in entirely
//! different words is recognised only by the names in the fact, which is why the default is private.

use std::{collections::BTreeSet, sync::LazyLock};

use super::{block_sentences::BlockSentences, learned::FreshFact};
use crate::Services;
use colloquy_core::{ids::PlayerId, scope::TenantScope};
use colloquy_memory::{
    authored::SelfTold,
    disclosure::{audience::Audience, private_terms::PrivateTerms},
    fact::{FactKind, Statement, Tense},
    keywords, party,
    text::{WordList, word_list},
    timeline::JudgeBudgetShare,
};
use colloquy_ports::{
    StoreResult,
    ledger::{facts::Extraction, jobs::JobInput},
};

/// The maximum number of turns whose lines are compared. In a longer dialogue, no further facts are shared.
const MAX_TURNS_COMPARED: u32 = 500;
/// Models' words for the person who talks with the NPC.
static PLAYER_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "player, the user, you, your, yours, guest, traveller, traveler, stranger, visitor, adventurer, newcomer, \
         플레이어, 사용자, 당신, 손님, 여행자, 나그네, 모험가, 방문객, 그대, 자네, 너",
    )
});

/// Splits `facts` into facts for every player and the rest.
pub(super) async fn split_shared(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    facts: Vec<FreshFact>,
) -> StoreResult<(Vec<FreshFact>, Vec<FreshFact>)> {
    // No prompt of the dialogue had locked content.
    let is_free = job_input.trace.as_ref().is_some_and(|trace| trace.locks.is_empty());
    let is_own = |fresh: &FreshFact| is_free && is_of_its_life(&fresh.statement, &job_input.npc.name);
    let Some(player) = player_sharing_with(job_input) else {
        return Ok((Vec::new(), facts));
    };
    let is_comparable = job_input.turn.number <= MAX_TURNS_COMPARED && BlockSentences::of_turn(job_input).is_empty();
    if !is_comparable || !facts.iter().any(is_own) {
        return Ok((Vec::new(), facts));
    }
    let dialogues = &services.ledger.dialogues;
    let dialogue = job_input.turn.dialogue;
    let last = job_input.turn.number;
    let (turns, confided) = tokio::try_join!(
        dialogues.load_turns(scope, dialogue, 1, last),
        dialogues.load_confided(scope, dialogue, last)
    )?;
    // The private content of some turn is unknown.
    let Some(confided) = confided else {
        return Ok((Vec::new(), facts));
    };
    let lines = || turns.iter().map(|turn| turn.player_text.as_str());
    let player_scripts: BTreeSet<u32> = lines().flat_map(scripts_of).collect();
    let confided = confided.with_lines(lines());
    Ok(facts.into_iter().partition(|fresh| {
        is_own(fresh)
            && !names_player(&fresh.statement, player)
            && player_scripts.is_subset(&scripts_of(&fresh.statement.content))
            && !can_rest_on_confided(&fresh.statement, &job_input.npc.name, &confided)
    }))
}

/// Returns the turn's extraction for the memory of all players: facts alone, new or repeated. The rest is stored with
/// `private_extraction`, the player's extraction.
pub(super) fn shared_extraction(private_extraction: &Extraction) -> Extraction {
    Extraction {
        audience: Audience {
            private_to: None,
            ..private_extraction.audience.clone()
        },
        forget: Vec::new(),
        ends: Vec::new(),
        quoted: Vec::new(),
        room: JudgeBudgetShare::LESSER,
        ..private_extraction.clone()
    }
}

/// Returns the player to whom the NPC's words about itself would be private, if the world shares these facts.
fn player_sharing_with(job_input: &JobInput) -> Option<&PlayerId> {
    let settings = &job_input.world.settings;
    let shares = settings.self_told.unwrap_or(SelfTold::Private) == SelfTold::Shared;
    job_input
        .audience()
        .private_to
        .and(job_input.turn.player.as_ref())
        .filter(|_| shares)
}

/// True if the named NPC speaks about its own life.
fn is_of_its_life(statement: &Statement, npc: &str) -> bool {
    let key = party::subject_key(&statement.subject);
    let npc_key = party::subject_key(npc);
    let is_own = key
        .strip_prefix(&npc_key)
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

/// Returns all texts of a statement that may be shown.
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

/// Returns the scripts of a text's words, by Unicode block. Words of two ASCII letters ("OK") belong to no language.
fn scripts_of(text: &str) -> BTreeSet<u32> {
    let words = text.split(|c: char| !c.is_alphabetic());
    let telling = words.filter(|word| word.chars().count() > 2 || !word.is_ascii());
    telling.flat_map(str::chars).map(script_of).collect()
}

fn script_of(c: char) -> u32 {
    match u32::from(c) {
        // Latin with accents.
        0..=0x24f | 0x1e00..=0x1eff => 0,
        // Hangul, as syllables and as letters.
        0x1100..=0x11ff | 0x3130..=0x318f | 0xa960..=0xa97f | 0xac00..=0xd7ff => 1,
        // Chinese characters, and Japanese kana.
        0x3040..=0x30ff | 0x3400..=0x9fff | 0xf900..=0xfaff | 0x20000.. => 2,
        other => other >> 8,
    }
}

/// True if the statement may rest on private content. The NPC's own name does not count.
fn can_rest_on_confided(statement: &Statement, npc: &str, confided: &PrivateTerms) -> bool {
    let name = keywords::informative_terms(npc);
    let other_texts: Vec<&str> = statement_texts(statement).collect();
    let statement_text = format!("{} {}", statement.content, statement.object);
    confided.may_underlie(&statement_text, &other_texts, &name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_memory::fact::{Importance, Polarity};

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
