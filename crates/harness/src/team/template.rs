//! `.npc` and `.ctx` files are templates before they are YAML: rendering them, and finding the way back to the places of the file.
//!
//! Known to templates: `Jinx(name, path=)`, `NPC(name)`, `ref(name)`, `jinxes_list(glob)`, each jinx's name as a variable, and in
//! an `.npc` `ctx`, the other keys of the team's `.ctx`. Anything else is empty.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::{Map, json};

use super::bounds::refused;
use super::library::Pattern;
use crate::jinx::Place;
use crate::source::{Diagnostic, Source};

/// Most steps of one template: thousands of lines of text are made with fewer.
const FUEL: u64 = 100_000;
/// Most bytes of what a template makes.
const MADE: usize = 4 << 20;
/// Most bytes of a template, of the values that it knows, and of a text that it joins: what it holds at a time is no more than the
/// product of two of these.
const TEMPLATE: usize = 64 << 10;
/// Filters that make large values out of small ones, or texts of lists.
const GROWING: [&str; 21] = [
    "replace",
    "indent",
    "format",
    "tojson",
    "pprint",
    "urlencode",
    "escape",
    "e",
    "string",
    "batch",
    "slice",
    "sum",
    "map",
    "chain",
    "zip",
    "split",
    "lines",
    "groupby",
    "attr",
    "safe",
    "dictsort",
];
/// Functions of the same kind.
const GROWING_FUNCTIONS: [&str; 3] = ["dict", "namespace", "debug"];
/// Methods that are not.
const METHODS: [&str; 16] = [
    "capitalize",
    "count",
    "endswith",
    "find",
    "get",
    "items",
    "keys",
    "lower",
    "lstrip",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "upper",
    "values",
];
/// What surrounds a line's number while places are looked for: characters for private use, which no text has.
const MARKS: [char; 2] = ['\u{e0fe}', '\u{e0ff}'];

/// The templates of a team.
pub struct Templates {
    environment: Environment<'static>,
    /// Names of jinxes that a template wanted from elsewhere.
    fetched: Arc<Mutex<BTreeSet<String>>>,
}

/// A file after templating.
pub struct Rendered {
    /// The file with the text that the template makes.
    pub source: Source,
    original: Option<String>,
    lines: Option<Vec<usize>>,
}

