//! Reads a mapping in a file key by key: which keys exist, of which types, and which are unknown.

use alara_text::nearest;
use serde_json::Value;

use crate::source::Source;
use crate::types::{Diagnostic, Location};
use crate::yaml::{Entry, Kind, Node};

/// A mapping that is being read.
/// Problems go to the list of diagnostics.
pub struct Fields<'a, 'd> {
    source: &'a Source,
    entries: &'a [Entry],
    known: Vec<&'static str>,
    /// Other names of keys, each with the preferred name.
    other_names: Vec<(&'static str, &'static str)>,
    refused: Vec<Location>,
    diagnostics: &'d mut Vec<Diagnostic>,
}

impl<'a, 'd> Fields<'a, 'd> {
    /// The mapping at `node`; a null node is an empty one.
    /// `None` for anything else, with an error.
    pub fn new(source: &'a Source, node: &'a Node, diagnostics: &'d mut Vec<Diagnostic>) -> Option<Self> {
        let entries = match &node.kind {
            Kind::Map(entries) => entries.as_slice(),
            Kind::Scalar(Value::Null) => &[],
            _ => {
                diagnostics.push(
                    source.error(node.location, format!("this must be a mapping, not {}", node.describe())),
                );
                return None;
            }
        };
        let (known, other_names, refused) = (Vec::new(), Vec::new(), Vec::new());
        Some(Fields { source, entries, known, other_names, refused, diagnostics })
    }

