//! What people see at a terminal, and what programs get through a pipe.

mod screen;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, on_screen, sandboxed, text, typed};
use crate::endpoint::server::{self, Answer, Piece, Server};
use screen::Screen;

/// Returns exit code, stdout and stderr of a run with this model.
fn run(dir: &TestDir, model: &str, more: &[&str]) -> (i32, String, String) {
    let fixed = ["run", "-t", "team", "-m", model, "--workdir", "work", "--trace", "trace.jsonl"];
    let output = dir.alara(&[&fixed[..], more, &["do it"]].concat()).output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

/// Creates a team with an NPC that has a shell, and these limits.
fn limited(script: &Value, limits: &str) -> TestDir {
    let dir = TestDir::with(script);
    let npc = "name: worker\nprimary_directive: You work.\njinxes: [shell]\n";
    dir.write("team/worker.npc", &format!("{npc}limits: {limits}\n"));
    dir
}

fn says_and_calls(said: &str, command: &str) -> Value {
    json!({"text": said, "calls": [{"name": "shell", "arguments": {"command": command}}]})
}

#[test]
fn whatever_ends_a_run_what_was_said_is_printed() {
    if !sandboxed("whatever_ends_a_run_what_was_said_is_printed") {
        return;
    }
    let check = |script: Value, limits: &str, expected: &str, reason: &str| {
        let dir = limited(&script, limits);
        let (code, out, err) = run(&dir, "script:script.json", &[]);
        assert_eq!((code, out.as_str()), (1, expected), "{err}");
        assert!(err.contains(reason), "{err}");
        std::fs::remove_file(dir.path("trace.jsonl")).unwrap();
        let (code, out, err) = run(&dir, "script:script.json", &["--json"]);
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &report["text"]), (1, &json!(expected.trim_end())), "{report}");
        assert_eq!(err, "", "a program that reads JSON hears of nothing else");
    };
    let long = json!([{"text": "Once upon a time", "finish": "length"}]);
    check(long, "{}", "Once upon a time\n", "a turn reached the limit on tokens");
    let turns = json!([says_and_calls("I look.", "true"), says_and_calls("And on.", "true")]);
    check(turns, "{turns: 2}", "And on.\n", "stopped after 2 turns");
    let late = json!([says_and_calls("This takes long.", "sleep 5")]);
    check(late, "{seconds: 1}", "This takes long.\n", "the time is up");
    let same: Vec<Value> = (0..5).map(|_| says_and_calls("Again.", "true")).collect();
    check(json!(same), "{}", "Again.\n", "the same call of shell again and again");
}

#[test]
fn an_answer_that_came_only_at_a_limit_is_told_as_such() {
    if !sandboxed("an_answer_that_came_only_at_a_limit_is_told_as_such") {
        return;
    }
    let same: Vec<Value> = (0..5).map(|_| says_and_calls("Again.", "true")).collect();
    let turns = vec![says_and_calls("I look.", "false"), says_and_calls("And on.", "false")];
    for (mut script, limits, reason, tag) in [
        (turns, "{turns: 2}", "\nstopped after 2 turns, the NPC's limit\n", "turn_limit"),
        (same, "{}", "\nstopped: the same call of shell again and again\n", "repetition"),
    ] {
        script.push(json!({"text": "It can't be done."}));
        let dir = limited(&json!(script), limits);
        let (code, out, err) = run(&dir, "script:script.json", &[]);
        assert_eq!((code, out.as_str()), (0, "It can't be done.\n"), "{err}");
        assert!(err.contains(reason), "{err}");
        for flag in ["--json", "--json-stream"] {
            std::fs::remove_file(dir.path("trace.jsonl")).unwrap();
            let (code, out, err) = run(&dir, "script:script.json", &[flag]);
            let report: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
            assert_eq!((code, &report["outcome"], &report["stopped"]), (0, &json!("answer"), &json!(tag)));
            assert_eq!(err, "");
        }
    }
    let dir = limited(&json!([{"text": "Done."}]), "{turns: 1}");
    let (_, out, err) = run(&dir, "script:script.json", &["--json"]);
    assert!(!out.contains("stopped"), "{out}{err}");
}

