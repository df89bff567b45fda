//! Reads the JSON of strangers into a [`Value`] of bounded size.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use super::report::CardError;

/// The first node of an object: room for eleven members.
const OBJECT_BYTES: usize = 640;
/// A further member without its key: nodes of an object are half full at worst.
const MEMBER_BYTES: usize = 128;
/// An item of a list: lists grow by doubling.
const ITEM_BYTES: usize = 64;

/// Parses JSON whose values take at most `max_bytes` bytes of memory, by an estimate that is rather too high.
///
/// # Errors
/// [`CardError::NotJson`], and [`CardError::TooManyValues`] as soon as the limit is reached.
pub fn parse_json(json: &[u8], max_bytes: usize) -> Result<Value, CardError> {
    let remaining_bytes = Cell::new(Some(max_bytes));
    let mut reader = serde_json::Deserializer::from_slice(json);
    let parsed = BoundedValue {
        remaining_bytes: &remaining_bytes,
    }
    .deserialize(&mut reader);
    let parsed = parsed.and_then(|value| reader.end().map(|()| value));
    parsed.map_err(|error| match remaining_bytes.get() {
        Some(_) => CardError::NotJson(error.to_string()),
        None => CardError::TooManyValues { most: max_bytes },
    })
}

/// One value, and all values inside.
#[derive(Clone, Copy)]
struct BoundedValue<'a> {
    /// The memory that is left in bytes; `None` after the end of it.
    remaining_bytes: &'a Cell<Option<usize>>,
}

impl BoundedValue<'_> {
    fn spend<E: Error>(self, bytes: usize) -> Result<(), E> {
        self.remaining_bytes.set(
            self.remaining_bytes
                .get()
                .and_then(|remaining| remaining.checked_sub(bytes)),
        );
        match self.remaining_bytes.get() {
            Some(_) => Ok(()),
            None => Err(E::custom("too many values")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.spend(text.len())?;
        Ok(Value::String(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.spend(ITEM_BYTES)?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let first = if object.is_empty() { OBJECT_BYTES } else { 0 };
            self.spend(first + MEMBER_BYTES + key.len())?;
            object.insert(key, members.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_within_the_limit_are_as_the_usual_reader_has_them() {
        let text = r#"{"a": [1, -2, 1.5, null, true, "x\u00e9", {}], "b": {"c": [[]]}, "a2": 18446744073709551615}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse_json(text.as_bytes(), 10_000).unwrap(), expected);
        for broken in ["", "{", "[1,]", "1 2", "nul", "{\"a\": 1e999}"] {
            assert!(
                matches!(parse_json(broken.as_bytes(), 10_000), Err(CardError::NotJson(_))),
                "{broken}"
            );
        }
        assert_eq!(parse_json(b"\"abc\"", 3).unwrap(), json!("abc"));
    }

    #[test]
    fn reading_ends_at_the_limit() {
        let many = 1_000_000 / 8;
        for hostile in ["{\"\":0},", "[],", "\"\",", "\"abcdefghijkl\",", "[[[]]],"] {
            let inside = hostile.repeat(many);
            let list = format!("[{}]", inside.trim_end_matches(','));
            let refused = parse_json(list.as_bytes(), 4_000_000);
            assert_eq!(refused, Err(CardError::TooManyValues { most: 4_000_000 }), "{hostile}");
        }
        let wide: Vec<String> = (0..many).map(|nth| format!("\"k{nth}\":0")).collect();
        let refused = parse_json(format!("{{{}}}", wide.join(",")).as_bytes(), 4_000_000);
        assert_eq!(refused, Err(CardError::TooManyValues { most: 4_000_000 }));
    }
}
