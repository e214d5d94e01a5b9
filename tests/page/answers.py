"""What the server of the tests answers, by the user's last word: pieces of streams, and pauses."""

import itertools
import json

DONE = "data: [DONE]\n\n"


def event(value):
    return f"data: {json.dumps(value)}\n\n"


def chunk(delta=None, finish=None, **more):
    """A chunk of a stream, as `alara serve` writes it."""
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                  "choices": [choice], "usage": None, **more})


def usage(prompt, cached, generated):
    tokens = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
              "prompt_tokens_details": {"cached_tokens": cached}}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                  "choices": [], "usage": tokens})


def end(finish="stop", cost=(100, 80, 20), **more):
    return [chunk(finish=finish, timings={"predicted_per_second": 926.94}, **more), usage(*cost), DONE]


def text(words, size=7, pause=0.002):
    """A text in small pieces, so that every mark is cut somewhere."""
    for start in range(0, len(words), size):
        yield chunk({"content": words[start:start + size]})
        yield pause


MARKDOWN = """\
# Title

A *first* line with **bold**, `code`, ~~old~~ and a [link](https://example.com/a_b_c "t").
Its second line; snake_case_name and 2 * 3 * 4 stay.

1. one
2. two
   - inner *item*
     - deeper
3. three

- [x] done
- [ ] open

> A quote
> of two lines

| name | count |
|:-----|------:|
| `a|b` | 1 |
| b \\| c | 22 |

```python
def f(x):
    return "<b>" + x  # *no emphasis*
```

---

See https://example.com/path_(x). The end."""

HOSTILE = """\
<img src=x onerror="window.hacked=1"> <script>window.hacked=1</script>
<iframe src="https://evil.example"></iframe><style>body{display:none}</style>

[js](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)
[mixed](JaVaScRiPt:alert(1)) ![pixel](https://evil.example/pixel.png) <javascript:alert(1)>
[x](https://evil.example/"onmouseover="window.hacked=1)

`<img src=x onerror=window.hacked=1>` &lt;b&gt; turned \u202etxt.exe

```html"><img src=x onerror=window.hacked=1>
</code></pre><script>window.hacked=1</script>
```

| <svg onload=window.hacked=1> | b |
|---|---|
| <a href="javascript:window.hacked=1">c</a> | d |
"""

WIDE = f"""\
{"word" * 60} and https://example.com/{"path/" * 40}

{" | ".join(f"column {number}" for number in range(14))}
{"|".join(["---"] * 14)}
{" | ".join(["value"] * 14)}

```
{"long line " * 40}
```

# {"Heading" * 20}

- {"item" * 50}
  - {"item" * 50}

`{"code" * 60}`
"""

FILE = "\n".join(f"line {number}" for number in range(1, 10))
CALL = {"id": "1", "name": "write_file", "arguments": {"path": "hello.txt", "content": "hello"}}
READ = {"id": "2", "name": "shell", "arguments": {"command": 'echo "<b>"\nexit 3'}}


def agent():
    """An NPC that tells its calls while it works."""
    yield chunk({"reasoning_content": "I write it."})
    yield chunk({"content": "I look. "})
    yield chunk(alara={"call": CALL})
    yield 0.3
    yield chunk(alara={"result": {"id": "1", "ok": True, "seconds": 0.16, "output": "wrote hello.txt\n"}})
    yield chunk(alara={"call": READ})
    yield chunk(alara={"result": {"id": "2", "ok": False, "exit": 3, "seconds": 1, "output": FILE,
                                  "complaint": "no", "left_out": 4096}})
    yield chunk({"content": "\n\n"})
    yield chunk({"content": "I wrote hello.txt."})
    calls = [{"name": "write_file", "ok": True}, {"name": "shell", "ok": False}]
    yield from end(cost=(1079, 541, 34), alara={"npc": "worker", "calls": calls, "trace": "17-1"})


def agent_at_end():
    """An NPC whose calls are told at the end only."""
    yield chunk({"content": "I wrote hello.txt."})
    calls = [{"name": "write_file", "ok": True}, {"name": "shell", "ok": False}]
    yield from end(alara={"npc": "worker", "calls": calls, "trace": "17-1"})


# The questions that wait for an answer, by their ids, and the answers that came.
WAITING, GIVEN = set(), {}
COUNT = itertools.count(1)
EXACT = "(an answer for this chat holds for exactly this first argument)"


def asked(command):
    """An NPC that asks about a command before it runs."""
    name = f"ask-{next(COUNT)}"
    call = {"id": name, "name": "shell", "arguments": {"command": command}}
    choices = [("yes", "Yes, once"), ("session", "Yes, in this chat"), ("no", "No")]
    question = {"id": name, "npc": "worker", "name": "shell", "title": "worker wants to call shell:",
                "arguments": call["arguments"], "lines": [EXACT], "diff": "", "asks": "allow?",
                "answers": [{"answer": answer, "label": label} for answer, label in choices], "holds": command}
    WAITING.add(name)
    yield chunk(alara={"call": call})
    yield chunk(alara={"question": question})
    for _ in range(500):
        if name in GIVEN:
            break
        yield 0.02
    WAITING.discard(name)
    ok = GIVEN.get(name) in ("yes", "session")
    result = {"output": "gone"} if ok else {"output": "", "complaint": "`shell` is not permitted by an answer"}
    yield chunk(alara={"result": {"id": name, "ok": ok, "seconds": 0.5, **result}})


def asks(command):
    yield from asked(command)
    yield chunk({"content": "Done."})
    yield from end()


def reasoning():
    yield chunk({"reasoning_content": "First I think <b>hard</b>."})
    yield 0.3
    yield chunk({"content": "Forty-two."})
    yield from end()


def slow():
    """Goes on until the client leaves."""
    for number in range(600):
        yield chunk({"content": f"word{number} "})
        yield 0.05


def broken():
    yield chunk({"content": "half"})
    yield event({"error": {"message": "the model failed: out of memory", "type": "server_error"}})


def lost():
    yield chunk({"content": "half an ans"})


def streams(word, tries):
    """The stream for a user's last word, or a refusal: (status, error, headers)."""
    if word == "refused" and tries == 1:
        return 422, {"message": "the agent ended: too many turns", "code": "turn_limit"}, {}
    if word == "busy" and tries == 1:
        return 503, {"message": "all slots are taken"}, {"Retry-After": "3"}
    if word == "proxy":
        return 502, None, {}
    made = {
        "slowly": lambda: [*text("You said slowly.", pause=0.2), *end()],
        "markdown": lambda: [*text(MARKDOWN), *end()],
        "hostile": lambda: [*text(HOSTILE), *end()],
        "wide": lambda: [*text(WIDE, 400), *end()],
        "asks": lambda: asks("rm a"), "asks-other": lambda: asks("rm b"),
        "hides": lambda: asks(f"ls{' ' * 4000};rm\u200b a\n{chr(10) * 9}\n\u202eb"),
        "agent": agent, "agent-at-end": agent_at_end,
        "reasoning": reasoning, "slow": slow, "broken": broken, "lost": lost,
        "length": lambda: [chunk({"content": "much"}), *end("length")],
        "repeats": lambda: [chunk({"content": "a a a"}), *end("length", alara={"finish": "repetition"})],
    }
    return made.get(word, lambda: [*text(f"You said {word}.", pause=0.01), *end()])()
