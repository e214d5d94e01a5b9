//! Writes traces as pages that show a conversation.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use alara_harness::trace::{self, Record};
use serde_json::Value;

use super::data::RunSource;
use super::html::{escape, head};

/// Maximum displayed size of one text in bytes.
const TEXT_BYTES: usize = 20_000;

/// The page of each trace, relative to the report.
/// The key is the index of the run, and the trace's name in the run.
pub type TracePages<'a> = BTreeMap<(usize, &'a str), String>;

/// Writes a page for each trace of the runs, below `folder`.
/// Returns the pages, and the traces that could not be read.
///
/// # Errors
/// A page can't be written.
pub fn write<'a>(sources: &'a [RunSource], folder: &Path) -> io::Result<(TracePages<'a>, Vec<String>)> {
    let (mut pages, mut problems) = (TracePages::new(), Vec::new());
    for (at, source) in sources.iter().enumerate() {
        let beside = source.file.parent().unwrap_or(Path::new(""));
        let folder = folder.join(at.to_string());
        std::fs::create_dir_all(&folder)?;
        for attempt in source.run.attempts.iter().filter(|attempt| !attempt.trace.is_empty()) {
            let key = (at, attempt.trace.as_str());
            let stem =
                Path::new(&attempt.trace).file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // A run file may come from anywhere: accept names of tasks only as file names.
            if pages.contains_key(&key) || !is_plain(&stem) || !is_beside(&attempt.trace) {
                continue;
            }
            match trace::lines(&beside.join(&attempt.trace)) {
                Ok(lines) => {
                    std::fs::write(
                        folder.join(format!("{stem}.html")),
                        page(&attempt.task, attempt.attempt, &lines),
                    )?;
                    pages.insert(key, format!("traces/{at}/{}.html", stem.replace('@', "%40")));
                }
                Err(error) => problems.push(format!(
                    "the trace {} of {}: {error}",
                    attempt.trace,
                    source.file.display()
                )),
            }
        }
    }
    Ok((pages, problems))
}

fn is_plain(stem: &str) -> bool {
    stem.chars().all(|c| c.is_ascii_alphanumeric() || "._-@".contains(c)) && !stem.starts_with('.')
}

/// Whether a path names a file in a folder next to the run.
fn is_beside(trace: &str) -> bool {
    Path::new(trace).components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Returns the page of one conversation, which begins with the attempt `first`.
fn page(task: &str, first: u32, lines: &[trace::Line]) -> String {
    let mut text = head(&format!("Trace of {task}"), "");
    text += &format!("<body class=\"trace\">\n<header><h1>Trace of {}</h1></header>\n<main>", escape(task));
    let mut attempt = first;
    for line in lines {
        let scope = &line.entry.scope;
        if let (Record::User { .. }, true) = (&*line.entry.record, scope.is_empty()) {
            text += &format!("\n<h2 id=\"attempt-{attempt}\">Attempt {attempt}</h2>");
            attempt += 1;
        }
        if let Some((class, who, inside)) = record(&line.entry.record) {
            let depth = scope.split('/').filter(|part| !part.is_empty()).count().min(4);
            let scope_mark =
                if scope.is_empty() { String::new() } else { format!(" <code>{}</code>", escape(scope)) };
            text += &format!(
                "\n<article class=\"{class} depth{depth}\"><h3>{}{scope_mark} <time>{}</time></h3>{inside}</article>",
                escape(&who),
                escape(line.time.get(..19).unwrap_or(&line.time)),
            );
        }
    }
    text + "</main></body></html>\n"
}

/// Formats a record: its class, its heading, and its contents.
/// `None` if other records show the same.
fn record(record: &Record) -> Option<(&'static str, String, String)> {
    Some(match record {
        Record::Start(start) => {
            let system: Vec<&str> = start.system.iter().map(|segment| segment.text.as_str()).collect();
            let tools: Vec<&str> = start.tools.iter().map(|tool| tool.name.as_str()).collect();
            let inside = format!(
                "<p>model {}, tools: {}</p>{}",
                escape(&start.model),
                escape(&tools.join(", ")),
                folded("system prompt", &system.join("\n\n"))
            );
            ("start", format!("{} of {}", start.npc, start.team), inside)
        }
        Record::User { text } => ("user", "task".into(), pre(text)),
        Record::Hint { text, .. } => ("user", "hint".into(), pre(text)),
        Record::Assistant { message, usage, .. } => {
            let mut inside = String::new();
            if let Some(reasoning) = message.reasoning_content.as_deref().filter(|text| !text.is_empty()) {
                inside += &folded("reasoning", reasoning);
            }
            if !message.content.is_empty() {
                inside += &pre(&message.content);
            }
            for call in &message.tool_calls {
                inside += &format!(
                    "<p class=\"call\">calls <b>{}</b></p>{}",
                    escape(&call.name),
                    arguments(&call.arguments)
                );
            }
            let cost = format!(
                "{} tokens in ({} cached), {} out, first after {:.2} s",
                usage.prompt_tokens,
                usage.cached_tokens,
                usage.completion_tokens,
                usage.time_to_first_token.as_secs_f64()
            );
            ("assistant", "model".into(), format!("{inside}<p class=\"cost\">{cost}</p>"))
        }
        Record::ToolResult { call, result, text, seconds } => {
            let how = match &result.blocked {
                Some(blocked) => format!("blocked by the rule {}", blocked.rule),
                None if result.ok => "ok".to_owned(),
                None => "failed".to_owned(),
            };
            ("result", format!("{}: {how}, {seconds:.2} s", call.name), pre(text))
        }
        Record::Permission { jinx, verdict, by } => {
            let text = format!("{verdict:?} by {by}").to_lowercase();
            ("result", format!("rule on {jinx}"), pre(&text))
        }
        Record::Ledger { gate, changes } => {
            let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
            ("result", format!("known by {gate}"), pre(&lines.join("\n")))
        }
        Record::Job { job, call, ended } => {
            let what = ended.as_ref().map_or("begins".to_owned(), |how| format!("is over, {how}"));
            ("result", format!("job {job} {what}"), pre(call))
        }
        Record::Compaction { summary, .. } => ("user", "summed up".into(), pre(summary)),
        Record::End { outcome } => ("end", "end".into(), format!("<p>{}</p>", escape(&outcome.reason()))),
        Record::Phase(standing) => ("result", format!("phase {}", standing.phase), String::new()),
        Record::ToolCall { .. }
        | Record::Changed { .. }
        | Record::Jinx { .. }
        | Record::Emit { .. }
        | Record::Retract => return None,
    })
}

fn arguments(arguments: &serde_json::Map<String, Value>) -> String {
    let lines = arguments.iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}: {text}")
    });
    pre(&lines.collect::<Vec<_>>().join("\n"))
}

fn pre(text: &str) -> String {
    let cut = crate::policy::cut(text, TEXT_BYTES);
    let rest = match text.len() - cut.len() {
        0 => String::new(),
        more => format!("<p>… {more} bytes more</p>"),
    };
    format!("<pre tabindex=\"0\">{}</pre>{rest}", escape(cut))
}

fn folded(what: &str, text: &str) -> String {
    format!("<details><summary>{what}</summary>{}</details>", pre(text))
}
