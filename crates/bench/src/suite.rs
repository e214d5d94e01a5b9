//! Suites: sets of tasks from the binary, a folder or a file, and the hash that identifies their
//! content.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use alara_harness::jinx;
use alara_harness::source::{self, Source};
use alara_harness::{Diagnostic, Jinx, Team, yaml};
use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use crate::dialogue::Setting;
use crate::{Error, Task, suite_csv};

static STOCK: Dir = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_BENCHES/tasks");
static TUNE: Dir = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_BENCHES/tune");

/// The tasks for tuning that take the fewest turns.
const QUICK: [&str; 12] = [
    "files-01", "files-02", "files-03", "text-01", "text-02", "data-01", "data-02", "data-03", "code-01",
    "code-02", "git-01", "git-02",
];

/// The jinx that replaces web search by a fixed corpus.
const CORPUS: &str = "web_corpus";

/// Writes the quick tasks for tuning to the new folder `into`.
///
/// # Errors
/// They can't be written.
pub fn write_quick(into: &Path) -> io::Result<()> {
    for id in QUICK {
        let category = id.split('-').next().unwrap_or_default();
        let name = format!("{category}/{id}.yaml");
        let file = TUNE.get_file(&name).ok_or_else(|| io::Error::other(format!("no task {name}")))?;
        let path = into.join(&name);
        std::fs::create_dir_all(into.join(category))?;
        std::fs::write(path, file.contents())?;
    }
    Ok(())
}

/// A set of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// `alara` for the suite that ships, otherwise the name of the folder or file.
    pub name: String,
    /// The tasks, sorted by id; at least one.
    pub tasks: Vec<Task>,
    /// Jinxes of the suite, which replace those of the team.
    pub jinxes: Vec<Jinx>,
    /// Shared setting of its dialogues.
    pub setting: Setting,
    /// SHA-256, in hexadecimal, over the tasks in this order, each as one line of compact JSON, and
    /// over the files of the jinxes.
    pub hash: String,
}

impl Suite {
    /// Returns the suite that ships with the binary.
    ///
    /// # Errors
    /// One of its task files is invalid; the tests exclude that.
    pub fn stock() -> Result<Self, Error> {
        let files = STOCK.dirs().flat_map(Dir::files);
        let sources = files.map(|file| Source {
            path: file.path().to_owned(),
            text: file.contents_utf8().unwrap_or_default().to_owned(),
        });
        Suite::of("alara".into(), Path::new("alara"), Setting::default(), sources)
    }

