//! An index of trace files for lists and searches: `traces.sqlite` in the same directory.
//!
//! It contains only what the files contain.
//! A file that is new or has grown is indexed again as a whole; a missing one is removed from the
//! index.
//! A database that is missing, broken or of another version is rebuilt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use alara_engine::{Role, Usage};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;

use super::{Line, PERSON, Record, lines};
use crate::error::Error;

/// The version of the tables below; a database with another one is rebuilt.
const VERSION: i64 = 3;
const TABLES: &str = "
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, path TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
        started TEXT NOT NULL, team TEXT NOT NULL, npc TEXT NOT NULL, model TEXT NOT NULL, task TEXT NOT NULL,
        outcome TEXT NOT NULL, turns INTEGER NOT NULL, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, seconds REAL NOT NULL,
        work TEXT NOT NULL
    );
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, seq INTEGER NOT NULL, scope TEXT NOT NULL, role TEXT NOT NULL,
        content TEXT NOT NULL, reasoning TEXT, tool TEXT, arguments TEXT, result_ok INTEGER, tokens INTEGER,
        time TEXT NOT NULL
    );
    CREATE INDEX messages_of_run ON messages (run, seq);
    CREATE VIRTUAL TABLE search USING fts5 (content, content = 'messages', content_rowid = 'number');
    CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
        INSERT INTO search (rowid, content) VALUES (new.number, new.content);
    END;
    CREATE TRIGGER message_removed AFTER DELETE ON messages BEGIN
        INSERT INTO search (search, rowid, content) VALUES ('delete', old.number, old.content);
    END;
";

/// A run in the index.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunRow {
    /// The file's name without its extension.
    pub id: String,
    /// The trace file.
    pub path: PathBuf,
    /// When it began, as RFC 3339.
    pub started: String,
    /// The team.
    pub team: String,
    /// The NPC that it began with.
    pub npc: String,
    /// Its model.
    pub model: String,
    /// The first message of the user; in a run without one, the first jinx that a person ran.
    pub task: String,
    /// How the last user message ended: the tag of an [`Outcome`](crate::types::Outcome), or
    /// `unfinished`.
    /// Without a user message: `answer` or `failed`, as the last jinx that a person ran.
    pub outcome: String,
    /// Turns of models, including those of inner conversations.
    pub turns: usize,
    /// Calls of tools that models made.
    pub calls: usize,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// The reused ones among them.
    pub cached_tokens: usize,
    /// Tokens generated.
    pub completion_tokens: usize,
    /// The time from the first record to the last.
    pub seconds: f64,
    /// The work directory of its conversation, which can be resumed; empty if it has none, except
    /// inside a jinx.
    pub work: PathBuf,
}

/// The index.
pub struct Index {
    database: Connection,
    path: PathBuf,
}

/// Why the index can't be used.
fn error(path: &Path) -> impl Fn(rusqlite::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Index { path: path.clone(), source }
}

