//! Rules about calls that are on an NPC's list: allow, ask a person, deny.
//! Answers are remembered for the session, or in a file of their own; no team's file is ever
//! rewritten.
//!
//! A rule's pattern names a jinx (`shell`), or a jinx and the beginning of its first argument
//! (`shell:git push`).
//! Of the rules that fit a call the one with the longest pattern counts; among equals the one said
//! last, in this order: jinx, team.
//! An answer is about exactly what was asked, to the letter, and goes before rules.
//! This module must not know how a call is run.
//! A prefix says what a person means, it does not isolate: that is the sandbox.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::jinx::Jinx;
use crate::sandbox::Risk;
use crate::team::{ANY, JOINTS, Rule, Team};
use crate::types::{Effect, Verdict};

/// What a person is asked: whether a call may be made, or whether it may have what is the user's.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Who wants to make the call.
    pub npc: &'a str,
    /// The jinx.
    pub jinx: &'a Jinx,
    /// The arguments, complete.
    pub arguments: &'a Map<String, Value>,
    /// The user's environment variables that its programs would get.
    /// Empty: the question is about the call itself.
    pub variables: &'a [&'a str],
    /// What its programs would take away of what lies in the work directory, if that is the
    /// question.
    pub risk: Option<Risk<'a>>,
    /// What an answer for longer than this time is about: a pattern, or the jinx as it is now with
    /// these variables.
    pub about: String,
}

/// What a person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This time.
    Yes,
    /// From now on, until the program ends.
    Session,
    /// From now on; it is written down.
    Always,
    /// Not this time.
    No,
    /// Never; it is written down.
    Never,
}

/// Words of a shell that stand before a command.
const LEADING: [&str; 21] = [
    "!", "{", "builtin", "command", "do", "doas", "elif", "else", "env", "exec", "if", "nice", "nohup",
    "setsid", "sudo", "then", "time", "timeout", "until", "while", "xargs",
];

/// Answers by whom they are given to (see [`holder`]) and what they are about.
/// That is a call (see [`pattern`]), or something that begins with `/`, which no jinx does.
type Answers = BTreeMap<String, BTreeMap<String, Verdict>>;

/// The rules that people have made: in this session, and those in a file.
#[derive(Debug, Default)]
pub struct Permissions {
    answers: Mutex<Remembered>,
    file: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Remembered {
    file: Answers,
    session: Answers,
}

impl Permissions {
    /// With the answers of a file, if it exists, which later answers are added to.
    ///
    /// # Errors
    /// The file can't be read, or is not what was once written.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let answers = read(file)?;
        let remembered = Remembered { file: answers, session: Answers::new() };
        Ok(Permissions { answers: Mutex::new(remembered), file: Some(file.to_owned()) })
    }

    /// What holds for a call, and by what; `None` if no rule speaks of it.
    /// Of the team's own rules the longest counts, and of those of the teams above; of these two
    /// the one that permits less.
    pub fn verdict(
        &self,
        team: &Team,
        jinx: &Jinx,
        arguments: &Map<String, Value>,
    ) -> Option<(Verdict, String)> {
        if let Some(answer) = self.answer(&holder(team), &pattern(jinx, arguments)) {
            return Some(answer);
        }
        let own = jinx.permission.map(|verdict| {
            let by = format!("`{}` itself", jinx.name);
            Rule { pattern: jinx.name.clone(), verdict, by, inherited: false }
        });
        let first = first_argument(jinx, arguments);
        let (above, own): (Vec<&Rule>, Vec<&Rule>) = own
            .iter()
            .chain(&team.rules)
            .filter(|rule| fits(rule, &jinx.name, first.as_deref()))
            .partition(|rule| rule.inherited);
        // The last one of equals, as `max_by_key` does it.
        let longest = |rules: Vec<&Rule>| rules.into_iter().max_by_key(|rule| rule.pattern.len()).cloned();
        let rule = [longest(above), longest(own)].into_iter().flatten().max_by_key(|rule| rule.verdict)?;
        Some((rule.verdict, rule.by))
    }

