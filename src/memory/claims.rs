//! A player's claims to own, hold, rule or have paid something. The statement is about the player, but also about the
//! world, and the player cannot decide who owns the inn.
//!
//! The check looks at words. A false hit costs little: a claim is still remembered, found by searches, and shown as the
//! player's words.

use std::sync::LazyLock;

use super::{
    fact::Statement,
    keywords::{is_hangul, normalise_text},
    text::{WordList, word_list},
};

/// Words of owning, holding, paying and rank. Latin words of five letters or more, and Korean words, match as
/// beginnings.
static CLAIM_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "own, owns, owned, owner, ownership, belong, possess, hold, holds, held, inherit, heir, heirs, deed, deeds, \
         signed, bequea, granted, grants, given, bought, buys, purchas, owe, owes, owed, debt, debts, pay, pays, \
         paid, paying, payme, repay, repays, repaid, refund, exempt, waive, waived, deliver, handed, rule, rules, \
         ruled, ruler, reign, king, queen, lord, lady, prince, duke, baron, noble, knight, mayor, throne, crown, \
         landlord, landlad, master, mistress, command, appoint, elected, charge, chosen, prophe, 소유, 주인, 임자, \
         가졌, 가지고, 가진, 갖고, 자기, 자신의, 제것, 물려받, 상속, 넘겨받, 사들, 샀다, 샀고, 빚, 갚, 지불, 건네, \
         건넸, 건넨, 가져다, 갖다, 면제, 탕감, 공짜, 무료, 외상, 다스, 지배, 왕이, 왕으, 왕의, 여왕, 왕위, 영주, \
         성주, 귀족, 촌장, 이장, 임명, 즉위, 문서",
    )
});
/// Phrases with the same meaning: paid, or free of a price.
static CLAIM_PHRASES: WordList =
    LazyLock::new(|| word_list("free of, for free, 돈을 내, 돈을 냈, 돈을 안, 값을 내, 값을 냈, 값을 안"));
/// 치르다 means "go through" or "pay": a claim only beside a price.
const PAYMENT_VERBS: [&str; 3] = ["치르", "치렀", "치른"];
const PRICE_WORDS: [&str; 16] = [
    "값", "돈", "삯", "비용", "요금", "대금", "세금", "셈", "빚", "은화", "금화", "동전", "닢", "냥", "몫", "대가",
];
/// Phrases with claim words that claim nothing.
static INNOCENT_PHRASES: WordList = LazyLock::new(|| {
    word_list(
        "left-handed, left handed, right-handed, right handed, empty-handed, empty handed, single-handed, \
         even-handed, own up, owns up, owned up, 자기 전",
    )
});
/// Inner things, such as mistakes and feelings: owning them is no claim.
static INNER_POSSESSIONS: WordList =
    LazyLock::new(|| word_list("mistake, fault, failing, error, blame, guilt, responsib, feeling, 실수, 잘못, 책임"));
/// Verbs of having. They claim only a definite thing ("has the inn"): anybody may have a dog.
const POSSESSION_VERBS: [&str; 9] = ["has", "have", "had", "got", "gets", "keep", "keeps", "took", "take"];

