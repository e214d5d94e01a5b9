//! The substitutes for small models: fewer tools, another format, worked examples.

use alara_text::chat::Format;
use alara_text::request::{Message, ToolCall};
use serde::Serialize;
use serde_json::{Map, Value};

use super::ctx::list;
use crate::fields::Fields;
use crate::types::{Limits, ToolResult};
use crate::yaml::{self, Node};

/// The substitutes of an NPC for models of some sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SmallModels {
    /// The fewest parameters of such a model.
    pub from: u64,
    /// Such a model has fewer parameters than this.
    pub below: u64,
    /// Its tools, a subset of the NPC's; `None` for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jinxes: Option<Vec<String>>,
    /// The format of its calls, unless the user chose another one for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_format: Option<String>,
    /// Whether results are plain text rather than JSON.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_results: bool,
    /// Most tokens of a turn, if fewer than the NPC's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_tokens: Option<usize>,
    /// Example conversations before its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

/// An example of a completed task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Example {
    /// The user's request.
    pub task: String,
    /// The turns, in order.
    pub steps: Vec<Step>,
    /// The final answer.
    pub answer: String,
}

/// A turn of an example: a call and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// The text before the call.
    pub say: String,
    /// The jinx that is called.
    pub jinx: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Its result.
    pub result: ToolResult,
}

impl SmallModels {
    /// Whether a model with this many parameters is in the range.
    pub fn holds(&self, parameters: Option<u64>) -> bool {
        parameters.is_some_and(|parameters| (self.from..self.below).contains(&parameters))
    }

    /// The limits for an NPC with the limits `own`.
    pub fn limits(&self, own: Limits) -> Limits {
        Limits { turn_tokens: self.turn_tokens.unwrap_or(usize::MAX).min(own.turn_tokens), ..own }
    }

    /// The examples that call only `tools`, as messages; a result has at most `limit` bytes.
    pub fn messages(&self, tools: &[&str], limit: usize) -> Vec<Message> {
        let possible =
            |example: &&Example| example.steps.iter().all(|step| tools.contains(&step.jinx.as_str()));
        let mut messages = Vec::new();
        for example in self.examples.iter().filter(possible) {
            messages.push(Message::user(&example.task));
            for step in &example.steps {
                // Some templates accept only ids of nine characters.
                let id = format!("example{:02}", messages.len());
                let call = ToolCall { id, name: step.jinx.clone(), arguments: step.arguments.clone() };
                messages.push(Message::assistant(&step.say, vec![call.clone()]));
                let text = match self.plain_results {
                    true => step.result.plain_text_with("", limit),
                    false => step.result.text(limit),
                };
                messages.push(Message::tool_result(&call, text));
            }
            messages.push(Message::assistant(&example.answer, Vec::new()));
        }
        messages
    }
}

/// Reads `small_models`, whose jinxes must be among `listed`; `None` if it is unusable, with an
/// error.
pub fn read(fields: &mut Fields, listed: &[String]) -> Option<SmallModels> {
    let source = fields.source();
    let entry = fields.entry(&["small_models"])?;
    let mut fields = Fields::new(source, &entry.value, fields.diagnostics())?;
    let mut small = SmallModels { below: u64::MAX, ..SmallModels::default() };
    for (key, bound) in [("from", &mut small.from), ("below", &mut small.below)] {
        let location = fields.location(key);
        let Some(text) = fields.text(&[key]) else { continue };
        match parameters(&text) {
            Some(count) => *bound = count,
            None => fields.error(
                location,
                format!("`{key}` is a count of parameters such as 500M or 4B, not `{text}`"),
            ),
        }
    }
    let location = fields.location("results");
    match fields.text(&["results"]).as_deref() {
        None | Some("json") => {}
        Some("plain") => small.plain_results = true,
        Some(other) => {
            fields.error(location, format!("results are `json` or `plain`, not `{other}`"));
        }
    }
    let location = fields.location("turn_tokens");
    let tokens = fields.text(&["turn_tokens"]).map(|tokens| tokens.parse().ok().filter(|tokens| *tokens > 0));
    if tokens == Some(None) {
        fields.error(location, "`turn_tokens` must be a whole number above 0");
    }
    small.turn_tokens = tokens.flatten();
    let location = fields.location("tool_format");
    small.tool_format = fields.text(&["tool_format"]);
    if let Some(name) = &small.tool_format
        && !described().any(|format| format.name == name)
    {
        let known: Vec<&str> = described().map(|format| format.name).collect();
        fields.error(
            location,
            format!("`{name}` is no format that a prompt can describe: these are {}", known.join(", ")),
        );
        small.tool_format = None;
    }
    if let Some(entry) = fields.entry(&["jinxes"]) {
        let mut jinxes = Vec::new();
        for node in list(&entry.value) {
            match node.text().filter(|name| listed.iter().any(|known| known == name)) {
                Some(name) => jinxes.push(name.to_owned()),
                None => fields.error(
                    node.location,
                    "a small model gets some of the NPC's own `jinxes`: this is none of them",
                ),
            }
        }
        small.jinxes = Some(jinxes);
    }
    if let Some(entry) = fields.entry(&["examples"]) {
        let tools = small.jinxes.as_deref().unwrap_or(listed);
        for node in &list(&entry.value) {
            small.examples.extend(example(&mut fields, node, tools));
        }
    }
    fields.unknown();
    Some(small)
}

/// The formats that a prompt describes.
fn described() -> impl Iterator<Item = &'static Format> {
    Format::all().iter().copied().filter(|format| format.described())
}

