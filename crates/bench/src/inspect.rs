//! Finds problems in suites and sweeps, each with its place, without running anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use alara_harness::error::chain;
use alara_harness::hidden::{self, CALL};
use alara_harness::jinx;
use alara_harness::source::{self, Source};
use alara_harness::team::unreadable_bash;
use alara_harness::{Diagnostic, Jinx, Location, Severity, Team, knowledge, yaml};
use serde_json::Value;

use crate::dialogue::{Dialogue, Setting, User, setting};
use crate::suite::{find, is_yaml};
use crate::sweep::Sweep;
use crate::{Error, Suite, Task, suite_csv};

/// Whether `path` is a file of a suite, or a folder of such files that isn't a team.
pub fn is_suite(path: &Path) -> bool {
    // A team's permissions aren't a task.
    if path.ends_with("permissions.yaml") {
        return false;
    }
    if path.is_file() {
        return is_yaml(path) || path.extension().is_some_and(|ending| ending == "csv");
    }
    let team = |entry: &Path| {
        let ending = entry.extension().is_some_and(|ending| ending == "ctx" || ending == "npc");
        ending
            || ["agents.md", "agents", "jinxes", "jinxs", "npc_team"].iter().any(|name| entry.ends_with(name))
    };
    let mut files = Vec::new();
    path.read_dir()
        .is_ok_and(|mut entries| !entries.any(|entry| entry.is_ok_and(|entry| team(&entry.path()))))
        && find(path, &mut files).is_ok()
        && files.iter().any(|file| is_yaml(file) && tells_a_task(file))
}

/// Keys that most tasks have.
const TASK_KEYS: [&str; 8] =
    ["id", "category", "difficulty", "instruction", "setup", "verify", "gold", "user"];

/// Whether a YAML file has keys of tasks, since other files have this extension too.
/// One of them may be misspelled.
fn tells_a_task(file: &Path) -> bool {
    let tells = |text: String| {
        let keys: BTreeSet<&str> = text.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
        keys.iter().filter(|key| TASK_KEYS.contains(key)).count() > 1
            || text.contains("instruction")
            || text.contains("\nuser:")
    };
    source::read(file).is_ok_and(tells)
}

/// Returns the problems of a suite: a folder of task files and jinxes, a single task file, or a CSV
/// file.
/// For a file that can't be parsed, returns the first problem.
///
/// # Errors
/// There is nothing at `path`, or no task.
pub fn suite(path: &Path) -> Result<Vec<Diagnostic>, Error> {
    if !path.is_dir() && !is_yaml(path) {
        return match Suite::load(path) {
            Ok(_) => Ok(unreadable(path)),
            Err(error @ (Error::Read { .. } | Error::NotASuite { .. } | Error::NoTasks { .. })) => Err(error),
            Err(error) => Ok(vec![told(path, &error)]),
        };
    }
    let setting = match Setting::of(path) {
        Ok(setting) => setting,
        Err(error) => return Ok(vec![told(&path.join(setting::FILE), &error)]),
    };
    let files = files(path, &setting)?;
    if !files.iter().any(|file| is_yaml(file)) {
        return Err(Error::NoTasks { path: path.to_owned() });
    }
    let (mut problems, mut jinxes, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for path in files {
        let source = match source::read(&path) {
            Ok(text) => Source { path, text },
            Err(source) => {
                problems.push(at(&path, Location::default(), &chain(&source)));
                continue;
            }
        };
        match is_yaml(&source.path) {
            true => {
                let (task, mut found) = yaml::read_all(&source);
                problems.append(&mut found);
                tasks.extend(task.map(|task| (task, source)));
            }
            false => jinxes.extend(jinx::read(&source, &mut problems)),
        }
    }
    let team = match &setting.team {
        Some(folder) => Team::load(folder)
            .map_err(|error| problems.push(at(folder, Location::default(), &chain(&error))))
            .ok(),
        None => Team::stock("alara").ok(),
    };
    if let Err(error) = setting.databases() {
        problems.push(told(&path.join(setting::FILE), &error));
    }
    each(&tasks, &jinxes, team.as_ref(), &setting, &mut problems);
    problems.extend(unreadable(path));
    Ok(problems)
}

/// Returns the scripts of tasks that bash can't parse: a task with such a check can never be
/// solved.
fn unreadable(path: &Path) -> Vec<Diagnostic> {
    // Unreadable files have been reported already.
    let tasks = tasks(path).unwrap_or_default();
    let scripts = tasks.iter().flat_map(|(task, path, location)| {
        [("setup", &task.setup), ("verify", &task.verify)]
            .map(|(key, script)| (key, script.as_str(), path, *location))
    });
    let scripts: Vec<_> = scripts.collect();
    let found = unreadable_bash(&scripts.iter().map(|(_, script, ..)| *script).collect::<Vec<_>>());
    let told = scripts.iter().zip(found).filter_map(|((key, script, path, location), found)| {
        let (message, line) = found?;
        let text = script.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
        Some(at(path, *location, &format!("bash can't read line {line} of `{key}`, `{text}`: {message}")))
    });
    told.collect()
}

/// Returns the files of a suite other than a CSV file.
fn files(path: &Path, setting: &Setting) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    match path.is_dir() {
        true => find(path, &mut files)?,
        false => files.push(path.to_owned()),
    }
    files.retain(|file| !setting.owns(file));
    Ok(files)
}

