# needs: openai==3.57.0
from cases import FUNCTION, KEY, MODEL, PLACE, QUESTION, TOOL, V1, case, holds, run
from openai import NotFoundError, OpenAI

client = OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120)
ASK = [{"role": "user", "content": QUESTION}]
NAMED = {"type": "function", "function": {"name": TOOL["name"]}}
RESPONSES_TOOL = {"type": "function", "strict": True, **TOOL}


def used(usage, prompt, completion):
    assert getattr(usage, prompt) > 0 and getattr(usage, completion) > 0 and usage.total_tokens > 0, usage


@case
def models():
    assert MODEL in [one.id for one in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


@case
def unknown_model():
    try:
        client.chat.completions.create(model="no-such-model", messages=ASK, max_tokens=4)
    except NotFoundError as error:
        assert error.code == "model_not_found", f"code {error.code}"
    else:
        raise AssertionError("answered")


@case
def chat():
    answer = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=16)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and choice.finish_reason in ["stop", "length"] and choice.message.role == "assistant"
    used(answer.usage, "prompt_tokens", "completion_tokens")


@case
def chat_settings():
    client.chat.completions.create(
        model=MODEL, messages=[{"role": "developer", "content": "Be short."}, *ASK], max_completion_tokens=8, temperature=0.7, top_p=0.9,
        seed=1, stop=["\n\n"], presence_penalty=0.1, frequency_penalty=0.1, user="me", metadata={"a": "b"}, store=False)


@case
def chat_choices():
    answer = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=4, n=2, temperature=1)
    assert [choice.index for choice in answer.choices] == [0, 1]


@case
def chat_logprobs():
    answer = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=4, logprobs=True, top_logprobs=2)
    tokens = answer.choices[0].logprobs.content
    assert tokens and all(one.logprob <= 0 and len(one.top_logprobs) == 2 for one in tokens), tokens
    assert "".join(one.token for one in tokens).strip() == answer.choices[0].message.content.strip()


@case
def chat_stream():
    chunks = list(client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=16, stream=True, stream_options={"include_usage": True}))
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant" and choices[-1].finish_reason in ["stop", "length"]
    assert not chunks[-1].choices
    used(chunks[-1].usage, "prompt_tokens", "completion_tokens")


@case
def chat_tools():
    answer = client.chat.completions.create(model=MODEL, messages=ASK, tools=[FUNCTION], tool_choice=NAMED, max_tokens=200)
    choice = answer.choices[0]
    assert choice.finish_reason in ["tool_calls", "stop"] and len(choice.message.tool_calls) == 1, choice
    call = choice.message.tool_calls[0]
    assert call.function.name == TOOL["name"]
    holds(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    answer = client.chat.completions.create(
        model=MODEL, messages=[*ASK, choice.message, result], tools=[FUNCTION], tool_choice="none", max_tokens=16)
    assert not answer.choices[0].message.tool_calls


@case
def chat_tools_required():
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    assert len(answer.choices[0].message.tool_calls) == 1
    holds(answer.choices[0].message.tool_calls[0].function.arguments)


@case
def chat_tools_stream():
    with client.chat.completions.stream(model=MODEL, messages=ASK, tools=[FUNCTION | {"function": TOOL | {"strict": True}}],
                                        tool_choice=NAMED, max_tokens=200) as stream:
        events = [event.type for event in stream]
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "tool_calls.function.arguments.done" in events, events
    holds(call.function.arguments)


@case
def chat_json_schema():
    schema = {"type": "json_schema", "json_schema": {"name": "place", "description": "A place.", "schema": PLACE, "strict": True}}
    answer = client.chat.completions.create(model=MODEL, messages=ASK, response_format=schema, max_tokens=200)
    holds(answer.choices[0].message.content)


@case
def responses():
    answer = client.responses.create(model=MODEL, input=QUESTION, instructions="Be short.", max_output_tokens=16)
    assert answer.object == "response" and answer.status in ["completed", "incomplete"] and answer.id
    assert answer.output[-1].type == "message" and answer.output[-1].content[0].type == "output_text"
    used(answer.usage, "input_tokens", "output_tokens")


@case
def responses_previous():
    first = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=8)
    second = client.responses.create(model=MODEL, input="And in Rome?", previous_response_id=first.id, max_output_tokens=8)
    assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text


def in_order(events):
    """Asserts that events are numbered, framed, and that each part that begins ends."""
    types = [event.type for event in events]
    assert types[0] == "response.created" and types[-1] in ["response.completed", "response.incomplete"], types
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for begin, end in [("output_item.added", "output_item.done"), ("content_part.added", "content_part.done")]:
        begins, ends = ([at for at, one in enumerate(types) if one == f"response.{which}"] for which in (begin, end))
        assert len(begins) == len(ends) and all(a < b for a, b in zip(begins, ends)), types
    return types


@case
def responses_stream():
    events = list(client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=16, stream=True))
    in_order(events)
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text == next(e.text for e in events if e.type == "response.output_text.done")
    used(events[-1].response.usage, "input_tokens", "output_tokens")


@case
def responses_tools():
    answer = client.responses.create(model=MODEL, input=QUESTION, tools=[RESPONSES_TOOL], max_output_tokens=200,
                                     tool_choice={"type": "function", "name": TOOL["name"]})
    calls = [item for item in answer.output if item.type == "function_call"]
    assert len(calls) == 1, answer.output
    holds(calls[0].arguments)
    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny"}
    answer = client.responses.create(model=MODEL, input=[*ASK, *answer.output, result], tools=[RESPONSES_TOOL], tool_choice="none",
                                     max_output_tokens=16)
    assert answer.output[-1].type == "message"


@case
def responses_tools_stream():
    with client.responses.stream(model=MODEL, input=QUESTION, tools=[RESPONSES_TOOL], tool_choice="required", parallel_tool_calls=False,
                                 max_output_tokens=200) as stream:
        events = list(stream)
    in_order(events)
    deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    holds(deltas)
    assert deltas == next(event for event in events if event.type == "response.function_call_arguments.done").arguments


@case
def responses_json_schema():
    text = {"format": {"type": "json_schema", "name": "place", "schema": PLACE, "strict": True}}
    holds(client.responses.create(model=MODEL, input=QUESTION, text=text, max_output_tokens=200).output_text)


@case
def completions():
    answer = client.completions.create(model=MODEL, prompt="The house", max_tokens=8, echo=True)
    assert answer.object == "text_completion" and answer.choices[0].text.startswith("The house")
    used(answer.usage, "prompt_tokens", "completion_tokens")
    both = client.completions.create(model=MODEL, prompt=["The house", "A tree"], max_tokens=2)
    assert [choice.index for choice in both.choices] == [0, 1]


@case
def completions_logprobs():
    logprobs = client.completions.create(model=MODEL, prompt="The house", max_tokens=4, logprobs=1).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) > 0


@case
def completions_stream():
    chunks = list(client.completions.create(model=MODEL, prompt="The house", max_tokens=8, stream=True))
    assert any(chunk.choices and chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in ["stop", "length"]


@case
def embeddings():
    # The client asks for base64 by itself.
    answer = client.embeddings.create(model=MODEL, input=["The house", "A tree"])
    assert [one.index for one in answer.data] == [0, 1] and answer.usage.prompt_tokens > 0
    assert len(answer.data[0].embedding) == len(answer.data[1].embedding) > 1
    floats = client.embeddings.create(model=MODEL, input="The house", encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(floats, answer.data[0].embedding)) < 1e-3


run()
