//! Mocks of a replay: calls get their recorded results, so that nothing needs to run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::mcp::Served;
use crate::trace::{About, Entry, Record, inside};
use crate::types::ToolResult;

/// The recorded results for the calls of a trace, so that nothing needs to run.
/// Calls that held a conversation, or that asked for compaction, have no mock: they are replayed.
#[derive(Debug, Default)]
pub struct Mocks {
    /// Results by the scope of the call, in order.
    results: BTreeMap<String, Mutex<VecDeque<Mock>>>,
    /// The MCP servers with their recorded tools, by [`Server::start`](crate::mcp::Server::start).
    servers: BTreeMap<String, (Served, Vec<Value>)>,
    /// The hints about missing files, by conversation and task.
    missing: BTreeMap<(String, String), String>,
    /// The scopes that run nevertheless.
    /// `None` lets every call run.
    replayed: Option<BTreeSet<String>>,
}

/// A recorded result, and the ledger records from within its call.
type Mock = (ToolResult, Vec<Arc<Record>>);

impl Mocks {
    /// The mocks from the trace that consists of `entries`.
    pub fn new(entries: &[Entry]) -> Self {
        let mut results: BTreeMap<String, VecDeque<Mock>> = BTreeMap::new();
        let mut told: Vec<(&str, Arc<Record>)> = Vec::new();
        for entry in entries {
            let (place, result) = match &*entry.record {
                Record::ToolCall { call } => (&call.id, None),
                Record::ToolResult { call, result, .. } => (&call.id, Some(result)),
                Record::Jinx { place, result, .. } => (place, Some(result)),
                // A record in the run's first conversation is not inside a call.
                Record::Ledger { .. } if entry.scope.is_empty() => continue,
                Record::Ledger { .. } => {
                    told.push((entry.scope.as_str(), entry.record.clone()));
                    continue;
                }
                _ => continue,
            };
            let scope = inside(&entry.scope, place);
            let mocks = results.entry(scope.clone()).or_default();
            if let Some(result) = result {
                let within = |other: &str| around(other).any(|other| other == scope);
                let (own, others): (Vec<_>, Vec<_>) = told.into_iter().partition(|(at, _)| within(at));
                told = others;
                mocks.push_back((result.clone(), own.into_iter().map(|(_, record)| record).collect()));
            }
        }
        let mut replayed = BTreeSet::new();
        for entry in entries {
            let needed = match &*entry.record {
                Record::Start(_) => true,
                Record::Emit { response } => response["type"] == "compaction",
                _ => false,
            };
            if needed {
                replayed.extend(around(&entry.scope).map(str::to_owned));
            }
        }
        results.retain(|scope, _| !replayed.contains(scope));
        let (mut missing, mut tasks) = (BTreeMap::new(), BTreeMap::new());
        for entry in entries {
            match &*entry.record {
                Record::User { text } => drop(tasks.insert(entry.scope.clone(), text.clone())),
                Record::Hint { text, about: About::File } => {
                    let task = tasks.get(&entry.scope).cloned().unwrap_or_default();
                    missing.insert((entry.scope.clone(), task), text.clone());
                }
                _ => {}
            }
        }
        Mocks {
            servers: servers(entries),
            missing,
            results: results.into_iter().map(|(scope, results)| (scope, Mutex::new(results))).collect(),
            replayed: Some(replayed),
        }
    }

    /// The next result of the call with this scope, with the ledger records from within the call.
    /// If the trace has no result, it is a failure.
    /// `None` means that the call should run.
    pub fn take(&self, scope: &str) -> Option<Mock> {
        let replayed = self.replayed.as_ref()?;
        if replayed.contains(scope) {
            return None;
        }
        let next =
            |results: &Mutex<VecDeque<_>>| results.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let none = || (ToolResult::failed("not run: the trace has no result of this call"), Vec::new());
        Some(self.results.get(scope).and_then(next).unwrap_or_else(none))
    }

    /// The hint about a missing file that the model read at this task of a conversation.
    /// The outer `None` means that the file should be looked for.
    pub(crate) fn missing_file(&self, scope: &str, task: &str) -> Option<Option<&str>> {
        self.replayed.as_ref()?;
        Some(self.missing.get(&(scope.to_owned(), task.to_owned())).map(String::as_str))
    }

    /// The tools of a server as a trace records them, in the form that the server would list them.
    /// `None` means that the server should be started.
    pub fn served(&self, start: &str) -> Option<(Served, Vec<Value>)> {
        self.replayed.as_ref()?;
        let unknown = || {
            let error = "not started: the trace knows nothing of it".to_owned();
            (Served { error, ..Served::default() }, Vec::new())
        };
        Some(self.servers.get(start).cloned().unwrap_or_else(unknown))
    }

    /// The entries of a trace from outside these calls.
    pub fn outside(&self, entries: &[Entry]) -> Vec<Entry> {
        let within = |entry: &&Entry| around(&entry.scope).any(|scope| self.results.contains_key(scope));
        entries.iter().filter(|entry| !within(entry)).cloned().collect()
    }
}

/// The servers of a trace, each with all tools that any NPC had from it.
fn servers(entries: &[Entry]) -> BTreeMap<String, (Served, Vec<Value>)> {
    let mut found: BTreeMap<String, (Served, Vec<Value>)> = BTreeMap::new();
    for entry in entries {
        let Record::Start(start) = &*entry.record else { continue };
        for served in &start.mcp {
            let (_, tools) =
                found.entry(served.start.clone()).or_insert_with(|| (served.clone(), Vec::new()));
            for tool in &start.tools {
                let Some(name) = served.tools.get(&tool.name) else { continue };
                let (description, schema) = (&tool.description, &tool.parameters);
                let tool = json!({"name": name, "description": description, "inputSchema": schema});
                if !tools.contains(&tool) {
                    tools.push(tool);
                }
            }
        }
    }
    found
}

/// A scope and the scopes that contain it.
fn around(scope: &str) -> impl Iterator<Item = &str> {
    scope.match_indices('/').map(|(at, _)| &scope[..at]).chain([scope])
}
