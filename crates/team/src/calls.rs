//! Whether an NPC must make a call in each of its turns: the mode of its calls.
//!
//! A forced turn is exactly one call: of one of the NPC's tools, or of the built-in [`FINISH`],
//! whose argument is the answer.
//! The request alone forces it (`tool_choice: required`), so that it works the same for a local
//! grammar and for an endpoint.
//! [`TurnReader`] converts the model's output back: a reader of the trace sees an answer, not a
//! tool.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use alara_text::chat::Format;
use alara_text::request::{Event, Finish, Request, Sampling, Tool, ToolCall, ToolChoice};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The tool that answers in a forced turn; it gets another name if an NPC has a tool of this name.
pub const FINISH: &str = "finish";
/// The argument of `finish` with the answer.
const ANSWER: &str = "answer";
/// The argument in which a model thinks before it fills in the others.
const THOUGHT: &str = "thought";
/// Most characters of a thought.
const THOUGHT_LENGTH: usize = 200;
/// Most alternatives of a tool's parameters that are changed to permit a thought.
const MOST_ALTERNATIVES: usize = 256;

/// Most characters of a string in a forced call.
/// A model that never ends it would otherwise write until its token limit cuts the call off.
const STRING_LENGTH: usize = 4000;

/// Whether a turn must be a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calls {
    /// The model decides: a turn is text, calls, or both.
    #[default]
    Free,
    /// The model decides as long as it calls or answers by itself; the turn after a failed one must
    /// be a call.
    Auto,
    /// Every turn is exactly one call.
    Forced,
    /// Every turn is exactly one call, whose first argument is a short thought.
    Thought,
}

impl Calls {
    /// The names of all modes.
    pub const NAMES: [&str; 4] = ["free", "auto", "forced", "thought"];

    /// The mode for an NPC whose file sets `own`, with a model that writes calls in this format.
    /// If the file sets none, calls are forced if the prompt describes them in one of alara's
    /// formats.
    /// A model that wasn't trained on calls makes none by itself.
    pub fn of(own: Option<Calls>, format: Option<&Format>) -> Self {
        own.unwrap_or(match format {
            // Endpoints have their own ways.
            None => Calls::Free,
            Some(format) if format.described() && !format.in_fences() => Calls::Forced,
            Some(_) => Calls::Auto,
        })
    }

    /// The default sampling with a model that recommends `model`.
    /// The recommendation is meant for free text.
    /// If each turn is only a call, under a grammar, the most likely token is best: a draw could
    /// only find a less likely argument.
    pub fn sampling(self, model: Sampling) -> Sampling {
        if self == Calls::Forced { Sampling::default() } else { model }
    }

    /// Whether it is the default, which older traces don't contain.
    pub fn is_free(&self) -> bool {
        *self == Calls::Free
    }

    /// Requests a turn in this mode.
    /// A request without tools doesn't change.
    pub fn ask(self, request: &mut Request) {
        if matches!(self, Calls::Free | Calls::Auto) || request.tools.is_empty() {
            return;
        }
        self.force(request);
        if self == Calls::Thought {
            let bound = request.bound.values_mut().flatten();
            request.tools.iter_mut().map(|tool| &mut tool.parameters).chain(bound).for_each(think);
        }
    }

    /// Requests a turn that is one call.
    /// A prompt without `finish` doesn't get it now: the prompt must not change, so that it stays
    /// cached.
    pub fn force(self, request: &mut Request) {
        let finish = finish(&request.tools, request.schema.take());
        if self == Calls::Auto {
            request.unlisted.push(finish.name.clone());
        }
        request.tools.push(finish);
        request.tool_choice = ToolChoice::Required;
        request.string_limit = Some(STRING_LENGTH);
        request.parallel_tool_calls = false;
    }

    /// The tool that answers if each turn is a call, for an NPC with `tools`.
    pub fn finish(self, tools: &[Tool]) -> Option<String> {
        (self != Calls::Free && !tools.is_empty()).then(|| finish_name(tools))
    }

    /// Removes the thought from a call, so that it fits its tool.
    /// `tools` are the NPC's own, without changes.
    pub fn take_thought(self, call: &mut ToolCall, tools: &[Tool]) -> Option<String> {
        let own = tools.iter().find(|tool| tool.name == call.name);
        if self != Calls::Thought || own.is_some_and(|tool| has(&tool.parameters, THOUGHT)) {
            return None;
        }
        call.arguments.shift_remove(THOUGHT)?.as_str().map(str::to_owned)
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(Calls::NAMES[*self as usize])
    }
}

