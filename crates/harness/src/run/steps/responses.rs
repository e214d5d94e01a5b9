//! The responses that jinxes have emitted, in the state that an observer should show.

use serde_json::Value;

/// Responses `{type, id?, content}` in the order in which they first appeared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Responses(Vec<Value>);

impl Responses {
    /// Applies a response: one with the `id` of an earlier one replaces it, or removes it if its
    /// content is null.
    pub fn apply(&mut self, response: &Value) {
        let same = |other: &Value| !response["id"].is_null() && other["id"] == response["id"];
        let found = self.0.iter().position(same);
        match (found, response["content"].is_null()) {
            (Some(at), true) => drop(self.0.remove(at)),
            (Some(at), false) => self.0[at] = response.clone(),
            (None, true) => {}
            (None, false) => self.0.push(response.clone()),
        }
    }

    /// The current responses.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_id_updates_and_null_removes() {
        let check = |emitted: Value, expected: Value| {
            let mut responses = Responses::default();
            emitted.as_array().unwrap().iter().for_each(|response| responses.apply(response));
            assert_eq!(Value::Array(responses.iter().cloned().collect()), expected);
        };
        let say = |id: &str, content: Value| json!({"type": "text", "id": id, "content": content});
        check(
            json!([say("a", json!(1)), say("b", json!(2)), say("a", json!(3))]),
            json!([say("a", json!(3)), say("b", json!(2))]),
        );
        check(
            json!([say("a", json!(1)), say("b", json!(2)), say("a", json!(null))]),
            json!([say("b", json!(2))]),
        );
        check(json!([say("a", json!(null))]), json!([]));
        let anonymous = json!({"type": "text", "content": "x"});
        check(json!([anonymous, anonymous]), json!([anonymous, anonymous]));
    }
}
