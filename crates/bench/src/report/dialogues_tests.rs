use alara_harness::knowledge::Retrieval;

use super::tests::{facts, run};
use super::*;
use crate::dialogue::Measures;
use crate::price::Price;
use crate::record::Verdict;

/// Creates a run of dialogues under a policy: which of two tasks were rewarded, and the measures of
/// each.
fn dialogues(policy: &str, gate: bool, trial: u32, rewarded: [u32; 2], measures: &Measures) -> RunSource {
    let condition = format!("{policy}-{}", if gate { "on" } else { "off" });
    let mut source = run("small", &condition, trial, &[("a-1", rewarded[0]), ("a-2", rewarded[1])]);
    let header = &mut source.run.header;
    header.npc = policy.into();
    header.gate = Some(gate);
    header.retrieval = Some(Retrieval::Golden);
    header.price = Some(Price { input: 2.0, cached: 0.5, output: 10.0 });
    // A dialogue has a single attempt.
    source.run.attempts.retain(|attempt| attempt.attempt == 1);
    for (attempt, end) in source.run.attempts.iter_mut().zip(&mut source.run.finished) {
        end.attempts = 1;
        let reward = end.verdict == Verdict::Solved;
        attempt.dialogue = Some(Box::new(Measures { reward, database: reward, ..measures.clone() }));
    }
    source
}

fn measures() -> Measures {
    Measures {
        user_database: true,
        actions: 4,
        actions_made: 3,
        writes: 5,
        gold_writes: 4,
        writes_matched: 2,
        writes_run: 5,
        writes_early: Some(0),
        turns: 10,
        tokens_in: 1000,
        tokens_cached: 600,
        tokens_out: 100,
        seconds: 3.0,
        documents: 2,
        ..Measures::default()
    }
}

fn sources() -> Vec<RunSource> {
    let rash = Measures {
        writes: 3,
        writes_matched: 3,
        writes_early: Some(1),
        over_retries: 2,
        blocks_right: 1,
        ..measures()
    };
    vec![
        dialogues("baseline", false, 1, [1, 0], &rash),
        dialogues("baseline", false, 2, [0, 0], &measures()),
        dialogues("baseline", true, 1, [1, 1], &measures()),
        dialogues("baseline", true, 2, [1, 0], &measures()),
        dialogues("imperative", false, 1, [1, 1], &measures()),
        dialogues("imperative", false, 2, [1, 1], &measures()),
        dialogues("imperative", true, 1, [1, 1], &measures()),
        dialogues("imperative", true, 2, [1, 1], &measures()),
    ]
}

fn section(sources: &[RunSource]) -> Section {
    let report = report(sources, facts).unwrap();
    report.sections.into_iter().find(|section| section.id == "dialogues").unwrap()
}

/// Returns the cell of a row in the table that has this column.
fn cell(section: &Section, row: &str, column: &str) -> String {
    let has = |table: &&Table| table.columns.iter().any(|known| known.name == column);
    let table = section.tables.iter().find(has).unwrap_or_else(|| panic!("no column {column}"));
    let at = table.columns.iter().position(|known| known.name == column).unwrap();
    let row = table.rows.iter().find(|cells| cells[0].text.contains(row)).unwrap();
    row[at].text.clone()
}

#[test]
fn measures_are_added_up_before_they_are_divided() {
    let section = section(&sources());
    let check = |row: &str, column: &str, expected: &str| {
        assert_eq!(cell(&section, row, column), expected, "{row}, {column}");
    };
    let rash = "baseline-off";
    check(rash, "dialogues", "4");
    // One of two trials of the first task, none of the second.
    check(rash, "pass^1, %", "25.0");
    check(rash, "pass^2, %", "0.0");
    check("baseline-on", "pass^1, %", "75.0");
    check("baseline-on", "pass^2, %", "50.0");
    check(rash, "database match, %", "25.0");
    check(rash, "user's database match, %", "100.0");
    check(rash, "required actions made, %", "75.0");
    // (3 + 3 + 2 + 2) of (3 + 3 + 5 + 5), and of 4 · 4: not the mean of the quotients.
    check(rash, "right of those issued, %", "62.5");
    check(rash, "right of those of gold, %", "62.5");
    check("baseline-on", "right of those issued, %", "40.0");
    check("baseline-on", "right of those of gold, %", "50.0");
    check(rash, "with an unauthorized write, %", "50.0");
    check(rash, "writes before verification, %", "10.0");
    check(rash, "with an over-retry, %", "50.0");
    check(rash, "turns", "10.0");
    check(rash, "blocks, right", "0.50");
    // (400 · 2 + 600 · 0.5 + 100 · 10) / 10⁶.
    check(rash, "cost", "0.0021");
    check(rash, "cost a rewarded one", "0.0084");
    check(rash, "seconds", "3.0");
    // Documents in the prompt aren't searched for.
    check(rash, "recall@1, %", "–");
}

