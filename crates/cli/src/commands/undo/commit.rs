//! `alara undo --commit`: commits a session's changes to the user's repository.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use alara_harness::trace::{self, Record};
use alara_harness::undo::{self, Recorded, State};
use anyhow::{Context, bail};

/// Maximum length of a commit's subject, in characters.
const SUBJECT: usize = 72;
/// Makes git read literal paths from standard input.
const FROM_INPUT: [&str; 2] = ["--pathspec-from-file=-", "--pathspec-file-nul"];

/// Commits a session's changes in `work`; other changes, staged or not, remain as they are.
/// Returns the commit's name and the number of paths in it; `None` if nothing is left to commit.
///
/// # Errors
/// The directory isn't in a git work tree, a path has changed since, or git fails.
pub fn commit(session: &Recorded, work: &Path) -> anyhow::Result<Option<(String, usize)>> {
    if let Err(error) = git(work, &["rev-parse", "--is-inside-work-tree"], b"") {
        // A broken repository is another matter than none.
        if work.ancestors().any(|folder| folder.join(".git").exists()) {
            return Err(error);
        }
        bail!(
            "{} is not in a git repository\nhint: git init makes one; the files stay as they are",
            work.display()
        );
    }
    // Ignored files aren't listed.
    let known = git(work, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"], b"")?;
    let known = names(&known);
    let left = undo::left(session, work).with_context(|| format!("can't read {}", work.display()))?;
    let is_file = |state: &State| matches!(state, State::File { .. } | State::Link { .. });
    let files = left.iter().filter(|(change, _)| {
        let is_known = known.contains(change.path.as_os_str().as_encoded_bytes());
        is_known && (is_file(&change.before) || is_file(&change.after))
    });
    let mut paths = Vec::new();
    for (change, now) in files {
        if *now != change.after {
            let path = change.path.display();
            bail!("{path} was changed since\nhint: commit it with git, then try this again");
        }
        paths.extend_from_slice(change.path.as_os_str().as_encoded_bytes());
        paths.push(0);
    }
    if paths.is_empty() {
        return Ok(None);
    }
    git(work, &[&["add", "--all"][..], &FROM_INPUT].concat(), &paths)?;
    let staged = git(work, &["diff", "--cached", "--name-only", "--relative", "--no-renames", "-z"], b"")?;
    let staged = names(&staged).intersection(&names(&paths)).count();
    if staged == 0 {
        return Ok(None);
    }
    let message = message(session);
    let commit = ["commit", "--quiet", "--only", "-m", &message];
    git(work, &[&commit[..], &FROM_INPUT].concat(), &paths)?;
    let name = git(work, &["rev-parse", "--short", "HEAD"], b"")?;
    Ok(Some((String::from_utf8_lossy(&name).trim().to_owned(), staged)))
}

/// Splits names separated by NUL bytes.
fn names(list: &[u8]) -> BTreeSet<&[u8]> {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect()
}

/// Returns a message with the task as its subject, followed by the session that made the changes.
fn message(session: &Recorded) -> String {
    let (task, model) = work(session);
    let task = task.unwrap_or_else(|| format!("Changes of the session {}", session.id));
    let model = model.map_or_else(String::new, |model| format!(" by {model}"));
    format!("{}\n\nMade{model} in the alara session {}.", cut(&task, SUBJECT), session.id)
}

/// Returns the first line of a session's task, and the model that worked on it, as its trace has
/// them.
pub fn work(session: &Recorded) -> (Option<String>, Option<String>) {
    let traced = session.entries.iter().map(|entry| &entry.trace).find(|path| path.is_file());
    let records = traced.and_then(|path| trace::read(path).ok()).unwrap_or_default();
    let first_line =
        |text: &str| text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    let task = records.iter().find_map(|entry| match &*entry.record {
        Record::User { text } => first_line(text),
        _ => None,
    });
    let model = records.iter().find_map(|entry| match &*entry.record {
        Record::Start(start) => Some(start.model.clone()),
        _ => None,
    });
    (task, model)
}

/// Shortens a text to `most` characters.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    format!("{}…", text.chars().take(most - 1).collect::<String>().trim_end())
}

/// Runs git in `work` and returns its output.
fn git(work: &Path, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut git = Command::new("git");
    git.current_dir(work).arg("--literal-pathspecs").args(arguments);
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().context("can't start git")?;
    let pipe = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Git may print before it has read everything, and exit early.
        scope.spawn(|| pipe.map(|mut pipe| pipe.write_all(input)));
        child.wait_with_output()
    });
    let output = output.context("can't read what git prints")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("git {} failed: {}", arguments[0], said.trim());
    }
    Ok(output.stdout)
}
