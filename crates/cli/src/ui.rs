//! The only module that prints lines, tables, progress and errors.
//! Foreign text can't manipulate the terminal: all output passes through [`screen`].
//! An answer that doesn't go to a terminal is printed byte for byte.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alara_harness::ModelError;
use alara_harness::model::endpoint::EndpointError;
pub use alara_models::bytes;
use indicatif::{ProgressBar, ProgressStyle};

use crate::screen::{self, PLAIN, printable};

/// Separates the description of an error from its remedy.
pub const HINT: &str = "\nhint: ";

/// Prints a line of the answer to stdout.
/// If the reader closes the pipe, as `head` does, it wants no more of the answer.
pub fn line(text: &str) {
    let text = answer(text);
    let end = if screen::is_open(&text) && std::io::stdout().is_terminal() { PLAIN } else { "" };
    printed(writeln!(std::io::stdout(), "{text}{end}"));
}

/// Prints a piece of the answer to stdout immediately.
/// As for [`fn@line`], a closed pipe is not an error.
pub fn text(text: &str) {
    let mut stdout = std::io::stdout();
    printed(stdout.write_all(answer(text).as_bytes()).and_then(|()| stdout.flush()));
}

/// Returns an answer as it is printed to stdout.
fn answer(text: &str) -> Cow<'_, str> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() { fit_for(&stdout, text) } else { Cow::Borrowed(text) }
}

/// Makes text safe for display, with styles if they are enabled.
fn fit_for<'text>(stream: &impl IsTerminal, text: &'text str) -> Cow<'text, str> {
    if is_styled(stream) { screen::styled(text) } else { printable(text) }
}

/// Exits if the answer could not be printed.
/// An answer cut off by a full disk must not look complete.
fn printed(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            note(&format!(
                "error: the answer can't be written to standard output: {error}{HINT}send it elsewhere"
            ));
            std::process::exit(2);
        }
    }
}

/// Prints a note to stderr.
/// If stderr is closed or full, the note is lost and the work goes on.
pub fn note(text: &str) {
    let text = fit_for(&std::io::stderr(), text);
    let end = if screen::is_open(&text) { PLAIN } else { "" };
    let _ = writeln!(std::io::stderr(), "{text}{end}");
}

/// Prints a piece of a note to stderr immediately.
pub fn piece(text: &str) {
    let mut stderr = std::io::stderr();
    let text = fit_for(&stderr, text);
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Whether the settings disable colours.
static COLORLESS: AtomicBool = AtomicBool::new(false);

/// Disables colours from now on.
pub fn without_colors() {
    COLORLESS.store(true, Ordering::Relaxed);
    console::set_colors_enabled(false);
    console::set_colors_enabled_stderr(false);
}

/// Whether a stream is a terminal with colours enabled.
/// `NO_COLOR`, `CLICOLOR=0` and a dumb terminal disable them; a pipe never gets any, whatever the
/// settings.
pub fn is_styled(stream: &impl IsTerminal) -> bool {
    let says = |name: &str| std::env::var(name).unwrap_or_default();
    let wanted = !COLORLESS.load(Ordering::Relaxed);
    wanted && stream.is_terminal() && says("NO_COLOR").is_empty() && says("CLICOLOR") != "0" && !is_dumb()
}

/// Whether the terminal can't move its cursor.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns the number of columns of the terminal on stderr; `None` if stderr isn't a terminal.
pub fn columns() -> Option<usize> {
    let size = console::Term::stderr().size_checked()?;
    Some(usize::from(size.1)).filter(|columns| *columns > 0)
}

/// Returns the number of rows of the terminal on stderr; `None` if stderr isn't a terminal.
pub fn rows() -> Option<usize> {
    let size = console::Term::stderr().size_checked()?;
    Some(usize::from(size.0)).filter(|rows| *rows > 0)
}

/// Prints aligned columns to stdout: the first left-aligned, the others right-aligned.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    aligned(header, rows).iter().for_each(|text| line(text));
}

