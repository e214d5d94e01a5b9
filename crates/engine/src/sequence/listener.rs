//! Who hears of a turn, and of which: one that asks for calls and for JSON is made in two phases.
//!
//! One grammar for both would keep the model from calling: JSON is always possible.
//! So the first phase has the tools; its events are held back until it calls.
//! If it ends without a call, nobody hears of it, and the second phase answers the same prompt in
//! JSON.
//! Knows nothing of tokens.

use std::sync::mpsc;

use super::Sequence;
use crate::Result;
use crate::request::{Event, Usage};

/// Where the events of a turn go.
pub(crate) struct Listener {
    sender: mpsc::Sender<Result<Event>>,
    /// What is generated in the turn's place if it ends without a call.
    instead: Option<Box<Sequence>>,
    /// Text and reasoning of a first phase that may end without a call.
    held_back: Vec<Event>,
    /// What the phase before this one cost.
    spent: Option<Usage>,
}

impl Listener {
    /// One that hears everything.
    pub(crate) fn new(sender: mpsc::Sender<Result<Event>>) -> Self {
        Listener { sender, instead: None, held_back: Vec::new(), spent: None }
    }

    /// Has `other` generated in the turn's place if it ends without a call.
    pub(crate) fn otherwise(&mut self, other: Sequence) {
        self.instead = Some(Box::new(other));
    }

    /// Takes the next event, or the error that ends the turn.
    /// False if nobody listens any more.
    pub(crate) fn send(&mut self, event: Result<Event>) -> bool {
        match (event, &mut self.instead) {
            (Ok(event @ Event::Prefill { .. }), _) => self.sender.send(Ok(event)).is_ok(),
            // A call is known by the event itself, which comes after its tokens' probabilities.
            (
                Ok(event @ (Event::Text { .. } | Event::Reasoning { .. } | Event::Logprobs { .. })),
                Some(_),
            ) => {
                self.held_back.push(event);
                true
            }
            (Ok(Event::Done { usage, .. }), Some(instead)) => {
                instead.events.spent = Some(usage);
                true
            }
            (Ok(Event::Done { finish, usage }), None) => {
                let mut total = self.spent.take().unwrap_or_default();
                total += usage;
                self.sender.send(Ok(Event::Done { finish, usage: total })).is_ok()
            }
            (event, _) => {
                self.instead = None;
                self.held_back.drain(..).map(Ok).chain([event]).all(|event| self.sender.send(event).is_ok())
            }
        }
    }

    /// What is to be generated now that the turn is over.
    pub(crate) fn take_other(&mut self) -> Option<Sequence> {
        self.instead.take().map(|sequence| *sequence)
    }
}
