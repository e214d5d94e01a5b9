"""What happens while an agent works on a task: see `alara.run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from alara import events
from alara.events import Event, ToolCall


@dataclass(frozen=True)
class Turn:
    """A turn of an NPC begins; the first is 1."""

    npc: str
    #: How many conversations it is inside of: 0 is the one that the run began with.
    depth: int
    turn: int


@dataclass(frozen=True)
class Model:
    """The model says or calls something, or its turn is over."""

    depth: int
    event: Event


@dataclass(frozen=True)
class Call:
    """A call begins."""

    depth: int
    call: ToolCall


@dataclass(frozen=True)
class Result:
    """A call has ended."""

    depth: int
    call: ToolCall
    ok: bool
    output: str
    #: What went wrong; empty if nothing did.
    error: str
    seconds: float


@dataclass(frozen=True)
class Response:
    """A jinx gives a response."""

    response: dict[str, Any]


@dataclass(frozen=True)
class Warned:
    """Something is not as it should be, and the work goes on."""

    text: str


@dataclass(frozen=True)
class Unchanged:
    """Nothing was changed in the work directory, since nobody agreed."""

    #: What would have been done, as in "removes a, overwrites b".
    what: str
    #: Whether nobody was there to be asked.
    nobody: bool


@dataclass(frozen=True)
class Job:
    """A program begins to run in the background, or has ended."""

    job: int
    call: str
    #: How it ended, if it did.
    ended: Optional[str]


@dataclass(frozen=True)
class Compaction:
    """The conversation was shortened to fit the context."""

    #: How many messages were replaced.
    messages: int


#: What happens during a run.
Notice = Union[Turn, Model, Call, Result, Response, Warned, Unchanged, Job, Compaction]


@dataclass(frozen=True)
class Question:
    """What a person is asked about a call."""

    npc: str
    #: The jinx that is called.
    jinx: str
    arguments: dict[str, Any]
    #: The variables of the environment that its programs would get.
    variables: list[str]
    #: What would be lost in the work directory, each as a phrase; empty if that is not the question.
    risk: list[str]


_CLASSES: dict[str, Any] = {
    "turn": Turn,
    "model": Model,
    "call": Call,
    "result": Result,
    "response": Response,
    "warned": Warned,
    "unchanged": Unchanged,
    "job": Job,
    "compaction": Compaction,
}


def read(said: Mapping[str, Any]) -> Notice:
    """The notice that the harness tells so."""
    fields = dict(said)
    kind = fields.pop("notice")
    if kind == "model":
        fields["event"] = events.read(fields["event"])
    if kind in ("call", "result"):
        fields["call"] = ToolCall(**fields["call"])
    notice: Notice = _CLASSES[kind](**fields)
    return notice
