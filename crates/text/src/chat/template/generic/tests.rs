use super::*;

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn calls(content: &str, arguments: &[Value]) -> Value {
    let call = |arguments: &Value| json!({"type": "function", "id": "1", "function": {"name": "f", "arguments": arguments}});
    json!({"role": "assistant", "content": content, "tool_calls": arguments.iter().map(call).collect::<Vec<_>>()})
}

fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    json!({"type": "function", "function": {"name": "f", "description": "Does", "parameters": parameters}})
}

#[test]
fn tools_are_described_in_the_system_text() {
    let check = |before: Vec<Value>, answered: bool, must: bool, expected: &str| {
        let mut messages = before.clone();
        describe(&mut messages, &[tool(), tool()], Format::generic(), answered, must).unwrap();
        assert_eq!(messages[0], message("system", expected));
        assert_eq!(messages[1..], before[usize::from(before[0]["role"] == "system")..]);
        describe(&mut messages, &[], Format::generic(), answered, must).unwrap();
        assert_eq!(messages[0], message("system", expected), "no tools, nothing to say");
    };
    let free =
        "# Tools\n\nYou have the tools below. To use one, end your answer with a call, in exactly this form:";
    let forced = "# Tools\n\nEach of your answers is one call of a tool below, in exactly this form:";
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let result = "You then get the result in <tool_response> tags.\n";
    let line = "- f(a: integer): Does";
    let user = message("user", "hi");
    check(vec![user.clone()], false, false, &format!("{free}\n{call}\n\n{line}\n{line}"));
    check(
        vec![message("system", "Be brief."), user],
        true,
        true,
        &format!("Be brief.\n\n{forced}\n{call}\n{result}\n{line}\n{line}"),
    );
}

/// A model that copies the example runs a well-formed call, and never passes a parameter's own
/// name.
#[test]
fn no_example_is_the_name_of_its_parameter() {
    let names = [
        "command",
        "code",
        "path",
        "text",
        "query",
        "url",
        "name",
        "city",
        "date",
        "id",
        "blue",
        "green",
        "whatever",
        "fileName",
        "from_date",
        "sha-256",
        "",
    ];
    for name in names {
        let parameters =
            json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
        let value = example::arguments(&parameters)[name].clone();
        assert!(value != name && value != "", "{name}: {value}");
    }
}

#[test]
fn blocks_of_code_are_shown_in_each_language() {
    let tool = |name: &str, argument: &str| {
        let parameters =
            json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]});
        json!({"type": "function", "function": {"name": name, "description": "Does", "parameters": parameters}})
    };
    let described = |tools: &[Value], must: bool| {
        let mut messages = Vec::new();
        describe(&mut messages, tools, Format::from_name("code").unwrap(), true, must).unwrap();
        text(&messages[0]).to_owned()
    };
    let (shell, python, finish) =
        (tool("shell", "command"), tool("python", "code"), tool("finish", "answer"));
    let blocks = "```bash\nls -l\n```\nor\n```python\nprint(6 * 7)\n```";
    let result = "You then get the result in <tool_response> tags.";
    let told = format!(
        "# Tools\n\nYou act by code, which is run for you. To act, end your answer with one block:\n{blocks}\n{result}\n\
         A block is run and not kept: to make a file, let its code write the file.\n\
         When the task is done, say so in one short sentence, without a block."
    );
    assert_eq!(described(&[shell.clone(), python.clone()], false), told);
    // The prompt stays the same where a turn must be a block, and mentions no block that answers.
    assert_eq!(described(&[shell.clone(), python.clone(), finish], true), told);
    let read = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let read = json!({"function": {"name": "read_file", "description": "Read", "parameters": read}});
    let with_read = described(&[shell, python, read], false);
    assert!(with_read.contains("\nor\n```read_file\n{\"path\": \""), "{with_read}");
    assert!(with_read.ends_with("\n\n- read_file(path: string): Read"), "{with_read}");
}

#[test]
fn calls_and_results_become_texts() {
    let check = |messages: &[Value], expected: &[Value]| {
        let mut messages = messages.to_vec();
        calls_as_text(&mut messages, Format::generic()).unwrap();
        assert_eq!(with_results_as_text(messages), expected);
    };
    let plain = [message("user", "a"), message("assistant", "b"), message("user", "c"), message("user", "d")];
    check(&plain, &plain);
    let (one, two) =
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"é\"}}\n</tool_call>", json!({"x": "é"}));
    check(&[calls("", std::slice::from_ref(&two))], &[message("assistant", one)]);
    check(
        &[calls("Now:", &[two.clone(), two.clone()])],
        &[message("assistant", &format!("Now:\n{one}\n{one}"))],
    );
    let result = |text: &str| format!("<tool_response>\n{text}\n</tool_response>");
    check(
        &[
            message("user", "q"),
            calls("", std::slice::from_ref(&two)),
            message("tool", "A"),
            message("tool", ""),
            message("user", "r"),
            message("user", "s"),
        ],
        &[
            message("user", "q"),
            message("assistant", one),
            message("user", &format!("{}\n{}\nr", result("A"), result(""))),
            message("user", "s"),
        ],
    );
    check(
        &[
            calls("", std::slice::from_ref(&two)),
            message("tool", "A"),
            calls("", std::slice::from_ref(&two)),
            message("tool", "B"),
            message("assistant", "end"),
        ],
        &[
            message("assistant", one),
            message("user", &result("A")),
            message("assistant", one),
            message("user", &result("B")),
            message("assistant", "end"),
        ],
    );
}

#[test]
fn a_system_prompt_can_stand_in_the_first_turn() {
    let check = |messages: &[Value], expected: &[Value]| {
        let mut messages = messages.to_vec();
        with_system_in_first_turn(&mut messages);
        assert_eq!(messages, expected);
    };
    check(&[], &[]);
    check(&[message("user", "a")], &[message("user", "a")]);
    check(&[message("system", "s"), message("user", "a")], &[message("user", "s\n\na")]);
    check(
        &[message("system", "s"), message("assistant", "a")],
        &[message("user", "s"), message("assistant", "a")],
    );
}