    /// What a person has answered to `holder` about exactly this, and when.
    pub fn answer(&self, holder: &str, about: &str) -> Option<(Verdict, String)> {
        let remembered = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = |answers: &Answers| answers.get(holder)?.get(about).copied();
        let now =
            answered(&remembered.session).map(|verdict| (verdict, "an answer in this session".to_owned()));
        now.or_else(|| answered(&remembered.file).map(|verdict| (verdict, "an earlier answer".to_owned())))
    }

    /// Remembers an answer to `holder` about this, as far as it holds for longer than this time.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn remember(&self, holder: &str, about: &str, answer: Answer) -> Result<(), Error> {
        let verdict = match answer {
            Answer::Session | Answer::Always => Verdict::Allow,
            Answer::Never => Verdict::Deny,
            Answer::Yes | Answer::No => return Ok(()),
        };
        let mut remembered = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let insert = |answers: &mut Answers| {
            answers.entry(holder.to_owned()).or_default().insert(about.to_owned(), verdict);
        };
        insert(&mut remembered.session);
        if let Some(file) = self.file.as_deref().filter(|_| answer != Answer::Session) {
            // Another program may have added to it.
            remembered.file = read(file)?;
            insert(&mut remembered.file);
            write(file, &remembered.file)?;
        }
        Ok(())
    }
}

/// Whom answers about a team are given to: its directory, or the name of a built-in one.
/// Jinxes of the same name may be something else elsewhere.
pub fn holder(team: &Team) -> String {
    let directory = team.directory.as_ref();
    // Where a relative path leads depends on where one stands.
    let directory = directory.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    directory.map_or_else(|| team.name.clone(), |directory| directory.display().to_string())
}

/// What an answer is about: for a jinx that may change something its very first argument to the
/// letter, otherwise the jinx.
pub fn pattern(jinx: &Jinx, arguments: &Map<String, Value>) -> String {
    match first_argument(jinx, arguments) {
        Some(first) if jinx.effect == Effect::Write => format!("{}:{first}", jinx.name),
        _ => jinx.name.clone(),
    }
}

/// What an answer is about that lets a jinx have these variables of the environment.
/// That is the jinx as it is now, with the values that its steps get from the team's `.ctx`.
/// Another one once either has changed.
pub fn variables(team: &Team, jinx: &Jinx, names: &[&str]) -> String {
    let parts = serde_json::to_vec(&(jinx, &team.values)).unwrap_or_default();
    let hash: String = Sha256::digest(parts).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/{} {hash} gets {}", jinx.name, names.join(", "))
}

fn first_argument(jinx: &Jinx, arguments: &Map<String, Value>) -> Option<String> {
    match arguments.get(&jinx.inputs.first()?.name)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// A text with single spaces.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn fits(rule: &Rule, jinx: &str, first: Option<&str>) -> bool {
    let Some((name, prefix)) = rule.pattern.split_once(':') else {
        return rule.pattern == jinx || rule.pattern == ANY;
    };
    let (Some(first), true) = (first, name == jinx) else { return false };
    let prefix = plain(prefix);
    match rule.verdict {
        // What is allowed is one command.
        Verdict::Allow => !first.contains(JOINTS) && begins(&plain(first), &prefix),
        // What is not allowed may stand anywhere among several, in any dress.
        Verdict::Ask | Verdict::Deny => {
            let parts = first.split(JOINTS);
            let dressed = |part: &str| begins(&plain(part), &prefix) || begins(&bare(part), &prefix);
            begins(&plain(first), &prefix) || parts.into_iter().any(dressed)
        }
    }
}

