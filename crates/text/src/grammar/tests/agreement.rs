//! The grammar and the parser agree: texts that the parser would misread are not permitted, or the
//! schema is refused.

use super::*;

/// A text that the parser would read differently can't be written, or is read as intended.
#[test]
fn free_text_can_not_become_a_call() {
    let vocabulary = Vocabulary::get(Kind::Control);
    let of = |name: &str, reasoning: Reasoning| {
        let format = Format::from_name(name).unwrap();
        Turn { format, thinking: Some(format.thinking), reasoning, ..turn(ToolChoice::Auto) }
    };
    let spelled = |turn: &Turn, text: &str, expected: bool| {
        assert_eq!(vocabulary.permits(turn, text, true), expected, "{:?} {text}", turn.format);
    };
    // Messages end inside reasoning too.
    let harmony = of("harmony", Reasoning::Open);
    spelled(&harmony, "hm <|star", true);
    spelled(&harmony, "hm <|start|>", false);
    spelled(&harmony, "hm to=functions.", false);
    // An escaped key could be one that the parser knows.
    let llama = of("llama3", Reasoning::Never);
    spelled(&llama, "{\"answer\": 4}", true);
    spelled(&llama, " { \"type\"", false);
    spelled(&llama, "{\"\\u0074", false);
    spelled(&llama, "<|python_tag|>", false);
}

#[test]
fn json_between_tags_may_contain_the_tags() {
    let items = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "items": {"type": "string"}}}});
    let vocabulary = Vocabulary::get(Kind::Text);
    let format = Format::from_name("qwen-xml").unwrap();
    let tools = vec![Tool { name: "f".into(), description: String::new(), parameters: items, strict: false }];
    let turn = Turn { format, tools, ..turn(ToolChoice::Required) };
    let value = json!({"a": ["x</parameter></function></tool_call>", "\"]</parameter>"]});
    let arguments = value.as_object().unwrap().clone();
    let text = format.render_call(&ToolCall { id: String::new(), name: "f".into(), arguments }).unwrap();
    assert!(vocabulary.permits(&turn, &text, true), "{text}");
    for chunk in [1, 7, text.len()] {
        let mut parser = Parser::new(&turn);
        let chunks = text.as_bytes().chunks(chunk).map(|bytes| std::str::from_utf8(bytes).unwrap());
        let mut parsed: Vec<Parsed> = chunks.flat_map(|text| parser.push(text)).collect();
        parsed.extend(parser.finish());
        let calls: Vec<Value> = parsed
            .into_iter()
            .filter_map(|piece| match piece {
                Parsed::ToolCall { arguments, .. } => Some(arguments.into()),
                Parsed::Delta { .. } => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(calls, std::slice::from_ref(&value));
    }
}

/// An agent that repeats a command must begin it in another way.
#[test]
fn a_block_can_be_kept_from_beginning_as_another() {
    let command = "sed -i 's/return a - b/return a + b/' till.py\npython3 test_till.py";
    let characters: Vec<String> = command
        .chars()
        .take(24)
        .map(|c| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() })
        .collect();
    let other = characters.iter().enumerate().rev().fold(String::new(), |after, (index, c)| {
        let blank = if index == 0 { r"\s" } else { "" };
        let same = if after.is_empty() { after } else { format!("|{c}{after}") };
        format!(r"(?:[^{c}{blank}][\s\S]*{same})?")
    });
    let mut tools = code_tools();
    tools.truncate(1);
    let mut parameters = tools[0].parameters.clone();
    parameters["properties"]["command"]["allOf"] = json!([{"pattern": format!(r"^\s*{other}$")}]);
    let bound = BTreeMap::from([(tools[0].name.clone(), vec![parameters])]);
    let turn =
        Turn { format: Format::from_name("code").unwrap(), tools, bound, ..turn(ToolChoice::Required) };
    let vocabulary = Vocabulary::get(Kind::Text);
    let spaced = format!(" {command}");
    for (text, expected) in [(command, false), (&spaced, false), ("ls -l", true), ("sed -n 1,20p a", true)] {
        assert_eq!(vocabulary.permits(&turn, &format!("```bash\n{text}\n```"), true), expected, "{text}");
    }
}

