use super::*;

fn said(role: &str, content: &str) -> Value {
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
    let check = |before: Vec<Value>, answered: bool, expected: &str| {
        let mut messages = before.clone();
        describe(&mut messages, &[tool(), tool()], Format::house(), answered).unwrap();
        assert_eq!(messages[0], said("system", expected));
        assert_eq!(messages[1..], before[usize::from(before[0]["role"] == "system")..]);
        describe(&mut messages, &[], Format::house(), answered).unwrap();
        assert_eq!(messages[0], said("system", expected), "no tools, nothing to say");
    };
    let head = "# Tools\n\nYou may use the tools below: a line of JSON for each, and an example of its call. To use one, end \
        your answer with a call in exactly this form, with arguments that fit the tool's parameters.";
    let result = " You then get its result in <tool_response> tags.";
    let line = "{\"name\": \"f\", \"description\": \"Does\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": \
        {\"type\": \"integer\"}}, \"required\": [\"a\"]}}\n\
        <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let user = said("user", "hi");
    check(vec![user.clone()], false, &format!("{head}\n\n{line}\n\n{line}"));
    check(
        vec![said("system", "Be brief."), user],
        true,
        &format!("Be brief.\n\n{head}{result}\n\n{line}\n\n{line}"),
    );
}

#[test]
fn calls_and_results_become_texts() {
    let check = |messages: &[Value], expected: &[Value]| {
        let mut messages = messages.to_vec();
        calls_as_text(&mut messages, Format::house()).unwrap();
        assert_eq!(with_results_as_text(messages), expected);
    };
    let plain = [said("user", "a"), said("assistant", "b"), said("user", "c"), said("user", "d")];
    check(&plain, &plain);
    let (one, two) =
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"é\"}}\n</tool_call>", json!({"x": "é"}));
    check(&[calls("", std::slice::from_ref(&two))], &[said("assistant", one)]);
    check(
        &[calls("Now:", &[two.clone(), two.clone()])],
        &[said("assistant", &format!("Now:\n{one}\n{one}"))],
    );
    let result = |text: &str| format!("<tool_response>\n{text}\n</tool_response>");
    check(
        &[
            said("user", "q"),
            calls("", std::slice::from_ref(&two)),
            said("tool", "A"),
            said("tool", ""),
            said("user", "r"),
            said("user", "s"),
        ],
        &[
            said("user", "q"),
            said("assistant", one),
            said("user", &format!("{}\n{}\nr", result("A"), result(""))),
            said("user", "s"),
        ],
    );
    check(
        &[
            calls("", std::slice::from_ref(&two)),
            said("tool", "A"),
            calls("", std::slice::from_ref(&two)),
            said("tool", "B"),
            said("assistant", "end"),
        ],
        &[
            said("assistant", one),
            said("user", &result("A")),
            said("assistant", one),
            said("user", &result("B")),
            said("assistant", "end"),
        ],
    );
}

#[test]
fn a_system_text_can_stand_in_the_first_turn() {
    let check = |messages: &[Value], expected: &[Value]| {
        let mut messages = messages.to_vec();
        with_system_in_first_turn(&mut messages);
        assert_eq!(messages, expected);
    };
    check(&[], &[]);
    check(&[said("user", "a")], &[said("user", "a")]);
    check(&[said("system", "s"), said("user", "a")], &[said("user", "s\n\na")]);
    check(&[said("system", "s"), said("assistant", "a")], &[said("user", "s"), said("assistant", "a")]);
}
