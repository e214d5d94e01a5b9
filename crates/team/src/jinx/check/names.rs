//! Finds the names that the texts of a step use, and invalid texts.

use std::sync::LazyLock;

use alara_text::jinja::MARKS;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;

use crate::jinx::template::{self, Language, Piece, pieces, single};
use crate::jinx::{Action, Step, Timeout};

/// A text that can contain names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Text<'a> {
    /// A condition, or the items of a loop.
    Expression(&'a str),
    /// A text with placeholders.
    Template(&'a str),
    /// A program with placeholders.
    Code(Language, &'a str),
}

/// A name that a text uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The name with its attributes: `order.items`.
    pub path: String,
    /// Whether the text first tests that the name is defined.
    pub guarded: bool,
}

/// A text with a syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The error.
    pub message: String,
    /// The line of the text, from 1.
    pub line: usize,
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(template::environment);

impl<'a> Text<'a> {
    /// The text as in the file.
    pub fn as_str(self) -> &'a str {
        let (Text::Expression(text) | Text::Template(text) | Text::Code(_, text)) = self;
        text
    }

    /// The names that it uses, in alphabetical order, without functions.
    ///
    /// # Errors
    /// It has a syntax error.
    pub fn uses(self) -> Result<Vec<Use>, Wrong> {
        let text = self.as_str();
        let names = match self {
            Text::Expression(text) => {
                let text = template::bounded_expression(text).map_err(|error| wrong(&error))?;
                let compiled = ENVIRONMENT.compile_expression(&text).map_err(|error| wrong(&error))?;
                compiled.undeclared_variables(true)
            }
            Text::Template(text) if !text.contains('{') => return Ok(Vec::new()),
            Text::Template(text) => match single(text) {
                Some(expression) => return Text::Expression(expression).uses(),
                None => {
                    let text = template::bounded(text, &MARKS).map_err(|error| wrong(&error))?;
                    let template = ENVIRONMENT.template_from_str(&text).map_err(|error| wrong(&error))?;
                    template.undeclared_variables(true)
                }
            },
            Text::Code(_, text) => {
                let parts: Vec<Piece> = pieces(text);
                // Without the program between them, the placeholders form a template with as many
                // lines.
                let mut left = String::new();
                for part in &parts {
                    match part {
                        Piece::Text(range) => left.extend(text[range.clone()].chars().filter(|c| *c == '\n')),
                        Piece::Expression(range, _) | Piece::Tag(range, _) => left += &text[range.clone()],
                    }
                }
                if !left.contains('{') {
                    return Ok(Vec::new());
                }
                let left = template::bounded(&left, &MARKS).map_err(|error| wrong(&error))?;
                let template = ENVIRONMENT.template_from_str(&left).map_err(|error| wrong(&error))?;
                template.undeclared_variables(true)
            }
        };
        if let Some(unknown) = self.unknown() {
            return Err(unknown);
        }
        let mut uses: Vec<Use> = names
            .into_iter()
            .filter(|path| !is_global(root(path)))
            .map(|path| Use { guarded: guarded(text, &path), path })
            .collect();
        uses.sort();
        Ok(uses)
    }

    /// The first filter or test that doesn't exist.
    fn unknown(self) -> Option<Wrong> {
        let text = self.as_str();
        // Text in these may only look like an expression.
        if text.contains("{#") || words(text, "raw").next().is_some() {
            return None;
        }
        let whole = [Piece::Expression(0..text.len(), 0..text.len())];
        let parts = if matches!(self, Text::Expression(_)) { whole.into() } else { pieces(text) };
        parts.into_iter().find_map(|part| {
            let (Piece::Expression(_, range) | Piece::Tag(_, range)) = part else { return None };
            let line = text[..range.start].matches('\n').count();
            unknown(&text[range]).map(|wrong| Wrong { line: line + wrong.line, ..wrong })
        })
    }
}

/// Filters that take the name of another filter or test, and the index of that argument.
const NAMING: [(&str, usize, &str); 5] = [
    ("map", 0, "filter"),
    ("select", 0, "test"),
    ("reject", 0, "test"),
    ("selectattr", 1, "test"),
    ("rejectattr", 1, "test"),
];

