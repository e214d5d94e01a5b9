//! HTTP: the APIs of OpenAI, Anthropic and Ollama over engine and harness, where each NPC of a team
//! is a model too.
//!
//! One module a wire format: `openai`, `anthropic`, `ollama`, `native`.
//! Each reads what is asked into an `InnerRequest` and has a `Writer` of answers.
//! `dispatch` is the way between, the same for all; it names no format, and `routes` names all.
//! Knows neither terminals nor where models and teams come from: that is a [`Workplace`].
//! Prints nothing and reads no environment.

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

/// How long work that was cancelled may take to end.
const END: Duration = Duration::from_secs(5);
/// The stack of threads that work: an agent's jinxes may be deep inside of each other.
const STACK: usize = 8 << 20;
/// Threads beside those of the slots.
const THREADS: usize = 16;

/// The turn that the body of a request asks for, in whichever wire format that is: OpenAI's chat or
/// responses, Anthropic's messages or Ollama's chat.
///
/// # Errors
/// What is wrong with it.
pub fn read_request(body: &[u8]) -> Result<Request, String> {
    routes::read_any(body).map(|asked| asked.request).map_err(|refusal| refusal.message)
}

/// What agents work with, and where: known to whoever starts the server.
pub trait Workplace: Send + Sync + 'static {
    /// Where models come from.
    fn models(&self) -> &dyn ModelSource;

    /// Reads the team again, since its files have changed.
    /// `None` if that can't be done; then it stays as it was.
    fn team(&self) -> Option<Team>;

    /// A sandbox for one request to `team`.
    ///
    /// # Errors
    /// There can't be one.
    fn sandbox(&self, team: &Team) -> Result<Sandbox, alara_harness::Error>;

    /// The session of one request with rules, threads and a trace.
    ///
    /// # Errors
    /// They can't be had.
    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error>;

    /// Whether a person has said yes beforehand to whatever rules say to ask about.
    fn agreed(&self) -> bool {
        false
    }

    /// What becomes of a file, as a unified diff, for a person who is asked about it.
    /// `None`: none can be made here, and the person reads the call's arguments.
    fn diff(&self, _file: &ProposedFile) -> Option<String> {
        None
    }

    /// The models that clients may name beside the default one, as they are now.
    /// One that is had with the default's spec gives that its names.
    fn served(&self) -> Vec<Served> {
        Vec::new()
    }

    /// What the file of the model says that is used for `spec`, loaded or not.
    /// `None`: it has none, as a model elsewhere, or the file can't be read.
    fn facts(&self, _spec: &ModelSpec) -> Option<Arc<Facts>> {
        None
    }

    /// Downloads the model that `name` means; from then on it is among those served.
    /// `told` hears how it goes, and says whether it shall go on.
    ///
    /// # Errors
    /// There is no such model, or it can't be had.
    fn pull(&self, name: &str, _told: &mut dyn FnMut(Pull) -> bool) -> Result<(), ModelError> {
        Err(ModelError::new(format!("{name} can't be downloaded here")))
    }

    /// Takes a line about a request that was answered, for whoever looks on.
    fn log(&self, _line: &str) {}
}

