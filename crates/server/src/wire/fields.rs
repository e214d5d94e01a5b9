//! The fields of a JSON object, taken one by one, each with its place for messages.

use serde_json::{Map, Value};

use super::Refusal;

/// What is left of an object.
/// A field that is `null` counts as absent.
pub struct Fields {
    /// Where the object stands in the request, for example `messages[0]`; empty for the request
    /// itself.
    place: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The fields of `value`, which stands at `place`.
    pub fn of(value: Value, place: &str) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Fields { place: place.to_owned(), map }),
            _ if place.is_empty() => {
                Err(Refusal::new(400, "invalid_request_error", "the body is no JSON object"))
            }
            _ => Err(Refusal::invalid(place, format!("`{place}` must be an object"))),
        }
    }

    /// The place of a field.
    pub fn place(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    /// A refusal about a field.
    pub fn refuse(&self, name: &str, why: &str) -> Refusal {
        let place = self.place(name);
        Refusal::invalid(&place, format!("`{place}` {why}"))
    }

    /// Whether there is such a field.
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Takes a field.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes what `read` makes of a field; `kind` tells what it must be.
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

    /// Takes a text that must be there.
    pub fn needed(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| self.refuse(name, "is missing"))
    }

    /// Takes a yes or no.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        self.taken(name, "true or false", Value::as_bool)
    }

    /// Takes a number from `least` to `most`.
    pub fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f32>, Refusal> {
        let kind = format!("a number from {least} to {most}");
        let read = |value: &Value| value.as_f64().filter(|number| (least..=most).contains(number));
        Ok(self.taken(name, &kind, read)?.map(|number| number as f32))
    }

    /// Takes a whole number of at least `least`.
    pub fn count(&mut self, name: &str, least: u64) -> Result<Option<usize>, Refusal> {
        let read = |value: &Value| value.as_u64().filter(|count| *count >= least)?.try_into().ok();
        self.taken(name, &format!("a whole number of at least {least}"), read)
    }

    /// Takes a list.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.refuse(name, "must be an array")),
        }
    }

    /// Takes a field that may only say what holds anyway: one of `neutral`.
    pub fn only(&mut self, name: &str, neutral: &[Value], why: &str) -> Result<(), Refusal> {
        match self.take(name) {
            Some(value) if !neutral.contains(&value) => Err(self.refuse(name, why)),
            _ => Ok(()),
        }
    }

    /// Takes fields that change nothing about the answer.
    pub fn ignore(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.take(name)));
    }

    /// Refuses whatever is left.
    pub fn end(self) -> Result<(), Refusal> {
        match self.map.iter().find(|(_, value)| !value.is_null()) {
            Some((name, _)) => Err(self.refuse(name, "is not supported by this server; leave it out")),
            None => Ok(()),
        }
    }
}
