//! Fields of an event that a client sends.

use serde_json::{Map, Value};

use super::errors::RealtimeError;

/// The fields of an object that are not read yet. `path` is the place of the object in the event.
#[derive(Debug)]
pub struct Fields {
    pub(super) fields: Map<String, Value>,
    pub(super) path: String,
}

impl Fields {
    pub fn new(fields: Map<String, Value>, path: impl Into<String>) -> Self {
        Self {
            fields,
            path: path.into(),
        }
    }

    /// The place of a field in the event.
    pub fn param(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// The error of a field.
    pub fn fault(&self, name: &str, detail: &str) -> RealtimeError {
        RealtimeError::field(&self.param(name), detail)
    }

    /// Takes a field. `null` is as missing.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    /// True if the object has the field, be it `null`.
    pub fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// True if the field is this text.
    pub fn is_text(&self, name: &str, text: &str) -> bool {
        self.fields.get(name).is_some_and(|value| value == text)
    }

    /// Returns the fields as they came.
    pub fn into_value(self) -> Value {
        Value::Object(self.fields)
    }

    pub fn take_text(&mut self, name: &str) -> Result<Option<String>, RealtimeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault(name, "must be a text")),
        }
    }

    pub fn take_required_text(&mut self, name: &str) -> Result<String, RealtimeError> {
        let text = self.take_text(name)?;
        text.ok_or_else(|| self.fault(name, "is missing"))
    }

    pub fn take_optional_object(&mut self, name: &str) -> Result<Option<Fields>, RealtimeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self::new(fields, self.param(name)))),
            Some(_) => Err(self.fault(name, "must be an object")),
        }
    }

    pub fn take_object(&mut self, name: &str) -> Result<Fields, RealtimeError> {
        let object = self.take_optional_object(name)?;
        object.ok_or_else(|| self.fault(name, "is missing"))
    }

    /// Takes a number that is 0 or more.
    pub fn take_number(&mut self, name: &str) -> Result<Option<u64>, RealtimeError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.fault(name, "must be a whole number of 0 or more")),
            },
        }
    }

    /// Refuses the fields that nothing has read.
    pub fn refuse_rest(self) -> Result<(), RealtimeError> {
        let unread = self.fields.iter().find(|(_, value)| !value.is_null());
        match unread {
            None => Ok(()),
            Some((name, _)) => Err(self.fault(name, "is unknown here")),
        }
    }
}
