//! A streamed response: the events of the OpenAI API, each with its number.

use actix_web::HttpResponse;
use bytes::Bytes;
use serde::Serialize;

use super::{
    super::{
        answer::FinishReason,
        prepared_talk::PreparedTalk,
        stream::{OpenedStream, ReplyFrames, open_stream},
    },
    answer::{OutputMessage, OutputText, ReplyEnding, ResponseHead, ResponseStatus, ResponseView},
};
use crate::{errors::Problem, sse::SseStream};
use colloquy_memory::turn::{TurnStatus, Usage};

/// An event, with the fields of all kinds.
#[derive(Debug, Serialize)]
struct ResponseEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    body: EventFields<'a>,
}

/// The fields of an event beside its kind and its number.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum EventFields<'a> {
    Response {
        response: ResponseView<'a>,
    },
    Item {
        output_index: u32,
        item: OutputMessage<'a>,
    },
    Part {
        #[serde(flatten)]
        place: PartPlace<'a>,
        part: OutputText<'a>,
    },
    Delta {
        #[serde(flatten)]
        place: PartPlace<'a>,
        delta: &'a str,
        logprobs: [(); 0],
    },
    Text {
        #[serde(flatten)]
        place: PartPlace<'a>,
        text: &'a str,
        logprobs: [(); 0],
    },
}

/// The place of the reply's words. There is one item with one part.
#[derive(Debug, Clone, Copy, Serialize)]
struct PartPlace<'a> {
    item_id: &'a str,
    output_index: u32,
    content_index: u32,
}

/// The reply of an NPC as the events of a response.
struct EventForm {
    head: ResponseHead,
    /// The words that were sent.
    text: String,
    next_number: u64,
}

impl EventForm {
    fn place(&self) -> PartPlace<'_> {
        PartPlace {
            item_id: &self.head.message_id,
            output_index: 0,
            content_index: 0,
        }
    }
}

/// Returns the frame of an event.
fn to_event(kind: &'static str, next_number: &mut u64, body: EventFields<'_>) -> Bytes {
    let event = ResponseEvent {
        kind,
        sequence_number: *next_number,
        body,
    };
    *next_number += 1;
    // The values have only texts and numbers, so serialization cannot fail. JSON has no raw line breaks.
    let json = serde_json::to_string(&event).unwrap_or_default();
    Bytes::from(format!("event: {kind}\ndata: {json}\n\n"))
}

impl ReplyFrames for EventForm {
    fn opening(&mut self) -> Bytes {
        let mut number = self.next_number;
        let response = || EventFields::Response {
            response: self.head.begun(),
        };
        let item = EventFields::Item {
            output_index: 0,
            item: OutputMessage::new(&self.head.message_id, ResponseStatus::InProgress, Vec::new()),
        };
        let part = EventFields::Part {
            place: self.place(),
            part: OutputText::new(""),
        };
        let frames = [
            to_event("response.created", &mut number, response()),
            to_event("response.in_progress", &mut number, response()),
            to_event("response.output_item.added", &mut number, item),
            to_event("response.content_part.added", &mut number, part),
        ];
        self.next_number = number;
        Bytes::from(frames.concat())
    }

    fn words(&mut self, new_text: &str) -> Bytes {
        self.text.push_str(new_text);
        let mut number = self.next_number;
        let delta = EventFields::Delta {
            place: self.place(),
            delta: new_text,
            logprobs: [],
        };
        let frame = to_event("response.output_text.delta", &mut number, delta);
        self.next_number = number;
        frame
    }

