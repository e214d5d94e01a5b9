//! Without walls, since the test binary is no launcher; the end-to-end tests run with them.

use std::time::Instant;

use alara_harness::model::{Reply, Scripted};
use serde_json::json;

use super::*;
use crate::Suite;
use crate::record::Verdict;
use crate::run_file::{self, Run, tests::header};
use crate::task::Difficulty;

/// A task whose verification is `verify` and whose gold solution is `gold`.
fn task(id: &str, setup: &str, verify: &str, gold: &str) -> Task {
    Task {
        id: id.into(),
        category: "test".into(),
        difficulty: Difficulty::Easy,
        instruction: "Do it.\n".into(),
        setup: setup.into(),
        verify: verify.into(),
        gold: Some(gold.into()),
        wrong: Vec::new(),
        timeout: None,
    }
}

/// Runs the tasks; the rules are changed by `change`.
fn play(tasks: &[Task], solver: &Solver, change: impl FnOnce(&mut Options)) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let ground = Ground::claim(&folder.path().join("ground")).unwrap();
    let mut options = Options {
        attempts: 5,
        timeout: Duration::from_secs(60),
        seed: 0,
        retry_temperature: 0.6,
        jobs: 1,
        isolation: Isolation::Off,
        cancel: Arc::default(),
        observer: &|_| {},
    };
    change(&mut options);
    let tasks: Vec<&Task> = tasks.iter().collect();
    run(&tasks, solver, &options, &ground, RunFile::create(&path, header()).unwrap()).unwrap();
    run_file::read(&path).unwrap()
}

/// Lets the script work on a task as the stock team's worker; also what it was asked last.
fn script(task: &Task, replies: impl IntoIterator<Item = Reply>, timeout: Duration) -> (Run, Vec<String>) {
    let (team, model) = (Team::stock("alara").unwrap(), Scripted::new(replies));
    let solver = Solver::Agent {
        team: &team,
        npc: team.npc(None).unwrap(),
        model: &model,
        sampling: Sampling::default(),
    };
    let run = play(std::slice::from_ref(task), &solver, |options| options.timeout = timeout);
    let requests = model.requests();
    let last = requests.last().map(|request| request.messages.clone()).unwrap_or_default();
    (run, last.into_iter().map(|message| message.content).collect())
}

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({"command": command}))
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn the_stock_suite_accepts_gold_and_nothing_else() {
    let suite = Suite::stock().unwrap();
    let mut tasks = Vec::new();
    for task in &suite.tasks {
        let variant = |name: String, solution: &str| Task {
            id: format!("{}.{name}", task.id),
            gold: Some(solution.to_owned()),
            ..task.clone()
        };
        tasks.push(task.clone());
        tasks.push(variant("empty".into(), "true"));
        tasks.extend(
            task.wrong.iter().enumerate().map(|(index, text)| variant(format!("wrong{index}"), text)),
        );
    }
    let run = play(&tasks, &Solver::Gold, |options| (options.attempts, options.jobs) = (1, 2));
    assert_eq!(run.finished.len(), tasks.len());
    for finished in &run.finished {
        let wanted = if finished.task.contains('.') { Verdict::Failed } else { Verdict::Solved };
        assert_eq!(finished.verdict, wanted, "{}: {}", finished.task, finished.reason);
        assert!(
            wanted == Verdict::Solved || !finished.reason.is_empty(),
            "{} fails without a word",
            finished.task
        );
    }
}

