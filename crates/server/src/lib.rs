//! HTTP: an OpenAI-compatible API over engine and harness, where each NPC of a team is a model too.
//!
//! `GET /health`, `GET /v1/models`, `POST /v1/chat/completions`.
//! Knows neither terminals nor where models and teams come from: that is a [`Workplace`].
//! Prints nothing and reads no environment.

mod access;
mod agents;
mod body;
mod chat;
mod completions;
mod http;
mod job;
mod wire;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alara_harness::model::ModelSpec;
use alara_harness::{ModelError, ModelSource, Sandbox, Session, Team};
use tokio::sync::watch;

use access::Access;
use chat::Shared;
use job::Slots;

/// How long work that was cancelled may take to end.
const END: Duration = Duration::from_secs(5);
/// The stack of threads that work: an agent's jinxes may be deep inside of each other.
const STACK: usize = 8 << 20;

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
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    /// Port 0 means any that is free.
    /// Default 127.0.0.1:8080.
    pub address: SocketAddr,
    /// What clients must know.
    /// Default: nothing, which is for this machine only.
    pub token: Option<String>,
    /// Requests that are worked on at a time.
    /// Default 1.
    pub parallel: usize,
    /// Requests that may wait for that; further ones are refused.
    /// Default 16.
    pub queue: usize,
    /// Most time for a request, from its coming to the end of its answer.
    /// Default 10 min.
    pub request_time: Duration,
    /// Most time for the head of a request, and a third of what its body may take.
    /// Default 10 s.
    pub head_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            token: None,
            parallel: 1,
            queue: 16,
            request_time: Duration::from_secs(600),
            head_time: Duration::from_secs(10),
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
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: Stop,
}

impl Server {
    /// Listens, and loads the model that `spec` means.
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
        let Options { address, token, parallel, queue, request_time, head_time } = options;
        let token = token.as_deref();
        if token.is_some_and(|token| token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Error::Token);
        }
        if token.is_none() && !address.ip().is_loopback() {
            return Err(Error::Exposed { address: *address });
        }
        let failed = |source| Error::Address { address: *address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let model = chat::called(workplace.models().model(&spec)?.name()).to_owned();
        let shared = Shared {
            workplace,
            access: Access::new(address, token),
            slots: Slots::new((*parallel).max(1), *queue),
            model,
            spec,
            team: Mutex::new(Arc::new(team)),
            began: wire::answer::now(),
            request_time: *request_time,
            head_time: *head_time,
        };
        let stop = Stop(Arc::new(watch::Sender::new(Stage::Serving)));
        Ok(Server { address, listener, shared: Arc::new(shared), stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients call the model.
    pub fn model(&self) -> &str {
        &self.shared.model
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
        let runtime =
            builder.enable_io().enable_time().thread_stack_size(STACK).build().map_err(Error::System)?;
        let served = runtime.block_on(http::serve(self.listener, self.shared, self.stop.0.subscribe()));
        runtime.shutdown_timeout(END);
        served.map_err(Error::System)
    }
}

#[cfg(test)]
mod tests;
