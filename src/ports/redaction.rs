//! Makes messages of model endpoints and stores fit for log lines and errors: escaped, truncated and without words of
//! the request. Endpoints often repeat the request in their errors, and a prompt has the players' words.

use std::{collections::HashSet, fmt::Write as _};

use unicode_normalization::UnicodeNormalization as _;

use colloquy_memory::text::is_ignorable;

/// How many characters of a message are shown at most.
const MAX_LINE_CHARS: usize = 300;
/// How many characters of a message are compared with the request.
const MAX_COMPARED_CHARS: usize = 2_000;
/// Stands in place of hidden text.
const ELLIPSIS: char = '…';

/// Common words of endpoint errors. Their presence in a prompt as well reveals no part of the prompt.
const COMMON_ERROR_WORDS: &str = "\
    a access account after again allowed an and api are argument at auth authentication available bad be been body \
    but by call can cannot capacity check chat client completion completions connection content context could count \
    denied does embedding embeddings endpoint error exceed exceeded exceeds exist expected expired failed field \
    filter for format found from gateway got has have in input insufficient internal invalid is it json key large \
    length less limit limits load loaded long max maximum message messages missing model more must no not of on only \
    or organization output overloaded parameter permission please policy prompt provided quota rate reached reduce \
    refused request requests required response retry s schema server service should stream such support supported t \
    than that the this timeout to token tokens too try type unavailable unknown unsupported url valid value was \
    window with your";

