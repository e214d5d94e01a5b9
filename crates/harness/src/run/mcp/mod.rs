//! The MCP servers of a session: each is started once, when an agent that names it begins, and only
//! if a person agrees.

mod offered;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::jinx::{Choices, Input, Jinx, Kind, Remote};
use crate::mcp::client::Client;
use crate::mcp::offer::{self, ListedTool};
use crate::mcp::rpc::Failure;
use crate::mcp::{START, Served, Server};
use crate::permission::{self, Answer, Question, Ruling};
use crate::run::session::{Caller, Notice, Session};
use crate::team::{Npc, Team, strict};
use crate::types::{Effect, ToolResult, Verdict};
use alara_team::mcp::printable;

/// The servers that agents have asked for, by [`Server::start`].
#[derive(Default)]
pub struct Servers {
    known: Mutex<Vec<(String, Arc<OnceLock<Started>>)>>,
    /// The warnings given so far: once is enough.
    warned: Mutex<BTreeSet<String>>,
}

/// The result of starting a server.
struct Started {
    by: String,
    version: String,
    offers: Vec<ListedTool>,
    error: String,
    client: Option<Client>,
}

/// The tools that an NPC gets from its servers.
#[derive(Default)]
pub struct Offered {
    /// Its jinxes, in addition to those of its list.
    pub jinxes: Vec<Jinx>,
    /// The offers of each server, for the trace.
    pub served: Vec<Served>,
}

impl Servers {
    /// Starts the servers of an NPC that aren't running yet, and returns the tools that they offer.
    /// A failure is a warning to the observer; the NPC then works without that server.
    pub fn offered(&self, session: &Session, team: &Team, npc: &Npc) -> Offered {
        let mut servers: Vec<&Server> = npc.servers.iter().collect();
        servers.sort_by(|one, other| one.name.cmp(&other.name));
        let known: Vec<Arc<OnceLock<Started>>> =
            servers.iter().map(|server| self.started(session, team, npc, server)).collect();
        let started: Vec<&Started> = known.iter().filter_map(|one| one.get()).collect();
        let offers: Vec<(&Server, &[ListedTool])> =
            servers.iter().zip(&started).map(|(server, one)| (*server, one.offers.as_slice())).collect();
        let mut remarks = Vec::new();
        let jinxes = offered::jinxes(team, &offers, &mut remarks);
        let mut served = Vec::new();
        for (server, one) in servers.iter().zip(&started) {
            let start = server.start();
            let own = jinxes.iter().filter_map(|jinx| Some((jinx, jinx.remote.as_ref()?)));
            let own = own.filter(|(_, remote)| remote.server == start);
            let tools: Map<String, Value> =
                own.map(|(jinx, remote)| (jinx.name.clone(), remote.tool.clone().into())).collect();
            let known = |tool: &&String| {
                offers.iter().any(|(_, offers)| offers.iter().any(|offer| offer.name == **tool))
            };
            for missing in server.tools.iter().flatten().filter(|tool| one.error.is_empty() && !known(tool)) {
                let names: Vec<&str> = one.offers.iter().map(|offer| offer.name.as_str()).collect();
                let names = printable(&names.join(", "));
                remarks.push(format!("{} has no tool `{missing}`; it has: {names}", located(server)));
            }
            let (by, version, error) = (one.by.clone(), one.version.clone(), one.error.clone());
            served.push(Served { server: server.name.clone(), start, by, version, tools, error });
        }
        remarks.iter().for_each(|remark| self.tell(session, remark));
        Offered { jinxes, served }
    }

