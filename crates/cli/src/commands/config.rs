//! `alara config`: the user's settings.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;

use crate::config::{self, SETTINGS};
use crate::ui;

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
        Some(Command::Set { key, value }) => {
            let setting = config::setting(key)?;
            config::check(setting, value)?;
            // A file must be found from other directories too.
            let value = match setting.key {
                "model" => &config::from_folder(value, Path::new(".")),
                _ => value,
            };
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

fn show(as_json: bool) -> anyhow::Result<()> {
    let values = config::read()?;
    if as_json {
        let settings = SETTINGS.iter().map(|setting| {
            let value = values.get(setting.key);
            let (text, origin) =
                (value.map(|value| &value.text), value.map(|value| value.origin.to_string()));
            (setting.key.to_owned(), json!({"value": text, "set_in": origin}))
        });
        ui::line(&serde_json::to_string_pretty(&settings.collect::<serde_json::Map<_, _>>())?);
        return Ok(());
    }
    for setting in &SETTINGS {
        let about = match values.get(setting.key) {
            Some(value) => format!("{} (set in {})", value.text, value.origin),
            None => format!("- {}", setting.about),
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
    config::of_file(&path).map(drop)
}