/// Prints aligned columns to stdout like [`table`], as far as they fit the terminal.
/// `order` lists the columns after the first, the most important one first.
/// If hardly any fits next to the first column, the others go below it.
/// Returns whether all columns were printed.
pub fn table_that_fits(header: &[&str], rows: &[Vec<String>], order: &[usize]) -> bool {
    let columns = columns().filter(|_| std::io::stdout().is_terminal());
    let (lines, is_all) = fitted(header, rows, order, columns);
    lines.iter().for_each(|text| line(text));
    is_all
}

/// Returns the lines of a table as far as it fits, and whether that is all of it.
fn fitted(
    header: &[&str],
    rows: &[Vec<String>],
    order: &[usize],
    columns: Option<usize>,
) -> (Vec<String>, bool) {
    let Some(columns) = columns else { return (aligned(header, rows.to_vec()), true) };
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(String::as_str).chain([header[at]]);
        cells.map(|cell| screen::one_line(cell).chars().count()).max().unwrap_or(0)
    };
    let mut left = columns.saturating_sub(width(0));
    let mut kept = vec![0];
    for &at in order {
        let needed = width(at) + 2;
        if needed <= left {
            left -= needed;
            kept.push(at);
        }
    }
    kept.sort_unstable();
    if kept.len() < header.len().min(3) {
        let below = |row: &Vec<String>| {
            let known = order.iter().filter(|at| !row[**at].is_empty());
            let about: Vec<String> = known.map(|at| format!("{} {}", header[*at], row[*at])).collect();
            entry_lines(&screen::one_line(&row[0]), &screen::one_line(&about.join(", ")), Some(columns))
        };
        return (rows.iter().flat_map(below).collect(), true);
    }
    let header_kept: Vec<&str> = kept.iter().map(|at| header[*at]).collect();
    let rows_kept = rows.iter().map(|row| kept.iter().filter_map(|at| row.get(*at).cloned()).collect());
    (aligned(&header_kept, rows_kept), kept.len() == header.len())
}

/// Width of the column of names before their descriptions.
const NAMES: usize = 32;

/// Prints a name and its description to stdout.
pub fn entry(name: &str, about: &str) {
    entry_lines(&screen::one_line(name), &screen::one_line(about), columns())
        .iter()
        .for_each(|text| line(text));
}

/// Formats a name and its description: next to it, or below on a narrow terminal.
fn entry_lines(name: &str, about: &str, columns: Option<usize>) -> Vec<String> {
    let whole = format!("{name:<NAMES$} {about}").trim_end().to_owned();
    // If most descriptions go below their names, all do.
    let fits = |columns: usize| about.is_empty() || columns >= 2 * NAMES && whole.chars().count() < columns;
    let Some(columns) = columns.filter(|columns| !fits(*columns)) else { return vec![whole] };
    let indent = if columns < 2 * NAMES { 4 } else { NAMES + 1 };
    let mut lines = vec![name.to_owned()];
    if indent > NAMES && name.chars().count() <= NAMES {
        lines[0] = format!("{name:<NAMES$}");
    } else {
        lines.push(" ".repeat(indent - 1));
    }
    for word in about.split_whitespace() {
        let last = lines.last().map_or(0, |last| last.chars().count());
        if last + 1 + word.chars().count() >= columns && last >= indent {
            lines.push(" ".repeat(indent - 1));
        }
        if let Some(last) = lines.last_mut() {
            *last += &format!(" {word}");
        }
    }
    lines
}

/// Prints left-aligned columns of words to stdout.
pub fn table_of_words(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    columns_of(header, rows, usize::MAX).iter().for_each(|text| line(text));
}

/// Prints aligned columns to stderr, as [`table`] does to stdout.
pub fn note_table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    aligned(header, rows).iter().for_each(|text| note(text));
}

