//! The names that the steps of a jinx see.
//! Blocks nest: an inner frame hides the names of the outer ones.
//!
//! Copies are cheap and independent of each other.
//! This module must not know where values come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::value::{Object, Serde, Value as Dynamic};
use serde_json::{Map, Value};

type Names = BTreeMap<String, Dynamic>;

/// Names and their values.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The innermost is last; the first holds the names that are known everywhere (`npc`, `ctx`,
    /// …).
    frames: Vec<Arc<Names>>,
    /// The outermost frame whose names may be set.
    floor: usize,
}

impl Default for Scope {
    fn default() -> Self {
        Scope { frames: vec![Arc::default(), Arc::default()], floor: 1 }
    }
}

impl Scope {
    /// A scope with these names.
    pub fn new(names: &Map<String, Value>) -> Self {
        let mut scope = Scope::default();
        for (name, value) in names {
            scope.bind(name, value);
        }
        scope
    }

    /// Makes a name known everywhere: steps can't set it, and only a name that they bind shadows
    /// it.
    pub fn know(&mut self, name: &str, value: &Value) {
        Arc::make_mut(&mut self.frames[0]).insert(name.to_owned(), dynamic(value));
    }

    /// Binds a name in the innermost block.
    pub fn bind(&mut self, name: &str, value: &Value) {
        let innermost = self.frames.len() - 1;
        Arc::make_mut(&mut self.frames[innermost]).insert(name.to_owned(), dynamic(value));
    }

    /// Removes a name from the innermost block.
    pub fn forget(&mut self, name: &str) {
        let innermost = self.frames.len() - 1;
        Arc::make_mut(&mut self.frames[innermost]).remove(name);
    }

    /// Sets `total`, or a part of a value such as `order.note` or `rows.0.name`: where the name
    /// exists, otherwise in the innermost block.
    /// Missing mappings on the way are created.
    ///
    /// # Errors
    /// The path leads into a value that has no parts.
    pub fn set(&mut self, path: &str, value: Value) -> Result<(), String> {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let innermost = self.frames.len() - 1;
        let frame = (self.floor..innermost).rev().find(|frame| self.frames[*frame].contains_key(name));
        let frame = frame.filter(|_| !self.frames[innermost].contains_key(name)).unwrap_or(innermost);
        let value = if rest.is_empty() {
            value
        } else {
            let mut whole = self.value(name).unwrap_or_default();
            put(&mut whole, rest, value).map_err(|reason| format!("`{path}` can't be set: {reason}"))?;
            whole
        };
        Arc::make_mut(&mut self.frames[frame]).insert(name.to_owned(), dynamic(&value));
        Ok(())
    }

    /// Begins a block.
    pub fn enter(&mut self) {
        self.frames.push(Arc::default());
    }

    /// Ends the innermost block and removes its names.
    pub fn leave(&mut self) {
        self.frames.pop();
    }

    /// A copy for a parallel branch: the names that it sets stay in the branch.
    #[must_use]
    pub fn branch(&self) -> Self {
        let mut branch = self.clone();
        branch.enter();
        branch.floor = branch.frames.len() - 1;
        branch
    }

    /// The value of a name.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.find(name).map(|value| json(value).unwrap_or_default())
    }

    /// The names that the steps have bound, with their values, in alphabetical order.
    pub fn bound(&self) -> Map<String, Value> {
        self.names(1)
    }

    /// All names with their values.
    pub fn all(&self) -> Map<String, Value> {
        self.names(0)
    }

    fn names(&self, from: usize) -> Map<String, Value> {
        let mut names = BTreeMap::new();
        for frame in &self.frames[from..] {
            names.extend(frame.iter());
        }
        names.into_iter().map(|(name, value)| (name.clone(), json(value).unwrap_or_default())).collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Dynamic> {
        self.frames.iter().rev().find_map(|frame| frame.get(name))
    }
}

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &Dynamic) -> Option<Dynamic> {
        self.find(key.as_str()?).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Dynamic> {
        self.find(key).cloned()
    }
}

/// Converts a value for templates.
pub(super) fn dynamic(value: &Value) -> Dynamic {
    Dynamic::from(Serde(value))
}

/// Converts a value from templates.
pub(super) fn json(value: &Dynamic) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| format!("the value is no data: {error}"))
}

/// Puts a part into a value; the error names the component of the path that has no parts.
pub fn put(whole: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    if whole.is_null() {
        *whole = Value::Object(Map::new());
    }
    let part = match whole {
        Value::Object(map) => map.entry(key).or_insert(Value::Null),
        Value::Array(items) => {
            let length = items.len();
            let found = key.parse().ok().and_then(|index: usize| items.get_mut(index));
            found.ok_or_else(|| format!("there is no `{key}` in a list of {length}"))?
        }
        other => return Err(format!("`{other}` has no parts")),
    };
    if rest.is_empty() {
        *part = value;
        return Ok(());
    }
    put(part, rest, value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_nest() {
        let mut scope = Scope::new(json!({"a": 1, "b": {"c": 2}}).as_object().unwrap());
        scope.know("npc", &json!("n"));
        scope.enter();
        scope.bind("own", &json!(3));
        scope.bind("a", &json!("hidden"));
        scope.set("a", json!("inner")).unwrap();
        scope.set("b.d.e", json!(4)).unwrap();
        scope.set("fresh", json!(5)).unwrap();
        scope.set("npc", json!("mine")).unwrap();
        let all = json!({"a": "inner", "b": {"c": 2, "d": {"e": 4}}, "fresh": 5, "npc": "mine", "own": 3});
        assert_eq!(Value::Object(scope.all()), all);
        scope.leave();
        assert_eq!(Value::Object(scope.all()), json!({"a": 1, "b": {"c": 2, "d": {"e": 4}}, "npc": "n"}));
        assert_eq!(Value::Object(scope.bound()), json!({"a": 1, "b": {"c": 2, "d": {"e": 4}}}));
    }

    #[test]
    fn a_branch_keeps_to_itself() {
        let scope = Scope::new(json!({"a": 1}).as_object().unwrap());
        let mut branch = scope.branch();
        branch.set("a", json!(2)).unwrap();
        branch.bind("x", &json!(3));
        assert_eq!(Value::Object(scope.all()), json!({"a": 1}));
        assert_eq!(Value::Object(branch.all()), json!({"a": 2, "x": 3}));
    }

    #[test]
    fn parts_are_set() {
        let check = |path: &str, expected: Result<Value, &str>| {
            let mut scope = Scope::new(json!({"n": 1, "rows": [{"k": 1}, 2]}).as_object().unwrap());
            let found = scope.set(path, json!("new")).map(|()| Value::Object(scope.all()));
            assert_eq!(found, expected.map_err(str::to_owned), "{path}");
        };
        check("rows.0.k", Ok(json!({"n": 1, "rows": [{"k": "new"}, 2]})));
        check("rows.1", Ok(json!({"n": 1, "rows": [{"k": 1}, "new"]})));
        check("m.k", Ok(json!({"m": {"k": "new"}, "n": 1, "rows": [{"k": 1}, 2]})));
        check("n.k", Err("`n.k` can't be set: `1` has no parts"));
        check("rows.7", Err("`rows.7` can't be set: there is no `7` in a list of 2"));
    }
}