#[test]
fn an_endpoint_that_fails_midway_has_said_something() {
    let begun = || server::event(&server::text("Once upon"));
    let failed = || server::event(&json!({"error": {"message": "out of memory"}}));
    for (pieces, reason) in [
        (vec![begun(), Piece::Cut], "broke off"),
        (vec![begun(), failed()], "failed while it answered: out of memory"),
    ] {
        for json in [false, true] {
            let server = Server::answering([Answer::stream(pieces.clone())]);
            let more: &[&str] = if json { &["--json"] } else { &[] };
            let dir = limited(&json!([]), "{}");
            let (code, out, err) = run(&dir, &format!("{}/v1#m", server.url), more);
            assert!(code == 1 && err.contains("error: ") && err.contains(reason), "{code} {err}");
            if json {
                let report: Value = serde_json::from_str(&out).unwrap();
                assert_eq!((&report["outcome"], &report["text"]), (&json!("failed"), &json!("Once upon")));
                assert!(report["error"].as_str().unwrap().contains(reason), "{report}");
            } else {
                assert_eq!(out, "Once upon\n");
            }
        }
    }
    // If the run could not begin, there is no answer.
    let server = Server::answering([Answer::json(400, &json!({"error": {"message": "no"}}))]);
    let (code, out, _) = run(&limited(&json!([]), "{}"), &format!("{}/v1#m", server.url), &[]);
    assert_eq!((code, out.as_str()), (2, ""));
}

#[test]
fn half_of_a_forced_answer_is_one() {
    // As endpoints write it: without the format's tags.
    let half = "{\"name\": \"finish\", \"arguments\": {\"answer\": \"Once \\\"upon\\\" a";
    for end in [Some(server::end("length")), None] {
        let mut pieces = vec![server::event(&server::text(half))];
        match &end {
            Some(end) => pieces.push(server::event(end)),
            None => pieces.push(Piece::Cut),
        }
        let server = Server::answering([Answer::stream(pieces)]);
        let dir = limited(&json!([]), "{}");
        let (code, out, err) = run(&dir, &format!("{}/v1#m", server.url), &["--tool-format", "generic"]);
        assert_eq!((code, out.as_str()), (1, "Once \"upon\" a\n"), "{err}");
    }
}

#[test]
fn an_interrupt_leaves_what_was_said() {
    if !sandboxed("an_interrupt_leaves_what_was_said") {
        return;
    }
    let begun = server::event(&server::text("Once upon"));
    let server = Server::answering([Answer::stream([begun, Piece::Hang])]);
    let dir = limited(&json!([]), "{}");
    let url = format!("{}/v1#m", server.url);
    let child = dir.alara(&["run", "-t", "team", "-m", &url, "--workdir", "work", "tell"]).spawn().unwrap();
    while server.received().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stdout).as_str()), (130, "Once upon\n"), "{output:?}");
    assert!(text(&output.stderr).starts_with("interrupted\n"), "{output:?}");
}

#[test]
fn a_step_that_is_cut_off_gives_what_there_is() {
    let dir = TestDir::with(&json!([{"text": "Half of it", "finish": "length"}]));
    dir.write("ask.jinx", "jinx_name: ask\nsteps: [{engine: llm, prompt: what}]\n");
    let output = dir.alara(&["run", "ask.jinx", "-m", "script:script.json", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], &report["output"]), (&json!(false), &json!("Half of it")), "{report}");
    assert!(report["error"].as_str().unwrap().contains("limit on tokens"), "{report}");
}

#[test]
fn two_streams_in_one_file_have_the_answer_once() {
    if !sandboxed("two_streams_in_one_file_have_the_answer_once") {
        return;
    }
    let dir = limited(&json!([says_and_calls("I look.", "echo one"), {"text": "It is **one**."}]), "{}");
    let line = "exec \"$0\" run -t team -m script:script.json --workdir work look > f 2>&1";
    let alara = dir.alara(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).arg(alara.get_program()).current_dir(dir.path(""));
    for (name, value) in alara.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        shell.env(name, value);
    }
    assert!(shell.stdin(Stdio::null()).status().unwrap().success());
    let shown = std::fs::read_to_string(dir.path("f")).unwrap();
    assert_eq!(shown.matches("It is **one**.\n").count(), 1, "{shown}");
    assert!(shown.starts_with("I look.\n> shell  command: echo one  ok, "), "{shown}");
}

#[test]
fn what_is_wrong_in_a_team_is_told_once() {
    let dir = limited(&json!([{"text": "Hello."}]), "{}");
    let npc = "name: worker\nprimary_directive: You work.\ngatee: a.gate\nodd: 1\n";
    dir.write("team/worker.npc", npc);
    let (code, _, told) = run(&dir, "script:script.json", &[]);
    assert_eq!((code, told.matches("unknown key `gatee`").count()), (2, 1), "{told}");
    let error =
        "worker.npc:3:1: unknown key `gatee`, did you mean `gate`?: whoever it was to bind does not run\n";
    assert!(
        told.starts_with("1 warning; `alara check team` tells them\nerror: ") && told.ends_with(error),
        "{told}"
    );
    // Problems that don't affect the running NPC are all reported.
    dir.write("team/worker.npc", "name: worker\nprimary_directive: You work.\nlimits: {turns: 0}\n");
    let (code, _, told) = run(&dir, "script:script.json", &[]);
    assert_eq!((code, told.matches("`turns` must be a whole number above 0").count()), (0, 1), "{told}");
}

