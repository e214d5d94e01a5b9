//! `alara config`: the user's settings.

use std::path::Path;
use std::process::ExitCode;

use alara_harness::model::endpoint::Address;
use anyhow::{Context, anyhow, bail};
use serde_json::json;

use crate::config::{self, BuiltIn, SETTINGS};
use crate::ui::{self, HINT};
use crate::{model, model_file, state};

/// Show and change the defaults of options
///
/// The settings are in config.yaml in alara's configuration folder; alara.yaml in a project may
/// choose a model and a team.
/// Command-line options override them, and so does ALARA_MODEL.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show all settings and where each was set
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the value of a setting alone
    ///
    /// Exit code 0: it is set, 1: it is not, 2: wrong usage.
    Get {
        /// The setting
        key: String,
    },
    /// Set a value for all later commands
    Set {
        /// The setting: model, team, tool_format, ctx, threads, temperature or color
        key: String,
        /// Its value
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Restore the built-in default
    Unset {
        /// The setting
        key: String,
    },
    /// Open the file in your editor ($VISUAL, $EDITOR, else vi)
    Edit,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => show(false)?,
        Some(Command::Show { json }) => show(*json)?,
        Some(Command::Get { key }) => {
            let key = config::setting(key)?.key;
            match config::read()?.get(key) {
                Some(value) => ui::line(&value.text),
                None => {
                    ui::note(&format!("{key} is not set"));
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
        Some(Command::Set { key, value }) => {
            let setting = config::setting(key)?;
            config::check(setting, value)?;
            let value = &usable(setting.key, value)?;
            let path = config::change(setting, Some(value))?;
            ui::note(&format!("{key} is {value} from now on, set in {}", path.display()));
        }
        Some(Command::Unset { key }) => {
            let path = config::change(config::setting(key)?, None)?;
            ui::note(&format!("{key} has its built-in default again; {} sets it no more", path.display()));
        }
        Some(Command::Edit) => edit()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the value as it is stored: a relative path must work from other folders too.
///
/// # Errors
/// There is no such model or team.
fn usable(key: &str, value: &str) -> anyhow::Result<String> {
    let here = Path::new(".");
    match key {
        "model" if Address::is_meant_by(value) => {
            value.parse::<Address>()?;
        }
        "model" if model::is_elsewhere(value) => {}
        "model" => match model_file::absent(value)? {
            Some(entry) => ui::note(&format!(
                "{} is not on this machine yet\nhint: alara models pull {}",
                entry.title, entry.name
            )),
            None => {
                model_file::known(value)?;
                return Ok(config::from_folder(value, here));
            }
        },
        "team" => {
            let team = state::search().team(Some(value)).map_err(|error| {
                anyhow!("{}{HINT}name a team, or the path of its directory", ui::told(&error.into()))
            })?;
            let real = |path: &Path| path.canonicalize().ok();
            let own = team.directory.as_deref().and_then(real);
            let beside = [here.join(value), here.join("teams").join(value)];
            if let Some(own) = own.filter(|own| beside.iter().any(|path| real(path).as_ref() == Some(own))) {
                return Ok(own.to_str().context("the path of the team is no text")?.to_owned());
            }
        }
        _ => {}
    }
    Ok(value.to_owned())
}

fn show(as_json: bool) -> anyhow::Result<()> {
    let values = config::read()?;
    if as_json {
        let settings = SETTINGS.iter().map(|setting| {
            let value = values.get(setting.key);
            let built_in = match (setting.built_in)() {
                BuiltIn::Value(value) => Some(value),
                BuiltIn::Rule(_) => None,
            };
            let described = json!({
                "value": value.map(|value| &value.text),
                "set_in": value.map(|value| value.origin.to_string()),
                "default": built_in,
            });
            (setting.key.to_owned(), described)
        });
        ui::line(&serde_json::to_string_pretty(&settings.collect::<serde_json::Map<_, _>>())?);
        return Ok(());
    }
    for setting in &SETTINGS {
        let about = match (values.get(setting.key), (setting.built_in)()) {
            (Some(value), _) => format!("{} (set in {})", value.text, value.origin),
            (None, BuiltIn::Value(value)) => format!("{value} (default) - {}", setting.about),
            (None, BuiltIn::Rule(rule)) => format!("{rule} (default) - {}", setting.about),
        };
        ui::entry(setting.key, &about);
    }
    Ok(())
}

/// Opens the user's file in an editor, and checks it afterwards.
fn edit() -> anyhow::Result<()> {
    let path = config::create()?;
    let set = |name| std::env::var(name).ok().filter(|text: &String| !text.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // The variable may include options, as for git and other programs.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = std::process::Command::new(program).args(words).arg(&path).status();
    let status = status.with_context(|| format!("can't start the editor {program}\nhint: set EDITOR"))?;
    if !status.success() {
        bail!("the editor {program} failed: {status}");
    }
    config::check_file(&path)
}
