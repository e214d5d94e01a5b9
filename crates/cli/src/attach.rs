//! Attaches the text of files that a message mentions as `@PATH`.

use std::path::Path;

use alara_engine::file;
use anyhow::{Context, bail};

use crate::{input, ui};

/// Maximum total size of the files of one message, in bytes.
const MOST: u64 = 128 << 10;

/// Returns the message followed by the text of each file that it mentions as `@PATH`, relative to
/// `workdir`.
/// A word that names no file stays as it is.
///
/// # Errors
/// A file isn't text, or is too long.
pub fn attached(message: &str, workdir: &Path) -> anyhow::Result<String> {
    let (mut whole, mut left) = (message.to_owned(), MOST);
    let mut seen = Vec::new();
    for name in message.split_whitespace().filter_map(|word| named(word, workdir)) {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let path = workdir.join(name);
        let bytes = file::read(&path, file::TEXT).with_context(|| format!("can't read @{name}"))?;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let Some(text) = text else {
            bail!("@{name} is no text (UTF-8)\nhint: leave out the @, and the agent may look at the file")
        };
        let Some(rest) = left.checked_sub(text.len() as u64) else {
            bail!(
                "@{name} has {}, and the files of a message at most {}\nhint: leave out the @, and the agent \
                 reads what it needs",
                ui::bytes(text.len() as u64),
                ui::bytes(MOST)
            );
        };
        left = rest;
        ui::note(&format!("with {name} ({})", ui::bytes(text.len() as u64)));
        whole = input::with_block(&whole, &format!("File {name}"), &text);
    }
    Ok(whole)
}

/// Returns the file that a word names, ignoring punctuation after it.
fn named<'a>(word: &'a str, workdir: &Path) -> Option<&'a str> {
    let name = word.trim_start_matches(['(', '"', '\'']).strip_prefix('@')?;
    let shorter = name.trim_end_matches(['.', ',', ';', ':', '?', '!', ')', '"', '\'']);
    [name, shorter].into_iter().find(|name| !name.is_empty() && workdir.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_along() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("a.txt", b"one\n");
        write("b", b"two");
        write("image", b"\xff\xfe\0");
        write("large", &vec![b'x'; 1 << 18]);
        let attached = |text: &str| attached(text, folder.path()).map_err(|error| format!("{error:#}"));
        assert_eq!(
            attached("compare @a.txt, and (@b) and @a.txt").unwrap(),
            "compare @a.txt, and (@b) and @a.txt\n\nFile a.txt:\n```\none\n```\n\nFile b:\n```\ntwo\n```"
        );
        for text in ["mail me@example.org", "@param x", "@", "@@a.txt"] {
            assert_eq!(attached(text).unwrap(), text);
        }
        assert!(attached("look at @image").unwrap_err().starts_with("@image is no text"));
        assert!(attached("look at @large").unwrap_err().starts_with("@large has 256.0 KiB, and the files"));
    }
}
