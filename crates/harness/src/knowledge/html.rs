//! The visible text of an HTML page, with its headings as Markdown.

/// Elements whose text is invisible.
const SILENT: [&str; 5] = ["script", "style", "noscript", "template", "svg"];
/// Elements that begin a line.
const BLOCKS: [&str; 18] = [
    "p",
    "div",
    "section",
    "article",
    "li",
    "tr",
    "table",
    "ul",
    "ol",
    "pre",
    "br",
    "blockquote",
    "header",
    "footer",
    "main",
    "title",
    "dt",
    "dd",
];
const ENTITIES: [(&str, &str); 6] =
    [("lt", "<"), ("gt", ">"), ("quot", "\""), ("apos", "'"), ("nbsp", " "), ("amp", "&")];

/// The text of an HTML page.
///
/// # Errors
/// A tag or comment has no end.
pub fn text(page: &str) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), page);
    while let Some(at) = rest.find('<') {
        add(&mut text, &rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            let end = comment.find("-->").ok_or("a comment `<!--` has no end `-->`")?;
            rest = &comment[end + 3..];
            continue;
        }
        let inside = &rest[1..];
        // A literal `<` in a text.
        if !inside.starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c)) {
            text.push('<');
            rest = inside;
            continue;
        }
        let end = inside.find('>').ok_or("a tag `<` has no end `>`")?;
        let tag = inside[..end].to_ascii_lowercase();
        rest = &inside[end + 1..];
        let closing = tag.starts_with('/');
        let name: String =
            tag.chars().skip_while(|c| *c == '/').take_while(char::is_ascii_alphanumeric).collect();
        if SILENT.contains(&name.as_str()) && !closing && !tag.ends_with('/') {
            let close = format!("</{name}");
            let end = rest.to_ascii_lowercase().find(&close).ok_or(format!("`<{name}>` has no end"))?;
            rest = &rest[end..];
        }
        let level = name.strip_prefix('h').and_then(|level| level.parse::<usize>().ok());
        match level.filter(|level| (1..=6).contains(level)) {
            Some(level) if !closing => text.push_str(&format!("\n\n{} ", "#".repeat(level))),
            Some(_) => text.push('\n'),
            None if BLOCKS.contains(&name.as_str()) => text.push('\n'),
            None => {}
        }
    }
    add(&mut text, rest);
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"))
}

/// Adds a text, in which line ends become spaces.
fn add(text: &mut String, piece: &str) {
    let mut rest = piece;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at].replace(['\n', '\r'], " "));
        rest = &rest[at..];
        let name = rest[1..].split(';').next().filter(|name| name.len() < 10 && name.len() + 1 < rest.len());
        match name.and_then(entity).zip(name) {
            Some((sign, name)) => {
                text.push_str(&sign);
                rest = &rest[name.len() + 2..];
            }
            None => {
                text.push('&');
                rest = &rest[1..];
            }
        }
    }
    text.push_str(&rest.replace(['\n', '\r'], " "));
}

/// The character for `&name;`.
fn entity(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return ENTITIES.iter().find(|(known, _)| *known == name).map(|(_, sign)| (*sign).to_owned());
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(number) => u32::from_str_radix(number, 16),
        None => number.parse(),
    };
    code.ok().and_then(char::from_u32).map(String::from)
}
