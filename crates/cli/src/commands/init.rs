//! `alara init`: creates a small team to begin with.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::{agent, consent, ui};

/// The team's files, by their paths in it.
const FILES: [(&str, &str); 5] = [
    ("team.ctx", include_str!("init/team.ctx")),
    ("guide.npc", include_str!("init/guide.npc")),
    ("editor.npc", include_str!("init/editor.npc")),
    ("jinxes/word_count.jinx", include_str!("init/jinxes/word_count.jinx")),
    ("jinxes/skills/house-style/SKILL.md", include_str!("init/jinxes/skills/house-style/SKILL.md")),
];

/// Create a small team to begin with
///
/// Creates two agents, a tool, a skill and their shared context, with comments that explain them.
/// Doesn't overwrite existing files.
#[derive(clap::Args)]
pub struct Args {
    /// The team's directory; commands find `npc_team` without being given its name
    #[arg(value_name = "DIR", default_value = "npc_team")]
    directory: PathBuf,
}

/// Writes the team's files; adds each folder and file that it creates to `made`, even if it fails
/// later.
fn write(directory: &Path, made: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for (path, text) in FILES {
        let path = directory.join(path);
        let folder = path.parent().unwrap_or(directory);
        let folders: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
        made.extend(
            folders.into_iter().rev().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned),
        );
        fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
        let mut file = File::create_new(&path).with_context(|| format!("can't make {}", path.display()))?;
        made.push(path.clone());
        file.write_all(text.as_bytes()).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let shown = directory.display();
    if directory.is_dir() {
        let entries = directory.read_dir().with_context(|| format!("can't read {shown}"))?;
        if entries.count() > 0 {
            bail!("{shown} is not empty: nothing was written\nhint: name a folder that is new or empty");
        }
    }
    let mut made = Vec::new();
    if let Err(error) = write(directory, &mut made) {
        // A half-written team would get in the way of the next attempt.
        for path in made.iter().rev() {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
        return Err(error.context("nothing was written"));
    }
    made.iter().filter(|path| path.is_file()).for_each(|path| ui::line(&path.display().to_string()));
    if let Err(error) = agent::team_in(directory).and_then(|team| consent::keep(&team)) {
        ui::note(&format!("warning: {}", ui::told(&error)));
    }
    ui::note(&format!(
        "the team is in {shown}; `alara check {shown}` checks it, `alara run -t {shown} TASK` gives it work"
    ));
    Ok(ExitCode::SUCCESS)
}
