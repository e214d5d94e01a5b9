//! Regression tests, named after their bugs: endless turns, and tools that make a request fail.

use super::*;
use crate::request::Request;

/// The formats that can call any tool, not only one that runs code.
fn with_any_tool() -> impl Iterator<Item = &'static Format> {
    Format::all().iter().copied().filter(|format| !format.in_fences())
}

/// A model that never closes anything by itself: it takes the first permitted byte of `wanted`.
fn stubborn(vocabulary: &Vocabulary, turn: &Turn, wanted: &[u8], most: usize) -> String {
    let mut constraint = vocabulary.constraint(turn).unwrap().unwrap();
    let eos = vocabulary.env.tok_trie().eos_tokens();
    let mut tokens = Vec::new();
    while tokens.len() < most {
        for token in constraint.forced().unwrap() {
            constraint.accept(token).unwrap();
            tokens.push(token);
        }
        let mut logits = vec![0.0; vocabulary.size()];
        constraint.mask(&mut logits).unwrap();
        let allowed = |token: u32| logits[token as usize] == 0.0;
        let preferred = wanted.iter().map(|&byte| u32::from(byte)).find(|&token| allowed(token));
        let token = preferred.or_else(|| (0..logits.len() as u32).find(|&token| allowed(token))).unwrap();
        constraint.accept(token).unwrap();
        if eos.contains(&token) {
            return vocabulary.text(&tokens);
        }
        tokens.push(token);
    }
    panic!("{:?} has no end after {most} tokens: {}", turn.format, vocabulary.text(&tokens))
}

#[test]
fn a_call_ends_where_strings_are_limited() {
    let file = json!({"type": "object", "required": ["path", "content"], "properties": {
        "path": {"type": "string", "maxLength": 40}, "content": {"type": "string"}}});
    let vocabulary = Vocabulary::get(Kind::Control);
    for format in with_any_tool() {
        let tools = vec![Tool {
            name: "write_file".into(),
            description: String::new(),
            parameters: file.clone(),
            strict: false,
        }];
        let turn =
            Turn { format, tools, thinking: None, string_limit: Some(700), ..turn(ToolChoice::Required) };
        let text = stubborn(vocabulary, &turn, b"a", 2000);
        let parsed = parse(&turn, &text);
        let call = parsed.iter().find_map(|piece| match piece {
            Parsed::ToolCall { arguments, .. } => Some(arguments),
            _ => None,
        });
        let arguments = call.unwrap_or_else(|| panic!("{format:?}: {parsed:?} of {text}"));
        let length = |key: &str| arguments[key].as_str().unwrap().chars().count();
        assert_eq!((length("path"), length("content")), (40, 700), "{format:?}");
    }
}

#[test]
fn lists_and_free_values_end_where_strings_are_limited() {
    let vocabulary = Vocabulary::get(Kind::Control);
    let format = Format::from_name("hermes").unwrap();
    let parameters = json!({"type": "object", "required": ["list", "free", "map"], "properties": {
        "list": {"type": "array", "items": {"type": "string"}}, "free": {},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}}}});
    let tools = vec![Tool {
        name: "f".into(),
        description: String::new(),
        parameters: parameters.clone(),
        strict: false,
    }];
    let turn = Turn { format, tools, thinking: None, string_limit: Some(20), ..turn(ToolChoice::Required) };
    for wanted in [&b",[\"a"[..], b",{\"a", b"[", b"{\"", b"1,"] {
        let text = stubborn(vocabulary, &turn, wanted, 20_000);
        let parsed = parse(&turn, &text);
        let call = parsed.iter().find_map(|piece| match piece {
            Parsed::ToolCall { arguments, .. } => Some(arguments.clone()),
            _ => None,
        });
        validate(&Value::Object(call.unwrap()), &parameters).unwrap();
    }
}

