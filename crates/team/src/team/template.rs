//! Renders `.npc` and `.ctx` files, which are templates before they are YAML, and maps locations
//! back to the file.
//!
//! Templates know `Jinx(name, path=)`, `NPC(name)`, `ref(name)`, `jinxes_list(glob)`, each jinx's
//! name as a variable, and in an `.npc` also `ctx` and the other keys of the team's `.ctx`.
//! Any other name is empty, with a warning.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use alara_text::{jinja, nearest};
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::{Map, json};

use super::library::Pattern;
use crate::jinx::check::{guarded, words};
use crate::source::Source;
use crate::types::{Diagnostic, Location};

/// Most steps of one template, which also bounds its output: thousands of lines of text take fewer.
const FUEL: u64 = 100_000;
/// Most bytes of a template, and of the values that it can use.
const TEMPLATE: usize = 64 << 10;
/// The characters around a line number while locations are determined: from the private use area,
/// which no text contains.
const MARKS: [char; 2] = ['\u{e0fe}', '\u{e0ff}'];

/// The templates of a team.
pub struct Templates {
    environment: Environment<'static>,
    /// Names of jinxes that a template fetches from elsewhere.
    fetched: Arc<Mutex<BTreeSet<String>>>,
}

/// A file after templating.
pub struct Rendered {
    /// The file with the rendered text.
    pub source: Source,
    original: Option<String>,
    lines: Option<Vec<usize>>,
}

