//! Insights: which count, their rewinds and their deletion.

use colloquy::{
    ids::{NpcId, PlayerId},
    memory::insight::{Insight, MAX_INSIGHTS},
    ports::ledger::{PruneBefore, curation::PassCommit, insights::InsightFilter},
};

use super::{
    LedgerSubject,
    curation::sample_pass,
    fixture::{Fixture, page},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    saves::put_default_world,
};

/// Adds an insight to a pass.
pub(super) fn add_insight<S: LedgerSubject>(
    f: &Fixture<S>,
    commit: &mut PassCommit,
    player: Option<&str>,
    about: &str,
    text: &str,
) {
    commit.insights.push(Insight {
        id: f.id(),
        world: f.world.clone(),
        npc: f.npc.clone(),
        player: player.map(|player| player.parse().unwrap()),
        dialogue: commit.pass.dialogue,
        number: commit.pass.to_turn,
        entity: about.to_owned(),
        day: commit.pass.last_turn_at.date_naive().to_string(),
        text: text.to_owned(),
        turns: vec![commit.pass.to_turn],
        rests_on: Vec::new(),
        locks: "scenario:mira/well".parse().unwrap(),
        last_turn_at: commit.pass.last_turn_at,
    });
}

/// Commits a pass over turn `number` with insights of a session with player p1: entity and text.
async fn learn<S: LedgerSubject>(
    f: &Fixture<S>,
    told: &RewindFixture,
    number: u32,
    insights: &[(&str, &str)],
) -> Vec<Insight> {
    let mut commit = sample_pass(f, told, (number, number));
    for (about, text) in insights {
        add_insight(f, &mut commit, Some("p1"), about, text);
    }
    assert!(f.commit_pass(&commit).await);
    commit.insights
}

fn texts(found: &[Insight]) -> Vec<&str> {
    found.iter().map(|insight| insight.text.as_str()).collect()
}

impl<S: LedgerSubject> Fixture<S> {
    /// Returns the insights for a turn with a player.
    async fn load_insights(&self, player: Option<&str>) -> Vec<Insight> {
        let player: Option<PlayerId> = player.map(|player| player.parse().unwrap());
        let store = &self.ledger().insights;
        let found = store
            .load_insights(&self.scope, &self.world, &self.npc, player.as_ref())
            .await;
        found.unwrap().into_iter().map(|earlier| earlier.insight).collect()
    }

    async fn list_insights(&self, entity: Option<&str>, player: Option<&str>) -> Vec<Insight> {
        let player: Option<PlayerId> = player.map(|player| player.parse().unwrap());
        let filter = InsightFilter {
            entity,
            player: player.as_ref(),
        };
        let store = &self.ledger().insights;
        let page = page(200, None);
        let found = store
            .list_insights(&self.scope, &self.world, &self.npc, filter, &page)
            .await;
        found.unwrap().items
    }

    async fn delete_insight(&self, insight: &Insight) -> bool {
        let edit = self.audit_edit("insight.delete");
        let store = &self.ledger().insights;
        store
            .delete_insight(&self.scope, &self.world, &self.npc, insight.id, &edit)
            .await
            .unwrap()
    }
}

pub async fn newest_insight_of_an_entity_and_day_counts<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    let first = learn(
        f,
        &told,
        1,
        &[("The Ferry", "It is late."), ("player:p1", "Keeps promises.")],
    )
    .await;
    let second = learn(f, &told, 2, &[("ferry", "\"나루\" is dear.")]).await;
    let newest = f.load_insights(Some("p1")).await;
    assert_eq!(newest, [second[0].clone(), first[1].clone()]);

    f.clock.advance(std::time::Duration::from_hours(24));
    told.commit_turn(f, 3).await;
    let third = learn(f, &told, 3, &[("ferry", "It sank.")]).await;
    let listed = f.list_insights(None, None).await;
    assert_eq!(
        listed,
        [third[0].clone(), second[0].clone(), first[1].clone()],
        "another day"
    );

    let (one, all) = (told.turn(1), told.turn(3));
    told.rewind_to(f, Some(one)).await;
    assert_eq!(texts(&f.load_insights(Some("p1")).await).len(), 2);
    assert!(
        texts(&f.list_insights(None, None).await).contains(&"It is late."),
        "it counts again"
    );
    told.rewind_to(f, Some(all)).await;
    assert_eq!(f.list_insights(None, None).await, listed);
    told.rewind_to(f, None).await;
    assert!(f.list_insights(None, None).await.is_empty());
}

