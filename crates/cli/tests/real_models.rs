//! Real published models: `scripts/real-models` downloads them and sets `ALARA_REAL_MODELS` to
//! their folder.
//!
//! `tests/fixtures/real/reference.json` has llama.cpp's results for the text next to it, and a
//! model's greedy output.

use std::collections::BTreeMap;
use std::path::PathBuf;

use alara_engine::inspect::{self, Tokenizer};
use alara_engine::{
    Engine, Event, Gguf, KvType, Message, Options, Probe, ProbeSettings, Request, Sampling, Tool, ToolChoice,
    fits, written,
};
use serde_json::{Value, json};

use crate::dirs::TestDir;

const TEXT: &str = include_str!("../../../tests/fixtures/real/text.txt");

/// Reference data for a model.
#[derive(serde::Deserialize)]
struct Reference {
    /// Number of tokens of the text to use.
    tokens: usize,
    /// llama.cpp's perplexity over them.
    perplexity: f64,
    prompt: String,
    /// The 64 most likely tokens after the prompt, one after the other, as text.
    /// They are llama.cpp's, computed with AVX2.
    /// Where two tokens are almost equally likely, llama.cpp chooses differently with other
    /// instruction sets; alara doesn't.
    greedy: String,
}

fn references() -> BTreeMap<String, Reference> {
    serde_json::from_str(include_str!("../../../tests/fixtures/real/reference.json")).unwrap()
}

/// Returns the models' folder, or prints a note past the test's captured output that the test is
/// skipped; the last note has the count.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("ALARA_REAL_MODELS").map(PathBuf::from);
    if folder.is_none() {
        crate::absent::skipped(
            "real models",
            "their folder",
            "scripts/real-models fetches them, and runs these tests",
        );
    }
    folder
}

/// Returns each model with reference data, opened.
fn models() -> impl Iterator<Item = (String, Gguf, Reference)> {
    let folder = folder();
    let all = folder
        .into_iter()
        .flat_map(|folder| references().into_iter().map(move |known| (folder.clone(), known)));
    let there = |(folder, (name, _)): &(PathBuf, (String, Reference))| {
        let there = folder.join(name).exists();
        if !there {
            crate::absent::skipped(
                "a real model",
                "its file",
                "scripts/real-models --agents fetches all of them, and runs these tests",
            );
        }
        there
    };
    all.filter(there).map(|(folder, (name, reference))| {
        let gguf = Gguf::open(&folder.join(&name)).unwrap();
        (name, gguf, reference)
    })
}

/// Returns a text's tokens, after the BOS token if the model requires one.
fn tokens(gguf: &Gguf, tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let begins = gguf.metadata().bool("tokenizer.ggml.add_bos_token").unwrap().unwrap_or(false);
    let begin = tokenizer.bos().filter(|_| begins);
    begin.into_iter().chain(tokenizer.encode(text, false).unwrap()).collect()
}

fn probe(gguf: &Gguf, tokens: usize) -> Probe {
    Probe::load(gguf, tokens, &ProbeSettings { kv: KvType::F32, ..ProbeSettings::default() }).unwrap()
}

