//! Writes runs to a database for analysis: `runs`, `tasks`, `attempts`, `messages`, `refusals` and
//! `dialogues`, with the fields of their records as columns.
//!
//! The run files are authoritative; the database is created anew from them each time.

use std::path::Path;

use rusqlite::{Connection, Transaction, params};

use crate::Error;
use crate::dialogue::Measures;
use crate::record::{Attempt, TurnRecord};
use crate::run_file::RunRecords;

/// `header` is the whole header as JSON.
/// `ranks` is a JSON array.
/// `run` refers to `runs.number`, `(run, task, attempt)` to an attempt.
const TABLES: &str = "
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY, file TEXT NOT NULL, suite TEXT NOT NULL, suite_hash TEXT NOT NULL,
        model TEXT NOT NULL, model_hash TEXT NOT NULL, team TEXT NOT NULL, npc TEXT NOT NULL,
        condition TEXT NOT NULL, trial INTEGER NOT NULL, seed INTEGER NOT NULL, retry TEXT NOT NULL,
        attempts INTEGER NOT NULL, parallel INTEGER NOT NULL, started TEXT NOT NULL, version TEXT NOT NULL,
        cpu TEXT NOT NULL, header TEXT NOT NULL
    );
    CREATE TABLE tasks (
        run INTEGER NOT NULL REFERENCES runs, task TEXT NOT NULL, category TEXT NOT NULL, difficulty TEXT NOT NULL,
        verdict TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL, seconds REAL NOT NULL,
        PRIMARY KEY (run, task)
    );
    CREATE TABLE attempts (
        run INTEGER NOT NULL REFERENCES runs, task TEXT NOT NULL, attempt INTEGER NOT NULL, seed TEXT NOT NULL,
        verdict TEXT NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL, tool_calls INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL, tokens_cached INTEGER NOT NULL, tokens_out INTEGER NOT NULL,
        decode_seconds REAL NOT NULL, ttft REAL, tokens_per_second REAL NOT NULL, trace TEXT NOT NULL,
        PRIMARY KEY (run, task, attempt)
    );
    CREATE TABLE messages (
        run INTEGER NOT NULL REFERENCES runs, task TEXT NOT NULL, attempt INTEGER NOT NULL, number INTEGER NOT NULL,
        npc TEXT NOT NULL, model TEXT NOT NULL, model_hash TEXT NOT NULL, tool_calls INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL, tokens_cached INTEGER NOT NULL, tokens_out INTEGER NOT NULL, ttft REAL NOT NULL,
        decode_seconds REAL NOT NULL, PRIMARY KEY (run, task, attempt, number)
    );
    CREATE TABLE refusals (
        run INTEGER NOT NULL REFERENCES runs, task TEXT NOT NULL, attempt INTEGER NOT NULL, refused_by TEXT NOT NULL,
        calls INTEGER NOT NULL, PRIMARY KEY (run, task, attempt, refused_by)
    );
    CREATE TABLE dialogues (
        run INTEGER NOT NULL REFERENCES runs, task TEXT NOT NULL, attempt INTEGER NOT NULL, reward INTEGER NOT NULL,
        database INTEGER NOT NULL, user_database INTEGER NOT NULL, actions INTEGER NOT NULL,
        actions_made INTEGER NOT NULL, writes INTEGER NOT NULL, gold_writes INTEGER NOT NULL,
        writes_matched INTEGER NOT NULL, writes_run INTEGER NOT NULL, writes_early INTEGER,
        writes_early_gold INTEGER NOT NULL, over_retries INTEGER NOT NULL, turns INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL, tokens_cached INTEGER NOT NULL, tokens_out INTEGER NOT NULL, seconds REAL NOT NULL,
        blocks_right INTEGER NOT NULL, blocks_wrong INTEGER NOT NULL, documents INTEGER NOT NULL, ranks TEXT NOT NULL,
        PRIMARY KEY (run, task, attempt)
    );
";

