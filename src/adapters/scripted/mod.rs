//! The scripted model.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod prompt_tests;