/// Returns the tasks of a suite that can be read and have a check, each with the location of the
/// check: file and position.
///
/// # Errors
/// There is nothing at `path`, or a CSV file is invalid.
pub fn tasks(path: &Path) -> Result<Vec<(Task, PathBuf, Location)>, Error> {
    if !path.is_dir() && !is_yaml(path) {
        let line = |location: String| location.rsplit(':').next().and_then(|line| line.parse().ok());
        let rows = suite_csv::read(path)?.into_iter();
        return Ok(rows
            .map(|(task, location)| {
                let line = line(location).unwrap_or(0);
                (task, path.to_owned(), Location { line, column: usize::from(line > 0) })
            })
            .collect());
    }
    let mut tasks = Vec::new();
    for path in files(path, &Setting::of(path)?)?.into_iter().filter(|file| is_yaml(file)) {
        let Ok(source) = Source::from_file(&path) else { continue };
        let Some(task) = yaml::read_all::<Task>(&source).0 else { continue };
        if task.dialogue.is_none() && task.check(|_| String::new()).is_ok() {
            tasks.push((task, path, key(&source.text, "verify")));
        }
    }
    Ok(tasks)
}

/// Finds problems in tasks that could be read: their fields, duplicate ids, and names that their
/// team lacks.
fn each(
    tasks: &[(Task, Source)],
    jinxes: &[Jinx],
    team: Option<&Team>,
    setting: &Setting,
    problems: &mut Vec<Diagnostic>,
) {
    let documents = team.map(documents).unwrap_or_default();
    let broken: BTreeSet<PathBuf> = problems.iter().map(|problem| problem.path.clone()).collect();
    let mut ids: BTreeMap<&str, &Source> = BTreeMap::new();
    for (task, source) in tasks {
        for error in task.problems(|_| String::new()) {
            let (field, message) = match error {
                Error::EmptyField { field, .. } => (field, format!("the field `{field}` is empty")),
                Error::Value { field, value, wanted, .. } => {
                    (field, format!("`{value}` is no {field}: {wanted}"))
                }
                other => ("", other.to_string()),
            };
            problems.push(at(&source.path, key(&source.text, field), &message));
        }
        if let Some(first) = ids.insert(&task.id, source) {
            let first = first.path.display();
            let message =
                format!("the task id `{}` occurs twice, in {first} too: give one of them another", task.id);
            problems.push(at(&source.path, key(&source.text, "id"), &message));
        }
        let Some(team) = team else { continue };
        // An invalid jinx of the suite is reported separately.
        let wrong = |name: &str| broken.iter().any(|file| file.file_stem().is_some_and(|stem| stem == name));
        let jinx = |name: &&String| {
            team.jinx(name).is_none() && jinxes.iter().all(|own| own.name != **name) && !wrong(name)
        };
        let lacking = task.jinxes.iter().filter(jinx).map(|name| ("jinxes", "jinx", name));
        let members = task.delegates.iter().filter(|name| team.member(name).is_none());
        let members = members.map(|name| ("delegates", "member", name));
        let dialogue = task.dialogue.as_deref().map(|dialogue| of_dialogue(dialogue, team, &documents));
        let whose = if setting.team.is_some() { "suite's" } else { "built-in" };
        for (field, what, name) in lacking.chain(members).chain(dialogue.iter().flatten().copied()) {
            let message = format!(
                "the {whose} team has no {what} `{name}`: the task takes a team that has it (--team), else it ends with an error"
            );
            let problem = at(&source.path, key(&source.text, field), &message);
            problems.push(Diagnostic { severity: Severity::Warning, ..problem });
        }
    }
}

