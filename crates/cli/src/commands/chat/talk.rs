//! A chat between a user and a team: carries out each input line.

use std::collections::BTreeMap;

use alara_engine::ToolCall;
use alara_harness::prompt::offer;
use alara_harness::resume::{Conversation as Earlier, Resumed};
use alara_harness::run::hooks;
use alara_harness::trace::{self, Record};
use alara_harness::{Agent, Jinx, ModelSource, Outcome, Session, Team, tool};
use anyhow::{Context, bail};

use super::conversation::Conversation;
use super::input::Names;
use super::line::{self, COMMANDS, Line};
use super::settings::{RESET, Settings};
use crate::attach::attached;
use crate::first_words;
use crate::fold::details;
use crate::markdown::Markdown;
use crate::model::Source;
use crate::progress::{count, status, verdict};
use crate::screen::printable;
use crate::{agent, state, ui};

/// How many messages to show when a conversation continues.
const SHOWN: usize = 2;
/// How many messages `/history` shows by default.
const HISTORY: usize = 10;

/// What remains to be done after a line.
pub enum Next {
    /// Nothing.
    Nothing,
    /// Show the answer, if there is one, and then a remark.
    Said { text: Option<String>, remark: String },
    /// Show a remark.
    Remark(String),
    /// Leave the chat.
    Leave,
}

/// A chat.
pub struct Talk<'s> {
    session: Session<'s>,
    models: &'s Source,
    /// The command-line options.
    args: agent::Args,
    team: Team,
    /// The current NPC.
    npc: String,
    /// The NPC that the trace begins with.
    first: String,
    conversations: BTreeMap<String, Conversation>,
    /// How many jinxes the user has run.
    runs: usize,
    /// Changes made by `/set` and `/system`.
    settings: Settings,
    /// Tools of the MCP servers started for the current NPC.
    offered: Vec<Jinx>,
}

impl<'s> Talk<'s> {
    /// Starts a chat with the member `npc` of the team chosen by `args`.
    pub fn new(session: Session<'s>, models: &'s Source, args: agent::Args, team: Team, npc: String) -> Self {
        let settings = Settings::new(&session.sampling, session.thinking);
        let (first, conversations) = (npc.clone(), BTreeMap::new());
        Talk {
            session,
            models,
            args,
            team,
            first,
            npc,
            conversations,
            runs: 0,
            settings,
            offered: Vec::new(),
        }
    }

    /// Loads the model; at a terminal, prints which NPC is there.
    ///
    /// # Errors
    /// The model can't be loaded.
    pub fn welcome(&self, terminal: bool) -> anyhow::Result<()> {
        let model = self.models.model(&self.team.npc(Some(&self.npc))?.model)?;
        if self.models.is_shipped(&self.team.npc(Some(&self.npc))?.model) {
            ui::note(&first_words::demonstration());
        }
        if terminal {
            let (npc, team, model) = (&self.npc, &self.team.name, model.name());
            ui::note(&format!("{npc} of {team}, with {model}; /help tells what can be typed, Ctrl-D leaves"));
        }
        Ok(())
    }

    /// Continues earlier conversations; at a terminal, shows the last messages.
    /// Restores a `/system` of the user, if the trace is one of the user's own.
    pub fn take_up(&mut self, earlier: Resumed, terminal: bool, is_own: bool) {
        let news = earlier.news();
        for (scope, conversation) in earlier.conversations {
            let directive = conversation.directive().filter(|_| is_own).map(str::to_owned);
            let Earlier { records } = conversation;
            let first = records.iter().find_map(|record| match &**record {
                Record::Start(start) => Some(start.npc.clone()),
                _ => None,
            });
            let npc = scope.strip_prefix('@').map(str::to_owned).or(first).unwrap_or_default();
            if scope.is_empty() {
                self.first.clone_from(&npc);
            }
            if directive.is_some() {
                ui::note(&format!("{npc} keeps the system prompt of /system; /system {RESET} takes it back"));
                self.settings.direct(&npc, directive);
            }
            let news = news.iter().cloned().collect();
            self.conversations.insert(npc, Conversation { records, news });
        }
        if let Some(conversation) = self.conversations.get(&self.npc).filter(|_| terminal) {
            show(&conversation.transcript(&self.npc, Some(SHOWN)));
        }
    }

