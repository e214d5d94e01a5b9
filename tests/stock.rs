//! The stock jinxes, skills and teams: each does what it says, and says what is wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use alara_engine::ToolCall;
use alara_harness::jinx::{check, improve};
use alara_harness::model::Reply;
use alara_harness::sandbox::Isolation;
use alara_harness::trace::Record;
use alara_harness::{
    Agent, Caller, Outcome, Policy, Sandbox, Scripted, Session, Single, Team, ToolResult, tool,
};
use serde_json::{Value, json};

/// A stock team with a place to work, and what its model says.
struct Place {
    team: Team,
    sandbox: Sandbox,
    work: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place::with(Team::stock("alara").unwrap())
    }

    fn with(team: Team) -> Self {
        let work = tempfile::tempdir().unwrap();
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        let sandbox = Sandbox::new(work.path(), policy).unwrap();
        Place { team, sandbox, work }
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.work.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Calls made one after the other by an NPC (`lead`, or `research/scout`), as its model would make them; a jinx that it does not
    /// list is called as a step would do it.
    fn calls(&self, npc: &str, script: Vec<Reply>, calls: &[(&str, Value)]) -> (Vec<ToolResult>, Scripted) {
        let script = Scripted::new(script);
        let source = Single(&script);
        let session = Session::new(&source, &self.sandbox);
        let (team, npc) = match npc.split_once('/') {
            Some((team, npc)) => (self.team.teams.iter().find(|sub| sub.name == team).unwrap(), npc),
            None => (&self.team, npc),
        };
        let npc = team.npc(Some(npc)).unwrap();
        let caller = Caller { npc: Some(npc), ..Caller::person(&session, team) };
        let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
            let arguments = arguments.as_object().unwrap().clone();
            let id = format!("call_{index}");
            if npc.jinxes.iter().any(|listed| listed == name) {
                let call = ToolCall { id, name: (*name).to_owned(), arguments };
                tool::execute(&caller, &npc.jinxes, &call).unwrap()
            } else {
                tool::call(&caller, team.jinx(name).unwrap(), &arguments, &id).unwrap()
            }
        };
        let results = calls.iter().enumerate().map(call).collect();
        drop(session);
        (results, script)
    }

    /// The result of one call that needs no model.
    fn call(&self, npc: &str, jinx: &str, arguments: Value) -> ToolResult {
        self.calls(npc, Vec::new(), &[(jinx, arguments)]).0.remove(0)
    }

    /// What a call gives back, or complains about.
    fn check(&self, npc: &str, jinx: &str, arguments: Value, expected: Value) {
        let result = self.call(npc, jinx, arguments.clone());
        let found = if result.ok { result.output.clone() } else { json!({"failed": result.complaint()}) };
        assert_eq!(found, expected, "{jinx} {arguments}: {result:?}");
    }
}

fn failed(complaint: &str) -> Value {
    json!({"failed": complaint})
}

/// What a model was asked, oldest first: the last message of each request.
fn asked(script: &Scripted) -> Vec<String> {
    script.requests().iter().map(|request| request.messages.last().unwrap().content.clone()).collect()
}

