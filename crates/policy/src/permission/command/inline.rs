//! Programs in other languages that a command carries as text: an interpreter's argument, or its
//! input.
//!
//! alara can't determine what they run, so a rule that denies a command asks, as for a shell that
//! reads its input.
//! A program in a file counts as a separate program.

use super::interpreters::{MODULES, NAMED};
use super::programs::{after, is_text, unversioned};
use super::{Reader, Word};

/// Programs with the lower-case texts that reveal that they run others: the beginning of an
/// argument if the text is an option, otherwise any part.
#[rustfmt::skip]
const SIGNS: [(&[&str], &[&str]); 9] = [
    (&["ssh", "scp", "sftp", "slogin", "sshfs", "autossh", "mosh", "ssh-copy-id"],
        &["proxycommand", "localcommand", "knownhostscommand", "remotecommand", "pkcs11provider",
            "securitykeyprovider", "xauthlocation"]),
    (&["less", "more", "most"], &["+", "lesskey", "\n"]),
    (&["tex", "latex", "pdftex", "pdflatex", "xetex", "xelatex", "luatex", "lualatex", "luahbtex", "platex",
        "uplatex", "context", "latexmk", "arara", "tectonic"],
        &["shell-escape", "write18", "-enable", "-lua", "\\", "latex=", "-e", "-usepretex", "-pretex",
            "-cnf-line"]),
    (&["gcc", "g++", "cc", "c++", "clang", "clang++", "gfortran"], &["-wrapper"]),
    (&["rustc", "rustdoc"], &["linker=", "-runtool", "-test-builder"]),
    (&["cargo"], &["-config"]),
    (&["go"], &["-exec", "-toolexec", "-vettool"]),
    (&["socat"], &["exec:", "system:", "shell:"]),
    (&["dc"], &["!", "-e"]),
];

/// Programs whose rules run the values of variables.
const MADE_BY: [&str; 4] = ["make", "gmake", "bmake", "just"];

/// sqlite options without a value.
const SQLITE_FLAGS: [&str; 18] = [
    "ascii", "bail", "batch", "box", "column", "csv", "header", "html", "json", "line", "list", "markdown",
    "noheader", "quote", "readonly", "safe", "table", "tabs",
];
/// sqlite commands that run nothing.
const SQLITE_COMMANDS: [&str; 17] = [
    ".databases",
    ".dbinfo",
    ".dump",
    ".fullschema",
    ".header",
    ".headers",
    ".help",
    ".indexes",
    ".mode",
    ".nullvalue",
    ".quit",
    ".schema",
    ".separator",
    ".show",
    ".tables",
    ".timeout",
    ".width",
];

impl Reader {
    /// Notes the program text that a program of this name gets.
    pub(super) fn given(&mut self, name: &str, words: &[Word]) {
        let plain = unversioned(name);
        let rows = NAMED.iter().filter(|(names, _)| names[0] == name || names[0] == plain);
        let carries = rows
            .into_iter()
            .any(|(names, row)| after(words, &names[1..]).is_some_and(|at| row.carries(&words[at..])));
        if MADE_BY.contains(&name) {
            self.set_for_make(words);
        }
        let runs = match name {
            "sqlite3" | "duckdb" => !is_plain_sqlite(words),
            "psql" => !is_plain_sql(words, "cfl", &["--command", "--file", "--list"]),
            "mysql" | "mariadb" => !is_plain_sql(words, "e", &["--execute"]),
            "m4" | "gm4" => !is_plain_files(words),
            "dc" if words.is_empty() || texts(words).any(is_input) => true,
            // Words after `--` are passed to make.
            "cmake" => {
                let dashes = words.iter().position(|word| matches!(word, Word::Text(text) if text == "--"));
                if let Some(at) = dashes {
                    self.given("make", &words[at + 1..]);
                }
                texts(words).any(is_device)
            }
            "crontab" => !texts(words).any(|text| text == "-l"),
            "uv" | "uvx" => {
                texts(words).any(|text| text == "-" || is_device(text) || MODULES.contains(&text))
            }
            // `exec=COMMAND`, and options without a dash.
            "tar" | "gtar" => {
                let bundled = words.first().into_iter().any(|word| {
                    matches!(word, Word::Text(text) if !text.starts_with('-') && text.contains(['I', 'F']))
                });
                bundled || texts(words).any(|text| text.starts_with("--checkpoint-a"))
            }
            // Settings have several spellings, and options may be abbreviated.
            "wget" => texts(words).any(|text| {
                let squeezed = text.to_lowercase().replace(['-', '_'], "");
                squeezed.contains("useask") || squeezed.starts_with("usea") || is_device(text)
            }),
            _ => SIGNS.iter().any(|(names, signs)| names.contains(&plain) && shows(words, signs)),
        };
        if runs || carries {
            self.within(Reader::inline);
        }
    }

    /// Notes values of variables, which makefiles may run.
    fn set_for_make(&mut self, words: &[Word]) {
        for (_, value) in texts(words).filter_map(|text| text.split_once('=')) {
            self.within(|reader| reader.script(value));
        }
    }
}

