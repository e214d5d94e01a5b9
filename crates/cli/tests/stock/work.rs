//! Collaboration within a team, and the end of its work: delegate, convene, plan, notes, skills,
//! chat and stop.

use alara_harness::model::Reply;
use alara_harness::trace::Record;
use alara_harness::{Agent, Caller, Outcome, Scripted, Session, Single, Team, tool};
use serde_json::{Value, json};

use crate::dirs::TeamDir;

/// Returns a model's requests, oldest first: the last message of each.
fn asked(script: &Scripted) -> Vec<String> {
    script.requests().iter().map(|request| request.messages.last().unwrap().content.clone()).collect()
}

#[test]
fn chat_and_stop_end_the_run() {
    let dir = TeamDir::stock();
    for (call, expected) in [
        (Reply::call("chat", json!({"message": "Here it is: {{ x }}"})), "Here it is: {{ x }}"),
        (Reply::call("stop", json!({})), "done"),
    ] {
        let script = Scripted::new([call]);
        let source = Single(&script);
        let session = Session::new(&source, &dir.sandbox);
        let lead = dir.team.npc(Some("lead")).unwrap();
        let outcome = Agent::new(&session, &dir.team, lead, None).unwrap().run("Go.").unwrap();
        assert_eq!(outcome, Outcome::Answer { text: expected.to_owned() });
    }
}

