//! The state that all agents of a run share, and the caller that currently acts in it.
//!
//! This module must not know how turns are made or how a jinx runs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alara_engine::{Event, SamplingOverrides, Segment, ToolCall, Until};
use serde_json::{Map, Value};

use crate::calls::Calls;
use crate::context_files::ContextFiles;
use crate::error::{Error, chain};
use crate::jinx::Jinx;
use crate::knowledge::IndexCache;
use crate::model::{ModelSource, Prompt};
use crate::permission::{Answer, Permissions, Question, Ruling};
use crate::run::gates::Observers;
use crate::run::jobs::Jobs;
use crate::run::mcp::Servers;
use crate::run::mocks::Mocks;
use crate::run::steps::Memo;
use crate::sandbox::Sandbox;
use crate::store::Store;
use crate::team::{Npc, Team};
use crate::trace::{self, Record, Trace};
use crate::types::{Outcome, ToolResult, Verdict};

/// An event of a run, for display.
/// `depth` 0 is the conversation that the run began with.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A turn of an NPC begins; the first is 1.
    Turn {
        /// The name of the NPC.
        npc: &'a str,
        /// How many conversations contain it.
        depth: usize,
        /// The number of the turn.
        turn: usize,
    },
    /// The prompt that the model is about to read; sent if [`Session::prompts`] is set.
    Prompt {
        /// The name of the NPC.
        npc: &'a str,
        /// The conversation, see [`Entry::scope`](crate::trace::Entry::scope).
        scope: &'a str,
        /// The turn of the conversation that it is for, from 1.
        turn: usize,
        /// The prompt.
        prompt: &'a Prompt,
    },
    /// The model writes text or makes a call, or its turn ends.
    Event {
        /// How many conversations contain it.
        depth: usize,
        /// The event.
        event: &'a Event,
    },
    /// A call begins.
    Call {
        /// How many conversations contain it.
        depth: usize,
        /// The call.
        call: &'a ToolCall,
    },
    /// A call has ended.
    Result {
        /// How many conversations contain it.
        depth: usize,
        /// The call.
        call: &'a ToolCall,
        /// The result.
        result: &'a ToolResult,
        /// How long the call took.
        took: Duration,
    },
    /// A jinx gives a response: `{type, id?, content}`.
    Emit(&'a serde_json::Value),
    /// A problem that doesn't stop the work.
    Warning(&'a str),
    /// The work directory is unchanged, since no person agreed to the change.
    Unchanged {
        /// The change that was refused, as in "removes a, overwrites b".
        what: &'a str,
        /// Whether there was no person to ask.
        nobody: bool,
    },
    /// A program starts in the background, or has ended.
    Job {
        /// The number of the job.
        job: usize,
        /// The call that started it.
        call: &'a str,
        /// How it ended, if it did: "exit status 1".
        ended: Option<&'a str>,
    },
    /// The conversation was compacted to fit the context.
    Compaction {
        /// How many messages were replaced.
        messages: usize,
    },
}

/// Receives the notices of a run.
pub type Observer<'a> = Box<dyn FnMut(&Notice) + Send + 'a>;
/// Answers when a rule is `ask`.
pub type Asked<'a> = Box<dyn Fn(&Question) -> Answer + Sync + Send + 'a>;

/// The state that all agents of a run share.
pub struct Session<'a> {
    /// Where models come from.
    pub models: &'a dyn ModelSource,
    /// Runs programs.
    pub sandbox: &'a Sandbox,
    /// The sampling settings of the session; each model's own settings apply to the rest.
    pub sampling: SamplingOverrides,
    /// Whether models that can reason do so; `None` uses each model's setting.
    pub thinking: Option<bool>,
    /// Whether each turn of an agent must be a call, regardless of the NPC files; `None` uses the
    /// files.
    pub calls: Option<Calls>,
    /// The work directory's context files, for all agents that work in it.
    pub context_files: ContextFiles,
    /// Whether to show calls that change something instead of making them: see
    /// [`tool`](crate::run::tool).
    pub dry_run: bool,
    /// Whether the observer gets the prompts.
    pub prompts: bool,
    /// How many branches of a jinx may run in parallel.
    /// Default 4.
    pub threads: usize,
    /// The rules about calls.
    pub permissions: Permissions,
    /// The store that the team's members share.
    pub store: Store,
    /// Cached results.
    pub memo: Memo,
    /// The MCP servers that were started for the session.
    pub mcp: Servers,
    /// The gates that learn from calls.
    pub gates: Observers,
    /// The indexes of searched documents, which sessions may share.
    pub knowledge: Arc<IndexCache>,
    /// The documents in every agent's prompt: retrieval `golden`.
    pub documents: Vec<Segment>,
    /// The programs in the background.
    pub jobs: Jobs,
    /// The record of the session so far.
    pub trace: Trace,
    /// Recorded results for calls of a replay.
    pub mocks: Mocks,
    /// Asks one question at a time.
    ask: Option<Mutex<Asked<'a>>>,
    /// Whether the user agreed to every question beforehand.
    agrees: bool,
    observer: Mutex<Observer<'a>>,
}

