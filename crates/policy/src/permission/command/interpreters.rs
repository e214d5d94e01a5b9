//! Programs that run a program in a language that alara doesn't parse: data, and how to read their
//! arguments.
//!
//! Only options that are known to carry no program are skipped.
//! Any other word in the place of a program counts as one, since options differ between versions
//! and can be abbreviated or joined.

use std::sync::LazyLock;

use super::Word;
use super::inline::{is_device, is_input};
use super::texts;

/// Where an interpreter finds its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The first operand is a program file, or the input is the program; the rest are its
    /// arguments.
    File,
    /// The first operand is the program text, unless an option gives one.
    Text,
    /// As [`Text`](Self::Text), and options may follow operands.
    Anywhere,
    /// A file of the folder; any operand may carry a part of a program, and options may follow
    /// operands.
    Folder,
    /// Any arguments: alara doesn't read them.
    Unread,
}

/// A program that runs programs of its language.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    /// Its names, separated by `|`; each may be several words (`deno run`).
    pub names: &'static str,
    /// Where its program is.
    pub first: First,
    /// Options without a value, or with one after `=` that is not a program.
    /// Text attached to an option with a `*` is its value.
    flags: &'static str,
    /// Options with a value that is not a program.
    values: &'static str,
    /// Options whose value is the file or module with the program.
    files: &'static str,
    /// Options whose value is a program text that `runs` reads.
    texts: &'static str,
    /// Whether a text may run a command.
    runs: fn(&str) -> bool,
    /// Words with which, alone, it only prints information about itself.
    tells: &'static str,
}

const TELLS: &str = "--version --help";

const fn interpreter(names: &'static str, first: First) -> Interpreter {
    Interpreter { names, first, flags: "", values: "", files: "", texts: "", runs: |_| true, tells: TELLS }
}

impl Interpreter {
    const fn tells(self, tells: &'static str) -> Self {
        Interpreter { tells, ..self }
    }

    const fn flags(self, flags: &'static str) -> Self {
        Interpreter { flags, ..self }
    }

    const fn values(self, values: &'static str) -> Self {
        Interpreter { values, ..self }
    }

    const fn files(self, files: &'static str) -> Self {
        Interpreter { files, ..self }
    }

    const fn reads(self, texts: &'static str, runs: fn(&str) -> bool) -> Self {
        Interpreter { texts, runs, ..self }
    }
}

/// The table.
/// An option that is in no list leads to a question: add only those that can't carry a program.
#[rustfmt::skip]
pub const INTERPRETERS: &[Interpreter] = &[
    interpreter("python|pypy|jython|micropython", First::File).tells("-V -VV -h --version --help")
        .flags("-b -B -d -E -I -O -P -q -s -S -u -v -R").values("-W -X --check-hash-based-pycs").files("-m"),
    interpreter("ipython|bpython|ptpython|irb|gnuplot|maxima|matlab|clisp|sbcl|groovysh", First::File),
    interpreter("perl|raku", First::File).tells("-v -V -h --version --help")
        .flags("-w -W -X -s -S -T -t -u -U -n -p -a -c -f").values("-I"),
    interpreter("ruby|jruby|mruby|truffleruby", First::File).tells("-v -h --version --help")
        .flags("-w -s -S -n -p -a -l -c --yjit --jit").values("-I -C -E -K --encoding"),
    interpreter("node|nodejs|bun", First::File).tells("-v -h --version --help").flags("--no-warnings --trace-warnings \
        --trace-uncaught --test --watch --enable-source-maps --expose-gc --max-old-space-size --stack-size \
        --preserve-symlinks --throw-deprecation --experimental-strip-types --experimental-vm-modules")
        .values("-r --require --env-file -C --conditions"),
    interpreter("deno|deno run|bun run", First::File).flags("-A --allow-all --allow-read --allow-write --allow-net \
        --allow-env --allow-sys --allow-run --allow-ffi --allow-import --no-check --quiet -q --watch --no-prompt \
        --cached-only --unstable"),
    interpreter("php", First::File).tells("-v -h -i -m --version --help").flags("-l -n -q -C").values("-d -c -z -S -t"),
    interpreter("lua|luajit|texlua", First::File).tells("-v").flags("-E -W").values("-l"),
    interpreter("cmake -P|runghc|runhaskell", First::File),
    interpreter("go run", First::File).flags("-race -v -x -a -n -trimpath -cover").values("-mod -tags"),
    interpreter("ts-node|tsx", First::File).flags("--esm --transpile-only -T --files"),
    interpreter("tclsh|wish|expect", First::File).tells(""),
    interpreter("octave", First::File).flags("-q --quiet --silent --no-gui --norc -H --no-history"),
    interpreter("Rscript", First::File).flags("--vanilla --no-save --no-restore --slave --no-environ --verbose"),
    interpreter("julia", First::File).flags("--project -q --quiet -O0 -O1 -O2 -O3")
        .values("-t --threads -p --startup-file --color"),
    interpreter("groovy|scala|scala-cli|swift|clojure|clj|racket|osascript|elixir|escript", First::File),
    interpreter("guile", First::File).files("-s").values("-L"),
    interpreter("awk|gawk|mawk|nawk|original-awk|bwk", First::Text).tells("-V -h -version --version --help")
        .flags("--posix --traditional --re-interval --lint --sandbox --csv").values("-F -v --field-separator --assign")
        .files("-f --file").reads("-e --source", texts::awk_runs),
    interpreter("sed|gsed", First::Anywhere).flags("-n --quiet --silent -r -E --regexp-extended -s --separate -u \
        --unbuffered -z --null-data -b --binary --debug --posix --sandbox --follow-symlinks -i* --in-place")
        .values("-l --line-length").files("-f --file").reads("-e --expression", texts::sed_runs),
    interpreter("make|gmake|bmake", First::Folder).tells("-v -h --version --help").flags("-b -m -B -d -e -i -j* -k -l* \
        -L -n -O* -p -q -r -R -s -S -t -w --always-make --debug --ignore-errors --jobs --keep-going --load-average \
        --max-load --dry-run --just-print --recon --output-sync --print-data-base --question --no-builtin-rules \
        --no-builtin-variables --silent --quiet --no-silent --no-keep-going --stop --touch --trace \
        --print-directory --no-print-directory --warn-undefined-variables --check-symlink-times")
        .values("-C --directory -I --include-dir -o --old-file --assume-old")
        .files("-f --file --makefile").reads("", texts::make_runs),
    interpreter("ninja|samu", First::Folder).flags("-n -v --verbose --quiet -j*").values("-C -k -l -d -t -w")
        .files("-f").reads("", texts::make_runs),
    interpreter("just", First::Folder).flags("-l --list -n --dry-run -q --quiet -v --verbose --summary --yes -u \
        --unsorted --evaluate --dump").values("-d --working-directory -s --show").files("-f --justfile")
        .reads("", texts::make_runs),
    interpreter("rake", First::Folder).flags("-n --dry-run -q --quiet -s --silent -v --verbose -A --all -m --multitask \
        -t --trace -T* --tasks -P --prereqs -N").files("-f --rakefile").reads("", texts::make_runs),
    // Their options have a special syntax even after operands, or their input is a program.
    interpreter("deno eval|deno repl|ghc|ghci|jshell|erl|iex|emacs|R|ed|red|ex|gvim|nvim|rvim|vi|view|vim|vim.tiny|\
        vim.basic|vim.nox|vimdiff|rview|gview|kak|gdb|lldb|pudb|ipdb", First::Unread),
];

