//! Resumes a conversation that ended or was killed.
//!
//! A call is complete, or it was never made.
//! A call without a result in the trace was cut off: the session's journal undoes its changes in
//! the work directory, and the model is informed.
//! Then the conversation is one that the user has interrupted, which all other modules can handle.
//! This module must not know how turns are made or tools are run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use alara_engine::ToolCall;
use jiff::Timestamp;

use crate::error::Error;
use crate::ledger::Change;
use crate::trace::{Entry, Line, PERSON, Record, Start, Trace, inside};
use crate::types::{Interrupted, Limits, Outcome, ToolResult};
use crate::undo::{self, Journal, Recorded};

/// Most paths to list.
const NAMED: usize = 20;

/// A resumed trace.
pub struct Resumed {
    /// The trace, to continue.
    pub trace: Trace,
    /// The user's conversations, by scope.
    pub conversations: BTreeMap<String, Conversation>,
    /// The scope of the conversation with the user's last message.
    pub last: String,
    /// Paths of the work directory that have changed since, as far as known.
    pub changed: Vec<String>,
    /// How many calls were cut off.
    pub cut_off: usize,
}

impl Resumed {
    /// The changes, as a line; `None` if there are none.
    pub fn changes(&self) -> Option<String> {
        named(&self.changed)
    }

    /// The note about the changes for the model, before the next message.
    pub fn news(&self) -> Option<String> {
        let changed = self.changes()?;
        Some(format!("While this conversation was interrupted, there were changes to {changed}."))
    }

    /// The scope of the conversation with an NPC, if there is one.
    fn scope(&self, npc: &str) -> Option<&String> {
        let is_with =
            |conversation: &Conversation| conversation.start().is_some_and(|start| start.npc == npc);
        let last = self.conversations.get(&self.last).filter(|last| is_with(last)).map(|_| &self.last);
        let found = || self.conversations.iter().find(|(_, one)| is_with(one)).map(|(scope, _)| scope);
        last.or_else(found)
    }

    /// The directive that a person gave an NPC in place of its file's, in the conversation with it.
    pub fn directive(&self, npc: &str) -> Option<&str> {
        self.conversations.get(self.scope(npc)?)?.directive()
    }

    /// Removes and returns the conversation with an NPC, with its scope; a new one if there was
    /// none.
    pub fn take(&mut self, npc: &str) -> (String, Conversation) {
        match self.scope(npc).cloned() {
            Some(scope) => self.conversations.remove_entry(&scope).unwrap_or_default(),
            None => (format!("@{npc}"), Conversation::default()),
        }
    }
}

/// The records of one of the user's conversations.
#[derive(Default)]
pub struct Conversation {
    /// Its records.
    pub records: Vec<Arc<Record>>,
}

impl Conversation {
    /// The settings in effect: those of its latest start.
    pub fn start(&self) -> Option<&Start> {
        self.records.iter().rev().find_map(|record| match &**record {
            Record::Start(start) => Some(&**start),
            _ => None,
        })
    }

    /// The directive that a person gave the NPC in place of its file's.
    pub fn directive(&self) -> Option<&str> {
        self.start()?.directive.as_deref()
    }

    /// The calls of the last turn that have no result, and whether each was begun.
    fn unanswered(&self) -> Vec<(ToolCall, bool)> {
        let mut open: Vec<(ToolCall, bool)> = Vec::new();
        for record in &self.records {
            match &**record {
                Record::Assistant { message, .. } => {
                    open = message.tool_calls.iter().map(|call| (call.clone(), false)).collect();
                }
                Record::ToolCall { call } => {
                    let of = |open: &&mut (ToolCall, bool)| open.0.id == call.id && !open.1;
                    if let Some((_, begun)) = open.iter_mut().find(of) {
                        *begun = true;
                    }
                }
                Record::ToolResult { call, .. } => {
                    if let Some(at) = open.iter().position(|(open, _)| open.id == call.id) {
                        open.remove(at);
                    }
                }
                Record::Retract => open.clear(),
                _ => {}
            }
        }
        open
    }

