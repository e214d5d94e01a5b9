mod files;
mod flow;
mod parallel;
mod programs;
mod search;
mod values;

use std::sync::{LazyLock, Mutex};

use alara_engine::{Event, Finish, Request, Usage};
use serde_json::{Map, Value, json};

use super::*;
use crate::jinx::Offer;
use crate::model::{ChatModel, Events, ModelError, Reply, Scripted, Single};
use crate::run::session::{Notice, Session};
use crate::source::Source;
use crate::team::Access;
use crate::testing::Fixture;
use crate::types::{KEPT_BYTES, Severity};

/// The stock team with further jinxes.
pub(super) fn team(jinxes: &[&str]) -> Team {
    static STOCK: LazyLock<Team> = LazyLock::new(|| Team::stock("alara").unwrap());
    let mut team = STOCK.clone();
    team.jinxes.extend(jinxes.iter().map(|text| read(text)));
    team
}

fn read(text: &str) -> Jinx {
    let source = Source { path: "tried.jinx".into(), text: text.to_owned() };
    let mut diagnostics = Vec::new();
    let jinx = crate::jinx::read(&source, &mut diagnostics);
    let errors: Vec<_> = diagnostics.iter().filter(|found| found.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    jinx.unwrap()
}

/// The result of running a jinx.
struct Played {
    result: ToolResult,
    emitted: Vec<Value>,
    /// The trace as lines of JSON, without times and the machine's paths.
    trace: Vec<String>,
    /// Each file of the work directory that isn't hidden, with its text.
    files: Map<String, Value>,
}

/// Runs the jinx `tried` of `team` as the NPC `worker`.
fn play(team: Team, arguments: &Value, model: &dyn ChatModel, threads: usize) -> Played {
    let fixture = Fixture::with(team);
    let source = Single(model);
    let emitted = Mutex::new(Vec::new());
    let mut session = Session::new(&source, &fixture.sandbox).observed(|notice| {
        if let Notice::Emit(response) = notice {
            emitted.lock().unwrap().push((*response).clone());
        }
    });
    session.threads = threads;
    let caller = Caller {
        npc: fixture.team.npcs.iter().find(|npc| npc.name == "worker"),
        ..Caller::person(&session, &fixture.team)
    };
    let jinx = fixture.team.jinx("tried").unwrap();
    let arguments = jinx.arguments(arguments.as_object().unwrap(), &Offer::default()).unwrap();
    let result = run(jinx, arguments, &caller).unwrap();
    let trace = session.trace.entries().into_iter().map(|entry| {
        let mut entry = serde_json::to_value(entry).unwrap();
        for key in ["seconds", "work"] {
            entry.as_object_mut().unwrap().shift_remove(key);
        }
        entry.to_string()
    });
    let trace = trace.collect();
    let files = std::fs::read_dir(fixture.work()).unwrap().map(|entry| entry.unwrap().path());
    let files = files.map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, Value::from(std::fs::read_to_string(path).unwrap()))
    });
    let files = files.collect();
    drop(session);
    Played { result, emitted: emitted.into_inner().unwrap(), trace, files }
}

/// Checks the text for the model of the jinx `tried` with these steps.
fn check(steps: &str, expected: &str) {
    let text = format!("jinx_name: tried\n{steps}");
    let played = play(team(&[&text]), &json!({}), &Scripted::default(), 4);
    assert_eq!(played.result.text(1000), expected, "{steps}");
}

/// A model that replies with its prompt in capitals, after some milliseconds.
struct Echo;

impl ChatModel for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let text = request.messages.last().map(|message| message.content.to_uppercase()).unwrap_or_default();
        std::thread::sleep(std::time::Duration::from_millis(text.len() as u64 % 7));
        let done = Event::Done { finish: Finish::Stop, usage: Usage::default() };
        Ok(Box::new([Ok(Event::Text { text }), Ok(done)].into_iter()))
    }
}
