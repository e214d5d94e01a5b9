"""`/v1/messages`, as llama.cpp's server has it for Anthropic's clients."""

from case import Case, all_of, at_least, at_most, counting, has, joined, lacks, matches, one_of, size, some, text, there

POST = "POST /v1/messages"
COUNT = "POST /v1/messages/count_tokens"
HELLO = [{"role": "user", "content": "Say hello"}]
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {"name": "get_weather", "description": "Gives the weather of a city.", "input_schema": {
    "type": "object", "properties": {"location": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["location"]}}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "test123", "name": "get_weather", "input": {"location": "Paris"}}]}
RESULT = {"type": "tool_result", "tool_use_id": "test123", "content": "The weather is sunny, 25°C"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
MESSAGE = {"type": "message", "role": "assistant", "content": size(1), "content[0].type": "text",
           "stop_reason": one_of("end_turn", "max_tokens")}


def asked(messages=HELLO, **more):
    return {"model": "test", "max_tokens": 8, "temperature": 0, "messages": messages} | more


def answered(user):
    return asked([*ASK, CALL, {"role": "user", "content": user}])


CASES = [
    Case("an answer", POST, asked(), 200, MESSAGE | {
        "id": some, "content[0].text": text, "usage.input_tokens": at_least(0), "usage.cache_read_input_tokens": at_least(0),
        "usage.output_tokens": at_least(1), "timings": lambda value: value is not True}),
    Case("a system prompt", POST, asked(system="You are a helpful assistant."), 200, MESSAGE),
    Case("a system prompt of blocks", POST, asked(system=[{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]),
         200, MESSAGE),
    Case("content of blocks", POST, asked([{"role": "user", "content": [{"type": "text", "text": "What is"},
         {"type": "text", "text": " the answer?"}]}]), 200, MESSAGE),
    Case("a conversation", POST, asked([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"},
         {"role": "user", "content": "How are you?"}]), 200, MESSAGE),
    Case("a stream", POST, asked(stream=True), 200, {"[*].type": has("message_start", "content_block_start", "content_block_delta",
         "content_block_stop", "message_delta", "message_stop"), "[0].type": "message_start", "[0].message.type": "message",
         "[0].message.role": "assistant", "[0].message.content": [], "[0].message.usage": there, "[1].index": 0,
         "[1].content_block.type": "text", "[*].delta.text": all_of(some), "[-2].delta.stop_reason": one_of("end_turn", "max_tokens"),
         "[-2].usage.output_tokens": at_least(1), "[-1].type": "message_stop", "@text": matches("^event: message_start\ndata: ")}),
    Case("a stream tells at its start what the prompt cost", POST, asked(stream=True), 200, {
        "[0].message.usage.input_tokens": 0, "[-2].usage.input_tokens": at_least(0)}, "prompt_usage"),
    Case("how many tokens", COUNT, {"model": "test", "messages": HELLO}, 200, {"input_tokens": at_least(2), "": size(1)},
         keep={"few": "input_tokens"}),
    Case("how many tokens, with a system prompt", COUNT, {"model": "test", "system": "You are a helpful assistant.", "messages": HELLO},
         200, {"input_tokens": at_least(6)}),
    Case("a tool", POST, asked(ASK, tools=[WEATHER], max_tokens=100), 200, {"type": "message", "content": some,
         "content[*].type": all_of(one_of("text", "tool_use", "thinking"))}),
    Case("a tool that must be called", POST, asked(ASK, tools=[WEATHER], max_tokens=100,
         tool_choice={"type": "tool", "name": "get_weather"}), 200, {"stop_reason": "tool_use", "content[-1].type": "tool_use",
         "content[-1].name": "get_weather", "content[-1].id": some, "content[-1].input.location": one_of("Paris", "Rome")}),
    Case("the result of a call", POST, answered([RESULT]), 200, MESSAGE),
    Case("the result of a call, and words", POST, answered([{"type": "text", "text": "Here it is:"}, RESULT]), 200, MESSAGE),
    Case("a call that failed", POST, answered([RESULT | {"is_error": True, "content": "City not found"}]), 200, MESSAGE),
    Case("a call in a stream", POST, asked(ASK, tools=[WEATHER], max_tokens=100, stream=True, tool_choice={"type": "any"}), 200,
         {"[*].content_block.type": has("tool_use"), "[*].content_block.name": all_of(one_of("get_weather")),
         "[-2].delta.stop_reason": "tool_use", "[*].delta.partial_json": joined(some)}),
    Case("blocks of a stream are counted", POST, asked(ASK, tools=[WEATHER], max_tokens=100, stream=True,
         tool_choice={"type": "any", "disable_parallel_tool_use": True}), 200, {"[*].content_block": size(1),
         "[*].index": lambda indices: counting(sorted(set(indices)))}),
    Case("an image", POST, asked([{"role": "user", "content": [IMAGE, {"type": "text", "text": "What is this?"}]}]), 400, {
        "type": "error", "error.type": "invalid_request_error", "error.message": matches("image")}, "images"),
    Case("stop_sequences", POST, asked(max_tokens=40, stop_sequences=["\n", "e"]), 200,
         {"type": "message", "content[*].text": all_of(lacks("e"))}),
    Case("temperature", POST, asked(temperature=0.5), 200, MESSAGE),
    Case("top_p", POST, asked(top_p=0.9), 200, MESSAGE),
    Case("top_k", POST, asked(top_k=40), 200, MESSAGE),
    Case("no messages", POST, {"model": "test", "max_tokens": 8}, 400, {"type": "error", "error.type": "invalid_request_error"}),
    Case("empty messages", POST, asked([]), 400, {"type": "error", "error.type": "invalid_request_error"}, "empty_messages"),
    Case("thinking", POST, asked(max_tokens=60, thinking={"type": "enabled", "budget_tokens": 50}), 200, {"type": "message"}),
    Case("metadata", POST, asked(metadata={"user_id": "test_user_123"}), 200, MESSAGE),
    Case("no timings", POST, asked(), 200, {"timings": lambda value: not isinstance(value, dict), "usage.output_tokens": at_most(8)}),
]