/// Returns the message on one line, with invisible and control characters escaped, and at most [`MAX_LINE_CHARS`]
/// characters of the original.
#[must_use]
pub fn to_log_line(text: &str) -> String {
    let text = text.trim();
    let mut line = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == MAX_LINE_CHARS {
            line.push(ELLIPSIS);
            break;
        }
        if c.is_control() || is_ignorable(c) || matches!(c, '\u{2028}' | '\u{2029}') {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    debug_assert!(
        !line.contains(char::is_control),
        "a line of a log has no control characters"
    );
    line
}

/// Returns [`to_log_line`] of an answer to a request with these texts. Hides every word that occurs in a text of the
/// request, or contains a word of the request.
#[must_use]
pub fn redact_request_words<'a>(message: &str, request_texts: impl IntoIterator<Item = &'a str>) -> String {
    // Numeric escapes may encode any text.
    if is_encoded(message) {
        return format!("{} bytes, encoded", message.len());
    }
    let request_text: String = request_texts
        .into_iter()
        .flat_map(|text| [normalise_word(text), "\n".to_owned()])
        .collect();
    let words: HashSet<&str> = request_text.split(|c: char| !c.is_alphanumeric()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| is_revealing(word)).collect();
    let message: String = message.chars().take(MAX_COMPARED_CHARS).nfkc().collect();
    let mut redacted = String::with_capacity(message.len());
    let mut rest = message.as_str();
    let mut left_out = false;
    while let Some(first) = rest.chars().next() {
        let is_word = first.is_alphanumeric();
        let end = rest
            .find(|c: char| c.is_alphanumeric() != is_word)
            .unwrap_or(rest.len());
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        let is_hidden = is_word && {
            let word = normalise_word(piece);
            !is_common(&word)
                && (request_text.contains(&word) || words.iter().any(|request_word| word.contains(request_word)))
        };
        if is_hidden {
            // A run of hidden words is shown as a single ellipsis.
            if !left_out {
                redacted.push(ELLIPSIS);
            }
            left_out = true;
        } else if is_word {
            left_out = false;
            redacted.push_str(piece);
        } else if !left_out || rest.is_empty() {
            redacted.push_str(piece);
        } else {
            redacted.push(' ');
        }
    }
    to_log_line(
        &redacted
            .split(' ')
            .filter(|piece| !piece.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// Returns [`to_log_line`] of the text before the first quotation. Stores quote their input.
#[must_use]
pub fn cut_at_quote(text: &str) -> String {
    let mut previous = ' ';
    let quote = text.char_indices().find(|(_, c)| {
        let opens_quote = matches!(c, '"' | '`' | '\'') && !previous.is_alphanumeric();
        previous = *c;
        opens_quote
    });
    match quote {
        Some((start, _)) => format!("{} {ELLIPSIS}", to_log_line(&text[..start])),
        None => to_log_line(text),
    }
}

/// Describes the mismatch between JSON and the expected shape, without values from the JSON.
#[must_use]
pub fn describe_json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let mut description = if message.starts_with("missing field") || !error.is_data() {
        message
    } else {
        // The message quotes the model's words first. The expected shape comes last, and is this server's own text.
        let quoted = message.find(['"', '`']).unwrap_or(message.len());
        match message.rfind(", expected") {
            Some(expected) if quoted < expected => format!("{}{ELLIPSIS}{}", &message[..quoted], &message[expected..]),
            Some(_) => message,
            None => format!("{}{ELLIPSIS}", &message[..quoted]),
        }
    };
    if error.line() > 0 && !description.contains(" at line ") {
        let _ = write!(description, " at line {} column {}", error.line(), error.column());
    }
    to_log_line(&description)
}

fn is_common(word: &str) -> bool {
    COMMON_ERROR_WORDS.split(' ').any(|common| common == word)
}

/// True if a longer word which contains this word reveals the word.
fn is_revealing(word: &str) -> bool {
    let min_chars = if word.is_ascii() { 3 } else { 2 };
    word.chars().count() >= min_chars && !is_common(word)
}

/// The form in which words are compared.
fn normalise_word(text: &str) -> String {
    text.nfkc().flat_map(char::to_lowercase).collect()
}

/// True for escapes like `\u00e9`, `&#233;` or `%C3`.
fn is_encoded(message: &str) -> bool {
    let hex = |text: &str, digits: usize| {
        text.get(..digits)
            .is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    message.contains("&#")
        || message
            .match_indices("\\u")
            .any(|(start, _)| hex(&message[start + 2..], 4))
        || message
            .match_indices('%')
            .any(|(start, _)| hex(&message[start + 1..], 2))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn message_line_is_escaped_to_one_line_and_truncated() {
        let said = to_log_line(" \u{1b}[31mred\nred\u{200b}\u{202e}\r\u{2028}. ");
        assert_eq!(said, r"\u{1b}[31mred\nred\u{200b}\u{202e}\r\u{2028}.");
        assert_eq!(to_log_line(&"가".repeat(400)).chars().count(), MAX_LINE_CHARS + 1);
        assert_eq!(to_log_line("  포도 \"100%\"  "), "포도 \"100%\"");
    }

    #[test]
    fn prompt_text_is_removed_from_endpoint_messages() {
        let asked = [
            "You are Mira. Do not lie.",
            "I like GRAPES and pin 4711.",
            "나는 포도를 좋아해.",
        ];
        let without = |said: &str| super::redact_request_words(said, asked);
        assert_eq!(
            without("The model `gpt-9` does not exist"),
            "The model `gpt-9` does not exist"
        );
        assert_eq!(
            without("This model's maximum context length is 8192 tokens, got 9001"),
            "This model's maximum context length is 8192 tokens, got 9001"
        );
        for echo in [
            "invalid prompt: I like GRAPES and pin 4711.",
            "invalid prompt: i_like_grapes\n\u{1b}[1mPIN=4711",
            "invalid prompt: 나는 포도를 좋아해.",
            "invalid prompt: cut in a word: I like grap",
            "invalid prompt: ｇｒａｐｅｓ 4711",
            r"invalid prompt: \ud3ec\ub3c4",
            "invalid prompt: &#54252;&#46020;",
            "invalid prompt: %ED%8F%AC",
        ] {
            let description = without(echo).to_lowercase();
            for word in [
                "grap", "4711", "pin", "like", "나는", "포도", "좋아", "ud3ec", "54252", "%ed", "ｇｒ",
            ] {
                assert!(!description.contains(word), "{word}: {description}");
            }
            assert!(!description.contains(['\n', '\u{1b}']), "{description}");
        }
        assert_eq!(
            without("bad prompt: 나는 포도를 좋아해. I like grapes!"),
            "bad prompt: … !"
        );
    }

    #[test]
    fn store_messages_are_cut_before_their_quotes() {
        assert_eq!(
            cut_at_quote("ERR unknown command 'EVALSHA', with args beginning with: 'grapes' "),
            "ERR unknown command …"
        );
        assert_eq!(cut_at_quote("can't connect:\nrefused"), r"can't connect:\nrefused");
    }

    #[test]
    fn parse_error_describes_only_the_shape() {
        #[derive(Debug, serde::Deserialize)]
        struct Shape {
            #[expect(dead_code, reason = "only its shape counts")]
            facts: Vec<u32>,
        }
        let description = |text: &str| describe_json_error(&serde_json::from_str::<Shape>(text).unwrap_err());
        assert_eq!(
            description(r#"{"fact":1}"#),
            "missing field `facts` at line 1 column 10"
        );
        let grapes = description(r#"{"facts":"I like \"grapes\", expected by me"}"#);
        assert!(
            grapes.starts_with("invalid type: string …, expected a sequence"),
            "{grapes}"
        );
        assert!(!grapes.contains("grapes") && !grapes.contains("by me"), "{grapes}");
        assert!(description("{oops").contains("line 1 column 2"));
    }
}
