//! Draft tokens don't change answers, whether greedy or sampled, unconstrained or under a grammar.

use std::path::Path;

use alara_text::gguf::Writer;
use alara_text::request::{Biased, DraftUsage, Event, Message, Sampling, Segment, Tool, ToolChoice, Usage};
use serde_json::json;

use super::tests::{TEMPLATE, collect};
use super::*;

/// Fixtures of every mechanism, with similar tokenizers.
const CASES: [&str; 11] = [
    "deepseek2-glm47flash-exact",
    "gemma3-exact",
    "gpt-oss-mxfp4-f32",
    "llama-exact",
    "llama-mistral-small-exact",
    "llama3-ropefreqs-exact",
    "mistral3-yarn-exact",
    "olmo2-exact",
    "phi3-exact",
    "qwen3-exact",
    "qwen35moe-fused-gate-up-exact",
];

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(case: &str) -> Gguf {
    let path = root().join("tests/fixtures/arch").join(case).join("model.gguf");
    let writer = Writer::copy_of(&Gguf::open(&path).unwrap()).meta("tokenizer.chat_template", TEMPLATE);
    Gguf::from_vec(case, writer.bytes().unwrap()).unwrap()
}

/// The same model with and without drafts.
struct Both {
    engines: [Engine; 2],
    usage: Usage,
    turns: usize,
}

impl Both {
    fn new(gguf: &Gguf, parallel: usize) -> Both {
        let engine = |drafts| {
            let options = Options { drafts, threads: 1, parallel, context: Some(1024), ..Options::default() };
            Engine::load(gguf, &options).unwrap()
        };
        Both { engines: [engine(false), engine(true)], usage: Usage::default(), turns: 0 }
    }

    /// Makes all requests at once, with and without drafts, and compares all events.
    fn check(&mut self, requests: &[Request], what: &str) {
        let [without, with] = &self.engines;
        let all = |engine: &Engine| -> Vec<Vec<Event>> {
            let turns: Vec<Events> =
                requests.iter().map(|request| engine.generate(request).unwrap()).collect();
            turns.into_iter().map(|turn| turn.map(Result::unwrap).collect()).collect()
        };
        for (at, (mut with, mut without)) in all(with).into_iter().zip(all(without)).enumerate() {
            let (Some(Event::Done { finish, usage }), Some(Event::Done { finish: other, usage: plain })) =
                (with.pop(), without.pop())
            else {
                panic!("{what} {at} has no end")
            };
            assert_eq!((with, finish), (without, other), "{what} {at}");
            assert_eq!(usage.completion_tokens, plain.completion_tokens, "{what} {at}");
            assert_eq!(plain.drafts, DraftUsage::default(), "{what} {at}");
            assert!(usage.drafts.accepted <= usage.drafts.drafted.min(usage.completion_tokens), "{usage:?}");
            self.usage += usage;
            self.turns += 1;
        }
    }
}

fn tool() -> Tool {
    Tool {
        name: "move_to".into(),
        description: "Moves".into(),
        parameters: json!({
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 6}, "to": {"enum": ["left", "right"]}},
            "required": ["path", "to"],
        }),
        strict: false,
    }
}

/// One of the steps that depend on earlier tokens, or take more than one random number.
fn more(at: usize) -> Sampling {
    let off = Sampling::default();
    match at % 8 {
        0 => Sampling { dry_multiplier: 0.8, ..off },
        1 => Sampling { xtc_probability: 0.5, ..off },
        2 => Sampling { mirostat: 1, ..off },
        3 => Sampling { mirostat: 2, mirostat_tau: 3.0, ..off },
        4 => Sampling { typical_p: 0.8, dynatemp_range: 0.5, ..off },
        5 => Sampling { logit_bias: vec![(Biased::Text("house".into()), 3.0)], ..off },
        _ => off,
    }
}

/// A turn that varies with `at`: free or a call, greedy or sampled, with some words of the prompt
/// repeated.
fn request(at: usize, tokens: usize) -> Request {
    let words = ["house", "reading because", "the kitchen", "if x return", "about a house"];
    let text = [words[at % 5], words[at / 5 % 5], words[at % 5], words[at / 25 % 5]].join(" ");
    let calls = at % 4 == 1;
    let sampled = at % 3 == 2;
    Request {
        system: if calls { vec![Segment { name: "d".into(), text: "Move it.".into() }] } else { Vec::new() },
        messages: vec![Message::user(text)],
        tools: if calls { vec![tool()] } else { Vec::new() },
        tool_choice: if calls { ToolChoice::Required } else { ToolChoice::Auto },
        parallel_tool_calls: calls,
        sampling: match sampled {
            false => Sampling::default(),
            true => Sampling {
                temperature: 0.9,
                top_p: [1.0, 0.9][at % 2],
                repetition_penalty: [1.0, 1.1][at / 2 % 2],
                seed: at as u64,
                ..more(at / 3)
            },
        },
        max_tokens: Some(tokens),
        logprobs: (at % 7 == 3).then_some(2),
        ..Request::default()
    }
}

/// More than a thousand turns of all fixtures and of the model that ships.
#[test]
fn answers_are_the_same_with_and_without_drafts() {
    let (mut turns, mut drafts) = (0, DraftUsage::default());
    for case in CASES {
        let mut both = Both::new(&fixture(case), 2);
        for at in (0..80).step_by(2) {
            // One alone, or two together.
            match at % 8 {
                0 => both.check(&[request(at, 12), request(at + 1, 12)], case),
                _ => [at, at + 1].iter().for_each(|at| both.check(&[request(*at, 12)], case)),
            }
        }
        println!("{case}: {:?}", both.usage.drafts);
        turns += both.turns;
        drafts += both.usage.drafts;
    }
    let mut both = Both::new(&Gguf::open(&root().join("models/alara-tiny.gguf")).unwrap(), 2);
    for at in 0..130 {
        both.check(&[request(at, 16)], "alara-tiny");
    }
    println!("alara-tiny: {:?}", both.usage.drafts);
    assert!(both.usage.drafts.accepted > 0, "{:?}", both.usage);
    turns += both.turns;
    assert!(turns >= 1000, "{turns}");
    assert!(0 < drafts.accepted && drafts.accepted < drafts.drafted, "{drafts:?}");
}

/// A request that is dropped, or cut off by a limit, leaves none of its draft tokens to the next
/// one.
#[test]
fn what_follows_a_turn_with_drafts_is_the_same() {
    for case in ["qwen3-exact", "gemma3-exact", "gpt-oss-mxfp4-f32", "qwen35moe-fused-gate-up-exact"] {
        let mut both = Both::new(&fixture(case), 2);
        let mut conversation = request(0, 9);
        for turn in 0..6 {
            both.check(std::slice::from_ref(&conversation), case);
            for engine in &both.engines {
                let mut leaves =
                    engine.generate(&Request { max_tokens: Some(40), ..conversation.clone() }).unwrap();
                leaves.by_ref().take(1 + turn).for_each(drop);
            }
            let answer = collect(both.engines[0].generate(&conversation).unwrap()).text;
            conversation.messages.push(Message::assistant(answer, Vec::new()));
            conversation.messages.push(Message::user("the house and the house again"));
        }
        assert!(both.usage.cached_tokens > 0, "{case}");
    }
}
