use super::*;

#[test]
fn choices_and_variables() {
    check(
        "steps: [{set: {a: 1, b: '{{ a + 1 }}'}}, {when: b == 2, then: [{return: 'yes {{ b }}'}], else: [{return: no}]}]",
        r#"{"ok":true,"output":"yes 2"}"#,
    );
    check("steps: [{when: '[]', then: [{return: yes}]}, {return: 'no'}]", r#"{"ok":true,"output":"no"}"#);
    check(
        "steps: [{when: 'true', then: [{set: {inner: 5}}]}, {set: {o.a.b: '{{ inner }}'}}, {return: '{{ o }}'}]",
        r#"{"ok":true,"output":"{\"a\":{\"b\":5}}"}"#,
    );
    check("steps: [{set: {a: 1}}]", r#"{"ok":true,"output":""}"#);
    check(
        "steps: [{when: nope, then: [{return: 1}]}]",
        r#"{"ok":false,"exit":null,"error":"the step in line 2: `nope` is not defined"}"#,
    );
    check(
        "steps: [{name: hello, engine: text, text: 'a {{ nope.x }}'}]",
        r#"{"ok":false,"exit":null,"error":"step `hello`: `nope.x` is not defined"}"#,
    );
    check(
        "steps: [{set: {a: 1, a.b: 2}}]",
        r#"{"ok":false,"exit":null,"error":"the step in line 2: `a.b` can't be set: `1` has no parts"}"#,
    );
}

#[test]
fn loops() {
    check(
        "steps: [{name: all, for: i, in: 'range(3)', do: [{engine: text, text: '{{ i * 2 }}'}]}, {return: '{{ all }} {{ output }}'}]",
        r#"{"ok":true,"output":"[0, 2, 4] [0, 2, 4]"}"#,
    );
    check(
        "steps: [{set: {sum: 0}}, {for: i, in: '[1, 2, 3]', do: [{set: {sum: '{{ sum + i }}', own: 1}}]}, {return: '{{ sum }} {{ own is defined }}'}]",
        r#"{"ok":true,"output":"6 False"}"#,
    );
    check(
        "steps: [{set: {n: 0}}, {for: i, in: 'range(9)', until: n == 3, do: [{set: {n: '{{ n + 1 }}'}}]}, {return: '{{ n }}'}]",
        r#"{"ok":true,"output":"3"}"#,
    );
    check(
        "steps: [{for: i, in: '[5, 6]', do: [{engine: text, text: '{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }}'}]}]",
        r#"{"ok":true,"output":"[\"1/2 True False\",\"2/2 False True\"]"}"#,
    );
    check(
        "steps: [{for: i, in: 'range(5)', do: [{for: j, in: 'range(5)', do: [{when: i * j == 6, then: [{return: '{{ [i, j] }}'}]}]}]}]",
        r#"{"ok":true,"output":"[2,3]"}"#,
    );
    check(
        "steps: [{for: k, in: {a: 1}, do: [{engine: text, text: '{{ k }}'}]}]"
            .replace("{a: 1}", "\"{'a': 1}\"")
            .as_str(),
        r#"{"ok":true,"output":"[\"a\"]"}"#,
    );
    check(
        "steps: [{name: empty, for: i, in: '[]', do: [{emit: {type: x, content: y}}]}, {return: '{{ empty }}'}]",
        r#"{"ok":true,"output":"[]"}"#,
    );
    check("steps: [{for: i, in: '[1]', do: [{emit: {type: x, content: y}}]}]", r#"{"ok":true,"output":""}"#);
    check(
        "steps: [{for: c, in: '\"text\"', do: []}]",
        r#"{"ok":false,"exit":null,"error":"the step in line 2: `\"text\"` is no list"}"#,
    );
    // A result that is bound in a loop ends with it; the earlier one is visible again.
    check(
        "steps: [{name: x, engine: text, text: out}, {for: i, in: '[1]', do: [{name: x, engine: text, text: in}]}, {return: '{{ x }}'}]",
        r#"{"ok":true,"output":"out"}"#,
    );
}

#[test]
fn failures_are_caught() {
    let fail = "{name: bad, engine: bash, code: 'echo why >&2; exit 7'}";
    check(
        &format!("steps: [{{try: [{fail}], catch: [{{return: '{{{{ error }}}}'}}]}}]"),
        r#"{"ok":true,"output":"{\"message\":\"why\",\"step\":\"bad\",\"stderr\":\"why\",\"exit\":7}"}"#,
    );
    check(
        &format!("steps: [{{try: [{fail}]}}, {{return: 'after {{{{ error is defined }}}}'}}]"),
        r#"{"ok":true,"output":"after False"}"#,
    );
    check(&format!("steps: [{fail}, {{return: never}}]"), r#"{"ok":false,"exit":7,"error":"why"}"#);
    check(
        &format!("steps: [{{try: [{fail}], finally: [{{engine: bash, code: 'echo x'}}]}}]"),
        r#"{"ok":false,"exit":7,"error":"why"}"#,
    );
    check(
        &format!(
            "steps: [{{try: [{{try: [{fail}], catch: [{{engine: bash, code: 'exit 2'}}]}}], catch: [{{return: '{{{{ error.exit }}}}'}}]}}]"
        ),
        r#"{"ok":true,"output":"2"}"#,
    );
    check(
        "steps: [{try: [{return: '{{ nope }}'}], catch: [{return: '{{ error.message }}'}]}]",
        r#"{"ok":true,"output":"the step in line 2: `nope` is not defined"}"#,
    );
    // A variable in `catch` hides the `error` around it only in the `catch`; the same holds for an
    // input of this name.
    check(
        &format!(
            "steps: [{{try: [{fail}], catch: [{{try: [{{engine: bash, code: 'exit 2'}}], catch: [{{set: {{two: '{{{{ error.exit }}}}'}}}}]}}, {{return: '{{{{ error.exit }}}} {{{{ two }}}}'}}]}}]"
        ),
        r#"{"ok":true,"output":"7 2"}"#,
    );
    check(
        &format!("inputs: [{{error: mine}}]\nsteps: [{{try: [{fail}]}}, {{return: '{{{{ error }}}}'}}]"),
        r#"{"ok":true,"output":"mine"}"#,
    );
    // The latest result is the one from before a loop that fails.
    check(
        &format!(
            "steps: [{{try: [{{engine: text, text: first}}, {{for: i, in: '[1, 2]', do: [{{when: i == 2, then: [{fail}]}}, {{engine: text, text: in}}]}}]}}]"
        ),
        r#"{"ok":true,"output":"first"}"#,
    );
}

#[test]
fn finally_runs_in_any_case_and_changes_no_result() {
    let check = |steps: &str, expected: &str| {
        let text = format!(
            "jinx_name: tried\nsteps: [{{try: {steps}, finally: [{{engine: bash, code: 'echo done > log; echo cleanup'}}]}}]"
        );
        let played = play(team(&[&text]), &json!({}), &Scripted::default(), 1);
        assert_eq!(
            (played.result.text(100).as_str(), &played.files["log"]),
            (expected, &json!("done\n")),
            "{steps}"
        );
    };
    check("[{engine: text, text: fine}]", r#"{"ok":true,"output":"fine"}"#);
    check("[{for: i, in: 'range(3)', do: [{return: '{{ i }}'}]}]", r#"{"ok":true,"output":"0"}"#);
    check("[{engine: bash, code: 'exit 3'}], catch: [{return: caught}]", r#"{"ok":true,"output":"caught"}"#);
    check("[{engine: bash, code: 'exit 3'}]", r#"{"ok":false,"exit":3,"error":"exit status 3"}"#);
}

#[test]
fn steps_are_tried_again() {
    let check = |steps: &str, expected: &str, tries: usize, least: u64| {
        let text = format!("jinx_name: tried\nsteps: {steps}");
        let begun = std::time::Instant::now();
        let played = play(team(&[&text]), &json!({}), &Scripted::default(), 1);
        assert_eq!(played.result.text(100), expected, "{steps}");
        assert_eq!(played.files["log"].as_str().unwrap().len(), tries, "{steps}");
        assert!(begun.elapsed().as_millis() as u64 >= least, "{steps}: {:?}", begun.elapsed());
    };
    let third = "printf x >> log; [ $(wc -c < log) = 3 ] && echo third";
    let step = |code: &str, retry: &str| format!("[{{engine: bash, code: {}, retry: {retry}}}]", json!(code));
    check(&step(third, "{max: 5, backoff: 0.05}"), r#"{"ok":true,"output":"third"}"#, 3, 150);
    check(&step(third, "{max: 1, backoff: 0}"), r#"{"ok":false,"exit":1,"error":"exit status 1"}"#, 2, 0);
    check(
        &format!(
            "[{{try: {}, retry: {{max: 2, backoff: 0.01}}, finally: [{{set: {{a: 1}}}}]}}]",
            step(third, "{max: 0}")
        ),
        r#"{"ok":true,"output":"third"}"#,
        3,
        30,
    );
}

#[test]
fn success_is_what_ok_says() {
    check(
        "ok: \"not out is match('^Error')\"\nsteps: [{engine: text, text: 'found 0 errors'}]",
        r#"{"ok":true,"output":"found 0 errors"}"#,
    );
    check(
        "ok: \"not out is match('^Error')\"\nsteps: [{engine: text, text: 'Error: gone'}]",
        r#"{"ok":false,"exit":0,"output":"Error: gone","error":"the steps ended, but `not out is match('^Error')` is false"}"#,
    );
    check(
        "ok: out.done\nfailure: 'not done: {{ out.left }} left'\nsteps: [{return: {done: false, left: 2}}]",
        r#"{"ok":false,"exit":0,"output":"{\"done\":false,\"left\":2}","error":"not done: 2 left"}"#,
    );
    check(
        "ok: out.done\nfailure: '{{ nope }}'\nsteps: [{return: {done: false}}]",
        r#"{"ok":false,"exit":0,"output":"{\"done\":false}","error":"the steps ended, but `out.done` is false"}"#,
    );
    check(
        "inputs: [{most: 3}]\nok: out.n <= most\nsteps: [{return: {n: '{{ most }}'}}]",
        r#"{"ok":true,"output":"{\"n\":3}"}"#,
    );
    check(
        "ok: nope\nsteps: [{return: 1}]",
        r#"{"ok":false,"exit":0,"output":"1","error":"`ok` can't be evaluated: `nope` is not defined"}"#,
    );
    // A step that fails is no success, whatever `ok` says.
    check(
        "ok: 'true'\nsteps: [{engine: bash, code: 'exit 1'}]",
        r#"{"ok":false,"exit":1,"error":"exit status 1"}"#,
    );
}

#[test]
fn a_result_can_end_the_work() {
    let check = |text: &str, expected: bool| {
        let text = format!("jinx_name: tried\n{text}");
        assert_eq!(play(team(&[&text]), &json!({}), &Scripted::default(), 1).result.last, expected, "{text}");
    };
    check("final: true\nsteps: [{engine: text, text: bye}]", true);
    check("final: true\nsteps: [{engine: bash, code: 'exit 1'}]", false);
    check("steps: [{engine: python, code: 'context[\"stop_requested\"] = True'}]", true);
    check("steps: [{engine: python, code: 'context[\"stop_requested\"] = True; exit(1)'}]", false);
    check("steps: [{engine: python, code: 'output = 1'}]", false);
    // A caller of a jinx that ends the work ends it too, whatever steps follow.
    let stop = "{engine: stop, with: {reason: x}}";
    check(&format!("steps: [{stop}]"), true);
    check(&format!("steps: [{stop}, {{return: y}}]"), true);
    check(&format!("steps: [{stop}, {{engine: text, text: y}}]"), true);
    check(
        &format!("steps: [{{when: 'true', then: [{{for: i, in: '[1, 2]', do: [{stop}]}}]}}, {{return: y}}]"),
        true,
    );
    check(
        &format!("steps: [{{name: all, for: i, in: '[1, 2]', parallel: true, do: [{stop}]}}, {{return: y}}]"),
        true,
    );
    check(&format!("steps: [{stop}, {{engine: bash, code: 'exit 1'}}]"), false);
    check(&format!("steps: [{{when: 'npc.name == 9', then: [{stop}]}}, {{return: y}}]"), false);
}

#[test]
fn responses_are_emitted() {
    let text = "jinx_name: tried\nsteps: [{emit: {type: progress, id: p, content: 1}}, {for: i, in: '[2, 3]', parallel: true, do: [{emit: {type: progress, id: p, content: '{{ i }}'}}]}, {emit: {type: text, content: hello}}]";
    let played = play(team(&[text]), &json!({}), &Scripted::default(), 4);
    let mut responses = Responses::default();
    played.emitted.iter().for_each(|response| responses.apply(response));
    let seen: Vec<Value> = responses.iter().map(|response| response["content"].clone()).collect();
    assert_eq!((seen, played.emitted.len()), (vec![json!(3), json!("hello")], 4));
    assert_eq!(played.trace.len(), 4);
    assert_eq!(played.result.output, Value::Null);
    check(
        "steps: [{emit: \"{{ 'x' }}\"}]",
        r#"{"ok":false,"exit":null,"error":"the step in line 2: a response is a mapping with `type` and `content`, not \"x\""}"#,
    );
}

#[test]
fn the_store_is_written_by_permission() {
    let text = "jinx_name: tried\nsteps: [{set: {store.plan: {a: 1}, store.plan.b: 2}}, {engine: python, code: 'output = context[\"store\"][\"plan\"][\"b\"]'}, {return: '{{ store.plan }} {{ output }} {{ store.secret is defined }}'}]";
    let mut permitted = team(&[text]);
    let only = |name: &str| Access { read: None, write: Some(vec![name.to_owned()]) };
    permitted.store.insert("plan".into(), only("worker"));
    let result = play(permitted.clone(), &json!({}), &Scripted::default(), 1).result;
    assert_eq!(result.output, json!("{'a': 1, 'b': 2} 2 False"));
    permitted.store.insert("plan".into(), only("lead"));
    let result = play(permitted, &json!({}), &Scripted::default(), 1).result;
    assert_eq!(
        result.error,
        "the step in line 2: `worker` may not write `store.plan`; it is written by: lead"
    );
}

#[test]
fn a_cancelled_jinx_stops_and_nothing_is_caught() {
    let fixture = Fixture::with(team(&[
        "jinx_name: tried\nsteps: [{try: [{engine: bash, code: 'sleep 9'}], catch: [{return: caught}]}]",
    ]));
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let caller = Caller::person(&session, &fixture.team);
    let cancel = fixture.sandbox.cancel_flag().clone();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        run(fixture.team.jinx("tried").unwrap(), Map::new(), &caller).unwrap()
    });
    assert_eq!((result.ok, result.error.as_str()), (false, "cancelled"));
}

/// Runs steps that are cancelled once the file `begun` exists: the result, the seconds since then,
/// and whether the file `ended` exists.
fn cancelled(steps: &str) -> (ToolResult, f64, bool) {
    let fixture = Fixture::with(team(&[&format!("jinx_name: tried\nsteps: [{steps}]")]));
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let caller = Caller::person(&session, &fixture.team);
    let cancel = fixture.sandbox.cancel_flag().clone();
    let (result, begun) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !fixture.work().join("begun").exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            cancel.store(true, std::sync::atomic::Ordering::Relaxed);
            std::time::Instant::now()
        });
        let result = run(fixture.team.jinx("tried").unwrap(), Map::new(), &caller).unwrap();
        (result, watch.join().unwrap())
    });
    (result, begun.elapsed().as_secs_f64(), fixture.work().join("ended").exists())
}

#[test]
fn what_was_begun_is_ended_when_it_is_cancelled() {
    let begin = "{engine: bash, code: 'touch begun; sleep 60'}";
    let finally = |steps: &str| {
        cancelled(&format!(
            "{{try: [{begin}], catch: [{{return: caught}}], finally: [{steps}]}}, {{return: on}}"
        ))
    };
    let (result, seconds, ended) = finally("{engine: bash, code: 'touch ended'}");
    assert_eq!((result.ok, result.error.as_str(), ended), (false, "cancelled", true));
    assert!(seconds < 4.0, "{seconds}");
    // Also in other jinxes, and around others.
    let (_, _, ended) = finally("{engine: shell, with: {command: touch ended}}");
    assert!(ended);
    let inner = "{for: i, in: '[1, 2]', do: [{try: [INNER], finally: [{engine: text, text: x}]}]}"
        .replace("INNER", begin);
    let (_, _, ended) =
        cancelled(&format!("{{try: [{inner}], finally: [{{engine: bash, code: 'touch ended'}}]}}"));
    assert!(ended);
    // But not for long, and not by a model.
    let (result, seconds, ended) = finally("{engine: bash, code: 'sleep 60; touch ended'}");
    assert_eq!((result.ok, ended), (false, false));
    assert!((4.0..20.0).contains(&seconds), "{seconds}");
    let (_, seconds, ended) = finally("{engine: llm, prompt: x}, {engine: bash, code: 'touch ended'}");
    assert!(!ended && seconds < 4.0, "{seconds}");
}
