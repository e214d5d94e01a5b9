//! Programs with placeholders.
//! A placeholder never pastes text: it becomes a reference to a value that the program gets
//! separately from its text.
//!
//! Only these are placeholders: `{{ … }}` around an expression, and `{% … %}` with a keyword of the
//! template language.
//! `${#name}` in bash, `{{print $1}}` in awk or `'{%s}'` in Python stay unchanged.

use std::ops::Range;
use std::sync::LazyLock;

use alara_text::jinja::{self, Marks};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as Dynamic;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;

use super::quotes::quoted_placeholder;
use super::scope::json;
use super::{Scope, bounded, environment, explain, is_expression};

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// bash.
    Bash,
    /// Python 3.
    Python,
}

/// A program that is ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// Its text.
    pub text: String,
    /// The values that it refers to: the first is `"$__v1"` in bash and `__v[1]` in Python.
    pub values: Vec<Value>,
}

/// A part of a program's text, by its byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Plain text.
    Text(Range<usize>),
    /// `{{ … }}`: its range, and that of the expression in it.
    Expression(Range<usize>, Range<usize>),
    /// `{% … %}`: its range, and that of its contents.
    Tag(Range<usize>, Range<usize>),
}

/// The keywords of tags.
const TAGS: [&str; 21] = [
    "if",
    "elif",
    "else",
    "endif",
    "for",
    "endfor",
    "break",
    "continue",
    "set",
    "endset",
    "with",
    "endwith",
    "filter",
    "endfilter",
    "macro",
    "endmacro",
    "call",
    "endcall",
    "do",
    "autoescape",
    "endautoescape",
];

/// How deep brackets may nest in an expression.
const DEEPEST: usize = 64;

/// The delimiter of expressions and tags when the template engine reads a program: a character that
/// no program contains.
const MARK: char = '\u{1}';
const MARKS: Marks =
    Marks { variable: ("\u{1}{", "}\u{1}"), block: ("\u{1}%", "%\u{1}"), comment: ("\u{1}#", "#\u{1}") };

static BASH: LazyLock<Environment<'static>> = LazyLock::new(|| referring(|index| format!("\"$__v{index}\"")));
static PYTHON: LazyLock<Environment<'static>> = LazyLock::new(|| referring(|index| format!("__v[{index}]")));

/// The values that a rendering has used.
#[derive(Default)]
struct Met(Vec<Value>);

/// An environment that writes references instead of values.
fn referring(reference: impl Fn(usize) -> String + Send + Sync + 'static) -> Environment<'static> {
    let mut environment = environment();
    let syntax = SyntaxConfig::builder()
        .block_delimiters(MARKS.block.0, MARKS.block.1)
        .variable_delimiters(MARKS.variable.0, MARKS.variable.1)
        .comment_delimiters(MARKS.comment.0, MARKS.comment.1)
        .keep_trailing_newline(true)
        .build();
    if let Ok(syntax) = syntax {
        environment.set_syntax(syntax);
    }
    environment.set_formatter(move |out, state, value| {
        if value.is_undefined() {
            return Err(Error::from(ErrorKind::UndefinedError));
        }
        let value = json(&jinja::printable(state, value)?)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error))?;
        let Met(values) = state.get_or_insert_extension(Met::default());
        values.push(value);
        let index = values.len();
        out.write_str(&reference(index)).map_err(Error::from)
    });
    environment
}

/// A program with its placeholders replaced by references.
/// A program that consists of one placeholder of a name is the text of that name.
/// This is how to write tools that run programs.
///
/// # Errors
/// A placeholder is in quotes, uses an undefined name, or can't be evaluated.
pub fn code(language: Language, text: &str, scope: &Scope) -> Result<Code, String> {
    let pieces = pieces(text);
    if pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) {
        let text = pieces.iter().map(|piece| &text[piece.range()]).collect();
        return Ok(Code { text, values: Vec::new() });
    }
    if let Some(name) = program(text, &pieces) {
        return match super::evaluate(name, scope)? {
            Value::String(text) => Ok(Code { text, values: Vec::new() }),
            _ => Err(format!("`{name}` is no text, so it is no program")),
        };
    }
    if let Some(quoted) = quoted_placeholder(language, text) {
        return Err(quoted.to_string());
    }
    let environment = match language {
        Language::Bash => &*BASH,
        Language::Python => &*PYTHON,
    };
    let wrong = |error: &Error, names: &_| explain(error, text, names, scope);
    let template =
        bounded(&marked(text, &pieces), &MARKS).map_err(|error| wrong(&error, &Default::default()))?;
    let template =
        environment.template_from_str(&template).map_err(|error| wrong(&error, &Default::default()))?;
    let names = template.undeclared_variables(true);
    let rendered = template
        .render_captured(Dynamic::from_object(scope.clone()))
        .map_err(|error| wrong(&error, &names))?;
    let values = rendered.state().get_extension::<Met>().map(|met| met.0.clone()).unwrap_or_default();
    Ok(Code { text: rendered.into_output(), values })
}

impl Piece {
    /// Its range.
    pub fn range(&self) -> Range<usize> {
        let (Piece::Text(range) | Piece::Expression(range, _) | Piece::Tag(range, _)) = self;
        range.clone()
    }
}

