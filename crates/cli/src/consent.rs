//! Confirmations by the user: for a team that was found rather than named, for a directory's
//! instructions to agents, and for keys that a team's files send to a host.
//! Stored answers are kept next to those about calls, never in a team's files.

use std::path::Path;

use alara_harness::context_files::{ContextFiles, NAME};
use alara_harness::error::chain;
use alara_harness::model::endpoint::Address;
use alara_harness::permission::{Answer, KEYS, Permissions, about_files, about_key, holder};
use alara_harness::{Error, Team, Verdict};
use anyhow::bail;

use crate::screen::one_line;
use crate::{ask, state, ui};

/// Whether the user has confirmed, or confirms now, what an answer to `holder` about `about` stands
/// for.
/// `yes` confirms in advance.
/// `show` prints the details before the question is asked.
///
/// # Errors
/// The stored answers can't be used.
pub fn agreed(
    holder: &str,
    about: &str,
    yes: bool,
    show: impl FnOnce(),
    words: &str,
) -> anyhow::Result<bool> {
    let answers = answers()?;
    let answer = match answers.answer(holder, about) {
        Some((verdict, _)) => return Ok(verdict == Verdict::Allow),
        None if yes => return Ok(true),
        None if ask::is_possible() => {
            show();
            ask::answer(words)
        }
        None => return Ok(false),
    };
    remember(&answers, holder, about, answer);
    Ok(!matches!(answer, Answer::No | Answer::Never))
}

/// Returns the context files for the directory `work`, if they may be read: someone else may have
/// put them there.
/// A stored yes applies only to their current contents.
/// `named`: the user requested them; `yes` confirms in advance.
///
/// # Errors
/// They were requested and can't be read, or the stored answers can't be used.
pub fn context_files(work: &Path, named: bool, yes: bool) -> anyhow::Result<ContextFiles> {
    let files = match ContextFiles::read(work) {
        Ok(files) => files,
        Err(error) if named => {
            return Err(anyhow::Error::from(error).context("--context-files asks for what can't be read"));
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            ui::note(&format!(
                "warning: no {NAME} is read: {}\nhint: mend it, or --no-context-files",
                ui::told(&error)
            ));
            return Ok(ContextFiles::default());
        }
    };
    if named || files.is_empty() {
        return Ok(files);
    }
    let found: Vec<String> = files
        .files
        .iter()
        .map(|file| format!("{} ({})", files.root.join(&file.path).display(), ui::bytes(file.bytes as u64)))
        .collect();
    let found = one_line(&found.join(", "));
    let holder = files.root.display().to_string();
    let about = format!("/{NAME} {}", files.fingerprint());
    let show = || ui::note(&format!("Found here, and new or changed: {found}"));
    let words = "let agents heed what it says? y: this time, a: until it changes, n: no, never: ";
    if agreed(&holder, &about, yes, show, words)? {
        return Ok(files);
    }
    ui::note(&format!(
        "not read, since nobody said yes to what it says now: {found}\n\
         hint: look at it; --context-files reads it, --no-context-files leaves it without a word"
    ));
    Ok(ContextFiles::default())
}

/// Returns the user's answers, from this run and earlier ones.
///
/// # Errors
/// Their file can't be used.
pub fn answers() -> Result<Permissions, Error> {
    Ok(state::permissions().map(|file| Permissions::open(&file)).transpose()?.unwrap_or_default())
}

/// Confirms a team that was found in the user's work directory: someone else, or an agent, may have
/// put it there.
/// A stored yes applies only to the current contents of its files.
/// `yes` confirms in advance.
///
/// # Errors
/// The user refuses, or there is no terminal to ask at.
pub fn team(team: &Team, yes: bool) -> anyhow::Result<()> {
    let Some(directory) = team.directory.as_deref().filter(|_| team.found) else { return Ok(()) };
    let shown = one_line(&by_path(directory));
    let (answers, holder) = (answers()?, holder(team));
    let about = about_files(team);
    let answer = match answers.answer(&holder, &about) {
        Some((Verdict::Allow, _)) => return Ok(()),
        Some(_) => Answer::No,
        None if yes => {
            ui::note(&format!("the team in {shown} was found here and works, by --yes"));
            return Ok(());
        }
        None if ask::is_possible() => {
            ui::note(&format!("The team in {shown} was found here, not named, and is new or has changed:"));
            what_it_has(team).iter().for_each(|line| ui::note(&format!("  {}", one_line(line))));
            ask::answer("let it work? y: this time, a: until its files change, n: no, never: ")
        }
        None => Answer::No,
    };
    remember(&answers, &holder, &about, answer);
    if matches!(answer, Answer::No | Answer::Never) {
        bail!(
            "the team in {shown} was found here, not named, and nobody said yes to its files as they are now\n\
             hint: look at them, then name it with -t {shown}"
        );
    }
    Ok(())
}

