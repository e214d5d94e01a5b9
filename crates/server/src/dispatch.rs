//! Who answers a request, and how the answer goes out: the way that all wire formats share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alara_engine::{Engine, Finish, Request, Usage};
use alara_harness::model::ModelSpec;
use alara_harness::{ChatModel, Team};
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::access::Access;
use crate::agents::Conversation;
use crate::answer::{Answer, End, Piece, Writer};
use crate::inner::InnerRequest;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};
use crate::slots::{Answering, Listener, Slots, Work};
use crate::store::Store;
use crate::stream::Stream;
use crate::{Workplace, agents, turn};

/// What all connections share.
pub struct Shared {
    pub workplace: Arc<dyn Workplace>,
    pub access: Access,
    pub slots: Slots,
    pub metrics: Arc<Metrics>,
    /// What clients call the model.
    pub model: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// Whether every other name means the model too, and so does none.
    pub any_model: bool,
    pub spec: ModelSpec,
    pub team: Mutex<Arc<Team>>,
    /// Conversations that a later request goes on with.
    pub store: Arc<Store>,
    /// When the server began, in seconds since 1970.
    pub began: u64,
    pub request_time: Duration,
    pub head_time: Duration,
}

/// Who is to answer.
enum Who {
    Model,
    Npc(String),
}

impl Shared {
    /// The team, as its files are now.
    /// One that can't be read leaves it as it was.
    fn read_team(&self) -> Arc<Team> {
        let mut team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        if team.changed()
            && let Some(read) = self.workplace.team()
        {
            *team = Arc::new(read);
        }
        team.clone()
    }

    /// Whether `name` means the model.
    pub fn is_model(&self, name: &str) -> bool {
        name == self.model || self.aliases.iter().any(|alias| alias == name)
    }

    /// Whom a request means.
    fn who(&self, asked: &InnerRequest, team: &Team) -> Result<Who, Refusal> {
        let is_npc = |name: &str| team.npcs.iter().any(|npc| npc.name == name);
        let unknown = |param: &str, name: &str| {
            let message = format!("there is no model `{name}` (known: {})", self.known(team).join(", "));
            Refusal::unknown(param, message).coded("model_not_found")
        };
        match (asked.npc.as_deref(), asked.model.as_deref()) {
            (Some(npc), _) if !is_npc(npc) => Err(unknown("agent", npc)),
            (Some(npc), Some(model)) if model != npc && !self.is_model(model) && !self.any_model => {
                Err(unknown("model", model))
            }
            (Some(npc), _) => Ok(Who::Npc(npc.to_owned())),
            (None, Some(model)) if self.is_model(model) => Ok(Who::Model),
            (None, Some(model)) if is_npc(model) => Ok(Who::Npc(model.to_owned())),
            (None, _) if self.any_model => Ok(Who::Model),
            (None, None) => Err(Refusal::invalid("model", "`model` is missing")),
            (None, Some(model)) => Err(unknown("model", model)),
        }
    }

    /// The names of all models: the model's, and each NPC's.
    pub fn known<'a>(&'a self, team: &'a Team) -> Vec<&'a str> {
        std::iter::once(self.model.as_str()).chain(team.npcs.iter().map(|npc| npc.name.as_str())).collect()
    }

    /// Refuses a request that names an NPC and the server's model, if the NPC has another one.
    fn same_model(&self, asked: &InnerRequest, team: &Team, name: &str) -> Result<(), Refusal> {
        if asked.model.as_deref() != Some(&self.model) || name == self.model {
            return Ok(());
        }
        let npc = team.npc(Some(name)).map_err(|error| Refusal::from(&error))?;
        let model = self.workplace.models().model(&npc.model).map_err(|error| Refusal::from(&error))?;
        if called(model.name()) == self.model {
            return Ok(());
        }
        let message =
            format!("{name} answers with {}; leave `model` out, or name the NPC there", model.name());
        Err(Refusal::invalid("model", message))
    }

    /// Has the model answer.
    fn complete(&self, asked: InnerRequest, listener: &Listener) -> Result<(), Refusal> {
        let model = self.workplace.models().model(&self.spec).map_err(|error| Refusal::from(&error))?;
        let sampling = asked.sampling(&model.sampling());
        turn::complete(&*model, Request { sampling, ..asked.request }, listener)
    }
}

/// What clients call a model: a file without its directories, which are nobody else's business.
pub fn called(name: &str) -> &str {
    if name.contains("://") { name } else { name.rsplit(['/', '\\']).next().unwrap_or(name) }
}

/// Does `work` where it may block, as whatever looks at files or asks a model must.
///
/// # Errors
/// The work's own, or that it broke off.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::silent())?
}

/// The team as it is now.
///
/// # Errors
/// Looking for it broke off.
pub async fn team(shared: &Arc<Shared>) -> Result<Arc<Team>, Refusal> {
    let shared = shared.clone();
    blocking(move || Ok(shared.read_team())).await
}

/// What `ask` learns of the model.
///
/// # Errors
/// There is none, or what `ask` says.
pub async fn with_model<T: Send + 'static>(
    shared: &Arc<Shared>,
    ask: impl FnOnce(&dyn ChatModel) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let shared = shared.clone();
    blocking(move || {
        let model = shared.workplace.models().model(&shared.spec).map_err(|error| Refusal::from(&error))?;
        ask(&*model)
    })
    .await
}

