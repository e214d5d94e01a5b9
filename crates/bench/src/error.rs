//! Errors of the benchmark, by cause.

use std::path::PathBuf;

use alara_harness::knowledge::Retrieval;

/// An error of the benchmark.
/// An unsolved task isn't an error but a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A suite can't be read from disk.
    #[error("can't read the suite {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A suite path is neither a folder nor a task file.
    #[error("{} is no suite: wanted is a folder of task files, a .yaml file or a .csv file", path.display())]
    NotASuite {
        /// The path.
        path: PathBuf,
    },
    /// A folder contains no tasks.
    #[error("there is no task in {}: tasks are .yaml files in it or in its folders", path.display())]
    NoTasks {
        /// The folder or file.
        path: PathBuf,
    },
    /// A file of a suite or a sweep isn't YAML, or has unknown or missing keys.
    /// The message shows where.
    #[error("{0}")]
    Yaml(String),
    /// A row of a CSV file can't be read.
    #[error("{location}: {problem}")]
    Row {
        /// File and line.
        location: String,
        /// The problem and its remedy.
        problem: String,
    },
    /// The columns of a CSV file don't match the format.
    #[error("{}:1: {problem}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// Missing, unknown or duplicate columns, and the expected ones.
        problem: String,
    },
    /// A required field is blank.
    #[error("{location}: the field `{field}` is empty")]
    EmptyField {
        /// File and line.
        location: String,
        /// The field.
        field: &'static str,
    },
    /// The value of a field is invalid.
    #[error("{location}: `{value}` is no {field}: {wanted}")]
    Value {
        /// File and line.
        location: String,
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
        /// The expected value.
        wanted: &'static str,
    },
    /// Two tasks have the same name.
    #[error("the task id `{id}` occurs twice: in {first} and in {second}")]
    DuplicateId {
        /// The id.
        id: String,
        /// File and line of the first one.
        first: String,
        /// File and line of the second one.
        second: String,
    },
    /// A filter names something that isn't in the suite.
    #[error("the suite has no {what} `{name}`{hint} (known: {known})")]
    NotInSuite {
        /// `task` or `category`.
        what: &'static str,
        /// The requested name.
        name: String,
        /// A suggestion, or nothing.
        hint: String,
        /// The existing names.
        known: String,
    },
    /// A sweep contains a contradiction.
    #[error("{}: {problem}", path.display())]
    Sweep {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A condition sets a retrieval, but the team has no documents.
    #[error(
        "the team {team} has no documents for the retrieval `{retrieval}`: write `knowledge` into its .ctx, or leave `retrieval` out"
    )]
    NoKnowledge {
        /// The team.
        team: String,
        /// The retrieval.
        retrieval: Retrieval,
    },
    /// The gold solutions were requested, but a task has none.
    #[error(
        "{which} no gold solution: write it into the task's file, as the key `gold`, or choose others with --task"
    )]
    NoGold {
        /// "The task has", or "the tasks have".
        which: String,
    },
    /// The gold solutions were requested, but no task has one.
    #[error(
        "none of these tasks has a gold solution: that is the key `gold` of a task's .yaml file, and a .csv file has no column for it"
    )]
    NoGoldAtAll,
    /// A run file can't be opened, read or written.
    #[error("can't {action} the run file {}", path.display())]
    RunFile {
        /// The attempted operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A database can't be written.
    #[error("can't write the database {}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// Another process is writing the run file.
    #[error("the run file {} is in use by another run", path.display())]
    RunFileInUse {
        /// The file.
        path: PathBuf,
    },
    /// A line of a run file isn't a record.
    #[error("{}:{line}: not a record of a run", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        source: serde_json::Error,
    },
    /// A run file doesn't begin with a header.
    #[error("{} does not begin with the header of a run: there is nothing to resume or to report", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// A folder contains no runs.
    #[error("there is no run in {}: runs are .jsonl files that `alara bench tasks` wrote", path.display())]
    NoRuns {
        /// The folder.
        path: PathBuf,
    },
    /// A run or a trace contains no requests to a model.
    #[error("no model was asked anything in {}: a replay takes the run file of `alara bench tasks`, its traces beside it, or one trace", path.display())]
    NoRequests {
        /// The file.
        path: PathBuf,
    },
    /// A page of a report can't be written.
    #[error("can't write the report {}", path.display())]
    Page {
        /// Its folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The runs can't be reported together.
    #[error(
        "{} and {} are runs of different suites, whose scores don't compare: make a report of each",
        first.display(),
        second.display()
    )]
    OtherSuite {
        /// The first run.
        first: PathBuf,
        /// The second run.
        second: PathBuf,
    },
    /// The configuration of a run file differs from that of the run to resume.
    #[error(
        "{} can't be resumed with another configuration: `{field}` is {recorded} in the file and {wanted} now",
        path.display()
    )]
    OtherConfiguration {
        /// The file.
        path: PathBuf,
        /// The path of the field, such as `suite.hash`.
        field: String,
        /// Its value in the file, as JSON.
        recorded: String,
        /// Its value in the requested run.
        wanted: String,
    },
    /// The harness can't provide what a run needs.
    #[error(transparent)]
    Harness(alara_harness::Error),
    /// The disk is full.
    /// Failures that this causes aren't the agent's fault.
    #[error("the disk of {} is full: make room for the run", path.display())]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// The error of the disk.
        source: std::io::Error,
    },
    /// The folders for tasks can't be used.
    #[error("can't {action} {}", path.display())]
    TaskDir {
        /// The attempted operation.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}
