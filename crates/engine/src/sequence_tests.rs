//! Turns in which the test plays the model and supplies the logits.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

use alara_text::chat::formats::{Format, Reasoning, Turn};
use alara_text::gguf::Gguf;
use alara_text::grammar::Grammar;
use alara_text::request::{Sampling, Tool, ToolChoice, Until};
use serde_json::json;

use super::*;
use crate::backend::TopK;
use crate::cache::Prefix;

struct Stage {
    tokenizer: Arc<Tokenizer>,
    grammar: Grammar,
}

/// A turn in progress and its events.
struct Play {
    sequence: Sequence,
    events: mpsc::Receiver<Result<Event>>,
    /// Number of sampled tokens.
    samples: usize,
}

impl Stage {
    fn new() -> Self {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let tokenizer = Arc::new(crate::architecture::tokenizer(&Gguf::open(&file).unwrap()).unwrap());
        let vocabulary = tokenizer.clone();
        Stage { grammar: Grammar::new(move || vocabulary.env()), tokenizer }
    }

    fn play(&self, turn: &Turn, reasoning_tokens: Option<usize>) -> Play {
        let (sender, events) = mpsc::channel();
        let tokenizer = self.tokenizer.clone();
        let constraint =
            self.grammar.constraint(turn, &|text| tokenizer.id(text), &Until::default()).unwrap();
        let sequence = Sequence {
            data: SequenceData::new(vec![1, 2, 3], Prefix::default()),
            limit: 4000,
            lookup: None,
            sampler: Sampler::new(&Sampling::default()),
            endless: false,
            logprobs: None,
            prompt_logprobs: None,
            constraint,
            answer: Vec::new().into_iter(),
            parser: Parser::new(turn),
            reasoning: ReasoningBudget {
                left: reasoning_tokens,
                end: tokenizer.encode_within(turn.end_of_reasoning().unwrap_or_default()).unwrap(),
            },
            closer: if turn.may_call() { tokenizer.encode_within("\"").unwrap() } else { Vec::new() },
            must_call: turn.must_call(),
            stop: StopTexts::new(&[], &[]),
            text: tokenizer.stream().with_special(),
            tokenizer,
            next_call: 0,
            events: Listener::new(sender),
            cancelled: Arc::default(),
            until: Until::default(),
            started: Instant::now(),
            sampled_at: None,
            calls: CallLog::default(),
            cycles: CycleDetector::default(),
            in_call: false,
        };
        let mut play = Play { sequence, events, samples: 0 };
        play.sequence.begin();
        play
    }
}

/// Logits on the host.
struct OneRow(Vec<f32>);

impl Logits for OneRow {
    fn row(&mut self, _row: usize) -> Result<&mut [f32]> {
        Ok(&mut self.0)
    }

    fn top_k(&mut self, _row: usize, _k: usize, _mask: &[u32]) -> Result<TopK> {
        Ok(None)
    }
}

impl Play {
    /// Lets the model choose this token.
    fn sample(&mut self, token: u32) {
        let mut logits = vec![0.0; self.sequence.tokenizer.len()];
        logits[token as usize] = 9.0;
        self.samples += 1;
        self.sequence.advance(&mut OneRow(logits), 0..1);
    }

    /// Lets the model write `text` as the turn, continuing with the rest of it.
    fn say(&mut self, text: &str) {
        self.aim_for(&self.sequence.tokenizer.encode_within(text).unwrap());
    }

    /// Lets the model continue with `text`.
    fn say_more(&mut self, text: &str) {
        let more = self.sequence.tokenizer.encode_within(text).unwrap();
        self.aim_for(&[&self.sequence.data.tokens[self.sequence.data.prompt..], &more].concat());
    }

    fn aim_for(&mut self, target: &[u32]) {
        let tokenizer = self.sequence.tokenizer.clone();
        while !self.sequence.data.finished {
            let said = &self.sequence.data.tokens[self.sequence.data.prompt..];
            assert!(target.starts_with(said), "{said:?} {:?}, not {target:?}", tokenizer.decode(said, true));
            let Some(&next) = target.get(said.len()) else { return };
            self.sample(next);
        }
    }

