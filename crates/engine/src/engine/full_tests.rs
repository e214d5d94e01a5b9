//! Tests a device whose memory becomes full in the middle of a step.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alara_text::gguf::Writer;
use alara_text::request::{Message, Sampling};

use super::tests::{TEMPLATE, collect};
use super::*;

fn model(case: &str) -> Gguf {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch").join(case);
    let gguf = Gguf::open(&case.join("model.gguf")).unwrap();
    let gguf = Writer::copy_of(&gguf).meta("tokenizer.chat_template", TEMPLATE);
    Gguf::from_vec("tiny", gguf.bytes().unwrap()).unwrap()
}

/// An engine with the last blocks on a device with this much memory, and the first on the host.
fn scarce(gguf: &Gguf, memory: &Arc<AtomicU64>) -> Engine {
    let options = Options { context: Some(256), parallel: 3, threads: 1, ..Options::default() };
    Engine::load_by(gguf, &options, |start, _| {
        let device = Native::with_threads(1).with_memory(memory);
        start.on(Split::new(device, Native::with_threads(1), 1), 1 << 20)
    })
    .unwrap()
}

fn ask(text: &str, seed: u64) -> Request {
    let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
    Request { messages: vec![Message::user(text)], max_tokens: Some(6), sampling, ..Request::default() }
}

/// The error that a turn ends with.
fn error(events: Events) -> String {
    match events.last() {
        Some(Err(error)) => error.to_string(),
        other => panic!("it ends with {other:?}"),
    }
}

#[test]
fn a_full_device_fails_the_step_and_serves_later_requests() {
    for case in ["qwen3-exact", "gemma3-exact", "qwen35moe-fused-gate-up-exact"] {
        let gguf = model(case);
        let (long, short) = ("house ".repeat(60), "the house");
        let ample = scarce(&gguf, &Arc::new(AtomicU64::new(u64::MAX)));
        let wanted = [long.as_str(), short].map(|text| collect(ample.generate(&ask(text, 3)).unwrap()).text);

        let memory = Arc::new(AtomicU64::new(u64::MAX));
        let engine = scarce(&gguf, &memory);
        // Something is cached of a first turn, and stays correct.
        assert_eq!(collect(engine.generate(&ask(short, 3)).unwrap()).text, wanted[1], "{case}");
        for round in 0..12 {
            memory.store(0, Ordering::Relaxed);
            let message = error(engine.generate(&ask(&long, 3)).unwrap());
            let expected = "the GPU's memory is full at: attention, in a step of ";
            assert!(message.starts_with(expected) && message.contains("--gpu-layers"), "{case}: {message}");
            // Two turns in the same step get the same error.
            let both = [&long, short].map(|text| engine.generate(&ask(text, round)).unwrap());
            for events in both {
                assert!(error(events).starts_with(expected), "{case}");
            }
            memory.store(u64::MAX, Ordering::Relaxed);
            let texts =
                [long.as_str(), short].map(|text| collect(engine.generate(&ask(text, 3)).unwrap()).text);
            assert_eq!(texts, wanted, "{case} round {round}");
        }
    }
}

/// If memory runs out in the middle of a turn, the tokens computed before stay cached, and none of
/// the failed step.
#[test]
fn a_turn_that_is_cut_off_leaves_nothing_wrong_behind() {
    for case in ["qwen3-exact", "qwen35moe-fused-gate-up-exact"] {
        let gguf = model(case);
        let ample = scarce(&gguf, &Arc::new(AtomicU64::new(u64::MAX)));
        let request = Request { max_tokens: Some(40), ..ask("tell me about the house", 5) };
        let wanted = collect(ample.generate(&request).unwrap());
        assert!(wanted.usage.completion_tokens > 20, "{case}: a turn that is long enough");
        // This many bytes suffice for the prompt and a few tokens.
        let (mut cut, mut most) = (0, 0);
        for bytes in (0..40_000).step_by(1000) {
            let memory = Arc::new(AtomicU64::new(bytes));
            let engine = scarce(&gguf, &memory);
            let events: Vec<_> = engine.generate(&request).unwrap().collect();
            if events.last().is_some_and(Result::is_ok) {
                break;
            }
            memory.store(u64::MAX, Ordering::Relaxed);
            let after = collect(engine.generate(&request).unwrap());
            assert_eq!(after.text, wanted.text, "{case} with {bytes} bytes");
            (cut, most) = (cut + usize::from(events.len() > 1), most.max(after.usage.cached_tokens));
        }
        assert!(cut > 0 && most > 0, "{case}: {cut} were cut off in the middle, {most} tokens were kept");
    }
}
