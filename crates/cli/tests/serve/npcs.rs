//! NPCs as models: their work, their conversations, their rules.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use super::{agent, message, tool};
use crate::dirs::TestDir;

#[test]
fn serve_lets_an_npc_work_as_a_model() {
    let call = json!({"text": "I look.", "calls": [{"name": "shell", "arguments": {"command": "echo seven > f; cat f"}}]});
    let turns = [call, json!({"text": "It says seven."})];
    let script = [&turns[..], &turns, &turns].concat();
    let served = TestDir::npc_team(&script.into()).serve(&[]);
    let check = |body: &Value| {
        assert_eq!(
            *message(body),
            json!({"role": "assistant", "content": "It says seven.", "refusal": null})
        );
        assert_eq!((&body["model"], &body["choices"][0]["finish_reason"]), (&json!("corca"), &json!("stop")));
        let alara = &body["alara"];
        assert_eq!(
            (&alara["npc"], &alara["calls"]),
            (&json!("corca"), &json!([{"name": "shell", "ok": true}]))
        );
        assert_eq!(body["usage"]["completion_tokens"], 6);
        let shown = served.dir.alara(&["trace", "show", alara["trace"].as_str().unwrap()]).output().unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains("echo seven > f; cat f"), "{shown:?}");
    };
    check(&served.answer(json!({"model": "corca"})));
    assert_eq!(std::fs::read_to_string(served.dir.path("work/f")).unwrap(), "seven\n");
    check(&served.answer(json!({"agent": "corca"})));
    let chunks = served.chunks(json!({"npc": "corca", "model": "script"}));
    let printed: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(printed, "It says seven.");
    assert!(chunks.iter().all(|chunk| chunk["choices"][0]["delta"].get("tool_calls").is_none()));
    assert_eq!(served.dir.traces().len(), 3);
}