pub async fn newest_fifty_insights_of_a_player_count<S: LedgerSubject>(f: &Fixture<S>) {
    assert_eq!(MAX_INSIGHTS, 50);
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    let mut early = sample_pass(f, &told, (1, 1));
    for number in 0..30 {
        add_insight(f, &mut early, Some("p1"), &format!("early {number}"), "Early.");
    }
    add_insight(f, &mut early, Some("p2"), "other", "Of p2.");
    add_insight(f, &mut early, None, "talk", "Of NPCs.");
    assert!(f.commit_pass(&early).await);
    let mut late = sample_pass(f, &told, (2, 2));
    for number in 0..25 {
        add_insight(f, &mut late, Some("p1"), &format!("late {number}"), "Late.");
    }
    // A repetition takes no place.
    add_insight(f, &mut late, Some("p1"), "early 0", "Late.");
    assert!(f.commit_pass(&late).await);
    let count = |found: &[Insight], text: &str| found.iter().filter(|insight| insight.text == text).count();
    for found in [f.load_insights(Some("p1")).await, f.list_insights(None, None).await] {
        assert_eq!((count(&found, "Late."), count(&found, "Early.")), (26, 24));
        assert_eq!(count(&found, "Of NPCs."), 1, "a number of their own");
        assert!(found.is_sorted_by(|newer, older| newer.last_turn_at >= older.last_turn_at));
    }
    assert_eq!(f.list_insights(None, Some("p1")).await.len(), 50);
    assert_eq!(f.list_insights(None, Some("p2")).await.len(), 1);
    let entity = f.list_insights(Some("early 1"), None).await;
    assert!(entity.is_empty(), "one of the oldest five: {entity:?}");
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    assert_eq!(f.list_insights(None, Some("p1")).await.len(), 30, "none was lost");
    assert_eq!(f.list_insights(Some("early 1"), None).await.len(), 1);
}

pub async fn insights_are_listed_in_pages_by_entity_and_player<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    for number in 1..=3 {
        let (text, of_player) = (format!("In turn {number}."), format!("player {number}"));
        learn(
            f,
            &told,
            number,
            &[(&format!("thing {number}"), &text), (&of_player, &text)],
        )
        .await;
    }
    let all = f.list_insights(None, None).await;
    assert_eq!(all.len(), 6);
    let (store, mut after, mut paged) = (&f.ledger().insights, None, Vec::new());
    loop {
        let page = page(4, after);
        let filter = InsightFilter::default();
        let found = store
            .list_insights(&f.scope, &f.world, &f.npc, filter, &page)
            .await
            .unwrap();
        paged.extend(found.items);
        let Some(next) = found.next else { break };
        // The cursor may be deleted before the next page.
        let cursor = paged.last().unwrap();
        assert_eq!(next, cursor.id.to_string());
        assert!(f.delete_insight(cursor).await);
        after = Some(next);
    }
    assert_eq!(paged, all);
    assert_eq!(
        texts(&f.list_insights(Some("The THING 3"), Some("p1")).await),
        ["In turn 3."]
    );
    assert!(f.list_insights(Some("thing"), None).await.is_empty());
    assert!(f.list_insights(Some("thing 3"), Some("p2")).await.is_empty());
}

