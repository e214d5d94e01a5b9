use serde_json::{Map, Value, json};

use super::*;
use crate::expression::Key;
use crate::ledger::{Change, Ledger};
use crate::source::Source;
use crate::types::Diagnostic;
use crate::yaml::Node;
use alara_text::request::{Tool, ToolChoice};

const BANK: &str = "\
start: triage
facts:
  identified: \"ok('get_user*')\"
  verified: \"ok('log_verification')\"
retries:
  log_verification: [3, escalate]
  call_tool: [2, escalate]
queue: {from: planning, before: [[transfer, clos*]], done: \"ok('call_tool')\"}
triage:
  goal: Find out who asks
  tools: [get_user*, kb_search]
  next: [[verify, identified]]
verify: {tools: [log_verification], next: [[planning, verified]]}
planning: {tools: [kb_search], next: [[execute, \"not queue.empty\"], [confirm, turns >= 4]]}
execute: {tools: [call_tool, kb_search], gate: verified, expect: call, next: [[confirm, queue.empty]]}
confirm: {expect: text, next: [[execute, identified and not queue.empty]]}
escalate: {tools: [transfer], expect: call, next: [[confirm, \"ok('transfer')\"]]}
";

const TOOLS: [&str; 7] =
    ["get_user_by_id", "get_user_by_name", "kb_search", "log_verification", "call_tool", "transfer", "shell"];

fn tools() -> Vec<String> {
    TOOLS.map(str::to_owned).to_vec()
}

/// The parsed phases, and the diagnostics as `line: message`.
fn read_text(text: &str) -> (Option<Phases>, Vec<String>) {
    let source = Source { path: "a.npc".into(), text: text.to_owned() };
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    let node = Node::parse(&source, &mut diagnostics).unwrap();
    let tools = tools();
    let (ledger, lost) = (std::collections::BTreeSet::from(["order".to_owned()]), |_: &[Key]| None);
    let listed = Listed { tools: &tools, hidden: &[], beside: &|_| false, ledger: &ledger, lost: &lost };
    let phases = read(&source, &node, &listed, &mut diagnostics).ok();
    let told = diagnostics.iter().map(|problem| format!("{}: {}", problem.location.line, problem.message));
    (phases, told.collect())
}

fn bank() -> Phases {
    let (phases, told) = read_text(BANK);
    assert_eq!(told, Vec::<String>::new());
    phases.unwrap()
}

fn result(machine: &mut Machine, tool: &str, ok: bool) {
    machine.apply(Event::Turn { calls: true }, &[]);
    machine.apply(Event::Result { tool, inner: None, arguments: &Map::new(), ok }, &[]);
}

fn plan(machine: &mut Machine, tasks: &[&str]) {
    let arguments = json!({"tasks": tasks});
    machine.apply(Event::Turn { calls: true }, &[]);
    machine.apply(
        Event::Result { tool: PLAN, inner: None, arguments: arguments.as_object().unwrap(), ok: true },
        &[],
    );
}

#[test]
fn a_conversation_goes_its_way() {
    let phases = bank();
    let mut machine = Machine::new(&phases, &[]);
    machine.apply(Event::User, &[]);
    assert_eq!(
        machine.block(),
        "<phase>\nname: triage\ngoal: Find out who asks\n\
         turn: answer with a text, or call one of get_user*, kb_search\nfacts: none yet\n</phase>"
    );
    let mut went = vec![machine.state().phase.clone()];
    let steps: [(&str, bool); 3] =
        [("get_user_by_id", false), ("get_user_by_id", true), ("log_verification", true)];
    for (tool, ok) in steps {
        result(&mut machine, tool, ok);
        went.push(machine.state().phase.clone());
    }
    plan(&mut machine, &["close the account", "transfer 5"]);
    assert_eq!(machine.state().pending, ["transfer 5", "close the account"]);
    assert_eq!(
        machine.block(),
        "<phase>\nname: execute\nturn: call one of call_tool, kb_search\nfacts: identified, verified\n\
         left: transfer 5; close the account\n</phase>"
    );
    went.push(machine.state().phase.clone());
    for (tool, ok) in [("call_tool", true), ("call_tool", false), ("call_tool", true)] {
        result(&mut machine, tool, ok);
        went.push(machine.state().phase.clone());
    }
    assert_eq!(went, ["triage", "triage", "verify", "planning", "execute", "execute", "execute", "confirm"]);
    assert_eq!((machine.state().pending.len(), machine.state().done.len()), (0, 2));
}

#[test]
fn what_a_turn_may_be_follows_from_the_phase() {
    let phases = bank();
    let tools: Vec<Tool> = TOOLS
        .iter()
        .map(|name| Tool {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: json!({}),
            strict: false,
        })
        .chain(phases.queue.as_ref().map(Queue::tool))
        .collect();
    let among = |names: &[&str], required| ToolChoice::Among {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        required,
    };
    let check = |phase: &str, free: ToolChoice, forced: ToolChoice| {
        let phases = Phases { start: phase.to_owned(), ..phases.clone() };
        let machine = Machine::new(&phases, &[]);
        assert_eq!(machine.choice(&tools, &[], None), free, "{phase}");
        assert_eq!(machine.choice(&tools, &[], Some("finish")), forced, "{phase}");
    };
    check("verify", among(&["log_verification"], false), among(&["log_verification", "finish"], true));
    check(
        "planning",
        among(&["kb_search", "plan_tasks"], false),
        among(&["kb_search", "plan_tasks", "finish"], true),
    );
    check("confirm", ToolChoice::None, among(&["finish"], true));
    check("escalate", among(&["transfer"], true), among(&["transfer"], true));
    // If none of its tools exist, it can't be required to call one.
    let machine = Machine::new(&phases, &[]);
    assert_eq!(machine.choice(&[], &[], None), ToolChoice::None);
}

#[test]
fn a_budget_that_is_used_up_is_overridden_by_nothing() {
    let phases = bank();
    let mut machine = Machine::new(&phases, &[]);
    result(&mut machine, "get_user_by_id", true);
    for _ in 0..2 {
        result(&mut machine, "log_verification", false);
    }
    assert_eq!((machine.state().phase.as_str(), machine.state().retries["log_verification"]), ("verify", 2));
    result(&mut machine, "log_verification", false);
    assert_eq!(machine.state().phase, "escalate");
    assert!(machine.permits("transfer") && !machine.permits("log_verification"));
    // The budget is restored, so that the way continues from there.
    result(&mut machine, "transfer", true);
    assert_eq!(machine.state().phase, "confirm");
    // A refused call doesn't count as an attempt.
    let mut machine = Machine::new(&phases, &[]);
    for _ in 0..5 {
        result(&mut machine, "log_verification", false);
        result(&mut machine, "log_verification", true);
    }
    assert_eq!((machine.state().phase.as_str(), machine.state().counts.len()), ("triage", 0));
}

#[test]
fn nobody_is_in_a_phase_whose_gate_is_closed() {
    let text = "\
start: work
work: {tools: [call_tool], next: [[pay, \"ok('call_tool')\"]]}
prove: {tools: [log_verification], next: [[pay, \"ok('log_verification')\"]]}
pay: {tools: [transfer], gate: \"ok('log_verification') > failed('transfer')\", expect: either}
";
    let (phases, told) = read_text(text);
    assert_eq!(told, Vec::<String>::new());
    let phases = phases.unwrap();
    assert_eq!(phases.phase("pay").unwrap().gate.as_ref().unwrap().phase, "prove");
    let mut machine = Machine::new(&phases, &[]);
    result(&mut machine, "call_tool", true);
    assert_eq!(machine.state().phase, "prove");
    result(&mut machine, "log_verification", true);
    assert_eq!(machine.state().phase, "pay");
    result(&mut machine, "transfer", false);
    assert_eq!(machine.state().phase, "prove", "it closed again");
}

#[test]
fn what_conditions_know_of_a_ledger_counts_from_the_next_event_on() {
    let text = "\
start: a
facts: {paid: \"order.status == 'paid'\", open: not paid}
a: {tools: [kb_search], next: [[b, paid]]}
b: {expect: text, next: [[a, open]]}
";
    let (phases, told) = read_text(text);
    assert_eq!(told, Vec::<String>::new());
    let phases = phases.unwrap();
    let mut machine = Machine::new(&phases, &[]);
    machine.apply(Event::User, &[]);
    let holding = |machine: &Machine| machine.standing().facts;
    assert_eq!((machine.state().phase.as_str(), holding(&machine)), ("a", vec![]), "neither is known");
    let path = || vec!["order".to_owned(), "status".to_owned()];
    let mut ledger = Ledger::default();
    ledger.apply(&Change::Known { path: path(), value: json!("paid") });
    machine.apply(Event::User, &[&ledger]);
    assert_eq!((machine.state().phase.as_str(), holding(&machine)), ("b", vec!["paid".to_owned()]));
    ledger.apply(&Change::Stale { path: path() });
    machine.apply(Event::User, &[&ledger]);
    assert_eq!((machine.state().phase.as_str(), holding(&machine)), ("b", vec![]), "not known any more");
    ledger.apply(&Change::Known { path: path(), value: json!("open") });
    machine.apply(Event::User, &[&ledger]);
    assert_eq!((machine.state().phase.as_str(), holding(&machine)), ("a", vec!["open".to_owned()]));
}

/// A reference implementation of the machine, without expressions, patterns and folds.
#[derive(Debug, Default)]
struct Model {
    phase: &'static str,
    identified: bool,
    verified: bool,
    transferred: bool,
    failures: [u32; 2],
    left: Vec<&'static str>,
    turns: u32,
}

impl Model {
    fn permits(&self, tool: &str) -> bool {
        match self.phase {
            "triage" => tool.starts_with("get_user") || tool == "kb_search",
            "verify" => tool == "log_verification",
            "planning" => tool == "kb_search" || tool == "plan_tasks",
            "execute" => tool == "call_tool" || tool == "kb_search",
            "escalate" => tool == "transfer",
            _ => false,
        }
    }

    fn goto(&mut self, phase: &'static str) {
        (self.phase, self.turns) = (phase, 0);
    }

    fn result(&mut self, tool: &str, ok: bool, tasks: &[&'static str]) {
        if !self.permits(tool) {
            return;
        }
        match (tool, ok) {
            ("get_user_by_id" | "get_user_by_name", true) => self.identified = true,
            ("transfer", true) => self.transferred = true,
            ("log_verification", true) => (self.verified, self.failures[0]) = (true, 0),
            ("log_verification", false) => self.failures[0] += 1,
            ("call_tool", false) => self.failures[1] += 1,
            ("call_tool", true) => {
                self.failures[1] = 0;
                if !self.left.is_empty() {
                    self.left.remove(0);
                }
            }
            ("plan_tasks", true) => {
                self.left = tasks.to_vec();
                if let [close, transfer, ..] = self.left.as_mut_slice() {
                    std::mem::swap(close, transfer);
                }
            }
            _ => {}
        }
        self.on();
    }

    fn on(&mut self) {
        if self.failures[0] >= 3 && self.phase != "escalate" {
            self.failures[0] = 0;
            return self.goto("escalate");
        }
        if self.failures[1] >= 2 && self.phase != "escalate" {
            self.failures[1] = 0;
            return self.goto("escalate");
        }
        let mut been = vec![self.phase];
        loop {
            let to = match self.phase {
                "triage" if self.identified => "verify",
                "verify" if self.verified => "planning",
                "planning" if !self.left.is_empty() => "execute",
                "planning" if self.turns >= 4 => "confirm",
                "execute" if self.left.is_empty() => "confirm",
                "confirm" if self.identified && !self.left.is_empty() => "execute",
                "escalate" if self.transferred => "confirm",
                _ => return,
            };
            let to = if to == "execute" && !self.verified { "verify" } else { to };
            if been.contains(&to) {
                return;
            }
            been.push(to);
            self.goto(to);
        }
    }
}

/// Tries every tool at every step, with either result: no call that the reference refuses gets
/// through, and both are always in the same phase.
#[test]
fn random_conversations_go_as_an_independent_model_says() {
    let phases = bank();
    let all = [TOOLS.as_slice(), &["plan_tasks"]].concat();
    let tasks: [&'static str; 3] = ["close it", "transfer 5", "ask"];
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        // Marsaglia's xorshift.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut reached = std::collections::BTreeSet::new();
    for sequence in 0..10_000 {
        let (mut machine, mut model) =
            (Machine::new(&phases, &[]), Model { phase: "triage", ..Model::default() });
        for _ in 0..30 {
            let permitted: Vec<&str> = all.iter().copied().filter(|tool| machine.permits(tool)).collect();
            let expected: Vec<&str> = all.iter().copied().filter(|tool| model.permits(tool)).collect();
            assert_eq!(permitted, expected, "{sequence}: {model:?}");
            match random(10) {
                0 => {
                    machine.apply(Event::User, &[]);
                    model.on();
                }
                1 => {
                    machine.apply(Event::Turn { calls: false }, &[]);
                    model.turns += 1;
                    model.on();
                }
                _ => {
                    // Mostly permitted calls, otherwise nothing would ever happen.
                    let from = if random(3) > 0 && !permitted.is_empty() { &permitted } else { &all };
                    let tool = from[random(from.len())];
                    let (ok, count) = (random(5) > 1, 1 + random(3));
                    let arguments = json!({"tasks": tasks[..count]});
                    machine.apply(Event::Turn { calls: true }, &[]);
                    machine.apply(
                        Event::Result { tool, inner: None, arguments: arguments.as_object().unwrap(), ok },
                        &[],
                    );
                    model.turns += 1;
                    model.result(tool, ok, &tasks[..count]);
                }
            }
            assert_eq!(machine.state().phase, model.phase, "{sequence}");
            assert_eq!(machine.state().pending, model.left, "{sequence}");
            reached.insert(model.phase);
        }
    }
    assert_eq!(reached.len(), 6, "all phases but none else: {reached:?}");
}

#[test]
fn a_file_and_its_record_say_the_same() {
    let phases = bank();
    let written: Value = serde_json::to_value(&phases).unwrap();
    assert_eq!(serde_json::from_value::<Phases>(written).unwrap(), phases);
}

#[test]
fn mistakes_are_told_with_place_and_remedy() {
    let check = |from: &str, to: &str, expected: &[&str]| {
        assert!(BANK.contains(from), "{from}");
        let (phases, told) = read_text(&BANK.replace(from, to));
        assert_eq!(
            (phases, told.iter().map(String::as_str).collect::<Vec<_>>()),
            (None, expected.to_vec()),
            "{to}"
        );
    };
    check("start: triage", "start: traige", &["1: there is no phase `traige`, did you mean `triage`?"]);
    check(
        "start: triage\n",
        "",
        &["1: `start` must say in which phase a conversation begins: `start: triage`"],
    );
    check("goal: Find", "gaol: Find", &["10: a phase has no key `gaol`, did you mean `goal`?"]);
    check(
        "[[verify, identified]]",
        "[verify, identified]",
        &["12: `next` is a list of pairs, with brackets around the pairs too: [[verify, identified]]"],
    );
    check(
        "[[verify, identified]]",
        "[[verify, identifed]]",
        &["12: `identifed` is not known here, did you mean `identified`?"],
    );
    check(
        "[get_user*, kb_search]",
        "[get_user*, kb_serch]",
        &[
            "11: no tool of the NPC is called `kb_serch`, did you mean `kb_search`? If not, list it under `jinxes`",
        ],
    );
    check("expect: text", "expect: txt", &["16: `expect` is one of text, call, either, not `txt`"]);
    check(
        "expect: text",
        "expect: call",
        &["16: it expects a call, but has no tools: list them under `tools`, or write `expect: text`"],
    );
    check(
        "[[planning, verified]]",
        "[[verified, planning]]",
        &[
            "13: there is no phase `verified`, that is a fact: a pair begins with the phase",
            "13: `planning` is not known here: name it under `facts` (facts before this: identified, verified)",
        ],
    );
    check("gate: verified", "when: verified", &["15: a phase has no key `when`, did you mean `gate`?"]);
    check(
        "turns >= 4",
        "turns >= 4 || identified",
        &["14: a filter is missing before `|`; for `||` write `or`"],
    );
    check(
        "[[verify, identified]]",
        "[[verify, '{{ identified }}']]",
        &["12: an expression has no braces around it: \"identified\""],
    );
    check(
        "ok('get_user*')",
        "ok('get_usr_by_id')",
        &[
            "3: `ok('get_usr_by_id')`: no tool of the NPC is called so, did you mean `get_user_by_id`? If not, list it under `jinxes`",
        ],
    );
    check(
        "retries:",
        "retrys:",
        &[
            "5: `retrys` is read as a phase, but has none of its keys: goal, tools, expect, gate, next; did you mean `retries`?",
        ],
    );
    check(
        "[3, escalate]",
        "3",
        &[
            "6: the budget of `log_verification` must be a pair [3, escalate]: after so many failures in a row, that phase",
        ],
    );
    check(
        "ok('log_verification')",
        "ok(log_verification)",
        &["4: `ok` takes the name of a tool in quotes: ok('get_*')"],
    );
    check(
        "gate: verified",
        "gate: turns > 3",
        &[
            "15: a gate can't depend on turns or answers, whose count begins anew in each phase",
            "15: no phase without this gate has a tool that opens it: name the phase to go to, `gate: [verify, turns > 3]`",
        ],
    );
    check(
        "gate: verified",
        "gate: [execute, verified]",
        &["15: the way to open it leads through itself: execute is behind a gate too"],
    );
    check(
        "[2, escalate]",
        "[2, execute]",
        &[
            "7: nothing may override a budget, but `execute` has a gate: leave that out, or name another phase",
        ],
    );
    check(
        "queue: {from: planning, ",
        "queue: {",
        &["8: `queue` must say in which phase the list is made: `from: planning`"],
    );
    check(
        "[kb_search], next: [[execute",
        "[kb_search, plan_tasks], next: [[execute",
        &["14: `plan_tasks` is there in the phase that the queue is made in, `from`: leave it out here"],
    );
}

#[test]
fn what_can_never_come_to_pass_is_told() {
    let check = |from: &str, to: &str, expected: &[&str]| {
        assert!(BANK.contains(from), "{from}");
        let (phases, told) = read_text(&BANK.replace(from, to));
        assert!(phases.is_some(), "{told:?}");
        assert_eq!(told, expected, "{to}");
    };
    check(
        "escalate: {tools",
        "island: {expect: text}\nescalate: {tools",
        &["17: no way leads to the phase `island`: name it in the `next` of another, or leave it out"],
    );
    check(
        "[[confirm, \"ok('transfer')\"]]",
        "[]",
        &[
            "17: the phase `escalate` has no way out: neither in it nor in one that follows may the model answer; add a `next`, or write `expect: either`",
        ],
    );
    check("turns >= 4", "turns < 0", &["14: `turns < 0` can never hold here, so this way is never taken"]);
    check(
        "done: \"ok('call_tool')\"",
        "done: \"ok('shell')\"",
        &["8: no phase that is reached has a tool that ends a task: the queue is never empty again"],
    );
    check(
        "  verified:",
        "  never: \"ok('shell') > 2\"\n  verified:",
        &[
            "4: `never` can never hold: no phase that is reached has the tools for it; add them to `tools` of a phase before",
        ],
    );
}

/// The machine of the study as published, and a corrected one.
#[test]
fn the_stock_phases_are_read_without_a_remark_and_are_short() {
    let team = crate::Team::stock("bank").unwrap();
    assert_eq!(team.check(), []);
    for name in ["clerk", "paper"] {
        let npc = team.npc(Some(name)).unwrap();
        let phases = npc.phases.as_ref().unwrap();
        assert!(phases.phases.len() >= 7, "{name}");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../teams/bank")
            .join(format!("{name}.npc"));
        let lines = std::fs::read_to_string(path).unwrap().lines().count();
        assert!(lines < 60, "{name} has {lines} lines");
    }
    let verify = |npc: &str, phase: &str| {
        let phases = team.npc(Some(npc)).unwrap().phases.as_ref().unwrap();
        phases.phase(phase).unwrap().expect
    };
    assert_eq!((verify("paper", "verification"), verify("clerk", "verify")), (Expect::Call, Expect::Either));
}

/// A user that the published machine has identified without the data to verify them can't be asked
/// for it.
#[test]
fn the_published_machine_can_not_ask_and_the_corrected_one_can() {
    let team = crate::Team::stock("bank").unwrap();
    let tools: Vec<Tool> = crate::prompt::tools(&team, team.npc(Some("paper")).unwrap());
    let identified = |npc: &str| {
        let phases = team.npc(Some(npc)).unwrap().phases.as_ref().unwrap();
        let mut machine = Machine::new(phases, &[]);
        machine.apply(Event::User, &[]);
        if npc == "paper" {
            machine.apply(Event::Turn { calls: false }, &[]);
            machine.apply(Event::User, &[]);
        }
        result(&mut machine, "get_user_by_name", true);
        machine.choice(&tools, &[], None)
    };
    assert_eq!(
        identified("paper"),
        ToolChoice::Among { names: vec!["log_verification".into()], required: true }
    );
    assert!(!identified("clerk").must_call());
    assert!(identified("clerk").permits("log_verification") && !identified("clerk").permits("call_tool"));
}

/// An NPC that should be bound to phases does not run without them.
#[test]
fn an_npc_whose_phases_can_not_be_read_does_not_run() {
    let check = |phases: &str, expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("team.ctx", "forenpc: free\n");
        write("free.npc", "name: free\nprimary_directive: x\n");
        write("bound.npc", &format!("name: bound\nprimary_directive: x\njinxes: [shell]\n{phases}\n"));
        let team = crate::Team::load(folder.path()).unwrap();
        team.npc(Some("free")).unwrap().may_run().unwrap();
        let told: Vec<String> = team.diagnostics.iter().map(|problem| problem.message.clone()).collect();
        match team.npc(Some("bound")).unwrap().may_run() {
            Ok(()) => assert_eq!((expected, told), ("", vec![]), "{phases}"),
            Err(error) => {
                assert!(error.to_string().contains(expected), "{phases}: {error}");
                assert!(told.iter().any(|message| message.contains(expected)), "{phases}: {told:?}");
                assert!(!expected.is_empty());
            }
        }
    };
    check("phases: {start: work, work: {tools: [shell]}}", "");
    check("phases: {start: wrok, work: {tools: [shell]}}", "did you mean `work`?");
    check("phases: {start: work, work: {tools: [python]}}", "list it under `jinxes`");
    check("phases: []", "this must be a mapping");
    check("phases: {}", "there is no phase");
    check("phases:", "`phases` says nothing");
    check("gate:", "`gate` says nothing");
    check("phase: {start: work, work: {tools: [shell]}}", "did you mean `phases`?");
}