/// Returns the names in a dialogue that its team lacks: field, kind and name.
fn of_dialogue<'a>(
    dialogue: &'a Dialogue,
    team: &Team,
    documents: &BTreeSet<String>,
) -> Vec<(&'static str, &'static str, &'a String)> {
    let mut lacking = Vec::new();
    let tool = |name: &str| team.jinx(name).is_some() || hidden::is_built_in(name);
    match &dialogue.user {
        User::Npc(persona) if team.npc(Some(&persona.npc)).is_err() => {
            lacking.push(("user", "NPC", &persona.npc));
        }
        User::Npc(_) => {}
        User::Script(lines) => {
            let calls = lines.iter().flat_map(|line| &line.calls).map(|call| &call.name);
            lacking.extend(calls.filter(|name| !tool(name)).map(|name| ("user", "jinx", name)));
        }
    }
    for action in &dialogue.actions {
        let called = action.arguments.get(hidden::PLACES.0).filter(|_| action.name == CALL);
        let name = match called {
            Some(Value::String(name)) => name,
            _ => &action.name,
        };
        lacking.extend((!tool(name)).then_some(("actions", "jinx", name)));
    }
    let absent = dialogue.documents.iter().filter(|id| !documents.contains(*id));
    lacking.extend(absent.map(|id| ("documents", "document", id)));
    lacking
}

/// Returns the ids of a team's documents.
fn documents(team: &Team) -> BTreeSet<String> {
    let knowledge = team.knowledge.iter().chain(team.npcs.iter().filter_map(|npc| npc.knowledge.as_ref()));
    let folders: BTreeSet<&PathBuf> = knowledge.map(|knowledge| &knowledge.folder).collect();
    let documents =
        folders.into_iter().filter_map(|folder| knowledge::documents(folder, &mut Vec::new()).ok());
    documents.flatten().map(|document| document.id).collect()
}

/// Returns the parsed `.bench` file, if it can be parsed, and the problems of it and its suite.
///
/// # Errors
/// The file can't be read.
pub fn sweep(path: &Path) -> Result<(Option<Sweep>, Vec<Diagnostic>), Error> {
    let text = source::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let source = Source { path: path.to_owned(), text };
    let (sweep, mut problems) = yaml::read_all::<Sweep>(&source);
    let Some(mut sweep) = sweep else { return Ok((None, problems)) };
    problems.extend(sweep.problems().iter().map(|problem| about(&source, &problem.name, &problem.message)));
    sweep.locate(path);
    let suite = match &sweep.suite {
        None => Suite::stock(),
        Some(folder) => {
            problems.extend(
                self::suite(folder)
                    .unwrap_or_else(|error| vec![at(path, key(&source.text, "suite"), &chain(&error))]),
            );
            Suite::load(folder)
        }
    };
    if let Ok(suite) = suite {
        let categories = sweep.categories.iter();
        let ruled = sweep.conditions.iter().flat_map(|condition| condition.categories.keys());
        let categories: BTreeSet<&String> = categories.chain(ruled).collect();
        let lacking =
            categories.into_iter().map(|name| (name, suite.select(std::slice::from_ref(name), &[])));
        let lacking =
            lacking.chain(sweep.tasks.iter().map(|id| (id, suite.select(&[], std::slice::from_ref(id)))));
        for (name, found) in lacking {
            if let Err(error) = found {
                problems.push(about(&source, name, &error.to_string()));
            }
        }
        problems.extend(policies(&sweep, &suite, &source));
        // Each filter may match tasks that the other doesn't.
        if problems.is_empty()
            && let Err(error) = suite.select(&sweep.categories, &sweep.tasks)
        {
            problems.push(at(path, key(&source.text, "tasks"), &error.to_string()));
        }
    }
    Ok((Some(sweep), problems))
}

/// Reports conditions whose NPC or documents are missing in the suite's own team.
/// Other teams are checked elsewhere.
fn policies(sweep: &Sweep, suite: &Suite, source: &Source) -> Vec<Diagnostic> {
    let team = suite.setting.team.as_ref().and_then(|folder| Team::load(folder).ok());
    let Some(mut team) = team else { return Vec::new() };
    suite.furnish(&mut team);
    let own = sweep.conditions.iter().filter(|condition| condition.team.is_none());
    let wrong = own.filter_map(|condition| {
        let named = condition.npc.as_deref().filter(|name| team.npc(Some(name)).is_err());
        let error = condition.apply(&mut team.clone()).err().map(|error| error.to_string());
        let unknown = named.map(|name| {
            let known: Vec<&str> = team.npcs.iter().map(|npc| npc.name.as_str()).collect();
            (name, format!("the suite's team has no NPC `{name}`; it has {}", known.join(", ")))
        });
        unknown.or(error.map(|error| (condition.name.as_str(), error)))
    });
    wrong.map(|(name, message)| about(source, name, &message)).collect()
}

