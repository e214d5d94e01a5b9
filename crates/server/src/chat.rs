//! What the routes do: which models there are, and who answers a conversation.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alara_engine::Request;
use alara_harness::Team;
use alara_harness::model::ModelSpec;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::Access;
use crate::agents::Conversation;
use crate::body::{Body, events_of, json_of};
use crate::job::{Listener, Slots, Work};
use crate::wire::{Answer, Asked, Refusal, Shape};
use crate::{Workplace, agents, completions};

/// What all connections share.
pub struct Shared {
    pub workplace: Arc<dyn Workplace>,
    pub access: Access,
    pub slots: Slots,
    /// What clients call the model.
    pub model: String,
    pub spec: ModelSpec,
    pub team: Mutex<Arc<Team>>,
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
    fn team(&self) -> Arc<Team> {
        let mut team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        if team.changed()
            && let Some(read) = self.workplace.team()
        {
            *team = Arc::new(read);
        }
        team.clone()
    }

    /// Whom a request means.
    fn who(&self, asked: &Asked, team: &Team) -> Result<Who, Refusal> {
        let is_npc = |name: &str| team.npcs.iter().any(|npc| npc.name == name);
        let unknown = |param: &str, name: &str| {
            let npcs = team.npcs.iter().map(|npc| npc.name.as_str());
            let known: Vec<&str> = std::iter::once(self.model.as_str()).chain(npcs).collect();
            let message = format!("there is no model `{name}` (known: {})", known.join(", "));
            Refusal::unknown(param, message).coded("model_not_found")
        };
        match (asked.npc.as_deref(), asked.model.as_deref()) {
            (Some(npc), _) if !is_npc(npc) => Err(unknown("agent", npc)),
            (Some(npc), Some(model)) if model != npc && model != self.model => Err(unknown("model", model)),
            (Some(npc), _) => Ok(Who::Npc(npc.to_owned())),
            (None, None) => Err(Refusal::invalid("model", "`model` is missing")),
            (None, Some(model)) if model == self.model => Ok(Who::Model),
            (None, Some(model)) if is_npc(model) => Ok(Who::Npc(model.to_owned())),
            (None, Some(model)) => Err(unknown("model", model)),
        }
    }

    /// Refuses a request that names an NPC and the server's model, if the NPC has another one.
    fn same_model(&self, asked: &Asked, team: &Team, name: &str) -> Result<(), Refusal> {
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
    fn complete(&self, asked: Asked, listener: &Listener) -> Result<(), Refusal> {
        let model = self.workplace.models().model(&self.spec).map_err(|error| Refusal::from(&error))?;
        let sampling = asked.draws.over(&model.sampling());
        completions::complete(&*model, Request { sampling, ..asked.request }, listener)
    }
}

/// What clients call a model: a file without its directories, which are nobody else's business.
pub fn called(name: &str) -> &str {
    if name.contains("://") { name } else { name.rsplit(['/', '\\']).next().unwrap_or(name) }
}

/// The team as it is now; looking at files is left to another thread.
async fn team(shared: &Arc<Shared>) -> Result<Arc<Team>, Refusal> {
    let shared = shared.clone();
    tokio::task::spawn_blocking(move || shared.team()).await.map_err(|_| Refusal::silent())
}

/// The answer to `GET /v1/models`: the model, and each NPC as one.
pub async fn models(shared: &Arc<Shared>) -> Result<Value, Refusal> {
    let team = team(shared).await?;
    let model = |id: &str, owner: &str| json!({"id": id, "object": "model", "created": shared.began, "owned_by": owner});
    let mut list = vec![model(&shared.model, "alara")];
    list.extend(team.npcs.iter().map(|npc| model(&npc.name, &team.name)));
    Ok(json!({"object": "list", "data": list}))
}

/// The answer to `POST /v1/chat/completions`.
pub async fn chat(shared: &Arc<Shared>, body: &[u8]) -> Result<Response<Body>, Refusal> {
    let deadline = Instant::now() + shared.request_time;
    let asked = Asked::read(body)?;
    let team = team(shared).await?;
    let who = shared.who(&asked, &team)?;
    let name = match &who {
        Who::Model => shared.model.clone(),
        Who::Npc(name) => name.clone(),
    };
    let shape = Shape::new(name, asked.include_usage);
    let stream = asked.stream;
    let worker = shared.clone();
    let work: Work = match who {
        Who::Model => Box::new(move |listener| worker.complete(asked, listener)),
        Who::Npc(name) => {
            if let Some(field) = asked.not_for_npcs {
                let message = format!("`{field}` is up to the NPC {name} itself; leave it out");
                return Err(Refusal::invalid(field, message));
            }
            let conversation = Conversation::of(&asked.request)?;
            Box::new(move |listener| {
                worker.same_model(&asked, &team, &name)?;
                agents::work(&*worker.workplace, &team, &name, conversation, &asked, listener)
            })
        }
    };
    let mut answering = shared.slots.start(deadline, work).await?;
    if stream {
        // Until it has begun, it can still be refused with a status.
        let first = answering.next().await.unwrap_or_else(|| Err(Refusal::silent()))?;
        return Ok(events_of(Body::events(shape, &first, answering)));
    }
    let mut answer = Answer::default();
    while let Some(item) = answering.next().await {
        answer.push(item?);
    }
    let body = answer.body(&shape).ok_or_else(Refusal::silent)?;
    Ok(json_of(StatusCode::OK, &body))
}
