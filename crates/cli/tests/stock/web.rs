//! `web_search` with its providers, and `fetch_page`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alara_harness::Team;
use serde_json::{Value, json};

use super::failed;
use crate::dirs::{TeamDir, TestDir};

/// Answers each request for a path that begins with one of these with its text, any number of
/// times.
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
fn web_search_offline_finds_the_facts() {
    let dir = TeamDir::stock();
    let search = |query: &str| dir.call("research/scout", "web_search", json!({"query": query})).output;
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
    let one = dir.call("research/scout", "web_search", json!({"query": "Python", "max_results": 1})).output;
    assert_eq!(one["results"].as_array().unwrap().len(), 1);
    dir.check(
        "research/scout",
        "web_search",
        json!({"max_results": 1}),
        failed("argument `query` is missing"),
    );
}

/// The stock team with a setting for `web_search`.
fn searching(setting: Value) -> TeamDir {
    let mut team = Team::stock("alara").unwrap();
    team.values.insert("web_search".to_owned(), setting);
    TeamDir::with(team)
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
    let script = json!([
        {"calls": [{"name": "web_search", "arguments": {"query": "owls"}}]},
        {"calls": [{"name": "shell", "arguments": {"command": "echo \"<$BRAVE_API_KEY>\""}}]},
        {"text": "Done."},
    ]);
    let results = |server: &str| -> Vec<Value> {
        let dir = TestDir::with(&script);
        dir.write(
            "team/team.ctx",
            &format!("forenpc: w\nweb_search: {{provider: brave, url: '{server}/'}}\n"),
        );
        dir.write("team/w.npc", "name: w\nprimary_directive: Search.\njinxes: [web_search, shell]\n");
        let output = dir.task().args(["-t", "team"]).env("BRAVE_API_KEY", "the-key").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let results = dir.trace().into_iter().filter(|record| record["record"] == "tool_result");
        results.map(|record| record["result"].clone()).collect()
    };
    let here: Vec<Value> = results(&server).iter().map(|result| result["output"].clone()).collect();
    let (results, elsewhere) = (here, results("https://elsewhere.invalid"));
    // The key is the user's, and the team must not decide where it is sent.
    let refused = elsewhere[0].to_string();
    let reason = "the key of brave is not sent to elsewhere.invalid, which web_search.url names";
    assert!(refused.contains(reason) && !refused.contains("the-key"), "{refused}");
    let found = results[0]["results"][0]["text"].as_str().unwrap_or_else(|| panic!("{results:?}"));
    assert!(found.to_lowercase().contains("x-subscription-token: the-key"), "{found}");
    assert_eq!(results[1], "<>");
}

#[test]
fn web_search_and_its_key_stay_with_one_server() {
    let (other, asked) = counting();
    let server = redirecting(format!("{other}/stolen"));
    let dir = searching(json!({"provider": "searxng", "url": server}));
    let port = other.trim_start_matches("http://");
    let refused = format!("searxng leads to another server, {port}, which is not asked");
    dir.check("lead", "web_search", json!({"query": "x"}), failed(&refused));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// A server that redirects every request.
fn redirecting(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let to = to.replace("{own}", &address);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = format!(
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
        }
    });
    address
}

/// A server that counts connections, and returns a secret.
fn counting() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nsecret");
        }
    });
    (address, count)
}

/// The stock team, whose researchers may access these private hosts.
fn fetching(private: &[&str]) -> TeamDir {
    let mut team = Team::stock("alara").unwrap();
    let research = team.teams.iter_mut().find(|team| team.name == "research").unwrap();
    research.values.insert("fetch_page".to_owned(), json!({"private_hosts": private}));
    TeamDir::with(team)
}

#[test]
fn fetch_page_asks_nobody_but_the_public_internet() {
    let (server, asked) = counting();
    let port = server.rsplit(':').next().unwrap();
    let stock = TeamDir::stock();
    let refused = |dir: &TeamDir, url: &str, at: &str| {
        let result = dir.call("research/scout", "fetch_page", json!({"url": url}));
        let complaint = result.complaint();
        let expected = format!("is not asked: it is at {at}, which is not in the public internet");
        assert!(!result.ok && complaint.contains(&expected), "{url}: {result:?}");
    };
    for (host, at) in [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", ""),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("user@127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::]", "::"),
        ("[::ffff:127.0.0.1]", "::ffff:"),
        ("[::127.0.0.1]", "::"),
        ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1"),
        ("[2002:7f00:1::]", "2002:7f00:1::"),
        ("[fe80::1]", "fe80::1"),
        ("[fd00::1]", "fd00::1"),
        ("[ff02::1]", "ff02::1"),
        ("169.254.169.254", "169.254.169.254"),
        ("10.1.2.3", "10.1.2.3"),
        ("172.16.0.1", "172.16.0.1"),
        ("192.168.1.1", "192.168.1.1"),
        ("100.64.0.1", "100.64.0.1"),
        ("224.0.0.1", "224.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
    ] {
        let url = format!("http://{host}:{port}/");
        let result = stock.call("research/scout", "fetch_page", json!({"url": url}));
        let complaint = result.complaint();
        let expected = format!("is not asked: it is at {at}");
        assert!(!result.ok && complaint.contains(&expected), "{url}: {result:?}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    // A redirect from an allowed host doesn't help either.
    let redirect = redirecting(server.clone());
    let own = redirect.trim_start_matches("http://");
    refused(&fetching(&[own]), &redirect, "127.0.0.1");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    // The team can allow it.
    let both = fetching(&["127.0.0.1"]);
    both.check("research/scout", "fetch_page", json!({"url": redirect}), json!("secret"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn fetch_page_follows_few_redirects_and_no_other_schemes() {
    let fetch = |to: &str, expected: &dyn Fn(&str) -> String| {
        let server = redirecting(to.to_owned());
        let dir = fetching(&["127.0.0.1"]);
        dir.check("research/scout", "fetch_page", json!({"url": server}), failed(&expected(&server)));
    };
    fetch("{own}/again", &|server| format!("{server} leads from address to address, more than 5 times"));
    for to in ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x", "data:text/plain,x"] {
        fetch(to, &|_| "an address begins with http:// or https://".to_owned());
    }
}

#[test]
fn web_search_reads_a_folder_of_documents() {
    let dir = searching(json!({"corpus": "docs"}));
    dir.check(
        "lead",
        "web_search",
        json!({"query": "owls"}),
        failed("there is no folder docs to search: No such file or directory (os error 2)"),
    );
    dir.write("docs/owl.md", "# Owls\nOwls hunt at night.");
    dir.write(
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
        dir.check(
            "lead",
            "web_search",
            json!({"query": query}),
            json!({"provider": "offline", "results": [expected]}),
        );
    }
}

#[test]
fn fetch_page_gives_the_text_of_a_page() {
    let dir = fetching(&["127.0.0.1"]);
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
        dir.check("research/scout", "fetch_page", arguments, expected);
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
    dir.check("research/scout", "fetch_page", json!({"url": "file:///etc/passwd"}), wrong);
}
