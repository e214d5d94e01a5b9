//! HTTP server: the APIs of OpenAI, Anthropic and Ollama on top of engine and harness, with each
//! NPC of a team also served as a model.
//!
//! One module per wire format: `openai`, `anthropic`, `ollama`, `native`.
//! Each parses requests into an `InnerRequest` and has a `Writer` of answers.
//! `dispatch` connects the two for all formats; it names no format, while `routes` names all of
//! them.
//! Knows nothing of terminals, or of where models and teams come from: a [`Workplace`] provides
//! these.
//! Prints nothing and reads no environment variables.

mod access;
mod agents;
mod answer;
mod anthropic;
mod body;
mod client_tools;
mod connections;
mod dispatch;
mod embeddings;
mod fields;
mod heads;
mod history;
mod infill;
mod inner;
mod keep;
mod live;
mod metrics;
mod native;
mod ollama;
mod openai;
mod page;
mod parameters;
mod questions;
mod refusal;
mod response;
mod routes;
mod served;
mod slots;
#[cfg(unix)]
mod socket;
mod store;
mod stream;
mod time;
mod turn;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alara_engine::Request;
use alara_harness::model::ModelSpec;
use alara_harness::sandbox::ProposedFile;
use alara_harness::{ModelError, ModelSource, Sandbox, Session, Team};
use tokio::sync::{Semaphore, watch};

pub use infill::fills_in;
pub use keep::{KeepAlive, keep_alive};
pub use served::{Facts, Served};

use access::{Access, Reach};
use connections::Listener;
use dispatch::Shared;
use heads::Heads;
use keep::Keep;
use metrics::Metrics;
use questions::Questions;
use slots::Slots;
use store::Store;

/// Time limit for cancelled work to end.
const END: Duration = Duration::from_secs(5);
/// Stack size of worker threads: an agent's jinxes may be deeply nested.
const STACK: usize = 8 << 20;
/// Number of threads in addition to those of the slots.
const THREADS: usize = 16;

/// Parses the turn in a request's body, in any wire format: OpenAI's chat or responses, Anthropic's
/// messages or Ollama's chat.
///
/// # Errors
/// The body is invalid.
pub fn read_request(body: &[u8]) -> Result<Request, String> {
    routes::read_any(body).map(|asked| asked.request).map_err(|refusal| refusal.message)
}

/// The environment that agents work in, provided by the code that starts the server.
pub trait Workplace: Send + Sync + 'static {
    /// Returns the source of models.
    fn models(&self) -> &dyn ModelSource;

    /// Reloads the team after its files have changed.
    /// `None` if that fails; then the old one stays.
    fn team(&self) -> Option<Team>;

    /// Returns a sandbox for one request to `team`.
    ///
    /// # Errors
    /// The sandbox can't be created.
    fn sandbox(&self, team: &Team) -> Result<Sandbox, alara_harness::Error>;

    /// Adds rules, threads and a trace to the session of one request.
    ///
    /// # Errors
    /// They aren't available.
    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error>;

    /// Whether a person has confirmed in advance whatever rules ask about.
    fn agreed(&self) -> bool {
        false
    }

    /// Returns the change to a file as a unified diff, for a person to confirm.
    /// `None` if no diff can be made; then the person sees the call's arguments.
    fn diff(&self, _file: &ProposedFile) -> Option<String> {
        None
    }

    /// Returns the models that clients may name, in addition to the default one.
    /// An entry with the default's spec adds its names to the default.
    fn served(&self) -> Vec<Served> {
        Vec::new()
    }

    /// Returns the data in the file of the model used for `spec`, loaded or not.
    /// `None` if it has no file, like a remote model, or the file can't be read.
    fn facts(&self, _spec: &ModelSpec) -> Option<Arc<Facts>> {
        None
    }

    /// Downloads the model that `name` means, and adds it to the served models.
    /// Calls `told` with the progress; it returns whether to continue.
    ///
    /// # Errors
    /// There is no such model, or it can't be downloaded.
    fn pull(&self, name: &str, _told: &mut dyn FnMut(Pull) -> bool) -> Result<(), ModelError> {
        Err(ModelError::new(format!("{name} can't be downloaded here")))
    }

    /// Logs a line about an answered request.
    fn log(&self, _line: &str) {}
}

