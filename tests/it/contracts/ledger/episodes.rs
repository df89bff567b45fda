//! Episodes: written once with the facts of their turn, or with the turn; unsaid with their turn.

use std::collections::BTreeSet;

use colloquy::{
    ids::{PlayerId, TurnId},
    memory::{
        disclosure::locks::DisclosureLocks, episode::Episode, fact::Importance, timeline::JudgeBudgetShare, turn::Turn,
    },
    ports::ledger::{
        PruneBefore,
        episodes::{EmbeddedEpisode, EpisodePair, EpisodeRequest, EpisodeVector, FoundEpisodes},
        facts::{Extraction, ReconcileOutcome},
        jobs::JobKind,
        scenarios::Embedding,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    saves::{put_default_world, restore_save, take_save},
};

const MODEL: &str = "embedder one";

/// Returns an episode of turn `number`.
fn sample_episode<S: LedgerSubject>(f: &Fixture<S>, told: &RewindFixture, number: usize, importance: u8) -> Episode {
    let turn = &told.turns[number - 1];
    Episode {
        turn: turn.id,
        dialogue: turn.dialogue,
        number: turn.number,
        world: f.world.clone(),
        npc: turn.npc.clone(),
        player: turn.player.clone().unwrap(),
        place: (number % 2 == 1).then(|| "\"숲\"".to_owned()),
        text: format!("The player did thing {number}."),
        importance: Importance::new(importance).unwrap(),
        locks: "scenario:mira/well".parse().unwrap(),
        committed_at: turn.committed_at,
    }
}

fn embedded(episode: Episode, first: f32) -> EmbeddedEpisode {
    EmbeddedEpisode {
        episode,
        vector: EpisodeVector::Stored(Embedding {
            model: MODEL.to_owned(),
            vector: vec![first, 0.5],
        }),
    }
}

fn extraction_of<S: LedgerSubject>(f: &Fixture<S>, turn: &Turn) -> Extraction {
    Extraction {
        turn: turn.id,
        dialogue: turn.dialogue,
        number: turn.number,
        npc: turn.npc.clone(),
        audience: f.audience(),
        said_at: turn.committed_at,
        player: turn.player.clone(),
        forget: vec![],
        ends: vec![],
        injected: vec![],
        quoted: vec![],
        room: JudgeBudgetShare::WHOLE,
    }
}

/// Writes the episode of turn `number` as the job of the turn does, with or without a fact.
pub(super) async fn learn<S: LedgerSubject>(
    f: &Fixture<S>,
    told: &RewindFixture,
    number: usize,
    importance: u8,
) -> Episode {
    let episode = sample_episode(f, told, number, importance);
    let mut plan = told.fact_plan(f, number, "The player likes grapes.", &[]).await;
    if number.is_multiple_of(2) {
        plan.facts.clear();
        plan.flagging.clear();
        plan.npcs.clear();
        plan.expected_memory_seq = 0;
    }
    plan.extractions.push(extraction_of(f, &told.turns[number - 1]));
    plan.episode = Some(embedded(episode.clone(), f32::from(importance)));
    f.reconcile_plan(&plan).await;
    episode
}

pub(super) fn request(pair: EpisodePair<'_>, recent: u32, important: u32, after: i64) -> EpisodeRequest<'_> {
    EpisodeRequest {
        pair,
        recent,
        important,
        min_importance: 3,
        after,
        rows: 3,
    }
}

impl<S: LedgerSubject> Fixture<S> {
    pub(super) fn pair(&self) -> EpisodePair<'_> {
        EpisodePair {
            world: &self.world,
            npc: &self.npc,
            player: &self.player,
        }
    }
    async fn find_episodes(&self, recent: u32, important: u32, after: i64) -> FoundEpisodes {
        let request = request(self.pair(), recent, important, after);
        self.ledger()
            .episodes
            .find_episodes(&self.scope, &request)
            .await
            .unwrap()
    }
    async fn standing(&self) -> Vec<TurnId> {
        self.find_episodes(99, 0, 0).await.standing.into_iter().collect()
    }
}

pub async fn episode_is_written_once_with_its_facts<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    for number in [1, 2] {
        let episode = learn(f, &told, number, 5).await;
        let found = f.find_episodes(1, 0, 0).await;
        assert_eq!(found.standing, [episode.turn].into(), "turn {number}");
        let mut rows = found.rows.into_iter();
        assert!(rows.any(|row| row.episode == episode), "turn {number}");
    }
    // The second run of a job finds its fence closed.
    let mut plan = told.fact_plan(f, 1, "The player likes plums.", &[]).await;
    plan.extractions.push(extraction_of(f, &told.turns[0]));
    plan.episode = Some(embedded(sample_episode(f, &told, 1, 9), 9.0));
    let facts = &f.ledger().facts;
    let outcome = facts.commit_reconciliation(&f.scope, &plan).await.unwrap();
    assert_eq!(outcome, ReconcileOutcome::Fenced);
    // Another job of a turn writes no second row.
    let mut commit = told.turn_commit(f, 3);
    commit.jobs.push(f.sample_job(&commit, JobKind::Consolidate));
    f.commit_turn(&commit).await;
    told.turns.push(commit.turn);
    for (job, importance) in commit.jobs.into_iter().zip([5, 9]) {
        told.extractions.truncate(2);
        told.extractions.push(job);
        learn(f, &told, 3, importance).await;
    }
    let found = f.find_episodes(9, 0, 0).await;
    assert_eq!((found.standing.len(), found.rows.len()), (3, 3));
    assert!(found.rows.iter().all(|row| row.episode.importance.get() == 5));
}

