//! The phase and state of a conversation: folded from its events.

use std::collections::BTreeMap;
use std::sync::Arc;

use alara_text::request::{Tool, ToolChoice};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::values;
use super::{Budget, Condition, Expect, PLAN, Phase, Phases};
use crate::expression::{Counter, Names, Truth, fits};
use crate::hidden::CALL;
use crate::ledger::Ledger;

/// An event in a conversation.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// The user sent a message.
    User,
    /// The model took a turn.
    Turn {
        /// Whether it makes calls.
        calls: bool,
    },
    /// A call returned that was made, and not only refused for being too late.
    Result {
        /// The tool.
        tool: &'e str,
        /// The inner tool, for a call of a hidden tool.
        inner: Option<&'e str>,
        /// Its arguments.
        arguments: &'e Map<String, Value>,
        /// Whether it succeeded.
        ok: bool,
    },
}

/// The state of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The phase.
    pub phase: String,
    /// The facts, and whether they are true.
    pub facts: BTreeMap<String, bool>,
    /// The remaining tasks, in order.
    pub pending: Vec<String>,
    /// The finished tasks.
    pub done: Vec<String>,
    /// How often each tool has failed since it last succeeded, or since its budget was last used
    /// up.
    pub retries: BTreeMap<String, u64>,
    /// The model's turns in this phase.
    pub turns: u64,
    /// Those turns that made no call.
    pub answers: u64,
    /// The results of calls, by tool; for a call of a hidden tool, the inner tool follows after a
    /// space.
    pub counts: Arc<BTreeMap<String, Count>>,
}

/// The state of a conversation as a trace records it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The phase.
    pub phase: String,
    /// The facts that are true, in alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
    /// The remaining tasks, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// The finished tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<String>,
    /// How often tools have failed in a row.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retries: BTreeMap<String, u64>,
}

/// The results of a tool's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many succeeded.
    pub ok: u64,
    /// How many failed.
    pub failed: u64,
}

/// Phases, and the state of a conversation among them.
///
/// After each event the next phase is determined: a used-up budget comes first, then the gate of
/// the phase, then its ways in order.
/// This repeats until no way is open; no phase is entered twice meanwhile, and a closed gate leads
/// to the gate's phase.
/// Calls of one turn are processed one by one: the phase after the first applies to the second.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine<'p> {
    phases: &'p Phases,
    state: State,
}

impl<'p> Machine<'p> {
    /// The beginning of a conversation, with these ledgers.
    pub fn new(phases: &'p Phases, ledgers: &[&Ledger]) -> Self {
        let mut machine =
            Machine { phases, state: State { phase: phases.start.clone(), ..State::default() } };
        machine.look(ledgers);
        machine
    }

