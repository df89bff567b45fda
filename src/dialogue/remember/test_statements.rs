//! Statements, facts and extractions for the tables of this folder.
#![allow(clippy::unwrap_used)]

use chrono::{DateTime, TimeDelta, Utc};

use super::{memory_update::TurnAddition, timeline_input::as_known};
use colloquy_core::ids::{FactId, TurnId};
use colloquy_memory::{
    disclosure::{
        audience::{Audience, Knower},
        locks::DisclosureLocks,
    },
    fact::{Cause, FactKind, Importance, NewFact, Polarity, Statement, Tense},
    timeline::{JudgeBudgetShare, KnownFact},
};
use colloquy_ports::ledger::facts::Extraction;

/// Returns a moment, in minutes.
pub(super) fn moment(minute: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::minutes(minute)
}

pub(super) fn statement(subject: &str, content: &str) -> Statement {
    Statement {
        subject: subject.to_owned(),
        predicate: "see".to_owned(),
        object: String::new(),
        content: content.to_owned(),
        keywords: Vec::new(),
        speaker: "Mira".to_owned(),
        kind: FactKind::Event,
        importance: Importance::DEFAULT,
        polarity: Polarity::Positive,
        tense: Tense::Past,
        pinned: false,
    }
}

/// Returns the audience of the NPC `npc`; with a player, the memory is private to the player.
pub(super) fn audience(npc: &str, private_to: Option<&str>) -> Audience {
    Audience {
        knowers: [Knower::Npc(npc.parse().unwrap())].into(),
        private_to: private_to.map(|player| player.parse().unwrap()),
    }
}

/// Returns a fact that was said at `minute`.
pub(super) fn new_fact(id: u128, minute: i64, subject: &str, vector: &[f32]) -> NewFact {
    NewFact {
        id: FactId::from_u128(id),
        world: "vale".parse().unwrap(),
        audience: audience("mira", None),
        locks: DisclosureLocks::default(),
        statement: statement(subject, &format!("{subject} saw a mule {id}")),
        valid_at: moment(minute),
        expires_at: None,
        cause: Cause::Turn(TurnId::from_u128(id)),
        source: None,
        derived_from: Vec::new(),
        pii: Vec::new(),
        authored: false,
        embedding: vector.to_vec(),
    }
}

pub(super) fn known_fact(id: u128, minute: i64, subject: &str, vector: &[f32]) -> KnownFact {
    as_known(&new_fact(id, minute, subject, vector))
}

/// Returns the extraction of a turn of player `p1` at `minute`.
pub(super) fn extraction(minute: i64, forget: &[&str]) -> Extraction {
    Extraction {
        turn: TurnId::from_u128(1),
        dialogue: "ses_00000000000000000000000001".parse().unwrap(),
        number: 1,
        npc: "mira".parse().unwrap(),
        audience: audience("mira", None),
        said_at: moment(minute),
        player: Some("p1".parse().unwrap()),
        forget: forget.iter().map(|text| (*text).to_owned()).collect(),
        ends: Vec::new(),
        injected: Vec::new(),
        quoted: Vec::new(),
        room: JudgeBudgetShare::WHOLE,
    }
}

/// Returns a turn with the given facts and requests.
pub(super) fn addition(facts: Vec<NewFact>, forget: &[&str]) -> TurnAddition {
    let fresh_facts = facts.iter().map(|fact| super::learned::FreshFact {
        id: fact.id,
        statement: fact.statement.clone(),
        pii: Vec::new(),
        embedding: fact.embedding.clone(),
    });
    TurnAddition {
        fresh_facts: fresh_facts.collect(),
        facts,
        extraction: extraction(10, forget),
        episode: None,
    }
}