impl Templates {
    /// The templates of a team whose jinxes have these names and references.
    pub fn new(jinxes: Vec<(String, String)>) -> Self {
        let mut environment = jinja::environment();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_fuel(Some(FUEL));
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

    /// Renders a file that can use `ctx`.
    ///
    /// # Errors
    /// The template fails.
    pub fn render(
        &self,
        source: &Source,
        ctx: &Map<String, serde_json::Value>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<Rendered, Diagnostic> {
        if !["{{", "{%", "{#"].iter().any(|tag| source.text.contains(tag)) {
            return Ok(Rendered { source: source.clone(), original: None, lines: None });
        }
        let context = json!({"ctx": ctx});
        if source.text.len().max(context.to_string().len()) > TEMPLATE {
            let message =
                format!("a template, and the values that it knows, have at most {TEMPLATE} bytes each");
            return Err(source.error(Location::default(), message));
        }
        let bounded = |text: &str| {
            jinja::bounded(text, &jinja::MARKS)
                .map_err(|refused| minijinja::Error::new(ErrorKind::SyntaxError, refused.what))
        };
        let render = |text: &str| -> Result<String, minijinja::Error> {
            let text = bounded(text)?;
            self.environment.template_from_str(&text)?.render(Value::from(Serde(&context)))
        };
        if let Err(refused) = jinja::bounded(&source.text, &jinja::MARKS) {
            let location = Location { line: refused.line, column: 1 };
            return Err(source.error(location, format!("the template is wrong: {refused}")));
        }
        self.wanted();
        let text = render(&source.text).map_err(|error| {
            let location = Location { line: error.line().unwrap_or(0), column: 1 };
            let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            source.error(location, format!("the template is wrong: {}{detail}", error.kind()))
        })?;
        if let Ok(bounded) = bounded(&source.text)
            && let Ok(template) = self.environment.template_from_str(&bounded)
        {
            self.undefined(source, template.undeclared_variables(true), ctx, diagnostics);
        }
        let lines = lines(&source.text, &text, render);
        for name in self.wanted() {
            let message = format!(
                "nothing is fetched when a team is loaded: `{name}` is taken from this team, if it has it"
            );
            diagnostics.push(source.warning(Location::default(), message));
        }
        let original = Some(source.text.clone());
        Ok(Rendered { source: Source { path: source.path.clone(), text }, original, lines })
    }

    /// Warns of names in a template that nothing defines: they render as empty.
    /// A template that tests whether a name is defined expects that it may not be.
    fn undefined(
        &self,
        source: &Source,
        paths: HashSet<String>,
        ctx: &Map<String, serde_json::Value>,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let keys = || ctx.keys().map(String::as_str);
        let globals: Vec<&str> = self.environment.globals().map(|(name, _)| name).collect();
        let of_ctx = |near: &str| format!("ctx.{near}");
        let mut paths: Vec<String> = paths.into_iter().collect();
        paths.sort();
        for path in paths.iter().filter(|path| !guarded(&source.text, path)) {
            let mut parts = path.split('.');
            let (root, key) = (parts.next().unwrap_or_default(), parts.next());
            let (name, near) = match (root, key) {
                // The values in one of its keys may be anything.
                ("ctx", Some(key)) if !ctx.contains_key(key) => {
                    (of_ctx(key), nearest(key, keys()).map(of_ctx))
                }
                ("ctx", _) => continue,
                _ if globals.contains(&root) => continue,
                _ => {
                    let near = nearest(root, globals.iter().copied().chain(keys()));
                    let shown =
                        |near: &str| if globals.contains(&near) { near.to_owned() } else { of_ctx(near) };
                    (root.to_owned(), near.map(shown))
                }
            };
            let near = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            let message = format!("`{name}` is not defined, so nothing stands in its place{near}");
            diagnostics.push(source.warning(place(&source.text, path), message));
        }
    }

    /// The jinxes fetched since the last call.
    fn wanted(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.fetched.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where a template first names `path`, within its tags.
fn place(text: &str, path: &str) -> Location {
    let within = |at: &usize| {
        let open = |before: &str, tags: [&str; 2]| tags.iter().filter_map(|tag| before.rfind(tag)).max();
        open(&text[..*at], ["{{", "{%"]) > open(&text[..*at], ["}}", "%}"])
    };
    // It may be written with brackets: then the name at its beginning is found.
    let root = path.split('.').next().unwrap_or(path);
    let found = [path, root].into_iter().find_map(|name| words(text, name).find(within));
    let Some(at) = found else { return Location::default() };
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    Location { line: text[..at].matches('\n').count() + 1, column: text[line..at].chars().count() + 1 }
}

impl Rendered {
    /// Maps a diagnostic of the rendered text to the file.
    pub fn placed(&self, diagnostic: Diagnostic) -> Diagnostic {
        let Some(original) = self.original.as_deref().filter(|_| diagnostic.location.line > 0) else {
            return diagnostic;
        };
        let Location { line, column } = diagnostic.location;
        let Some(from) = self.lines.as_ref().and_then(|lines| lines.get(line - 1)).copied() else {
            let message = format!("{} (the place is that after templating)", diagnostic.message);
            return Diagnostic { message, ..diagnostic };
        };
        // After the first difference, the columns don't match.
        let nth = |text: &str, line: usize| text.lines().nth(line - 1).unwrap_or_default().to_owned();
        let (before, after) = (nth(original, from), nth(&self.source.text, line));
        let same = before.chars().zip(after.chars()).take_while(|(left, right)| left == right).count();
        let column = if before == after { column } else { column.min(same + 1) };
        Diagnostic { location: Location { line: from, column }, ..diagnostic }
    }
}

/// For each line of the rendered text, the line of the template that it comes from, if known.
/// Found by rendering the template again with a number at the start of each line.
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
    fn what_nothing_defines_is_told() {
        let templates = Templates::new(vec![("shell".into(), "lib/shell".into())]);
        let ctx = json!({"currency": "EUR", "shop": {"name": "x"}});
        let ctx = ctx.as_object().unwrap();
        let check = |text: &str, expected: &[&str]| {
            let source = Source { path: "w.npc".into(), text: text.to_owned() };
            let mut found = Vec::new();
            templates.render(&source, ctx, &mut found).ok().unwrap();
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{text}");
        };
        let told = |place: &str, name: &str, near: &str| {
            format!("w.npc:{place}: warning: `{name}` is not defined, so nothing stands in its place{near}")
        };
        let near = ", did you mean `ctx.currency`?";
        check("a: curency\nb: Pay in {{ curency }}.", &[&told("2:14", "curency", near)]);
        check("{{ ctx.curency }}", &[&told("1:4", "ctx.curency", near)]);
        check(
            "{% if shel %}{{ nothing.at.all }}{% endif %}",
            &[&told("1:17", "nothing", ""), &told("1:7", "shel", ", did you mean `shell`?")],
        );
        // Names that are known, bound in the template, or tested.
        check("{{ ctx.currency }}{{ ctx.shop.whatever }}{{ shell }}{{ Jinx('a') }}{{ range(2) }}", &[]);
        check("{% for x in ctx.shop %}{{ x }}{{ loop.index }}{% endfor %}{% set y = 1 %}{{ y }}", &[]);
        check("{{ z | default('') }}{% if w is defined %}{{ w }}{% endif %}", &[]);
    }

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
        check("{% set n = namespace(x='a') %}{% set n.x = n.x ~ 'b' %}{{ n.x * 2 }}", Ok("abab"));
        let doubling =
            "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
        let larger = Err("larger values");
        check(doubling, larger);
        check("{{ 'x' * 9000000000 }}", larger);
        check("{{ 'x'|indent(9000000000) }}", Err("width"));
        check("{{ 'x'.center(9000000000) }}", Err("wide"));
        check("{% for n in range(9000) %}{{ ctx.text }}{% endfor %}", larger);
        check("{{ range(90000)|join(ctx.text) }}", larger);
        check("{% set n = namespace() %}{% set n.a = n %}{{ n }}", Err("a namespace"));
        check(&format!("\n{{{{ {}1 }}}}", "not ".repeat(10_000)), Err("nests too deep"));
        check(&format!("{{{{ 1 }}}}{}", "x".repeat(1 << 16)), Err("at most 65536 bytes"));
    }
}
