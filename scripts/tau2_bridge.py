#!/usr/bin/env python3
"""Joins an environment of tau2-bench and an agent of alara; runs with tau2's interpreter. `scripts/tau2 --bridge` calls it.

    tau2_bridge.py stdio --domain D --task ID [--log FILE]        an MCP server with the tools of a task
    tau2_bridge.py talk --domain D --out DIR --alara FILE …       dialogues of an NPC, judged by tau2
    tau2_bridge.py export TRACE --log FILE --domain D --task ID --out DIR    a trace and a server's log as tau2's results
    tau2_bridge.py metrics FILE                                   tau2's own numbers of a result file
"""
import argparse
import contextlib
import http.server
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from loguru import logger
from tau2.data_model.message import AssistantMessage, MultiToolMessage, ToolCall, UserMessage
from tau2.data_model.simulation import AgentInfo, Results, SimulationRun, TerminationReason, TextRunConfig
from tau2.environment.toolkit import ToolType
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.metrics.agent_metrics import compute_metrics
from tau2.orchestrator.orchestrator import DEFAULT_FIRST_AGENT_MESSAGE
from tau2.runner.build import _build_env_kwargs, build_environment, build_user
from tau2.runner.helpers import get_info, get_tasks
from tau2.user.user_simulator import UserSimulator
from tau2.utils.llm_utils import to_tau2_messages
from tau2.utils.utils import get_now
import yaml

import tau2_format

# The directive where the team says none: tau2 gives its own agent much the same.
DIRECTIVE = "You serve customers, under the policy below.\nAsk them for what is missing, one thing at a time.\n\n"


class Place:
    """An environment as a task begins with it, and what was called there."""

    def __init__(self, config, task):
        if task.initial_state and task.initial_state.message_history:
            raise ValueError(f"{task.id} begins in the middle of a conversation, which alara's agent was not in")
        self.config, self.task, self.calls = config, task, []
        self.kwargs = _build_env_kwargs(config, task)
        self.environment = self.begun([])
        self.lock = threading.Lock()

    def begun(self, history):
        """A fresh environment after these messages."""
        environment = build_environment(self.config.domain, env_kwargs=self.kwargs)
        state = self.task.initial_state
        environment.set_state(state and state.initialization_data, state and state.initialization_actions, history)
        return environment

    def call(self, name, arguments, requestor="assistant"):
        with self.lock:
            made = ToolCall(id=f"call_{len(self.calls)}", name=name, arguments=arguments, requestor=requestor)
            result = self.environment.get_response(made)
            self.calls.append({"requestor": requestor, "name": name, "arguments": arguments, "content": result.content,
                               "error": result.error})
            return result

    def hashes(self, environment=None):
        environment = environment or self.environment
        return {"database": environment.get_db_hash(), "user_database": environment.get_user_db_hash()}

    def tools(self):
        kit = self.environment.tools
        for tool in self.environment.get_tools():
            function = tool.openai_schema["function"]
            # What only looks; a generic tool that changes nothing (a transfer) still does something.
            reads = kit.tool_type(tool.name) in (ToolType.READ, ToolType.THINK) and not kit.tool_mutates_state(tool.name)
            yield {"name": tool.name, "description": function["description"], "inputSchema": function["parameters"],
                   "annotations": {"readOnlyHint": reads}}

    def answer(self, request):
        """The answer to a message of the Model Context Protocol; None where none is due."""
        if "id" not in request or "method" not in request:
            return None
        parameters = request.get("params") or {}
        done = {"jsonrpc": "2.0", "id": request["id"]}
        match request["method"]:
            case "initialize":
                result = {"protocolVersion": parameters.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                          "serverInfo": {"name": "tau2", "version": "1"}}
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": list(self.tools())}
            case "tools/call":
                made = self.call(parameters["name"], parameters.get("arguments") or {})
                result = {"content": [{"type": "text", "text": made.content or ""}], "isError": made.error}
            case other:
                return {**done, "error": {"code": -32601, "message": f"{other} is not served"}}
        return {**done, "result": result}


def stdio(place, log):
    for line in sys.stdin:
        if (answer := place.answer(json.loads(line))) is not None:
            print(json.dumps(answer), flush=True)
        if log:
            log.write_text(json.dumps({"calls": place.calls, **place.hashes()}))