fn aligned(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Vec<String> {
    columns_of(header, rows, 1)
}

/// Formats aligned columns: the first `left` of them left-aligned, the others right-aligned.
fn columns_of(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, left: usize) -> Vec<String> {
    let header = header.iter().map(ToString::to_string).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    // A cell with two lines would look like another row.
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| screen::one_line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let cell = |(at, (cell, &width)): (usize, (&String, &usize))| match at < left {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    };
    rows.iter()
        .map(|row| row.iter().zip(&widths).enumerate().map(cell).collect::<Vec<_>>().join("  "))
        .map(|text| text.trim_end().to_owned())
        .collect()
}

/// A display on stderr that is redrawn repeatedly; silent if stderr isn't a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    fn new(bar: ProgressBar, template: &str) -> Self {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Bar(bar)
    }

    fn ticking(self, milliseconds: u64) -> Self {
        self.0.enable_steady_tick(Duration::from_millis(milliseconds));
        self
    }

    /// Sets the text next to it, as one line.
    pub fn set_message(&self, text: &str) {
        self.0.set_message(screen::one_line(text));
    }

    /// Prints a note above it.
    pub fn note(&self, text: &str) {
        self.0.println(printable(text));
    }

    /// Advances by `more`.
    pub fn inc(&self, more: u64) {
        self.0.inc(more);
    }

    /// Sets the amount that is done.
    pub fn set_position(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Ignores the progress so far in the estimate of the remaining time.
    pub fn reset_eta(&self) {
        self.0.reset_eta();
    }

    /// Removes it from the screen.
    pub fn finish_and_clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Shows a spinner with a message during a long operation.
pub fn spinner() -> Bar {
    Bar::new(ProgressBar::new_spinner(), "{spinner} {elapsed} {wide_msg}").ticking(120)
}

/// Shows a progress bar for a number of tasks, with a message.
pub fn tasks(total: u64) -> Bar {
    Bar::new(ProgressBar::new(total), "{bar:24} {pos}/{len}  {elapsed}  {eta} left  {wide_msg}").ticking(200)
}

/// Shows a progress bar for received bytes, of `size` if that is known.
pub fn bar(size: Option<u64>) -> Bar {
    let (bar, template) = match size {
        Some(size) => (
            ProgressBar::new(size),
            "{bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
        ),
        None => (ProgressBar::no_length(), "{spinner}  {binary_bytes}  {binary_bytes_per_sec}"),
    };
    Bar::new(bar, template)
}

/// Shows a progress bar from 0 to `length`.
pub fn progress(length: u64, what: &'static str) -> Bar {
    Bar::new(ProgressBar::new(length).with_message(what), "{msg} [{bar:30}] {percent}% {eta}")
}

/// Prints an error: the problem, its place, and finally the remedy.
/// Returns exit code 2: usage or environment.
pub fn report(error: &anyhow::Error) -> ExitCode {
    note(&format!("error: {}", told(error)));
    ExitCode::from(2)
}

/// Returns an error as the JSON object that commands with `--json` print instead of a result:
/// `{"error": …, "place": …, "hint": …}`.
/// `place` is a file, with line and column if they are known.
pub fn error_object(error: &anyhow::Error) -> serde_json::Value {
    let text = told(error);
    let mut parts = text.split(HINT);
    let message = parts.next().unwrap_or_default();
    let hints: Vec<&str> = parts.collect();
    let mut object = serde_json::json!({"error": message});
    if let Some(place) = place(message) {
        object["place"] = place.into();
    }
    if !hints.is_empty() {
        object["hint"] = hints.join("\n").into();
    }
    object
}

/// Returns the file at the beginning of a message: `team.ctx:3:5` for `team.ctx:3:5: unknown key`.
fn place(message: &str) -> Option<&str> {
    let (place, _) = message.lines().next()?.split_once(": ")?;
    let numbers = place.rsplitn(3, ':').take(2).filter(|part| part.parse::<u32>().is_ok()).count();
    let is_path = place.contains(['/', '.']) && !place.contains(char::is_whitespace);
    (numbers > 0 || is_path).then_some(place)
}

/// Prints an error in the arguments, or the requested help.
pub fn usage(error: &clap::Error) -> ExitCode {
    let text = |styled: bool| match styled {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    match error.use_stderr() {
        true => piece(&text(is_styled(&std::io::stderr()))),
        false => self::text(&text(is_styled(&std::io::stdout()))),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Reports panics like other errors: their text may quote a file's contents, and stderr may be
/// closed.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        note(&panic.to_string());
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            note(&trace.to_string());
        }
    }));
}