    fn end(&mut self) {
        self.sample(self.sequence.tokenizer.ends_of_turn()[0]);
    }

    fn said(&self) -> String {
        self.sequence.tokenizer.decode(&self.sequence.data.tokens[self.sequence.data.prompt..], true)
    }

    /// Reasoning, text, calls, and the end of the turn.
    fn outcome(self) -> (String, String, Vec<ToolCall>, Result<(Finish, Usage)>) {
        drop(self.sequence);
        let (mut reasoning, mut answer, mut calls) = (String::new(), String::new(), Vec::new());
        let mut end = Err(Error::Stopped);
        for event in self.events {
            match event {
                Ok(Event::Text { text }) => answer += &text,
                Ok(Event::Reasoning { text }) => reasoning += &text,
                Ok(Event::ToolCall(call)) => calls.push(call),
                Ok(
                    Event::Prefill { .. }
                    | Event::ToolCallDelta { .. }
                    | Event::Incomplete { .. }
                    | Event::Logprobs { .. }
                    | Event::PromptLogprobs { .. },
                ) => {}
                Ok(Event::Done { finish, usage }) => end = Ok((finish, usage)),
                Err(error) => end = Err(error),
            }
        }
        (reasoning, answer, calls, end)
    }
}

fn turn(tool_choice: ToolChoice, reasoning: Reasoning) -> Turn {
    let parameters = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    Turn {
        format: Format::generic(),
        thinking: Some(Format::generic().thinking),
        schema: None,
        grammar: None,
        string_limit: None,
        raw: false,
        bound: BTreeMap::new(),
        tools: vec![Tool { name: "count".into(), description: String::new(), parameters, strict: false }],
        tool_choice,
        parallel_tool_calls: true,
        reasoning,
    }
}

fn free() -> Turn {
    Turn { tools: Vec::new(), ..turn(ToolChoice::Auto, Reasoning::Never) }
}

fn call(n: usize) -> String {
    format!("<tool_call>\n{{\"name\": \"count\", \"arguments\": {{\"n\": {n}}}}}\n</tool_call>")
}

fn finish(end: Result<(Finish, Usage)>) -> Finish {
    end.unwrap().0
}

#[test]
fn forced_tokens_are_not_sampled_and_are_computed_together() {
    let stage = Stage::new();
    let mut play = stage.play(&turn(ToolChoice::Required, Reasoning::Never), None);
    // With only one tool, everything up to the number is forced, before the prompt is computed.
    assert_eq!(play.said(), "<tool_call>\n{\"name\": \"count\", \"arguments\": {\"n\":");
    let forced = play.sequence.data.tokens.len() - play.sequence.data.prompt;
    assert_eq!(play.sequence.data.pending(), play.sequence.data.prompt + forced);
    play.say(&call(5));
    assert_eq!(play.said(), call(5));
    let samples = play.samples;
    let generated = play.sequence.data.tokens.len() - play.sequence.data.prompt;
    play.end();
    let (_, _, calls, end) = play.outcome();
    let (finish, usage) = end.unwrap();
    assert_eq!((calls.len(), finish), (1, Finish::ToolCalls));
    assert_eq!(usage.grammar.forced_tokens, generated - samples, "{usage:?}");
    assert!(usage.grammar.forced_tokens * 2 > generated, "{usage:?}");
    assert_eq!((usage.grammar.rejected_tokens, usage.grammar.masks), (0, 0), "it sampled what is allowed");
}

#[test]
fn a_call_as_text_is_a_call() {
    let stage = Stage::new();
    let free = || turn(ToolChoice::Auto, Reasoning::Never);
    let recovery = || Recovery::new(free().tools, true, 0);
    let text = "I count.\n\n```json\n{{\"name\": \"count\", \"arguments\": {\"n\": 7,}}}\n```";
    let mut play = stage.play(&free(), None);
    play.sequence.events.recover(recovery(), None);
    play.say(text);
    play.end();
    let (_, answer, calls, end) = play.outcome();
    let (finish, usage) = end.unwrap();
    assert_eq!((answer.trim_end(), calls.len(), finish), ("I count.", 1, Finish::ToolCalls));
    assert_eq!((calls[0].id.as_str(), json!(calls[0].arguments)), ("call_0", json!({"n": 7})));
    assert!(
        usage.recovered.is_some_and(|recovered| recovered.text.starts_with("```json") && !recovered.again)
    );
}

