//! Options shared by all commands that run an agent: which team and NPC, which model, which
//! directory, and which rules.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alara_engine::{Sampling, SamplingOverrides, disk};
use alara_harness::calls::Calls;
use alara_harness::context_files::ContextFiles;
use alara_harness::permission::Question;
use alara_harness::sandbox::enforced;
use alara_harness::state::Kept;
use alara_harness::team::Search;
use alara_harness::trace::{Entry, Record, Start};
use alara_harness::{Diagnostic, Error, Npc, Policy, Sandbox, Session, Severity, Team, TeamError, Trace};
use anyhow::{Context, bail};

use crate::progress::count;
use crate::{ask, cache, config, consent, interrupt, model, state, traces, ui};

/// The exit code that shells use for a program ended by an interrupt.
pub const INTERRUPTED: u8 = 130;

/// Options of commands that run an agent.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// A team: a directory, or a name [default: ./npc_team if there is one, else the built-in team
    /// alara]
    #[arg(short, long)]
    pub team: Option<String>,
    /// The NPC [default: the team's forenpc]
    #[arg(short, long)]
    pub npc: Option<String>,
    #[command(flatten)]
    pub model: model::Args,
    /// The only directory in which agents may change files [default: the current one]
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Seed of the sampler [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Sampling temperature; 0 takes the most likely token [default: the recommendation in the
    /// model's file or the catalog, else 0]
    #[arg(long, value_parser = Sampling::temperature, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Whether each turn is a call: `free` lets the model decide; `forced` makes it call a tool, or
    /// `finish`, which answers.
    /// `auto` stays free as long as the model calls or answers by itself; `thought` lets it think
    /// in one sentence first [default: the NPC's, else forced where the prompt describes how to
    /// write calls, auto otherwise]
    #[arg(long, value_name = "free|auto|forced|thought")]
    pub calls: Option<Calls>,
    /// First measure how the model uses tools best, as `alara tune` does, unless already measured
    #[arg(long)]
    pub tune: bool,
    /// Answer yes to every question except those about calls that a rule may deny
    #[arg(long)]
    pub yes: bool,
    /// Show each change to a file as a diff before making it, and ask: yes, no, always for this
    /// session, or edit it first
    #[arg(long, conflicts_with = "yes")]
    pub ask: bool,
    /// Read AGENTS.md, from the work directory up to the repository's root, without asking
    #[arg(long)]
    context_files: bool,
    /// Don't read AGENTS.md
    #[arg(long, conflicts_with = "context_files")]
    no_context_files: bool,
    /// Show calls and their results in full, and the output of the team's other NPCs
    #[arg(short, long)]
    pub verbose: bool,
    /// Where to write the trace [default: a new file in the user's state directory]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["latest", "resume"])]
    trace: Option<PathBuf>,
    /// Continue the latest conversation in the work directory
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    latest: bool,
    /// Continue a conversation, even one that was killed: an id from `alara trace list`, part of
    /// one, or a file.
    /// Settings that you don't repeat keep their values: team, NPC, model, work directory,
    /// sampling.
    /// From a file outside your own traces, only team and NPC are used
    #[arg(long, value_name = "ID|FILE")]
    resume: Option<String>,

    /// Settings of the conversation to continue.
    #[arg(skip)]
    before: Option<Box<Start>>,
    /// Whether the team was found in a place where somebody else may have put it.
    #[arg(skip)]
    found: bool,
}

impl Args {
    /// Whether to continue an earlier conversation.
    pub fn goes_on(&self) -> bool {
        self.latest || self.resume.is_some()
    }

    /// Returns these arguments, completed by the settings of the conversation to continue, and the
    /// path of its trace; `None` if there is no conversation to continue.
    ///
    /// # Errors
    /// The conversation can't be found.
    pub fn with_earlier(&self) -> anyhow::Result<(Args, Option<PathBuf>)> {
        let mut args = self.clone();
        if !self.goes_on() {
            return Ok((args, None));
        }
        let path = match &self.resume {
            Some(name) => traces::file(Some(name))?,
            None => traces::latest_in(self.workdir())?,
        };
        let entries = alara_harness::trace::read(&path)?;
        let starts = entries.into_iter().filter(Entry::is_the_users).filter_map(|entry| {
            let Record::Start(start) = &*entry.record else { return None };
            Some(start.clone())
        });
        let Some(start) = starts.last() else { return Err(Error::NoConversation { path }.into()) };
        // Somebody else may have written a trace from elsewhere: don't send a key to an endpoint
        // that it names, and don't let agents work in a directory that it names.
        let is_own = traces::is_own(&path);
        if is_own {
            args.workdir.get_or_insert_with(|| start.work.clone());
        }
        if args.model.model.is_none() && is_own {
            args.model.model.clone_from(&start.asked);
        }
        if args.team.is_none() {
            let directory = start.directory.as_ref();
            let named = directory.map(|path| path.to_str().map(|path| format!("{path}/")));
            let named = named.unwrap_or_else(|| Some(start.team.clone()));
            args.team =
                Some(named.context("the path of the conversation's team is no text: name it with -t")?);
            // Keep the named directory, unless a link has since changed where it leads.
            let leads_there =
                |directory: &PathBuf| directory.canonicalize().is_ok_and(|real| real == *directory);
            let is_named = |directory| is_own && start.team_named && leads_there(directory);
            args.found = directory.is_some_and(|directory| !is_named(directory));
        }
        args.npc.get_or_insert_with(|| start.npc.clone());
        // Another model calls tools in another way.
        args.before = (self.model.model.is_none() && is_own).then_some(start);
        Ok((args, Some(path)))
    }

    /// The work directory.
    pub fn workdir(&self) -> &Path {
        self.workdir.as_deref().unwrap_or(Path::new("."))
    }

    /// Loads the team and reports problems in its files.
    pub fn team(&self) -> anyhow::Result<Team> {
        find_as(self.team.as_deref(), self.found, self.workdir(), self.yes)
    }

    /// Loads the team without reporting problems in its files, which [`worker`] does; also returns
    /// the team's name.
    ///
    /// [`worker`]: Self::worker
    pub fn team_untold(&self) -> anyhow::Result<(Team, String)> {
        load(self.team.as_deref(), self.found, self.workdir(), self.yes)
    }

    /// Returns the member `npc` of the team named `called`, ready to run.
    /// Reports problems in the team's files, except the one that is returned as the error.
    ///
    /// # Errors
    /// There is no such member, or its rules can't be read.
    pub fn worker<'t>(team: &'t Team, called: &str, npc: Option<&str>) -> anyhow::Result<&'t Npc> {
        let worker = team.npc(npc).and_then(|npc| npc.may_run().map(|()| npc));
        let refused = match &worker {
            Err(TeamError::Invalid(refused)) => Some(refused.plain()),
            _ => None,
        };
        let others = team.diagnostics.iter().filter(|one| refused.as_ref() != Some(&one.plain()));
        tell(&others.cloned().collect::<Vec<_>>(), called);
        Ok(worker?)
    }

    /// Switches to another team, named by the user.
    pub fn choose_team(&mut self, name: &str) {
        (self.team, self.found) = (Some(name.to_owned()), false);
    }

    /// Returns the source of models for the agents.
    pub fn models(&self) -> model::Source {
        self.model.source(1, self.yes)
    }

    /// Returns a sandbox in which the team's files are readable; warns if this machine can't
    /// enforce all of it.
    /// With `dry_run`, nothing in the work directory can change.
    ///
    /// # Errors
    /// The directory can't be used, or a question came up and there is no terminal to ask at.
    pub fn sandbox(&self, team: &Team, dry_run: bool) -> anyhow::Result<Sandbox> {
        if self.ask && !ask::is_possible() {
            bail!(
                "--ask needs a terminal for its questions and their answers\n\
                 hint: leave it out, and only what loses nothing is done; or see what would be done: alara run --dry-run"
            );
        }
        if !dry_run {
            consent::workdir(self.workdir(), self.yes)?;
        }
        let watched = match (dry_run, self.ask) {
            (true, _) => Watched::Impossible,
            (_, true) => Watched::Seen,
            _ => Watched::unless(self.yes),
        };
        let mut policy = policy(team, self.workdir(), self.model.cache.folder(), watched)?;
        // Otherwise anything that a step wrote into the trace would count as part of the run.
        policy.protected.extend(self.trace.as_ref().and_then(|trace| std::path::absolute(trace).ok()));
        let sandbox = journaled(Sandbox::new(self.workdir(), policy)?);
        warn_of_sandbox();
        Ok(sandbox)
    }

    /// Returns the context files of the work directory that agents may read.
    ///
    /// # Errors
    /// They were requested and can't be read, or the stored answers can't be read.
    pub fn context_files(&self) -> anyhow::Result<ContextFiles> {
        match self.no_context_files {
            true => Ok(ContextFiles::default()),
            false => consent::context_files(self.workdir(), self.context_files, self.yes),
        }
    }

    /// Sets up a session as requested: sampling, rules, threads, trace (a new one, unless one is
    /// `given`), and a person to ask if there is one; calls `asks` before each question.
    pub fn equip<'a>(
        &self,
        session: Session<'a>,
        given: Option<Trace>,
        asks: impl Fn(&Question) + Send + Sync + 'a,
    ) -> anyhow::Result<Session<'a>> {
        let before = self.before.as_deref();
        let mut sampling: SamplingOverrides =
            before.map(|before| before.sampling.clone().into()).unwrap_or_default();
        sampling.seed = self.seed.or(sampling.seed).or(Some(0));
        sampling.temperature = self.temperature.or(sampling.temperature);
        let trace = match (given, &self.trace) {
            (Some(trace), _) => trace,
            (None, Some(path)) => Trace::create(path)?,
            (None, None) => state::trace(),
        };
        let calls = self.calls.or(before.map(|before| before.calls));
        let mut session =
            session.sampled(sampling).calling(calls).permitted(consent::answers()?).traced(trace);
        session.thinking = self.model.thinking.or_else(|| before.and_then(|before| before.thinking));
        session.threads = self.model.threads();
        session.knowledge = Arc::new(cache::knowledge());
        if self.yes {
            session = session.agreeing();
        }
        if ask::is_possible() {
            return Ok(session.asking(move |question| {
                asks(question);
                ask::person(question)
            }));
        }
        Ok(session)
    }
}

