//! Manual changes of facts, as over REST.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use colloquy::{
    dialogue::remember::{self, FactCorrection, ManualFact},
    ids::FactId,
    memory::{
        disclosure::audience::{Audience, Knower},
        fact::{FactKind, Importance},
    },
    ports::clock::Clock as _,
};

use super::{RecordedCorrection, ReplayWorld};
use crate::replay::history::{Adjective, Fruit, ManualEdit, name_of};

impl ReplayWorld {
    /// A person changes one of the existing facts.
    pub(super) async fn correct_any(&mut self, pick: u16, how: ManualEdit) {
        // Whether a conclusion is there to be changed depends on when it was made.
        let mut facts = self.facts().await;
        facts.retain(|_, fact| !fact.is_conclusion());
        let Some(nth) = usize::from(pick).checked_rem(facts.len()) else {
            return;
        };
        let (name, fact) = facts.into_iter().nth(nth).expect("below the number of facts");
        let keywords = match how {
            ManualEdit::Rekey(fruit) => Some(with_keyword(fact.view.keywords, fruit.name())),
            _ => None,
        };
        self.correct(fact.id, how, keywords.clone()).await;
        let corrected = RecordedCorrection::Fact {
            fact: fact.id,
            name,
            how,
            keywords,
        };
        self.corrections.push((self.clock.now(), corrected));
    }

    pub(super) async fn correct(&self, fact: FactId, how: ManualEdit, keywords: Option<Vec<String>>) {
        let facts = &self.services.ledger.facts;
        let edit = self.edit("fact.edit");
        let correction = match how {
            ManualEdit::Remove => {
                facts.remove_fact(&self.scope, fact, None, &edit).await.unwrap();
                return;
            }
            ManualEdit::Restore => {
                facts.restore_fact(&self.scope, fact, None, &edit).await.unwrap();
                return;
            }
            ManualEdit::Pin(pinned) => FactCorrection {
                pinned: Some(pinned),
                ..FactCorrection::default()
            },
            ManualEdit::Reword(adjective) => {
                let known = facts.load_fact(&self.scope, fact).await.unwrap().unwrap();
                let (adjective, object) = (adjective.name(), known.statement.object);
                FactCorrection {
                    content: Some(format!("It is {adjective} {object} (corrected)")),
                    ..FactCorrection::default()
                }
            }
            ManualEdit::Rekey(_) => FactCorrection {
                keywords,
                ..FactCorrection::default()
            },
            ManualEdit::Weigh(importance) => FactCorrection {
                importance: Some(Importance::from_clamped(f64::from(importance))),
                ..FactCorrection::default()
            },
        };
        remember::correct_fact(&self.services, &self.scope, fact, correction, None, &edit)
            .await
            .unwrap();
    }

    /// A person writes a fact into Mira's memory. The fact may be valid from before the first line.
    pub(super) async fn write(&self, fruit: Fruit, adjective: Adjective, long: bool) {
        let (fruit, adjective, now) = (fruit.name(), adjective.name(), self.clock.now());
        let name = name_of(usize::try_from(now.timestamp()).expect("after 1970"));
        let fact = ManualFact {
            world: self.authored.id.clone(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::Npc("mira".parse().unwrap())]),
                private_to: None,
            },
            subject: "player:p1".to_owned(),
            predicate: "like".to_owned(),
            object: fruit.to_owned(),
            content: format!("The player likes {adjective} {fruit} (fact {name} first)"),
            keywords: vec![fruit.to_owned()],
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            pinned: false,
            valid_at: long.then(|| now - TimeDelta::days(365)),
        };
        let edit = self.edit("fact.create");
        remember::write_manual_fact(&self.services, &self.scope, fact, &edit)
            .await
            .unwrap();
    }
}

fn with_keyword(mut keywords: Vec<String>, more: &str) -> Vec<String> {
    if keywords.iter().all(|keyword| keyword != more) {
        keywords.push(more.to_owned());
    }
    keywords
}