    /// Loads the suite at `path`: a folder of `.yaml` and `.jinx` files, at any depth, one `.yaml`
    /// file, or a `.csv` file.
    /// Files that its `suite.yaml` names are read accordingly.
    ///
    /// # Errors
    /// Unreadable files, unknown or missing keys, empty fields, duplicate ids: each with file and
    /// line.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read_error = |source| Error::Read { path: path.to_owned(), source };
        let folder = std::fs::metadata(path).map_err(read_error)?.is_dir();
        let extension = path.extension().unwrap_or_default();
        let full = path.canonicalize().map_err(read_error)?;
        let name = if folder { full.file_name() } else { full.file_stem() };
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        let mut files = Vec::new();
        if folder {
            find(path, &mut files)?;
        } else if is_yaml(path) {
            files.push(path.to_owned());
        } else if extension == "csv" {
            return Suite::new(name, path, Setting::default(), suite_csv::read(path)?, Vec::new());
        } else {
            return Err(Error::NotASuite { path: path.to_owned() });
        }
        let setting = Setting::of(path)?;
        files.retain(|file| !setting.owns(file));
        let sources = files.into_iter().map(|path| match source::read(&path) {
            Ok(text) => Ok(Source { path, text }),
            Err(source) => Err(Error::Read { path, source }),
        });
        Suite::of(name, path, setting, sources.collect::<Result<Vec<_>, _>>()?)
    }

    /// Creates a suite from these files.
    fn of(
        name: String,
        path: &Path,
        setting: Setting,
        files: impl IntoIterator<Item = Source>,
    ) -> Result<Self, Error> {
        let (mut tasks, mut jinxes) = (Vec::new(), Vec::new());
        let databases = setting.databases()?;
        for file in files {
            let location = file.path.display().to_string();
            if is_yaml(&file.path) {
                let mut task = parse(&file)?;
                if let Some(dialogue) = &mut task.dialogue {
                    setting.apply(&databases, dialogue);
                }
                tasks.push((task, location));
            } else if is_jinx(&file.path) {
                let mut problems = Vec::new();
                let jinx = jinx::read(&file, &mut problems).ok_or_else(|| {
                    let problems: Vec<String> = problems.iter().map(Diagnostic::plain).collect();
                    Error::Yaml(problems.join("\n"))
                })?;
                jinxes.push((jinx, file.text));
            }
        }
        Suite::new(name, path, setting, tasks, jinxes)
    }

    fn new(
        name: String,
        path: &Path,
        setting: Setting,
        tasks: Vec<(Task, String)>,
        mut jinxes: Vec<(Jinx, String)>,
    ) -> Result<Self, Error> {
        if tasks.is_empty() {
            return Err(Error::NoTasks { path: path.to_owned() });
        }
        let mut sorted: BTreeMap<String, (Task, String)> = BTreeMap::new();
        for (task, location) in tasks {
            if let Some((_, first)) = sorted.get(&task.id) {
                return Err(Error::DuplicateId { id: task.id, first: first.clone(), second: location });
            }
            sorted.insert(task.id.clone(), (task, location));
        }
        let tasks: Vec<Task> = sorted.into_values().map(|(task, _)| task).collect();
        let mut hash = Sha256::new();
        for task in &tasks {
            // A task consists of strings and numbers, whose conversion to JSON can't fail.
            hash.update(serde_json::to_string(task).unwrap_or_default());
            hash.update("\n");
        }
        jinxes.sort_by(|(left, _), (right, _)| left.name.cmp(&right.name));
        let jinxes = jinxes.into_iter().map(|(jinx, text)| {
            hash.update(text);
            jinx
        });
        let jinxes = jinxes.collect();
        Ok(Suite { name, tasks, jinxes, setting, hash: format!("{:x}", hash.finalize()) })
    }

    /// Adds its jinxes to a team and its sub-teams.
    /// If it has a web corpus, the team searches that one.
    pub fn furnish(&self, team: &mut Team) {
        for jinx in &self.jinxes {
            match team.jinxes.iter_mut().find(|other| other.name == jinx.name) {
                Some(other) => *other = jinx.clone(),
                None => team.jinxes.push(jinx.clone()),
            }
            if jinx.name == CORPUS {
                team.values.remove("web_search");
            }
        }
        team.teams.iter_mut().for_each(|team| self.furnish(team));
    }

    /// Returns the tasks of these categories and these ids; an empty list doesn't restrict.
    ///
    /// # Errors
    /// The suite lacks a category or id, or no task matches both.
    pub fn select(&self, categories: &[String], ids: &[String]) -> Result<Vec<&Task>, Error> {
        /// Maximum number of names in an error.
        const MOST_KNOWN: usize = 20;

        fn known<'a>(
            what: &'static str,
            names: impl Iterator<Item = &'a String>,
            wanted: &[String],
        ) -> Result<(), Error> {
            let mut names: Vec<&str> = names.map(String::as_str).collect();
            names.dedup();
            match wanted.iter().find(|name| !names.contains(&name.as_str())) {
                Some(name) => {
                    let near = alara_engine::nearest(name, names.iter().copied());
                    let hint = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
                    let mut known = names[..names.len().min(MOST_KNOWN)].join(", ");
                    if names.len() > MOST_KNOWN {
                        known += &format!(" and {} more", names.len() - MOST_KNOWN);
                    }
                    Err(Error::NotInSuite { what, name: name.clone(), hint, known })
                }
                None => Ok(()),
            }
        }
        known("category", self.tasks.iter().map(|task| &task.category), categories)?;
        known("task", self.tasks.iter().map(|task| &task.id), ids)?;
        let chosen: Vec<&Task> = self
            .tasks
            .iter()
            .filter(|task| categories.is_empty() || categories.contains(&task.category))
            .filter(|task| ids.is_empty() || ids.contains(&task.id))
            .collect();
        match chosen.is_empty() {
            true => known("task", [].into_iter(), ids).map(|()| chosen),
            false => Ok(chosen),
        }
    }
}