/// Returns a problem with the name `name`, located at its last occurrence in a file.
pub fn about(source: &Source, name: &str, message: &str) -> Diagnostic {
    let is_part = |c: char| c.is_alphanumeric() || "._-".contains(c);
    let in_line = |line: &str| {
        let alone =
            |at: &usize| !line[..*at].ends_with(is_part) && !line[at + name.len()..].starts_with(is_part);
        let code = line.split('#').next().unwrap_or_default();
        (!name.is_empty()).then(|| code.match_indices(name).map(|(at, _)| at).find(alone)).flatten()
    };
    let lines: Vec<&str> = source.text.lines().collect();
    let found = lines.iter().enumerate().rev().find_map(|(line, text)| {
        let column = text[..in_line(text)?].chars().count() + 1;
        Some(Location { line: line + 1, column })
    });
    at(&source.path, found.unwrap_or_default(), message)
}

/// Returns the location of a top-level key in a file.
fn key(text: &str, key: &str) -> Location {
    let begins = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
    match text.lines().position(begins) {
        Some(line) if !key.is_empty() => Location { line: line + 1, column: 1 },
        _ => Location::default(),
    }
}

fn at(path: &Path, location: Location, message: &str) -> Diagnostic {
    let (path, message): (PathBuf, String) = (path.to_owned(), message.trim().to_owned());
    Diagnostic { path, location, severity: Severity::Error, message }
}