pub async fn episodes_are_found_by_age_importance_and_vectors<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 6).await;
    let mut all = Vec::new();
    for (number, importance) in [(1, 9), (2, 2), (3, 7), (4, 9), (5, 1), (6, 2)] {
        all.push(learn(f, &told, number, importance).await);
    }
    let found = f.find_episodes(2, 3, 0).await;
    let turns = |numbers: &[usize]| -> BTreeSet<TurnId> { numbers.iter().map(|number| all[number - 1].turn).collect() };
    assert_eq!(
        found.standing,
        turns(&[1, 3, 4, 5, 6]),
        "the newest, and the most important"
    );
    assert_eq!(f.find_episodes(2, 0, 0).await.standing, turns(&[5, 6]));
    assert_eq!(f.find_episodes(0, 2, 0).await.standing, turns(&[1, 4]));
    assert!(f.find_episodes(0, 0, 0).await.standing.is_empty());
    let mut seqs: Vec<i64> = found.rows.iter().map(|row| row.seq).collect();
    seqs.sort_unstable();
    let newest: BTreeSet<TurnId> = found.rows.iter().map(|row| row.episode.turn).collect();
    assert_eq!(newest, turns(&[4, 5, 6]), "the limit");
    let row = found.rows.iter().find(|row| row.episode.turn == all[3].turn).unwrap();
    assert_eq!((row.model.as_deref(), &*row.vector), (Some(MODEL), &[9.0, 0.5][..]));
    assert_eq!(row.episode, all[3]);
    let later = f.find_episodes(0, 0, seqs[1]).await;
    assert_eq!(later.rows.len(), 1, "{later:?}");
    assert_eq!(later.rows[0].episode, all[5]);
    assert!(f.find_episodes(1, 0, seqs[2]).await.rows.is_empty());

    let (store, turns) = (&f.ledger().episodes, [all[1].turn, all[4].turn, f.id()]);
    let standing = store.load_standing_episodes(&f.scope, f.pair(), &turns).await.unwrap();
    let mut standing: Vec<u32> = standing.iter().map(|episode| episode.number).collect();
    standing.sort_unstable();
    assert_eq!(standing, [2, 5]);
}

pub async fn episodes_are_listed_newest_first_in_pages<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 5).await;
    let mut all = Vec::new();
    for number in 1..=5 {
        all.push(learn(f, &told, number, 5).await);
    }
    all.reverse();
    let list = async |limit, after| {
        let store = &f.ledger().episodes;
        store
            .list_episodes(&f.scope, f.pair(), &page(limit, after))
            .await
            .unwrap()
    };
    let first = list(2, None).await;
    assert_eq!(first.items, all[..2]);
    let second = list(2, first.next).await;
    assert_eq!(second.items, all[2..4]);
    let third = list(2, second.next).await;
    assert_eq!((third.items, third.next), (all[4..].to_vec(), None));
}

pub async fn episode_is_unsaid_and_stands_again_with_its_turn<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 4).await;
    for number in 1..=3 {
        learn(f, &told, number, 8).await;
    }
    let all: Vec<TurnId> = told.turns.iter().map(|turn| turn.id).collect();
    let saved = take_save(f, "with all").await;
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    assert_eq!(f.standing().await, all[..1]);
    assert_eq!(f.find_episodes(0, 9, 0).await.standing.len(), 1);
    let store = &f.ledger().episodes;
    let standing = store.load_standing_episodes(&f.scope, f.pair(), &all).await.unwrap();
    assert_eq!(standing.len(), 1);
    let listed = store.list_episodes(&f.scope, f.pair(), &page(9, None)).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(f.find_episodes(0, 0, 0).await.rows.len(), 3, "rows stay");

    restore_save(f, saved.id).await;
    assert_eq!(f.standing().await, all[..3]);
    // The job of turn 4 ended with its turn, and runs after all.
    learn(f, &told, 4, 2).await;
    assert_eq!(f.standing().await, all);
}