#[test]
fn published_files_load_as_they_are() {
    for (name, gguf, _) in models() {
        let options = Options { context: Some(512), ..Options::default() };
        if let Err(error) = Engine::load(&gguf, &options) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn perplexity_is_the_reference_s() {
    for (name, gguf, reference) in models() {
        let all = tokens(&gguf, &inspect::tokenizer(&gguf).unwrap(), TEXT);
        let all = &all[..reference.tokens];
        let mut probe = probe(&gguf, all.len());
        let (width, mut surprise, mut at) = (probe.vocabulary(), 0.0, 0);
        for piece in all.chunks(64) {
            let logits = probe.feed(piece, piece.len()).unwrap();
            for row in logits.chunks(width) {
                at += 1;
                let Some(&next) = all.get(at) else { break };
                let most = row.iter().fold(f32::NEG_INFINITY, |most, &logit| most.max(logit));
                let sum: f64 = row.iter().map(|&logit| f64::from(logit - most).exp()).sum();
                surprise += sum.ln() - f64::from(row[next as usize] - most);
            }
        }
        let found = (surprise / (all.len() - 1) as f64).exp();
        let off = (found / reference.perplexity - 1.0).abs();
        assert!(off < 0.01, "{name}: perplexity {found:.3}, the reference has {:.3}", reference.perplexity);
    }
}

/// Computes the perplexity from the prompt's log-probabilities in a turn.
#[test]
fn probabilities_of_a_prompt_give_the_reference_s_perplexity() {
    for (name, gguf, reference) in models() {
        let all = tokens(&gguf, &inspect::tokenizer(&gguf).unwrap(), TEXT);
        let options = Options { context: Some(reference.tokens + 64), kv: KvType::F32, ..Options::default() };
        let engine = Engine::load(&gguf, &options).unwrap();
        let request = Request {
            prompt_ids: Some(all[..reference.tokens].to_vec()),
            prompt_logprobs: Some(1),
            max_tokens: Some(0),
            ..Request::default()
        };
        let told = engine.generate(&request).unwrap().find_map(|event| match event.unwrap() {
            Event::PromptLogprobs { tokens } => Some(tokens),
            _ => None,
        });
        let told = told.unwrap();
        assert_eq!(told.len(), reference.tokens);
        let surprise: f64 = told[1..].iter().map(|token| -f64::from(token.chosen.logprob)).sum();
        let found = (surprise / (told.len() - 1) as f64).exp();
        let off = (found / reference.perplexity - 1.0).abs();
        assert!(off < 0.01, "{name}: perplexity {found:.3}, the reference has {:.3}", reference.perplexity);
    }
}

#[test]
fn greedy_text_is_what_it_was() {
    for (name, gguf, reference) in models() {
        let tokenizer = inspect::tokenizer(&gguf).unwrap();
        let prompt = tokens(&gguf, &tokenizer, &reference.prompt);
        let mut probe = probe(&gguf, prompt.len() + 64);
        let (mut logits, mut message) = (probe.feed(&prompt, 1).unwrap(), Vec::new());
        for _ in 0..64 {
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
            message.push(best);
            logits = probe.feed(&[best], 1).unwrap();
        }
        assert_eq!(tokenizer.decode(&message, true), reference.greedy, "{name}");
    }
}

/// Models trained to call tools do so, or answer, in every turn.
/// No turn ends with an incomplete call, or with a call as its text.
#[test]
fn agents_call_or_answer_in_fifty_of_fifty_turns() {
    const TASKS: [&str; 8] = [
        "Create a file hello.txt that contains the word hello.",
        "How many lines does list.txt have? Write the number to count.txt.",
        "Rename list.txt to names.txt.",
        "Write a Python script twice.py that prints the word twice two times.",
        "Make a folder old and move list.txt into it.",
        "Which names in list.txt begin with B?",
        "Sort the lines of list.txt into sorted.txt.",
        "What is 12 times 12?",
    ];
    let Some(folder) = folder() else { return };
    for (name, ..) in models().filter(|(name, ..)| name.starts_with("qwen")) {
        let file = std::path::absolute(folder.join(&name)).unwrap();
        let (mut turns, mut calls) = (0, 0);
        for task in TASKS.iter().cycle() {
            if turns >= 50 {
                break;
            }
            let dir = TestDir::with(&json!([]));
            dir.write("work/list.txt", "Ann\nBo\nCy\nBea\n");
            let model = file.to_str().unwrap();
            let words =
                ["run", "--workdir", "work", "--trace", "trace.jsonl", "--ctx", "8192", "-m", model, task];
            let output = dir.alara(&words).output().unwrap();
            let trace = std::fs::read_to_string(dir.path("trace.jsonl")).unwrap();
            let mut tools: Vec<Tool> = Vec::new();
            for line in trace.lines() {
                let record: Value = serde_json::from_str(line).unwrap();
                if record["record"] == "start" {
                    tools = serde_json::from_value(record["tools"].clone()).unwrap();
                }
                if record["record"] != "assistant" {
                    continue;
                }
                turns += 1;
                let message: Message = serde_json::from_value(record["message"].clone()).unwrap();
                calls += message.tool_calls.len();
                let does = !message.tool_calls.is_empty() || !message.content.trim().is_empty();
                let left = written(&message.content, &tools, &fits);
                let about = format!("{name}: {record}\n{}", String::from_utf8_lossy(&output.stderr));
                assert!(does && left.is_none(), "{about}");
            }
        }
        println!("{name}: {turns} turns, {calls} calls");
        assert!(calls >= turns / 4, "{name} made {calls} calls in {turns} turns");
    }
}

/// A model that makes no calls by itself makes a valid one in every turn that requires it.
#[test]
fn forced_calls_are_valid_in_a_hundred_of_a_hundred_turns() {
    const MODEL: &str = "smollm2-135m-instruct-q4_1.gguf";
    let Some(folder) = folder() else { return };
    let gguf = Gguf::open(&folder.join(MODEL)).unwrap();
    let engine = Engine::load(&gguf, &Options { context: Some(1024), ..Options::default() }).unwrap();
    let tool = |name: &str, description: &str, parameters: Value| Tool {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
        strict: false,
    };
    let tools = vec![
        tool(
            "weather",
            "Tell the weather of a city",
            json!({
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
                "required": ["city", "unit"], "additionalProperties": false,
            }),
        ),
        tool(
            "timer",
            "Ring after some minutes",
            json!({
                "type": "object",
                "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 90}, "loud": {"type": "boolean"}},
                "required": ["minutes"], "additionalProperties": false,
            }),
        ),
    ];
    let asked = ["How warm is it in Oslo?", "Wake me in ten minutes.", "hi", "Tell me a story about a fox."];
    let mut valid = 0;
    for turn in 0..100 {
        let request = Request {
            messages: vec![Message::user(asked[turn % asked.len()])],
            tools: tools.clone(),
            tool_choice: ToolChoice::Required,
            sampling: Sampling { temperature: 1.0, seed: turn as u64, ..Sampling::default() },
            max_tokens: Some(128),
            ..Request::default()
        };
        let events = engine.generate(&request).unwrap().collect::<Result<Vec<Event>, _>>().unwrap();
        let calls: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::ToolCall(call) => Some(call),
                _ => None,
            })
            .collect();
        let is_valid = |call: &&alara_engine::ToolCall| {
            let tool = tools.iter().find(|tool| tool.name == call.name);
            tool.is_some_and(|tool| {
                jsonschema::is_valid(&tool.parameters, &Value::Object(call.arguments.clone()))
            })
        };
        let cut = events.iter().any(|event| matches!(event, Event::Incomplete { .. }));
        valid += usize::from(!calls.is_empty() && calls.iter().all(is_valid) && !cut);
    }
    assert_eq!(valid, 100);
}
