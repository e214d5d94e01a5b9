//! Tests a model file that changes while it is in use.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use alara_text::gguf::{GgufError, Writer};
use alara_text::request::{Event, Message, Sampling};

use super::tests::{TEMPLATE, collect};
use super::*;

/// A copy of a small model.
fn copy(folder: &Path) -> PathBuf {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch/qwen3-exact/model.gguf");
    let gguf = Writer::copy_of(&Gguf::open(&case).unwrap()).meta("tokenizer.chat_template", TEMPLATE);
    let path = folder.join("model.gguf");
    std::fs::write(&path, gguf.bytes().unwrap()).unwrap();
    path
}

fn engine(path: &Path) -> Engine {
    let options = Options { context: Some(4096), threads: 2, ..Options::default() };
    Engine::load(&Gguf::open(path).unwrap(), &options).unwrap()
}

fn ask(seed: u64, max_tokens: usize) -> Request {
    let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
    let messages = vec![Message::user("hi")];
    Request { messages, sampling, ignore_eos: true, max_tokens: Some(max_tokens), ..Request::default() }
}

/// Checks that the turn ends with an error that names the file.
#[track_caller]
fn check_lost(events: impl Iterator<Item = Result<Event>>, path: &Path) {
    match events.last() {
        Some(Err(error @ Error::Gguf(GgufError::Changed { .. }))) => {
            assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
        }
        other => panic!("it ends with {other:?}"),
    }
}

#[test]
fn a_file_that_is_cut_short_in_mid_answer_is_an_error_that_names_it() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = folders.each_ref().map(|folder| copy(folder.path()));
    let [engine, other] = paths.each_ref().map(|path| engine(path));
    let expected = collect(other.generate(&ask(5, 40)).unwrap()).text;
    let mut events = engine.generate(&ask(4, 3000)).unwrap();
    let first =
        events.find(|event| matches!(event, Ok(Event::Text { text }) if !text.is_empty()) || event.is_err());
    assert!(first.unwrap().is_ok());
    OpenOptions::new().write(true).open(&paths[0]).unwrap().set_len(4096).unwrap();
    check_lost(events, &paths[0]);
    // From then on it generates nothing, while engines with other files are unaffected.
    for seed in 0..3 {
        check_lost(engine.generate(&ask(seed, 8)).unwrap(), &paths[0]);
        assert_eq!(collect(other.generate(&ask(5, 40)).unwrap()).text, expected);
    }
    drop(engine);
    assert_eq!(collect(other.generate(&ask(5, 40)).unwrap()).text, expected);
}

#[test]
fn a_file_that_is_written_over_is_an_error_and_one_that_is_replaced_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path());
    let engine = engine(&path);
    let expected = collect(engine.generate(&ask(1, 20)).unwrap()).text;
    // If it is replaced or removed, the mapped contents stay.
    let other = folder.path().join("other.gguf");
    std::fs::copy(&path, &other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(collect(engine.generate(&ask(1, 20)).unwrap()).text, expected);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(collect(engine.generate(&ask(1, 20)).unwrap()).text, expected);

    let path = copy(folder.path());
    let engine = super::lost_tests::engine(&path);
    assert_eq!(collect(engine.generate(&ask(1, 20)).unwrap()).text, expected);
    // Overwritten with other bytes of the same length.
    let bytes = vec![7; std::fs::metadata(&path).unwrap().len() as usize];
    std::fs::write(&path, bytes).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    check_lost(engine.generate(&ask(1, 20)).unwrap(), &path);
}
