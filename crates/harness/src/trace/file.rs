//! The records of a run as they happen, in memory and line by line in a file.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alara_engine::Usage;
use alara_engine::file;
use serde::{Deserialize, Serialize};

use super::journal::{self, Journal};
use super::{Entry, Record, fold, usage};
use crate::error::{Error, chain};
use crate::ledger::Ledger;

/// How long to wait for a trace that another process writes.
const RELEASE: Duration = Duration::from_secs(1);

/// A line of a trace file: an entry and when it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line<E = Entry> {
    /// The time, as RFC 3339.
    pub time: String,
    /// The record, and its conversation.
    #[serde(flatten)]
    pub entry: E,
}

/// The records of a run, in memory and optionally in a file.
/// Shared by everything that works on the run.
#[derive(Debug, Default)]
pub struct Trace {
    inner: Mutex<Inner>,
    path: Option<PathBuf>,
    journal: Option<Arc<Journal>>,
    /// Its position in the order, if it belongs to a branch.
    at: Vec<usize>,
    /// Why its file isn't continued, if so; `None` if the work stops when the file can't be
    /// written.
    problem: Option<Arc<Mutex<Problem>>>,
}

#[derive(Debug, Default)]
enum Problem {
    #[default]
    None,
    New(String),
    Told,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    file: Option<File>,
    /// The ledger records of the entries, and of those before a branch.
    learnt: Learnt,
}

/// The ledger events of a session, and the ledgers after them.
#[derive(Clone, Debug, Default)]
struct Learnt {
    records: Vec<Arc<Record>>,
    ledgers: BTreeMap<String, Ledger>,
}

impl Learnt {
    fn take_over(&mut self, record: &Arc<Record>) {
        if let Record::Ledger { .. } = **record {
            self.records.push(Arc::clone(record));
            fold::take_over(&mut self.ledgers, record);
        }
    }
}

impl Trace {
    /// A trace in memory only.
    pub fn in_memory() -> Self {
        Trace::default()
    }

