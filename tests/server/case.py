"""What a case is: a request, and what must hold of the answer.

A case is data: name, method and path, body, status, and predicates by path.
A path is as in `choices[0].message.content`; `[*]` means each, and gives a list; `[-1]` is the last.
The path "" is the whole body, `@text` its text, `@headers.NAME` a header.
In a stream the body is the list of its events.
A predicate is a value, which must be equal, or a function of what stands there; `absent`: nothing does.
"""

import dataclasses
import json
import re

absent = object()


@dataclasses.dataclass
class Case:
    name: str
    request: str
    body: object = None
    status: int = 200
    holds: dict = dataclasses.field(default_factory=dict)
    # Why it isn't as with llama.cpp's server: a key of `differs.REASONS`.
    differs: str | None = None
    headers: dict = dataclasses.field(default_factory=dict)
    # What later cases of the same file use: names, and paths in this answer.
    keep: dict = dataclasses.field(default_factory=dict)
    # Which server: a key of `run.SERVERS`.
    server: str = "plain"


@dataclasses.dataclass
class Kept:
    """Stands for what an earlier case kept; `change` makes something else of it."""

    name: str
    change: object = None

    def value(self, kept):
        value = kept[self.name]
        return self.change(value) if self.change else value


def filled(value, kept):
    """`value` with what earlier cases kept in place of each Kept."""
    match value:
        case Kept():
            return value.value(kept)
        case dict():
            return {filled(key, kept): filled(one, kept) for key, one in value.items()}
        case list():
            return [filled(one, kept) for one in value]
        case _:
            return value


def at(answer, path):
    """What stands at a path, or `absent`."""
    if path == "@text":
        return answer.text
    if path.startswith("@headers."):
        return answer.headers.get(path.removeprefix("@headers."), absent)
    return follow(answer.body, re.findall(r"\[(-?\d+|\*)\]|([^.\[\]]+)", path))


def follow(value, steps):
    for place, (index, name) in enumerate(steps):
        if index == "*":
            found = [follow(one, steps[place + 1:]) for one in value] if isinstance(value, list) else []
            return [one for one in found if one is not absent]
        try:
            value = value[int(index) if index else name]
        except (LookupError, TypeError, ValueError):
            return absent
    return value


def wrong(case, answer, kept):
    """What doesn't hold, in a line, or None. Keeps what later cases use."""
    if answer.status != case.status:
        return f"status {answer.status}, not {case.status}: {answer.text[:300]}"
    for path, expected in case.holds.items():
        found = at(answer, path)
        expected = filled(expected, kept)
        try:
            holds = expected(found) if callable(expected) else found is expected or found == expected
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            return f"{path} is {shown(found)}: {error!r}"
        if not holds:
            return f"{path} is {shown(found)}, not {getattr(expected, '__name__', shown(expected))}"
    for name, path in case.keep.items():
        kept[name] = at(answer, path)
        if kept[name] is absent:
            return f"{path} is absent"
    return None


def shown(value):
    text = "absent" if value is absent else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) < 200 else text[:199] + "…"


# Predicates.


def named(name, function):
    function.__name__ = name
    return function


some = named("something", lambda value: value is not absent and bool(value))
there = named("there", lambda value: value is not absent)
text = named("a text", lambda value: isinstance(value, str))
nothing_said = named("null or empty", lambda value: value in (None, "", absent, []))
same = named("all the same", lambda values: len(values) > 0 and all(value == values[0] for value in values))
counting = named("0, 1, 2, …", lambda values: values == list(range(len(values))) and values != [])


def at_least(least):
    return named(f"{least} or more", lambda value: not isinstance(value, bool) and value >= least)


def at_most(most):
    return named(f"{most} or less", lambda value: not isinstance(value, bool) and value <= most)


def matches(pattern):
    return named(f"like /{pattern}/", lambda value: re.search(pattern, value, re.S) is not None)


def lacks(part):
    return named(f"a text without {part!r}", lambda value: isinstance(value, str) and part not in value)


def one_of(*values):
    return named(f"one of {values}", lambda value: value in values)


def size(count):
    return named(f"{count} of them", lambda value: len(value) == count)


def longer(count):
    return named(f"more than {count} of them", lambda value: len(value) > count)


def all_of(predicate):
    return named(f"each {predicate.__name__}", lambda values: len(values) > 0 and all(predicate(value) for value in values))


def has(*values):
    return named(f"a list with {values}", lambda list: all(value in list for value in values))


def joined(expected):
    """The texts of a list together."""
    if callable(expected):
        return named(f"together {expected.__name__}", lambda values: expected("".join(filter(None, values))))
    return named(f"together {expected!r}", lambda values: "".join(filter(None, values)) == expected)


def in_json(predicate):
    """JSON text whose value is that."""
    check = predicate if callable(predicate) else lambda value: value == predicate
    return named(f"JSON of {predicate!r}", lambda value: check(json.loads(value)))


def other_than(value):
    return named(f"other than {shown(value)}", lambda found: found is not absent and found != value)


def near(value, by):
    return named(f"{value} ± {by}", lambda found: abs(found - value) <= by)


def length_of(vector):
    """Of a vector."""
    return sum(number * number for number in vector) ** 0.5
