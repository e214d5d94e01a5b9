//! Everything that can go wrong with a benchmark, by cause.

use std::path::PathBuf;

use alara_harness::knowledge::Retrieval;

/// An error of the benchmark.
/// A task that is not solved is none: that is a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A suite that can't be read from the disk.
    #[error("can't read the suite {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A suite path that is neither a folder nor a task file.
    #[error("{} is no suite: wanted is a folder of task files, a .yaml file or a .csv file", path.display())]
    NotASuite {
        /// The path.
        path: PathBuf,
    },
    /// A folder without tasks.
    #[error("there is no task in {}: tasks are .yaml files in it or in its folders", path.display())]
    NoTasks {
        /// The folder or file.
        path: PathBuf,
    },
    /// A file of a suite or a sweep that is not YAML, has unknown keys or lacks some.
    /// The message shows where.
    #[error("{0}")]
    Yaml(String),
    /// A row of a CSV file that can't be read.
    #[error("{location}: {problem}")]
    Row {
        /// File and line.
        location: String,
        /// What is wrong, and what helps.
        problem: String,
    },
    /// A CSV file with other columns than the format's.
    #[error("{}:1: {problem}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// Which column is missing, unknown or there twice, and which there are.
        problem: String,
    },
    /// A field that has to say something and is blank.
    #[error("{location}: the field `{field}` is empty")]
    EmptyField {
        /// File and line.
        location: String,
        /// The field.
        field: &'static str,
    },
    /// A value that a field can't have.
    #[error("{location}: `{value}` is no {field}: {wanted}")]
    Value {
        /// File and line.
        location: String,
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What may stand there.
        wanted: &'static str,
    },
    /// Two tasks of the same name.
    #[error("the task id `{id}` occurs twice: in {first} and in {second}")]
    DuplicateId {
        /// The id.
        id: String,
        /// File and line of one.
        first: String,
        /// File and line of the other.
        second: String,
    },
    /// A filter that names something which is not in the suite.
    #[error("the suite has no {what} `{name}`{hint} (known: {known})")]
    NotInSuite {
        /// `task` or `category`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// A suggestion, or nothing.
        hint: String,
        /// What there is.
        known: String,
    },
    /// A sweep that says something that can't be.
    #[error("{}: {problem}", path.display())]
    Sweep {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A condition that says how documents are found, and a team that has none.
    #[error(
        "the team {team} has no documents for the retrieval `{retrieval}`: write `knowledge` into its .ctx, or leave `retrieval` out"
    )]
    NoKnowledge {
        /// The team.
        team: String,
        /// How they were to be found.
        retrieval: Retrieval,
    },
    /// The gold solutions were asked for and a task has none.
    #[error(
        "{which} no gold solution: write it into the task's file, as the key `gold`, or choose others with --task"
    )]
    NoGold {
        /// "The task has", or "the tasks have".
        which: String,
    },
    /// The gold solutions were asked for and no task has one.
    #[error(
        "none of these tasks has a gold solution: that is the key `gold` of a task's .yaml file, and a .csv file has no column for it"
    )]
    NoGoldAtAll,
    /// A run file that can't be opened, read or written.
    #[error("can't {action} the run file {}", path.display())]
    RunFile {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A database that can't be written.
    #[error("can't write the database {}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: rusqlite::Error,
    },
    /// A run file that another process writes.
    #[error("the run file {} is in use by another run", path.display())]
    RunFileInUse {
        /// The file.
        path: PathBuf,
    },
    /// A line of a run file that is no record.
    #[error("{}:{line}: not a record of a run", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A run file that does not begin with a header.
    #[error("{} does not begin with the header of a run: there is nothing to resume or to report", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// A folder in which no run was found.
    #[error("there is no run in {}: runs are .jsonl files that `alara bench tasks` wrote", path.display())]
    NoRuns {
        /// The folder.
        path: PathBuf,
    },
    /// A run or a trace in which no model was asked anything.
    #[error("no model was asked anything in {}: a replay takes the run file of `alara bench tasks`, its traces beside it, or one trace", path.display())]
    NoRequests {
        /// The file.
        path: PathBuf,
    },
    /// A page of a report that can't be written.
    #[error("can't write the report {}", path.display())]
    Page {
        /// Its folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Runs that can't be reported together.
    #[error(
        "{} and {} are runs of different suites, whose scores don't compare: make a report of each",
        first.display(),
        second.display()
    )]
    OtherSuite {
        /// One run.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A run file of another configuration than the one that shall go on.
    #[error(
        "{} can't be resumed with another configuration: `{field}` is {recorded} in the file and {wanted} now",
        path.display()
    )]
    OtherConfiguration {
        /// The file.
        path: PathBuf,
        /// The path of the field, as `suite.hash`.
        field: String,
        /// Its value in the file, as JSON.
        recorded: String,
        /// Its value in the run that was asked for.
        wanted: String,
    },
    /// The harness can't give what a run needs.
    #[error(transparent)]
    Harness(alara_harness::Error),
    /// A disk that takes nothing more.
    /// What fails on it says nothing about the agent.
    #[error("the disk of {} is full: make room for the run", path.display())]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// What the disk says.
        source: std::io::Error,
    },
    /// The folders in which tasks run.
    #[error("can't {action} {}", path.display())]
    TaskDir {
        /// What was tried.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}
