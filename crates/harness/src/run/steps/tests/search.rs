//! Steps that search documents.

use super::*;
use crate::jinx::Action;
use crate::knowledge::Knowledge;

const LIST: &str =
    "[{id: o, title: Owls, text: Owls hunt at night.}, {title: Bees, url: b, text: Bees dance.}]";

#[test]
fn a_list_of_documents_is_searched() {
    let search =
        |more: &str| format!("steps:\n- {{engine: search, query: do owls dance, in: {LIST}{more}}}\n");
    let gives = |more: &str, value: &str, expected: &str| {
        let expected = json!({"ok": true, "output": expected});
        check(&format!("{}- return: \"{{{{ {value} }}}}\"\n", search(more)), &expected.to_string());
    };
    let ids = "output | map(attribute='id') | join(' ')";
    // Owls are in the title, too.
    gives("", ids, "o document-2");
    gives(", k: 1", ids, "o");
    gives(", k: -1", ids, "");
    gives(", least: 0.9", ids, "");
    gives(", whole: true", "output[1].url ~ ' ' ~ output[1].text", "b Bees dance.");
}

#[test]
fn what_cant_be_searched_is_told() {
    let failing = |key: &str, reason: &str| {
        let jinx = format!("jinx_name: tried\nsteps:\n- {{engine: search, query: x{key}}}\n");
        let result = play(team(&[&jinx]), &json!({}), &Scripted::default(), 1).result;
        assert!(!result.ok && result.error.contains(reason), "{key}: {}", result.error);
    };
    failing("", "there are no documents to search: `knowledge: {folder: …}`");
    failing(", in: none", "there is no folder none to search");
    failing(", in: /", "/ is not in the work directory");
    failing(", in: [1]", "`in` is a folder, or a list of documents");
    failing(", k: much", "`k` is a number, not \"much\"");
}

#[test]
fn a_jinx_named_search_is_called_as_before() {
    for keys in ["with: {query: x}", "query: x, provider: y"] {
        let jinx = read(&format!("jinx_name: tried\nsteps:\n- {{engine: search, {keys}}}\n"));
        assert!(matches!(&jinx.steps[0].action, Action::Call { jinx, .. } if jinx == "search"), "{keys}");
    }
}

#[test]
fn kb_search_finds_passages_of_the_teams_documents() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cards.md"), "# Cards\n## Lost\nBlock a lost card.\n## Fees\nNone.\n")
        .unwrap();
    let find = |query: &str, retrieval| {
        let jinx = "jinx_name: tried\ninputs: [query]\nsteps:\n- {engine: kb_search, query: '{{ query }}'}\n";
        let mut team = team(&[jinx]);
        team.knowledge = Some(Knowledge { retrieval, ..Knowledge::of(folder.path().to_owned()) });
        play(team, &json!({"query": query}), &Scripted::default(), 1).result
    };
    let found = find("my card is lost", Default::default()).output;
    assert_eq!(found[0]["id"], "cards#lost");
    assert_eq!(found[0]["document"], "cards");
    assert_eq!(found[0]["text"], "## Lost\nBlock a lost card.");
    assert_eq!(find("zebra", Default::default()).output, "nothing found");
    let error = find("card", crate::knowledge::Retrieval::Golden).error;
    assert!(error.contains("the documents that are needed are in the prompt"), "{error}");
    // The scripted model makes no vectors.
    let error = find("card", crate::knowledge::Retrieval::Hybrid).error;
    assert!(error.contains("makes no vectors here"), "{error}");
}