pub async fn shortened_turn_without_an_extraction_keeps_its_episode<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    f.advance_clock();
    let mut commit = told.turn_commit(f, 2);
    let turn = commit.turn.clone();
    told.turns.push(turn.clone());
    let episode = Episode {
        locks: DisclosureLocks::default(),
        ..sample_episode(f, &told, 2, 1)
    };
    commit.jobs.clear();
    commit.episode = Some(episode.clone());
    f.commit_turn(&commit).await;
    let found = f.find_episodes(9, 0, 0).await;
    assert_eq!(found.standing, [episode.turn].into());
    let [row] = &found.rows[..] else { panic!("{found:?}") };
    assert_eq!((&row.episode, &row.model, row.vector.len()), (&episode, &None, 0));
    let cut = told.cut_turn(f, &turn, "reply").await;
    let found = f.find_episodes(9, 0, 0).await;
    assert_eq!(found.standing, [cut].into());
    let copied = Episode { turn: cut, ..episode };
    assert!(found.rows.iter().any(|row| row.episode == copied), "{found:?}");
    let missing = f.ledger().episodes.list_unembedded(&f.scope, "other", None, 9).await;
    assert!(missing.unwrap().is_empty(), "a greeting is not compared by meaning");
}

pub async fn episodes_of_another_embedder_are_embedded_again<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    for number in 1..=3 {
        learn(f, &told, number, 5).await;
    }
    let store = &f.ledger().episodes;
    assert!(
        store
            .list_unembedded(&f.scope, MODEL, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
    let mut missing = store.list_unembedded(&f.scope, "two", None, 2).await.unwrap();
    let after = missing.last().map(|(turn, _)| *turn);
    missing.extend(store.list_unembedded(&f.scope, "two", after, 9).await.unwrap());
    assert_eq!(missing.len(), 3);
    assert!(missing.contains(&(told.turn(2), "The player did thing 2.".to_owned())));
    let vectors: Vec<(TurnId, Vec<f32>)> = missing.into_iter().map(|(turn, _)| (turn, vec![1.0])).collect();
    store.store_embeddings(&f.scope, "two", &vectors[..2]).await.unwrap();
    let left = store.list_unembedded(&f.scope, "two", None, 9).await.unwrap();
    assert_eq!(left.len(), 1);
    let found = f.find_episodes(0, 0, 0).await.rows;
    let again = found
        .iter()
        .filter(|row| row.model.as_deref() == Some("two") && *row.vector == [1.0]);
    assert_eq!(again.count(), 2);
}

pub async fn episode_stored_without_a_vector_is_embedded_later<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let mut plan = told.fact_plan(f, 1, "The player likes grapes.", &[]).await;
    plan.extractions.push(extraction_of(f, &told.turns[0]));
    let episode = sample_episode(f, &told, 1, 5);
    plan.episode = Some(EmbeddedEpisode {
        vector: EpisodeVector::Missing,
        ..embedded(episode.clone(), 1.0)
    });
    f.reconcile_plan(&plan).await;
    let store = &f.ledger().episodes;
    let missing = store.list_unembedded(&f.scope, MODEL, None, 9).await.unwrap();
    assert_eq!(missing, [(episode.turn, episode.text.clone())]);
    let found = f.find_episodes(9, 0, 0).await.rows;
    assert_eq!((&found[0].episode, found[0].vector.len()), (&episode, 0));
    let vectors = [(episode.turn, vec![1.0])];
    store.store_embeddings(&f.scope, MODEL, &vectors).await.unwrap();
    let missing = store.list_unembedded(&f.scope, MODEL, None, 9).await.unwrap();
    assert!(missing.is_empty());
    let found = f.find_episodes(9, 0, 0).await.rows;
    assert_eq!(
        (found[0].model.as_deref(), &*found[0].vector),
        (Some(MODEL), &[1.0][..])
    );
}

pub async fn episodes_of_unsaid_turns_are_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    learn(f, &told, 1, 5).await;
    learn(f, &told, 2, 5).await;
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    f.clock.advance(std::time::Duration::from_hours(48));
    let before = PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(24)),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    maintenance.prune_expired(&f.scope, &before, 9).await.unwrap();
    let found = f.find_episodes(9, 0, 0).await;
    assert_eq!(found.standing, [first].into());
    assert_eq!(found.rows.len(), 1);
}

pub async fn episodes_of_another_pair_or_tenant_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let episode = learn(f, &told, 1, 9).await;
    let (store, stranger) = (&f.ledger().episodes, "stranger".parse::<PlayerId>().unwrap());
    let others = EpisodePair {
        player: &stranger,
        ..f.pair()
    };
    for (scope, pair) in [(&f.other, f.pair()), (&f.scope, others)] {
        let found = store.find_episodes(scope, &request(pair, 9, 9, 0)).await.unwrap();
        assert_eq!(found, FoundEpisodes::default());
        let turns = [episode.turn];
        let standing = store.load_standing_episodes(scope, pair, &turns).await.unwrap();
        let listed = store.list_episodes(scope, pair, &page(9, None)).await.unwrap();
        assert!(standing.is_empty() && listed.items.is_empty());
    }
    let missing = store.list_unembedded(&f.other, "two", None, 9).await.unwrap();
    store
        .store_embeddings(&f.other, "two", &[(episode.turn, vec![0.0])])
        .await
        .unwrap();
    assert!(missing.is_empty());
    assert_eq!(f.find_episodes(0, 0, 0).await.rows[0].model.as_deref(), Some(MODEL));
}
