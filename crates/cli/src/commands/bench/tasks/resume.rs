//! Resumes a run with the options that it was started with.

use std::path::Path;

use alara_bench::run_file;
use anyhow::Context;

use super::{Args, parsed};

/// Returns the options that the run in a file, or the sweep in a folder, was started with.
pub fn begun_with(path: &Path) -> Option<Vec<String>> {
    let command = |file: &Path| run_file::read(file).ok().map(|run| run.header.command);
    match path.read_dir() {
        Ok(entries) => entries.flatten().find_map(|entry| command(&entry.path())),
        Err(_) => command(path),
    }
}

/// Returns these arguments, completed by the options that a run was started with.
pub fn as_begun(args: &Args, words: &[String]) -> anyhow::Result<Args> {
    let begun = parsed(words).context("this version can't read the options that the run began with")?;
    Ok(Args { resume: args.resume.clone(), json: args.json, ..begun })
}

/// Options for the output of a run, and the number of values each takes.
const OUTPUT: [(&str, usize); 3] = [("--out", 1), ("--resume", 1), ("--json", 0)];

/// Returns the options of this process's command, without those for its output.
pub fn own_words() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    without(words.skip(3).collect(), &OUTPUT)
}

/// Removes these options from the words, each with its number of values.
fn without(mut words: Vec<String>, options: &[(&str, usize)]) -> Vec<String> {
    for (option, values) in options {
        if let Some(at) = words.iter().position(|word| word == option) {
            words.drain(at..(at + 1 + values).min(words.len()));
        }
        words.retain(|word| !word.starts_with(&format!("{option}=")));
    }
    words
}

/// Returns the command of this process that resumes `path`.
pub fn resume_command(path: &Path) -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    resumed(words.collect(), path)
}

/// Returns these words as a shell command that resumes `path`.
fn resumed(words: Vec<String>, path: &Path) -> String {
    let mut words = without(words, &OUTPUT[..2]);
    words.extend(["--resume".to_owned(), path.display().to_string()]);
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./:=,@%+".contains(c))
    };
    let quoted = words.iter().map(|word| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_command_that_goes_on_as_it_was_typed() {
        let check = |words: &[&str], expected: &str| {
            let words = words.iter().map(ToString::to_string).collect();
            assert_eq!(resumed(words, Path::new("a b.jsonl")), format!("{expected} --resume 'a b.jsonl'"));
        };
        check(&["alara", "bench", "tasks", "--out", "x"], "alara bench tasks");
        check(&["alara", "bench", "--out=x", "-m", "http://h:1/v1#m"], "alara bench -m 'http://h:1/v1#m'");
        check(&["alara", "s*", "", "it's", "(a|b)", "~x"], r"alara 's*' '' 'it'\''s' '(a|b)' '~x'");
    }
}
