//! `alara undo`: lists changes that sessions made in work directories, and reverts them.

mod commit;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alara_engine::file;
use alara_harness::undo::{self, Recorded, Refused};
use anyhow::{Context, bail};

use crate::progress::count;
use crate::screen::one_line;
use crate::{state, ui};

/// Most characters of a task in the list.
const TASK: usize = 60;

/// Revert a session's changes in its work directory
///
/// A session is a run, a chat, or a request to an agent of a server.
/// Files that tools of its agents created, changed or removed get their earlier state back, unless
/// they have changed since.
/// Running the command again reverts the session before that.
/// A revert is itself a session in the list, so you can revert it by name.
/// alara keeps the contents of files up to 8 MiB, up to 256 MiB per session, for the latest 20
/// sessions.
/// Without layers over the work directory (see `doctor`), and with `--yes` or in an empty
/// directory, that applies to directories of at most 20000 files.
/// Changes by MCP servers, and by jinxes that you start yourself, aren't recorded.
/// Exit code 0: done, 1: not done, 2: wrong usage, or the machine lacks something.
#[derive(clap::Args)]
pub struct Args {
    /// A session from the list, or the beginning of its name [default: the latest one with
    /// remaining changes in the current directory]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// List sessions, the latest first, or the changes of SESSION
    #[arg(long)]
    list: bool,
    /// Also overwrite later changes, and skip files that can't be restored
    #[arg(long, conflicts_with = "list")]
    force: bool,
    /// Keep the changes of SESSION: make a git commit of exactly these, with the task as its
    /// message
    #[arg(long, conflicts_with_all = ["list", "force"])]
    commit: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let root = state::undo().context("there is no home directory, and XDG_STATE_HOME is not set")?;
    let sessions = undo::sessions(&root).with_context(|| format!("can't read {}", root.display()))?;
    match (&args.session, args.list) {
        (None, true) => {
            sessions.iter().for_each(|session| ui::line(&line(session, &sessions)));
            if sessions.is_empty() {
                ui::note("no session has changed anything");
            }
            Ok(ExitCode::SUCCESS)
        }
        (Some(name), true) => {
            show(named(&sessions, name)?);
            Ok(ExitCode::SUCCESS)
        }
        (name, false) => {
            let session = match name {
                Some(name) => named(&sessions, name)?,
                None => here(&sessions)?,
            };
            if args.commit { keep(session) } else { take_back(session, args.force) }
        }
    }
}

/// Returns the only session whose name begins with `name`.
fn named<'a>(sessions: &'a [Recorded], name: &str) -> anyhow::Result<&'a Recorded> {
    let mut found = sessions.iter().filter(|session| session.id.starts_with(name));
    match (found.next(), found.next()) {
        (Some(session), None) => Ok(session),
        (Some(_), Some(_)) => bail!("more than one session is called {name}…\nhint: alara undo --list"),
        (None, _) => bail!("no session that changed something is called {name}\nhint: alara undo --list"),
    }
}

/// Returns the latest session with remaining changes in the current directory, ignoring reverted
/// ones.
fn here(sessions: &[Recorded]) -> anyhow::Result<&Recorded> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let here = here.context("the working directory can't be read")?;
    // A commit may have changed only the repository, which may be elsewhere.
    let places = [Some(here.clone()), repository(&here)];
    let is_left = |work: &&Path, session: &Recorded| {
        places.iter().flatten().any(|place| place.starts_with(work))
            && undo::left(session, work).is_ok_and(|left| !left.is_empty())
    };
    let is_meant =
        |session: &&Recorded| !session.is_undo() && works(session).iter().any(|work| is_left(work, session));
    sessions.iter().find(is_meant).with_context(|| {
        let here = here.display();
        format!("nothing is left of what sessions changed in {here}\nhint: alara undo --list")
    })
}

/// Returns the git directory named by a `.git` file in or above a directory.
fn repository(here: &Path) -> Option<PathBuf> {
    let dot = here.ancestors().map(|folder| folder.join(".git")).find(|dot| dot.exists())?;
    let text = file::read_text(&dot, file::TEXT).ok()?;
    let named = text.strip_prefix("gitdir: ")?.trim_end_matches(['\n', '\r']);
    dot.parent()?.join(named).canonicalize().ok()
}

/// Returns the directories that a session worked in.
fn works(session: &Recorded) -> Vec<&Path> {
    let mut works: Vec<&Path> = session.entries.iter().map(|entry| entry.work.as_path()).collect();
    works.sort_unstable();
    works.dedup();
    works
}

