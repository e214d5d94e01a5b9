//! Turns of a tiny model with random weights: the text is noise, but how it is served is not.

use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use alara_text::gguf::Writer;
use alara_text::request::{
    Event, Finish, Message, Miss, Sampling, Segment, Tool, ToolCall, ToolChoice, Until, Usage,
};
use serde_json::json;

use super::*;

pub(super) const TEMPLATE: &str = "{% if tools %}<|im_start|>system\n{{ messages[0].content }}{% for t in tools %}{{ t | tojson }}\n\
     {% endfor %}<tool_call>{{ '{\"name\": …}' }}</tool_call><|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
     {{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn model(template: Option<&str>) -> Gguf {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
    let mut writer = Writer::copy_of(&Gguf::open(&case).unwrap());
    if let Some(template) = template {
        writer = writer.meta("tokenizer.chat_template", template.to_owned());
    }
    Gguf::from_vec("tiny", writer.bytes().unwrap()).unwrap()
}

pub(super) fn engine(context: usize, parallel: usize) -> Engine {
    let options =
        Options { context: Some(context), parallel, kv: KvType::F32, threads: 2, ..Options::default() };
    Engine::load(&model(Some(TEMPLATE)), &options).unwrap()
}

pub(super) fn request(text: &str, max_tokens: usize) -> Request {
    Request { messages: vec![Message::user(text)], max_tokens: Some(max_tokens), ..Request::default() }
}

pub(super) struct Turn {
    pub text: String,
    calls: Vec<ToolCall>,
    pub finish: Finish,
    pub usage: Usage,
}

pub(super) fn turn(engine: &Engine, request: &Request) -> Turn {
    collect(engine.generate(request).unwrap())
}

pub(super) fn collect(events: Events) -> Turn {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for event in events {
        match event.unwrap() {
            Event::Text { text: piece } => text += &piece,
            Event::Prefill { .. }
            | Event::Reasoning { .. }
            | Event::Logprobs { .. }
            | Event::PromptLogprobs { .. } => {}
            Event::ToolCall(call) => calls.push(call),
            Event::ToolCallDelta { .. } | Event::Incomplete { .. } => {}
            Event::Done { finish, usage } => return Turn { text, calls, finish, usage },
        }
    }
    unreachable!("every turn ends with Done")
}

pub(super) fn sampled(text: &str, seed: u64) -> Request {
    let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
    Request { sampling, ..request(text, 24) }
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let engine = engine(256, 1);
    let first = turn(&engine, &sampled("the house", 7)).text;
    assert_eq!(first, turn(&engine, &sampled("the house", 7)).text, "also when the prompt is cached");
    assert_ne!(first, turn(&engine, &sampled("the house", 8)).text);
    assert_eq!(first, turn(&super::tests::engine(256, 1), &sampled("the house", 7)).text);
}

#[test]
fn who_waits_may_look_whether_something_has_come() {
    let engine = engine(2048, 1);
    let mut long = engine.generate(&request(&"house ".repeat(1500), 4)).unwrap();
    assert!(long.poll(Duration::ZERO).is_pending(), "the prompt is being computed");
    // Disconnect instead of waiting.
    drop(long);
    let mut short = engine.generate(&request("the house", 1)).unwrap();
    let event = short.poll(Duration::MAX);
    assert!(matches!(event, Poll::Ready(Some(Ok(_)))), "{event:?}");
    assert!(short.last().unwrap().is_ok());
    let mut ended = engine.generate(&request("the house", 1)).unwrap();
    assert!(ended.by_ref().all(|event| event.is_ok()));
    assert!(matches!(ended.poll(Duration::ZERO), Poll::Ready(None)));
}

#[test]
fn the_cache_tells_how_full_it_is() {
    let engine = engine(256, 2);
    assert_eq!(engine.cached(), (0, 512));
    let tokens = turn(&engine, &sampled("a longer prompt about a house and a kitchen", 3)).usage;
    // The end of a turn is reported before its blocks are counted.
    let next = turn(&engine, &sampled("one", 3)).usage;
    let (used, capacity) = engine.cached();
    assert!(used >= tokens.prompt_tokens && used <= capacity && next.prompt_tokens < capacity, "{used}");
}

#[test]
fn turns_that_run_together_say_what_they_say_alone() {
    let prompts = ["one", "a longer prompt about a house and a kitchen", "reading because", "if x return"];
    let alone: Vec<String> =
        prompts.iter().map(|text| turn(&engine(256, 1), &sampled(text, 3)).text).collect();
    let together = engine(256, 4);
    let running: Vec<Events> =
        prompts.iter().map(|text| together.generate(&sampled(text, 3)).unwrap()).collect();
    let texts: Vec<String> = running.into_iter().map(|events| collect(events).text).collect();
    assert_eq!(texts, alone);
}

#[test]
fn a_second_turn_reuses_the_first_one() {
    let engine = engine(512, 1);
    let first = request("tell me about the house in the forest", 8);
    let answer = turn(&engine, &first);
    assert_eq!((answer.usage.cached_tokens, answer.finish), (0, Finish::Length));
    let mut second = first.clone();
    second.messages.push(Message::assistant("it is old", Vec::new()));
    second.messages.push(Message::user("and the kitchen"));
    let cached = turn(&engine, &second);
    assert!(cached.usage.cached_tokens >= answer.usage.prompt_tokens, "{:?}", cached.usage);
    let fresh = turn(&super::tests::engine(512, 1), &second);
    assert_eq!((fresh.usage.cached_tokens, &fresh.text), (0, &cached.text));
}

#[test]
fn a_long_prompt_tells_how_far_it_is() {
    let engine = engine(4096, 1);
    let prefill = |text: &str| {
        let events: Vec<Event> = engine.generate(&request(text, 4)).unwrap().map(Result::unwrap).collect();
        let told = events.iter().filter_map(|event| match event {
            Event::Prefill { computed, cached, prompt } => Some((*computed, *cached, *prompt)),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert!(events[..told.len()].iter().all(|event| matches!(event, Event::Prefill { .. })));
        let Some(Event::Done { usage, .. }) = events.last() else { panic!("no end") };
        (told, usage.prompt_tokens)
    };
    let long = "one two three four five six seven eight nine ten ".repeat(60);
    let (told, prompt) = prefill(&long);
    assert!(prompt > 1024 && told.len() == (prompt - 1) / 512, "{told:?} of {prompt}");
    for (at, told) in told.iter().enumerate() {
        assert_eq!(*told, (512 * (at + 1), 0, prompt));
    }
    assert_eq!(prefill(&long).0, [], "all of it is cached");
    assert_eq!(prefill("short").0, [], "one step is no wait");
}

#[test]
fn an_answer_that_is_brought_along_is_said_and_kept() {
    let engine = engine(256, 1);
    let answer = Message::assistant("the water and the tree", Vec::new());
    let asked = Request { answer: Some(answer.clone()), max_tokens: None, ..request("the house", 1) };
    let tokens = engine.answer_tokens(&asked).unwrap();
    let played = turn(&engine, &asked);
    assert_eq!((played.text.as_str(), played.finish), ("the water and the tree", Finish::Stop));
    assert_eq!(played.usage.completion_tokens, tokens.len());

    let mut next = request("why", 1);
    next.messages.splice(..0, [asked.messages[0].clone(), answer]);
    let [before, after] = [&asked, &next].map(|request| engine.prompt_tokens(request).unwrap());
    assert_eq!(after[..before.len() + tokens.len()], [before.clone(), tokens.clone()].concat());
    // The last token was never computed.
    assert_eq!(turn(&engine, &next).usage.cached_tokens, before.len() + tokens.len() - 1);

    let cut = turn(&engine, &Request { max_tokens: Some(2), ..asked });
    assert_eq!((cut.finish, cut.usage.completion_tokens), (Finish::Length, 2));
}

#[test]
fn an_answer_goes_on_if_its_end_is_ignored() {
    let engine = engine(512, 1);
    let ask = |temperature, seed, ignore_eos| {
        let sampling = Sampling { temperature, seed, ..Sampling::default() };
        turn(&engine, &Request { sampling, ignore_eos, ..request("the house", 300) })
    };
    let ends = |ignore| -> Vec<_> { (0..8).map(|seed| ask(1.5, seed, ignore).finish).collect() };
    assert!(ends(false).contains(&Finish::Stop), "so few tokens, and none of them an end");
    assert_eq!(ends(true), [const { Finish::Length }; 8]);
    // Greedy sampling finds the most likely tokens another way.
    assert_eq!(ask(0.0, 0, false).finish, Finish::Stop);
    let greedy = ask(0.0, 0, true);
    assert_eq!((greedy.finish, greedy.usage.completion_tokens), (Finish::Length, 300));

    let schema = Some(json!({"type": "object"}));
    let refused = engine.generate(&Request { ignore_eos: true, schema, ..request("the house", 5) });
    assert!(matches!(refused, Err(Error::InvalidRequest { .. })));
}

#[test]
fn a_miss_is_explained() {
    let engine = engine(512, 1);
    let first = turn(&engine, &request("tell me about the house", 4)).usage;
    assert_eq!((first.cached_tokens, &first.miss), (0, &None));
    let usage = turn(&engine, &request("tell me about a kitchen", 4)).usage;
    let Some(Miss::Diverged { at, prompt, kept }) = &usage.miss else { panic!("{usage:?}") };
    assert_eq!(*at, usage.cached_tokens);
    assert!(*at > 0 && prompt != kept && prompt.chars().next() == kept.chars().next(), "{prompt:?} {kept:?}");
    let words = usage.miss.as_ref().unwrap().to_string();
    assert_eq!(words, format!("diverged at token {at}: {prompt:?} against {kept:?}"));
    let another = Request { salt: "another tenant".into(), ..request("tell me about the house", 4) };
    assert_eq!(turn(&engine, &another).usage.cached_tokens, 0);
    assert!(turn(&engine, &another).usage.cached_tokens > 0);
}

/// Whatever state a model has, the static text of an agent is computed once, even for simultaneous
/// requests.
#[test]
fn the_same_skills_and_a_new_question_hit() {
    for case in ["qwen3-exact", "gemma3-exact", "gpt-oss-mxfp4-f32", "qwen35moe-fused-gate-up-exact"] {
        let gguf = Gguf::open(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../tests/fixtures/arch")
                .join(case)
                .join("model.gguf"),
        );
        let gguf = Writer::copy_of(&gguf.unwrap()).meta("tokenizer.chat_template", TEMPLATE);
        let gguf = Gguf::from_vec("tiny", gguf.bytes().unwrap()).unwrap();
        let options = Options { parallel: 3, threads: 2, ..Options::default() };
        let load = || Engine::load(&gguf, &options).unwrap();
        let skill =
            |name: &str| Segment { name: name.into(), text: format!("# {name}\n\n{}", name.repeat(60)) };
        let ask = |skills: &[&str], text: &str| Request {
            system: skills.iter().map(|name| skill(name)).collect(),
            ..request(text, 6)
        };
        let questions = [
            ask(&["ab ", "cd "], "what is this"),
            ask(&["ab ", "cd "], "and where"),
            ask(&["ab ", "ef "], "or who"),
            ask(&["ab ", "ef ", "gh "], "why"),
            ask(&["ab ", "cd "], "how"),
        ];
        let fresh: Vec<Turn> = questions.iter().map(|question| turn(&load(), question)).collect();
        let check = |turns: Vec<Turn>, how: &str| {
            for (at, (turn, fresh)) in turns.iter().zip(&fresh).enumerate() {
                assert_eq!(turn.text, fresh.text, "{case} {how} {at}");
                let share = turn.usage.cached_tokens as f64 / fresh.usage.prompt_tokens as f64;
                let expected = [0.0, 0.8, 0.4, 0.55, 0.8][at];
                assert!(share >= expected, "{case} {how} {at}: {:?}", turn.usage);
            }
        };
        let engine = load();
        check(questions.iter().map(|question| turn(&engine, question)).collect(), "one by one");
        let engine = load();
        let running: Vec<Events> =
            questions.iter().map(|question| engine.generate(question).unwrap()).collect();
        check(running.into_iter().map(collect).collect(), "together");
    }
}

fn picker() -> Tool {
    Tool {
        name: "pick".into(),
        description: "Picks".into(),
        parameters: json!({
            "type": "object",
            "properties": {"what": {"enum": ["bread", "honey"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["what", "count"],
        }),
        strict: false,
    }
}

#[test]
fn a_random_model_calls_only_permitted_tools_with_valid_arguments() {
    let engine = engine(512, 1);
    for seed in 0..12 {
        let request = Request {
            system: vec![Segment { name: "directive".into(), text: "Pick.".into() }],
            tools: vec![picker()],
            tool_choice: ToolChoice::Required,
            max_tokens: Some(100),
            ..sampled("which", seed)
        };
        let turn = turn(&engine, &request);
        assert_eq!((turn.finish, turn.calls.len()), (Finish::ToolCalls, 1), "seed {seed}: {}", turn.text);
        let call = &turn.calls[0];
        assert_eq!((call.name.as_str(), call.id.as_str()), ("pick", "call_0"));
        assert!(["bread", "honey"].contains(&call.arguments["what"].as_str().unwrap()));
        assert!((1..=9).contains(&call.arguments["count"].as_i64().unwrap()));
    }
}

/// A model whose template prints no tools gets them in its system prompt, and can still call them.
#[test]
fn a_model_without_native_calls_calls_in_the_house_format() {
    let source = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
    let options = Options { kv: KvType::F32, threads: 2, ..Options::default() };
    let engine = Engine::load(&model(Some(source)), &options).unwrap();
    let plain = turn(&engine, &request("which", 1)).usage.prompt_tokens;
    let asked = Request {
        tools: vec![picker()],
        tool_choice: ToolChoice::Required,
        max_tokens: Some(100),
        ..sampled("which", 1)
    };
    let called = turn(&engine, &asked);
    assert!(called.usage.prompt_tokens > plain + 50, "{:?}", called.usage);
    let [call] = called.calls.as_slice() else { panic!("{}", called.text) };
    let mut next = asked.clone();
    next.messages
        .extend([Message::assistant("", vec![call.clone()]), Message::tool_result(call, "bread it is")]);
    let cached = turn(&engine, &next).usage.cached_tokens;
    assert!(
        cached > called.usage.prompt_tokens,
        "the call's tokens are used again: {cached}, {:?}",
        called.usage
    );
}

/// A schema that a random model satisfies quickly.
pub(super) fn verdict() -> serde_json::Value {
    json!({
        "type": "object",
        "properties": {"verdict": {"enum": ["yes", "no"]}, "sure": {"type": "boolean"}, "count": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["verdict", "sure", "count"],
    })
}

#[test]
fn a_turn_with_a_schema_is_valid_json() {
    let engine = engine(512, 1);
    let validator = jsonschema::validator_for(&verdict()).unwrap();
    for seed in 0..12 {
        let request = Request { schema: Some(verdict()), max_tokens: Some(60), ..sampled("which", seed) };
        let turn = turn(&engine, &request);
        assert_eq!(turn.finish, Finish::Stop, "seed {seed}: {}", turn.text);
        let value: serde_json::Value = serde_json::from_str(&turn.text).unwrap();
        assert!(validator.is_valid(&value), "seed {seed}: {}", turn.text);
        assert_eq!(alara_text::chat::dumps(&value).unwrap(), turn.text, "as templates print it");
    }
}

#[test]
fn tools_and_a_schema_take_two_phases() {
    let engine = engine(512, 1);
    let asked = |seed, tool_choice| Request {
        tools: vec![picker()],
        schema: Some(verdict()),
        tool_choice,
        max_tokens: Some(60),
        ..sampled("which", seed)
    };
    let alone = turn(&engine, &asked(0, ToolChoice::None));
    assert!(serde_json::from_str::<serde_json::Value>(&alone.text).is_ok(), "{}", alone.text);
    for seed in 0..12 {
        let turn = turn(&engine, &asked(seed, ToolChoice::Auto));
        // A random model doesn't call a tool by chance.
        assert_eq!((turn.finish, turn.calls.len()), (Finish::Stop, 0), "seed {seed}: {}", turn.text);
        let value: serde_json::Value = serde_json::from_str(&turn.text).unwrap();
        assert!(jsonschema::is_valid(&verdict(), &value), "only the second phase is heard: {}", turn.text);
        let usage = turn.usage;
        assert_eq!(usage.prompt_tokens, 2 * alone.usage.prompt_tokens, "both count");
        assert!(
            usage.cached_tokens + 1 >= usage.prompt_tokens / 2,
            "the second has the first one's prompt: {usage:?}"
        );
    }
    let called = turn(&engine, &asked(1, ToolChoice::Required));
    assert_eq!((called.finish, called.calls.len(), called.text.as_str()), (Finish::ToolCalls, 1, ""));
}

#[test]
fn a_schema_that_cannot_be_honoured_is_refused_at_once() {
    let engine = engine(256, 1);
    let check = |schema: serde_json::Value, tools: Vec<Tool>, expected: &str| {
        let request = Request { schema: Some(schema), tools, ..request("x", 4) };
        let error = engine.generate(&request).err().unwrap().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let unsupported = json!({"type": "object", "properties": {"a": {"not": {"pattern": "a"}}}});
    let place = "the output schema can't be guaranteed: not at /properties/a/not: ";
    check(unsupported.clone(), Vec::new(), place);
    check(unsupported, vec![picker()], place);
    check(json!(false), Vec::new(), "the output schema can't be guaranteed: ");
    let named = Request {
        schema: Some(verdict()),
        tool_choice: ToolChoice::Named("other".into()),
        tools: vec![picker()],
        ..request("x", 4)
    };
    assert!(matches!(engine.generate(&named), Err(Error::Grammar(_))));
}

#[test]
fn a_stop_text_ends_the_turn() {
    let engine = engine(256, 1);
    let whole = turn(&engine, &sampled("the house", 5)).text;
    let stop: String = whole.chars().skip(whole.chars().count() / 2).take(3).collect();
    let cut = turn(&engine, &Request { stop: vec![stop.clone()], ..sampled("the house", 5) });
    assert_eq!(cut.finish, Finish::Stop);
    assert_eq!(cut.text.trim_end(), whole.split(&stop).next().unwrap().trim_end());
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let small = engine(64, 1);
    let long = request(&"house ".repeat(200), 4);
    let Err(Error::PromptTooLong { prompt, context: 64, .. }) = small.generate(&long) else { panic!() };
    assert!(prompt > 64);
    let turns = (0..20).map(|seed| turn(&small, &Request { max_tokens: None, ..sampled("the", seed) }));
    let to_the_end = turns.into_iter().find(|turn| turn.finish == Finish::Length).unwrap();
    assert_eq!(to_the_end.usage.prompt_tokens + to_the_end.usage.completion_tokens, 64);
}

/// Requests that can't fit are refused by their size, before rendering or tokenization.
#[test]
fn what_can_not_fit_is_refused_before_it_is_tokenized() {
    let small = engine(64, 1);
    let begun = Instant::now();
    for text in ["1", " ", "house "] {
        let refused = small.generate(&request(&text.repeat(4_000_000), 4)).err();
        assert!(matches!(refused, Some(Error::PromptTooLong { context: 64, .. })), "{text}: {refused:?}");
    }
    let messages = vec![Message::user("a"); 100_000];
    let refused = small.generate(&Request { messages, ..request("a", 4) }).err();
    assert!(
        matches!(refused, Some(Error::PromptTooLong { prompt: 100_000.., context: 64, .. })),
        "{refused:?}"
    );
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

/// A deadline and a disconnected client end the work before the first token, and the turn.
#[test]
fn a_turn_ends_with_its_request() {
    let engine = engine(256, 1);
    let over = Until { deadline: Some(Instant::now()), ..Until::default() };
    let error = engine.generate(&Request { until: over, ..request("the house", 4) }).err();
    assert!(error.as_ref().is_some_and(Error::is_over), "{error:?}");
    let cancelled = Arc::<AtomicBool>::default();
    let until = Until { cancelled: Some(cancelled.clone()), ..Until::default() };
    let endless = Request { max_tokens: None, ignore_eos: true, until, ..request("the house", 4) };
    let mut events = engine.generate(&endless).unwrap();
    assert!(events.next().unwrap().is_ok());
    cancelled.store(true, Ordering::Relaxed);
    assert!(events.any(|event| event.is_err()), "it ends without an end of the turn");
}

#[test]
fn a_dropped_turn_frees_its_room_and_a_crowd_waits_for_it() {
    let engine = engine(128, 1);
    drop(engine.generate(&Request { max_tokens: None, ..sampled("the", 1) }).unwrap());
    let crowd: Vec<Events> = (0..3)
        .map(|seed| engine.generate(&Request { max_tokens: Some(90), ..sampled("a", seed) }).unwrap())
        .collect();
    let ends: Vec<bool> = crowd
        .into_iter()
        .map(|events| events.last().is_some_and(|event| matches!(event, Ok(Event::Done { .. }))))
        .collect();
    assert!(ends[0], "the first has the room of a whole context");
    assert_eq!(turn(&engine, &sampled("again", 1)).usage.completion_tokens, 24);
}

#[test]
fn a_model_without_a_template_or_tool_format_says_so() {
    let none = Engine::load(&file("llama-exact", "llama", None), &Options::default()).err().unwrap();
    assert!(matches!(none, Error::NoTemplate { .. }), "{none}");
    let asked = Request { tools: vec![picker()], ..request("x", 4) };
    let other = Engine::load(&model(Some("{{ tools }}[CALL]")), &Options::default()).unwrap();
    assert!(matches!(other.generate(&asked).err().unwrap(), Error::NoToolFormat { .. }));

    let mistral = "{{ tools }}[TOOL_CALLS]f[ARGS]{{ m.tool_calls }}";
    let unfit = Engine::load(&model(Some(mistral)), &Options::default()).unwrap();
    let words = "tiny can't write calls in the mistral format: [TOOL_CALLS] is no token of its vocabulary";
    assert_eq!(unfit.generate(&asked).err().unwrap().to_string(), words);
    let tool_format = Format::from_name("mistral");
    let refused = Engine::load(&model(None), &Options { tool_format, ..Options::default() });
    assert_eq!(refused.err().unwrap().to_string(), words);
    let tool_format = Some(Format::generic());
    let generic = Engine::load(
        &model(Some("{{ tools }}{{ messages[0].content }}")),
        &Options { tool_format, ..Options::default() },
    );
    let named = Request { tools: vec![Tool { name: "ein Name mit Raum".into(), ..picker() }], ..asked };
    assert!(generic.unwrap().generate(&named).is_ok(), "any name will do where names are quoted");
}

/// The fixture `case` with another architecture's name and another template.
fn file(case: &str, architecture: &str, template: Option<&str>) -> Gguf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
    let gguf = Gguf::open(&path.join(case).join("model.gguf")).unwrap();
    let mut writer = Writer::copy_of(&gguf).meta("general.architecture", architecture);
    if let Some(template) = template {
        writer = writer.meta("tokenizer.chat_template", template);
    }
    Gguf::from_vec("tiny", writer.bytes().unwrap()).unwrap()
}

#[test]
fn a_file_s_own_template_wins_and_its_family_s_serves_without() {
    let check = |architecture: &str, own: Option<&str>, given: Option<&str>, prompt: &str, note: &str| {
        let gguf = file("qwen3-exact", architecture, own);
        let tokenizer = crate::architecture::tokenizer(&gguf).unwrap();
        let chosen = chat_template(&gguf, &tokenizer, given).unwrap();
        let now = jiff::civil::datetime(2026, 7, 1, 12, 0, 0, 0);
        let rendered = chosen.template.render(&request("hi", 1), &[], now).unwrap();
        assert!(rendered.text.starts_with(prompt), "{}", rendered.text);
        assert_eq!(chosen.note.unwrap_or_default(), note);
    };
    check("qwen3", Some("own {{ messages[0].content }}"), None, "own hi", "");
    check("qwen3", Some("own"), Some("given {{ messages[0].content }}"), "given hi", "");
    let chatml = "<|im_start|>user\nhi<|im_end|>\n";
    check("qwen3", None, None, chatml, "tiny has no chat template; the built-in one for qwen3 is used");
    check(
        "qwen3",
        Some(" \n"),
        None,
        chatml,
        "tiny has no chat template; the built-in one for qwen3 is used",
    );
    check(
        "gptoss",
        None,
        None,
        "<|start|>system",
        "tiny has no chat template; the built-in one for gpt-oss is used",
    );
    check(
        "qwen35",
        Some("a\n{% if %}"),
        None,
        chatml,
        "tiny has a broken chat template (line 2 of the chat template: syntax error: unexpected end of block); \
         the built-in one for qwen3.5 is used",
    );
}

#[test]
fn named_templates_serve_as_in_hugging_face() {
    let plain = |name: &str| {
        format!("{name} {{{{ tools }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}")
    };
    let check = |templates: &[(&str, &str)], with_tools: &str, without: &str, note: &str| {
        let mut writer = Writer::copy_of(&file("qwen3-exact", "qwen3", None));
        for (key, source) in templates {
            writer = writer.meta(&format!("tokenizer.chat_template{key}"), (*source).to_owned());
        }
        let gguf = Gguf::from_vec("tiny", writer.bytes().unwrap()).unwrap();
        let tokenizer = crate::architecture::tokenizer(&gguf).unwrap();
        let chosen = chat_template(&gguf, &tokenizer, None).unwrap();
        let template = chosen.template.with_calls(Format::from_name("hermes").unwrap());
        let now = jiff::civil::datetime(2026, 7, 1, 12, 0, 0, 0);
        for (tools, expected) in [(vec![picker()], with_tools), (Vec::new(), without)] {
            let asked = Request { tools, ..request("hi", 1) };
            let rendered = template.render(&asked, &[], now).unwrap().text;
            assert!(rendered.starts_with(expected), "{templates:?}: {rendered}");
        }
        assert_eq!(chosen.note.unwrap_or_default(), note);
    };
    let (default, tool_use, rag) = (plain("D"), plain("T"), plain("R"));
    let all = [("", default.as_str()), (".tool_use", tool_use.as_str()), (".rag", rag.as_str())];
    check(&all, "T ", "D ", "");
    check(&all[..1], "D ", "D ", "");
    check(&[all[0], (".tool_use", " ")], "D ", "D ", "");
    check(&[(".default", default.as_str()), all[1]], "T ", "D ", "");
    check(&[("", ""), all[1]], "T ", "T ", "");
    let note = "tiny has a broken chat template for tools (line 1 of the chat template: syntax error: unexpected end of block); \
                its default one is used";
    check(&[all[0], (".tool_use", "{% if %}")], "D ", "D ", note);
    let chatml = "<|im_start|>";
    check(&all[2..], chatml, chatml, "tiny has no chat template; the built-in one for qwen3 is used");
}

#[test]
fn a_model_of_no_family_gets_no_template_by_guess() {
    let check = |own: Option<&str>, expected: &str| {
        let gguf = file("llama-exact", "llama", own);
        let tokenizer = crate::architecture::tokenizer(&gguf).unwrap();
        let error = chat_template(&gguf, &tokenizer, None).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check(
        None,
        "tiny: the file has no chat template (metadata key `tokenizer.chat_template`), and its model is none",
    );
    check(Some("{% if %}"), "tiny: line 1 of the chat template: syntax error");
}

#[test]
fn a_family_s_textual_stops_end_every_turn() {
    let gguf = file("olmo2-exact", "olmo2", Some("{{ messages[0].content }}"));
    assert_eq!(Engine::load(&gguf, &Options::default()).unwrap().stops, ["<|user|>"]);
    assert!(engine(64, 1).stops.is_empty());
}