/// The first filter or test in an expression that doesn't exist.
fn unknown(expression: &str) -> Option<Wrong> {
    let (mut quote, mut escaped) = (None, false);
    let mut bare = String::new();
    for c in expression.chars() {
        let quoted = quote.is_some();
        match quote {
            _ if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(end) if c == end => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        match (quoted || quote.is_some()) && c != '\n' {
            // Keep the number of bytes.
            true => bare.extend(std::iter::repeat_n(' ', c.len_utf8())),
            false => bare.push(c),
        }
    }
    let filters = bare.match_indices('|').map(|(at, _)| (at, at + 1, "filter"));
    let tests = words(&bare, "is").map(|at| (at, at + 2, "test"));
    filters.chain(tests).find_map(|(at, end, what)| {
        let rest = bare[end..].trim_start();
        let rest = rest.strip_prefix("not ").filter(|_| what == "test").unwrap_or(rest).trim_start();
        let name = word(rest);
        let line = bare[..at].matches('\n').count() + 1;
        let named = || {
            let (_, argument, what) =
                NAMING.iter().find(|(filter, ..)| what == "filter" && *filter == name)?;
            // Only the original text has complete strings.
            let open = bare.len() - rest.len() + name.len();
            let text = literal(expression.get(open..)?.trim_start().strip_prefix('(')?, *argument)?;
            (word(text) == text && !exists(what, text)).then_some((*what, text))
        };
        let missing = if exists(what, name) { named() } else { Some((what, name)) };
        missing.map(|(what, name)| Wrong { message: format!("there is no {what} `{name}`"), line })
    })
}

/// The letters, digits and `_` at the beginning of a text.
fn word(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

/// The argument at this index, if it and those before it are plain strings.
fn literal(arguments: &str, number: usize) -> Option<&str> {
    let arguments = arguments.trim_start();
    let quote = arguments.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (text, rest) = arguments[1..].split_once(quote)?;
    if number > 0 {
        return literal(rest.trim_start().strip_prefix(',')?, number - 1);
    }
    rest.trim_start().starts_with([',', ')']).then_some(text)
}

/// Whether there is such a filter or test.
fn exists(what: &str, name: &str) -> bool {
    let tried = if what == "test" { format!("0 is {name}") } else { format!("0 | {name}") };
    let kind = if what == "test" { ErrorKind::UnknownTest } else { ErrorKind::UnknownFilter };
    let failed = ENVIRONMENT.compile_expression(&tried).ok().and_then(|tried| tried.eval(()).err());
    failed.is_none_or(|failed| failed.kind() != kind)
}

/// The name at the beginning of a path.
pub fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// Whether an expression is always true or always false.
/// `None` if it depends on names.
pub fn constant(expression: &str) -> Option<bool> {
    let expression = template::bounded_expression(expression).ok()?;
    let compiled = ENVIRONMENT.compile_expression(&expression).ok()?;
    if !compiled.undeclared_variables(false).is_empty() {
        return None;
    }
    compiled.eval(()).ok().map(|value| value.is_true())
}

/// The value of an expression without names; `None` if it has any.
pub fn value(expression: &str) -> Option<Value> {
    let expression = template::bounded_expression(expression).ok()?;
    let compiled = ENVIRONMENT.compile_expression(&expression).ok()?;
    if !compiled.undeclared_variables(false).iter().all(|name| is_global(name)) {
        return None;
    }
    serde_json::to_value(compiled.eval(()).ok()?).ok()
}

/// The texts of a step itself, without those of its inner steps and without the `until` of a loop,
/// which sees other names.
pub fn texts(step: &Step) -> Vec<Text<'_>> {
    let mut texts = Vec::new();
    if let Some(Timeout::Given(expression)) = &step.timeout {
        texts.push(Text::Expression(expression));
    }
    match &step.action {
        Action::Bash { code, background } => {
            texts.push(Text::Code(Language::Bash, code));
            texts.extend(background.iter().map(|expression| Text::Expression(expression)));
        }
        Action::Jobs { jobs, job } => {
            std::iter::once(jobs).chain(job).for_each(|value| add(value, &mut texts));
        }
        Action::Search(search) => {
            let values = [Some(&search.query), search.k.as_ref(), search.within.as_ref()];
            values.into_iter().flatten().for_each(|value| add(value, &mut texts));
        }
        Action::Python { code } => texts.push(Text::Code(Language::Python, code)),
        Action::Text { text } => add(text, &mut texts),
        Action::Llm(llm) => {
            add(&llm.prompt, &mut texts);
            llm.npc.iter().for_each(|npc| add(npc, &mut texts));
        }
        Action::Call { with, .. } => with.values().for_each(|value| add(value, &mut texts)),
        Action::When { when, .. } => texts.push(Text::Expression(when)),
        Action::For { items, .. } => texts.push(Text::Expression(items)),
        Action::Set { set } => set.values().for_each(|value| add(value, &mut texts)),
        Action::Emit { emit } => add(emit, &mut texts),
        Action::Return { value } => add(value, &mut texts),
        Action::Try { .. } => {}
    }
    texts
}

/// The inner steps of a step, list by list.
pub fn blocks(action: &Action) -> Vec<&[Step]> {
    match action {
        Action::When { then, otherwise, .. } => vec![then, otherwise],
        Action::For { steps, .. } => vec![steps],
        Action::Try { steps, catch, finally } => vec![steps, catch, finally],
        _ => Vec::new(),
    }
}

/// The templates in a value.
pub fn add<'a>(value: &'a Value, texts: &mut Vec<Text<'a>>) {
    match value {
        Value::String(text) => texts.push(Text::Template(text)),
        Value::Array(items) => items.iter().for_each(|item| add(item, texts)),
        Value::Object(map) => map.values().for_each(|value| add(value, texts)),
        _ => {}
    }
}

