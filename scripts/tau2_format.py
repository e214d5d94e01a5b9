"""What tau2-bench's files say, without tau2-bench: its results folded into numbers, and a trace of alara as messages.

scripts/tau2 and scripts/tau2_bridge.py use it.
"""
import collections
import json
import math

INFRASTRUCTURE = "infrastructure_error"
# Reasons for which tau2 judges a dialogue at all; after any other its reward is 0.
ENDED = ("user_stop", "agent_stop")


def pass_hat(trials, solved, k):
    """pass^k of one task: the chance that k trials, drawn without putting back, are all solved (arXiv 2406.12045)."""
    return math.comb(solved, k) / math.comb(trials, k)


def summary(results):
    """The numbers of a result file.

    tau2 leaves out simulations that ended with an infrastructure error, from reward and pass^k.
    `reward_of_all` counts them as 0, since a server that breaks off what goes wrong would look better otherwise.
    """
    simulations = results["simulations"]
    ran = [one for one in simulations if one["termination_reason"] != INFRASTRUCTURE]
    tasks = collections.defaultdict(list)
    for one in ran:
        tasks[one["task_id"]].append(abs(reward(one) - 1) < 1e-6)
    most = min([results["info"]["num_trials"], *map(len, tasks.values())]) if tasks else 0
    checks = [one["reward_info"]["db_check"] for one in ran if (one.get("reward_info") or {}).get("db_check")]
    total = sum(map(reward, ran))
    return {
        "simulations": len(simulations),
        "infrastructure_errors": len(simulations) - len(ran),
        "reward": total / len(ran) if ran else 0.0,
        "reward_of_all": total / len(simulations) if simulations else 0.0,
        "pass": {k: sum(pass_hat(len(one), sum(one), k) for one in tasks.values()) / len(tasks) for k in range(1, most + 1)},
        "database_matches": sum(check["db_match"] for check in checks),
        "database_checks": len(checks),
        "ended": dict(collections.Counter(one["termination_reason"] for one in simulations).most_common()),
    }


def reward(simulation):
    return (simulation.get("reward_info") or {}).get("reward") or 0.0


def shown(numbers):
    """The summary for people."""
    ended = ", ".join(f"{count} {reason}" for reason, count in numbers["ended"].items())
    lines = [
        f"simulations            {numbers['simulations']} ({ended})",
        f"infrastructure errors  {numbers['infrastructure_errors']}",
        f"reward                 {numbers['reward']:.3f} (with infrastructure errors as 0: {numbers['reward_of_all']:.3f})",
        *(f"pass^{k:<18}{value:.3f}" for k, value in numbers["pass"].items()),
        f"database as expected   {numbers['database_matches']} of {numbers['database_checks']} that were compared",
    ]
    return "\n".join(lines)


def messages(records, calls, greeting):
    """tau2's messages of a conversation, as plain values.

    `records` are the lines of alara's trace, `calls` what the bridge was asked for, in order.
    From the trace come the texts and the order.
    From the bridge comes what reached tau2's environment, and its answer to the letter, since the evaluator makes these
    calls again and compares.
    So what a gate, a phase or a rule refused is left out, and so are tools of alara's own.
    What is said beside a call is not told to the user, and is left out too.
    """
    waiting = collections.deque(calls)
    found = [{"role": "assistant", "content": greeting}]
    usage = collections.Counter()

    def call():
        made = waiting.popleft()
        by, name = made["requestor"], f"call_{len(found)}"
        spent = {"usage": dict(usage)} if usage and by == "assistant" else {}
        if by == "assistant":
            usage.clear()
        one = {"id": name, "name": made["name"], "arguments": made["arguments"], "requestor": by}
        found.append({"role": by, "content": None, "tool_calls": [one], **spent})
        found.append({"role": "tool", "id": name, "content": made["content"], "requestor": by, "error": made["error"]})

    for record in records:
        kind, own = record["record"], not record.get("in")
        if kind == "user" and own:
            while waiting and waiting[0]["requestor"] == "user":
                call()
            found.append({"role": "user", "content": record["text"]})
        elif kind == "assistant":
            usage.update({key: record["usage"][key] for key in ("prompt_tokens", "completion_tokens")})
        elif kind in ("tool_result", "jinx"):
            name = record["call"]["name"] if kind == "tool_result" else record["jinx"]
            arguments = record["call"]["arguments"] if kind == "tool_result" else record["arguments"]
            if waiting and waiting[0]["requestor"] == "assistant" and waiting[0]["arguments"] == arguments \
                    and name in (waiting[0]["name"], f"tau2_{waiting[0]['name']}"):
                call()
        elif kind == "end" and own and record["outcome"]["outcome"] == "answer":
            found.append({"role": "assistant", "content": record["outcome"]["text"], "usage": dict(usage)})
            usage.clear()
    while waiting and waiting[0]["requestor"] == "user":
        call()
    if waiting:
        raise ValueError(f"the bridge answered {waiting[0]['name']}({json.dumps(waiting[0]['arguments'])}), of which the "
                         "trace knows nothing: they are not of the same conversation")
    return found
