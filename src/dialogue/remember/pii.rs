//! Personal data in statements.

use colloquy_memory::{fact::Statement, pii};

pub(super) fn detect_pii(statement: &Statement) -> Vec<String> {
    pii::detect_kinds(&format!("{} {}", statement.content, statement.object))
        .into_iter()
        .map(str::to_owned)
        .collect()
}
