//! Calls of the client's tools through the paths of the OpenAI API: what the client gets, what the model gets, and which
//! turns stand. Pictures too.

mod support;

use std::{sync::Arc, time::Duration};

use colloquy::{http::ChatSettings, ports::llm::Task, tenancy::Role};
use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use self::support::{
    Answer, CHARACTER, COMPLETIONS, RAIN, ToolLlm, ToolTest, assistant, body, call, calling, calls, pairs, pieces,
    read_until, result, says, system, user,
};
use super::harness::{HttpTestOptions, HttpTestServer};
use crate::support::eventually;

#[actix_web::test]
async fn calls_are_streamed_as_they_came_and_the_turn_comes_with_the_results() {
    let test = ToolTest::start().await;
    let mut talk = vec![system("You are Mira."), user(RAIN)];
    test.llm.will_answer(&[calls("Let me look.", &pieces(0, "c1"))]);
    let first = test.stream(CHARACTER, &talk).await;
    assert_eq!((first.text.as_str(), &first.pieces), ("Let me look.", &pieces(0, "c1")));
    assert_eq!(first.finish_reasons, [json!("tool_calls")]);
    assert_eq!(first.usage["total_tokens"], 15);
    let world = test.own_world().await;
    assert!(test.turns(&world).await.is_empty());

    // A second call follows the first one.
    talk.extend([calling("Let me look.", &["c1"]), result("c1", "clouds")]);
    test.llm.will_answer(&[calls("", &pieces(0, "c2"))]);
    let second = test.stream(CHARACTER, &talk).await;
    assert_eq!((second.text.as_str(), &second.pieces), ("", &pieces(0, "c2")));
    talk.extend([calling("", &["c2"]), result("c2", "drops")]);
    test.llm.will_answer(&[says("It is raining.")]);
    let last = test.stream(CHARACTER, &talk).await;
    assert_eq!(
        (last.text.as_str(), last.finish_reasons),
        ("It is raining.", vec![json!("stop")])
    );
    let shown = test.llm.last_messages(5);
    assert!(shown[0]["content"].as_str().unwrap().ends_with(RAIN), "{shown:?}");
    assert_eq!(shown[1..], talk[2..]);
    assert!(test.llm.last_request().client.unwrap().asks_for_tools());
    let reply = "Let me look.\n\nIt is raining.";
    assert_eq!(test.said(&world).await, pairs(&[(RAIN, reply)]));
    let turn = test.turns(&world).await.remove(0);

    // The next line follows, and the turn stays the same.
    talk.extend([assistant("It is raining."), user("Thanks.")]);
    test.llm.will_answer(&[says("Welcome.")]);
    assert_eq!(test.stream(CHARACTER, &talk).await.text, "Welcome.");
    assert_eq!(
        test.said(&world).await,
        pairs(&[(RAIN, reply), ("Thanks.", "Welcome.")])
    );
    assert_eq!(test.turns(&world).await[0]["id"], turn["id"]);
    assert!(turn["id"].is_string());
    let history: Vec<Value> = test.llm.last_messages(6);
    assert_eq!(history[..5], talk[2..7]);
}

#[actix_web::test]
async fn whole_answer_has_whole_calls_and_can_be_asked_for_again() {
    let test = ToolTest::start().await;
    let mut talk = vec![system("You are Mira."), user(RAIN)];
    let both = [pieces(0, "c1"), pieces(1, "c2")].concat();
    test.llm.will_answer(&[calls("", &both)]);
    let response = test.send(&body(CHARACTER, &talk)).await;
    assert!(response.headers().get("x-colloquy-turn").is_none());
    let answer: Value = response.json().await.unwrap();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(choice["message"]["tool_calls"], json!([call("c1"), call("c2")]));
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(answer["usage"]["completion_tokens"], 5);

    talk.extend([
        calling("", &["c1", "c2"]),
        result("c1", "clouds"),
        result("c2", "drops"),
    ]);
    let world = test.own_world().await;
    for reply in ["It is raining.", "It pours."] {
        test.llm.will_answer(&[says(reply)]);
        let answer = test.ask(CHARACTER, &talk).await;
        assert_eq!(answer["choices"][0]["message"]["content"], reply);
        assert!(answer["choices"][0]["message"].get("tool_calls").is_none());
        assert_eq!(test.said(&world).await, pairs(&[(RAIN, reply)]));
    }
    // The line is answered again from its beginning: the turn is taken back, and comes anew with the results.
    test.llm
        .will_answer(&[calls("Wait.", &pieces(0, "c3")), says("A drizzle.")]);
    let again = test.ask(CHARACTER, &talk[..2]).await;
    assert_eq!(again["choices"][0]["message"]["content"], "Wait.");
    assert!(test.said(&world).await.is_empty());
    let talk = [&talk[..2], &[calling("Wait.", &["c3"]), result("c3", "drops")]].concat();
    assert_eq!(
        test.ask(CHARACTER, &talk).await["choices"][0]["message"]["content"],
        "A drizzle."
    );
    assert_eq!(test.said(&world).await, pairs(&[(RAIN, "Wait.\n\nA drizzle.")]));
}

