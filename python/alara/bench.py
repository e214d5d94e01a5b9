"""The benchmark: runs of it, and its results as frames of pandas.

>>> import tempfile
>>> from alara import bench
>>> with tempfile.TemporaryDirectory() as folder:
...     results = bench.run(task="file-ops-01", attempts=1, out=folder + "/run", progress=None)
>>> results.attempts["task"].tolist()
['file-ops-01']
>>> results.summary()["category"].tolist()
['file-ops', 'all']
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from alara import _alara, _error, _json
from alara._binary import binary
from alara.engine import _path

if TYPE_CHECKING:
    import pandas

#: What the row of all categories together is called.
ALL = "all"
_SWEEP = "sweep.bench"


@dataclass(frozen=True)
class Results:
    """Runs of the benchmark, side by side."""

    #: A row an attempt.
    attempts: pandas.DataFrame
    _summary: pandas.DataFrame

    def summary(self, category: Optional[str] = None) -> pandas.DataFrame:
        """A row a category, and one for ``all`` of them, of each model under each condition.

        Each suite has rows of its own.

        ``score`` is the solved share of the cases (a task in a trial), from ``low`` to ``high`` its
        95 % interval; cases that the environment broke (``errors``) count neither for nor against.
        With ``category``, only the rows of that one.
        """
        rows: pandas.DataFrame = self._summary.copy()
        if category is not None:
            known = list(rows["category"].unique())
            if category not in known:
                raise ValueError(f"category: `{category}` is none of {', '.join(known)}")
            rows = rows[rows["category"] == category].reset_index(drop=True)
        return rows


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("the results are frames of pandas, which is not here: pip install 'alara[bench]'") from error
    return pandas


def read(*paths: Union[str, os.PathLike[str]]) -> Results:
    """The results in run files (``.jsonl``), and in those of folders, at any depth.

    Runs of several suites have the suite's name in ``suite``: scores of different suites don't
    compare.
    Models and conditions are called as in ``alara report``.
    """
    pandas = _pandas()
    if not paths:
        raise TypeError("paths: a run file or a folder is wanted")
    said = json.loads(_alara.read_runs([_path(path, "paths") for path in paths]))
    attempts = pandas.DataFrame(said["attempts"], columns=_columns(said["attempts"], _ATTEMPT))
    summary = pandas.DataFrame(said["summary"], columns=_columns(said["summary"], _SUMMARY))
    attempts.insert(attempts.columns.get_loc("verdict") + 1, "solved", attempts["verdict"] == "solved")
    return Results(attempts, summary)


#: What frames have even without a row.
_ATTEMPT = (
    *("suite", "model", "condition", "trial", "task", "category", "difficulty", "attempt", "verdict", "reason"),
    "seconds",
)
_SUMMARY = ("suite", "model", "condition", "category", "cases", "solved", "errors", "score", "low", "high")


def _columns(rows: list[dict[str, Any]], least: Sequence[str]) -> list[str]:
    return list(rows[0]) if rows else list(least)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run(
    *,
    models: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
    conditions: Optional[Sequence[Mapping[str, Any]]] = None,
    suite: Union[str, os.PathLike[str], None] = None,
    category: Union[str, Sequence[str], None] = None,
    task: Union[str, Sequence[str], None] = None,
    trials: int = 1,
    seed: int = 0,
    attempts: Optional[int] = None,
    timeout: Optional[int] = None,
    temperature: Optional[float] = None,
    parallel: int = 1,
    out: Union[str, os.PathLike[str], None] = None,
    resume: bool = False,
    progress: Optional[Callable[[str], object]] = _print,
) -> Results:
    """Runs models under conditions through a suite, by ``alara bench tasks``.

    models: files, names or addresses of endpoints; by default the model that ships.
    conditions: what is compared, each as in a `.bench` file:
        ``{"name": "warm", "temperature": 0.7}``.
    suite: a folder of tasks, or a file of them; by default the suite that ships.
    category, task: only tasks of these categories, or with these ids.
    trials, seed: how often all of it is repeated, and from which the seeds are derived.
    attempts, timeout: most attempts and seconds a task, where a condition says nothing else.
    out: the folder for the run files; by default a new one in ``runs``.
    resume: goes on with what lies in ``out``.
    progress: is called with each line of progress; ``None`` = nobody is told.

    Ctrl-C ends it; what has come to its end lies in ``out``, and ``resume`` goes on with it.
    """
    _pandas()
    program = binary()
    folder = Path(_path(out, "out")) if out is not None else Path("runs") / time.strftime("%Y-%m-%d-%H%M%S")
    sweep: dict[str, object] = {
        "suite": None if suite is None else os.path.abspath(_path(suite, "suite")),
        "models": [_path(model, "models") for model in models or []],
        "conditions": list(conditions or []),
        "trials": trials,
        "seed": seed,
        "categories": _several(category),
        "tasks": _several(task),
    }
    # JSON is YAML, too.
    said = _json.dumps(sweep)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _SWEEP
    if resume and not file.exists():
        raise _error.Error("there is nothing to go on with", str(folder), "leave resume out")
    if file.exists() and not resume:
        raise _error.Error("there is a run already", str(folder), "name another folder as out, or resume=True")
    file.write_text(said, encoding="utf-8")
    command = [os.fspath(program), "bench", "tasks", os.fspath(file), f"--parallel={int(parallel)}"]
    command += ["--resume" if resume else "--out", os.fspath(folder)]
    for flag, value in (("attempts", attempts), ("timeout", timeout), ("temperature", temperature)):
        if value is not None:
            command.append(f"--{flag}={value}")
    _follow(command, progress, str(folder))
    return read(folder)


def _several(names: Union[str, Sequence[str], None]) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])


def _follow(command: list[str], progress: Optional[Callable[[str], object]], where: str) -> None:
    """Runs the binary; each of its lines is progress."""
    lines: list[str] = []
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        # A terminal's interrupt is passed on once, below: a second one would end it in the middle.
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if progress is not None:
                progress(line.rstrip("\n"))
        code = process.wait()
    except BaseException:
        if process.poll() is None:
            process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
            # Who still has something to say waits until it is read.
            process.communicate()
        raise
    finally:
        if process.stderr is not None:
            process.stderr.close()
    if code != 0:
        raise _error.told("".join(lines), where)