    /// The phases.
    pub fn phases(&self) -> &'p Phases {
        self.phases
    }

    /// Its state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its state as a trace records it.
    pub fn standing(&self) -> Standing {
        let State { phase, facts, pending, done, retries, .. } = self.state.clone();
        let facts = facts.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect();
        Standing { phase, facts, pending, done, retries }
    }

    /// The current phase.
    pub fn phase(&self) -> Option<&'p Phase> {
        self.phases.phase(&self.state.phase)
    }

    /// Applies an event, with the ledgers as they are after it.
    pub fn apply(&mut self, event: Event, ledgers: &[&Ledger]) {
        match event {
            Event::User => {}
            Event::Turn { calls } => {
                self.state.turns += 1;
                // Its calls were written in this phase; their results can change it.
                if calls {
                    return;
                }
                self.state.answers += 1;
            }
            Event::Result { tool, inner, arguments, ok } => {
                // It was refused: it never ran.
                if !self.permits_call(tool, inner) {
                    return;
                }
                self.count(tool, inner, arguments, ok, ledgers);
            }
        }
        self.settle(ledgers);
    }

    /// Whether a tool may be called now.
    pub fn permits(&self, tool: &str) -> bool {
        self.phase().is_some_and(|phase| permits(self.phases, phase, tool))
    }

    /// Whether a call may be made now, judging also by the inner tool's name.
    pub fn permits_call(&self, tool: &str, inner: Option<&str>) -> bool {
        self.permits(tool) || inner.is_some_and(|inner| self.permits(inner))
    }

    /// The patterns of the tools that may be called now.
    pub fn open(&self) -> Vec<&'p str> {
        let Some(phase) = self.phase().filter(|phase| phase.expect != Expect::Text) else {
            return Vec::new();
        };
        let queue = self.phases.queue.as_ref().filter(|queue| queue.from == phase.name);
        phase.tools.iter().map(String::as_str).chain(queue.map(|_| PLAN)).collect()
    }

    /// The options for the next turn of an NPC with these tools.
    /// `unlocked` are the hidden tools that may be called now.
    /// `finish` is the tool with which it answers, if each turn is a call.
    pub fn choice(&self, tools: &[Tool], unlocked: &[&Tool], finish: Option<&str>) -> ToolChoice {
        let calls = |tool: &Tool| tool.name == CALL && !unlocked.is_empty();
        let permitted = tools.iter().filter(|tool| self.permits(&tool.name) || calls(tool));
        let mut names: Vec<String> = permitted.map(|tool| tool.name.clone()).collect();
        // Don't require a call that can't be made: there may be fewer tools than the file lists.
        let expect = match self.phase().map_or(Expect::Text, |phase| phase.expect) {
            _ if names.is_empty() => Expect::Text,
            expect => expect,
        };
        match finish {
            None if expect == Expect::Text => ToolChoice::None,
            None => ToolChoice::Among { names, required: expect == Expect::Call },
            Some(finish) => {
                if expect != Expect::Call {
                    names.push(finish.to_owned());
                }
                ToolChoice::Among { names, required: true }
            }
        }
    }

    /// The state as the model reads it; unchanged as long as none of it changes.
    pub fn block(&self) -> String {
        let Some(phase) = self.phase() else { return String::new() };
        let mut lines = vec!["<phase>".to_owned(), format!("name: {}", phase.name)];
        if !phase.goal.is_empty() {
            lines.push(format!("goal: {}", phase.goal));
        }
        let open = self.open().join(", ");
        lines.push(match phase.expect {
            _ if open.is_empty() => "turn: answer with a text".to_owned(),
            Expect::Call => format!("turn: call one of {open}"),
            _ => format!("turn: answer with a text, or call one of {open}"),
        });
        let holding: Vec<&str> =
            self.state.facts.iter().filter(|(_, holds)| **holds).map(|(name, _)| name.as_str()).collect();
        if !self.phases.facts.is_empty() {
            let holding = if holding.is_empty() { "none yet".to_owned() } else { holding.join(", ") };
            lines.push(format!("facts: {holding}"));
        }
        for (what, tasks) in [("done", &self.state.done), ("left", &self.state.pending)] {
            if !tasks.is_empty() {
                lines.push(format!("{what}: {}", tasks.join("; ")));
            }
        }
        lines.push("</phase>".to_owned());
        lines.join("\n")
    }

    fn count(
        &mut self,
        tool: &str,
        inner: Option<&str>,
        arguments: &Map<String, Value>,
        ok: bool,
        ledgers: &[&Ledger],
    ) {
        let names = || [tool].into_iter().chain(inner);
        let call = names().collect::<Vec<_>>().join(" ");
        let count = Arc::make_mut(&mut self.state.counts).entry(call.clone()).or_default();
        if ok {
            count.ok += 1;
            self.state.retries.retain(|name, _| names().all(|other| other != name));
        } else {
            count.failed += 1;
            names().for_each(|name| *self.state.retries.entry(name.to_owned()).or_default() += 1);
        }
        let Some(queue) = &self.phases.queue else { return };
        if tool == PLAN {
            if ok {
                self.state.pending = queue.order(arguments).tasks;
            }
        } else if !self.state.pending.is_empty() {
            // The condition is about this call alone.
            let last = |counter, pattern: &str| {
                let so = match counter {
                    Counter::Ok => ok,
                    Counter::Failed => !ok,
                    Counter::Said => return None,
                };
                Some(u64::from(is_counted(pattern, &call) && so))
            };
            let values = self.values();
            let names = Names::default().with_values(&values).with_counts(&last).with_ledgers(ledgers);
            if queue.done.is_met(&names) {
                let task = self.state.pending.remove(0);
                self.state.done.push(task);
            }
        }
    }

    fn values(&self) -> Map<String, Value> {
        let State { pending, done, turns, answers, .. } = &self.state;
        values(pending, done, *turns, *answers)
    }

    /// Computes the facts; returns the names for conditions with them.
    /// A fact that depends on an unknown value is unknown too.
    fn look(&mut self, ledgers: &[&Ledger]) -> Map<String, Value> {
        let mut values = self.values();
        for fact in &self.phases.facts {
            let truth = self.truth(&fact.when, &values, ledgers);
            if truth != Truth::Unknown {
                values.insert(fact.name.clone(), (truth == Truth::True).into());
            }
            self.state.facts.insert(fact.name.clone(), truth == Truth::True);
        }
        values
    }

    /// A condition that can't be evaluated is unknown.
    fn truth(&self, condition: &Condition, values: &Map<String, Value>, ledgers: &[&Ledger]) -> Truth {
        let count = |counter, pattern: &str| {
            let fitting = self.state.counts.iter().filter(|(call, _)| is_counted(pattern, call));
            match counter {
                Counter::Ok => Some(fitting.map(|(_, count)| count.ok).sum()),
                Counter::Failed => Some(fitting.map(|(_, count)| count.failed).sum()),
                Counter::Said => None,
            }
        };
        let names = Names::default().with_values(values).with_counts(&count).with_ledgers(ledgers);
        condition.truth(&names).unwrap_or(Truth::Unknown)
    }

    fn settle(&mut self, ledgers: &[&Ledger]) {
        let mut values = self.look(ledgers);
        if let Some(budget) = self.used_up() {
            self.state.retries.retain(|tool, _| !fits(&budget.tool, tool));
            self.enter(&budget.phase);
            self.look(ledgers);
            return;
        }
        let mut visited = vec![self.state.phase.clone()];
        while let Some(phase) = self.phase() {
            let is_met = |condition: &Condition| self.truth(condition, &values, ledgers) == Truth::True;
            let kept = self.admitted(&phase.name, &is_met);
            let to = if kept == phase.name {
                let Some(next) = phase.next.iter().find(|next| is_met(&next.when)) else { break };
                let to = self.admitted(&next.phase, &is_met);
                if visited.iter().any(|phase| phase == to) {
                    break;
                }
                to
            } else {
                // A conversation doesn't stay behind a closed gate.
                kept
            };
            self.enter(to);
            values = self.look(ledgers);
            if visited.iter().any(|phase| phase == to) {
                break;
            }
            visited.push(to.to_owned());
        }
    }

    /// The first used-up budget that leads to another phase.
    fn used_up(&self) -> Option<&'p Budget> {
        let used = |budget: &&Budget| {
            let mut failing = self.state.retries.iter().filter(|(tool, _)| fits(&budget.tool, tool));
            budget.phase != self.state.phase && failing.any(|(_, failures)| *failures >= budget.failures)
        };
        self.phases.retries.iter().find(used)
    }

    /// The phase that is entered instead of `phase`: itself, or where the gates on the way lead.
    fn admitted(&self, phase: &'p str, is_met: &dyn Fn(&Condition) -> bool) -> &'p str {
        let mut at = phase;
        for _ in 0..=self.phases.phases.len() {
            let gate = self.phases.phase(at).and_then(|phase| phase.gate.as_ref());
            match gate.filter(|gate| !is_met(&gate.when)) {
                Some(gate) => at = &gate.phase,
                None => return at,
            }
        }
        // Gates in a cycle, which can't come from a parsed file.
        &self.phases.start
    }

    fn enter(&mut self, phase: &str) {
        phase.clone_into(&mut self.state.phase);
        (self.state.turns, self.state.answers) = (0, 0);
    }
}

/// Whether a pattern matches a call: its tool, or the inner one.
fn is_counted(pattern: &str, call: &str) -> bool {
    call.split(' ').any(|tool| fits(pattern, tool))
}

/// Whether a tool may be called in a phase.
pub fn permits(phases: &Phases, phase: &Phase, tool: &str) -> bool {
    if phase.expect == Expect::Text {
        return false;
    }
    match &phases.queue {
        Some(queue) if tool == PLAN => queue.from == phase.name,
        _ => phase.tools.iter().any(|pattern| fits(pattern, tool)),
    }
}