#[actix_web::test]
async fn line_without_results_follows_the_words_before_the_call() {
    let test = ToolTest::start().await;
    let mut talk = vec![system("You are Mira."), user(RAIN)];
    test.llm
        .will_answer(&[calls("Let me look.", &pieces(0, "c1")), says("No matter.")]);
    test.ask(CHARACTER, &talk).await;
    talk.extend([calling("Let me look.", &["c1"]), user("Never mind.")]);
    test.ask(CHARACTER, &talk).await;
    let world = test.own_world().await;
    let said = pairs(&[(RAIN, "Let me look."), ("Never mind.", "No matter.")]);
    assert_eq!(test.said(&world).await, said);
}

#[actix_web::test]
async fn authored_npc_calls_tools_of_a_backend_and_not_of_a_player() {
    let test = ToolTest::start().await;
    let mut talk = vec![user(RAIN)];
    test.llm
        .will_answer(&[calls("Let me look.", &pieces(0, "c1")), says("It is raining.")]);
    let first = test.stream("vale/ergen", &talk).await;
    assert_eq!(first.pieces, pieces(0, "c1"));
    talk.extend([calling("Let me look.", &["c1"]), result("c1", "drops")]);
    assert_eq!(test.stream("vale/ergen", &talk).await.text, "It is raining.");
    let shown = test.llm.last_messages(3);
    assert!(shown[0]["content"].as_str().unwrap().contains(RAIN), "{shown:?}");
    assert_eq!(shown[1..], talk[1..]);
    let reply = "Let me look.\n\nIt is raining.";
    assert_eq!(test.said("vale").await, pairs(&[(RAIN, reply)]));
    let session = test.sessions("vale").await.remove(0);
    let trace = format!("/v1/sessions/{session}/turns/1/trace?verify=1");
    let trace = test.client.get(&trace).await;
    assert_eq!(trace["verification"]["same"], true, "{trace}");
    let text = trace.to_string();
    assert!(text.contains("2 messages about tools of the client") && !text.contains("drops"));

    let player = test.server.as_role(Role::Player);
    test.llm.will_answer(&[says("Yes.")]);
    let mut asked = body("vale/ergen", &[user(RAIN)]);
    asked.as_object_mut().unwrap().remove("user");
    player.post(COMPLETIONS, &asked).await;
    assert!(!test.llm.last_request().client.unwrap().asks_for_tools());
    asked["messages"] = json!(talk);
    let (status, _) = player.call(Method::POST, COMPLETIONS, Some(&asked)).await;
    assert_eq!(status, 403, "the NPC has not said these words");
}

