//! The decision about a call.
//!
//! Four things decide, in this order, and the first that denies ends the decision: the phase, the
//! list, the gates, the rules.
//! The harness decides so about the calls that it makes, and about those that a client makes.
//! A decision has no effects: the caller records it, and asks a person where it requires that.

use std::sync::Arc;

use alara_team::gate::Gate;
use alara_team::phases::Machine;
use alara_team::types::{Blocked, ToolResult, Verdict};
use alara_text::nearest;
use serde_json::{Map, Value};

use crate::permission::Ruling;

/// The name that a trace records for a refusal because a tool isn't on the NPC's list.
pub const LIST: &str = "the NPC's list";

/// The name that a trace records for a refusal by a hook.
pub fn hook(name: &str) -> String {
    format!("the hook `{name}`")
}

fn phase(name: &str) -> String {
    format!("the phase `{name}`")
}

/// The phase or the hook that a trace records as the one who refused: `phase NAME`, `hook NAME`.
pub fn refuser(by: &str) -> Option<String> {
    let (kind, name) = by.strip_prefix("the ")?.strip_suffix('`')?.split_once(" `")?;
    ["phase", "hook"].contains(&kind).then(|| format!("{kind} {name}"))
}

/// A verdict, and who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Who gave it: the list, a phase, a gate and its rule, a rule and its location, an answer.
    pub by: String,
}

/// What was decided about a call.
/// The default permits it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The verdicts in the order in which they were given.
    pub judgements: Vec<Judgement>,
    /// Whether a deny rule may cover the call, so that no yes given beforehand permits it.
    pub doubtful: bool,
    /// The result that the model reads, if the call is denied.
    pub refusal: Option<ToolResult>,
}

impl Decision {
    /// Denies a call; the model reads `why`.
    pub fn denied(by: impl Into<String>, why: impl Into<String>) -> Self {
        Decision { refusal: Some(ToolResult::failed(why)), ..Decision::judged(Verdict::Deny, by) }
    }

    /// Records a verdict that doesn't deny.
    pub fn judged(verdict: Verdict, by: impl Into<String>) -> Self {
        Decision { judgements: vec![Judgement { verdict, by: by.into() }], ..Decision::default() }
    }

    /// Denies a call of a `tool` that isn't among those of the `list`.
    pub fn by_list(tool: &str, list: &[&str]) -> Self {
        if list.contains(&tool) {
            return Decision::default();
        }
        // The tool that the model may have meant comes first.
        let near = nearest(tool, list.iter().copied());
        let mut list = list.to_vec();
        list.sort_by_key(|name| Some(*name) != near);
        let list = list.join(", ");
        Decision::denied(LIST, format!("`{tool}` is not permitted; the tools are: {list}"))
    }

    /// Denies a call of a `tool` that the current phase doesn't permit.
    /// `inner` is the tool that a call of a hidden tool names.
    pub fn by_phase(tool: &str, inner: Option<&str>, machine: Option<&Machine>) -> Self {
        let Some(machine) = machine.filter(|machine| !machine.permits_call(tool, inner)) else {
            return Decision::default();
        };
        let current = &machine.state().phase;
        let now = match machine.open().as_slice() {
            [] => "nothing may be called now: answer with a text".to_owned(),
            open => format!("what may be called now: {}", open.join(", ")),
        };
        Decision::denied(phase(current), format!("`{tool}` is not permitted in the phase `{current}`; {now}"))
    }

    /// Checks a call against gates; `verdict` is a gate's own.
    pub fn by_gates(
        gates: &[Arc<Gate>],
        tool: &str,
        arguments: &Map<String, Value>,
        verdict: impl Fn(&Gate) -> Option<Blocked>,
    ) -> Self {
        let (mut decision, mut reported) = (Decision::default(), None);
        for gate in gates.iter().filter(|gate| gate.is_about(tool, arguments)) {
            let (blocked, file) = (verdict(gate), gate.path.display());
            decision.judgements.push(match &blocked {
                Some(blocked) => {
                    Judgement { verdict: Verdict::Deny, by: format!("the rule `{}` of {file}", blocked.rule) }
                }
                None => Judgement { verdict: Verdict::Allow, by: file.to_string() },
            });
            reported = Blocked::to_report(reported, blocked);
        }
        Decision { refusal: reported.map(ToolResult::blocked), ..decision }
    }

    /// Applies what the rules say about a call of `tool`, if one of them covers it.
    pub fn by_rules(tool: &str, ruling: Option<Ruling>) -> Self {
        let Some(Ruling { verdict, by, doubtful }) = ruling else { return Decision::default() };
        Decision { doubtful, ..Decision::answered(tool, Judgement { verdict, by }) }
    }

    /// Applies an answer about a call of `tool`.
    pub fn answered(tool: &str, Judgement { verdict, by }: Judgement) -> Self {
        match verdict {
            Verdict::Deny => {
                let why = format!("`{tool}` is not permitted by {by}");
                Decision::denied(by, why)
            }
            Verdict::Allow | Verdict::Ask => Decision::judged(verdict, by),
        }
    }

    /// This decision, or the one that follows if this one doesn't deny.
    #[must_use]
    pub fn and(mut self, next: impl FnOnce() -> Decision) -> Decision {
        if self.refusal.is_some() {
            return self;
        }
        let next = next();
        self.judgements.extend(next.judgements);
        Decision { judgements: self.judgements, ..next }
    }

    /// The last verdict, and who gave it; `None` if nothing covers the call.
    pub fn last(&self) -> Option<&Judgement> {
        self.judgements.last()
    }

    /// Whether a person has to be asked, and about whose verdict.
    pub fn asks(&self) -> Option<&str> {
        let asking = self.last().filter(|judgement| judgement.verdict == Verdict::Ask)?;
        Some(&asking.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_denial_ends_a_decision() {
        let denied = Decision::by_list("writefile", &["read", "write_file"]).and(|| unreachable!());
        let why = "`writefile` is not permitted; the tools are: write_file, read";
        assert_eq!(denied.refusal, Some(ToolResult::failed(why)));
        let ruling = |verdict| Some(Ruling { verdict, doubtful: false, by: "permissions.yaml:1".into() });
        let asked = Decision::by_list("read", &["read"])
            .and(|| Decision::by_rules("read", ruling(Verdict::Allow)))
            .and(|| Decision::by_rules("read", ruling(Verdict::Ask)));
        assert_eq!((asked.judgements.len(), asked.asks()), (2, Some("permissions.yaml:1")));
        let denied = asked.and(|| Decision::by_rules("read", ruling(Verdict::Deny)));
        assert_eq!((denied.judgements.len(), denied.asks()), (3, None));
        assert_eq!(Decision::by_rules("read", None), Decision::default());
    }

    #[test]
    fn a_trace_tells_phases_and_hooks_from_others() {
        assert_eq!(refuser(&phase("verify")).as_deref(), Some("phase verify"));
        assert_eq!(refuser(&hook("guard")).as_deref(), Some("hook guard"));
        for other in ["team.ctx:3", LIST, "the rule `own` of shop.gate", "an answer"] {
            assert_eq!(refuser(other), None, "{other}");
        }
    }
}