/// Writes the runs, each with its file, to a database at `path`, replacing an existing one.
///
/// # Errors
/// The database can't be written.
pub fn write<'a>(
    path: &Path,
    runs: impl IntoIterator<Item = (&'a Path, &'a RunRecords)>,
) -> Result<(), Error> {
    let error = |source| Error::Database { path: path.to_owned(), source };
    let disk = |source| Error::RunFile { action: "replace the database of", path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Use a unique name, because others may write the same database at the same time.
    let new = tempfile::Builder::new().prefix(".database-").tempfile_in(folder).map_err(disk)?;
    let mut database = Connection::open(new.path()).map_err(error)?;
    let written = (|| {
        let write = database.transaction()?;
        write.execute_batch(TABLES)?;
        for (number, (file, run)) in runs.into_iter().enumerate() {
            add(&write, number.cast_signed() as i64 + 1, file, run)?;
        }
        write.commit()
    })();
    drop(database);
    written.map_err(error)?;
    new.persist(path).map(drop).map_err(|refused| disk(refused.error))
}

fn add(write: &Transaction, number: i64, file: &Path, run: &RunRecords) -> rusqlite::Result<()> {
    let header = &run.header;
    let whole = serde_json::to_string(header).unwrap_or_default();
    let policy = &header.policy.rule;
    write.execute(
        "INSERT INTO runs VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)",
        params![
            number,
            file.to_string_lossy(),
            header.suite.name,
            header.suite.hash,
            header.model.name,
            header.model.hash,
            header.team.name,
            header.npc,
            header.condition,
            header.trial,
            header.sampling.seed.cast_signed(),
            policy.retry.to_string(),
            policy.attempts.get(),
            header.parallel.cast_signed() as i64,
            header.started,
            header.version,
            header.machine.cpu,
            whole,
        ],
    )?;
    let mut task = write.prepare_cached("INSERT INTO tasks VALUES (?1,?2,?3,?4,?5,?6,?7,?8)")?;
    for end in &run.finished {
        let (difficulty, verdict) = (end.difficulty.to_string(), end.verdict.to_string());
        task.execute(params![
            number,
            end.task,
            end.category,
            difficulty,
            verdict,
            end.reason,
            end.attempts,
            end.seconds
        ])?;
    }
    // Attempts at an unfinished task don't count.
    let ended: std::collections::BTreeSet<&str> = run.finished.iter().map(|end| end.task.as_str()).collect();
    for one in run.attempts.iter().filter(|one| ended.contains(one.task.as_str())) {
        attempt(write, number, one)?;
        let mut refusal = write.prepare_cached("INSERT INTO refusals VALUES (?1,?2,?3,?4,?5)")?;
        for (refused_by, calls) in &one.refusals {
            refusal.execute(params![number, one.task, one.attempt, refused_by, calls.cast_signed()])?;
        }
        if let Some(measures) = &one.dialogue {
            dialogue(write, number, one, measures)?;
        }
        for (at, message) in one.messages.iter().enumerate() {
            turn(write, number, one, at, message)?;
        }
    }
    Ok(())
}

fn attempt(write: &Transaction, number: i64, one: &Attempt) -> rusqlite::Result<()> {
    let cost = &one.cost;
    let mut insert = write
        .prepare_cached("INSERT INTO attempts VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)")?;
    insert.execute(params![
        number,
        one.task,
        one.attempt,
        one.seed.to_string(),
        one.verdict.to_string(),
        one.reason,
        one.seconds,
        cost.tool_calls.cast_signed(),
        cost.tokens_in.cast_signed(),
        cost.tokens_cached.cast_signed(),
        cost.tokens_out.cast_signed(),
        cost.decode_seconds,
        one.ttft,
        one.tokens_per_second,
        one.trace,
    ])?;
    Ok(())
}

fn dialogue(write: &Transaction, number: i64, one: &Attempt, measures: &Measures) -> rusqlite::Result<()> {
    let Measures { reward, database, user_database, seconds, writes_early, ranks, .. } = measures;
    let counts = [
        measures.actions,
        measures.actions_made,
        measures.writes,
        measures.gold_writes,
        measures.writes_matched,
        measures.writes_run,
        measures.writes_early_gold,
        measures.over_retries,
        measures.turns,
        measures.tokens_in,
        measures.tokens_cached,
        measures.tokens_out,
        measures.blocks_right,
        measures.blocks_wrong,
        measures.documents,
    ];
    let [
        actions,
        made,
        writes,
        gold,
        matched,
        run,
        early_gold,
        over,
        turns,
        tokens_in,
        cached,
        out,
        right,
        wrong,
        documents,
    ] = counts.map(u64::cast_signed);
    let early = writes_early.map(u64::cast_signed);
    let ranks = serde_json::to_string(ranks).unwrap_or_default();
    let mut insert = write.prepare_cached(
        "INSERT INTO dialogues VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24)",
    )?;
    insert.execute(params![
        number,
        one.task,
        one.attempt,
        reward,
        database,
        user_database,
        actions,
        made,
        writes,
        gold,
        matched,
        run,
        early,
        early_gold,
        over,
        turns,
        tokens_in,
        cached,
        out,
        seconds,
        right,
        wrong,
        documents,
        ranks,
    ])?;
    Ok(())
}

fn turn(
    write: &Transaction,
    number: i64,
    one: &Attempt,
    at: usize,
    message: &TurnRecord,
) -> rusqlite::Result<()> {
    let mut insert =
        write.prepare_cached("INSERT INTO messages VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)")?;
    insert.execute(params![
        number,
        one.task,
        one.attempt,
        at.cast_signed() as i64 + 1,
        message.npc,
        message.model.name,
        message.model.hash,
        message.tool_calls.cast_signed(),
        message.tokens_in.cast_signed(),
        message.tokens_cached.cast_signed(),
        message.tokens_out.cast_signed(),
        message.ttft,
        message.decode_seconds,
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Named, Verdict};
    use crate::run_file::tests::{attempt, finished, header};

    #[test]
    fn holds_what_the_run_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.sqlite");
        let mut first = attempt("a-1", 1, Verdict::Failed);
        first.reason = "it's; \"no\" <b>".into();
        first.messages = vec![TurnRecord {
            npc: "worker".into(),
            model: Named { name: "m".into(), hash: "5c".into() },
            tool_calls: 2,
            tokens_in: 100,
            tokens_cached: 60,
            tokens_out: 30,
            ttft: 0.25,
            decode_seconds: 0.5,
            tokens_drafted: 0,
            tokens_accepted: 0,
        }];
        first.refusals = [("rule own".to_owned(), 3)].into();
        let measures = Measures {
            reward: true,
            writes_early: Some(2),
            turns: 7,
            seconds: 1.5,
            blocks_wrong: 3,
            documents: 4,
            ranks: vec![1, 9],
            ..Measures::default()
        };
        first.dialogue = Some(Box::new(measures));
        let attempts = vec![first, attempt("a-1", 2, Verdict::Solved), attempt("a-2", 1, Verdict::Failed)];
        let run =
            RunRecords { header: header(), attempts, finished: vec![finished("a-1", 2, Verdict::Solved)] };
        // Twice: an existing database is replaced.
        for _ in 0..2 {
            write(&path, [(Path::new("one.jsonl"), &run), (Path::new("two.jsonl"), &run)]).unwrap();
        }
        // At the same time: one of the two databases is there, complete, and nothing else.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    write(&path, [(Path::new("one.jsonl"), &run), (Path::new("two.jsonl"), &run)]).unwrap();
                });
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let database = Connection::open(&path).unwrap();
        let ask = |query: &str| database.query_row(query, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(ask("SELECT count(*) || ' ' || min(file) FROM runs"), "2 one.jsonl");
        assert_eq!(ask("SELECT group_concat(verdict) FROM attempts WHERE run = 2"), "failed,solved");
        assert_eq!(ask("SELECT reason FROM attempts WHERE attempt = 1 AND run = 1"), "it's; \"no\" <b>");
        assert_eq!(ask("SELECT refused_by || calls || attempt FROM refusals WHERE run = 2"), "rule own31");
        assert_eq!(
            ask(
                "SELECT concat_ws(' ', reward, database, writes_early, turns, seconds, blocks_wrong, documents, ranks) FROM dialogues WHERE run = 2"
            ),
            "1 0 2 7 1.5 3 4 [1,9]"
        );
        assert_eq!(ask("SELECT count(*) || '' FROM dialogues"), "2");
        assert_eq!(ask("SELECT model_hash || sum(tokens_in) FROM messages"), "5c200");
        assert_eq!(ask("SELECT json_extract(header, '$.policy.retry') FROM runs LIMIT 1"), "feedback");
    }
}
