//! Writes a report as Markdown, for terminals, issues and READMEs.

use super::{Report, Table, left_out};

/// Formats the report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut text = format!(
        "# Report on the suite {}\n\nsuite hash {}\n",
        plain(&report.suite.name),
        plain(&report.suite.hash)
    );
    let left_out = left_out(report);
    if !left_out.is_empty() {
        text += &format!("\n{left_out}\n");
    }
    for section in &report.sections {
        text += &format!("\n## {}\n", section.title);
        if !section.text.is_empty() {
            text += &format!("\n{}\n", plain(&section.text));
        }
        section.tables.iter().for_each(|one| text += &table(one));
    }
    text
}

/// Formats a table.
/// Published numbers are in italics.
fn table(table: &Table) -> String {
    let mut text = String::from("\n");
    if !table.caption.is_empty() {
        text += &format!("{}\n\n", plain(&table.caption));
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &line(table.columns.iter().map(|column| plain(&column.name)).collect());
    let rule = (0..table.columns.len()).map(|at| if at == 0 { "---" } else { "---:" }.to_owned());
    text += &line(rule.collect());
    for row in &table.rows {
        let cells = row.iter().zip(&table.columns).map(|(cell, column)| match plain(&cell.text) {
            text if column.published && cell.value.is_some() => format!("*{text}*"),
            text => text,
        });
        text += &line(cells.collect());
    }
    text
}

/// Escapes a text for Markdown, on one line.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '!' => plain.extend(['\\', c]),
            c if c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}
