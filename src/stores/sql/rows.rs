//! Conversions between rows and values: moments, ids, JSON, embeddings.

use std::{borrow::Cow, str::FromStr};

use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::Row as _;

use super::context::{Db, Row, store_error};
use colloquy_memory::fact::Cause;
use colloquy_ports::{StoreError, StoreResult, redaction::describe_json_error};

pub(super) fn to_micros(moment: DateTime<Utc>) -> i64 {
    moment.timestamp_micros()
}

/// Removes U+0000, which Postgres cannot store in text.
pub(super) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Serializes a value as JSON without U+0000.
pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> StoreResult<String> {
    const NUL_ESCAPE: &str = "\\u0000";
    let mut json = serde_json::to_string(value)
        .map_err(|error| StoreError::Rejected(format!("a value has no JSON form: {error}")))?;
    let mut from = 0;
    while let Some(index) = json[from..].find(NUL_ESCAPE).map(|index| from + index) {
        // An odd number of backslashes is an escape; an even number is escaped backslashes before similar text.
        let before = json[..index].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if before % 2 == 0 {
            json.replace_range(index..index + NUL_ESCAPE.len(), "");
            from = index;
        } else {
            from = index + NUL_ESCAPE.len();
        }
    }
    Ok(json)
}

/// Returns the text forms of ids as a JSON array, for `in_json_list!` and `json_texts_table!`.
pub(super) fn json_list<T: std::fmt::Display>(ids: impl IntoIterator<Item = T>) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("[");
    for id in ids {
        if text.len() > 1 {
            text.push(',');
        }
        // Ids contain no character that JSON escapes; writing to a `String` cannot fail.
        let _ = write!(text, "\"{id}\"");
    }
    text.push(']');
    debug_assert!(
        !text.contains(|c: char| c == '\\' || c.is_control()),
        "an id has no character that JSON escapes"
    );
    text
}

pub(super) fn vector_to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(super) fn vector_from_bytes(bytes: &[u8]) -> StoreResult<Vec<f32>> {
    let (values, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(StoreError::Corrupt(
            "an embedding is not a whole number of f32".to_owned(),
        ));
    }
    Ok(values.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

/// Reads a row's columns in order.
pub(super) struct Columns<'r> {
    row: &'r Row,
    index: usize,
}

impl<'r> Columns<'r> {
    pub(super) fn new(row: &'r Row) -> Self {
        Self::starting_at(row, 0)
    }
    pub(super) const fn starting_at(row: &'r Row, index: usize) -> Self {
        Self { row, index }
    }
    /// Reads each row with `read_row`.
    pub(super) fn read_rows<T>(rows: &[Row], read_row: ReadRow<T>) -> StoreResult<Vec<T>> {
        rows.iter().map(|row| read_row(&mut Columns::new(row))).collect()
    }
    pub(super) fn next<T: sqlx::Decode<'r, Db> + sqlx::Type<Db>>(&mut self) -> StoreResult<T> {
        let index = self.index;
        self.index += 1;
        self.row.try_get(index).map_err(store_error)
    }
    pub(super) const fn skip(&mut self, columns: usize) {
        self.index += columns;
    }
    /// Reads an unsigned number.
    pub(super) fn number<T: TryFrom<i64>>(&mut self) -> StoreResult<T> {
        to_unsigned(self.next()?)
    }
    pub(super) fn maybe_number<T: TryFrom<i64>>(&mut self) -> StoreResult<Option<T>> {
        self.next::<Option<i64>>()?.map(to_unsigned).transpose()
    }
    pub(super) fn time(&mut self) -> StoreResult<DateTime<Utc>> {
        from_micros(self.next()?)
    }
    pub(super) fn maybe_time(&mut self) -> StoreResult<Option<DateTime<Utc>>> {
        self.next::<Option<i64>>()?.map(from_micros).transpose()
    }
    /// Reads an id, or another value parsed from text.
    pub(super) fn id<T: FromStr>(&mut self) -> StoreResult<T> {
        parse_text(self.next()?)
    }
    pub(super) fn maybe_id<T: FromStr>(&mut self) -> StoreResult<Option<T>> {
        self.next::<Option<&str>>()?.map(parse_text).transpose()
    }
    pub(super) fn json<T: DeserializeOwned>(&mut self) -> StoreResult<T> {
        serde_json::from_str(self.next()?).map_err(unreadable_json_error)
    }
    pub(super) fn maybe_json<T: DeserializeOwned>(&mut self) -> StoreResult<Option<T>> {
        let json = self.next::<Option<&str>>()?.map(serde_json::from_str);
        json.transpose().map_err(unreadable_json_error)
    }
    /// Reads an embedding; empty if there is none.
    pub(super) fn maybe_vector(&mut self) -> StoreResult<Vec<f32>> {
        vector_from_bytes(self.next::<Option<&[u8]>>()?.unwrap_or_default())
    }
    /// Reads the name of one of `values`.
    pub(super) fn named<T: Copy, const N: usize>(
        &mut self,
        values: [T; N],
        name: fn(T) -> &'static str,
    ) -> StoreResult<T> {
        self.parse_with(|text| values.into_iter().find(|value| name(*value) == text))
    }
    /// Reads a name with `parse`.
    pub(super) fn parse_with<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> StoreResult<T> {
        let text: &str = self.next()?;
        parse(text).ok_or_else(|| StoreError::Corrupt(format!("unknown name `{text}`")))
    }
    /// Reads two columns: the kind and id of a cause.
    pub(super) fn cause(&mut self) -> StoreResult<Cause> {
        let (kind, id): (&str, &str) = (self.next()?, self.next()?);
        parse_cause(kind, id)
    }
    /// Reads a cause as [`Self::cause`] does, or `None` if a column is null.
    pub(super) fn maybe_cause(&mut self) -> StoreResult<Option<Cause>> {
        let (kind, id): (Option<&str>, Option<&str>) = (self.next()?, self.next()?);
        kind.zip(id).map(|(kind, id)| parse_cause(kind, id)).transpose()
    }
}