    /// A trace that is also written to a new file at `path`, whose directories are created.
    /// Only the user may read the new files: they contain what tools saw.
    ///
    /// # Errors
    /// The file can't be created, or already exists.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let error = |source| Error::Trace { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            make_directory(parent).map_err(error)?;
        }
        let file = create(path).map_err(error)?;
        lock(path, &file)?;
        Ok(Trace::written_to(path, file, Vec::new()))
    }

    /// Opens the trace in the file at `path`, to continue it; also returns its lines.
    /// An unfinished last line of a killed run is removed, and the records of its parallel branches
    /// are added.
    ///
    /// # Errors
    /// The file can't be read or written, is no trace, or another process writes it.
    pub fn resume(path: &Path) -> Result<(Self, Vec<Line>), Error> {
        let error = |source| Error::Trace { path: path.to_owned(), source };
        let mut file = File::options().append(true).open(path).map_err(error)?;
        // A process that a killed one was just starting may hold its files a moment longer.
        let begun = Instant::now();
        while let Err(error) = lock(path, &file) {
            if begun.elapsed() > RELEASE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut lines = parse::<Line>(path)?;
        let left = journal::left(path, &lines)?;
        let text = file::read(path, file::RECORDS).map_err(error)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        // A last line without a line end is kept if it is a record.
        let unended = if whole < text.len() && serde_json::from_slice::<Line>(&text[whole..]).is_ok() {
            file.write_all(b"\n")
        } else {
            file.set_len(whole as u64)
        };
        unended.map_err(error)?;
        for line in &left {
            let line = serde_json::to_string(line).map_err(std::io::Error::from).map_err(error)?;
            file.write_all(format!("{line}\n").as_bytes()).map_err(error)?;
        }
        lines.extend(left);
        let entries = lines.iter().map(|line| line.entry.clone()).collect();
        Ok((Trace::written_to(path, file, entries), lines))
    }

    fn written_to(path: &Path, file: File, entries: Vec<Entry>) -> Self {
        let mut learnt = Learnt::default();
        entries.iter().for_each(|entry| learnt.take_over(&entry.record));
        let inner = Mutex::new(Inner { entries, file: Some(file), learnt });
        let journal = Some(Arc::new(Journal::new(path)));
        Trace { inner, path: Some(path.to_owned()), journal, ..Trace::default() }
    }

    /// Lets the work go on if the file can't be written any more, as on a full disk: then the file
    /// ends there, and [`problem`](Self::problem) returns the reason.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.problem = Some(Arc::default());
        self
    }

    /// Why an [optional](Self::optional) trace isn't continued; returned once.
    pub fn problem(&self) -> Option<String> {
        let mut problem = self.problem.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        match &*problem {
            Problem::New(text) => {
                let text = text.clone();
                *problem = Problem::Told;
                Some(text)
            }
            Problem::None | Problem::Told => None,
        }
    }

    /// Whether something was written; a failure of an optional trace is recorded.
    fn written(&self, result: Result<(), Error>) -> Result<bool, Error> {
        let Err(error) = result else { return Ok(true) };
        let Some(problem) = &self.problem else { return Err(error) };
        let mut problem = problem.lock().unwrap_or_else(PoisonError::into_inner);
        if let Problem::None = *problem {
            let why = chain(&error);
            *problem = Problem::New(format!("the trace ends here, but the work goes on: {why}"));
        }
        Ok(false)
    }

    /// Begins a series of parallel branches.
    /// [End](Self::end_series) it once all of them are [joined](Self::join).
    pub(crate) fn begin_series(&self) -> Series {
        if let (Some(journal), true) = (&self.journal, self.at.is_empty()) {
            journal.begin();
        }
        Series {
            journal: self.journal.clone(),
            at: [self.at.as_slice(), &[self.len()]].concat(),
            problem: self.problem.clone(),
            learnt: self.lock().learnt.clone(),
        }
    }

    /// Ends a series whose branches are all joined.
    pub(crate) fn end_series(&self) {
        if let (Some(journal), true) = (&self.journal, self.at.is_empty()) {
            journal.end();
        }
    }

    /// Appends a record of the conversation `scope`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn push(&self, scope: &str, record: Record) -> Result<Arc<Record>, Error> {
        let record = Arc::new(record);
        let entry = Entry { scope: scope.to_owned(), record: record.clone() };
        if let (Some(journal), false) = (&self.journal, self.at.is_empty()) {
            self.written(journal.write([self.at.as_slice(), &[self.len()]].concat(), &entry))?;
        }
        self.append(entry)?;
        Ok(record)
    }

    /// Appends all records of `branch`: so the order of a trace never depends on threads.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn join(&self, branch: Trace) -> Result<(), Error> {
        let inner = branch.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.entries.into_iter().try_for_each(|entry| self.append(entry))
    }

    fn append(&self, entry: Entry) -> Result<(), Error> {
        let mut inner = self.lock();
        if let (Some(path), Some(file)) = (&self.path, &mut inner.file) {
            let line = Line { time: jiff::Timestamp::now().to_string(), entry: &entry };
            let written = serde_json::to_string(&line)
                .map_err(std::io::Error::from)
                .and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            // After half a line, no other line can follow.
            if !self.written(written.map_err(|source| Error::Trace { path: path.clone(), source }))? {
                inner.file = None;
            }
        }
        inner.learnt.take_over(&entry.record);
        inner.entries.push(entry);
        Ok(())
    }

    /// The result of `ask` for the ledger of a gate, in its state after this trace.
    pub fn ledger<T>(&self, gate: &str, ask: impl FnOnce(&Ledger) -> T) -> T {
        let inner = self.lock();
        match inner.learnt.ledgers.get(gate) {
            Some(ledger) => ask(ledger),
            None => ask(&Ledger::default()),
        }
    }

    /// Applies the ledger records of a call that isn't made again.
    pub(crate) fn learn(&self, records: &[Arc<Record>]) {
        let mut inner = self.lock();
        records.iter().for_each(|record| inner.learnt.take_over(record));
    }

    /// The ledger events, whoever caused them, without the first `known` ones.
    pub fn learnt(&self, known: usize) -> Vec<Arc<Record>> {
        self.lock().learnt.records.get(known..).unwrap_or_default().to_vec()
    }

    /// All entries so far, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether there are no entries yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries after the first `count`.
    pub fn since(&self, count: usize) -> Vec<Entry> {
        self.lock().entries[count..].to_vec()
    }

    /// The usage of all turns of the run together, including those of inner conversations.
    pub fn usage(&self) -> Usage {
        usage(self.lock().entries.iter().map(|entry| &*entry.record))
    }

    /// The path of the trace's file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A series of parallel branches.