/// Tools and a schema: the first phase may write its call as text, too.
#[test]
fn a_call_as_text_comes_before_an_answer_in_json() {
    let stage = Stage::new();
    let free = turn(ToolChoice::Auto, Reasoning::Never);
    let said = |text: &str| {
        let Play { sequence: mut json, .. } = stage.play(&free, None);
        let mut play = stage.play(&free, None);
        let (sender, events) = mpsc::channel();
        json.events = Listener::new(sender.clone());
        play.sequence.events = Listener::new(sender);
        play.events = events;
        play.sequence.events.otherwise(json, Recovery::new(free.tools.clone(), true, 0));
        play.say(text);
        play.end();
        let goes_on = play.sequence.events.take_other();
        if let Some(json) = goes_on {
            play.sequence = json;
            play.say("{\"answer\": 1}");
            play.end();
        }
        let (_, answer, calls, end) = play.outcome();
        (answer, calls.len(), finish(end))
    };
    let call = "{\"name\": \"count\", \"arguments\": {\"n\": 7}}";
    assert_eq!(said(call), (String::new(), 1, Finish::ToolCalls));
    assert_eq!(said("It is seven."), ("{\"answer\": 1}".to_owned(), 0, Finish::Stop));
}

#[test]
fn a_call_that_can_not_be_made_is_asked_for_again() {
    let stage = Stage::new();
    let free = turn(ToolChoice::Auto, Reasoning::Never);
    let Play { sequence: mut again, .. } = stage.play(&free.clone().that_must_call(), None);
    let mut play = stage.play(&free, None);
    // Both phases report to the same listener.
    let (sender, events) = mpsc::channel();
    again.events = Listener::new(sender.clone());
    play.sequence.events = Listener::new(sender);
    play.events = events;
    play.sequence.events.recover(Recovery::new(free.tools.clone(), true, 0), Some(again));
    play.say("{\"name\": \"count\", \"arguments\": {\"n\": \"many\"}}");
    play.end();
    play.sequence = play.sequence.events.take_other().unwrap();
    play.say(&call(7));
    play.end();
    let (_, answer, calls, end) = play.outcome();
    let (finish, usage) = end.unwrap();
    assert_eq!((answer.as_str(), calls.len(), finish), ("", 1, Finish::ToolCalls));
    assert!(usage.recovered.is_some_and(|recovered| recovered.again));
}

#[test]
fn a_cycle_without_end_ends_the_turn() {
    let stage = Stage::new();
    let mut play = stage.play(&free(), None);
    while !play.sequence.data.finished {
        play.sample(100 + play.samples as u32 % 4);
    }
    assert_eq!(play.samples, 256);
    assert_eq!(finish(play.outcome().3), Finish::Repetition);

    // Unless only the limit may end it.
    let mut play = stage.play(&free(), None);
    play.sequence.endless = true;
    while !play.sequence.data.finished {
        play.sample(100 + play.samples as u32 % 4);
    }
    assert_eq!((play.samples, finish(play.outcome().3)), (3997, Finish::Length));

    // Whitespace counts as well, even if the grammar permits it.
    let mut play = stage.play(&turn(ToolChoice::Auto, Reasoning::Never), None);
    let newline = stage.tokenizer.encode_within("\n").unwrap()[0];
    while !play.sequence.data.finished {
        play.sample(newline);
    }
    assert_eq!((play.samples, finish(play.outcome().3)), (256, Finish::Repetition));
}

