//! Hidden tools: nothing reveals their names, unlocked tools are called as themselves, and this
//! costs neither prefix hits nor a resume.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use alara_engine::{Engine, Format, Message, Request, ToolCall, ToolChoice, violation};
use serde_json::{Map, Value, json};

use super::masked::{engine, formats, told};
use crate::hidden::{self, CALL, UNLOCK};
use crate::model::{ChatModel, Events, ModelError, Reply, Scripted, Single};
use crate::resume::resume;
use crate::run::{Agent, Session};
use crate::team::Team;
use crate::testing::Fixture;
use crate::trace::{self, Entry, Record, Trace};
use crate::types::{ToolResult, Verdict};

const CLERK: &str = "\
name: clerk
primary_directive: Help.
limits: {turns: 60, turn_tokens: 160, repeated_calls: 99}
jinxes: [look_up, 'hidden/*_fee_*', 'hidden/freeze_*']
";

const GATE: &str = r#"
observe:
  get_fee_8046: {path: "fees.{{ args.id }}", types: {status: string}}
writes:
  refund_fee_7791: {path: "fees.{{ args.id }}.status", value: "'refunded'"}
  freeze_card_4471: {stale: []}
rules:
  charged: {tools: refund_fee_*, need: "fees[args.id].status == 'charged'", fetch: "the document says how"}
  staff: {tools: call_tool, need: "args.tool != 'freeze_card_4471' or args.arguments.card != 'staff'"}
"#;

/// Name, inputs, effect and result of each jinx.
/// Only the boss lists the last one.
const TOOLS: [(&str, &str, &str, &str); 5] = [
    ("look_up", "", "read", "a document"),
    ("hidden/get_fee_8046", "{id: {type: integer, enum: [1, 2]}}", "read", "{status: charged}"),
    ("hidden/refund_fee_7791", "{id: {type: integer, enum: [1, 2]}}", "write", "gone"),
    ("hidden/freeze_card_4471", "{card: {type: string, enum: [staff, plain]}}", "write", "frozen"),
    ("hidden/close_card_9062", "{id: {type: integer}}", "write", "closed"),
];
const HIDDEN: [&str; 4] = ["get_fee_8046", "refund_fee_7791", "freeze_card_4471", "close_card_9062"];

fn team(clerk: &str) -> (Team, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("team.ctx", "name: desk\nforenpc: clerk\n");
    write("clerk.npc", clerk);
    write("boss.npc", "name: boss\nprimary_directive: Lead.\njinxes: [close_card_9062]\n");
    if clerk.contains("gate: desk") {
        write("desk.gate", GATE);
    }
    for (path, inputs, effect, result) in TOOLS {
        let name = path.trim_start_matches("hidden/");
        let hidden = path != name;
        let text = format!(
            "jinx_name: {name}\ndescription: A tool.\ninputs: [{inputs}]\neffect: {effect}\nhidden: {hidden}\n\
             steps:\n- emit: {{type: ran, content: {name}}}\n- return: {result}\n"
        );
        write(&format!("jinxes/{path}.jinx"), &text);
    }
    let team = Team::load(directory.path()).unwrap();
    (team, directory)
}

fn gated() -> String {
    format!("{CLERK}gate: desk\n")
}

/// The trace of a conversation with these replies, and the model's requests.
fn held(fixture: &Fixture, replies: Vec<Reply>) -> (Vec<Entry>, Vec<Request>) {
    let model = Scripted::new(replies.into_iter().chain([Reply::text("Done.")]));
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let mut agent = Agent::new(&session, &fixture.team, fixture.team.npc(None).unwrap(), None).unwrap();
    agent.run("go").unwrap();
    (session.trace.entries(), model.requests())
}

fn unlock(name: &str) -> Reply {
    Reply::call(UNLOCK, json!({"name": name}))
}

fn call(tool: &str, arguments: Value) -> Reply {
    let arguments = [("tool".to_owned(), tool.into()), ("arguments".to_owned(), arguments)];
    Reply::call(CALL, Map::from_iter(arguments).into())
}