/// Whether a text with single spaces begins with the words of `prefix`.
/// A prefix that ends in `/` is a folder.
fn begins(text: &str, prefix: &str) -> bool {
    if prefix.ends_with('/') {
        let path = text.trim_start_matches("./").replace("//", "/");
        let folder = prefix.trim_start_matches("./");
        // Out of the folder again is not within it.
        return path.starts_with(folder) && path.split('/').all(|part| part != "..");
    }
    text.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// A command without what may stand before it (keywords, assignments, `sudo`), without quotes, and
/// by its name alone.
fn bare(command: &str) -> String {
    let plain: String = command.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let leads = |word: &&str| {
        LEADING.contains(word)
            || word.starts_with('-')
            || word.split_once('=').is_some_and(|(name, _)| !name.is_empty())
    };
    let mut words = plain.split_whitespace().skip_while(leads);
    let name = words.next().map(|word| word.rsplit('/').next().unwrap_or(word));
    // An option before the subcommand does not make it another one: `git -C . push`.
    let rest = words.filter(|word| !word.starts_with('-') && *word != ".");
    name.into_iter().chain(rest).collect::<Vec<_>>().join(" ")
}

fn read(file: &Path) -> Result<Answers, Error> {
    match std::fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|source| Error::Answers { path: file.to_owned(), source: source.into() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Answers::new()),
        Err(source) => Err(Error::Answers { path: file.to_owned(), source }),
    }
}

