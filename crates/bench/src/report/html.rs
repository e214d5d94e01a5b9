//! Writes a report as one self-contained HTML page, with the traces next to it.
//!
//! Texts of models and tasks are untrusted: all of them are escaped, and the page's security policy
//! allows no scripts but its own.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::data::{RunSource, label};
use super::{Cell, OfSuite, Report, Section, Selection, Table, left_out, svg, traces};
use crate::Error;
use crate::record::{Attempt, Finished};

/// Maximum size of the page in bytes, so that any browser and mail program accepts it.
/// A longer list of attempts is truncated, with a note.
const PAGE_BYTES: usize = 5_000_000;
/// Maximum number of characters of a reason in the list: the first value with which all attempts
/// fit.
const REASON_CHARS: [usize; 3] = [200, 60, 0];

/// Writes the report to `folder`, creating it: `index.html`, and `traces` with a page for each
/// conversation.
/// Returns the pages of traces that failed, with the reasons.
///
/// # Errors
/// The folder can't be written.
pub fn write(report: &Report, sources: &[RunSource], folder: &Path) -> Result<Vec<String>, Error> {
    let error = |source| Error::Page { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(error)?;
    let (pages, problems) = traces::write(sources, &folder.join("traces")).map_err(error)?;
    std::fs::write(folder.join("index.html"), page(report, sources, &pages)).map_err(error)?;
    Ok(problems)
}

/// Writes the reports on several suites to `folder`: each to its own folder, and a page that links
/// to them.
/// A single one is written as by [`write()`].
/// Returns the pages of traces that failed, with the reasons.
///
/// # Errors
/// The folder can't be written.
pub fn write_all(suites: &[OfSuite], folder: &Path) -> Result<Vec<String>, Error> {
    if let [OfSuite { report, sources }] = suites {
        return write(report, sources, folder);
    }
    let (mut problems, mut list) = (Vec::new(), String::new());
    for (number, OfSuite { report, sources }) in (1..).zip(suites) {
        let name = format!("suite-{number}");
        problems.extend(write(report, sources, &folder.join(&name))?);
        let runs = if sources.len() == 1 { "run" } else { "runs" };
        list += &format!(
            "<li><a href=\"{name}/index.html\">{}</a>: {} {runs}, suite hash <code>{}</code></li>",
            escape(&report.suite.name),
            sources.len(),
            escape(&report.suite.hash)
        );
    }
    let page = format!(
        "{}<body>\n<header><h1>Reports</h1><p>One for each suite, since scores of different suites don't compare.</p></header>\n\
         <main id=\"main\"><ul>{list}</ul></main>\n</body></html>\n",
        head("Reports", "")
    );
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(folder.join("index.html"), page))
        .map_err(|source| Error::Page { path: folder.to_owned(), source })?;
    Ok(problems)
}

/// Returns the page.
/// `pages[source]` has the page of each trace file, relative to this one.
fn page(report: &Report, sources: &[RunSource], pages: &traces::TracePages) -> String {
    let sections: String = report.sections.iter().map(section).collect();
    let nav: String = report
        .sections
        .iter()
        .map(|section| format!("<li><a href=\"#{}\">{}</a></li>", section.id, escape(section.title)))
        .collect();
    let suite = escape(&report.suite.name);
    let others =
        sections.len() + nav.len() + include_str!("script.js").len() + include_str!("style.css").len();
    // The rest is written here, with a safety margin.
    let List { json: list, note } = list(report, sources, pages, PAGE_BYTES.saturating_sub(others + 20_000));
    // No author of a text in the page can know the nonce in advance.
    let nonce = format!("{:x}", Sha256::digest(format!("{sections}{list}")));
    format!(
        "{head}<body>\n<a class=\"skip\" href=\"#main\">To the report</a>\n<header><h1>Report on the suite {suite}</h1>\
         <p>suite hash <code>{hash}</code>. Every number that is underlined leads to the attempts behind it, every attempt to its \
         trace. Numbers <span class=\"theirs\">in this dress</span> are published ones ({published}), the others are ours.{left_out}</p>\
         <nav aria-label=\"Sections\"><ul>{nav}<li><a href=\"#list\">Attempts</a></li></ul></nav></header>\n<main id=\"main\">{sections}\
         <section id=\"list\" tabindex=\"-1\"><h2>Attempts</h2>{note}<p id=\"note\">Choose a number above to see the attempts behind it here.</p>\
         <noscript><p>The list of attempts needs the page's script.</p></noscript><div class=\"wide\"><table id=\"attempts\" hidden><thead></thead>\
         <tbody></tbody></table></div><button id=\"more\" hidden>More</button></section></main>\n\
         <script type=\"application/json\" id=\"data\">{list}</script>\n<script nonce=\"{nonce}\">{script}</script>\n</body></html>\n",
        head = head(
            &format!("Report on the suite {}", report.suite.name),
            &format!("script-src 'nonce-{nonce}'; ")
        ),
        hash = escape(&report.suite.hash),
        published = escape(&report.published),
        left_out = escape(&match left_out(report) {
            text if text.is_empty() => text,
            text => format!(" {text}"),
        }),
        script = include_str!("script.js"),
    )
}