    /// The file.
    pub fn source(&self) -> &'a Source {
        self.source
    }

    /// The list for diagnostics of values.
    pub fn diagnostics(&mut self) -> &mut Vec<Diagnostic> {
        self.diagnostics
    }

    /// Reports a problem that doesn't stop the work.
    pub fn warning(&mut self, location: Location, message: impl Into<String>) {
        self.diagnostics.push(self.source.warning(location, message));
    }

    /// Reports a value that is unusable.
    pub fn error(&mut self, location: Location, message: impl Into<String>) {
        self.diagnostics.push(self.source.error(location, message));
    }

    /// Declares these keys as known.
    pub fn know(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// The location of a key, or of the file as a whole.
    pub fn location(&self, key: &str) -> Location {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| entry.location).unwrap_or_default()
    }

    /// The entry of the first of these names of one key; none if its value is null.
    pub fn entry(&mut self, names: &[&'static str]) -> Option<&'a Entry> {
        self.know(names);
        if let Some((first, others)) = names.split_first() {
            self.other_names.extend(others.iter().map(|other| (*other, *first)));
        }
        let mut found = names.iter().filter_map(|name| self.entries.iter().find(|entry| entry.key == *name));
        found.find(|entry| !entry.value.is_null())
    }

    /// A text without surrounding whitespace, with a number or boolean as written; none if it is
    /// empty or of another type, which is an error.
    pub fn text(&mut self, names: &[&'static str]) -> Option<String> {
        let entry = self.entry(names)?;
        let Some(text) = entry.value.text() else {
            let (key, found) = (&entry.key, entry.value.describe());
            self.error(entry.value.location, format!("`{key}` must be a text, not {found}"));
            return None;
        };
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// True or false; none if it is of another type, which is an error.
    pub fn flag(&mut self, names: &[&'static str]) -> Option<bool> {
        let entry = self.entry(names)?;
        if let Kind::Scalar(Value::Bool(value)) = entry.value.kind {
            return Some(value);
        }
        let (key, found) = (&entry.key, entry.value.describe());
        self.error(entry.value.location, format!("`{key}` must be true or false, not {found}"));
        None
    }

    /// Refuses keys of `strict` that are empty or have no meaning here, and with `alike` also
    /// likely typos of one.
    /// The author of such a key meant to bind an NPC, which must not run without it.
    /// Returns the first of them, reported as an error.
    pub fn refuse(&mut self, strict: &[&'static str], alike: bool) -> Option<Diagnostic> {
        let mut first = None;
        for entry in self.entries.iter().filter(|entry| entry.value.is_null()) {
            if let Some(key) = strict.iter().find(|key| **key == entry.key) {
                let message = format!("`{key}` says nothing: whoever it was to bind does not run");
                self.refuse_key(entry.location, message, &mut first);
            }
        }
        let unknown = self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str()));
        for entry in unknown.collect::<Vec<_>>() {
            let key = entry.key.as_str();
            let known = self.known.iter().chain(strict).copied();
            let near = if strict.contains(&key) || !alike { Some(key) } else { nearest(key, known) };
            // `date` is not a typo.
            let slip = |near: &&str| strict.contains(near) && same_start(key, near);
            let Some(near) = near.filter(slip) else { continue };
            let meant = self.nearest(key).filter(|near| same_start(key, near));
            let remedy = match meant.or(Some(near).filter(|near| *near != key)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "it has no meaning here".to_owned(),
            };
            let message = format!("unknown key `{key}`, {remedy}: whoever it was to bind does not run");
            self.refuse_key(entry.location, message, &mut first);
        }
        first
    }

    /// Reports a key as an error, and stores it as `first` if there was none before.
    fn refuse_key(&mut self, location: Location, message: String, first: &mut Option<Diagnostic>) {
        let error = self.source.error(location, message);
        self.refused.push(location);
        first.get_or_insert_with(|| error.clone());
        self.diagnostics.push(error);
    }

    /// Refuses unknown keys that resemble a binding key, as `binding` finds it.
    /// Returns the first of them, reported as an error.
    pub(crate) fn refuse_slips(
        &mut self,
        binding: impl Fn(&str) -> Option<&'static str>,
    ) -> Option<Diagnostic> {
        let mut first = None;
        for (entry, _) in self.others() {
            let key = &entry.key;
            let Some(meant) = binding(key) else { continue };
            let remedy = match meant == key {
                true => "it has no meaning here".to_owned(),
                false => format!("did you mean `{meant}`?"),
            };
            let message = format!("unknown key `{key}`, {remedy}: whoever it was to bind does not run");
            self.refuse_key(entry.location, message, &mut first);
        }
        first
    }

    /// Declares keys of existing files that should change something but don't: a warning reports
    /// that where they are set.
    pub(crate) fn without_effect(&mut self, keys: &[&'static str]) {
        for key in keys {
            let Some(entry) = self.entry(&[key]) else { continue };
            let empty = match &entry.value.kind {
                Kind::Scalar(value) => matches!(value, Value::Bool(false)),
                Kind::List(items) => items.is_empty(),
                Kind::Map(entries) => entries.is_empty(),
            };
            if !empty {
                self.warning(entry.location, format!("the key `{key}` has no effect yet"));
            }
        }
    }

    /// The keys that weren't read, with the known one that was probably meant.
    pub fn others(&self) -> Vec<(&'a Entry, Option<&'static str>)> {
        let told = |entry: &&Entry| self.refused.contains(&entry.location);
        let unknown = self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str()));
        let unknown = unknown.filter(|entry| !told(entry));
        unknown.map(|entry| (entry, self.nearest(&entry.key))).collect()
    }

    /// The known key most similar to `key`.
    /// Of a key with several names, it is the first one, if that is similar too.
    fn nearest(&self, key: &str) -> Option<&'static str> {
        let near = nearest(key, self.known.iter().copied())?;
        let mut names = self.other_names.iter().filter(|(other, _)| *other == near);
        let first = names.find_map(|(_, first)| nearest(key, [*first].into_iter()));
        Some(first.unwrap_or(near))
    }

    /// Reports keys from other tools that have another name here: `[theirs, ours]`.
    pub fn meant(&mut self, words: &[(&str, &str)]) {
        for (entry, _) in self.others() {
            let Some((_, ours)) = words.iter().find(|(theirs, _)| *theirs == entry.key) else { continue };
            self.refused.push(entry.location);
            self.warning(entry.location, format!("unknown key `{}`, did you mean `{ours}`?", entry.key));
        }
    }

    /// Reports the keys that weren't read.
    pub fn unknown(&mut self) {
        for (entry, near) in self.others() {
            let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            self.warning(entry.location, format!("unknown key `{}`{hint}", entry.key));
        }
    }
}

fn same_start(left: &str, right: &str) -> bool {
    left.chars().next().map(|c| c.to_ascii_lowercase()) == right.chars().next()
}

/// Whether a jinx or an agent may have this name: letters, digits, `_` and `-`.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
