//! Reports on runs: one structure of sections, tables and figures, written as Markdown, JSON or
//! HTML.
//!
//! Each number carries a [`Selection`] of the attempts that it was computed from.

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

/// The results of runs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The suite, and its hash.
    pub suite: Named,
    /// The models that worked, with known facts about each.
    pub models: Vec<(Named, Facts)>,
    /// The conditions.
    pub conditions: Vec<String>,
    /// How many runs of gold solutions and junk are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Source of the published numbers.
    pub published: String,
    /// The sections, in reading order.
    pub sections: Vec<Section>,
    /// The condition of each run, by index.
    #[serde(skip)]
    run_conditions: Vec<usize>,
}

/// The runs of one suite, and their report.
#[derive(Clone, Debug)]
pub struct OfSuite {
    /// The report.
    pub report: Report,
    /// The runs.
    pub sources: Vec<RunSource>,
}

/// A part of a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// A short, stable name.
    pub id: &'static str,
    /// The title.
    pub title: &'static str,
    /// How to read the section.
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
    /// The contents; empty if the section's title describes them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows; the first cell is the row's name.
    pub rows: Vec<Vec<Cell>>,
    /// Whether cells are shaded by their value, a percentage.
    #[serde(skip)]
    pub heat: bool,
}

/// A column.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Whether its numbers are from the study.
    pub published: bool,
}

/// A number, or a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// The displayed text.
    pub text: String,
    /// The number, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The attempts behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Selection>,
}

/// A selection of attempts: those that match all the given criteria.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Selection {
    /// Of this model, by its index in [`Report::models`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<usize>,
    /// Of models of this family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Under this condition, by its index in [`Report::conditions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<usize>,
    /// At tasks of this category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// At tasks of this difficulty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difficulty: Option<String>,
    /// Whose number is at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u32>,
    /// Of cases with this verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
}

/// Shown in place of a missing number.
const NONE: &str = "–";

/// A drawing.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Figure {
    /// One bar per row, with published values as marks.
    Bars {
        /// Label of the axis, such as `score, %`.
        axis: String,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Points, connected within a series if `joined` is set.
    Points {
        /// The horizontal axis.
        x: Axis,
        /// The vertical axis.
        y: Axis,
        /// Whether the points of a series are connected.
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
    /// The published value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// The attempts behind it.
    pub behind: Selection,
}

/// An axis of a drawing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Axis {
    /// Label, with the unit.
    pub name: String,
    /// Whether the scale is logarithmic.
    pub logarithmic: bool,
    /// Whether it ranges from 0 to 100.
    pub percent: bool,
}

/// A series of points.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Their name.
    pub name: String,
    /// Whether they are from the study.
    pub published: bool,
    /// The points.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// Horizontal position.
    pub x: f64,
    /// Vertical position.
    pub y: f64,
    /// Label.
    pub name: String,
    /// The attempts behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Selection>,
}

impl Cell {
    /// Creates a cell with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Creates a cell with a number, with this many decimal places; a dash if there is none.
    fn number(value: Option<f64>, digits: usize) -> Self {
        let value = value.filter(|value| value.is_finite());
        let text = value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.digits$}"));
        Cell { text, value, behind: None }
    }

    /// Creates a cell with a percentage.
    fn percent(share: Option<f64>) -> Self {
        Cell::number(share.map(|share| share * 100.0), 1)
    }

    /// Creates a cell with an interval of percentages.
    fn range(interval: Option<(f64, f64)>, behind: Selection) -> Self {
        match interval {
            Some((low, high)) => {
                let text = format!("{:.1} – {:.1}", low * 100.0, high * 100.0);
                Cell { text, value: None, behind: Some(behind) }
            }
            None => Cell::text(NONE),
        }
    }

    /// Whether it is shown like a number; this includes ranges and missing numbers.
    fn is_number(&self) -> bool {
        self.value.is_some() || self.behind.is_some() || self.text == NONE
    }

    /// Adds the attempts that the cell was computed from.
    fn from(self, behind: Selection) -> Self {
        let behind = self.value.map(|_| behind);
        Cell { behind, ..self }
    }
}