    /// Whether the user's last message was answered.
    pub fn is_answered(&self) -> bool {
        let ends = self.records.iter().rev().find_map(|record| match &**record {
            Record::End { outcome } => Some(matches!(outcome, Outcome::Answer { .. })),
            Record::User { .. } => Some(false),
            _ => None,
        });
        ends.unwrap_or(false)
    }

    /// Whether the user's last message has no end.
    fn is_open(&self) -> bool {
        self.records.iter().fold(false, |open, record| match &**record {
            Record::User { .. } => true,
            Record::End { .. } | Record::Retract => false,
            _ => open,
        })
    }
}

/// Resumes the trace in the file at `path`.
/// `undo` is the folder with the journals of sessions, and the current session's journal, which
/// records the undo; without it, nothing is undone.
/// Changes are looked for in the directory `work`, if the trace worked there.
///
/// # Errors
/// The trace can't be opened, see [`Trace::resume`], or no conversation begins in it.
/// The changes of a call can't be undone.
pub fn resume(path: &Path, work: &Path, undo: Option<(&Path, &Journal)>) -> Result<Resumed, Error> {
    let (trace, lines) = Trace::resume(path)?;
    let (mut conversations, last) = conversations(&lines);
    let Some(start) = conversations.get("").and_then(Conversation::start) else {
        return Err(Error::NoConversation { path: path.to_owned() });
    };
    let failed = |source| Error::Resume { path: path.to_owned(), source };
    let own = std::path::absolute(path).map_err(failed)?;
    let ended = |(folder, _): (&Path, _)| undo::wait(folder, &own).and_then(|()| undo::sessions(folder));
    let sessions = undo.map_or_else(|| Ok(Vec::new()), ended);
    let unfinished = unfinished(sessions.map_err(failed)?, &own, &lines);
    let ended = lines.last().and_then(|line| line.time.parse::<Timestamp>().ok()).map(SystemTime::from);
    let changed = match ended.filter(|_| start.work == work) {
        Some(ended) => changed_since(work, ended, &unfinished),
        None => Vec::new(),
    };
    let mut taken = Vec::new();
    for (session, (_, journal)) in unfinished.iter().zip(undo.into_iter().cycle()) {
        taken.extend(take_back(session, journal).map_err(failed)?);
    }
    let mut cut_off = 0;
    for (scope, conversation) in &mut conversations {
        let limits = conversation.start().map_or_else(Limits::default, |start| start.limits);
        let mut records = Vec::new();
        for (call, begun) in conversation.unanswered() {
            cut_off += usize::from(begun);
            let own = inside(scope, &call.id);
            let is_taken_back =
                undo.is_some() && taken.iter().all(|taken| taken.back || !is_inside(&taken.scope, &own));
            let result = ToolResult::failed(match begun {
                true => interrupted(&own, &taken, &lines),
                false => "not run: cancelled".to_owned(),
            });
            let left = || if is_taken_back { Interrupted::TakenBack } else { Interrupted::Left };
            let result = ToolResult { interrupted: begun.then(left), ..result };
            if begun {
                records.extend(unlearnt(scope, &call, &lines));
            }
            let text = result.text(limits.tool_output_bytes);
            records.push(Record::ToolResult { call, result, text, seconds: 0.0 });
        }
        if conversation.is_open() {
            records.push(Record::End { outcome: Outcome::Cancelled });
        }
        for record in records {
            conversation.records.push(trace.push(scope, record)?);
        }
    }
    if let Some(call) = persons_call(&lines) {
        let result = ToolResult::failed("interrupted");
        let text = result.text(Limits::default().tool_output_bytes);
        trace.push(PERSON, Record::ToolResult { call, result, text, seconds: 0.0 })?;
    }
    Ok(Resumed { trace, conversations, last, changed, cut_off })
}

