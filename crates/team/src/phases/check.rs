//! Checks phases that were parsed: names that lead nowhere are errors; outcomes that can never
//! happen are reported.

use std::collections::{BTreeMap, BTreeSet};

use alara_text::nearest;

use super::condition::{Uses, uses};
use super::machine::permits;
use super::samples::met;
use super::{Condition, Expect, Gate, Listed, PLAN, Phase, Phases};
use crate::expression::{Counter, fits};
use crate::hidden::CALL;
use crate::source::Source;
use crate::types::{Diagnostic, Location};
use crate::yaml::Node;

/// Checks phases, and finds the phases that gates lead to.
pub fn check(source: &Source, node: &Node, phases: &mut Phases, listed: &Listed) -> Vec<Diagnostic> {
    let mut found = Check { source, node, listed, found: Vec::new() };
    found.names(phases);
    let known = found.conditions(phases);
    if found.found.is_empty() {
        found.gates(phases, &known);
    }
    if found.found.is_empty() {
        found.outcomes(phases, &known);
    }
    found.found
}

/// Checks the names in phases of which a part is unreadable.
pub fn names(source: &Source, node: &Node, phases: &Phases, listed: &Listed) -> Vec<Diagnostic> {
    let mut found = Check { source, node, listed, found: Vec::new() };
    found.names(phases);
    found.found
}

struct Check<'a> {
    source: &'a Source,
    node: &'a Node,
    listed: &'a Listed<'a>,
    found: Vec<Diagnostic>,
}

/// The uses in facts and conditions, by their text.
type Known = BTreeMap<String, Uses>;

/// The outcomes that can happen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Possible {
    phases: BTreeSet<String>,
    facts: BTreeSet<String>,
}