    /// Runs the team's hooks for the start of a session.
    ///
    /// # Errors
    /// The sandbox failed, or the trace can't be written.
    pub fn begin(&self) -> anyhow::Result<()> {
        let npc = self.team.npc(Some(&self.first)).or_else(|_| self.team.npc(None))?;
        Ok(hooks::start(&self.session, &self.team, npc)?)
    }

    /// Runs the team's hooks for the end of a session.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn end(&self) -> anyhow::Result<()> {
        let npc = self.team.npc(Some(&self.first)).or_else(|_| self.team.npc(None))?;
        Ok(hooks::end(&self.session, &self.team, npc, "ended")?)
    }

    /// Returns the input prompt.
    pub fn prompt(&self) -> String {
        format!("{}> ", self.npc)
    }

    /// Returns the names for completion.
    pub fn names(&self) -> Names {
        let commands = COMMANDS.iter().map(|(name, ..)| (*name).to_owned());
        let jinxes = self.team.jinxes.iter().chain(&self.offered).map(|jinx| jinx.name.clone());
        let teams = self.team.teams.iter().map(|team| team.name.clone());
        Names {
            commands: commands.chain(jinxes).collect(),
            npcs: self.team.npcs.iter().map(|npc| npc.name.clone()).chain(teams).collect(),
        }
    }

    /// Carries out a line.
    ///
    /// # Errors
    /// The line failed; the chat can continue.
    pub fn hear(&mut self, line: &str) -> anyhow::Result<Next> {
        self.reload();
        match line::parse(line) {
            Line::Empty => Ok(Next::Nothing),
            Line::Say(word) if COMMANDS.iter().any(|(name, ..)| *name == word) => Ok(Next::Remark(format!(
                "`{word}` is the name of a command: is /{word} meant? To say it to the NPC, use more words"
            ))),
            Line::Say(text) => self.say(&self.npc.clone(), text),
            Line::To { npc, text } => {
                if self.team.member(npc).is_none() && self.session.sandbox.work().join(npc).is_file() {
                    return self.say(&self.npc.clone(), line);
                }
                if self.team.member(npc).is_none() {
                    let npcs = self.names().npcs;
                    let meant = meant("@", npc, npcs.iter().map(String::as_str));
                    bail!("there is no NPC `{npc}` in the team (known: {}){meant}", npcs.join(", "));
                }
                if text.is_empty() {
                    npc.clone_into(&mut self.npc);
                    self.offered.clear();
                    return Ok(Next::Remark(format!("this is {npc}")));
                }
                self.say(npc, text)
            }
            Line::Command { name, rest } => self.command(name, rest),
        }
    }

    /// Sends `text` to a member of the team, in the conversation with that NPC.
    fn say(&mut self, name: &str, text: &str) -> anyhow::Result<Next> {
        let text = &attached(text, self.session.sandbox.work())?;
        let (team, npc) = self.team.member(name).context("the NPC is gone")?;
        let npc = &self.settings.applied(npc);
        let is_stock = team.directory.is_none() && self.models.is_shipped(&npc.model);
        if let Some(answer) = first_words::small_talk(text).filter(|_| is_stock) {
            ui::line(answer);
            return Ok(Next::Nothing);
        }
        let conversation = self.conversations.entry(name.to_owned()).or_default();
        let before = conversation.records.len();
        let scope = if name == self.first { String::new() } else { format!("@{name}") };
        let mut agent = Agent::resume(&self.session, team, npc, &scope, conversation.records.clone())?;
        let outcome = agent.run(&conversation.message(text));
        let stopped = agent.stopped().map(Outcome::reason);
        conversation.records = agent.into_records();
        conversation.news.clear();
        if name == self.npc {
            self.offered = self.session.mcp.offered(&self.session, team, npc).jinxes;
        }
        let outcome = outcome?;
        let context = self.models.model(&npc.model)?.context();
        let usage = conversation.usage(before);
        let status = status(&usage, conversation.last_turn(), context);
        Ok(match outcome {
            Outcome::Answer { text } if stopped.is_some() => {
                let remark = format!("{}\n[{status}]", stopped.unwrap_or_default());
                Next::Said { text: Some(text), remark }
            }
            Outcome::Answer { text } => Next::Said { text: Some(text), remark: format!("[{status}]") },
            Outcome::Cancelled => Next::Remark(format!("interrupted\n[{status}]")),
            other => Next::Remark(format!("{}\n[{status}]", other.reason())),
        })
    }

    fn command(&mut self, name: &str, rest: &str) -> anyhow::Result<Next> {
        let conversation = self.conversations.entry(self.npc.clone()).or_default();
        match name {
            "help" => help(),
            "quit" | "exit" => return Ok(Next::Leave),
            "npcs" => {
                for npc in &self.team.npcs {
                    let mark = if npc.name == self.npc { "*" } else { " " };
                    ui::line(&format!("{mark} @{:<16} {}", npc.name, npc.jinxes.join(", ")));
                }
                for team in &self.team.teams {
                    ui::line(&format!("  @{:<16} a team: {}", team.name, printable(&team.description)));
                }
            }
            "jinxes" => {
                self.start_servers()?;
                for jinx in self.team.jinxes.iter().chain(&self.offered) {
                    let inputs = jinx.inputs.iter().map(|input| match input.default {
                        None => input.name.clone(),
                        Some(_) => format!("[{}]", input.name),
                    });
                    let typed = format!("/{} {}", jinx.name, inputs.collect::<Vec<_>>().join(" "));
                    let about = jinx.description.lines().next().unwrap_or_default();
                    ui::entry(&typed, &printable(about));
                }
            }
            "model" => {
                if !rest.is_empty() {
                    self.models.choose(rest)?;
                }
                let (_, npc) = self.team.member(&self.npc).context("the NPC is gone")?;
                let model = self.models.model(&npc.model)?;
                let context = model.context().map(|tokens| format!(", context {tokens}"));
                return Ok(Next::Remark(format!("{}{}", model.name(), context.unwrap_or_default())));
            }
            "team" if rest.is_empty() => {
                let directory = self.team.directory.as_ref().map(|path| path.display().to_string());
                let origin = directory.unwrap_or_else(|| "built in".to_owned());
                return Ok(Next::Remark(format!("{} ({origin})", self.team.name)));
            }
            "team" => {
                let team = agent::find(Some(rest), self.session.sandbox.work(), self.args.yes)?;
                let npc = team.npc(None)?.name.clone();
                self.end()?;
                self.begin_anew(npc);
                self.team = team;
                self.args.choose_team(rest);
                self.begin()?;
                return Ok(Next::Remark(format!(
                    "this is {} of {}{}",
                    self.npc,
                    self.team.name,
                    self.trace_note()
                )));
            }
            "history" => {
                let limit = match rest {
                    "" => HISTORY,
                    number => number.parse().with_context(|| format!("`{number}` is no number"))?,
                };
                show(&conversation.transcript(&self.npc, Some(limit)));
            }
            "stats" => {
                let (turns, calls) = conversation.counts();
                let context = self
                    .team
                    .member(&self.npc)
                    .and_then(|(_, npc)| self.models.model(&npc.model).ok()?.context());
                let status = status(&conversation.usage(0), conversation.last_turn(), context);
                ui::line(&format!("{}, {}; {status}", count(turns, "turn"), count(calls, "tool call")));
                if let Some(path) = self.session.trace.path() {
                    ui::line(&format!("trace {}", path.display()));
                }
            }
            "last" => {
                let back = match rest {
                    "" => 1,
                    number => number.parse::<usize>().ok().filter(|back| *back > 0).with_context(|| {
                        format!("`{number}` is no number\nhint: /last 2 is the last call but one")
                    })?,
                };
                let mut results = conversation.records.iter().rev().filter_map(|record| match &**record {
                    Record::ToolResult { call, result, seconds, .. } => Some((call, result, *seconds)),
                    _ => None,
                });
                let Some((call, result, seconds)) = results.nth(back - 1) else {
                    bail!("{} has not made so many calls in this conversation", self.npc);
                };
                let styled = ui::is_styled(&std::io::stdout());
                details(call, result, seconds, styled).iter().for_each(|line| ui::line(line));
            }
            "set" => return Ok(self.set(rest)?.map_or(Next::Nothing, Next::Remark)),
            "system" => return self.system(rest),
            "phase" => {
                let stands = trace::phases(conversation.records.iter().map(|record| &**record));
                match stands {
                    Some(machine) => machine.block().lines().for_each(|line| ui::line(&printable(line))),
                    None => bail!("{} has no phases, or nothing has been said yet", self.npc),
                }
            }
            "ledger" => {
                let facts = trace::facts(conversation.records.iter().map(|record| &**record));
                if facts.is_empty() {
                    bail!("the gates of {} know nothing yet, or it has none", self.npc);
                }
                facts.iter().for_each(|(path, fact)| ui::line(&printable(&format!("{path}: {fact}"))));
            }
            "retry" => {
                let text = conversation.last_question().context("nothing has been said yet")?.to_owned();
                let scope = if self.npc == self.first { String::new() } else { format!("@{}", self.npc) };
                conversation.records.push(self.session.trace.push(&scope, Record::Retract)?);
                return self.say(&self.npc.clone(), &text);
            }
            "clear" => {
                self.end()?;
                self.begin_anew(self.npc.clone());
                self.begin()?;
                return Ok(Next::Remark(format!("a new conversation{}", self.trace_note())));
            }
            "save" if rest.is_empty() => bail!("/save FILE"),
            "save" => {
                std::fs::write(rest, conversation.transcript(&self.npc, None))
                    .with_context(|| format!("can't write {rest}"))?;
                return Ok(Next::Remark(format!("written to {rest}")));
            }
            jinx => return self.run(jinx, rest),
        }
        Ok(Next::Nothing)
    }

    /// Shows the settings of `/set`, or changes one.
    fn set(&mut self, rest: &str) -> anyhow::Result<Option<String>> {
        let (_, npc) = self.team.member(&self.npc).context("the NPC is gone")?;
        if !rest.is_empty() {
            let said = self.settings.set(rest, &mut self.session.sampling, npc)?;
            self.session.thinking = self.settings.thinking;
            return Ok(Some(said));
        }
        let model = self.models.model(&npc.model)?;
        let rows = self.settings.rows(&self.session.sampling, &model.sampling(), npc);
        // The descriptions don't fit a narrow terminal, and can be omitted.
        let shown = if ui::columns().is_some_and(|columns| columns < 90) { 3 } else { 4 };
        let rows = rows.into_iter().map(|mut row| {
            row.truncate(shown);
            row
        });
        ui::table_of_words(&["", "now", "from", "what it is"][..shown], rows);
        Ok(None)
    }

    /// Shows the current NPC's system prompt, or replaces its directive.
    fn system(&mut self, rest: &str) -> anyhow::Result<Next> {
        let (team, npc) = self.team.member(&self.npc).context("the NPC is gone")?;
        if rest.is_empty() {
            for segment in alara_harness::prompt::system(team, &self.settings.applied(npc)) {
                ui::line(&printable(&segment.text));
            }
            return Ok(Next::Nothing);
        }
        let own = (rest != RESET).then(|| rest.to_owned());
        let said = match own {
            Some(_) => format!("from your next message on that is the system prompt of {}", self.npc),
            None => format!("{} has the system prompt of its file again", self.npc),
        };
        self.settings.direct(&self.npc, own);
        Ok(Next::Remark(said))
    }

    /// Starts the MCP servers of the current NPC that aren't running.
    fn start_servers(&mut self) -> anyhow::Result<()> {
        let (team, npc) = self.team.member(&self.npc).context("the NPC is gone")?;
        self.offered = self.session.mcp.offered(&self.session, team, npc).jinxes;
        Ok(())
    }

    /// Runs a jinx for the user.
    /// The current NPC learns of it with the next message.
    fn run(&mut self, name: &str, rest: &str) -> anyhow::Result<Next> {
        if self.team.jinx(name).is_none() {
            self.start_servers()?;
        }
        let offered = self.offered.iter().find(|jinx| jinx.name == name);
        let Some(jinx) = self.team.jinx(name).or(offered) else {
            let meant = meant("/", name, self.names().commands.iter().map(String::as_str));
            let meant = if meant.is_empty() { "\nhint: /help, /jinxes".to_owned() } else { meant };
            bail!("there is no command and no jinx /{name}{meant}");
        };
        let arguments = line::arguments(jinx, rest, &offer(&self.team, None)).map_err(anyhow::Error::msg)?;
        self.runs += 1;
        let call = ToolCall { id: format!("run_{}", self.runs), name: name.to_owned(), arguments };
        let begun = std::time::Instant::now();
        let result = tool::person(&self.session, &self.team, &self.offered, &call)?;
        let output = result.output_text();
        if !output.is_empty() {
            ui::line(&printable(&output));
        }
        let complaint = result.complaint();
        if !complaint.is_empty() {
            ui::note(&printable(&complaint));
        }
        let limit = self.team.member(&self.npc).map_or(usize::MAX, |(_, npc)| npc.limits.tool_output_bytes);
        let news = format!("I ran /{name} {rest}: {}", result.text(limit));
        self.conversations.entry(self.npc.clone()).or_default().news.push(news);
        Ok(Next::Remark(verdict(&result, begun.elapsed().as_secs_f64())))
    }

    /// Begins a new conversation with its own trace.
    fn begin_anew(&mut self, npc: String) {
        self.conversations.clear();
        self.offered.clear();
        // They were for the NPCs of that conversation; another team may reuse their names.
        self.settings.directives.clear();
        self.session.trace = state::trace();
        self.first.clone_from(&npc);
        self.npc = npc;
    }

    /// Returns a note with the path of the new conversation's trace.
    fn trace_note(&self) -> String {
        self.session.trace.path().map(|path| format!("; its trace is {}", path.display())).unwrap_or_default()
    }

    /// Reloads the team if its files have changed.
    /// Conversations continue with the new version.
    fn reload(&mut self) {
        if !self.team.changed() {
            return;
        }
        ui::note("the team's files have changed and are read again");
        match self.args.team() {
            Ok(team) => {
                self.team = team;
                if self.team.member(&self.npc).is_none() {
                    self.npc.clone_from(&self.team.forenpc);
                    ui::note(&format!("this is {} now", self.npc));
                }
            }
            Err(error) => {
                ui::report(&error.context("the team stays as it was"));
                // Report it only once.
                self.team.watch = std::mem::take(&mut self.team.watch).begun();
            }
        }
    }
}

/// Suggests names similar to an unknown one, as a hint after an error.
fn meant<'a>(mark: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = alara_engine::nearest(name, known);
    near.map(|near| format!("{}{mark}{near}", ui::HINT)).unwrap_or_default()
}

/// Prints Markdown.
fn show(text: &str) {
    let mut markdown = Markdown::new(ui::is_styled(&std::io::stdout()));
    let text = markdown.feed(text);
    ui::text(&(text + &markdown.finish()));
}

fn help() {
    ui::entry("TEXT", "say it to the NPC; a \\ at the end continues the line, and so does an open ```");
    ui::entry("@NPC TEXT", "say it to another one, once; @NPC alone: talk with that one from now on");
    ui::entry(
        "/JINX ARGUMENTS",
        "run a jinx or a tool of an MCP server yourself: values in the order of its inputs, or name=value first; \
         if it needs one text, that is all the rest. The NPC hears of it with your next message",
    );
    for (name, arguments, about) in COMMANDS {
        ui::entry(format!("/{name} {arguments}").trim_end(), about);
    }
    ui::entry("Ctrl-C", "interrupts the NPC or clears the line");
    ui::entry("Ctrl-D", "leaves");
    ui::entry("Tab", "completes");
}
