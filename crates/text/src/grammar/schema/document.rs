//! The document of a schema: its draft, and the targets of references.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::Value;

/// A version of JSON schema.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft201909,
    Draft202012,
}

/// A whole schema with its definitions.
pub(super) struct Document<'a> {
    pub root: &'a Value,
    pub draft: Draft,
    /// JSON pointers of named schemas, collected on first use.
    anchors: OnceCell<HashMap<&'a str, String>>,
}

impl<'a> Document<'a> {
    /// Without a known `$schema` the newest draft applies; `None` for draft 3 and older.
    pub(super) fn new(root: &'a Value) -> Option<Self> {
        let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let dialect = dialect.trim_end_matches('#').trim_end_matches("/schema");
        let draft = match dialect.rsplit_once("json-schema.org/").map_or("", |(_, draft)| draft) {
            "draft-04" => Draft::Draft4,
            "draft-06" => Draft::Draft6,
            "draft-07" => Draft::Draft7,
            "draft/2019-09" => Draft::Draft201909,
            old if ["draft-01", "draft-02", "draft-03"].contains(&old) => return None,
            _ => Draft::Draft202012,
        };
        Some(Document { root, draft, anchors: OnceCell::new() })
    }

    /// The JSON pointer for a reference, if it refers to this document.
    pub(super) fn pointer(&self, reference: &str) -> Option<String> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let own = self.own_id(self.root).unwrap_or_default().trim_end_matches('#');
        if !base.is_empty() && base != own {
            return None;
        }
        let fragment = decoded(fragment)?;
        let pointer = match fragment.strip_prefix('/') {
            // Some schemas write the root as `#/`.
            Some("") if self.root.pointer("/").is_none() => String::new(),
            Some(_) => fragment,
            None if fragment.is_empty() => fragment,
            None => self.anchors().get(fragment.as_str())?.clone(),
        };
        self.root.pointer(&pointer).map(|_| pointer)
    }

    /// Whether a pointer lies in a subschema with its own id, which changes how references resolve.
    pub(super) fn is_embedded(&self, pointer: &str) -> bool {
        let ends = pointer.char_indices().filter(|&(_, character)| character == '/').map(|(at, _)| at);
        let inside = ends.skip(1).chain([pointer.len()]).filter(|&end| end > 0);
        inside
            .filter_map(|end| self.root.pointer(&pointer[..end]))
            .any(|schema| self.own_id(schema).is_some())
    }

    fn own_id<'b>(&self, schema: &'b Value) -> Option<&'b str> {
        let keyword = if self.draft == Draft::Draft4 { "id" } else { "$id" };
        schema.get(keyword)?.as_str().filter(|id| !id.starts_with('#'))
    }

    fn anchors(&self) -> &HashMap<&'a str, String> {
        self.anchors.get_or_init(|| {
            let mut anchors = HashMap::new();
            name_all(self.root, "", 0, &mut anchors);
            anchors
        })
    }
}

/// Collects the pointers of all named schemas in `value`; the first of a name wins.
fn name_all<'a>(value: &'a Value, at: &str, depth: usize, anchors: &mut HashMap<&'a str, String>) {
    if depth > 64 {
        return;
    }
    match value {
        Value::Object(map) => {
            let says = |keyword: &str| map.get(keyword).and_then(Value::as_str);
            let own = ["$id", "id"].into_iter().filter_map(|keyword| says(keyword)?.strip_prefix('#'));
            for name in says("$anchor").into_iter().chain(own) {
                anchors.entry(name).or_insert_with(|| at.to_owned());
            }
            let schemas = map
                .iter()
                .filter(|(key, _)| !["const", "enum", "default", "examples"].contains(&key.as_str()));
            schemas.for_each(|(key, value)| name_all(value, &child(at, key), depth + 1, anchors));
        }
        Value::Array(values) => {
            let values = values.iter().enumerate();
            values.for_each(|(index, value)| name_all(value, &format!("{at}/{index}"), depth + 1, anchors));
        }
        _ => {}
    }
}

/// Appends a key to a JSON pointer.
pub(crate) fn child(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Decodes percent-encoding such as `%41`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