fn parse_cause(kind: &str, id: &str) -> StoreResult<Cause> {
    Cause::from_columns(kind, id).ok_or_else(|| StoreError::Corrupt(format!("unknown cause `{kind}` `{id}`")))
}

pub(super) fn from_micros(micros: i64) -> StoreResult<DateTime<Utc>> {
    DateTime::from_timestamp_micros(micros).ok_or_else(|| StoreError::Corrupt(format!("{micros} is no moment")))
}

fn to_unsigned<T: TryFrom<i64>>(value: i64) -> StoreResult<T> {
    T::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is out of range")))
}

/// Says where the JSON of a row differs from the expected shape; backends and operators see the text.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn unreadable_json_error(error: serde_json::Error) -> StoreError {
    StoreError::Corrupt(describe_json_error(&error))
}

pub(super) fn parse_text<T: FromStr>(text: &str) -> StoreResult<T> {
    text.parse()
        .map_err(|_| StoreError::Corrupt(format!("`{text}` does not parse")))
}

/// Reads a row with `read`.
pub(super) type ReadRow<T> = fn(&mut Columns<'_>) -> StoreResult<T>;

/// Converts a counter for SQL. Counters are far below 2⁶³; a larger value is a defect and matches no row.
pub(super) fn to_signed(counter: u64) -> i64 {
    debug_assert!(i64::try_from(counter).is_ok(), "a counter is below 2^63");
    i64::try_from(counter).unwrap_or(i64::MAX)
}

pub(super) const fn bool_json(paused: bool) -> &'static str {
    if paused { "true" } else { "false" }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_round_trip_bit_by_bit() {
        let vector = [0.0_f32, -0.5, 1.0, f32::MIN_POSITIVE];
        assert_eq!(vector_from_bytes(&vector_to_bytes(&vector)).unwrap(), vector);
        assert!(vector_from_bytes(&[1, 2, 3]).is_err());
    }

    #[test]
    fn nul_characters_are_dropped_from_text() {
        assert_eq!(without_nul("a\0b\0"), "ab");
        assert_eq!(
            to_json(&["a\0b\0\0c", "\\u0000", "\\\0"]).unwrap(),
            r#"["abc","\\u0000","\\"]"#
        );
    }

    #[test]
    fn unreadable_json_is_described_without_its_values() {
        let error = serde_json::from_str::<u32>(r#""a confidence""#).unwrap_err();
        let described = unreadable_json_error(error).to_string();
        assert!(
            described.contains("expected u32") && !described.contains("confidence"),
            "{described}"
        );
    }

    #[test]
    fn id_lists_are_json() {
        assert_eq!(json_list(["a", "b"]), r#"["a","b"]"#);
        assert_eq!(json_list::<&str>([]), "[]");
    }
}
