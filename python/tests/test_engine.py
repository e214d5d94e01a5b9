"""The engine: turns, their ends, and what is refused."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import alara
from alara import events

ENDLESS = alara.Request("Write a long story.", ignore_eos=True, max_tokens=100_000)


def test_events_come_in_order_and_add_up(engine):
    request = alara.Request("Say hello.", max_tokens=30)
    told = list(engine.generate(request))
    assert isinstance(told[-1], events.Done)
    assert not any(isinstance(event, events.Done) for event in told[:-1])
    text = "".join(event.text for event in told if isinstance(event, events.Text))
    answer = engine.complete(request)
    assert answer.text == text
    assert answer.finish == told[-1].finish
    assert 0 < answer.usage.completion_tokens <= 30
    assert answer.usage.cached_tokens > 0, "the second time the prompt is cached"


def test_a_long_prompt_tells_how_far_it_is():
    engine = alara.Engine("alara-tiny")
    assert engine.name == "alara-tiny.gguf"
    request = alara.Request("one two three four five six seven eight nine ten " * 60, max_tokens=4)
    told = [event for event in engine.generate(request) if isinstance(event, events.Prefill)]
    assert told and all(event.cached == 0 and 0 < event.computed < event.prompt for event in told)
    assert engine.complete(request).usage.cached_tokens > 0


@pytest.mark.skipif(sys.version_info < (3, 10), reason="there is no match before 3.10")
def test_events_are_taken_apart_by_match(engine):
    # As text, since older versions could not read this file.
    code = """
for event in engine.generate(request):
    match event:
        case events.Text(text):
            said.append(text)
        case events.Done(finish, events.Usage(prompt_tokens)):
            said.append((finish, prompt_tokens > 0))
"""
    said = []
    request = alara.Request("Is 7 a prime?", schema={"enum": ["yes"]})
    exec(code, {"engine": engine, "request": request, "events": events, "said": said})
    assert "".join(said[:-1]) == '"yes"' and said[-1] == ("stop", True)


def test_a_schema_holds(engine):
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 3, "maximum": 9}},
        "required": ["age"],
        "additionalProperties": False,
    }
    answer = engine.complete(alara.Request("How old is the child?", schema=schema)).json()
    assert list(answer) == ["age"] and 3 <= answer["age"] <= 9


def test_a_named_tool_is_called_and_its_result_read(engine):
    tools = [
        alara.Tool("weather", "Tells the weather.", {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}),
        {"name": "time", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}},
    ]
    answer = engine.complete(alara.Request("How is it in Oslo?", tools=tools, tool_choice="weather"))
    [call] = answer.tool_calls
    assert (call.name, call.arguments, answer.finish) == ("weather", {"city": "Oslo"}, "tool_calls")
    conversation = [
        alara.Message("user", "How is it in Oslo?"),
        alara.Message("assistant", tool_calls=[call]),
        alara.Message("tool", "It rains.", tool_call_id=call.id, name="weather"),
    ]
    assert "It rains." in engine.prompt(alara.Request(conversation, tools=tools))


def test_sampling_is_the_models_where_nothing_is_said(engine):
    def text(**sampling):
        return engine.complete(alara.Request("Tell me something.", max_tokens=24, sampling=sampling or None)).text

    assert text() == text()
    assert text(temperature=5.0, seed=1) == text(temperature=5.0, seed=1)
    assert text(temperature=5.0, seed=1) != text(temperature=5.0, seed=2)


def test_logprobs(engine):
    answer = engine.complete(alara.Request("Say hello.", max_tokens=5, logprobs=2))
    assert answer.logprobs
    for token in answer.logprobs:
        assert token.chosen.logprob <= 0 and isinstance(token.chosen.bytes, bytes)
        assert len(token.top) in (0, 2)


def test_tokens_there_and_back(engine):
    text = "Grüße, 世界! 🙂\n\tend"
    assert engine.detokenize(engine.tokenize(text)) == text
    assert max(engine.tokenize(text)) < engine.vocabulary
    with pytest.raises(ValueError, match="tokens: 4000000000 is outside"):
        engine.detokenize([4_000_000_000])


def test_a_prompt_as_text(engine):
    assert engine.prompt(alara.Request(prompt="as it is")) == "as it is"
    tokens = engine.prompt_tokens("Hello")
    assert engine.detokenize(tokens, special=True).endswith(engine.prompt("Hello")[-20:])


def test_embeddings_tell_texts_apart(engine):
    one, same, other = engine.embed(["a red car", "a red car", "git commit -m done"])
    assert one == same and one != other
    with pytest.raises(TypeError, match="texts: a list of texts"):
        engine.embed("one text")


def test_a_dropped_turn_is_cancelled():
    engine = alara.Engine()
    for end in ("close", "drop"):
        turn = engine.generate(ENDLESS)
        next(turn)
        if end == "close":
            turn.close()
        else:
            del turn
            gc.collect()
        # One turn at a time: this one begins when the other is gone.
        begun = time.monotonic()
        engine.complete(alara.Request("Hello", max_tokens=1))
        assert time.monotonic() - begun < 5, end


def test_the_lock_is_free_while_the_model_computes(engine):
    done = threading.Event()

    def ask():
        engine.complete(alara.Request("Tell a story.", max_tokens=200, ignore_eos=True))
        done.set()

    thread = threading.Thread(target=ask)
    thread.start()
    steps = 0
    while not done.is_set():
        steps += 1
        time.sleep(0.001)
    thread.join()
    assert steps > 20


def test_two_threads_share_an_engine():
    engine = alara.Engine(parallel=2)
    answers = {}

    def ask(word):
        answers[word] = engine.complete(alara.Request("Choose.", schema={"enum": [word]})).json()

    threads = [threading.Thread(target=ask, args=(word,)) for word in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {"one": "one", "two": "two"}


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_an_interrupt_ends_a_turn():
    code = """
