//! Resolves inexact model names: other spellings of a known name, and similar names to suggest.

use super::Entry;

/// Maximum number of names to suggest.
const OFFERED: usize = 5;
/// Suffixes that file names and Ollama's tags have and our names don't.
const ENDINGS: [&str; 5] = ["-latest", "-instruct", "-it", "-chat", "-gguf"];

/// Finds the model in `entries` that a name in another spelling means: Ollama's `qwen3:4b` or
/// `llama3.2:3b-instruct-q4_K_M`, or the file's name.
/// Ollama's own tags change meaning over time; we use the model that the tag names.
pub fn meant<'a>(name: &str, entries: &'a [Entry]) -> Option<&'a Entry> {
    entries.iter().find(|entry| {
        let own = core(name, entry);
        let file = (!entry.is_checkpoint()).then(|| entry.file.rsplit('/').next()).flatten();
        let names = [Some(entry.name.as_str()), entry.ollama.as_deref(), file];
        names.into_iter().flatten().any(|known| core(known, entry) == own)
    })
}

/// Strips from a name everything that doesn't identify the model `entry`.
fn core(name: &str, entry: &Entry) -> String {
    let name = plain(name);
    let quantization = format!("-{}", plain(&entry.quantization));
    let mut core = name.as_str();
    while let Some(shorter) =
        ENDINGS.into_iter().chain([&*quantization]).find_map(|end| core.strip_suffix(end))
    {
        core = shorter;
    }
    core.to_owned()
}

/// Lowercases a name and puts one separator between words.
fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_suffix(".gguf").unwrap_or(&name).replace([':', '_', ' '], "-")
}

/// Returns the names of `known` that are similar to `name`: those that begin with it, else the
/// nearest one, else those that begin with the same letters.
pub fn alike(name: &str, known: &[String]) -> Vec<String> {
    let name = plain(name);
    let letters = &name[..name.find(|c: char| !c.is_alphabetic()).unwrap_or(name.len())];
    let of = |is: &dyn Fn(&str) -> bool| -> Vec<String> {
        known.iter().filter(|other| is(&plain(other))).take(OFFERED).cloned().collect()
    };
    let next = |other: &str, begin: &str| other.strip_prefix(begin).and_then(|rest| rest.chars().next());
    let groups: [&dyn Fn(&str) -> bool; 2] =
        [&|other| next(other, &name) == Some('-'), &|other| name.len() > 2 && other.starts_with(&name)];
    let begun = groups.into_iter().map(of).find(|found| !found.is_empty());
    begun
        .or_else(|| {
            let plains: Vec<String> = known.iter().map(|other| plain(other)).collect();
            let near = alara_engine::nearest(&name, plains.iter().map(String::as_str))?;
            let at = plains.iter().position(|other| other == near)?;
            Some(vec![known[at].clone()])
        })
        .unwrap_or_else(|| {
            of(&|other| {
                letters.len() > 2
                    && other.starts_with(letters)
                    && !next(other, letters).is_some_and(char::is_alphabetic)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::entries;

    #[test]
    fn other_spellings() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(meant(name, entries().unwrap()).map(|entry| entry.name.as_str()), expected, "{name}");
        };
        check("qwen3:4b", Some("qwen3-4b"));
        check("Qwen3 4B", Some("qwen3-4b"));
        check("qwen3:8b-q4_K_M", Some("qwen3-8b"));
        check("llama3.2:3b-instruct-q4_K_M", Some("llama3.2-3b"));
        check("Qwen3-4B-Q4_K_M.gguf", Some("qwen3-4b"));
        check("glm-4.7-flash:latest", Some("glm-4.7-flash"));
        // Another quantization is another file, and another size another model.
        check("qwen3:8b-q8_0", None);
        check("qwen3:14b", None);
        check("qwen3", None);
        check("model.safetensors", None);
    }

    #[test]
    fn names_that_are_like_it() {
        let known = ["alara-tiny", "qwen3-4b", "qwen3-8b", "qwen3.5-4b", "gemma3-4b", "hf.co/o/r:a.gguf"];
        let known = known.map(str::to_owned);
        let check = |name: &str, expected: &[&str]| assert_eq!(alike(name, &known), expected, "{name}");
        check("qwen3", &["qwen3-4b", "qwen3-8b"]);
        check("qwen", &["qwen3-4b", "qwen3-8b", "qwen3.5-4b"]);
        check("Qwen3.5", &["qwen3.5-4b"]);
        check("gema3-4b", &["gemma3-4b"]);
        check("qwen9", &["qwen3-4b", "qwen3-8b", "qwen3.5-4b"]);
        check("gem", &["gemma3-4b"]);
        check("no-such", &[]);
        check("a", &[]);
    }
}