/// Its branches have their own traces, which live in memory.
/// Until they are joined, their records are also in a file next to the trace, if that has one.
#[derive(Debug)]
pub struct Series {
    journal: Option<Arc<Journal>>,
    at: Vec<usize>,
    problem: Option<Arc<Mutex<Problem>>>,
    /// The ledgers when it began.
    learnt: Learnt,
}

impl Series {
    /// The trace of the branch with this index.
    pub fn branch(&self, index: usize) -> Trace {
        let at = [self.at.as_slice(), &[index]].concat();
        let (journal, problem) = (self.journal.clone(), self.problem.clone());
        let inner = Mutex::new(Inner { learnt: self.learnt.clone(), ..Inner::default() });
        Trace { inner, journal, at, problem, ..Trace::default() }
    }
}

/// Locks the file for this process: only one process may write a trace.
/// On a filesystem without locks, nothing is locked.
fn lock(path: &Path, file: &File) -> Result<(), Error> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::TraceInUse { path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Whether a process writes the trace in the file at `path`.
pub fn is_in_use(path: &Path) -> bool {
    let locked = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    file::open(path).is_ok_and(locked)
}

/// Creates a file that only the user may read.
pub(super) fn create(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.append(true).create_new(true).open(path)
}

/// Creates a directory and its missing parents, which only the user may read; existing ones don't
/// change.
///
/// # Errors
/// It can't be created.
pub fn make_directory(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Reads the lines of a trace file, and the records of branches that were running when the run was
/// killed.
/// An unfinished last line is left out.
///
/// # Errors
/// The file can't be read, or another line is not a record.
pub fn lines(path: &Path) -> Result<Vec<Line>, Error> {
    let mut lines = parse(path)?;
    let left = journal::left(path, &lines)?;
    lines.extend(left);
    Ok(lines)
}

/// Reads a file of lines.
pub(super) fn parse<L: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<L>, Error> {
    let text = file::read_text(path, file::RECORDS)
        .map_err(|source| Error::Trace { path: path.to_owned(), source })?;
    let mut lines = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(_) if !line.ends_with('\n') => {}
            Err(source) => return Err(Error::TraceLine { path: path.to_owned(), line: index + 1, source }),
        }
    }
    Ok(lines)
}

