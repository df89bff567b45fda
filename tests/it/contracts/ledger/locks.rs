//! The disclosure locks of facts: the sources of a fact that not every player may hear.

use colloquy::{
    ids::{FactId, NpcId, ScenarioId},
    memory::{
        disclosure::{audience::Viewpoint, locks::DisclosureLocks},
        fact::FactKind,
        progress::Progress,
        scenario::Scenario,
    },
    ports::ledger::scenarios::{Embedding, RequiredProgress},
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance},
};

async fn create_locked_fact<S: LedgerSubject>(f: &Fixture<S>, locks: &str, kind: FactKind, pinned: bool) -> FactId {
    let mut fact = f.sample_fact(locks);
    fact.locks = locks.parse().unwrap();
    fact.statement.kind = kind;
    fact.statement.pinned = pinned;
    fact.statement.importance = importance(9);
    f.create_fact(fact).await
}

pub async fn locked_facts_are_confirmed_and_stand_separately<S: LedgerSubject>(f: &Fixture<S>) {
    let open = create_locked_fact(f, "", FactKind::Goal, false).await;
    let well = create_locked_fact(f, "scenario:mira/well", FactKind::Goal, false).await;
    let both = "scenario:ergen/fire;scenario:mira/well;hearers:p7+p:8@x.y";
    let all = create_locked_fact(f, both, FactKind::Preference, false).await;
    let pinned = create_locked_fact(f, "hearers:", FactKind::Goal, true).await;
    let facts = &f.ledger().facts;
    let ids = [pinned, all, well, open];
    let confirmed = facts
        .confirm_facts(&f.scope, &f.viewpoint(), &ids, f.now())
        .await
        .unwrap();
    assert_eq!(confirmed.open.iter().map(|row| row.fact).collect::<Vec<_>>(), [open]);
    let apart: Vec<(FactId, u32, String)> = confirmed
        .locked
        .iter()
        .map(|(row, locks)| (row.fact, row.version, locks.to_string()))
        .collect();
    let wanted = [(pinned, "hearers:"), (all, both), (well, "scenario:mira/well")];
    assert_eq!(apart, wanted.map(|(fact, locks)| (fact, 1, locks.to_owned())));
    let designer = Viewpoint {
        sees_all_players: true,
        ..f.viewpoint()
    };
    let confirmed = facts.confirm_facts(&f.scope, &designer, &ids, f.now()).await.unwrap();
    assert_eq!((confirmed.open.len(), confirmed.locked.len()), (4, 0));
    // Standing facts carry their locks. The limit counts unlocked and locked facts apart. Facts for other players take
    // no room from facts that the player may have heard.
    let others = create_locked_fact(f, "hearers:p9", FactKind::Goal, false).await;
    let heard = create_locked_fact(f, "scenario:mira/well;hearers:p1+p7", FactKind::Goal, true).await;
    let mut ending = f.sample_fact("hearers:p7");
    ending.locks = "hearers:p7".parse().unwrap();
    ending.statement.kind = FactKind::Goal;
    ending.expires_at = Some(f.now() + std::time::Duration::from_hours(1));
    let ending = f.create_fact(ending).await;
    let standing = async |viewpoint: &Viewpoint, gossip, limit| {
        let found = facts
            .load_standing(&f.scope, viewpoint, gossip, f.now(), limit)
            .await
            .unwrap();
        let mut found: Vec<_> = found
            .facts
            .iter()
            .map(|fact| (fact.id, fact.locks.to_string()))
            .collect();
        found.sort();
        found
    };
    let of_both = (heard, "scenario:mira/well;hearers:p1+p7".to_owned());
    let of_well = (well, "scenario:mira/well".to_owned());
    let mut wanted = vec![
        (open, String::new()),
        of_well,
        of_both,
        (ending, "hearers:p7".to_owned()),
    ];
    wanted.sort();
    assert_eq!(standing(&f.viewpoint(), false, 9).await, wanted);
    wanted.retain(|(fact, _)| *fact != ending);
    assert_eq!(standing(&f.viewpoint(), false, 1).await, wanted);
    let nobody = Viewpoint {
        player: None,
        ..f.viewpoint()
    };
    for (viewpoint, gossip) in [(nobody, false), (designer, false), (f.viewpoint(), true)] {
        let all: Vec<FactId> = standing(&viewpoint, gossip, 9)
            .await
            .into_iter()
            .map(|(fact, _)| fact)
            .collect();
        let mut wanted = vec![open, well, pinned, others, heard, ending];
        wanted.sort();
        assert_eq!(all, wanted);
    }
    let bodies = facts.load_bodies(&f.scope, &[all]).await.unwrap();
    assert_eq!(bodies[0].locks, both.parse::<DisclosureLocks>().unwrap());
}

