//! Reads `mcp_servers` of `.ctx` and `.npc` files, and reports unusable entries.
//! Nothing is started here.

use std::path::Path;
use std::time::Duration;

use alara_text::nearest;
use serde_json::Value;
use ureq::http::Uri;

use super::model::variable;
use crate::fields::{Fields, is_name};
use crate::mcp::{self, Given, Server, Transport, Way, printable};
use crate::model_spec::is_loopback;
use crate::source::Source;
use crate::types::{Diagnostic, Location};
use crate::yaml::{Kind, Node};

/// The interpreter of a script, by its extension.
const INTERPRETERS: [(&str, &str); 4] = [("py", "python3"), ("js", "node"), ("mjs", "node"), ("sh", "bash")];
/// Parts of names whose values are secret.
const SECRET: [&str; 6] = ["key", "token", "secret", "password", "passwd", "authorization"];
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time limit of a call, in seconds: a day.
const MOST_TIMEOUT: f64 = 86_400.0;

/// Reads `mcp_servers`.
/// `team` are the servers of the team's `.ctx`, from which a lone `{tools: […]}` picks; `above` are
/// others that can be used by name.
/// Invalid entries are left out, with an error.
pub fn read(
    source: &Source,
    node: &Node,
    team: &[Server],
    above: &[Server],
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Server> {
    let one = std::slice::from_ref(node);
    let mut found: Vec<Server> = Vec::new();
    for item in node.items().unwrap_or(one).iter().filter(|item| !item.is_null()) {
        let mut reading = Reading { source, team, above, diagnostics };
        for server in reading.entry(item) {
            let before = found.iter_mut().find(|before| before.name == server.name);
            match before {
                None => found.push(server),
                // A repeated server adds more of its tools.
                Some(before) if before.start() == server.start() => {
                    before.tools = match (before.tools.take(), server.tools) {
                        (Some(mut tools), Some(more)) => {
                            tools.extend(more);
                            Some(tools)
                        }
                        _ => None,
                    };
                }
                Some(_) => {
                    let message = format!(
                        "there are two MCP servers `{}`; the first one counts: give the other a `name`",
                        server.name
                    );
                    diagnostics.push(source.error(item.location, message));
                }
            }
        }
    }
    found
}

struct Reading<'a, 'd> {
    source: &'a Source,
    team: &'a [Server],
    above: &'a [Server],
    diagnostics: &'d mut Vec<Diagnostic>,
}

impl<'a> Reading<'a, '_> {
    fn error(&mut self, location: Location, message: impl Into<String>) {
        self.diagnostics.push(self.source.error(location, message));
    }

    fn known(&self, name: &str) -> Option<&'a Server> {
        self.team.iter().chain(self.above).find(|server| server.name == name)
    }

    fn entry(&mut self, node: &'a Node) -> Vec<Server> {
        if let Some(text) = node.text() {
            return self.text(text.trim(), node.location).into_iter().collect();
        }
        let (source, team, above) = (self.source, self.team, self.above);
        let known = |name: &str| team.iter().chain(above).any(|server| server.name == name);
        let Some(mut fields) = Fields::new(source, node, self.diagnostics) else { return Vec::new() };
        let name = fields.text(&["name"]);
        let tools = fields.entry(&["tools"]).map(|entry| texts(&mut fields, &entry.value, "tools"));
        let timeout = timeout(&mut fields);
        let [path, command, url] = ["path", "command", "url"].map(|key| fields.text(&[key]));
        let (program, http) = (path.is_some() || command.is_some(), url.is_some());
        let mut given = Vec::new();
        let (mut network, mut transport, mut args) = (false, None, Vec::new());
        if program {
            let list = fields.entry(&["args"]);
            args = list.map(|entry| texts(&mut fields, &entry.value, "args")).unwrap_or_default();
            given = values(&mut fields, "env");
            network = fields.flag(&["network"]).unwrap_or(false);
        } else if http {
            given = values(&mut fields, "headers");
            given.extend(key(&mut fields));
            transport = self::transport(&mut fields);
        } else if name.as_deref().is_none_or(|name| !known(name)) {
            // The missing key is a clearer error than that these don't belong to it.
            fields.know(&["args", "env", "network", "headers", "api_key", "transport"]);
        }
        fields.unknown();
        let way = match (path, command, url) {
            (None, None, None) => return self.pick(name.as_deref(), tools.as_deref(), node.location),
            (Some(path), None, None) => self.script(&path, node.location),
            (None, Some(command), None) => self.command(&command, node.location),
            (None, None, Some(url)) => self.address(&url, !given.is_empty(), node.location),
            _ => {
                self.error(node.location, "an MCP server has one of `path`, `command` and `url`");
                None
            }
        };
        let Some(mut way) = way else { return Vec::new() };
        match &mut way {
            Way::Program(words) => words.extend(args),
            Way::Http { transport: way, .. } => *way = transport,
        }
        let name = name.unwrap_or_else(|| default_name(&way));
        if !is_name(&name) {
            self.error(
                node.location,
                format!("the name `{name}` is not made of letters, digits, `_` and `-`"),
            );
            return Vec::new();
        }
        let timeout = timeout.unwrap_or(TIMEOUT);
        vec![Server { name, given, network, tools, timeout, ..self.server(way, node.location) }]
    }

    /// One of the known servers, or all of the team's, with fewer tools.
    fn pick(&mut self, name: Option<&str>, tools: Option<&[String]>, location: Location) -> Vec<Server> {
        let narrowed = |server: &Server| {
            let mut server = server.clone();
            server.tools = match (server.tools, tools) {
                (Some(own), Some(tools)) => {
                    Some(tools.iter().filter(|tool| own.contains(tool)).cloned().collect())
                }
                (own, tools) => own.or(tools.map(<[String]>::to_vec)),
            };
            server
        };
        match name {
            Some(name) => match self.known(name) {
                Some(server) => vec![narrowed(server)],
                None => {
                    self.unknown(name, location);
                    Vec::new()
                }
            },
            None if tools.is_none() => {
                self.error(location, "an MCP server needs a `path`, a `command` or a `url`");
                Vec::new()
            }
            None if self.team.is_empty() => {
                self.error(
                    location,
                    "`tools` alone picks from the MCP servers of the team's .ctx, which has none",
                );
                Vec::new()
            }
            None => self.team.iter().map(narrowed).collect(),
        }
    }

    fn unknown(&mut self, name: &str, location: Location) {
        let known = self.team.iter().chain(self.above).map(|server| server.name.as_str());
        let hint = nearest(name, known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        self.error(
            location,
            format!("there is no MCP server `{name}`{hint}; a program is named as `command: …`, a file as `path: …`"),
        );
    }

    /// Reads the name of a known server, an address, a path or a command.
    fn text(&mut self, text: &str, location: Location) -> Option<Server> {
        if let Some(server) = self.known(text) {
            return Some(server.clone());
        }
        let ending = Path::new(text).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_script = INTERPRETERS.iter().any(|(known, _)| *known == ending);
        let way = if text.contains("://") {
            self.address(text, false, location)?
        } else if text.contains(char::is_whitespace) && !is_there(self.source, text) {
            self.command(text, location)?
        } else if is_script || text.contains('/') || is_there(self.source, text) {
            self.script(text, location)?
        } else {
            self.unknown(text, location);
            return None;
        };
        Some(Server { name: default_name(&way), ..self.server(way, location) })
    }

    fn server(&self, way: Way, location: Location) -> Server {
        Server {
            name: String::new(),
            way,
            given: Vec::new(),
            network: false,
            tools: None,
            timeout: TIMEOUT,
            path: self.source.path.clone(),
            location,
        }
    }

    /// A file in the team's folder or its parent, with its interpreter.
    fn script(&mut self, text: &str, location: Location) -> Option<Way> {
        let Some(path) = find(self.source, text) else {
            let home = if text.starts_with('~') {
                ": what is in a home directory is not seen, copy it there"
            } else {
                ""
            };
            let message =
                format!("there is no file {text} in the team's folder or the one that it is in{home}");
            self.error(location, message);
            return None;
        };
        let ending = path.rsplit('.').next().unwrap_or_default();
        let interpreter = INTERPRETERS.iter().find(|(known, _)| *known == ending);
        Some(Way::Program(
            interpreter.map(|(_, program)| (*program).to_owned()).into_iter().chain([path]).collect(),
        ))
    }

    fn command(&mut self, text: &str, location: Location) -> Option<Way> {
        if text.contains('$') {
            let message = "variables in a command are not replaced: name them under `env`";
            self.diagnostics.push(self.source.warning(location, message));
        }
        match words(text) {
            Some(mut words) if !words.is_empty() => {
                if let Some(program) = program(self.source, &words[0]) {
                    words[0] = program;
                }
                Some(Way::Program(words))
            }
            _ => {
                self.error(location, format!("`{text}` is no command: a quote is not closed"));
                None
            }
        }
    }

    fn address(&mut self, text: &str, with_headers: bool, location: Location) -> Option<Way> {
        let query = text.split_once('?').map(|(_, query)| query.to_lowercase());
        if query.is_some_and(|query| SECRET.iter().any(|secret| query.contains(secret))) {
            let message = "the address seems to contain a secret, and what stands in the file is shown: take `api_key` or `headers`";
            self.diagnostics.push(self.source.warning(location, message));
        }
        let uri = text.parse::<Uri>().ok();
        let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?)));
        let message = match parts {
            Some((_, authority)) if authority.as_str().contains('@') => {
                "a user or password has no place in the address of an MCP server".to_owned()
            }
            Some(("https", _)) => return Some(Way::Http { url: text.to_owned(), transport: None }),
            Some(("http", authority)) if !with_headers || is_loopback(authority.host()) => {
                return Some(Way::Http { url: text.to_owned(), transport: None });
            }
            Some(("http", _)) => {
                "headers are not sent without encryption: take https, or leave them out".to_owned()
            }
            _ => format!("`{}` is no address: it has no http:// or https://", printable(text)),
        };
        self.error(location, message);
        None
    }
}