impl Templates {
    /// For a team whose jinxes have these names and references.
    pub fn new(jinxes: Vec<(String, String)>) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(|state, value, method, arguments| {
            if !METHODS.contains(&method) {
                return Err(ErrorKind::UnknownMethod.into());
            }
            minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
        });
        GROWING.iter().for_each(|name| environment.remove_filter(name));
        GROWING_FUNCTIONS.iter().for_each(|name| environment.remove_global(name));
        environment.add_filter("lower", |text: &str| text.to_lowercase());
        environment.add_filter("upper", |text: &str| text.to_uppercase());
        environment.add_filter("trim", |text: &str| text.trim().to_owned());
        environment.remove_filter("title");
        environment.remove_filter("capitalize");
        environment.add_filter("join", join);
        for (name, _) in &jinxes {
            environment.add_global(name.clone(), name.clone());
        }
        let fetched = Arc::new(Mutex::new(BTreeSet::new()));
        let wanted = fetched.clone();
        let jinx = move |name: String, how: Kwargs| -> Result<String, minijinja::Error> {
            if how.has("repo") {
                wanted.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
            }
            Ok(how.get::<Option<String>>("path")?.unwrap_or(name))
        };
        environment.add_function("Jinx", jinx);
        environment.add_function("NPC", |name: String| name);
        environment.add_function("ref", |name: String| name);
        environment.add_function("jinxes_list", move |pattern: &str| -> Vec<String> {
            let Ok(pattern) = Pattern::new(pattern) else { return Vec::new() };
            let found = jinxes.iter().filter(|(name, reference)| pattern.fits(name, reference));
            found.map(|(name, _)| name.clone()).collect()
        });
        Templates { environment, fetched }
    }

    /// Renders a file in which `ctx` is known.
    ///
    /// # Errors
    /// What the template does wrong.
    pub fn render(
        &self,
        source: &Source,
        ctx: &Map<String, serde_json::Value>,
        said: &mut Vec<Diagnostic>,
    ) -> Result<Rendered, Diagnostic> {
        if !["{{", "{%", "{#"].iter().any(|tag| source.text.contains(tag)) {
            return Ok(Rendered { source: source.clone(), original: None, lines: None });
        }
        if let Some((line, what)) = refused(&source.text) {
            return Err(source.error(Place { line, column: 1 }, format!("the template is wrong: {what}")));
        }
        let context = json!({"ctx": ctx});
        if source.text.len().max(context.to_string().len()) > TEMPLATE {
            let message =
                format!("a template, and the values that it knows, have at most {TEMPLATE} bytes each");
            return Err(source.error(Place::default(), message));
        }
        let render = |text: &str| -> Result<String, minijinja::Error> {
            let mut made = Made(Vec::new());
            let template = self.environment.template_from_str(text)?;
            template.render_captured_to(Value::from(Serde(&context)), &mut made)?;
            String::from_utf8(made.0).map_err(|_| ErrorKind::BadSerialization.into())
        };
        self.wanted();
        let text = render(&source.text).map_err(|error| {
            let place = Place { line: error.line().unwrap_or(0), column: 1 };
            let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            source.error(place, format!("the template is wrong: {}{detail}", error.kind()))
        })?;
        let lines = lines(&source.text, &text, render);
        for name in self.wanted() {
            let message = format!(
                "nothing is fetched when a team is loaded: `{name}` is taken from this team, if it has it"
            );
            said.push(source.warning(Place::default(), message));
        }
        let original = Some(source.text.clone());
        Ok(Rendered { source: Source { path: source.path.clone(), text }, original, lines })
    }

    /// What has been asked for since the last time.
    fn wanted(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.fetched.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a template makes, up to a limit.
struct Made(Vec<u8>);

impl Write for Made {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + part.len() > MADE {
            return Err(std::io::Error::other(format!("it makes more than {MADE} bytes")));
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The values of a list as one text.
fn join(list: &Value, between: Option<&str>) -> Result<String, minijinja::Error> {
    let mut text = String::new();
    for (index, value) in list.try_iter()?.enumerate() {
        let simple = !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable);
        text += if index == 0 { "" } else { between.unwrap_or_default() };
        text += &if simple { value.to_string() } else { String::new() };
        if text.len() > TEMPLATE {
            let message = format!("a joined text has at most {TEMPLATE} bytes");
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(text)
}

impl Rendered {
    /// What was said about the rendered text, said about the file.
    pub fn placed(&self, diagnostic: Diagnostic) -> Diagnostic {
        let Some(original) = self.original.as_deref().filter(|_| diagnostic.place.line > 0) else {
            return diagnostic;
        };
        let Place { line, column } = diagnostic.place;
        let Some(from) = self.lines.as_ref().and_then(|lines| lines.get(line - 1)).copied() else {
            let message = format!("{} (the place is that after templating)", diagnostic.message);
            return Diagnostic { message, ..diagnostic };
        };
        // Beyond the first difference the columns are others.
        let nth = |text: &str, line: usize| text.lines().nth(line - 1).unwrap_or_default().to_owned();
        let (before, after) = (nth(original, from), nth(&self.source.text, line));
        let same = before.chars().zip(after.chars()).take_while(|(left, right)| left == right).count();
        let column = if before == after { column } else { column.min(same + 1) };
        Diagnostic { place: Place { line: from, column }, ..diagnostic }
    }
}

/// For each line of the rendered text the line of the template that it comes from, if that can be told: found by rendering the
/// template again with a number at the start of each line.
fn lines(
    template: &str,
    rendered: &str,
    render: impl Fn(&str) -> Result<String, minijinja::Error>,
) -> Option<Vec<usize>> {
    if template.contains(MARKS) {
        return None;
    }
    let [open, close] = MARKS;
    let mut marked = String::new();
    let mut within: Option<&str> = None;
    for (index, line) in template.split_inclusive('\n').enumerate() {
        if within.is_none() {
            marked += &format!("{open}{}{close}", index + 1);
        }
        marked += line;
        let mut rest = line;
        loop {
            let end = match within {
                Some(end) => end,
                None => {
                    let tags = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
                    let first = tags.iter().filter_map(|(tag, end)| Some((rest.find(tag)?, *end))).min();
                    let Some((at, end)) = first else { break };
                    rest = &rest[at + 2..];
                    end
                }
            };
            let Some(at) = rest.find(end) else {
                within = Some(end);
                break;
            };
            rest = &rest[at + 2..];
            within = None;
        }
    }
    let mut lines = Vec::new();
    let mut plain = String::new();
    let mut current = 1;
    for line in render(&marked).ok()?.split_inclusive('\n') {
        for (index, part) in line.split(open).enumerate() {
            let text = match index {
                0 => part,
                _ => {
                    let (number, text) = part.split_once(close)?;
                    // A mark without text before it begins the line; of several, the last one.
                    if plain.is_empty() || plain.ends_with('\n') {
                        current = number.parse().ok()?;
                    }
                    text
                }
            };
            plain += text;
        }
        lines.push(current);
    }
    (plain == rendered).then_some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_bounds() {
        let templates = Templates::new(vec![("a".into(), "lib/a".into()), ("b".into(), "lib/b".into())]);
        let ctx = json!({"names": ["x", "y"], "text": "t".repeat(1000)});
        let ctx = ctx.as_object().unwrap();
        let check = |text: &str, expected: Result<&str, &str>| {
            let source = Source { path: "w.npc".into(), text: text.to_owned() };
            match (templates.render(&source, ctx, &mut Vec::new()), expected) {
                (Ok(made), Ok(expected)) => assert_eq!(made.source.text, expected, "{text}"),
                (Err(error), Err(part)) => assert!(error.message.contains(part), "{text}: {error}"),
                (Ok(_), Err(part)) => panic!("{text} works, but: {part}"),
                (Err(error), Ok(_)) => panic!("{text}: {error}"),
            }
        };
        check(
            "{{ ctx.names|join(', ') }} {{ jinxes_list('lib/*')|join('+') }} {{ 'u'|upper }}",
            Ok("x, y a+b U"),
        );
        check("{% for n in range(3) %}{{ n }}{% endfor %}", Ok("012"));
        let doubling =
            "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
        check(doubling, Err("`set`"));
        check("{{ 'x' * 9000000000 }}", Err("`*`"));
        check("{{ 'x'|indent(9000000000) }}", Err("unknown filter"));
        check("{{ 'x'.center(9000000000) }}", Err("unknown method"));
        check("{% for n in range(9000) %}{{ ctx.text }}{% endfor %}", Err("the template is wrong"));
        check("{{ range(90000)|join(ctx.text) }}", Err("a joined text"));
        check(&format!("{{{{ 1 }}}}{}", "x".repeat(1 << 16)), Err("at most 65536 bytes"));
    }
}
