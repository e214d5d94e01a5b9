//! Scripted agents in the bank that ships, each following a policy in its own way.
//! The expected results were worked out by hand from the tasks and the bank's documents.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use alara_harness::Team;
use alara_harness::hidden::{CALL, UNLOCK};
use alara_harness::model::{Reply, Scripted};
use serde_json::{Value, json};

use crate::dialogue::gold;
use crate::options::Solver;
use crate::record::{Attempt, Verdict};
use crate::runner::tests::{play, worker};
use crate::{Suite, Task};

struct Bank {
    team: Team,
    suite: Suite,
}

impl Bank {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/bank");
        let suite = Suite::load(&folder).unwrap();
        let team = Team::load(suite.setting.team.as_ref().unwrap()).unwrap();
        Bank { team, suite }
    }

    fn task(&self, id: &str) -> &Task {
        self.suite.tasks.iter().find(|task| task.id == id).unwrap()
    }

    /// Runs this NPC with these turns; `gated` applies the bank's gate.
    fn attempt(&self, npc: &str, gated: bool, task: &Task, turns: Vec<Reply>) -> Attempt {
        let mut npc = self.team.npc(Some(npc)).unwrap().clone();
        if !gated {
            npc.gate = Default::default();
        }
        let model = Scripted::new(turns);
        let solver = Solver { npc: &npc, ..worker(&self.team, Some(&model)) };
        let limit = Duration::from_secs(120);
        let mut run = play(std::slice::from_ref(task), &solver, |options| options.timeout = limit);
        assert_eq!(run.attempts.len(), 1, "{:?}", run.finished);
        run.attempts.remove(0)
    }
}

/// Returns the gold turns of a task without the calls of these tools.
fn without(task: &Task, tools: &[&str]) -> Vec<Reply> {
    let mut turns = gold::play(task.dialogue.as_ref().unwrap()).0;
    turns.retain(|turn| turn.calls.iter().all(|call| !tools.contains(&call.name.as_str())));
    turns
}

/// Two of each kind of failure, and whether an agent solves it that forgets to verify the customer.
/// A missing card is frozen for anybody, and a stranger is handed over; everything else requires
/// verification.
const FORGETFUL: [(&str, bool); 8] = [
    ("dependencies-02", false),
    ("order-05", false),
    ("search-03", true),
    ("search-04", false),
    ("trust-01", false),
    ("trust-02", true),
    ("trust-03", false),
    ("trust-04", false),
];

#[test]
fn who_forgets_verification_has_only_what_needs_none() {
    let bank = Bank::new();
    for gated in [false, true] {
        let mut refused = BTreeMap::new();
        for (id, solved) in FORGETFUL {
            let task = bank.task(id);
            let attempt = bank.attempt("baseline", gated, task, without(task, &["log_verification"]));
            assert_eq!(
                attempt.verdict == Verdict::Solved,
                solved,
                "{id}, gated: {gated}: {}",
                attempt.reason
            );
            for (rule, count) in attempt.refusals {
                *refused.entry(rule).or_insert(0) += count;
            }
        }
        // The first write of each of four tasks.
        // Two other writes depend on such a write: savings for a tier, and a dispute withdrawn
        // before its card is closed.
        let expected = [("rule no_dispute", 1), ("rule savings", 1), ("rule verified", 4)];
        let expected = expected.into_iter().filter(|_| gated).map(|(rule, count)| (rule.to_owned(), count));
        assert_eq!(refused, expected.collect());
    }
}

/// A clerk that follows the phases: it greets, and plans once the customer is verified.
fn in_phases(task: &Task, plan: &[&str]) -> Vec<Reply> {
    let mut turns = vec![Reply::text("Welcome! Please tell me your customer number.")];
    for turn in without(task, &[]) {
        let verified = turn.calls.iter().any(|call| call.name == "log_verification");
        turns.push(turn);
        if verified && !plan.is_empty() {
            turns.push(Reply::call("plan_tasks", json!({"tasks": plan})));
        }
    }
    turns
}

