//! The user's settings: `config.yaml` in alara's configuration folder, and `alara.yaml` of the
//! project around the current directory.
//!
//! A setting is the default of an option; the command line overrides it.
//! A project may choose a model, if the user agrees to its file, and a team, which needs the same
//! confirmation as any team that was found.
//! No setting grants permissions.

mod setting;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use alara_engine::file;
use alara_harness::state::config_home;
use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

pub use setting::{BuiltIn, SETTINGS, Setting, check, setting};

use crate::{consent, ui};

/// The environment variable that names the default model.
const MODEL_VARIABLE: &str = "ALARA_MODEL";
/// File name of a project's settings.
const PROJECT: &str = "alara.yaml";
/// First line of the user's file.
const HEAD: &str = "# Settings of alara; `alara config show` lists them.\n";

/// A value, and where it was set.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub text: String,
    pub origin: Origin,
}

/// Where a value was set.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// In `ALARA_MODEL`.
    Environment,
    /// In the user's file.
    User(PathBuf),
    /// In a project's file.
    Project(PathBuf),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Origin::Environment => f.write_str(MODEL_VARIABLE),
            Origin::User(path) | Origin::Project(path) => path.display().fmt(f),
        }
    }
}

impl Value {
    /// Whether a project's file has it.
    pub fn is_of_project(&self) -> bool {
        matches!(self.origin, Origin::Project(_))
    }

    /// Returns the error about this value of `key`, with the place where it was set.
    pub fn blamed(&self, key: &str, error: &anyhow::Error) -> anyhow::Error {
        let option = if key == "model" { "-m MODEL" } else { "-t TEAM" };
        let remedy = match &self.origin {
            Origin::Environment => format!("set {MODEL_VARIABLE} to another model, or unset it"),
            Origin::User(_) => {
                format!("`alara config set {key} NAME` names another, `alara config unset {key}` none")
            }
            Origin::Project(_) => format!("{option}, or another {key} in that file"),
        };
        let told = ui::told(error);
        anyhow::anyhow!("the default {key}, set in {}: {told}{}{remedy}", self.origin, ui::HINT)
    }
}

/// The effective values, by key.
pub type Values = BTreeMap<&'static str, Value>;

static CURRENT: OnceLock<Values> = OnceLock::new();

/// Reads the settings for the current directory, and keeps them for this process.
///
/// # Errors
/// A file can't be read, or has an unknown key or a wrong value.
pub fn load() -> anyhow::Result<()> {
    let values = read()?;
    if values.get("color").is_some_and(|color| color.text == "never") {
        ui::without_colors();
    }
    let _ = CURRENT.set(values);
    Ok(())
}

/// Returns the settings for the current directory.
///
/// # Errors
/// Those of [`load`].
pub fn read() -> anyhow::Result<Values> {
    let mut values = Values::new();
    if let Some(path) = user_file().filter(|path| path.exists()) {
        let found = of_file(&path, setting)?;
        let value = |text| Value { text, origin: Origin::User(path.clone()) };
        values.extend(found.into_iter().map(|(key, text)| (key, value(text))));
    }
    if let Some(path) = project_file() {
        for (key, mut text) in of_file(&path, setting::of_project)? {
            if key == "model" {
                text = from_folder(&text, path.parent().unwrap_or(Path::new("")));
            }
            values.insert(key, Value { text, origin: Origin::Project(path.clone()) });
        }
    }
    if let Ok(text) = std::env::var(MODEL_VARIABLE)
        && !text.trim().is_empty()
    {
        values.insert("model", Value { text, origin: Origin::Environment });
    }
    Ok(values)
}

/// Returns the path of the model file that `name` means within a folder; leaves any other name as
/// it is.
pub fn from_folder(name: &str, folder: &Path) -> String {
    let path = folder.join(name);
    match path.exists().then(|| std::path::absolute(&path).ok()).flatten().as_deref().and_then(Path::to_str) {
        Some(path) => path.to_owned(),
        None => name.to_owned(),
    }
}

/// Returns the path of the user's file; `None` if there is no home directory.
pub fn user_file() -> Option<PathBuf> {
    Some(config_home()?.join("alara/config.yaml"))
}

/// Returns the settings file of the project around the current directory: searches up to the root
/// of its repository, or else only the current directory.
fn project_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let repository = here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here);
    let inside = here.ancestors().take_while(|folder| folder.starts_with(repository));
    inside.map(|folder| folder.join(PROJECT)).find(|path| path.is_file())
}

