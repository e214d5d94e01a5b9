//! Tools that the client of an NPC brings and runs itself: which of them the NPC may call, with
//! which arguments.
//!
//! Their names are checked against the NPC's list, the team's rules and the NPC's gates, like those
//! of jinxes.
//! Nothing runs here, and there is no person to ask.

mod known;

use std::path::Path;
use std::sync::Arc;

use alara_text::request::{Message, Tool, ToolCall};
use serde_json::{Map, Value};

use crate::decision::{Decision, Judgement};
use crate::permission::{BEFOREHAND, Permissions};
use alara_team::gate::Gate;
use alara_team::jinx::{Choices, Input, Jinx, Kind};
use alara_team::team::{Npc, Team};
use alara_team::types::{Limits, ToolResult, Verdict};
use known::Known;

/// A forbidden call that an NPC made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model called `{tool}`, and that call is not permitted: {why}")]
pub struct Denied {
    /// The tool.
    pub tool: String,
    /// The list or the rule that forbids it.
    pub why: String,
}

/// A turn in which gates refused a call, so that none of its calls is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The results that the model reads for its calls, in order.
    pub results: Vec<String>,
    /// The first of the forbidden calls.
    pub denied: Denied,
}

/// The client's tools that an NPC may call.
#[derive(Clone, Debug)]
pub struct ClientTools {
    offered: Vec<Tool>,
    withheld: Vec<(String, String)>,
    gates: Vec<Arc<Gate>>,
    agreed: bool,
}

impl ClientTools {
    /// Sorts `tools` by whether `npc` of `team` may call them.
    /// `agreed` means that a person has agreed beforehand to every call that a rule asks about.
    pub fn new(team: &Team, npc: &Npc, tools: Vec<Tool>, agreed: bool) -> Self {
        let gates = npc.gate.gates.clone();
        let mut sorted = ClientTools { offered: Vec::new(), withheld: Vec::new(), gates, agreed };
        // Whether a client's call succeeded is unknown, and phases depend on it.
        let bound = npc
            .phases
            .is_some()
            .then(|| format!("the phases of {} can't be kept over tools that others run", npc.name));
        for tool in tools {
            let unlisted = (!npc.lists(&tool.name)).then(|| format!("it is not on the list of {}", npc.name));
            match bound
                .clone()
                .or(unlisted)
                .or_else(|| sorted.forbids(team, &named(team, &tool.name, None), &Map::new()))
            {
                Some(why) => sorted.withheld.push((tool.name, why)),
                None => sorted.offered.push(tool),
            }
        }
        sorted
    }

    /// The tools that it may call, in order.
    pub fn offered(&self) -> &[Tool] {
        &self.offered
    }

    /// The names of the tools that it may not call, each with the reason.
    pub fn withheld(&self) -> &[(String, String)] {
        &self.withheld
    }

    /// Checks a call of the NPC against its list and the rules.
    /// A rule about the beginning of the first argument applies to every argument: the author of a
    /// tool's description chooses their order.
    ///
    /// # Errors
    /// The call is forbidden.
    pub fn permit(&self, team: &Team, call: &ToolCall) -> Result<(), Denied> {
        let denied = |why: String| Denied { tool: call.name.clone(), why };
        if let Some((_, why)) = self.withheld.iter().find(|(name, _)| *name == call.name) {
            return Err(denied(why.clone()));
        }
        if !self.offered.iter().any(|tool| tool.name == call.name) {
            return Err(denied("there is no such tool".to_owned()));
        }
        let forbids =
            |first: &String| self.forbids(team, &named(team, &call.name, Some(first)), &call.arguments);
        call.arguments.keys().find_map(forbids).map_or(Ok(()), |why| Err(denied(why)))
    }

    /// Whether calls are checked against the conversation's ledgers.
    pub fn is_gated(&self) -> bool {
        !self.gates.is_empty()
    }

    /// Checks the calls of a turn after `messages` against the gates.
    /// Returns `None` if all of them may be made.
    /// Otherwise none is made: the model learns the reason, and its other calls may have become
    /// pointless.
    pub fn hold(&self, messages: &[Message], calls: &[ToolCall]) -> Option<Refused> {
        let decided = Known::of(&self.gates, &self.offered, messages).decide(calls);
        let denied = calls.iter().zip(&decided).find_map(|(call, decision)| {
            let blocked = decision.refusal.as_ref()?.blocked.as_ref()?;
            let why = format!("the rule `{}` stands against it: {}", blocked.rule, blocked.reason);
            Some(Denied { tool: call.name.clone(), why })
        })?;
        let other = || ToolResult::failed("not run: another call of this turn may not be made");
        let results = decided
            .into_iter()
            .map(|decision| decision.refusal.unwrap_or_else(other).text(Limits::default().tool_output_bytes));
        Some(Refused { results: results.collect(), denied })
    }

    /// The rule that forbids a call, if there is one.
    fn forbids(&self, team: &Team, tool: &Jinx, arguments: &Map<String, Value>) -> Option<String> {
        // A person's answer was about the team's own jinx of this name.
        // The client's work directory is unknown here: paths are checked relative to this
        // program's.
        let work = Path::new(".");
        let ruling = Permissions::default().verdict(team, tool, arguments, work);
        let decision = Decision::by_rules(&tool.name, ruling);
        let Judgement { verdict, by } = decision.last()?;
        match verdict {
            Verdict::Allow => None,
            Verdict::Ask if self.agreed && !decision.doubtful => None,
            Verdict::Ask if self.agreed => Some(format!("{by}; {BEFOREHAND}")),
            Verdict::Ask => Some(format!("{by} says to ask, and nobody is there to be asked")),
            Verdict::Deny => Some(format!("{by} denies it")),
        }
    }
}

