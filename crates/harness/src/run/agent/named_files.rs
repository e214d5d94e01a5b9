//! Files that a task names, and whether they exist.

use std::collections::VecDeque;
use std::path::Path;

/// Known file extensions: a word with another extension may be a number, a module or a host.
const ENDINGS: [&str; 34] = [
    "bat",
    "cfg",
    "conf",
    "cpp",
    "css",
    "csv",
    "diff",
    "gitignore",
    "go",
    "html",
    "ini",
    "ipynb",
    "java",
    "js",
    "json",
    "jsonl",
    "log",
    "md",
    "patch",
    "pdf",
    "py",
    "rs",
    "rst",
    "sh",
    "sql",
    "sqlite",
    "svg",
    "toml",
    "ts",
    "tsv",
    "txt",
    "xml",
    "yaml",
    "yml",
];
/// Most files and folders to look at.
const MOST: usize = 5000;

/// The files that `task` names and that exist nowhere in `work`, each once.
pub(super) fn absent(task: &str, work: &Path) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in task.split(|c: char| c.is_whitespace() || "\"'`,;:()[]{}<>*=".contains(c)) {
        let name = word.trim_end_matches(['.', '!', '?']);
        let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        if ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
            && !names.iter().any(|other| other == name)
        {
            names.push(name.to_owned());
        }
    }
    names.retain(|name| !is_there(work, name));
    names
}

/// Whether any folder of `work` holds a file of this name; of a name with spaces, the last word
/// counts.
/// Also true if there are too many files to look through.
pub(super) fn is_there(work: &Path, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let has_name =
        |file: &str| file.strip_suffix(last).is_some_and(|before| before.is_empty() || before.ends_with(' '));
    let (mut folders, mut seen) = (VecDeque::from([work.to_owned()]), 0);
    while let Some(folder) = folders.pop_front() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MOST || has_name(&entry.file_name().to_string_lossy()) {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push_back(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_task_names() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("songs")).unwrap();
        for name in ["frost.py", "songs/Last Green Waltz.mp3", "songs/old list.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let check =
            |task: &str, expected: &[&str]| assert_eq!(absent(task, folder.path()), expected, "{task}");
        check("Repair frost.py. Write the number to alarms.txt.", &["alarms.txt"]);
        check("Write `out/sum.json` (and \"sum.md\"): out/sum.json first.", &["out/sum.json", "sum.md"]);
        check("old list.txt becomes old_list.txt", &["old_list.txt"]);
        check("version 1.2, numpy.array, https://example.com, e.g. this", &[]);
        check("delete songs/list.txt", &[]);
        check("write st.txt", &["st.txt"]);
    }
}