/// The offsets of a word in a text, in bytes.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !text[..*at].chars().next_back().is_some_and(inner)
            && !text[at + word.len()..].chars().next().is_some_and(inner)
    })
}

fn is_global(name: &str) -> bool {
    ENVIRONMENT.globals().any(|(global, _)| global == name)
}

/// Whether a text tests that a name is defined: `x is defined`, `x | default(1)`.
pub fn guarded(text: &str, name: &str) -> bool {
    words(text, name).any(|at| {
        let rest = text[at + name.len()..].trim_start();
        let test =
            rest.strip_prefix("is ").map(|rest| rest.trim_start().trim_start_matches("not ").trim_start());
        let filter = rest.strip_prefix('|').map(str::trim_start);
        test.is_some_and(|test| test.starts_with("defined") || test.starts_with("undefined"))
            || filter.is_some_and(|filter| filter.starts_with("default") || filter.starts_with("d("))
    })
}

fn wrong(error: &Error) -> Wrong {
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Wrong { message, line: error.line().unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: Text, expected: Result<&[&str], &str>) {
        let found = text.uses().map(|uses| {
            let name = |used: Use| if used.guarded { format!("{}?", used.path) } else { used.path };
            uses.into_iter().map(name).collect::<Vec<_>>()
        });
        let found = found.map_err(|wrong| format!("{}: {}", wrong.line, wrong.message));
        let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(found, expected.map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn names_of_texts() {
        check(Text::Expression("order.status == 'x' and n > range(3)|length"), Ok(&["n", "order.status"]));
        check(Text::Expression("x is defined and y | default(1) > z"), Ok(&["x?", "y?", "z"]));
        check(Text::Expression("x is not defined"), Ok(&["x?"]));
        check(Text::Expression("[i for"), Err("1: unexpected identifier, expected `,`"));
        check(
            Text::Template("a {{ x }} {% for i in y %}{{ i }}{{ loop.index }}{% endfor %}"),
            Ok(&["x", "y"]),
        );
        check(Text::Template("{{ skill | section(name) }}"), Ok(&["name", "skill"]));
        check(Text::Template("no { names }"), Ok(&[]));
        check(Text::Template("{{ a"), Err("1: unexpected end of input, expected end of variable block"));
        check(Text::Code(Language::Bash, "echo ${#x} {{ q }} | awk '{{print $1}}'"), Ok(&["q"]));
        check(
            Text::Code(Language::Python, "f'{y}'\n{% if a %}\nx = {{ b.c }}\n{% endif %}"),
            Ok(&["a", "b.c"]),
        );
        check(
            Text::Code(Language::Python, "\n{% if a %}\nx"),
            Err("2: unexpected end of input, expected end of block"),
        );
    }

    #[test]
    fn filters_and_tests_of_texts() {
        let text = "a\n{{ a | upper }}{{ a\n | nofilter }}";
        check(Text::Template(text), Err("3: there is no filter `nofilter`"));
        check(Text::Template("{{ a | nofilter }}"), Err("1: there is no filter `nofilter`"));
        check(Text::Expression("a is not notest"), Err("1: there is no test `notest`"));
        check(Text::Expression("a is notest(1) and b"), Err("1: there is no test `notest`"));
        check(
            Text::Code(Language::Bash, "ls | wc\necho {{ a | nofilter }}"),
            Err("2: there is no filter `nofilter`"),
        );
        check(Text::Expression("a | map('nofilter') | list"), Err("1: there is no filter `nofilter`"));
        check(Text::Template("x\n{{ a | select(\"notest\", 1) }}"), Err("2: there is no test `notest`"));
        check(Text::Expression("a | rejectattr('ä|k', 'notest')"), Err("1: there is no test `notest`"));
        let named = "a | map('upper') | map(attribute='x') | select | reject('in', [1]) | selectattr('k', '==', 2) | map(b)";
        check(Text::Expression(named), Ok(&["a", "b"]));
        let good =
            "a | join(' | x') == ' is y' and a is not in [1] and a is divisibleby 3 and a is match('x')";
        check(Text::Expression(good), Ok(&["a"]));
        check(
            Text::Template("{% raw %}{{ a | nofilter }}{% endraw %}{{ a | tojson(indent=2) }}"),
            Ok(&["a"]),
        );
        check(Text::Code(Language::Bash, "echo {{ a | fromjson | length }} | awk '{print}'"), Ok(&["a"]));
    }

    #[test]
    fn conditions_that_are_always_the_same() {
        let check = |text, expected| assert_eq!(constant(text), expected, "{text}");
        check("true", Some(true));
        check("1 > 2 or ''", Some(false));
        check("x", None);
        check("range(3)", None);
        check("1 / 0", None);
    }
}
