//! `alara doctor --attack`: tries the methods of hostile programs on this machine.

use std::process::ExitCode;

use alara_harness::TeamError;
use alara_harness::sandbox::Isolation;
use alara_harness::sandbox::attack::{Attack, Came, attacks};
use serde::Serialize;

use crate::progress::count;
use crate::screen::one_line;
use crate::ui;

/// An attack and its result.
#[derive(Serialize)]
struct Tried<'a> {
    name: &'a str,
    what: &'a str,
    /// The layers that stopped it.
    by: &'a str,
    #[serde(flatten)]
    came: Came,
}

/// Runs all attacks, or the named one.
pub fn run(name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let all = attacks();
    let chosen: Vec<&Attack> = all.iter().filter(|attack| name.is_empty() || attack.name == name).collect();
    if chosen.is_empty() {
        return Err(TeamError::unknown("attack", name, all.iter().map(|attack| attack.name.as_str())).into());
    }
    let width = chosen.iter().map(|attack| attack.name.len()).max().unwrap_or(0);
    let mut tried = Vec::new();
    for attack in chosen {
        let spinner = ui::spinner();
        spinner.set_message(&attack.name);
        let came = attack.run(Isolation::Auto);
        spinner.finish_and_clear();
        let Attack { name, what, by, .. } = attack;
        let one = Tried { name, what, by, came: came? };
        if !json {
            show(&one, width);
        }
        tried.push(one);
    }
    let fell = tried.iter().filter(|one| one.came == Came::Fell).count();
    if json {
        ui::line(&serde_json::to_string_pretty(&tried)?);
    } else {
        ui::line(&sum(&tried, fell));
    }
    Ok(if fell > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(one: &Tried, width: usize) {
    let (mark, how) = match &one.came {
        Came::Held(how) => ("held", how.clone()),
        Came::Fell => ("FELL", format!("nothing here holds it; it takes: {}", one.by)),
        Came::Untried(why) => ("?", format!("it could not be tried: {why}")),
    };
    ui::line(&format!("  {mark:<4}  {:<width$}  {}", one.name, one.what));
    ui::line(&format!("  {:<4}  {:<width$}  → {}", "", "", one_line(&how)));
}

fn sum(tried: &[Tried], fell: usize) -> String {
    let untried = tried.iter().filter(|one| matches!(one.came, Came::Untried(_))).count();
    let mut parts =
        vec![format!("{} of {} held", tried.len() - fell - untried, count(tried.len(), "attack"))];
    if untried > 0 {
        parts.push(format!("{untried} could not be tried"));
    }
    if fell > 0 {
        parts.push(format!("{fell} got through: `alara doctor` says what is missing on this machine"));
    }
    parts.join(", ")
}
