//! Runs without isolation, since the test binary isn't a launcher; the end-to-end tests run with
//! it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use alara_engine::Sampling;
use alara_harness::Team;
use alara_harness::model::{ChatModel, Reply, Scripted};
use serde_json::json;

use super::*;
use crate::Suite;
use crate::options::Player;
use crate::policy::{Retry, RetryPolicy};
use crate::record::Named;
use crate::run_file::{self, RunRecords, tests::header};
use crate::task::{Difficulty, Solution};

/// A task with the verification `verify` and the gold solution `gold`.
fn task(id: &str, setup: &str, verify: &str, gold: &str) -> Task {
    Task {
        id: id.into(),
        category: "test".into(),
        difficulty: Difficulty::Easy,
        instruction: "Do it.\n".into(),
        setup: setup.into(),
        verify: verify.into(),
        jinxes: Vec::new(),
        delegates: Vec::new(),
        gold: Some(Solution::Bash(gold.into())),
        wrong: Vec::new(),
        timeout: None,
        dialogue: None,
    }
}

/// Allows a maximum number of attempts.
fn attempts(retry: Retry, attempts: u32) -> RetryPolicy {
    RetryPolicy::all(retry, attempts.try_into().unwrap())
}

fn options(dirs: &TaskDirs) -> Options<'static> {
    Options {
        policy: attempts(Retry::Feedback, 5),
        timeout: MINUTE,
        seed: 0,
        retry_temperature: 0.6,
        parallel: 1,
        isolation: Isolation::Off,
        programs: programs(dirs, Isolation::Off).unwrap(),
        cancel: Arc::default(),
        observer: &|_| {},
    }
}

/// Runs the tasks, with the rules changed by `change`.
pub(crate) fn play(tasks: &[Task], solver: &Solver, change: impl FnOnce(&mut Options)) -> RunRecords {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let dirs = TaskDirs::claim(&folder.path().join("dirs")).unwrap();
    let mut options = options(&dirs);
    change(&mut options);
    let tasks: Vec<&Task> = tasks.iter().collect();
    run(&tasks, solver, &options, &dirs, RunFile::create(&path, header()).unwrap()).unwrap();
    run_file::read(&path).unwrap()
}

/// The stock team's worker with this model, or with the tasks' own gold solutions.
pub(crate) fn worker<'a>(team: &'a Team, model: Option<&'a dyn ChatModel>) -> Solver<'a> {
    let (npc, sampling) = (team.npc(None).unwrap(), Sampling::default());
    let named = Named { name: "script".into(), hash: "5c".into() };
    let player = model.map_or(Player::Gold, Player::Model);
    let (user, embedder, knowledge) = (None, None, Arc::default());
    Solver { team, npc, player, user, embedder, knowledge, named, sampling, thinking: None, calls: None }
}

/// Plays the gold solutions.
fn gold(tasks: &[Task], change: impl FnOnce(&mut Options)) -> RunRecords {
    play(tasks, &worker(&Team::stock("alara").unwrap(), None), change)
}

/// Runs the script on a task as the stock team's worker; also returns its last request.
fn script(
    task: &Task,
    replies: impl IntoIterator<Item = Reply>,
    timeout: Duration,
) -> (RunRecords, Vec<String>) {
    let (team, model) = (Team::stock("alara").unwrap(), Scripted::new(replies));
    let solver = worker(&team, Some(&model));
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
        let variant = |name: String, solution| Task {
            id: format!("{}.{name}", task.id),
            gold: Some(solution),
            ..task.clone()
        };
        tasks.push(task.clone());
        tasks.push(variant("empty".into(), Solution::Bash("true".into())));
        tasks.push(variant("junk".into(), Solution::Bash(junk(task))));
        let wrong = task.wrong.iter().enumerate();
        tasks.extend(wrong.map(|(index, wrong)| variant(format!("wrong{index}"), wrong.clone())));
    }
    let mut team = Team::stock("alara").unwrap();
    suite.furnish(&mut team);
    // They wait as often as they compute.
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    let run = play(&tasks, &worker(&team, None), |options| {
        options.policy = attempts(Retry::Feedback, 1);
        options.parallel = threads;
    });
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

/// Creates missing files that a task refers to, with filler that depends on their extension.
fn junk(task: &Task) -> String {
    let mut text = String::from(
        r#"make() {
  [ ! -e "$1" ] && mkdir -p "./$(dirname "$1")" 2>/dev/null || return
  case $1 in
    *.py) printf 'print(%s)\n' 1 2 3 42 ;;
    *.sh) printf 'echo %s\n' 1 2 3 42 ;;
    *.json) echo '{"name": "example", "count": 42, "values": [1, 2, 3]}' ;;
    *.csv) printf 'name,value\n'; printf 'row %s,42\n' 1 2 3 4 5 6 7 8 9 10 11 ;;
    *) printf 'line %s of the result\n' 1 2 3 4 5 6 7 8 9 10 11 12 ;;
  esac > "$1" 2>/dev/null
  chmod +x "$1"
}
"#,
    );
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let names = [&task.instruction, &task.verify].into_iter().flat_map(|text| text.split(|c| !is_part(c)));
    let names = names.map(|name| name.trim_end_matches(['.', '/']).trim_start_matches("./"));
    let is_file = |name: &&str| name.contains('.') && !name.contains("..") && !name.starts_with(['/', '-']);
    let mut seen = std::collections::BTreeSet::new();
    for name in names.filter(is_file).filter(|name| seen.insert(*name)) {
        text += &format!("make {name}\n");
    }
    text
}

