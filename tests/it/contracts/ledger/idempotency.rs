use std::time::Duration;

use colloquy::ports::ledger::idempotency::KeyState;

use super::{LedgerSubject, fixture::Fixture};

const ONE: [u8; 32] = [1; 32];
const TWO: [u8; 32] = [2; 32];

fn answered_state() -> KeyState {
    KeyState::Answered {
        status: 201,
        body: "{\"id\":1}".to_owned(),
    }
}

pub async fn idempotency_key_is_reserved_answered_and_remembered<S: LedgerSubject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    let reserve = |fingerprint| async move { keys.reserve_key(&f.scope, "k", &fingerprint, f.now()).await.unwrap() };
    assert_eq!(reserve(ONE).await, KeyState::Reserved);
    assert_eq!(reserve(ONE).await, KeyState::InFlight);
    assert_eq!(reserve(TWO).await, KeyState::Mismatch);
    keys.record_answer(&f.scope, "k", 201, "{\"id\":1}").await.unwrap();
    assert_eq!(reserve(ONE).await, answered_state());
    assert_eq!(reserve(TWO).await, KeyState::Mismatch);
    // The first answer stays. An answered key is not released.
    keys.record_answer(&f.scope, "k", 500, "late").await.unwrap();
    keys.release_key(&f.scope, "k").await.unwrap();
    assert_eq!(reserve(ONE).await, answered_state());
}

pub async fn released_idempotency_key_is_free<S: LedgerSubject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    keys.release_key(&f.scope, "k").await.unwrap();
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
}

pub async fn reservation_without_an_answer_expires<S: LedgerSubject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    f.clock.advance(Duration::from_secs(59));
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::InFlight
    );
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    // The reservation now belongs to the new request, and its time starts anew.
    f.clock.advance(Duration::from_secs(30));
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        KeyState::InFlight
    );
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Mismatch
    );
    // A recorded answer does not expire.
    keys.record_answer(&f.scope, "k", 201, "{\"id\":1}").await.unwrap();
    f.clock.advance(Duration::from_hours(1));
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &TWO, f.now()).await.unwrap(),
        answered_state()
    );
}

pub async fn old_answers_are_swept<S: LedgerSubject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    keys.reserve_key(&f.scope, "old", &ONE, f.now()).await.unwrap();
    keys.record_answer(&f.scope, "old", 201, "").await.unwrap();
    f.advance_clock();
    let between = f.now();
    keys.reserve_key(&f.scope, "new", &ONE, f.now()).await.unwrap();
    keys.record_answer(&f.scope, "new", 201, "{\"id\":1}").await.unwrap();
    keys.forget_answers_before(between).await.unwrap();
    assert_eq!(
        keys.reserve_key(&f.scope, "old", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    assert_eq!(
        keys.reserve_key(&f.scope, "new", &ONE, f.now()).await.unwrap(),
        answered_state()
    );
}

pub async fn idempotency_keys_belong_to_a_tenant<S: LedgerSubject>(f: &Fixture<S>) {
    let keys = &f.ledger().idempotency;
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    assert_eq!(
        keys.reserve_key(&f.other, "k", &TWO, f.now()).await.unwrap(),
        KeyState::Reserved
    );
    keys.record_answer(&f.other, "k", 200, "theirs").await.unwrap();
    keys.release_key(&f.other, "k").await.unwrap();
    assert_eq!(
        keys.reserve_key(&f.scope, "k", &ONE, f.now()).await.unwrap(),
        KeyState::InFlight
    );
}
