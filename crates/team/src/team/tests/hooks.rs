use super::*;

const GUARD: &str = "inputs: [tool, {arguments: {type: object}}]\nsteps: [{engine: bash, code: 'true'}]\n";

/// A team with these hooks, an NPC and the jinxes `guard` and `log`.
fn hooked(hooks: &str) -> (Team, Vec<String>) {
    let ctx = format!("hooks: {hooks}\n");
    load(&[("team.ctx", &ctx), ("w.npc", NPC), ("jinxes/guard.jinx", GUARD), ("jinxes/log.jinx", STEPS)])
}

fn names(team: &Team) -> Vec<(&'static str, &str, bool, Option<usize>)> {
    let hooks = team.hooks.iter();
    let tools = |hook: &Hook| hook.tools.as_ref().map(Vec::len);
    hooks.map(|hook| (hook.event.name(), hook.name.as_str(), hook.jinx.is_some(), tools(hook))).collect()
}

#[test]
fn hooks_are_names_mappings_or_lists_of_them() {
    let (team, said) = hooked("{before_tool: [log, {jinx: guard, tools: [shell, '*_file']}], end: log}");
    assert_eq!(said, Vec::<String>::new());
    let expected = [
        ("before_tool", "log", true, None),
        ("before_tool", "guard", true, Some(2)),
        ("end", "log", true, None),
    ];
    assert_eq!(names(&team), expected);
    let guard = &team.hooks[1];
    let about =
        ["shell", "edit_file", "read", "guard"].map(|tool| guard.is_about(HookEvent::BeforeTool, tool));
    assert_eq!(about, [true, true, false, false]);
    assert!(!guard.is_about(HookEvent::AfterTool, "shell"));
    // A built-in jinx works too.
    assert_eq!(hooked("{after_tool: recall}").1.len(), 0);
}

#[test]
fn what_is_wrong_with_hooks_is_told() {
    let check = |hooks: &str, expected: &str| {
        let (_, said) = hooked(hooks);
        assert!(said.len() == 1 && said[0].contains(expected), "{hooks}: {said:?}");
    };
    check("guard", "team.ctx:1:8: error: `hooks` must be a mapping of events to jinxes, not a text");
    check(
        "{before_tols: guard}",
        "error: there is no event `before_tols`, did you mean `before_tool`? (known: before_tool, after_tool, start, end): nobody of the team runs",
    );
    check(
        "{before_tool: gard}",
        "error: the hook can't be run: there is no jinx `gard`, did you mean `guard`?; the calls that it is about are refused",
    );
    check("{end: nothing_such}", "error: the hook can't be run: there is no jinx `nothing_such`");
    check(
        "{before_tool: {tools: [shell]}}",
        "error: a hook is the name of a jinx, or {jinx: NAME, tools: [NAME, …]}",
    );
    check("{before_tool: {jinx: guard, tool: shell}}", "warning: unknown key `tool`, did you mean `tools`?");
    check(
        "{before_tool: {jinx: guard, tools: [shel]}}",
        "error: there is no tool \"shel\", did you mean `shell`? Nobody of the team runs",
    );
    check("{end: {jinx: log, tools: [shell]}}", "warning: `tools` has no effect: `end` is about no call");
    check("{start: guard}", "`guard` takes `tool` of type string, and `start` gives: event, npc");
    check(
        "{after_tool: shell}",
        "`shell` takes `command` of type string, and `after_tool` gives: event, npc, tool, arguments, result, outcome",
    );
}

#[test]
fn hooks_that_nothing_would_run_let_nobody_run() {
    let refused = |hooks: &str| npc(&hooked(hooks).0, "w").gate.broken.is_some();
    assert!(refused("{before_tols: guard}") && refused("guard"));
    assert!(!refused("{before_tool: guard}") && !refused("{before_tool: gard}"));
}

#[test]
fn a_hook_that_can_not_be_run_is_kept() {
    let (team, _) = hooked("{before_tool: [gard, guard]}");
    assert_eq!(names(&team), [("before_tool", "gard", false, None), ("before_tool", "guard", true, None)]);
}

#[test]
fn sub_teams_have_the_hooks_about_calls_of_those_above() {
    let team = clean(&[
        ("team.ctx", "hooks: {before_tool: guard, start: log}\n"),
        ("w.npc", NPC),
        ("jinxes/guard.jinx", GUARD),
        ("jinxes/log.jinx", STEPS),
        ("sub/team.ctx", "description: Below.\nhooks: {after_tool: log}\n"),
        ("sub/s.npc", &NPC.replace("name: w", "name: s")),
        ("sub/jinxes/guard.jinx", &GUARD.replace("'true'", "'false'")),
    ]);
    let below = &team.teams[0];
    assert_eq!(names(below), [("before_tool", "guard", true, None), ("after_tool", "log", true, None)]);
    // The one above applies, whatever has that name below.
    assert_eq!(below.hooks[0].jinx.as_deref(), team.jinx("guard"));
}

#[test]
fn a_jinx_of_a_hook_that_calls_itself_is_told() {
    let dir = TeamDir::new(&[
        ("team.ctx", "hooks: {after_tool: round}\n"),
        ("w.npc", NPC),
        ("jinxes/round.jinx", "steps: [{engine: other}]\n"),
        ("jinxes/other.jinx", "steps: [{engine: round}]\n"),
    ]);
    let said: Vec<String> =
        Team::load(dir.0.path()).unwrap().check().iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.contains("a jinx can't call itself: ")), "{said:?}");
}
