//! The fields of a JSON object, taken one by one, with their places for error messages.
//!
//! Fields that are never taken are ignored, and reported.
//!
//! A field that changes the answer has to be taken: it is honoured, or refused by its name.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// Maximum number of reported ignored fields: more than fits a header.
const TOLD: usize = 100;

/// The remaining fields of an object.
/// A field that is `null` counts as absent.
pub struct Fields {
    /// Place of the object in the request, for example `messages[0]`; empty for the request itself.
    place: String,
    map: Map<String, Value>,
    /// The ignored fields of the whole request, each once.
    ignored: Arc<Mutex<Vec<String>>>,
}

impl Fields {
    /// Parses the fields of a request.
    ///
    /// # Errors
    /// The body isn't a JSON object.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(400, "invalid_request_error", format!("the body is no JSON: {error}"))
        })?;
        match body {
            Value::Object(map) => Ok(Fields { place: String::new(), map, ignored: Arc::default() }),
            _ => Err(Refusal::new(400, "invalid_request_error", "the body is no JSON object")),
        }
    }

    /// Returns the fields of `value`, which is `name` within this object, for example `tools[0]`.
    ///
    /// # Errors
    /// The value isn't an object.
    pub fn within(&self, value: Value, name: &str) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Fields { place: self.place(name), map, ignored: self.ignored.clone() }),
            _ => Err(self.refuse(name, "must be an object")),
        }
    }

    /// Takes the objects of a list in a field; none if there is no such field.
    ///
    /// # Errors
    /// The field isn't a list of objects.
    pub fn objects(&mut self, name: &str) -> Result<Vec<Fields>, Refusal> {
        let list = self.list(name)?.unwrap_or_default().into_iter().enumerate();
        list.map(|(index, value)| self.within(value, &format!("{name}[{index}]"))).collect()
    }

    /// Takes the object in a field.
    ///
    /// # Errors
    /// The field isn't an object.
    pub fn object(&mut self, name: &str) -> Result<Option<Fields>, Refusal> {
        self.take(name).map(|value| self.within(value, name)).transpose()
    }

    /// Returns the place of a field.
    pub fn place(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    /// Returns a refusal about a field.
    pub fn refuse(&self, name: &str, why: &str) -> Refusal {
        let place = self.place(name);
        Refusal::invalid(&place, format!("`{place}` {why}"))
    }

    /// Whether a field is present.
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Inserts a field, for code that reads it under this name.
    pub fn put(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Takes a field.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes the result of `read` for a field; `kind` names the required type.
    fn taken<T>(
        &mut self,
        name: &str,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| self.refuse(name, &format!("must be {kind}")))
    }

    /// Takes a text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.taken(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// Takes a required text.
    pub fn needed(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| self.refuse(name, "is missing"))
    }

    /// Takes a boolean.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        self.taken(name, "true or false", Value::as_bool)
    }

    /// Takes an integer of at least `least`.
    pub fn count(&mut self, name: &str, least: u64) -> Result<Option<usize>, Refusal> {
        let read = |value: &Value| value.as_u64().filter(|count| *count >= least)?.try_into().ok();
        self.taken(name, &format!("a whole number of at least {least}"), read)
    }

    /// Takes an integer of at least `least`; a negative one counts as absent, like -1 in llama.cpp,
    /// vLLM and Ollama.
    pub fn limit(&mut self, name: &str, least: u64) -> Result<Option<usize>, Refusal> {
        if self.map.get(name).and_then(Value::as_i64).is_some_and(|number| number < 0) {
            self.take(name);
        }
        self.count(name, least)
    }

    /// Takes a list.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.refuse(name, "must be an array")),
        }
    }

    /// Takes fields that don't affect the answer.
    pub fn ignore(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.take(name)));
    }

    /// Takes fields that would affect the answer but aren't supported.
    /// `table` has pairs of a name, and a JSON text of an additional neutral value; `false`, 0 and
    /// anything empty are always neutral.
    ///
    /// # Errors
    /// One of them has another value.
    pub fn unsupported(&mut self, table: &[(&str, &str)]) -> Result<(), Refusal> {
        for (name, neutral) in table {
            if let Some(value) = self.take(name)
                && !says_nothing(&value)
                && !is(&value, neutral)
            {
                return Err(self.refuse(name, "is not supported by this server; leave it out"));
            }
        }
        Ok(())
    }

    /// Refuses any remaining fields.
    ///
    /// # Errors
    /// There are some.
    pub fn refuse_rest(self, why: &str) -> Result<(), Refusal> {
        match self.map.iter().find(|(_, value)| !value.is_null()) {
            Some((name, _)) => Err(self.refuse(name, why)),
            None => Ok(()),
        }
    }

    /// Reports something that is ignored.
    pub fn tell(&self, what: &str) {
        let mut ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        if ignored.len() < TOLD && !ignored.iter().any(|told| told == what) {
            ignored.push(what.to_owned());
        }
    }

    /// Reports that the whole object, which is a `kind`, is ignored.
    pub fn tell_place(self, kind: &str) {
        self.tell(&format!("{} ({kind})", without_indices(&self.place)));
    }

    /// Ignores and reports any remaining fields.
    pub fn end(self) {
        for name in self.map.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name) {
            self.tell(&without_indices(&self.place(name)));
        }
    }

    /// Like [`end`](Self::end), for the request itself: returns everything that was ignored.
    pub fn ignored(self) -> Vec<String> {
        let ignored = self.ignored.clone();
        self.end();
        std::mem::take(&mut *ignored.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a value equals a JSON text.
fn is(value: &Value, text: &str) -> bool {
    let Ok(expected) = serde_json::from_str::<Value>(text) else { return false };
    match (value.as_f64(), expected.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => *value == expected,
    }
}

/// Whether a value is neutral, as sent by clients that don't use a field.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Converts `messages[3].id` to `messages[].id`: reporting it once is enough for a long
/// conversation.
fn without_indices(place: &str) -> String {
    let mut inside = false;
    let mut kept = String::new();
    for c in place.chars() {
        let index = inside && c.is_ascii_digit();
        inside = c == '[' || index;
        if !index {
            kept.push(c);
        }
    }
    kept
}