#[test]
fn feedback_continues_the_conversation() {
    let task = task("t", "", "[ -f b ] || { echo 'There is no b. '; exit 1; }", "touch b");
    let replies = [shell("touch a"), Reply::text("Done."), shell("touch b"), Reply::text("Now.")];
    let (run, messages) = script(&task, replies, MINUTE);
    assert_eq!(messages[0], "Do it.");
    assert_eq!(messages[3..5], ["Done.", "The check failed: There is no b.\nTry again."]);
    let verdicts: Vec<_> =
        run.attempts.iter().map(|attempt| (attempt.verdict, attempt.reason.as_str())).collect();
    assert_eq!(verdicts, [(Verdict::Failed, "There is no b."), (Verdict::Solved, "")]);
    assert_eq!(run.attempts.iter().map(|attempt| attempt.cost.tool_calls).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(run.attempts[1].seed, trial::seed(0, "t", 2));
    assert_eq!(run.attempts[1].trace, "run.traces/t.jsonl");
    let finished = &run.finished[0];
    assert_eq!((finished.verdict, finished.attempts), (Verdict::Solved, 2));
}

#[test]
fn later_attempts_draw_otherwise() {
    let task = task("t", "", "false", "true");
    let (team, model) = (Team::stock("alara").unwrap(), Scripted::new((0..3).map(|_| Reply::text("Done."))));
    let sampling = Sampling { temperature: 0.1, ..Sampling::default() };
    let solver = Solver::Agent { team: &team, npc: team.npc(None).unwrap(), model: &model, sampling };
    play(std::slice::from_ref(&task), &solver, |options| options.attempts = 3);
    let requests = model.requests();
    let drawn: Vec<f32> = requests.iter().map(|request| request.sampling.temperature).collect();
    assert_eq!(drawn, [0.1, 0.6, 0.6]);
    assert_ne!(requests[1].sampling.seed, requests[2].sampling.seed);
    let limit = team.npc(None).unwrap().limits.turn_tokens;
    assert!(requests.iter().all(|request| request.max_tokens == Some(limit)));
}

#[test]
fn attempts_have_an_end() {
    let run = play(&[task("t", "", "false", "true")], &Solver::Gold, |options| options.attempts = 3);
    assert_eq!((run.attempts.len(), run.finished[0].verdict), (3, Verdict::Failed));
}

#[test]
fn verification_runs_after_the_deadline() {
    let begun = Instant::now();
    let slow = [shell("touch b; sleep 30")];
    let (run, _) = script(&task("t", "", "[ -f b ]", ""), slow.clone(), Duration::from_millis(700));
    assert_eq!((run.finished[0].verdict, run.finished[0].attempts), (Verdict::Solved, 1));
    let (run, _) = script(&task("t", "", "echo no; false", ""), slow, Duration::from_millis(700));
    assert_eq!((run.finished[0].verdict, run.finished[0].attempts), (Verdict::Failed, 1));
    assert_eq!(run.finished[0].reason, "the time was up; no");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_task_may_have_its_own_time() {
    let short = Task { timeout: std::num::NonZeroU64::new(1), ..task("t", "", "false", "sleep 30") };
    let run = play(&[short], &Solver::Gold, |_| {});
    assert!(run.finished[0].seconds < 10.0 && run.attempts.len() == 1, "{run:?}");
}

#[test]
fn verification_runs_after_an_error() {
    let (run, _) = script(&task("t", "", "[ -f b ]", ""), [shell("touch b")], MINUTE);
    assert_eq!(run.finished[0].verdict, Verdict::Solved);
    // The model stopped in the middle of its work.
    let (run, _) = script(&task("t", "", "[ -f c ]", ""), [shell("touch b")], MINUTE);
    assert_eq!((run.finished[0].verdict, run.attempts.len()), (Verdict::Failed, 1));
    // It never said a word: that tells nothing about the agent.
    let (run, _) = script(&task("t", "", "[ -f c ]", ""), [], MINUTE);
    assert_eq!((run.finished[0].verdict, run.attempts.len()), (Verdict::Error, 1));
    assert!(run.finished[0].reason.contains("no reply"), "{run:?}");
}

#[test]
fn what_is_not_the_agents_fault_is_an_error() {
    let check = |task: Task, words: &str| {
        let run = play(&[task], &Solver::Gold, |_| {});
        let finished = &run.finished[0];
        assert_eq!((finished.verdict, finished.attempts), (Verdict::Error, 0), "{run:?}");
        assert!(finished.reason.contains(words), "{}", finished.reason);
    };
    check(task("t", "echo broken; exit 3", "true", "true"), "the setup failed: broken");
    // Without walls there is no private /tmp.
    check(task("t", "", "[ -f /tmp/x ]", "true"), "a private /tmp");
}

#[test]
fn a_cancelled_task_has_no_result() {
    let cancel: Arc<AtomicBool> = Arc::default();
    let tasks =
        [task("a", "", "true", "true"), task("b", "", "true", "sleep 30"), task("c", "", "true", "true")];
    let begun = Instant::now();
    let observer = |progress: Progress| {
        if let Progress::Attempt { task, .. } = progress
            && task.id == "b"
        {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::claim(folder.path()).unwrap();
    let path = folder.path().join("run.jsonl");
    let options = Options {
        attempts: 5,
        timeout: MINUTE,
        seed: 0,
        retry_temperature: 0.6,
        jobs: 1,
        isolation: Isolation::Off,
        cancel: cancel.clone(),
        observer: &observer,
    };
    let file = RunFile::create(&path, header()).unwrap();
    let all = run(&tasks.iter().collect::<Vec<_>>(), &Solver::Gold, &options, &ground, file).unwrap();
    let run = run_file::read(&path).unwrap();
    assert_eq!((all, run.finished.len(), run.attempts.len()), (false, 1, 1));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn git_has_an_identity_and_home_is_the_tasks_own() {
    let gold = "git init -q . && git commit -q --allow-empty -m x && git log -1 --format='%an %D' > who; touch ~/seen";
    let verify = r#"[ "$(cat who)" = "alara HEAD -> main" ] && [ -f ~/seen ]"#;
    let tasks = [task("a", "", verify, gold), task("b", "[ ! -e ~/seen ]", verify, gold)];
    let run = play(&tasks, &Solver::Gold, |options| options.attempts = 1);
    assert!(run.finished.iter().all(|finished| finished.verdict == Verdict::Solved), "{run:?}");
}
