"""The same request by four wire formats has the same text, tool calls and usage, whole and streamed."""

import json

from served import ask

SYSTEM = "Be short."
WEATHER = {"name": "get_weather", "description": "Gives the weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CALL = ("get_weather", {"city": "Paris"})

# Turns of a conversation: words of the user, or of the assistant, or a call and its result.
# What each is about, the turns, the tools, and whether a call is demanded, which Ollama's API can't.
QUESTIONS = [
    ("words", [("user", "What is the best book?")], [], False),
    ("a conversation", [("user", "Hello"), ("assistant", "Hi there!"), ("user", "How are you?")], [], False),
    ("tools", [("user", "What is the weather in Paris?")], [WEATHER], False),
    ("a call that is demanded", [("user", "What is the weather in Paris?")], [WEATHER], True),
    ("the result of a call", [("user", "What is the weather in Paris?"), ("call", CALL), ("result", "sunny")], [WEATHER], False),
]
TOKENS = 48


def chat(turns, tools, demanded):
    body = {"messages": [{"role": "system", "content": SYSTEM}], "max_tokens": TOKENS, "temperature": 0,
         "stream_options": {"include_usage": True}}
    for kind, said in turns:
        match kind:
            case "call":
                function = {"name": said[0], "arguments": json.dumps(said[1])}
                calls = [{"id": "call_1", "type": "function", "function": function}]
                body["messages"].append({"role": "assistant", "content": None, "tool_calls": calls})
            case "result":
                body["messages"].append({"role": "tool", "tool_call_id": "call_1", "content": said})
            case role:
                body["messages"].append({"role": role, "content": said})
    if tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return body | ({"tool_choice": "required", "parallel_tool_calls": False} if demanded else {})


def messages(turns, tools, demanded):
    body = {"model": "any", "system": SYSTEM, "messages": [], "max_tokens": TOKENS, "temperature": 0}
    for kind, said in turns:
        match kind:
            case "call":
                call = {"type": "tool_use", "id": "call_1", "name": said[0], "input": said[1]}
                body["messages"].append({"role": "assistant", "content": [call]})
            case "result":
                body["messages"].append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": said}]})
            case role:
                body["messages"].append({"role": role, "content": said})
    if tools:
        body["tools"] = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools]
    return body | ({"tool_choice": {"type": "any", "disable_parallel_tool_use": True}} if demanded else {})


def responses(turns, tools, demanded):
    body = {"instructions": SYSTEM, "input": [], "max_output_tokens": TOKENS, "temperature": 0}
    for kind, said in turns:
        match kind:
            case "call":
                body["input"].append({"type": "function_call", "call_id": "call_1", "name": said[0], "arguments": json.dumps(said[1])})
            case "result":
                body["input"].append({"type": "function_call_output", "call_id": "call_1", "output": said})
            case role:
                body["input"].append({"role": role, "content": said})
    if tools:
        body["tools"] = [{"type": "function"} | tool for tool in tools]
    return body | ({"tool_choice": "required", "parallel_tool_calls": False} if demanded else {})


def ollama(turns, tools, _):
    # Ollama's own defaults would draw otherwise.
    body = {"model": "any", "messages": [{"role": "system", "content": SYSTEM}], "options": {
        "temperature": 0, "num_predict": TOKENS, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1}}
    for kind, said in turns:
        match kind:
            case "call":
                call = {"function": {"name": said[0], "arguments": said[1]}}
                body["messages"].append({"role": "assistant", "content": "", "tool_calls": [call]})
            case "result":
                body["messages"].append({"role": "tool", "tool_name": CALL[0], "content": said})
            case role:
                body["messages"].append({"role": role, "content": said})
    if tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return body


# What an answer is in all of them: text, calls (name, arguments), tokens of the prompt, tokens of the answer.


def of_chat(body):
    message, usage = body["choices"][0]["message"], body["usage"]
    calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls") or []]
    return message["content"] or "", calls, usage["prompt_tokens"], usage["completion_tokens"]


def of_chat_stream(events):
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    calls = {}
    for call in [call for delta in deltas for call in delta.get("tool_calls") or []]:
        name, arguments = calls.get(call["index"], ("", ""))
        calls[call["index"]] = (name + call["function"].get("name", ""), arguments + call["function"].get("arguments", ""))
    usage = events[-1]["usage"]
    text = "".join(delta.get("content") or "" for delta in deltas)
    return text, [(name, json.loads(arguments)) for name, arguments in calls.values()], usage["prompt_tokens"], usage["completion_tokens"]


def of_messages(body):
    text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    calls = [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]
    return text, calls, *counted(body["usage"])


def of_messages_stream(events):
    text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    blocks = {}
    for event in events:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            blocks[event["index"]] = [event["content_block"]["name"], ""]
        elif event["type"] == "content_block_delta" and event["index"] in blocks:
            blocks[event["index"]][1] += event["delta"]["partial_json"]
    usage = next(event["usage"] for event in events if event["type"] == "message_delta")
    return text, [(name, json.loads(arguments)) for name, arguments in blocks.values()], *counted(usage)


def counted(usage):
    prompt = usage["input_tokens"] + usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    return prompt, usage["output_tokens"]


def of_responses(body):
    text = "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])
    calls = [(item["name"], json.loads(item["arguments"])) for item in body["output"] if item["type"] == "function_call"]
    return text, calls, body["usage"]["input_tokens"], body["usage"]["output_tokens"]


def of_responses_stream(events):
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    done = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    named = {event["item"]["id"]: event["item"]["name"] for event in events
             if event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call"}
    usage = events[-1]["response"]["usage"]
    calls = [(named[event["item_id"]], json.loads(event["arguments"])) for event in done]
    return text, calls, usage["input_tokens"], usage["output_tokens"]


def of_ollama(body):
    return of_ollama_stream([body])


def of_ollama_stream(lines):
    said = [line["message"] for line in lines]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for message in said for call in message.get("tool_calls") or []]
    return "".join(message["content"] for message in said), calls, lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]


FORMATS = [
    ("/v1/chat/completions", chat, of_chat, of_chat_stream),
    ("/v1/messages", messages, of_messages, of_messages_stream),
    ("/v1/responses", responses, of_responses, of_responses_stream),
    ("/api/chat", ollama, of_ollama, of_ollama_stream),
]


def rows(server):
    """Of each question and format a name, and what is wrong or None."""
    called = False
    for about, turns, tools, demanded in QUESTIONS:
        expected = None
        for path, write, read, read_stream in FORMATS:
            if demanded and write is ollama:
                continue
            for stream, read in [(False, read), (True, read_stream)]:
                body = write(turns, tools, demanded) | {"stream": stream}
                if not stream:
                    body.pop("stream_options", None)
                answer = ask(server, "POST", path, body)
                try:
                    found = read(answer.body) if answer.status == 200 else f"status {answer.status}: {answer.text[:200]}"
                except (LookupError, TypeError, ValueError) as error:
                    found = f"{error!r} in {answer.text[:300]}"
                expected = expected or found
                called = called or bool(found[1]) and isinstance(found, tuple)
                right = found == expected and isinstance(found, tuple)
                name = f"{about}, {path}{', streamed' if stream else ''}"
                yield name, None if right else f"{found}, not {expected}"
    yield "one of them has a call", None if called else "no answer has a call, so that none was compared"