@contextlib.contextmanager
def served(place):
    """The server at an address of this machine, for as long as the block lasts."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            answer = place.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(202 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()


class Chat:
    """A conversation with an NPC, in an `alara chat` of its own."""

    def __init__(self, args, folder, policy, url, seed):
        self.trace, self.seconds, self.ended = folder / "trace.jsonl", args.seconds, 0
        team, work = folder / "team", folder / "work"
        work.mkdir()
        write_team(args.team, team, policy, url)
        command = [args.alara, "chat", "-t", team, "--workdir", work, "--trace", self.trace, "--yes", "--seed", str(seed)]
        command += [] if args.temperature is None else ["--temperature", str(args.temperature)]
        command += [word for flag, value in (("-n", args.npc), ("-m", args.model)) if value for word in (flag, value)]
        self.errors = (folder / "chat.log").open("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self.errors, text=True)

    def say(self, text):
        """Says something; how that ended, as the trace tells it."""
        self.process.stdin.write(line(text))
        self.process.stdin.flush()
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            ends = [one for one in self.records() if one["record"] == "end" and not one.get("in")]
            if len(ends) > self.ended:
                servers = self.records()[0].get("mcp", [])
                if not any(one["server"] == "tau2" and one.get("tools") for one in servers):
                    raise self.broken("the NPC has none of tau2's tools")
                self.ended = len(ends)
                return ends[-1]["outcome"]
            time.sleep(0.05)
        raise self.broken(f"alara chat gave no answer within {self.seconds} s")

    def broken(self, what):
        self.errors.seek(0)
        return RuntimeError(f"{what}: {self.errors.read()[-1000:].strip()}")

    def records(self):
        text = self.trace.read_text() if self.trace.exists() else ""
        # The last line may not be whole yet.
        return [json.loads(one) for one in text[:text.rfind("\n") + 1].splitlines()]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def line(text):
    """A message as it is typed: no command, nothing left open, one line as far as `alara chat` is concerned."""
    text = text.strip().rstrip("\\")
    if text[:1] in ("/", "@") or (text.isalpha() and text.islower()):
        text = f'"{text}"'
    if sum(one.lstrip().startswith("```") for one in text.splitlines()) % 2:
        text += "\n```"
    return text.replace("\n", "\\\n") + "\n"


def write_team(origin, team, policy, url):
    """The team, or one of a single NPC, in which `ctx.policy` is the domain's policy and the server `tau2` has its tools."""
    if origin:
        shutil.copytree(origin, team)
    else:
        team.mkdir()
        npc = {"name": "agent", "jinxes": [], "mcp_servers": ["tau2"], "limits": {"turns": 40}}
        directive = "primary_directive: {{ (ctx.directive ~ ctx.policy) | tojson }}\n"
        (team / "agent.npc").write_text(yaml.safe_dump(npc) + directive)
    path = next(iter(team.glob("*.ctx")), team / "team.ctx")
    context = (yaml.safe_load(path.read_text()) if path.exists() else None) or {}
    servers = [one for one in context.get("mcp_servers") or [] if one.get("name") != "tau2"]
    context |= {"directive": DIRECTIVE, "policy": policy, "mcp_servers": [*servers, {"name": "tau2", "url": url}]}
    # A `.ctx` is a template, a policy is not.
    path.write_text(re.sub(r"\{[{%#]", lambda mark: f"{{{{ '{mark[0]}' }}}}", json.dumps(context, ensure_ascii=False)))


class Scripted:
    """A user who says these texts in turn, and then goes."""

    def __init__(self, texts):
        self.texts = iter(texts)

    def set_seed(self, _):
        pass

    def get_init_state(self):
        return None

    def generate_next_message(self, _, state):
        return UserMessage(role="user", content=next(self.texts, "###STOP###")), state


def dialogue(args, config, task, seed):
    """One dialogue: the place, the records of the trace, how it ended and the user's last words."""
    place = Place(config, task)
    user = Scripted(args.script[task.id]) if args.script else \
        build_user("user_simulator", place.environment, task, llm=config.llm_user, llm_args=dict(config.llm_args_user))
    user.set_seed(seed)
    state, message = user.get_init_state(), DEFAULT_FIRST_AGENT_MESSAGE
    with tempfile.TemporaryDirectory(dir=args.out) as folder, served(place) as url:
        chat = Chat(args, pathlib.Path(folder), place.environment.get_policy(), url, seed)
        try:
            for _ in range(args.turns):
                said, state = user.generate_next_message(message, state)
                while said.is_tool_call():
                    results = [place.call(one.name, one.arguments, "user") for one in said.tool_calls]
                    for one, result in zip(said.tool_calls, results):
                        result.id = one.id
                    message = results[0] if len(results) == 1 else MultiToolMessage(role="tool", tool_messages=results)
                    said, state = user.generate_next_message(message, state)
                if UserSimulator.is_stop(said):
                    return place, chat.records(), TerminationReason.USER_STOP, said.content
                outcome = chat.say(said.content)
                if outcome["outcome"] != "answer":
                    return place, chat.records(), TerminationReason.AGENT_ERROR, None
                message = AssistantMessage(role="assistant", content=outcome["text"])
            return place, chat.records(), TerminationReason.MAX_STEPS, None
        finally:
            chat.close()
            kept = args.out / "traces" / f"{task.id}-{seed}.jsonl"
            kept.parent.mkdir(exist_ok=True)
            if chat.trace.exists():
                shutil.copy(chat.trace, kept)


