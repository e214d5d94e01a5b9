"""A model, loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from alara import _alara, _json, events
from alara.events import Event, Incomplete, ToolCall, Usage
from alara.request import Request


@dataclass(frozen=True)
class Completion:
    """A whole answer."""

    text: str
    #: What the model thought before it spoke.
    reasoning: str
    tool_calls: list[ToolCall]
    #: ``stop``, ``tool_calls``, ``length`` or ``repetition``.
    finish: str
    usage: Usage
    #: A call that the end of the turn cut off; it must not run.
    incomplete: Optional[Incomplete] = None
    #: For requests with ``logprobs``.
    logprobs: list[events.TokenLogprobs] = field(default_factory=list)

    def json(self) -> Any:
        """The text as the JSON that it is, where the request had a schema."""
        return json.loads(self.text)


class Engine:
    """A loaded model.

    >>> import alara
    >>> engine = alara.Engine()
    >>> engine.name
    'alara-tiny.gguf'
    >>> engine.complete(alara.Request("Is 7 a prime?", schema={"enum": ["yes"]})).json()
    'yes'

    ``model`` is a GGUF file, the folder of a checkpoint, or a name of ``alara models list`` of what
    is on this machine; without it, it is the model that ships.

    The lock of the interpreter is not held while the model computes, so threads may ask one engine
    at the same time: ``parallel`` says how many turns run side by side.
    """

    def __init__(
        self,
        model: Union[str, os.PathLike[str], None] = None,
        *,
        context: Optional[int] = None,
        parallel: int = 1,
        kv: str = "f16",
        kv_gb: Optional[float] = None,
        device: str = "auto",
        gpu_layers: Optional[int] = None,
        threads: Optional[int] = None,
        tool_format: Optional[str] = None,
        chat_template: Union[str, os.PathLike[str], None] = None,
        thinking: Optional[bool] = None,
        drafts: bool = True,
    ) -> None:
        """Loads a model.

        context: most tokens of a conversation; by default what the model was trained for, at most
            32768.
        kv, kv_gb: the number format of the KV cache (``f32``, ``f16``, ``q8_0``), and most GB of it.
        device, gpu_layers: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``metal``, and how many layers
            go on the GPU.
        threads: how many compute.
        tool_format, chat_template: how calls are written, and a Jinja file, if not as the model's
            file says.
        thinking: whether a model that can reason does so.
        drafts: speculative decoding by prompt lookup; it changes no answer.
        """
        name = None if model is None else _path(model, "model")
        settings = _json.dumps(
            {
                "context": context,
                "parallel": parallel,
                "kv": kv,
                "kv_gb": kv_gb,
                "device": device,
                "gpu_layers": gpu_layers,
                "threads": threads,
                "tool_format": tool_format,
                "chat_template": None if chat_template is None else _path(chat_template, "chat_template"),
                "thinking": thinking,
                "drafts": drafts,
            }
        )
        self._engine = _alara.Engine(name, settings)

    def __repr__(self) -> str:
        return f"Engine({self.name!r})"

    @property
    def name(self) -> str:
        """What messages call the model."""
        return self._engine.name

    @property
    def context(self) -> int:
        """Most tokens of a conversation."""
        return self._engine.context

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return self._engine.vocabulary

    @property
    def is_encoder(self) -> bool:
        """Whether the model makes embeddings only, and writes no text."""
        return self._engine.is_encoder

    @property
    def tool_format(self) -> Optional[str]:
        """How calls are written; ``None`` = the chat template shows a way that is not known."""
        return self._engine.tool_format

    @property
    def chat_template(self) -> str:
        """The source of the chat template."""
        return self._engine.chat_template

    @property
    def notes(self) -> list[str]:
        """What a person should know about how the model was loaded."""
        return self._engine.notes

    def generate(self, request: Union[Request, str]) -> Iterator[Event]:
        """Starts a turn, and gives its events as they happen.

        To close or drop the iterator cancels the turn, and so does Ctrl-C.

        >>> import alara
        >>> turn = alara.Engine().generate(alara.Request("Count.", max_tokens=50, ignore_eos=True))
        >>> type(next(turn)).__name__
        'Text'
        >>> turn.close()
        """
        # Refused here and not when the first event is asked for.
        return _read(self._engine.generate(_request(request)))

    def complete(self, request: Union[Request, str]) -> Completion:
        """The whole answer.

        >>> import alara
        >>> weather = alara.Tool("weather", "Tells the weather of a city.",
        ...     {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]})
        >>> answer = alara.Engine().complete(
        ...     alara.Request("How is it in Oslo?", tools=[weather], tool_choice="required"))
        >>> answer.tool_calls[0].name, answer.tool_calls[0].arguments
        ('weather', {'city': 'Oslo'})
        """
        text: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        logprobs: list[events.TokenLogprobs] = []
        incomplete = None
        finish, usage = "", Usage()
        for event in self.generate(request):
            if isinstance(event, events.Text):
                text.append(event.text)
            elif isinstance(event, events.Reasoning):
                reasoning.append(event.text)
            elif isinstance(event, events.Logprobs):
                logprobs.extend(event.tokens)
            elif isinstance(event, ToolCall):
                calls.append(event)
            elif isinstance(event, Incomplete):
                incomplete = event
            elif isinstance(event, events.Done):
                finish, usage = event.finish, event.usage
        return Completion("".join(text), "".join(reasoning), calls, finish, usage, incomplete, logprobs)

    def prompt(self, request: Union[Request, str]) -> str:
        """The text that the chat template makes of a request.

        >>> import alara
        >>> "Hello" in alara.Engine().prompt("Hello")
        True
        """
        return self._engine.prompt(_request(request))

    def prompt_tokens(self, request: Union[Request, str]) -> list[int]:
        """The tokens of that text."""
        return self._engine.prompt_tokens(_request(request))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The tokens of a text; with ``special``, texts of control tokens become these.

        >>> import alara
        >>> engine = alara.Engine()
        >>> engine.detokenize(engine.tokenize("Hello there"))
        'Hello there'
        """
        return self._engine.tokenize(text, special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens; with ``special``, control tokens are shown."""
        return self._engine.detokenize(tokens, special)

    def embed(self, texts: Sequence[str], *, truncate: bool = False) -> list[list[float]]:
        """A vector of length 1 for each text; with ``truncate``, what is too long is cut at its end.

        >>> import alara
        >>> [vector] = alara.Engine().embed(["a text"])
        >>> round(sum(number * number for number in vector), 3)
        1.0
        """
        if isinstance(texts, str):
            raise TypeError("texts: a list of texts is wanted, not one text")
        return self._engine.embed(list(texts), truncate)


def _read(native: _alara.Events) -> Iterator[Event]:
    for event in native:
        yield events.read(json.loads(event))


def _request(request: Union[Request, str]) -> str:
    if isinstance(request, str):
        request = Request(request)
    if not isinstance(request, Request):
        raise TypeError(f"request: a Request or a text is wanted, not {type(request).__name__}")
    return request.to_json()


def _path(path: Union[str, os.PathLike[str]], argument: str) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        raise TypeError(f"{argument}: a path or a name is wanted, not {type(path).__name__}") from None
    if not isinstance(text, str):
        raise TypeError(f"{argument}: a path is wanted as text, not as bytes")
    return text
