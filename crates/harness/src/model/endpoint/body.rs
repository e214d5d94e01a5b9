//! A request as JSON for OpenAI's chat API.
//!
//! Fields that only some servers know are sent only if they matter: other servers refuse them.

use alara_engine::{
    Elsewhere, Format, Message, Request, Sampling, SamplingOverrides, ToolChoice, generic_messages,
};
use serde_json::{Map, Value, json};

use super::EndpointError;
use super::name::sendable;
use crate::calls::rebase;

/// The differences between endpoints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect<'a> {
    pub(super) model: &'a str,
    /// If set, the system prompt describes the tools, and calls and results are written as texts in
    /// this format.
    pub(super) format: Option<&'static Format>,
    /// Whether to reason, for requests that don't set it.
    pub(super) thinking: Option<bool>,
    /// Whether the token limit has OpenAI's current name.
    pub(super) completion_tokens: bool,
}

/// The body of `POST /chat/completions`.
pub(super) fn body(request: &Request, dialect: Dialect<'_>) -> Result<Value, EndpointError> {
    let with_tools = !request.tools.is_empty();
    if dialect.format.is_some() && with_tools && request.schema.is_some() {
        return Err(EndpointError::SchemaBesideTools);
    }
    let messages = match dialect.format {
        Some(format) => generic_messages(request, format)?,
        None => messages(request),
    };
    let mut body = json!({
        "model": dialect.model,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if with_tools && dialect.format.is_none() {
        let tool = |tool: &alara_engine::Tool| json!({"type": "function", "function": tool});
        // Few servers know a choice among tools, so the other tools are left out.
        let choice = &request.tool_choice;
        let among = matches!(choice, ToolChoice::Among { .. });
        let told = request.tools.iter().filter(|tool| !among || choice.permits(&tool.name));
        body["tools"] = told.map(tool).collect();
        body["tool_choice"] = match choice {
            ToolChoice::Auto | ToolChoice::Among { required: false, .. } => "auto".into(),
            ToolChoice::None => "none".into(),
            ToolChoice::Required | ToolChoice::Among { required: true, .. } => "required".into(),
            ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
        };
        body["parallel_tool_calls"] = request.parallel_tool_calls.into();
    }
    let schema = match dialect.format {
        Some(format) if with_tools && format == Format::bare() => Some(("call", call_schema(request))),
        _ => request.schema.clone().map(|schema| ("answer", schema)),
    };
    if let Some((name, schema)) = schema {
        let schema = json!({"name": name, "schema": schema, "strict": true});
        body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
    }
    if let Some(thinking) = request.thinking.or(dialect.thinking) {
        // Templates use either name.
        body["chat_template_kwargs"] = json!({"enable_thinking": thinking, "thinking": thinking});
    }
    if let Some(effort) = request.reasoning_effort {
        body["reasoning_effort"] = json!(effort);
    }
    // vLLM's field; servers that continue a last message anyway don't read it.
    if request.continue_final_message && !dialect.completion_tokens {
        body["continue_final_message"] = true.into();
        body["add_generation_prompt"] = false.into();
    }
    // Servers that want the newer name are OpenAI's own, which refuse unknown fields and share
    // nothing between accounts.
    if !request.salt.is_empty() && !dialect.completion_tokens {
        body["cache_salt"] = json!(request.salt);
    }
    if let Some(tokens) = request.max_tokens {
        let name = if dialect.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        body[name] = tokens.into();
    }
    if !request.stop.is_empty() {
        body["stop"] = json!(request.stop);
    }
    if let Value::Object(body) = &mut body {
        body.extend(sampling(&request.sampling));
    }
    Ok(body)
}

/// The JSON schema of a call of one of the tools, as [`Format::bare`] writes it.
fn call_schema(request: &Request) -> Value {
    let permitted = request.tools.iter().filter(|tool| request.tool_choice.permits(&tool.name));
    let bound = permitted.flat_map(|tool| {
        let schemas = request.bound.get(&tool.name).cloned();
        schemas.unwrap_or_else(|| vec![tool.parameters.clone()]).into_iter().map(move |schema| (tool, schema))
    });
    let calls = bound.enumerate().map(|(index, (tool, mut arguments))| {
        rebase(&mut arguments, &format!("/anyOf/{index}/properties/arguments"));
        json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    });
    json!({"anyOf": calls.collect::<Vec<_>>()})
}

/// The conversation, the system prompt first.
fn messages(request: &Request) -> Vec<Value> {
    let system: Vec<&str> = request.system.iter().map(|segment| segment.text.as_str()).collect();
    let system = (!system.is_empty()).then(|| json!({"role": "system", "content": system.join("\n\n")}));
    system.into_iter().chain(request.messages.iter().map(message)).collect()
}

fn message(message: &Message) -> Value {
    let mut value = json!({"role": message.role, "content": message.content});
    if let Some(reasoning) = &message.reasoning_content {
        value["reasoning_content"] = reasoning.as_str().into();
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let arguments = Value::Object(call.arguments.clone()).to_string();
            let function = json!({"name": sendable(&call.name), "arguments": arguments});
            json!({"id": call.id, "type": "function", "function": function})
        });
        value["tool_calls"] = calls.collect();
    }
    if let Some(id) = &message.tool_call_id {
        value["tool_call_id"] = id.as_str().into();
    }
    if let Some(name) = &message.name {
        value["name"] = sendable(name).into();
    }
    value
}