/// The name, if a program consists of one placeholder of a name.
fn program<'a>(text: &'a str, pieces: &[Piece]) -> Option<&'a str> {
    let mut pieces = pieces.iter().filter(|piece| !text[piece.range()].trim().is_empty());
    let (Some(Piece::Expression(_, inside)), None) = (pieces.next(), pieces.next()) else { return None };
    let name = typed(&text[inside.clone()]);
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')).then_some(name)
}

/// An expression without a final `| tojson`: values reach programs with their types anyway.
fn typed(expression: &str) -> &str {
    let cut = expression.strip_suffix("()").unwrap_or(expression).trim_end();
    let cut = cut.strip_suffix("tojson").and_then(|cut| cut.trim_end().strip_suffix('|')).map(str::trim_end);
    cut.filter(|cut| is_expression(cut)).unwrap_or(expression)
}

/// The program as a template whose delimiters can't be confused with its text.
fn marked(text: &str, pieces: &[Piece]) -> String {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(range) => out.extend(text[range.clone()].chars().filter(|c| *c != MARK)),
            Piece::Expression(range, inside) => {
                let (open, close) = trims(&text[range.clone()]);
                let expression = typed(&text[inside.clone()]);
                out += &format!("{MARK}{{{open} {expression} {close}}}{MARK}");
            }
            Piece::Tag(range, inside) => {
                let (open, close) = trims(&text[range.clone()]);
                out += &format!("{MARK}%{open} {} {close}%{MARK}", &text[inside.clone()]);
            }
        }
    }
    out
}

/// The whitespace control signs at both ends of `{{- x -}}`.
fn trims(piece: &str) -> (&str, &str) {
    let sign = |sign: &&str| matches!(*sign, "-" | "+");
    let (open, close) =
        (piece.get(2..3).filter(sign), piece.get(piece.len() - 3..piece.len() - 2).filter(sign));
    (open.unwrap_or_default(), close.unwrap_or_default())
}

/// The parts of a program's text.
pub fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut begun, mut at) = (0, 0);
    // The next position of each sign, and whether the end of a raw text may still follow: a missing
    // sign is searched for only once.
    let (mut found, mut raw_ends) = ([Some(0), Some(0)], true);
    let last_end = text.rfind("%}").unwrap_or(0);
    loop {
        for (found, sign) in found.iter_mut().zip(["{{", "{%"]) {
            if found.is_some_and(|before| before <= at) {
                *found = text[at..].find(sign).map(|found| at + found);
            }
        }
        let Some(start) = found.into_iter().flatten().min() else { break };
        let expression = text[start..].starts_with("{{");
        let end = if expression {
            expression_end(text, start + 2)
        } else {
            (start < last_end).then(|| text[start..].find("%}")).flatten().map(|end| start + end)
        };
        let inside = end.map(|end| trimmed(text, start + 2..end));
        let piece = inside.zip(end).and_then(|(inside, end)| {
            let content = &text[inside.clone()];
            let word = content.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            match expression {
                true => is_expression(content).then(|| Piece::Expression(start..end + 2, inside)),
                false => TAGS.contains(&word).then(|| Piece::Tag(start..end + 2, inside)),
            }
        });
        let open = end.filter(|&end| !expression && raw_ends && is_raw(&text[start..end + 2]));
        let raw = open.and_then(|end| verbatim(text, end + 2));
        raw_ends &= open.is_none() || raw.is_some();
        let (next, piece) = match (piece, raw) {
            (Some(piece), _) => (piece.range().end, Some(piece)),
            (None, Some((inside, end))) => (end, Some(Piece::Text(inside))),
            (None, None) => {
                at = start + 1;
                continue;
            }
        };
        if begun < start {
            pieces.push(Piece::Text(begun..start));
        }
        pieces.extend(piece);
        (begun, at) = (next, next);
    }
    if begun < text.len() {
        pieces.push(Piece::Text(begun..text.len()));
    }
    pieces
}

/// The contents of a tag.
fn tag_content(tag: &str) -> &str {
    tag.trim_matches(['{', '}', '%', '-', '+', ' '])
}

fn is_raw(tag: &str) -> bool {
    tag_content(tag) == "raw"
}

/// The contents of a raw text that begins at `open`, and the end of its last tag.
fn verbatim(text: &str, open: usize) -> Option<(Range<usize>, usize)> {
    let mut at = open;
    loop {
        let close = at + text[at..].find("{%")?;
        let end = close + text[close..].find("%}")? + 2;
        if tag_content(&text[close..end]) == "endraw" {
            return Some((open..close, end));
        }
        at = close + 2;
    }
}

/// The position of the `}}` that ends an expression which begins at `from`.
fn expression_end(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut quote, mut at) = (0usize, None, from);
    while at < bytes.len() {
        match (bytes[at], quote) {
            (b'\\', Some(_)) => at += 1,
            (byte, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            (byte @ (b'"' | b'\''), None) => quote = Some(byte),
            (b'}', None) if depth == 0 => return (bytes.get(at + 1) == Some(&b'}')).then_some(at),
            (b'{' | b'[' | b'(', None) if depth == DEEPEST => return None,
            (b'{' | b'[' | b'(', None) => depth += 1,
            (b'}' | b']' | b')', None) => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The range without whitespace and its control signs.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let inside = &text[range.clone()];
    let cut = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    let cut = cut.strip_suffix(['-', '+']).unwrap_or(cut);
    let start = range.start + (inside.len() - inside.strip_prefix(['-', '+']).unwrap_or(inside).len());
    let start = start + (cut.len() - cut.trim_start().len());
    start..start + cut.trim().len()
}