/// Modules and subcommands that take programs as arguments, run what other arguments name, or read
/// their input.
pub const MODULES: [&str; 32] = [
    "IPython",
    "asyncio",
    "bdb",
    "bpython",
    "cProfile",
    "code",
    "coverage",
    "debug",
    "debugpy",
    "doctest",
    "eval",
    "exec",
    "idlelib",
    "inspect",
    "ipdb",
    "ipython",
    "kernprof",
    "line_profiler",
    "memory_profiler",
    "pdb",
    "profile",
    "pstats",
    "ptpython",
    "pudb",
    "pyperf",
    "repl",
    "runpy",
    "shell",
    "timeit",
    "trace",
    "viztracer",
    "xonsh",
];

/// One name of the table, as words, with its row.
pub type Named = (Vec<&'static str>, &'static Interpreter);

/// The rows by name.
pub static NAMED: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let rows = INTERPRETERS.iter();
    rows.flat_map(|row| row.names.split('|').map(move |name| (name.split(' ').collect(), row))).collect()
});

/// The kind of an option.
#[derive(Debug, PartialEq, Eq)]
enum Opt<'a> {
    Flag,
    /// It has a value, which is the next word if none is attached.
    Value(Option<&'a str>),
    File(Option<&'a str>),
    Text(Option<&'a str>),
    Unknown,
}

impl Interpreter {
    /// Whether these arguments may carry a program that runs a command.
    pub fn carries(&self, words: &[Word]) -> bool {
        if matches!(words, [Word::Text(word)] if listed(self.tells, word)) {
            return false;
        }
        if self.first == First::Unread {
            return true;
        }
        let permutes = matches!(self.first, First::Anywhere | First::Folder);
        let (mut named, mut open) = (self.first == First::Folder, true);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = match word {
                Word::Text(text) => text.as_str(),
                // It is an operand, and the program has been given already.
                _ if named && (!open || *word == Word::Files) && self.first != First::Folder => continue,
                _ => return true,
            };
            if open && text == "--" {
                open = false;
                continue;
            }
            if !open || text == "-" || !text.starts_with('-') {
                match self.first {
                    First::File => return !is_file(text),
                    First::Folder if (self.runs)(text) => return true,
                    // For some, an empty text is the value of `-i`.
                    First::Text | First::Anywhere if !named && !text.is_empty() => {
                        if (self.runs)(text) {
                            return true;
                        }
                        named = true;
                    }
                    _ => {}
                }
                if !permutes {
                    return false;
                }
                continue;
            }
            let option = self.option(text);
            let value = match option {
                Opt::Flag => continue,
                Opt::Unknown => return true,
                Opt::Value(Some(value)) | Opt::File(Some(value)) | Opt::Text(Some(value)) => value,
                Opt::Value(None) | Opt::File(None) | Opt::Text(None) => match words.next() {
                    Some(Word::Text(value)) => value.as_str(),
                    // It is one word, and not an option.
                    Some(Word::One) if self.first != First::File && matches!(option, Opt::Value(_)) => "",
                    _ => return true,
                },
            };
            match option {
                Opt::Text(_) if (self.runs)(value) => return true,
                Opt::File(_) if !is_file(value) => return true,
                Opt::File(_) if self.first == First::File && !is_file(top(value)) => return true,
                // The rest are the program's arguments.
                Opt::File(_) if self.first == First::File => {
                    return words.any(|word| !matches!(word, Word::Text(text) if !is_device(text)));
                }
                Opt::File(_) | Opt::Text(_) => named = true,
                _ if !self.is_value(value) => return true,
                _ => {}
            }
        }
        !named
    }

    /// The kind of an option: listed as a whole, or letters that are each listed.
    fn option<'a>(&self, word: &'a str) -> Opt<'a> {
        let of = |name: &str, value: Option<&'a str>| {
            if listed(self.values, name) {
                Opt::Value(value)
            } else if listed(self.files, name) {
                Opt::File(value)
            } else if listed(self.texts, name) {
                Opt::Text(value)
            } else if listed(self.flags, name) && value.is_none_or(|value| self.is_value(value)) {
                Opt::Flag
            } else {
                Opt::Unknown
            }
        };
        let whole = match word.split_once('=') {
            // After a single letter, `=` is part of the value.
            Some((name, value)) if name.len() > 2 => of(name, Some(value)),
            _ => of(word, None),
        };
        if whole != Opt::Unknown || word.starts_with("--") {
            return whole;
        }
        for (at, letter) in word.char_indices().skip(1) {
            let rest = &word[at + letter.len_utf8()..];
            if listed(self.flags, &format!("-{letter}*")) {
                return if self.is_value(rest) { Opt::Flag } else { Opt::Unknown };
            }
            match of(&format!("-{letter}"), (!rest.is_empty()).then_some(rest)) {
                Opt::Unknown if !listed(self.flags, &format!("-{letter}")) => return Opt::Unknown,
                Opt::Unknown | Opt::Flag => {}
                option => return option,
            }
        }
        Opt::Flag
    }

    /// Whether this is the value of an option, and neither an option nor a program.
    fn is_value(&self, value: &str) -> bool {
        let is_plain = |c: char| c.is_alphanumeric() || "._-/:=,@+".contains(c);
        match self.first {
            _ if value.len() > 1 && value.starts_with('-') => false,
            // Any text may separate fields.
            First::Text => true,
            First::Folder if (self.runs)(value) => false,
            _ => !is_input(value) && value.chars().all(is_plain),
        }
    }
}

