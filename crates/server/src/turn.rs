//! Runs one turn of the model, or several for the same request.

use alara_engine::{Elsewhere, Event, Finish, Request, Sampling, TokenLogprobs, Usage};
use alara_harness::model::Events;
use alara_harness::{ChatModel, ModelError};
use serde_json::{Value, json};

use crate::answer::{End, Piece};
use crate::refusal::Refusal;
use crate::slots::Listener;

/// Has `model` continue the conversation of `request`, `choices` times.
///
/// Sends the first answer as it is generated; generates the others at the same time, and sends them
/// after it.
/// `missed` returns why so much of the prompt had to be computed, if that is known.
///
/// # Errors
/// The model refuses, or fails.
pub fn complete(
    model: &dyn ChatModel,
    request: &Request,
    choices: usize,
    listener: &Listener,
    missed: &dyn Fn(&Usage) -> Option<String>,
) -> Result<(), Refusal> {
    if let Some(field) = for_engines(request).filter(|_| model.local().is_none()) {
        let message = format!("`{field}` takes a model of this machine; {} runs elsewhere", model.name());
        return Err(Refusal::unable(message));
    }
    let refused = |error: ModelError| Refusal::from(&error);
    let chat = |index: usize| {
        let sampling = request.sampling.for_choice(index);
        // All answers share the prompt.
        let prompt_logprobs = request.prompt_logprobs.filter(|_| index == 0);
        model.chat(Request { sampling, prompt_logprobs, ..request.clone() }).map_err(refused)
    };
    let mut first = chat(0)?.peekable();
    listener.send(Ok(Piece::Begun));
    // When the first answer begins, its prompt is cached, and the others can use it.
    let mut others = Vec::new();
    if choices > 1 && first.peek().is_some() {
        others = (1..choices).map(chat).collect::<Result<Vec<_>, _>>()?;
    }
    let mut total: Option<Usage> = None;
    let turns = std::iter::once(Box::new(first) as Events).chain(others);
    let mut prompt = None;
    for (index, events) in turns.enumerate() {
        if let Some(tokens) = prompt.clone().filter(|_| index > 0)
            && !listener.send(Ok(Piece::PromptLogprobs(tokens)))
        {
            return Ok(());
        }
        let Some(mut end) = one(events, &mut prompt, listener)? else { return Ok(()) };
        let last = index + 1 == choices.max(1);
        total = Some(match total {
            None => end.usage.clone(),
            Some(total) => sum(total, &end.usage),
        });
        if let (true, Some(total)) = (last, &total) {
            end.usage = total.clone();
            if let Some(miss) = missed(total) {
                end.alara.get_or_insert_with(|| json!({}))["miss"] = miss.into();
            }
        }
        let end = Box::new(end);
        if !listener.send(Ok(if last { Piece::End(end) } else { Piece::Next(end) })) {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends the events of a turn, and returns how it ended.
/// `prompt` takes the tokens of the prompt, if they are among the events.
/// `None` if the client has left.
fn one(
    events: Events,
    prompt: &mut Option<Vec<TokenLogprobs>>,
    listener: &Listener,
) -> Result<Option<End>, Refusal> {
    let mut cut_off: Option<String> = None;
    let mut calls = 0;
    // Whether tokens were sent just before, which an empty text accompanies.
    let mut logged = false;
    for event in events {
        // Returning drops the events, which cancels the turn.
        if listener.is_left() {
            return Ok(None);
        }
        let piece = match event.map_err(|error| Refusal::from(&error))? {
            // Text that is held back has nothing to send yet.
            Event::Text { text } if text.is_empty() && !logged => continue,
            Event::Text { text } => Piece::Text(text),
            Event::Reasoning { text } => Piece::Reasoning(text),
            Event::Logprobs { tokens } => Piece::Logprobs(tokens),
            Event::PromptLogprobs { tokens } => {
                *prompt = Some(tokens.clone());
                Piece::PromptLogprobs(tokens)
            }
            Event::ToolCall(call) => {
                calls += 1;
                Piece::Call(call)
            }
            Event::Done { finish, usage } => {
                let alara = about(finish, &usage);
                let finish = match (finish, cut_off) {
                    // Calls before the repetition are to be run.
                    (Finish::Repetition, _) if calls > 0 => Finish::ToolCalls,
                    (Finish::Repetition, Some(name)) => return Err(Refusal::repetition(&name)),
                    (finish, _) => finish,
                };
                return Ok(Some(End { finish, usage, alara }));
            }
            // Calls are sent whole, with the id that the model gives them at the end; a truncated
            // one isn't a call.
            Event::Prefill { .. } | Event::ToolCallDelta { .. } => continue,
            Event::Incomplete { name, .. } => {
                cut_off = Some(name);
                continue;
            }
        };
        logged = matches!(piece, Piece::Logprobs(_));
        if !listener.send(Ok(piece)) {
            return Ok(None);
        }
    }
    Err(Refusal::silent())
}

/// Returns data for which other APIs have no field.
fn about(finish: Finish, usage: &Usage) -> Option<Value> {
    let mut alara = json!({});
    if finish == Finish::Repetition {
        // The answer is truncated, as by a limit.
        alara["finish"] = "repetition".into();
    }
    if !usage.loosened.is_empty() {
        // Whoever runs the calls has to check these properties.
        alara["loosened"] = json!(usage.loosened);
    }
    Some(alara).filter(|alara| *alara != json!({}))
}

/// Adds up the usage of several answers to one prompt, which counts once.
fn sum(total: Usage, more: &Usage) -> Usage {
    let mut times = total.clone();
    times += more.clone();
    Usage {
        untimed_tokens: times.untimed_tokens,
        completion_tokens: total.completion_tokens + more.completion_tokens,
        decode_time: total.decode_time + more.decode_time,
        stop_text: more.stop_text.clone(),
        drafts: alara_engine::DraftUsage {
            drafted: total.drafts.drafted + more.drafts.drafted,
            accepted: total.drafts.accepted + more.drafts.accepted,
        },
        ..total
    }
}

/// Returns a setting of a request that requires an engine and can't be sent to an endpoint.
fn for_engines(request: &Request) -> Option<&'static str> {
    let changed = request.sampling.changed();
    let steps = Sampling::PARAMETERS.iter().filter(|one| one.elsewhere == Elsewhere::Refused);
    let named = [
        ("prompt", request.is_raw()),
        ("ignore_eos", request.ignore_eos),
        ("grammar", request.grammar.is_some()),
        ("logprobs", request.logprobs.is_some()),
    ];
    let steps = steps.map(|one| (one.name, changed.get(one.name).is_some()));
    named.into_iter().chain(steps).find_map(|(name, said)| said.then_some(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::answer::Item;
    use crate::slots::Slots;

    /// A model that always gives the same answer.
    struct Fixed(Vec<Event>);

    impl ChatModel for Fixed {
        fn name(&self) -> &str {
            "fixed"
        }

        fn chat(&self, _request: Request) -> Result<Events<'_>, ModelError> {
            Ok(Box::new(self.0.clone().into_iter().map(Ok)))
        }
    }

    fn told(events: Vec<Event>, request: Request, choices: usize) -> Vec<Item> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let slots = Slots::new(1, 1, Duration::from_secs(5), Arc::default());
            let work =
                move |listener: &Listener| complete(&Fixed(events), &request, choices, listener, &|_| None);
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut answering = slots.start(deadline, Box::new(work)).await.unwrap();
            let mut items = Vec::new();
            while let Some(item) = answering.next().await {
                items.push(item);
            }
            items
        })
    }

    fn text(text: &str) -> Event {
        Event::Text { text: text.into() }
    }

    fn done(finish: Finish) -> Event {
        let usage = Usage { prompt_tokens: 3, completion_tokens: 1, ..Usage::default() };
        Event::Done { finish, usage }
    }

    #[test]
    fn a_call_that_repeats_itself_is_an_error_and_not_an_empty_answer() {
        let cut_off = Event::Incomplete { name: "f".into(), arguments: "[1, 1, 1".into() };
        let items = told(vec![cut_off.clone(), done(Finish::Repetition)], Request::default(), 1);
        let Some(Err(refusal)) = items.last() else { panic!("{items:?}") };
        assert_eq!((refusal.status, &refusal.body()["error"]["code"]), (422, &json!("repetition")));
        // The client sets the limit itself, and repetitive text is an answer.
        for events in [vec![cut_off, done(Finish::Length)], vec![text("a"), done(Finish::Repetition)]] {
            assert!(matches!(told(events, Request::default(), 1).last(), Some(Ok(Piece::End(_)))));
        }
    }

    #[test]
    fn complete_calls_before_a_repetition_are_to_be_made() {
        let call = Event::ToolCall(alara_engine::ToolCall {
            id: "1".into(),
            name: "f".into(),
            arguments: serde_json::Map::new(),
        });
        let cut_off = Event::Incomplete { name: "f".into(), arguments: "[1, 1, 1".into() };
        for events in [
            vec![call.clone(), call.clone(), done(Finish::Repetition)],
            vec![call.clone(), cut_off, done(Finish::Repetition)],
        ] {
            let items = told(events, Request::default(), 1);
            let Some(Ok(Piece::End(end))) = items.last() else { panic!("{items:?}") };
            let alara = json!({"finish": "repetition"});
            assert_eq!((end.finish, end.alara.as_ref()), (Finish::ToolCalls, Some(&alara)));
        }
        // The client sets the limit itself, and it may have truncated more calls.
        let items = told(vec![call, done(Finish::Length)], Request::default(), 1);
        assert!(
            matches!(items.last(), Some(Ok(Piece::End(end))) if end.finish == Finish::Length),
            "{items:?}"
        );
    }

    #[test]
    fn several_answers_come_one_after_the_other() {
        // Text that is held back has nothing to send yet.
        let events = vec![text(""), text("a"), text(""), done(Finish::Stop)];
        let items = told(events, Request::default(), 2);
        let pieces: Vec<&Piece> = items.iter().map(|item| item.as_ref().unwrap()).collect();
        let [Piece::Begun, Piece::Text(one), Piece::Next(first), Piece::Text(other), Piece::End(last)] =
            pieces.as_slice()
        else {
            panic!("{pieces:?}")
        };
        assert_eq!((one.as_str(), other.as_str()), ("a", "a"));
        let cost = |end: &End| (end.usage.prompt_tokens, end.usage.completion_tokens);
        // The prompt counts once.
        assert_eq!((cost(first), cost(last)), ((3, 1), (3, 2)));
    }

    #[test]
    fn what_an_endpoint_can_not_be_told_is_refused() {
        let request = Request { logprobs: Some(0), ..Request::default() };
        let items = told(vec![done(Finish::Stop)], request, 1);
        let [Err(refusal)] = items.as_slice() else { panic!("{items:?}") };
        assert!(refusal.status == 400 && refusal.message.contains("`logprobs`"), "{refusal:?}");
    }
}
