//! Who answers a request, and how the answer goes out: the way that all wire formats share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alara_engine::{Engine, Finish, Request, Until, Usage};
use alara_harness::model::ModelSpec;
use alara_harness::{ChatModel, Team};
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::access::Access;
use crate::agents::Conversation;
use crate::answer::{Answer, End, Piece, Writer};
use crate::client_tools::{Gate, GatedModel};
use crate::heads::{Heads, WORTH};
use crate::inner::InnerRequest;
use crate::keep::{Keep, KeepAlive};
use crate::metrics::Metrics;
use crate::questions::Questions;
use crate::refusal::Refusal;
use crate::response::{Ignored, json_of};
use crate::served::{Listing, Served, called};
use crate::slots::{Answering, Listener, Slots, Work};
use crate::store::Store;
use crate::stream::Stream;
use crate::{Workplace, agents, client_tools, turn};

/// What all connections share.
pub struct Shared {
    pub workplace: Arc<dyn Workplace>,
    pub access: Access,
    pub slots: Slots,
    pub metrics: Arc<Metrics>,
    /// The default model, which is loaded when the server starts.
    pub default: Served,
    /// Whether a name that is not known means the default model, as none does.
    pub any_model: bool,
    /// How long models stay loaded.
    pub keep: Keep,
    /// Whether clients may have models downloaded.
    pub allow_pull: bool,
    /// One download at a time.
    pub pulls: Arc<Semaphore>,
    pub team: Mutex<Arc<Team>>,
    /// Whether a person named that team when the server started.
    pub named_team: bool,
    /// What runs of NPCs wait to be answered.
    pub questions: Questions,
    /// What the latest prompts began with.
    pub heads: Heads,
    /// Conversations that a later request goes on with.
    pub store: Arc<Store>,
    /// When the server began, in seconds since 1970.
    pub began: u64,
    pub request_time: Duration,
    pub head_time: Duration,
}

/// Who is to answer.
enum Who {
    Model(Served),
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

    /// All models, the default one first.
    pub fn models(&self) -> Vec<Served> {
        let others = self.workplace.served().into_iter().filter(|model| model.spec != self.default.spec);
        std::iter::once(self.default.clone()).chain(others).collect()
    }

    /// The model that `name` means.
    pub fn find(&self, name: &str) -> Option<Served> {
        Served::find(&self.models(), name).cloned()
    }

    /// What is told of `name`, or of every model and NPC.
    /// Looks at files; nothing is loaded.
    pub fn listings(&self, team: &Team, name: Option<&str>) -> Vec<Listing> {
        let (models, loaded) = (self.models(), self.workplace.models().loaded());
        let about = |name: &str, spec: &ModelSpec, npc: bool| {
            let used = self.workplace.models().used(spec);
            Listing {
                name: name.to_owned(),
                parent: npc.then(|| self.name_of(&models, &used)),
                facts: self.workplace.facts(&used),
                loaded: loaded.iter().find(|loaded| loaded.spec == used).cloned(),
            }
        };
        let npcs = || team.npcs.iter().map(|npc| about(&npc.name, &npc.model, true));
        match name {
            None => models.iter().map(|model| about(&model.name, &model.spec, false)).chain(npcs()).collect(),
            Some(name) => match Served::find(&models, name) {
                Some(model) => vec![about(name, &model.spec, false)],
                None => npcs().filter(|npc| npc.name == name).collect(),
            },
        }
    }

    /// Whether `name` is the NPC that the page begins with: the lead of a team that was named.
    pub fn leads(&self, team: &Team, name: &str) -> bool {
        self.named_team && team.npc(None).is_ok_and(|npc| npc.name == name)
    }

    /// What clients call the model that is had with `spec`.
    pub fn name_of(&self, models: &[Served], spec: &ModelSpec) -> String {
        let served = models.iter().find(|model| model.spec == *spec);
        served.map_or_else(|| called(&spec.to_string()).to_owned(), |model| model.name.clone())
    }

