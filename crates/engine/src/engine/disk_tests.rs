//! Tests the disk tier, budgets and memory through the engine's interface.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use alara_text::gguf::Writer;
use alara_text::request::{Message, Segment, Usage};

use super::tests::{TEMPLATE, collect};
use super::*;
use crate::cache::disk::{Log, Options as DiskOptions};

/// Writes a fixture with a chat template to `path`.
fn write(case: &str, path: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
    let gguf = Gguf::open(&folder.join(case).join("model.gguf")).unwrap();
    let writer = Writer::copy_of(&gguf).meta("tokenizer.chat_template", TEMPLATE.to_owned());
    std::fs::write(path, writer.bytes().unwrap()).unwrap();
}

fn engine(path: &Path, folder: Option<PathBuf>, options: Options) -> Engine {
    let disk = folder.map(|folder| DiskOptions {
        folder,
        limit: 1 << 30,
        patience: Duration::MAX,
        always: true,
        log: Log::default(),
        outcome: Arc::default(),
    });
    let options = Options { context: Some(512), threads: 1, disk, ..options };
    Engine::load(&Gguf::open(path).unwrap(), &options).unwrap()
}

fn request(skill: &str, text: &str) -> Request {
    let segment = |text: &str| Segment { name: String::new(), text: text.to_owned() };
    Request {
        system: vec![segment("You live in a house in the forest."), segment(skill)],
        messages: vec![Message::user(text)],
        max_tokens: Some(6),
        ..Request::default()
    }
}

fn ask(engine: &Engine, request: &Request) -> (String, Usage) {
    let turn = collect(engine.generate(request).unwrap());
    (turn.text, turn.usage)
}

#[test]
fn a_new_process_goes_on_from_static_text() {
    for case in ["qwen3-exact", "gemma3-exact", "gpt-oss-mxfp4-f32", "qwen35moe-fused-gate-up-exact"] {
        let work = tempfile::tempdir().unwrap();
        let (path, folder) = (work.path().join("model.gguf"), work.path().join("cache"));
        write(case, &path);
        let on_disk = || engine(&path, Some(folder.clone()), Options::default());
        let skill = "The kitchen is where reading is done, because of the light.";
        let first = on_disk();
        assert_eq!(ask(&first, &request(skill, "one")).1.disk_tokens, 0, "{case}");
        drop(first);
        let asked = request(skill, "and another one");
        let (text, usage) = ask(&on_disk(), &asked);
        assert!(usage.disk_tokens > 30 && usage.disk_tokens == usage.cached_tokens, "{case}: {usage:?}");
        let (fresh, _) = ask(&engine(&path, None, Options::default()), &asked);
        assert_eq!(text, fresh, "{case}");
        // Keys and values in another number format are unusable.
        let other = engine(&path, Some(folder.clone()), Options { kv: KvType::F32, ..Options::default() });
        assert_eq!(ask(&other, &asked).1.cached_tokens, 0, "{case}");
    }
}

#[test]
fn a_model_that_was_replaced_under_its_name_finds_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (path, folder) = (work.path().join("model.gguf"), work.path().join("cache"));
    write("qwen3-exact", &path);
    let asked = request("The kitchen is where reading is done.", "one");
    drop(ask(&engine(&path, Some(folder.clone()), Options::default()), &asked));
    assert!(ask(&engine(&path, Some(folder.clone()), Options::default()), &asked).1.disk_tokens > 0);
    // A model of the same shape with one weight changed.
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() * 2 / 3;
    bytes[at] ^= 0x20;
    std::fs::write(&path, bytes).unwrap();
    let (text, usage) = ask(&engine(&path, Some(folder), Options::default()), &asked);
    assert_eq!(usage.cached_tokens, 0);
    assert_eq!(text, ask(&engine(&path, None, Options::default()), &asked).0);
}

#[test]
fn a_budget_of_bytes_bounds_what_one_sequence_may_have() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.gguf");
    write("qwen3-exact", &path);
    let whole = {
        let options = Options { context: Some(512), ..Options::default() };
        Engine::memory_estimate(&Gguf::open(&path).unwrap(), &options).unwrap().kv
    };
    let engine = engine(&path, None, Options { kv_bytes: Some(whole / 4), ..Options::default() });
    let mut asked = request("x", "house ".repeat(200).trim());
    let error = engine.generate(&asked).err().unwrap();
    assert!(matches!(error, Error::OutOfBlocks { capacity: 128 }), "{error}");
    asked.messages = vec![Message::user("house")];
    asked.max_tokens = None;
    let prompt = engine.prompt_tokens(&asked).unwrap().len();
    let turn = collect(engine.generate(&asked).unwrap());
    assert!(prompt + turn.usage.completion_tokens <= 128, "{:?}", turn.usage);
}

/// Serves many requests and prints the growth of memory; does nothing unless started by the test
/// that reads the output.
#[test]
fn serves_many_requests() {
    let Some(path) = std::env::var_os("ALARA_TEST_SERVES") else { return };
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    let path = PathBuf::from(path);
    let folder = path.with_extension("cache");
    let engine = engine(&path, Some(folder), Options::default());
    let mut before = 0;
    for number in 0..1400 {
        if number == 400 {
            before = resident();
        }
        let skill = format!("Skill {} is about the kitchen.", number % 40);
        ask(&engine, &request(&skill, &format!("question {number}")));
    }
    println!("grown {before} {}", resident());
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.gguf");
    write("qwen35moe-fused-gate-up-exact", &path);
    // In a separate process, since other tests use memory too.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["engine::disk_tests::serves_many_requests", "--exact", "--nocapture"]);
    let output = child.env("ALARA_TEST_SERVES", &path).stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("grown ")).unwrap_or_else(|| panic!("{text}"));
    let [before, after] = [0, 1].map(|at| line.split(' ').nth(at).unwrap().parse::<f64>().unwrap());
    println!("{before} pages before, {after} after 1000 requests");
    assert!(after <= before * 1.01, "{before} pages, then {after}");
}