/// Which changes in the work directory need a confirmation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// None.
    Nothing,
    /// Changes that destroy existing content.
    Losses,
    /// All changes, each shown before it is made.
    Seen,
    /// None, because no change is possible.
    Impossible,
}

impl Watched {
    /// Watches changes that destroy content, unless everything is confirmed in advance.
    pub fn unless(yes: bool) -> Self {
        if yes { Watched::Nothing } else { Watched::Losses }
    }
}

/// Returns a sandbox in the directory `work`, in which the team's files are readable.
/// The folder `cache` is read-only inside it, and `watched` applies to files in `work`.
pub fn sandbox(team: &Team, work: &Path, cache: Option<PathBuf>, watched: Watched) -> Result<Sandbox, Error> {
    Ok(journaled(Sandbox::new(work, policy(team, work, cache, watched)?)?))
}

/// Lets `alara undo` revert what happens in the sandbox.
fn journaled(sandbox: Sandbox) -> Sandbox {
    match state::journal() {
        Some(journal) => sandbox.with_journal(journal),
        None => sandbox,
    }
}

/// Returns the policy of that sandbox.
pub fn policy(team: &Team, work: &Path, cache: Option<PathBuf>, watched: Watched) -> Result<Policy, Error> {
    // Only an existing folder can be protected.
    // If it can't be created or used, the model reports that and runs without a cache.
    let _ = cache.as_deref().map(disk::claim);
    let readable = team.directory.iter().cloned().collect();
    let Kept { protected, refused } = Kept::of(team, work, cache)?;
    let guard = matches!(watched, Watched::Losses | Watched::Seen);
    let (review, read_only) = (watched == Watched::Seen, watched == Watched::Impossible);
    Ok(Policy { readable, protected, refused, guard, review, read_only, ..Policy::default() })
}