pub(crate) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn is_jinx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jinx")
}

/// Adds all files of tasks and jinxes below `folder`.
pub(crate) fn find(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<(), Error> {
    let error = |source| Error::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let entry = entry.map_err(error)?;
        let path = entry.path();
        // Don't follow links to folders: they may form a loop.
        if entry.file_type().map_err(error)?.is_dir() {
            find(&path, files)?;
        } else if is_yaml(&path) || is_jinx(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// Parses one task file.
fn parse(file: &Source) -> Result<Task, Error> {
    let task: Task = yaml::read(file).map_err(|wrong| Error::Yaml(wrong.plain()))?;
    task.check(|field| {
        let (key, location) = (format!("{field}:"), file.path.display());
        match file.text.lines().position(|line| line.starts_with(&key)) {
            Some(line) => format!("{location}:{}", line + 1),
            None => location.to_string(),
        }
    })?;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use include_dir::File;

    use super::*;
    use crate::task::Difficulty;

    const TASK: &str = "id: a-1\ncategory: a\ndifficulty: easy\ninstruction: Do it.\nverify: 'true'\n";
    const CORPUS_FILE: &str =
        "jinx_name: web_corpus\ndescription: Documents\neffect: none\nsteps:\n  - return: []\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn quick_tasks_are_those_of_the_readme() {
        let folder = tempfile::tempdir().unwrap();
        write_quick(&folder.path().join("tune")).unwrap();
        let suite = Suite::load(&folder.path().join("tune")).unwrap();
        let ids: Vec<&str> = suite.tasks.iter().map(|task| task.id.as_str()).collect();
        let readme = TUNE.get_file("README.md").and_then(File::contents_utf8).unwrap();
        let list = readme.split("```text").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let mut listed: Vec<&str> = list.split_whitespace().collect();
        listed.sort_unstable();
        assert_eq!(ids, listed);
    }

    #[test]
    fn stock_suite_has_its_tasks() {
        let suite = Suite::stock().unwrap();
        let (mut counts, mut difficulties) = (BTreeMap::new(), BTreeMap::new());
        for task in &suite.tasks {
            *counts.entry(task.category.as_str()).or_insert(0) += 1;
            assert!(
                STOCK.get_file(format!("{}/{}.yaml", task.category, task.id)).is_some(),
                "{} lies elsewhere",
                task.id
            );
            assert!(
                task.gold.is_some() && task.wrong.len() >= 2,
                "{} lacks a gold or two wrong solutions",
                task.id
            );
            *difficulties.entry(task.difficulty).or_insert(0) += 1;
        }
        let ten = "data debug file-ops git multi-step python scripting shell system text".split(' ');
        let five = ["delegation", "tool-chain", "web-search"];
        let wanted = ten.map(|category| (category, 10)).chain(five.map(|category| (category, 5)));
        assert_eq!(counts, wanted.collect());
        let wanted = [(Difficulty::Easy, 34), (Difficulty::Medium, 49), (Difficulty::Hard, 32)];
        assert_eq!(difficulties, wanted.into());
    }

    #[test]
    fn the_same_suite_from_the_disk_has_the_same_hash() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/tasks");
        let (stock, disk) = (Suite::stock().unwrap(), Suite::load(&path).unwrap());
        assert_eq!((stock.hash, stock.tasks, stock.jinxes.len()), (disk.hash, disk.tasks, disk.jinxes.len()));
    }

    #[test]
    fn hash_depends_on_content_and_not_on_layout() {
        let hash = |files: &[(&str, &str)]| Suite::load(folder(files).path()).unwrap().hash;
        let second = TASK.replace("a-1", "a-2");
        let known = hash(&[("x.yaml", TASK)]);
        assert_eq!(known, "2c8b20a7b49f71a44bc74f0206856310b9e598760ff989242fa5ce6070394990");
        assert_eq!(
            known,
            hash(&[("deep/er/z.yml", &format!("# a remark\n{TASK}")), ("README.md", "no task")])
        );
        assert_ne!(known, hash(&[("x.yaml", &TASK.replace("Do it.", "Do that."))]));
        assert_ne!(known, hash(&[("x.yaml", TASK), ("web_corpus.jinx", CORPUS_FILE)]));
        assert_eq!(
            hash(&[("x.yaml", TASK), ("y.yaml", &second)]),
            hash(&[("b.yaml", TASK), ("a.yaml", &second)])
        );
    }

    #[test]
    fn a_suite_brings_jinxes_along() {
        let folder = folder(&[("x.yaml", TASK), ("deep/web_corpus.jinx", CORPUS_FILE)]);
        let suite = Suite::load(folder.path()).unwrap();
        let mut team = Team::stock("alara").unwrap();
        team.values.insert("web_search".into(), "elsewhere".into());
        let count = team.jinxes.len();
        suite.furnish(&mut team);
        for team in [&team, &team.teams[0]] {
            assert_eq!((team.jinx(CORPUS), team.jinxes.len()), (Some(&suite.jinxes[0]), count));
            assert!(!team.values.contains_key("web_search"));
        }
    }

    #[test]
    fn errors_name_file_and_place() {
        let check = |files: &[(&str, &str)], expected: &[&str]| {
            let folder = folder(files);
            let error = Suite::load(folder.path()).unwrap_err().to_string();
            for words in expected {
                assert!(error.contains(words), "`{error}` does not say `{words}`");
            }
        };
        check(&[], &["there is no task"]);
        check(&[("x.yaml", &format!("{TASK}points: 3\n"))], &["x.yaml", "6:1", "points"]);
        check(&[("x.yaml", &TASK.replace("easy", "trivial"))], &["x.yaml", "3:", "trivial"]);
        check(&[("x.yaml", &TASK.replace("verify: 'true'\n", ""))], &["x.yaml", "verify"]);
        check(&[("x.yaml", &TASK.replace("Do it.", "''"))], &["x.yaml:4", "`instruction` is empty"]);
        check(&[("x.yaml", &TASK.replace("a-1", "a/1"))], &["x.yaml:1", "`a/1` is no id"]);
        check(&[("x.yaml", TASK), ("y.yaml", TASK)], &["`a-1` occurs twice", "x.yaml", "y.yaml"]);
        check(&[("x.yaml", "id: [")], &["x.yaml"]);
        check(&[("x.yaml", &format!("{TASK}gold: {{a: b}}\n"))], &["x.yaml", "bash, or a list of turns"]);
        check(&[("x.yaml", TASK), ("y.jinx", "jinx_name: y\n")], &["y.jinx"]);
        check(&[("x.yaml", &format!("{TASK}timeout: 0\n"))], &["x.yaml", "6:"]);
    }

    #[test]
    fn other_paths_are_refused() {
        let folder = folder(&[("notes.txt", "x"), ("x.yaml", TASK)]);
        let load = |name| Suite::load(&folder.path().join(name));
        assert!(matches!(load("absent"), Err(Error::Read { .. })));
        assert!(matches!(load("notes.txt"), Err(Error::NotASuite { .. })));
        assert_eq!(load("x.yaml").unwrap().name, "x");
    }

    #[test]
    fn selects_by_category_and_id() {
        let suite = Suite::stock().unwrap();
        let check = |categories: &[&str], ids: &[&str], expected: Result<&str, &str>| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            let found = suite.select(&owned(categories), &owned(ids));
            let found =
                found.map(|tasks| tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>().join(" "));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        };
        check(
            &["web-search"],
            &["web-search-05", "git-01", "web-search-02"],
            Ok("web-search-02 web-search-05"),
        );
        check(&["git", "text"], &["git-02", "text-01"], Ok("git-02 text-01"));
        check(&["gitt"], &[], Err("no category `gitt`"));
        check(&[], &["git-99"], Err("no task `git-99`"));
        check(&["git"], &["text-01"], Err("no task `text-01`"));
    }
}
