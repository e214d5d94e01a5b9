//! Servers' tools: which of them an NPC gets, the results of calls, and the rules that apply.

use alara_harness::model::Reply;
use alara_harness::permission::{self, Answer, Permissions};
use serde_json::json;

use super::{McpTeam, call, done, npc};

#[test]
fn mcp_client_whitelist() {
    let check = |ctx: &str, servers: &str, expected: &[&str]| {
        let ctx = format!("name: t\nmcp_servers: {ctx}\n");
        let setup = McpTeam::with(&[("team.ctx", &ctx), ("w.npc", &npc("w", "[]", servers))]);
        assert_eq!(setup.run(vec![done()]).tools(), expected, "{ctx} {servers} {:?}", setup.diagnostics());
    };
    let all = "[{name: e, path: echo.sh}]";
    check(all, "[e]", &["a", "b"]);
    check(all, "e", &["a", "b"]);
    check(all, "[{tools: [a]}]", &["a"]);
    check(all, "{name: e, tools: [b]}", &["b"]);
    check(all, "[{tools: [a]}, {tools: [b]}]", &["a", "b"]);
    check(all, "[{tools: []}]", &[]);
    check(all, "[]", &[]);
    // Tools that the team doesn't use can't be selected.
    check("[{name: e, path: echo.sh, tools: [a]}]", "[{tools: [a, b]}]", &["a"]);
    check("[{name: e, path: echo.sh, tools: [a]}]", "[e]", &["a"]);
    let setup = McpTeam::naming("[{name: e, path: echo.sh, tools: [a, x]}]");
    let warnings = setup.run(vec![done()]).warnings;
    assert_eq!(warnings, ["`e` (w.npc:4) has no tool `x`; it has: a, b"]);
}