#[test]
fn a_pipe_gets_no_escapes() {
    if !sandboxed("a_pipe_gets_no_escapes") {
        return;
    }
    let script = json!([says_and_calls("I **look**.", "printf '\\033[31mred'"), {"text": "# Done"}]);
    for more in [&[][..], &["-v"], &["--json"], &["--json", "-v"]] {
        let dir = limited(&script, "{}");
        let fixed = ["run", "-t", "team", "-m", "script:script.json", "--workdir", "work", "look"];
        let mut command = dir.alara(&[&fixed[..], more].concat());
        command.env("TERM", "xterm-256color").env("CLICOLOR_FORCE", "1").env("CLICOLOR", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        for bytes in [&output.stdout, &output.stderr] {
            assert!(!bytes.contains(&0x1b), "{more:?}: {output:?}");
        }
    }
}

/// Returns the screen after a run, without parts that differ between runs.
fn shown(columns: u16, variables: &[(&str, &str)], more: &[&str]) -> (String, String) {
    let edit = json!({"path": "notes.txt", "find": "two of them", "replace": "three"});
    let script = json!([
        says_and_calls("I look at what is there.", "seq 1 40; echo and more than that of it all"),
        {"calls": [{"name": "edit_file", "arguments": edit}]},
        says_and_calls("", "ls /nowhere/at/all"),
        {"text": "# Found\nIt is **three** now."},
    ]);
    let dir = limited(&script, "{}");
    let npc = "name: worker\nprimary_directive: You work.\njinxes: [shell, edit_file]\n";
    dir.write("team/worker.npc", npc);
    dir.write("work/notes.txt", "one\ntwo of them\n");
    let fixed =
        ["run", "-t", "team", "-m", "script:script.json", "--workdir", "work", "--yes", "--trace", "t"];
    let command = dir.alara(&[&fixed[..], more, &["look"]].concat());
    let (code, bytes) = on_screen(command, &[], columns, variables);
    assert_eq!(code, 0, "{bytes}");
    (Screen::of(&bytes, usize::from(columns)).text(), bytes)
}

#[test]
fn a_run_on_screens_of_two_widths() {
    if !sandboxed("a_run_on_screens_of_two_widths") {
        return;
    }
    let colours = [("TERM", "xterm-256color")];
    let mut all = String::new();
    for columns in [40, 100] {
        let (screen, bytes) = shown(columns, &colours, &[]);
        assert!(bytes.contains("\u{1b}[32m>\u{1b}[0m shell"), "{bytes}");
        all += &format!("--- {columns} columns\n{screen}\n");
    }
    let (details, bytes) = shown(100, &colours, &["-v"]);
    assert!(bytes.contains("\u{1b}[31m-two of them\u{1b}[0m"), "{bytes}");
    all += &format!("--- in full\n{details}\n");
    insta::assert_snapshot!(all);
}

#[test]
fn who_wants_no_colours_gets_none() {
    if !sandboxed("who_wants_no_colours_gets_none") {
        return;
    }
    let wanted = ("TERM", "xterm-256color");
    for variables in [&[wanted, ("NO_COLOR", "1")][..], &[wanted, ("CLICOLOR", "0")], &[("TERM", "dumb")]] {
        let (screen, bytes) = shown(100, variables, &[]);
        // The spinner moves the cursor; but nothing is styled.
        let styled = bytes.split("\u{1b}[").skip(1).any(|after| {
            let end = after.find(|c: char| c.is_ascii_alphabetic());
            end.is_some_and(|end| after[end..].starts_with('m'))
        });
        assert!(!styled, "{variables:?}: {bytes:?}");
        assert!(screen.contains("# Found\nIt is **three** now.\n"), "{variables:?}: {screen}");
        assert!(variables[0].1 != "dumb" || !bytes.contains('\u{1b}'), "{bytes:?}");
    }
}

#[test]
fn long_steps_show_that_something_is_done() {
    if !sandboxed("long_steps_show_that_something_is_done") {
        return;
    }
    let dir = limited(&json!([says_and_calls("", "sleep 2"), {"text": "Done."}]), "{}");
    let fixed =
        ["run", "-t", "team", "-m", "script:script.json", "--workdir", "work", "--trace", "t", "wait"];
    let (code, bytes) = on_screen(dir.alara(&fixed), &[], 80, &[("TERM", "xterm")]);
    assert_eq!(code, 0, "{bytes}");
    assert!(bytes.contains("1s > shell  command: sleep 2"), "{bytes:?}");
    let screen = Screen::of(&bytes, 80).text();
    assert!(screen.starts_with("> shell  command: sleep 2  ok, T s\nDone.\n2 turns"), "{screen}");
}

#[test]
fn the_list_of_models_fits_a_narrow_screen() {
    let dir = TestDir::with(&json!([]));
    let (code, bytes) = on_screen(dir.alara(&["models", "list"]), &[], 40, &[("TERM", "xterm")]);
    let row = bytes.lines().find(|line| line.starts_with("qwen3-4b ")).unwrap_or_else(|| panic!("{bytes}"));
    assert!(code == 0 && row.contains("2.3 GiB") && row.trim_end().chars().count() <= 40, "{row:?}");
    assert!(bytes.contains("a wider terminal shows more of each model"), "{bytes}");
}

#[test]
fn a_task_is_asked_for() {
    let dir = limited(&json!([{"text": "Hello."}]), "{}");
    let arguments = ["run", "-t", "team", "-m", "script:script.json", "--workdir", "work"];
    let (code, shown) = typed(dir.alara(&arguments), &[("What is to be done? ", "greet me")]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Hello."), "{shown}");
    let traces = dir.path("state/alara/traces").read_dir().unwrap();
    let trace = traces.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).next().unwrap();
    assert!(trace.contains("\"text\":\"greet me\""), "{trace}");
    let (code, shown) = typed(dir.alara(&arguments), &[("What is to be done? ", " ")]);
    assert!(code == 2 && shown.contains("there is no task"), "{shown}");
}

#[test]
fn mistyped_commands_are_known() {
    let dir = TestDir::with(&json!([]));
    let check = |arguments: &[&str], expected: &str| {
        let output = dir.alara(arguments).output().unwrap();
        let shown = text(&output.stderr);
        assert!(code(&output) == 2 && shown.contains(expected), "{arguments:?}: {shown}");
    };
    check(&["rnu", "x"], "a similar subcommand exists: 'run'");
    check(&["models", "lits"], "a similar subcommand exists: 'list'");
    check(&["count the words"], "'run \"count the words\"'");
    check(&["run", "--temprature", "1", "x"], "a similar argument exists: '--temperature'");
    let output = dir.alara(&["quux"]).output().unwrap();
    assert!(!text(&output.stderr).contains("similar"), "{output:?}");
}

#[test]
fn a_server_tells_how_to_use_it_and_no_more() {
    let tell = |more: &[&str]| {
        let dir = limited(&json!([{"text": "Hi"}, {"text": "Hi"}]), "{}");
        let all = ["serve", "--port", "0", "--json", "-t", "./team", "--workdir", "work"];
        let mut child = dir.alara(&[&all[..], &["-m", "script:script.json"], more].concat()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = told["url"].as_str().unwrap().to_owned();
        let body = json!({"model": "worker", "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let agent = ureq::Agent::config_builder().proxy(None).build().new_agent();
        agent.post(format!("{url}/chat/completions")).send(&body).unwrap();
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        child.wait().unwrap();
        let mut shown = String::new();
        child.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
        let page = told["page"].as_str().unwrap();
        assert!(page.starts_with(url.trim_end_matches("v1")) && page.contains("/#"), "{page}");
        shown.replace(&url, "URL").replace(page, "PAGE")
    };
    let expected = "serves URL (Ctrl-C ends it)\nmodels: script; as agents: worker\n\
        curl URL/chat/completions -d '{\"model\":\"worker\",\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}]}'\n\
        page: PAGE\n\
        stopping: running requests are finished; interrupt again to cancel them\n";
    assert_eq!(tell(&[]), expected);
    assert!(tell(&["--verbose"]).contains("POST /v1/chat/completions 200"));
}

#[test]
fn a_port_that_is_taken_is_told_before_the_remedy() {
    let dir = limited(&json!([]), "{}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output =
        dir.alara(&["serve", "-t", "./team", "-m", "script:script.json", "--port", &port]).output().unwrap();
    let shown = text(&output.stderr);
    let why = std::net::TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap_err();
    assert!(shown.starts_with(&format!("error: can't listen on 127.0.0.1:{port}: {why}\n")), "{shown}");
    assert!(shown.ends_with("\nhint: another port with --port, 0 for any that is free\n"), "{shown}");
}
