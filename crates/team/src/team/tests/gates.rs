use super::*;

const GET: &str = "inputs: [id]\neffect: read\nsteps: [{engine: bash, code: 'true'}]\n";
const CUT: &str = "inputs: [id]\nsteps: [{engine: bash, code: 'true'}]\n";
const GATE: &str = "observe: {get: {path: 'a.{{ args.id }}'}}\nrules: {cut: {need: 'a[args.id] == 1'}}\n";

/// A team with one NPC with these settings, a `.ctx`, and a gate.
fn team(npc: &str, ctx: &str, gate: &str) -> (Team, Vec<String>) {
    let npc = format!("{NPC}{npc}");
    load(&[
        ("team.ctx", &format!("name: t\n{ctx}")),
        ("w.npc", &npc),
        ("shop.gate", gate),
        ("jinxes/get.jinx", GET),
        ("jinxes/cut.jinx", CUT),
    ])
}

#[test]
fn a_gate_binds_who_names_it() {
    let check = |npc_says: &str, ctx: &str, bound: usize| {
        let (team, diagnostics) = team(npc_says, ctx, GATE);
        assert_eq!(diagnostics, Vec::<String>::new(), "{npc_says}{ctx}");
        let npc = npc(&team, "w");
        assert_eq!(npc.gate.gates.len(), bound);
        npc.may_run().unwrap();
    };
    check("gate: shop\n", "", 1);
    check("", "gate: shop.gate\n", 1);
    check("gate: [shop]\n", "gate: shop\n", 1);
    let (_, diagnostics) = team("", "", GATE);
    assert_eq!(
        diagnostics,
        [
            "shop.gate: warning: no NPC is bound by this gate: say `gate: shop` in those that are, or in the .ctx for all"
        ]
    );
}

#[test]
fn who_names_a_gate_that_cannot_be_read_does_not_run() {
    let check = |npc_says: &str, ctx: &str, gate: &str, expected: &str| {
        let (team, diagnostics) = team(npc_says, ctx, gate);
        assert!(diagnostics.iter().any(|told| told.contains(expected)), "{expected}: {diagnostics:?}");
        npc(&team, "w").may_run().unwrap_err();
    };
    check("gate: shpo\n", "", GATE, "error: there is no gate \"shpo\", did you mean `shop`?");
    check("", "gate: 3\n", GATE, "error: there is no gate 3");
    check("gate: shop\n", "", "rules: [", "error: the gate `shop` can't be used");
    check("", "gate: shop\n", "rule: {}", "error: the gate `shop` can't be used");
    check("gates: shop\n", "", GATE, "error: unknown key `gates`, did you mean `gate`?");
    check("gat: shop\n", "", GATE, "error: unknown key `gat`, did you mean `gate`?");
    check("phase: {}\n", "", GATE, "error: unknown key `phase`");
    check("", "gates: shop\n", GATE, "error: unknown key `gates`, did you mean `gate`?");
    check("", "phases: {}\n", GATE, "error: unknown key `phases`");
    check("", "a: [\n", GATE, "nobody of the team runs");
    // It is about tools that the team doesn't have.
    check("gate: shop\n", "", &GATE.replace("cut:", "cutt:"), "error: there is no tool `cutt`");
    check(
        "gate: shop\n",
        "",
        &GATE.replace("args.id] ==", "args.ix] =="),
        "error: `cut` has no argument `ix`",
    );
}

#[test]
fn a_gate_that_is_named_or_placed_wrongly_is_told() {
    let check = |ctx: &str, path: &str, expected: &[&str]| {
        let files = [
            ("team.ctx", ctx),
            ("w.npc", NPC),
            (path, GATE),
            ("jinxes/get.jinx", GET),
            ("jinxes/cut.jinx", CUT),
        ];
        assert_eq!(load(&files).1, expected, "{ctx} {path}");
    };
    let elsewhere = "warning: no gate is looked for in this folder, so it binds nobody: move it beside the team's .npc files";
    check("name: t\n", "gates/shop.gate", &[&format!("gates/shop.gate: {elsewhere}")]);
    check("name: t\n", "jinxes/shop.gate", &[&format!("jinxes/shop.gate: {elsewhere}")]);
    check(
        "name: t\ngate: gates/shop\n",
        "gates/shop.gate",
        &[
            &format!("gates/shop.gate: {elsewhere}"),
            "team.ctx:2:7: error: there is no gate \"gates/shop\": it is a file shop.gate in the team's folder; whoever it binds does not run",
        ],
    );
    let unbound = "shop.gate: warning: no NPC is bound by this gate: say `gate: shop` in those that are, or in the .ctx for all";
    check(
        "name: t\ngate: shop.yaml\n",
        "shop.gate",
        &[
            "team.ctx:2:7: error: there is no gate \"shop.yaml\", did you mean `shop`?; whoever it binds does not run",
            unbound,
        ],
    );
}