/// The user's conversations, and the scope of the one with the last message.
fn conversations(lines: &[Line]) -> (BTreeMap<String, Conversation>, String) {
    let mut conversations: BTreeMap<String, Conversation> = BTreeMap::new();
    let mut last = String::new();
    // All of them share the gates' facts, whoever caused them.
    let mut learnt = Vec::new();
    for Line { entry, .. } in lines {
        if let Record::Ledger { .. } = *entry.record {
            learnt.push(entry.record.clone());
            conversations.values_mut().for_each(|one| one.records.push(entry.record.clone()));
            continue;
        }
        if !entry.is_the_users() {
            continue;
        }
        if matches!(&*entry.record, Record::User { .. }) {
            last.clone_from(&entry.scope);
        }
        let begun = || Conversation { records: learnt.clone() };
        conversations.entry(entry.scope.clone()).or_insert_with(begun).records.push(entry.record.clone());
    }
    (conversations, last)
}

/// The person's call of a jinx that has no result.
fn persons_call(lines: &[Line]) -> Option<ToolCall> {
    let own = lines.iter().filter(|line| line.entry.scope == PERSON);
    own.fold(None, |open, line| match &*line.entry.record {
        Record::ToolCall { call } => Some(call.clone()),
        Record::ToolResult { .. } => None,
        _ => open,
    })
}