/// Warns about what the sandbox can't enforce on this machine.
pub fn warn_of_sandbox() {
    if let Some(warning) = enforced().warning() {
        ui::note(&format!("warning: {warning}"));
    }
}

/// Loads the team `name`, or the default team for work in `workdir`, and reports problems in its
/// files.
/// A team that was found rather than named needs a confirmation, which `yes` gives.
pub fn find(name: Option<&str>, workdir: &Path, yes: bool) -> anyhow::Result<Team> {
    find_as(name, false, workdir, yes)
}

/// Like [`find`], but a team that was `found` needs a confirmation in any case.
pub fn find_as(name: Option<&str>, found: bool, workdir: &Path, yes: bool) -> anyhow::Result<Team> {
    let (team, called) = load(name, found, workdir, yes)?;
    tell(&team.diagnostics, &called);
    Ok(team)
}

/// Loads that team without reporting problems in its files; also returns its name.
fn load(name: Option<&str>, found: bool, workdir: &Path, yes: bool) -> anyhow::Result<(Team, String)> {
    let configured = config::team(workdir).filter(|_| name.is_none());
    let name = name.or(configured.as_ref().map(|(name, _)| name.as_str()));
    let found = found || configured.as_ref().is_some_and(|(_, value)| value.is_of_project());
    let search = Search { workdir: workdir.to_owned(), ..state::search() };
    let team = search.team(name).map_err(|error| match &configured {
        Some((_, value)) => value.blamed("team", &error.into()),
        None => error.into(),
    })?;
    let team = team.found_if(found);
    consent::team(&team, yes)?;
    let called = name.unwrap_or("npc_team").to_owned();
    Ok((team, called))
}