pub async fn scenario_requirements_are_read_only_of_existing_scenarios<S: LedgerSubject>(f: &Fixture<S>) {
    f.put_world("vale").await;
    let (authored, scenarios) = (&f.ledger().authored, &f.ledger().scenarios);
    for npc in ["mira", "ergen"] {
        let edit = f.audit_edit("npc.put");
        authored
            .put_npc(&f.scope, &f.sample_npc("vale", npc), None, &edit)
            .await
            .unwrap();
        for (id, required) in [("well", 2), ("fire", 0), ("gone", 0)] {
            let scenario = Scenario {
                world: f.world.clone(),
                npc: npc.parse().unwrap(),
                id: id.parse().unwrap(),
                title: id.to_owned(),
                content: "It was long ago.".to_owned(),
                keywords: vec![],
                synonyms: vec![],
                required_progress: Progress::new(required).unwrap(),
                when: vec![],
                tell: None,
                version: 0,
                updated_at: f.now(),
            };
            let embedding = Embedding {
                model: "angles".to_owned(),
                vector: vec![1.0, 0.0, 0.0],
            };
            let edit = f.audit_edit("scenario.put");
            scenarios
                .put_scenario(&f.scope, &scenario, &embedding, None, &edit)
                .await
                .unwrap();
        }
    }
    let (mira, gone): (NpcId, ScenarioId) = ("mira".parse().unwrap(), "gone".parse().unwrap());
    let edit = f.audit_edit("scenario.delete");
    scenarios
        .delete_scenario(&f.scope, &f.world, &mira, &gone, None, &edit)
        .await
        .unwrap();
    let asked = ["mira/well", "mira/gone", "ergen/fire", "ergen/nothing", "nobody/well"];
    let asked: Vec<(NpcId, ScenarioId)> = asked
        .iter()
        .filter_map(|text| text.split_once('/'))
        .map(|(npc, scenario)| (npc.parse().unwrap(), scenario.parse().unwrap()))
        .collect();
    let required = |npc: &str, scenario: &str, progress| RequiredProgress {
        npc: npc.parse().unwrap(),
        npc_name: f.sample_npc("vale", npc).name,
        scenario: scenario.parse().unwrap(),
        progress: Progress::new(progress).unwrap(),
        when: vec![],
    };
    let found = scenarios
        .load_required_progress(&f.scope, &f.world, &asked)
        .await
        .unwrap();
    assert_eq!(found, [required("ergen", "fire", 0), required("mira", "well", 2)]);
    assert!(
        scenarios
            .load_required_progress(&f.other, &f.world, &asked)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        scenarios
            .load_required_progress(&f.scope, &f.world, &[])
            .await
            .unwrap()
            .is_empty()
    );
    // Deleting the NPC removes the scenario, too.
    let edit = f.audit_edit("npc.delete");
    authored
        .delete_npc(&f.scope, &f.world, &mira, None, &edit)
        .await
        .unwrap();
    let found = scenarios
        .load_required_progress(&f.scope, &f.world, &asked)
        .await
        .unwrap();
    assert_eq!(found, [required("ergen", "fire", 0)]);
}
