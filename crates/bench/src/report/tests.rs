use super::*;
use crate::record::Verdict;
use crate::run_file::RunRecords;
use crate::run_file::tests::{attempt, finished, header};

/// A text that would break out of its context if it weren't escaped.
const HOSTILE: &str =
    "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>|`*_[a](javascript:x)\u{202e}\n# x";

/// Creates a run of `model` under `condition`: for each task, the attempt that solved it; 0 for two
/// failed attempts.
pub(super) fn run(model: &str, condition: &str, trial: u32, tasks: &[(&str, u32)]) -> RunSource {
    let mut header = header();
    header.model = Named { name: model.into(), hash: format!("{model}-hash") };
    header.condition = condition.into();
    header.trial = trial;
    header.tasks = tasks.iter().map(|(task, _)| (*task).to_owned()).collect();
    let mut run = RunRecords { header, attempts: Vec::new(), finished: Vec::new() };
    for (task, solved) in tasks {
        let last = if *solved == 0 { 2 } else { *solved };
        for number in 1..=last {
            let verdict = if number == *solved { Verdict::Solved } else { Verdict::Failed };
            let mut attempt = attempt(task, number, verdict);
            attempt.cost.tool_calls = u64::from(number);
            run.attempts.push(attempt);
        }
        let verdict = if *solved == 0 { Verdict::Failed } else { Verdict::Solved };
        run.finished.push(finished(task, last, verdict));
    }
    RunSource { file: format!("{model}.{condition}.{trial}.jsonl").into(), run }
}

pub(super) fn facts(model: &Named) -> Facts {
    let (study, parameters) = match model.name.as_str() {
        "small" => ("qwen3-0.6b", 0.6),
        "big" => ("qwen3-8b", 8.2),
        _ => return Facts::default(),
    };
    let family = "Qwen3".to_owned();
    Facts {
        family,
        parameters: Some(parameters),
        study: study.into(),
        score: Some(parameters * 10.0),
        ..Facts::default()
    }
}

fn two_by_two() -> Vec<RunSource> {
    let tasks = |small: u32, big: u32| [("data-1", small), ("data-2", 0), ("git-1", big), ("git-2", 2)];
    vec![
        run("small", "feedback", 1, &tasks(0, 1)),
        run("small", "fresh", 1, &tasks(1, 1)),
        run("big", "feedback", 1, &tasks(1, 2)),
        run("big", "fresh", 1, &tasks(2, 1)),
    ]
}

#[test]
fn the_whole_report() {
    let report = report(&two_by_two(), facts).unwrap();
    insta::assert_snapshot!(markdown(&report));
}

#[test]
fn what_refused_calls_is_counted_where_there_is_any() {
    let mut sources = [
        run("small", "default", 1, &[("a-1", 1), ("a-2", 0)]),
        run("big", "default", 1, &[("a-1", 1), ("a-2", 2)]),
    ];
    let refusals = |report: &Report| report.sections.iter().find(|section| section.id == "refusals").cloned();
    assert!(refusals(&report(&sources, facts).unwrap()).is_none());
    let refuse = |source: &mut RunSource, attempt: usize, by: &str, count: u64| {
        source.run.attempts[attempt].refusals.insert(by.to_owned(), count);
    };
    refuse(&mut sources[0], 0, "rule own", 2);
    // The two attempts at `a-2` are one case.
    refuse(&mut sources[0], 1, "rule own", 1);
    refuse(&mut sources[0], 2, "rule own", u64::MAX);
    refuse(&mut sources[1], 2, "phase verify", 4);
    let section = refusals(&report(&sources, facts).unwrap()).unwrap();
    let rows = |table: &Table| -> Vec<String> {
        let cells = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join(" ");
        table.rows.iter().map(cells).collect()
    };
    let [by_model, by_task] = section.tables.as_slice() else { panic!("{section:?}") };
    let all = format!("{:.0}", u64::MAX as f64);
    assert_eq!(rows(by_model), [format!("small rule own {all} 2 1"), "big phase verify 4 1 1".to_owned()]);
    assert_eq!(
        rows(by_task),
        [
            "a-1 rule own 2 1 1".to_owned(),
            "a-2 phase verify 4 1 1".to_owned(),
            format!("a-2 rule own {all} 1 0")
        ]
    );
    let text = markdown(&report(&sources, facts).unwrap());
    assert!(text.contains("| big | phase verify | 4 | 1 | 1 |"), "{text}");
}