impl FromStr for Calls {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Calls::Free, Calls::Auto, Calls::Forced, Calls::Thought];
        let found = all.into_iter().find(|calls| Calls::NAMES[*calls as usize] == name);
        found.ok_or_else(|| format!("`{name}` is no mode of calls: it is {}", Calls::NAMES.join(", ")))
    }
}

/// The tool that answers: with a text, or with a value of `schema`.
fn finish(tools: &[Tool], schema: Option<Value>) -> Tool {
    let answer = match schema {
        Some(mut schema) => {
            rebase(&mut schema, &format!("/properties/{ANSWER}"));
            schema
        }
        None => json!({"type": "string", "description": "What you tell the user"}),
    };
    Tool {
        name: finish_name(tools),
        description: "Answer the user. Call it when the task is done, or when no other tool is needed".into(),
        parameters: json!({
            "type": "object",
            "properties": {ANSWER: answer},
            "required": [ANSWER],
            "additionalProperties": false,
        }),
        strict: true,
    }
}

/// A name for `finish` that no other tool has.
fn finish_name(tools: &[Tool]) -> String {
    let mut name = FINISH.to_owned();
    while tools.iter().any(|tool| tool.name == name) {
        name.push('_');
    }
    name
}

/// Adjusts the references of a schema that was moved to `place`.
pub fn rebase(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords {
                match (keyword.as_str(), value) {
                    ("$ref", Value::String(target)) if target.starts_with('#') => {
                        target.insert_str(1, place);
                    }
                    // These contain values, not schemas.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    // Their keys are names, which may be any words.
                    ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(named)) => {
                        named.values_mut().for_each(|schema| rebase(schema, place));
                    }
                    (_, value) => rebase(value, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase(item, place)),
        _ => {}
    }
}

/// Adds a thought before the other arguments.
fn think(parameters: &mut Value) {
    if has(parameters, THOUGHT) {
        return;
    }
    let thought = json!({
        "type": "string",
        "maxLength": THOUGHT_LENGTH,
        "description": "What you see, and why this is the next step, in one short sentence",
    });
    admit(parameters, THOUGHT);
    let Value::Object(parameters) = parameters else { return };
    let mut properties = Map::from_iter([(THOUGHT.to_owned(), thought)]);
    if let Some(Value::Object(own)) = parameters.get_mut("properties") {
        properties.append(own);
    }
    parameters.insert("properties".to_owned(), Value::Object(properties));
    match parameters.get_mut("required") {
        Some(Value::Array(required)) => required.insert(0, THOUGHT.into()),
        _ => drop(parameters.insert("required".to_owned(), json!([THOUGHT]))),
    }
}

/// Makes closed alternatives of an object permit one more argument.
fn admit(parameters: &mut Value, name: &str) {
    let (mut open, mut seen) = (vec![String::new()], HashSet::new());
    while let Some(place) = open.pop().filter(|_| seen.len() < MOST_ALTERNATIVES) {
        let Some(Value::Object(schema)) = parameters.pointer_mut(&place) else { continue };
        if !seen.insert(place.clone()) {
            continue;
        }
        let closes = ["additionalProperties", "unevaluatedProperties"];
        let closed = closes.iter().any(|key| schema.get(*key).is_some_and(|others| *others != true));
        if closed
            && !place.is_empty()
            && let Value::Object(own) = schema.entry("properties").or_insert_with(|| json!({}))
        {
            own.entry(name).or_insert_with(|| json!({}));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let count = schema.get(key).and_then(Value::as_array).map_or(0, Vec::len);
            open.extend((0..count).map(|index| format!("{place}/{key}/{index}")));
        }
        open.extend(["then", "else"].iter().map(|key| format!("{place}/{key}")));
        let reference = schema.get("$ref").and_then(Value::as_str);
        open.extend(reference.and_then(|reference| reference.strip_prefix('#')).map(str::to_owned));
    }
}

fn has(parameters: &Value, name: &str) -> bool {
    parameters.get("properties").is_some_and(|properties| properties.get(name).is_some())
}

/// Reads a model's output in a mode: a call of `finish` is its answer.
#[derive(Debug, Default)]
pub struct TurnReader {
    /// The name of `finish`; `None` if no turn is forced.
    finish: Option<String>,
    /// Whether the answer is JSON of any type rather than text.
    json: bool,
    /// The part of the answering call so far; `None` if no such call is under way.
    answering: Option<String>,
    /// How many calls of other tools came.
    calls: usize,
    answered: bool,
}

