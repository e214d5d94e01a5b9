"""Benchmarks: runs, frames, and the notebook that draws them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import alara
from alara import bench

TASK = """id: {id}
category: {category}
difficulty: easy
instruction: create a file hello.txt that contains the word hello
verify: |
  {verify}
gold: |
  echo hello > hello.txt
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    """Two tasks that the model that ships solves, and one that nobody can."""
    folder = tmp_path_factory.mktemp("suite")
    for name, verify in (("easy-1", "grep -q hello hello.txt"), ("easy-2", "[ -f hello.txt ]"), ("hard-1", "echo no; exit 1")):
        text = TASK.format(id=name, category=name[:4], verify=verify)
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def results(suite, tmp_path_factory):
    lines: list[str] = []
    out = tmp_path_factory.mktemp("runs") / "run"
    conditions = [{"name": "one", "attempts": 1}, {"name": "two", "attempts": 2}]
    results = bench.run(suite=suite, conditions=conditions, out=out, progress=lines.append)
    return results, out, lines


def test_attempts_are_rows(results):
    results, out, lines = results
    frame = results.attempts
    counts = frame.groupby(["condition", "task"]).size().to_dict()
    assert counts[("one", "hard-1")] == 1 and counts[("two", "hard-1")] == 2
    easy = frame[(frame.category == "easy") & (frame.attempt == 1)]
    assert easy.solved.all() and set(easy.model) == {"alara-tiny"}
    assert (frame.tokens_out > 0).all() and not frame[frame.task == "hard-1"].solved.any()
    assert all(Path(file).is_file() for file in frame.file)
    assert any("hard-1" in line and "failed" in line for line in lines)


def test_summaries_are_those_of_the_report(results):
    results, out, _ = results
    summary = results.summary()
    assert list(summary.category) == ["easy", "hard", "all"] * 2
    row = summary[(summary.condition == "one") & (summary.category == "all")].iloc[0]
    assert (row.cases, row.solved, row.errors) == (3, 2, 0)
    assert row.score == pytest.approx(2 / 3) and 0 < row.low < row.score < row.high < 1
    report = subprocess.run([alara.binary(), "report", out], capture_output=True, text=True)
    assert f"{row.low * 100:.1f} – {row.high * 100:.1f}" in report.stdout, report.stderr
    assert list(results.summary("hard").solved) == [0, 0]
    with pytest.raises(ValueError, match="category: `soft` is none of easy, hard, all"):
        results.summary("soft")


def test_runs_are_read_again(results, tmp_path):
    results, out, _ = results
    again = bench.read(out)
    assert again.attempts.equals(results.attempts)
    file = sorted(out.glob("*.jsonl"))[0]
    assert len(bench.read(file).attempts) < len(again.attempts)
    with pytest.raises(alara.Error) as caught:
        bench.read(tmp_path)
    assert caught.value.where == str(tmp_path)


def test_runs_of_several_suites_are_told_apart(results, tmp_path):
    results, out, _ = results
    head, rest = sorted(out.glob("*.jsonl"))[0].read_text().split("\n", 1)
    (tmp_path / "one.jsonl").write_text(f"{head}\n{rest}")
    suite = json.loads(head)["suite"]["name"]
    head = json.dumps({**json.loads(head), "suite": {"name": "another", "hash": "1"}})
    (tmp_path / "two.jsonl").write_text(f"{head}\n{rest}")
    both = bench.read(tmp_path)
    assert list(both.attempts.suite.unique()) == [suite, "another"]
    summary = both.summary("all")
    assert list(summary.suite) == [suite, "another"] and summary.solved.nunique() == 1


def test_a_run_goes_on(results, suite):
    results, out, _ = results
    with pytest.raises(alara.Error, match="there is a run already"):
        bench.run(suite=suite, out=out)
    lines: list[str] = []
    conditions = [{"name": "one", "attempts": 1}, {"name": "two", "attempts": 2}]
    again = bench.run(suite=suite, conditions=conditions, out=out, resume=True, progress=lines.append)
    assert again.attempts.equals(results.attempts) and not any("solved" in line for line in lines)


def test_what_the_binary_refuses_is_raised(suite, tmp_path):
    with pytest.raises(alara.Error) as caught:
        bench.run(models=["no-such-model"], suite=suite, out=tmp_path / "run", progress=None)
    assert "no-such-model" in caught.value.what, caught.value
    with pytest.raises(alara.Error, match="no-such"):
        bench.run(category="no-such", out=tmp_path / "other", progress=None)


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_an_interrupt_ends_a_run_that_can_go_on(tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    for name, verify in (("fast-1", "true"), ("slow-1", "sleep 100")):
        (suite / f"{name}.yaml").write_text(TASK.format(id=name, category=name[:4], verify=verify))
    code = f"""
from alara import bench
def tell(line):
    if "fast-1" in line: print("begun", flush=True)
try:
    bench.run(suite={str(suite)!r}, out={str(tmp_path / "run")!r}, attempts=1, progress=tell)
    print("whole")
except KeyboardInterrupt:
    print("interrupted", len(bench.read({str(tmp_path / "run")!r}).attempts))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted 1\n"


def test_without_pandas_it_says_what_to_install():
    code = "import sys; sys.modules['pandas'] = None\nfrom alara import bench\ntry:\n    bench.read('x')\nexcept ImportError as error:\n    print(error)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'alara[bench]'" in told.stdout, told.stderr


def test_the_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    source = Path(__file__).parent.parent / "notebooks" / "compare.ipynb"
    notebook = nbformat.read(shutil.copy(source, tmp_path), as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    # In a folder of its own: it writes its runs there.
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    [summary] = [o.data["text/plain"] for o in outputs if "low" in o.get("data", {}).get("text/plain", "")]
    assert "forced" in summary and "free" in summary