/// The effects of a call: its result, the verdicts on it, and what ran.
struct Done {
    call: ToolCall,
    result: ToolResult,
    verdicts: Vec<(String, Verdict, String)>,
    ran: Vec<String>,
}

fn done(entries: &[Entry]) -> Vec<Done> {
    let (mut all, mut verdicts, mut ran) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        match &*entry.record {
            Record::Permission { jinx, verdict, by } => {
                let by = by.split(" of ").next().unwrap_or_default().to_owned();
                verdicts.push((jinx.clone(), *verdict, by));
            }
            Record::Emit { response } => ran.push(response["content"].as_str().unwrap().to_owned()),
            Record::ToolResult { call, result, .. } => all.push(Done {
                call: call.clone(),
                result: result.clone(),
                verdicts: std::mem::take(&mut verdicts),
                ran: std::mem::take(&mut ran),
            }),
            _ => {}
        }
    }
    all
}

fn head(request: &Request) -> String {
    let listed = request.tools.iter().filter(|tool| !request.unlisted.contains(&tool.name));
    serde_json::to_string(&(&request.system, listed.collect::<Vec<_>>())).unwrap()
}

#[test]
fn nobody_tells_a_name_and_all_guesses_are_answered_alike() {
    let (team, _directory) = team(&gated());
    assert_eq!(team.check(), []);
    let fixture = Fixture::with(team);
    // On the clerk's list, on another's, a tool that is not hidden, and nothing at all.
    let guesses = ["refund_fee_7791", "close_card_9062", "look_up", "burn_card_1234"];
    let by_itself = |name: &str| Reply::call(name, json!({"id": 1}));
    let replies = guesses
        .iter()
        .map(|name| call(name, json!({"id": 1})))
        .chain(guesses[1..].iter().map(|name| unlock(name)))
        .chain([guesses[0], guesses[1], guesses[3]].map(by_itself));
    let (entries, requests) = held(&fixture, replies.collect());
    let calls = done(&entries);
    assert_eq!(calls.len(), 10);
    let told = |done: &Done, name: &str| {
        let verdicts =
            done.verdicts.iter().map(|(jinx, verdict, by)| (jinx.replace(name, "X"), *verdict, by.clone()));
        (done.result.error.replace(name, "X"), done.result.ok, verdicts.collect::<Vec<_>>(), done.ran.clone())
    };
    for (range, names) in [(0..4, &guesses[..]), (4..7, &guesses[1..])] {
        let told: Vec<_> = calls[range].iter().zip(names).map(|(done, name)| told(done, name)).collect();
        assert!(told.iter().all(|one| *one == told[0] && !one.1 && one.3.is_empty()), "{told:?}");
    }
    assert_eq!(
        calls[0].result.error,
        "`refund_fee_7791` is not unlocked: call `unlock_tool` with its exact name first"
    );
    let own: Vec<_> = calls[7..].iter().map(|done| told(done, &done.call.name)).collect();
    assert!(own.iter().all(|one| *one == own[0]), "{own:?}");
    assert_eq!(own[0].0, "`X` is not permitted; the tools are: look_up, unlock_tool, call_tool");
    // Neither the prompt nor the input of the grammar contains a name that the model didn't write.
    for request in &requests {
        assert_eq!(head(request), head(&requests[0]));
        assert!(request.bound.is_empty());
    }
    let first = serde_json::to_string(&requests[0]).unwrap();
    assert!(HIDDEN.iter().all(|name| !first.contains(name)), "{first}");
    let names: Vec<&str> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["look_up", UNLOCK, CALL]);
    let last = serde_json::to_string(&requests.last().unwrap().messages).unwrap();
    assert!(["get_fee_8046", "freeze_card_4471"].iter().all(|name| !last.contains(name)), "{last}");
}

