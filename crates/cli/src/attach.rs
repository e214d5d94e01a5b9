//! Attaches the text of files that a message mentions as `@PATH`.

use std::path::Path;

use alara_engine::file;
use anyhow::{Context, bail};

use crate::{input, ui};

/// Maximum total size of the files of one message, in bytes.
const MOST: u64 = 128 << 10;

/// Returns the message followed by the text of each file that it mentions as `@PATH`, relative to
/// `workdir`.
/// A word that names no file stays as it is; warns if it looks like the path of one.
///
/// # Errors
/// A file isn't text, or is too long.
pub fn attached(message: &str, workdir: &Path) -> anyhow::Result<String> {
    for warning in missing(message, workdir) {
        ui::note(&format!("warning: {warning}"));
    }
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
    candidates(word)?.into_iter().find(|name| !name.is_empty() && workdir.join(name).is_file())
}

/// Returns what follows the `@` of a word: all of it, and without punctuation at its end.
fn candidates(word: &str) -> Option<[&str; 2]> {
    let name = word.trim_start_matches(['(', '"', '\'']).strip_prefix('@')?;
    Some([name, name.trim_end_matches(['.', ',', ';', ':', '?', '!', ')', '"', '\''])])
}

/// Explains which words look like the path of a file that doesn't exist.
/// A word at the beginning of one of several lines is more likely a decorator in code.
fn missing(message: &str, workdir: &Path) -> Vec<String> {
    let is_code = message.trim().contains('\n');
    let words = message.lines().flat_map(|line| line.split_whitespace().skip(usize::from(is_code)));
    let mut told: Vec<String> = Vec::new();
    for word in words.filter(|word| named(word, workdir).is_none()) {
        let Some([_, name]) = candidates(word) else { continue };
        let near = near(name, workdir);
        if !is_path(name) || workdir.join(name).exists() || (is_package(name, workdir) && near.is_none()) {
            continue;
        }
        let hint = near.map_or_else(String::new, |near| format!(", did you mean @{near}?"));
        let warning = format!("there is no file {name}, so @{name} stays a word{hint}");
        if !told.contains(&warning) {
            told.push(warning);
        }
    }
    told
}

/// Whether a name looks like a path: it has a dot or a slash, and no other signs than paths have.
fn is_path(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '_' | '-');
    name.contains(['.', '/']) && name.contains(char::is_alphanumeric) && name.chars().all(fits)
}

/// Whether a name is more likely a package's than a file's, as in `@types/node`.
fn is_package(name: &str, workdir: &Path) -> bool {
    let (folder, file) = name.split_once('/').unwrap_or(("", name));
    !folder.is_empty() && !file.contains('.') && !workdir.join(folder).is_dir()
}

/// Returns the path of a file next to `name` whose name is similar.
fn near(name: &str, workdir: &Path) -> Option<String> {
    let (folder, file) = name.rsplit_once('/').map_or(("", name), |(folder, file)| (folder, file));
    let entries = workdir.join(folder).read_dir().ok()?.flatten().filter(|entry| entry.path().is_file());
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = alara_engine::nearest(file, names.iter().map(String::as_str))?;
    Some(if folder.is_empty() { near.to_owned() } else { format!("{folder}/{near}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_no_file_are_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        for name in ["notes.md", "src/main.rs"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(missing(text, folder.path()), expected, "{text}");
        };
        let near = "there is no file nots.md, so @nots.md stays a word, did you mean @notes.md?";
        check("sum up @nots.md, and (@nots.md)", &[near]);
        check(
            "read @src/man.rs",
            &["there is no file src/man.rs, so @src/man.rs stays a word, did you mean @src/main.rs?"],
        );
        check(
            "read @src/quite/other.",
            &["there is no file src/quite/other, so @src/quite/other stays a word"],
        );
        for text in [
            "sum up @notes.md and @src/main.rs.",
            "mail me@example.org or a.b@example.org",
            "what does @decorator do, and @app.route('/x')?",
            "explain\n@app.route\n  @pytest.mark.slow\ndef f(): ...",
            "install @types/node",
            "look into @src and @src/, @... and @./",
        ] {
            check(text, &[]);
        }
    }

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
