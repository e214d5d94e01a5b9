//! The decoder's view of phases.
//! A model with random weights can't even write a call that its phase forbids, and the permitted
//! calls change without the prompt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use alara_engine::{Engine, Format, Gguf, KvType, Options, Request, SamplingOverrides, ToolChoice};

use crate::model::{ChatModel, Events, ModelError, Single};
use crate::run::{Agent, Session};
use crate::team::Team;
use crate::testing::Fixture;
use crate::trace::{Entry, Record, normalised};

/// Two calls, then a text; then calls of the third tool, or texts.
const PAINTER: &str = "\
name: painter
primary_directive: Paint.
limits: {turns: 4, turn_tokens: 120, repeated_calls: 9}
jinxes: [red, green, blue]
phases:
  start: first
  first: {tools: [red], expect: call, next: [[second, \"ok('red')\"]]}
  second: {tools: [blue], expect: call, next: [[third, \"ok('blue')\"]]}
  third: {expect: text, next: [[fourth, answers > 0]]}
  fourth: {tools: [green]}
";

/// As [`PAINTER`], except that `red` leads nowhere.
const DAUBER: (&str, &str) = ("[[second, \"ok('red')\"]]", "[[second, \"ok('red') > 9\"]]");

fn team(painter: &str) -> (Team, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("jinxes")).unwrap();
    std::fs::write(directory.path().join("team.ctx"), "name: paint\nforenpc: painter\n").unwrap();
    std::fs::write(directory.path().join("painter.npc"), painter).unwrap();
    for name in ["red", "green", "blue"] {
        let text = format!(
            "jinx_name: {name}\ndescription: Paints.\ninputs: [{{on: {{type: string, enum: [wall, door]}}}}]\neffect: none\n\
             steps: [{{engine: text, text: 'done'}}]\n"
        );
        std::fs::write(directory.path().join(format!("jinxes/{name}.jinx")), text).unwrap();
    }
    (Team::load(directory.path()).unwrap(), directory)
}

pub(super) fn engine(format: Option<&'static Format>, threads: usize) -> Engine {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
    let options = Options {
        kv: KvType::F32,
        threads,
        tool_format: format,
        thinking: Some(false),
        ..Options::default()
    };
    Engine::load(&Gguf::open(&file).unwrap(), &options).unwrap()
}

/// An engine that records its requests, and that may call anything if it is `unmasked`.
struct Watched<'a> {
    engine: &'a Engine,
    unmasked: bool,
    requests: Mutex<Vec<Request>>,
}

impl<'a> Watched<'a> {
    fn new(engine: &'a Engine) -> Self {
        Watched { engine, unmasked: false, requests: Mutex::default() }
    }
}

impl ChatModel for Watched<'_> {
    fn name(&self) -> &str {
        "random"
    }

    fn chat(&self, mut request: Request) -> Result<Events<'_>, ModelError> {
        self.requests.lock().unwrap().push(request.clone());
        if self.unmasked && request.tool_choice.must_call() {
            request.tool_choice = ToolChoice::Required;
        }
        self.engine.chat(request)
    }

    fn context(&self) -> Option<usize> {
        ChatModel::context(self.engine)
    }

    fn format(&self) -> Option<&'static Format> {
        ChatModel::format(self.engine)
    }
}

/// A conversation of two messages.
fn talk(model: &dyn ChatModel, fixture: &Fixture, seed: u64, temperature: f32) -> Vec<Entry> {
    told(&["paint it", "and now?"], model, fixture, seed, temperature)
}

/// A conversation in which the team's agent gets these messages.
pub(super) fn told(
    texts: &[&str],
    model: &dyn ChatModel,
    fixture: &Fixture,
    seed: u64,
    temperature: f32,
) -> Vec<Entry> {
    let source = Single(model);
    let mut session = Session::new(&source, &fixture.sandbox);
    session.sampling = SamplingOverrides {
        seed: Some(seed),
        temperature: Some(temperature),
        ..SamplingOverrides::default()
    };
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    for text in texts {
        agent.run(text).unwrap();
    }
    session.trace.entries()
}

/// The called tools, and whether each ran.
fn called(entries: &[Entry]) -> Vec<(String, bool)> {
    let called = entries.iter().filter_map(|entry| match &*entry.record {
        Record::ToolResult { call, result, .. } => Some((call.name.clone(), result.ok)),
        _ => None,
    });
    called.collect()
}

/// What a model wrote in the turns of each phase: the tools, and how often none.
type Written = BTreeMap<String, BTreeMap<String, usize>>;

fn write_down(entries: &[Entry], written: &mut Written) {
    let mut phase = String::new();
    for entry in entries {
        match &*entry.record {
            Record::Phase(standing) => phase.clone_from(&standing.phase),
            Record::Assistant { message, .. } => {
                let tools = written.entry(phase.clone()).or_default();
                let names = message.tool_calls.iter().map(|call| call.name.clone());
                let none = message.tool_calls.is_empty().then(String::new);
                names.chain(none).for_each(|name| *tools.entry(name).or_default() += 1);
            }
            _ => {}
        }
    }
}

/// The model's own format of calls, and one in which each turn is a call.
pub(super) fn formats() -> [Option<&'static Format>; 2] {
    [None, Some(Format::generic())]
}

#[test]
fn a_random_model_can_not_even_write_what_its_phase_forbids() {
    let (team, _directory) = team(PAINTER);
    let fixture = Fixture::with(team);
    for format in formats() {
        let engine = engine(format, 2);
        let mut written = Written::new();
        for round in 0..24u8 {
            let watched = Watched::new(&engine);
            let temperature = [0.0, 0.7, 1.5, 4.0][usize::from(round) % 4];
            let entries = talk(&watched, &fixture, round.into(), temperature);
            write_down(&entries, &mut written);
            let calls = called(&entries);
            assert!(calls.iter().all(|(_, ran)| *ran), "{calls:?}");
            assert!(calls.iter().map(|(name, _)| name).take(2).eq(["red", "blue"]), "{calls:?}");
            // The permitted calls changed twice or more, and no byte before the messages.
            let requests = watched.requests.into_inner().unwrap();
            let head = |request: &Request| {
                let listed = request.tools.iter().filter(|tool| !request.unlisted.contains(&tool.name));
                serde_json::to_string(&(&request.system, listed.collect::<Vec<_>>())).unwrap()
            };
            assert!(requests.iter().all(|request| head(request) == head(&requests[0])));
            let choices: Vec<&ToolChoice> = requests.iter().map(|request| &request.tool_choice).collect();
            assert!(choices.windows(2).take(3).all(|pair| pair[0] != pair[1]), "{choices:?}");
        }
        println!("{:?}: {written:?}", format.map(|format| &format.name));
        let names = |phase: &str| written[phase].keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((names("first"), names("second"), names("third")), (vec!["red"], vec!["blue"], vec![""]));
        assert!(names("fourth").iter().all(|name| ["", "green"].contains(name)), "{written:?}");
        assert_eq!((written["first"]["red"], written["third"][""]), (24, 24));
    }
}

/// The mask is the reason that no call above was forbidden: without it there are forbidden calls,
/// and none of them runs.
#[test]
fn without_the_mask_it_writes_such_calls_and_none_runs() {
    let (team, _directory) = team(PAINTER);
    let fixture = Fixture::with(team);
    let engine = engine(None, 2);
    let mut written = Written::new();
    for round in 0..8 {
        let watched = Watched { unmasked: true, ..Watched::new(&engine) };
        let entries = talk(&watched, &fixture, round, 1.5);
        write_down(&entries, &mut written);
        let ran: Vec<String> =
            called(&entries).into_iter().filter(|(_, ran)| *ran).map(|(name, _)| name).collect();
        assert!(
            ["red", "blue"]
                .starts_with(&ran.iter().map(String::as_str).collect::<Vec<_>>()[..ran.len().min(2)]),
            "{ran:?}"
        );
    }
    println!("{written:?}");
    assert!(written["first"].keys().any(|name| name != "red"), "{written:?}");
}

/// The tokens of each turn's prompt, and how many of them were cached.
fn hits(painter: &str, format: Option<&'static Format>) -> (Vec<(usize, usize)>, Vec<String>) {
    let (team, _directory) = team(painter);
    let fixture = Fixture::with(team);
    let engine = engine(format, 2);
    let entries = talk(&engine, &fixture, 7, 0.0);
    let usage = entries.iter().filter_map(|entry| match &*entry.record {
        Record::Assistant { usage, .. } => Some((usage.prompt_tokens, usage.cached_tokens)),
        _ => None,
    });
    let phases = entries.iter().filter_map(|entry| match &*entry.record {
        Record::Phase(standing) => Some(standing.phase.clone()),
        _ => None,
    });
    (usage.collect(), phases.collect())
}

#[test]
fn a_change_of_phase_costs_no_prefix_hit() {
    for format in formats() {
        let (changing, phases) = hits(PAINTER, format);
        let (staying, stays) = hits(&PAINTER.replace(DAUBER.0, DAUBER.1), format);
        println!("{:?}: {changing:?}, {staying:?}", format.map(|format| &format.name));
        assert_eq!(
            (phases[..2].join(" "), stays[0].as_str(), stays.len()),
            ("first second".to_owned(), "first", 1)
        );
        // The same turn, with and without another phase after the result.
        assert_eq!(changing[0], staying[0]);
        assert!(changing[1].0 > staying[1].0, "the new phase is told");
        assert_eq!(changing[1].1, staying[1].1);
        // Everything from before is a hit, in each turn, whatever its phase.
        // Except the head of an answer: templates write it differently once there is an answer.
        let lost = |turns: &[(usize, usize)]| {
            let pairs = turns.iter().zip(&turns[1..]);
            pairs.map(|(before, after)| before.0.saturating_sub(after.1)).collect::<BTreeSet<usize>>()
        };
        assert_eq!(lost(&changing), lost(&staying));
        assert!(lost(&changing).iter().all(|lost| *lost < 8), "{changing:?}");
    }
}

#[test]
fn phases_are_the_same_with_1_and_8_threads() {
    let (team, _directory) = team(PAINTER);
    let fixture = Fixture::with(team);
    for format in formats() {
        let told = [1, 8].map(|threads| {
            let engine = engine(format, threads);
            let talks = (0..4).map(|seed| talk(&engine, &fixture, seed, 1.0));
            talks.map(|entries| entries.iter().map(normalised).collect::<Vec<_>>()).collect::<Vec<_>>()
        });
        assert_eq!(told[0], told[1]);
    }
}