#[test]
fn delegate_reviews_until_the_work_is_complete() {
    let dir = TeamDir::stock();
    let (results, script) = dir.calls(
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
    assert_eq!(std::fs::read_to_string(dir.work.path().join("n.txt")).unwrap(), "2\n");
    let asked = asked(&script);
    assert_eq!(asked[0], "Write 2 to n.txt; not {{ 1 }}");
    assert!(asked[2].contains("What coder reports:\nI wrote n.txt."), "{}", asked[2]);
    assert_eq!(
        asked[3],
        "Write 2 to n.txt; not {{ 1 }}\n\nYou have worked on this before, and ended with:\nI wrote n.txt.\n\n\
         A review says that this is missing:\nIt must say 2."
    );
    let tools = |index: usize| script.requests()[index].tools.len();
    assert_eq!((tools(0), tools(2)), (dir.team.npc(Some("coder")).unwrap().jinxes.len(), 0));
    assert!(script.requests()[2].schema.is_some());
}

#[test]
fn delegate_ends_at_its_limits() {
    let dir = TeamDir::stock();
    let no = || vec![Reply::text("Tried."), Reply::text(r#"{"complete": false, "feedback": "More."}"#)];
    let task = |more: Value| {
        let mut arguments = json!({"npc_name": "writer", "task": "Write."});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        [("delegate", arguments)]
    };
    let script = [no(), no(), no()].concat();
    let (results, _) = dir.calls("lead", script, &task(json!({})));
    let given_up = json!({"complete": false, "iterations": 3, "output": "Tried.", "feedback": "More."});
    assert_eq!(results[0].output, given_up);
    assert!(!results[0].ok, "what is not complete did not succeed: {results:?}");
    assert_eq!(results[0].complaint(), "not complete after 3 tries: More.");
    let (results, _) = dir.calls("lead", no(), &task(json!({"max_iterations": -5})));
    assert_eq!(results[0].output["iterations"], 1);
    assert_eq!(results[0].complaint(), "not complete after 1 try: More.");

    let members = r#"["analyst","chat","coder","reviewer","worker","writer","research"]"#;
    let unknown = task(json!({"npc_name": "nobody"}));
    let (results, _) = dir.calls("lead", vec![], &unknown);
    assert_eq!(results[0].complaint(), format!("argument `npc_name` must be one of {members}"));
    // A member of a sub-team isn't a member of this team.
    let (results, _) = dir.calls("lead", vec![], &task(json!({"npc_name": "scout"})));
    assert!(!results[0].ok);
    // A member has only its own list.
    let forged = vec![
        Reply::call("shell", json!({"command": "touch forged"})),
        Reply::text("Not permitted."),
        Reply::text(r#"{"complete": true, "feedback": ""}"#),
    ];
    let (_, script) = dir.calls("lead", forged, &task(json!({})));
    assert!(asked(&script)[1].contains("`shell` is not permitted"), "{:?}", asked(&script));
    assert!(!dir.work.path().join("forged").exists());
}

#[test]
fn delegate_goes_down_to_sub_teams_but_not_for_ever() {
    let yes = || Reply::text(r#"{"complete": true, "feedback": ""}"#);
    let dir = TeamDir::stock();
    let (results, script) = dir.calls(
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
    let result = TeamDir::with(team).call("lead", "delegate", task);
    assert!(
        result.complaint().contains("`coder` can't be given work from here: at most 0 conversations"),
        "{result:?}"
    );
}

#[test]
fn convene_is_the_same_for_the_same_seed() {
    let names = json!(["coder", "writer", "analyst"]);
    let hold = |seed: u64| {
        let dir = TeamDir::stock();
        let replies = (1..=6).map(|n| Reply::text(format!("View {n}."))).chain([Reply::text("All agree.")]);
        let arguments = json!({"topic": "Tabs or spaces?", "npcs": names, "rounds": 2, "seed": seed});
        let (results, script) = dir.calls("lead", replies.collect(), &[("convene", arguments)]);
        assert!(results[0].ok, "{results:?}");
        (results[0].output.clone(), asked(&script))
    };
    let (output, prompts) = hold(1);
    assert_eq!(hold(1), (output.clone(), prompts.clone()));
    assert_eq!(output["summary"], "All agree.");
    let speakers = |output: &Value, round: u64| -> Vec<String> {
        let reply = output["contributions"].as_array().unwrap().iter();
        let of_round = reply.filter(|one| one["round"] == round);
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

    // All members unless some are named, except the caller; at least two.
    let dir = TeamDir::stock();
    let replies = (0..8).map(|_| Reply::text("Yes.")).collect();
    let (results, _) = dir.calls("lead", replies, &[("convene", json!({"topic": "?", "rounds": 1}))]);
    let mut all = speakers(&results[0].output, 1);
    all.sort();
    assert_eq!(all, ["analyst", "chat", "coder", "research", "reviewer", "worker", "writer"]);
    let few = |npcs: Value| dir.call("lead", "convene", json!({"topic": "?", "npcs": npcs}));
    assert_eq!(few(json!(["coder", "lead"])).complaint(), "a discussion takes two members at least, not 1");
    let unknown = few(json!(["nobody", "noone"])).complaint().into_owned();
    assert!(unknown.contains("there is no member `no"), "{unknown}");
}

#[test]
fn skills_are_looked_up_by_section() {
    let dir = TeamDir::stock();
    let look = |arguments: Value| dir.call("coder", "skill", arguments);
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
    // As a separate jinx, and the description names the sections.
    let own = dir.call("coder", "debugging", json!({"section": "Narrow"}));
    assert!(own.output_text().contains("git bisect"), "{own:?}");
    let description = &dir.team.jinx("debugging").unwrap().description;
    assert!(
        description.ends_with("[Sections: Reproduce, Read, Narrow, Usual suspects, Fix]"),
        "{description}"
    );
}

#[test]
fn a_plan_is_made_shown_marked_and_revised() {
    let dir = TeamDir::stock();
    let plan = |arguments: Value| ("plan", arguments);
    let (results, _) = dir.calls(
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
    let reply: Vec<String> =
        results.iter().map(|result| format!("{}{}", result.output_text(), result.complaint())).collect();
    let revised = "Goal: A report\n1. [x] read {{ x }}\n2. [ ] count twice\n3. [ ] send";
    assert_eq!(
        reply,
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
        dir.call("lead", "plan", json!({"action": "mark", "step": 1})).complaint(),
        "there is no plan yet; create it first"
    );
}

#[test]
fn notes_are_kept_for_the_team() {
    let dir = TeamDir::stock();
    let (results, _) = dir.calls(
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
    let reply: Vec<_> = results.iter().map(|result| result.output_text().into_owned()).collect();
    assert_eq!(
        reply,
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
    let dir = TeamDir::stock();
    let script = Scripted::default();
    let source = Single(&script);
    let session = Session::new(&source, &dir.sandbox);
    let compress = dir.team.jinx("compress").unwrap();
    let result =
        tool::call(&Caller::person(&session, &dir.team), compress, &Default::default(), "c").unwrap();
    assert!(result.ok, "{result:?}");
    let asks =
        |record: &Record| matches!(record, Record::Emit { response } if response["type"] == "compaction");
    assert!(session.trace.entries().iter().any(|entry| asks(&entry.record)));
}