#[test]
fn published_numbers_stand_beside_those_of_the_same_policy_and_retrieval() {
    let section = section(&sources());
    // (12.6 + 8.2 + 28.1 + 37.9 + 46.2) / 5 and (5.6 + 3.1 + 14.7 + 34.4 + 20.0) / 5.
    assert_eq!(cell(&section, "baseline-off", "published reward, %"), "26.6");
    assert_eq!(cell(&section, "imperative-on", "published reward, %"), "15.6");
    assert_eq!(cell(&section, "imperative-on", "published over-retry, %"), "6.7");
    assert_eq!(cell(&section, "DeepSeek Pro", "published declarative, %"), "20.0", "by embedding, the first");
    assert_eq!(cell(&section, "GPT-4.1", "published gain of pass^4, pp"), "–");
    let mut others = sources();
    others.iter_mut().for_each(|source| source.run.header.retrieval = Some(Retrieval::Bm25));
    let section = self::section(&others);
    assert_eq!(cell(&section, "baseline-off", "published reward, %"), "–");
    let text = markdown(&report(&sources(), facts).unwrap());
    assert!(text.contains("*26.6*") && text.contains("arXiv 2606.06923"), "{text}");
}

#[test]
fn errors_count_only_where_it_is_said() {
    let mut sources = sources();
    sources[2].run.finished[0].verdict = Verdict::Error;
    sources[2].run.attempts[0].dialogue = None;
    let section = section(&sources);
    let row = "baseline-on";
    assert_eq!(cell(&section, row, "dialogues"), "3");
    assert_eq!(cell(&section, row, "errors"), "1");
    // One of two trials is rewarded in each task, and one task lacks a trial: 1/1 and 1/2.
    assert_eq!(cell(&section, row, "pass^1, %"), "75.0");
    assert_eq!(cell(&section, row, "pass^2, %"), "–");
    assert_eq!(cell(&section, row, "with errors, %"), "50.0");
}

#[test]
fn factors_are_compared_over_pairs_that_are_alike_otherwise() {
    let section = section(&sources());
    let caption = "Reward by policy, gate and retrieval, compared";
    let table = section.tables.iter().find(|table| table.caption == caption).unwrap();
    let rows: Vec<String> = table
        .rows
        .iter()
        .map(|row| row[..7].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join(" "))
        .collect();
    // Two tasks, each with two trials under two gates, or under two policies.
    assert_eq!(rows, ["policy baseline imperative 2 50.0 100.0 +50.0", "gate off on 2 62.5 87.5 +25.0"]);
}

#[test]
fn the_figure_has_a_series_a_policy() {
    let section = section(&sources());
    let Some(Figure::Points { x, series, .. }) = &section.figure else { panic!("no points") };
    assert_eq!(x.name, "cost of a dialogue");
    let told: Vec<String> = series
        .iter()
        .flat_map(|one| one.points.iter().map(|point| format!("{} {:.4} {:.1}", one.name, point.x, point.y)))
        .collect();
    assert_eq!(
        told,
        [
            "baseline 0.0021 25.0",
            "baseline 0.0021 75.0",
            "imperative 0.0021 100.0",
            "imperative 0.0021 100.0"
        ]
    );
    let mut free = sources();
    free[0].run.header.price = None;
    free[1].run.header.price = None;
    let section = self::section(&free);
    let Some(Figure::Points { x, series, .. }) = &section.figure else { panic!("no points") };
    assert_eq!((x.name.as_str(), series[0].points[0].x), ("tokens of a dialogue, 10³", 1.1));
    assert_eq!(cell(&section, "baseline-off", "cost"), "–");
}

#[test]
fn searched_documents_have_a_recall() {
    let found = |ranks: &[u64]| Measures { ranks: ranks.to_vec(), ..measures() };
    let mut sources = vec![
        dialogues("baseline", true, 1, [1, 1], &found(&[1, 4])),
        dialogues("baseline", true, 2, [1, 1], &found(&[10])),
    ];
    sources.iter_mut().for_each(|source| source.run.header.retrieval = Some(Retrieval::Bm25));
    let section = section(&sources);
    // 2, 2, 4 and 6 of 8.
    let recall = [1, 3, 5, 10].map(|k| cell(&section, "small", &format!("recall@{k}, %")));
    assert_eq!(recall, ["25.0", "25.0", "50.0", "75.0"]);
}

#[test]
fn runs_without_dialogues_have_no_such_section() {
    let report = report(&[run("small", "default", 1, &[("a-1", 1)])], facts).unwrap();
    assert!(report.sections.iter().all(|section| section.id != "dialogues"));
}

#[test]
fn a_page_with_dialogues_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let sources = sources();
    let report = report(&sources, facts).unwrap();
    write_html(&report, &sources, folder.path()).unwrap();
    let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(page.contains("<section id=\"dialogues\">") && page.contains("cost of a dialogue"));
    let json = serde_json::to_value(&report).unwrap();
    let sections = json["sections"].as_array().unwrap();
    assert!(sections.iter().any(|section| section["id"] == "dialogues"));
}
