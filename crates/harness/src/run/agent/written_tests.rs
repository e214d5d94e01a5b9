use serde::Deserialize;
use serde_json::Map;

use super::*;
use crate::model::{Scripted, Single};
use crate::run::session::Session;
use crate::testing::Fixture;

#[derive(Deserialize)]
struct Rows {
    tools: Vec<Parameters>,
    texts: Vec<Row>,
}

#[derive(Deserialize)]
struct Parameters {
    name: String,
    parameters: serde_json::Value,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    text: String,
    expect: Expected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expected {
    Calls { calls: Vec<Call> },
    Broken { broken: String },
    Text(#[expect(dead_code, reason = "only its kind counts")] String),
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Map<String, serde_json::Value>,
}

/// The parser's fixture, through an agent: calls are made, half calls get a hint, and other texts
/// stay the answer.
#[test]
fn an_agent_takes_the_calls_of_the_fixture() {
    let rows: Rows =
        serde_saphyr::from_str(include_str!("../../../../../tests/fixtures/chat/written-calls.yaml"))
            .unwrap();
    let fixture = Fixture::new();
    let model = Scripted::new([]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    let mut start = last_start(&agent.records).unwrap().clone();
    let tool = |tool: Parameters| Tool {
        name: tool.name,
        description: String::new(),
        parameters: tool.parameters,
        strict: false,
    };
    start.tools = rows.tools.into_iter().map(tool).collect();
    agent.records = vec![Record::Start(Box::new(start)).into()];
    let mut wrong = Vec::new();
    for Row { name, text, expect } in rows.texts {
        let mut message = Message::assistant(text.clone(), Vec::new());
        let mut usage = Usage::default();
        let finish = agent.take_written(&mut message, Finish::Stop, &mut usage);
        let made = message.tool_calls.iter().map(|call| (&call.name, &call.arguments));
        let right = match &expect {
            Expected::Calls { calls } => {
                finish == Finish::ToolCalls
                    && usage.recovered.is_some()
                    && made.eq(calls.iter().map(|call| (&call.name, &call.arguments)))
            }
            Expected::Broken { broken } => {
                finish == Finish::Stop
                    && message.content == text
                    && agent.unmade_call(&message).is_some_and(|hint| hint.contains(&format!("`{broken}`")))
            }
            Expected::Text(_) => {
                finish == Finish::Stop && message.content == text && usage.recovered.is_none()
            }
        };
        if !right {
            wrong.push(format!("{name}: {finish:?} {:?}\n{text}", message.tool_calls));
        }
    }
    assert!(wrong.is_empty(), "{} of the texts are taken wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}