fn is_inside(scope: &str, call: &str) -> bool {
    scope.strip_prefix(call).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// For each session, the changes of those calls in the trace at `path` that have no result in it.
fn unfinished(sessions: Vec<Recorded>, path: &Path, lines: &[Line]) -> Vec<Recorded> {
    let result = |line: &Line| match &*line.entry.record {
        Record::ToolResult { call, .. } => {
            Some((inside(&line.entry.scope, &call.id), line.time.parse::<Timestamp>().ok()?))
        }
        _ => None,
    };
    let results: Vec<(String, Timestamp)> = lines.iter().filter_map(result).collect();
    // Ids of calls may recur, so times count as well.
    let is_unfinished = |entry: &undo::Entry| {
        let Ok(time) = entry.time.parse::<Timestamp>() else { return false };
        let is_of = |(call, ended): &(String, Timestamp)| *ended >= time && is_inside(&entry.scope, call);
        entry.trace == path && !results.iter().any(is_of)
    };
    let part = |session: Recorded| {
        let entries: Vec<_> = session.entries.into_iter().filter(is_unfinished).collect();
        (!entries.is_empty()).then_some(Recorded { entries, ..session })
    };
    sessions.into_iter().filter_map(part).collect()
}

/// What happened to the changes of a call.
struct Taken {
    /// The scope of the call.
    scope: String,
    /// Whether all of them were undone.
    back: bool,
    /// The result in words.
    what: String,
}

/// Undoes the unfinished changes of a session, unless the paths have been changed since.
fn take_back(session: &Recorded, journal: &Journal) -> io::Result<Vec<Taken>> {
    let mut taken = Vec::new();
    let works: BTreeSet<PathBuf> = session.entries.iter().map(|entry| entry.work.clone()).collect();
    for work in works {
        remove_halves(session, &work)?;
        let what = match undo::take_back(session, &work, journal, false)? {
            Ok(_) => None,
            Err(undo::Refused { changed, lost }) => {
                let paths: Vec<String> =
                    changed.iter().chain(&lost).map(|path| path.display().to_string()).collect();
                named(&paths)
            }
        };
        for entry in session.entries.iter().filter(|entry| entry.work == work) {
            let paths: Vec<String> =
                entry.changes.iter().map(|change| change.path.display().to_string()).collect();
            let paths = named(&paths).unwrap_or_default();
            let back = what.is_none() && entry.uncovered.is_none();
            let what = match (&what, &entry.uncovered) {
                (_, Some(reason)) => format!("what it changed is not known: {reason}"),
                (None, None) => format!("what it had changed was taken back ({paths})"),
                (Some(why), None) => format!(
                    "what it had changed stays ({paths}), since {why} can't be had back or was changed since"
                ),
            };
            taken.push(Taken { scope: entry.scope.clone(), back, what });
        }
    }
    Ok(taken)
}

/// Removes files that a killed process hadn't yet renamed to their final names.
fn remove_halves(session: &Recorded, work: &Path) -> io::Result<()> {
    let changes = session.entries.iter().filter(|entry| entry.begun).flat_map(|entry| &entry.changes);
    let mut folders: BTreeSet<PathBuf> =
        changes.filter_map(|change| change.path.parent()).map(|folder| work.join(folder)).collect();
    folders.insert(work.to_owned());
    for entry in folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten() {
        if entry.file_name().to_str().is_some_and(undo::is_half) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The text that the model reads for a call that was cut off.
fn interrupted(call: &str, taken: &[Taken], lines: &[Line]) -> String {
    let mut text = "interrupted: alara was ended while this ran".to_owned();
    let own: BTreeSet<&str> =
        taken.iter().filter(|taken| is_inside(&taken.scope, call)).map(|taken| &*taken.what).collect();
    for what in own {
        text += &format!("; {what}");
    }
    let is_result = |entry: &&Entry| matches!(&*entry.record, Record::ToolResult { .. });
    let inner = lines.iter().map(|line| &line.entry).filter(|entry| is_inside(&entry.scope, call));
    match inner.filter(is_result).count() {
        0 => {}
        1 => text += "; one call inside of it was done, and stays",
        count => text += &format!("; {count} calls inside of it were done, and stay"),
    }
    text
}

/// Marks the facts from a call that was cut off as unknown: its changes may be undone.
fn unlearnt(scope: &str, call: &ToolCall, lines: &[Line]) -> Vec<Record> {
    let begins = |line: &Line| match &*line.entry.record {
        Record::ToolCall { call: other } => line.entry.scope == scope && other.id == call.id,
        _ => false,
    };
    // A conversation does nothing else until a call is over.
    let within = lines.iter().rposition(begins).map(|at| &lines[at + 1..]).unwrap_or_default();
    let told = within.iter().filter_map(|line| match &*line.entry.record {
        Record::Ledger { gate, changes } => Some((gate, changes)),
        _ => None,
    });
    let stale = |change: &Change| match change {
        Change::Known { path, .. } => Some(Change::Stale { path: path.clone() }),
        Change::Stale { .. } | Change::Wrong { .. } => None,
    };
    told.map(|(gate, changes)| (gate.clone(), changes.iter().filter_map(stale).collect::<Vec<_>>()))
        .filter(|(_, changes)| !changes.is_empty())
        .map(|(gate, changes)| Record::Ledger { gate, changes })
        .collect()
}

/// Paths of a directory that have changed since `ended`, except `unfinished` changes; folders from
/// which an entry was removed end with a slash.
/// The directory itself isn't among them.
/// Paths below `.git` are git's own.
fn changed_since(work: &Path, ended: SystemTime, unfinished: &[Recorded]) -> Vec<String> {
    let entries = unfinished.iter().flat_map(|session| &session.entries).filter(|entry| entry.work == work);
    let own: BTreeSet<&Path> = entries.flat_map(|entry| &entry.changes).map(|change| &*change.path).collect();
    let is_own = |path: &Path| own.contains(path) || own.iter().any(|own| own.parent() == Some(path));
    let (mut changed, mut left, mut seen) = (Vec::new(), vec![PathBuf::new()], 0);
    while let Some(folder) = left.pop() {
        let before = changed.len();
        for entry in work.join(&folder).read_dir().into_iter().flatten().flatten() {
            seen += 1;
            let (name, Ok(metadata)) = (entry.file_name(), entry.metadata()) else { continue };
            if seen > undo::FILES || name == ".git" || name.to_str().is_some_and(undo::is_half) {
                continue;
            }
            let path = folder.join(name);
            if metadata.is_dir() {
                left.push(path);
            } else if undo::changed_at(&metadata).is_some_and(|at| at > ended) && !is_own(&path) {
                changed.push(path.display().to_string());
            }
        }
        let modified = work.join(&folder).metadata().and_then(|found| found.modified());
        let is_inside = !folder.as_os_str().is_empty();
        if changed.len() == before && is_inside && modified.is_ok_and(|at| at > ended) && !is_own(&folder) {
            changed.push(format!("{}/", folder.display()));
        }
    }
    changed.sort();
    changed
}

/// Some of these, as a line; `None` if there are none.
fn named(paths: &[String]) -> Option<String> {
    let shown = paths.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len() {
        0 => None,
        count if count > NAMED => Some(format!("{shown} and {} more", count - NAMED)),
        _ => Some(shown),
    }
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
