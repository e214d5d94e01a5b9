//! The settings: their keys, values and built-in defaults.

use std::path::Path;

use alara_engine::{Format, Sampling, nearest};
use alara_models::shipped;
use anyhow::bail;

use crate::compute;

/// A setting.
pub struct Setting {
    /// Key in the files.
    pub key: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Whether a project may set it.
    pub of_projects: bool,
    /// Whether its value is the default of the option with that name.
    pub is_default: bool,
    /// What applies where it is not set.
    pub built_in: fn() -> BuiltIn,
    /// Validates a value.
    check: fn(&str) -> Result<(), String>,
}

/// What applies where a setting is not set.
pub enum BuiltIn {
    /// A value that the setting takes too.
    Value(String),
    /// A rule, in words: the value depends on the model.
    Rule(&'static str),
}

/// All settings, in display order.
pub const SETTINGS: [Setting; 7] = [
    Setting {
        key: "model",
        about: "the model of NPCs and teams that name none",
        of_projects: true,
        is_default: false,
        built_in: || BuiltIn::Value(shipped::NAME.trim_end_matches(".gguf").to_owned()),
        check: |text| if text.trim().is_empty() { Err("it is empty".into()) } else { Ok(()) },
    },
    Setting {
        key: "team",
        about: "the team where none is named and there is no npc_team",
        of_projects: true,
        is_default: false,
        built_in: || {
            let here = "npc_team";
            BuiltIn::Value(if Path::new(here).exists() { here } else { "alara" }.to_owned())
        },
        check: |text| if text.trim().is_empty() { Err("it is empty".into()) } else { Ok(()) },
    },
    Setting {
        key: "tool_format",
        about: "how models write calls, as --tool-format",
        of_projects: false,
        is_default: true,
        built_in: || BuiltIn::Rule("as the model's chat template has it"),
        check: |text| match Format::from_name(text) {
            Some(_) => Ok(()),
            None => {
                let names: Vec<&str> = Format::all().iter().map(|format| format.name).collect();
                Err(format!("it is one of {}", names.join(", ")))
            }
        },
    },
    Setting {
        key: "ctx",
        about: "most tokens of a conversation, as --ctx",
        of_projects: false,
        is_default: true,
        built_in: || BuiltIn::Rule("what the model was trained for, as far as memory allows"),
        check: count,
    },
    Setting {
        key: "threads",
        about: "threads that compute, as --threads",
        of_projects: false,
        is_default: true,
        built_in: || BuiltIn::Value(compute::threads_or_default(None).to_string()),
        check: count,
    },
    Setting {
        key: "temperature",
        about: "sampling temperature, as --temperature",
        of_projects: false,
        is_default: true,
        built_in: || BuiltIn::Rule("what the model's makers recommend"),
        check: |text| Sampling::temperature(text).map(drop),
    },
    Setting {
        key: "color",
        about: "colours: auto or never",
        of_projects: false,
        is_default: false,
        built_in: || BuiltIn::Value("auto".to_owned()),
        check: |text| match text {
            "auto" | "never" => Ok(()),
            _ => Err("it is auto or never".into()),
        },
    },
];

fn count(text: &str) -> Result<(), String> {
    match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(()),
        _ => Err("it is a whole number from 1 up".into()),
    }
}

/// Returns the setting with this key.
///
/// # Errors
/// There is no such setting.
pub fn setting(key: &str) -> anyhow::Result<&'static Setting> {
    let keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    match SETTINGS.iter().find(|setting| setting.key == key) {
        Some(setting) => Ok(setting),
        None => bail!("there is no setting {key}{} (settings: {})", meant(key, &keys), keys.join(", ")),
    }
}

/// Returns the setting with this key, for a project's file.
///
/// # Errors
/// A project can't set it.
pub fn of_project(key: &str) -> anyhow::Result<&'static Setting> {
    let own = SETTINGS.iter().filter(|setting| setting.of_projects);
    let keys: Vec<&str> = own.map(|setting| setting.key).collect();
    let both = keys.join(" and ");
    match SETTINGS.iter().find(|setting| setting.key == key) {
        Some(setting) if setting.of_projects => Ok(setting),
        Some(_) => bail!(
            "a project can't set {key}, only {both}\nhint: `alara config set {key} VALUE` sets it in your own \
             settings, for all projects"
        ),
        None => bail!("there is no setting {key}{} (a project's settings: {both})", meant(key, &keys)),
    }
}

fn meant(key: &str, keys: &[&str]) -> String {
    nearest(key, keys.iter().copied()).map_or(String::new(), |near| format!(", did you mean {near}?"))
}

/// Validates a value of a setting.
///
/// # Errors
/// The setting doesn't accept the value.
pub fn check(setting: &Setting, text: &str) -> anyhow::Result<()> {
    (setting.check)(text)
        .map_err(|reason| anyhow::anyhow!("`{text}` is no value for {}: {reason}", setting.key))
}
