//! Calls that are let go, or answer too late.

use super::*;

fn counted(models: &Models) -> Vec<(u32, Usage)> {
    let rows = models.take_usage();
    rows.into_iter().map(|(_, delta)| (delta.calls, delta.usage)).collect()
}

#[tokio::test]
async fn a_call_that_is_let_go_is_counted_with_its_prompt() {
    let puppet = Puppet::new("a", [Act::Hang]);
    let models = models(&[&puppet]);
    let prompt = Usage {
        prompt_tokens: models.counter_of("a").count("How long is the road?"),
        ..Usage::default()
    };
    let (scope, soon) = (scope("t"), Duration::from_millis(20));
    assert!(tokio::time::timeout(soon, models.stream(&scope, ask())).await.is_err());
    assert_eq!((puppet.calls(), counted(&models)), (1, vec![(1, prompt)]));
    assert!(
        tokio::time::timeout(soon, models.complete(&scope, ask()))
            .await
            .is_err()
    );
    assert_eq!((puppet.calls(), counted(&models)), (2, vec![(1, prompt)]));
}

#[tokio::test]
async fn an_answer_of_no_use_is_counted_with_its_prompt_and_a_refused_one_is_not() {
    let puppet = Puppet::new("a", [Act::Say(" "), Act::Fail(LlmError::Refused("no".into()))]);
    let models = models(&[&puppet]);
    let (answer, trace) = models.complete(&scope("t"), ask()).await;
    assert!(matches!(answer, Err(LlmError::Refused(_))) && trace.attempts == 2);
    let prompt = models.counter_of("a").count("How long is the road?");
    let rows = counted(&models);
    assert_eq!((rows.len(), rows[0].0, rows[0].1.prompt_tokens), (1, 2, prompt));
}