fn is_there(source: &Source, text: &str) -> bool {
    find(source, text).is_some()
}

/// The absolute path of a file.
fn find(source: &Source, text: &str) -> Option<String> {
    let folder = source.path.parent()?;
    let places = [folder.join(text), folder.join("..").join(text)];
    places.iter().find(|path| path.is_file())?.canonicalize().ok()?.to_str().map(str::to_owned)
}

/// The absolute path of a program that a relative path names, next to the file or in the folder
/// above.
/// For a link it is the link itself: a Python environment identifies itself by it.
/// `None` if it is in the work directory, or is looked up as any command.
fn program(source: &Source, text: &str) -> Option<String> {
    if !text.contains('/') || Path::new(text).is_absolute() {
        return None;
    }
    let folder = source.path.parent()?.canonicalize().ok()?;
    let places = [Some(folder.as_path()), folder.parent()];
    let found = places.into_iter().flatten().map(|folder| folder.join(text)).find(|path| path.is_file())?;
    found.to_str().map(str::to_owned)
}

/// The name of a server without one: that of its script, package or host.
fn default_name(way: &Way) -> String {
    let name = match way {
        Way::Http { url, .. } => url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)),
        Way::Program(words) => {
            let word = words.iter().skip(1).find(|word| !word.starts_with('-')).or(words.first());
            let last = word.and_then(|word| word.rsplit('/').next());
            last.map(|last| {
                let stem = last
                    .rsplit_once('.')
                    .filter(|(_, ending)| INTERPRETERS.iter().any(|(known, _)| known == ending));
                stem.map_or(last, |(stem, _)| stem).to_owned()
            })
        }
    };
    mcp::name(&name.unwrap_or_default())
}