/// As published, the phase `verification` allows one call and nothing else.
/// A customer who can't be verified gets stuck, even for tasks that need no verification.
/// The corrected phases do those tasks first.
#[test]
fn phases_as_published_get_stuck() {
    let bank = Bank::new();
    let check = |npc: &str, id: &str, plan: &[&str], verdict: Verdict, refused: &[(&str, u64)]| {
        let task = bank.task(id);
        let attempt = bank.attempt(npc, true, task, in_phases(task, plan));
        assert_eq!(attempt.verdict, verdict, "{npc} at {id}: {}, {:?}", attempt.reason, attempt.refusals);
        let refused = refused.iter().map(|(by, count)| ((*by).to_owned(), *count));
        assert_eq!(attempt.refusals, refused.collect(), "{npc} at {id}");
    };
    let plan = ["Move 4600 to the savings account", "Raise the tier"];
    check("paper", "dependencies-02", &plan, Verdict::Solved, &[]);
    check("imperative", "dependencies-02", &plan, Verdict::Solved, &[]);
    // Calls to look at the cards, to unlock a tool, and to use it.
    check("paper", "search-03", &[], Verdict::Failed, &[("phase verification", 3)]);
    check("imperative", "search-03", &[], Verdict::Solved, &[]);
}

/// What a careless clerk does in some tasks, once the customer is verified: task, the rule that
/// stops the last call, and the calls; hidden tools are given by the number that ends their names.
const CARELESS: &str = r#"[
["dependencies-04", "savings", [
  ["get_accounts", {"customer_id": "c04"}],
  ["change_tier_5873", {"customer_id": "c04", "tier": "plus"}]]],
["order-01", "no_dispute", [
  ["get_cards", {"customer_id": "c08"}],
  ["get_transactions", {"customer_id": "c08"}],
  ["file_dispute_7314", {"customer_id": "c08", "transaction_id": "t081", "amount": 180, "reason": "D3"}],
  ["get_cards", {"customer_id": "c08"}],
  ["change_limit_3705", {"customer_id": "c08", "card_id": "k082", "limit": 3500}]]],
["order-02", "frozen_first", [
  ["get_cards", {"customer_id": "c09"}],
  ["replace_card_1938", {"customer_id": "c09", "card_id": "k092", "reason": "stolen", "delivery": "express"}]]],
["trust-01", "refund", [
  ["get_fees_8046", {"customer_id": "c14"}],
  ["refund_fee_7791", {"customer_id": "c14", "fee_id": "f141", "amount": 25}]]],
["trust-05", "limit_step", [
  ["get_cards", {"customer_id": "c18"}],
  ["change_limit_3705", {"customer_id": "c18", "card_id": "k182", "limit": 12000}]]],
["trust-06", "disputable", [
  ["get_transactions", {"customer_id": "c19"}],
  ["file_dispute_7314", {"customer_id": "c19", "transaction_id": "t191", "amount": 12, "reason": "D1"}]]],
["search-05", "bonus_account", [
  ["get_accounts", {"customer_id": "c28"}],
  ["get_referrals_2957", {"customer_id": "c28"}],
  ["pay_referral_4138", {"customer_id": "c28", "referral_id": "r281", "account_id": "a282", "amount": 100}]]]
]"#;

type Careless = (String, String, Vec<(String, Value)>);

/// Returns the turns that call a tool of the bank; a hidden one is unlocked first.
fn turns_of(name: &str, arguments: &Value) -> Vec<Reply> {
    match name.ends_with(|c: char| c.is_ascii_digit()) {
        false => vec![Reply::call(name, arguments.clone())],
        true => vec![
            Reply::call(UNLOCK, json!({"name": name})),
            Reply::call(CALL, json!({"tool": name, "arguments": arguments})),
        ],
    }
}

#[test]
fn the_gate_stops_what_is_forbidden_and_nothing_else() {
    let bank = Bank::new();
    let careless: Vec<Careless> = serde_json::from_str(CARELESS).unwrap();
    for (id, rule, calls) in &careless {
        let task = bank.task(id);
        // The customer is verified as in gold.
        let turns = || {
            let gold = gold::play(task.dialogue.as_ref().unwrap()).0;
            let verified = gold.into_iter().take_while(|turn| !turn.calls.is_empty()).filter(|turn| {
                ["get_customer_by_id", "log_verification"].contains(&turn.calls[0].name.as_str())
            });
            let verified: Vec<Reply> = verified.take(2).collect();
            let calls = calls.iter().flat_map(|(name, arguments)| turns_of(name, arguments));
            verified.into_iter().chain(calls).chain([Reply::text("All is done.")]).collect::<Vec<_>>()
        };
        let gated = bank.attempt("declarative", true, task, turns());
        assert_eq!(gated.refusals, BTreeMap::from([(format!("rule {rule}"), 1)]), "{id}");
        // Without the gate nothing stops it, and the database is wrong.
        let free = bank.attempt("declarative", false, task, turns());
        assert_eq!((free.verdict, free.refusals.len()), (Verdict::Failed, 0), "{id}");
        assert!(free.reason.contains("database.json"), "{id}: {}", free.reason);
    }
}