/// Progress of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Part of a file has arrived.
    File {
        /// File name.
        name: String,
        /// SHA-256 in hexadecimal, if known.
        digest: Option<String>,
        /// Total size in bytes, if known.
        total: Option<u64>,
        /// Bytes received.
        completed: u64,
    },
    /// A file was checked and is ready to use.
    Checked,
}

/// Server options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on.
    /// Port 0 picks any free port.
    /// Default 127.0.0.1:8080.
    pub address: SocketAddr,
    /// A Unix socket to listen on instead, accessible only to its owner.
    /// Default: none.
    pub socket: Option<PathBuf>,
    /// The token that clients must send.
    /// Default: none, which is only for this machine.
    pub token: Option<String>,
    /// Allowed origins of web pages, such as `https://app.example`.
    /// A trailing star matches anything; it requires a token unless it stands only for a port or an
    /// app's pages.
    /// Default: none; with a token, pages of this machine and of desktop apps.
    pub origins: Vec<String>,
    /// Whether a person named the team: then the page starts with the team's lead instead of the
    /// default model.
    /// Default false.
    pub named_team: bool,
    /// Other names for the default model.
    /// Default: none.
    pub aliases: Vec<String>,
    /// Whether a request that names an unknown model uses the default one, like a request that
    /// names none.
    /// Default false.
    pub any_model: bool,
    /// How long an unused model stays loaded.
    /// Default: the default model as long as the server runs, others 5 min.
    pub keep_alive: Option<KeepAlive>,
    /// Whether clients may download models.
    /// Default false.
    pub allow_pull: bool,
    /// A folder in which to store answers to `/v1/responses` for later requests.
    /// Default: none; they are kept only in memory.
    pub responses: Option<PathBuf>,
    /// Number of requests to process in parallel.
    /// Default 1.
    pub parallel: usize,
    /// Maximum number of waiting requests; further ones are refused.
    /// Default 512.
    pub queue: usize,
    /// Time limit for a request, from its arrival to the end of its answer.
    /// Default 10 min.
    pub request_time: Duration,
    /// Time limit for the head of a request; its body may take three times as long.
    /// Default 10 s.
    pub head_time: Duration,
    /// Maximum number of connections; further ones are refused.
    /// Each takes a file descriptor, of which a process has 1024 by default.
    /// Default 900.
    pub connections: usize,
    /// How long a client may stop reading while much of its answer is waiting.
    /// Default 30 s.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            socket: None,
            token: None,
            origins: Vec::new(),
            named_team: false,
            aliases: Vec::new(),
            any_model: false,
            keep_alive: None,
            allow_pull: false,
            responses: None,
            parallel: 1,
            queue: 512,
            request_time: Duration::from_secs(600),
            head_time: Duration::from_secs(10),
            connections: 900,
            patience: Duration::from_secs(30),
        }
    }
}

/// Why the server can't start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Other machines could reach the server without a token.
    #[error("{address} can be reached from other machines, so the server needs a token")]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// The token can't be sent in a header.
    #[error("a token is made of visible ASCII characters")]
    Token,
    /// The origin can't be allowed.
    #[error(
        "{origin} can't be let in: an origin is such as https://app.example, with a star at its end at most, and one \
         that lets in other sites' pages needs a token"
    )]
    Origin {
        /// The origin.
        origin: String,
    },
    /// The socket can't be opened.
    #[error("can't listen at {}", path.display())]
    Socket {
        /// The socket's file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The server can't listen on the address.
    #[error("can't listen on {address}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The model isn't available.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The system can't serve.
    #[error("can't serve")]
    System(#[source] std::io::Error),
}

/// Stage of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Takes no new requests; running ones continue.
    Finishing,
    /// Running requests are cancelled.
    Cancelling,
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<Stage>>);

impl Stop {
    /// The first call lets running requests finish and accepts no others; the second cancels them.
    /// Returns true for the first call.
    pub fn ask(&self) -> bool {
        let mut first = false;
        self.0.send_modify(|stage| {
            first = *stage == Stage::Serving;
            *stage = if first { Stage::Finishing } else { Stage::Cancelling };
        });
        first
    }
}

/// A listening server.
pub struct Server {
    address: SocketAddr,
    socket: Option<PathBuf>,
    listener: Listener,
    connections: usize,
    shared: Arc<Shared>,
    stop: Stop,
}

