//! Tests that an NPC's statements about a player are forgotten together with the player's statements.

use InvalidReason::Forgotten;

use super::*;

const KNEE: &str = "The player's left knee aches.";
const SALE: &str = "Mira sold the player a jar of comfrey salve for the player's knee.";
const ADVICE: &str = "Mira advised the player to see the herbalist if the knee is no better.";

impl TimelineCase {
    /// Adds a private statement of the NPC in turn `n`.
    fn hears(self, id: u128, n: i64, content: &str, degrees: f32) -> Self {
        self.says(id, n, content, degrees).with(id, |known| {
            known.fact.statement.subject = "Mira".to_owned();
            known.fact.statement.speaker = "Mira".to_owned();
        })
    }
}

/// A memory of the knee, with requests to forget in turn 9.
fn asked(requests: &[(&str, f32)]) -> TimelineCase {
    TimelineCase::since(1)
        .says(1, 1, KNEE, 0.0)
        // Too far from each other to be compared.
        .hears(2, 2, SALE, 60.0)
        .hears(3, 3, ADVICE, 120.0)
        .hears(4, 4, "Mira sold the player a loaf of dark bread.", 180.0)
        .brought(9, requests, &[])
}

#[test]
fn statements_of_a_forgotten_fact_are_all_forgotten_and_no_other() {
    let all = asked(&[(KNEE, 0.0), (SALE, 60.0), (ADVICE, 120.0)]);
    assert_eq!(
        all.ends(),
        [(1, Forgotten, None), (2, Forgotten, None), (3, Forgotten, None)]
    );
    let rest = all.stored();
    assert_eq!((rest.settled().ends, rest.settled().lifts), (vec![], vec![]));
    assert_eq!(rest.unsaid(9).ends(), [], "it comes back with the turn");
}

#[test]
fn npc_statement_is_forgotten_only_in_nearly_all_its_words() {
    // Nearest to the sale, but the player's own statement is meant.
    let vague = asked(&[("The player's knee", 40.0)]);
    assert_eq!(vague.ends(), [(1, Forgotten, None)]);
    let other = asked(&[("Mira sold the player a jar of honey.", 60.0)]);
    assert_eq!(other.ends(), []);
}

#[test]
fn facts_of_others_and_manual_facts_are_not_forgotten() {
    let told = |change: fn(&mut KnownFact)| asked(&[(SALE, 60.0)]).with(2, change).ends();
    assert_eq!(told(|_| ()), [(2, Forgotten, None)]);
    assert_eq!(told(|known| known.fact.audience.private_to = None), []);
    assert_eq!(
        told(|known| known.fact.audience.private_to = Some("p8".parse().expect("an id"))),
        []
    );
    assert_eq!(told(|known| known.fact.authored = true), []);
    assert_eq!(told(|known| known.fact.statement.pinned = true), []);
    assert_eq!(
        told(|known| {
            known.fact.cause = Cause::Event(colloquy_core::ids::EventId::from_u128(5));
        }),
        [],
        "the game reported it"
    );
    let no_player = "Mira sold a jar of comfrey salve for a knee.";
    let of_nobody = TimelineCase::since(1)
        .hears(2, 2, no_player, 30.0)
        .brought(9, &[(no_player, 30.0)], &[]);
    assert_eq!(of_nobody.ends(), []);
}

#[test]
fn korean_sale_is_forgotten_in_its_own_words() {
    let sale = "에르겐은 플레이어에게 무릎에 바를 우슬 고약을 은화 두 닢에 팔았다.";
    let told = |request: &str| {
        TimelineCase::since(1)
            .hears(2, 2, sale, 30.0)
            .brought(9, &[(request, 30.0)], &[])
            .ends()
    };
    assert_eq!(told(sale), [(2, Forgotten, None)]);
    assert_eq!(told("플레이어는 무릎이 아프다."), []);
}