/// Answers each request for a path that begins with one of these with its text, as many times as it is asked.
fn serve(answers: &'static [(&'static str, &'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece).unwrap() {
                    0 => break,
                    count => request.extend_from_slice(&piece[..count]),
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let found = answers.iter().find(|(begin, ..)| path.starts_with(begin));
            let (status, kind, body) = found
                .map_or(("404 Not Found", "text/plain", "nothing"), |(_, kind, body)| ("200 OK", kind, body));
            let body = body.replace("{request}", &request.replace(['\r', '\n', '"'], " "));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

#[test]
fn every_team_is_whole() {
    for name in ["alara", "review"] {
        let team = Team::stock(name).unwrap();
        assert_eq!(team.diagnostics, [], "{name}");
        for team in std::iter::once(&team).chain(&team.teams) {
            for npc in &team.npcs {
                let skills = npc.skills.catalog.iter().chain(&npc.skills.inline);
                for jinx in npc.jinxes.iter().chain(skills.clone()) {
                    assert!(team.jinx(jinx).is_some(), "{}/{} lists {jinx}", team.name, npc.name);
                }
                for skill in skills {
                    assert!(team.jinx(skill).unwrap().skill.is_some(), "{skill} is no skill");
                }
                let reads_skills = npc.jinxes.iter().any(|jinx| jinx == "skill");
                assert_eq!(reads_skills, !npc.skills.catalog.is_empty(), "{}/{}", team.name, npc.name);
                assert!(npc.directive.trim().lines().count() <= 8, "{}", npc.name);
            }
        }
    }
    let team = Team::stock("alara").unwrap();
    assert_eq!((team.forenpc.as_str(), team.context.as_str()), ("worker", ""));
    let skills = team.jinxes.iter().filter(|jinx| jinx.skill.is_some()).count();
    assert!(skills >= 6, "{skills} skills");
}

/// What a team's files come to, with long texts in short, and with the jinxes of sub-teams by name: they are the team's own.
fn compiled(team: &Team) -> Value {
    fn shorten(value: &mut Value) {
        match value {
            Value::String(text) if text.len() > 120 => {
                let first: String = text.lines().next().unwrap_or_default().chars().take(60).collect();
                *text = format!("{first} … ({} bytes)", text.len());
            }
            Value::Array(items) => items.iter_mut().for_each(shorten),
            Value::Object(map) => map.values_mut().for_each(shorten),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(team).unwrap();
    for team in value["teams"].as_array_mut().unwrap() {
        let jinxes = team["jinxes"].as_array_mut().unwrap();
        jinxes.iter_mut().for_each(|jinx| *jinx = jinx["name"].take());
    }
    shorten(&mut value);
    value
}

#[test]
fn nothing_is_odd_about_the_stock_jinxes() {
    let text_of =
        |path: &Path| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok();
    for name in ["alara", "review"] {
        assert_eq!(check(&Team::stock(name).unwrap().jinxes, &[], &text_of), [], "{name}");
    }
}

#[test]
fn improved_jinxes_do_the_same() {
    let plan = |arguments: Value| ("plan", arguments);
    let calls = [
        plan(json!({"action": "create", "goal": "A report", "steps": ["read", "write"]})),
        plan(json!({"action": "mark", "step": 2})),
        plan(json!({"action": "mark", "step": 3})),
        ("web_search", json!({"query": "capital of Australia"})),
        ("recall", json!({})),
        ("convene", json!({"topic": "?", "npcs": ["coder", "writer"], "rounds": 1})),
        ("delegate", json!({"npc_name": "writer", "task": "Write.", "max_iterations": 1})),
    ];
    let replies = ["One.", "Two.", "Both.", "Written.", r#"{"complete": false, "feedback": "No."}"#];
    let results = |place: &Place| place.calls("lead", replies.map(Reply::text).to_vec(), &calls).0;
    let before = Place::new();
    let mut team = Team::stock("alara").unwrap();
    let made = improve(&mut team.jinxes);
    let after = Place::with(team);
    assert_eq!(results(&before), results(&after), "{made:?}");
}

#[test]
fn the_compiled_stock_team_is_stable() {
    let team = Team::stock("alara").unwrap();
    let text = |team: &Team| serde_json::to_string_pretty(team).unwrap();
    assert_eq!(text(&team), text(&Team::stock("alara").unwrap()));
    insta::assert_snapshot!(serde_json::to_string_pretty(&compiled(&team)).unwrap());
}

#[test]
fn load_file_takes_each_kind() {
    let place = Place::new();
    let load =
        |path: &str, expected: Value| place.check("analyst", "load_file", json!({"path": path}), expected);
    place.write("a.txt", "one\ntwo\n");
    load("a.txt", json!("one\ntwo"));
    place.write("empty.md", "");
    load("empty.md", json!(""));
    place.write("latin.txt", b"caf\xe9");
    load("latin.txt", json!("café"));
    place.write("wide.txt", b"\xff\xfeh\0i\0");
    load("wide.txt", json!("hi"));
    place.write("t.csv", "name,age\n\"Ada, Countess\",36\nAlan,41\n");
    let rows = json!([["Ada, Countess", "36"], ["Alan", "41"]]);
    load("t.csv", json!({"columns": ["name", "age"], "total_rows": 2, "rows": rows}));
    place.write("t.tsv", "a\tb\n1\t2\n");
    load("t.tsv", json!({"columns": ["a", "b"], "total_rows": 1, "rows": [["1", "2"]]}));
    place.write("semi.csv", "a;b\n1,5;2\n");
    load("semi.csv", json!({"columns": ["a", "b"], "total_rows": 1, "rows": [["1,5", "2"]]}));
    place.write("x.json", r#"{"b": [1, 2.5], "a": null}"#);
    load("x.json", json!({"b": [1, 2.5], "a": null}));
    let cells = json!({"cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": "6 * 7", "outputs": [
            {"output_type": "execute_result", "data": {"text/plain": ["42"]}},
            {"output_type": "stream", "text": ["said\n"]},
            {"output_type": "display_data", "data": {"image/png": "…"}},
            {"output_type": "error", "evalue": "division by zero"},
        ]},
    ]});
    place.write("n.ipynb", cells.to_string());
    load(
        "n.ipynb",
        json!(
            "[1] markdown\n# Title\ntext\n\n[2] code\n6 * 7\n\n[2] output\n42\n\n[2] output\nsaid\n\n[2] output\n(image/png)\n\n[2] output\ndivision by zero"
        ),
    );
    place.write("bad.json", "{\"a\": ");
    load("bad.json", failed("bad.json is no JSON: Expecting value: line 1 column 7 (char 6)"));
    place.write("b.bin", b"\x7fELF\0\0\x01");
    load("b.bin", failed("b.bin is binary (7 bytes), there is no text to load"));
    load("none.txt", failed("there is no file none.txt"));
    load(".", failed(". is no file"));
    load("'; rm -rf x; {{ 7*7 }}", failed("there is no file '; rm -rf x; {{ 7*7 }}"));
    let huge = std::fs::File::create(place.work.path().join("huge.txt")).unwrap();
    huge.set_len(20_000_001).unwrap();
    load("huge.txt", failed("huge.txt has 20000001 bytes, at most 20000000 are loaded"));
}

#[test]
fn load_file_gives_long_files_in_parts() {
    let place = Place::new();
    let load = |arguments: Value, expected: Value| place.check("analyst", "load_file", arguments, expected);
    place.write("n.txt", (1..=9).map(|n| format!("line {n}\n")).collect::<String>());
    load(
        json!({"path": "n.txt", "first": 3, "limit": 2}),
        json!("line 3\nline 4\n[lines 3 to 4 of 9; go on with first=5]"),
    );
    load(json!({"path": "n.txt", "first": 9}), json!("line 9\n[lines 9 to 9 of 9]"));
    load(json!({"path": "n.txt", "first": 10}), failed("n.txt ends at 9, there is nothing from 10"));
    place.write("n.csv", "n\n1\n2\n3\n");
    load(
        json!({"path": "n.csv", "first": 2, "limit": 1}),
        json!({"columns": ["n"], "total_rows": 3, "rows": [["2"]], "part": "2 to 2 of 3; go on with first=3"}),
    );
    place.write("wide.txt", "x".repeat(20_000));
    let shown = place.call("analyst", "load_file", json!({"path": "wide.txt"})).output;
    assert_eq!(shown.as_str().unwrap().len(), 16_000 + " [cut]".len());
    place.write("long.json", json!((0..20_000).collect::<Vec<u32>>()).to_string());
    let shown = place.call("analyst", "load_file", json!({"path": "long.json"})).output;
    let shown = shown.as_str().unwrap();
    assert!(
        shown.starts_with("[\n 0,\n 1,")
            && shown.ends_with("[lines 1 to 200 of 20002; go on with first=201]")
    );
}

#[test]
fn load_file_reads_pdf_where_it_can() {
    let place = Place::new();
    // A page with the words "Hello from PDF", without a table of its objects: readers rebuild it.
    let stream = "BT /F1 24 Tf 72 700 Td (Hello from PDF) Tj ET";
    let length = stream.len();
    let pdf = format!(
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
         3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj\n\
         4 0 obj<</Length {length}>>stream\n{stream}\nendstream endobj\n\
         5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
    );
    place.write("p.pdf", pdf);
    let result = place.call("analyst", "load_file", json!({"path": "p.pdf"}));
    if Command::new("pdftotext").arg("-v").output().is_ok() {
        assert!(result.output_text().contains("Hello from PDF"), "{result:?}");
        place.write("no.pdf", "this is none");
        assert!(!place.call("analyst", "load_file", json!({"path": "no.pdf"})).ok);
    } else {
        eprintln!("SKIPPED: pdftotext is not installed, so no PDF is read");
        assert_eq!(result.complaint(), "PDF files are read with pdftotext, which is not installed here");
    }
}

#[test]
fn file_search_finds_by_name_and_text() {
    let place = Place::new();
    place.write("src/main.py", "import os\nprint('Hello')\n");
    place.write("src/lib/util.py", "def hello():\n    pass\n");
    place.write("notes.md", "hello there\n");
    place.write("data.bin", b"hello\0");
    place.write(".git/config", "hello");
    place.write("node_modules/x.py", "hello");
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.py"), "hello").unwrap();
    std::os::unix::fs::symlink(outside.path(), place.work.path().join("away")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.py"), place.work.path().join("src/out.py"))
        .unwrap();
    std::os::unix::fs::symlink("..", place.work.path().join("src/up")).unwrap();
    let find = |arguments: Value, expected: Value| place.check("coder", "file_search", arguments, expected);
    find(json!({"name": "*.py"}), json!("src/lib/util.py\nsrc/main.py"));
    find(json!({"name": "UTIL"}), json!("src/lib/util.py"));
    find(json!({"name": "src/*.py"}), json!("src/lib/util.py\nsrc/main.py"));
    find(json!({"name": "*.py", "path": "src/lib"}), json!("src/lib/util.py"));
    find(
        json!({"text": "hello"}),
        json!("notes.md:1: hello there\nsrc/lib/util.py:1: def hello():\nsrc/main.py:2: print('Hello')"),
    );
    find(json!({"text": "hello", "name": "*.md"}), json!("notes.md:1: hello there"));
    find(
        json!({"text": "hello", "limit": 1}),
        json!("notes.md:1: hello there\n[the first 1; there are more]"),
    );
    find(json!({"text": "$(id) `id` '"}), json!("nothing found"));
    find(json!({}), failed("nothing to look for: give a `name`, a `text` or both"));
    find(json!({"name": "x", "path": "none"}), failed("there is no folder none"));
}

#[test]
fn web_search_offline_finds_the_facts() {
    let place = Place::new();
    let search = |query: &str| place.call("research/scout", "web_search", json!({"query": query})).output;
    for (query, fact) in [
        ("python asyncio tutorial", "asyncio.run(main())"),
        ("who created Linux", "Linus Torvalds created Linux"),
        ("current population of Japan", "about 124 million"),
        ("what year Python was first released", "in the year 1991"),
        ("top 3 most popular JavaScript frameworks in 2025", "1. React, 2. Angular, 3. Vue.js"),
        ("top 5 most popular programming languages", "1. Python, 2. C++, 3. Java, 4. C, 5. C#"),
        ("capital of Australia", "Canberra is the capital city of Australia"),
        ("what is the Fibonacci sequence", "the sum of the two before it"),
    ] {
        let found = search(query);
        let first = &found["results"][0];
        assert_eq!(found["provider"], "offline");
        assert!(first["text"].as_str().is_some_and(|text| text.contains(fact)), "{query}: {found}");
        assert!(first["url"].as_str().is_some_and(|url| url.starts_with("https://")), "{query}: {found}");
    }
    for query in ["who won the football cup of 2022", "", "the of a"] {
        let found = search(query);
        assert_eq!(found["results"], json!([]), "{query}");
        assert!(found["note"].as_str().unwrap().contains("the web is not searched"), "{query}: {found}");
    }
    let one = place.call("research/scout", "web_search", json!({"query": "Python", "max_results": 1})).output;
    assert_eq!(one["results"].as_array().unwrap().len(), 1);
    place.check(
        "research/scout",
        "web_search",
        json!({"max_results": 1}),
        failed("argument `query` is missing"),
    );
}

/// The stock team with a setting for `web_search`.
fn searching(setting: Value) -> Place {
    let mut team = Team::stock("alara").unwrap();
    team.values.insert("web_search".to_owned(), setting);
    Place::with(team)
}

#[test]
fn web_search_asks_the_provider_that_the_team_names() {
    let server = serve(&[
        (
            "/search?q=two+words&format=json",
            "application/json",
            r#"{"results": [
            {"title": "First", "url": "https://a.example", "content": "an   excerpt\n"},
            {"title": "Second", "url": "https://b.example", "content": null}]}"#,
        ),
        ("/search?q=html", "text/html", "<p>busy</p>"),
        (
            "/duck?q=two+words",
            "text/html",
            r#"<div><a class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fc.example%2F">A <b>duck</b></a>
            <a class="result__snippet">swims &amp; dives</a></div><a class="result__a" href="https://d.example">No more</a>"#,
        ),
    ]);
    let check = |setting: Value, query: &str, expected: Value| {
        searching(setting).check("lead", "web_search", json!({"query": query, "max_results": 2}), expected);
    };
    let searxng = |url: &str| json!({"provider": "searxng", "url": url});
    check(
        searxng(&server),
        "two words",
        json!({"provider": "searxng", "results": [
            {"title": "First", "url": "https://a.example", "text": "an excerpt"},
            {"title": "Second", "url": "https://b.example", "text": ""},
        ]}),
    );
    check(
        json!({"provider": "duckduckgo", "url": format!("{server}/duck"), "max": 1}),
        "two words",
        json!({"provider": "duckduckgo", "results": [{"title": "A duck", "url": "https://c.example/", "text": "swims & dives"}]}),
    );
    check(searxng(&server), "html", failed("searxng answers, but not with JSON"));
    check(searxng(&server), "other", failed("searxng answers 404 Not Found"));
    check(searxng("file:///etc"), "x", failed("the address of searxng must begin with http:// or https://"));
    check(
        json!({"provider": "searxng"}),
        "x",
        failed("web_search.url in the team's .ctx must name the searxng instance"),
    );
    check(
        json!({"provider": "brave", "url": server}),
        "x",
        failed("brave needs a key in the environment variable BRAVE_API_KEY"),
    );
    check(
        json!({"provider": "lycos"}),
        "x",
        failed("there is no provider `lycos` (known: offline, searxng, brave, duckduckgo)"),
    );
}

#[test]
fn web_search_gets_its_key_and_nothing_else() {
    let server = serve(&[(
        "/?q=owls&count=5",
        "application/json",
        r#"{"web": {"results": [{"title": "Owls", "url": "https://owls.example", "description": "{request}"}]}}"#,
    )]);
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("team/team.ctx", &format!("forenpc: w\nweb_search: {{provider: brave, url: '{server}/'}}\n"));
    write("team/w.npc", "name: w\nprimary_directive: Search.\njinxes: [web_search, shell]\n");
    write("work/.keep", "");
    let script = json!([
        {"calls": [{"name": "web_search", "arguments": {"query": "owls"}}]},
        {"calls": [{"name": "shell", "arguments": {"command": "echo \"<$BRAVE_API_KEY>\""}}]},
        {"text": "Done."},
    ]);
    write("script.json", &script.to_string());
    let output = Command::new(env!("CARGO_BIN_EXE_alara"))
        .args([
            "run",
            "-t",
            "team",
            "-m",
            "script:script.json",
            "--workdir",
            "work",
            "--trace",
            "trace.jsonl",
            "go",
        ])
        .current_dir(root.path())
        .env("HOME", root.path())
        .env("BRAVE_API_KEY", "the-key")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = std::fs::read_to_string(root.path().join("trace.jsonl")).unwrap();
    let records = trace.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results: Vec<Value> = records
        .filter(|record| record["record"] == "tool_result")
        .map(|record| record["result"]["output"].clone())
        .collect();
    let found = results[0]["results"][0]["text"].as_str().unwrap_or_else(|| panic!("{results:?}"));
    assert!(found.to_lowercase().contains("x-subscription-token: the-key"), "{found}");
    assert_eq!(results[1], "<>");
}

#[test]
fn web_search_reads_a_folder_of_documents() {
    let place = searching(json!({"corpus": "docs"}));
    place.check(
        "lead",
        "web_search",
        json!({"query": "owls"}),
        failed("there is no folder docs, which the team's web_search.corpus names"),
    );
    place.write("docs/owl.md", "# Owls\nOwls hunt at night.");
    place.write(
        "docs/more.json",
        r#"[{"title": "Bees", "url": "https://bees.example", "text": "Bees dance."}]"#,
    );
    for (query, expected) in [
        (
            "when do owls hunt",
            json!({"title": "Owls", "url": "docs/owl.md", "text": "# Owls\nOwls hunt at night."}),
        ),
        ("bees", json!({"title": "Bees", "url": "https://bees.example", "text": "Bees dance."})),
    ] {
        place.check(
            "lead",
            "web_search",
            json!({"query": query}),
            json!({"provider": "offline", "results": [expected]}),
        );
    }
}

#[test]
fn fetch_page_gives_the_text_of_a_page() {
    let place = Place::new();
    let server = serve(&[
        (
            "/page",
            "text/html; charset=utf-8",
            "<head><title>Tïtle</title><style>p {}</style></head><p>One <b>bold</b> word</p><script>no()</script><ul><li>a<li>b</ul>",
        ),
        ("/plain", "text/plain", "as it\n  is"),
        ("/image", "image/png", "…"),
    ]);
    let fetch = |path: &str, more: Value, expected: Value| {
        let mut arguments = json!({"url": format!("{server}{path}")});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        place.check("research/scout", "fetch_page", arguments, expected);
    };
    fetch("/page", json!({}), json!("Tïtle\nOne bold word\na\nb"));
    fetch("/plain", json!({}), json!("as it\n  is"));
    fetch("/plain", json!({"limit": 2}), json!("as\n[2 of 10 characters]"));
    fetch(
        "/image",
        json!({}),
        failed(&format!("{server}/image is of the type image/png, there is no text to give")),
    );
    fetch("/none", json!({}), failed(&format!("{server}/none answers 404 Not Found")));
    let wrong = failed("an address begins with http:// or https://");
    place.check("research/scout", "fetch_page", json!({"url": "file:///etc/passwd"}), wrong);
}

#[test]
fn py_gives_its_output_or_what_it_prints() {
    let place = Place::new();
    let run = |code: &str, expected: Value| place.check("analyst", "py", json!({"code": code}), expected);
    run("output = 6 * 7", json!(42));
    run("total = 0\nfor n in range(4):\n    total += n\nprint(total)", json!("6"));
    run("print('{{ code }}{% x')", json!("{{ code }}{% x"));
    run("print('found 0 errors')", json!("found 0 errors"));
    let result = place.call("analyst", "py", json!({"code": "1 / 0"}));
    assert!(!result.ok && result.complaint().contains("ZeroDivisionError"), "{result:?}");
}

#[test]
fn chat_and_stop_end_the_run() {
    let place = Place::new();
    for (call, expected) in [
        (Reply::call("chat", json!({"message": "Here it is: {{ x }}"})), "Here it is: {{ x }}"),
        (Reply::call("stop", json!({})), "done"),
    ] {
        let script = Scripted::new([call]);
        let source = Single(&script);
        let session = Session::new(&source, &place.sandbox);
        let lead = place.team.npc(Some("lead")).unwrap();
        let outcome = Agent::new(&session, &place.team, lead, None).unwrap().run("Go.").unwrap();
        assert_eq!(outcome, Outcome::Answer { text: expected.to_owned() });
    }
}

#[test]
fn delegate_reviews_until_the_work_is_complete() {
    let place = Place::new();
    let (results, script) = place.calls(
        "lead",
        vec![
            Reply::call("shell", json!({"command": "echo 1 > n.txt"})),
            Reply::text("I wrote n.txt."),
            Reply::text(r#"{"complete": false, "feedback": "It must say 2."}"#),
            Reply::call("shell", json!({"command": "echo 2 > n.txt"})),
            Reply::text("Now it says 2."),
            Reply::text(r#"{"complete": true, "feedback": ""}"#),
        ],
        &[("delegate", json!({"npc_name": "coder", "task": "Write 2 to n.txt; not {{ 1 }}"}))],
    );
    assert_eq!(
        results[0].output,
        json!({"complete": true, "iterations": 2, "output": "Now it says 2.", "feedback": ""}),
        "{results:?}"
    );
    assert_eq!(std::fs::read_to_string(place.work.path().join("n.txt")).unwrap(), "2\n");
    let asked = asked(&script);
    assert_eq!(asked[0], "Write 2 to n.txt; not {{ 1 }}");
    assert!(asked[2].contains("What coder reports:\nI wrote n.txt."), "{}", asked[2]);
    assert_eq!(
        asked[3],
        "Write 2 to n.txt; not {{ 1 }}\n\nYou have worked on this before, and ended with:\nI wrote n.txt.\n\n\
         A review says that this is missing:\nIt must say 2."
    );
    let tools = |index: usize| script.requests()[index].tools.len();
    assert_eq!((tools(0), tools(2)), (place.team.npc(Some("coder")).unwrap().jinxes.len(), 0));
    assert!(script.requests()[2].schema.is_some());
}

#[test]
fn delegate_ends_at_its_limits() {
    let place = Place::new();
    let no = || vec![Reply::text("Tried."), Reply::text(r#"{"complete": false, "feedback": "More."}"#)];
    let task = |more: Value| {
        let mut arguments = json!({"npc_name": "writer", "task": "Write."});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        [("delegate", arguments)]
    };
    let script = [no(), no(), no()].concat();
    let (results, _) = place.calls("lead", script, &task(json!({})));
    let given_up = json!({"complete": false, "iterations": 3, "output": "Tried.", "feedback": "More."});
    assert_eq!(results[0].output, given_up);
    let (results, _) = place.calls("lead", no(), &task(json!({"max_iterations": -5})));
    assert_eq!(results[0].output["iterations"], 1);

    let members = r#"["analyst","coder","reviewer","worker","writer","research"]"#;
    let unknown = task(json!({"npc_name": "nobody"}));
    let (results, _) = place.calls("lead", vec![], &unknown);
    assert_eq!(results[0].complaint(), format!("argument `npc_name` must be one of {members}"));
    // A member of a sub-team is none of this team.
    let (results, _) = place.calls("lead", vec![], &task(json!({"npc_name": "scout"})));
    assert!(!results[0].ok);
    // A member has its own list, and no other.
    let forged = vec![
        Reply::call("shell", json!({"command": "touch forged"})),
        Reply::text("Not permitted."),
        Reply::text(r#"{"complete": true, "feedback": ""}"#),
    ];
    let (_, script) = place.calls("lead", forged, &task(json!({})));
    assert!(asked(&script)[1].contains("`shell` is not permitted"), "{:?}", asked(&script));
    assert!(!place.work.path().join("forged").exists());
}

#[test]
fn delegate_goes_down_to_sub_teams_but_not_for_ever() {
    let yes = || Reply::text(r#"{"complete": true, "feedback": ""}"#);
    let place = Place::new();
    let (results, script) = place.calls(
        "lead",
        vec![
            Reply::call("delegate", json!({"npc_name": "scout", "task": "Who created Linux?"})),
            Reply::call("web_search", json!({"query": "who created Linux", "max_results": 1})),
            Reply::text("Linus Torvalds, says https://en.wikipedia.org/wiki/Linux_kernel."),
            yes(),
            Reply::text("Linus Torvalds (https://en.wikipedia.org/wiki/Linux_kernel)."),
            yes(),
        ],
        &[("delegate", json!({"npc_name": "research", "task": "Find out who created Linux."}))],
    );
    assert_eq!(results[0].output["output"], "Linus Torvalds (https://en.wikipedia.org/wiki/Linux_kernel).");
    assert!(asked(&script)[2].contains("Linus Torvalds created Linux"), "{:?}", asked(&script));

    let mut team = Team::stock("alara").unwrap();
    for npc in &mut team.npcs {
        npc.limits.depth = 0;
    }
    let task = json!({"npc_name": "coder", "task": "Anything."});
    let result = Place::with(team).call("lead", "delegate", task);
    assert!(
        result.complaint().contains("`coder` can't be given work from here: at most 0 conversations"),
        "{result:?}"
    );
}

#[test]
fn convene_is_the_same_for_the_same_seed() {
    let names = json!(["coder", "writer", "analyst"]);
    let hold = |seed: u64| {
        let place = Place::new();
        let replies = (1..=6).map(|n| Reply::text(format!("View {n}."))).chain([Reply::text("All agree.")]);
        let arguments = json!({"topic": "Tabs or spaces?", "npcs": names, "rounds": 2, "seed": seed});
        let (results, script) = place.calls("lead", replies.collect(), &[("convene", arguments)]);
        assert!(results[0].ok, "{results:?}");
        (results[0].output.clone(), asked(&script))
    };
    let (output, prompts) = hold(1);
    assert_eq!(hold(1), (output.clone(), prompts.clone()));
    assert_eq!(output["summary"], "All agree.");
    let speakers = |output: &Value, round: u64| -> Vec<String> {
        let said = output["contributions"].as_array().unwrap().iter();
        let of_round = said.filter(|one| one["round"] == round);
        of_round.map(|one| one["npc"].as_str().unwrap().to_owned()).collect()
    };
    for round in [1, 2] {
        let mut all = speakers(&output, round);
        all.sort();
        assert_eq!(all, ["analyst", "coder", "writer"]);
    }
    let orders: std::collections::BTreeSet<_> = (0..5).map(|seed| speakers(&hold(seed).0, 1)).collect();
    assert!(orders.len() > 1, "the seed changes nothing");
    let first = &speakers(&output, 1)[0];
    assert!(!prompts[0].contains("What was said last"), "{}", prompts[0]);
    assert!(prompts[1].contains(&format!("What was said last:\n\n{first}: View 1.")), "{}", prompts[1]);
    assert!(prompts[6].contains("View 6."), "{}", prompts[6]);

    // All members unless some are named, the caller aside; at least two.
    let place = Place::new();
    let replies = (0..7).map(|_| Reply::text("Yes.")).collect();
    let (results, _) = place.calls("lead", replies, &[("convene", json!({"topic": "?", "rounds": 1}))]);
    let mut all = speakers(&results[0].output, 1);
    all.sort();
    assert_eq!(all, ["analyst", "coder", "research", "reviewer", "worker", "writer"]);
    let few = |npcs: Value| place.call("lead", "convene", json!({"topic": "?", "npcs": npcs}));
    assert_eq!(few(json!(["coder", "lead"])).complaint(), "a discussion takes two members at least, not 1");
    let unknown = few(json!(["nobody", "noone"])).complaint().into_owned();
    assert!(unknown.contains("there is no member `no"), "{unknown}");
}

#[test]
fn skills_are_looked_up_by_section() {
    let place = Place::new();
    let look = |arguments: Value| place.call("coder", "skill", arguments);
    let text = |section: &str| {
        let result = look(json!({"name": "git-workflow", "section": section}));
        assert!(result.ok, "{section}: {result:?}");
        result.output_text().into_owned()
    };
    assert!(text("Commits").contains("One commit is one thought"));
    assert!(!text("Commits").contains("git merge --no-ff"));
    assert_eq!(text("commits"), text("Commits"));
    assert_eq!(text("mer"), text("Merging"));
    assert_eq!(text("undo"), text("Undoing"));
    assert_eq!(text("Brnches"), text("Branches"));
    for title in ["Commits", "Branches", "Merging", "Conflicts", "Undoing"] {
        assert!(text("list").contains(title), "{}", text("list"));
        assert!(text("all").contains(&text(title)), "{title}");
    }
    let all = look(json!({"name": "git-workflow"})).output_text().into_owned();
    assert_eq!(all, text("all"));
    let missing = look(json!({"name": "git-workflow", "section": "cooking"}));
    assert!(
        missing.complaint().contains("Commits") || missing.output_text().contains("Commits"),
        "{missing:?}"
    );
    let unlisted = look(json!({"name": "technical-writing"}));
    assert!(unlisted.complaint().starts_with("argument `name` must be one of ["), "{unlisted:?}");
    // As a jinx of its own, and the description names the sections.
    let own = place.call("coder", "debugging", json!({"section": "Narrow"}));
    assert!(own.output_text().contains("git bisect"), "{own:?}");
    let description = &place.team.jinx("debugging").unwrap().description;
    assert!(
        description.ends_with("[Sections: Reproduce, Read, Narrow, Usual suspects, Fix]"),
        "{description}"
    );
}

#[test]
fn a_plan_is_made_shown_marked_and_revised() {
    let place = Place::new();
    let plan = |arguments: Value| ("plan", arguments);
    let (results, _) = place.calls(
        "lead",
        vec![],
        &[
            plan(json!({})),
            plan(json!({"action": "create", "goal": "A report"})),
            plan(
                json!({"action": "create", "goal": "A report", "steps": ["read {{ x }}", "count", "write"]}),
            ),
            plan(json!({"action": "mark", "step": 1})),
            plan(json!({"action": "mark", "step": 4})),
            plan(json!({"action": "revise", "steps": ["count twice", "send"]})),
            plan(json!({})),
            plan(json!({"action": "burn"})),
        ],
    );
    let said: Vec<String> =
        results.iter().map(|result| format!("{}{}", result.output_text(), result.complaint())).collect();
    let revised = "Goal: A report\n1. [x] read {{ x }}\n2. [ ] count twice\n3. [ ] send";
    assert_eq!(
        said,
        [
            "there is no plan yet",
            "a plan is made of steps; give them in `steps`",
            "Goal: A report\n1. [ ] read {{ x }}\n2. [ ] count\n3. [ ] write",
            "Goal: A report\n1. [x] read {{ x }}\n2. [ ] count\n3. [ ] write",
            "the plan has no step 4; give the number of one in `step`",
            revised,
            revised,
            "argument `action` must be one of [\"show\",\"create\",\"mark\",\"revise\"]",
        ]
    );
    assert_eq!(
        place.call("lead", "plan", json!({"action": "mark", "step": 1})).complaint(),
        "there is no plan yet; create it first"
    );
}

#[test]
fn notes_are_kept_for_the_team() {
    let place = Place::new();
    let (results, _) = place.calls(
        "research/librarian",
        vec![],
        &[
            ("recall", json!({})),
            ("remember", json!({"note": "Linux is from 1991", "source": "https://kernel.org"})),
            ("remember", json!({"note": "Owls hunt at night"})),
            ("recall", json!({})),
            ("recall", json!({"about": "LINUX"})),
            ("recall", json!({"about": "bees"})),
        ],
    );
    let said: Vec<_> = results.iter().map(|result| result.output_text().into_owned()).collect();
    assert_eq!(
        said,
        [
            "there is no such note",
            "noted",
            "noted",
            "Notes:\n- Linux is from 1991 (https://kernel.org)\n- Owls hunt at night",
            "Notes:\n- Linux is from 1991 (https://kernel.org)",
            "there is no such note",
        ]
    );
}

#[test]
fn compress_asks_the_agent_to_sum_up() {
    let place = Place::new();
    let script = Scripted::default();
    let source = Single(&script);
    let session = Session::new(&source, &place.sandbox);
    let compress = place.team.jinx("compress").unwrap();
    let result =
        tool::call(&Caller::person(&session, &place.team), compress, &Default::default(), "c").unwrap();
    assert!(result.ok, "{result:?}");
    let asks =
        |record: &Record| matches!(record, Record::Emit { response } if response["type"] == "compaction");
    assert!(session.trace.entries().iter().any(|entry| asks(&entry.record)));
}

#[test]
fn stock_jinxes_run_from_the_command_line() {
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("t.csv"), "a,b\n1,2\n").unwrap();
    let run = |file: &str, arguments: &[&str]| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("jinxes").join(file);
        let mut command = Command::new(env!("CARGO_BIN_EXE_alara"));
        command.arg("run").arg(path).args(arguments).current_dir(work.path());
        command.env("XDG_STATE_HOME", work.path().join("state")).output().unwrap()
    };
    let check = |file: &str, arguments: &[&str], expected: (i32, &str, &str)| {
        let output = run(file, arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (code, out, error) = (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr));
        assert!(
            code == expected.0 && out == expected.1 && error.ends_with(expected.2),
            "{file} {arguments:?}: {output:?}"
        );
    };
    check(
        "files/load_file.jinx",
        &["path=t.csv"],
        (0, r#"{"columns":["a","b"],"total_rows":1,"rows":[["1","2"]]}"#, ""),
    );
    check("files/load_file.jinx", &["path=none"], (1, "", "there is no file none"));
    check(
        "files/load_file.jinx",
        &["path=t.csv", "limit=x"],
        (2, "", "argument `limit` must be of type integer"),
    );
    check("files/file_search.jinx", &["name=csv"], (0, "t.csv", ""));
    check("core/py.jinx", &["code=print(1 + 1)"], (0, "2", ""));
    check("team/chat.jinx", &["message=Hello"], (0, "Hello", ""));
    check("team/stop.jinx", &[], (0, "done", ""));
    let output = run("web/web_search.jinx", &["query=capital of Australia", "max_results=1"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Canberra"), "{output:?}");
}
