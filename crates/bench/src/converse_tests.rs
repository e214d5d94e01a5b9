//! Runs the suite in `tests/fixtures/dialogues` with scripts instead of models.

use std::path::Path;
use std::time::Duration;

use alara_harness::Team;
use alara_harness::knowledge::Retrieval;
use alara_harness::model::{Reply, Scripted};
use serde_json::json;

use crate::dialogue::{Action, Dialogue, Persona, Side, User};
use crate::options::{Player, Solver};
use crate::record::{Attempt, Verdict};
use crate::runner::tests::{play, worker};
use crate::{Suite, Task};

fn fixture() -> (Team, Task) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/dialogues");
    let mut suite = Suite::load(&folder).unwrap();
    (Team::load(suite.setting.team.as_ref().unwrap()).unwrap(), suite.tasks.remove(0))
}

fn told(task: &Task, solver: &Solver) -> Attempt {
    let mut run =
        play(std::slice::from_ref(task), solver, |options| options.timeout = Duration::from_secs(60));
    assert_eq!(run.attempts.len(), 1, "a dialogue has one attempt: {:?}", run.finished);
    let attempt = run.attempts.remove(0);
    let measures = attempt.dialogue.as_ref().unwrap();
    assert_eq!(measures.reward, attempt.verdict == Verdict::Solved, "{}", attempt.reason);
    attempt
}

/// Uses a script as the agent; also returns the user's last message, and the system prompt.
fn attempt(task: &Task, replies: impl IntoIterator<Item = Reply>) -> (Attempt, Vec<String>, String) {
    let (team, model) = (fixture().0, Scripted::new(replies));
    let attempt = told(task, &worker(&team, Some(&model)));
    let requests = model.requests();
    let last = requests.last().unwrap();
    let user = |message: &&alara_engine::Message| message.role == alara_engine::Role::User;
    let heard = last.messages.iter().filter(user).map(|message| message.content.clone()).collect();
    let system = last.system.iter().map(|segment| segment.text.as_str()).collect::<Vec<_>>().join("\n");
    (attempt, heard, system)
}

fn pin(pin: &str) -> Reply {
    Reply::call("check_pin", json!({"id": "c1", "pin": pin}))
}

fn street(street: &str) -> Reply {
    Reply::call("set_street", json!({"id": "c1", "street": street}))
}

#[test]
fn gold_is_right_and_junk_is_wrong() {
    let (team, task) = fixture();
    let solver = worker(&team, None);
    let attempt = told(&task, &solver);
    assert_eq!((attempt.verdict, attempt.reason.as_str()), (Verdict::Solved, ""));
    let attempt = told(&task, &Solver { player: Player::Junk, ..solver });
    assert_eq!(attempt.verdict, Verdict::Failed);
    assert!(
        attempt.reason.contains("database.json has [] instead of [\"c1\"] at checked"),
        "{}",
        attempt.reason
    );
}

#[test]
fn user_and_agent_speak_in_turns() {
    let (_, task) = fixture();
    let replies = [
        Reply::text("Please tell me your PIN."),
        pin("4711"),
        street("Elm Street 5"),
        Reply::text("It is changed."),
        Reply::text("Goodbye!"),
    ];
    let (attempt, heard, system) = attempt(&task, replies);
    assert_eq!((attempt.verdict, attempt.reason.as_str()), (Verdict::Solved, ""));
    // The user's last line needs no answer.
    assert_eq!(heard, ["I have moved to Elm Street 5.", "It is 4711, and I am c1.", "The app says so, too."]);
    assert!(!system.contains("Ask for the PIN"), "{system}");
    assert_eq!(attempt.messages.len(), 5);
}

#[test]
fn what_is_wrong_is_said() {
    let (_, task) = fixture();
    let check = |task: &Task, replies: &[Reply], words: &[&str]| {
        let (attempt, ..) = attempt(task, replies.iter().cloned().chain([Reply::text("Goodbye!")]));
        assert_eq!(attempt.verdict, Verdict::Failed);
        assert!(words.iter().all(|word| attempt.reason.contains(word)), "{}", attempt.reason);
    };
    let other = "database.json has \"Elm Street\" instead of \"Elm Street 5\" at customers.c1.street";
    check(&task, &[pin("4711"), street("Elm Street")], &[other]);
    // The user's side counts as well.
    let mut idle = task.clone();
    let User::Script(lines) = &mut idle.dialogue.as_mut().unwrap().user else { panic!() };
    lines.iter_mut().for_each(|line| line.calls.clear());
    check(&idle, &[pin("4711"), street("Elm Street 5")], &["user.json has \"Oak Road 1\""]);
    // The same database, reached differently.
    let mut twice = task.clone();
    let dialogue = twice.dialogue.as_mut().unwrap();
    dialogue.actions[0].required = true;
    let all = [pin("4711"), street("Elm Street 5"), Reply::text("Done.")];
    check(&twice, &all, &["get_customer was not called with {\"id\":\"c1\"}"]);
    // A failed call doesn't count as made.
    check(&task, &[pin("1"), street("Elm Street 5"), Reply::text("Done.")], &["at checked"]);
    let spent = vec![Reply::call("get_customer", json!({"id": "c1"})); 2];
    let turns: Vec<Reply> = (0..6).flat_map(|_| spent.iter().cloned().chain([Reply::text("Hm.")])).collect();
    check(&task, &turns, &["it used all 12 turns", "at checked"]);
}