/// Formats a session as one line: its name, time, number of paths and directories, and its task.
fn line(session: &Recorded, all: &[Recorded]) -> String {
    let begun = &session.entries[0].time;
    let begun = begun
        .parse::<jiff::Timestamp>()
        .map(|time| time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string());
    let begun = begun.unwrap_or_else(|_| session.entries[0].time.clone());
    let works = works(session);
    let paths: usize = works.iter().map(|work| undo::net(session, work).len()).sum();
    let works: Vec<String> = works.iter().map(|work| one_line(&work.display().to_string())).collect();
    let mut line = format!("{:<22}  {begun}  {:<10}  {}", session.id, count(paths, "path"), works.join(", "));
    let what = match session.undoes() {
        Some(other) => Some(format!("undo of {other}")),
        None => commit::work(session).0.map(|task| commit::cut(&one_line(&task), TASK)),
    };
    if let Some(what) = what {
        line += &format!("  {what}");
    }
    if is_reverted(session, all) {
        line += "  (reverted)";
    }
    line
}

/// Whether another session undid all changes of `session`, and nothing of them is there again.
fn is_reverted(session: &Recorded, all: &[Recorded]) -> bool {
    all.iter().any(|other| other.undoes() == Some(&session.id))
        && works(session).iter().all(|work| undo::left(session, work).is_ok_and(|left| left.is_empty()))
}

/// Lists a session's changes by program.
fn show(session: &Recorded) {
    let mut uncovered = 0;
    for entry in &session.entries {
        if entry.uncovered.is_some() {
            uncovered += 1;
            continue;
        }
        ui::line(&one_line(&entry.by));
        for change in &entry.changes {
            let lost = if session.has(&change.before) { "" } else { " (what was there is not kept)" };
            let path = change.path.display().to_string();
            ui::line(&format!("  {} {}{lost}", change.verb(), one_line(&path)));
        }
    }
    let why = session.entries.iter().find_map(|entry| entry.uncovered.as_ref());
    if let Some(why) = why {
        ui::note(&format!("not known of {}: {why}", count(uncovered, "call")));
    }
}

fn take_back(session: &Recorded, force: bool) -> anyhow::Result<ExitCode> {
    let journal = state::journal().context("there is no state directory")?;
    let mut done = 0;
    for work in works(session) {
        let taken = undo::take_back(session, work, &journal, force)
            .with_context(|| format!("can't take back all of {} in {}", session.id, work.display()))?;
        match taken {
            Ok(changes) => {
                for change in &changes {
                    let path = work.join(&change.path).display().to_string();
                    ui::line(&format!("{} {}", change.verb(), one_line(&path)));
                }
                done += changes.len();
            }
            Err(refused) => {
                tell(&refused, work);
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    let uncovered = session.entries.iter().filter(|entry| entry.uncovered.is_some()).count();
    if uncovered > 0 {
        ui::note(&format!(
            "what {} changed is not known: alara undo --list {}",
            count(uncovered, "call"),
            session.id
        ));
    }
    if done == 0 {
        ui::note(&format!("nothing of {} is left to take back", session.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// Commits a session's changes.
fn keep(session: &Recorded) -> anyhow::Result<ExitCode> {
    let mut commits = 0;
    for work in works(session) {
        // A commit by an agent changes the repository's folder, which is outside any work tree.
        if work.join("HEAD").is_file() && work.join("objects").is_dir() {
            continue;
        }
        if let Some((commit, paths)) = commit::commit(session, work)? {
            ui::line(&format!(
                "{commit}  {} in {}",
                count(paths, "path"),
                one_line(&work.display().to_string())
            ));
            commits += 1;
        }
    }
    if commits == 0 {
        ui::note(&format!("nothing of {} is left to commit", session.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains why nothing was reverted.
fn tell(refused: &Refused, work: &Path) {
    let tell = |what: &str, paths: &[PathBuf]| {
        for path in paths {
            let path = work.join(path).display().to_string();
            ui::note(&format!("{what}: {}", one_line(&path)));
        }
    };
    tell("changed since", &refused.changed);
    tell("not kept, so it can't be had back", &refused.lost);
    ui::note(&format!("nothing was taken back\nhint: {}", forced(refused)));
}

/// Explains what `--force` would do.
fn forced(refused: &Refused) -> &'static str {
    match (refused.changed.as_slice(), refused.lost.as_slice()) {
        ([_], []) => "--force overwrites it",
        (_, []) => "--force overwrites them",
        ([], [_]) => "--force leaves it as it is, and takes back the rest",
        ([], _) => "--force leaves them as they are, and takes back the rest",
        _ => "--force overwrites what was changed since, and leaves what is not kept as it is",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn force_is_explained_by_what_is_there() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let told =
            |changed: &[&str], lost: &[&str]| forced(&Refused { changed: paths(changed), lost: paths(lost) });
        assert_eq!(told(&["a"], &[]), "--force overwrites it");
        assert_eq!(told(&["a", "b"], &[]), "--force overwrites them");
        assert_eq!(told(&[], &["a"]), "--force leaves it as it is, and takes back the rest");
        assert_eq!(told(&[], &["a", "b"]), "--force leaves them as they are, and takes back the rest");
        let both = "--force overwrites what was changed since, and leaves what is not kept as it is";
        assert_eq!(told(&["a"], &["b"]), both);
    }
}