#[test]
fn a_limit_of_strings_costs_little() {
    let Some(tokenizer) = shared_vocabulary("qwen2") else { return };
    let vocabulary = Vocabulary::of(Kind::Text, tokenizer.env());
    let text = "fn main() {\n    println!(\"Hello, world: {}\", 4 + 5);\n}\n".repeat(60);
    let arguments = json!({"path": "src/main.rs", "content": text});
    let parameters = json!({"type": "object", "required": ["path", "content"], "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}}});
    // Pretend that the vocabulary has the marker that ends a value.
    let token = |text: &str| (text == "</arg_value>").then(|| tokenizer.id("<|im_start|>")).flatten();
    for format in ["hermes", "qwen-xml", "glm"] {
        let format = Format::from_name(format).unwrap();
        let tools = vec![Tool {
            name: "write_file".into(),
            description: String::new(),
            parameters: parameters.clone(),
            strict: false,
        }];
        let mut free = Duration::ZERO;
        for string_limit in [None, Some(4000)] {
            let turn = Turn {
                format,
                tools: tools.clone(),
                thinking: None,
                string_limit,
                ..turn(ToolChoice::Required)
            };
            let started = Instant::now();
            let mut constraint =
                vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap().unwrap();
            let compiled = started.elapsed();
            let call = ToolCall {
                id: String::new(),
                name: "write_file".into(),
                arguments: arguments.as_object().cloned().unwrap(),
            };
            let text = format.render_call(&call).unwrap().replace("</arg_value>", "<|im_start|>");
            let canonical = tokenizer.encode_within(&text).unwrap();
            let (mut worst, mut total) = (Duration::ZERO, Duration::ZERO);
            for &token in &canonical {
                let before = constraint.usage().step_time;
                constraint.mask(&mut vec![0.0; vocabulary.size()]).unwrap();
                constraint.accept(token).unwrap();
                let took = constraint.usage().step_time - before;
                (worst, total) = (worst.max(took), total + took);
            }
            let mean = total / canonical.len() as u32;
            println!(
                "{format:?}, {string_limit:?}: compiled in {compiled:?}, {} masks, mean {mean:?}, worst {worst:?}",
                canonical.len()
            );
            // Generous, since other tests run at the same time.
            match string_limit {
                None => free = mean,
                Some(_) => {
                    assert!(mean < free * 15 + Duration::from_millis(5), "{format:?}: {mean:?}, {free:?}");
                }
            }
        }
    }
}

#[test]
fn one_keyword_does_not_take_a_request_down() {
    let mut turn = turn(ToolChoice::Auto);
    turn.tools[1].parameters = json!({"type": "object", "properties": {
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
        "mail": {"type": "string", "pattern": "^(?!\\.)[a-z.]+@[a-z.]+$"}}});
    for format in with_any_tool() {
        let turn = Turn { format, ..turn.clone() };
        let constraint = Vocabulary::get(Kind::Control).constraint(&turn);
        let constraint = constraint.unwrap_or_else(|error| panic!("{format:?}: {error}")).unwrap();
        let loosened = constraint.loosened();
        for place in
            ["uniqueItems at /properties/tags/uniqueItems: ", "pattern at /properties/mail/pattern: "]
        {
            let beginning = format!("tool get_weather: {place}");
            assert!(loosened.iter().any(|what| what.starts_with(&beginning)), "{loosened:?}");
        }
        // Also from the cache.
        let again = Vocabulary::get(Kind::Control).constraint(&turn).unwrap().unwrap();
        assert_eq!((again.usage().compiled, again.loosened()), (0, loosened));
    }
    turn.tools[1].strict = true;
    let refusal = Vocabulary::get(Kind::Control).constraint(&turn).err().unwrap().to_string();
    assert!(refusal.contains("pattern at /properties/mail/pattern"), "{refusal}");
    turn.tools[1].strict = false;
    turn.tools[1].parameters = json!({"type": "object", "properties": {"a": {"type": "kaboom"}}});
    assert!(Vocabulary::get(Kind::Control).constraint(&turn).is_err());
}

#[test]
fn what_costs_too_much_is_found_when_it_is_compiled() {
    let Some(tokenizer) = shared_vocabulary("qwen2") else { return };
    let (vocabulary, token) = Vocabulary::of_tokenizer(&tokenizer);
    let mail = json!({"type": "string", "format": "email", "pattern": "@example\\.com$"});
    let mut turn = turn(ToolChoice::Required);
    turn.tools[1].parameters = json!({"type": "object", "properties": {"mail": mail}, "required": ["mail"]});
    let place = "pattern at /properties/mail/pattern: what it permits takes too much work";
    let constraint = vocabulary.grammar.constraint(&turn, &token, &Until::default()).unwrap().unwrap();
    assert!(
        constraint.loosened()[0].starts_with(&format!("tool get_weather: {place}")),
        "{:?}",
        constraint.loosened()
    );
    turn.tools[1].strict = true;
    let refusal = vocabulary.grammar.constraint(&turn, &token, &Until::default()).err().unwrap().to_string();
    assert!(refusal.contains(place), "{refusal}");
    // An expensive but affordable pattern is enforced.
    turn.tools[1].parameters["properties"]["mail"] = json!({"type": "string", "format": "email"});
    assert!(
        vocabulary
            .grammar
            .constraint(&turn, &token, &Until::default())
            .unwrap()
            .unwrap()
            .loosened()
            .is_empty()
    );
}

/// Tools of other programs may have an alternative, a reference or a combination as the root.
#[test]
fn the_root_of_parameters_may_join_schemas() {
    let (a, b) = (json!({"enum": ["x", "y"]}), json!({"enum": [1, 2]}));
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let of_a = object(json!({"a": a}), json!(["a"]));
    let of_b = object(json!({"b": b, "a": {"enum": [true]}}), json!(["b"]));
    let both = json!({"a": a, "b": b});
    let one_of_required = |keyword: &str| {
        let mut root = object(both.clone(), json!([]));
        root[keyword] = json!([{"required": ["a"]}, {"required": ["b"]}]);
        root
    };
    let roots = [
        json!({"oneOf": [of_a, of_b]}),
        json!({"type": "object", "anyOf": [of_a, of_b]}),
        json!({"allOf": [of_a, object(json!({"b": b}), json!(["b"]))]}),
        json!({"$ref": "#/$defs/both", "$defs": {"both": object(both.clone(), json!(["a", "b"]))}}),
        json!({"$ref": "#/definitions/any", "definitions": {
            "any": {"anyOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}]}, "a": of_a, "b": of_b}}),
        one_of_required("oneOf"),
        one_of_required("anyOf"),
        // These two are indistinguishable, so both permit whatever one permits.
        json!({"oneOf": [object(json!({"a": a, "b": b}), json!([])),
            object(json!({"b": {"type": "integer", "minimum": 1, "maximum": 3}}), json!([]))]}),
    ];
    let (mut pairs, mut with_both) = (0, 0);
    for format in with_any_tool() {
        let vocabulary = Vocabulary::get(if format.tokens.is_empty() { Kind::Text } else { Kind::Control });
        for root in &roots {
            let (name, description) = ("f".to_owned(), String::new());
            let tools = vec![Tool { name, description, parameters: root.clone(), strict: false }];
            let turn = Turn { format, tools, parallel_tool_calls: false, ..turn(ToolChoice::Required) };
            let turn = Turn { thinking: Some(format.thinking), ..turn };
            let constraint = vocabulary.constraint(&turn);
            let constraint = constraint.unwrap_or_else(|error| panic!("{format:?}: {error}")).unwrap();
            let exact = constraint.loosened().is_empty();
            let mut keys = std::collections::BTreeSet::new();
            for seed in 0..30 {
                let Some(text) = vocabulary.generate(&turn, seed, 2_000) else { continue };
                for piece in parse(&turn, &text) {
                    let Parsed::ToolCall { arguments, .. } = piece else { continue };
                    keys.extend(arguments.keys().cloned());
                    let arguments = Value::Object(arguments);
                    assert!(!exact || validate(&arguments, root).is_ok(), "{format:?}: {arguments}, {root}");
                }
            }
            pairs += 1;
            with_both += usize::from(["a", "b"].iter().all(|key| keys.contains(*key)));
        }
    }
    // In some formats random generation completes few calls.
    assert!(with_both * 2 > pairs, "{with_both} of {pairs}");
}

/// Malicious grammars: llguidance can't be interrupted, so they are limited first.
#[test]
fn hostile_grammars_are_used_or_refused_soon() {
    let many = |count: usize, join: &str, item: &dyn Fn(usize) -> String| {
        (0..count).map(item).collect::<Vec<_>>().join(join)
    };
    let quoted = |index: usize| format!("\"choice {index}\"");
    let chain = |index: usize| format!("r{index} ::= r{}", index + 1);
    let grammar = Grammar::of_bytes();
    for (name, text) in [
        ("choices", format!("start: {}", many(30_000, " | ", &quoted))),
        ("choices, GBNF", format!("root ::= {} root", many(30_000, " | ", &quoted))),
        ("one lexeme", format!("start: A\nA: {}", many(30_000, " | ", &quoted))),
        ("a chain", format!("root ::= r0\n{}\nr20000 ::= \"a\"", many(20_000, "\n", &chain))),
        (
            "a chain with an end in itself",
            format!("root ::= r0 | root \"b\"\n{}\nr20000 ::= \"a\" root", many(20_000, "\n", &chain)),
        ),
        ("ambiguous", "root ::= a a a a a a\na ::= \"x\" a | a \"x\" | a a | \"x\" | \"\"".into()),
        ("classes", format!("start: /{}/", "\\w".repeat(200_000))),
        ("parentheses", format!("start: {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000))),
        ("much", format!("start: /{}/", "a".repeat(3 << 20))),
    ] {
        let begun = Instant::now();
        let asked = Turn::new(Format::generic(), &Request::default(), "", "");
        let made = to_lark(&text).and_then(|lark| {
            grammar.constraint(&asked.in_grammar(&lark), &|_| None, &Until::default()).map(drop)
        });
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{name} took {took:?}: {made:.200?}");
        let error = made.err();
        assert!(error.is_none_or(|error| matches!(error, GrammarError::Grammar { .. })), "{name}");
    }
}

/// If llguidance gives up on a schema, the schema is refused, instead of a server error.
#[test]
fn what_llguidance_gives_up_on_is_refused_by_its_schema() {
    let optional: serde_json::Map<String, Value> =
        (0..3000).map(|index| (format!("p{index}"), json!({"type": "integer"}))).collect();
    let schema = json!({"type": "object", "properties": optional, "additionalProperties": false});
    let asked = Turn::new(Format::generic(), &Request::default(), "", "").in_json(&schema);
    let error = Grammar::of_bytes().constraint(&asked, &|_| None, &Until::default()).err();
    assert!(error.as_ref().is_none_or(|error| matches!(error, GrammarError::Schema { .. })), "{error:?}");
}
