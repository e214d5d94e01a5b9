//! `alara serve`: serves models and the NPCs of a team over HTTP, to clients of the APIs of OpenAI,
//! Anthropic and Ollama.

mod models;
mod pull;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alara_harness::context_files::ContextFiles;
use alara_harness::sandbox::ProposedFile;
use alara_harness::{Error, ModelError, ModelSource, ModelSpec, Sandbox, Session, Team};
use alara_models::memory;
use alara_server::{Facts, KeepAlive, Options, Pull, Served, Server, Workplace, keep_alive};
use anyhow::{bail, ensure};
use clap::{ArgAction, ArgMatches, FromArgMatches};
use serde_json::json;

use crate::agent::Watched;
use crate::facts::FileFacts;
use crate::screen::one_line;
use crate::{agent, ask, consent, diff, interrupt, model, state, ui};
use models::ServedModels;

/// Default number of parallel requests.
const PARALLEL: usize = 4;

/// Serve models and the NPCs of a team over HTTP
///
/// Works with clients of OpenAI's API (chat, completions, responses), Anthropic's and Ollama's; GET
/// /openapi.json lists all routes.
/// Each NPC is also served as a model: it works as an agent, with its own tools, under its own
/// rules; where a rule says `ask`, the web page asks, and for other clients the call is denied.
/// Of several models, the first is loaded at startup, others on first use; the least recently used
/// ones make room.
/// Only this machine can reach the server, and web pages of other sites can't.
/// The first interrupt lets running requests finish, the second cancels them.
#[derive(clap::Args)]
pub struct Args {
    /// A team: a directory, or a name [default: ./npc_team if there is one, else the built-in team
    /// alara]
    #[arg(short, long)]
    team: Option<String>,
    #[command(flatten)]
    model: Several,
    /// Serve all models in this folder and its subfolders, each under its file name without `.gguf`
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// The only directory in which agents may change files
    #[arg(long, value_name = "DIR", default_value = ".")]
    workdir: PathBuf,
    /// Answer yes to every question, except about calls that a rule may deny
    #[arg(long)]
    yes: bool,
    /// Have NPCs read AGENTS.md, from the work directory up to the repository's root, as of the
    /// server's start
    #[arg(long)]
    context_files: bool,
    /// IP address to listen on; an address reachable from other machines requires a token
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = host)]
    host: IpAddr,
    /// Port to listen on; 0 picks any free port
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Listen on a Unix socket, accessible only to this user, instead of an IP address
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "port"])]
    socket: Option<PathBuf>,
    /// API key that clients must send; in the environment variable, other users of this machine
    /// can't see it
    #[arg(long, env = "ALARA_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Allow web pages of this origin, such as `https://app.example`; may be repeated; `*` allows
    /// all and requires a token [default: none; with a token, pages of this machine and of desktop
    /// apps]
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    /// Another name for the default model, or for the one after the equals sign; may be repeated
    #[arg(long, value_name = "NAME[=MODEL]")]
    alias: Vec<String>,
    /// Use the default model for requests that name an unknown one
    #[arg(long)]
    any_model: bool,
    /// How long an unused model stays in memory: 5m, 1h30m, a number of seconds, or -1 for as long
    /// as the server runs [default: -1 for the default model, 5m for others]
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    keep_alive: Option<Stay>,
    /// Let clients download models, as `alara models pull` does (Ollama's /api/pull)
    #[arg(long)]
    allow_pull: bool,
    /// Store answers to /v1/responses in this folder, so that a later server can find them by id
    #[arg(long, value_name = "DIR")]
    responses: Option<PathBuf>,
    /// Number of requests to process in parallel [default: 4, which share the memory for long
    /// conversations].
    /// The number of cached conversations doesn't depend on it: as many as fit in half of the free
    /// memory, or in --kv-size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: Option<u16>,
    /// Maximum number of waiting requests; further ones get status 503
    #[arg(long, value_name = "N", default_value_t = 512)]
    queue: u16,
    /// Time limit for a request in seconds, including its wait
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Print a line for each request
    #[arg(short, long)]
    verbose: bool,
    /// Print the server's address as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// How long a model stays in memory.
#[derive(Clone, Copy)]
struct Stay(KeepAlive);

fn duration(text: &str) -> Result<Stay, String> {
    keep_alive(text).map(Stay).ok_or_else(|| "a duration is such as 5m, 1h30m, 300 or -1".to_owned())
}