/// The words of a command, as in a shell without expansions; `None` if a quote isn't closed.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(characters.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// A list of texts; numbers and words like `on` are kept as written.
fn texts(fields: &mut Fields, node: &Node, key: &str) -> Vec<String> {
    let one = std::slice::from_ref(node);
    let mut texts = Vec::new();
    for item in node.items().unwrap_or(one) {
        match item.text() {
            Some(text) => texts.push(text.to_owned()),
            None => {
                fields
                    .error(item.location, format!("`{key}` is a list of texts, not of {}", item.describe()));
            }
        }
    }
    texts
}

/// `{NAME: text or $VARIABLE}`, by name.
fn values(fields: &mut Fields, key: &'static str) -> Vec<(String, Given)> {
    let Some(entry) = fields.entry(&[key]) else { return Vec::new() };
    let Some(entries) = entry.value.entries() else {
        let found = entry.value.describe();
        fields.error(
            entry.value.location,
            format!("`{key}` must be a mapping of names to values, not {found}"),
        );
        return Vec::new();
    };
    let mut values = Vec::new();
    for entry in entries {
        let (location, name) = (entry.location, &entry.key);
        let Some(text) = entry.value.text().map(str::to_owned) else {
            let found = entry.value.describe();
            fields.error(
                location,
                format!("`{name}` must be a text, or a variable as in `$NAME`, not {found}"),
            );
            continue;
        };
        if let Some(variable) = variable(&text) {
            values.push((name.clone(), Given::Variable(variable)));
            continue;
        }
        if text.contains('$') {
            fields.warning(
                location,
                format!("`{name}`: only a value that is one `$NAME` and nothing else is replaced"),
            );
        } else if SECRET.iter().any(|secret| name.to_lowercase().contains(secret)) {
            fields.warning(
                location,
                format!("`{name}` looks like a secret, and what stands in the file is shown: name the environment variable that holds it, as in `$NAME`"),
            );
        }
        values.push((name.clone(), Given::Text(text)));
    }
    values.sort_by(|(one, _), (other, _)| one.cmp(other));
    values
}

