//! Runs an `llm` step: a conversation inside a conversation.

use serde_json::Value;

use super::{Agent, Given};
use crate::error::{Error, chain};
use crate::jinx::{Llm, Tools};
use crate::prompt::offer;
use crate::run::session::Caller;
use crate::team::Npc;
use crate::types::{Outcome, ToolResult};

/// Answers the `prompt` of an `llm` step.
/// An NPC of the caller's team answers, or the first NPC of a sub-team, or the caller.
/// It answers in its own conversation, named `place`, with those of its tools that the step
/// permits.
/// `npc` is the name that the step gives.
///
/// # Errors
/// The sandbox failed, or the trace can't be written.
pub fn answer(
    caller: &Caller,
    step: &Llm,
    npc: Option<&str>,
    prompt: &str,
    place: &str,
) -> Result<ToolResult, Error> {
    let nobody = Npc { model: caller.team.model.clone(), ..Npc::default() };
    let (team, npc) = match npc {
        None => (caller.team, caller.npc.unwrap_or(&nobody)),
        Some(name) => match caller.team.member(name) {
            Some(found) => found,
            None => {
                let known = offer(caller.team, caller.npc).members;
                let known = known.join(", ");
                return Ok(ToolResult::failed(format!("there is no member `{name}` (members: {known})")));
            }
        },
    };
    let with_tools = npc.jinxes.iter().any(|name| step.tools.permits(name))
        || (step.tools != Tools::None && !npc.servers.is_empty());
    let deepest = caller.npc.unwrap_or(npc).limits.depth;
    // A plain question starts no deeper conversation.
    if caller.depth >= deepest && (step.npc.is_some() || with_tools) {
        let error = format!(
            "`{}` can't be given work from here: at most {deepest} conversations may be inside of each other",
            npc.name
        );
        return Ok(ToolResult::failed(error));
    }
    let with_system = step.system.unwrap_or(step.npc.is_some() || with_tools);
    let given = Given {
        system: if with_system { super::prompt(caller.session, team, npc) } else { Vec::new() },
        schema: step.schema.clone(),
        scope: caller.scope_of(place),
        depth: caller.depth + 1,
        hook: caller.hook,
        tools: step.tools.clone(),
    };
    let mut said = String::new();
    let run =
        Agent::start(caller.session, caller.trace, team, npc, given, Vec::new()).and_then(|mut agent| {
            agent.deadline = caller.deadline;
            let outcome = agent.run(prompt);
            agent.text_so_far().trim().clone_into(&mut said);
            outcome
        });
    let outcome = match run {
        Ok(outcome) => outcome,
        // The step may be retried, or its failure caught.
        Err(error @ Error::Model(_)) => Outcome::Failed { error: chain(&error) },
        Err(error) => return Err(error),
    };
    Ok(match outcome {
        Outcome::Answer { text } if step.schema.is_some() => match serde_json::from_str::<Value>(&text) {
            Ok(value) => ToolResult::succeeded(value),
            Err(error) => ToolResult::failed(format!("the answer is no JSON: {error}")),
        },
        Outcome::Answer { text } => ToolResult::succeeded(text.trim()),
        // Half an answer may be enough for the caller, who has paid for it.
        other if !said.is_empty() => ToolResult { output: said.into(), ..ToolResult::failed(other.reason()) },
        other => ToolResult::failed(other.reason()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Reply, Scripted, Single};
    use crate::run::session::Session;
    use crate::team::Team;
    use crate::testing::Fixture;
    use crate::trace::Record;

    fn npc(name: &str, jinxes: &[&str]) -> Npc {
        let jinxes = jinxes.iter().map(|name| (*name).to_owned()).collect();
        Npc { name: name.into(), directive: format!("You are {name}."), jinxes, ..Npc::default() }
    }

    /// A lead without tools, a coder with one, and a sub-team.
    fn team() -> Team {
        let stock = Team::stock("alara").unwrap();
        let research = Team {
            name: "research".into(),
            description: "Finds things out".into(),
            context: "Only research knows this.".into(),
            forenpc: "scout".into(),
            npcs: vec![npc("librarian", &[]), npc("scout", &["read_file"])],
            jinxes: stock.jinxes.clone(),
            ..Team::default()
        };
        Team {
            name: "team".into(),
            context: "Only the team knows this.".into(),
            forenpc: "lead".into(),
            npcs: vec![npc("coder", &["shell"]), npc("lead", &[])],
            teams: vec![research],
            ..stock
        }
    }

    /// The outcome of the step, the requests that the model got, and the scopes of the trace.
    fn ask(
        step: &Llm,
        member: Option<&str>,
        depth: usize,
        replies: Vec<Reply>,
    ) -> (ToolResult, Scripted, Vec<String>) {
        let fixture = Fixture::with(team());
        let script = Scripted::new(replies);
        let source = Single(&script);
        let session = Session::new(&source, &fixture.sandbox);
        let lead = fixture.team.npc(None).unwrap();
        let caller = Caller { npc: Some(lead), depth, ..Caller::person(&session, &fixture.team) };
        let result = answer(&caller, step, member, "Do it.", "work").unwrap();
        let scopes = session.trace.entries().into_iter().map(|entry| {
            let kind = match &*entry.record {
                Record::Permission { jinx, .. } => format!(" refuses {jinx}"),
                _ => String::new(),
            };
            format!("{}{kind}", entry.scope)
        });
        let scopes = scopes.collect();
        drop(session);
        (result, script, scopes)
    }

    fn systems(script: &Scripted) -> Vec<String> {
        script.requests()[0].system.iter().map(|segment| segment.text.clone()).collect()
    }

    #[test]
    fn a_plain_question_has_no_system_and_no_tools() {
        let (result, script, scopes) = ask(&Llm::default(), None, 9, vec![Reply::text(" yes\n")]);
        assert_eq!(result.output, json!("yes"));
        assert_eq!((systems(&script).len(), script.requests()[0].tools.len()), (0, 0));
        assert!(scopes.iter().all(|scope| scope == "work"));
    }

    #[test]
    fn a_member_works_with_its_own_list() {
        let step = Llm { npc: Some(json!("{{ who }}")), tools: Tools::All, ..Llm::default() };
        let call = |command: &str| Reply::call("shell", json!({"command": command}));
        let (result, script, _) =
            ask(&step, Some("coder"), 0, vec![call("echo one"), Reply::text("It says one.")]);
        assert_eq!(result.output, json!("It says one."));
        assert_eq!(systems(&script), ["Only the team knows this.", "You are coder."]);
        assert_eq!(script.requests()[1].messages[2].content, r#"{"ok":true,"output":"one"}"#);
        // A tool that the step doesn't list is neither offered nor run.
        let forged = Reply::call("write_file", json!({"path": "x", "content": "y"}));
        let (_, script, scopes) = ask(&step, Some("coder"), 0, vec![forged, Reply::text("Oh.")]);
        assert_eq!(script.requests()[0].tools.len(), 1);
        assert!(
            script.requests()[1].messages[2]
                .content
                .contains("`write_file` is not permitted; the tools are: shell")
        );
        assert!(scopes.contains(&"work refuses write_file".to_owned()));
        // A step may narrow the list, never widen it.
        let some = Tools::Some(vec!["read_file".into(), "write_file".into()]);
        let (_, script, _) = ask(&Llm { tools: some, ..step }, Some("coder"), 0, vec![Reply::text("No.")]);
        assert!(script.requests()[0].tools.is_empty());
    }

    #[test]
    fn a_sub_team_is_led_by_its_own_and_sees_nothing_from_above() {
        let step = Llm { npc: Some(json!("research")), tools: Tools::All, ..Llm::default() };
        let (result, script, _) = ask(&step, Some("research"), 0, vec![Reply::text("Found.")]);
        assert_eq!(result.output, json!("Found."));
        assert_eq!(systems(&script), ["Only research knows this.", "You are scout."]);
        // The caller can't see the members of the sub-team.
        let (result, ..) = ask(&step, Some("librarian"), 0, vec![]);
        assert_eq!(result.error, "there is no member `librarian` (members: coder, research)");
    }

    #[test]
    fn work_is_given_on_only_so_often() {
        let step = Llm { npc: Some(json!("coder")), ..Llm::default() };
        let (result, ..) = ask(&step, Some("coder"), 2, vec![Reply::text("ok")]);
        assert!(result.ok);
        let (result, ..) = ask(&step, Some("coder"), 3, vec![]);
        assert_eq!(
            result.error,
            "`coder` can't be given work from here: at most 3 conversations may be inside of each other"
        );
    }

    #[test]
    fn an_answer_with_a_schema_is_a_value() {
        let step = Llm { schema: Some(json!({"type": "object"})), ..Llm::default() };
        let (result, ..) = ask(&step, None, 0, vec![Reply::text(r#"{"done": true}"#)]);
        assert_eq!(result.output, json!({"done": true}));
        let (result, ..) = ask(&step, None, 0, vec![Reply::text("done")]);
        assert!(result.error.starts_with("the answer is no JSON"));
    }
}