impl Check<'_> {
    /// The location of a key or an item, by its path of keys: `verify/next/0`.
    fn at(&self, path: &str) -> Location {
        match path.rsplit_once('/') {
            Some((above, key)) => {
                let above = self.node.at(&format!("/{above}"));
                let entry = above.entries().and_then(|entries| entries.iter().find(|entry| entry.key == key));
                entry.map_or_else(|| above.at(&format!("/{key}")).location, |entry| entry.location)
            }
            None => {
                let entry =
                    self.node.entries().and_then(|entries| entries.iter().find(|entry| entry.key == path));
                entry.map_or(self.node.location, |entry| entry.location)
            }
        }
    }

    fn error(&mut self, path: &str, message: impl Into<String>) {
        self.found.push(self.source.error(self.at(path), message));
    }

    fn warning(&mut self, path: &str, message: impl Into<String>) {
        self.found.push(self.source.warning(self.at(path), message));
    }

    /// Checks the names of phases and tools.
    fn names(&mut self, phases: &Phases) {
        let mut named = vec![("start".to_owned(), phases.start.as_str())];
        named.extend(phases.queue.iter().map(|queue| ("queue/from".to_owned(), queue.from.as_str())));
        named.extend(
            phases.retries.iter().map(|budget| (format!("retries/{}", budget.tool), budget.phase.as_str())),
        );
        for phase in &phases.phases {
            let ways = phase.next.iter().enumerate();
            named.extend(ways.map(|(at, next)| (format!("{}/next/{at}", phase.name), next.phase.as_str())));
            let gate = phase.gate.iter().filter(|gate| !gate.phase.is_empty());
            named.extend(gate.map(|gate| (format!("{}/gate", phase.name), gate.phase.as_str())));
        }
        for (path, name) in named {
            if phases.phase(name).is_none() {
                let names: Vec<&str> = phases.phases.iter().map(|phase| phase.name.as_str()).collect();
                let near = nearest(name, names.iter().copied());
                let hint = match near {
                    _ if phases.facts.iter().any(|fact| fact.name == name) => {
                        ", that is a fact: a pair begins with the phase".to_owned()
                    }
                    Some(near) => format!(", did you mean `{near}`?"),
                    None => format!(" (phases: {})", names.join(", ")),
                };
                self.error(&path, format!("there is no phase `{name}`{hint}"));
            }
        }
        let listed = self.listed;
        let is_there = |pattern: &str| listed.has(pattern);
        for phase in &phases.phases {
            for (at, pattern) in phase.tools.iter().enumerate() {
                let path = format!("{}/tools/{at}", phase.name);
                if pattern == PLAN && phases.queue.is_some() {
                    self.error(&path, format!("`{PLAN}` is there in the phase that the queue is made in, `from`: leave it out here"));
                } else if listed.hidden.contains(pattern) {
                    self.error(&path, format!("`{pattern}` is hidden, but the model is told what a phase names: write `{CALL}`, or a pattern without the end of the name"));
                } else if !is_there(pattern) {
                    self.error(
                        &path,
                        format!("no tool of the NPC is called `{pattern}`{}", self.hint(pattern)),
                    );
                }
            }
            let tools = phases.queue.as_ref().is_some_and(|queue| queue.from == phase.name)
                || !phase.tools.is_empty();
            match phase.expect {
                Expect::Call if !tools => {
                    self.error(&format!("{}/expect", phase.name), "it expects a call, but has no tools: list them under `tools`, or write `expect: text`");
                }
                Expect::Text if tools => {
                    self.error(&format!("{}/expect", phase.name), "it expects a text, so its tools can't be called: write `expect: either`, or leave them out");
                }
                _ => {}
            }
        }
        for budget in &phases.retries {
            let path = format!("retries/{}", budget.tool);
            let plans = phases.queue.is_some() && fits(&budget.tool, PLAN);
            if !plans && !is_there(&budget.tool) {
                self.error(
                    &path,
                    format!("no tool of the NPC is called `{}`{}", budget.tool, self.hint(&budget.tool)),
                );
            }
        }
        if phases.queue.is_some() && listed.tools.iter().any(|tool| tool == PLAN) {
            self.error("queue", format!("the queue makes a tool `{PLAN}`, but the NPC lists a jinx of this name: call that otherwise"));
        }
    }

    fn hint(&self, pattern: &str) -> String {
        let near = nearest(pattern, self.listed.tools.iter().map(String::as_str));
        near.map_or_else(
            || ": list it under `jinxes`, or leave it out".to_owned(),
            |near| format!(", did you mean `{near}`? If not, list it under `jinxes`"),
        )
    }

    /// Checks facts and conditions; returns their uses.
    fn conditions(&mut self, phases: &Phases) -> Known {
        let mut known = Known::new();
        let mut facts: Vec<&str> = Vec::new();
        for fact in &phases.facts {
            let path = format!("facts/{}", fact.name);
            if [
                "ok", "failed", "queue", "turns", "answers", "true", "false", "none", "not", "and", "or",
                "in", "is",
            ]
            .contains(&fact.name.as_str())
                || self.listed.ledger.contains(&fact.name)
            {
                self.error(
                    &path,
                    format!("`{}` means something else in conditions: call the fact otherwise", fact.name),
                );
            }
            self.condition(&path, &fact.when, phases, &facts, &mut known);
            facts.push(&fact.name);
        }
        if let Some(queue) = &phases.queue {
            self.condition("queue/done", &queue.done, phases, &[], &mut known);
        }
        for phase in &phases.phases {
            if let Some(gate) = &phase.gate {
                self.condition(&format!("{}/gate", phase.name), &gate.when, phases, &facts, &mut known);
            }
            for (at, next) in phase.next.iter().enumerate() {
                self.condition(&format!("{}/next/{at}", phase.name), &next.when, phases, &facts, &mut known);
            }
        }
        known
    }

    fn condition(
        &mut self,
        path: &str,
        condition: &Condition,
        phases: &Phases,
        facts: &[&str],
        known: &mut Known,
    ) {
        let uses = uses(condition, phases, facts, self.listed).and_then(|uses| {
            let all: BTreeSet<String> = facts.iter().map(|fact| (*fact).to_owned()).collect();
            // The compared value may be of another type.
            met(condition, &uses, &all, &|_| true).map(|_| uses)
        });
        match uses {
            Ok(uses) => {
                for (counter, pattern) in &uses.counted {
                    let plans = phases.queue.is_some() && fits(pattern, PLAN);
                    if !plans && !self.listed.has(pattern) {
                        let message = format!(
                            "`{}('{pattern}')`: no tool of the NPC is called so{}",
                            counter.name(),
                            self.hint(pattern)
                        );
                        self.error(path, message);
                    }
                }
                known.insert(condition.to_string(), uses);
            }
            Err(reason) => self.error(path, reason),
        }
    }

    /// Finds where gates lead, and those that can't be passed.
    fn gates(&mut self, phases: &mut Phases, known: &Known) {
        let mut resolved = Vec::new();
        for phase in &phases.phases {
            let Some(gate) = &phase.gate else { continue };
            let path = format!("{}/gate", phase.name);
            let (counted, names) = all_uses(&gate.when, phases, known);
            if names.contains("turns") || names.contains("answers") {
                self.error(
                    &path,
                    "a gate can't depend on turns or answers, whose count begins anew in each phase",
                );
            }
            let makes = |other: &&Phase| {
                let opens = |(counter, pattern): &(Counter, String)| {
                    *counter == Counter::Ok && self.can_call(phases, other, pattern)
                };
                other.gate.as_ref().is_none_or(|other| other.when != gate.when) && counted.iter().any(opens)
            };
            let to = if gate.phase.is_empty() {
                phases.phases.iter().find(makes).map(|phase| phase.name.clone())
            } else {
                Some(gate.phase.clone())
            };
            match to {
                Some(to) => resolved.push((phase.name.clone(), to)),
                None => self.error(
                    &path,
                    format!("no phase without this gate has a tool that opens it: name the phase to go to, `gate: [verify, {}]`", gate.when),
                ),
            }
        }
        for (name, to) in resolved {
            let phase = phases.phases.iter_mut().find(|phase| phase.name == name);
            if let Some(gate) = phase.and_then(|phase| phase.gate.as_mut()) {
                gate.phase = to;
            }
        }
        for phase in &phases.phases {
            let mut seen = vec![phase.name.as_str()];
            let gate_of = |name: &str| phases.phase(name).and_then(|phase| phase.gate.as_ref());
            while let Some(Gate { phase: to, .. }) = seen.last().and_then(|name| gate_of(name)) {
                if seen.contains(&to.as_str()) {
                    self.error(
                        &format!("{}/gate", phase.name),
                        format!("the way to open it leads through itself: {to} is behind a gate too"),
                    );
                    break;
                }
                seen.push(to);
            }
        }
        let is_gated = |name: &str| phases.phase(name).is_some_and(|phase| phase.gate.is_some());
        if is_gated(&phases.start) {
            self.error(
                "start",
                format!("a conversation can't begin in `{}`, which has a gate", phases.start),
            );
        }
        for budget in &phases.retries {
            if is_gated(&budget.phase) {
                let path = format!("retries/{}", budget.tool);
                self.error(&path, format!("nothing may override a budget, but `{}` has a gate: leave that out, or name another phase", budget.phase));
            }
        }
    }

    /// Reports outcomes that can never happen.
    fn outcomes(&mut self, phases: &Phases, known: &Known) {
        let possible = self.possible(phases, known);
        let can = |condition: &Condition| self.can(condition, phases, known, &possible);
        let mut remarks = Vec::new();
        for phase in phases.phases.iter().filter(|phase| !possible.phases.contains(&phase.name)) {
            let message = format!(
                "no way leads to the phase `{}`: name it in the `next` of another, or leave it out",
                phase.name
            );
            remarks.push((phase.name.clone(), message));
        }
        for fact in phases.facts.iter().filter(|fact| !possible.facts.contains(&fact.name)) {
            let message = format!(
                "`{}` can never hold: no phase that is reached has the tools for it; add them to `tools` of a phase before",
                fact.name
            );
            remarks.push((format!("facts/{}", fact.name), message));
        }
        if let Some(queue) = &phases.queue {
            let uses = known.get(&queue.done.to_string()).cloned().unwrap_or_default();
            let popped = reached(phases, &possible).any(|phase| {
                let tools = |pattern: &str| self.can_call(phases, phase, pattern);
                met(&queue.done, &uses, &BTreeSet::new(), &tools).unwrap_or(true)
            });
            if !popped {
                let message =
                    "no phase that is reached has a tool that ends a task: the queue is never empty again";
                remarks.push(("queue/done".to_owned(), message.to_owned()));
            }
        }
        for phase in reached(phases, &possible) {
            for (at, next) in phase.next.iter().enumerate() {
                if !can(&next.when) {
                    let message = format!("`{}` can never hold here, so this way is never taken", next.when);
                    remarks.push((format!("{}/next/{at}", phase.name), message));
                }
            }
            if !self.can_answer(phases, phase, &can) {
                let message = format!(
                    "the phase `{}` has no way out: neither in it nor in one that follows may the model answer; add a `next`, or write `expect: either`",
                    phase.name
                );
                remarks.push((phase.name.clone(), message));
            }
        }
        remarks.into_iter().for_each(|(path, message)| self.warning(&path, message));
    }

    /// Whether the model may answer in this phase or in a following one.
    fn can_answer(&self, phases: &Phases, phase: &Phase, can: &dyn Fn(&Condition) -> bool) -> bool {
        let mut seen: Vec<&str> = vec![&phase.name];
        let mut at = 0;
        while let Some(phase) = seen.get(at).and_then(|name| phases.phase(name)) {
            if phase.expect != Expect::Call {
                return true;
            }
            at += 1;
            for next in phase.next.iter().filter(|next| can(&next.when)) {
                if !seen.contains(&next.phase.as_str()) {
                    seen.push(&next.phase);
                }
            }
        }
        false
    }

    /// The outcomes that can happen: grows until nothing is added.
    fn possible(&self, phases: &Phases, known: &Known) -> Possible {
        let mut possible = Possible::default();
        possible.phases.insert(phases.start.clone());
        loop {
            let (mut names, mut facts) = (possible.phases.clone(), BTreeSet::new());
            for fact in &phases.facts {
                // Later facts may build on earlier ones.
                let so_far = Possible { phases: possible.phases.clone(), facts: facts.clone() };
                if self.can(&fact.when, phases, known, &so_far) {
                    facts.insert(fact.name.clone());
                }
            }
            let so_far = Possible { phases: possible.phases.clone(), facts: facts.clone() };
            for phase in reached(phases, &so_far) {
                for next in phase.next.iter().filter(|next| self.can(&next.when, phases, known, &so_far)) {
                    let gate = phases.phase(&next.phase).and_then(|phase| phase.gate.as_ref());
                    if gate.is_none_or(|gate| self.can(&gate.when, phases, known, &so_far)) {
                        names.insert(next.phase.clone());
                    }
                    names.extend(gate.map(|gate| gate.phase.clone()));
                }
                for budget in
                    phases.retries.iter().filter(|budget| self.can_call(phases, phase, &budget.tool))
                {
                    names.insert(budget.phase.clone());
                }
            }
            let next = Possible { phases: names, facts };
            if next == possible {
                return possible;
            }
            possible = next;
        }
    }

    fn can(&self, condition: &Condition, phases: &Phases, known: &Known, possible: &Possible) -> bool {
        let Some(uses) = known.get(&condition.to_string()) else { return true };
        let tools =
            |pattern: &str| reached(phases, possible).any(|phase| self.can_call(phases, phase, pattern));
        met(condition, uses, &possible.facts, &tools).unwrap_or(true)
    }

    /// Whether a tool that matches a pattern can be called in a phase.
    fn can_call(&self, phases: &Phases, phase: &Phase, pattern: &str) -> bool {
        let mut known = self.listed.tools.iter().map(String::as_str).chain([PLAN]);
        let listed = |tool: &str| tool == PLAN || self.listed.tools.iter().any(|other| other == tool);
        // The tools of servers are known only by the patterns.
        let overlap = |other: &String| {
            (fits(pattern, other) || fits(other, pattern)) && (!listed(other) || fits(pattern, other))
        };
        let by_name = known.any(|tool| fits(pattern, tool) && permits(phases, phase, tool));
        // By its own name, or through the tool that calls all hidden ones.
        let by_call =
            permits(phases, phase, CALL) && self.listed.hidden.iter().any(|tool| fits(pattern, tool));
        by_name
            || by_call
            || (phase.expect != Expect::Text
                && (self.listed.beside)(pattern)
                && phase.tools.iter().any(overlap))
    }
}

fn reached<'p>(phases: &'p Phases, possible: &'p Possible) -> impl Iterator<Item = &'p Phase> {
    phases.phases.iter().filter(|phase| possible.phases.contains(&phase.name))
}

/// The uses in a condition and in its facts.
fn all_uses(
    condition: &Condition,
    phases: &Phases,
    known: &Known,
) -> (BTreeSet<(Counter, String)>, BTreeSet<String>) {
    let uses = known.get(&condition.to_string()).cloned().unwrap_or_default();
    let (mut counted, mut names) = (uses.counted, uses.names);
    // A fact names only earlier facts, so going backwards visits all of them once.
    for fact in phases.facts.iter().rev() {
        if names.contains(&fact.name)
            && let Some(uses) = known.get(&fact.when.to_string())
        {
            counted.extend(uses.counted.iter().cloned());
            names.extend(uses.names.iter().cloned());
        }
    }
    (counted, names)
}