impl Index {
    /// The index of the traces in `directory`, stored in the database at `path`, and why files were
    /// left out: they aren't traces.
    /// If the database can't be written, as on a full disk, the index is built in memory: it
    /// contains only what the files contain.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn of(directory: &Path, path: &Path) -> Result<(Self, Vec<Error>), Error> {
        let taken_in = |mut index: Index| index.update(directory).map(|left_out| (index, left_out));
        match Index::open(path).and_then(taken_in) {
            Err(Error::Index { .. }) => taken_in(Index::open(Path::new(":memory:"))?),
            other => other,
        }
    }

    /// Opens the database at `path`; creates it if necessary.
    ///
    /// # Errors
    /// It can't be created or opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let broken = |cause: &rusqlite::Error| {
            matches!(cause.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
        };
        let opened = match Index::connect(path) {
            Err(cause) if broken(&cause) => {
                std::fs::remove_file(path)
                    .map_err(|source| Error::Trace { path: path.to_owned(), source })?;
                Index::connect(path)
            }
            opened => opened,
        };
        Ok(Index { database: opened.map_err(error(path))?, path: path.to_owned() })
    }

    fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
        let mut database = Connection::open(path)?;
        database.busy_timeout(Duration::from_secs(10))?;
        let write = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version: i64 = write.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version != VERSION {
            write.execute_batch(
                "DROP TABLE IF EXISTS search; DROP TABLE IF EXISTS messages; DROP TABLE IF EXISTS runs;",
            )?;
            write.execute_batch(TABLES)?;
            write.pragma_update(None, "user_version", VERSION)?;
        }
        write.commit()?;
        Ok(database)
    }

    /// Indexes the changed `*.jsonl` files of `directory`.
    /// Returns why files were left out: they aren't traces.
    ///
    /// # Errors
    /// The directory can't be read, or the database can't be written.
    pub fn update(&mut self, directory: &Path) -> Result<Vec<Error>, Error> {
        let read = |source| alara_team::Error::Read { path: directory.to_owned(), source };
        let failed = error(&self.path);
        let mut files = BTreeMap::new();
        for entry in directory.read_dir().map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|ending| ending == "jsonl")
                && let Ok(metadata) = path.metadata()
            {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let modified = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let beside = super::journal::beside(&path).metadata().map_or(0, |beside| beside.len());
                let size = metadata.len().saturating_add(beside);
                let state = (size.cast_signed(), i64::try_from(modified.as_nanos()).unwrap_or(0));
                files.insert(
                    path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                    (path, state),
                );
            }
        }
        let write =
            self.database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&failed)?;
        let known = known(&write).map_err(&failed)?;
        for id in known.keys().filter(|id| !files.contains_key(*id)) {
            forget(&write, id).map_err(&failed)?;
        }
        let mut left_out = Vec::new();
        for (id, (path, state)) in &files {
            if known.get(id) == Some(state) {
                continue;
            }
            match lines(path) {
                // A conversation without a message yet.
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => take_in(&write, id, path, *state, &lines).map_err(&failed)?,
                Err(cause) => left_out.push(cause),
            }
        }
        write.commit().map_err(&failed)?;
        Ok(left_out)
    }

    /// The latest runs, newest first, at most `limit`.
    /// With `search`, those in which one message contains all its words.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn runs(&self, search: Option<&str>, limit: usize) -> Result<Vec<RunRow>, Error> {
        let words: Vec<String> = search
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| format!("\"{}\"", word.replace('"', "\"\"")))
            .collect();
        let condition = match words.is_empty() {
            true => "?1 = ''",
            false => {
                "id IN (SELECT run FROM messages WHERE number IN (SELECT rowid FROM search WHERE search MATCH ?1))"
            }
        };
        let select = format!("SELECT * FROM runs WHERE {condition} ORDER BY started DESC, id DESC LIMIT ?2");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = || {
            let mut statement = self.database.prepare(&select)?;
            let runs = statement.query_map(params![words.join(" "), limit], run)?;
            runs.collect::<Result<_, _>>()
        };
        found().map_err(error(&self.path))
    }

    /// The latest run with a conversation in the directory `work`.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn latest_in(&self, work: &Path) -> Result<Option<RunRow>, Error> {
        let select = "SELECT * FROM runs WHERE work = ?1 ORDER BY started DESC, id DESC LIMIT 1";
        let found = || self.database.query_row(select, [work.to_string_lossy()], run).optional();
        found().map_err(error(&self.path))
    }

    /// The latest runs whose ids contain `id`, newest first, at most `limit`.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn containing(&self, id: &str, limit: usize) -> Result<Vec<RunRow>, Error> {
        let select = "SELECT * FROM runs WHERE instr(id, ?1) > 0 ORDER BY started DESC, id DESC LIMIT ?2";
        let found = || {
            let mut statement = self.database.prepare(select)?;
            let runs = statement.query_map(params![id, number(limit)], run)?;
            runs.collect::<Result<_, _>>()
        };
        found().map_err(error(&self.path))
    }

    /// The run whose id is `id` or the only one whose id contains it; the latest if it is `None`.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn find(&self, id: Option<&str>) -> Result<Option<RunRow>, Error> {
        let Some(id) = id else {
            return Ok(self.runs(None, 1)?.pop());
        };
        let one = |condition: &str| -> Result<Option<RunRow>, rusqlite::Error> {
            let mut statement =
                self.database.prepare(&format!("SELECT * FROM runs WHERE {condition} LIMIT 2"))?;
            let found: Vec<RunRow> = statement.query_map([id], run)?.collect::<Result<_, _>>()?;
            Ok(<[RunRow; 1]>::try_from(found).ok().map(|[run]| run))
        };
        let found = one("id = ?1").and_then(|found| match found {
            Some(run) => Ok(Some(run)),
            None => one("instr(id, ?1) > 0"),
        });
        found.map_err(error(&self.path))
    }
}