#[test]
fn serve_lets_an_npc_take_up_a_conversation() {
    let replies = [
        json!({"text": "One two."}),
        json!({"text": "Three."}),
        json!({"text": "Four."}),
        json!({"text": "x", "finish": "length"}),
    ];
    let served = TestDir::npc_team(&json!(replies)).serve(&[]);
    let chunks = served.chunks(json!({"model": "sage"}));
    let printed: Vec<&str> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(printed, ["", "One ", "two."], "without tools, all that is said is the answer");
    let body = served.answer(json!({"model": "sage", "temperature": 0.5, "max_tokens": 9, "messages": [
        {"role": "system", "content": "Speak softly."}, {"role": "user", "content": "What is one?"},
        {"role": "assistant", "content": "The first."}, {"role": "user", "content": "And then?"},
    ]}));
    assert_eq!(message(&body)["content"], "Three.");
    let traces = served.dir.traces();
    // Each has its own conversation.
    assert!(!traces[1].contains("One two."));
    let records: Vec<Value> = traces[1].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let start = &records[0];
    assert!(start["system"].to_string().contains("You are sage.\\n\\nSpeak softly."), "{start}");
    assert_eq!(
        (&start["sampling"]["temperature"], &start["limits"]["turn_tokens"]),
        (&json!(0.5), &json!(9))
    );
    let kinds: Vec<&Value> = records.iter().map(|record| &record["record"]).collect();
    assert_eq!(kinds, ["start", "user", "assistant", "end", "user", "assistant", "end"]);
    // Such a trace can be replayed.
    let body = served.answer(json!({"model": "sage", "messages": [
        {"role": "user", "content": "What is one?"}, {"role": "assistant", "content": "The first."},
        {"role": "user", "content": "And two?"},
    ]}));
    let replay =
        served.dir.alara(&["trace", "replay", body["alara"]["trace"].as_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&replay.stdout), "the same: 7 records\n");

    let body = served.answer(json!({"model": "sage"}));
    assert_eq!(
        (&message(&body)["content"], &body["choices"][0]["finish_reason"]),
        (&json!("x"), &json!("length"))
    );
    let check = |fields: Value, status: u16, expected: &str| {
        let (found, body) = served.ask(fields);
        assert_eq!(found, status, "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(expected), "{body}");
    };
    check(json!({"model": "sage", "stop": "x"}), 400, "`stop` is up to the NPC sage itself");
    check(json!({"agent": "nobody"}), 404, "there is no model `nobody` (known: script, corca, sage)");
    check(json!({"agent": "sage", "model": "gpt-4"}), 404, "there is no model `gpt-4`");
    check(json!({"model": "sage"}), 500, "the script has no reply");
}

#[test]
fn serve_tells_an_npcs_calls_as_they_come_where_asked() {
    let call = |text: &str, command: &str| json!({"text": text, "calls": [{"name": "shell", "arguments": {"command": command}}]});
    let script =
        json!([call("I look.", "echo seven"), call("", "echo no >&2; exit 3"), {"text": "It says seven."}]);
    let served = TestDir::npc_team(&script).serve(&[]);
    let chunks = served.chunks(json!({"model": "corca", "alara": {"events": true}}));
    let told: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| match &chunk["choices"][0]["delta"]["content"] {
            Value::String(text) if !text.is_empty() => Some(text.clone().into()),
            _ => chunk.get("alara").cloned(),
        })
        .collect();
    let ids: Vec<&Value> = told.iter().filter_map(|told| told["call"].get("id")).collect();
    assert_eq!(ids.len(), 2, "{told:?}");
    let seconds = |index: usize| &told[index]["result"]["seconds"];
    let expected = [
        json!("I "),
        json!("look."),
        json!({"call": {"id": ids[0], "name": "shell", "arguments": {"command": "echo seven"}}}),
        json!({"result": {"id": ids[0], "ok": true, "exit": 0, "seconds": seconds(3), "output": "seven"}}),
        json!({"call": {"id": ids[1], "name": "shell", "arguments": {"command": "echo no >&2; exit 3"}}}),
        json!({"result": {"id": ids[1], "ok": false, "exit": 3, "seconds": seconds(5), "output": "", "complaint": "no"}}),
        json!("\n\nIt "),
        json!("says "),
        json!("seven."),
    ];
    assert_eq!(told[..told.len() - 1], expected);
    let calls = json!([{"name": "shell", "ok": true}, {"name": "shell", "ok": false}]);
    assert_eq!(told.last().unwrap()["calls"], calls);
    assert!(chunks.iter().all(|chunk| chunk["choices"][0]["delta"].get("tool_calls").is_none()));
}

#[test]
fn serve_lets_an_npc_work_over_the_clients_tools() {
    let call = |name: &str| json!({"calls": [{"name": name, "arguments": {"command": "make"}}]});
    let dir = TestDir::npc_team(&json!([call("shell"), {"text": "Done."}, call("shell")]));
    dir.write("team/house.ctx", "name: house\nforenpc: corca\npermissions:\n  shell:make: deny\n");
    dir.write("team/clerk.npc", "name: clerk\nprimary_directive: You are clerk.\njinxes: [shell, read_*]\n");
    dir.write("team/agents.md", "## guest\n\nYou are a guest.\n");
    let served = dir.serve(&[]);
    let shell = json!({"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}});
    let ask = |npc: &str, more: Value| {
        let mut body = json!({"model": npc, "tools": [tool(), shell]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.ask(body)
    };
    // A rule about arguments is applied to the call; nothing was run here.
    let (status, body) = ask("clerk", json!({}));
    assert_eq!((status, &body["error"]["code"]), (422, &json!("denied")), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("house.ctx:4 denies it"), "{body}");
    let call = json!({"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a.txt\"}"}});
    let history = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "seven"}]);
    let (status, body) = ask("guest", json!({"messages": history}));
    assert_eq!((status, &message(&body)["content"]), (200, &json!("Done.")), "{body}");
    // Without tools, such a history can't come from an NPC that works with its own.
    let (status, body) = served.ask(json!({"model": "clerk", "messages": history}));
    assert!(status == 400 && body["error"]["param"] == "messages", "{body}");
    let (status, body) = ask("sage", json!({"tool_choice": "required"}));
    assert!(
        status == 400 && body["error"]["message"].as_str().unwrap().contains("not on the list of sage"),
        "{body}"
    );
}