/// Returns the head of a page, with its style.
pub(super) fn head(title: &str, scripts: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         {scripts}style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"><title>{}</title><style>{}</style></head>\n",
        escape(title),
        include_str!("style.css"),
    )
}

fn section(section: &Section) -> String {
    let mut text = format!("\n<section id=\"{}\"><h2>{}</h2>", section.id, escape(section.title));
    if !section.text.is_empty() {
        text += &format!("<p>{}</p>", escape(&section.text));
    }
    if let Some(figure) = &section.figure {
        text += &svg::figure(figure, section.title);
    }
    section.tables.iter().for_each(|one| text += &table(one, section.title));
    text + "</section>"
}

fn table(table: &Table, title: &str) -> String {
    let name = if table.caption.is_empty() { title } else { &table.caption };
    let caption = match table.caption.is_empty() {
        true => String::new(),
        false => format!("<caption>{}</caption>", escape(&table.caption)),
    };
    let heads: String = table
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let number = at > 0 && table.rows.iter().filter_map(|row| row.get(at)).any(Cell::is_number);
            format!("<th scope=\"col\"{}>{}</th>", class(number, column.published), escape(&column.name))
        })
        .collect();
    let rows: String = table.rows.iter().map(|cells| row(table, cells)).collect();
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {}\"><table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}\
         </tbody></table></div>",
        escape(name)
    )
}

fn row(table: &Table, cells: &[Cell]) -> String {
    let mut text = String::from("<tr>");
    for (at, (cell, column)) in cells.iter().zip(&table.columns).enumerate() {
        let inside = match &cell.behind {
            Some(behind) => format!("<a href=\"#list?{}\">{}</a>", query(behind), escape(&cell.text)),
            None => escape(&cell.text),
        };
        let shade = match (table.heat, cell.value) {
            (true, Some(value)) => format!(" style=\"--heat:{:.0}%\"", value.clamp(0.0, 100.0) * 0.6),
            _ => String::new(),
        };
        let class = class(at > 0 && cell.is_number(), column.published);
        text += &match at {
            0 => format!("<th scope=\"row\">{inside}</th>"),
            _ => format!("<td{class}{shade}>{inside}</td>"),
        };
    }
    text + "</tr>"
}

/// Returns the CSS class of a cell.
fn class(number: bool, published: bool) -> &'static str {
    match (number, published) {
        (true, true) => " class=\"number theirs\"",
        (true, false) => " class=\"number\"",
        (false, true) => " class=\"theirs\"",
        (false, false) => "",
    }
}

/// The list of attempts.
pub(super) struct List {
    /// JSON for the script, which can't end the script element.
    pub json: String,
    /// A note about omitted rows, as a paragraph.
    pub note: String,
}

/// A row of the list.
struct Row {
    json: String,
    /// Whether its reason is truncated.
    cut: bool,
    /// Priority for omission, if not all rows fit.
    /// Attempts before the last one of a case go first, then the last ones, evenly across runs.
    rank: (bool, usize),
}

