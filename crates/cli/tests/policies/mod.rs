//! Gates and phases from outside: the stock teams that have them are run, checked and tested.

mod kill;

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text};

const ORDERS: &str =
    r#"{"7": {"status": "shipped", "total": 59.9}, "8": {"status": "pending", "total": 20}}"#;

/// The stock team's clerk, whose model makes these calls and then says "Done.".
fn shop(calls: &[Value]) -> TestDir {
    let turns = calls.iter().map(|call| json!({"calls": [call]}));
    let dir = TestDir::with(&turns.chain([json!({"text": "Done."})]).collect());
    dir.write("work/orders.json", ORDERS);
    dir
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// Returns the exit code, and all output except the answer.
fn run(dir: &TestDir, team: &str, more: &[&str]) -> (i32, String) {
    let fixed =
        ["run", "-t", team, "-m", "script:script.json", "--workdir", "work", "--trace", "trace.jsonl"];
    let output = dir.alara(&[&fixed[..], more, &["Cancel my order."]].concat()).output().unwrap();
    (code(&output), text(&output.stderr))
}

/// Returns the exit code and all output.
fn printed(dir: &TestDir, arguments: &[&str]) -> (i32, String) {
    let output = dir.alara(arguments).output().unwrap();
    (code(&output), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn an_order_that_was_shipped_is_handed_over() {
    if !sandboxed("an_order_that_was_shipped_is_handed_over") {
        return;
    }
    let dir = shop(&[
        call("get_order", json!({"id": "7"})),
        call("cancel_order", json!({"id": "7", "refund": 59.9})),
        call("escalate", json!({"id": "7", "summary": "wants to cancel"})),
    ]);
    let (code, shown) = run(&dir, "shop", &[]);
    assert_eq!(code, 0, "{shown}");
    for expected in [
        "> get_order  id: 7  ok, ",
        "> cancel_order  id: 7  refund: 59.9  blocked by the rule `cancel_order`, ",
        " s: the order is shipped; that requires a manager's approval\n",
        "> escalate  id: 7  summary: wants to cancel  ok, ",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    assert_eq!(std::fs::read_to_string(dir.path("work/orders.json")).unwrap(), ORDERS);
    let escalations = std::fs::read_to_string(dir.path("work/escalations.jsonl")).unwrap();
    assert_eq!(escalations, "{\"id\": \"7\", \"summary\": \"wants to cancel\"}\n");
    let trace = dir.trace();
    let blocked = trace.iter().find(|record| record["result"]["blocked"].is_object()).unwrap();
    assert_eq!(
        blocked["text"],
        r#"{"ok":false,"blocked":true,"rule":"cancel_order","reason":"the order is shipped; that requires a manager's approval","facts":{"orders.7.status":"shipped"},"unknown":[]}"#
    );
    let (code, shown) = printed(&dir, &["trace", "show", "trace.jsonl"]);
    assert_eq!(code, 0, "{shown}");
    for expected in [
        "  shop.gate: orders.7 is {\"status\":\"shipped\",\"total\":59.9}\n",
        "  cancel_order is denied by the rule `cancel_order` of shop.gate\n",
        "  escalate is allowed by shop.gate\n",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    let (code, shown) = printed(&dir, &["trace", "replay", "trace.jsonl"]);
    assert!(code == 0 && shown.contains("the same: "), "{shown}");
}

#[test]
fn an_order_that_waits_is_cancelled_once_it_was_read() {
    if !sandboxed("an_order_that_waits_is_cancelled_once_it_was_read") {
        return;
    }
    let cancel = |refund: f64| call("cancel_order", json!({"id": "8", "refund": refund}));
    let read = call("get_order", json!({"id": "8"}));
    let dir = shop(&[cancel(20.0), read.clone(), cancel(20.5), cancel(20.0), cancel(20.0), read]);
    let (code, shown) = run(&dir, "shop", &["--yes"]);
    // The last change was refused.
    assert_eq!(code, 1, "{shown}");
    let results: Vec<Value> =
        dir.trace().into_iter().filter(|record| record["record"] == "tool_result").collect();
    let told: Vec<&str> = results
        .iter()
        .map(|record| record["result"]["blocked"]["reason"].as_str().unwrap_or("done"))
        .collect();
    assert_eq!(
        told,
        [
            "`orders.8.status` is not known yet: call get_order(id=8) first",
            "done",
            "a refund is from 0 to 20, which is what was paid",
            "done",
            "`orders.8.status` is not known, it may have changed since it was read: call get_order(id=8) first",
            "done",
        ]
    );
    let orders: Value =
        serde_json::from_slice(&std::fs::read(dir.path("work/orders.json")).unwrap()).unwrap();
    assert_eq!(orders["8"], json!({"status": "cancelled", "total": 20, "refund": 20.0}));
}

#[test]
fn the_jinxes_of_the_shop_say_what_they_lack() {
    if !sandboxed("the_jinxes_of_the_shop_say_what_they_lack") {
        return;
    }
    let dir = TestDir::calling(&[]);
    let jinx = crate::root().join("teams/shop/jinxes/get_order.jinx");
    let arguments = ["run", jinx.to_str().unwrap(), "--workdir", "work", "id=7"];
    let (code, shown) = printed(&dir, &arguments);
    let remedy = r#"there is no orders.json in the work directory: write one, such as {"7": {"status": "pending", "total": 12.5}}"#;
    assert!(code == 1 && shown.contains(remedy), "{shown}");
    // Values are data, whatever they look like.
    dir.write("work/orders.json", ORDERS);
    let odd = "id=7\"]; open('x', 'w'); [\"";
    let (code, shown) = printed(&dir, &[&arguments[..4], &[odd]].concat());
    assert!(code == 1 && shown.contains("there is no order 7\"]; open('x', 'w'); [\": ask"), "{shown}");
    assert!(!dir.path("work/x").exists());
}

#[test]
fn the_cases_of_a_gate_are_tried() {
    let dir = TestDir::calling(&[]);
    let gate = std::fs::read_to_string(crate::root().join("teams/shop/shop.gate")).unwrap();
    dir.write("shop.gate", &gate);
    let (code, shown) = printed(&dir, &["gate", "test", "shop.gate"]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.starts_with("shop.gate:23: ok: what waits is cancelled\n"), "{shown}");
    assert!(shown.ends_with("7 cases, 0 failed\n"), "{shown}");
    let json = |file: &str| {
        let output = dir.alara(&["gate", "test", file, "--json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), report)
    };
    let (code, report) = json("shop.gate");
    assert_eq!((code, report.as_array().unwrap().len()), (0, 7));
    assert_eq!(report[1], json!({"name": "what was shipped is not", "line": 27, "column": 5, "wrong": null}));
    // A rule that is less strict than its cases.
    dir.write("loose.gate", &gate.replace("status == 'pending'", "status != 'lost'"));
    let (code, shown) = printed(&dir, &["gate", "test", "loose.gate"]);
    assert_eq!(code, 1, "{shown}");
    let failed = "loose.gate:27: failed: what was shipped is not: the call is allowed\n";
    assert!(shown.contains(failed) && shown.ends_with("7 cases, 1 failed\n"), "{shown}");
    let (code, report) = json("loose.gate");
    assert_eq!(
        (code, &report[1]["wrong"], &report[2]["wrong"]),
        (1, &json!("the call is allowed"), &Value::Null)
    );
    // A gate that can't be read, and one without cases.
    dir.write("broken.gate", &gate.replace("need: \"orders", "when: \"orders"));
    let (code, shown) = printed(&dir, &["gate", "test", "broken.gate"]);
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("broken.gate:9:5: error: unknown key `when`, did you mean `need`?\n"), "{shown}");
    dir.write("bare.gate", gate.split_once("cases:").unwrap().0);
    let (code, shown) = printed(&dir, &["gate", "test", "bare.gate"]);
    assert!(code == 2 && shown.contains("bare.gate has no `cases` to run"), "{shown}");
}

#[test]
fn the_stock_teams_with_policies_are_in_order() {
    let dir = TestDir::calling(&[]);
    for team in ["bank", "shop"] {
        assert_eq!(printed(&dir, &["check", team, "--strict"]), (0, "no problems\n".to_owned()), "{team}");
    }
    let (code, shown) = printed(&dir, &["run", "-t", "shpo", "x"]);
    let known = "there is no team `shpo`, did you mean `shop`? (known: alara, bank, review, shop)";
    assert!(code == 2 && shown.contains(known), "{shown}");
    let output = dir.alara(&["check", "shop", "--compiled"]).output().unwrap();
    let compiled: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(compiled["npcs"][0]["jinxes"], json!(["get_order", "cancel_order", "escalate"]));
}

#[test]
fn whoever_is_bound_by_a_gate_that_can_not_be_used_does_not_run() {
    let dir = shop(&[]);
    for (name, content) in walk(&crate::root().join("teams/shop")) {
        dir.write(&format!("mine/{name}"), &content);
    }
    assert_eq!(printed(&dir, &["check", "mine", "--strict"]), (0, "no problems\n".to_owned()));
    let gate = std::fs::read_to_string(dir.path("mine/shop.gate")).unwrap();
    let check = |from: &str, to: &str, expected: &str| {
        dir.write("mine/shop.gate", &gate.replacen(from, to, 1));
        let (code, shown) = printed(&dir, &["check", "mine"]);
        assert!(code == 1 && shown.contains(expected), "{expected}: {shown}");
        let (code, shown) = run(&dir, "./mine", &[]);
        let (_, message) = expected.split_once(": error: ").unwrap();
        assert!(code == 2 && shown.contains(message), "{message}: {shown}");
        assert_eq!(std::fs::read_to_string(dir.path("trace.jsonl")).unwrap_or_default(), "");
        let _ = std::fs::remove_file(dir.path("trace.jsonl"));
    };
    check(
        "status == 'pending'",
        "status = 'pending'",
        "mine/shop.gate:9:11: error: `need`: `=` compares nothing: it is `==`",
    );
    check(
        "tools: cancel_order",
        "tools: cancel_ordre",
        "mine/shop.gate:15:5: error: there is no tool `cancel_ordre`, did you mean `cancel_order`?",
    );
    check(
        "<= orders[args.id].total",
        "<= orders[args.id].status",
        "mine/shop.gate:15:5: error: `need`: `args.refund <= orders[args.id].status` compares a number with a text",
    );
}

/// Returns the files below a folder, with their relative paths and contents.
fn walk(folder: &std::path::Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        match entry.path().is_dir() {
            true => found
                .extend(walk(&entry.path()).into_iter().map(|(path, text)| (format!("{name}/{path}"), text))),
            false => found.push((name, std::fs::read_to_string(entry.path()).unwrap())),
        }
    }
    found
}