/// Reads an example; `None` if it is unusable, with an error.
fn example(fields: &mut Fields, node: &Node, tools: &[String]) -> Option<Example> {
    let source = fields.source();
    let mut fields = Fields::new(source, node, fields.diagnostics())?;
    let (task, answer) = (fields.text(&["task"]), fields.text(&["answer"]));
    let (Some(task), Some(answer)) = (task, answer) else {
        fields.error(node.location, "an example has a `task` and an `answer`");
        return None;
    };
    let steps = fields.entry(&["steps"]).map(|entry| list(&entry.value)).unwrap_or_default();
    let steps: Option<Vec<Step>> = steps.iter().map(|node| step(&mut fields, node, tools)).collect();
    fields.unknown();
    Some(Example { task, steps: steps?, answer })
}

fn step(fields: &mut Fields, node: &Node, tools: &[String]) -> Option<Step> {
    let source = fields.source();
    let mut fields = Fields::new(source, node, fields.diagnostics())?;
    let say = fields.text(&["say"]).unwrap_or_default();
    let output = fields.text(&["output"]).unwrap_or_default();
    let stderr = fields.text(&["error"]).unwrap_or_default();
    let location = fields.location("exit");
    let exit = fields.text(&["exit"]).map(|exit| exit.parse::<i32>());
    if let Some(Err(_)) = exit {
        fields.error(location, "`exit` is the exit status of what was called, a whole number");
        return None;
    }
    let exit = exit.and_then(Result::ok).unwrap_or_default();
    let mut calls = fields.others().into_iter().map(|(entry, _)| entry);
    let (Some(call), None) = (calls.next(), calls.next()) else {
        fields.error(node.location, "a step calls one jinx, as in `shell: {command: ls}`");
        return None;
    };
    if !tools.contains(&call.key) {
        fields.error(call.location, format!("`{}` is none of the tools that it gets", call.key));
        return None;
    }
    let Some(arguments) = call.value.entries().map(yaml::map) else {
        fields.error(call.value.location, "what a jinx is called with is a mapping of its inputs");
        return None;
    };
    let result = match exit {
        0 => ToolResult::succeeded(output),
        _ => ToolResult {
            output: output.into(),
            error: format!("exit status {exit}"),
            stderr,
            exit: Some(exit),
            ..ToolResult::default()
        },
    };
    Some(Step { say, jinx: call.key.clone(), arguments, result })
}

/// A count such as 270M or 1.5B.
fn parameters(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix(['B', 'b']) {
        Some(number) => (number, 1e9),
        None => (text.strip_suffix(['M', 'm'])?, 1e6),
    };
    let count = number.trim().parse::<f64>().ok().filter(|count| *count >= 0.0 && count.is_finite())?;
    Some((count * unit) as u64)
}

#[cfg(test)]
mod tests {
    use crate::team::Team;

    fn loaded(small_models: &str) -> (Team, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("team.ctx"), "name: small\nforenpc: worker\n").unwrap();
        let npc = format!("name: worker\nprimary_directive: Work.\njinxes: [shell, python]\n{small_models}");
        std::fs::write(directory.path().join("worker.npc"), npc).unwrap();
        let team = Team::load(directory.path()).unwrap();
        let problems = team.check().into_iter().map(|problem| problem.message);
        let problems = problems.filter(|problem| !problem.contains("jinxes of the team")).collect();
        (team, problems)
    }

    #[test]
    fn an_example_is_a_conversation() {
        let (team, problems) = loaded(
            "small_models:\n  from: 100M\n  below: 1.5B\n  examples:\n  - task: look\n    steps:\n    - say: I look.\n      \
             shell: {command: ls x}\n      error: no x\n      exit: 2\n    answer: There is none.\n  \
             - {task: hello, answer: Hello.}\n",
        );
        assert_eq!(problems, Vec::<String>::new());
        let small = team.npc(None).unwrap().small_models.as_ref().unwrap();
        assert!([100_000_000, 1_499_999_999].iter().all(|count| small.holds(Some(*count))));
        assert!([None, Some(99_999_999), Some(1_500_000_000)].iter().all(|count| !small.holds(*count)));
        let told = |tools: &[&str]| -> Vec<String> {
            let messages = small.messages(tools, 99).into_iter();
            messages.map(|message| format!("{:?}: {}", message.role, message.content)).collect()
        };
        let failed = r#"Tool: {"ok":false,"exit":2,"error":"no x"}"#;
        let hello = ["User: hello", "Assistant: Hello."];
        assert_eq!(
            told(&["shell"]),
            [&["User: look", "Assistant: I look.", failed, "Assistant: There is none."], &hello[..]].concat()
        );
        assert_eq!(told(&["python"]), hello, "who has no shell is shown none");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let check = |text: &str, expected: &str| {
            let (_, problems) = loaded(&format!("small_models: {{{text}}}\n"));
            assert!(problems.iter().any(|problem| problem.contains(expected)), "{text}: {problems:?}");
        };
        check("below: many", "such as 500M or 4B, not `many`");
        check("jinxes: [read_file]", "this is none of them");
        check("tool_format: hermes", "no format that a prompt can describe: these are generic");
        check("results: xml", "`json` or `plain`, not `xml`");
        check("turn_tokens: 0", "`turn_tokens` must be a whole number above 0");
        check("example: []", "unknown key `example`, did you mean `examples`?");
        check("examples: [{task: a}]", "an example has a `task` and an `answer`");
        let step = |step: &str| format!("examples: [{{task: a, answer: b, steps: [{{{step}}}]}}]");
        check(&step("say: c"), "a step calls one jinx");
        check(&step("shell: {command: ls}, python: {code: x}"), "a step calls one jinx");
        check(&step("read_file: {path: x}"), "`read_file` is none of the tools");
        check(&step("shell: ls"), "a mapping of its inputs");
        check(&step("shell: {command: ls}, exit: no"), "`exit` is the exit status");
    }
}
