"""Teams of agents, and tasks for them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Union

from alara import _alara, _json, notices
from alara._binary import binary
from alara.engine import Engine, _path
from alara.events import Usage
from alara.notices import Notice, Question


class Team:
    """A directory of agents (NPCs) and their tools (jinxes), read.

    >>> import alara
    >>> team = alara.Team("alara")
    >>> team.forenpc in team.npcs
    True

    ``name`` is a directory (a path, or a text with a slash), or the name of a team: one that is
    built in, or that lies in ``./``, ``./teams`` or the user's configuration.
    Without it, it is ``./npc_team``, else the built-in team ``alara``.
    """

    def __init__(
        self,
        name: Union[str, os.PathLike[str], None] = None,
        *,
        workdir: Union[str, os.PathLike[str]] = ".",
    ) -> None:
        text = None if name is None else _path(name, "name")
        if text is not None and not isinstance(name, str):
            # A path is never the name of a team that lies elsewhere.
            text = os.path.join(text, "")
        # What its programs need is found out in the sandbox.
        binary()
        self._team = _alara.Team(text, _path(workdir, "workdir"))

    def __repr__(self) -> str:
        return f"Team({self.name!r})"

    @property
    def name(self) -> str:
        """Its name."""
        return self._team.name

    @property
    def directory(self) -> Optional[Path]:
        """Where it lies; ``None`` = it is built in."""
        directory = self._team.directory
        return None if directory is None else Path(directory)

    @property
    def forenpc(self) -> str:
        """The NPC that gets tasks."""
        return self._team.forenpc

    @property
    def npcs(self) -> list[str]:
        """The names of its NPCs."""
        return self._team.npcs

    @property
    def jinxes(self) -> list[str]:
        """The names of the jinxes that it knows, built-in ones included."""
        return self._team.jinxes

    @property
    def diagnostics(self) -> list[str]:
        """What is odd in its files, each with its place."""
        return self._team.diagnostics


@dataclass(frozen=True)
class Outcome:
    """What became of a task."""

    #: ``answer``, or why there is none: ``turn_limit``, ``length``, ``deadline``, ``cancelled``,
    #: ``repetition`` or ``failed``.
    outcome: str
    #: The answer; ``None`` if there is none.
    text: Optional[str]
    #: How it ended, in words.
    reason: str
    #: What all turns cost together.
    usage: Usage
    #: Turns of the first conversation.
    turns: int
    #: Calls of tools.
    calls: int
    #: The file that all of it is written in, if one could be; ``alara trace show`` reads it.
    trace: Optional[Path]
    #: Calls that still ran in the background, and were ended.
    ended_jobs: list[str]

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.outcome == "answer"


def run(
    task: str,
    *,
    team: Union[Team, str, os.PathLike[str], None] = None,
    npc: Optional[str] = None,
    model: Union[Engine, str, os.PathLike[str], None] = None,
    workdir: Union[str, os.PathLike[str]] = ".",
    yes: bool = False,
    on_event: Optional[Callable[[Notice], object]] = None,
    ask: Optional[Callable[[Question], bool]] = None,
    schema: Optional[Mapping[str, Any]] = None,
    dry_run: bool = False,
    context_files: bool = False,
    trace: Union[str, os.PathLike[str], None] = None,
    seed: int = 0,
    temperature: Optional[float] = None,
) -> Outcome:
    """Lets an agent work on a task.

    What it runs, it runs in the same sandbox as ``alara run``: files can be changed in ``workdir``
    only.
    Before anything that lies there is removed, overwritten or moved, ``ask`` is called; without it
    the answer is no, and with ``yes`` it is yes.

    >>> import alara, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outcome = alara.run("create a file hello.txt that contains the word hello", workdir=folder)
    ...     print(outcome.ok, (Path(folder) / "hello.txt").read_text().strip())
    True hello

    team, npc: who works; by default the NPC that leads the team.
    model: an `Engine`, which keeps what it computed for the next run; or a file, a name, or the
        address of an endpoint; by default what the team's files say, else the model that ships.
    on_event: is called with what happens, in the thread of the caller.
        What it raises cancels the run, and so does Ctrl-C.
    schema: the answer is JSON that is valid for it.
    dry_run: shows calls without making those that change something.
    context_files: whether agents read ``AGENTS.md`` of the work directory and of those around it.
    trace: where to write the trace; by default a new file in the user's state directory.
    seed, temperature: how tokens are drawn; by default as the model's file recommends.
    """
    if not isinstance(task, str):
        raise TypeError(f"task: a text is wanted, not {type(task).__name__}")
    for name, callback in (("on_event", on_event), ("ask", ask)):
        if callback is not None and not callable(callback):
            raise TypeError(f"{name}: a function is wanted, not {type(callback).__name__}")
    # It starts what agents run.
    binary()
    incomplete = _alara.sandbox_warning()
    if incomplete is not None:
        warnings.warn(incomplete, RuntimeWarning, stacklevel=2)
    if not isinstance(team, Team):
        team = Team(team, workdir=workdir)
    engine = model._engine if isinstance(model, Engine) else None
    settings = _json.dumps(
        {
            "npc": npc,
            "model": None if model is None or isinstance(model, Engine) else _path(model, "model"),
            "workdir": _path(workdir, "workdir"),
            "yes": yes,
            "dry_run": dry_run,
            "context_files": context_files,
            "schema": schema,
            "trace": None if trace is None else _path(trace, "trace"),
            "seed": seed,
            "temperature": temperature,
        }
    )
    heard = None if on_event is None else _heard(on_event)
    asked = None if ask is None else _asked(ask)
    report = json.loads(_alara.run(task, team._team, engine, settings, heard, asked))
    report["usage"] = Usage(**report["usage"])
    report["trace"] = report["trace"] and Path(report["trace"])
    return Outcome(**report)


def _heard(on_event: Callable[[Notice], object]) -> Callable[[str], None]:
    def heard(notice: str) -> None:
        on_event(notices.read(json.loads(notice)))

    return heard


def _asked(ask: Callable[[Question], bool]) -> Callable[[str], bool]:
    return lambda question: bool(ask(Question(**json.loads(question))))
