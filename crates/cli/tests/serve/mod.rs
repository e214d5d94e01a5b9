//! `alara serve` from outside: responses to clients of OpenAI's API, and to others.

mod access;
mod ends;
mod limits;
mod model;
mod models;
mod npcs;
mod page;
mod routes;
mod table;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::dirs::TestDir;

impl TestDir {
    /// A team with `corca`, who has a shell, and `sage`, who has no tools.
    fn npc_team(script: &Value) -> TestDir {
        let dir = TestDir::with(script);
        dir.write("team/house.ctx", "name: house\nforenpc: corca\n");
        dir.write("team/corca.npc", "name: corca\nprimary_directive: You are corca.\njinxes: [shell]\n");
        dir.write("team/sage.npc", "name: sage\nprimary_directive: You are sage.\njinxes: []\n");
        dir
    }

    /// Starts a server for the team, with a scripted model unless `arguments` name another.
    fn serve(self, arguments: &[&str]) -> Served {
        self.serve_with(arguments, &[])
    }

    /// Starts the server with these variables.
    fn serve_with(self, arguments: &[&str], variables: &[(&str, &str)]) -> Served {
        let all = ["serve", "--port", "0", "--json", "-t", "./team", "--workdir", "work"];
        let model: &[&str] = if arguments.contains(&"-m") { &[] } else { &["-m", "script:script.json"] };
        let mut command = self.alara(&[&all, model, arguments].concat());
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("HF_") || name.ends_with("_PROXY"))
        {
            command.env_remove(name);
        }
        command.env("HF_HUB_CACHE", self.path("hub")).envs(variables.iter().copied());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(shown) = serde_json::from_str::<Value>(&line) else {
            panic!("{}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr));
        };
        Served { url: shown["url"].as_str().unwrap().to_owned(), shown, child, dir: self }
    }

    /// Returns the traces, oldest first.
    fn traces(&self) -> Vec<String> {
        let directory = self.path("state/alara/traces").read_dir().unwrap();
        let mut paths: Vec<PathBuf> = directory.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }
}

/// A running server, and its messages at startup.
struct Served {
    url: String,
    shown: Value,
    child: Child,
    dir: TestDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn post(&self, body: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request = agent().post(format!("{}/chat/completions", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// Returns the response to a request with these fields and, if they have no messages, the
    /// message "hi".
    fn ask(&self, fields: Value) -> (u16, Value) {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, text) = self.post(&body.to_string(), &[]);
        (status, serde_json::from_str(&text).unwrap_or_else(|_| text.into()))
    }

    /// Returns the response to a request that succeeds.
    fn answer(&self, fields: Value) -> Value {
        let (status, body) = self.ask(fields);
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Returns the chunks of a streamed response.
    fn chunks(&self, fields: Value) -> Vec<Value> {
        let mut streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
        streamed.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, Value::String(text)) = self.ask(streamed) else { panic!("no events") };
        assert_eq!(status, 200, "{text}");
        let text = text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("{text}"));
        let chunks = text.split_terminator("\n\n").filter_map(|line| line.strip_prefix("data: "));
        chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let url = self.url.replace("/v1", path);
        let mut response = agent().get(url).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap())
    }

    /// Sends these bytes and returns the response.
    fn raw(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.replace('\n', "\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn connect(&self) -> TcpStream {
        let address = self.url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Opens a connection and asks `model` to answer "hi".
    fn begin(&self, model: &str, stream: bool) -> TcpStream {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"model": model, "stream": stream, "messages": messages}).to_string();
        let mut client = self.connect();
        let length = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        );
        client.write_all(format!("{head}{body}").as_bytes()).unwrap();
        client
    }

    fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    /// Returns the exit code once the server has ended.
    fn code(&mut self) -> Option<i32> {
        wait_until("the server has ended", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config.timeout_global(Some(Duration::from_secs(60))).build().new_agent()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn message(body: &Value) -> &Value {
    &body["choices"][0]["message"]
}

fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string", "enum": ["a.txt", "b.txt"]}}, "required": ["path"]});
    json!({"type": "function", "function": {"name": "read_file", "description": "Return the text of a file", "parameters": parameters}})
}
