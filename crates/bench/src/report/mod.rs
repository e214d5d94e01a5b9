//! Reports over runs: one structure of sections, tables and figures, written as Markdown, JSON or
//! HTML.
//!
//! Every number knows the attempts that it was made of: a [`Selection`] of them.

mod ab;
mod correlations;
mod data;
mod dialogues;
mod frame;
mod group;
mod html;
mod markdown;
pub(crate) mod math;
mod refusals;
mod sections;
mod settings;
mod svg;
mod traces;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use data::{Facts, RunSource};
pub use frame::{AttemptRow, Frame, SummaryRow, frame};
pub use html::{write as write_html, write_all as write_pages};
pub use markdown::markdown;

use crate::record::Named;
use crate::{Error, run_file};
use data::{Data, Study, by_task};

/// What runs show.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The suite, and its hash.
    pub suite: Named,
    /// The models that worked, with what is known of each.
    pub models: Vec<(Named, Facts)>,
    /// The conditions.
    pub conditions: Vec<String>,
    /// Where the published numbers beside ours are from.
    pub published: String,
    /// The sections, in the order of reading.
    pub sections: Vec<Section>,
    /// The condition of each run, by its place.
    #[serde(skip)]
    run_conditions: Vec<usize>,
}

/// The runs of one suite, and what they show.
#[derive(Clone, Debug)]
pub struct OfSuite {
    /// What the runs show.
    pub report: Report,
    /// The runs.
    pub sources: Vec<RunSource>,
}

/// A part of a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// A short name that stays.
    pub id: &'static str,
    /// The headline.
    pub title: &'static str,
    /// How to read it.
    pub text: String,
    /// The figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
    /// The numbers.
    pub tables: Vec<Table>,
}

/// Rows of cells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it holds; empty if the section's title says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub caption: String,
    /// What the cells of each row are.
    pub columns: Vec<Column>,
    /// The rows; the first cell is the row's name.
    pub rows: Vec<Vec<Cell>>,
    /// Whether cells are shaded by their value, a per cent.
    #[serde(skip)]
    pub heat: bool,
}

/// A column.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Whether its numbers are the study's and not ours.
    pub published: bool,
}

/// A number, or a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// As people read it.
    pub text: String,
    /// The number, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The attempts behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Selection>,
}

/// Which attempts: those for which all that is given holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Selection {
    /// Of this model, by its place in [`Report::models`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<usize>,
    /// Of models of this family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Under this condition, by its place in [`Report::conditions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<usize>,
    /// At tasks of this category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// At tasks of this difficulty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difficulty: Option<String>,
    /// That are the so many-th, or earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u32>,
    /// Of cases that ended so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
}

/// What stands where there is no number.
const NONE: &str = "–";

/// A drawing.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Figure {
    /// A bar a row, with what was published as a mark.
    Bars {
        /// What the length means, as `score, %`.
        axis: String,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Points, joined within a series where `joined`.
    Points {
        /// What goes to the right.
        x: Axis,
        /// What goes up.
        y: Axis,
        /// Whether the points of a series are joined.
        joined: bool,
        /// The series.
        series: Vec<Series>,
    },
}

/// A bar.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bar {
    /// The row.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// The interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// What was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// The attempts behind it.
    pub behind: Selection,
}

/// An axis of a drawing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Axis {
    /// What it means, with its unit.
    pub name: String,
    /// Whether equal distances are equal ratios.
    pub logarithmic: bool,
    /// Whether it goes from 0 to 100.
    pub percent: bool,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Their name.
    pub name: String,
    /// Whether they are the study's and not ours.
    pub published: bool,
    /// Each with its place and what it stands for.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// What it stands for.
    pub name: String,
    /// The attempts behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Selection>,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A number, shown with so many digits after the point; a dash where there is none.
    fn number(value: Option<f64>, digits: usize) -> Self {
        let value = value.filter(|value| value.is_finite());
        let text = value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.digits$}"));
        Cell { text, value, behind: None }
    }

    /// A share as per cent.
    fn percent(share: Option<f64>) -> Self {
        Cell::number(share.map(|share| share * 100.0), 1)
    }

    /// An interval of shares, as per cent.
    fn range(interval: Option<(f64, f64)>, behind: Selection) -> Self {
        match interval {
            Some((low, high)) => {
                let text = format!("{:.1} – {:.1}", low * 100.0, high * 100.0);
                Cell { text, value: None, behind: Some(behind) }
            }
            None => Cell::text(NONE),
        }
    }

    /// Whether it is read as a number: a range and a missing one are too.
    fn is_number(&self) -> bool {
        self.value.is_some() || self.behind.is_some() || self.text == NONE
    }

    /// With the attempts that it was made of.
    fn from(self, behind: Selection) -> Self {
        let behind = self.value.map(|_| behind);
        Cell { behind, ..self }
    }
}