/// The string repeats itself, so it is closed instead of the turn: half a call is useless.
#[test]
fn a_string_without_end_is_closed_and_so_is_its_call() {
    let stage = Stage::new();
    let parameters =
        json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}});
    let tools = vec![Tool { name: "tell".into(), description: String::new(), parameters, strict: false }];
    let play = |tool_choice: ToolChoice| {
        let one_call = turn(tool_choice, Reasoning::Never);
        let turn = Turn { tools: tools.clone(), parallel_tool_calls: false, ..one_call };
        let mut play = stage.play(&turn, None);
        play.say("<tool_call>\n{\"name\": \"tell\", \"arguments\": {\"text\": \"");
        let (one, two) =
            (stage.tokenizer.encode_within("a").unwrap()[0], stage.tokenizer.encode_within("b").unwrap()[0]);
        while !play.sequence.data.finished {
            play.sample(if play.samples.is_multiple_of(2) { one } else { two });
        }
        play.outcome()
    };
    for choice in [ToolChoice::Required, ToolChoice::Auto] {
        let (_, _, calls, end) = play(choice);
        assert_eq!((calls.len(), finish(end)), (1, Finish::ToolCalls));
        let text = calls[0].arguments["text"].as_str().unwrap();
        assert!((200..300).contains(&text.len()) && text.trim_start_matches(['a', 'b']).is_empty(), "{text}");
    }
}

#[test]
fn the_third_equal_call_ends_the_turn_and_is_not_reported() {
    let stage = Stage::new();
    let mut play = stage.play(&turn(ToolChoice::Auto, Reasoning::Never), None);
    play.say(&[1, 2, 1, 3, 1, 4].map(call).join("\n"));
    let (_, _, calls, end) = play.outcome();
    let numbers: Vec<_> = calls.iter().map(|call| call.arguments["n"].as_u64().unwrap()).collect();
    assert_eq!((numbers, finish(end)), (vec![1, 2, 1, 3], Finish::Repetition));
}

#[test]
fn a_turn_has_64_calls_at_most() {
    let stage = Stage::new();
    let mut play = stage.play(&turn(ToolChoice::Auto, Reasoning::Never), None);
    play.say(&(100..200).map(call).collect::<Vec<_>>().join("\n"));
    let (_, _, calls, end) = play.outcome();
    assert_eq!((calls.len(), finish(end)), (64, Finish::Repetition));
}

#[test]
fn a_failing_constraint_ends_the_turn_with_an_error() {
    let stage = Stage::new();
    let mut play = stage.play(&turn(ToolChoice::Auto, Reasoning::Never), None);
    play.say("so far");
    play.sequence.constraint.as_mut().unwrap().break_down();
    let before = play.sequence.data.tokens.len();
    play.sample(100);
    assert!(play.sequence.data.finished);
    assert_eq!(play.sequence.data.tokens.len(), before, "nothing is sampled");
    let (_, answer, _, end) = play.outcome();
    assert_eq!(answer, "so far");
    assert!(end.unwrap_err().to_string().contains("the constraint failed"));
}

#[test]
fn reasoning_ends_with_its_budget() {
    let stage = Stage::new();
    let check = |turn: &Turn, thought: &str, budget: usize, reasoning: &str, answer: &str| {
        let mut play = stage.play(turn, Some(budget));
        let tokens = stage.tokenizer.encode_within(thought).unwrap();
        for token in tokens {
            // After the reasoning, the model begins its answer.
            if !play.said().contains("</think>") {
                play.sample(token);
            }
        }
        assert_eq!(play.said().matches("</think>").count(), 1, "{}", play.said());
        play.say_more(answer);
        play.end();
        let (thought, said, calls, end) = play.outcome();
        assert_eq!(thought, reasoning);
        match turn.tool_choice {
            ToolChoice::Required => assert_eq!((calls.len(), finish(end)), (1, Finish::ToolCalls)),
            _ => assert_eq!((said.as_str(), finish(end)), (answer, Finish::Stop)),
        }
    };
    let first = |tokens: usize| {
        let thought = stage.tokenizer.encode_within(THOUGHT).unwrap();
        stage.tokenizer.decode(&thought[..tokens], true).trim_end().to_owned()
    };
    let open = turn(ToolChoice::Auto, Reasoning::Open);
    check(&open, THOUGHT, 5, &first(5), "yes");
    check(&Turn { tools: Vec::new(), ..open.clone() }, THOUGHT, 5, &first(5), "yes");
    check(&open, THOUGHT, 0, "", "yes");
    check(&turn(ToolChoice::Auto, Reasoning::Optional), &format!("<think>{THOUGHT}"), 4, &first(4), "yes");
    check(&turn(ToolChoice::Auto, Reasoning::Optional), &format!("<think>{THOUGHT}"), 0, "", "yes");
    check(&turn(ToolChoice::Required, Reasoning::Open), THOUGHT, 3, &first(3), " 7}}\n</tool_call>");
    // A model that ends the reasoning itself may use the whole budget.
    check(&open, "ok</think>", 50, "ok", "yes");
    // Not inside a character, which consists of single bytes in this vocabulary.
    check(&open, "日日日日", 4, "日日", "yes");
}