#[test]
fn what_is_unlocked_is_called_as_itself_and_gated_once() {
    let (team, _directory) = team(&gated());
    let fixture = Fixture::with(team);
    let refund = || call("refund_fee_7791", json!({"id": 1}));
    let replies = vec![
        unlock("refund_fee_7791"),
        refund(),
        unlock(" get_fee_8046"),
        call("get_fee_8046", json!({"id": 1})),
        refund(),
        refund(),
        call("get_fee_8046", json!({"n": 1})),
        call("get_fee_8046", json!({"id": 3})),
        Reply::call("get_fee_8046", json!({"id": 1})),
        unlock("freeze_card_4471"),
        call("freeze_card_4471", json!({"card": "staff"})),
        call("freeze_card_4471", json!("{\"card\": \"plain\"}")),
        call("close_card_9062", json!({"id": 1})),
    ];
    let (entries, requests) = held(&fixture, replies);
    let calls = done(&entries);
    let check = |at: usize, ok: bool, says: &str, by: &[(&str, Verdict, &str)], ran: &str| {
        let Done { result, verdicts, ran: did, .. } = &calls[at];
        let text = if ok { result.output.to_string() } else { result.error.clone() };
        let text = result.blocked.as_ref().map_or(text, |blocked| blocked.reason.clone());
        assert!(result.ok == ok && text.contains(says), "{at}: {text}");
        let verdicts: Vec<(&str, Verdict, &str)> =
            verdicts.iter().map(|(jinx, verdict, by)| (jinx.as_str(), *verdict, by.as_str())).collect();
        let gate = verdicts
            .iter()
            .map(|(jinx, verdict, by)| (*jinx, *verdict, if by.ends_with(".gate") { "gate" } else { by }));
        assert_eq!(gate.collect::<Vec<_>>(), by, "{at}");
        assert_eq!(did.concat(), ran, "{at}");
    };
    let (allow, deny) = (Verdict::Allow, Verdict::Deny);
    check(0, true, r#""enum":[1,2]"#, &[], "");
    check(1, false, "`fees.1.status` is not known", &[("refund_fee_7791", deny, "the rule `charged`")], "");
    check(2, true, "get_fee_8046", &[], "");
    check(3, true, "charged", &[("get_fee_8046", allow, "gate")], "get_fee_8046");
    check(4, true, "gone", &[("refund_fee_7791", allow, "gate")], "refund_fee_7791");
    check(5, false, "the rule `charged` is not kept", &[("refund_fee_7791", deny, "the rule `charged`")], "");
    check(6, false, "has no argument `n`", &[], "");
    check(7, false, "must be one of [1,2]", &[], "");
    check(8, false, "is called by `call_tool`, as in", &[("get_fee_8046", deny, "the NPC's list")], "");
    check(9, true, "freeze_card_4471", &[], "");
    // A rule about the calling tool applies together with those about the tool that it calls.
    check(10, false, "the rule `staff` is not kept", &[("freeze_card_4471", deny, "the rule `staff`")], "");
    check(11, true, "frozen", &[("freeze_card_4471", allow, "gate")], "freeze_card_4471");
    check(12, false, "is not unlocked", &[("call_tool", deny, "what is unlocked")], "");
    // The prompt stays; the grammar's constraint on the call grows.
    let bound: Vec<usize> =
        requests.iter().map(|request| request.bound.get(CALL).map_or(0, Vec::len)).collect();
    assert_eq!(bound, [0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3]);
    assert!(requests.iter().all(|request| head(request) == head(&requests[0])));
    let schema = &requests.last().unwrap().bound[CALL][1];
    let fits = |tool: &str, arguments: Value| {
        violation(schema, json!({"tool": tool, "arguments": arguments}).as_object().unwrap()).is_none()
    };
    assert!(fits("get_fee_8046", json!({"id": 2})));
    assert!(!fits("get_fee_8046", json!({"id": 3})) && !fits("refund_fee_7791", json!({"id": 2})));
}

#[test]
fn phases_count_and_bound_what_stands_in_a_call() {
    let phases = "\
phases:
  start: look
  retries: {refund_fee_*: [2, tell]}
  look: {tools: [unlock_tool], next: [[act, \"ok('unlock_tool') > 1\"]]}
  act: {tools: [freeze_*], next: [[more, \"ok('freeze_card_4471') == 1 and ok('*') == 3\"]]}
  more: {tools: [call_tool]}
  tell: {expect: text}
";
    let (team, _directory) = team(&format!("{CLERK}{phases}"));
    assert_eq!(team.diagnostics, []);
    let fixture = Fixture::with(team);
    let refund = || call("refund_fee_7791", json!({"id": 9}));
    let replies = vec![
        unlock("freeze_card_4471"),
        unlock("refund_fee_7791"),
        refund(),
        call("freeze_card_4471", json!({"card": "plain"})),
        refund(),
        refund(),
    ];
    let (entries, requests) = held(&fixture, replies);
    let phases = entries.iter().filter_map(|entry| match &*entry.record {
        Record::Phase(standing) => Some(standing.phase.as_str()),
        _ => None,
    });
    let mut phases: Vec<&str> = phases.collect();
    phases.dedup();
    assert_eq!(phases, ["look", "act", "more", "tell"]);
    let calls = done(&entries);
    assert_eq!(calls[2].verdicts, [(CALL.to_owned(), Verdict::Deny, "the phase `act`".to_owned())]);
    assert!(calls[3].result.ok && calls[4].result.error.contains("must be one of"));
    let asked = |at: usize| {
        let among = match &requests[at].tool_choice {
            ToolChoice::Among { names, .. } => names.join(" "),
            other => format!("{other:?}"),
        };
        let bound = requests[at].bound.get(CALL).into_iter().flatten();
        (
            among,
            bound.map(|schema| schema["properties"]["tool"]["enum"][0].as_str().unwrap()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(asked(0), (UNLOCK.to_owned(), vec![]));
    assert_eq!(asked(1), (UNLOCK.to_owned(), vec![]), "unlocked, but not to be called in this phase");
    assert_eq!(asked(2), (CALL.to_owned(), vec!["freeze_card_4471"]));
    assert_eq!(asked(4), (CALL.to_owned(), vec!["freeze_card_4471", "refund_fee_7791"]));
    assert_eq!(asked(6), ("None".to_owned(), vec![]));
}

#[test]
fn what_is_wrong_with_hidden_tools_is_told() {
    let told = |clerk: &str| -> Vec<String> {
        let (team, directory) = team(clerk);
        let root = format!("{}/", directory.path().display());
        team.check().into_iter().map(|one| one.to_string().replace(&root, "")).collect()
    };
    assert_eq!(told(&gated()), [""; 0]);
    let phases = |tools: &str| format!("{CLERK}phases:\n  start: a\n  a: {{tools: [{tools}]}}\n");
    assert_eq!(told(&phases("unlock_tool, call_tool, freeze_*")), [""; 0]);
    assert_eq!(
        told(&phases("freeze_card_4471")),
        [
            "clerk.npc:7:15: error: `freeze_card_4471` is hidden, but the model is told what a phase names: write `call_tool`, or a pattern without the end of the name"
        ]
    );
    let unreached = told(&CLERK.replace(", 'hidden/freeze_*'", ", unlock_tool"));
    assert_eq!(
        unreached,
        [
            "clerk.npc:4:37: warning: `unlock_tool` is among the tools of whoever lists hidden jinxes: leave it out here",
            "jinxes/hidden/freeze_card_4471.jinx: warning: no NPC can unlock the hidden jinx `freeze_card_4471`: list it under `jinxes` of those that may",
        ]
    );
}

/// The bank of the benchmark, whose documents are outside its team.
#[test]
fn the_bank_hides_fifteen_tools_and_is_in_order() {
    let team = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/bank/team");
    let team = Team::load(&team).unwrap();
    let told: Vec<String> = team.check().iter().map(ToString::to_string).collect();
    let others = told.iter().filter(|told| !told.contains("knowledge") && !told.contains("SKILL.md"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(team.jinxes.iter().filter(|jinx| jinx.hidden).count(), 15);
    for npc in &team.npcs {
        npc.may_run().unwrap();
        let tools = crate::prompt::tools(&team, npc);
        let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert!(names.contains(UNLOCK) && names.contains(CALL) && names.contains("hand_over"));
        assert!(team.jinxes.iter().all(|jinx| !jinx.hidden || !names.contains(jinx.name.as_str())));
    }
}

/// Kills the run after each record in turn.
#[test]
fn what_is_unlocked_survives_a_kill() {
    let (team, directory) = team(CLERK);
    let fixture = Fixture::with(team);
    let path = directory.path().join("trace.jsonl");
    let work = || {
        vec![
            unlock("refund_fee_7791"),
            call("refund_fee_7791", json!({"id": 1})),
            unlock("freeze_card_4471"),
            call("refund_fee_7791", json!({"id": 2})),
            call("freeze_card_4471", json!({"card": "plain"})),
        ]
    };
    let is_cut_off = |result: &ToolResult| !result.ok;
    let results = |entries: &[Entry]| -> Vec<String> {
        let ended = done(entries).into_iter().filter(|done| !is_cut_off(&done.result));
        ended.map(|done| done.result.output.to_string()).collect()
    };
    let npc = fixture.team.npc(None).unwrap();
    let run = |trace: Trace, from: usize, earlier: Option<(String, Vec<Arc<Record>>)>| {
        let model = Scripted::new(work().into_iter().skip(from).chain([Reply::text("Done.")]));
        let source = Single(&model);
        let mut session = Session::new(&source, &fixture.sandbox);
        session.trace = trace;
        let mut agent = match earlier {
            None => Agent::new(&session, &fixture.team, npc, None).unwrap(),
            Some((scope, records)) => Agent::resume(&session, &fixture.team, npc, &scope, records).unwrap(),
        };
        agent.run("go on").unwrap();
        (session.trace.entries(), model.requests())
    };
    let (entries, _) = run(Trace::create(&path).unwrap(), 0, None);
    let (expected, text) = (results(&entries), std::fs::read_to_string(&path).unwrap());
    assert_eq!(expected.len(), work().len());
    for (at, entry) in entries.iter().enumerate().skip(1) {
        let lines: Vec<&str> = text.lines().take(at + 1).collect();
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let ended = results(&trace::read(&path).unwrap()).len();
        let mut resumed = resume(&path, fixture.work(), None).unwrap();
        let (scope, conversation) = resumed.take("clerk");
        let (again, requests) = run(resumed.trace, ended, Some((scope, conversation.records)));
        assert_eq!(results(&again), expected, "killed behind record {at}: {:?}", entry.record);
        let unlocked = if ended == 0 { 0 } else { 1 + usize::from(ended > 2) };
        assert_eq!(requests[0].bound.get(CALL).map_or(0, Vec::len), unlocked, "{at}");
    }
}

#[test]
fn each_conversation_unlocks_for_itself() {
    let (team, _directory) = team(CLERK);
    let fixture = Fixture::with(team);
    let freeze = || call("freeze_card_4471", json!({"card": "plain"}));
    let model =
        Scripted::new([unlock("freeze_card_4471"), freeze(), Reply::text("a"), freeze(), Reply::text("b")]);
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let npc = fixture.team.npc(None).unwrap();
    let mut one = Agent::new(&session, &fixture.team, npc, None).unwrap();
    one.run("go").unwrap();
    let mut records = one.into_records();
    let mut other = Agent::new(&session, &fixture.team, npc, None).unwrap();
    other.run("go").unwrap();
    let oks: Vec<bool> = done(&session.trace.entries()).iter().map(|done| done.result.ok).collect();
    assert_eq!(oks, [true, true, false]);
    let request = |records: &[Arc<Record>]| trace::request(records.iter().map(|record| &**record));
    assert_eq!(request(&records).bound[CALL].len(), 1);
    // The model reads again what was compacted; a retracted unlock never happened.
    records.push(Arc::new(Record::Compaction { summary: "short".into(), kept: 0 }));
    let shortened = request(&records);
    let told = shortened.messages.last().unwrap().content.clone();
    assert!(
        told.starts_with("short\n\n<unlocked>\n{\"name\":\"freeze_card_4471\"")
            && told.ends_with("\n</unlocked>"),
        "{told}"
    );
    records.push(Arc::new(Record::User { text: "and?".into() }));
    assert_eq!(request(&records).messages.last().unwrap().content.matches("<unlocked>").count(), 1);
    assert_eq!(request(&records).bound, shortened.bound);
    records.truncate(records.len() - 2);
    records.push(Arc::new(Record::Retract));
    assert!(request(&records).bound.is_empty());
}

/// A model with random weights whose first answers are given.
struct Led<'a> {
    engine: &'a Engine,
    answers: Mutex<VecDeque<Message>>,
    requests: Mutex<Vec<Request>>,
}

impl<'a> Led<'a> {
    fn new(engine: &'a Engine, calls: &[(&str, Value)]) -> Self {
        let answers = calls.iter().map(|(name, arguments)| {
            let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
            let call = ToolCall { id: String::new(), name: (*name).to_owned(), arguments };
            Message::assistant("", vec![call])
        });
        Led { engine, answers: Mutex::new(answers.collect()), requests: Mutex::default() }
    }
}

impl ChatModel for Led<'_> {
    fn name(&self) -> &str {
        "random"
    }

    fn chat(&self, mut request: Request) -> Result<Events<'_>, ModelError> {
        self.requests.lock().unwrap().push(request.clone());
        request.answer = self.answers.lock().unwrap().pop_front();
        self.engine.chat(request)
    }

    fn context(&self) -> Option<usize> {
        ChatModel::context(self.engine)
    }

    fn format(&self) -> Option<&'static Format> {
        ChatModel::format(self.engine)
    }
}

#[test]
fn a_random_model_can_only_write_what_is_unlocked() {
    let phases = "\
phases:
  start: look
  look: {tools: [unlock_tool], expect: call, next: [[act, \"ok('unlock_tool') > 1\"]]}
  act: {tools: [call_tool], expect: call, next: [[tell, \"turns > 3\"]]}
  tell: {expect: text}
";
    let (team, _directory) = team(&format!("{}{phases}", CLERK.replace("turns: 60", "turns: 6")));
    let fixture = Fixture::with(team);
    let first = [(UNLOCK, json!({"name": "freeze_card_4471"})), (UNLOCK, json!({"name": "get_fee_8046"}))];
    for format in formats() {
        let engine = engine(format, 2);
        let mut seen = BTreeSet::new();
        for round in 0..12u8 {
            let model = Led::new(&engine, &first);
            let temperature = [0.7, 1.5, 4.0][usize::from(round) % 3];
            let calls = done(&told(&["go"], &model, &fixture, round.into(), temperature));
            assert_eq!(calls.len(), 6);
            for call in &calls[2..] {
                assert!(call.result.ok && call.call.name == CALL, "{:?}: {}", call.call, call.result.error);
                seen.insert(Value::Object(call.call.arguments.clone()).to_string());
            }
            let requests = model.requests.into_inner().unwrap();
            assert!(requests.iter().all(|request| head(request) == head(&requests[0])));
        }
        println!("{seen:?}");
        let names = |name: &str| seen.iter().any(|call| call.contains(name));
        assert!(names("freeze_card_4471") && names("get_fee_8046") && !names("refund"), "{seen:?}");
    }
}

#[test]
fn unlocking_costs_no_prefix_hit() {
    let (team, _directory) = team(&CLERK.replace("turns: 60", "turns: 4"));
    let fixture = Fixture::with(team);
    for format in formats() {
        let lost = |name: &str| -> Vec<usize> {
            let engine = engine(format, 2);
            let calls = [(UNLOCK, json!({"name": name})), ("look_up", json!({})), ("look_up", json!({}))];
            let model = Led::new(&engine, &calls);
            let entries = told(&["go"], &model, &fixture, 3, 0.0);
            let bound = model.requests.lock().unwrap().last().unwrap().bound.len();
            assert_eq!(bound, usize::from(hidden::is_unguessable(name)));
            let usage = entries.iter().filter_map(|entry| match &*entry.record {
                Record::Assistant { usage, .. } => Some((usage.prompt_tokens, usage.cached_tokens)),
                _ => None,
            });
            let usage: Vec<(usize, usize)> = usage.collect();
            usage.iter().zip(&usage[1..]).map(|(before, after)| before.0.saturating_sub(after.1)).collect()
        };
        let (unlocking, failing) = (lost("freeze_card_4471"), lost("nothing"));
        println!("{unlocking:?} {failing:?}");
        assert_eq!(unlocking, failing);
        assert!(unlocking.len() >= 3 && unlocking.iter().all(|lost| *lost < 8), "{unlocking:?}");
    }
}