/// Returns the setting of a key.
type Known = fn(&str) -> anyhow::Result<&'static Setting>;

/// Checks the user's file.
///
/// # Errors
/// It can't be read, or has an unknown key or an invalid value.
pub fn check_file(path: &Path) -> anyhow::Result<()> {
    of_file(path, setting).map(drop)
}

/// Reads the values in a file with `known` settings.
///
/// # Errors
/// The file can't be read, or has an unknown key or an invalid value.
fn of_file(path: &Path, known: Known) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let name = path.display();
    let text = file::read_given(path).with_context(|| format!("can't read {name}"))?;
    of_text(&text, known).with_context(|| match user_file().as_deref() == Some(path) {
        true => format!("{name} is not usable\nhint: alara config edit"),
        false => format!("{name} is not usable\nhint: edit it, or work in another folder"),
    })
}

fn of_text(text: &str, known: Known) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let found: Option<BTreeMap<String, serde_json::Value>> = serde_saphyr::from_str(text)?;
    let mut values = BTreeMap::new();
    for (key, value) in found.unwrap_or_default() {
        let setting = known(&key)?;
        let text = match value {
            serde_json::Value::String(text) => text,
            value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => value.to_string(),
            _ => bail!("{key} takes one value"),
        };
        check(setting, &text)?;
        values.insert(setting.key, text);
    }
    Ok(values)
}

/// Sets or removes a value in the user's file; leaves everything else in the file as it is.
///
/// # Errors
/// The file can't be written, or would not be readable afterwards; then it remains unchanged.
pub fn change(setting: &Setting, text: Option<&str>) -> anyhow::Result<PathBuf> {
    let path = user_file().context("there is no home directory, and XDG_CONFIG_HOME is not set")?;
    let before = match path.exists() {
        true => file::read_given(&path).with_context(|| format!("can't read {}", path.display()))?,
        false => HEAD.to_owned(),
    };
    let after = changed(&before, setting.key, text);
    of_text(&after, setting::setting).with_context(|| {
        format!("{} would not be usable; nothing was changed\nhint: alara config edit", path.display())
    })?;
    write(&path, &after)?;
    Ok(path)
}

/// Returns the text of a file with the line for a key replaced or removed.
fn changed(before: &str, key: &str, text: Option<&str>) -> String {
    let is_line = |line: &&str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
    // A quoted value is always read literally.
    let line = text.map(|text| format!("{key}: {}\n", serde_json::Value::from(text)));
    let mut lines: Vec<&str> = before.split_inclusive('\n').collect();
    let at = lines.iter().position(is_line).unwrap_or(lines.len());
    lines.retain(|line| !is_line(line));
    lines.splice(at.min(lines.len())..at.min(lines.len()), line.as_deref());
    let mut after = String::new();
    for line in lines {
        if !after.is_empty() && !after.ends_with('\n') {
            after.push('\n');
        }
        after += line;
    }
    after
}

/// Writes the user's file atomically, through a temporary file.
///
/// # Errors
/// The file can't be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("the file of settings has no folder")?;
    let write = || {
        std::fs::create_dir_all(folder)?;
        let mut other = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut other, text.as_bytes())?;
        other.persist(path).map_err(|error| error.error)
    };
    write().map(drop).with_context(|| format!("can't write {}", path.display()))
}

/// Creates the user's file, with a comment for each setting, unless it exists.
///
/// # Errors
/// The file can't be written.
pub fn create() -> anyhow::Result<PathBuf> {
    let path = user_file().context("there is no home directory, and XDG_CONFIG_HOME is not set")?;
    if !path.exists() {
        let line = |setting: &Setting| format!("# {}:    # {}\n", setting.key, setting.about);
        write(&path, &(HEAD.to_owned() + &SETTINGS.iter().map(line).collect::<String>()))?;
    }
    Ok(path)
}

/// Returns the command with the settings as defaults of its options.
pub fn with_defaults(command: clap::Command) -> clap::Command {
    let Some(values) = CURRENT.get() else { return command };
    let is_default = |key: &str| SETTINGS.iter().any(|setting| setting.key == key && setting.is_default);
    let defaults: Vec<(&'static str, &'static str)> = values
        .iter()
        .filter(|(key, _)| is_default(key))
        .map(|(key, value)| (*key, &*value.text.clone().leak()))
        .collect();
    if defaults.is_empty() { command } else { given(command, &defaults) }
}

