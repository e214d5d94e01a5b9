//! `alara search`: passages in a folder, skipped files, and the stored index.

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, text};

#[test]
fn search_finds_passages_and_tells_what_is_left_out() {
    let dir = TestDir::with(&json!([]));
    dir.write("docs/cards.md", "# Cards\n## Lost\nBlock a lost card.\n## Fees\nNone.\n");
    dir.write("docs/bad.json", "{");
    let search = |arguments: &[&str]| {
        let all: Vec<&str> = ["search", "docs"].iter().chain(arguments).copied().collect();
        let cache = dir.path("cache");
        let output = dir.alara(&all).current_dir(dir.path("")).env("XDG_CACHE_HOME", cache).output().unwrap();
        (code(&output), text(&output.stdout), text(&output.stderr))
    };
    let (code, found, told) = search(&["lost", "cards"]);
    assert_eq!(code, 0, "{told}");
    assert!(found.starts_with("cards#lost (") && found.contains("## Lost Block a lost card."), "{found}");
    assert!(told.contains("bad.json: it is no JSON: "), "{told}");
    // Again, from the stored index.
    assert_eq!(std::fs::read_dir(dir.path("cache/alara/knowledge")).unwrap().count(), 1);
    assert_eq!(search(&["lost", "cards"]), (code, found, told));
    let found: Value = serde_json::from_str(&search(&["fees", "--json", "-k", "1"]).1).unwrap();
    assert_eq!((&found[0]["id"], found.as_array().unwrap().len()), (&json!("cards#fees"), 1));
    assert_eq!(search(&["zebra"]).0, 1);
    // One of two required documents exists.
    dir.write(
        "queries.jsonl",
        "{\"query\": \"lost\", \"documents\": [\"cards\", \"x\"]}\n\n{\"query\": \"zebra\", \"documents\": [\"cards\"]}\n",
    );
    assert_eq!(search(&["--queries", "queries.jsonl", "-k", "3"]).1, "recall@1 0.250\nrecall@3 0.250\n");
    let found = search(&["--queries", "queries.jsonl", "-k", "2", "--json"]).1;
    assert_eq!(found, "{\"queries\":2,\"recall\":{\"1\":0.25,\"2\":0.25}}\n");
    dir.write("queries.jsonl", "{\"query\": \"lost\", \"documents\": []}\n");
    let (code, _, told) = search(&["--queries", "queries.jsonl"]);
    assert!(code == 2 && told.contains("queries.jsonl, line 1: `documents` is empty"), "{told}");
    // Vectors need a model, and the error names one to download.
    let (code, _, told) = search(&["lost", "--retrieval", "embedding"]);
    assert!(code == 2 && told.contains("hint: alara models pull all-minilm-l6-v2"), "{told}");
    assert_eq!(search(&["x", "--retrieval", "golden"]).0, 2);
}
