//! Reads steps: the action of a mapping, and its parts.

use serde_json::{Map, Value};

use super::inputs::is_name;
use super::keys::hint;
use super::{Reader, skill};
use crate::jinx::template::single;
use crate::jinx::{Action, Llm, Retry, Search, Step, Steps, Timeout, Tools};
use crate::yaml::{self, Entry, Kind, Node};

/// Keys that every step may have.
const COMMON: [&str; 4] = ["name", "retry", "cache", "timeout"];

/// The key that determines the form of a step, and the further keys of that form.
/// Those of `engine` depend on the engine.
const FORMS: [(&str, &[&str]); 8] = [
    ("engine", &[]),
    ("when", &["then", "else"]),
    ("for", &["in", "do", "parallel", "until"]),
    ("try", &["catch", "finally"]),
    ("set", &[]),
    ("emit", &[]),
    ("jobs", &["job"]),
    ("return", &[]),
];

/// The keys of a step by engine; any other engine is a jinx, and other keys are its arguments.
const ENGINES: [(&str, &[&str]); 6] = [
    ("bash", &["code", "background"]),
    ("python", &["code"]),
    ("text", &["text", "code"]),
    ("llm", &["prompt", "code", "npc", "tools", "schema", "system", "mode"]),
    ("natural", &["prompt", "code", "npc", "tools", "schema", "system", "mode"]),
    ("skill", &skill::KEYS),
];

/// The keys of `engine: search`; with any other, it is a jinx of that name, which existing files
/// may have.
const SEARCH: [&str; 5] = ["query", "k", "in", "whole", "least"];

/// Names that a template may use but not set.
const FIXED: [&str; 6] = ["ctx", "npc", "team", "skill", "error", "loop"];

