//! Turns the tools of MCP servers into the jinxes of an NPC.
//!
//! The same tools give the same jinxes, whatever other servers there are: a prompt's static prefix
//! must not depend on chance.

use std::time::Duration;

use serde_json::Value;

use crate::jinx::{Choices, Input, Jinx, Kind, Remote};
use crate::mcp::offer::ListedTool;
use crate::mcp::{START, Server, resources};
use crate::team::Team;
use alara_team::mcp::{name, printable};

/// The jinxes of an NPC's servers, in the order of the servers and of the servers' tool names.
/// A name that another tool or a jinx of the team also has is prefixed with the server's name.
/// So is the name of the jinx that reads its resources.
pub fn jinxes(team: &Team, servers: &[(&Server, &[ListedTool])], remarks: &mut Vec<String>) -> Vec<Jinx> {
    let wanted = |server: &Server, offer: &ListedTool| {
        server.tools.as_ref().is_none_or(|tools| tools.contains(&offer.name))
    };
    let taken: Vec<(&Server, &ListedTool)> = servers
        .iter()
        .flat_map(|(server, offers)| offers.iter().map(move |offer| (*server, offer)))
        .filter(|(server, offer)| wanted(server, offer))
        .collect();
    let is_free = |name: &str| team.jinx(name).is_none() && name != START;
    // An exact name wins over one that only becomes equal.
    let clashes = |offer: &ListedTool, called: &str| {
        let of = |other: &ListedTool| {
            other.name == called || (offer.name != called && name(&other.name) == called)
        };
        !is_free(called) || taken.iter().filter(|(_, other)| of(other)).count() > 1
    };
    let mut found: Vec<Jinx> = Vec::new();
    for (server, offer) in &taken {
        let mut called = name(&offer.name);
        if offer.name == resources::READ || clashes(offer, &called) {
            called = name(&format!("{}_{}", server.name, offer.name));
        }
        if !is_free(&called) || found.iter().any(|other| other.name == called) {
            let tool = printable(&offer.name);
            remarks.push(format!(
                "the tool `{tool}` of {} is left out: `{called}` is something else already; give the server another `name`",
                server.name
            ));
            continue;
        }
        found.push(jinx(server, offer, called));
    }
    found
}

