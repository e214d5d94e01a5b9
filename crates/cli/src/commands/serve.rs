//! `alara serve`: the model and the NPCs of a team over HTTP, for programs that know the API of
//! OpenAI, Anthropic or Ollama.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use alara_harness::permission::Answer;
use alara_harness::{Error, ModelSource, Sandbox, Session, Team};
use alara_server::{Options, Server, Workplace};
use anyhow::{Context, bail};
use serde_json::json;

use crate::model::Source;
use crate::{agent, ask, consent, model, state, ui};

/// Requests that are worked on at a time unless somebody says otherwise.
const PARALLEL: usize = 4;

/// Serve the model and the NPCs of a team over HTTP
///
/// Programs that know OpenAI's API (chat, completions, responses), Anthropic's or Ollama's can use
/// them; GET /openapi.json tells all routes.
/// An NPC is a model by its name: it works as an agent, with its own tools, under its own rules;
/// what a rule says to ask about is denied.
/// Only this machine reaches the server, and no web page of others.
/// The first interrupt lets running requests finish, the second cancels them.
#[derive(clap::Args)]
pub struct Args {
    /// A team: a directory, or a name [default: ./npc_team if there is one, else the built-in team
    /// alara]
    #[arg(short, long)]
    team: Option<String>,
    #[command(flatten)]
    model: model::Args,
    /// The only directory in which agents may change files
    #[arg(long, value_name = "DIR", default_value = ".")]
    workdir: PathBuf,
    /// Say yes wherever a person would be asked
    #[arg(long)]
    yes: bool,
    /// The address to listen at; one that other machines reach needs a token
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = host)]
    host: IpAddr,
    /// The port; 0 takes any that is free
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Listen at a Unix socket, which only this user may open, instead of an address
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "port"])]
    socket: Option<PathBuf>,
    /// What clients must send as their API key; in the variable, other users of this machine don't
    /// see it
    #[arg(long, env = "ALARA_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Let in web pages of this origin, such as https://app.example; several times for several, and
    /// `*` for all, which needs a token [default: none; with a token, pages of this machine and of
    /// desktop apps]
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    /// Another name of the model; several times for several
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Answer with the model where a request names none, or one that is not known
    #[arg(long)]
    any_model: bool,
    /// Keep answers to /v1/responses in this folder, so that a later server knows them by their ids
    #[arg(long, value_name = "DIR")]
    responses: Option<PathBuf>,
    /// How many requests are worked on at a time [default: 4, which share the room for long
    /// conversations].
    /// How many conversations stay cached is apart from that: as many as fit half of the memory
    /// that is free, or --kv-size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: Option<u16>,
    /// How many requests may wait for that; further ones get status 503
    #[arg(long, value_name = "N", default_value_t = 512)]
    queue: u16,
    /// Most seconds for a request, its wait included
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Print no line for each request
    #[arg(short, long)]
    quiet: bool,
    /// Print where it listens as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        text => text.parse().map_err(|_| "an address is an IP such as 127.0.0.1, ::1 or 0.0.0.0".to_owned()),
    }
}

/// What agents work with here.
struct LocalWorkplace {
    team: Option<String>,
    models: Source,
    workdir: PathBuf,
    cache: Option<PathBuf>,
    threads: usize,
    yes: bool,
    quiet: bool,
}

impl Workplace for LocalWorkplace {
    fn models(&self) -> &dyn ModelSource {
        &self.models
    }

    fn team(&self) -> Option<Team> {
        ui::note("the team's files have changed and are read again");
        match agent::find(self.team.as_deref(), self.yes) {
            Ok(team) => Some(team),
            Err(error) => {
                ui::report(&error.context("the team stays as it was"));
                None
            }
        }
    }

    fn sandbox(&self, team: &Team) -> Result<Sandbox, Error> {
        agent::sandbox(team, &self.workdir, self.cache.clone(), self.yes)
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, Error> {
        let mut session = session.permitted(consent::answers()?).traced(state::trace());
        session.threads = self.threads;
        Ok(if self.yes { session.asking(|_| Answer::Yes) } else { session })
    }

    fn agreed(&self) -> bool {
        self.yes
    }

    fn log(&self, line: &str) {
        if !self.quiet {
            ui::note(line);
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let team = agent::find(args.team.as_deref(), args.yes)?;
    let spec = team.npc(None)?.model.clone();
    // What can't be had is told before anything is begun.
    drop(agent::sandbox(&team, &args.workdir, args.model.cache.folder(), args.yes)?);
    agent::warn_of_sandbox();
    let parallel = args.parallel.map_or(PARALLEL, usize::from);
    // Who asks for many at a time has room for them; otherwise they share what there is.
    let cached = args.parallel.map_or(1, usize::from);
    let workplace = LocalWorkplace {
        team: args.team.clone(),
        models: args.model.caching(cached).source(parallel, args.yes),
        workdir: args.workdir.clone(),
        cache: args.model.cache.folder(),
        threads: args.model.threads(),
        yes: args.yes,
        quiet: args.quiet,
    };
    let options = Options {
        address: SocketAddr::new(args.host, args.port),
        socket: args.socket.clone(),
        token: args.token.clone(),
        origins: args.origin.clone(),
        aliases: args.alias.clone(),
        any_model: args.any_model,
        responses: args.responses.clone(),
        parallel,
        queue: args.queue.into(),
        request_time: Duration::from_secs(args.timeout.into()),
        ..Options::default()
    };
    let npcs: Vec<String> = team.npcs.iter().map(|npc| npc.name.clone()).collect();
    let server = match Server::new(Arc::new(workplace), team, spec, &options) {
        Err(error @ alara_server::Error::Exposed { .. }) => {
            bail!("{error}\nhint: ALARA_TOKEN=$(openssl rand -hex 16) alara serve …, or leave out --host")
        }
        Err(error @ alara_server::Error::Address { .. }) => {
            return Err(
                anyhow::Error::from(error).context("hint: another port with --port, 0 for any that is free")
            );
        }
        server => server?,
    };
    let stop = server.stop();
    ctrlc::set_handler(move || {
        if stop.ask() {
            ui::note("stopping: running requests are finished; interrupt again to cancel them");
        }
    })
    .context("can't catch interrupts")?;
    announce(args, &server, &npcs);
    // Whoever sends a request must not wait until somebody looks at this terminal.
    ask::nobody();
    server.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Tells where the server is, and how to try it.
fn announce(args: &Args, server: &Server, npcs: &[String]) {
    let model = server.model();
    if let Some(socket) = server.socket() {
        let socket = socket.display().to_string();
        ui::note(&format!(
            "{model} and {} at {socket}; try: curl --unix-socket {socket} http://alara/v1/models",
            npcs.join(", ")
        ));
        if args.json {
            ui::line(&json!({"socket": socket, "model": model, "npcs": npcs}).to_string());
        }
        return;
    }
    let url = format!("http://{}/v1", server.address());
    let last = npcs.last().map_or(model, String::as_str);
    let key = if args.token.is_some() { " -H \"Authorization: Bearer $ALARA_TOKEN\"" } else { "" };
    let body = json!({"model": last, "messages": [{"role": "user", "content": "…"}]});
    ui::note(&format!(
        "{model} and {} at {url}; try: curl {url}/chat/completions{key} -d '{body}'",
        npcs.join(", ")
    ));
    if !args.host.is_loopback() {
        ui::note(
            "warning: what is sent is not encrypted; for other than trusted networks put a TLS proxy before it",
        );
    }
    if args.json {
        ui::line(&json!({"url": url, "model": model, "npcs": npcs}).to_string());
    }
}