/// A count as SQLite stores it.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn known(database: &Connection) -> Result<BTreeMap<String, (i64, i64)>, rusqlite::Error> {
    let mut statement = database.prepare("SELECT id, size, modified FROM runs")?;
    statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?.collect()
}

fn forget(write: &Transaction, id: &str) -> Result<(), rusqlite::Error> {
    write.execute("DELETE FROM messages WHERE run = ?1", [id])?;
    write.execute("DELETE FROM runs WHERE id = ?1", [id])?;
    Ok(())
}

fn run(row: &Row) -> Result<RunRow, rusqlite::Error> {
    let count = |name| row.get::<_, i64>(name).map(|count| usize::try_from(count).unwrap_or(0));
    Ok(RunRow {
        id: row.get("id")?,
        path: PathBuf::from(row.get::<_, String>("path")?),
        started: row.get("started")?,
        team: row.get("team")?,
        npc: row.get("npc")?,
        model: row.get("model")?,
        task: row.get("task")?,
        outcome: row.get("outcome")?,
        turns: count("turns")?,
        calls: count("calls")?,
        prompt_tokens: count("prompt_tokens")?,
        cached_tokens: count("cached_tokens")?,
        completion_tokens: count("completion_tokens")?,
        seconds: row.get("seconds")?,
        work: PathBuf::from(row.get::<_, String>("work")?),
    })
}

fn take_in(
    write: &Transaction,
    id: &str,
    path: &Path,
    (size, modified): (i64, i64),
    lines: &[Line],
) -> Result<(), rusqlite::Error> {
    forget(write, id)?;
    let run = fold(id, path, lines);
    write.execute(
        "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        params![
            run.id,
            run.path.to_string_lossy(),
            size,
            modified,
            run.started,
            run.team,
            run.npc,
            run.model,
            run.task,
            run.outcome,
            number(run.turns),
            number(run.calls),
            number(run.prompt_tokens),
            number(run.cached_tokens),
            number(run.completion_tokens),
            run.seconds,
            run.work.to_string_lossy(),
        ],
    )?;
    for (seq, line) in lines.iter().enumerate() {
        message(write, id, seq, line)?;
    }
    Ok(())
}

