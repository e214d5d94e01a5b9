# needs: litellm==1.110.2
import litellm
from cases import FUNCTION, KEY, MODEL, PLACE, QUESTION, SERVER, TOOL, V1, case, holds, run

ASK = [{"role": "user", "content": QUESTION}]
NAMED = {"type": "function", "function": {"name": TOOL["name"]}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
# Each wire format: how litellm calls it, and where.
OPENAI = {"model": f"openai/{MODEL}", "api_base": V1, "api_key": KEY}
ANTHROPIC = {"model": f"anthropic/{MODEL}", "api_base": SERVER, "api_key": KEY}
OLLAMA = {"model": f"ollama_chat/{MODEL}", "api_base": SERVER}
litellm.num_retries = 0
litellm.telemetry = False


def chat(route):
    answer = litellm.completion(**route, messages=ASK, max_tokens=16, timeout=120)
    assert answer.choices[0].finish_reason in ["stop", "length"] and answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0


def stream(route):
    chunks = list(litellm.completion(
        **route, messages=ASK, max_tokens=16, stream=True, stream_options={"include_usage": True}, timeout=120))
    assert any(chunk.choices and chunk.choices[0].finish_reason in ["stop", "length"] for chunk in chunks)
    assert chunks[-1].usage.completion_tokens > 0


def tools(route):
    answer = litellm.completion(**route, messages=ASK, tools=[FUNCTION], tool_choice=NAMED, max_tokens=200, timeout=120)
    calls = answer.choices[0].message.tool_calls
    assert len(calls) == 1, calls
    holds(calls[0].function.arguments)
    result = {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"}
    litellm.completion(**route, messages=[*ASK, answer.choices[0].message.model_dump(), result], tools=[FUNCTION], max_tokens=100,
                       timeout=120)


@case
def openai_chat():
    chat(OPENAI)


@case
def openai_stream():
    stream(OPENAI)


@case
def openai_tools():
    tools(OPENAI)


@case
def openai_json_schema():
    holds(litellm.completion(**OPENAI, messages=ASK, response_format=SCHEMA, max_tokens=200).choices[0].message.content)


@case
def openai_responses():
    answer = litellm.responses(**OPENAI, input=QUESTION, max_output_tokens=16)
    assert answer.status in ["completed", "incomplete"] and answer.usage.output_tokens > 0


@case
def openai_embedding():
    assert len(litellm.embedding(**OPENAI, input=["The house"]).data[0]["embedding"]) > 1


@case
def openai_text():
    answer = litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=V1, api_key=KEY, prompt="The house", max_tokens=8)
    assert answer.choices[0].finish_reason in ["stop", "length"]


@case
def anthropic_chat():
    chat(ANTHROPIC)


@case
def anthropic_stream():
    stream(ANTHROPIC)


@case
def anthropic_tools():
    tools(ANTHROPIC)


@case
def ollama_chat():
    chat(OLLAMA)


@case
def ollama_stream():
    stream(OLLAMA)


@case
def ollama_tools():
    answer = litellm.completion(**OLLAMA, messages=ASK, tools=[FUNCTION], max_tokens=200)
    for call in answer.choices[0].message.tool_calls or []:
        holds(call.function.arguments)


@case
def ollama_json_schema():
    holds(litellm.completion(**OLLAMA, messages=ASK, response_format=SCHEMA, max_tokens=200).choices[0].message.content)


@case
def ollama_embedding():
    assert len(litellm.embedding(model=f"ollama/{MODEL}", api_base=SERVER, input=["The house"]).data[0]["embedding"]) > 1


run()