    fn ending(&mut self, reason: FinishReason, turn: TurnStatus, usage: Usage) -> Bytes {
        let mut number = self.next_number;
        let ending = ReplyEnding::new(reason, turn);
        let kind = match ending {
            ReplyEnding::Whole => "response.completed",
            ReplyEnding::AtLimit | ReplyEnding::Cut => "response.incomplete",
        };
        let text = EventFields::Text {
            place: self.place(),
            text: &self.text,
            logprobs: [],
        };
        let part = EventFields::Part {
            place: self.place(),
            part: OutputText::new(&self.text),
        };
        let item = EventFields::Item {
            output_index: 0,
            item: OutputMessage::new(
                &self.head.message_id,
                ending.status(),
                vec![OutputText::new(&self.text)],
            ),
        };
        let response = EventFields::Response {
            response: self.head.finished(ending, &self.text, usage),
        };
        let frames = [
            to_event("response.output_text.done", &mut number, text),
            to_event("response.content_part.done", &mut number, part),
            to_event("response.output_item.done", &mut number, item),
            to_event(kind, &mut number, response),
        ];
        self.next_number = number;
        Bytes::from(frames.concat())
    }
}

impl EventForm {
    /// Returns the last event of a stream whose turn failed.
    fn failure(&mut self, problem: &Problem) -> Bytes {
        let mut number = self.next_number;
        let response = EventFields::Response {
            response: self.head.failed(problem),
        };
        let frame = to_event("response.failed", &mut number, response);
        self.next_number = number;
        frame
    }
}

/// Answers with a stream of events.
///
/// # Errors
/// As of a line, if the line is not accepted. Later errors are part of the stream.
pub async fn stream_response(talk: PreparedTalk, head: ResponseHead) -> Result<HttpResponse, Problem> {
    let OpenedStream {
        mut stream,
        running,
        mark,
        response,
        attachment,
    } = open_stream(talk).await?;
    let mut form = EventForm {
        head,
        text: String::new(),
        next_number: 0,
    };
    actix_web::rt::spawn(async move {
        let talk = &stream.talk;
        let (caller, mut shutdown) = SseStream::with_shutdown(talk.principal.clone());
        let place = talk.state.streams.add_stream(&talk.state.auth, &caller);
        if let Err(problem) = stream.send_reply(&mut form, running, &mark, &mut shutdown).await {
            let _ = stream.send(form.failure(&problem), 0).await;
        }
        drop((attachment, place, caller));
    });
    Ok(response)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use colloquy_core::ids::TurnId;

    fn events(frames: &[Bytes]) -> Vec<Value> {
        let text = String::from_utf8(frames.concat()).unwrap();
        let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
        frames
            .map(|frame| {
                let (kind, data) = frame.split_once('\n').unwrap();
                let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(kind, format!("event: {}", event["type"].as_str().unwrap()));
                event
            })
            .collect()
    }

    #[test]
    fn events_are_numbered_and_end_with_the_whole_response() {
        let mut form = EventForm {
            head: ResponseHead::new(TurnId::from_u128(1), 7, "vale/mira".to_owned()),
            text: String::new(),
            next_number: 0,
        };
        let frames = [
            form.opening(),
            form.words("Hel"),
            form.words("lo."),
            form.ending(FinishReason::Stop, TurnStatus::Completed, Usage::default()),
        ];
        let events = events(&frames);
        assert!(
            (0_u64..)
                .zip(&events)
                .all(|(number, event)| event["sequence_number"] == number)
        );
        assert_eq!(events[4]["delta"], "Hel");
        assert_eq!(events[4]["logprobs"], json!([]));
        assert_eq!(events[6]["text"], "Hello.");
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.completed");
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], "Hello.");
        assert_eq!(last["response"]["usage"]["total_tokens"], 0);
    }

    #[test]
    fn limit_of_a_reply_is_told_from_a_cut() {
        for (turn, details) in [
            (TurnStatus::Completed, json!({"reason": "max_output_tokens"})),
            (TurnStatus::Interrupted, Value::Null),
        ] {
            let mut form = EventForm {
                head: ResponseHead::new(TurnId::from_u128(1), 7, "vale/mira".to_owned()),
                text: String::new(),
                next_number: 0,
            };
            let events = events(&[form.ending(FinishReason::Length, turn, Usage::default())]);
            let last = events.last().unwrap();
            assert_eq!(last["type"], "response.incomplete");
            assert_eq!(last["response"]["incomplete_details"], details);
        }
    }
}
