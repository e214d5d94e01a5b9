//! Who hears of a turn, and of which: some are made in two phases.
//!
//! One that asks for calls and for JSON: one grammar for both would keep the model from calling,
//! since JSON is always possible.
//! So the first phase has the tools; its events are held back until it calls.
//! If it ends without a call, nobody hears of it, and the second phase answers the same prompt in
//! JSON.
//!
//! One that may call: if it writes as text what was meant as a call, that is [recovered](Recovery),
//! or, where it can't be, asked for by a second phase that must call.
//! Knows nothing of tokens.

use std::sync::mpsc;

use alara_text::request::{Event, Usage};

use super::Sequence;
use super::recovery::{Ending, Recovery};
use crate::Result;

/// Where the events of a turn go.
pub(crate) struct Listener {
    sender: mpsc::Sender<Result<Event>>,
    phase: Phase,
    /// The sequence that is generated after the turn.
    next: Option<Box<Sequence>>,
    /// What the phase before this one cost.
    spent: Option<Usage>,
}

/// What becomes of events.
enum Phase {
    /// Everything is heard.
    Only,
    /// Text and reasoning are held back until there is a call; without one the other sequence is
    /// generated in the turn's place.
    CallOr { instead: Box<Sequence>, held: Vec<Event> },
    /// Text that may be a call is held back; one that can't be made is made by the other sequence.
    Free { recovery: Recovery, again: Option<Box<Sequence>> },
}

impl Listener {
    /// One that hears everything.
    pub(crate) fn new(sender: mpsc::Sender<Result<Event>>) -> Self {
        Listener { sender, phase: Phase::Only, next: None, spent: None }
    }

    /// Has `other` generated in the turn's place if it ends without a call.
    pub(crate) fn otherwise(&mut self, other: Sequence) {
        self.phase = Phase::CallOr { instead: Box::new(other), held: Vec::new() };
    }

    /// Recovers calls from the text of the turn; `again` makes those that can't be.
    pub(crate) fn recover(&mut self, recovery: Recovery, again: Option<Sequence>) {
        self.phase = Phase::Free { recovery, again: again.map(Box::new) };
    }

    /// Takes the next event, or the error that ends the turn.
    /// False if nobody listens any more.
    pub(crate) fn send(&mut self, event: Result<Event>) -> bool {
        match (event, std::mem::replace(&mut self.phase, Phase::Only)) {
            (Ok(event @ (Event::Prefill { .. } | Event::PromptLogprobs { .. })), phase) => {
                self.phase = phase;
                self.sender.send(Ok(event)).is_ok()
            }
            // A call is known by the event itself, which comes after its tokens' probabilities.
            (
                Ok(event @ (Event::Text { .. } | Event::Reasoning { .. } | Event::Logprobs { .. })),
                Phase::CallOr { instead, mut held },
            ) => {
                held.push(event);
                self.phase = Phase::CallOr { instead, held };
                true
            }
            (Ok(Event::Done { usage, .. }), Phase::CallOr { mut instead, .. }) => {
                instead.events.spent = Some(usage);
                self.next = Some(instead);
                true
            }
            (event, Phase::CallOr { held, .. }) => self.pass(held.into_iter().map(Ok).chain([event])),
            (Ok(Event::Done { finish, usage }), Phase::Free { mut recovery, again }) => {
                let (events, ending) = recovery.end(finish, usage, again.is_some());
                if let (Ending::Again(usage), Some(mut again)) = (ending, again) {
                    again.events.spent = Some(*usage);
                    self.next = Some(again);
                }
                self.pass(events.into_iter().map(Ok))
            }
            (Ok(event), Phase::Free { mut recovery, again }) => {
                let events = recovery.push(event);
                self.phase = Phase::Free { recovery, again };
                self.pass(events.into_iter().map(Ok))
            }
            (Err(error), Phase::Free { mut recovery, .. }) => {
                self.pass(recovery.pass().into_iter().map(Ok).chain([Err(error)]))
            }
            (Ok(Event::Done { finish, usage }), Phase::Only) => {
                let mut total = self.spent.take().unwrap_or_default();
                total += usage;
                self.sender.send(Ok(Event::Done { finish, usage: total })).is_ok()
            }
            (event, Phase::Only) => self.sender.send(event).is_ok(),
        }
    }

    fn pass(&mut self, events: impl Iterator<Item = Result<Event>>) -> bool {
        events.into_iter().all(|event| self.sender.send(event).is_ok())
    }

    /// What is to be generated now that the turn is over.
    pub(crate) fn take_other(&mut self) -> Option<Sequence> {
        self.next.take().map(|sequence| *sequence)
    }
}