/// The known words.
fn texts(words: &[Word]) -> impl Iterator<Item = &str> {
    words.iter().filter_map(|word| if let Word::Text(text) = word { Some(text.as_str()) } else { None })
}

fn shows(words: &[Word], signs: &[&str]) -> bool {
    let is_open =
        |pair: &[Word]| matches!(pair, [Word::Text(text), value] if text == "-o" && !is_text(value));
    words.windows(2).any(is_open)
        || texts(words).any(|text| {
            let text = text.to_lowercase().replace("--", "-");
            let shows = |sign: &str| match sign.starts_with(['-', '+']) {
                true => text.starts_with(sign),
                false => text.contains(sign),
            };
            is_device(&text) || signs.iter().any(|sign| shows(sign))
        })
}

/// Whether all words are file names, and there is at least one.
fn is_plain_files(words: &[Word]) -> bool {
    let is_file = |word: &Word| matches!(word, Word::Text(text) if !text.starts_with('-') && !is_input(text));
    !words.is_empty() && words.iter().all(is_file)
}

/// Whether sqlite gets a file and a statement that runs nothing.
fn is_plain_sqlite(words: &[Word]) -> bool {
    let runs = |text: &str| {
        let is_dotted = |line: &str| {
            let line = line.trim_start();
            line.starts_with('.')
                && !SQLITE_COMMANDS.contains(&line.split_whitespace().next().unwrap_or_default())
        };
        let lower = text.to_lowercase().replace("||", "");
        text.lines().any(is_dotted) || ["|", "edit", "load_extension"].iter().any(|sign| lower.contains(sign))
    };
    let is_plain = |word: &Word| match word {
        Word::Text(text) if text == "-" || is_device(text) => false,
        Word::Text(text) if text.starts_with('-') => SQLITE_FLAGS.contains(&text.trim_start_matches('-')),
        Word::Text(text) => !runs(text),
        _ => false,
    };
    let tells = matches!(words, [Word::Text(word)] if ["-version", "--version"].contains(&word.as_str()));
    let operands = texts(words).filter(|text| !text.starts_with('-')).count();
    tells || (words.iter().all(is_plain) && operands > 1)
}

/// Whether one of these options gives an SQL client its statement, and the statement runs nothing.
fn is_plain_sql(words: &[Word], letters: &str, options: &[&str]) -> bool {
    let runs = |text: &str| {
        let lower = text.to_lowercase().replace("||", "");
        ["\\", "|", "`", "system", "program", "pager", "source"].iter().any(|sign| lower.contains(sign))
    };
    let is_plain = |word: &Word| match word {
        Word::Text(text) => {
            !is_input(text) && !text.ends_with("f-") && !is_device(text.get(2..).unwrap_or("")) && !runs(text)
        }
        _ => false,
    };
    let is_done = |text: &str| {
        let cluster =
            text.strip_prefix('-').map(|rest| rest.trim_start_matches(|c| "AtqXx1HsnBNr".contains(c)));
        options.iter().any(|option| text.split('=').next() == Some(*option))
            || cluster.is_some_and(|rest| rest.starts_with(|c| letters.contains(c)))
    };
    let tells = matches!(words, [Word::Text(word)] if ["--version", "--help"].contains(&word.as_str()));
    tells || (words.iter().all(is_plain) && texts(words).any(is_done))
}

/// Whether a word names a program's input in place of a file, or a value that is a program.
pub(super) fn is_input(word: &str) -> bool {
    let name = word.rsplit_once('=').map_or(word, |(_, value)| value);
    name == "-" || ["data:", "php:"].iter().any(|start| name.starts_with(start)) || is_device(word)
}

/// Whether a word is a path of the standard input in any spelling: a terminal, or an open file
/// (`/dev/fd/0`, `/proc/self/task/1/fd/0`).
pub(super) fn is_device(word: &str) -> bool {
    let name = word.rsplit_once('=').map_or(word, |(_, value)| value);
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        // The parent of the root is the root.
        if part == ".." { parts.truncate(parts.len().saturating_sub(1)) } else { parts.push(part) }
    }
    match parts.as_slice() {
        [.., "stdin" | "tty" | "console"] => true,
        [.., "fd" | "pts", number] => number.chars().all(|c| c.is_ascii_digit()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_known_however_it_is_written() {
        for input in [
            "-",
            "/dev/stdin",
            "//dev/stdin",
            "/dev/./stdin",
            "/tmp/../dev/fd/0",
            "../../dev/stdin",
            "/proc/self/fd/0",
            "/proc/thread-self/fd/0",
            "/proc/1/task/1/fd/0",
            "/proc/self/root/dev/tty",
            "--file=/dev/stdin",
            "data:text/javascript,x",
        ] {
            assert!(is_input(input), "{input}");
        }
        for file in ["x.py", "/dev/null", "src/stdin.rs", "a-b", "fd", "/proc/self/status"] {
            assert!(!is_input(file), "{file}");
        }
    }
}