/// True if a statement of a speaker about the speaker claims something of the world.
#[must_use]
pub fn is_world_claim(statement: &Statement) -> bool {
    let mut text = normalise_text(&format!("{} {}", statement.predicate, statement.content));
    for phrase in &*INNOCENT_PHRASES {
        text = text.replace(phrase, " ");
    }
    let object = normalise_text(&statement.object);
    let is_inner = || words_of(&object).any(|word| INNER_POSSESSIONS.iter().any(|inner| word.starts_with(inner)));
    let pays = || {
        let has_price = || words_of(&text).any(|word| PRICE_WORDS.iter().any(|price| word.contains(price)));
        words_of(&text).any(|word| PAYMENT_VERBS.iter().any(|paying| word.starts_with(paying))) && has_price()
    };
    let is_definite = object.starts_with("the ") || object.starts_with("all ");
    words_of(&text).any(|word| CLAIM_WORDS.iter().any(|claim| is_form_of(word, claim))) && !is_inner()
        || pays()
        || CLAIM_PHRASES.iter().any(|phrase| text.contains(phrase))
        || is_definite && words_of(&text).any(|word| POSSESSION_VERBS.contains(&word)) && !is_inner()
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

fn is_form_of(word: &str, claim: &str) -> bool {
    let is_beginning = claim.starts_with(is_hangul) || claim.len() > 4;
    word == claim || is_beginning && word.starts_with(claim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{FactKind, Importance, Polarity, Tense};

    fn says(predicate: &str, object: &str, content: &str) -> bool {
        is_world_claim(&Statement {
            subject: "player:p7".into(),
            predicate: predicate.into(),
            object: object.into(),
            content: content.into(),
            keywords: Vec::new(),
            speaker: "player:p7".into(),
            kind: FactKind::Event,
            importance: Importance::DEFAULT,
            polarity: Polarity::Positive,
            tense: Tense::Present,
            pinned: false,
        })
    }

    #[test]
    fn player_claims_of_ownership_rank_or_debt_are_about_the_world() {
        for (predicate, object, content) in [
            (
                "own",
                "the Lantern Inn",
                "The player owns the Lantern Inn, since the old owner signed it over to the player.",
            ),
            ("have", "the inn", "The player has the inn now."),
            ("be", "king", "The player is king of the valley."),
            ("be crowned", "", "The player was crowned by the bishop."),
            ("rule", "the village", "The player rules the village."),
            ("inherit", "", "The player inherited the mill."),
            ("owe", "nothing", "The player owes Mira nothing."),
            ("pay", "nothing", "The player pays nothing at the Lantern Inn."),
            (
                "repay",
                "",
                "The player repaid Mira two silvers the day before yesterday.",
            ),
            ("eat", "", "The player eats at the Lantern Inn for free."),
            ("be free", "of debt", "The player is free of every toll."),
            (
                "hand",
                "two silvers",
                "The player handed Mira two silvers for the salve.",
            ),
            (
                "갚다",
                "고약값",
                "플레이어는 2026-11-27에 에르겐에게 고약값 은화 두 닢을 갚았다.",
            ),
            ("치르다", "방값", "플레이어는 어제 방값을 치렀다."),
            ("치르다", "은화", "플레이어는 고약을 사고 은화 두 닢을 치렀다."),
            ("own", "the mill", "The player owns the mill, and makes no mistakes."),
            ("건네다", "은화", "플레이어는 에르겐에게 은화 두 닢을 건넸다."),
            ("가져다주다", "꿀", "플레이어는 에르겐에게 꿀을 가져다주었다."),
            ("내다", "돈", "플레이어는 등불주막에서 돈을 내지 않는다."),
            ("묵다", "등불주막", "플레이어는 등불주막에 공짜로 묵는다."),
            ("소유하다", "등불 여관", "플레이어는 등불 여관을 소유하고 있다."),
            ("가지다", "약초밭", "플레이어는 약초밭을 가졌다."),
            ("물려받다", "방앗간", "플레이어는 방앗간을 물려받았다."),
            ("주인이다", "여관", "플레이어는 여관의 주인이다."),
            ("다스리다", "마을", "플레이어는 마을을 다스린다."),
            ("임명되다", "여왕", "플레이어는 계곡의 여왕으로 임명되었다."),
        ] {
            assert!(says(predicate, object, content), "{content}");
        }
    }

    #[test]
    fn player_claims_of_deeds_and_tastes_are_not_about_the_world() {
        for (predicate, object, content) in [
            (
                "walk",
                "Saltmouth",
                "The player walked all the way to the inn from Saltmouth.",
            ),
            (
                "bring",
                "a sack of salt",
                "The player brought Mira the promised sack of salt.",
            ),
            ("have", "a dog", "The player has a dog."),
            ("drink", "tea", "The player drinks bitter tea in the morning."),
            ("move", "Oakford", "The player moved to Oakford."),
            ("own", "the player's mistakes", "The player owns the player's mistakes."),
            ("own up to", "the theft", "The player owns up to the theft."),
            ("take", "the blame", "The player took the blame."),
            ("be", "left-handed", "The player is left-handed."),
            ("be", "left-handed", "The player is left handed."),
            ("come home", "", "The player came home empty-handed."),
            ("치르다", "결혼식", "플레이어는 작년에 결혼식을 치렀다."),
            ("치르다", "시험", "플레이어는 내일 시험을 치른다."),
            ("마시다", "차", "플레이어는 자기 전에 차를 마신다."),
            ("가져오다", "꿀", "플레이어는 에르겐에게 약속한 꿀을 가져왔다."),
            ("이사하다", "참나무골", "플레이어는 참나무골로 이사했다."),
            ("마시다", "차", "플레이어는 차를 언제나 쓴 것으로 마신다."),
        ] {
            assert!(!says(predicate, object, content), "{content}");
        }
    }
}
