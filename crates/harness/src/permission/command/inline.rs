//! Programs in other languages that a command carries as text: an interpreter's argument, or its
//! input.
//!
//! What they run is not told, so whoever forbids a command is asked about them, as about a shell
//! that reads its input.
//! What lies in a file counts as a program of its own.

use super::{Reader, Word};

/// Programs with signs of what lets them run others, and whether they read their input where no
/// second operand says what to do.
const SIGNS: [(&[&str], &[&str], bool); 4] = [
    (&["sqlite3", "duckdb"], &[".sh", ".sys", "|", "edit(", "load_extension"], true),
    (&["psql", "mysql", "mariadb"], &["\\!", "system", "|", "PROGRAM", "program"], true),
    (&["m4", "gm4"], &["syscmd"], true),
    (&["dc"], &["!"], true),
];
/// Options that say what to do in place of a second operand.
const DONE_BY: [&str; 6] = ["-c", "-e", "-h", "-l", "--", "-V"];

/// Programs that take rules from a file, which may be their input.
const MAKERS: [&str; 7] = ["make", "gmake", "bmake", "ninja", "samu", "just", "rake"];
/// Their options that name the file.
const RULES: [&str; 5] = ["-f", "--file", "--makefile", "--justfile", "--rakefile"];

/// Editors that run commands of their own, given as arguments.
const EDITORS: [&str; 8] = ["ex", "gvim", "nvim", "rvim", "vi", "view", "vim", "vimdiff"];

/// Letters of options of awk and sed that take no value: others may follow behind the same dash.
const FLAGS: [char; 15] = ['n', 'r', 's', 'u', 'z', 'E', 'b', 'c', 'C', 'g', 'h', 'N', 'O', 'P', 'S'];

/// Options of awk and sed with a value of their own that is no program.
const VALUES: [&str; 6] = ["-v", "--assign", "-F", "--field-separator", "-l", "--line-length"];

impl Reader {
    /// Whatever a program of this name is given as text.
    pub(super) fn given(&mut self, name: &str, words: &[Word]) {
        let runs = match name {
            _ if MAKERS.contains(&name) => makes(words),
            _ if EDITORS.contains(&name) => words.iter().any(|word| match word {
                Word::Text(text) => text.starts_with('+') || is_option_of(text, "csS"),
                Word::One | Word::Any => false,
            }),
            // A line editor: its input are commands.
            "ed" | "red" => true,
            "awk" | "gawk" | "mawk" | "nawk" => has_program(words, awk_runs),
            "sed" | "gsed" => has_program(words, sed_runs),
            // `exec=COMMAND`, and options without a dash.
            "tar" | "gtar" => {
                let bundled = words.first().into_iter().any(|word| {
                    matches!(word, Word::Text(text) if !text.starts_with('-') && text.contains(['I', 'F']))
                });
                bundled || texts(words).any(|text| text.starts_with("--checkpoint-a"))
            }
            _ => SIGNS.iter().any(|(names, signs, reads)| {
                names.contains(&name) && (shows(words, signs) || (*reads && reads_input(words)))
            }),
        };
        if runs {
            self.within(Reader::inline);
        }
    }
}

/// The words that are known.
fn texts(words: &[Word]) -> impl Iterator<Item = &str> {
    words.iter().filter_map(|word| if let Word::Text(text) = word { Some(text.as_str()) } else { None })
}

fn shows(words: &[Word], signs: &[&str]) -> bool {
    texts(words).any(|text| signs.iter().any(|sign| text.replace("||", "").contains(sign)))
}

fn reads_input(words: &[Word]) -> bool {
    let operands = words.iter().filter(|word| !matches!(word, Word::Text(text) if text.starts_with('-')));
    let is_done = texts(words).any(|text| DONE_BY.iter().any(|option| text.starts_with(option)));
    texts(words).any(is_input) || (operands.count() < 2 && !is_done)
}