/// Models, and how they run: as for other commands, but `-m` may be repeated.
struct Several {
    /// The first model, and settings for all of them.
    args: model::Args,
    /// All named models.
    named: Vec<String>,
}

impl FromArgMatches for Several {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = matches.get_many::<String>("model").into_iter().flatten().cloned().collect();
        Ok(Several { args: model::Args::from_arg_matches(matches)?, named })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Several::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Several {
    fn augment_args(command: clap::Command) -> clap::Command {
        let several = "A model: a file, a name of `alara models list`, or an OpenAI-compatible endpoint as \
                       http://127.0.0.1:PORT/v1#NAME or https://HOST/v1#NAME; several times for several, of which the \
                       first is the default one. With one, NPCs work with it whatever their team says; of several, with \
                       the one that the team names, else the default one. An endpoint's key is in ALARA_API_KEY (that \
                       of api.openai.com may be in OPENAI_API_KEY) [default: the NPC's, the team's, the one that ships]";
        let several = |arg: clap::Arg| arg.action(ArgAction::Append).help(several).long_help(None::<&str>);
        model::Args::augment_args(command).mut_arg("model", several)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        text => text.parse().map_err(|_| "an address is an IP such as 127.0.0.1, ::1 or 0.0.0.0".to_owned()),
    }
}

/// The environment in which agents work here.
struct LocalWorkplace {
    team: Option<String>,
    models: ServedModels,
    workdir: PathBuf,
    context_files: ContextFiles,
    cache: Option<PathBuf>,
    threads: usize,
    yes: bool,
    verbose: bool,
}

impl Workplace for LocalWorkplace {
    fn models(&self) -> &dyn ModelSource {
        &self.models
    }

    fn team(&self) -> Option<Team> {
        ui::note("the team's files have changed and are read again");
        match agent::find(self.team.as_deref(), &self.workdir, self.yes) {
            Ok(team) => Some(team),
            Err(error) => {
                ui::report(&error.context("the team stays as it was"));
                None
            }
        }
    }

