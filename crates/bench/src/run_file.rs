//! The run file: JSON Lines, appended and synced one record at a time, so that a run can be resumed
//! after being killed at any moment.
//!
//! A record counts once its line is complete.
//! Resuming a run drops unfinished work.
//! That is an incomplete line, and the attempts of an unfinished task.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use alara_engine::file;

use crate::Error;
use crate::record::{Attempt, Finished, Header, Record, difference};

/// The records in a run's file.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecords {
    /// The configuration.
    pub header: Header,
    /// All attempts, in the order of their ends.
    pub attempts: Vec<Attempt>,
    /// The finished tasks, in the order of their ends.
    pub finished: Vec<Finished>,
}

/// A run file that is being written.
/// Locked against other processes.
#[derive(Debug)]
pub struct RunFile {
    file: File,
    path: PathBuf,
}

impl RunFile {
    /// Creates a new file that contains `header` from the start; also creates missing folders.
    ///
    /// # Errors
    /// The file already exists, or can't be written.
    pub fn create(path: &Path, header: Header) -> Result<Self, Error> {
        let error = |source| Error::RunFile { action: "make", path: path.to_owned(), source };
        let folder = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => Path::new("."),
        };
        std::fs::create_dir_all(folder).map_err(error)?;
        let begun = tempfile::Builder::new().prefix(".begun-").append(true).tempfile_in(folder);
        let (file, begun) = begun.map_err(error)?.into_parts();
        let mut file = RunFile { file, path: path.to_owned() };
        file.lock()?;
        file.append(&Record::Header(Box::new(header)))?;
        begun.persist_noclobber(path).map_err(|refused| error(refused.error))?;
        Ok(file)
    }

    /// Opens a file to resume its run, and returns the finished records.
    /// Removes unfinished ones.
    ///
    /// # Errors
    /// The file isn't a run file, is in use, or its header describes another run than `header`.
    pub fn resume(path: &Path, header: &Header) -> Result<(Self, RunRecords), Error> {
        let error = |action| move |source| Error::RunFile { action, path: path.to_owned(), source };
        let mut file = loop {
            let file = File::options().read(true).append(true).open(path).map_err(error("open"))?;
            let file = RunFile { file, path: path.to_owned() };
            file.lock()?;
            // The previous holder of the lock may have replaced the file.
            if file.is_current().map_err(error("open"))? {
                break file;
            }
        };
        let mut bytes = Vec::new();
        file.file.read_to_end(&mut bytes).map_err(error("read"))?;
        let mut run = parse(path, &bytes)?;
        if let Some((field, recorded, wanted)) = difference(&run.header, header) {
            return Err(Error::OtherConfiguration { path: path.to_owned(), field, recorded, wanted });
        }
        let all = run.attempts.len();
        run.attempts.retain(|attempt| run.finished.iter().any(|finished| finished.task == attempt.task));
        let whole = bytes.last() == Some(&b'\n') && run.attempts.len() == all;
        if !whole {
            file = file.rewrite(&bytes, &run)?;
        }
        Ok((file, run))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record; it is on disk when this returns.
    ///
    /// # Errors
    /// The file can't be written, for example because the disk is full.
    /// Then it remains unchanged.
    pub fn append(&mut self, record: &Record) -> Result<(), Error> {
        let error = |source| Error::RunFile { action: "write", path: self.path.clone(), source };
        let mut line = serde_json::to_vec(record).map_err(|source| error(source.into()))?;
        line.push(b'\n');
        let before = self.file.metadata().map_err(error)?.len();
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // An incomplete line in the middle would corrupt the file: another task's record may
            // follow.
            self.file.set_len(before).map_err(error)?;
            self.file.seek(SeekFrom::Start(before)).map_err(error)?;
        }
        written.map_err(error)
    }

    /// Whether the open file is still the one at its path.
    #[cfg(unix)]
    fn is_current(&self) -> std::io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let (own, there) = (self.file.metadata()?, self.path.metadata()?);
        Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
    }

    #[cfg(not(unix))]
    fn is_current(&self) -> std::io::Result<bool> {
        Ok(true)
    }

    fn lock(&self) -> Result<(), Error> {
        let patience = Instant::now() + Duration::from_secs(1);
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(()),
                // A process that another thread is just starting briefly holds our file
                // descriptors.
                Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(Error::RunFileInUse { path: self.path.clone() }),
                Err(TryLockError::Error(source)) => {
                    return Err(Error::RunFile { action: "lock", path: self.path.clone(), source });
                }
            }
        }
    }

    /// Atomically replaces the file by one that contains only the lines of `run`.
    fn rewrite(self, bytes: &[u8], run: &RunRecords) -> Result<Self, Error> {
        let new_path = self.path.with_extension("jsonl.new");
        let error = |source| Error::RunFile { action: "clean", path: self.path.clone(), source };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new_path)
            .map_err(error)?;
        // Preserve the permissions, so that no one gains access to the run.
        file.set_permissions(self.file.metadata().map_err(error)?.permissions()).map_err(error)?;
        for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let kept = match serde_json::from_slice(line) {
                Ok(Record::Attempt(attempt)) => run.attempts.contains(&attempt),
                _ => true,
            };
            if kept {
                file.write_all(line).map_err(error)?;
            }
        }
        file.sync_all().map_err(error)?;
        file.seek(SeekFrom::End(0)).map_err(error)?;
        let new = RunFile { file, path: self.path.clone() };
        new.lock()?;
        std::fs::rename(&new_path, &self.path).map_err(error)?;
        Ok(new)
    }
}

