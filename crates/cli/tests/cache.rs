//! The prefix cache from outside: warmed, listed, used by the next process, cleared.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

struct TestDir(tempfile::TempDir);

impl TestDir {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::alara();
        command.args(arguments).current_dir(self.0.path()).env("COLUMNS", "110");
        command.env_remove("ALARA_CACHE").env("XDG_CACHE_HOME", self.0.path().join("cache"));
        command.env("XDG_STATE_HOME", self.0.path().join("state"));
        command
    }

    fn alara(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.alara(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn what_was_warmed_is_there_for_the_next_process() {
    let dir = TestDir(tempfile::tempdir().unwrap());
    assert_eq!(dir.json(&["cache", "list"])["entries"].as_array().unwrap().len(), 0);
    let first = dir.json(&["warm"]);
    let number = |npc: &Value, key: &str| npc[key].as_u64().unwrap();
    let npcs = first.as_array().unwrap();
    assert!(npcs.len() > 2 && npcs.iter().all(|npc| number(npc, "disk_tokens") == 0), "{first}");
    let listed = dir.json(&["cache", "list"]);
    let entries = listed["entries"].as_array().unwrap();
    assert!(entries.len() >= npcs.len(), "{listed}");
    assert!(entries.iter().all(|entry| entry["model"].as_str().unwrap().contains("alara-tiny")), "{listed}");
    assert!(listed["bytes"].as_u64() < listed["limit"].as_u64());
    // Only the part after the static prefix is computed again.
    for npc in dir.json(&["warm"]).as_array().unwrap() {
        let found = number(npc, "disk_tokens") + number(npc, "memory_tokens");
        assert!(found + 40 > number(npc, "tokens"), "{npc}");
    }
    let run = dir.alara(&["run", "--yes", "--workdir", ".", "count the files"]);
    let message = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(message.contains("of them from disk"), "{message}");
    // If it is switched off or elsewhere, it isn't seen.
    let off = dir.alara(&["warm", "--cache", "off"]);
    assert_eq!(off.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&off.stderr).contains("hint: name its folder with --cache"));
    assert!(dir.json(&["cache", "list", "--cache", "elsewhere"])["entries"].as_array().unwrap().is_empty());
    let listed = dir.json(&["cache", "list"])["entries"].as_array().unwrap().len();
    let cleared = dir.json(&["cache", "clear"]);
    assert_eq!(cleared["files"].as_u64().unwrap() as usize, listed);
    assert!(dir.json(&["cache", "list"])["entries"].as_array().unwrap().is_empty());
}

/// The common prefix of clients' requests is in the server's cache, whatever their wire format.
#[test]
fn what_a_request_begins_with_can_be_warmed() {
    let dir = TestDir(tempfile::tempdir().unwrap());
    let rules: Vec<String> = (0..40).map(|rule| format!("Rule {rule}: leave house {rule} alone.")).collect();
    let rules = rules.join("\n");
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let about = "Return the text of a file";
    let said = json!([{"role": "user", "content": "what is in a.txt?"}]);
    let header = |hash: &str| format!("x-anthropic-billing-header: cc_version=2.1.36; cch={hash};");
    let anthropic = |hash: &str, said: &str| {
        json!({
            "max_tokens": 5, "system": [{"type": "text", "text": header(hash)}, {"type": "text", "text": rules}],
            "messages": [{"role": "user", "content": said}],
            "tools": [{"name": "read_file", "description": about, "input_schema": parameters}],
        })
    };
    let function = json!({"name": "read_file", "description": about, "parameters": parameters});
    let openai = json!({
        "messages": [{"role": "system", "content": rules}, said[0]],
        "tools": [{"type": "function", "function": function}],
    });
    let warm = |name: &str, body: &Value| {
        std::fs::write(dir.0.path().join(name), body.to_string()).unwrap();
        let told = dir.json(&["warm", "--request", name]);
        assert_eq!((&told[0]["request"], told.as_array().unwrap().len()), (&json!(name), 1), "{told}");
        let number = |key: &str| told[0][key].as_u64().unwrap();
        (number("tokens"), number("disk_tokens"))
    };
    let (tokens, from_disk) = warm("anthropic.json", &anthropic("00001", "hi"));
    assert!(tokens > 300 && from_disk == 0, "{tokens} {from_disk}");
    // Conversation, billing header and wire format don't affect the cached part.
    for (name, body) in [("again.json", anthropic("00002", "Something else.")), ("openai.json", openai)] {
        let (tokens, from_disk) = warm(name, &body);
        assert!(from_disk + 40 > tokens, "{name}: {from_disk} of {tokens}");
    }
    std::fs::write(dir.0.path().join("no.json"), "{\"prompt\": \"x\"}").unwrap();
    let output = dir.alara(&["warm", "--request", "no.json"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("no.json is no request") && message.contains("neither `messages`"), "{message}");
}

#[test]
fn two_processes_share_a_folder() {
    let dir = TestDir(tempfile::tempdir().unwrap());
    let warm = || dir.command(&["warm"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let both = [warm(), warm()];
    // Another process clears the cache meanwhile.
    assert!(dir.alara(&["cache", "clear"]).status.success());
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    dir.json(&["warm"]);
    for npc in dir.json(&["warm"]).as_array().unwrap() {
        let found = npc["disk_tokens"].as_u64().unwrap() + npc["memory_tokens"].as_u64().unwrap();
        assert!(found + 40 > npc["tokens"].as_u64().unwrap(), "{npc}");
    }
    let left = std::fs::read_dir(dir.0.path().join("cache/alara/prefix")).unwrap();
    assert!(left.flatten().all(|entry| entry.path().extension().is_some_and(|ending| ending == "kv")));
}

#[test]
fn memory_for_keys_and_values_is_bounded() {
    let dir = TestDir(tempfile::tempdir().unwrap());
    let run = |size: &str| {
        dir.alara(&["run", "--yes", "--workdir", ".", "--cache", "off", "--kv-size", size, "count the files"])
    };
    let message = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let output = run("0.5");
    assert!(message(&output).contains("prompt tokens"), "{}", message(&output));
    let output = run("0.0005");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(message(&output).contains("not enough for this request"), "{}", message(&output));
    assert!(
        message(&output).contains("hint: --kv-size gives keys and values more memory"),
        "{}",
        message(&output)
    );
    assert!(message(&run("much")).contains("a number of GB is wanted"));
}
