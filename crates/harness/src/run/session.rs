//! What all agents of a run share, and who is doing something in it right now.
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

/// What happens during a run, for display.
/// `depth` 0 is the conversation that the run began with.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A turn of an NPC begins; the first is 1.
    Turn {
        /// The NPC.
        npc: &'a str,
        /// How many conversations it is inside of.
        depth: usize,
        /// The number.
        turn: usize,
    },
    /// What the model is about to read; sent if [`Session::prompts`] is set.
    Prompt {
        /// The NPC.
        npc: &'a str,
        /// The conversation, see [`Entry::scope`](crate::trace::Entry::scope).
        scope: &'a str,
        /// Which turn of the conversation it is for, from 1.
        turn: usize,
        /// What.
        prompt: &'a Prompt,
    },
    /// The model says or calls something, or its turn is over.
    Event {
        /// How many conversations it is inside of.
        depth: usize,
        /// What.
        event: &'a Event,
    },
    /// A call begins.
    Call {
        /// How many conversations it is inside of.
        depth: usize,
        /// Which.
        call: &'a ToolCall,
    },
    /// A call has ended, after so long.
    Result {
        /// How many conversations it is inside of.
        depth: usize,
        /// Which.
        call: &'a ToolCall,
        /// With what.
        result: &'a ToolResult,
        /// After how long.
        took: Duration,
    },
    /// A jinx gives a response: `{type, id?, content}`.
    Emit(&'a serde_json::Value),
    /// Something is not as it should be, and the work goes on.
    Warning(&'a str),
    /// Nothing was changed in the work directory, since nobody agreed.
    Unchanged {
        /// What would have been done, as in "removes a, overwrites b".
        what: &'a str,
        /// Whether nobody was there to be asked.
        nobody: bool,
    },
    /// A program begins to run in the background, or has ended.
    Job {
        /// Its number.
        job: usize,
        /// What was called.
        call: &'a str,
        /// How it ended, if it did: "exit status 1".
        ended: Option<&'a str>,
    },
    /// The conversation was shortened to fit the context, so many messages were replaced.
    Compaction {
        /// How many.
        messages: usize,
    },
}

/// Who gets notices of what happens.
pub type Observer<'a> = Box<dyn FnMut(&Notice) + Send + 'a>;
/// Who answers when a rule says `ask`.
pub type Asked<'a> = Box<dyn Fn(&Question) -> Answer + Sync + Send + 'a>;

/// What all agents of a run share.
pub struct Session<'a> {
    /// Where models come from.
    pub models: &'a dyn ModelSource,
    /// Runs programs.
    pub sandbox: &'a Sandbox,
    /// How tokens are sampled, as far as it is set here; the rest is as each model has it.
    pub sampling: SamplingOverrides,
    /// Whether models that can reason do so; `None` = as each is set up.
    pub thinking: Option<bool>,
    /// Whether each turn of its agents is a call, whatever their files say; `None` = what these
    /// say.
    pub calls: Option<Calls>,
    /// What the work directory tells all that work in it.
    pub context_files: ContextFiles,
    /// Whether calls that change something are shown and not made: see [`tool`](crate::run::tool).
    pub dry_run: bool,
    /// Whether the observer gets what models read.
    pub prompts: bool,
    /// How many branches of a jinx may run side by side.
    /// Default 4.
    pub threads: usize,
    /// The rules about calls.
    pub permissions: Permissions,
    /// What the team's members share.
    pub store: Store,
    /// Cached results.
    pub memo: Memo,
    /// The MCP servers that were started for it.
    pub mcp: Servers,
    /// The gates that learn from what is done.
    pub gates: Observers,
    /// The documents that have been searched, which other sessions may share.
    pub knowledge: Arc<IndexCache>,
    /// The documents that all agents have in their prompts: retrieval `golden`.
    pub documents: Vec<Segment>,
    /// What runs in the background.
    pub jobs: Jobs,
    /// What has happened.
    pub trace: Trace,
    /// Results that calls get instead of being run, for a replay.
    pub mocks: Mocks,
    /// One question at a time.
    ask: Option<Mutex<Asked<'a>>>,
    /// Whether yes was said beforehand.
    agrees: bool,
    observer: Mutex<Observer<'a>>,
}

impl<'a> Session<'a> {
    /// A session with default settings, whose trace lives in memory, and where nobody is there to
    /// be asked.
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

    /// Draws tokens by `sampling`, where it says something.
    #[must_use]
    pub fn sampled(mut self, sampling: impl Into<SamplingOverrides>) -> Self {
        self.sampling = sampling.into();
        self
    }

    /// Lets each turn of every agent be a call, or not, whatever their files say.
    #[must_use]
    pub fn calling(mut self, calls: Option<Calls>) -> Self {
        self.calls = calls;
        self
    }

    /// Has agents read these files of the work directory.
    #[must_use]
    pub fn reading(mut self, files: ContextFiles) -> Self {
        self.context_files = files;
        self
    }