impl Table {
    /// Creates an empty table; a column whose name begins with `published` has the study's numbers.
    fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let column = |name: &&str| Column { name: (*name).into(), published: name.starts_with("published") };
        let columns = columns.iter().map(column).collect();
        Table { caption: caption.into(), columns, ..Table::default() }
    }
}

/// Reads the runs in these files, and in the files ending in `.jsonl` in these folders, at any
/// depth; skips folders of traces.
///
/// # Errors
/// A file can't be read or isn't a run, or a folder contains none.
pub fn find(paths: &[PathBuf]) -> Result<Vec<RunSource>, Error> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        collect(path, &mut files)?;
        if files.len() == before {
            return Err(Error::NoRuns { path: path.clone() });
        }
    }
    // Whatever the path to a file.
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

/// Creates the report on these runs.
/// `facts` returns known facts about a model.
///
/// # Errors
/// The runs are of different suites.
pub fn report(sources: &[RunSource], facts: impl Fn(&Named) -> Facts) -> Result<Report, Error> {
    let (study, dialogues) = (Study::published()?, dialogues::Published::load()?);
    let tasks = by_task(sources);
    let data = Data::new(sources, &tasks, facts)?;
    let suite = sources.first().map(|source| source.run.header.suite.clone()).unwrap_or_default();
    let sections = sections::all(&data, &study, &dialogues);
    let Data { models, conditions, run_conditions, .. } = data;
    let published = study.source;
    Ok(Report { suite, models, conditions, left_out: 0, published, sections, run_conditions })
}

/// Creates a report for each suite, in order of appearance, since scores of different suites aren't
/// comparable.
/// Gold solutions and junk aren't a model's work, so they are left out if there are other runs, and
/// with them suites that have no others.
/// The first report counts those of such suites, too.
///
/// # Errors
/// A shipped file is invalid; the tests exclude that.
pub fn reports(sources: Vec<RunSource>, facts: impl Fn(&Named) -> Facts) -> Result<Vec<OfSuite>, Error> {
    let mut suites = by_suite(sources);
    let mut left_out = Vec::new();
    if suites.iter().flatten().any(|source| !is_scripted(source)) {
        suites.retain_mut(|sources| {
            let all = sources.len();
            sources.retain(|source| !is_scripted(source));
            left_out.push((all - sources.len(), sources.is_empty()));
            !sources.is_empty()
        });
    }
    let elsewhere: usize = left_out.iter().filter(|(_, whole)| *whole).map(|(count, _)| count).sum();
    let own = left_out.iter().filter(|(_, whole)| !whole).map(|(count, _)| *count);
    let mut own = own.chain(std::iter::repeat(0));
    let mut reports = Vec::new();
    for sources in suites {
        let more = if reports.is_empty() { elsewhere } else { 0 };
        let report = Report { left_out: own.next().unwrap_or(0) + more, ..report(&sources, &facts)? };
        reports.push(OfSuite { report, sources });
    }
    Ok(reports)
}

/// Groups runs by their suite, in order of appearance.
fn by_suite(sources: Vec<RunSource>) -> Vec<Vec<RunSource>> {
    let mut suites: Vec<Vec<RunSource>> = Vec::new();
    for source in sources {
        let hash = &source.run.header.suite.hash;
        match suites.iter().position(|runs| runs[0].run.header.suite.hash == *hash) {
            Some(at) => suites[at].push(source),
            None => suites.push(vec![source]),
        }
    }
    suites
}

/// Explains in one line that runs are left out; empty if none are.
fn left_out(report: &Report) -> String {
    match report.left_out {
        0 => String::new(),
        1 => "1 run of gold solutions or junk is left out, since no model did the work.".to_owned(),
        count => format!("{count} runs of gold solutions or junk are left out, since no model did the work."),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Whether gold solutions or junk were played instead of a model's turns.
fn is_scripted(source: &RunSource) -> bool {
    is_script(&source.run.header.model)
}

/// Whether a run's model is the name of such a script.
fn is_script(Named { name, hash }: &Named) -> bool {
    hash.is_empty() && SCRIPTED.contains(&name.as_str())
}

/// Model names of runs in which gold solutions or junk were played.
pub const SCRIPTED: [&str; 2] = ["gold", "junk"];

#[cfg(test)]
mod dialogues_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