/// A tool as rules see it: by its name and its `first` argument.
/// The declarations of the team's jinx of this name apply to it too.
fn named(team: &Team, name: &str, first: Option<&String>) -> Jinx {
    let input = |name: &String| Input {
        name: name.clone(),
        kind: Kind::String,
        description: String::new(),
        default: None,
        choices: Choices::Any,
    };
    let permission = team.jinx(name).and_then(|jinx| jinx.permission);
    let inputs = first.map(input).into_iter().collect();
    Jinx { name: name.to_owned(), inputs, permission, ..Jinx::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use alara_team::team::Rule;

    fn rule(pattern: &str, verdict: Verdict) -> Rule {
        Rule { pattern: pattern.into(), verdict, by: format!("rule {pattern}"), inherited: false }
    }

    fn tools(team: &Team, npc: &Npc, names: &[&str], agreed: bool) -> ClientTools {
        let tool = |name: &&str| Tool {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            strict: false,
        };
        ClientTools::new(team, npc, names.iter().map(tool).collect(), agreed)
    }

    fn offered(tools: &ClientTools) -> Vec<&str> {
        tools.offered().iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn an_npc_with_phases_gets_none_of_them() {
        let phases = Some(alara_team::phases::Phases::default());
        let npc = Npc { name: "clerk".into(), phases, ..Npc::default() };
        let tools = tools(&Team::default(), &npc, &["read"], true);
        assert_eq!(offered(&tools), Vec::<&str>::new());
        assert_eq!(tools.withheld()[0].1, "the phases of clerk can't be kept over tools that others run");
    }

    #[test]
    fn the_list_bounds_them() {
        let check = |jinxes: &[&str], entries: Option<&[&str]>, expected: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let npc = Npc {
                name: "corca".into(),
                jinxes: owned(jinxes),
                entries: entries.map(owned),
                ..Npc::default()
            };
            let found = tools(&Team::default(), &npc, &["shell", "get_time", "get_date"], false);
            assert_eq!(offered(&found), expected, "{jinxes:?} {entries:?}");
            assert_eq!(found.withheld().len(), 3 - expected.len());
        };
        check(&[], None, &["shell", "get_time", "get_date"]);
        check(&[], Some(&[]), &[]);
        check(&["shell"], Some(&["lib/core/*"]), &["shell"]);
        check(&["shell"], None, &["shell"]);
        check(&["shell"], Some(&["*"]), &["shell", "get_time", "get_date"]);
        check(&[], Some(&["get_*"]), &["get_time", "get_date"]);
        check(&[], Some(&["Get_time", "lib/get_date"]), &["get_date"]);
    }

    #[test]
    fn rules_hold_for_their_names_and_arguments() {
        let rules = vec![
            rule("shell:git push", Verdict::Deny),
            rule("py", Verdict::Ask),
            rule("py:1", Verdict::Allow),
            rule("rm", Verdict::Deny),
        ];
        let team = Team { rules, ..Team::default() };
        let npc = Npc::default();
        let names = ["shell", "py", "rm"];
        let found = tools(&team, &npc, &names, false);
        assert_eq!(offered(&found), ["shell"]);
        let why = "rule py says to ask, and nobody is there to be asked";
        let withheld = [("py".to_owned(), why.to_owned()), ("rm".to_owned(), "rule rm denies it".to_owned())];
        assert_eq!(found.withheld(), withheld);
        assert_eq!(offered(&tools(&team, &npc, &names, true)), ["shell", "py"]);
        let check = |name: &str, arguments: Value, why: &str| {
            let arguments = arguments.as_object().cloned().unwrap();
            let call = ToolCall { id: "1".into(), name: name.into(), arguments };
            let denied = found.permit(&team, &call).err().map(|denied| denied.why);
            assert_eq!(denied.as_deref(), Some(why).filter(|why| !why.is_empty()), "{call:?}");
        };
        check("shell", json!({"command": "git status"}), "");
        check("shell", json!({"command": "ls; git -C . push"}), "rule shell:git push denies it");
        check("shell", json!({"why": "to publish", "command": "git push"}), "rule shell:git push denies it");
        check("py", json!({"code": "1"}), why);
        check("other", json!({}), "there is no such tool");
        // A rule for all tools applies where there is no other rule.
        let team =
            Team { rules: vec![rule("*", Verdict::Deny), rule("py", Verdict::Allow)], ..Team::default() };
        assert_eq!(offered(&tools(&team, &npc, &names, false)), ["py"]);
    }

    #[test]
    fn a_jinx_of_the_same_name_lends_its_own_rule() {
        let jinx = Jinx { name: "shell".into(), permission: Some(Verdict::Ask), ..Jinx::default() };
        let team = Team { jinxes: vec![jinx], ..Team::default() };
        assert_eq!(offered(&tools(&team, &Npc::default(), &["shell", "py"], false)), ["py"]);
    }
}
