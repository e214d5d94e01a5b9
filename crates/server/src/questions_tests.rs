//! Questions of an NPC's run, from outside: who is asked, who may answer, and the effect of an
//! answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use alara_harness::model::{Reply, Scripted};
use alara_harness::sandbox::Isolation;
use alara_harness::{ChatModel, Policy};
use serde_json::{Value, json};

use super::*;

/// A workplace with a scripted model.
struct Place(Scripted);

impl ModelSource for Place {
    fn model(&self, _: &ModelSpec) -> Result<Arc<dyn ChatModel + '_>, ModelError> {
        Ok(Arc::new(&self.0))
    }
}

impl Workplace for Place {
    fn models(&self) -> &dyn ModelSource {
        self
    }

    fn team(&self) -> Option<Team> {
        None
    }

    fn sandbox(&self, _: &Team) -> Result<Sandbox, alara_harness::Error> {
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        Ok(Sandbox::new(&std::env::temp_dir(), policy)?)
    }

    fn equip<'a>(&self, session: Session<'a>) -> Result<Session<'a>, alara_harness::Error> {
        Ok(session)
    }
}

/// `corca` leads and calls `note`, which a rule asks about; also returns the team's folder.
fn team() -> (tempfile::TempDir, Team) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("jinxes")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("house.ctx", "name: house\nforenpc: corca\npermissions:\n  note: ask\n");
    write("amber.npc", "name: amber\nprimary_directive: You are amber.\njinxes: []\n");
    write("corca.npc", "name: corca\nprimary_directive: You are corca.\njinxes: [note]\n");
    write(
        "jinxes/note.jinx",
        "jinx_name: note\ndescription: Note a text\ninputs: [text]\nsteps: [{engine: text, text: 'noted {{ text }}'}]\n",
    );
    let team = Team::load(folder.path()).unwrap();
    (folder, team)
}

struct Running {
    address: SocketAddr,
    /// What the page's address ends in.
    key: String,
    stop: Stop,
    _team: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.ask();
        self.stop.ask();
    }
}

/// Starts a server whose `corca` calls `note` once in each conversation, then answers "Done.".
fn run(options: Options) -> Running {
    let turns = [Reply::call("note", json!({"text": "seven"})), Reply::text("Done.")];
    let place = Arc::new(Place(Scripted::new((0..4).flat_map(|_| turns.clone()))));
    let options = Options { address: SocketAddr::from(([127, 0, 0, 1], 0)), parallel: 2, ..options };
    let (folder, team) = team();
    let server = Server::new(place, team, ModelSpec::default(), &options).unwrap();
    let (address, stop) = (server.address(), server.stop());
    let key = server.page_key().unwrap_or_default().to_owned();
    std::thread::spawn(move || server.run());
    Running { address, key, stop, _team: folder }
}

impl Running {
    fn send(&self, method: &str, path: &str, headers: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream
    }

    /// Starts a stream of `corca`, with this in `alara`.
    fn stream(&self, alara: &Value) -> Reading {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"model": "corca", "stream": true, "alara": alara, "messages": messages});
        Reading { stream: self.send("POST", "/v1/chat/completions", "", &body), said: String::new() }
    }

    /// Reads a stream up to its question.
    fn asked(&self) -> (Reading, Value) {
        let mut reading = self.stream(&json!({"events": true, "ask": true, "key": self.key}));
        let question = reading.question();
        (reading, question)
    }

    /// Answers the question with this id; returns status and body.
    fn answer(&self, headers: &str, id: &Value, answer: &str) -> (u16, Value) {
        let body = json!({"id": id, "answer": answer});
        let mut said = String::new();
        self.send("POST", "/v1/alara/answers", headers, &body).read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
    }
}

/// A stream being read.
struct Reading {
    stream: TcpStream,
    said: String,
}

impl Reading {
    /// Reads on; returns false at the end.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer).unwrap();
        self.said += &String::from_utf8_lossy(&buffer[..count]);
        count > 0
    }

    /// Waits for the question in the stream.
    fn question(&mut self) -> Value {
        loop {
            let events = self.said.lines().filter_map(|line| line.strip_prefix("data: "));
            let mut events = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
            if let Some(event) = events.find(|event| event["alara"].get("question").is_some()) {
                return event["alara"]["question"].clone();
            }
            assert!(self.more(), "no question: {}", self.said);
        }
    }

    /// Reads the stream to its end.
    fn rest(mut self) -> String {
        while self.more() {}
        self.said
    }
}