impl<'a> Session<'a> {
    /// Creates a session with default settings, whose trace lives in memory, and without a person
    /// to ask.
    pub fn new(models: &'a dyn ModelSource, sandbox: &'a Sandbox) -> Self {
        Session {
            models,
            sandbox,
            sampling: SamplingOverrides::default(),
            thinking: None,
            calls: None,
            context_files: ContextFiles::default(),
            dry_run: false,
            prompts: false,
            threads: 4,
            permissions: Permissions::default(),
            store: Store::default(),
            memo: Memo::default(),
            mcp: Servers::default(),
            gates: Observers::default(),
            knowledge: Arc::default(),
            documents: Vec::new(),
            jobs: Jobs::default(),
            trace: Trace::in_memory(),
            mocks: Mocks::default(),
            ask: None,
            agrees: false,
            observer: Mutex::new(Box::new(|_| {})),
        }
    }

    /// Overrides the sampling settings that `sampling` sets.
    #[must_use]
    pub fn sampled(mut self, sampling: impl Into<SamplingOverrides>) -> Self {
        self.sampling = sampling.into();
        self
    }

    /// Sets whether each turn of every agent must be a call, regardless of the NPC files.
    #[must_use]
    pub fn calling(mut self, calls: Option<Calls>) -> Self {
        self.calls = calls;
        self
    }

    /// Lets agents read these files of the work directory.
    #[must_use]
    pub fn reading(mut self, files: ContextFiles) -> Self {
        self.context_files = files;
        self
    }

    /// Writes the trace to `trace`.
    #[must_use]
    pub fn traced(mut self, trace: Trace) -> Self {
        self.trace = trace;
        self
    }

    /// Sends notices to `observer`.
    #[must_use]
    pub fn observed(mut self, observer: impl FnMut(&Notice) + Send + 'a) -> Self {
        self.observer = Mutex::new(Box::new(observer));
        self
    }

    /// Lets a person answer where a rule is `ask`; without one, the answer is no.
    #[must_use]
    pub fn asking(mut self, ask: impl Fn(&Question) -> Answer + Sync + Send + 'a) -> Self {
        self.ask = Some(Mutex::new(Box::new(ask)));
        self
    }

    /// Answers yes to every question beforehand, as `--yes` does.
    /// A call that a deny rule may cover still needs a person's yes: it is asked about if there is
    /// [a person to ask](Self::asking), and refused otherwise.
    #[must_use]
    pub fn agreeing(mut self) -> Self {
        self.agrees = true;
        self
    }

    /// Whether every question is answered yes [beforehand](Self::agreeing).
    pub fn agrees(&self) -> bool {
        self.agrees
    }