fn given(command: clap::Command, defaults: &[(&'static str, &'static str)]) -> clap::Command {
    let command = command.mut_args(|argument| {
        let default = defaults.iter().find(|(key, _)| argument.get_id() == *key);
        default.map_or(argument.clone(), |(_, text)| argument.default_value(*text))
    });
    command.mut_subcommands(|command| given(command, defaults))
}

/// Returns the model to use if neither the command line nor a team names one; notes once where it
/// was set.
/// `None` for the one that ships.
pub fn model<'a>() -> Option<&'a str> {
    static CHOSEN: OnceLock<Option<&'static str>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let value = CURRENT.get()?.get("model")?;
        if let Origin::Project(path) = &value.origin
            && !agreed(path, &value.text)
        {
            return None;
        }
        ui::note(&format!("model {}, set in {}", value.text, value.origin));
        Some(value.text.as_str())
    })
}

/// Whether the user allows a project's file to choose the model: somebody else may have written it.
fn agreed(path: &Path, model: &str) -> bool {
    let hash: String = Sha256::digest(model.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let shown = format!("{} wants the model {model}", path.display());
    let about = format!("/model {hash}");
    let words = "use it here? y: this time, a: until it names another, n: no, never: ";
    match consent::agreed(&path.display().to_string(), &about, false, || ui::note(&shown), words) {
        Ok(true) => return true,
        Ok(false) => ui::note(&format!("{shown}; it is not used without your consent\nhint: -m {model}")),
        Err(error) => ui::note(&format!("warning: {error:#}")),
    }
    false
}

/// Returns the effective value of a setting, without asking for the user's consent to a project's.
pub fn value(key: &str) -> Option<&'static Value> {
    CURRENT.get()?.get(key)
}

/// Returns the file of the user's default model, if it is a file; not one that a project names.
pub fn model_file() -> Option<&'static Path> {
    let value = value("model").filter(|value| !value.is_of_project())?;
    Some(Path::new(&value.text)).filter(|path| path.is_file())
}

/// Returns the team to use if none is named and `workdir` has none, and where it was set.
pub fn team(workdir: &Path) -> Option<(String, &'static Value)> {
    let value = value("team")?;
    match &value.origin {
        // Relative to the project, and marked as a path rather than a name.
        Origin::Project(path) => Some((format!("{}/", path.with_file_name(&value.text).display()), value)),
        _ if workdir.join("npc_team").exists() => None,
        _ => Some((value.text.clone(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let read = |text: &str| of_text(text, setting).map_err(|error| format!("{error:#}"));
        let values = read("model: qwen3-4b\nctx: 8192\ntemperature: 0.7\n").unwrap();
        assert_eq!(values["model"], "qwen3-4b");
        assert_eq!((values["ctx"].as_str(), values["temperature"].as_str()), ("8192", "0.7"));
        assert_eq!(read("# nothing\n").unwrap(), BTreeMap::new());
        for (text, expected) in [
            ("modle: x", "there is no setting modle, did you mean model?"),
            ("ctx: 0", "`0` is no value for ctx: it is a whole number from 1 up"),
            ("threads: many", "`many` is no value for threads"),
            ("temperature: -1", "`-1` is no value for temperature"),
            ("tool_format: xml", "`xml` is no value for tool_format: it is one of "),
            ("color: green", "`green` is no value for color: it is auto or never"),
            ("model: [a, b]", "model takes one value"),
            ("permissions: {shell: allow}", "there is no setting permissions"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!(read("model: [").is_err());
    }

    #[test]
    fn one_line_changes() {
        let before = "# mine\nctx: 4096 # small\n\nmodel: a\n# end";
        assert_eq!(
            changed(before, "model", Some("C: d\"")),
            "# mine\nctx: 4096 # small\n\nmodel: \"C: d\\\"\"\n# end"
        );
        assert_eq!(
            changed(before, "threads", Some("2")),
            "# mine\nctx: 4096 # small\n\nmodel: a\n# end\nthreads: \"2\"\n"
        );
        assert_eq!(changed(before, "ctx", None), "# mine\n\nmodel: a\n# end");
        assert_eq!(changed(before, "team", None), before);
        let written = changed("", "ctx", Some("4096"));
        assert_eq!(of_text(&written, setting).unwrap()["ctx"], "4096");
    }
}