/// Returns all attempts that fit into `budget` bytes.
pub(super) fn list(
    report: &Report,
    sources: &[RunSource],
    pages: &traces::TracePages,
    budget: usize,
) -> List {
    let mut tasks = Tasks::default();
    let models: Vec<Value> = report
        .models
        .iter()
        .enumerate()
        .map(|(at, (_, facts))| json!([label(&report.models, at), facts.family]))
        .collect();
    let bytes = |rows: &[Row]| rows.iter().map(|row| row.json.len() + 1).sum::<usize>();
    let mut shown = 0;
    let mut all = Vec::new();
    for chars in REASON_CHARS {
        shown = chars;
        tasks = Tasks::default();
        all = rows(report, sources, pages, chars, &mut tasks);
        if bytes(&all) <= budget {
            break;
        }
    }
    let (attempts, cut) = (all.len(), all.iter().filter(|row| row.cut).count());
    let mut order: Vec<usize> = (0..attempts).collect();
    order.sort_by_key(|at| all[*at].rank);
    let mut left = budget;
    let fits = |at: &usize| {
        let needed = all[*at].json.len() + 1;
        left = left.saturating_sub(needed);
        left > 0
    };
    let mut fitting: Vec<usize> = order.into_iter().take_while(fits).collect();
    fitting.sort_unstable();
    let mut note = Vec::new();
    if fitting.len() < attempts {
        note.push(format!(
            "This list holds {} of {attempts} attempts, since the page is to stay below {} MB: {} are left out, first those before the \
             last of a case. The numbers above count all of them, and the run files have them.",
            fitting.len(),
            PAGE_BYTES / 1_000_000,
            attempts - fitting.len(),
        ));
    }
    if cut > 0 {
        note.push(match shown {
            0 => format!("The reasons of {cut} attempts are left out; the run files have them."),
            _ => format!(
                "The reasons of {cut} attempts are cut to {shown} characters; the run files have them whole."
            ),
        });
    }
    let rows = fitting.iter().map(|at| all[*at].json.as_str()).collect::<Vec<_>>().join(",");
    let head = json!({"models": models, "conditions": report.conditions, "tasks": tasks.rows});
    let head = harmless(&head.to_string());
    let json = format!("{},\"rows\":[{rows}]}}", head.trim_end_matches('}'));
    let note =
        if note.is_empty() { String::new() } else { format!("<p class=\"cut\">{}</p>", note.join(" ")) };
    List { json, note }
}

/// The tasks, which rows refer to by index.
#[derive(Default)]
struct Tasks<'a> {
    rows: Vec<Value>,
    known: BTreeMap<&'a str, usize>,
}

impl<'a> Tasks<'a> {
    fn index(&mut self, end: &'a Finished) -> usize {
        *self.known.entry(end.task.as_str()).or_insert_with(|| {
            self.rows.push(json!([end.task, end.category, end.difficulty]));
            self.rows.len() - 1
        })
    }
}

/// Returns a row for each attempt, with a limited length of its reason; a case without attempts
/// gets one row.
fn rows<'a>(
    report: &Report,
    sources: &'a [RunSource],
    pages: &traces::TracePages,
    reason_chars: usize,
    tasks: &mut Tasks<'a>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        let header = &source.run.header;
        let model = report.models.iter().position(|(named, _)| *named == header.model);
        let condition = report.run_conditions[at];
        for (case, end) in source.run.finished.iter().enumerate() {
            let task = tasks.index(end);
            let attempts = source.run.attempts.iter().filter(|attempt| attempt.task == end.task);
            let mut attempts: Vec<Option<&Attempt>> = attempts.map(Some).collect();
            if attempts.is_empty() {
                attempts.push(None);
            }
            for (index, attempt) in attempts.iter().enumerate() {
                let cost = attempt.map(|attempt| attempt.cost).unwrap_or_default();
                let number = attempt.map_or(0, |attempt| attempt.attempt);
                let trace = attempt.and_then(|attempt| pages.get(&(at, attempt.trace.as_str())));
                let reason = attempt.map_or(&end.reason, |attempt| &attempt.reason);
                let mut shown: String = reason.chars().take(reason_chars).collect();
                let cut = shown.len() < reason.len();
                if cut {
                    shown.push('…');
                }
                let row = json!([
                    model,
                    condition,
                    header.trial,
                    task,
                    number,
                    end.verdict,
                    attempt.map_or(end.verdict, |attempt| attempt.verdict),
                    cost.tool_calls,
                    (attempt.map_or(end.seconds, |attempt| attempt.seconds) * 10.0).round() / 10.0,
                    cost.tokens_in,
                    cost.tokens_cached,
                    cost.tokens_out,
                    shown,
                    trace.map(|page| format!("{page}#attempt-{number}")),
                ]);
                let rank = (index + 1 < attempts.len(), case);
                rows.push(Row { json: harmless(&row.to_string()), cut, rank });
            }
        }
    }
    rows
}

/// Escapes JSON so that it can't end the script element, and no text looks like another.
fn harmless(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match matches!(c, '<' | '>' | '&') || turns(c) {
            // All of these are in the basic plane.
            true => text += &format!("\\u{:04x}", if turns(c) { 0xfffd } else { u32::from(c) }),
            false => text.push(c),
        }
    }
    text
}

/// Whether a character changes the text direction, so that a text looks like another.
fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes a text for HTML, including attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || turns(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a selection for the page's links.
pub(super) fn query(behind: &Selection) -> String {
    let value = serde_json::to_value(behind).unwrap_or_default();
    let pairs = value.as_object().into_iter().flatten().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let encode = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        format!("{name}={}", text.bytes().map(encode).collect::<String>())
    });
    pairs.collect::<Vec<_>>().join("&amp;")
}