#[test]
fn a_task_whose_gold_fails_is_an_error() {
    let (team, mut task) = fixture();
    let check = |task: &Task, words: &str| {
        let model = Scripted::new([Reply::text("x")]);
        let run = play(std::slice::from_ref(task), &worker(&team, Some(&model)), |_| {});
        assert_eq!((run.attempts.len(), run.finished[0].verdict), (0, Verdict::Error));
        assert!(run.finished[0].reason.contains(words), "{}", run.finished[0].reason);
    };
    let dialogue = |task: &mut Task, change: fn(&mut Dialogue)| change(task.dialogue.as_mut().unwrap());
    let mut absent = task.clone();
    dialogue(&mut absent, |dialogue| {
        let persona =
            Persona { npc: "nobody".into(), persona: String::new(), goal: "x".into(), stop: "y".into() };
        dialogue.user = User::Npc(persona);
    });
    check(&absent, "no NPC `nobody`");
    dialogue(&mut task, |dialogue| {
        let arguments = json!({"id": "c1", "pin": "1"}).as_object().unwrap().clone();
        dialogue.actions =
            vec![Action { name: "check_pin".into(), arguments, required: true, by: Side::Agent }];
    });
    check(&task, "the gold call 1 of `check_pin` fails: the PIN is another one");
    dialogue(&mut task, |dialogue| dialogue.actions[0].name = "dig".into());
    check(&task, "there is no jinx `dig`");
}

#[test]
fn a_user_may_be_a_model() {
    let (team, mut task) = fixture();
    task.dialogue.as_mut().unwrap().user = User::Npc(Persona {
        npc: "customer".into(),
        persona: "Ann Lee, who is in a hurry".into(),
        goal: "A new address, Elm Street 5".into(),
        stop: "###STOP###".into(),
    });
    let replies = [
        Reply::text("I have moved. I am c1, my PIN is 4711.").when("How can I help you?"),
        pin("4711").when("I have moved"),
        street("Elm Street 5").when("I have moved"),
        Reply::text("It is changed; please look at your app.").when("I have moved"),
        Reply::call("set_app", json!({"street": "Elm Street 5"})).when("look at your app"),
        Reply::text("Thank you. ###STOP###").when("look at your app"),
    ];
    let model = Scripted::new(replies.clone());
    let attempt = told(&task, &worker(&team, Some(&model)));
    assert_eq!((attempt.verdict, attempt.reason.as_str()), (Verdict::Solved, ""));
    let requests = model.requests();
    // The same dialogue with two models.
    let is_user = |reply: &Reply| !reply.when.as_ref().unwrap().contains("moved");
    let [agent, user] = [false, true]
        .map(|user| Scripted::new(replies.iter().filter(|reply| is_user(reply) == user).cloned()));
    let solver = worker(&team, Some(&agent));
    let attempt = told(&task, &Solver { user: Some(&user), ..solver });
    assert_eq!((attempt.verdict, attempt.reason.as_str()), (Verdict::Solved, ""));
    assert_eq!((agent.requests().len(), user.requests().len()), (3, 3));
    let system = |index: usize| requests[index].system.iter().map(|one| one.text.clone()).collect::<String>();
    assert!(system(0).contains("Who you are: Ann Lee") && system(0).contains("What you want: A new address"));
    // Each sees only its own side.
    assert!(!system(1).contains("Ann Lee"));
    let tools = |index: usize| requests[index].tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    assert_eq!((tools(0), tools(1).contains(&"set_app".to_owned())), (vec!["set_app".to_owned()], false));
    assert!(requests[5].messages.iter().all(|message| !message.content.contains("right")));
}

#[test]
fn golden_documents_are_part_of_the_prompt() {
    let (mut team, task) = fixture();
    for npc in &mut team.npcs {
        npc.knowledge.as_mut().unwrap().retrieval = Retrieval::Golden;
    }
    let model = Scripted::new([Reply::text("Goodbye!")]);
    told(&task, &worker(&team, Some(&model)));
    let system: String = model.requests()[0].system.iter().map(|segment| segment.text.clone()).collect();
    assert!(
        system.contains("Ask for the PIN before a street is changed.") && !system.contains("costs nothing")
    );
}

#[test]
fn a_database_that_an_agent_broke_is_its_fault() {
    let (mut team, task) = fixture();
    team.jinxes.extend(Team::stock("alara").unwrap().jinxes.into_iter().filter(|jinx| jinx.name == "shell"));
    team.npcs.iter_mut().for_each(|npc| npc.jinxes.push("shell".into()));
    let replies =
        [Reply::call("shell", json!({"command": "echo x > database.json"})), Reply::text("Goodbye!")];
    let model = Scripted::new(replies);
    let attempt = told(&task, &worker(&team, Some(&model)));
    assert_eq!(attempt.verdict, Verdict::Failed);
    assert!(attempt.reason.contains("database.json is no JSON any more"), "{}", attempt.reason);
}