/// `api_key: $NAME`, as a header.
fn key(fields: &mut Fields) -> Option<(String, Given)> {
    let location = fields.location("api_key");
    let key = fields.text(&["api_key"])?;
    match variable(&key) {
        Some(name) => Some(("Authorization".to_owned(), Given::Bearer(name))),
        None => {
            fields.error(location, "a key in a file is not used: name the environment variable that holds it, as in `api_key: $NAME`");
            None
        }
    }
}

fn transport(fields: &mut Fields) -> Option<Transport> {
    let location = fields.location("transport");
    match fields.text(&["transport"])?.as_str() {
        "sse" => Some(Transport::Sse),
        "streamable-http" | "http" => Some(Transport::StreamableHttp),
        other => {
            fields.error(location, format!("a transport is sse or streamable-http, not `{other}`"));
            None
        }
    }
}

fn timeout(fields: &mut Fields) -> Option<Duration> {
    let entry = fields.entry(&["timeout"])?;
    let location = entry.location;
    let seconds = match &entry.value.kind {
        Kind::Scalar(Value::Number(number)) => number.as_f64(),
        _ => entry.value.text().and_then(|text| text.trim().trim_end_matches('s').parse().ok()),
    };
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= MOST_TIMEOUT);
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if timeout.is_none() {
        fields.error(location, "`timeout` must be a number of seconds above 0, and at most a day");
    }
    timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_commands() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let expected = expected.map(|words| words.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(words(text), expected, "{text}");
        };
        check("npx -y  pkg", Some(&["npx", "-y", "pkg"]));
        check(r#"a "b c" 'd "e' f\ g "" x'y z'"#, Some(&["a", "b c", "d \"e", "f g", "", "xy z"]));
        check("", Some(&[]));
        check("a 'b", None);
        check("a \\", None);
    }

    #[test]
    fn names_of_those_without_one() {
        let check = |command: &str, expected: &str| {
            assert_eq!(default_name(&Way::Program(words(command).unwrap())), expected, "{command}");
        };
        check("python3 /a/db_server.py --read-only", "db_server");
        check("npx -y @modelcontextprotocol/server-filesystem /tmp", "server-filesystem");
        check("python -m mcp.server.sqlite", "mcp_server_sqlite");
        check("/opt/tool", "tool");
        let url = "https://search.example.org:8443/mcp".to_owned();
        assert_eq!(default_name(&Way::Http { url, transport: None }), "search_example_org");
    }
}