/// How far a download is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pull {
    /// So much of a file is here.
    File {
        /// Its name.
        name: String,
        /// Its SHA-256 in hexadecimal, if that is known.
        digest: Option<String>,
        /// Bytes that it has, if that is known.
        total: Option<u64>,
        /// Bytes of it that are here.
        completed: u64,
    },
    /// A file was checked, and can be used.
    Checked,
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    /// Port 0 means any that is free.
    /// Default 127.0.0.1:8080.
    pub address: SocketAddr,
    /// A Unix socket to listen at instead, which nobody else may open.
    /// Default: none.
    pub socket: Option<PathBuf>,
    /// What clients must know.
    /// Default: nothing, which is for this machine only.
    pub token: Option<String>,
    /// Origins of web pages that are let in, such as `https://app.example`.
    /// A star at the end stands for anything; for more than a port or an app's pages it needs a
    /// token.
    /// Default: none; with a token, pages of this machine and of desktop apps.
    pub origins: Vec<String>,
    /// Whether a person named the team: then the page begins with its lead, not with the default
    /// model.
    /// Default false.
    pub named_team: bool,
    /// Other names of the default model.
    /// Default: none.
    pub aliases: Vec<String>,
    /// Whether a request that names a model which is not known means the default one, as one does
    /// that names none.
    /// Default false.
    pub any_model: bool,
    /// How long a model stays loaded that nobody asks for.
    /// Default: the default model as long as the server runs, others 5 min.
    pub keep_alive: Option<KeepAlive>,
    /// Whether clients may have models downloaded.
    /// Default false.
    pub allow_pull: bool,
    /// A folder in which answers to `/v1/responses` are kept for later requests.
    /// Default: none; they are kept in memory only.
    pub responses: Option<PathBuf>,
    /// Requests that are worked on at a time.
    /// Default 1.
    pub parallel: usize,
    /// Requests that may wait for that; further ones are refused.
    /// Default 512.
    pub queue: usize,
    /// Most time for a request, from its coming to the end of its answer.
    /// Default 10 min.
    pub request_time: Duration,
    /// Most time for the head of a request, and a third of what its body may take.
    /// Default 10 s.
    pub head_time: Duration,
    /// Most connections at a time; a further one is told so and closed.
    /// Each takes a file descriptor, of which a process has 1024 by default.
    /// Default 900.
    pub connections: usize,
    /// How long a client may read nothing while much of its answer waits for it.
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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Other machines could reach it, and nothing would keep them out.
    #[error("{address} can be reached from other machines, so the server needs a token")]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// A token that no header can carry.
    #[error("a token is made of visible ASCII characters")]
    Token,
    /// An origin that can't be let in.
    #[error(
        "{origin} can't be let in: an origin is such as https://app.example, with a star at its end at most, and one \
         that lets in other sites' pages needs a token"
    )]
    Origin {
        /// The origin.
        origin: String,
    },
    /// A socket can't be had.
    #[error("can't listen at {}", path.display())]
    Socket {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The address can't be had.
    #[error("can't listen on {address}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The system can't serve.
    #[error("can't serve")]
    System(#[source] std::io::Error),
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// No new requests are taken; those that run go on.
    Finishing,
    /// Those that run end.
    Cancelling,
}

/// Ends a server.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<Stage>>);

impl Stop {
    /// The first time, requests that run are finished and no others taken; the second time they are
    /// cancelled.
    /// True the first time.
    pub fn ask(&self) -> bool {
        let mut first = false;
        self.0.send_modify(|stage| {
            first = *stage == Stage::Serving;
            *stage = if first { Stage::Finishing } else { Stage::Cancelling };
        });
        first
    }
}

/// A server that listens.
pub struct Server {
    address: SocketAddr,
    socket: Option<PathBuf>,
    listener: Listener,
    connections: usize,
    shared: Arc<Shared>,
    stop: Stop,
}

impl Server {
    /// Listens, and loads the default model, which `spec` means.
    /// Nobody is answered yet.
    ///
    /// # Errors
    /// The address can't be had or would be open to everybody, or there is no such model.
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

    /// Where it listens, unless at a socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the page must know to ask the person what an NPC's run would ask; `None`: where there is
    /// a token or a socket, nothing more.
    pub fn page_key(&self) -> Option<&str> {
        self.shared.questions.key()
    }

    /// The socket that it listens at.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// What clients call the default model.
    pub fn model(&self) -> &str {
        &self.shared.default.name
    }

    /// What clients call the models, the default one first.
    pub fn models(&self) -> Vec<String> {
        self.shared.models().into_iter().map(|model| model.name).collect()
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is asked to stop.
    ///
    /// # Errors
    /// The system can't serve.
    pub fn run(self) -> Result<(), Error> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Each slot works on a thread of its own, beside those that look at files.
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

/// Listens at the socket, or else at the address.
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
