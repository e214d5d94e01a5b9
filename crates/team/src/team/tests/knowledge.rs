//! `knowledge` of a team and of an NPC.

use super::*;
use crate::knowledge::Retrieval;

const DOCUMENT: (&str, &str) = ("docs/a.md", "# A\n");

#[test]
fn an_npc_has_the_teams_knowledge_unless_it_has_its_own() {
    let own = format!("{NPC}knowledge: {{folder: more, retrieval: hybrid, k: 3, model: m}}\n");
    let team = clean(&[
        ("team.ctx", "forenpc: w\nknowledge: {folder: docs}\n"),
        ("w.npc", &own),
        ("v.npc", &NPC.replace("name: w", "name: v")),
        ("more/b.md", "# B\n"),
        DOCUMENT,
    ]);
    let all = team.knowledge.clone().unwrap();
    assert_eq!((all.retrieval, all.k, all.folder.ends_with("docs")), (Retrieval::Bm25, 10, true));
    assert_eq!(npc(&team, "v").knowledge, Some(all));
    let own = npc(&team, "w").knowledge.clone().unwrap();
    assert_eq!((own.retrieval, own.k, own.model.as_str()), (Retrieval::Hybrid, 3, "m"));
    assert!(own.folder.ends_with("more") && !team.values.contains_key("knowledge"));
}

#[test]
fn knowledge_that_cant_be_used_is_told() {
    let check = |knowledge: &str, expected: &[&str]| {
        let ctx = format!("forenpc: w\nknowledge: {knowledge}\n");
        says(&[("team.ctx", &ctx), ("w.npc", NPC), DOCUMENT], expected);
    };
    check("{folder: docs, retrieval: golden, k: 1}", &[]);
    check("{folder: nowhere}", &["team.ctx:2:13: error: there is no folder nowhere"]);
    for outside in ["../docs", "/etc", "docs/../../x"] {
        let error = format!(
            "team.ctx:2:13: error: the documents must lie in the team's folder, but `{outside}` does not"
        );
        check(&format!("{{folder: {outside}}}"), &[&error]);
    }
    check(
        "{folder: docs, retrieval: bm52}",
        &[
            "team.ctx:2:27: error: there is no retrieval `bm52` (known: none, golden, bm25, embedding, hybrid); nothing of `knowledge` is used",
        ],
    );
    check("{folder: docs, k: 0}", &["team.ctx:2:30: error: `k` is a number from 1 to 1000, not 0"]);
    check("{folder: docs, kk: 1}", &["team.ctx:2:27: warning: unknown key `kk`, did you mean `k`?"]);
}
