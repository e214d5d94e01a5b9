//! A loaded model, and its turns.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use alara_engine::{
    Device, EmbedInput, Engine, Events, Format, KvType, Offload, Options, Request, Sampling, nearest,
};
use alara_models::shipped;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{raised, read};
use crate::{models, wait};

/// Arguments of `alara.Engine` other than the model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    context: Option<usize>,
    parallel: Option<usize>,
    kv: Option<String>,
    kv_gb: Option<f64>,
    device: Option<String>,
    gpu_layers: Option<usize>,
    threads: Option<usize>,
    tool_format: Option<String>,
    chat_template: Option<PathBuf>,
    thinking: Option<bool>,
    drafts: Option<bool>,
}

impl Settings {
    fn options(self, py: Python) -> PyResult<Options> {
        let default = Options::default();
        let chat_template = self.chat_template.map(|path| {
            std::fs::read_to_string(&path).map_err(|error| raised(py, &path.display().to_string(), &error))
        });
        if self.threads == Some(0) || self.parallel == Some(0) {
            return Err(PyValueError::new_err("threads and parallel are numbers from 1 up"));
        }
        Ok(Options {
            context: self.context,
            parallel: self.parallel.unwrap_or(default.parallel),
            kv: said("kv", self.kv.as_deref())?.unwrap_or(KvType::F16),
            kv_bytes: self.kv_gb.map(|gb| (gb * 1e9) as u64),
            offload: Offload {
                device: said("device", self.device.as_deref())?.unwrap_or(Device::Auto),
                layers: self.gpu_layers,
                memory: None,
            },
            threads: self.threads.unwrap_or(default.threads),
            tool_format: self.tool_format.as_deref().map(tool_format).transpose()?,
            chat_template: chat_template.transpose()?,
            thinking: self.thinking,
            drafts: self.drafts.unwrap_or(default.drafts),
            ..default
        })
    }
}

/// Parses a name; an error mentions the argument.
fn said<T: FromStr>(argument: &str, text: Option<&str>) -> PyResult<Option<T>>
where
    T::Err: std::fmt::Display,
{
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|error: T::Err| PyValueError::new_err(format!("{argument}: {error}")))
}

fn tool_format(name: &str) -> PyResult<&'static Format> {
    let known = || Format::all().iter().map(|format| format.name);
    Format::from_name(name).ok_or_else(|| {
        let near =
            nearest(name, known()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let known = known().collect::<Vec<_>>().join(", ");
        PyValueError::new_err(format!("tool_format: `{name}` is none of {known}{near}"))
    })
}

/// A loaded model.
#[pyclass(name = "Engine", module = "alara._alara", frozen)]
pub struct PyEngine(pub Arc<Engine>);

#[pymethods]
impl PyEngine {
    #[new]
    fn new(py: Python, model: Option<String>, settings: &str) -> PyResult<Self> {
        let options = read::<Settings>(settings)?.options(py)?;
        let place = model.clone().unwrap_or_else(|| shipped::NAME.to_owned());
        let gguf = wait::work(py, || models::open(model.as_deref()))?;
        let gguf = gguf.map_err(|error| raised(py, &place, &error))?;
        let engine = wait::work(py, || Engine::load(&gguf, &options))?;
        Ok(PyEngine(Arc::new(engine.map_err(|error| raised(py, &place, &error))?)))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn context(&self) -> usize {
        self.0.context()
    }

    #[getter]
    fn is_encoder(&self) -> bool {
        self.0.is_encoder()
    }

    #[getter]
    fn tool_format(&self) -> Option<&'static str> {
        self.0.format().map(|format| format.name)
    }

    #[getter]
    fn chat_template(&self) -> &str {
        self.0.template()
    }

    #[getter]
    fn vocabulary(&self) -> usize {
        self.0.tokenizer().len()
    }

    /// Returns notes for the user on how the model was loaded.
    #[getter]
    fn notes(&self) -> Vec<&str> {
        let engine = &self.0;
        [engine.placement_note(), engine.template_note(), engine.tokenizer_note()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn generate(&self, py: Python, request: &str) -> PyResult<PyEvents> {
        let request = self.request(request)?;
        let events = py.detach(|| self.0.generate(&request));
        let events = events.map_err(|error| raised(py, self.name(), &error))?;
        Ok(PyEvents { events: Mutex::new(Some(events)), engine: self.0.clone() })
    }

    fn prompt(&self, py: Python, request: &str) -> PyResult<String> {
        let request = self.request(request)?;
        self.0.prompt(&request).map_err(|error| raised(py, self.name(), &error))
    }

    fn prompt_tokens(&self, py: Python, request: &str) -> PyResult<Vec<u32>> {
        let request = self.request(request)?;
        self.0.prompt_tokens(&request).map_err(|error| raised(py, self.name(), &error))
    }

    fn tokenize(&self, py: Python, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let tokens = py.detach(|| self.0.tokenizer().encode(text, special));
        tokens.map_err(|error| raised(py, self.name(), &error))
    }

    fn detokenize(&self, tokens: Vec<u32>, special: bool) -> PyResult<String> {
        let vocabulary = self.0.tokenizer().len();
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let reason = format!("tokens: {token} is outside the vocabulary of {vocabulary}");
            return Err(PyValueError::new_err(reason));
        }
        Ok(self.0.tokenizer().decode(&tokens, special))
    }

    fn embed(&self, py: Python, texts: Vec<String>, truncate: bool) -> PyResult<Vec<Vec<f32>>> {
        let inputs: Vec<EmbedInput> = texts.into_iter().map(EmbedInput::Text).collect();
        let embeddings = wait::work(py, || self.0.embed(&inputs, truncate))?;
        Ok(embeddings.map_err(|error| raised(py, self.name(), &error))?.vectors)
    }
}

impl PyEngine {
    /// Parses a request, and fills in the sampling parameters recommended by the model's file.
    fn request(&self, json: &str) -> PyResult<Request> {
        /// Fields whose defaults depend on the model.
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            sampling: Map<String, Value>,
        }
        let said: Said = read(json)?;
        let mut request: Request = read(json)?;
        // Sampling parameters are numbers and strings, whose conversion to JSON can't fail.
        let model = serde_json::to_value(self.0.sampling()).unwrap_or_default();
        if let Value::Object(mut all) = model {
            all.extend(said.sampling);
            let all = serde_json::to_string(&all).unwrap_or_default();
            request.sampling = read::<Sampling>(&all)?;
        }
        Ok(request)
    }
}

/// The events of one turn.
#[pyclass(name = "Events", module = "alara._alara", frozen)]
pub struct PyEvents {
    /// `None` once it was cancelled.
    events: Mutex<Option<Events>>,
    /// Dropped after the events, which may still be generated.
    engine: Arc<Engine>,
}

#[pymethods]
impl PyEvents {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python) -> PyResult<Option<String>> {
        loop {
            let event = py.detach(|| {
                let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
                events.as_mut().map_or(Poll::Ready(None), |events| events.poll(wait::BEAT))
            });
            match event {
                Poll::Ready(None) => return Ok(None),
                Poll::Ready(Some(Ok(event))) => {
                    return Ok(Some(serde_json::to_string(&event).unwrap_or_default()));
                }
                Poll::Ready(Some(Err(error))) => return Err(raised(py, self.engine.name(), &error)),
                Poll::Pending => {
                    if let Err(interrupt) = py.check_signals() {
                        self.cancel(py);
                        return Err(interrupt);
                    }
                }
            }
        }
    }

    fn cancel(&self, py: Python) {
        py.detach(|| *self.events.lock().unwrap_or_else(PoisonError::into_inner) = None);
    }
}