impl Table {
    /// An empty table; a column whose name begins with `published` holds the study's numbers.
    fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let column = |name: &&str| Column { name: (*name).into(), published: name.starts_with("published") };
        let columns = columns.iter().map(column).collect();
        Table { caption: caption.into(), columns, ..Table::default() }
    }
}

/// The runs in these files, and in the files ending in `.jsonl` of these folders, at any depth;
/// folders of traces are left out.
///
/// # Errors
/// What can't be read, is no run, or a folder without any.
pub fn find(paths: &[PathBuf]) -> Result<Vec<RunSource>, Error> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        collect(path, &mut files)?;
        if files.len() == before {
            return Err(Error::NoRuns { path: path.clone() });
        }
    }
    // However a file was named.
    let mut known = std::collections::BTreeSet::new();
    files.retain(|file| known.insert(file.canonicalize().unwrap_or_else(|_| file.clone())));
    files.into_iter().map(|file| Ok(RunSource { run: run_file::read(&file)?, file })).collect()
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let error = |source| Error::RunFile { action: "read", path: path.to_owned(), source };
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = path.read_dir().map_err(error)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(error)?;
    entries.sort();
    for entry in entries {
        let ends = |ending: &str| entry.extension().is_some_and(|extension| extension == ending);
        if (entry.is_dir() && !ends("traces")) || (entry.is_file() && ends("jsonl")) {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

/// The report over these runs.
/// `facts` tells what is known of a model beside them.
///
/// # Errors
/// Runs of different suites.
pub fn report(sources: &[RunSource], facts: impl Fn(&Named) -> Facts) -> Result<Report, Error> {
    let (study, dialogues) = (Study::published()?, dialogues::Published::load()?);
    let tasks = by_task(sources);
    let data = Data::new(sources, &tasks, facts)?;
    let suite = sources.first().map(|source| source.run.header.suite.clone()).unwrap_or_default();
    let sections = sections::all(&data, &study, &dialogues);
    let Data { models, conditions, run_conditions, .. } = data;
    Ok(Report { suite, models, conditions, published: study.source, sections, run_conditions })
}

/// A report for each suite, in the order in which the suites come: scores of different ones don't
/// compare.
/// Gold solutions and junk are no model's work, so they are left out where a suite has other runs.
///
/// # Errors
/// What ships is wrong; the tests exclude that.
pub fn reports(sources: Vec<RunSource>, facts: impl Fn(&Named) -> Facts) -> Result<Vec<OfSuite>, Error> {
    let mut suites: Vec<Vec<RunSource>> = Vec::new();
    for source in sources {
        let hash = &source.run.header.suite.hash;
        match suites.iter().position(|runs| runs[0].run.header.suite.hash == *hash) {
            Some(at) => suites[at].push(source),
            None => suites.push(vec![source]),
        }
    }
    let mut reports = Vec::new();
    for mut sources in suites {
        if !sources.iter().all(is_scripted) {
            sources.retain(|source| !is_scripted(source));
        }
        reports.push(OfSuite { report: report(&sources, &facts)?, sources });
    }
    Ok(reports)
}

/// Whether no model worked, but gold solutions or junk were played.
fn is_scripted(source: &RunSource) -> bool {
    let Named { name, hash } = &source.run.header.model;
    hash.is_empty() && SCRIPTED.contains(&name.as_str())
}

/// What the model of a run is called where none worked: the gold solutions, or nonsense, played.
pub const SCRIPTED: [&str; 2] = ["gold", "junk"];

#[cfg(test)]
mod dialogues_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
