"""Tests of scripts/tau2_format.py over a hand-made result file and trace; they need no tau2-bench."""
import itertools
import unittest

import tau2_format


def ended(task, reward, reason="user_stop", match=None):
    check = None if match is None else {"db_match": match, "db_reward": float(match)}
    return {"task_id": task, "termination_reason": reason, "reward_info": {"reward": reward, "db_check": check}}


def called(name, arguments, requestor="assistant", content="x", error=False):
    return {"requestor": requestor, "name": name, "arguments": arguments, "content": content, "error": error}


def result(name, arguments, **more):
    return {"record": "tool_result", "call": {"id": "1", "name": name, "arguments": arguments}, **more}


def turn(tokens):
    return {"record": "assistant", "usage": {"prompt_tokens": 10 * tokens, "completion_tokens": tokens, "cached_tokens": 1}}


def end(text):
    return {"record": "end", "outcome": {"outcome": "answer", "text": text}}


class Summary(unittest.TestCase):
    def test_pass_hat_is_the_share_of_choices_that_are_all_solved(self):
        for trials in range(1, 6):
            for solved in range(trials + 1):
                for k in range(1, trials + 1):
                    choices = list(itertools.combinations([True] * solved + [False] * (trials - solved), k))
                    self.assertAlmostEqual(tau2_format.pass_hat(trials, solved, k), sum(map(all, choices)) / len(choices))

    def test_infrastructure_errors_are_left_out_and_told(self):
        broken = {"task_id": "b", "termination_reason": "infrastructure_error", "reward_info": None}
        simulations = [ended("a", 1.0, match=True), ended("a", 0.0, match=False), ended("b", 1.0), broken,
                       ended("b", 0.0, "max_steps")]
        found = tau2_format.summary({"info": {"num_trials": 3}, "simulations": simulations})
        self.assertEqual((found["simulations"], found["infrastructure_errors"]), (5, 1))
        self.assertEqual((found["reward"], found["reward_of_all"]), (0.5, 0.4))
        # Two trials of each task ran: one of two solved, twice.
        self.assertEqual(found["pass"], {1: 0.5, 2: 0.0})
        self.assertEqual((found["database_matches"], found["database_checks"]), (1, 2))
        self.assertEqual(found["ended"], {"user_stop": 3, "infrastructure_error": 1, "max_steps": 1})
        self.assertIn("infrastructure errors  1\n", tau2_format.shown(found))

    def test_nothing_that_ran_is_no_number(self):
        broken = {"task_id": "b", "termination_reason": "infrastructure_error", "reward_info": None}
        found = tau2_format.summary({"info": {"num_trials": 1}, "simulations": [broken]})
        self.assertEqual((found["reward"], found["pass"]), (0.0, {}))


class Messages(unittest.TestCase):
    RECORDS = [
        {"record": "start"},
        {"record": "user", "text": "Cancel 7."},
        turn(1),
        # A gate stood against it: it never reached the environment.
        result("cancel_order", {"id": "7"}),
        turn(2),
        result("get_order", {"id": "7"}),
        turn(3),
        # A jinx of alara's own, one step of which is a tool of tau2.
        {"record": "jinx", "jinx": "tau2_cancel_order", "arguments": {"id": "7"}},
        result("cancel_safely", {"id": "7"}),
        # Another NPC's conversation is not the user's.
        {"record": "user", "text": "Judge it.", "in": "call_3/ask"},
        {**end("Fine."), "in": "call_3/ask"},
        end("It is cancelled."),
        {"record": "user", "text": "Bye."},
        {"record": "end", "outcome": {"outcome": "turn_limit"}},
    ]
    CALLS = [
        called("get_order", {"id": "7"}, content='{"status": "pending"}'),
        called("cancel_order", {"id": "7"}, content="Error: no", error=True),
        called("restart", {}, "user"),
    ]

    def test_what_reached_the_environment_is_told_in_order(self):
        found = tau2_format.messages(self.RECORDS, self.CALLS, "Hi!")
        told = [(one["role"], one["content"] or one["tool_calls"][0]["name"]) for one in found]
        self.assertEqual(told, [
            ("assistant", "Hi!"), ("user", "Cancel 7."),
            ("assistant", "get_order"), ("tool", '{"status": "pending"}'),
            ("assistant", "cancel_order"), ("tool", "Error: no"),
            ("assistant", "It is cancelled."), ("user", "restart"), ("tool", "x"), ("user", "Bye."),
        ])
        calls = [one for one in found if one.get("tool_calls")]
        self.assertEqual([one["tool_calls"][0]["id"] for one in calls], [found[at + 1]["id"] for at in (2, 4, 7)])
        self.assertEqual([one["requestor"] for one in found if one["role"] == "tool"], ["assistant", "assistant", "user"])
        self.assertEqual([one["error"] for one in found if one["role"] == "tool"], [False, True, False])

    def test_usage_is_that_of_the_turns_since_the_last_message(self):
        found = tau2_format.messages(self.RECORDS, self.CALLS, "Hi!")
        self.assertEqual([one["usage"]["completion_tokens"] for one in found if one.get("usage")], [3, 3])
        self.assertEqual(found[2]["usage"]["prompt_tokens"], 30)

    def test_a_log_of_another_conversation_is_refused(self):
        with self.assertRaisesRegex(ValueError, "not of the same conversation"):
            tau2_format.messages(self.RECORDS, [called("get_order", {"id": "8"})], "Hi!")


if __name__ == "__main__":
    unittest.main()