#[test]
fn serve_asks_nobody() {
    let call = json!({"calls": [{"name": "shell", "arguments": {"command": "echo ran > ran"}}]});
    let check = |arguments: &[&str], ran: bool| {
        let dir = TestDir::npc_team(&json!([call, {"text": "Done."}]));
        dir.write("team/house.ctx", "name: house\nforenpc: corca\npermissions:\n  shell: ask\n");
        let served = dir.serve(arguments);
        let body = served.answer(json!({"model": "corca"}));
        assert_eq!(body["alara"]["calls"], json!([{"name": "shell", "ok": ran}]), "{body}");
        assert_eq!(served.dir.path("work/ran").exists(), ran);
    };
    check(&[], false);
    check(&["--yes"], true);
}

#[test]
fn serve_asks_a_client_that_takes_questions_before_a_file_is_lost() {
    let call = json!({"calls": [{"name": "shell", "arguments": {"command": "echo new > kept"}}]});
    for (answer, content) in [("yes", "new\n"), ("no", "old\n")] {
        let dir = TestDir::npc_team(&json!([call, {"text": "Done."}]));
        dir.write("work/kept", "old\n");
        let served = dir.serve(&[]);
        let messages = json!([{"role": "user", "content": "hi"}]);
        let key = served.shown["page"].as_str().unwrap().split('#').nth(1).unwrap();
        let alara = json!({"events": true, "ask": true, "key": key});
        let body =
            json!({"model": "corca", "stream": true, "alara": alara, "messages": messages}).to_string();
        let mut client = served.connect();
        let length = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        client.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut lines = BufReader::new(client).lines().map(Result::unwrap);
        let question = lines.find_map(|line| {
            let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
            event["alara"].get("question").cloned()
        });
        let question = question.unwrap();
        assert_eq!(question["title"], "corca calls shell:", "{question}");
        let reply = json!({"id": question["id"], "answer": answer}).to_string();
        let response = agent().post(format!("{}/alara/answers", served.url)).send(&reply).unwrap();
        assert_eq!(response.status().as_u16(), 200);
        let rest: String = lines.collect();
        assert!(rest.contains("Done."), "{rest}");
        assert_eq!(std::fs::read_to_string(served.dir.path("work/kept")).unwrap(), content);
    }
}

#[test]
fn serve_tells_what_an_agent_could_not_do() {
    let same = json!({"calls": [{"name": "shell", "arguments": {"command": "true"}}]});
    let served = TestDir::npc_team(&json!([same, same, same, same, same])).serve(&[]);
    let (status, body) = served.ask(json!({"model": "corca"}));
    // A status that doesn't make any client retry the work.
    assert_eq!((status, &body["error"]["code"]), (422, &json!("repetition")), "{body}");
    // Its text is a truncated answer.
    let same = json!({"text": "I try.", "calls": [{"name": "shell", "arguments": {"command": "true"}}]});
    let served = TestDir::npc_team(&json!([same, same, same, same, same])).serve(&[]);
    let body = served.answer(json!({"model": "corca"}));
    let choice = &body["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("I try."), &json!("length"))
    );
    assert_eq!(body["alara"]["finish"], "repetition", "{body}");
}

#[test]
fn context_files_are_read_and_hooks_run_for_npcs_of_a_server() {
    let read = |arguments: &[&str]| {
        let dir = TestDir::npc_team(&json!([{"text": "Hello."}]));
        dir.write("work/AGENTS.md", "Use tabs.\n");
        dir.write("team/house.ctx", "name: house\nforenpc: corca\nhooks: {start: recall, end: recall}\n");
        let served = dir.serve(arguments);
        assert_eq!(message(&served.answer(json!({"model": "sage"})))["content"], "Hello.");
        let traces = served.dir.traces();
        let places: Vec<&str> =
            ["start.recall", "end.recall"].into_iter().filter(|place| traces[0].contains(place)).collect();
        assert_eq!(places, ["start.recall", "end.recall"]);
        traces[0].contains("Use tabs.")
    };
    assert!(read(&["--context-files"]));
    // Only if they were requested.
    assert!(!read(&[]));
}
