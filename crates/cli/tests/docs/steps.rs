//! Derives steps from the blocks of a page.

use super::page::Block;

/// A step of a page, in order.
pub enum Step {
    File { path: String, text: String },
    Run { line: usize, command: String, expected: Vec<String>, exit: i32, repository: bool },
    Start { line: usize, command: String },
    Skip { reason: String, commands: usize },
}

/// Returns the file name in a comment at the start of a block.
fn named(first: &str) -> Option<&str> {
    let name = first.strip_prefix("# ")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    (name.contains('.') && !name.contains("..") && !name.starts_with('/') && name.chars().all(fits))
        .then_some(name)
}

/// Returns the commands after `$ `, each with its line in the block and its shown output.
fn console(lines: &[String]) -> Vec<(usize, String, Vec<String>)> {
    let mut found: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in lines.iter().enumerate() {
        if goes_on {
            let (_, command, _) = found.last_mut().unwrap();
            *command += "\n";
            *command += line;
            goes_on = line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ") {
            found.push((at, command.to_owned(), Vec::new()));
            goes_on = command.ends_with('\\');
        } else {
            let (_, _, output) = found.last_mut().expect("a block of console begins with `$ `");
            output.push(line.clone());
        }
    }
    found
}

/// Returns the steps of a block.
pub fn steps(block: &Block) -> Vec<Step> {
    let whole = || block.lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if let Some(path) = block.marks.get("file") {
        return vec![Step::File { path: path.clone(), text: whole() }];
    }
    let commands = match block.language.as_str() {
        "console" => console(&block.lines),
        "sh" => vec![(0, format!("set -e\n{}", whole()), Vec::new())],
        _ => {
            let first = block.lines.first().map(String::as_str).unwrap_or_default();
            // Readers copy the whole block.
            assert!(
                block.language != "json" || !first.starts_with("//"),
                "line {}: JSON has no comments: name the file in the text, and in a mark `file: PATH`",
                block.line
            );
            let Some(path) = named(first) else { return Vec::new() };
            return vec![Step::File { path: path.to_owned(), text: whole() }];
        }
    };
    if let Some(reason) = block.marks.get("needs") {
        return vec![Step::Skip { reason: reason.clone(), commands: commands.len() }];
    }
    let exit = block.marks.get("exit").map_or(0, |code| code.parse().unwrap());
    let repository = block.marks.get("in").is_some_and(|place| place == "repository");
    let step = |(at, command, expected): (usize, String, Vec<String>)| {
        let line = block.line + 1 + at;
        match block.marks.contains_key("goes") {
            true => Step::Start { line, command },
            false => Step::Run { line, command, expected, exit, repository },
        }
    };
    commands.into_iter().map(step).collect()
}

#[test]
fn blocks_become_steps() {
    let text = "```yaml\n# team/a.npc\nname: a\n```\n<!-- file: b.json -->\n```json\n{}\n```\n<!-- exit: 1 -->\n```console\n\
                $ x \\\n  y\nout\n$ z\n```\n<!-- needs: gpu -->\n```sh\nx\n```\n```yaml\n# no name: it has blanks\n```\n";
    let page = super::page::Page { path: "x.md".into(), text: text.to_owned() };
    let steps: Vec<Step> = page.blocks().iter().flat_map(steps).collect();
    let [
        Step::File { path, text },
        Step::File { text: json, .. },
        Step::Run { line, command, expected, exit, .. },
        Step::Run { .. },
        Step::Skip { reason, .. },
    ] = &steps[..]
    else {
        panic!("other steps")
    };
    assert_eq!(
        (path.as_str(), text.as_str(), json.as_str()),
        ("team/a.npc", "# team/a.npc\nname: a\n", "{}\n")
    );
    assert_eq!((*line, command.as_str(), *exit), (11, "x \\\n  y", 1));
    assert_eq!(expected, &["out"]);
    assert_eq!(reason, "gpu");
}
