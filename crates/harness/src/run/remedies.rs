//! Remedies for common errors of Python programs, added to the result.

use crate::types::ToolResult;

/// How a Python error begins, and its remedy.
const REMEDIES: [(&str, &str); 2] = [
    (
        "ModuleNotFoundError: No module named",
        "only Python's standard library is there: do it with csv, json, re, sqlite3, pathlib and the like",
    ),
    (
        "SyntaxError:",
        "a compound statement (for, if, with, def) can't follow a semicolon: write the code on several lines",
    ),
];

/// Adds a remedy to the result of a program that failed with such an error.
pub fn tell(result: &mut ToolResult) {
    if result.ok {
        return;
    }
    let last = result.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if let Some((_, remedy)) = REMEDIES.iter().find(|(error, _)| last.starts_with(error)) {
        result.add_note(remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_python_gets_a_remedy() {
        let note = |ok: bool, stderr: &str| {
            let mut result = ToolResult { ok, stderr: stderr.into(), exit: Some(1), ..ToolResult::default() };
            tell(&mut result);
            result.note
        };
        let missing = "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n\
                       ModuleNotFoundError: No module named 'pandas'\n";
        assert!(note(false, missing).contains("standard library"));
        let line = "  File \"<string>\", line 1\n    import csv; with open('a') as f: pass\n                ^^^^\n\
                    SyntaxError: invalid syntax";
        assert!(note(false, line).contains("several lines"));
        assert_eq!(note(true, missing), "", "it has caught it");
        assert_eq!(note(false, "KeyError: 'a'"), "");
    }
}