/// Whether one of the programs among the arguments runs something, or is not known: the first
/// operand, and the values of `-e`.
fn has_program(words: &[Word], runs: impl Fn(&str) -> bool) -> bool {
    let (mut at, mut named) = (0, false);
    while let Some(word) = words.get(at) {
        at += 1;
        let Word::Text(text) = word else { return !named };
        let Some(option) = text.strip_prefix('-').filter(|option| !option.is_empty()) else {
            if !named && runs(text) {
                return true;
            }
            named = true;
            continue;
        };
        let short = option.trim_start_matches(FLAGS);
        let long = ["-e", "-so", "-fil"].iter().any(|start| option.starts_with(start));
        let is_file = option.starts_with("-f") || short.starts_with('f');
        if !long && !short.starts_with(['e', 'f']) {
            at += usize::from(VALUES.contains(&text.as_str()));
            continue;
        }
        named = true;
        let attached = if long { option.split_once('=').map(|(_, value)| value) } else { Some(&short[1..]) };
        let value = match attached.filter(|value| !value.is_empty()) {
            Some(value) => value,
            None => match words.get(at) {
                None => return false,
                Some(Word::Text(value)) => value,
                Some(Word::One | Word::Any) => return true,
            },
        };
        at += usize::from(attached.is_none_or(str::is_empty));
        if if is_file { is_input(value) } else { runs(value) } {
            return true;
        }
    }
    false
}

/// Whether a word names what a program reads as its input, in place of a file.
pub(super) fn is_input(word: &str) -> bool {
    let name = word.rsplit_once('=').map_or(word, |(_, value)| value);
    name == "-" || ["/dev/stdin", "/dev/fd/", "/proc/self/fd/"].iter().any(|start| name.starts_with(start))
}

/// Whether a word is a cluster of options with one of these letters.
fn is_option_of(word: &str, letters: &str) -> bool {
    word.starts_with('-')
        && (word.contains("--cmd") || (!word.starts_with("--") && word.contains(|c| letters.contains(c))))
}

/// Whether rules are given as text: a file that is the input, a line of a makefile, a variable that
/// is expanded to what a command prints.
fn makes(words: &[Word]) -> bool {
    let mut follows = false;
    words.iter().any(|word| {
        let Word::Text(text) = word else { return std::mem::take(&mut follows) };
        let is_rules = std::mem::replace(&mut follows, RULES.contains(&text.as_str()));
        let attached = text.strip_prefix("-f").is_some_and(|file| !file.is_empty() && is_input(file));
        let evaluated = ["--eval", "-E", "--execute"].iter().any(|option| text.starts_with(option));
        let set = text.split_once('=').is_some_and(|(name, value)| {
            value.contains("$(") || ["SHELL", ".SHELLFLAGS", "MAKEFILES", "MAKEFLAGS"].contains(&name)
        });
        attached || evaluated || set || (is_input(text) && (is_rules || text.starts_with("--")))
    })
}

/// Whether a program of awk may run something: by a pipe, `system`, or a function whose name is a
/// value.
fn awk_runs(program: &str) -> bool {
    if program.contains("system") || program.contains("getline") {
        return true;
    }
    let mut before = ' ';
    let mut twice = false;
    let mut rest = program.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let end = match c {
            '"' => beyond(&program[at + 1..], '"', false),
            '#' => Some(program[at..].find('\n').map_or("", |end| &program[at + end..])),
            // For some it divides, for others an expression begins.
            '/' if twice => return true,
            // It divides what stands before it.
            '/' if before.is_alphanumeric() || "_)]$".contains(before) => None,
            '/' => match beyond(&program[at + 1..], '/', true) {
                Some(end) if !program[at..program.len() - end.len()].contains('\n') => Some(end),
                _ => return true,
            },
            '|' if rest.next_if(|(_, next)| *next == '|').is_some() => None,
            '|' => return true,
            '@' if rest.peek().is_some_and(|(_, next)| next.is_alphabetic()) => return true,
            _ => None,
        };
        if let Some(end) = end {
            let end = program.len() - end.len();
            while rest.next_if(|(at, _)| *at < end).is_some() {}
        }
        if !c.is_whitespace() {
            twice = c == before && "+-".contains(c);
            before = if c == '"' { ')' } else { c };
        }
    }
    false
}