    /// Warns the observer, once for each text.
    fn tell(&self, session: &Session, text: &str) {
        if self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
            session.notify(&Notice::Warning(text));
        }
    }

    /// The slot of a server, filled.
    fn started(&self, session: &Session, team: &Team, npc: &Npc, server: &Server) -> Arc<OnceLock<Started>> {
        let key = server.start();
        let slot = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // An interrupted start may be tried again.
            known
                .retain(|(_, slot)| slot.get().is_none_or(|one| one.error != Failure::Cancelled.to_string()));
            match known.iter().find(|(other, _)| *other == key) {
                Some((_, slot)) => slot.clone(),
                None => {
                    let slot = Arc::<OnceLock<Started>>::default();
                    known.push((key, slot.clone()));
                    slot
                }
            }
        };
        slot.get_or_init(|| {
            let one = match session.mocks.served(&server.start()) {
                Some((served, tools)) => Started {
                    by: served.by,
                    version: served.version,
                    offers: offer::read(&tools, false, &mut Vec::new()),
                    error: served.error,
                    client: None,
                },
                None => self.start(session, team, npc, server),
            };
            if !one.error.is_empty() {
                let message = format!("the MCP server {} is not there: {}", located(server), one.error);
                self.tell(session, &message);
            }
            one
        });
        slot
    }

    /// Starts a server, if that is permitted.
    fn start(&self, session: &Session, team: &Team, npc: &Npc, server: &Server) -> Started {
        let (by, error) = match permitted(session, team, npc, server) {
            Ok(by) => (by, String::new()),
            Err(by) => (String::new(), format!("its start is not permitted by {by}")),
        };
        let nothing = Started { by, version: String::new(), offers: Vec::new(), error, client: None };
        if !nothing.error.is_empty() {
            return nothing;
        }
        match Client::start(server, session.sandbox, &|| cancelled(session)) {
            Ok((client, catalog)) => {
                for remark in catalog.remarks {
                    self.tell(session, &format!("the MCP server {}: {remark}", located(server)));
                }
                Started {
                    version: client.version.clone(),
                    offers: catalog.tools,
                    client: Some(client),
                    ..nothing
                }
            }
            Err(failure) => Started { error: failure.to_string(), ..nothing },
        }
    }

    /// Calls the remote tool of a jinx.
    pub fn call(
        &self,
        jinx: &Jinx,
        remote: &Remote,
        arguments: &Map<String, Value>,
        caller: &Caller,
    ) -> ToolResult {
        let slot = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().find(|(start, _)| *start == remote.server).map(|(_, slot)| slot.clone())
        };
        let Some(client) = slot.as_ref().and_then(|slot| slot.get()?.client.as_ref()) else {
            return ToolResult::failed("the MCP server is not there");
        };
        let left = caller.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = left.map_or(jinx.timeout, |left| left.min(jinx.timeout));
        let mut result = client.call(&remote.tool, arguments, limit, &|| cancelled(caller.session));
        if !result.ok && result.error.is_empty() {
            "the MCP server gave no result".clone_into(&mut result.error);
        }
        if client.has_changed() {
            let message = format!(
                "the MCP server {} says that its tools have changed: this session goes on with those that it had",
                remote.server
            );
            self.tell(caller.session, &message);
        }
        for wanted in client.take_refused_requests() {
            let message = format!(
                "the MCP server {} asked for `{wanted}`, which nobody answers here: its tools may do less",
                remote.server
            );
            self.tell(caller.session, &message);
        }
        result
    }
}

fn cancelled(session: &Session) -> bool {
    session.sandbox.cancel_flag().load(Ordering::Relaxed)
}

/// A server and the location that names it.
fn located(server: &Server) -> String {
    format!("`{}` ({}:{})", server.name, server.path.display(), server.location.line)
}

/// Who permits or forbids the start of a server.
/// A team's rules may forbid it; only a person permits it.
fn permitted(session: &Session, team: &Team, npc: &Npc, server: &Server) -> Result<String, String> {
    let input = Input {
        name: "server".to_owned(),
        kind: Kind::String,
        description: String::new(),
        default: None,
        choices: Choices::Any,
    };
    let jinx = Jinx {
        name: START.to_owned(),
        description: "Starts an MCP server, or connects to it".to_owned(),
        inputs: vec![input],
        effect: Effect::Write,
        network: server.network,
        ..Jinx::default()
    };
    let arguments = match json!({"server": server.start()}) {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    };
    let cautious = Team {
        name: team.name.clone(),
        directory: team.directory.clone(),
        rules: strict(&team.rules),
        ..Team::default()
    };
    // The permission covers the server's files as they were then.
    let mut about = permission::pattern(&jinx, &arguments);
    if let Some(content) = server.content(session.sandbox.work()) {
        about += &format!(", whose files are {content}");
    }
    match session.permissions.verdict_about(&cautious, &jinx, &arguments, session.sandbox.work(), &about) {
        Some(Ruling { verdict: Verdict::Allow, by, .. }) => return Ok(by),
        Some(Ruling { verdict: Verdict::Deny, by, .. }) => return Err(by),
        Some(_) | None => {}
    }
    let question = Question {
        npc: &npc.name,
        jinx: &jinx,
        arguments: &arguments,
        variables: &[],
        risk: None,
        doubtful: false,
        about,
    };
    let answer = session.ask(&question);
    if let Some(answer) = answer {
        session.remember(&permission::holder(team), &question.about, answer);
    }
    match answer {
        Some(Answer::Yes | Answer::Session | Answer::Always) => Ok("an answer".to_owned()),
        Some(Answer::No | Answer::Never) => Err("an answer".to_owned()),
        None => {
            Err("anybody: nobody is there to be asked; allow it once at a terminal (`always`), or say --yes"
                .to_owned())
        }
    }
}