#[actix_web::test]
async fn choices_that_call_tools_leave_no_turn() {
    let test = ToolTest::start().await;
    let mut talk = vec![system("You are Mira."), user("Hello.")];
    test.llm.will_answer(&[says("Good day.")]);
    test.ask(CHARACTER, &talk).await;
    talk.extend([assistant("Good day."), user(RAIN)]);
    let world = test.own_world().await;
    let mut asked = body(CHARACTER, &talk);
    asked["n"] = json!(2);
    let greeted = ("Hello.", "Good day.");
    let call = || calls("", &pieces(0, "c1"));
    // The first choice is made last.
    for (made, said) in [
        ([call(), says("Yes.")], vec![greeted, (RAIN, "Yes.")]),
        ([says("Yes."), call()], vec![greeted]),
        ([says("Yes."), says("No.")], vec![greeted, (RAIN, "No.")]),
        ([call(), call()], vec![greeted]),
    ] {
        for is_streamed in [false, true] {
            test.llm.will_answer(&made);
            asked["stream"] = json!(is_streamed);
            assert_eq!(
                test.send(&asked).await.text().await.unwrap().matches("error").count(),
                0
            );
            assert_eq!(test.said(&world).await, pairs(&said), "{made:?} {is_streamed}");
        }
    }
}

#[actix_web::test]
async fn client_that_hangs_up_during_a_call_has_heard_the_words_before() {
    let test = ToolTest::start().await;
    let talk = [system("You are Mira."), user(RAIN)];
    let mut asked = body(CHARACTER, &talk);
    asked["stream"] = json!(true);
    let hang_up = async |text: &'static str, asked: &Value| {
        let stalled = calls(text, &pieces(0, "c1")[..2]);
        test.llm.will_answer(&[Answer {
            stalls: true,
            ..stalled
        }]);
        let frames = test.send(asked).await.bytes_stream();
        drop(read_until(frames, "{\\\"at\\\":").await);
    };
    hang_up("Let me look.", &asked).await;
    let world = test.own_world().await;
    let heard = pairs(&[(RAIN, "Let me look.")]);
    eventually("the heard words stand", || async {
        (test.said(&world).await == heard).then_some(())
    })
    .await;
    // A call without words leaves nothing.
    asked["messages"] = json!([&talk[..], &[assistant("Let me look."), user("And?")]].concat());
    hang_up("", &asked).await;
    test.llm.will_answer(&[says("Well.")]);
    test.send(&asked).await.text().await.unwrap();
    let said = pairs(&[(RAIN, "Let me look."), ("And?", "Well.")]);
    assert_eq!(test.said(&world).await, said);
}

#[actix_web::test]
async fn request_beside_a_talk_gets_calls_too() {
    let test = ToolTest::start().await;
    let talk = [system("You are a helpful assistant."), user(RAIN)];
    test.llm
        .will_answer(&[calls("", &[call("c1")]), says("It is raining.")]);
    let answer = test.ask(CHARACTER, &talk).await;
    assert_eq!(answer["choices"][0]["message"]["tool_calls"], json!([call("c1")]));
    assert_eq!(answer["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let talk = [&talk[..], &[calling("", &["c1"]), result("c1", "drops")]].concat();
    let answer = test.ask(CHARACTER, &talk).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "It is raining.");
    assert_eq!(test.llm.last_messages(2), talk[2..]);
}

#[actix_web::test]
async fn requests_that_no_model_answers_say_why() {
    let test = ToolTest::start().await;
    let talk = [system("You are Mira."), user(RAIN)];
    let old_form = json!({"model": CHARACTER, "messages": talk, "functions": [{"name": "look"}]});
    let (status, answer) = test.client.call(Method::POST, COMPLETIONS, Some(&old_form)).await;
    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("functions")));

    // The endpoint knows no call with this id.
    let unknown = [&talk[..], &[calling("", &["c9"]), result("c8", "drops")]].concat();
    test.llm.will_answer(&[Answer {
        fails: true,
        ..Answer::default()
    }]);
    let (status, answer) = test
        .client
        .call(Method::POST, COMPLETIONS, Some(&body(CHARACTER, &unknown)))
        .await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (502, &json!("model_failed"))
    );
    assert_eq!(test.llm.last_messages(2), unknown[2..]);

    // A reply that goes on calls no tools.
    test.llm.will_answer(&[says("Yes,"), says("it does.")]);
    test.ask(CHARACTER, &talk).await;
    test.ask(CHARACTER, &[&talk[..], &[assistant("Yes,")]].concat()).await;
    let client = test.llm.last_request().client.unwrap();
    assert_eq!(
        (&client.fields["tool_choice"], client.fields.contains_key("tools")),
        (&json!("none"), true)
    );
}

