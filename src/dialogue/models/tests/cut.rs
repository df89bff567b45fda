//! Calls that are cancelled, or answer too late.

use super::*;

fn counted(models: &ModelRouter) -> Vec<(u32, Usage)> {
    let rows = models.take_usage();
    rows.into_iter().map(|(_, delta)| (delta.calls, delta.usage)).collect()
}

#[tokio::test]
async fn cancelled_call_counts_its_prompt_tokens() {
    let puppet = Puppet::new("a", [Act::Hang]);
    let models = models(&[&puppet]);
    let prompt = Usage {
        prompt_tokens: models.counter_for_model("a").count_tokens("How long is the road?"),
        ..Usage::default()
    };
    let (scope, soon) = (scope("t"), Duration::from_millis(20));
    assert!(
        tokio::time::timeout(soon, models.request_stream(&scope, ask()))
            .await
            .is_err()
    );
    assert_eq!((puppet.calls(), counted(&models)), (1, vec![(1, prompt)]));
    assert!(
        tokio::time::timeout(soon, models.request_completion(&scope, ask()))
            .await
            .is_err()
    );
    assert_eq!((puppet.calls(), counted(&models)), (2, vec![(1, prompt)]));
}

#[tokio::test]
async fn useless_answer_counts_its_prompt_tokens_and_a_refused_call_does_not() {
    let puppet = Puppet::new("a", [Act::Say(" "), Act::Fail(LlmError::Refused("no".into()))]);
    let models = models(&[&puppet]);
    let (answer, trace) = models.request_completion(&scope("t"), ask()).await;
    assert!(matches!(answer, Err(LlmError::Refused(_))) && trace.attempts == 2);
    let prompt = models.counter_for_model("a").count_tokens("How long is the road?");
    let rows = counted(&models);
    assert_eq!((rows.len(), rows[0].0, rows[0].1.prompt_tokens), (1, 2, prompt));
}

#[tokio::test]
async fn stream_that_breaks_off_is_billed_for_its_output() {
    let puppet = Puppet::new("a", [Act::Say("Far and wide.")]);
    let models = models(&[&puppet]);
    let (stream, _) = models.request_stream(&scope("t"), ask()).await;
    let mut stream = stream.unwrap();
    assert!(stream.next().await.is_some());
    drop(stream);
    let billed = models.take_usage();
    assert_eq!((billed.len(), billed[0].1.calls), (1, 1));
    let counted = usage::estimate_usage(TokenCounter::Estimated, &ask().messages, "Far ");
    assert_eq!(billed[0].1.usage, counted);
}
