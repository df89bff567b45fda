//! Fuzz targets: untrusted input, parsed as the server parses it. For the fuzzer (`tests/fuzz`), and for its corpora in
//! every test run. Each target accepts any bytes; a panic is a defect.

mod signed;

pub use signed::{hop_headers, tokens};

use colloquy_http::{
    errors::Problem,
    parsers::{FactsQuery, PageQuery, SessionListQuery, parse_query},
    socket::{SocketQuery, messages},
};
use colloquy_memory::state_block::{StateRules, StreamCutter, parse_closed};

/// A function for a fuzzer.
pub type FuzzTarget = fn(&[u8]);

/// Every target, by the name of its corpus.
pub const FUZZ_TARGETS: &[(&str, FuzzTarget)] = &[
    ("socket_frames", socket_frames),
    ("state_blocks", state_blocks),
    ("tokens", tokens),
    ("hop_headers", hop_headers),
    ("query_strings", query_strings),
];

/// Checks that a refusal is a client error, and writes its text.
fn check_problem<T>(result: Result<T, Problem>) {
    if let Err(problem) = result {
        assert!((400..500).contains(&problem.code.status().as_u16()), "{problem:?}");
        let _ = serde_json::to_string(&problem.errors);
    }
}

/// A text frame of a socket: the envelope, then the message of the envelope's type.
pub fn socket_frames(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(envelope) = serde_json::from_str::<messages::Envelope<'_>>(text) else {
        return;
    };
    messages::metric_label(&envelope.kind);
    check_problem(messages::ClientMessage::parse(&envelope.kind, text));
}

/// A model's streamed reply, split into spoken text and state block; and the block alone. The result must not depend on
/// the chunks of the stream.
pub fn state_blocks(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let rules = StateRules::default();
    let _ = parse_closed(text, "mira", &rules);
    let cues = ["smile".to_owned(), "미소".to_owned()];
    let cut_text = |step: usize| {
        let mut cutter = StreamCutter::new(&cues);
        let mut visible_text = String::new();
        let characters: Vec<char> = text.chars().collect();
        for delta in characters.chunks(step) {
            visible_text += &cutter.push(&delta.iter().collect::<String>());
        }
        let reply_end = cutter.finish_reply();
        visible_text += &reply_end.visible_tail;
        (
            visible_text,
            reply_end.state_block,
            reply_end.closed,
            reply_end.cues,
            reply_end.cues_at,
        )
    };
    let whole_cut = cut_text(usize::MAX);
    assert_eq!(whole_cut, cut_text(1));
    assert_eq!(whole_cut, cut_text(7));
    if let Some(block) = &whole_cut.1 {
        let _ = parse_closed(block, "mira", &rules);
    }
}

/// A query string, parsed by each kind of list.
pub fn query_strings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    check_problem(parse_query::<PageQuery>(text));
    check_problem(parse_query::<SessionListQuery>(text));
    check_problem(parse_query::<FactsQuery>(text));
    check_problem(parse_query::<SocketQuery>(text));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Runs the corpora of the fuzzer and of the tests.
    #[test]
    fn fuzz_corpora_are_read_without_panic() {
        for (name, target) in FUZZ_TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../../tests/fuzz/corpus")
                .join(name);
            let mut inputs = 0;
            for entry in fs::read_dir(folder).unwrap() {
                target(&fs::read(entry.unwrap().path()).unwrap());
                inputs += 1;
            }
            assert!(inputs > 5, "{name} has a corpus of {inputs}");
        }
    }

    /// Checks that the seeds reach the code under test.
    #[test]
    fn fuzz_seeds_reach_their_targets() {
        let seed = |name: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fuzz/corpus");
            fs::read_to_string(folder.join(name)).unwrap()
        };
        let say = seed("socket_frames/say");
        assert!(messages::ClientMessage::parse("player.say", &say).is_ok());
        assert!(parse_query::<FactsQuery>(&seed("query_strings/facts")).is_ok());
        let block = parse_closed(&seed("state_blocks/block"), "mira", &StateRules::default());
        assert!(!block.unwrap().changes.is_empty());
    }
}