#[test]
fn the_trace_tells_who_worked() {
    let delegated = Task {
        jinxes: vec!["delegate".into()],
        delegates: vec!["coder".into()],
        ..task("t", "", "[ -f b ]", "touch b")
    };
    let give = |name: &str| Reply::call("delegate", json!({"npc_name": name, "task": "Make b."}));
    let good = || Reply::text(r#"{"complete": true, "feedback": ""}"#);
    let done = || Reply::text("Done.");
    let not_worked = "The result is right, but coder has not worked on it.";
    let first = |replies: Vec<Reply>| {
        let (run, _) = script(&delegated, replies, MINUTE);
        run.attempts[0].reason.clone()
    };
    assert_eq!(first(vec![give("coder"), shell("touch b"), done(), good(), done()]), "");
    assert_eq!(first(vec![shell("touch b"), done()]), not_worked);
    assert_eq!(first(vec![give("coder"), done(), good(), shell("touch b"), done()]), not_worked);
    let other = Reply::call("write_file", json!({"path": "b", "content": ""}));
    assert_eq!(first(vec![give("writer"), other, done(), good(), done()]), not_worked);
}

#[test]
fn a_team_without_what_a_task_needs_is_no_failure() {
    let plain = task("t", "", "true", "true");
    let check = |task: Task, words: &str| {
        let finished = &gold(&[task], |_| {}).finished[0];
        assert_eq!((finished.verdict, finished.reason.as_str()), (Verdict::Error, words));
    };
    check(Task { jinxes: vec!["dig".into()], ..plain.clone() }, "the team alara has no jinx `dig`");
    check(Task { delegates: vec!["miner".into()], ..plain }, "the team alara has no member `miner`");
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
    assert_eq!(run.attempts[1].seed, attempts::seed(0, "t", 2));
    assert_eq!(run.attempts[1].trace, "run.traces/t.jsonl");
    let finished = &run.finished[0];
    assert_eq!((finished.verdict, finished.attempts), (Verdict::Solved, 2));
}

#[test]
fn ways_to_retry() {
    let task = task("t", "touch seed", "[ -f seed ] && [ -f b ] || { echo 'There is no b.'; exit 1; }", "");
    let replies =
        || [shell("rm seed; ls; touch a"), Reply::text("Done."), shell("touch b; ls"), Reply::text("Now.")];
    let play = |retry: Retry| {
        let (team, model) = (Team::stock("alara").unwrap(), Scripted::new(replies()));
        let run = play(std::slice::from_ref(&task), &worker(&team, Some(&model)), |options| {
            options.policy = attempts(retry, 2);
        });
        let last = model.requests().pop().unwrap().messages;
        let messages: Vec<String> = last.into_iter().map(|message| message.content).collect();
        let traces: Vec<String> = run.attempts.iter().map(|attempt| attempt.trace.clone()).collect();
        (run.finished[0].verdict, messages, traces)
    };
    // The agent removed its input, and only `feedback` doesn't restore it.
    let (verdict, messages, traces) = play(Retry::Feedback);
    assert_eq!(
        (verdict, messages[4].as_str()),
        (Verdict::Failed, "The check failed: There is no b.\nTry again.")
    );
    assert_eq!(traces, ["run.traces/t.jsonl"; 2]);

    let (verdict, messages, traces) = play(Retry::Fresh);
    assert_eq!((verdict, messages[0].as_str(), messages.len()), (Verdict::Solved, "Do it.", 3));
    assert!(
        messages[2].contains("b") && messages[2].contains("seed") && !messages[2].contains('a'),
        "{messages:?}"
    );
    assert_eq!(traces, ["run.traces/t.jsonl", "run.traces/t@2.jsonl"]);

    let (verdict, messages, traces) = play(Retry::Paper);
    assert_eq!((verdict, messages[0].as_str(), messages.len()), (Verdict::Solved, "Do it.", 7));
    assert!(
        messages[4].starts_with("Do it.\n\nSo far, without success:\n- shell {\"command\":\"rm seed;"),
        "{messages:?}"
    );
    assert!(!messages[4].contains("There is no b."), "{messages:?}");
    assert_eq!(traces, ["run.traces/t.jsonl"; 2]);
}

#[test]
fn a_category_may_have_its_own_rule() {
    let other = Task { category: "other".into(), ..task("b", "", "false", "true") };
    let tasks = [task("a", "", "false", "true"), other];
    let run = gold(&tasks, |options| {
        options.policy = attempts(Retry::Feedback, 3);
        options.policy.categories.insert("other".into(), attempts(Retry::Fresh, 2).rule);
    });
    assert_eq!(run.finished.iter().map(|end| end.attempts).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn what_each_message_cost_is_recorded() {
    let run = gold(&[task("t", "", "true", "true")], |_| {});
    let messages = &run.attempts[0].messages;
    assert_eq!(messages.iter().map(|message| message.tool_calls).collect::<Vec<_>>(), [1, 0]);
    let who: Vec<_> = messages.iter().map(|message| (message.npc.as_str(), &*message.model.hash)).collect();
    assert_eq!(who, [("worker", "5c"); 2]);
}

#[test]
fn an_absurd_time_limit_is_none() {
    let long = Task { timeout: std::num::NonZeroU64::new(u64::MAX), ..task("t", "", "true", "true") };
    let run = gold(&[long], |options| options.timeout = Duration::MAX);
    assert_eq!(run.finished[0].verdict, Verdict::Solved);
}

#[test]
fn later_attempts_draw_otherwise() {
    let task = task("t", "", "false", "true");
    let (team, model) = (Team::stock("alara").unwrap(), Scripted::new((0..3).map(|_| Reply::text("Done."))));
    let sampling = Sampling { temperature: 0.1, ..Sampling::default() };
    let solver = Solver { sampling, ..worker(&team, Some(&model)) };
    play(std::slice::from_ref(&task), &solver, |options| options.policy = attempts(Retry::Feedback, 3));
    let requests = model.requests();
    let temperatures: Vec<f32> = requests.iter().map(|request| request.sampling.temperature).collect();
    assert_eq!(temperatures, [0.1, 0.6, 0.6]);
    assert_ne!(requests[1].sampling.seed, requests[2].sampling.seed);
    let limit = team.npc(None).unwrap().limits.turn_tokens;
    assert!(requests.iter().all(|request| request.max_tokens == Some(limit)));
}

#[test]
fn attempts_have_an_end() {
    let run =
        gold(&[task("t", "", "false", "true")], |options| options.policy = attempts(Retry::Feedback, 3));
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
    let run = gold(&[short], |_| {});
    assert!(run.finished[0].seconds < 10.0 && run.attempts.len() == 1, "{run:?}");
}

#[test]
fn verification_runs_after_an_error() {
    let (run, _) = script(&task("t", "", "[ -f b ]", ""), [shell("touch b")], MINUTE);
    assert_eq!(run.finished[0].verdict, Verdict::Solved);
    // The model stopped in the middle of its work.
    let (run, _) = script(&task("t", "", "[ -f c ]", ""), [shell("touch b")], MINUTE);
    assert_eq!((run.finished[0].verdict, run.attempts.len()), (Verdict::Failed, 1));
    // The model never answered, so the agent can't be judged.
    let (run, _) = script(&task("t", "", "[ -f c ]", ""), [], MINUTE);
    assert_eq!((run.finished[0].verdict, run.attempts.len()), (Verdict::Error, 1));
    assert!(run.finished[0].reason.contains("no reply"), "{run:?}");
}

#[test]
fn what_is_not_the_agents_fault_is_an_error() {
    let check = |task: Task, words: &str| {
        let run = gold(&[task], |_| {});
        let finished = &run.finished[0];
        assert_eq!((finished.verdict, finished.attempts), (Verdict::Error, 0), "{run:?}");
        assert!(finished.reason.contains(words), "{}", finished.reason);
    };
    check(task("t", "echo broken; exit 3", "true", "true"), "the setup failed: broken");
    let run = gold(&[task("t", "", "sleep 60", "true")], |_| {});
    let finished = &run.finished[0];
    assert_eq!((finished.verdict, finished.attempts), (Verdict::Error, 1));
    assert_eq!(finished.reason, "a script of the task did not end within 30 seconds");
    // Without isolation there is no private /tmp.
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
    let dirs = TaskDirs::claim(folder.path()).unwrap();
    let path = folder.path().join("run.jsonl");
    let options = Options { cancel: cancel.clone(), observer: &observer, ..options(&dirs) };
    let file = RunFile::create(&path, header()).unwrap();
    let team = Team::stock("alara").unwrap();
    let all = run(&tasks.iter().collect::<Vec<_>>(), &worker(&team, None), &options, &dirs, file).unwrap();
    let run = run_file::read(&path).unwrap();
    assert_eq!((all, run.finished.len(), run.attempts.len()), (false, 1, 1));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn git_has_an_identity_and_home_is_the_tasks_own() {
    let solution = "git init -q . && git commit -q --allow-empty -m x && git log -1 --format='%an %D' > who; touch ~/seen";
    let verify = r#"[ "$(cat who)" = "alara HEAD -> main" ] && [ -f ~/seen ]"#;
    let tasks = [task("a", "", verify, solution), task("b", "[ ! -e ~/seen ]", verify, solution)];
    let run = gold(&tasks, |options| options.policy = attempts(Retry::Feedback, 1));
    assert!(run.finished.iter().all(|finished| finished.verdict == Verdict::Solved), "{run:?}");
}