impl Reader<'_> {
    /// A list of steps, or a single one.
    pub(super) fn steps(&mut self, node: &Node) -> Steps {
        let items = match &node.kind {
            Kind::List(items) => items.as_slice(),
            Kind::Map(_) => std::slice::from_ref(node),
            Kind::Scalar(Value::Null) => &[],
            Kind::Scalar(_) => {
                self.error(node.location, format!("steps are a list, not {}", node.describe()));
                &[]
            }
        };
        items.iter().enumerate().filter_map(|(index, item)| self.step(item, index + 1)).collect()
    }

    fn step(&mut self, node: &Node, position: usize) -> Option<Step> {
        let Some(entries) = node.entries() else {
            self.error(node.location, format!("a step is a mapping, not {}", node.describe()));
            return None;
        };
        // All problems of a step are reported, even if it is unusable.
        let name = self.step_name(node);
        let get = |key: &str| node.get(key).filter(|node| !node.is_null());
        let retry = get("retry").and_then(|node| self.retry(node));
        let cache = get("cache").and_then(|node| self.duration(node, "cache"));
        let timeout = get("timeout").and_then(|node| match node.text().and_then(single) {
            Some(expression) => Some(Timeout::Given(expression.to_owned())),
            None => self.duration(node, "timeout").map(Timeout::Fixed),
        });
        let action = match self.form(node, entries)? {
            "engine" => self.engine(node, entries)?,
            "when" => self.when(node)?,
            "for" => self.each(node)?,
            "try" => Action::Try {
                steps: self.steps(node.at("/try")),
                catch: node.get("catch").map(|steps| self.steps(steps)).unwrap_or_default(),
                finally: node.get("finally").map(|steps| self.steps(steps)).unwrap_or_default(),
            },
            "set" => self.set(node.at("/set"))?,
            "jobs" => Action::Jobs { jobs: node.at("/jobs").value(), job: get("job").map(Node::value) },
            "emit" => Action::Emit { emit: self.emit(node.at("/emit"))? },
            _ => Action::Return { value: node.at("/return").value() },
        };
        let name =
            if name.is_empty() && node.get("engine").is_some() { format!("step_{position}") } else { name };
        Some(Step { name, action, retry, cache, timeout, location: node.location })
    }

    fn step_name(&mut self, node: &Node) -> String {
        let Some(given) = node.get("name").filter(|node| !node.is_null()) else { return String::new() };
        let name = self.text(given, "name").unwrap_or_default();
        if !name.is_empty() && !is_name(&name) {
            let message =
                format!("`{name}` is not made of letters, digits and `_`, so no step can use its result");
            self.warning(given.location, message);
        }
        name
    }

    /// The form of a step.
    /// Reports keys that don't belong to it.
    fn form(&mut self, node: &Node, entries: &[Entry]) -> Option<&'static str> {
        let mut forms = FORMS.iter().filter(|(form, _)| node.get(form).is_some());
        let Some((form, keys)) = forms.next() else {
            let names = FORMS.iter().map(|(form, _)| *form);
            let known = names.clone().map(|form| format!("`{form}`")).collect::<Vec<_>>().join(", ");
            let hint =
                entries.iter().map(|entry| hint(&entry.key, names.clone())).find(|hint| !hint.is_empty());
            let hint = hint.unwrap_or_default();
            self.error(node.location, format!("a step has one of the keys {known}; this has none{hint}"));
            return None;
        };
        if let Some((other, _)) = forms.next() {
            let message = format!("a step does one thing, but this has both `{form}` and `{other}`");
            self.error(node.location, message);
            return None;
        }
        if *form != "engine" {
            self.belong(entries, form, keys, &format!("`{form}`"));
        }
        Some(form)
    }

    /// Reports keys that have no meaning for this form of step.
    fn belong(&mut self, entries: &[Entry], form: &str, keys: &[&str], what: &str) {
        for Entry { location, key, .. } in entries {
            let key = key.as_str();
            if key == form || COMMON.contains(&key) || keys.contains(&key) {
                continue;
            }
            let owner = FORMS.iter().chain(&ENGINES).find(|(_, keys)| keys.contains(&key));
            match owner {
                // In existing files, a name without effect.
                Some(_) if key == "npc" => {
                    self.warning(*location, format!("`npc` has no effect on {what}: no model answers there"));
                }
                Some((owner, _)) => {
                    self.error(*location, format!("the key `{key}` belongs to `{owner}`, not to {what}"));
                }
                None if key == "with" => {
                    self.error(*location, format!("`with` gives a jinx its arguments, but this is {what}"));
                }
                None => {
                    let known: Vec<&str> = COMMON.iter().chain(keys).copied().collect();
                    self.known(*location, key, &known);
                }
            }
        }
    }

    fn engine(&mut self, node: &Node, entries: &[Entry]) -> Option<Action> {
        let engine = self.text(node.at("/engine"), "engine")?;
        let literal_skill = node.get("sections").filter(|_| engine == "skill");
        if let Some((name, keys)) = ENGINES.iter().find(|(name, _)| *name == engine)
            && (*name != "skill" || literal_skill.is_some())
        {
            self.belong(entries, "engine", keys, &format!("`engine: {name}`"));
        }
        match engine.as_str() {
            "bash" => {
                let background = node.get("background").filter(|node| !node.is_null());
                let background = background.and_then(|node| self.expression(node, "background"));
                Some(Action::Bash { code: self.code(node)?, background })
            }
            "python" => Some(Action::Python { code: self.code(node)? }),
            "text" => Some(Action::Text { text: self.either(node, "text", "code")?.value() }),
            "llm" | "natural" => self.llm(node),
            "search" if is_search(entries) => self.search(node),
            _ => match literal_skill {
                Some(sections) => self.skill_step(node, sections),
                None => self.call(engine, node, entries),
            },
        }
    }

    fn code(&mut self, node: &Node) -> Option<String> {
        match node.get("code") {
            Some(code) => self.text(code, "code"),
            None => {
                self.error(node.location, "this step has no `code`");
                None
            }
        }
    }

    /// The value of one of two synonymous keys.
    fn either<'n>(&mut self, node: &'n Node, key: &str, other: &str) -> Option<&'n Node> {
        match (node.get(key), node.get(other)) {
            (Some(_), Some(extra)) => {
                self.error(
                    extra.location,
                    format!("this step has both `{key}` and `{other}`, which mean the same"),
                );
                None
            }
            (None, None) => {
                self.error(node.location, format!("this step has no `{key}`"));
                None
            }
            (one, another) => one.or(another),
        }
    }

    fn llm(&mut self, node: &Node) -> Option<Action> {
        let get = |key: &str| node.get(key).filter(|node| !node.is_null());
        let agent = node.get("mode").and_then(Node::text) == Some("agent");
        let tools = match get("tools") {
            None if agent => Tools::All,
            None => Tools::None,
            Some(node) if node.text() == Some("*") => Tools::All,
            Some(node) => Tools::Some(self.names(node, "tools")),
        };
        let tools = if tools == Tools::Some(Vec::new()) { Tools::None } else { tools };
        let system = get("system").and_then(|node| self.flag(node, "system"));
        let prompt = self.either(node, "prompt", "code")?;
        if prompt.is_null() {
            self.error(prompt.location, "the prompt is empty");
            return None;
        }
        let npc = get("npc").map(Node::value);
        Some(Action::Llm(Llm {
            prompt: prompt.value(),
            npc,
            system,
            tools,
            schema: get("schema").map(Node::value),
        }))
    }

    fn search(&mut self, node: &Node) -> Option<Action> {
        let get = |key: &str| node.get(key).filter(|node| !node.is_null());
        let whole = get("whole").and_then(|node| self.flag(node, "whole")).unwrap_or_default();
        let least = get("least").map(|node| (node.location, node.value().as_f64()));
        let least = match least {
            None => 0.0,
            Some((_, Some(least))) if (0.0..=1.0).contains(&least) => least,
            Some((location, _)) => {
                self.error(location, "`least` is a share of the query's words, from 0 to 1");
                return None;
            }
        };
        let (query, k, within) =
            (node.at("/query").value(), get("k").map(Node::value), get("in").map(Node::value));
        Some(Action::Search(Search { query, k, within, whole, least }))
    }

    /// A step whose engine is a jinx: `with`, and any key that is not a step's, are its arguments.
    fn call(&mut self, jinx: String, node: &Node, entries: &[Entry]) -> Option<Action> {
        let mut with = Map::new();
        if let Some(given) = node.get("with").filter(|node| !node.is_null()) {
            let Some(entries) = given.entries() else {
                self.error(
                    given.location,
                    format!("`with` is a mapping of arguments, not {}", given.describe()),
                );
                return None;
            };
            with = yaml::map(entries);
        }
        for Entry { location, key, value } in entries {
            if COMMON.contains(&key.as_str()) || key == "engine" || key == "with" {
                continue;
            }
            if with.insert(key.clone(), value.value()).is_some() {
                self.error(*location, format!("the argument `{key}` is given twice: here and in `with`"));
            }
        }
        Some(Action::Call { jinx, with })
    }

    fn when(&mut self, node: &Node) -> Option<Action> {
        let when = self.expression(node.at("/when"), "when");
        let then = node.get("then").map(|steps| self.steps(steps)).unwrap_or_default();
        let otherwise = node.get("else").map(|steps| self.steps(steps)).unwrap_or_default();
        if node.get("then").is_none() && node.get("else").is_none() {
            self.error(node.location, "`when` needs `then` with steps, or `else`");
            return None;
        }
        Some(Action::When { when: when?, then, otherwise })
    }

    fn each(&mut self, node: &Node) -> Option<Action> {
        let variable = self.text(node.at("/for"), "for");
        if let Some(variable) = variable.as_ref().filter(|variable| !is_name(variable)) {
            let message =
                format!("`for` names the item: `{variable}` is not made of letters, digits and `_`");
            self.error(node.at("/for").location, message);
        }
        let items = match node.get("in") {
            Some(items) => self.expression(items, "in"),
            None => {
                self.error(node.location, "`for` needs `in`: an expression that gives a list");
                None
            }
        };
        let get = |key: &str| node.get(key).filter(|node| !node.is_null());
        let parallel = get("parallel").and_then(|node| self.flag(node, "parallel")).unwrap_or_default();
        let until = get("until").and_then(|node| self.expression(node, "until"));
        let Some(steps) = node.get("do") else {
            self.error(node.location, "`for` needs `do` with steps");
            return None;
        };
        let steps = self.steps(steps);
        Some(Action::For { variable: variable?, items: items?, parallel, until, steps })
    }

    fn set(&mut self, node: &Node) -> Option<Action> {
        let Some(entries) = node.entries() else {
            self.error(
                node.location,
                format!("`set` is a mapping of names to values, not {}", node.describe()),
            );
            return None;
        };
        for Entry { location, key, .. } in entries {
            let mut parts = key.split('.');
            let root = parts.next().unwrap_or_default();
            if !is_name(root) || parts.any(str::is_empty) {
                self.error(
                    *location,
                    format!("`{key}` can't be set: a name, or names with dots between them, can"),
                );
            } else if FIXED.contains(&root) {
                self.error(*location, format!("`{key}` can't be set: `{root}` is given"));
            } else if key == "store" {
                self.error(*location, "the store as a whole can't be set; a key of it can: `store.plan`");
            }
        }
        Some(Action::Set { set: yaml::map(entries) })
    }

    fn emit(&mut self, node: &Node) -> Option<Value> {
        if node.is_null() || node.items().is_some() {
            let message = format!("`emit` is a mapping `{{type, id, content}}`, not {}", node.describe());
            self.error(node.location, message);
            return None;
        }
        Some(node.value())
    }

    /// `{max: 3, backoff: 0.2}`, or only the number.
    fn retry(&mut self, node: &Node) -> Option<Retry> {
        let count = |node: &Node| node.value().as_u64().and_then(|count| u32::try_from(count).ok());
        for Entry { location, key, .. } in node.entries().unwrap_or_default() {
            self.known(*location, key, &["max", "backoff"]);
        }
        let max = match node.entries() {
            Some(_) => node.get("max").and_then(count),
            None => count(node),
        };
        if max.is_none() {
            self.error(node.location, "`retry` is a number of further attempts, or `{max: 3, backoff: 0.2}`");
        }
        let backoff = match node.get("backoff").map(|node| (node, node.value())) {
            None | Some((_, Value::Null)) => 0.0,
            Some((_, value)) if value.as_f64() == Some(0.0) => 0.0,
            Some((node, _)) => self.duration(node, "backoff")?.as_secs_f64(),
        };
        Some(Retry { max: max?, backoff })
    }
}

/// Whether a step with `engine: search` has the keys of the search engine, and no others.
fn is_search(entries: &[Entry]) -> bool {
    let known = |key: &str| key == "engine" || COMMON.contains(&key) || SEARCH.contains(&key);
    entries.iter().any(|entry| entry.key == "query") && entries.iter().all(|entry| known(&entry.key))
}
