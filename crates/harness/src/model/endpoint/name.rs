//! Names of tools as models write them, and as endpoints accept them.

use std::borrow::Cow;

/// The offered tool that a name in any decoration means: `functions.shell`, `Shell`, `shell()`.
/// A name that means none, or might mean several, stays unchanged.
pub(super) fn offered<'a>(name: &'a str, tools: &'a [String]) -> &'a str {
    if tools.iter().any(|tool| tool == name) {
        return name;
    }
    let bare = name.trim().trim_end_matches("()").trim_matches(['"', '\'', '`', ' ']);
    // The longest suffix that is a tool's name.
    let ends =
        std::iter::once(0).chain(bare.match_indices(['.', ':', '/']).map(|(at, mark)| at + mark.len()));
    for end in ends.map(|at| &bare[at..]) {
        let mut same = tools.iter().filter(|tool| tool.eq_ignore_ascii_case(end));
        match (tools.iter().find(|tool| *tool == end), same.next(), same.next()) {
            (Some(tool), ..) | (None, Some(tool), None) => return tool,
            _ => {}
        }
    }
    name
}

/// A name as endpoints accept it in a conversation, which many check: at most 64 letters, digits,
/// `_` and `-`.
pub(super) fn sendable(name: &str) -> Cow<'_, str> {
    let good = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(good) {
        return Cow::Borrowed(name);
    }
    let name: String =
        name.chars().take(64).map(|character| if good(character) { character } else { '_' }).collect();
    Cow::Owned(if name.is_empty() { "unnamed".to_owned() } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_a_tool() {
        let tools = ["shell", "read_file", "git.log", "Run", "run"].map(str::to_owned);
        let check = |name: &str, expected: &str| assert_eq!(offered(name, &tools), expected, "{name}");
        check("shell", "shell");
        check("Shell", "shell");
        check("shell()", "shell");
        check(" \"shell\" ", "shell");
        check("functions.shell", "shell");
        check("functions.Read_File", "read_file");
        check("tools:functions/shell", "shell");
        check("default_api.git.log", "git.log");
        check("Run", "Run");
        // None of them, or ambiguous between two.
        check("RUN", "RUN");
        check("shells", "shells");
        check("log", "log");
        check("", "");
        check("functions.", "functions.");
    }

    #[test]
    fn names_that_endpoints_take() {
        let check = |name: &str, expected: &str| assert_eq!(sendable(name), expected, "{name}");
        check("read_file-2", "read_file-2");
        check("fs.read é", "fs_read__");
        check("", "unnamed");
        assert_eq!(sendable(&"a".repeat(99)).len(), 64);
    }
}