    /// Whom a request means that names a model, an NPC, both or nobody.
    fn who(&self, model: Option<&str>, npc: Option<&str>, team: &Team) -> Result<Who, Refusal> {
        let is_npc = |name: &str| team.npcs.iter().any(|npc| npc.name == name);
        let find = |name: &str| self.find(name);
        let unknown = |param: &str, name: &str| self.unknown(param, name, team);
        match (npc, model) {
            (Some(npc), _) if !is_npc(npc) => Err(unknown("agent", npc)),
            (Some(npc), Some(model)) if model != npc && find(model).is_none() && !self.any_model => {
                Err(unknown("model", model))
            }
            (Some(npc), _) => Ok(Who::Npc(npc.to_owned())),
            (None, Some(model)) => match find(model) {
                Some(served) => Ok(Who::Model(served)),
                None if is_npc(model) => Ok(Who::Npc(model.to_owned())),
                None if self.any_model => Ok(Who::Model(self.default.clone())),
                None => Err(unknown("model", model)),
            },
            (None, None) => Ok(Who::Model(self.default.clone())),
        }
    }

    /// A refusal of a name that nobody has.
    pub fn unknown(&self, param: &str, name: &str, team: &Team) -> Refusal {
        let message = format!("there is no model `{name}` (known: {})", self.known(team).join(", "));
        Refusal::unknown(param, message).coded("model_not_found")
    }