impl TurnReader {
    /// A reader for an NPC with `tools`, whose answers may be JSON by a schema.
    pub fn new(calls: Calls, tools: &[Tool], json: bool) -> Self {
        TurnReader { finish: calls.finish(tools), json, ..TurnReader::default() }
    }

    /// The event that an observer of the NPC sees; `None` if there is nothing to see.
    pub fn read(&mut self, event: Event) -> Option<Event> {
        let Some(finish) = &self.finish else { return Some(event) };
        match event {
            Event::ToolCallDelta { index, name, arguments } => {
                if let Some(name) = &name {
                    self.answering = (name == finish).then(String::new);
                }
                // The answer comes as a whole.
                match &mut self.answering {
                    Some(written) => {
                        *written += &arguments;
                        None
                    }
                    None => Some(Event::ToolCallDelta { index, name, arguments }),
                }
            }
            Event::ToolCall(mut call) if call.name == *finish => {
                self.answered = true;
                self.answering = None;
                let text = match call.arguments.shift_remove(ANSWER) {
                    Some(Value::String(text)) if !self.json => text,
                    Some(value) => value.to_string(),
                    None => String::new(),
                };
                Some(Event::Text { text })
            }
            Event::ToolCall(call) => {
                self.calls += 1;
                Some(Event::ToolCall(call))
            }
            Event::Incomplete { name, arguments } if name == *finish => {
                self.answering = Some(arguments);
                self.unfinished().map(|text| Event::Text { text })
            }
            Event::Done { finish: Finish::ToolCalls, usage } if self.answered && self.calls == 0 => {
                Some(Event::Done { finish: Finish::Stop, usage })
            }
            other => Some(other),
        }
    }

    /// The written part of an answer that breaks off here; `None` if there is none, or if it is
    /// JSON, half of which is useless.
    pub fn unfinished(&mut self) -> Option<String> {
        let written = self.answering.take().filter(|_| !self.json)?;
        unfinished(&written, ANSWER).filter(|text| !text.is_empty())
    }
}

/// The text of the member `key` in the beginning of an object's JSON text, as far as it goes.
fn unfinished(json: &str, key: &str) -> Option<String> {
    let (mut depth, mut rest, mut key_before) = (0usize, json, None);
    loop {
        let next = rest.chars().next()?;
        rest = &rest[next.len_utf8()..];
        match next {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 1 && key_before.as_deref() == Some(key) && rest.trim_start().starts_with('"') => {
                return Some(string(&rest.trim_start()[1..]).0);
            }
            ',' => key_before = None,
            '"' => {
                let (text, length) = string(rest);
                rest = &rest[length..];
                key_before = Some(text);
            }
            _ => {}
        }
    }
}