def simulation(place, records, reason, last, trial=0, seed=None, begun=None):
    """A conversation in tau2's format, judged by tau2."""
    found = tau2_format.messages(records, place.calls, DEFAULT_FIRST_AGENT_MESSAGE.content)
    found += [{"role": "user", "content": last}] if last else []
    history = to_tau2_messages(found)
    # What the evaluator will see is what happened, or it would judge something else.
    again = place.hashes(place.begun(history))
    if again != place.hashes():
        raise ValueError("the messages, replayed, do not lead to the database that the dialogue left")
    run = SimulationRun(id=str(uuid.uuid4()), task_id=place.task.id, start_time=begun or get_now(), end_time=get_now(),
                        duration=0.0, termination_reason=reason, messages=history, trial=trial, seed=seed)
    run.reward_info = evaluate_simulation(run, place.task, EvaluationType.ALL, False, place.config.domain,
                                          env_kwargs=place.kwargs)
    return run


def save(args, config, tasks, simulations):
    info = get_info(config)
    info.agent_info = AgentInfo(implementation="alara", llm=args.model or "the team's", llm_args={"npc": args.npc or "forenpc"})
    info.num_trials = args.trials
    Results(info=info, tasks=tasks, simulations=simulations).save(args.out / "results.json")
    print(args.out / "results.json")


def talk(args, config):
    tasks, simulations = get_tasks(config.domain, task_ids=args.task, num_tasks=args.tasks), []
    for trial in range(args.trials):
        for task in tasks:
            begun, clock, seed = get_now(), time.monotonic(), args.seed + trial
            try:
                place, records, reason, last = dialogue(args, config, task, seed)
                run = simulation(place, records, reason, last, trial, seed, begun)
            except Exception as error:  # noqa: BLE001: whatever failed, the others go on, and it is counted
                run = SimulationRun(id=str(uuid.uuid4()), task_id=task.id, start_time=begun, end_time=get_now(), duration=0.0,
                                    termination_reason=TerminationReason.INFRASTRUCTURE_ERROR, messages=[], trial=trial,
                                    seed=seed)
                print(f"{task.id}: {type(error).__name__}: {error}", file=sys.stderr)
            run.duration = time.monotonic() - clock
            simulations.append(run)
            reward = run.reward_info.reward if run.reward_info else 0.0
            print(f"{task.id} trial {trial}: {run.termination_reason.value}, reward {reward}", file=sys.stderr, flush=True)
            save(args, config, tasks, simulations)


def export(args, config):
    task = get_tasks(config.domain, task_ids=args.task)[0]
    place, log = Place(config, task), json.loads(args.log.read_text())
    for made in log["calls"]:
        place.call(made["name"], made["arguments"], made["requestor"])
    if place.calls != log["calls"] or any(log[name] != value for name, value in place.hashes().items()):
        raise ValueError(f"{args.log} is not of this task, or of another version of tau2-bench: its calls give other results")
    records = [json.loads(one) for one in args.trace.read_text().splitlines()]
    save(args, config, [task], [simulation(place, records, TerminationReason.USER_STOP, "###STOP###")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stdio", "talk", "export", "metrics"])
    parser.add_argument("trace", nargs="?", type=pathlib.Path, help="the trace, or the result file")
    parser.add_argument("--domain", default="mock")
    parser.add_argument("--task", nargs="+", help="ids of tasks [default: all]")
    parser.add_argument("--tasks", type=int, help="only so many tasks")
    parser.add_argument("--retrieval", help="tau2's retrieval config")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--temperature", type=float, help="the agent's [default: what its model's file recommends]")
    parser.add_argument("--turns", type=int, default=30, help="most messages of the user")
    parser.add_argument("--seconds", type=int, default=600, help="most seconds for an answer")
    parser.add_argument("--user-llm", default="openai/user", help="the model of tau2's user simulator")
    parser.add_argument("--user-llm-args", type=json.loads, default={})
    parser.add_argument("--script", type=lambda path: json.loads(pathlib.Path(path).read_text()),
                        help="instead of the simulator: a file with a list of the user's texts for each task id")
    parser.add_argument("--alara", default="alara")
    parser.add_argument("--team", type=pathlib.Path)
    parser.add_argument("--npc")
    parser.add_argument("--model")
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    args = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    if args.what == "metrics":
        metrics = compute_metrics(Results.load(args.trace))
        return print(json.dumps({"reward": metrics.avg_reward, "pass": metrics.pass_hat_ks}))
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    config = TextRunConfig(domain=args.domain, agent="llm_agent", llm_user=args.user_llm, llm_args_user=args.user_llm_args,
                           num_trials=args.trials, seed=args.seed, retrieval_config=args.retrieval, max_steps=args.turns)
    match args.what:
        case "stdio":
            stdio(Place(config, get_tasks(args.domain, task_ids=args.task)[0]), args.log)
        case "talk":
            talk(args, config)
        case "export":
            export(args, config)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