    /// Checks calls against `permissions`.
    #[must_use]
    pub fn permitted(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Ends the programs in the background; returns the calls that started them.
    /// Their changes are taken over as by a read.
    /// Dropping the session does this too.
    pub fn finish(&self) -> Vec<String> {
        self.jobs.finish(self)
    }

    /// Sends a notice; before it, reports if the trace can no longer be written.
    pub fn notify(&self, notice: &Notice) {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = self.trace.problem() {
            observer(&Notice::Warning(&problem));
        }
        observer(notice);
    }

    /// Remembers the person's answer; a failure to save it is reported and otherwise ignored.
    pub fn remember(&self, holder: &str, about: &str, answer: Answer) {
        if let Err(error) = self.permissions.remember(holder, about, answer) {
            self.notify(&Notice::Warning(&chain(&error)));
        }
    }

    /// Asks the person, if there is one, unless the answer was given beforehand.
    pub fn ask(&self, question: &Question) -> Option<Answer> {
        if self.agrees && !question.doubtful {
            return Some(Answer::Yes);
        }
        let ask = self.ask.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ask(question))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Who acts, and where in the run.
#[derive(Clone, Copy)]
pub struct Caller<'a, 's: 'a> {
    /// The shared state.
    pub session: &'a Session<'s>,
    /// The team whose jinxes and members the caller can use.
    pub team: &'a Team,
    /// The NPC that acts; `None` for the person who started the session.
    pub npc: Option<&'a Npc>,
    /// The jinxes of MCP servers that may be called in the conversation, in addition to the team's.
    pub offered: &'a [Jinx],
    /// Where to record: the session's trace, or that of a parallel branch.
    pub trace: &'a Trace,
    /// The conversation, see [`Entry::scope`](crate::trace::Entry::scope).
    pub scope: &'a str,
    /// How many conversations contain it.
    pub depth: usize,
    /// When the work must end.
    pub deadline: Option<Instant>,
    /// Whether this finishes work that was begun: then only `deadline` stops it.
    pub finishing: bool,
    /// Whether a hook acts: then no other hook runs.
    pub hook: bool,
    /// The call that this is part of, as the rules judged it.
    pub ruled: Option<&'a Ruled<'a>>,
}

/// A call of an NPC, with the verdict of the rules.
#[derive(Clone, Copy, Debug)]
pub struct Ruled<'a> {
    /// The jinx.
    pub jinx: &'a Jinx,
    /// The arguments, with defaults filled in.
    pub arguments: &'a Map<String, Value>,
    /// The verdict of the rules, before a person was asked; `None` if no rule matches.
    pub verdict: Option<Verdict>,
}

impl<'a, 's> Caller<'a, 's> {
    /// The person who started the session.
    pub fn person(session: &'a Session<'s>, team: &'a Team) -> Self {
        Caller {
            session,
            team,
            npc: None,
            offered: &[],
            trace: &session.trace,
            scope: "",
            depth: 0,
            deadline: None,
            finishing: false,
            hook: false,
            ruled: None,
        }
    }

    /// The caller's name, for messages.
    pub fn name(&self) -> &'a str {
        self.npc.map_or("you", |npc| &npc.name)
    }

    /// The jinx with this name.
    pub fn jinx(&self, name: &str) -> Option<&'a Jinx> {
        self.team.jinx(name).or_else(|| self.offered.iter().find(|jinx| jinx.name == name))
    }

    /// The scope of `place` within this one.
    pub(crate) fn scope_of(&self, place: &str) -> String {
        trace::inside(self.scope, place)
    }

    /// When work before a model's first token must end.
    pub fn until(&self) -> Until {
        let cancel = self.session.sandbox.cancel_flag();
        let cancelled = Some(cancel.clone()).filter(|_| !self.finishing);
        Until { cancelled, deadline: self.deadline }
    }

    /// The verdict of the rules on a call now.
    pub fn verdict(&self, jinx: &Jinx, arguments: &Map<String, Value>) -> Option<Ruling> {
        self.session.permissions.verdict(self.team, jinx, arguments, self.session.sandbox.work())
    }

    /// Why the call that this is part of may no longer be made, if so.
    /// A rule about a path depends on where the path leads, and that may have changed since: a job
    /// may have made a link.
    /// The refusal is recorded.
    ///
    /// # Errors
    /// The trace can't be written.
    pub(crate) fn overruled(&self) -> Result<Option<String>, Error> {
        let Some(ruled) = self.ruled else { return Ok(None) };
        let ruling = self.verdict(ruled.jinx, ruled.arguments);
        let stricter = |ruling: &Ruling| ruling.verdict > ruled.verdict.unwrap_or(Verdict::Allow);
        let Some(Ruling { by, .. }) = ruling.filter(stricter) else { return Ok(None) };
        let name = &ruled.jinx.name;
        let by = format!("{by}: the path in the call has changed since it was checked");
        let why = format!("`{name}` is not permitted by {by}");
        self.trace.push(self.scope, Record::Permission { jinx: name.clone(), verdict: Verdict::Deny, by })?;
        Ok(Some(why))
    }

    /// Why the work must stop now, if it must.
    pub fn stopped(&self) -> Option<Outcome> {
        if !self.finishing && self.session.sandbox.cancel_flag().load(Ordering::Relaxed) {
            return Some(Outcome::Cancelled);
        }
        self.deadline.filter(|deadline| Instant::now() >= *deadline).map(|_| Outcome::Deadline)
    }
}