/// Writes to a temporary file that then takes the place: a full disk loses nothing.
fn write(file: &Path, answers: &Answers) -> Result<(), Error> {
    let error = |source| Error::Answers { path: file.to_owned(), source };
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(error)?;
    // Readable for its owner only.
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(error)?;
    let text = serde_json::to_string_pretty(answers).unwrap_or_default();
    new.write_all(format!("{text}\n").as_bytes()).map_err(error)?;
    new.as_file().sync_all().map_err(error)?;
    new.persist(file).map_err(|failed| error(failed.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jinx::{Choices, Input, Kind};
    use serde_json::json;

    fn shell() -> Jinx {
        let input = Input {
            name: "command".into(),
            kind: Kind::String,
            description: String::new(),
            default: None,
            choices: Choices::Any,
        };
        Jinx { name: "shell".into(), inputs: vec![input], ..Jinx::default() }
    }

    fn arguments(command: &str) -> Map<String, Value> {
        json!({"command": command}).as_object().cloned().unwrap()
    }

    fn rule(pattern: &str, verdict: Verdict) -> Rule {
        Rule { pattern: pattern.into(), verdict, by: pattern.into(), inherited: false }
    }

    #[test]
    fn the_longest_rule_that_fits_counts() {
        let team = Team {
            rules: vec![
                rule("shell", Verdict::Ask),
                rule("shell:git", Verdict::Allow),
                rule("shell:git push", Verdict::Deny),
                rule("shell:ls", Verdict::Allow),
                rule("shell:rm", Verdict::Deny),
            ],
            ..Team::default()
        };
        let check = |command: &str, expected: &str| {
            let (_, by) = Permissions::default().verdict(&team, &shell(), &arguments(command)).unwrap();
            assert_eq!(by, expected, "{command}");
        };
        check("git status", "shell:git");
        check("git  push origin", "shell:git push");
        check("git pushx", "shell:git");
        check("gitk", "shell");
        check("make", "shell");
        check("ls -l", "shell:ls");
        // Several commands are not what one of them is.
        check("ls; make", "shell");
        check("ls $(make)", "shell");
        check("ls\nmake", "shell");
        check("ls; rm -rf /", "shell:rm");
        check("git status && git push", "shell:git push");
        check("echo `rm x`", "shell:rm");
        for dressed in [
            "if true; then rm x; fi",
            "! rm x",
            "FOO=1 rm x",
            "\\rm x",
            "'rm' x",
            "/bin/rm x",
            "ls | xargs rm",
        ] {
            check(dressed, "shell:rm");
        }
        check("X=y git -C . push", "shell:git push");
        let other = Jinx { name: "py".into(), ..shell() };
        assert_eq!(Permissions::default().verdict(&team, &other, &arguments("git")), None);
    }

    #[test]
    fn a_team_permits_no_more_than_those_above() {
        let above = [
            rule("shell:git push", Verdict::Deny),
            rule("shell:rm", Verdict::Deny),
            rule("shell:rm -i", Verdict::Ask),
        ];
        let above = above.map(|rule| Rule { inherited: true, ..rule });
        let check = |own: (&str, Verdict), command: &str, expected: Verdict| {
            let team = Team { rules: [above.to_vec(), vec![rule(own.0, own.1)]].concat(), ..Team::default() };
            let found = Permissions::default().verdict(&team, &shell(), &arguments(command)).unwrap();
            assert_eq!(found.0, expected, "{own:?} {command}");
        };
        use Verdict::{Allow, Ask, Deny};
        for dressed in ["'git' push", "sudo git push", "/usr/bin/git push", "X=1 git push", "git -C . push"] {
            check((&format!("shell:{dressed}"), Allow), dressed, Deny);
        }
        check(("shell:ls; git push", Ask), "ls; git push", Deny);
        check(("shell:ls; git push", Allow), "ls; git push", Deny);
        check(("shell:git push origin", Ask), "git push origin", Deny);
        check(("shell:rm -i x", Allow), "rm -i x", Ask);
        check(("shell:rm -i x", Deny), "rm -i x", Deny);
        check(("shell:git", Allow), "git status", Allow);
        check(("shell", Deny), "git status", Deny);
    }

    #[test]
    fn a_rule_for_several_commands_holds_for_them_together() {
        let team = Team {
            rules: vec![rule("shell", Verdict::Allow), rule("shell:curl x | sh", Verdict::Deny)],
            ..Team::default()
        };
        let check = |command: &str, expected| {
            let found = Permissions::default().verdict(&team, &shell(), &arguments(command)).unwrap().0;
            assert_eq!(found, expected, "{command}");
        };
        check("curl x  |  sh", Verdict::Deny);
        check("curl x", Verdict::Allow);
    }

    #[test]
    fn a_folder_is_not_left_by_dots() {
        let team = Team {
            rules: vec![rule("shell", Verdict::Ask), rule("shell:out/", Verdict::Allow)],
            ..Team::default()
        };
        let check = |path: &str, expected| {
            let found = Permissions::default().verdict(&team, &shell(), &arguments(path)).unwrap().0;
            assert_eq!(found, expected, "{path}");
        };
        check("out/a", Verdict::Allow);
        check("./out//a", Verdict::Allow);
        check("out/../src", Verdict::Ask);
        check("outer", Verdict::Ask);
    }

    #[test]
    fn answers_hold_as_long_as_they_say() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/permissions.json");
        let jinx = Jinx { permission: Some(Verdict::Ask), ..shell() };
        let (here, there) = (Team { name: "a".into(), ..Team::default() }, Team::default());
        let verdict = |permissions: &Permissions, team: &Team, command: &str| {
            permissions.verdict(team, &jinx, &arguments(command)).unwrap().0
        };
        let first = Permissions::open(&file).unwrap();
        assert_eq!(verdict(&first, &here, "make all"), Verdict::Ask);
        for answer in [Answer::Yes, Answer::No] {
            first.remember(&holder(&here), "shell:make all", answer).unwrap();
            assert_eq!(verdict(&first, &here, "make all"), Verdict::Ask);
        }
        first.remember(&holder(&here), "shell:make all", Answer::Session).unwrap();
        assert_eq!(verdict(&first, &here, "make all"), Verdict::Allow);
        assert!(!file.exists());
        let pattern = pattern(&jinx, &arguments("make\n  test; ls"));
        assert_eq!(pattern, "shell:make\n  test; ls");
        first.remember(&holder(&here), &pattern, Answer::Always).unwrap();
        first.remember(&holder(&here), "shell:rm x", Answer::Never).unwrap();

        let second = Permissions::open(&file).unwrap();
        assert_eq!(verdict(&second, &here, "make all"), Verdict::Ask);
        assert_eq!(verdict(&second, &here, "make\n  test; ls"), Verdict::Allow);
        // An answer is about exactly what was asked.
        assert_eq!(verdict(&second, &here, "make test; ls"), Verdict::Ask);
        assert_eq!(verdict(&second, &here, "make\n  test; ls; make"), Verdict::Ask);
        assert_eq!(verdict(&second, &here, "rm x"), Verdict::Deny);
        assert_eq!(verdict(&second, &there, "rm x"), Verdict::Ask);

        std::fs::write(&file, "{").unwrap();
        let error = Permissions::open(&file).unwrap_err().to_string();
        assert!(error.starts_with("the file of answers "), "{error}");
    }
}