/// Temperature and seed always; other parameters that endpoints know only if they are on.
/// Each under all its names: `repetition_penalty` is vLLM's, `repeat_penalty` llama-server's.
fn sampling(sampling: &Sampling) -> Map<String, Value> {
    // Some servers store seeds as signed 32-bit numbers.
    let seed = Some(sampling.seed & 0x7fff_ffff);
    let said = SamplingOverrides { temperature: Some(sampling.temperature), seed, ..sampling.changed() };
    let known = Sampling::PARAMETERS.iter().filter(|one| one.elsewhere == Elsewhere::Sent);
    let set = known.filter_map(|one| Some((one.names(), said.get(one.name)?)));
    set.flat_map(|(names, value)| names.map(move |name| (name.to_owned(), value.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use alara_engine::{Segment, Tool, ToolCall};

    use super::*;
    use crate::model::arguments;

    const PLAIN: Dialect<'_> = Dialect { model: "m", format: None, thinking: None, completion_tokens: false };

    fn tool() -> Tool {
        let parameters =
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        Tool { name: "f".into(), description: "Does".into(), parameters, strict: false }
    }

    fn conversation() -> Request {
        let call = ToolCall {
            id: "c1".into(),
            name: "f".into(),
            arguments: Map::from_iter([("a".into(), 1.into())]),
        };
        let segment = |text: &str| Segment { name: "x".into(), text: text.into() };
        let thought =
            Message { reasoning_content: Some("hm".into()), ..Message::assistant("", vec![call.clone()]) };
        Request {
            system: vec![segment("One."), segment("Two.")],
            messages: vec![Message::user("hi"), thought, Message::tool_result(&call, "done")],
            ..Request::default()
        }
    }

    #[test]
    fn conversations() {
        let expected = json!([
            {"role": "system", "content": "One.\n\nTwo."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
            ]},
            {"role": "tool", "content": "done", "tool_call_id": "c1", "name": "f"},
        ]);
        assert_eq!(body(&conversation(), PLAIN).unwrap()["messages"], expected);
    }

    /// Servers accept no other names, and arguments only as an object in a string.
    #[test]
    fn calls_that_were_written_wrongly_are_sent_in_a_form_that_servers_take() {
        let text = r#"{"command": "echo hi",}"#;
        let call =
            ToolCall { id: "c1".into(), name: "fs.read file".into(), arguments: arguments::read(text) };
        let messages = vec![Message::assistant("", vec![call.clone()]), Message::tool_result(&call, "no")];
        let request = Request { messages, ..Request::default() };
        let body = body(&request, PLAIN).unwrap();
        let function = &body["messages"][0]["tool_calls"][0]["function"];
        assert_eq!(
            (&function["name"], &body["messages"][1]["name"]),
            (&json!("fs_read_file"), &json!("fs_read_file"))
        );
        let sent: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(sent, json!({"unreadable arguments": text}));
    }

    #[test]
    fn conversations_in_the_house_format() {
        let request = Request { tools: vec![tool()], ..conversation() };
        let body = body(&request, Dialect { format: Some(Format::generic()), ..PLAIN }).unwrap();
        let messages = &body["messages"];
        let system = messages[0]["content"].as_str().unwrap();
        assert!(system.starts_with("One.\n\nTwo.\n\n# Tools\n\n"), "{system}");
        let shown = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
        assert!(system.contains(shown) && system.ends_with("\n\n- f(a: integer): Does"), "{system}");
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
        assert_eq!((&messages[2]["content"], &messages[2]["tool_calls"]), (&json!(call), &Value::Null));
        assert_eq!(
            messages[3],
            json!({"role": "user", "content": "<tool_response>\ndone\n</tool_response>"})
        );
        assert_eq!((&body["tools"], &body["tool_choice"]), (&Value::Null, &Value::Null));
        let both = Request { schema: Some(json!({})), ..request };
        assert!(matches!(
            super::body(&both, Dialect { format: Some(Format::generic()), ..PLAIN }),
            Err(EndpointError::SchemaBesideTools)
        ));
    }

    #[test]
    fn a_call_that_must_be_made_is_json_by_a_schema() {
        let by_reference = Tool {
            name: "g".into(),
            parameters: json!({"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}}),
            ..tool()
        };
        let request = Request {
            tools: vec![tool(), by_reference],
            tool_choice: ToolChoice::Required,
            ..conversation()
        };
        let body = body(&request, Dialect { format: Some(Format::bare()), ..PLAIN }).unwrap();
        let schema = &body["response_format"]["json_schema"];
        assert_eq!((&schema["name"], &schema["strict"]), (&json!("call"), &json!(true)));
        let calls = &schema["schema"]["anyOf"];
        assert_eq!(calls[0]["properties"]["name"]["const"], "f");
        let reference = &calls[1]["properties"]["arguments"]["properties"]["b"]["$ref"];
        assert_eq!(reference, "#/anyOf/1/properties/arguments/$defs/b");
        let call = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
        assert_eq!(body["messages"][2]["content"], call);
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains("Each of your answers is one call") && system.contains(call), "{system}");
    }

    /// The tools are sent unchanged; only an answer with a schema is constrained.
    #[test]
    fn bound_arguments_stand_in_the_schema_of_the_answer() {
        let one = |a: u64| json!({"type": "object", "properties": {"a": {"const": a}}});
        let bound = [("f".to_owned(), vec![one(1), one(2)])].into();
        let request = Request { tools: vec![tool()], bound, ..conversation() };
        let told = Request { bound: Default::default(), ..request.clone() };
        assert_eq!(body(&request, PLAIN).unwrap(), body(&told, PLAIN).unwrap());
        let body = body(&request, Dialect { format: Some(Format::bare()), ..PLAIN }).unwrap();
        let calls = &body["response_format"]["json_schema"]["schema"]["anyOf"];
        let calls = calls.as_array().unwrap().iter().map(|call| &call["properties"]["arguments"]);
        assert_eq!(calls.collect::<Vec<_>>(), [&one(1), &one(2)]);
    }

    #[test]
    fn options_that_say_something() {
        let check = |request: Request, dialect: Dialect<'_>, expected: Value| {
            let mut body = body(&request, dialect).unwrap();
            body.as_object_mut().unwrap().remove("messages");
            let mut all = json!({
                "model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.0, "seed": 0,
            });
            all.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
            assert_eq!(body, all);
        };
        let none = Request::default;
        check(none(), PLAIN, json!({}));
        let sampling = Sampling {
            temperature: 0.7,
            top_p: 0.9,
            top_k: 20,
            min_p: 0.05,
            repetition_penalty: 1.1,
            presence_penalty: 1.5,
            seed: (1 << 40) + 7,
            ..Sampling::default()
        };
        let all = json!({
            "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1,
            "repeat_penalty": 1.1, "presence_penalty": 1.5, "seed": 7,
        });
        check(Request { sampling, ..none() }, PLAIN, all);
        check(Request { salt: "me".into(), ..none() }, PLAIN, json!({"cache_salt": "me"}));
        let limited = Request { max_tokens: Some(9), stop: vec!["x".into()], ..none() };
        check(limited.clone(), PLAIN, json!({"max_tokens": 9, "stop": ["x"]}));
        let openai = Dialect { completion_tokens: true, ..PLAIN };
        check(limited, openai, json!({"max_completion_tokens": 9, "stop": ["x"]}));
        let kwargs = |on: bool| json!({"chat_template_kwargs": {"enable_thinking": on, "thinking": on}});
        check(
            Request { thinking: Some(true), ..none() },
            Dialect { thinking: Some(false), ..PLAIN },
            kwargs(true),
        );
        check(none(), Dialect { thinking: Some(false), ..PLAIN }, kwargs(false));
        let schema = json!({"type": "object"});
        let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": true}});
        check(Request { schema: Some(schema), ..none() }, PLAIN, json!({"response_format": format}));

        let tools = json!([{"type": "function", "function": tool()}]);
        let choice = |choice: ToolChoice, parallel: bool, expected: Value| {
            let request =
                Request { tools: vec![tool()], tool_choice: choice, parallel_tool_calls: parallel, ..none() };
            let expected = json!({"tools": tools, "tool_choice": expected, "parallel_tool_calls": parallel});
            check(request, PLAIN, expected);
        };
        choice(ToolChoice::Auto, true, json!("auto"));
        choice(ToolChoice::None, false, json!("none"));
        choice(ToolChoice::Required, false, json!("required"));
        choice(ToolChoice::Named("f".into()), false, json!({"type": "function", "function": {"name": "f"}}));
        let among = |required| ToolChoice::Among { names: vec!["f".into()], required };
        choice(among(true), false, json!("required"));
        choice(among(false), true, json!("auto"));
        // A tool that may not be called is not described.
        let other = Tool { name: "g".into(), ..tool() };
        let request = Request { tools: vec![other, tool()], tool_choice: among(false), ..none() };
        let expected = json!({"tools": tools, "tool_choice": "auto", "parallel_tool_calls": request.parallel_tool_calls});
        check(request, PLAIN, expected);
    }
}