/// The built-in team, without the user's own jinxes, whatever the work directory contains.
pub fn built_in() -> anyhow::Result<Team> {
    Ok(Team::stock("alara")?)
}

/// Returns the innermost team whose folder of jinxes contains a file.
pub fn team_around(file: &Path) -> Option<Team> {
    let is_root = |folder: &&Path| folder.ends_with("jinxes") || folder.ends_with("jinxs");
    file.ancestors().filter(is_root).filter_map(Path::parent).find_map(|directory| team_in(directory).ok())
}

/// Loads the team in this directory.
pub fn team_in(directory: &Path) -> anyhow::Result<Team> {
    let name = directory.to_str().with_context(|| format!("{} is no text", directory.display()))?;
    let name = if name.is_empty() { "." } else { name };
    // With a trailing slash it can't be mistaken for the name of a team elsewhere.
    Ok(state::search().team(Some(&format!("{}/", name.trim_end_matches('/'))))?)
}

/// Prints the errors in files; only counts the warnings.
pub fn tell(diagnostics: &[Diagnostic], name: &str) {
    let (errors, warnings): (Vec<_>, Vec<_>) =
        diagnostics.iter().partition(|diagnostic| diagnostic.severity == Severity::Error);
    for error in errors {
        ui::note(&error.to_string());
    }
    if !warnings.is_empty() {
        ui::note(&format!("{}; `alara check {name}` tells them", count(warnings.len(), "warning")));
    }
}

/// The first interrupt raises `cancel`, the second ends the process.
pub fn cancel_by_interrupt(cancel: Arc<AtomicBool>) -> anyhow::Result<()> {
    interrupt::does(move || {
        if cancel.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })
}

/// Parses a jinx argument given as `name=value`.
pub fn pair(text: &str) -> anyhow::Result<(&str, &str)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => bail!("`{text}` is no argument: write name=value"),
    }
}