/// Reads the entries of a trace file.
///
/// # Errors
/// As [`lines`].
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    Ok(lines(path)?.into_iter().map(|line| line.entry).collect())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn user(text: &str) -> Record {
        Record::User { text: text.into() }
    }

    /// The texts in a trace file, as they are read.
    fn texts(path: &Path) -> Vec<String> {
        texts_of(lines(path).unwrap())
    }

    fn texts_of(lines: Vec<Line>) -> Vec<String> {
        let text = |line: Line| match &*line.entry.record {
            Record::User { text } => text.clone(),
            other => panic!("{other:?}"),
        };
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn what_runs_side_by_side_is_on_disk_before_it_is_joined() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("1.jsonl");
        let trace = Trace::create(&path).unwrap();
        trace.push("", user("before")).unwrap();
        let series = trace.begin_series();
        let (first, second) = (series.branch(0), series.branch(1));
        second.push("s", user("second 1")).unwrap();
        first.push("f", user("first 1")).unwrap();
        // One of them has branches too.
        let inner = first.begin_series();
        let (left, right) = (inner.branch(0), inner.branch(1));
        right.push("f/r", user("right")).unwrap();
        left.push("f/l", user("left")).unwrap();
        let all = ["before", "first 1", "left", "right", "second 1"];
        assert_eq!(texts(&path), all);
        first.join(left).unwrap();
        first.join(right).unwrap();
        first.end_series();
        first.push("f", user("first 2")).unwrap();
        let all = ["before", "first 1", "left", "right", "first 2", "second 1"];
        assert_eq!(texts(&path), all);
        let plain = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(plain().lines().count(), 1);
        trace.join(first).unwrap();
        // Nothing is recorded twice if the run is killed here.
        assert_eq!(texts(&path), all);
        trace.join(second).unwrap();
        assert_eq!(texts(&path), all);
        let beside = journal::beside(&path);
        assert_eq!(beside.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        trace.end_series();
        assert!(!beside.exists());
        assert_eq!((texts(&path), plain().lines().count()), (all.map(str::to_owned).to_vec(), 6));
        // The leftovers of another trace of this name don't belong to this one.
        std::fs::write(&beside, "{\"at\":[0],").unwrap();
        std::fs::remove_file(&path).unwrap();
        Trace::create(&path).unwrap();
        assert!(texts(&path).is_empty());
    }

    #[test]
    fn a_killed_trace_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("1.jsonl");
        let trace = Trace::create(&path).unwrap();
        trace.push("", user("before")).unwrap();
        let series = trace.begin_series();
        let branch = series.branch(0);
        branch.push("s", user("beside")).unwrap();
        assert!(is_in_use(&path));
        assert!(matches!(Trace::resume(&path), Err(Error::TraceInUse { .. })));
        // As if the run were killed here, within a line.
        let lock = trace.lock().file.take();
        drop((branch, lock));
        assert!(!is_in_use(&path));
        let tear = |text: &str| {
            File::options().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        tear(r#"{"time":"2026-01-01T00:00:00Z","record":"user","te"#);
        let (trace, lines) = Trace::resume(&path).unwrap();
        assert_eq!(texts_of(lines), ["before", "beside"]);
        assert_eq!(trace.len(), 2);
        assert!(!journal::beside(&path).exists());
        trace.push("", user("after")).unwrap();
        assert_eq!(texts(&path), ["before", "beside", "after"]);
        // A line that lacks only its line end is a line.
        drop(trace);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, whole.trim_end()).unwrap();
        let (trace, _) = Trace::resume(&path).unwrap();
        trace.push("", user("end")).unwrap();
        assert_eq!(texts(&path), ["before", "beside", "after", "end"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_stops_only_who_wants_the_trace() {
        let full = || Inner { file: File::options().write(true).open("/dev/full").ok(), ..Inner::default() };
        let trace =
            || Trace { inner: Mutex::new(full()), path: Some("/dev/full".into()), ..Trace::default() };
        let wanted = trace();
        wanted.push("", user("one")).unwrap_err();
        assert_eq!((wanted.len(), wanted.problem()), (0, None));
        let optional = trace().optional();
        optional.push("", user("one")).unwrap();
        optional.push("", user("two")).unwrap();
        assert_eq!(optional.len(), 2);
        let problem = optional.problem().unwrap();
        assert!(problem.contains("No space left on device") && problem.contains("/dev/full"), "{problem}");
        optional.push("", user("three")).unwrap();
        assert_eq!(optional.problem(), None);
        // Parallel branches go on too.
        let journal = Some(Arc::new(Journal::new(Path::new("/dev/null/trace"))));
        let optional = Trace { journal, ..trace() }.optional();
        let branch = optional.begin_series().branch(0);
        branch.push("b", user("one")).unwrap();
        assert!(optional.problem().is_some());
        optional.join(branch).unwrap();
        assert_eq!(optional.len(), 1);
    }

    #[test]
    fn only_the_user_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state/traces/1.jsonl");
        Trace::create(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
}