/// Formats a chain of causes, the outermost first, followed by the remedies on separate lines.
/// Any error in the chain may end with a remedy, after [`HINT`].
pub fn told(error: &anyhow::Error) -> String {
    let (mut causes, mut hints): (Vec<String>, Vec<String>) = Default::default();
    for cause in error.chain() {
        let text = cause.to_string();
        let mut parts = text.split(HINT);
        let what = parts.next().unwrap_or_default().trim_end();
        // Some errors repeat the one below them.
        if !what.is_empty() && causes.last().is_none_or(|before| !before.ends_with(what)) {
            causes.push(what.to_owned());
        }
        hints.extend(parts.map(str::to_owned));
        hints.extend(own_hint(cause));
    }
    let mut told = causes.join(": ");
    for (at, hint) in hints.iter().enumerate() {
        if !hints[..at].contains(hint) {
            told += HINT;
            told += hint;
        }
    }
    told
}

/// Returns the hint of an error that has one outside its message.
fn own_hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    // A model's error passes through the harness unchanged.
    let cause = cause.downcast_ref::<ModelError>().map_or(cause, ModelError::cause);
    match cause.downcast_ref::<EndpointError>() {
        Some(error) => error.hint(),
        None => cause.downcast_ref().and_then(hint).map(str::to_owned),
    }
}