/// Converts an error that already names the file and the line.
fn told(path: &Path, error: &Error) -> Diagnostic {
    let text = chain(error);
    let rest = text.strip_prefix(&format!("{}:", path.display())).unwrap_or(&text);
    let (line, message) = match rest.split_once(':').map(|(line, rest)| (line.parse(), rest)) {
        Some((Ok(line), message)) => (line, message),
        _ => (0, rest),
    };
    at(path, Location { line, column: usize::from(line > 0) }, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nverify: 'true'\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn lines(folder: &Path, problems: &[Diagnostic]) -> Vec<String> {
        let own = format!("{}/", folder.display());
        problems.iter().map(|problem| problem.to_string().replace(&own, "")).collect()
    }

    #[test]
    fn all_problems_of_a_suite() {
        let task = |change: &[(&str, &str)]| {
            change.iter().fold(TASK.to_owned(), |text, (from, to)| text.replace(from, to))
        };
        let files = [
            ("a.yaml", task(&[])),
            ("b.yaml", task(&[("a-1", "b-1")]) + "points: 3\n"),
            ("c.yaml", task(&[("a-1", "c-1"), ("easy", "trivial")])),
            ("d.yaml", task(&[("a-1", "d-1"), ("Do it.", "''")])),
            ("e.yaml", task(&[("a-1", "d/1")])),
            ("f.yaml", task(&[])),
            ("g.yaml", task(&[("a-1", "g-1")]) + "jinxes: [nothing]\ndelegates: [nobody]\n"),
            ("h.yaml", task(&[("a-1", "h-1"), ("verify: 'true'\n", "")])),
            ("y.jinx", "jinx_name: y\nsteps:\n- {engine: bash\n".to_owned()),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let folder = folder(&files);
        assert!(is_suite(folder.path()));
        let text = lines(folder.path(), &suite(folder.path()).unwrap()).join("\n");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_ships_is_in_order() {
        let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches");
        for name in ["tasks", "bank", "shop", "telecom"] {
            assert_eq!(suite(&benches.join(name)).unwrap(), []);
        }
        for name in ["22-models.bench", "retry.bench", "policies.bench"] {
            assert_eq!(sweep(&benches.join("sweeps").join(name)).unwrap().1, [], "{name}");
        }
    }

    #[test]
    fn all_problems_of_a_sweep() {
        let check = |text: &str, expected: &[&str]| {
            let folder = folder(&[("x.bench", text), ("suite/a.yaml", TASK), ("broken/b.yaml", "id: [\n")]);
            let (_, problems) = sweep(&folder.path().join("x.bench")).unwrap();
            let lines = lines(folder.path(), &problems);
            assert_eq!(lines.len(), expected.len(), "{lines:#?}");
            for (line, words) in lines.iter().zip(expected) {
                assert!(line.starts_with(words), "{line}");
            }
        };
        check("suite: suite\ntrials: 2\n", &[]);
        check(
            "suit: suite\n",
            &["x.bench:1:1: error: unknown key `suit`, did you mean `suite`? (known: suite, models"],
        );
        check("trials: 0\n", &["x.bench:1:1: error: this must be a whole number above 0, not `0`"]);
        check(
            "suite: suite\ncategories: [a, git]\ntasks:\n- a-1\n- a-2\n",
            &[
                "x.bench:2:17: error: the suite has no category `git` (known: a",
                "x.bench:5:3: error: the suite has no task `a-2`, did you mean `a-1`? (known: a-1",
            ],
        );
        check(
            "models: [x]\nconditions:\n- name: one\n- name: one\n",
            &["x.bench:4:9: error: the condition `one` occurs twice"],
        );
        check("suite: absent\n", &["x.bench:1:1: error: can't read the suite"]);
        check("suite: broken\n", &["broken/b.yaml:"]);
    }

    #[test]
    fn policies_are_those_of_the_suites_team() {
        let dialogue = "id: a-1\ncategory: a\ndifficulty: easy\nuser:\n- say: Hi\n";
        let check = |team: &str, conditions: &str, expected: &[&str]| {
            let sweep = format!("suite: suite\nconditions:\n{conditions}");
            let folder = folder(&[
                ("x.bench", &sweep),
                ("suite/a.yaml", dialogue),
                ("suite/suite.yaml", "team: team\n"),
                ("suite/team/team.ctx", &format!("forenpc: clerk\n{team}")),
                ("suite/team/clerk.npc", "name: clerk\nprimary_directive: Work.\n"),
                ("suite/team/docs/a.md", "# A\n"),
            ]);
            let (_, problems) = super::sweep(&folder.path().join("x.bench")).unwrap();
            let mut lines = lines(folder.path(), &problems);
            // Other things that the team lacks are reported elsewhere.
            lines.retain(|line| line.starts_with("x.bench"));
            assert_eq!(lines.len(), expected.len(), "{lines:#?}");
            for (line, words) in lines.iter().zip(expected) {
                assert!(line.starts_with(words), "{line}");
            }
        };
        let documents = "knowledge: {folder: docs}\n";
        check(documents, "- {name: one, policy: clerk, gate: off, retrieval: golden}\n", &[]);
        check(
            documents,
            "- {name: one, policy: clark}\n",
            &["x.bench:3:23: error: the suite's team has no NPC `clark`; it has clerk"],
        );
        // Another team has other NPCs.
        check(documents, "- {name: one, team: else, policy: clark}\n", &[]);
        check(
            "",
            "- {name: one, retrieval: bm25}\n",
            &["x.bench:3:10: error: the team team has no documents"],
        );
    }

    #[test]
    fn a_csv_file_has_lines() {
        let head = "id,category,difficulty,setup_cmd,instruction,verify_cmd,description\n";
        let folder = folder(&[("old.csv", &format!("{head}s-1,s,easy,,Go.,ls,\ns-2,s,trivial,,Go.,ls,\n"))]);
        let path = folder.path().join("old.csv");
        let problems = suite(&path).unwrap();
        assert_eq!(
            lines(folder.path(), &problems),
            ["old.csv:3:1: error: `trivial` is no difficulty: it is easy, medium or hard"]
        );
        assert!(suite(&folder.path().join("absent.yaml")).unwrap()[0].message.contains("No such file"));
    }

    #[test]
    fn a_team_is_no_suite() {
        let folder =
            folder(&[("team.ctx", ""), ("x.yaml", TASK), ("y/z.yaml", TASK), ("notes/n.yaml", "on: push\n")]);
        assert!(
            !is_suite(folder.path())
                && is_suite(&folder.path().join("y"))
                && !is_suite(&folder.path().join("notes"))
        );
        assert!(is_suite(&folder.path().join("x.yaml")));
    }

    #[test]
    fn names_are_found_as_whole_words() {
        let source = Source { path: "x".into(), text: "a: gitt # git\nb: 'é' git-1 git\n".into() };
        assert_eq!(about(&source, "git", "").location, Location { line: 2, column: 14 });
        assert_eq!(about(&source, "absent", "").location, Location::default());
    }
}
