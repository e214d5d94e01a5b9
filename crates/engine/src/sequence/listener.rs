//! Decides which events of a turn the client gets: some turns have two phases.
//!
//! One kind asks for calls and for JSON: a single grammar for both would keep the model from
//! calling, since JSON is always possible.
//! So the first phase has the tools; its events are held back until a call.
//! If it ends without a call, also without one in its text, its events are dropped, and the second
//! phase answers the same prompt in JSON.
//!
//! The other kind may call: if it writes a call as text, that is [recovered](Recovery), or, if that
//! fails, a second phase must make the call.
//! Knows nothing of tokens.

use std::sync::mpsc;

use alara_text::request::{Event, Usage};

use super::Sequence;
use super::recovery::{Ending, Recovery};
use crate::Result;

/// The receiver of a turn's events.
pub(crate) struct Listener {
    sender: mpsc::Sender<Result<Event>>,
    phase: Phase,
    /// The sequence to generate after this one.
    next: Option<Box<Sequence>>,
    /// The usage of the first phase.
    spent: Option<Usage>,
}

/// The treatment of events.
enum Phase {
    /// Passes on everything.
    Only,
    /// Holds back text and reasoning until a call; without one the other sequence is generated
    /// instead.
    CallOr { instead: Box<Sequence>, held: Vec<Event>, recovery: Recovery },
    /// Holds back text that may be a call; the other sequence makes one that can't be recovered.
    Free { recovery: Recovery, again: Option<Box<Sequence>> },
}

impl Listener {
    /// Passes on everything to `sender`.
    pub(crate) fn new(sender: mpsc::Sender<Result<Event>>) -> Self {
        Listener { sender, phase: Phase::Only, next: None, spent: None }
    }

    /// Sets the sequence to generate instead if the turn ends without a call, also in its text.
    pub(crate) fn otherwise(&mut self, other: Sequence, recovery: Recovery) {
        self.phase = Phase::CallOr { instead: Box::new(other), held: Vec::new(), recovery };
    }

    /// Recovers calls from the text of the turn; `again` makes those that can't be recovered.
    pub(crate) fn recover(&mut self, recovery: Recovery, again: Option<Sequence>) {
        self.phase = Phase::Free { recovery, again: again.map(Box::new) };
    }

    /// Passes on the next event, or the error that ends the turn.
    /// False if the receiver has gone away.
    pub(crate) fn send(&mut self, event: Result<Event>) -> bool {
        match (event, std::mem::replace(&mut self.phase, Phase::Only)) {
            (Ok(event @ (Event::Prefill { .. } | Event::PromptLogprobs { .. })), phase) => {
                self.phase = phase;
                self.sender.send(Ok(event)).is_ok()
            }
            // A call is recognized by its own event, which follows its tokens' probabilities.
            (
                Ok(event @ (Event::Text { .. } | Event::Reasoning { .. } | Event::Logprobs { .. })),
                Phase::CallOr { instead, mut held, recovery },
            ) => {
                held.push(event);
                self.phase = Phase::CallOr { instead, held, recovery };
                true
            }
            (Ok(Event::Done { finish, usage }), Phase::CallOr { mut instead, held, mut recovery }) => {
                let mut events: Vec<Event> =
                    held.into_iter().flat_map(|event| recovery.push(event)).collect();
                events.extend(recovery.end(finish, usage.clone(), false).0);
                if events.iter().any(|event| matches!(event, Event::ToolCall(_))) {
                    return self.pass(events.into_iter().map(Ok));
                }
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

    /// The sequence to generate now that the turn is over.
    pub(crate) fn take_other(&mut self) -> Option<Sequence> {
        self.next.take().map(|sequence| *sequence)
    }
}