fn listed(list: &str, name: &str) -> bool {
    list.split(' ').any(|listed| listed == name)
}

/// The top-level package of a module.
fn top(module: &str) -> &str {
    module.split('.').next().unwrap_or_default()
}

/// Whether this is the name of a file or module that contains a program.
fn is_file(name: &str) -> bool {
    // In `/dev/fd`, a number is an input.
    let is_number = !name.is_empty() && name.chars().all(|c| c.is_ascii_digit());
    !name.is_empty() && !is_number && !is_input(name) && !MODULES.contains(&name) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_are_listed_are_passed_over() {
        let check = |name: &str, words: &str, expected: bool| {
            let row = NAMED.iter().find(|(names, _)| names.join(" ") == name).unwrap().1;
            let words: Vec<Word> = words.split(' ').map(|word| Word::Text(word.to_owned())).collect();
            assert_eq!(row.carries(&words), expected, "{name} {words:?}");
        };
        check("python", "-Bu x", false);
        check("python", "-Bux x", true);
        check("python", "-mx -c y", false);
        check("python", "-Wx -m y", false);
        check("python", "-Wx -my /dev/fd/0", true);
        check("python", "-v", true);
        check("perl", "-v", false);
        check("perl", "-v x -e y", true);
        check("tclsh", "--version", true);
        check("node", "--max-old-space-size=9 x", false);
        check("node", "--max-old-space-size 9 -e x", true);
        check("go run", "-tags x y -exec z", false);
        check("go run", "-tags x -exec y z", true);
        check("sed", "p f -e e", true);
        check("sed", "-ie p f", false);
        check("sed", "-ne e f", true);
        check("sed", "-- p -e", false);
        check("awk", "-F- -f x", false);
        check("awk", "-F -f x", true);
        check("make", "x -j4k -f y", false);
        check("make", "x -j4k -f-", true);
        check("make", "--always-mak", true);
    }

    #[test]
    fn names_of_the_table_are_there_once() {
        let mut names: Vec<String> = NAMED.iter().map(|(names, _)| names.join(" ")).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