    /// What the model is had with that `name` means, or an NPC of that name answers with.
    /// Without a name it is the default one; where only that is served, so it is by any name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn spec(&self, name: Option<&str>) -> Result<ModelSpec, Refusal> {
        let Some(name) = name else { return Ok(self.default.spec.clone()) };
        let team = self.read_team();
        match self.who(Some(name), None, &team) {
            Ok(Who::Model(served)) => Ok(served.spec),
            Ok(Who::Npc(npc)) => {
                let npc = team.npc(Some(&npc)).map_err(|error| Refusal::from(&error))?;
                Ok(self.workplace.models().used(&npc.model))
            }
            Err(_) if self.models().len() == 1 => Ok(self.default.spec.clone()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The model that is had with `spec`; loads it if need be.
    fn load(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, Refusal> {
        let model = self.workplace.models().model(spec);
        model.map_err(|error| Refusal::from(&error).about(&spec.to_string()))
    }

    /// Loads the model that `name` means, or unloads it if it `goes`.
    /// `asked` says how long it stays otherwise.
    ///
    /// # Errors
    /// There is no such model, or it can't be loaded.
    pub fn keep_loaded(&self, name: &str, asked: Option<KeepAlive>, goes: bool) -> Result<(), Refusal> {
        let team = self.read_team();
        let spec = match self.who(Some(name), None, &team)? {
            Who::Model(served) => served.spec,
            Who::Npc(_) => self.spec(Some(name))?,
        };
        let using = self.keep.using(&spec, asked);
        if goes {
            self.workplace.models().unload(&spec);
        } else {
            self.load(&spec)?;
        }
        drop(using);
        Ok(())
    }

    /// The names of all models, and of each NPC.
    pub fn known(&self, team: &Team) -> Vec<String> {
        let npcs = team.npcs.iter().map(|npc| npc.name.clone());
        self.models().into_iter().map(|model| model.name).chain(npcs).collect()
    }

    /// Refuses a request that names an NPC and a model that it does not answer with.
    fn same_model(&self, asked: &InnerRequest, team: &Team, name: &str) -> Result<(), Refusal> {
        let named = asked.model.as_deref().filter(|model| *model != name);
        let Some(model) = named.and_then(|model| self.find(model)) else { return Ok(()) };
        let npc = team.npc(Some(name)).map_err(|error| Refusal::from(&error))?;
        let used = self.workplace.models().used(&npc.model);
        if used == self.workplace.models().used(&model.spec) {
            return Ok(());
        }
        let own = self.load(&used)?;
        if called(own.name()) == model.name {
            return Ok(());
        }
        let message =
            format!("{name} answers with {}; leave `model` out, or name the NPC there", called(own.name()));
        Err(Refusal::invalid("model", message))
    }

    /// Has the model that `spec` means answer; its calls pass the gate, if there is one.
    fn complete(
        &self,
        spec: &ModelSpec,
        gate: Option<Gate>,
        asked: InnerRequest,
        listener: &Listener,
    ) -> Result<(), Refusal> {
        let mut model = self.load(spec)?;
        if let Some(gate) = gate {
            model = Arc::new(GatedModel { model, gate });
        }
        let sampling = asked.sampling(&model.sampling());
        let request = Request { sampling, until: listener.until(), ..asked.request };
        let change = self.heads.compare(&spec.to_string(), &request);
        let missed = |usage: &Usage| {
            let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
            let change = change.as_ref().filter(|_| computed >= WORTH)?.to_string();
            self.metrics.changed();
            self.workplace.log(&format!(
                "{}: {computed} of {} prompt tokens were computed: {change}",
                called(model.name()),
                usage.prompt_tokens
            ));
            Some(change)
        };
        let completed = turn::complete(&*model, &request, asked.choices, listener, &missed);
        completed.map_err(|refusal| refusal.about(model.name()))
    }
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

/// Sets its flag when it is dropped, as when the client of the request leaves that waits for it.
#[derive(Default)]
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` where it may block, for so long at most and while its client is there: `work` is
/// told when it is to end.
///
/// # Errors
/// The time is over, or as [`blocking`].
async fn while_asked<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce(&Until) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let (leaving, deadline) = (Leaving::default(), Instant::now() + time);
    let until = Until { cancelled: Some(leaving.0.clone()), deadline: Some(deadline.into_std()) };
    timeout_at(deadline, blocking(move || work(&until))).await.unwrap_or_else(|_| Err(Refusal::late()))
}

/// Unloads models as their time is over, for as long as the server runs.
pub async fn unload_idle(shared: Arc<Shared>) {
    loop {
        let looking = shared.clone();
        let next = blocking(move || Ok(looking.keep.sweep(looking.workplace.models()))).await;
        match next.ok().flatten() {
            None => shared.keep.changed().await,
            Some(at) => tokio::select! {
                () = sleep_until(at.into()) => {}
                () = shared.keep.changed() => {}
            },
        }
    }
}

/// The team as it is now.
///
/// # Errors
/// Looking for it broke off.
pub async fn team(shared: &Arc<Shared>) -> Result<Arc<Team>, Refusal> {
    let shared = shared.clone();
    blocking(move || Ok(shared.read_team())).await
}

/// What `ask` learns of the model that `name` means; see [`Shared::spec`].
/// It is loaded if need be.
///
/// # Errors
/// There is none, or what `ask` says.
pub async fn with_model<T: Send + 'static>(
    shared: &Arc<Shared>,
    name: Option<&str>,
    ask: impl FnOnce(&dyn ChatModel, &Until) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let (shared, name) = (shared.clone(), name.map(str::to_owned));
    while_asked(shared.request_time, move |until| {
        let learned = shared.spec(name.as_deref()).and_then(|spec| ask(&*shared.load(&spec)?, until));
        shared.keep.look();
        learned
    })
    .await
}

/// As [`with_model`], of a model that runs on this machine.
///
/// # Errors
/// It does not, or as there.
pub async fn with_engine<T: Send + 'static>(
    shared: &Arc<Shared>,
    name: Option<&str>,
    ask: impl FnOnce(&Engine, &Until) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    with_model(shared, name, |model, until| match model.local() {
        Some(engine) => ask(engine, until),
        None => Err(elsewhere()),
    })
    .await
}

fn elsewhere() -> Refusal {
    Refusal::unable("the model runs elsewhere, and its vocabulary is not known here")
}

/// What `ask` learns of the prompt that a request gets: an NPC's, where it names one.
///
/// # Errors
/// The model runs elsewhere, the NPC can't take the request, or what `ask` says.
pub async fn with_prompt<T: Send + 'static>(
    shared: &Arc<Shared>,
    mut asked: InnerRequest,
    ask: impl FnOnce(&Engine, &Request) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let team = team(shared).await?;
    let who = shared.who(asked.model.as_deref(), asked.npc.as_deref(), &team)?;
    let shared = shared.clone();
    while_asked(shared.request_time, move |until| {
        let (spec, npc) = match who {
            Who::Model(served) => (served.spec, None),
            Who::Npc(name) => {
                let npc = team.npc(Some(&name)).map_err(|error| Refusal::from(&error))?.clone();
                (shared.workplace.models().used(&npc.model), Some(npc))
            }
        };
        let model = shared.load(&spec)?;
        let request = match npc {
            Some(npc) if asked.request.tools.is_empty() => {
                agents::first_turn(&team, &npc.name, &asked.request, &*model)?
            }
            Some(npc) => {
                client_tools::prepare(&mut asked, &team, &npc, shared.workplace.agreed())?;
                asked.request
            }
            None => asked.request,
        };
        let request = Request { until: until.clone(), ..request };
        ask(model.local().ok_or_else(elsewhere)?, &request)
    })
    .await
}

/// Starts what answers; says under which name, and what is ignored of the request.
///
/// # Errors
/// There is no such model, or it can't be had.
async fn begin(
    shared: &Arc<Shared>,
    mut asked: InnerRequest,
) -> Result<(String, Vec<String>, Answering), Refusal> {
    let deadline = asked.deadline.unwrap_or_else(|| Instant::now() + shared.request_time);
    let team = team(shared).await?;
    let who = shared.who(asked.model.as_deref(), asked.npc.as_deref(), &team)?;
    let worker = shared.clone();
    let mut ignored = std::mem::take(&mut asked.ignored);
    let (name, work): (String, Work) = match who {
        Who::Model(served) => {
            let name = asked.model.clone().filter(|name| shared.find(name).is_some());
            let name = name.unwrap_or_else(|| served.name.clone());
            let work: Work = Box::new(move |listener| {
                let _using = worker.keep.using(&served.spec, asked.keep_alive);
                worker.complete(&served.spec, None, asked, listener)
            });
            (name, work)
        }
        Who::Npc(name) if !asked.request.tools.is_empty() => {
            let npc = team.npc(Some(&name)).map_err(|error| Refusal::from(&error))?.clone();
            let gate = client_tools::prepare(&mut asked, &team, &npc, shared.workplace.agreed())?;
            ignored.append(&mut asked.ignored);
            let work: Work = Box::new(move |listener| {
                worker.same_model(&asked, &team, &npc.name)?;
                let spec = worker.workplace.models().used(&npc.model);
                let _using = worker.keep.using(&spec, asked.keep_alive);
                worker.complete(&spec, Some(gate), asked, listener)
            });
            (name, work)
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
                let own = team.npc(Some(&npc)).map_err(|error| Refusal::from(&error))?;
                let own = worker.workplace.models().used(&own.model);
                let _using = worker.keep.using(&own, asked.keep_alive);
                let (workplace, questions) = (&*worker.workplace, &worker.questions);
                agents::work(workplace, &team, &npc, conversation, &asked, questions, listener)
            });
            (name, work)
        }
    };
    Ok((name, ignored, shared.slots.start(deadline, work).await?))
}

/// Answers a request, in the wire format that `writer` makes for the model's name.
///
/// # Errors
/// Before anything is answered: why it can't be.
pub async fn answer(
    shared: &Arc<Shared>,
    asked: InnerRequest,
    writer: impl FnOnce(&str) -> Box<dyn Writer>,
) -> Result<Response, Refusal> {
    let stream = asked.stream;
    let (name, ignored, mut answering) = begin(shared, asked).await?;
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
    let (_, _, mut answering) = begin(shared, asked).await?;
    whole(&mut answering, writer).await
}

async fn whole(answering: &mut Answering, writer: &mut dyn Writer) -> Result<Value, Refusal> {
    let (mut answer, mut bodies) = (Answer::default(), Vec::new());
    while let Some(item) = answering.next().await {
        let piece = item?;
        answer.push(&piece);
        match piece {
            Piece::Next(end) => bodies.push(writer.whole(std::mem::take(&mut answer), &end)),
            Piece::End(end) => {
                bodies.push(writer.whole(answer, &end));
                return Ok(writer.joined(bodies));
            }
            _ => {}
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
    let served = match shared.who(model.as_deref(), None, &team)? {
        Who::Model(served) => served,
        Who::Npc(npc) => {
            let message = format!("{npc} is an NPC, which only converses; name the model");
            return Err(Refusal::invalid("model", message));
        }
    };
    let name = model.filter(|name| shared.find(name).is_some()).unwrap_or_else(|| served.name.clone());
    let worker = shared.clone();
    let (sender, made) = oneshot::channel();
    let work: Work = Box::new(move |listener| {
        let _using = worker.keep.using(&served.spec, None);
        let model = worker.load(&served.spec)?;
        let (made, usage) = work(&*model, listener).map_err(|refusal| refusal.about(model.name()))?;
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
