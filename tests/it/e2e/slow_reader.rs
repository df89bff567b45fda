//! A client that stops reading is dropped, at no cost to other clients.

use colloquy::mock_llm::{self, MockOptions};
use serde_json::json;

use super::fresh;
use crate::support::{eventually, run};

#[test]
fn slow_client_is_dropped_and_costs_others_nothing() {
    run(async {
        // Long replies fill the kernel's buffers of a client that does not read.
        let mock = mock_llm::start_on_thread(MockOptions {
            deltas: 1_500,
            ..MockOptions::default()
        })
        .unwrap();
        let server = fresh(&[
            // The queue holds one reply. A client that does not read falls several replies behind.
            ("COLLOQUY__SOCKET__MAX_QUEUED", "2000"),
            ("COLLOQUY__LIMITS__SOCKET_MESSAGES_PER_S", "0"),
        ])
        .with_mock(&mock.base_url())
        .start();
        let mut jammed = server.player("slow").await;
        let session = jammed.session("mira", "slow").await;
        let mut calm = server.player("calm").await;
        let other = calm.session("mira", "calm").await;

        let rest = server.backend();
        let mut said = 0;
        let dropped = || async {
            rest.text("/metrics")
                .await
                .contains("colloquy_sockets_closed_total{code=\"4430\"} 1")
        };
        // The client never reads. Its lines come over REST, in any state of its socket.
        eventually("the slow client to be dropped", || {
            said += 1;
            let body = json!({"text": format!("Tell me story number {said}.")});
            let (rest, session, dropped) = (rest.clone(), session.clone(), &dropped);
            async move {
                let path = format!("/v1/sessions/{session}/turns");
                rest.call(reqwest::Method::POST, &path, Some(&body)).await;
                dropped().await.then_some(())
            }
        })
        .await;

        assert!(said > 1, "one reply is no reason to drop a client");

        let reply = calm.say_line(&other, "Hello.").await;
        assert_eq!(reply.status, "completed");
        assert_eq!(reply.streamed, reply.text, "nothing was lost for those who read");
        drop(jammed);
    });
}
