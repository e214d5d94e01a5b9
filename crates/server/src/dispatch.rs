//! Routes a request to the model or NPC that answers it, and sends the response; shared by all wire
//! formats.

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

/// State shared by all connections.
pub struct Shared {
    pub workplace: Arc<dyn Workplace>,
    pub access: Access,
    pub slots: Slots,
    pub metrics: Arc<Metrics>,
    /// The default model, which is loaded at startup.
    pub default: Served,
    /// Whether unknown names mean the default model, like a missing name.
    pub any_model: bool,
    /// How long models stay loaded.
    pub keep: Keep,
    /// Whether clients may download models.
    pub allow_pull: bool,
    /// Permits one download at a time.
    pub pulls: Arc<Semaphore>,
    pub team: Mutex<Arc<Team>>,
    /// Whether a person named the team when the server started.
    pub named_team: bool,
    /// Questions of NPCs' runs that wait for answers.
    pub questions: Questions,
    /// The beginnings of recent prompts.
    pub heads: Heads,
    /// Conversations that later requests continue.
    pub store: Arc<Store>,
    /// Start of the server, in seconds since 1970.
    pub began: u64,
    pub request_time: Duration,
    pub head_time: Duration,
}

/// Which model or NPC answers.
enum Who {
    Model(Served),
    Npc(String),
}

impl Shared {
    /// Returns the team with the current contents of its files.
    /// If they can't be read, the team remains as it was.
    fn read_team(&self) -> Arc<Team> {
        let mut team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        if team.changed()
            && let Some(read) = self.workplace.team()
        {
            *team = Arc::new(read);
        }
        team.clone()
    }

    /// Returns all models, the default one first.
    pub fn models(&self) -> Vec<Served> {
        let others = self.workplace.served().into_iter().filter(|model| model.spec != self.default.spec);
        std::iter::once(self.default.clone()).chain(others).collect()
    }

    /// Returns the model that `name` means.
    pub fn find(&self, name: &str) -> Option<Served> {
        Served::find(&self.models(), name).cloned()
    }

    /// Returns the data about `name`, or about every model and NPC.
    /// Reads files, but loads no models.
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

    /// Whether the page starts with the NPC `name`: it leads a team that was named.
    pub fn leads(&self, team: &Team, name: &str) -> bool {
        self.named_team && team.npc(None).is_ok_and(|npc| npc.name == name)
    }

    /// Returns the clients' name for the model with this spec.
    pub fn name_of(&self, models: &[Served], spec: &ModelSpec) -> String {
        let served = models.iter().find(|model| model.spec == *spec);
        served.map_or_else(|| called(&spec.to_string()).to_owned(), |model| model.name.clone())
    }

    /// Resolves a request that names a model, an NPC, both or neither.
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

    /// Returns the refusal of an unknown name.
    pub fn unknown(&self, param: &str, name: &str, team: &Team) -> Refusal {
        let message = format!("there is no model `{name}` (known: {})", self.known(team).join(", "));
        Refusal::unknown(param, message).coded("model_not_found")
    }

    /// Returns the spec of the model that `name` means, or of an NPC's model.
    /// Without a name, it is the default model; if that is the only one served, any name works.
    ///
    /// # Errors
    /// There is no such model or NPC.
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

    /// Returns the model with this spec, loading it if necessary.
    fn load(&self, spec: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, Refusal> {
        let model = self.workplace.models().model(spec);
        model.map_err(|error| Refusal::from(&error).about(&spec.to_string()))
    }

    /// Loads the model that `name` means, or unloads it if `goes` is set.
    /// `asked` overrides how long it stays loaded.
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

    /// Returns the names of all models and NPCs.
    pub fn known(&self, team: &Team) -> Vec<String> {
        let npcs = team.npcs.iter().map(|npc| npc.name.clone());
        self.models().into_iter().map(|model| model.name).chain(npcs).collect()
    }

    /// Refuses a request that names an NPC and a model that the NPC doesn't use.
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

    /// Has the model with this spec answer; its calls pass through the gate, if there is one.
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

/// Runs `work` on a thread that may block, as required to read files or call a model.
///
/// # Errors
/// The error of `work`, or that it was aborted.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::silent())?
}

/// Sets its flag when dropped, for example when the request's client leaves.
#[derive(Default)]
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread that may block, within a time limit and as long as its client is
/// connected; signals `work` when it has to end.
///
/// # Errors
/// The time limit is exceeded, or as for [`blocking`].
async fn while_asked<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce(&Until) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let (leaving, deadline) = (Leaving::default(), Instant::now() + time);
    let until = Until { cancelled: Some(leaving.0.clone()), deadline: Some(deadline.into_std()) };
    timeout_at(deadline, blocking(move || work(&until))).await.unwrap_or_else(|_| Err(Refusal::late()))
}

/// Unloads models as their time expires, for as long as the server runs.
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

/// Returns the team with the current contents of its files.
///
/// # Errors
/// The search for it was aborted.
pub async fn team(shared: &Arc<Shared>) -> Result<Arc<Team>, Refusal> {
    let shared = shared.clone();
    blocking(move || Ok(shared.read_team())).await
}

/// Runs `ask` with the model that `name` means; see [`Shared::spec`].
/// Loads the model if necessary.
///
/// # Errors
/// There is no such model, or `ask` fails.
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

/// Like [`with_model`], for a model that runs on this machine.
///
/// # Errors
/// It runs elsewhere, or as for [`with_model`].
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

/// Runs `ask` with the prompt of a request, or that of an NPC if the request names one.
///
/// # Errors
/// The model runs elsewhere, the NPC can't take the request, or `ask` fails.
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

/// Starts the answer; returns the name that answers, and the ignored parts of the request.
///
/// # Errors
/// There is no such model, or it can't be loaded.
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

/// Answers a request, in the wire format of the `writer` created for the model's name.
///
/// # Errors
/// If nothing has been sent, the reason for the refusal.
pub async fn answer(
    shared: &Arc<Shared>,
    asked: InnerRequest,
    writer: impl FnOnce(&str) -> Box<dyn Writer>,
) -> Result<Response, Refusal> {
    let stream = asked.stream;
    let (name, ignored, mut answering) = begin(shared, asked).await?;
    let mut writer = writer(&name);
    let mut response = if stream {
        // Until the work has begun, it can still be refused with a status.
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

/// Returns the whole answer to a request, as written by `writer`.
///
/// # Errors
/// As for [`answer`], or that the answer was cut off.
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

/// Runs `work` with the model that a request names, in a slot, for results that aren't a stream of
/// pieces; also returns the name that answers.
///
/// # Errors
/// There is no such model, it is an NPC, as for [`answer`], or `work` fails.
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
        // It is no error if the receiver is gone.
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
