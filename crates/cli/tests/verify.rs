//! `alara models verify` and the estimates of `alara models show`.

use std::process::Output;

use serde_json::Value;

fn alara(arguments: &[&str]) -> Output {
    crate::alara().args(arguments).output().unwrap()
}

fn fixture(case: &str) -> String {
    format!("{}/tests/fixtures/arch/{case}/model.gguf", crate::root().display())
}

/// Returns exit code and report of a verification.
fn verified(model: Option<&str>) -> (i32, Value) {
    let mut arguments = vec!["models", "verify", "--json"];
    arguments.extend(model);
    let output = alara(&arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).expect(&error))
}

fn outcome<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap();
    (check["outcome"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

#[test]
fn the_model_that_ships_passes() {
    let (code, report) = verified(None);
    assert_eq!((code, &report["passed"]), (0, &Value::Bool(true)), "{report:#}");
    for name in ["tensors", "tokenizer", "template", "continuation", "tool call"] {
        assert_eq!(outcome(&report, name).0, "ok", "{report:#}");
    }
    // It was trained only on tasks.
    let (outcome, detail) = outcome(&report, "perplexity");
    assert!(outcome == "skipped" && detail.contains("logits are finite"), "{detail}");
    let output = alara(&["models", "verify"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.lines().count() == 7, "{text}");
    assert!(text.contains("ok       tensors"), "{text}");
}

#[test]
fn random_weights_fail() {
    let (code, report) = verified(Some(&fixture("qwen3-exact")));
    assert_eq!(code, 1, "{report:#}");
    let (found, detail) = outcome(&report, "perplexity");
    assert!(found == "failed" && detail.contains("random weights give 512"), "{detail}");
    // It has no chat template, so its family's is used.
    // With a grammar, even random weights make valid calls.
    assert!(outcome(&report, "template").1.contains("built-in"), "{report:#}");
    assert_eq!(outcome(&report, "tool call").0, "ok", "{report:#}");
    assert_eq!(outcome(&report, "tensors").0, "ok", "{report:#}");
    assert_eq!(outcome(&report, "continuation").0, "ok", "{report:#}");
}

#[test]
fn a_file_that_is_not_what_its_name_says_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("sha256-{}", "0".repeat(64)));
    std::fs::copy(fixture("qwen3-exact"), &path).unwrap();
    let (code, report) = verified(path.to_str());
    assert_eq!(code, 1);
    let (outcome, detail) = outcome(&report, "checksum");
    assert!(outcome == "failed" && detail.contains("download the file again"), "{detail}");
}

#[test]
fn memory_is_foretold() {
    let shown = |arguments: &[&str]| -> Value {
        let model = fixture("qwen35moe-fused-gate-up-exact");
        let output = alara(&[&["models", "show", "--json", &model], arguments].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let one = &shown(&["--context", "64"])["memory"];
    let two = &shown(&["--ctx", "128", "--kv", "f32"])["memory"];
    let bytes = |memory: &Value, part: &str| memory[part].as_u64().unwrap();
    assert_eq!(bytes(two, "kv"), 4 * bytes(one, "kv"));
    assert_eq!(bytes(two, "state"), bytes(one, "state"));
    assert!(bytes(one, "state") > 0);
    let parts = ["weights", "kv", "state", "working"].map(|part| bytes(one, part));
    assert_eq!(bytes(one, "total"), parts.iter().sum::<u64>());
}
