use std::time::Duration;

use colloquy::ports::ledger::idempotency::KeyState;

use super::{Subject, fixture::Fixture};

const ONE: [u8; 32] = [1; 32];
const TWO: [u8; 32] = [2; 32];

fn answered() -> KeyState {
    KeyState::Answered {
        status: 201,
        body: "{\"id\":1}".to_owned(),
    }
}

pub async fn a_key_is_reserved_answered_and_remembered<S: Subject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    let reserve = |fingerprint| async move { keys.reserve(&f.scope, "k", &fingerprint, f.now()).await.unwrap() };
    assert_eq!(reserve(ONE).await, KeyState::Reserved);
    assert_eq!(reserve(ONE).await, KeyState::InFlight);
    assert_eq!(reserve(TWO).await, KeyState::Mismatch);
    keys.answer(&f.scope, "k", 201, "{\"id\":1}").await.unwrap();
    assert_eq!(reserve(ONE).await, answered());
    assert_eq!(reserve(TWO).await, KeyState::Mismatch);
    // The first answer stays, and an answered key is not released.
    keys.answer(&f.scope, "k", 500, "late").await.unwrap();
    keys.release(&f.scope, "k").await.unwrap();
    assert_eq!(reserve(ONE).await, answered());
}

pub async fn a_released_key_is_free<S: Subject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    assert_eq!(
        keys.reserve(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    keys.release(&f.scope, "k").await.unwrap();
    assert_eq!(
        keys.reserve(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
}

pub async fn a_reservation_without_an_answer_runs_out<S: Subject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    assert_eq!(
        keys.reserve(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    f.clock.advance(Duration::from_secs(59));
    assert_eq!(
        keys.reserve(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::InFlight
    );
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(
        keys.reserve(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    // The reservation is the new request's now, from now on.
    f.clock.advance(Duration::from_secs(30));
    assert_eq!(
        keys.reserve(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        KeyState::InFlight
    );
    assert_eq!(
        keys.reserve(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Mismatch
    );
    // An answer never runs out by itself.
    keys.answer(&f.scope, "k", 201, "{\"id\":1}").await.unwrap();
    f.clock.advance(Duration::from_hours(1));
    assert_eq!(keys.reserve(&f.scope, "k", &TWO, f.now()).await.unwrap(), answered());
}

pub async fn old_answers_are_swept<S: Subject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    keys.reserve(&f.scope, "old", &ONE, f.now()).await.unwrap();
    keys.answer(&f.scope, "old", 201, "").await.unwrap();
    f.tick();
    let between = f.now();
    keys.reserve(&f.scope, "new", &ONE, f.now()).await.unwrap();
    keys.answer(&f.scope, "new", 201, "{\"id\":1}").await.unwrap();
    keys.sweep(between).await.unwrap();
    assert_eq!(
        keys.reserve(&f.scope, "old", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    assert_eq!(keys.reserve(&f.scope, "new", &ONE, f.now()).await.unwrap(), answered());
}

pub async fn keys_belong_to_a_tenant<S: Subject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    assert_eq!(
        keys.reserve(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    assert_eq!(
        keys.reserve(&f.other, "k", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    keys.answer(&f.other, "k", 200, "theirs").await.unwrap();
    keys.release(&f.other, "k").await.unwrap();
    assert_eq!(
        keys.reserve(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::InFlight
    );
}
