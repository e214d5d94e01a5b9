# needs: ollama==0.6.3
from cases import FUNCTION, MODEL, PLACE, QUESTION, SERVER, TOOL, case, holds, run
from ollama import Client, ResponseError

client = Client(host=SERVER, timeout=120)
ASK = [{"role": "user", "content": QUESTION}]
SHORT = {"num_predict": 16, "temperature": 0, "num_ctx": 2048}


def counted(answer):
    assert answer.done and answer.done_reason in ["stop", "length"], answer
    assert answer.prompt_eval_count > 0 and answer.eval_count > 0 and answer.total_duration > 0 and answer.eval_duration > 0, answer


@case
def chat():
    answer = client.chat(MODEL, ASK, options=SHORT, keep_alive="5m")
    assert answer.message.role == "assistant" and answer.message.content is not None
    counted(answer)


@case
def chat_stream():
    chunks = list(client.chat(MODEL, ASK, options=SHORT, stream=True))
    assert len(chunks) > 1 and not any(chunk.done for chunk in chunks[:-1])
    counted(chunks[-1])


@case
def chat_tools():
    # Ollama's API has no way to demand a call: whether there's one is up to the model.
    answer = client.chat(MODEL, ASK, tools=[FUNCTION], options=SHORT | {"num_predict": 200})
    for call in answer.message.tool_calls or []:
        assert call.function.name == TOOL["name"]
        holds(dict(call.function.arguments))
    call = {"function": {"name": TOOL["name"], "arguments": {"city": "Paris", "days": 2}}}
    history = [*ASK, {"role": "assistant", "content": "", "tool_calls": [call]},
               {"role": "tool", "tool_name": TOOL["name"], "content": "sunny"}]
    counted(client.chat(MODEL, history, tools=[FUNCTION], options=SHORT))


@case
def chat_tools_stream():
    chunks = list(client.chat(MODEL, ASK, tools=[FUNCTION], options=SHORT | {"num_predict": 200}, stream=True))
    for call in [call for chunk in chunks for call in chunk.message.tool_calls or []]:
        holds(dict(call.function.arguments))
    counted(chunks[-1])


@case
def chat_format():
    holds(client.chat(MODEL, ASK, format=PLACE, options=SHORT | {"num_predict": 200}).message.content)


@case
def generate():
    answer = client.generate(MODEL, QUESTION, system="Be short.", options=SHORT)
    assert answer.response is not None
    counted(answer)
    counted(client.generate(MODEL, "The house", raw=True, options=SHORT))


@case
def generate_stream():
    chunks = list(client.generate(MODEL, QUESTION, options=SHORT, stream=True))
    counted(chunks[-1])


@case
def generate_loads():
    # An empty prompt loads the model.
    assert client.generate(MODEL).done


@case
def list_models():
    one = next(one for one in client.list().models if one.model == MODEL)
    assert one.size > 0 and one.digest and one.details.family


@case
def show():
    answer = client.show(MODEL)
    assert "tools" in answer.capabilities and "completion" in answer.capabilities and answer.details.format == "gguf", answer
    assert any(key.endswith(".context_length") for key in answer.modelinfo)


@case
def ps():
    client.generate(MODEL)
    assert MODEL in [one.model for one in client.ps().models]


@case
def embed():
    answer = client.embed(MODEL, ["The house", "A tree"])
    assert len(answer.embeddings) == 2 and len(answer.embeddings[0]) > 1 and answer.prompt_eval_count > 0
    assert len(client.embeddings(MODEL, "The house").embedding) == len(answer.embeddings[0])


@case
def delete_is_refused():
    try:
        client.delete(MODEL)
    except ResponseError as error:
        assert error.status_code in [400, 403, 405, 501] and error.error.strip(), f"{error.status_code} {error.error}"
    else:
        raise AssertionError("it was deleted")


run()
