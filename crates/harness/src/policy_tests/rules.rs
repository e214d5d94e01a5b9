//! A reference implementation of the team's rules: by hand, without expressions, patterns or folds.

use std::collections::BTreeMap;

use super::Seen;

/// The known facts of an order.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// `None` if it may have changed since it was read.
    status: Option<String>,
    total: Option<i64>,
    owner: Option<String>,
}

/// A call, with the answer of the world.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub tool: String,
    pub id: i64,
    /// The inner tool of a `run_tool`; empty for no tool, in arguments that aren't JSON.
    pub inner: String,
    /// The tasks of a `plan_tasks`.
    pub tasks: Vec<&'static str>,
    pub fails: bool,
    /// The identified person, or the owner of the order.
    pub name: &'static str,
    pub status: &'static str,
    /// `None` if the tool returns a text.
    pub total: Option<i64>,
}

/// The state of a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub phase: &'static str,
    identified: u32,
    failed_to_cancel: u32,
    escalated: bool,
    /// Failures in a row of `cancel_order`, `get_order` and `get_secret`.
    row: [u32; 3],
    pub left: Vec<&'static str>,
    answered: bool,
    pub orders: BTreeMap<i64, Order>,
    /// The identified person; `None` if there is none, or that may have changed.
    customer: Option<&'static str>,
}

impl Rules {
    pub fn new() -> Self {
        Rules { phase: "triage", ..Rules::default() }
    }

    /// The state of an order, in a word.
    pub fn state(&self, id: i64) -> String {
        match self.orders.get(&id) {
            None => "unknown".to_owned(),
            Some(Order { status: None, .. }) => "stale".to_owned(),
            Some(Order { status: Some(status), .. }) => status.clone(),
        }
    }

    pub fn permits(&self, tool: &str) -> bool {
        match self.phase {
            "triage" => ["identify", "get_order", "get_secret"].contains(&tool),
            "plan" => ["get_order", "plan_tasks"].contains(&tool),
            "work" => ["get_order", "cancel_order", "run_tool"].contains(&tool),
            "handover" => tool == "escalate",
            _ => false,
        }
    }

    pub fn user(&mut self) {
        self.go_on();
    }

    pub fn answer(&mut self) -> Seen {
        self.answered = true;
        self.go_on();
        Seen { phase: self.phase.to_owned(), ..Seen::default() }
    }

    pub fn call(&mut self, call: &Call) -> Seen {
        let mut seen = Seen { tool: call.tool.clone(), ..Seen::default() };
        if !self.permits(&call.tool) {
            seen.refused = Some(format!("phase {}", self.phase));
        } else if call.tool == "get_secret" {
            seen.refused = Some("list".to_owned());
            self.ended(call, false);
        } else if call.tool == "plan_tasks" {
            self.ended(call, !call.tasks.is_empty());
        } else if let Some((rule, unknown)) = self.broken(call) {
            (seen.refused, seen.unknown) = (Some(format!("rule {rule}")), unknown);
            self.ended(call, false);
        } else {
            seen.ran = true;
            self.learn(call);
            self.ended(call, !call.fails);
        }
        seen.phase = self.phase.to_owned();
        seen
    }

    /// The rule that refuses a call, and whether it only lacks a fact.
    fn broken(&self, call: &Call) -> Option<(&'static str, bool)> {
        let tool = match call.tool.as_str() {
            "run_tool" if call.inner.is_empty() => return Some(("wraps", false)),
            "run_tool" if call.inner == "escalate" => return Some(("wrapped", false)),
            "run_tool" => &call.inner,
            tool => tool,
        };
        if tool == "escalate" && self.customer.is_none() {
            return Some(("known", false));
        }
        if tool != "cancel_order" {
            return None;
        }
        let order = self.orders.get(&call.id).cloned().unwrap_or_default();
        let waits = order.status.as_ref().map(|status| status == "pending");
        let is_small = order.total.map(|total| total < 100);
        if waits == Some(false) || is_small == Some(false) {
            return Some(("waiting", false));
        }
        if order.owner.is_some() && self.customer.is_some() && order.owner.as_deref() != self.customer {
            return Some(("own", false));
        }
        (waits.is_none() || is_small.is_none()).then_some(("waiting", true))
    }

    /// Learns from a call that was made.
    fn learn(&mut self, call: &Call) {
        match (call.tool.as_str(), call.inner.as_str()) {
            ("identify", _) if !call.fails => self.customer = Some(call.name),
            ("get_order", _) if !call.fails => {
                let order = Order {
                    status: Some(call.status.to_owned()),
                    total: call.total,
                    owner: Some(call.name.to_owned()),
                };
                self.orders.insert(call.id, order);
            }
            ("cancel_order", _) | ("run_tool", "cancel_order") => {
                let status = (!call.fails).then(|| "cancelled".to_owned());
                self.orders.insert(call.id, Order { status, ..Order::default() });
            }
            // Its effects are unknown.
            ("run_tool", _) => {
                self.customer = None;
                self.orders.values_mut().for_each(|order| *order = Order::default());
            }
            _ => {}
        }
    }

    /// Ends a call that its phase permitted.
    fn ended(&mut self, call: &Call, ok: bool) {
        let row = match call.tool.as_str() {
            "cancel_order" => Some(0),
            "get_order" => Some(1),
            "get_secret" => Some(2),
            _ => None,
        };
        if let Some(row) = row {
            self.row[row] = if ok { 0 } else { self.row[row] + 1 };
        }
        match (call.tool.as_str(), ok) {
            ("identify", true) => self.identified += 1,
            ("cancel_order", false) => self.failed_to_cancel += 1,
            ("escalate", true) => self.escalated = true,
            ("plan_tasks", true) => self.left = in_order(&call.tasks),
            ("cancel_order" | "run_tool", true) if !self.left.is_empty() => drop(self.left.remove(0)),
            _ => {}
        }
        self.go_on();
    }

    fn enter(&mut self, phase: &'static str) {
        (self.phase, self.answered) = (phase, false);
    }

    fn go_on(&mut self) {
        if self.phase != "handover" && self.row[0] >= 2 {
            self.row[0] = 0;
            return self.enter("handover");
        }
        if self.phase != "handover" && (self.row[1] >= 2 || self.row[2] >= 2) {
            (self.row[1], self.row[2]) = (0, 0);
            return self.enter("handover");
        }
        let trusted = self.identified > self.failed_to_cancel;
        let mut been = vec![self.phase];
        loop {
            let next = match self.phase {
                "triage" if trusted => "plan",
                "plan" if !self.left.is_empty() => {
                    if trusted {
                        "work"
                    } else {
                        "triage"
                    }
                }
                "work" if !trusted => "triage",
                "work" if self.left.is_empty() => "tell",
                "handover" if self.escalated => "tell",
                "tell" if self.answered => "triage",
                _ => return,
            };
            let thrown_out = self.phase == "work" && !trusted;
            if been.contains(&next) && !thrown_out {
                return;
            }
            self.enter(next);
            if been.contains(&next) {
                return;
            }
            been.push(next);
        }
    }
}

/// The tasks, with the second after the first.
fn in_order(tasks: &[&'static str]) -> Vec<&'static str> {
    let mut tasks = tasks.to_vec();
    let at = |word: &str| tasks.iter().position(|task| task.contains(word));
    if let (Some(first), Some(second)) = (at("first"), at("second"))
        && second < first
    {
        let task = tasks.remove(second);
        // All tasks after it have moved up.
        tasks.insert(first, task);
    }
    tasks
}
