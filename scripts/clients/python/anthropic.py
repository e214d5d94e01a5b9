# needs: anthropic==2.14.0
from anthropic import Anthropic
from cases import KEY, MODEL, PLACE, QUESTION, SERVER, TOOL, case, holds, run

client = Anthropic(base_url=SERVER, api_key=KEY, max_retries=0, timeout=120)
ASK = [{"role": "user", "content": QUESTION}]
TOOLS = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": PLACE}]
NAMED = {"type": "tool", "name": TOOL["name"]}


def used(usage):
    """Asserts that tokens were counted. Returns those of the prompt, cached ones among them."""
    prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert prompt > 0 and usage.output_tokens > 0, usage
    return prompt


@case
def messages():
    answer = client.messages.create(model=MODEL, max_tokens=16, system="Be short.", messages=ASK)
    assert answer.type == "message" and answer.role == "assistant" and answer.stop_reason in ["end_turn", "max_tokens"]
    assert answer.content[0].type == "text"
    used(answer.usage)


@case
def settings():
    system = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    content = [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]
    answer = client.messages.create(
        model=MODEL, max_tokens=8, system=system, messages=[{"role": "user", "content": content}],
        stop_sequences=["\n\n"], metadata={"user_id": "me"}, thinking={"type": "disabled"},
        extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 10})
    assert answer.stop_reason in ["end_turn", "max_tokens", "stop_sequence"]


@case
def stop_sequences():
    text = client.messages.create(model=MODEL, max_tokens=16, messages=ASK, extra_body={"temperature": 0}).content[0].text
    stop = text[len(text) // 2]
    answer = client.messages.create(
        model=MODEL, max_tokens=16, messages=ASK, stop_sequences=[stop], extra_body={"temperature": 0})
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop), (answer.stop_reason, answer.stop_sequence)
    assert not answer.content or stop not in answer.content[0].text


@case
def prefill():
    answer = client.messages.create(model=MODEL, max_tokens=8, messages=[*ASK, {"role": "assistant", "content": "The weather"}])
    assert not answer.content or not answer.content[0].text.startswith("The weather")


@case
def stream():
    with client.messages.stream(model=MODEL, max_tokens=16, messages=ASK) as stream:
        events = list(stream)
        answer = stream.get_final_message()
    types = [event.type for event in events]
    assert types[0] == "message_start" and types[-1] == "message_stop", types
    assert types.count("content_block_start") == types.count("content_block_stop") > 0, types
    assert "".join(event.text for event in events if event.type == "text") == answer.content[0].text
    assert answer.stop_reason in ["end_turn", "max_tokens"]
    used(answer.usage)


@case
def tools():
    answer = client.messages.create(model=MODEL, max_tokens=200, messages=ASK, tools=TOOLS, tool_choice=NAMED)
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and len(calls) == 1 and calls[0].name == TOOL["name"], answer
    holds(calls[0].input)
    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": [{"type": "text", "text": "sunny"}]}
    conversation = [*ASK, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(model=MODEL, max_tokens=16, messages=conversation, tools=TOOLS, tool_choice={"type": "none"})
    assert all(block.type == "text" for block in answer.content)


@case
def tools_stream():
    any_one = {"type": "any", "disable_parallel_tool_use": True}
    with client.messages.stream(model=MODEL, max_tokens=200, messages=ASK, tools=TOOLS, tool_choice=any_one) as stream:
        events = list(stream)
        answer = stream.get_final_message()
    deltas = "".join(e.delta.partial_json for e in events if e.type == "content_block_delta" and e.delta.type == "input_json_delta")
    holds(deltas)
    assert answer.stop_reason == "tool_use" and len([block for block in answer.content if block.type == "tool_use"]) == 1


@case
def count_tokens():
    few = client.messages.count_tokens(model=MODEL, messages=ASK).input_tokens
    many = client.messages.count_tokens(model=MODEL, messages=ASK, tools=TOOLS, system="Be short.").input_tokens
    assert 0 < few < many
    assert few == used(client.messages.create(model=MODEL, max_tokens=1, messages=ASK).usage)


@case
def models():
    assert MODEL in [one.id for one in client.models.list()]


run()