const THOUGHT: &str = "let me see what there is to do here and then do it at once";

#[test]
fn a_budget_of_reasoning_does_not_touch_the_answer() {
    let stage = Stage::new();
    let mut play = stage.play(&turn(ToolChoice::Auto, Reasoning::Optional), Some(2));
    play.say("an answer of more than two tokens");
    play.end();
    let (reasoning, answer, _, end) = play.outcome();
    assert_eq!((reasoning.as_str(), answer.as_str()), ("", "an answer of more than two tokens"));
    assert_eq!(finish(end), Finish::Stop);
}

#[test]
fn probabilities_are_reported_with_the_text_of_their_tokens() {
    let stage = Stage::new();
    let mut play = stage.play(&turn(ToolChoice::Required, Reasoning::Open), None);
    play.sequence.logprobs = Some(Logprobs::new(2, false));
    // A penalty and the grammar change the sampled token, but not the reported probabilities.
    play.sequence.sampler = Sampler::new(&Sampling { presence_penalty: 0.5, ..Sampling::default() });
    play.say(&format!("hm</think>{}", call(7)));
    play.end();
    let size = stage.tokenizer.len();
    let certain = (9.0 - (f64::exp(9.0) + size as f64 - 1.0).ln()) as f32;
    let (mut text, mut kinds, mut sampled, mut forced) = (Vec::new(), Vec::new(), 0, 0);
    let samples = play.samples;
    drop(play.sequence);
    let events: Vec<Event> = play.events.into_iter().map(Result::unwrap).collect();
    for pair in events.windows(2) {
        let Event::Logprobs { tokens } = &pair[0] else { continue };
        kinds.push(match &pair[1] {
            Event::Reasoning { .. } => 'r',
            Event::ToolCallDelta { .. } => 'c',
            other => panic!("{other:?} has no tokens"),
        });
        for token in tokens {
            text.extend(&token.chosen.bytes);
            assert_eq!(token.chosen.bytes, stage.tokenizer.token_bytes(token.chosen.token));
            if token.top.is_empty() {
                assert_eq!(token.chosen.logprob, 0.0);
                forced += 1;
                continue;
            }
            sampled += 1;
            assert_eq!((token.top.len(), &token.top[0]), (2, &token.chosen));
            assert!((token.chosen.logprob - certain).abs() < 1e-4, "{token:?}");
            assert!((token.top[1].logprob - (certain - 9.0)).abs() < 1e-4, "{token:?}");
        }
    }
    kinds.dedup();
    assert_eq!(kinds, ['r', 'c']);
    assert!(sampled > 0 && forced > 0 && sampled <= samples, "{sampled} and {forced} of {samples}");
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("hm</think>") && text.contains("\"n\": 7"), "{text}");
}

#[test]
fn a_stop_text_ends_json_and_is_told() {
    let stage = Stage::new();
    let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}});
    let mut play = stage.play(&free().in_json(&schema), None);
    play.sequence.stop = StopTexts::new(&["END".into()], &[]);
    play.say("{\"n\": \"one END two\"}");
    let (_, answer, _, end) = play.outcome();
    let (finish, usage) = end.unwrap();
    assert_eq!((finish, answer.as_str()), (Finish::Stop, "{\"n\": \"one "));
    assert_eq!(usage.stop_text.as_deref(), Some("END"));
}