/// Whether a program of sed may run something, as GNU's does by `e` and by the flag `e` of `s`.
fn sed_runs(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ";{}!,0123456789$~+".contains(c));
        let Some(command) = rest.chars().next() else { return false };
        rest = &rest[command.len_utf8()..];
        match command {
            'e' => return rest.is_empty() || rest.starts_with([' ', ';', '\n', '\t']),
            // An address.
            '/' | '\\' => {
                let delimiter = if command == '/' { Some('/') } else { rest.chars().next() };
                let Some(delimiter) = delimiter else { return true };
                let from = if command == '/' { 0 } else { delimiter.len_utf8() };
                let Some(after) = beyond(&rest[from..], delimiter, true) else { return true };
                rest = after.trim_start_matches(['I', 'M']);
            }
            's' | 'y' => {
                let Some(delimiter) = rest.chars().next() else { return true };
                let after = beyond(&rest[delimiter.len_utf8()..], delimiter, command == 's');
                let Some(after) = after.and_then(|after| beyond(after, delimiter, false)) else {
                    return true;
                };
                let end = after.find([';', '\n', '}']).unwrap_or(after.len());
                if command == 's' && after[..end].split('w').next().is_some_and(|flags| flags.contains('e')) {
                    return true;
                }
                rest = &after[end..];
            }
            // Texts and names of files go on to the end of the line.
            'a' | 'i' | 'c' | 'r' | 'R' | 'w' | 'W' | '#' | ':' | 'b' | 't' | 'T' => {
                let ends: &[char] = if "bt:T".contains(command) { &[';', '\n'] } else { &['\n'] };
                rest = rest.find(ends).map_or("", |at| &rest[at..]);
            }
            _ => {}
        }
    }
}

/// What stands behind the next delimiter that no backslash hides, nor, with `sets`, the brackets
/// around a set of characters.
fn beyond(text: &str, delimiter: char, sets: bool) -> Option<&str> {
    let (mut at, mut set) = (0, false);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        at += c.len_utf8();
        if set {
            let class = (c == '[').then(|| [":", ".", "="].iter().find(|sign| rest.starts_with(**sign)));
            if let Some(sign) = class.flatten() {
                at += rest[1..].find(&format!("{sign}]")).map_or(0, |end| end + 3);
            }
            set = c != ']';
        } else if c == delimiter {
            return Some(rest);
        } else if c == '\\' {
            at += rest.chars().next().map_or(0, char::len_utf8);
        } else if c == '[' && sets {
            set = true;
            // A bracket that stands first is one of the set.
            at += usize::from(rest.starts_with('^'));
            at += usize::from(text[at..].starts_with(']'));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_awk_that_run_something_are_told_from_others() {
        for runs in [
            "BEGIN{system(\"rm x\")}",
            "{print | \"sh\"}",
            "BEGIN{\"rm x\"|getline}",
            "BEGIN{f=\"s\" \"ystem\"; @f(\"rm x\")}",
            "{x++ / 1; print $1 | \"sh\"; y = 1 / 2}",
            "{print |& \"sh\"}",
            "/a/{print|\"sh\"}",
            "{y = x / 2; print | \"sh /\"}",
            "{y = \"a\" / 2; print | \"sh /\"}",
            "{x = \"[\"; print | \"sh\"; y = \"]\"}",
        ] {
            assert!(awk_runs(runs), "{runs}");
        }
        for runs_not in [
            "{print $1}",
            "/a|b/",
            "$1 ~ /a|b/ {print}",
            "NR==1 || NR==3",
            "{print \"a|b\"}",
            "{print $1 / $2}",
            "BEGIN{x=1} # a | b",
            "/[|/]a|b/",
            "{ print $1 \"@\" $2 }",
            "$1 == \"x\" || /y|z/",
        ] {
            assert!(!awk_runs(runs_not), "{runs_not}");
        }
    }

    #[test]
    fn programs_of_sed_that_run_something_are_told_from_others() {
        for runs in [
            "e",
            "1e rm x",
            "s/x/rm y/e",
            "s/x/y/ge",
            "/x/e rm y",
            "p;e rm x",
            "1,3{s/a/b/;e ls\n}",
            "s|a|b|e",
            "\\,x,e rm",
            "s/[/]/rm x/e",
            "s/[]/]/rm x/e",
            "s/[^]/]/rm x/e",
            "s/[[:alpha:]/]/rm/e",
            "s/a",
            "/x",
            "$!e rm x",
            "s/a\\/b/rm/e",
            "y/ab/cd/;e rm",
        ] {
            assert!(sed_runs(runs), "{runs}");
        }
        for runs_not in [
            "s/e/f/",
            "s/a/b/g",
            "/end/d",
            "p",
            "$d",
            "1,5p",
            "s/[/]e/f/",
            "s/x/y/w e",
            "a\\\ntext e",
            "/e/,/f/p",
            "s,e,e,",
            "y/e/f/",
            ":e;N;be",
            "r e.txt",
            "s/a/[e/",
            "s/[]e/]/x/",
            "s[a[e[g",
        ] {
            assert!(!sed_runs(runs_not), "{runs_not}");
        }
    }
}
