//! `suite.yaml`: the setting shared by all dialogues of a suite.

use std::path::{Component, Path, PathBuf};

use alara_engine::file;
use alara_harness::source::Source;
use alara_harness::yaml;
use serde::Deserialize;
use serde_json::Value;

use super::Dialogue;
use super::database::{Databases, merged};
use crate::Error;

/// File name.
pub const FILE: &str = "suite.yaml";

/// The setting shared by all dialogues of a suite; the paths are inside the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setting {
    /// The suite's own team, whose documents the tasks use.
    pub team: Option<PathBuf>,
    /// JSON file with the initial database.
    pub database: Option<PathBuf>,
    /// JSON file with the user's own initial database.
    pub user_database: Option<PathBuf>,
    /// The tool whose success verifies a customer.
    pub verification: Option<String>,
}

impl Setting {
    /// Returns the setting of the suite that contains `path`: a folder, or a file in one of its
    /// folders.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn of(path: &Path) -> Result<Self, Error> {
        let around = path.ancestors().skip(1).take(2).find(|folder| folder.join(FILE).is_file());
        match around.filter(|_| path.is_file()) {
            Some(folder) => Setting::load(folder),
            None => Setting::load(path),
        }
    }

    /// Loads the setting of the suite in `folder`; all fields are absent if there is no such file.
    ///
    /// # Errors
    /// The file can't be read, or refers to something that doesn't exist.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        if !path.is_file() {
            return Ok(Setting::default());
        }
        let source =
            Source::from_file(&path).map_err(|error| Error::Yaml(format!("{}: {error}", path.display())))?;
        let mut setting: Setting = yaml::read(&source).map_err(|wrong| Error::Yaml(wrong.plain()))?;
        let paths = [
            ("team", &mut setting.team, true),
            ("database", &mut setting.database, false),
            ("user_database", &mut setting.user_database, false),
        ];
        for (field, named, directory) in paths {
            let Some(named) = named else { continue };
            let inside = named.components().all(|part| matches!(part, Component::Normal(_)));
            let full = folder.join(&*named);
            if !inside || (if directory { !full.is_dir() } else { !full.is_file() }) {
                let line = source.text.lines().position(|line| line.starts_with(&format!("{field}:")));
                let line = line.map_or_else(String::new, |line| format!(":{}", line + 1));
                return Err(Error::Value {
                    location: format!("{}{line}", path.display()),
                    field,
                    value: named.display().to_string(),
                    wanted: match directory {
                        true => "name a folder inside of the suite",
                        false => "name a JSON file inside of the suite",
                    },
                });
            }
            *named = full;
        }
        Ok(setting)
    }

    /// Whether a path belongs to something in the setting, and isn't a task or jinx of the suite.
    pub fn owns(&self, path: &Path) -> bool {
        path.ends_with(FILE) || self.team.as_ref().is_some_and(|team| path.starts_with(team))
    }

    /// Returns the initial databases.
    ///
    /// # Errors
    /// A file isn't JSON.
    pub fn databases(&self) -> Result<Databases, Error> {
        let read = |path: &Option<PathBuf>| {
            let Some(path) = path else { return Ok(Value::Null) };
            let read_error = |source| Error::Read { path: path.clone(), source };
            let text = file::read_text(path, file::TEXT).map_err(read_error)?;
            serde_json::from_str(&text).map_err(|error| {
                let (line, column) = (error.line(), error.column());
                Error::Yaml(format!("{}:{line}:{column}: no JSON: {error}", path.display()))
            })
        };
        Ok(Databases { database: read(&self.database)?, user: read(&self.user_database)? })
    }

    /// Applies the setting and the databases to a dialogue, whose own values take precedence.
    pub fn apply(&self, databases: &Databases, dialogue: &mut Dialogue) {
        let pairs =
            [(&databases.database, &mut dialogue.database), (&databases.user, &mut dialogue.user_database)];
        for (base, own) in pairs {
            *own = match own.is_null() {
                true => base.clone(),
                false => merged(base.clone(), own),
            };
        }
        dialogue.verification.clone_from(&self.verification);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialogue::{Keys, User};

    #[test]
    fn what_a_suite_shares() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(Setting::load(folder.path()).unwrap(), Setting::default());
        std::fs::create_dir_all(folder.path().join("team")).unwrap();
        write("database.json", r#"{"a": {"x": 1, "y": 2}}"#);
        write(FILE, "team: team\ndatabase: database.json\nverification: log_verification\n");
        let setting = Setting::load(folder.path()).unwrap();
        assert!(setting.owns(&folder.path().join("team/jinxes/a.jinx")));
        assert!(setting.owns(&folder.path().join(FILE)));
        assert!(!setting.owns(&folder.path().join("order/team.yaml")));
        let keys = Keys { database: json!({"a": {"x": null, "z": 3}}), ..Keys::default() };
        let mut dialogue = Dialogue::new(User::Script(Vec::new()), keys);
        setting.apply(&setting.databases().unwrap(), &mut dialogue);
        assert_eq!(dialogue.database, json!({"a": {"y": 2, "z": 3}}));
        assert_eq!(dialogue.verification.as_deref(), Some("log_verification"));
        let check = |text: &str, words: &[&str]| {
            write(FILE, text);
            let error = Setting::load(folder.path()).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        };
        check(
            "database: database.json\nteam: ../team\n",
            &["suite.yaml:2", "`../team` is no team", "a folder"],
        );
        check("database: absent.json\n", &["suite.yaml:1", "a JSON file inside of the suite"]);
        check("teams: team\n", &["suite.yaml:1", "teams"]);
        write(FILE, "database: database.json\n");
        write("database.json", "{\n  x");
        let error = Setting::load(folder.path()).unwrap().databases().unwrap_err().to_string();
        assert!(error.contains("database.json:2:"), "{error}");
    }
}