    fn sandbox(&self, team: &Team) -> Result<Sandbox, Error> {
        agent::sandbox(team, &self.workdir, self.cache.clone(), Watched::unless(self.yes))
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, Error> {
        let session = session.permitted(consent::answers()?).traced(state::trace());
        let mut session = session.reading(self.context_files.clone());
        session.threads = self.threads;
        Ok(if self.yes { session.agreeing() } else { session })
    }

    fn agreed(&self) -> bool {
        self.yes
    }

    fn diff(&self, file: &ProposedFile) -> Option<String> {
        Some(diff::unified(file))
    }

    fn served(&self) -> Vec<Served> {
        self.models.served()
    }

    fn facts(&self, spec: &ModelSpec) -> Option<Arc<Facts>> {
        self.models.facts(spec)
    }

    fn pull(&self, name: &str, told: &mut dyn FnMut(Pull) -> bool) -> Result<(), ModelError> {
        let path = pull::pull(name, told).map_err(|error| ModelError::new(format!("{error:#}")))?;
        self.models.add(name, &path);
        Ok(())
    }

    fn log(&self, line: &str) {
        if self.verbose {
            // The line quotes requests, which must not look like several lines.
            ui::note(&one_line(line));
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let team = agent::find(args.team.as_deref(), &args.workdir, args.yes)?;
    let Several { args: model, named } = &args.model;
    let spec = &team.npc(None)?.model;
    let chosen = named.is_empty().then(|| model::chosen(spec)).filter(|chosen| chosen != spec);
    let named = &chosen.and_then(|chosen| chosen.model).map_or_else(|| named.clone(), |name| vec![name]);
    let (mine, others): (Vec<String>, Vec<String>) =
        args.alias.iter().cloned().partition(|alias| !alias.contains('='));
    ensure!(
        args.alias.iter().all(|alias| !alias.starts_with('=') && !alias.is_empty()),
        "--alias takes NAME or NAME=MODEL"
    );
    let parallel = args.parallel.map_or(PARALLEL, usize::from);
    // A user who asks for many parallel requests has memory for them; otherwise they share it.
    let cached = args.parallel.map_or(1, usize::from);
    let several = named.len() > 1 || args.models.is_some();
    let own = model.caching(cached, several);
    let (told, memory) = (own.clone(), memory::available());
    let models = ServedModels::new(
        own.several(named.clone(), parallel, args.yes),
        named,
        args.models.as_deref(),
        team.npc(None)?.model.clone(),
        &others,
        FileFacts::new(move |gguf| told.context(gguf, parallel, memory).ok()),
    )?;
    let spec = models.default();
    consent::workdir(&args.workdir, args.yes)?;
    // Report missing requirements before anything begins.
    drop(agent::sandbox(&team, &args.workdir, model.cache.folder(), Watched::unless(args.yes))?);
    agent::warn_of_sandbox();
    let context_files = match args.context_files {
        true => consent::context_files(&args.workdir, true, args.yes)?,
        false => ContextFiles::default(),
    };
    let workplace = LocalWorkplace {
        team: args.team.clone(),
        models,
        workdir: args.workdir.clone(),
        context_files,
        cache: model.cache.folder(),
        threads: model.threads(),
        yes: args.yes,
        verbose: args.verbose,
    };
    let options = Options {
        address: SocketAddr::new(args.host, args.port),
        socket: args.socket.clone(),
        token: args.token.clone(),
        origins: args.origin.clone(),
        named_team: args.team.is_some(),
        aliases: mine,
        any_model: args.any_model,
        keep_alive: args.keep_alive.map(|Stay(stay)| stay),
        allow_pull: args.allow_pull,
        responses: args.responses.clone(),
        parallel,
        queue: args.queue.into(),
        request_time: Duration::from_secs(args.timeout.into()),
        ..Options::default()
    };
    let npcs: Vec<String> = team.npcs.iter().map(|npc| npc.name.clone()).collect();
    let lead = team.npc(None)?.name.clone();
    let server = match Server::new(Arc::new(workplace), team, spec, &options) {
        Err(error @ alara_server::Error::Exposed { .. }) => {
            bail!("{error}\nhint: ALARA_TOKEN=$(openssl rand -hex 16) alara serve …, or leave out --host")
        }
        Err(error @ alara_server::Error::Address { .. }) => {
            let error = anyhow::Error::from(error);
            bail!("{error:#}\nhint: another port with --port, 0 for any that is free")
        }
        server => server?,
    };
    let stop = server.stop();
    // Held while an interrupt is handled, so that the process doesn't end before the note is
    // printed.
    let answering = Arc::new(Mutex::new(()));
    let held = answering.clone();
    interrupt::does(move || {
        let _held = held.lock();
        if stop.ask() {
            ui::note("stopping: running requests are finished; interrupt again to cancel them");
        }
    })?;
    announce(args, &server, &npcs, &lead);
    // Requests must not wait for someone to look at this terminal.
    ask::nobody();
    server.run()?;
    drop(answering.lock());
    Ok(ExitCode::SUCCESS)
}

/// Returns the URL of the page, with the key that lets it ask the user.
fn page(server: &Server) -> String {
    let key = server.page_key().map(|key| format!("#{key}")).unwrap_or_default();
    format!("http://{}/{key}", server.address())
}

/// Prints the server's address, and how to try it with the team's lead.
fn announce(args: &Args, server: &Server, npcs: &[String], lead: &str) {
    let (model, models) = (server.model(), server.models());
    let tell = |place: &str, curl: &str| {
        let names = match npcs {
            [] => models.join(", "),
            npcs => format!("{}; as agents: {}", models.join(", "), npcs.join(", ")),
        };
        ui::note(&format!("serves {place} (Ctrl-C ends it)\nmodels: {names}\n{curl}"));
    };
    if let Some(socket) = server.socket() {
        let socket = socket.display().to_string();
        tell(&socket, &format!("curl --unix-socket {socket} http://alara/v1/models"));
        if args.json {
            ui::line(&json!({"socket": socket, "model": model, "models": models, "npcs": npcs}).to_string());
        }
        return;
    }
    let (url, page) = (format!("http://{}/v1", server.address()), page(server));
    let key = if args.token.is_some() { " -H \"Authorization: Bearer $ALARA_TOKEN\"" } else { "" };
    let body = json!({"model": lead, "messages": [{"role": "user", "content": "Say hello."}]});
    tell(&url, &format!("curl {url}/chat/completions{key} -d '{body}'\npage: {page}"));
    if !args.host.is_loopback() {
        ui::note(
            "warning: what is sent is not encrypted; for other than trusted networks put a TLS proxy before it",
        );
    }
    if args.json {
        let about = json!({"url": url, "page": page, "model": model, "models": models, "npcs": npcs});
        ui::line(&about.to_string());
    }
}
