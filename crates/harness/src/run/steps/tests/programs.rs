use super::*;

fn run_with(text: &str, arguments: &Value) -> String {
    let text = format!("jinx_name: tried\n{text}");
    play(team(&[&text]), arguments, &Scripted::default(), 4).result.text(1000)
}

#[test]
fn values_reach_bash_as_data() {
    let check = |code: &str, arguments: Value, expected: &str| {
        let jinx = format!(
            "inputs: [text, {{count: 2}}, {{flags: []}}]\nsteps: [{{engine: bash, code: {}}}]",
            json!(code)
        );
        assert_eq!(run_with(&jinx, &arguments), expected, "{code}");
    };
    let all = "echo \"$text|$count|$flags\"";
    let evil = "'; rm -rf / #`id`$(id){{ x }}";
    check(all, json!({"text": evil}), r#"{"ok":true,"output":"'; rm -rf / #`id`$(id){{ x }}|2|[]"}"#);
    check(
        all,
        json!({"text": "a", "count": 7, "flags": ["x", 1]}),
        r#"{"ok":true,"output":"a|7|[\"x\",1]"}"#,
    );
    check(
        "printf '%s.' {{ text }} {{ flags }} a{{ count }}",
        json!({"text": evil}),
        r#"{"ok":true,"output":"'; rm -rf / #`id`$(id){{ x }}.[].a2."}"#,
    );
    let long = json!({"text": "x".repeat(200_000)});
    check(
        all,
        long.clone(),
        r#"{"ok":false,"exit":null,"error":"step `step_1`: `text` is too long: 200000 bytes, at most 130816 fit into a variable; a python step takes more"}"#,
    );
    check(
        "cat <<< {{ text }}",
        long.clone(),
        r#"{"ok":false,"exit":null,"error":"step `step_1`: `__v1` is too long: 200000 bytes, at most 130816 fit into a variable; a python step takes more"}"#,
    );
    check("echo $count", long, r#"{"ok":true,"output":"2"}"#);
    check(
        all,
        json!({"text": "a\u{0}b"}),
        r#"{"ok":false,"exit":null,"error":"step `step_1`: `text` contains a NUL character"}"#,
    );
    check(
        "echo '{{ text }}'",
        json!({"text": "a"}),
        r#"{"ok":false,"exit":null,"error":"step `step_1`: `'{{ text }}'` in line 1 of the code stands in quotes: write `{{ text }}`"}"#,
    );
    check(
        "{{ text }}",
        json!({"text": "echo one; exit 3"}),
        r#"{"ok":false,"exit":3,"output":"one","error":"exit status 3"}"#,
    );
}

#[test]
fn names_that_mean_something_to_bash_are_not_set() {
    let jinx = "inputs: [{PATH: /nowhere}, {BASH_ENV: ./x}, {LD_PRELOAD: y}, {URL: z}]\nsteps: [{engine: bash, code: 'cat <<< \"$BASH_ENV$LD_PRELOAD$URL\"'}]";
    assert_eq!(run_with(jinx, &json!({})), r#"{"ok":true,"output":"z"}"#);
}

#[test]
fn values_reach_python_as_data() {
    let check = |code: &str, expected: &str| {
        let jinx =
            format!("inputs: [text, {{none: null}}]\nsteps:\n  - engine: python\n    code: {}", json!(code));
        assert_eq!(run_with(&jinx, &json!({"text": "'\"\n\\{{ 7*7 }}"})), expected, "{code}");
    };
    let text = r#"{"ok":true,"output":"'\"\n\\{{ 7*7 }}"}"#;
    check("output = context['text']", text);
    check("output = {{ text }}", text);
    check("output = {{ text | tojson }}", text);
    check("x = {{ {'t': text, 'n': none} }}\noutput = x['t'] if x['n'] is None else 0", text);
    check("print('a'); import os; os.system('echo b')", r#"{"ok":true,"output":"b\na"}"#);
    check("print('lost'); output = {'n': 1}", r#"{"ok":true,"output":"{\"n\":1}"}"#);
    check("context['output'] = [1, {2}]", r#"{"ok":true,"output":"[1,\"{2}\"]"}"#);
    check("x = 1\nprint(x)", r#"{"ok":true,"output":"1"}"#);
    check(
        "print(npc.name, context['npc']['name'], context.get('nope'))",
        r#"{"ok":true,"output":"worker worker None"}"#,
    );
    check("found = 'found 0 errors'\nprint(found)", r#"{"ok":true,"output":"found 0 errors"}"#);
    check("print(json.dumps([os.sep, re.escape('.')]))", r#"{"ok":true,"output":"[\"/\", \"\\\\.\"]"}"#);
    check("raise SystemExit('no such thing')", r#"{"ok":false,"exit":1,"error":"no such thing"}"#);
    check("raise SystemExit(4)", r#"{"ok":false,"exit":4,"error":"exit status 4"}"#);
    check("print('done'); exit()", r#"{"ok":true,"output":"done"}"#);
    check("x = 1\ncontext['nope']", r#"{"ok":false,"exit":1,"error":"KeyError: 'nope' (line 2)"}"#);
    check(
        "open('nope')",
        r#"{"ok":false,"exit":1,"error":"FileNotFoundError: [Errno 2] No such file or directory: 'nope'"}"#,
    );
    check("import sys; print(repr(sys.stdin.read()))", r#"{"ok":true,"output":"''"}"#);
    check(
        "from npcpy.llm_funcs import x",
        r#"{"ok":false,"exit":1,"error":"this jinx needs npcpy, which is not part of alara"}"#,
    );
    check(
        "import nowhere.at_all",
        r#"{"ok":false,"exit":1,"error":"this jinx needs the Python package nowhere, which is not installed"}"#,
    );
    check("import os; os.kill(os.getpid(), 9)", r#"{"ok":false,"exit":137,"error":"exit status 137"}"#);
}

#[test]
fn a_step_sees_the_output_before_it() {
    let check = |code: &str, expected: Value| {
        let code = json!(code);
        let text = format!(
            "jinx_name: tried\nsteps: [{{engine: python, code: 'output = True'}}, {{engine: python, code: {code}}}]"
        );
        let result = play(team(&[&text]), &json!({}), &Scripted::default(), 1).result;
        assert_eq!((result.output, result.error.as_str()), (expected, ""), "{code}");
    };
    check("print(output, context['output'])", json!("True True"));
    check("pass", json!(""));
    // Setting the same value again gives a result too.
    check("output = True", json!(true));
    check("output = output", json!(true));
    check("context['output'] = True", json!(true));
    check("context.update(output='x')", json!("x"));
}

#[test]
fn a_program_can_be_a_value() {
    let py = "inputs: [code]\nsteps: [{engine: python, code: '{{ code }}'}]";
    check_value(
        py,
        "def f(x):\n    return x + '{{ code }}'\nprint(f('a'))",
        r#"{"ok":true,"output":"a{{ code }}"}"#,
    );
    let shell = "inputs: [command]\nsteps: [{engine: bash, code: \"{{ command }}\\n\"}]";
    check_value(
        shell,
        "for i in 1 2; do echo \"$i {{ x }}\"; done",
        r#"{"ok":true,"output":"1 {{ x }}\n2 {{ x }}"}"#,
    );
}

fn check_value(jinx: &str, program: &str, expected: &str) {
    let name = if jinx.contains("[code]") { "code" } else { "command" };
    assert_eq!(run_with(jinx, &json!({name: program})), expected, "{jinx}");
}

#[test]
fn keys_are_passed_by_name_only() {
    // What every test process has.
    let check = |head: &str, expected: &str| {
        let jinx = format!("{head}\nsteps: [{{engine: bash, code: 'echo \"<$CARGO_PKG_NAME>\"'}}]");
        assert_eq!(run_with(&jinx, &json!({})), expected, "{head}");
    };
    if std::env::var("CARGO_PKG_NAME").is_err() {
        println!("SKIPPED: cargo did not start this test");
        return;
    }
    check("effect: read", r#"{"ok":true,"output":"<>"}"#);
    check("env: [CARGO_PKG_NAME, NOT_SET_ANYWHERE]", r#"{"ok":true,"output":"<alara-harness>"}"#);
}

#[test]
fn a_timeout_says_so() {
    check(
        "timeout: 2\nsteps: [{engine: bash, code: 'echo begun; sleep 30'}]",
        r#"{"ok":false,"exit":null,"error":"timed out after 2 s","output":"begun"}"#,
    );
    check(
        "steps: [{engine: python, timeout: 0.3, code: 'import time; time.sleep(30)'}]",
        r#"{"ok":false,"exit":null,"error":"timed out after 0.3 s"}"#,
    );
    // A limit on a block applies to everything in it.
    let block = "steps: [{try: [{for: i, in: 'range(999)', timeout: 0.3, do: [{engine: bash, code: 'sleep 0.1'}]}], catch: [{return: '{{ error.message }}'}]}]";
    let text = format!("jinx_name: tried\n{block}");
    let whole = "steps: [{try: [{engine: bash, code: 'sleep 30'}], timeout: 0.3, catch: [{return: '{{ error.step }} {{ error.exit }}'}]}]";
    check(whole, r#"{"ok":true,"output":"step_1 None"}"#);
    let begun = std::time::Instant::now();
    let message = play(team(&[&text]), &json!({}), &Scripted::default(), 4).result.output;
    assert!(begun.elapsed().as_secs() < 50);
    let message = message.as_str().unwrap();
    assert!(message == "the time is up" || message.starts_with("timed out after 0"), "{message}");
}

#[test]
fn a_million_lines_pass_whole_and_are_cut_for_the_record() {
    let jinx = "steps:\n  - {name: lines, engine: bash, code: 'seq 1000000'}\n  - {engine: bash, code: 'echo short'}\n  - {name: sum, engine: python, code: 'output = str(sum(map(int, context[\"lines\"].split())))'}\n  - return: '{{ sum }} {{ lines }}'";
    let text = format!("jinx_name: tried\n{jinx}");
    let result = play(team(&[&text]), &json!({}), &Scripted::default(), 4).result;
    let (sum, lines) = result.output.as_str().unwrap().split_once(' ').unwrap();
    assert_eq!((sum, lines.len(), result.dropped_bytes), ("500000500000", 6_888_895, 0));
    assert!(result.text(100).len() < 400);
    let kept = result.kept(KEPT_BYTES);
    let kept = kept.output.as_str().unwrap();
    let whole =
        |line: &str| line.starts_with("[… ") || line.split(' ').all(|word| word.parse::<u64>().is_ok());
    assert!(kept.len() < KEPT_BYTES + 100 && kept.lines().all(whole), "a line was cut");
    let typed = "jinx_name: tried\nsteps: [{engine: python, code: 'output = [0] * 1000000'}]";
    let result = play(team(&[typed]), &json!({}), &Scripted::default(), 4).result.kept(KEPT_BYTES);
    assert!(result.error.starts_with("`output` is too long: 2000001 bytes"), "{}", result.error);
}

#[test]
fn what_is_too_long_to_be_passed_on_is_an_error() {
    let flood = "{name: flood, engine: bash, code: 'yes | head -c 70000000'}";
    let run = |more: &str| {
        let text = format!("jinx_name: tried\nsteps:\n  - {flood}\n{more}");
        play(team(&[&text]), &json!({}), &Scripted::default(), 4).result
    };
    let alone = run("");
    assert!(alone.ok && alone.dropped_bytes > 0, "{}", alone.error);
    assert!(alone.output_text().contains(" bytes left out …]\ny\n"));
    let followed = run("  - {engine: python, code: 'output = len(context[\"flood\"])'}\n");
    assert!(!followed.ok, "{:?}", followed.output);
    assert!(followed.error.contains("of what it printed are missing"), "{}", followed.error);
}

#[test]
fn stock_tools_work() {
    let fixture = Fixture::new();
    let npc = fixture.team.npcs.iter().find(|npc| npc.name == "worker").unwrap();
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let caller = Caller { npc: Some(npc), ..Caller::person(&session, &fixture.team) };
    let check = |name: &str, arguments: Value, expected: &str| {
        let arguments = arguments.as_object().unwrap().clone();
        let call = alara_engine::ToolCall { id: String::new(), name: name.to_owned(), arguments };
        let result =
            crate::run::tool::execute(&caller, &crate::run::tool::Offered::of(&npc.jinxes), &call).unwrap();
        assert_eq!(result.text(200), expected, "{name}");
    };
    check(
        "write_file",
        json!({"path": "a/b.txt", "content": "one\ntwo"}),
        r#"{"ok":true,"output":"wrote a/b.txt"}"#,
    );
    check("read_file", json!({"path": "a/b.txt"}), r#"{"ok":true,"output":"one\ntwo"}"#);
    check(
        "edit_file",
        json!({"path": "a/b.txt", "find": "two", "replace": "three"}),
        r#"{"ok":true,"output":"changed a/b.txt"}"#,
    );
    check(
        "edit_file",
        json!({"path": "a/b.txt", "find": "e", "replace": ""}),
        r#"{"ok":false,"exit":1,"error":"the text occurs 3 times in a/b.txt, it must occur once: it begins in lines 1, 2 and 2; give more of what stands around it, or replace_all"}"#,
    );
    check("shell", json!({"command": "cat a/b.txt | wc -l"}), r#"{"ok":true,"output":"2"}"#);
    check("python", json!({"code": "print(6 * 7)"}), r#"{"ok":true,"output":"42"}"#);
    check(
        "read_file",
        json!({"path": "none"}),
        r#"{"ok":false,"exit":1,"error":"cat: none: No such file or directory"}"#,
    );
    let half = "y".repeat(100);
    check(
        "shell",
        json!({"command": "printf %01000d 0 | tr 0 y"}),
        &format!(
            r#"{{"ok":true,"output":"{half}\n[… 800 bytes left out …]\n{half}","truncated_bytes":800}}"#
        ),
    );
    check("shell", json!({}), r#"{"ok":false,"exit":null,"error":"argument `command` is missing"}"#);
    check(
        "shell",
        json!({"command": 1}),
        r#"{"ok":false,"exit":null,"error":"argument `command` must be of type string"}"#,
    );
    check(
        "shell",
        json!({"cmd": "ls"}),
        r#"{"ok":false,"exit":null,"error":"`shell` has no argument `cmd`; it takes: command, timeout, background"}"#,
    );
    check(
        "delegate",
        json!({}),
        r#"{"ok":false,"exit":null,"error":"`delegate` is not permitted; the tools are: shell, python, read_file, write_file, edit_file"}"#,
    );
}

/// As in a pipeline: it starts a server, does something, and ends the server.
#[cfg(unix)]
#[test]
fn steps_start_read_and_end_jobs() {
    let jinx = "inputs: [{later: true}, {what: read}]
steps:
  - name: begun
    engine: bash
    background: \"{{ later }}\"
    code: \"echo up; for i in $(seq 400); do test -f go && break; sleep 0.02; done; echo on; test -f go && sleep 60\"
  - {name: touched, engine: bash, code: touch go}
  - {name: said, jobs: \"{{ what }}\"}
  - {name: ended, jobs: end, job: 1}
  - return: \"{{ [begun, said] }}\"";
    assert_eq!(run_with(jinx, &json!({})), r#"{"ok":true,"output":"[\"up\",\"on\"]"}"#);
    assert_eq!(
        run_with(jinx, &json!({"what": "stop"})),
        r#"{"ok":false,"exit":null,"error":"step `said`: `jobs` is `list`, `read` or `end`, not `stop`"}"#
    );
    let none = r#"{"ok":false,"exit":null,"error":"no jobs were started"}"#;
    assert_eq!(run_with("steps: [{jobs: read}]", &json!({})), none);
    assert_eq!(
        run_with(
            "steps: [{engine: bash, code: sleep 60, background: yes}, {jobs: read, job: x}]",
            &json!({})
        ),
        r#"{"ok":false,"exit":null,"error":"the step in line 2: `job` is the number of a job, not \"x\""}"#
    );
}