/// The reported tokens, concatenated, the text, and all events.
fn reported(play: Play) -> (String, String, Vec<Event>) {
    drop(play.sequence);
    let events: Vec<Event> = play.events.into_iter().map(Result::unwrap).collect();
    let (mut text, mut bytes) = (String::new(), Vec::new());
    for event in &events {
        match event {
            Event::Text { text: more } => {
                text += more;
                // No token is reported before its text.
                assert!(bytes.len() >= text.len(), "{events:?}");
            }
            Event::Logprobs { tokens } => {
                tokens.iter().for_each(|token| bytes.extend(&token.chosen.bytes));
            }
            _ => {}
        }
    }
    (text, String::from_utf8_lossy(&bytes).into_owned(), events)
}

#[test]
fn probabilities_end_where_the_text_does() {
    let stage = Stage::new();
    let check = |raw: bool, said: &str, stop: &str, expected: &str| {
        let tools = Vec::new();
        let mut play = stage.play(&Turn { tools, raw, ..turn(ToolChoice::Auto, Reasoning::Never) }, None);
        play.sequence.logprobs = Some(Logprobs::new(1, false));
        play.sequence.stop = StopTexts::new(&[stop.into()], &[]);
        play.say(said);
        if !play.sequence.data.finished {
            play.end();
        }
        let (text, tokens, _) = reported(play);
        assert_eq!(text, expected, "{said:?} up to {stop:?}");
        // The last token of the text may extend beyond it.
        let last = stage.tokenizer.encode_within(said).unwrap();
        let longest = last.iter().map(|&token| stage.tokenizer.token_bytes(token).len()).max().unwrap();
        assert!(tokens.starts_with(expected), "{tokens:?} for {text:?}");
        assert!(tokens.len() < expected.len() + longest, "{tokens:?} for {text:?}");
    };
    for raw in [false, true] {
        check(raw, "1, 2, 3, 4, 5, 6", "4, 5", "1, 2, 3, ");
        check(raw, "1, 2, 3, 4, 6", "4, 5", "1, 2, 3, 4, 6");
        check(raw, "the house is old", "house is o", "the ");
        check(raw, "4, 5", "4, 5", "");
        check(raw, "é 日 x", "日 x", "é ");
    }
    check(true, "  x\n\n", "y", "  x\n\n");
}

#[test]
fn a_cut_within_a_character_gives_none_of_it() {
    let stage = Stage::new();
    for (raw, whole) in [(false, false), (true, false), (true, true)] {
        let tools = Vec::new();
        let mut play = stage.play(&Turn { tools, raw, ..turn(ToolChoice::Auto, Reasoning::Never) }, None);
        play.sequence.logprobs = Some(Logprobs::new(1, whole));
        // This vocabulary has one token per byte of it.
        play.sequence.limit = play.sequence.data.prompt + 4;
        play.say("日日");
        let (text, tokens, events) = reported(play);
        assert_eq!(text, "日");
        assert_eq!(tokens, if whole { "日\u{fffd}" } else { "日" });
        assert!(matches!(events.last(), Some(Event::Done { finish: Finish::Length, .. })), "{events:?}");
    }
}

#[test]
fn a_call_that_is_cut_off_before_its_name_is_no_text() {
    let stage = Stage::new();
    let auto = turn(ToolChoice::Auto, Reasoning::Never);
    let said = call(7);
    let opener = stage.tokenizer.encode_within("<tool_call>").unwrap().len();
    let tokens = stage.tokenizer.encode_within("<tool_call>\n{\"name\": \"count\"").unwrap().len();
    for limit in opener..tokens {
        let mut play = stage.play(&auto, None);
        play.sequence.limit = play.sequence.data.prompt + limit;
        play.say(&said);
        let (_, answer, calls, end) = play.outcome();
        assert_eq!((answer.as_str(), calls.len(), finish(end)), ("", 0, Finish::Length), "after {limit}");
    }
    let mut play = stage.play(&auto, None);
    play.sequence.stop = StopTexts::new(&["\n".into()], &[]);
    play.say(&said);
    let (_, answer, calls, end) = play.outcome();
    assert_eq!((answer.as_str(), calls.len(), finish(end)), ("", 0, Finish::Stop));
}