#[test]
fn trials_and_shards_are_put_together() {
    let sources = [
        run("small", "default", 1, &[("a-1", 1)]),
        run("small", "default", 1, &[("a-2", 0)]),
        run("small", "default", 2, &[("a-1", 1), ("a-2", 1)]),
    ];
    let report = report(&sources, facts).unwrap();
    assert_eq!((report.models.len(), report.conditions.len()), (1, 1));
    let row = |id: &str| {
        let section = report.sections.iter().find(|section| section.id == id).unwrap();
        section.tables[0].rows[0].iter().map(|cell| cell.text.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("trials"), "small 75.0 75.0 50.0");
    assert!(row("score").starts_with("small Qwen3 0.6 4 3 0 75.0 "), "{}", row("score"));
}

#[test]
fn runs_that_nobody_named_apart_are_told_apart() {
    let mut again = run("small", "default", 1, &[("a-1", 0)]);
    again.file = "later.jsonl".into();
    let sources = [run("small", "default", 1, &[("a-1", 1)]), again];
    assert_eq!(report(&sources, facts).unwrap().conditions, ["small.default.1", "later"]);
}

#[test]
fn nothing_is_counted_twice_and_other_rules_are_told_apart() {
    let named = |file: &str, timeout: u64| {
        let mut source = run("small", "default", 1, &[("a-1", 1)]);
        source.file = file.into();
        source.run.header.timeout = timeout;
        source
    };
    // The same file name in other folders, and a run of other tasks with another limit.
    let mut other = named("x/limit.jsonl", 1);
    other.run.finished[0].task = "a-2".into();
    let sources = [named("a/run.jsonl", 360), named("b/run.jsonl", 360), named("c/run.jsonl", 360), other];
    let report = report(&sources, facts).unwrap();
    assert_eq!(
        report.conditions,
        ["timeout 360 s run 3", "timeout 360 s run", "timeout 360 s run 2", "timeout 1 s"]
    );
    let rows = &report.sections[0].tables[0].rows;
    assert!(rows.len() == 4 && rows.iter().all(|row| row[3].text == "1"), "{rows:?}");
}

#[test]
fn a_file_named_twice_is_read_once() {
    let (folder, sources) = written("text");
    crate::run_file::RunFile::create(&sources[0].file, sources[0].run.header.clone()).unwrap();
    let direct = folder.path().join("run.traces/../run.jsonl");
    let found = find(&[folder.path().to_owned(), direct, folder.path().to_owned()]).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn absurd_numbers_of_a_run_do_no_harm() {
    let mut source = run("small", "default", u32::MAX, &[("a-1", 1), ("a-2", 0)]);
    for attempt in &mut source.run.attempts {
        attempt.cost.tokens_in = u64::MAX;
    }
    let report = report(&[source], facts).unwrap();
    assert!(report.sections.iter().all(|section| section.id != "trials"));
}

#[test]
fn environment_errors_are_no_failures() {
    let mut source = run("small", "default", 1, &[("a-1", 1), ("a-2", 0)]);
    source.run.finished[1].verdict = Verdict::Error;
    let report = report(&[source], facts).unwrap();
    let cells: Vec<&str> =
        report.sections[0].tables[0].rows[0].iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(cells[3..7], ["1", "1", "1", "100.0"]);
    // If nothing counts, there is no bar.
    let mut source = run("small", "default", 1, &[("a-1", 0)]);
    source.run.finished[0].verdict = Verdict::Error;
    let report = self::report(&[source], facts).unwrap();
    for section in &report.sections {
        if let Some(Figure::Bars { bars, .. }) = &section.figure {
            assert!(bars.is_empty(), "{}", section.id);
        }
    }
}

#[test]
fn other_suites_and_empty_folders_are_refused() {
    let mut other = run("small", "default", 2, &[("a-1", 1)]);
    other.run.header.suite.hash = "11".into();
    let error = report(&[run("small", "default", 1, &[("a-1", 1)]), other], facts).unwrap_err();
    assert!(error.to_string().contains("different suites"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = find(&[folder.path().to_owned()]).unwrap_err();
    assert!(error.to_string().contains("there is no run in"), "{error}");
}

#[test]
fn suites_get_a_report_each_and_scripts_are_no_models() {
    let of = |suite: &str, model: &str, hash: &str| {
        let mut source = run(model, "default", 1, &[("a-1", 1)]);
        source.run.header.suite = Named { name: suite.into(), hash: format!("{suite}-hash") };
        source.run.header.model.hash = hash.into();
        source
    };
    let sources = vec![
        of("one", "small", "1"),
        of("two", "gold", ""),
        of("one", "gold", ""),
        of("one", "big", "2"),
        of("two", "junk", ""),
        of("three", "big", "2"),
    ];
    let suites = reports(sources, facts).unwrap();
    let told: Vec<(&str, Vec<&str>)> = suites
        .iter()
        .map(|OfSuite { report, .. }| {
            let models = report.models.iter().map(|(named, _)| named.name.as_str());
            (report.suite.name.as_str(), models.collect())
        })
        .collect();
    assert_eq!(told, [("one", vec!["small", "big"]), ("three", vec!["big"])]);
    assert_eq!((suites[0].report.left_out, suites[1].report.left_out), (3, 0));
    let text = markdown(&suites[0].report);
    assert!(text.contains("\n\n3 runs of gold solutions or junk are left out, since no model"), "{text}");
    assert!(!markdown(&suites[1].report).contains("left out"));
    let folder = tempfile::tempdir().unwrap();
    assert!(write_pages(&suites, folder.path()).unwrap().is_empty());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let index = read("index.html");
    assert!(index.contains("<a href=\"suite-2/index.html\">three</a>: 1 run,"), "{index}");
    assert!(read("suite-1/index.html").contains("Report on the suite one"));
    // Without a model's run, scripts have scores but no mean.
    let scripts = reports(vec![of("two", "gold", ""), of("two", "junk", "")], facts).unwrap();
    let sections = &scripts[0].report.sections;
    assert_eq!(sections[0].tables[0].rows.len(), 2);
    assert!(sections.iter().all(|section| section.id != "size"));
    assert_eq!(scripts[0].report.left_out, 0);
    // A single report is in the folder itself.
    let only = reports(vec![of("one", "small", "1")], facts).unwrap();
    write_pages(&only, folder.path()).unwrap();
    assert!(read("index.html").contains("Report on the suite one"));
}

#[test]
fn models_have_short_names_as_far_as_these_tell_them_apart() {
    let models = |names: &[(&str, &str, &str)]| -> Vec<String> {
        let model = |(name, hash, title): &(&str, &str, &str)| {
            let named = Named { name: (*name).into(), hash: (*hash).into() };
            (named, Facts { title: (*title).into(), ..Facts::default() })
        };
        let models: Vec<(Named, Facts)> = names.iter().map(model).collect();
        (0..models.len()).map(|at| data::label(&models, at)).collect()
    };
    assert_eq!(
        models(&[
            ("a/b/Model-Q4_0.gguf", "1", ""),
            ("http://127.0.0.1:11434/v1#qwen3:4b", "", ""),
            ("x.gguf", "2", "A title"),
        ]),
        ["Model-Q4_0", "qwen3:4b", "A title"]
    );
    assert_eq!(models(&[("x-Q4.gguf", "1", "X"), ("x-Q8.gguf", "2", "X")]), ["x-Q4.gguf", "x-Q8.gguf"]);
    assert_eq!(
        models(&[("x.gguf", "1234567890", ""), ("x.gguf", "2234567890", "")]),
        ["x 12345678", "x 22345678"]
    );
    let (here, there) = ("http://here/v1#m", "http://there/v1#m");
    assert_eq!(models(&[(here, "", ""), (there, "", "")]), [here, there]);
}

/// Creates a folder with a run of a task whose trace contains `text`.
fn written(text: &str) -> (tempfile::TempDir, Vec<RunSource>) {
    let folder = tempfile::tempdir().unwrap();
    let mut source = run(text, text, 1, &[("a-1", 0)]);
    source.file = folder.path().join("run.jsonl");
    for attempt in &mut source.run.attempts {
        attempt.trace = "run.traces/a-1.jsonl".into();
        attempt.reason = text.into();
    }
    source.run.finished[0].category = text.into();
    std::fs::create_dir(folder.path().join("run.traces")).unwrap();
    let line = |record: serde_json::Value| {
        let mut record = record;
        record["time"] = "2026-01-01T00:00:00Z".into();
        format!("{record}\n")
    };
    let call = serde_json::json!({"id": "1", "name": text, "arguments": {text: text}});
    let message = serde_json::json!({"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]});
    let usage = serde_json::to_value(alara_engine::Usage::default()).unwrap();
    let lines = [
        line(serde_json::json!({"record": "user", "text": text})),
        line(
            serde_json::json!({"record": "assistant", "message": message, "finish": "tool_calls", "usage": usage}),
        ),
        line(serde_json::json!({"record": "user", "text": "again"})),
    ];
    std::fs::write(folder.path().join("run.traces/a-1.jsonl"), lines.concat()).unwrap();
    (folder, vec![source])
}

#[test]
fn what_models_say_stays_text() {
    let (folder, sources) = written(HOSTILE);
    let report =
        report(&sources, |_| Facts { family: HOSTILE.into(), title: HOSTILE.into(), ..Facts::default() })
            .unwrap();
    let out = folder.path().join("page");
    assert_eq!(write_html(&report, &sources, &out).unwrap(), Vec::<String>::new());
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    let trace = std::fs::read_to_string(out.join("traces/0/a-1.html")).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "{page}");
    assert_eq!(page.matches("</script").count(), 2);
    for text in [&page, &trace] {
        assert!(
            !text.contains("<img") && !text.contains("onerror=alert(1)>") && !text.contains('\u{202e}'),
            "{text}"
        );
    }
    assert!(
        trace.contains("&lt;img src=x onerror=alert(1)&gt;") && trace.contains("id=\"attempt-2\""),
        "{trace}"
    );
    assert!(!trace.contains("<script"), "{trace}");
    assert!(page.contains("traces/0/a-1.html#attempt-1"), "{page}");
    // The list for the script is complete.
    let list = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    let shown = HOSTILE.replace('\u{202e}', "\u{fffd}");
    assert_eq!((list["rows"].as_array().unwrap().len(), list["models"][0][0].as_str()), (2, Some(&*shown)));
    let text = markdown(&report);
    assert!(!text.contains("<script>") && !text.contains("\n# x"), "{text}");
    assert!(text.contains("\\<script\\>"), "{text}");
}

#[test]
fn traces_come_from_beside_the_run_only() {
    let (folder, mut sources) = written("text");
    sources[0].run.attempts[0].trace = "../run.traces/a-1.jsonl".into();
    sources[0].run.attempts[1].trace = "/etc/passwd".into();
    let report = report(&sources, facts).unwrap();
    let out = folder.path().join("page");
    write_html(&report, &sources, &out).unwrap();
    assert_eq!(std::fs::read_dir(out.join("traces/0")).unwrap().count(), 0);
}

/// Creates runs of several models under two conditions, each with five attempts at each of 115
/// tasks.
fn sweep(models: usize, trials: u32) -> Vec<RunSource> {
    let tasks: Vec<String> = (0..115).map(|at| format!("multi-step-{at:03}")).collect();
    let tasks: Vec<(&str, u32)> = tasks.iter().map(|task| (task.as_str(), 5)).collect();
    let mut sources = Vec::new();
    for model in 0..models {
        for (condition, trial) in (1..=trials).flat_map(|trial| [("feedback", trial), ("fresh", trial)]) {
            let mut source = run(&format!("a-model-of-some-name-{model}"), condition, trial, &tasks);
            for attempt in &mut source.run.attempts {
                attempt.reason = "There is no <such> file. ".repeat(20);
            }
            sources.push(source);
        }
    }
    sources
}

/// Returns the rows of a list of attempts.
fn listed(json: &str) -> Vec<serde_json::Value> {
    let list: serde_json::Value = serde_json::from_str(json).unwrap();
    list["rows"].as_array().unwrap().clone()
}

#[test]
fn the_page_of_a_big_sweep_stays_small_and_says_what_it_lacks() {
    let check = |models: usize, note: &str| {
        let sources = sweep(models, 1);
        let folder = tempfile::tempdir().unwrap();
        write_html(&report(&sources, facts).unwrap(), &sources, folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
        println!("{models} models: {} bytes", page.len());
        assert!(page.len() <= 5_000_000, "{} bytes", page.len());
        let list = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        assert_eq!(listed(list).len(), models * 2 * 115 * 5);
        let paragraph = page.split("<p class=\"cut\">").nth(1).unwrap().split("</p>").next().unwrap();
        assert_eq!(paragraph, note);
    };
    check(1, "The reasons of 1150 attempts are cut to 200 characters; the run files have them whole.");
    check(22, "The reasons of 25300 attempts are cut to 60 characters; the run files have them whole.");
}

#[test]
fn a_list_that_is_too_long_loses_earlier_attempts_first_and_counts_them() {
    let sources = sweep(1, 1);
    let report = report(&sources, facts).unwrap();
    let list = |budget: usize| html::list(&report, &sources, &Default::default(), budget);
    let cases = |rows: &[serde_json::Value]| {
        let cases: std::collections::BTreeSet<String> = rows
            .iter()
            .map(|row| row.as_array().unwrap()[..4].iter().map(|part| format!("{part} ")).collect())
            .collect();
        cases.len()
    };
    // All attempts, without reasons.
    let whole = list(100_000);
    assert_eq!(listed(&whole.json).len(), 1150);
    assert_eq!(
        whole.note,
        "<p class=\"cut\">The reasons of 1150 attempts are left out; the run files have them.</p>"
    );
    // The last attempt of each case, and some of the others.
    let part = list(30_000);
    let rows = listed(&part.json);
    assert!(
        part.json.len() < 45_000 && rows.len() > 230 && rows.len() < 1150,
        "{} {}",
        part.json.len(),
        rows.len()
    );
    assert_eq!((cases(&rows), rows.iter().filter(|row| row[4] == 5).count()), (230, 230));
    let words = format!("holds {} of 1150 attempts", rows.len());
    assert!(
        part.note.contains(&words) && part.note.contains(&format!(": {} are left out", 1150 - rows.len())),
        "{}",
        part.note
    );
    // Both runs lose equally many rows.
    let few = listed(&list(5_000).json);
    let of = |condition: u64| few.iter().filter(|row| row[1] == condition).count();
    assert!(few.len() > 20 && of(0).abs_diff(of(1)) <= 1, "{} {}", of(0), of(1));
}

#[test]
fn a_gain_is_all_attempts_less_the_first_whatever_rule_a_category_has() {
    // Three attempts at git tasks, one at any other.
    let mut source = run("small", "default", 1, &[("data-1", 1), ("data-2", 0), ("git-1", 3), ("git-2", 1)]);
    let one = std::num::NonZeroU32::MIN;
    let policy = &mut source.run.header.policy;
    policy.rule.attempts = one;
    policy
        .categories
        .insert("git".into(), crate::policy::Rule { attempts: one.saturating_add(2), ..policy.rule });
    let report = report(&[source], facts).unwrap();
    let cell = |id: &str, row: usize, column: &str| {
        let table = &report.sections.iter().find(|section| section.id == id).unwrap().tables[0];
        let at = table.columns.iter().position(|known| known.name == column).unwrap();
        table.rows[row][at].text.clone()
    };
    // 3 of 4 in the end, 2 of 4 at first; for git 2 of 2 and 1 of 2.
    assert_eq!(cell("attempt", 0, "gain, pp"), "25.0");
    assert_eq!(
        (cell("attempt", 0, "within 1"), cell("attempt", 0, "within 3")),
        ("50.0".into(), "75.0".into())
    );
    assert_eq!(
        (cell("category", 0, "gain by retry, pp"), cell("category", 1, "gain by retry, pp")),
        ("0.0".into(), "50.0".into())
    );
    assert_eq!(cell("runs", 0, "retry"), "feedback, 1 attempt; git: feedback, 3 attempts");
}

#[test]
fn an_interval_counts_tasks_whoever_worked_on_them() {
    let tasks: Vec<String> = (0..20).map(|at| format!("git-{at}")).collect();
    let tasks: Vec<(&str, u32)> = tasks.iter().map(|task| (task.as_str(), 0)).collect();
    let sources: Vec<RunSource> =
        ["small", "big", "other"].map(|model| run(model, "default", 1, &tasks)).into();
    let report = report(&sources, facts).unwrap();
    let section = |id: &str| report.sections.iter().find(|section| section.id == id).unwrap();
    // 0 of 20, and not 0 of 60.
    let category = &section("category").tables[0].rows[0];
    assert_eq!((&*category[1].text, &*category[4].text), ("60", "0.0 – 16.1"));
    assert!(section("score").tables[0].rows.iter().all(|row| row[7].text == "0.0 – 16.1"));
}

#[test]
fn general_scores_of_different_benchmarks_are_kept_apart() {
    let solved = [0, 1, 1, 1, 1, 0, 0];
    let sources: Vec<RunSource> = (0..7)
        .map(|model| {
            let tasks: Vec<(String, u32)> = (0..7)
                .map(|task| (format!("git-{task}"), u32::from(task <= model) * solved[model]))
                .collect();
            let tasks: Vec<(&str, u32)> = tasks.iter().map(|(task, at)| (task.as_str(), *at)).collect();
            run(&format!("model-{model}"), "default", 1, &tasks)
        })
        .collect();
    // Models 1 to 4 with rising scores in one benchmark, the others with scores in another.
    let facts = |model: &Named| {
        let number: f64 = model.name.trim_start_matches("model-").parse().unwrap();
        let benchmark = if (1.0..5.0).contains(&number) { "MMLU" } else { "MMLU-Pro" };
        Facts { score: Some(number), benchmark: benchmark.into(), ..Facts::default() }
    };
    let report = report(&sources, facts).unwrap();
    let section = report.sections.iter().find(|section| section.id == "correlation").unwrap();
    let rows: Vec<String> = section.tables[0]
        .rows
        .iter()
        .map(|row| row[..3].iter().map(|cell| cell.text.clone()).collect::<Vec<_>>().join(" "))
        .filter(|row| row.starts_with("general"))
        .collect();
    assert_eq!(rows, ["general score (MMLU) 1.00 4", "general score (MMLU-Pro) – 3"]);
}
