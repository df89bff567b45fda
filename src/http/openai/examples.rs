//! Example messages of chat programs, which are no part of the talk.

use super::request::InputMessage;

/// Names of speakers in the examples of chat programs, which are no part of the talk.
const EXAMPLE_NAMES: [&str; 2] = ["example_user", "example_assistant"];

/// True if the message is an example, and no part of the talk.
pub fn is_example(message: &InputMessage) -> bool {
    message
        .name
        .as_deref()
        .is_some_and(|name| EXAMPLE_NAMES.contains(&name))
}
