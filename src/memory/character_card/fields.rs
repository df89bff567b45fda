//! Fields of JSON objects of strangers. A field of the wrong type is an error with the path of the field. A missing
//! field and `null` are the same.

use serde_json::{Map, Value};

use super::report::CardError;
use crate::text::is_ignorable;

pub type Object = Map<String, Value>;

/// Most characters of a stranger's word in a message.
const MAX_PRINTED_CHARS: usize = 64;

/// The text of a field; empty if missing.
pub fn text(object: &Object, field: &str, path: &str) -> Result<String, CardError> {
    match present(object, field) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong_type(path, field, "text", other)),
    }
}

/// True or false; `None` if missing.
pub fn flag(object: &Object, field: &str, path: &str) -> Result<Option<bool>, CardError> {
    match present(object, field) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(wrong_type(path, field, "true or false", other)),
    }
}

/// The object in a field.
pub fn object<'a>(object: &'a Object, field: &str, path: &str) -> Result<Option<&'a Object>, CardError> {
    match present(object, field) {
        None => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(other) => Err(wrong_type(path, field, "an object", other)),
    }
}

/// The first texts of a list.
#[derive(Debug, Default)]
pub struct Texts {
    pub texts: Vec<String>,
    /// The number of texts in the file.
    pub total: usize,
}

/// The first `max_texts` texts of a list; further ones are only counted. A text in place of the list is split at its
/// commas, without empty parts.
pub fn texts(object: &Object, field: &str, path: &str, max_texts: usize) -> Result<Texts, CardError> {
    let mut texts = Texts::default();
    let mut take = |text: &str| {
        if texts.total < max_texts {
            texts.texts.push(text.to_owned());
        }
        texts.total += 1;
    };
    match present(object, field) {
        None => {}
        Some(Value::String(text)) => {
            let parts = text.split(',').map(str::trim);
            parts.filter(|part| !part.is_empty()).for_each(take);
        }
        Some(Value::Array(items)) => {
            for (nth, item) in items.iter().enumerate() {
                match item {
                    Value::String(text) => take(text),
                    other => return Err(wrong_type(path, &format!("{field}[{nth}]"), "text", other)),
                }
            }
        }
        Some(other) => return Err(wrong_type(path, field, "a list of texts", other)),
    }
    Ok(texts)
}

/// The value of a field, unless it is `null`.
pub fn present<'a>(object: &'a Object, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

/// The error of a field with another type.
pub fn wrong_type(path: &str, field: &str, expected: &'static str, value: &Value) -> CardError {
    CardError::WrongType {
        path: join(path, field),
        expected,
        found: kind_of(value),
    }
}

/// The path of a field; an empty path is the root.
pub fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// The type of a value in words.
pub const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// True for values that say nothing: `null`, false, zero, and empty texts, lists and objects.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// A stranger's word for a message: short, and without invisible characters.
pub fn printable(word: &str) -> String {
    let visible = word.chars().filter(|c| !c.is_control() && !is_ignorable(*c));
    visible.take(MAX_PRINTED_CHARS).collect()
}
