//! A model that says what a script tells it: for tests.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use alara_engine::{Event, Finish, Request, ToolCall, Usage};
use serde::{Deserialize, Serialize};

use super::{ChatModel, Events, ModelError};

/// One turn of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// What the model says.
    pub text: String,
    /// What it calls; an empty `id` is replaced by a fresh one.
    pub calls: Vec<ToolCall>,
    /// A call that is cut off: the tool, and the beginning of its arguments. The turn then ends by its length.
    pub cut: Option<(String, String)>,
    /// Why the turn ends; by default `ToolCalls` if there are any, `Stop` otherwise.
    pub finish: Option<Finish>,
}

impl Reply {
    /// A turn that only says `text`.
    pub fn text(text: impl Into<String>) -> Self {
        Reply { text: text.into(), ..Reply::default() }
    }

    /// A turn that only calls `name`; arguments that are no object are left out.
    pub fn call(name: &str, arguments: serde_json::Value) -> Self {
        let arguments = match arguments {
            serde_json::Value::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        let call = ToolCall { id: String::new(), name: name.to_owned(), arguments };
        Reply { calls: vec![call], ..Reply::default() }
    }
}

/// Gives its replies one after the other, whatever it is asked, and remembers what it was asked.
#[derive(Debug, Default)]
pub struct Scripted {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: Vec<Request>,
    calls: usize,
}

impl Scripted {
    /// A model with these replies.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let state = State { replies: replies.into_iter().collect(), ..State::default() };
        Scripted { state: Mutex::new(state) }
    }

    /// Reads a script: a JSON array of `{text?, calls?: [{name, arguments}], finish?}`.
    ///
    /// # Errors
    /// The text is no such array.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Scripted::new(serde_json::from_str::<Vec<Reply>>(text)?))
    }

    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }
}

impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "script"
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests.push(request);
        let turns = state.requests.len();
        let reply = state.replies.pop_front();
        let reply =
            reply.ok_or_else(|| ModelError::new(format!("the script has no reply for turn {turns}")))?;
        let mut events = Vec::new();
        // In pieces, as a model does it.
        events.extend(reply.text.split_inclusive(' ').map(|text| Event::Text { text: text.to_owned() }));
        let pieces = events.len() + reply.calls.len();
        let default = match (&reply.cut, reply.calls.is_empty()) {
            (Some(_), _) => Finish::Length,
            (None, true) => Finish::Stop,
            (None, false) => Finish::ToolCalls,
        };
        for (index, mut call) in reply.calls.into_iter().enumerate() {
            state.calls += 1;
            if call.id.is_empty() {
                call.id = format!("call_{}", state.calls);
            }
            let arguments = serde_json::to_string(&call.arguments).map_err(ModelError::new)?;
            let delta = |name, arguments| Event::ToolCallDelta { index, name, arguments };
            events.push(delta(Some(call.name.clone()), String::new()));
            events.extend(arguments.split_inclusive(' ').map(|piece| delta(None, piece.to_owned())));
            events.push(Event::ToolCall(call));
        }
        if let Some((name, arguments)) = reply.cut {
            events.push(Event::Incomplete { name, arguments });
        }
        let usage = Usage { completion_tokens: pieces, ..Usage::default() };
        events.push(Event::Done { finish: reply.finish.unwrap_or(default), usage });
        Ok(Box::new(events.into_iter().map(Ok)))
    }
}