#[test]
fn a_block_is_a_call_of_the_tool_that_runs_it() {
    let code = Format::from_name("code").unwrap();
    let of = |choice: ToolChoice| Turn { format: code, tools: code_tools(), ..turn(choice) };
    let vocabulary = Vocabulary::get(Kind::Text);
    let permits = |turn: &Turn, text: &str, expected: bool| {
        assert_eq!(vocabulary.permits(turn, text, true), expected, "{text:?}");
    };
    let free = of(ToolChoice::Auto);
    permits(&free, "Like this:\n```json\n{}\n```\nDone.", true);
    permits(&free, "First:\n```bash\nls -l\n```", true);
    permits(&free, "```python\nprint(1)\n```", true);
    permits(&free, "```bash ls", false);
    let forced = of(ToolChoice::Required);
    permits(&forced, "I will", false);
    permits(&forced, "```json", false);
    permits(&forced, "```answer\nIt is done.\n```", true);
    let one = Turn { tools: code_tools()[..1].to_vec(), ..of(ToolChoice::Auto) };
    permits(&one, "```python\nprint(1)\n```", true);
    let calls = |turn: &Turn, text: &str| -> Vec<(String, Value)> {
        let parsed = parse(turn, text).into_iter().filter_map(|piece| match piece {
            Parsed::ToolCall { name, arguments, .. } => Some((name, Value::Object(arguments))),
            _ => None,
        });
        parsed.collect()
    };
    let shell = |command: &str| vec![("shell".to_owned(), json!({"command": command}))];
    assert_eq!(calls(&free, "Now:\n```sh\nls\npwd\n```\nThat was it."), shell("ls\npwd"));
    assert_eq!(calls(&free, "```bash\n\n\n```"), shell("\n"));
    assert_eq!(calls(&free, "```bash\n```"), shell(""));
    assert_eq!(calls(&one, "```python\nprint(1)\n```"), [], "a block that nobody runs is text");
    let text = |turn: &Turn, answer: &str| {
        let pieces = parse(turn, answer).into_iter().map(|piece| match piece {
            Parsed::Text(text) => text,
            other => panic!("{other:?}"),
        });
        assert_eq!(pieces.collect::<String>(), answer);
    };
    text(&one, "```python\nprint(1)\n```");
    text(&free, "```json\n{}\n```");
    text(&free, "```\nbash\n```");
    // A tool that runs no code takes JSON, and lines if it has a text argument.
    let parameters = json!({
        "type": "object", "required": ["path", "content"],
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
        "additionalProperties": false,
    });
    let write = Tool { name: "write_file".into(), description: String::new(), parameters, strict: false };
    let parameters =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
    let count = Tool { name: "count".into(), description: String::new(), parameters, strict: false };
    let others = Turn { tools: vec![write, count], ..of(ToolChoice::Auto) };
    let file = json!({"path": "a.txt", "content": "one\n\"two\""});
    let lines = "```write_file {\"path\": \"a.txt\"}\none\n\"two\"\n```";
    permits(&others, lines, true);
    assert_eq!(calls(&others, lines), [("write_file".to_owned(), file)]);
    permits(&others, "```write_file\none\n```", false);
    permits(&others, "Some:\n```count\n{\"n\": 3}\n```\n", true);
    assert_eq!(calls(&others, "```count\n{\"n\": 3}\n```\n"), [("count".to_owned(), json!({"n": 3}))]);
    let fenced = "```write_file json\n{\"path\": \"a.md\", \"content\": \"```\\nx\\n```\"}\n```";
    permits(&others, fenced, true);
    let file = json!({"path": "a.md", "content": "```\nx\n```"});
    assert_eq!(calls(&others, fenced), [("write_file".to_owned(), file.clone())]);
    let Value::Object(arguments) = file else { unreachable!() };
    let call = ToolCall { id: String::new(), name: "write_file".into(), arguments };
    assert_eq!(code.render_call(&call).unwrap(), fenced);
}

#[test]
fn json_is_not_searched_for_markers() {
    for name in ["llama3", "gemma4", "harmony", "hermes"] {
        let format = Format::from_name(name).unwrap();
        let schema = Some(json!({"type": "string"}));
        let turn = Turn {
            format,
            schema,
            tools: Vec::new(),
            thinking: Some(format.thinking),
            ..turn(ToolChoice::None)
        };
        let json = "\"a<|python_tag|>b<|tool_response>c<|end|>d<tool_call>e\"";
        let text = format!("{}{json}", format.answer.0);
        assert_eq!(parse(&turn, &text), [Parsed::Text(json.into())], "{name}");
    }
}