/// Other users of the machine reach the server, too.
#[test]
fn only_who_knows_the_key_is_asked() {
    let server = run(Options::default());
    for key in ["", "wrong"] {
        let mut refused = server.stream(&json!({"events": true, "ask": true, "key": key}));
        while refused.more() {}
        assert!(refused.said.contains("`alara.key` from the page's address"), "{}", refused.said);
        assert!(!refused.said.contains("question"), "{}", refused.said);
    }
    let (_, question) = server.asked();
    assert_eq!(question["name"], "note");
}

#[test]
fn an_answer_decides_about_the_call() {
    let running = run(Options::default());
    for (answer, made) in [("yes", true), ("session", true), ("no", false)] {
        let (reading, question) = running.asked();
        let call = (&question["npc"], &question["name"], &question["arguments"]);
        assert_eq!(call, (&json!("corca"), &json!("note"), &json!({"text": "seven"})));
        assert_eq!(question["title"], "corca wants to call note:");
        assert_eq!(
            running.answer("", &question["id"], answer),
            (200, json!({"id": question["id"], "answer": answer}))
        );
        let said = reading.rest();
        assert_eq!(said.contains("noted seven"), made, "{answer}: {said}");
        assert_eq!(said.contains("is not permitted by an answer"), !made, "{answer}: {said}");
        assert!(said.contains("Done.") && said.contains("[DONE]"), "{said}");
        // A finished question can't be answered any more.
        assert_eq!(running.answer("", &question["id"], "yes").0, 404);
    }
}

#[test]
fn only_its_reader_answers_a_question() {
    let running = run(Options::default());
    let (reading, question) = running.asked();
    let refused = |headers: &str, id: &Value, answer: &str, status: u16, expected: &str| {
        let (found, body) = running.answer(headers, id, answer);
        let message = body["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(expected), "{found} {body}");
    };
    refused("", &json!("ask-1"), "yes", 404, "no question with this `id` waits");
    refused("", &Value::Null, "yes", 400, "`id` is missing");
    refused("", &question["id"], "always", 400, "`answer` must be `yes`, `session` or `no`");
    refused("Origin: https://evil.example\r\n", &question["id"], "yes", 403, "pages of other origins");
    // None of that counted as an answer.
    assert_eq!(running.answer("Origin: http://localhost\r\n", &question["id"], "yes").0, 200);
    assert!(reading.rest().contains("noted seven"));

    let running = run(Options { token: Some("hunter2".into()), ..Options::default() });
    assert_eq!(running.answer("", &json!("ask-1"), "yes").0, 401);
    assert_eq!(running.answer("Authorization: Bearer hunter2\r\n", &json!("ask-1"), "yes").0, 404);
}

#[test]
fn a_client_that_does_not_ask_for_questions_gets_none() {
    let running = run(Options::default());
    let said = running.stream(&json!({"events": true})).rest();
    assert!(!said.contains("question") && !said.contains("noted seven"), "{said}");
    assert!(said.contains("nobody is there to be asked") && said.contains("Done."), "{said}");
    let body =
        json!({"model": "corca", "alara": {"ask": true}, "messages": [{"role": "user", "content": "hi"}]});
    let mut said = String::new();
    running.send("POST", "/v1/chat/completions", "", &body).read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("`alara.ask` needs `stream`"), "{said}");
}

#[test]
fn no_answer_is_a_no() {
    // The request's time limit is exceeded.
    let running = run(Options { request_time: Duration::from_secs(3), ..Options::default() });
    let (reading, question) = running.asked();
    let said = reading.rest();
    assert!(said.contains("timeout") && !said.contains("noted seven"), "{said}");
    is_over(&running, &question);

    // The client has left.
    let running = run(Options::default());
    let (reading, question) = running.asked();
    drop(reading);
    is_over(&running, &question);

    // The server is stopping, and accepts no further answers.
    let running = run(Options::default());
    let (reading, _) = running.asked();
    assert!(running.stop.ask());
    let said = reading.rest();
    assert!(said.contains("Done.") && !said.contains("noted seven"), "{said}");
}

/// Waits until a question can't be answered any more; any earlier answer is a no.
fn is_over(running: &Running, question: &Value) {
    let begun = Instant::now();
    while running.answer("", &question["id"], "no").0 != 404 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it waits on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_lead_of_a_team_that_was_named_is_told() {
    for named_team in [false, true] {
        let running = run(Options { named_team, ..Options::default() });
        let mut said = String::new();
        running.send("GET", "/v1/models", "", &Value::Null).read_to_string(&mut said).unwrap();
        let list: Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
        let models = list["data"].as_array().unwrap().iter();
        let leads: Vec<&Value> =
            models.filter(|model| model["alara"]["lead"] == true).map(|model| &model["id"]).collect();
        assert_eq!(leads, if named_team { vec!["corca"] } else { Vec::new() }, "{list}");
    }
}
