"""What a model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, TypedDict, Union

from alara import _json
from alara.events import ToolCall


@dataclass
class Message:
    """A message of a conversation.

    >>> import alara
    >>> alara.Message("user", "Hello")
    Message(role='user', content='Hello', reasoning_content=None, tool_calls=[], tool_call_id=None, name=None)
    """

    #: ``system``, ``user``, ``assistant`` or ``tool``.
    role: str
    content: str = ""
    #: What a reasoning model thought before it spoke.
    reasoning_content: Optional[str] = None
    #: The calls that an assistant's message makes.
    tool_calls: Sequence[ToolCall] = field(default_factory=list)
    #: Of a tool's message: the id of the call that it answers.
    tool_call_id: Optional[str] = None
    #: Of a tool's message: the name of the tool.
    name: Optional[str] = None


@dataclass
class Tool:
    """A tool that the model may call."""

    name: str
    #: What it does, for the model.
    description: str
    #: The JSON schema of its arguments, an object's.
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    #: Whether calls must be valid for the whole schema: one that can't be guaranteed is refused then.
    strict: bool = False


class Sampling(TypedDict, total=False):
    """How tokens are drawn; what is left out is as the model's file recommends.

    The words are those of llama.cpp; a ``temperature`` of 0 takes the most likely token.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_last_n: int
    logit_bias: Sequence[tuple[Union[int, str], float]]
    dynatemp_range: float
    dynatemp_exponent: float
    xtc_probability: float
    xtc_threshold: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]


_CHOICES = ("auto", "none", "required")


@dataclass
class Request:
    """One turn to generate.

    >>> import alara
    >>> request = alara.Request("What is 6 times 7?", max_tokens=20, sampling={"temperature": 0.7})
    >>> request.messages
    'What is 6 times 7?'

    What can't be understood is named:

    >>> alara.Engine().complete(alara.Request("Hello", max_tokens="many"))
    Traceback (most recent call last):
        ...
    TypeError: max_tokens: invalid type: string "many", expected usize
    """

    #: The conversation so far; a text is one message of the user.
    messages: Union[str, Sequence[Union[Message, Mapping[str, Any]]]] = ()
    #: The static part of the system prompt; it is kept in the cache longest.
    system: Optional[str] = None
    #: The tools that this turn may call: no other name can be written.
    tools: Sequence[Union[Tool, Mapping[str, Any]]] = ()
    #: ``auto``, ``none``, ``required``, or the name of the tool that is to be called.
    tool_choice: str = "auto"
    #: A JSON schema: the answer is JSON that is valid for it.
    schema: Union[Mapping[str, Any], bool, None] = None
    #: A grammar of the answer in place of a schema: Lark, or GBNF.
    grammar: Optional[str] = None
    sampling: Optional[Sampling] = None
    #: Most tokens to generate; ``None`` = up to the context's end.
    max_tokens: Optional[int] = None
    #: Texts that end the turn.
    stop: Sequence[str] = ()
    #: Whether a model that can reason does so; ``None`` = what its template says.
    thinking: Optional[bool] = None
    #: ``low``, ``medium`` or ``high``, for models that know levels.
    reasoning_effort: Optional[str] = None
    #: Most tokens of reasoning.
    reasoning_tokens: Optional[int] = None
    #: Whether one turn may make several calls.
    parallel_tool_calls: bool = False
    #: Tells what the model thought of each token, beside so many of the most likely ones.
    logprobs: Optional[int] = None
    #: Whether the last message, the assistant's, is the beginning of the answer.
    continue_final_message: bool = False
    #: Goes on up to ``max_tokens``, for measurements.
    ignore_eos: bool = False
    #: Requests of different salts share nothing in the prefix cache.
    salt: str = ""
    #: The whole prompt as text, in place of what the chat template makes of all the above.
    prompt: Optional[str] = None

    def to_json(self) -> str:
        """As the engine reads it."""
        messages = self.messages
        if isinstance(messages, str):
            messages = [Message("user", messages)]
        fields = dict(self.__dict__, messages=messages)
        fields["system"] = [{"name": "system", "text": self.system}] if self.system is not None else []
        if self.tool_choice not in _CHOICES:
            fields["tool_choice"] = {"named": self.tool_choice}
        return _json.dumps(fields)
