//! One turn of the model: its request, its reply, and the remainder of a reply that was cut off.

use std::time::Instant;

use alara_engine::{Event, Finish, Message, Request};

use super::{Agent, last_start};
use crate::calls::TurnReader;
use crate::error::Error;
use crate::run::session::Notice;
use crate::trace::{self, Record};
use crate::types::Outcome;

impl Agent<'_, '_> {
    /// The text of the latest run so far: that of its last turn with text.
    /// It may have been cut off.
    /// It serves as the answer if the run ends without one.
    pub fn text_so_far(&self) -> &str {
        &self.said
    }

    /// The reader for the model's next turn.
    pub(super) fn reader(&self) -> TurnReader {
        last_start(&self.records).map_or_else(TurnReader::default, |start| {
            TurnReader::new(start.calls, &start.tools, start.schema.is_some())
        })
    }

    /// Runs one turn of the model.
    /// If its prompt turns out to be too long, tries once more with a shorter conversation.
    pub(super) fn ask_or_shorten(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Result<(Message, Finish), Outcome>, Error> {
        match self.ask(trace::request(self.records()), deadline) {
            Err(Error::Model(error)) if error.too_long() && self.shorten(0, deadline)? => {
                self.ask(trace::request(self.records()), deadline)
            }
            asked => asked,
        }
    }

    /// Runs one turn of the model; the inner error is a reason to stop.
    fn ask(
        &mut self,
        request: Request,
        deadline: Option<Instant>,
    ) -> Result<Result<(Message, Finish), Outcome>, Error> {
        let mut message = Message::assistant("", Vec::new());
        let mut reasoning = String::new();
        let model = self.model.clone();
        let mut reader = self.reader();
        self.show_prompt(&request);
        let request = Request { until: self.caller(deadline).until(), ..request };
        let events = match model.chat(request) {
            Ok(events) => events,
            Err(error) => return self.caller(deadline).stopped().map(Err).ok_or(Error::Model(error)),
        };
        for event in events {
            let event = match event {
                Ok(event) => reader.read(event),
                Err(error) => {
                    self.cut_off(&mut message, &mut reader);
                    return self.caller(deadline).stopped().map(Err).ok_or(Error::Model(error));
                }
            };
            if let Some(event) = &event {
                self.session.notify(&Notice::Event { depth: self.depth, event });
            }
            match event {
                Some(Event::Text { text }) => self.say(&mut message, &text),
                Some(Event::Reasoning { text }) => reasoning += &text,
                Some(Event::ToolCall(call)) => message.tool_calls.push(call),
                Some(Event::Done { finish, mut usage }) => {
                    self.tell_loosened(&usage.loosened);
                    message.reasoning_content = (!reasoning.is_empty()).then_some(reasoning);
                    let finish = self.take_written(&mut message, finish, &mut usage);
                    self.push(Record::Assistant { message: message.clone(), finish, usage })?;
                    return Ok(Ok((message, finish)));
                }
                // The pieces of a call arrive again as a whole call; one that the end of the turn
                // cut off never runs.
                Some(
                    Event::Prefill { .. }
                    | Event::ToolCallDelta { .. }
                    | Event::Incomplete { .. }
                    | Event::Logprobs { .. }
                    | Event::PromptLogprobs { .. },
                )
                | None => {}
            }
            if let Some(stopped) = self.caller(deadline).stopped() {
                self.cut_off(&mut message, &mut reader);
                return Ok(Err(stopped));
            }
        }
        Err(Error::NoEnd)
    }

    /// Adds a piece of text to the turn's message.
    fn say(&mut self, message: &mut Message, text: &str) {
        if message.content.is_empty() && !text.is_empty() {
            self.said.clear();
        }
        self.said += text;
        message.content += text;
    }

    /// Sends the rest of the text that a turn had written when it was cut off.
    fn cut_off(&mut self, message: &mut Message, reader: &mut TurnReader) {
        if let Some(text) = reader.unfinished() {
            let event = Event::Text { text };
            self.session.notify(&Notice::Event { depth: self.depth, event: &event });
            if let Event::Text { text } = event {
                self.say(message, &text);
            }
        }
    }

    /// Warns once about each guarantee that calls lack.
    fn tell_loosened(&mut self, loosened: &[String]) {
        for what in loosened {
            if !self.loosened.contains(what) {
                let warning = format!("{what}; it is checked when a call arrives");
                self.session.notify(&Notice::Warning(&warning));
                self.loosened.push(what.clone());
            }
        }
    }
}