import alara
engine = alara.Engine()
turn = engine.generate(alara.Request("Write.", ignore_eos=True, max_tokens=100_000))
next(turn)
try:
    print("begun", flush=True)
    for event in turn: pass
    print("whole")
except KeyboardInterrupt:
    print("interrupted", len(list(turn)))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert out == "interrupted 0\n"


def test_errors_say_what_where_and_the_remedy(engine, tmp_path):
    with pytest.raises(alara.Error) as caught:
        alara.Engine("no-such-model")
    assert caught.value.what == "there is no model file no-such-model"
    assert "alara models list" in caught.value.remedy
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but no more")
    with pytest.raises(alara.Error) as caught:
        alara.Engine(broken)
    assert caught.value.where == str(broken) and "broken.gguf" in str(caught.value)
    with pytest.raises(alara.Error, match="can't both shape the answer") as caught:
        engine.generate(alara.Request("Hello", schema={"type": "string"}, grammar='start: "a"'))
    assert caught.value.where == "alara-tiny.gguf"
    with pytest.raises(alara.Error, match="tokens, but the context holds"):
        engine.complete("word " * 20_000)


@pytest.mark.parametrize(
    "request_, message",
    [
        (alara.Request(3), "messages: invalid type: integer `3`"),
        (alara.Request([{"role": "user", "content": 3}]), r"messages\[0\].content: invalid type: integer `3`, expected a string"),
        (alara.Request([{"role": "nobody"}]), r"messages\[0\].role: unknown variant `nobody`"),
        (alara.Request("x", sampling={"temprature": 1}), "sampling.temprature: unknown field `temprature`|unknown field `temprature`"),
        (alara.Request("x", sampling={"temperature": "hot"}), "temperature: invalid type"),
        (alara.Request("x", stop="x"), "stop: invalid type"),
        (alara.Request("x", tools=[{"name": "x"}]), r"tools\[0\]: missing field `description`"),
        (alara.Request("x", schema=object()), "schema: an object of type object"),
        (alara.Request("x", schema={"enum": {1, 2}}), "schema.enum: an object of type set"),
        (alara.Request("x", max_tokens=-1), "max_tokens: invalid value: integer `-1`"),
        (7, "request: a Request or a text is wanted, not int"),
    ],
)
def test_wrong_types_name_the_argument(engine, request_, message):
    with pytest.raises(TypeError, match=message):
        engine.complete(request_)


def test_wrong_options_name_the_argument():
    with pytest.raises(TypeError, match="context: invalid type"):
        alara.Engine(context="much")
    with pytest.raises(ValueError, match="kv: "):
        alara.Engine(kv="f17")
    with pytest.raises(ValueError, match="device: `gpu` is none of"):
        alara.Engine(device="gpu")
    with pytest.raises(ValueError, match="tool_format: `hermess` is none of .*did you mean `hermes`"):
        alara.Engine(tool_format="hermess")
    with pytest.raises(TypeError, match="model: a path or a name is wanted, not int"):
        alara.Engine(3)
    with pytest.raises(alara.Error) as caught:
        alara.Engine(chat_template="no-such.jinja")
    assert caught.value.where == "no-such.jinja"
