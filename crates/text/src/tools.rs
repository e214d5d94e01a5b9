//! Synthetic tools for benchmarks, in any number, resembling an agent's large catalog.

use serde_json::{Map, Value, json};

use crate::request::Tool;

const VERBS: [&str; 17] = [
    "get", "list", "create", "update", "delete", "search", "archive", "restore", "share", "export", "import",
    "move", "copy", "lock", "tag", "approve", "schedule",
];
const NOUNS: [&str; 16] = [
    "file",
    "calendar_event",
    "invoice",
    "customer",
    "ticket",
    "repository",
    "branch",
    "message",
    "playlist",
    "flight",
    "hotel",
    "sensor",
    "report",
    "contact",
    "order",
    "database",
];

/// `count` different tools, at most 272, with parameters of all the common kinds: text, numbers,
/// choices, lists, nested objects.
pub fn tools(count: usize) -> Vec<Tool> {
    let names = NOUNS.iter().flat_map(|noun| VERBS.iter().map(move |verb| (verb, noun)));
    names
        .take(count)
        .enumerate()
        .map(|(index, (verb, noun))| Tool {
            name: format!("{verb}_{noun}"),
            description: format!("{verb} a {noun}"),
            parameters: parameters(index, noun),
            strict: false,
        })
        .collect()
}

/// Tools that run code, for a format that can only call such tools.
pub fn code_tools() -> Vec<Tool> {
    let tool = |name: &str, argument: &str, seconds: Option<Value>| {
        let mut properties = Map::new();
        properties.insert(argument.to_owned(), json!({"type": "string", "maxLength": 40}));
        properties.extend(seconds.map(|kind| ("seconds".to_owned(), kind)));
        let parameters = json!({"type": "object", "properties": properties, "required": [argument]});
        Tool { name: name.into(), description: String::new(), parameters, strict: false }
    };
    vec![
        tool("shell", "command", None),
        tool("python", "code", Some(json!({"type": "integer"}))),
        tool("finish", "answer", None),
    ]
}

fn parameters(index: usize, noun: &str) -> Value {
    let kinds = [
        (
            "id",
            json!({"type": "string", "description": format!("The {noun}'s id"), "pattern": "^[a-z]{2}-[0-9]{1,8}$"}),
        ),
        (
            "title",
            json!({"type": "string", "description": format!("Title of the {noun}"), "minLength": 1, "maxLength": 80}),
        ),
        ("limit", json!({"type": "integer", "minimum": 1, "maximum": 100})),
        ("order", json!({"type": "string", "enum": ["newest", "oldest", "name"]})),
        ("dry_run", json!({"type": "boolean"})),
        ("tags", json!({"type": "array", "items": {"type": "string"}, "maxItems": 8})),
        ("amount", json!({"type": "number", "minimum": 0})),
        (
            "owner",
            json!({"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "email": {"type": "string", "format": "email"}, "age": {"type": "integer"},
            }}),
        ),
        ("due", json!({"type": "string", "format": "date"})),
        ("target", json!({"anyOf": [{"type": "string"}, {"type": "null"}]})),
        ("body", json!({"type": "string"})),
    ];
    // The first property is required, so that tools that share all kinds still differ.
    let count = 2 + index % 5;
    let chosen = (0..count).map(|n| &kinds[(index * 3 + n * (1 + index % 4)) % kinds.len()]);
    let properties: Map<String, Value> =
        chosen.map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let required: Vec<&String> = properties.keys().take(1 + index % 2).collect();
    json!({"type": "object", "required": required, "properties": properties})
}