fn jinx(server: &Server, offer: &ListedTool, name: String) -> Jinx {
    let required = offer.parameters["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = offer.parameters["properties"].as_object();
    let inputs = properties.into_iter().flatten().map(|(name, schema)| Input {
        name: name.clone(),
        kind: Kind::named(schema["type"].as_str().unwrap_or_default()),
        description: schema["description"].as_str().unwrap_or_default().to_owned(),
        default: (!required.iter().any(|required| required == name)).then_some(Value::Null),
        choices: Choices::Any,
    });
    Jinx {
        name,
        description: offer.description.clone(),
        inputs: inputs.collect(),
        effect: offer.effect,
        network: server.network,
        timeout: server.timeout.max(Duration::from_millis(1)),
        remote: Some(Remote {
            server: server.start(),
            tool: offer.name.clone(),
            parameters: offer.parameters.clone(),
        }),
        path: server.path.clone(),
        ..Jinx::default()
    }
}

#[cfg(test)]
mod tests {
    use alara_engine::violation;
    use serde_json::{Map, json};

    use super::*;
    use crate::jinx::Offer;
    use crate::mcp::{Way, offer};
    use crate::types::Location;

    /// The jinx of a tool with this schema.
    fn of(schema: &Value) -> Jinx {
        let mut remarks = Vec::new();
        let offers = offer::read(&[json!({"name": "t", "inputSchema": schema})], false, &mut remarks);
        assert!(remarks.is_empty(), "{schema}: {remarks:?}");
        let server = Server {
            name: "s".into(),
            way: Way::Program(vec!["s".into()]),
            given: Vec::new(),
            network: false,
            tools: None,
            timeout: Duration::from_secs(1),
            path: "w.npc".into(),
            location: Location::default(),
        };
        jinx(&server, &offers[0], "t".into())
    }

    /// Why a call doesn't match its schema.
    fn wrong(jinx: &Jinx, arguments: &Value) -> Option<String> {
        let given: &Map<String, Value> = arguments.as_object().unwrap();
        let arguments = match jinx.arguments(given, &Offer::default()) {
            Ok(arguments) => arguments,
            Err(reason) => return Some(reason),
        };
        violation(&jinx.remote.as_ref().unwrap().parameters, &arguments)
    }

    #[test]
    fn whatever_form_a_schema_has_its_arguments_are_taken_and_checked() {
        let check = |schema: Value, inputs: &[&str], right: &[Value], not: &[Value]| {
            let jinx = of(&schema);
            let names: Vec<&str> = jinx.inputs.iter().map(|input| input.name.as_str()).collect();
            assert_eq!(names, inputs, "{schema}");
            for arguments in right {
                assert_eq!(wrong(&jinx, arguments), None, "{schema} {arguments}");
            }
            for arguments in not {
                assert!(wrong(&jinx, arguments).is_some(), "{schema} {arguments}");
            }
        };
        let (path, url) = (json!({"a": {"type": "string"}}), json!({"b": {"type": "integer"}}));
        for keyword in ["oneOf", "anyOf"] {
            check(
                json!({"type": "object", keyword: [
                    {"properties": path, "required": ["a"]},
                    {"properties": url, "required": ["b"]},
                ]}),
                &["a", "b"],
                &[json!({"a": "x"}), json!({"b": 3})],
                &[json!({}), json!({"a": 3}), json!({"b": "x"})],
            );
        }
        check(
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            &["a", "b"],
            &[json!({"a": 1}), json!({"b": 1})],
            &[json!({}), json!({"a": 1, "b": 1})],
        );
        check(
            json!({"allOf": [{"properties": path, "required": ["a"]}, {"properties": url}]}),
            &["a", "b"],
            &[json!({"a": "x"}), json!({"a": "x", "b": 1})],
            &[json!({"b": 1}), json!({"a": "x", "b": "y"})],
        );
        // References, alone and with other keywords, also to each other.
        check(
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "object", "properties": path, "required": ["a"]}}}),
            &["a"],
            &[json!({"a": "x"})],
            &[json!({}), json!({"a": "x", "c": 1})],
        );
        check(
            json!({"$ref": "#/definitions/A", "properties": url, "definitions": {"A": {"properties": path, "required": ["a"]}}}),
            &["b", "a"],
            &[json!({"a": "x"}), json!({"a": "x", "b": 1})],
            &[json!({"b": 1}), json!({"a": 1})],
        );
        // Closed alternatives, as some libraries write tagged unions.
        check(
            json!({"type": "object", "oneOf": [
                {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"], "additionalProperties": false},
                {"properties": {"kind": {"const": "b"}}, "required": ["kind"], "additionalProperties": false},
            ]}),
            &["kind", "n"],
            &[json!({"kind": "a", "n": 1}), json!({"kind": "b"})],
            &[json!({"kind": "b", "n": 1}), json!({"kind": "a"}), json!({"kind": "c"})],
        );
        // Arguments that are only required, or declared only under a condition.
        check(
            json!({"type": "object", "properties": path, "required": ["a", "c"]}),
            &["a", "c"],
            &[json!({"a": "x", "c": 1})],
            &[json!({"a": "x"}), json!({"a": "x", "c": 1, "d": 1})],
        );
        check(
            json!({"type": "object", "properties": path, "if": {"properties": {"a": {"const": "x"}}},
                   "then": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}, "else": {"required": ["c"]}}),
            &["a", "b", "c"],
            &[json!({"a": "x", "b": 1}), json!({"a": "y", "c": 1}), json!({"a": "y", "b": 1, "c": 1})],
            &[json!({"a": "x"}), json!({"a": "x", "b": "y"}), json!({"a": "y", "b": 1})],
        );
        check(
            json!({"type": "object", "properties": path, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"properties": {"c": {"type": "string"}}}}}),
            &["a", "b", "c"],
            &[json!({}), json!({"a": "x", "b": 1}), json!({"a": "x", "b": 1, "c": "y"})],
            &[json!({"a": "x"}), json!({"b": 1, "c": 1})],
        );
        // A property that one alternative forbids, another may allow.
        check(
            json!({"type": "object", "oneOf": [{"required": ["a"], "properties": {"b": false}}, {"required": ["b"]}]}),
            &["b", "a"],
            &[json!({"a": 1}), json!({"b": 1})],
            &[json!({})],
        );
        // Names that match a pattern, and any names.
        check(
            json!({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}}),
            &[],
            &[json!({}), json!({"x-a": 1})],
            &[json!({"x-a": "y"})],
        );
        check(
            json!({"type": "object", "properties": path, "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false}),
            &["a"],
            &[json!({"a": "y", "x-b": 1})],
            &[json!({"x-b": "y"}), json!({"c": 1})],
        );
        for bare in [json!({"type": "object"}), json!({}), json!({"type": ["object", "null"]})] {
            check(bare, &[], &[json!({}), json!({"any": [1]})], &[]);
        }
        check(json!({"type": "object", "minProperties": 1}), &[], &[json!({"any": 1})], &[json!({})]);
        check(
            json!({"type": "object", "properties": path, "additionalProperties": {"type": "integer"}}),
            &["a"],
            &[json!({"a": "x", "b": 1})],
            &[json!({"b": "x"})],
        );
        // No arguments, if the schema says so.
        check(json!({"type": "object", "properties": {}}), &[], &[json!({})], &[json!({"any": 1})]);
        // A schema of an older draft follows that draft's rules.
        check(
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": path,
                   "dependencies": {"a": ["b"]}}),
            &["a", "b"],
            &[json!({}), json!({"a": "x", "b": 1})],
            &[json!({"a": "x"})],
        );
    }

    #[test]
    fn what_contradicts_itself_is_left_out() {
        let check = |schema: Value, words: &str| {
            let mut remarks = Vec::new();
            let found = offer::read(&[json!({"name": "t", "inputSchema": schema})], false, &mut remarks);
            assert!(found.is_empty() && remarks[0].contains(words), "{schema}: {remarks:?}");
        };
        check(
            json!({"type": "object", "properties": {}, "required": ["a"], "additionalProperties": false}),
            "no value satisfies",
        );
        check(json!({"anyOf": [{"type": "string"}, {"type": "array"}]}), "no value satisfies");
        check(json!({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}), "not that of an object");
        check(json!({"$ref": "#"}), "recurse for ever");
        check(json!({"$ref": "#/$defs/B", "$defs": {}}), "is not in the schema itself");
    }
}
