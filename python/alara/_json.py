"""Values on their way to the engine, which reads them as JSON."""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: object, name: str) -> Any:
    """The value as JSON has it; a `TypeError` names what can't be.

    >>> plain({"a": (1, 2.5, None)}, "value")
    {'a': [1, 2.5, None]}
    >>> plain({"a": [object()]}, "value")
    Traceback (most recent call last):
        ...
    TypeError: value.a[0]: an object of type object is not a value that JSON has
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {key: plain(item, f"{name}.{key}") for key, item in fields.items() if item is not None}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{name}: the key {key!r} is no text")
        return {key: plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{name}: an object of type {type(value).__name__} is not a value that JSON has")


def dumps(fields: Mapping[str, object]) -> str:
    """The fields that say something, as a JSON object."""
    said = {name: plain(value, name) for name, value in fields.items() if value is not None}
    return json.dumps(said, allow_nan=False)