/// As [`with_model`], of a model that runs on this machine.
///
/// # Errors
/// It does not, or as there.
pub async fn with_engine<T: Send + 'static>(
    shared: &Arc<Shared>,
    ask: impl FnOnce(&Engine) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    with_model(shared, |model| match model.local() {
        Some(engine) => ask(engine),
        None => Err(Refusal::unable("the model runs elsewhere, and its vocabulary is not known here")),
    })
    .await
}

/// Starts what answers; says under which name.
///
/// # Errors
/// There is no such model, or it can't be had.
async fn begin(shared: &Arc<Shared>, asked: InnerRequest) -> Result<(String, Answering), Refusal> {
    let deadline = Instant::now() + shared.request_time;
    let team = team(shared).await?;
    let who = shared.who(&asked, &team)?;
    let worker = shared.clone();
    let (name, work): (String, Work) = match who {
        Who::Model => {
            let name = asked.model.clone().filter(|name| shared.is_model(name));
            let name = name.unwrap_or_else(|| shared.model.clone());
            (name, Box::new(move |listener| worker.complete(asked, listener)))
        }
        Who::Npc(name) => {
            if let Some(field) = asked.not_for_npcs() {
                let message = format!("`{field}` is up to the NPC {name} itself; leave it out");
                return Err(Refusal::invalid(field, message));
            }
            let conversation = Conversation::of(&asked.request)?;
            let npc = name.clone();
            let work: Work = Box::new(move |listener| {
                worker.same_model(&asked, &team, &npc)?;
                agents::work(&*worker.workplace, &team, &npc, conversation, &asked, listener)
            });
            (name, work)
        }
    };
    Ok((name, shared.slots.start(deadline, work).await?))
}

/// Answers a request, in the wire format that `writer` makes for the model's name.
///
/// # Errors
/// Before anything is answered: why it can't be.
pub async fn answer(
    shared: &Arc<Shared>,
    mut asked: InnerRequest,
    writer: impl FnOnce(&str) -> Box<dyn Writer>,
) -> Result<Response, Refusal> {
    let (stream, ignored) = (asked.stream, std::mem::take(&mut asked.ignored));
    let (name, mut answering) = begin(shared, asked).await?;
    let mut writer = writer(&name);
    let mut response = if stream {
        // Until it has begun, it can still be refused with a status.
        let first = answering.next().await.unwrap_or_else(|| Err(Refusal::silent()))?;
        let kind = HeaderValue::from_static(writer.content_type());
        let mut response = Response::new(Body::new(Stream::new(writer, &first, answering)));
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    } else {
        json_of(&whole(&mut answering, &mut *writer).await?)
    };
    response.extensions_mut().insert(Ignored(ignored));
    Ok(response)
}

/// The whole answer to a request, as `writer` tells it.
///
/// # Errors
/// As [`answer`], and that it broke off.
pub async fn whole_answer(
    shared: &Arc<Shared>,
    asked: InnerRequest,
    writer: &mut dyn Writer,
) -> Result<Value, Refusal> {
    let (_, mut answering) = begin(shared, asked).await?;
    whole(&mut answering, writer).await
}

async fn whole(answering: &mut Answering, writer: &mut dyn Writer) -> Result<Value, Refusal> {
    let mut answer = Answer::default();
    while let Some(item) = answering.next().await {
        let piece = item?;
        answer.push(&piece);
        if let Piece::End(end) = piece {
            return Ok(writer.whole(answer, &end));
        }
    }
    Err(Refusal::silent())
}

/// Does `work` with the model that a request names, in a slot, where what comes of it is no answer
/// in pieces; says under which name.
///
/// # Errors
/// There is no such model, it is an NPC, or as [`answer`], and what `work` says.
pub async fn in_slot<T: Send + 'static>(
    shared: &Arc<Shared>,
    model: Option<String>,
    work: impl FnOnce(&dyn ChatModel, &Listener) -> Result<(T, Usage), Refusal> + Send + 'static,
) -> Result<(String, T), Refusal> {
    let deadline = Instant::now() + shared.request_time;
    let team = team(shared).await?;
    let asked = InnerRequest { model, ..InnerRequest::default() };
    if let Who::Npc(npc) = shared.who(&asked, &team)? {
        let message = format!("{npc} is an NPC, which only converses; name the model");
        return Err(Refusal::invalid("model", message));
    }
    let name = asked.model.filter(|name| shared.is_model(name)).unwrap_or_else(|| shared.model.clone());
    let worker = shared.clone();
    let (sender, made) = oneshot::channel();
    let work: Work = Box::new(move |listener| {
        let model = worker.workplace.models().model(&worker.spec).map_err(|error| Refusal::from(&error))?;
        let (made, usage) = work(&*model, listener)?;
        // Nobody listening is no error.
        let _ = sender.send(made);
        listener.send(Ok(Piece::End(Box::new(End { finish: Finish::Stop, usage, alara: None }))));
        Ok(())
    });
    let mut answering = shared.slots.start(deadline, work).await?;
    match answering.next().await {
        Some(Err(refusal)) => Err(refusal),
        _ => made.await.map(|made| (name, made)).map_err(|_| Refusal::silent()),
    }
}