impl Server {
    /// Starts listening, and loads the default model, which `spec` means.
    /// Doesn't answer requests yet.
    ///
    /// # Errors
    /// The address isn't available or would be open to everyone, or there is no such model.
    pub fn new(
        workplace: Arc<dyn Workplace>,
        team: Team,
        spec: ModelSpec,
        options: &Options,
    ) -> Result<Self, Error> {
        let token = options.token.as_deref();
        if token.is_some_and(|token| token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Error::Token);
        }
        let reach = match options.address.ip().is_loopback() {
            _ if options.socket.is_some() => Reach::Socket,
            true => Reach::Loopback,
            false => Reach::Network,
        };
        if token.is_none() && reach == Reach::Network {
            return Err(Error::Exposed { address: options.address });
        }
        let access =
            Access::new(reach, token, &options.origins).map_err(|origin| Error::Origin { origin })?;
        let (listener, address) = listen(options)?;
        let name = served::called(workplace.models().model(&spec)?.name()).to_owned();
        let named = workplace.served().into_iter().find(|served| served.spec == spec);
        let mut default = named.unwrap_or_else(|| Served { name, aliases: Vec::new(), spec: spec.clone() });
        default.aliases.extend(options.aliases.iter().cloned());
        let metrics = Arc::new(Metrics::default());
        let knows = token.is_some() || reach == Reach::Socket;
        let stop = Stop(Arc::new(watch::Sender::new(Stage::Serving)));
        let shared = Shared {
            workplace,
            access,
            slots: Slots::new(options.parallel.max(1), options.queue, options.patience, metrics.clone()),
            metrics,
            default,
            any_model: options.any_model,
            keep: Keep::new(spec, options.keep_alive),
            allow_pull: options.allow_pull,
            pulls: Arc::new(Semaphore::new(1)),
            team: Mutex::new(Arc::new(team)),
            named_team: options.named_team,
            questions: Questions::new(stop.0.subscribe(), knows),
            heads: Heads::default(),
            store: Arc::new(Store::new(options.responses.clone())),
            began: answer::now(),
            request_time: options.request_time,
            head_time: options.head_time,
        };
        let (socket, connections) = (options.socket.clone(), options.connections);
        Ok(Server { address, socket, listener, connections, shared: Arc::new(shared), stop })
    }

    /// Returns the address, unless the server listens on a socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the key that the page needs to ask the person the questions of an NPC's run; `None`
    /// if a token or a socket already protects the server.
    pub fn page_key(&self) -> Option<&str> {
        self.shared.questions.key()
    }

    /// Returns the socket that the server listens on.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Returns the clients' name of the default model.
    pub fn model(&self) -> &str {
        &self.shared.default.name
    }

    /// Returns the clients' names of the models, the default one first.
    pub fn models(&self) -> Vec<String> {
        self.shared.models().into_iter().map(|model| model.name).collect()
    }

    /// Returns a handle that stops the server.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// The system can't serve.
    pub fn run(self) -> Result<(), Error> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Each slot works on its own thread, in addition to those that read files.
        let threads = self.shared.slots.parallel() + THREADS;
        builder.enable_io().enable_time().thread_stack_size(STACK).max_blocking_threads(threads);
        let runtime = builder.build().map_err(Error::System)?;
        let bounds = (self.connections, self.shared.head_time);
        let router = routes::router(self.shared.clone());
        let stage = self.stop.0.subscribe();
        let served = runtime.block_on(async {
            let watch = tokio::spawn(dispatch::unload_idle(self.shared));
            let served = connections::serve(self.listener, router, bounds, stage).await;
            watch.abort();
            served
        });
        runtime.shutdown_timeout(END);
        if let Some(path) = self.socket {
            let _ = std::fs::remove_file(path);
        }
        served.map_err(Error::System)
    }
}

/// Listens on the socket, if one is set, or on the address.
fn listen(options: &Options) -> Result<(Listener, SocketAddr), Error> {
    let address = options.address;
    #[cfg(unix)]
    if let Some(path) = &options.socket {
        let failed = |source| Error::Socket { path: path.clone(), source };
        return Ok((Listener::Unix(socket::bind(path).map_err(failed)?), address));
    }
    #[cfg(not(unix))]
    if let Some(path) = &options.socket {
        let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
        return Err(Error::Socket { path: path.clone(), source });
    }
    let failed = |source| Error::Address { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((Listener::Tcp(listener), address))
}

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod models_tests;
#[cfg(test)]
mod questions_tests;
#[cfg(test)]
mod tests;