/// The text of a JSON string after its quote, as far as it goes, and its length in bytes with the
/// closing quote.
fn string(json: &str) -> (String, usize) {
    let mut escaped = false;
    let end = json.char_indices().find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    let mut raw = end.map_or(json, |(end, _)| &json[..end]);
    let length = end.map_or(json.len(), |(end, _)| end + 1);
    loop {
        // The text may break off within an escape.
        match serde_json::from_str(&format!("\"{raw}\"")) {
            Ok(text) => return (text, length),
            Err(_) => match raw.char_indices().next_back() {
                Some((last, _)) => raw = &raw[..last],
                None => return (String::new(), length),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases are written in place")]
    fn tool(name: &str, properties: Value) -> Tool {
        let parameters = json!({"type": "object", "properties": properties, "required": [], "additionalProperties": false});
        Tool { name: name.into(), description: String::new(), parameters, strict: false }
    }

    #[test]
    fn a_thought_fits_beside_closed_alternatives() {
        let parameters = json!({
            "type": "object",
            "oneOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false},
                {"$ref": "#/$defs/B"},
            ],
            "$defs": {"B": {"properties": {"b": {}}, "required": ["b"], "additionalProperties": false}},
        });
        let tool = Tool { name: "t".into(), description: String::new(), parameters, strict: false };
        let mut request = asked(Calls::Thought, vec![tool], None);
        let parameters = request.tools.swap_remove(0).parameters;
        let check = |arguments: Value, ok: bool| {
            let wrong = alara_text::grammar::violation(&parameters, arguments.as_object().unwrap());
            assert_eq!(wrong.is_none(), ok, "{arguments}: {wrong:?}");
        };
        check(json!({THOUGHT: "hm", "a": "x"}), true);
        check(json!({THOUGHT: "hm", "b": 1}), true);
        check(json!({THOUGHT: "hm", "a": "x", "b": 1}), false);
        check(json!({"a": "x"}), false);
    }

    fn asked(calls: Calls, tools: Vec<Tool>, schema: Option<Value>) -> Request {
        let mut request = Request { tools, schema, ..Request::default() };
        calls.ask(&mut request);
        request
    }

    fn names(request: &Request) -> Vec<&str> {
        request.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    fn call(name: &str, arguments: Value) -> Event {
        let Value::Object(arguments) = arguments else { unreachable!() };
        Event::ToolCall(ToolCall { id: "1".into(), name: name.into(), arguments })
    }

    #[test]
    fn what_a_model_recommends_is_for_what_it_says_freely() {
        let model = Sampling { temperature: 0.6, top_k: 20, ..Sampling::default() };
        for calls in [Calls::Free, Calls::Auto, Calls::Thought] {
            assert_eq!(calls.sampling(model.clone()), model);
        }
        assert_eq!(Calls::Forced.sampling(model), Sampling::default());
    }

    #[test]
    fn a_forced_turn_is_a_call_of_a_tool_or_of_finish() {
        let tools = || vec![tool("shell", json!({"command": {"type": "string"}}))];
        let free = asked(Calls::Free, tools(), None);
        assert_eq!((names(&free), &free.tool_choice), (vec!["shell"], &ToolChoice::Auto));
        let forced = asked(Calls::Forced, tools(), None);
        assert_eq!(names(&forced), ["shell", "finish"]);
        assert_eq!(forced.tool_choice, ToolChoice::Required);
        let mut auto = asked(Calls::Auto, tools(), Some(json!({"type": "object"})));
        assert_eq!(
            (names(&auto), &auto.tool_choice, auto.schema.is_some()),
            (vec!["shell"], &ToolChoice::Auto, true)
        );
        Calls::Auto.force(&mut auto);
        assert_eq!((names(&auto), &auto.tool_choice), (vec!["shell", "finish"], &ToolChoice::Required));
        assert_eq!(
            (auto.unlisted, auto.schema),
            (vec!["finish".to_owned()], None),
            "the prompt stays the same"
        );
        let none = asked(Calls::Forced, Vec::new(), None);
        assert_eq!((names(&none), &none.tool_choice), (vec![], &ToolChoice::Auto), "nothing could be called");
        let taken = asked(Calls::Forced, vec![tool("finish", json!({}))], None);
        assert_eq!(names(&taken), ["finish", "finish_"]);
    }

    #[test]
    fn a_thought_comes_first_and_never_reaches_the_tool() {
        let tools = vec![
            tool("shell", json!({"command": {"type": "string"}})),
            tool("think", json!({"thought": {"type": "string"}})),
        ];
        let request = asked(Calls::Thought, tools.clone(), None);
        let keys = |tool: &Tool| -> Vec<String> {
            tool.parameters["properties"].as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&request.tools[0]), ["thought", "command"]);
        assert_eq!(request.tools[0].parameters["required"], json!(["thought"]));
        assert_eq!(keys(&request.tools[1]), ["thought"], "it is the tool's own");
        assert_eq!(keys(&request.tools[2]), ["thought", "answer"]);
        let bare = |event| match event {
            Event::ToolCall(mut call) => {
                let thought = Calls::Thought.take_thought(&mut call, &tools);
                (thought, Value::Object(call.arguments))
            }
            _ => unreachable!(),
        };
        let taken = bare(call("shell", json!({"thought": "t", "command": "ls"})));
        assert_eq!(taken, (Some("t".to_owned()), json!({"command": "ls"})));
        assert_eq!(bare(call("think", json!({"thought": "t"}))), (None, json!({"thought": "t"})));
    }

    #[test]
    fn references_of_a_schema_point_to_where_it_stands() {
        let schema = json!({
            "type": "object", "properties": {"next": {"$ref": "#"}, "tag": {"$ref": "#/$defs/tag"}},
            "$defs": {"tag": {"enum": [{"$ref": "#"}]}, "enum": {"$ref": "#"}},
        });
        let request = asked(Calls::Forced, vec![tool("shell", json!({}))], Some(schema));
        assert_eq!(request.schema, None);
        let answer = &request.tools[1].parameters["properties"]["answer"];
        assert_eq!(answer["properties"]["next"]["$ref"], "#/properties/answer");
        assert_eq!(answer["properties"]["tag"]["$ref"], "#/properties/answer/$defs/tag");
        assert_eq!(answer["$defs"]["tag"]["enum"][0]["$ref"], "#", "a value is none");
        assert_eq!(answer["$defs"]["enum"]["$ref"], "#/properties/answer", "a name is no keyword");
    }

    #[test]
    fn an_answer_is_no_tool() {
        let request = Request { tools: vec![tool("shell", json!({}))], ..Request::default() };
        let read = |request: &Request, events: Vec<Event>| -> Vec<Event> {
            let mut reader = TurnReader::new(Calls::Forced, &request.tools, request.schema.is_some());
            events.into_iter().filter_map(|event| reader.read(event)).collect()
        };
        let done = |finish| Event::Done { finish, usage: Default::default() };
        let delta = |name: Option<&str>, arguments: &str| Event::ToolCallDelta {
            index: 0,
            name: name.map(str::to_owned),
            arguments: arguments.into(),
        };
        let answer = || {
            vec![
                delta(Some("finish"), ""),
                delta(None, "{\"answer\": \"It is done.\"}"),
                call("finish", json!({"answer": "It is done."})),
                done(Finish::ToolCalls),
            ]
        };
        let text = |text: &str| Event::Text { text: text.into() };
        assert_eq!(read(&request, answer()), [text("It is done."), done(Finish::Stop)]);
        let by_schema = Request { schema: Some(json!({"type": "string"})), ..request.clone() };
        assert_eq!(read(&by_schema, answer())[0], text("\"It is done.\""));
        let works = || vec![delta(Some("shell"), "{}"), call("shell", json!({})), done(Finish::ToolCalls)];
        assert_eq!(read(&request, works()), works());
        let cut = vec![
            delta(Some("finish"), "{"),
            Event::Incomplete { name: "finish".into(), arguments: "{".into() },
            done(Finish::Length),
        ];
        assert_eq!(read(&request, cut), [done(Finish::Length)]);
        let half = |json: bool| {
            let arguments = r#"{"answer": "Once"#;
            let cut = vec![
                delta(Some("finish"), arguments),
                Event::Incomplete { name: "finish".into(), arguments: arguments.into() },
                done(Finish::Length),
            ];
            read(if json { &by_schema } else { &request }, cut)
        };
        assert_eq!(half(false), [text("Once"), done(Finish::Length)]);
        assert_eq!(half(true), [done(Finish::Length)], "half of a JSON is none");
        let mut free = TurnReader::new(Calls::Free, &request.tools, false);
        assert_eq!(free.read(call("finish", json!({}))), Some(call("finish", json!({}))), "nobody's answer");
    }

    #[test]
    fn half_an_answer() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(unfinished(json, ANSWER).as_deref(), expected, "{json}");
        };
        check("", None);
        check(r#"{"answer"#, None);
        check(r#"{"answer": "#, None);
        check(r#"{"answer": ""#, Some(""));
        check(r#"{"answer":"a \"b\"\n"#, Some("a \"b\"\n"));
        check(r#"{"answer":"a\"#, Some("a"));
        check(r#"{"answer":"a\u00e"#, Some("a"));
        check(r#"{"answer":"a\ud83d\ude0"#, Some("a"));
        check(r#"{"thought":"the \"answer\": \"no","answer":"yes"#, Some("yes"));
        check(r#"{"other":{"answer":"no"},"answer":"yes"}"#, Some("yes"));
        let mut reader = TurnReader { finish: Some("finish".into()), ..TurnReader::default() };
        let piece = |name: Option<&str>, arguments: &str| Event::ToolCallDelta {
            index: 0,
            name: name.map(str::to_owned),
            arguments: arguments.into(),
        };
        assert!(reader.read(piece(Some("finish"), r#"{"answer": "It "#)).is_none());
        assert!(reader.read(piece(None, "is ")).is_none());
        assert_eq!(reader.unfinished().as_deref(), Some("It is "));
        assert_eq!(reader.unfinished(), None, "told once");
    }

    #[test]
    fn modes_have_names() {
        for name in Calls::NAMES {
            assert_eq!(name.parse::<Calls>().unwrap().to_string(), name);
            assert_eq!(serde_json::to_value(name.parse::<Calls>().unwrap()).unwrap(), name);
        }
        assert!("always".parse::<Calls>().unwrap_err().contains("free, auto, forced, thought"));
    }
}