/// Returns the next command to try.
fn hint(error: &alara_engine::Error) -> Option<&'static str> {
    use alara_engine::{Error, GgufError, GrammarError};

    match error {
        Error::UnknownArchitecture { .. }
        | Error::MissingTensor { .. }
        | Error::MissingKey { .. }
        | Error::NotUnderstood { .. }
        | Error::TensorType { .. } => Some("`alara models show FILE` tells what the file contains"),
        Error::Gguf(GgufError::NotGguf { .. }) => {
            Some("a model is a .gguf file: `alara models list` tells which can be had")
        }
        Error::Gguf(GgufError::Malformed { .. }) => {
            Some("get the file again, by `alara models pull` or as it came: its download may have broken off")
        }
        Error::PromptTooLong { context, trained, .. } if context >= trained => {
            Some("shorten the task, or take a model that was trained for a longer context")
        }
        Error::PromptTooLong { .. } => Some("shorten the task, or give the model more context with --ctx"),
        Error::OutOfBlocks { .. } => Some("--kv-size gives keys and values more memory"),
        Error::NoTemplate { .. } | Error::BrokenTemplate { .. } => {
            Some("give the model's chat template with --chat-template FILE")
        }
        Error::Grammar(GrammarError::Schema { .. } | GrammarError::Parameters { .. }) => {
            Some("leave it out, or say the same with other keywords: only what can be guaranteed is accepted")
        }
        Error::NoToolFormat { .. } | Error::ToolFormat { .. } => {
            Some("any model can call in the format that the prompt describes: --tool-format generic")
        }
        Error::Grammar(GrammarError::Name { .. }) => {
            Some("give the tool another name, or choose a format that quotes names: --tool-format generic")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_first_and_what_to_do_last() {
        let check = |error: anyhow::Error, expected: &str| assert_eq!(told(&error), expected);
        check(anyhow::anyhow!("no"), "no");
        check(
            anyhow::anyhow!("no file\nhint: look").context("can't begin"),
            "can't begin: no file\nhint: look",
        );
        check(anyhow::anyhow!("used").context("can't listen\nhint: wait"), "can't listen: used\nhint: wait");
        let twice = anyhow::anyhow!("a\nhint: one\nhint: two").context("b\nhint: one");
        check(twice, "b: a\nhint: one\nhint: two");
        check(anyhow::anyhow!("a: b").context("x"), "x: a: b");
        let repeating = anyhow::Error::from(std::io::Error::other("lost")).context("can't read: lost");
        check(repeating, "can't read: lost");
        let file = alara_engine::GgufError::NotGguf { file: "a".into(), found: "no".into() };
        check(
            anyhow::Error::from(alara_engine::Error::from(file)),
            "a is not a GGUF file: no\nhint: a model is a .gguf file: `alara models list` tells which can be had",
        );
        let known = alara_engine::Error::OutOfBlocks { capacity: 3 };
        let told = told(&anyhow::Error::from(known).context("the model stopped"));
        assert!(told.ends_with("\nhint: --kv-size gives keys and values more memory"), "{told}");
    }

    #[test]
    fn entries_fit_their_terminal() {
        let check = |columns: Option<usize>, expected: &[&str]| {
            assert_eq!(
                entry_lines("/retry", "say the last message again, as if it were new", columns),
                expected
            );
        };
        let wide = format!("{:<32} say the last message again, as if it were new", "/retry");
        check(None, &[&wide]);
        check(Some(100), &[&wide]);
        let (first, second) =
            (format!("{:<32} say the last message again, as", "/retry"), " ".repeat(33) + "if it were new");
        check(Some(64), &[&first, &second]);
        check(Some(40), &["/retry", "    say the last message again, as if", "    it were new"]);
        assert_eq!(entry_lines("Ctrl-D", "leaves", Some(40)), ["Ctrl-D", "    leaves"]);
        assert_eq!(entry_lines("Ctrl-D", "leaves", Some(64)), [format!("{:<32} leaves", "Ctrl-D")]);
        let long = "/edit_file path [find] [replace] [replace_all]";
        let lines = entry_lines(long, "Replace a text", Some(64));
        assert_eq!(lines, [format!("{long} Replace a text")]);
        let lines = entry_lines(long, "Replace a text that occurs once", Some(64));
        assert_eq!(
            lines,
            [long.to_owned(), " ".repeat(33) + "Replace a text that occurs", " ".repeat(33) + "once"]
        );
    }

    #[test]
    fn tables_fit_their_terminal() {
        let rows = [["qwen3-4b", "4.02 B", "2.3 GiB", "yes"], ["qwen3.5-35b", "36 B", "20.8 GiB", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let check = |columns: Option<usize>, expected: &[&str], is_all: bool| {
            let found = fitted(&["catalog", "parameters", "size", "fits"], &rows, &[2, 3, 1], columns);
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(found, (expected, is_all), "{columns:?}");
        };
        let whole = [
            "catalog      parameters      size  fits",
            "qwen3-4b         4.02 B   2.3 GiB   yes",
            "qwen3.5-35b        36 B  20.8 GiB",
        ];
        check(None, &whole, true);
        check(Some(39), &whole, true);
        let part = ["catalog          size  fits", "qwen3-4b      2.3 GiB   yes", "qwen3.5-35b  20.8 GiB"];
        check(Some(38), &part, false);
        check(Some(27), &part, false);
        let below = [
            "qwen3-4b",
            "    size 2.3 GiB, fits",
            "    yes, parameters 4.02",
            "    B",
            "qwen3.5-35b",
            "    size 20.8 GiB,",
            "    parameters 36 B",
        ];
        check(Some(26), &below, true);
    }
}
