"""What happens while a turn is generated.

>>> import alara
>>> engine = alara.Engine()
>>> request = alara.Request("Is 7 a prime?", schema={"enum": ["yes"]})
>>> for event in engine.generate(request):
...     if isinstance(event, alara.events.Done):
...         print(event.finish, event.usage.prompt_tokens > 0)
stop True

From Python 3.10 on, ``match event: case Text(text): …`` does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union


@dataclass(frozen=True)
class Prefill:
    """A part of a long prompt is computed, and more is to come."""

    #: Tokens that are done, cached ones included.
    computed: int
    #: Of these, the tokens that were not computed again.
    cached: int
    #: Tokens of the whole prompt.
    prompt: int


@dataclass(frozen=True)
class Text:
    """The next piece of the answer; it never splits a character."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """The next piece of the model's reasoning."""

    text: str


@dataclass(frozen=True)
class Logprob:
    """A token and what the model thought of it."""

    #: Its id.
    token: int
    #: Its bytes in the text, perhaps half a character.
    bytes: bytes
    #: The natural logarithm of its probability by the model's own logits.
    logprob: float


@dataclass(frozen=True)
class TokenLogprobs:
    """A token of an answer, and what could have come in its place."""

    #: The token of the answer.
    chosen: Logprob
    #: The most likely tokens, the most likely first.
    top: tuple[Logprob, ...]


@dataclass(frozen=True)
class Logprobs:
    """The tokens of the piece that comes next, for requests with ``logprobs``."""

    tokens: tuple[TokenLogprobs, ...]


@dataclass(frozen=True)
class ToolCallDelta:
    """The next piece of a call that is being written."""

    #: Which call of the turn it is, from 0.
    index: int
    #: A piece of the arguments' JSON text.
    arguments: str
    #: The tool's name: with the first piece of a call only.
    name: Optional[str] = None


@dataclass(frozen=True)
class ToolCall:
    """A complete call, valid for its tool's schema."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Incomplete:
    """A call that the end of the turn cut off; it must not run."""

    name: str
    #: The beginning of the arguments' JSON text.
    arguments: str


@dataclass(frozen=True)
class Usage:
    """What a turn cost; times in seconds."""

    #: Tokens of the prompt, cached ones included.
    prompt_tokens: int = 0
    #: Of these, the tokens that were not computed again.
    cached_tokens: int = 0
    #: Of these, the tokens that were read from disk.
    disk_tokens: int = 0
    #: Tokens generated.
    completion_tokens: int = 0
    #: From the request to the first generated token.
    time_to_first_token: float = 0.0
    #: The steps that computed the prompt.
    prefill_time: float = 0.0
    #: Of that, what it took to keep state for later prompts.
    snapshot_time: float = 0.0
    #: From the first generated token to the last.
    decode_time: float = 0.0
    #: The stop text that ended the turn, if one did.
    stop_text: Optional[str] = None
    #: Why no more of the prompt was found in the prefix cache.
    miss: Optional[dict[str, Any]] = None
    #: What the grammar did.
    grammar: dict[str, float] = field(default_factory=dict)
    #: Speculative decoding: tokens drafted and accepted.
    drafts: dict[str, int] = field(default_factory=dict)
    #: What of the tools' schemas the grammar did not guarantee.
    loosened: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    """The turn has ended."""

    #: ``stop``, ``tool_calls``, ``length`` or ``repetition``.
    finish: str
    usage: Usage


#: What happens while a turn is generated, in order; `Done` comes last.
Event = Union[Prefill, Text, Reasoning, Logprobs, ToolCallDelta, ToolCall, Incomplete, Done]


def _logprob(said: Mapping[str, Any]) -> Logprob:
    return Logprob(said["token"], bytes(said["bytes"]), said["logprob"])


def _logprobs(tokens: list[dict[str, Any]]) -> Logprobs:
    both = (TokenLogprobs(_logprob(token), tuple(map(_logprob, token["top"]))) for token in tokens)
    return Logprobs(tuple(both))


_CLASSES: dict[str, Any] = {
    "prefill": Prefill,
    "text": Text,
    "reasoning": Reasoning,
    "logprobs": _logprobs,
    "tool_call_delta": ToolCallDelta,
    "tool_call": ToolCall,
    "incomplete": Incomplete,
    "done": lambda finish, usage: Done(finish, Usage(**usage)),
}


def read(said: Mapping[str, Any]) -> Event:
    """The event that the engine tells so."""
    fields = dict(said)
    event: Event = _CLASSES[fields.pop("type")](**fields)
    return event