#[test]
fn a_gate_may_be_about_tools_of_clients_and_of_teams_below() {
    let gate = "observe: {fetch_it: {path: 'a.{{ args.id }}', effect: read}}\nrules: {cut: {need: 'a[args.id] == 1'}}\n";
    let check = |npc_says: &str, wrong: Option<&str>| {
        let text = format!("name: w\nprimary_directive: Work.\n{npc_says}gate: shop\n");
        let (team, diagnostics) = load(&[("w.npc", &text), ("shop.gate", gate), ("jinxes/cut.jinx", CUT)]);
        let found = npc(&team, "w").may_run().err().map(|error| error.to_string());
        assert_eq!(found.is_some(), wrong.is_some(), "{npc_says}: {found:?} {diagnostics:?}");
        assert!(found.unwrap_or_default().contains(wrong.unwrap_or_default()));
    };
    check("jinxes: [cut]\n", Some("there is no tool `fetch_it`"));
    check("jinxes: [cut, '*']\n", Some("there is no tool `fetch_it`"));
    // Listed by name, or no list at all: a client may have it.
    check("jinxes: [cut, fetch_it]\n", None);
    check("", None);
    let below = |npc_says: &str, jinx: &str| {
        let dir = TeamDir::new(&[
            ("team.ctx", "name: t\ngate: shop\n"),
            ("w.npc", NPC),
            ("shop.gate", gate),
            ("jinxes/cut.jinx", CUT),
            ("sub/team.ctx", "name: sub\ndescription: Below.\n"),
            ("sub/v.npc", &format!("name: v\nprimary_directive: Work.\n{npc_says}")),
            (&format!("sub/jinxes/{jinx}.jinx"), GET),
            ("sub/echo.sh", ""),
        ]);
        let team = Team::load(dir.0.path()).unwrap();
        [npc(&team, "w").may_run().is_ok(), npc(&team.teams[0], "v").may_run().is_ok()]
    };
    assert_eq!(below("jinxes: [cut]\n", "fetch_it"), [true, true]);
    // A gate that doesn't fit binds no NPC correctly, in the teams below either.
    assert_eq!(below("jinxes: [cut]\n", "get"), [false, false]);
    // A server's tools are unknown before it runs.
    assert_eq!(below("mcp_servers: [{name: e, path: echo.sh}]\n", "get"), [true, true]);
}

#[test]
fn other_keys_stay_warnings() {
    let (team, diagnostics) =
        team("gate: shop\ndate: 2026-01-31\ngatherings: 3\n", "games: [a]\nphrases: 3\n", GATE);
    assert!(diagnostics.iter().all(|told| told.contains("warning")), "{diagnostics:?}");
    npc(&team, "w").may_run().unwrap();
}

#[test]
fn a_team_below_is_bound_by_what_stands_above() {
    let own = GATE.replace("== 1", "== 2");
    let dir = TeamDir::new(&[
        ("team.ctx", "name: t\ngate: shop\n"),
        ("w.npc", NPC),
        ("shop.gate", GATE),
        ("jinxes/get.jinx", GET),
        ("jinxes/cut.jinx", CUT),
        ("sub/team.ctx", "name: sub\ndescription: Below.\n"),
        ("sub/v.npc", "name: v\nprimary_directive: Work.\njinxes: [get, cut]\ngate: shop\n"),
        ("sub/shop.gate", &own),
        ("sub/jinxes/get.jinx", GET),
    ]);
    let team = Team::load(dir.0.path()).unwrap();
    let below = &team.teams[0];
    let bound = &npc(below, "v").gate.gates;
    let needs: Vec<PathBuf> = bound.iter().map(|gate| gate.path.clone()).collect();
    assert_eq!(needs, [dir.path("shop.gate"), dir.path("sub/shop.gate")]);
    // Its own jinx of that name teaches the gate above nothing.
    let get = below.jinx("get").unwrap();
    assert_eq!([bound[0].knows(get), bound[1].knows(get)], [false, true]);
    assert!(bound[0].knows(team.jinx("get").unwrap()));
}
