//! Stores answers that later requests continue by id (`previous_response_id`): in memory, up to a
//! size limit, and on disk if a folder is set.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use alara_engine::Message;
use alara_harness::trace::make_directory;
use serde_json::{Value, json};

/// Size limit of the answers in memory, as JSON, in bytes.
const BYTES: usize = 64 << 20;
/// Maximum number of answers on disk; the oldest are deleted first.
const FILES: usize = 1000;

/// An answer, with the conversation that it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The conversation with its latest message, without its instructions.
    pub messages: Vec<Message>,
    /// The answer as it was sent.
    pub body: Value,
}

/// The stored answers, the latest last.
#[derive(Debug, Default)]
pub struct Store {
    folder: Option<PathBuf>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Ids, and answers as JSON.
    answers: VecDeque<(String, String)>,
    bytes: usize,
}

impl Store {
    /// Creates a store that also writes answers to `folder`.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Store { folder, kept: Mutex::default() }
    }

    /// Stores an answer.
    /// A disk that is full or missing isn't the request's error: then the answer stays only in
    /// memory.
    pub fn put(&self, id: &str, stored: &Stored) {
        let text = json!({"messages": stored.messages, "body": stored.body}).to_string();
        if let Some(path) = self.path(id) {
            let _ = write(&path, &text);
            self.tidy();
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += text.len();
        kept.answers.push_back((id.to_owned(), text));
        while kept.bytes > BYTES {
            let Some((_, text)) = kept.answers.pop_front() else { break };
            kept.bytes -= text.len();
        }
    }

    /// Returns the answer with this id.
    pub fn get(&self, id: &str) -> Option<Stored> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = kept.answers.iter().find(|(known, _)| known == id).map(|(_, text)| text.clone());
        drop(kept);
        let text = text.or_else(|| std::fs::read_to_string(self.path(id)?).ok())?;
        let mut value: Value = serde_json::from_str(&text).ok()?;
        let messages = serde_json::from_value(value["messages"].take()).ok()?;
        Some(Stored { messages, body: value["body"].take() })
    }

    /// Deletes the answer with this id.
    /// Returns false if there is none.
    pub fn remove(&self, id: &str) -> bool {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.answers.iter().position(|(known, _)| known == id);
        if let Some((_, text)) = at.and_then(|at| kept.answers.remove(at)) {
            kept.bytes -= text.len();
        }
        drop(kept);
        let removed = self.path(id).is_some_and(|path| std::fs::remove_file(path).is_ok());
        at.is_some() || removed
    }

    /// Returns the path of an answer; `None` for an id that this server can't have made.
    fn path(&self, id: &str) -> Option<PathBuf> {
        let own =
            id.starts_with("resp_") && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        self.folder.as_ref().filter(|_| own).map(|folder| folder.join(format!("{id}.json")))
    }

    /// Deletes the oldest files if there are too many.
    fn tidy(&self) {
        let Some(entries) = self.folder.as_ref().and_then(|folder| folder.read_dir().ok()) else { return };
        let files = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let own = name.starts_with("resp_") && name.ends_with(".json");
            Some((entry.metadata().ok()?.modified().ok()?, entry.path())).filter(|_| own)
        });
        let mut files: Vec<_> = files.collect();
        files.sort();
        for (_, path) in &files[..files.len().saturating_sub(FILES)] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a file that only its owner may read, since conversations are private.
fn write(path: &Path, text: &str) -> io::Result<()> {
    make_directory(&path.with_file_name(""))?;
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_again() {
        let folder = std::env::temp_dir().join(crate::inner::id("alara-store-"));
        let stored = |text: &str| Stored { messages: vec![Message::user(text)], body: json!({"id": text}) };
        let store = Store::new(Some(folder.clone()));
        store.put("resp_a", &stored("a"));
        assert_eq!(store.get("resp_a"), Some(stored("a")));
        assert_eq!(store.get("resp_b"), None);
        #[cfg(unix)]
        for (path, mode) in [(folder.clone(), 0o700), (folder.join("resp_a.json"), 0o600)] {
            let permissions = path.metadata().unwrap().permissions();
            assert_eq!(
                std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777,
                mode,
                "{}",
                path.display()
            );
        }
        // A restarted server reads them from disk, and ignores other files.
        std::fs::write(folder.join("other.json"), "{}").unwrap();
        let later = Store::new(Some(folder.clone()));
        assert_eq!(later.get("resp_a"), Some(stored("a")));
        for id in ["../other", "other", "resp_/../other", ""] {
            assert_eq!((later.get(id), later.remove(id)), (None, false), "{id}");
        }
        assert!(later.remove("resp_a") && !later.remove("resp_a"));
        assert!(folder.join("other.json").exists());
        std::fs::remove_dir_all(folder).unwrap();
        assert!(store.remove("resp_a") && store.get("resp_a").is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let store = Store::default();
        let large = Stored { messages: vec![Message::user("x".repeat(BYTES / 3))], body: Value::Null };
        for id in ["resp_a", "resp_b", "resp_c"] {
            store.put(id, &large);
        }
        assert!(store.get("resp_a").is_none() && store.get("resp_c").is_some());
    }
}