#[test]
fn names_that_a_format_can_not_express_are_refused() {
    let tool = |name: &str| Tool {
        name: name.into(),
        description: String::new(),
        parameters: json!({}),
        strict: false,
    };
    let check = |format: &str, names: &[&str], expected: Option<&str>| {
        let tools = names.iter().map(|name| tool(name)).collect();
        let turn = Turn { tools, format: Format::from_name(format).unwrap(), ..turn(ToolChoice::Required) };
        let refusal = Vocabulary::get(Kind::Text).constraint(&turn).err().map(|error| error.to_string());
        match expected {
            None => assert_eq!(refusal, None, "{format} {names:?}"),
            Some(expected) => assert_eq!(refusal.as_deref(), Some(expected), "{format} {names:?}"),
        }
    };
    check("hermes", &["get weather \"now\""], None);
    check("qwen-xml", &["größe.v-2"], None);
    let bare = "the qwen-xml format writes names bare: letters, digits, '_', '-' and '.' are possible";
    check("qwen-xml", &["get weather"], Some(&format!("tool get weather can't be called: {bare}")));
    check("hermes", &["a", "a"], Some("tool a can't be called: there are two tools of this name"));
}

/// Arguments without quotes are refused if their type could be misread.
#[test]
fn arguments_between_tags_read_back_or_are_refused() {
    let check = |parameters: Value, expected: Option<&str>| {
        let tools = vec![Tool { name: "f".into(), description: String::new(), parameters, strict: true }];
        let format = Format::from_name("qwen-xml").unwrap();
        let turn = Turn { tools, format, ..turn(ToolChoice::Required) };
        let refusal = Vocabulary::get(Kind::Text).constraint(&turn).err().map(|error| error.to_string());
        match expected {
            None => assert_eq!(refusal, None),
            Some(expected) => {
                assert!(refusal.as_ref().is_some_and(|text| text.contains(expected)), "{refusal:?}");
            }
        }
    };
    let of = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    check(of(json!({"type": "integer", "enum": [1, 2]})), None);
    check(of(json!({"type": "string", "format": "date"})), None);
    check(of(json!({"allOf": [{"type": "string"}, {"minLength": 2}]})), None);
    check(of(json!({"anyOf": [{"type": "integer"}, {"enum": ["all", "7"]}]})), None);
    check(of(json!({"anyOf": [{"type": "integer"}, {"enum": ["7"]}]})), Some("read like other values"));
    check(of(json!({"enum": ["a", "</parameter>"]})), Some("contains"));
    check(
        json!({"type": "object", "properties": {"a>b": {"type": "string"}}}),
        Some("can't express the key"),
    );
    let one_is_left = json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, false]});
    check(one_is_left, None);
    let either = json!({"anyOf": [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
    ]});
    check(either, Some("depend on each other"));
    check(
        json!({"type": "object", "minProperties": 1, "properties": {"a": {}, "b": {}}}),
        Some("minProperties"),
    );
}

/// In every format a call satisfies one of the schemas that replace the tool's own, whatever the
/// prompt describes; the model chooses which.
#[test]
fn bound_arguments_fit_one_of_the_schemas() {
    let inner = |name: &str, parameters: Value| {
        json!({
            "type": "object",
            "properties": {"tool": {"type": "string", "enum": [name]}, "arguments": parameters},
            "required": ["tool", "arguments"],
            "additionalProperties": false,
        })
    };
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let schemas = vec![
        inner("freeze_4471", object(json!({"card": {"enum": ["k1", "k2"]}}), json!(["card"]))),
        inner(
            "frost_2086",
            object(json!({"on": {"type": "boolean"}, "by": {"enum": [1, 2]}}), json!(["on"])),
        ),
    ];
    let told = object(json!({"tool": {"type": "string"}, "arguments": {"type": "object"}}), json!(["tool"]));
    let call = Tool { name: "call_tool".into(), description: String::new(), parameters: told, strict: false };
    for format in Format::all().iter().filter(|format| !format.in_fences()) {
        let vocabulary = Vocabulary::get(if format.tokens.is_empty() { Kind::Text } else { Kind::Control });
        let bound = BTreeMap::from([(call.name.clone(), schemas.clone())]);
        let turn = Turn { format, tools: vec![call.clone()], bound, ..turn(ToolChoice::Required) };
        let turn = Turn { thinking: Some(format.thinking), ..turn };
        let mut seen = [0, 0];
        for seed in 0..40 {
            let Some(text) = vocabulary.generate(&turn, seed, 2_000) else { continue };
            for piece in parse(&turn, &text) {
                let Parsed::ToolCall { arguments, .. } = piece else { continue };
                let arguments = Value::Object(arguments);
                let fits: Vec<bool> =
                    schemas.iter().map(|schema| validate(&arguments, schema).is_ok()).collect();
                let one = fits.iter().position(|fits| *fits);
                seen[one.unwrap_or_else(|| panic!("{}: {arguments} in {text}", format.name))] += 1;
            }
        }
        assert!(seen.iter().all(|seen| *seen > 0), "{}: {seen:?}", format.name);
    }
}
