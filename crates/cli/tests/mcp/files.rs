//! `mcp_servers` in files, and messages about unsupported values.

use super::{McpTeam, npc};

#[test]
fn mcp_client_forms_in_files() {
    let check = |servers: &str, expected: &[&str]| {
        let setup = McpTeam::with(&[("w.npc", &npc("w", "[]", servers))]);
        let of_npc = &setup.team.npc(None).unwrap().servers;
        let root = format!("{}/", setup.directory.path().canonicalize().unwrap().display());
        let mut found: Vec<String> = of_npc
            .iter()
            .map(|server| format!("{}: {}", server.name, server.start().replace(&root, "")))
            .collect();
        found.extend(setup.diagnostics());
        assert_eq!(found, expected, "{servers}");
    };
    check("echo.sh", &["echo: bash echo.sh"]);
    check("[./echo.sh]", &["echo: bash echo.sh"]);
    check("['npx -y @scope/server-files \"/a b\"']", &["server-files: npx -y @scope/server-files \"/a b\""]);
    check(
        "[{command: python -m mcp.server.sqlite, args: [--db, 3]}]",
        &["mcp_server_sqlite: python -m mcp.server.sqlite --db 3"],
    );
    check(
        "[{command: x, env: {B: $HOME_OF_B, A: 1}, network: true}]",
        &["x: x with A=\"1\", B=$HOME_OF_B and the network"],
    );
    check("[https://host.example/mcp?v=1]", &["host_example: https://host.example/mcp?v=1"]);
    check(
        "[{url: https://h/mcp, transport: sse, api_key: $KEY, headers: {X-Team: t}}]",
        &["h: https://h/mcp with X-Team=\"t\", Authorization=Bearer $KEY"],
    );
    let error = |text: &str| format!("w.npc:4:15: error: {text}");
    check(
        "[nothing.py]",
        &[&error("there is no file nothing.py in the team's folder or the one that it is in")],
    );
    check(
        "[~/x.py]",
        &[&error(
            "there is no file ~/x.py in the team's folder or the one that it is in: what is in a home directory is not seen, copy it there",
        )],
    );
    check(
        "[echo]",
        &[&error("there is no MCP server `echo`; a program is named as `command: …`, a file as `path: …`")],
    );
    check(
        "[{name: x}]",
        &[&error("there is no MCP server `x`; a program is named as `command: …`, a file as `path: …`")],
    );
    check(
        "[{tools: [a]}]",
        &[&error("`tools` alone picks from the MCP servers of the team's .ctx, which has none")],
    );
    check(
        "[{path: echo.sh, url: https://h}]",
        &[&error("an MCP server has one of `path`, `command` and `url`")],
    );
    check("['a \"b']", &[&error("`a \"b` is no command: a quote is not closed")]);
    check("[ftp://h/x]", &[&error("`ftp://h/x` is no address: it has no http:// or https://")]);
    check(
        "[https://me:hunter2@h/x]",
        &[&error("a user or password has no place in the address of an MCP server")],
    );
    check(
        "[{url: http://h/mcp, api_key: $KEY}]",
        &[&error("headers are not sent without encryption: take https, or leave them out")],
    );
    check(
        "[{url: http://127.0.0.1:1/mcp, api_key: $KEY}]",
        &["127_0_0_1: http://127.0.0.1:1/mcp with Authorization=Bearer $KEY"],
    );
    check(
        "[{url: https://h, api_key: hunter2}]",
        &[
            "h: https://h",
            "w.npc:4:32: error: a key in a file is not used: name the environment variable that holds it, as in `api_key: $NAME`",
        ],
    );
    check(
        "[{command: x, toolz: [a]}]",
        &["x: x", "w.npc:4:28: warning: unknown key `toolz`, did you mean `tools`?"],
    );
    check(
        "[{url: https://h, transport: carrier}]",
        &["h: https://h", "w.npc:4:32: error: a transport is sse or streamable-http, not `carrier`"],
    );
    check(
        "[{command: x, timeout: -1}]",
        &["x: x", "w.npc:4:28: error: `timeout` must be a number of seconds above 0, and at most a day"],
    );
    check(
        "[{command: x, env: {API_TOKEN: abc}}]",
        &[
            "x: x with API_TOKEN=\"abc\"",
            "w.npc:4:34: warning: `API_TOKEN` looks like a secret, and what stands in the file is shown: name the environment variable that holds it, as in `$NAME`",
        ],
    );
    check(
        "[{command: x}, {command: x y, name: x}]",
        &[
            "x: x",
            "w.npc:4:29: error: there are two MCP servers `x`; the first one counts: give the other a `name`",
        ],
    );
    // In a .ctx file they wait for an NPC that names them.
    let setup = McpTeam::with(&[
        ("team.ctx", "name: t\nmcp_servers: [{name: e, path: echo.sh}]\n"),
        ("w.npc", "name: w\nprimary_directive: Work.\n"),
    ]);
    assert_eq!(
        setup.diagnostics(),
        [
            "team.ctx:2:15: warning: no NPC names the MCP server `e`: list it under `mcp_servers` of those that are to use it"
        ]
    );
    let setup = McpTeam::with(&[
        ("team.ctx", "name: t\nmcp_servers: [{name: files, path: echo.sh}]\n"),
        ("w.npc", &npc("w", "[]", "[file]")),
    ]);
    assert!(
        setup.diagnostics()[1].contains("there is no MCP server `file`, did you mean `files`?"),
        "{:?}",
        setup.diagnostics()
    );
}