/// Returns the default path of a run: an unused file `runs/DATE-TIME.jsonl`, in local time.
pub fn default_path() -> PathBuf {
    let stem = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let mut path = Path::new("runs").join(format!("{stem}.jsonl"));
    let mut number = 1;
    while path.exists() {
        number += 1;
        path.set_file_name(format!("{stem}-{number}.jsonl"));
    }
    path
}

/// Reads a run file; ignores an incomplete last line.
///
/// # Errors
/// The file can't be read, or isn't a run file.
pub fn read(path: &Path) -> Result<RunRecords, Error> {
    let bytes = file::read(path, file::RECORDS).map_err(|source| Error::RunFile {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    parse(path, &bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<RunRecords, Error> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut records = lines.enumerate().map(|(index, line)| {
        serde_json::from_slice(line).map_err(|source| Error::Record {
            path: path.to_owned(),
            line: index + 1,
            source,
        })
    });
    let Some(Record::Header(header)) = records.next().transpose()? else {
        return Err(Error::NoHeader { path: path.to_owned() });
    };
    let mut run = RunRecords { header: *header, attempts: Vec::new(), finished: Vec::new() };
    for record in records {
        match record? {
            Record::Header(_) => return Err(Error::NoHeader { path: path.to_owned() }),
            Record::Attempt(attempt) => run.attempts.push(attempt),
            Record::Task(finished) => run.finished.push(finished),
        }
    }
    Ok(run)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::Retry;
    use crate::record::{Cost, DEFAULT_CONDITION, Machine, Named, Verdict};
    use crate::task::Difficulty;

    pub fn header() -> Header {
        let named = |name: &str| Named { name: name.into(), hash: "00".into() };
        Header {
            suite: named("suite"),
            model: named("model"),
            user: None,
            engine: serde_json::json!({"kv": "f16"}),
            team: named("team"),
            npc: "worker".into(),
            gate: None,
            retrieval: None,
            about: None,
            price: None,
            sampling: alara_engine::Sampling::default(),
            retry_temperature: 0.6,
            thinking: None,
            calls: None,
            policy: crate::policy::RetryPolicy::all(Retry::Feedback, 5.try_into().unwrap()),
            timeout: 360,
            parallel: 1,
            condition: DEFAULT_CONDITION.into(),
            trial: 1,
            version: "0.1.0".into(),
            programs: [("git".to_owned(), "git version 2".to_owned())].into(),
            machine: Machine {
                os: "linux".into(),
                arch: "x86_64".into(),
                cpus: 2,
                cpu: "a cpu".into(),
                memory: 1 << 34,
                kernel: "6".into(),
            },
            tasks: vec!["a-1".into(), "a-2".into()],
            started: "2026-01-01T00:00:00Z".into(),
            command: vec!["-m".into(), "a".into()],
        }
    }

    pub fn attempt(task: &str, attempt: u32, verdict: Verdict) -> Attempt {
        Attempt {
            task: task.into(),
            attempt,
            seed: 7,
            verdict,
            reason: String::new(),
            seconds: 1.5,
            cost: Cost {
                tool_calls: 2,
                tokens_in: 100,
                tokens_cached: 60,
                tokens_out: 30,
                tokens_untimed: 0,
                decode_seconds: 0.5,
            },
            ttft: Some(0.25),
            tokens_per_second: 60.0,
            trace: String::new(),
            refusals: Default::default(),
            dialogue: None,
            messages: Vec::new(),
        }
    }

    pub fn finished(task: &str, attempts: u32, verdict: Verdict) -> Finished {
        Finished {
            task: task.into(),
            category: task.split('-').next().unwrap().into(),
            difficulty: Difficulty::Easy,
            verdict,
            reason: String::new(),
            attempts,
            seconds: 2.0 * f64::from(attempts),
        }
    }

    fn write(path: &Path, records: &[Record]) {
        let mut file = RunFile::create(path, header()).unwrap();
        for record in records {
            file.append(record).unwrap();
        }
    }

    #[test]
    fn a_killed_run_goes_on_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let records = [
            Record::Attempt(attempt("a-1", 1, Verdict::Failed)),
            Record::Attempt(attempt("a-1", 2, Verdict::Solved)),
            Record::Task(finished("a-1", 2, Verdict::Solved)),
            Record::Attempt(attempt("a-2", 1, Verdict::Solved)),
            Record::Task(finished("a-2", 1, Verdict::Solved)),
        ];
        let whole = folder.path().join("deep/whole.jsonl");
        write(&whole, &records);
        let bytes = std::fs::read(&whole).unwrap();
        let head = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for cut in (head..=bytes.len()).step_by(29).chain([bytes.len()]) {
            let path = folder.path().join("cut.jsonl");
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (mut file, run) = RunFile::resume(&path, &header()).unwrap();
            for record in &records {
                let task = match record {
                    Record::Attempt(attempt) => &attempt.task,
                    Record::Task(finished) => &finished.task,
                    Record::Header(_) => continue,
                };
                if !run.finished.iter().any(|finished| finished.task == *task) {
                    file.append(record).unwrap();
                }
            }
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "cut at {cut}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_run_that_nobody_else_may_read_stays_so() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        write(&path, &[Record::Attempt(attempt("a-1", 1, Verdict::Failed))]);
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        let (_, run) = RunFile::resume(&path, &header()).unwrap();
        assert!(run.attempts.is_empty(), "it was cut out");
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn another_configuration_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        write(&path, &[]);
        let check = |change: &dyn Fn(&mut Header), field: Option<&str>| {
            let mut other = header();
            change(&mut other);
            match (RunFile::resume(&path, &other), field) {
                (Ok(_), None) => {}
                (Err(error), Some(field)) => {
                    assert!(error.to_string().contains(&format!("`{field}` is")), "{error}");
                }
                (result, field) => panic!("{result:?} instead of {field:?}"),
            }
        };
        check(&|_| {}, None);
        check(&|header| header.started = "later".into(), None);
        check(&|header| header.command.clear(), None);
        check(&|header| header.suite.hash = "11".into(), Some("suite.hash"));
        check(&|header| header.sampling.seed = 1, Some("sampling.seed"));
        check(&|header| header.engine["kv"] = "f32".into(), Some("engine.kv"));
        check(&|header| header.policy.rule.attempts = 1.try_into().unwrap(), Some("policy.attempts"));
        check(&|header| header.policy.rule.retry = Retry::Fresh, Some("policy.retry"));
        check(&|header| header.trial = 2, Some("trial"));
        check(&|header| header.tasks.truncate(1), Some("tasks"));
    }

    #[test]
    fn wrong_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let check = |text: &str, expected: &str| {
            std::fs::write(&path, text).unwrap();
            let error = RunFile::resume(&path, &header()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        let head = serde_json::to_string(&Record::Header(Box::new(header()))).unwrap();
        check("", "does not begin with the header");
        check(&head, "does not begin with the header");
        check("hello\n", "run.jsonl:1: not a record");
        check(&format!("{head}\n{{\"record\":\"task\"}}\n"), "run.jsonl:2: not a record");
        check(&format!("{head}\n{head}\n"), "does not begin with the header");
        assert!(matches!(RunFile::create(&path, header()), Err(Error::RunFile { action: "make", .. })));
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_was_replaced_meanwhile_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("run.jsonl"), folder.path().join("new.jsonl"));
        let first = RunFile::create(&path, header()).unwrap();
        std::fs::copy(&path, &new).unwrap();
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| RunFile::resume(&path, &header()));
            std::thread::sleep(Duration::from_millis(200));
            std::fs::rename(&new, &path).unwrap();
            drop(first);
            second.join().unwrap()
        });
        let (mut second, _) = second.unwrap();
        second.append(&Record::Attempt(attempt("a-1", 1, Verdict::Solved))).unwrap();
        assert_eq!(read(&path).unwrap().attempts.len(), 1);
    }

    #[test]
    fn two_runs_do_not_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let _first = RunFile::create(&path, header()).unwrap();
        assert!(matches!(RunFile::resume(&path, &header()), Err(Error::RunFileInUse { .. })));
    }
}