#[test]
fn mcp_client_results() {
    let check = |odd: &str, expected: &str| {
        let ran = McpTeam::odd(odd).run(vec![call("a"), done()]);
        assert_eq!(ran.results(), [expected], "{odd}");
    };
    check("fails", r#"{"ok":false,"exit":null,"error":"no such row"}"#);
    check("refuses", r#"{"ok":false,"exit":null,"error":"it refuses: not today (-32602)"}"#);
    check("typed", r#"{"ok":true,"output":"{\"n\":[1,2]}"}"#);
    check("asks", r#"{"ok":true,"output":"pinged yes, refused yes yes"}"#);
    check(
        "linked",
        r#"{"ok":true,"output":"see\n[resource a at file:///a]\n[image image/png, about 3 bytes, not shown]\nall of it"}"#,
    );
    // The server's text isn't trusted, not even to be an object.
    check("bare", r#"{"ok":false,"exit":null,"error":"the server's result is no object"}"#);
    // A server that sends pings endlessly still gets its answer through.
    check("pings", r#"{"ok":true,"output":"still there"}"#);
    check("dies", r#"{"ok":false,"exit":null,"error":"it has ended: out of luck"}"#);
    // Arguments are checked here, whoever makes the call.
    let ran = McpTeam::odd("x").run(vec![
        Reply::call("a", json!({})),
        Reply::call("a", json!({"text": 3})),
        Reply::call("a", json!({"text": "t", "more": 1})),
        done(),
    ]);
    assert!(ran.results()[0].contains("argument `text` is missing"), "{:?}", ran.results());
    assert!(ran.results()[1].contains("must be of type string"));
    assert!(ran.results()[2].contains("has no argument `more`"));
}

#[test]
fn mcp_client_hostile_servers() {
    let check = |odd: &str, expected: &str| {
        let ran = McpTeam::odd(odd).run(vec![call("a"), done()]);
        assert_eq!(ran.results(), [expected], "{odd}");
        ran
    };
    // An answer to another request is ignored, and the first one counts.
    check("wrong", r#"{"ok":false,"exit":null,"error":"no answer came within 1 s"}"#);
    check("twice", r#"{"ok":true,"output":"first"}"#);
    let ran = check("storm", r#"{"ok":true,"output":"storm: hi"}"#);
    let [warning] = ran.warnings.as_slice() else { panic!("{:?}", ran.warnings) };
    assert!(
        warning
            .ends_with(" asked for `elicitation/create`, which nobody answers here: its tools may do less")
    );
    let setup = McpTeam::naming("[{name: echo, path: echo.sh, args: [endless]}]");
    let ran = setup.run(vec![call("a"), call("b"), done()]);
    let long = r#"{"ok":false,"exit":null,"error":"it sent a message that is too long"}"#;
    assert_eq!(ran.results(), [long, long]);
    let ran = McpTeam::odd("big").run(vec![call("a"), done()]);
    assert!(ran.results()[0].len() < 100_000 && ran.results()[0].contains("truncated_bytes"));
}

#[test]
fn mcp_client_checks_what_no_grammar_guarantees() {
    let ran = McpTeam::odd("set").run(vec![
        Reply::call("a", json!({"text": "t", "tags": ["u", "v"]})),
        Reply::call("a", json!({"text": "t", "tags": ["u", "u"]})),
        Reply::call("a", json!({"text": "xt"})),
        done(),
    ]);
    // The tool is offered, and only calls that conform to its schema reach it.
    assert_eq!((ran.tools(), ran.warnings.len()), (vec!["shell".to_owned(), "a".to_owned()], 0));
    assert_eq!(ran.results()[0], r#"{"ok":true,"output":"set: t"}"#);
    for (result, dir) in ran.results()[1..].iter().zip(["/tags: ", "/text: "]) {
        let shown = format!("the arguments don't fit the schema of `a`: {dir}");
        assert!(result.contains(&shown) && result.contains(r#""ok":false"#), "{result}");
    }
}

#[test]
fn mcp_client_odd_lists() {
    let check = |odd: &str, tools: &[&str], warnings: &[&str]| {
        let ran = McpTeam::odd(odd).run(vec![done()]);
        assert_eq!(ran.tools()[1..], *tools, "{odd}");
        let server = "the MCP server `echo` (w.npc:4): ";
        let expected: Vec<String> = warnings.iter().map(|text| format!("{server}{text}")).collect();
        assert_eq!(ran.warnings, expected, "{odd}");
    };
    check("pages", &["a", "b", "c"], &[]);
    check(
        "circle",
        &["a"],
        &[
            "its list of tools has no end: what came so far is taken",
            "it offers two tools `a`: the first one counts",
        ],
    );
    check(
        "junk",
        &["a", "b"],
        &[
            "it prints on standard output what is no message of the protocol, where it should use standard error: Welcome!",
        ],
    );
    // Names that are valid in prompts, each unique; the team's own names stay the team's.
    check(
        "names",
        &["echo_a_b_c_d", "a_b_c_d", "echo_mcp", "echo_shell"],
        &["its tool `bad` is left out: its schema is not that of an object"],
    );
}

#[test]
fn mcp_client_names_clash_between_servers() {
    let servers = "[{name: one, path: echo.sh}, {name: two, path: echo.sh, args: [second], tools: [a]}]";
    let ran = McpTeam::naming(servers).run(vec![call("two_a"), call("one_a"), call("b"), done()]);
    assert_eq!(ran.tools(), ["shell", "one_a", "b", "two_a"]);
    let reply = |text: &str| format!(r#"{{"ok":true,"output":"{text}"}}"#);
    assert_eq!(ran.results(), [reply("second: hi"), reply("echo: hi"), reply("echo: hi")]);
}

#[test]
fn mcp_client_changed_lists_are_noted() {
    let ran = McpTeam::odd("changes").run(vec![call("a"), call("b"), done()]);
    assert_eq!(ran.results().len(), 2);
    assert!(
        ran.warnings.iter().all(|text| text.contains("says that its tools have changed")),
        "{:?}",
        ran.warnings
    );
    assert!(!ran.warnings.is_empty());
    assert_eq!(ran.model.requests()[0].tools, ran.model.requests()[2].tools);
}

#[test]
fn mcp_client_gates_know_what_tools_say() {
    let check = |form: &str, parse: &str, value: &str| {
        let gate = format!(
            "observe:\n  get_order: {{path: 'orders.{{{{ args.text }}}}', {parse}, value: {value}, types: {{status: string}}}}\n\
             writes: {{cancel_order: {{stale: 'orders.{{{{ args.text }}}}'}}}}\n\
             rules: {{cancel_order: {{need: \"orders[args.text].status == 'pending'\", reason: 'it is {{{{ orders[args.text].status }}}}'}}}}\n"
        );
        let servers = format!("[{{name: e, path: echo.sh, args: [shop-{form}]}}]\ngate: shop");
        let setup = McpTeam::with(&[("w.npc", &npc("w", "[]", &servers)), ("shop.gate", &gate)]);
        // The server's tools aren't known before it runs.
        assert_eq!(setup.diagnostics(), Vec::<String>::new(), "{form}");
        let of = |tool: &str, order: &str| Reply::call(tool, json!({"text": order}));
        let (get, cancel) = (|order| of("get_order", order), |order| of("cancel_order", order));
        let calls = [cancel("2"), get("1"), cancel("1"), get("2"), cancel("2"), cancel("2"), done()];
        let results = setup.run(calls.into()).results();
        let shown = |at: usize, text: &str| assert!(results[at].contains(text), "{form} {at}: {results:?}");
        shown(0, "`orders.2.status` is not known yet");
        shown(2, r#""rule":"cancel_order","reason":"it is shipped""#);
        shown(4, r#"{"ok":true,"output":"cancelled"}"#);
        // A tool that claims nothing counts as a write.
        shown(5, "`orders.2.status` is not known, it may have changed since it was read");
    };
    check("json", "parse: json", "result");
    check("records", "parse: records", "'result[0]'");
    check("regex", r"parse: regex, regex: 'is (?<status>\w+)'", "result");
}

#[test]
fn mcp_client_rules_hold_for_tools() {
    let run = |rules: &str| {
        let ctx = format!("name: t\npermissions: {rules}\nmcp_servers: [{{name: e, path: echo.sh}}]\n");
        let setup = McpTeam::with(&[("team.ctx", &ctx), ("w.npc", &npc("w", "[]", "[e]"))]);
        assert_eq!(setup.diagnostics(), Vec::<String>::new());
        // The start was allowed before, and there is no terminal now.
        let permissions = Permissions::default();
        let asked = setup.run(vec![done()]).asked;
        permissions.remember(&permission::holder(&setup.team), &asked[0], Answer::Session).unwrap();
        setup.asked(permissions, None, vec![call("a"), call("b"), done()]).results()
    };
    let refused = |results: &[String]| {
        results.iter().map(|text| text.contains("is not permitted by team.ctx:2")).collect::<Vec<_>>()
    };
    assert_eq!(refused(&run("{a: deny}")), [true, false]);
    assert_eq!(refused(&run("{'a:hi': ask}")), [true, false]);
    assert_eq!(refused(&run("{default: ask, b: allow}")), [true, false]);
    assert_eq!(refused(&run("{}")), [false, false]);
}
