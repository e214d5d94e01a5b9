"""Tasks: what agents may do, what is told of it, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import alara
from alara import notices


def shell(command):
    return {"calls": [{"name": "shell", "arguments": {"command": command}}]}


DONE = {"text": "It is done."}


def test_a_task_is_told_and_recorded(script, work, tmp_path):
    told = []
    model = script(shell("echo hi > made.txt; echo out"), DONE)
    trace = tmp_path / "trace.jsonl"
    outcome = alara.run("make it", model=model, workdir=work, on_event=told.append, trace=trace)
    assert outcome.ok and outcome.text == "It is done."
    assert (outcome.turns, outcome.calls, outcome.trace) == (2, 1, trace)
    assert (work / "made.txt").read_text() == "hi\n"
    kinds = [type(notice).__name__ for notice in told if not isinstance(notice, notices.Model)]
    assert kinds == ["Turn", "Call", "Result", "Turn"]
    [result] = [notice for notice in told if isinstance(notice, notices.Result)]
    assert result.ok and result.output.strip() == "out" and result.call.name == "shell"
    assert any(json.loads(line) for line in trace.read_text().splitlines())


def test_the_sandbox_is_that_of_the_binary(script, work, tmp_path):
    outside = tmp_path / "outside.txt"
    told = []
    model = script(shell(f"echo no > {outside}"), DONE)
    alara.run("try", model=model, workdir=work, on_event=told.append)
    [result] = [notice for notice in told if isinstance(notice, notices.Result)]
    assert not result.ok and not outside.exists()


@pytest.mark.parametrize("how, left", [("nobody", True), ("yes", False), ("asked", False), ("refused", True)])
def test_what_is_lost_takes_a_yes(script, work, how, left):
    kept = work / "kept.txt"
    kept.write_text("mine")
    questions, told = [], []

    def ask(question):
        questions.append(question)
        return how == "asked"

    outcome = alara.run(
        "remove it",
        model=script(shell("rm kept.txt"), DONE),
        workdir=work,
        yes=how == "yes",
        ask=ask if how in ("asked", "refused") else None,
        on_event=told.append,
    )
    assert outcome.ok and kept.exists() == left
    assert len(questions) == (how in ("asked", "refused"))
    for question in questions:
        assert question.jinx == "shell" and "kept.txt" in question.risk[0]
    unchanged = [notice.nobody for notice in told if isinstance(notice, notices.Unchanged)]
    assert unchanged == ([how == "nobody"] if left else [])


def test_what_a_callback_raises_ends_the_run(script, work):
    def on_event(notice):
        if isinstance(notice, notices.Call):
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        alara.run("go on", model=script(shell("sleep 60"), DONE), workdir=work, on_event=on_event)


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_an_interrupt_ends_a_run(script, work):
    model = script(shell("sleep 60"), DONE)
    code = f"""
import alara
from alara import notices
def tell(notice):
    if isinstance(notice, notices.Call): print("begun", flush=True)
try:
    alara.run("wait", model={model!r}, workdir={str(work)!r}, on_event=tell)
    print("whole")
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert out == "interrupted\n"


def test_a_dry_run_changes_nothing(script, work):
    outcome = alara.run("make", model=script(shell("touch made.txt"), DONE), workdir=work, dry_run=True)
    assert outcome.ok and not list(work.iterdir())


def test_an_answer_by_a_schema(engine, work):
    schema = {"type": "object", "properties": {"n": {"enum": [4]}}, "required": ["n"], "additionalProperties": False}
    task = "create a file hello.txt that contains the word hello"
    outcome = alara.run(task, model=engine, workdir=work, schema=schema)
    assert outcome.ok and json.loads(outcome.text) == {"n": 4}
    assert outcome.usage.completion_tokens > 0


def test_an_engine_keeps_what_it_computed(engine, work):
    first, second = (alara.run("Say hello.", model=engine, workdir=work) for _ in range(2))
    assert second.usage.cached_tokens > first.usage.prompt_tokens / 2


def test_a_team_of_ones_own(script, work, tmp_path, monkeypatch):
    team = tmp_path / "npc_team"
    team.mkdir()
    (team / "team.ctx").write_text("forenpc: boss\n")
    (team / "boss.npc").write_text("name: boss\nprimary_directive: Work.\njinxes: [shell]\n")
    read = alara.Team(team)
    assert (read.forenpc, read.npcs, read.directory) == ("boss", ["boss"], read.directory)
    assert alara.run("go", team=read, model=script(DONE), workdir=work).ok
    with pytest.raises(alara.Error, match="boss") as caught:
        alara.run("go", team=read, npc="bos", model=script(DONE), workdir=work)
    assert "bos" in caught.value.what
    # Found and not named: somebody else may have put it there.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(alara.Error, match="was found here, not named") as caught:
        alara.run("go", model=script(DONE), workdir=work)
    assert "yes=True" in caught.value.remedy
    assert alara.run("go", model=script(DONE), workdir=work, yes=True).ok


def test_what_is_not_there_is_named(work, tmp_path):
    with pytest.raises(alara.Error, match="no-such-team"):
        alara.run("go", team="no-such-team", workdir=work)
    with pytest.raises(alara.Error, match="work directory"):
        alara.run("go", workdir=tmp_path / "none")
    with pytest.raises(alara.Error, match="there is no model file no-such"):
        alara.run("go", model="no-such", workdir=work)
    with pytest.raises(TypeError, match="on_event: a function is wanted, not int"):
        alara.run("go", workdir=work, on_event=3)
    with pytest.raises(TypeError, match="task: a text is wanted, not list"):
        alara.run(["go"], workdir=work)


def test_a_key_of_a_team_takes_a_yes(work, tmp_path, monkeypatch):
    team = tmp_path / "team"
    team.mkdir()
    (team / "team.ctx").write_text("forenpc: boss\n")
    (team / "boss.npc").write_text(
        "name: boss\nprimary_directive: Work.\nmodel: m\nprovider: x\napi_url: https://127.0.0.1:1\napi_key: $THE_KEY\n"
    )
    monkeypatch.setenv("THE_KEY", "secret")
    with pytest.raises(alara.Error, match="send the key in THE_KEY to 127.0.0.1:1, and nobody said yes") as caught:
        alara.run("go", team=team, workdir=work)
    assert "yes=True" in caught.value.remedy


def test_the_binary_is_of_the_same_version():
    assert alara.__version__ in subprocess.run([alara.binary(), "--version"], capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "binary, what",
    [("no-such-binary", "can't be started"), ("#!/bin/sh\necho alara 0.0.1\n", "is of version 0.0.1")],
)
def test_another_binary_is_refused(work, tmp_path, binary, what):
    path = tmp_path / "other"
    if binary.startswith("#!"):
        path.write_text(binary)
        path.chmod(0o755)
    code = "import alara\ntry:\n    alara.run('x')\nexcept alara.Error as error:\n    print(error)"
    environment = {**os.environ, "ALARA_BINARY": str(path)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=work)
    assert what in told.stdout and "ALARA_BINARY" in told.stdout, told.stderr