pub async fn insight_is_deleted_with_those_that_it_replaced<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 3).await;
    learn(f, &told, 1, &[("ferry", "It is late."), ("bells", "They ring.")]).await;
    let second = learn(f, &told, 2, &[("ferry", "It is dear.")]).await;
    learn(f, &told, 3, &[("ferry", "It sank.")]).await;
    let (kept, last) = (told.turn(2), told.turn(3));
    told.rewind_to(f, Some(kept)).await;
    assert!(f.delete_insight(&second[0]).await);
    assert!(!f.delete_insight(&second[0]).await, "once");
    assert_eq!(
        texts(&f.list_insights(None, None).await),
        ["They ring."],
        "no older one comes back"
    );
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    told.rewind_to(f, Some(kept)).await;
    assert_eq!(
        texts(&f.list_insights(None, None).await),
        ["They ring."],
        "an edit stands"
    );
    told.rewind_to(f, Some(last)).await;
    assert_eq!(texts(&f.list_insights(None, None).await), ["It sank.", "They ring."]);
}

pub async fn insight_with_further_locks_stands_beside_the_open_one<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let told = dialogue_with_turns(f, 3).await;
    let mut open = sample_pass(f, &told, (1, 1));
    add_insight(f, &mut open, Some("p1"), "bells", "They ring.");
    open.insights[0].locks = "".parse().unwrap();
    assert!(f.commit_pass(&open).await);
    let mut locked = sample_pass(f, &told, (2, 2));
    add_insight(f, &mut locked, Some("p1"), "bells", "They ring for the drowned.");
    locked.insights[0].rests_on = vec![open.cause];
    assert!(f.commit_pass(&locked).await);
    let both = ["They ring for the drowned.", "They ring."];
    assert_eq!(texts(&f.list_insights(None, None).await), both);
    assert_eq!(texts(&f.load_insights(Some("p1")).await), both);

    assert!(f.delete_insight(&locked.insights[0]).await);
    assert_eq!(
        texts(&f.list_insights(None, None).await),
        ["They ring."],
        "it was never hidden"
    );
    let mut untrue = sample_pass(f, &told, (3, 3));
    add_insight(f, &mut untrue, Some("p1"), "bells", "");
    untrue.insights[0].rests_on = vec![open.cause];
    assert!(f.commit_pass(&untrue).await);
    assert!(f.list_insights(None, None).await.is_empty());
}

pub async fn insights_of_unsaid_turns_are_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    learn(f, &told, 1, &[("ferry", "It is late.")]).await;
    learn(f, &told, 2, &[("ferry", "It is dear.")]).await;
    let (first, last) = (told.turn(1), told.turn(2));
    told.rewind_to(f, Some(first)).await;
    f.clock.advance(std::time::Duration::from_hours(48));
    let before = PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(24)),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    assert!(maintenance.prune_expired(&f.scope, &before, 9).await.unwrap() > 0);
    assert_eq!(texts(&f.list_insights(None, None).await), ["It is late."]);
    // Only the shell of the turn is left, and its insight does not come back.
    told.rewind_to(f, Some(last)).await;
    assert_eq!(texts(&f.list_insights(None, None).await), ["It is late."]);
}

pub async fn insights_of_another_npc_tenant_or_player_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let learned = learn(f, &told, 1, &[("ferry", "It is late.")]).await;
    assert!(f.load_insights(Some("p2")).await.is_empty());
    assert!(f.load_insights(None).await.is_empty());
    let (store, player): (_, PlayerId) = (&f.ledger().insights, "p1".parse().unwrap());
    let (elsewhere, nobody): (_, NpcId) = ("elsewhere".parse().unwrap(), "nobody".parse().unwrap());
    for (scope, world, npc) in [
        (&f.other, &f.world, &f.npc),
        (&f.scope, &elsewhere, &f.npc),
        (&f.scope, &f.world, &nobody),
    ] {
        let found = store.load_insights(scope, world, npc, Some(&player)).await.unwrap();
        assert!(found.is_empty());
        let (filter, page) = (InsightFilter::default(), page(9, None));
        let listed = store.list_insights(scope, world, npc, filter, &page).await.unwrap();
        assert!(listed.items.is_empty());
        let edit = f.audit_edit("insight.delete");
        assert!(
            !store
                .delete_insight(scope, world, npc, learned[0].id, &edit)
                .await
                .unwrap()
        );
    }
    assert_eq!(f.load_insights(Some("p1")).await, learned);
}