/// The row of a run.
fn fold(id: &str, path: &Path, lines: &[Line]) -> RunRow {
    let mut run = RunRow {
        id: id.to_owned(),
        path: path.to_owned(),
        started: lines.first().map(|line| line.time.clone()).unwrap_or_default(),
        outcome: "unfinished".to_owned(),
        ..RunRow::default()
    };
    let time = |line: Option<&Line>| line.and_then(|line| line.time.parse::<jiff::Timestamp>().ok());
    if let (Some(first), Some(last)) = (time(lines.first()), time(lines.last())) {
        run.seconds = last.duration_since(first).as_secs_f64();
    }
    let mut usage = Usage::default();
    // A jinx that is the whole run, or that a person ran outside of conversations.
    let mut jinx = None;
    // Whether there was a user message.
    let mut named = false;
    for line in lines {
        match &*line.entry.record {
            Record::Jinx { jinx: name, result, .. } if line.entry.scope.is_empty() => {
                jinx = Some((name.clone(), result.ok));
            }
            Record::ToolResult { call, result, .. } if line.entry.scope == PERSON => {
                let name = jinx.take().map_or_else(|| format!("/{}", call.name), |(first, _)| first);
                jinx = Some((name, result.ok));
            }
            Record::Start(start) => {
                if run.npc.is_empty() {
                    run.team.clone_from(&start.team);
                    run.npc.clone_from(&start.npc);
                    run.model.clone_from(&start.model);
                }
                if line.entry.scope.is_empty() {
                    run.work.clone_from(&start.work);
                }
            }
            Record::User { text } => {
                let own = line.entry.is_the_users();
                // The prompt inside a jinx serves as the task until there is a better one.
                if run.task.is_empty() || (own && !named) {
                    run.task.clone_from(text);
                }
                if own {
                    named = true;
                    run.outcome = "unfinished".to_owned();
                }
            }
            Record::Assistant { usage: turn, .. } => {
                run.turns += 1;
                usage += turn.clone();
            }
            Record::ToolCall { .. } => run.calls += 1,
            Record::End { outcome } if line.entry.is_the_users() => {
                outcome.tag().clone_into(&mut run.outcome);
            }
            _ => {}
        }
    }
    if let Some((name, ok)) = jinx.filter(|_| !named) {
        run.task = name;
        run.outcome = if ok { "answer" } else { "failed" }.to_owned();
    }
    run.prompt_tokens = usage.prompt_tokens;
    run.cached_tokens = usage.cached_tokens;
    run.completion_tokens = usage.completion_tokens;
    run
}

/// Indexes a line as a message, if it is one.
fn message(write: &Transaction, run: &str, seq: usize, line: &Line) -> Result<(), rusqlite::Error> {
    let role = |role: Role| match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut insert = write.prepare_cached(
        "INSERT INTO messages (run, seq, scope, role, content, reasoning, tool, arguments, result_ok, tokens, time)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    let seq = number(seq);
    let (scope, time) = (&line.entry.scope, &line.time);
    let none = None::<String>;
    match &*line.entry.record {
        Record::Start(start) => {
            let system: Vec<&str> = start.system.iter().map(|segment| segment.text.as_str()).collect();
            let content = system.join("\n\n");
            let role = role(Role::System);
            insert.execute(params![run, seq, scope, role, content, none, none, none, none, none, time])?;
        }
        Record::User { text } | Record::Hint { text, .. } | Record::Compaction { summary: text, .. } => {
            let role = role(Role::User);
            insert.execute(params![run, seq, scope, role, text, none, none, none, none, none, time])?;
        }
        Record::Assistant { message, usage, .. } => {
            let (role, tokens) = (role(Role::Assistant), number(usage.completion_tokens));
            let (text, reasoning) = (&message.content, &message.reasoning_content);
            insert
                .execute(params![run, seq, scope, role, text, reasoning, none, none, none, tokens, time])?;
        }
        Record::ToolResult { call, result, text, .. } => {
            let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
            let (role, ok) = (role(Role::Tool), result.ok);
            insert
                .execute(params![run, seq, scope, role, text, none, call.name, arguments, ok, none, time])?;
        }
        Record::Jinx { jinx, arguments, result, .. } => {
            let arguments = serde_json::to_string(arguments).unwrap_or_default();
            let (role, ok, text) = (role(Role::Tool), result.ok, result.output_text());
            insert.execute(params![run, seq, scope, role, text, none, jinx, arguments, ok, none, time])?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