    /// Writes to `trace`.
    #[must_use]
    pub fn traced(mut self, trace: Trace) -> Self {
        self.trace = trace;
        self
    }

    /// Tells `observer` what happens.
    #[must_use]
    pub fn observed(mut self, observer: impl FnMut(&Notice) + Send + 'a) -> Self {
        self.observer = Mutex::new(Box::new(observer));
        self
    }

    /// Lets a person answer where a rule says `ask`; without one that means no.
    #[must_use]
    pub fn asking(mut self, ask: impl Fn(&Question) -> Answer + Sync + Send + 'a) -> Self {
        self.ask = Some(Mutex::new(Box::new(ask)));
        self
    }

    /// Answers yes to every question beforehand, as `--yes` does.
    /// What a rule that denies may cover takes a person's yes nevertheless: it is asked about, if
    /// somebody [is there](Self::asking), and else refused.
    #[must_use]
    pub fn agreeing(mut self) -> Self {
        self.agrees = true;
        self
    }

    /// Whether yes was said [beforehand](Self::agreeing).
    pub fn agrees(&self) -> bool {
        self.agrees
    }

    /// Holds calls against `permissions`.
    #[must_use]
    pub fn permitted(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Ends what still runs in the background; gives which calls these were.
    /// What they have written is taken over as when they are read.
    /// It also happens when this is dropped.
    pub fn finish(&self) -> Vec<String> {
        self.jobs.finish(self)
    }

    /// Says what happens, and before it what happens no more: that the trace is written.
    pub fn notify(&self, notice: &Notice) {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = self.trace.problem() {
            observer(&Notice::Warning(&problem));
        }
        observer(notice);
    }

    /// Remembers an answer of the person; that it can't be written down is told, and no more.
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

/// Who does something, and where in the run.
#[derive(Clone, Copy)]
pub struct Caller<'a, 's: 'a> {
    /// What all share.
    pub session: &'a Session<'s>,
    /// The team whose jinxes and members are known.
    pub team: &'a Team,
    /// The NPC for which it is done; `None` = the person who started it.
    pub npc: Option<&'a Npc>,
    /// The jinxes of MCP servers that may be called in the conversation, beside the team's.
    pub offered: &'a [Jinx],
    /// Where it is recorded: the session's trace, or that of a branch that runs beside others.
    pub trace: &'a Trace,
    /// The conversation that it belongs to, see [`Entry::scope`](crate::trace::Entry::scope).
    pub scope: &'a str,
    /// How many conversations it is inside of.
    pub depth: usize,
    /// When it must be over.
    pub deadline: Option<Instant>,
    /// Whether it ends what was begun: then only `deadline` stops it.
    pub finishing: bool,
    /// Whether it is a hook at work: then no other hook is run.
    pub hook: bool,
    /// The call that it is done for, as rules have judged it.
    pub ruled: Option<&'a Ruled<'a>>,
}

/// A call of an NPC, and what rules say of it.
#[derive(Clone, Copy, Debug)]
pub struct Ruled<'a> {
    /// The jinx.
    pub jinx: &'a Jinx,
    /// The arguments, complete.
    pub arguments: &'a Map<String, Value>,
    /// What the rules say, before a person was asked; `None` = nothing.
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

    /// The name of whoever does it, for messages.
    pub fn name(&self) -> &'a str {
        self.npc.map_or("you", |npc| &npc.name)
    }

    /// The jinx with this name.
    pub fn jinx(&self, name: &str) -> Option<&'a Jinx> {
        self.team.jinx(name).or_else(|| self.offered.iter().find(|jinx| jinx.name == name))
    }

    /// The scope of something named `place` inside of this one.
    pub fn scope_of(&self, place: &str) -> String {
        trace::inside(self.scope, place)
    }

    /// When the work is to end that comes before a model's first token.
    pub fn until(&self) -> Until {
        let cancel = self.session.sandbox.cancel_flag();
        let cancelled = Some(cancel.clone()).filter(|_| !self.finishing);
        Until { cancelled, deadline: self.deadline }
    }

    /// What rules say of a call now.
    pub fn verdict(&self, jinx: &Jinx, arguments: &Map<String, Value>) -> Option<Ruling> {
        self.session.permissions.verdict(self.team, jinx, arguments, self.session.sandbox.work())
    }

    /// Why the call that it is done for may not be made any more, if so.
    /// A rule about a path is judged by where it leads, and that may have changed since: a job may
    /// have made a link.
    /// That it may not is recorded.
    ///
    /// # Errors
    /// The trace can't be written.
    pub fn overruled(&self) -> Result<Option<String>, Error> {
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

    /// Why it must stop now, if it must.
    pub fn stopped(&self) -> Option<Outcome> {
        if !self.finishing && self.session.sandbox.cancel_flag().load(Ordering::Relaxed) {
            return Some(Outcome::Cancelled);
        }
        self.deadline.filter(|deadline| Instant::now() >= *deadline).map(|_| Outcome::Deadline)
    }
}