/// Stores a yes to a team just written on the user's request, for the current contents of its
/// files.
///
/// # Errors
/// The file of answers can't be used.
pub fn keep(team: &Team) -> anyhow::Result<()> {
    remember(&answers()?, &holder(team), &about_files(team), Answer::Always);
    Ok(())
}

/// Confirms that agents may work in a directory that holds more than a project's files.
/// `yes` confirms in advance.
///
/// # Errors
/// The user refuses, or there is no terminal to ask at.
pub fn workdir(work: &Path, yes: bool) -> anyhow::Result<()> {
    let Some((what, spared)) = state::more_than_a_project(work) else { return Ok(()) };
    let shown = by_path(work);
    let real = work.canonicalize().unwrap_or_else(|_| work.to_owned());
    let about = format!("/in {}", real.display());
    let show =
        || ui::note(&format!("The work directory {shown} is {what}. Agents could change all but {spared}."));
    if agreed("/directory", &about, yes, show, "let them? y: this time, a: always, n: no, never: ")? {
        return Ok(());
    }
    bail!(
        "the work directory {shown} is {what}, and nobody said yes to that\n\
         hint: cd into a project, or name one: --workdir DIR; --yes takes it all the same"
    );
}

/// Stores an answer; only warns if it can't be written.
fn remember(answers: &Permissions, holder: &str, about: &str, answer: Answer) {
    if let Err(error) = answers.remember(holder, about, answer) {
        ui::note(&format!("warning: {}", chain(&error)));
    }
}

/// Lists the notable parts of a team and its sub-teams.
fn what_it_has(team: &Team) -> Vec<String> {
    let npcs: Vec<&str> = team.npcs.iter().map(|npc| npc.name.as_str()).collect();
    let mut lines = vec![format!("{}: {}", team.name, npcs.join(", "))];
    for jinx in team.jinxes.iter().filter(|jinx| !jinx.trusted && (jinx.network || !jinx.env.is_empty())) {
        let network = jinx.network.then_some("the network").into_iter();
        let wants = network.chain(jinx.env.iter().map(String::as_str)).collect::<Vec<_>>();
        lines.push(format!("  its jinx {} wants {}", jinx.name, wants.join(", ")));
    }
    for hook in &team.hooks {
        lines.push(format!("  its jinx {} runs by itself: {}", hook.name, hook.event.name()));
    }
    lines.extend(team.teams.iter().flat_map(what_it_has));
    lines
}

/// Formats a path so that `-t` accepts it as one: with a slash.
fn by_path(directory: &Path) -> String {
    match directory.components().count() {
        1 if directory.is_relative() => format!("./{}", directory.display()),
        _ => directory.display().to_string(),
    }
}

/// Asks whether to send the key in `variable`, which a team's file names, to this host.
///
/// # Errors
/// The user refuses, or there is no terminal to ask at.
pub fn key(variable: &str, address: &Address, yes: bool) -> anyhow::Result<()> {
    let host = address.authority();
    let about = about_key(variable, host);
    let show = || ui::note(&format!("The team's files send the key in {variable} to {}", one_line(host)));
    if !agreed(KEYS, &about, yes, show, "allow it? y: this time, a: always to this host, n: no, never: ")? {
        bail!(
            "the team's files send the key in {variable} to {host}, and nobody said yes to that\n\
             hint: --yes lets them; or name the endpoint yourself: -m {address}, with its key in ALARA_API_KEY"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_no_names() {
        let check = |path: &str, expected: &str| assert_eq!(by_path(Path::new(path)), expected);
        check("npc_team", "./npc_team");
        check("teams/mine", "teams/mine");
        check("/tmp/a", "/tmp/a");
    }
}