#[actix_web::test]
async fn pictures_reach_the_model_of_a_character_and_are_not_learned_from() {
    let test = ToolTest::start().await;
    let picture = json!({"role": "user", "content": [
        {"type": "text", "text": "What do you see?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,SECRETPIXELS"}}]});
    test.llm
        .will_answer(&[says("A cat."), says("Still a cat."), says("Nothing.")]);
    let talk = [system("You are Mira."), picture.clone()];
    test.ask(CHARACTER, &talk).await;
    assert_eq!(test.llm.last_messages(1), std::slice::from_ref(&picture));
    let next = [&talk[..], &[assistant("A cat."), user("And now?")]].concat();
    test.ask(CHARACTER, &next).await;
    assert!(test.llm.last_messages(3).contains(&picture));
    test.ask("vale/ergen", &[picture]).await;
    let shown = serde_json::to_string(&test.llm.last_request().messages).unwrap();
    assert!(shown.contains("What do you see?") && !shown.contains("SECRETPIXELS"));

    // The turns are learned from once they were heard: with the next line.
    let llm = &test.llm;
    eventually("the first turn is learned from", || async {
        let requests = llm.requests.lock();
        requests
            .iter()
            .any(|request| request.task == Task::Extraction)
            .then_some(())
    })
    .await;
    for request in llm.requests.lock().iter().filter(|request| request.task != Task::Reply) {
        let prompt = serde_json::to_string(&request.messages).unwrap();
        assert!(!prompt.contains("SECRETPIXELS"), "{prompt}");
    }
    let world = test.own_world().await;
    assert_eq!(
        test.said(&world).await,
        pairs(&[("What do you see?", "A cat."), ("And now?", "Still a cat.")])
    );
    let session = test.sessions(&world).await.remove(0);
    for turn in [1, 2] {
        let trace = test
            .client
            .get(&format!("/v1/sessions/{session}/turns/{turn}/trace"))
            .await;
        assert!(!trace.to_string().contains("SECRETPIXELS"), "{trace}");
    }
}

#[actix_web::test]
async fn picture_without_words_is_a_line() {
    let test = ToolTest::start().await;
    let part = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,SECRETPIXELS"}});
    let picture = json!({"role": "user", "content": [part]});
    test.llm.will_answer(&[says("Hello."), says("A cat.")]);
    let talk = [system("You are Mira."), user("Hi."), assistant("Hello.")];
    test.ask(CHARACTER, &talk[..2]).await;
    test.ask(CHARACTER, &[&talk[..], std::slice::from_ref(&picture)].concat())
        .await;
    assert_eq!(test.llm.last_messages(1), [picture]);
    let world = test.own_world().await;
    assert_eq!(
        test.said(&world).await,
        pairs(&[("Hi.", "Hello."), ("[picture]", "A cat.")])
    );
}

#[actix_web::test]
async fn failed_reply_is_not_cut_when_it_is_tried_again() {
    let llm = Arc::new(ToolLlm::default());
    let server = HttpTestServer::with(HttpTestOptions {
        llm: llm.clone(),
        chat: ChatSettings::default(),
        ..HttpTestOptions::default()
    });
    let client = server.start_demo_world().await;
    for is_streamed in [false, true] {
        let line = user(&format!("{RAIN} {is_streamed}"));
        let asked = json!({"model": "vale/ergen", "messages": [line], "stream": is_streamed});
        llm.will_answer(&[Answer {
            fails: true,
            ..Answer::default()
        }]);
        let failed = client.request(Method::POST, COMPLETIONS).json(&asked).send().await;
        assert!(failed.unwrap().text().await.unwrap().contains("model_failed"));
        llm.will_answer(&[Answer {
            stalls: true,
            ..says("Well met, friend.")
        }]);
        let again = json!({"model": "vale/ergen", "messages": [line], "stream": true});
        let again = client.request(Method::POST, COMPLETIONS).json(&again).send().await;
        let mut frames = read_until(again.unwrap().bytes_stream(), "Well").await;
        // Longer than the pause between two attempts to cut.
        let more = tokio::time::timeout(Duration::from_millis(600), frames.next()).await;
        assert!(more.is_err(), "the reply ended: {more:?}");
    }
}
