//! Code as action: a fenced block in a language is the call of the tool that runs it.
//!
//! The table says which languages there are, how models mark them, and whose code they are.
//! A block in any other language is text.

use serde_json::Value;

use crate::request::Tool;

/// What every block begins and ends with.
const FENCE: &str = "```";
/// What ends a block.
pub(crate) const CLOSE: &str = "\n```";

/// A language of blocks.
#[derive(Debug)]
pub(crate) struct Language {
    /// What a block of it is marked with, where we write it.
    name: &'static str,
    /// How models begin such a block.
    openers: &'static [&'static str],
    /// The names of tools that run it.
    tools: &'static [&'static str],
}

const LANGUAGES: [Language; 3] = [
    Language { name: "bash", openers: &["```bash", "```sh", "```shell"], tools: &["shell", "bash", "sh"] },
    Language { name: "python", openers: &["```python", "```py", "```python3"], tools: &["python", "py"] },
    // Where every turn has to be a block, so is the answer.
    Language { name: "answer", openers: &["```answer"], tools: &["finish"] },
];

/// The language of a tool's code, if it has one.
fn language(tool: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.tools.contains(&tool))
}

/// How models may begin the block of a call of any of `tools`.
pub(crate) fn openers<'a>(tools: impl Iterator<Item = &'a Tool>) -> impl Iterator<Item = &'static str> {
    tools.filter_map(|tool| language(&tool.name)).flat_map(|language| language.openers.iter().copied())
}

/// The first line of the block of a call of `tool`, as we write it.
pub(crate) fn first_line(tool: &str) -> String {
    format!("{FENCE}{}\n", language(tool).map_or(tool, |language| language.name))
}

/// The tool of a block whose first line, without its end, is `line`.
pub(super) fn tool<'a>(line: &str, tools: &'a [Tool]) -> Option<&'a Tool> {
    let mark = line.split_whitespace().next()?;
    let language = LANGUAGES.iter().find(|language| language.openers.contains(&mark))?;
    tools.iter().find(|tool| language.tools.contains(&tool.name.as_str()))
}

/// The argument that a block of a call of `tool` holds: the only one that the tool can't do
/// without.
pub(crate) fn argument(tool: &Tool) -> Option<(&str, &Value)> {
    let required = tool.parameters.get("required")?.as_array()?;
    let [Value::String(name)] = required.as_slice() else { return None };
    let schema = tool.parameters.get("properties")?.get(name)?;
    (schema.get("type").is_some_and(|kind| kind == "string")).then_some((name, schema))
}

/// Why no block can be a call of `tool`, if that is so.
pub(super) fn refusal(tool: &Tool) -> Option<String> {
    let runs = language(&tool.name).is_some() && argument(tool).is_some();
    (!runs).then(|| {
        let names = LANGUAGES[..2].iter().flat_map(|language| language.tools).copied();
        let names = names.collect::<Vec<_>>().join(", ");
        format!("a block of code can only be the call of a tool that runs it ({names}), with its code as the one argument that it needs")
    })
}
