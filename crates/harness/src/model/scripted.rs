//! A model that follows a script: for tests.

use std::sync::{Mutex, PoisonError};

use alara_engine::{Event, Finish, Request, Role, ToolCall, Usage};
use serde::{Deserialize, Serialize};

use super::{ChatModel, Events, ModelError};

/// One turn of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// The reply is only for conversations whose last user message contains this text.
    /// Without it, the reply is for any conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The text that the model writes.
    pub text: String,
    /// Its calls; an empty `id` is replaced by one made from the call's position in the script.
    pub calls: Vec<ToolCall>,
    /// A call that is cut off: the tool, and the beginning of its arguments.
    /// The turn then ends because of its length.
    pub cut: Option<(String, String)>,
    /// Why the turn ends; by default `ToolCalls` if there are any, `Stop` otherwise.
    pub finish: Option<Finish>,
}

impl Reply {
    /// A turn that only writes `text`.
    pub fn text(text: impl Into<String>) -> Self {
        Reply { text: text.into(), ..Reply::default() }
    }

    /// A turn that only calls `name`; arguments that aren't an object are left out.
    pub fn call(name: &str, arguments: serde_json::Value) -> Self {
        let arguments = match arguments {
            serde_json::Value::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        let call = ToolCall { id: String::new(), name: name.to_owned(), arguments };
        Reply { calls: vec![call], ..Reply::default() }
    }

    /// This turn, only for conversations whose last user message contains `text`.
    #[must_use]
    pub fn when(self, text: impl Into<String>) -> Self {
        Reply { when: Some(text.into()), ..self }
    }
}

/// Returns its replies in order, and records its requests.
///
/// A request gets the first remaining reply for its last user message.
/// Otherwise it gets the first remaining reply for any conversation.
/// So conversations that run at the same time each get the same replies in every run.
#[derive(Debug, Default)]
pub struct Scripted {
    state: Mutex<Scripts>,
}

#[derive(Debug, Default)]
struct Scripts {
    replies: Vec<Reply>,
    requests: Vec<Request>,
}

impl Scripted {
    /// A model with these replies.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: Vec<Reply> = replies.into_iter().collect();
        let calls = replies.iter_mut().flat_map(|reply| &mut reply.calls);
        for (index, call) in calls.enumerate().filter(|(_, call)| call.id.is_empty()) {
            call.id = format!("call_{}", index + 1);
        }
        Scripted { state: Mutex::new(Scripts { replies, requests: Vec::new() }) }
    }

    /// Parses a script: a JSON array of `{when?, text?, calls?: [{name, arguments}], finish?}`.
    ///
    /// # Errors
    /// The text is not such an array.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Scripted::new(serde_json::from_str::<Vec<Reply>>(text)?))
    }

    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }
}

impl Scripts {
    /// The next reply to `request`.
    fn reply(&mut self, request: Request) -> Option<Reply> {
        let prompt = request.messages.iter().rfind(|message| message.role == Role::User);
        let prompt = prompt.map_or("", |message| message.content.as_str());
        let meant = |reply: &Reply| reply.when.as_ref().is_some_and(|text| prompt.contains(text));
        let at = self.replies.iter().position(meant);
        let at = at.or_else(|| self.replies.iter().position(|reply| reply.when.is_none()));
        let reply = at.map(|at| self.replies.remove(at));
        self.requests.push(request);
        reply
    }
}

impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "script"
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = state.reply(request);
        let turns = state.requests.len();
        let reply =
            reply.ok_or_else(|| ModelError::new(format!("the script has no reply for turn {turns}")))?;
        let mut events = Vec::new();
        // In pieces, like a real model.
        events.extend(reply.text.split_inclusive(' ').map(|text| Event::Text { text: text.to_owned() }));
        let pieces = events.len() + reply.calls.len();
        let default = match (&reply.cut, reply.calls.is_empty()) {
            (Some(_), _) => Finish::Length,
            (None, true) => Finish::Stop,
            (None, false) => Finish::ToolCalls,
        };
        for (index, call) in reply.calls.into_iter().enumerate() {
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

#[cfg(test)]
mod tests {
    use alara_engine::Message;
    use serde_json::json;

    use super::*;

    /// The model's text and calls for the task `task`.
    fn ask(model: &Scripted, task: &str) -> String {
        let request = Request { messages: vec![Message::user(task)], ..Request::default() };
        let Ok(events) = model.chat(request) else { return "nothing".into() };
        let texts = events.map(|event| match event.unwrap() {
            Event::Text { text } => text,
            Event::ToolCall(call) => format!("{}/{} ", call.name, call.id),
            _ => String::new(),
        });
        texts.collect()
    }

    #[test]
    fn replies_go_to_whom_they_are_meant_for() {
        let model = || {
            Scripted::new([
                Reply::text("any 1"),
                Reply::call("f", json!({})).when("red"),
                Reply::text("blue 1").when("blue"),
                Reply::text("red 2").when("red"),
                Reply::call("g", json!({})),
            ])
        };
        let check = |order: &[(&str, &str)]| {
            let model = model();
            for (task, expected) in order {
                assert_eq!(ask(&model, task), *expected, "{order:?}");
            }
        };
        // Ids are those of the script, in any order of conversations.
        check(&[
            ("a red one", "f/call_1 "),
            ("a red one", "red 2"),
            ("a blue one", "blue 1"),
            ("x", "any 1"),
        ]);
        check(&[("a blue one", "blue 1"), ("x", "any 1"), ("x", "g/call_2 "), ("a red one", "f/call_1 ")]);
        // A conversation without replies of its own takes the others.
        check(&[("blue", "blue 1"), ("blue", "any 1"), ("blue", "g/call_2 "), ("blue", "nothing")]);
    }

    #[test]
    fn scripts_read_and_write_json() {
        let text = r#"[{"when":"red","text":"a","calls":[],"cut":null,"finish":null}]"#;
        let replies: Vec<Reply> = serde_json::from_str(text).unwrap();
        assert_eq!(replies, [Reply::text("a").when("red")]);
        assert_eq!(serde_json::to_string(&replies).unwrap(), text);
        assert!(Scripted::from_json(r#"[{"text": "a", "then": 1}]"#).is_err());
    }
}
