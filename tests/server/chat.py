"""`/v1/chat/completions`, and the same without `/v1`."""

from case import (
    Case, Kept, absent, all_of, at_least, at_most, in_json, joined, lacks, longer, matches, nothing_said, one_of,
    other_than, same, size, some, text, there,
)

POST = "POST /v1/chat/completions"
BARE = "POST /chat/completions"
ASK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is the best book?"}]
HELLO = [{"role": "user", "content": "Hello"}]
SAID = "choices[0].message.content"
PIECES = "[*].choices[0].delta.content"
CALLS = "choices[0].message.tool_calls"
FINISH = "choices[0].finish_reason"
GREEDY = {"temperature": 0, "max_tokens": 8}

TEST = {"type": "function", "function": {
    "name": "test", "description": "",
    "parameters": {"type": "object", "properties": {"success": {"type": "boolean", "const": True}}, "required": ["success"]}}}
PYTHON = {"type": "function", "function": {
    "name": "python", "description": "Runs code.",
    "parameters": {"type": "object", "properties": {"code": {"type": "string", "enum": ["1 + 1", "2 * 2"]}}, "required": ["code"]}}}
MANY = {"max_tokens": 200, "temperature": 0}
HISTORY = [
    {"role": "user", "content": "What is 1 + 1?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "python", "arguments": "{\"code\": \"1 + 1\"}"}}]},
    {"role": "tool", "name": "python", "tool_call_id": "call_1", "content": "2"}]
CALLED = {"function": {"name": "python", "arguments": "not json"}, "id": "call_2", "type": "function"}


def join(pieces):
    return "".join(filter(None, pieces))


def asked(messages=HELLO, **more):
    return {"messages": messages, "max_tokens": 8, "temperature": 0} | more


def formatted(format, tokens=60):
    return {"messages": ASK, "temperature": 0, "max_tokens": tokens, "response_format": format}


def refused(name, body, differs=None, **holds):
    return Case(name, POST, body, 400, {"error.message": some, "error.type": "invalid_request_error"} | holds, differs)


ANSWERS = [
    Case("an answer", BARE, {"messages": ASK} | GREEDY, 200, {
        "id": matches("cmpl"), "object": "chat.completion", "created": at_least(1), "choices": size(1), "choices[0].index": 0,
        "choices[0].message.role": "assistant", SAID: text, FINISH: one_of("length", "stop"), "usage.prompt_tokens": at_least(8),
        "usage.completion_tokens": at_most(8), "usage.total_tokens": at_least(9)}, keep={"answer": SAID}),
    Case("it says which server it was", POST, asked(), 200, {"system_fingerprint": some}),
    Case("the same with /v1", POST, {"messages": ASK} | GREEDY, 200, {SAID: Kept("answer")}),
    Case("parts of text", POST, asked([{"role": "user", "content": [{"type": "text", "text": "What is "},
         {"type": "text", "text": "the best book?"}]}]), 200, {SAID: text, "usage.prompt_tokens": at_least(5)}),
    Case("a model that isn't there means the one that is", POST, asked(model="gpt-3.5-turbo-instruct"), 200, {SAID: text}, "any_model"),
    Case("max_tokens", POST, asked(max_tokens=3, ignore_eos=True), 200, {"usage.completion_tokens": 3, FINISH: "length"}),
    Case("max_completion_tokens", POST, {"messages": HELLO, "max_completion_tokens": 3, "ignore_eos": True}, 200,
         {"usage.completion_tokens": 3}),
    Case("n_predict is max_tokens", POST, {"messages": HELLO, "n_predict": 3, "ignore_eos": True}, 200, {"usage.completion_tokens": 3}),
    Case("max_tokens -1 is no limit", POST, asked(max_tokens=-1, stop=["e"]), 200, {SAID: lacks("e")}),
    Case("max_tokens 0", POST, asked(max_tokens=0), 400, {"error.param": "max_tokens"}, "no_answer"),
    Case("ignore_eos", POST, asked(max_tokens=40, ignore_eos=True), 200, {"usage.completion_tokens": 40, FINISH: "length"}),
    Case("stop", POST, asked(max_tokens=40, stop=["e", "\n"]), 200, {SAID: lacks("e")}),
    Case("a seed gives the same answer: once", POST, asked(temperature=1, seed=42), 200, keep={"seeded": SAID}),
    Case("a seed gives the same answer: twice", POST, asked(temperature=1, seed=42, cache_prompt=False), 200, {SAID: Kept("seeded")}),
    Case("another seed gives another answer", POST, asked(temperature=2, seed=4321, max_tokens=12), 200, {SAID: other_than("")}),
    Case("samplers", POST, asked(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1, repeat_last_n=64,
         presence_penalty=0.1, frequency_penalty=0.1, seed=1), 200, {SAID: text}),
    Case("typical, XTC, DRY and dynamic temperature", POST, asked(
        temperature=0.8, typical_p=0.9, xtc_probability=0.1, xtc_threshold=0.1, dry_multiplier=0.5, dry_base=1.75, dry_allowed_length=2,
        dry_penalty_last_n=-1, dry_sequence_breakers=["\n", ":"], dynatemp_range=0.2, dynatemp_exponent=1.0), 200, {SAID: text}),
    Case("mirostat", POST, asked(temperature=0.8, mirostat=2, mirostat_tau=5, mirostat_eta=0.1), 200, {SAID: text}),
    Case("the order of samplers", POST, asked(samplers=["top_k", "temperature"]), 400, {"error.param": "samplers"}, "samplers"),
    Case("two answers", POST, asked(n=2, temperature=1), 200, {"choices[*].index": [0, 1],
         "choices[*].message.role": all_of(one_of("assistant"))}),
    Case("logprobs", POST, asked(logprobs=True, top_logprobs=10), 200, {
        "choices[0].logprobs.content[*].logprob": all_of(at_most(0)), "choices[0].logprobs.content[*].bytes": longer(0),
        "choices[0].logprobs.content[0].top_logprobs": size(10)}, keep={"tokens": "choices[0].logprobs.content[*].token"}),
    Case("the tokens of logprobs are the answer", POST, asked(), 200, {SAID: Kept("tokens", join)}),
    Case("logprobs in a stream", POST, asked(logprobs=True, top_logprobs=2, stream=True), 200, {
        "[*].choices[0].logprobs.content[0].top_logprobs": all_of(size(2)), "[*].choices[0].logprobs.content[*].token": longer(0)}),
    Case("logit_bias by token", POST, asked(logit_bias={"0": -100, "1": -100}), 200, {SAID: text}),
    Case("logit_bias as llama.cpp's list", POST, asked(logit_bias=[[0, -100], [" the", False]]), 200, {SAID: text}),
    Case("a salt, a slot and a user change nothing", POST, asked(ASK, id_slot=0, user="me", metadata={"a": "b"}), 200,
         {SAID: Kept("answer"), "@headers.warning": matches("id_slot")}, "slots"),
    Case("fields of the answer can't be chosen", POST, asked(response_fields=["choices"]), 200,
         {"usage": there, "@headers.warning": matches("response_fields")}, "response_fields"),
    Case("what the prompt's templates are given", POST, asked(chat_template_kwargs={"enable_thinking": False}), 200, {SAID: text}),
    Case("a variable that no template is given", POST, asked(chat_template_kwargs={"shout": True}), 400,
         {"error.message": matches("shout")}, "kwargs"),
    Case("no LoRA adapters are as none", POST, asked(lora=[]), 200, {SAID: text}),
    Case("a LoRA adapter", POST, asked(lora=[{"id": 0, "scale": 1.0}]), 400, {"error.param": "lora"}, "lora"),
    Case("the assistant's words go on", POST, asked([*ASK, {"role": "assistant", "content": "The best book"}]), 200, {SAID: text}),
    Case("so do parts of them", POST, asked([*ASK, {"role": "assistant", "content": [{"type": "text", "text": "The "},
         {"type": "text", "text": "best"}]}]), 200, {SAID: text}),
    Case("the assistant twice at the end", POST, asked([*HELLO, {"role": "assistant", "content": "a"},
         {"role": "assistant", "content": "b"}]), 200, {SAID: text}, "assistants"),
    Case("a late system message", POST, asked([*HELLO, {"role": "assistant", "content": "a"}, {"role": "system", "content": "Be kind."},
         *HELLO]), 200, {SAID: text}),
    Case("timings on demand", POST, asked(timings_per_token=True), 200, {"timings.predicted_n": at_most(8),
         "timings.prompt_n": at_least(0), "timings.predicted_per_second": at_least(0)}),
    Case("no timings otherwise", POST, asked(), 200, {"timings": absent}, "timings"),
]

STREAMS = [
    Case("a stream", POST, {"messages": ASK, "stream": True, "stream_options": {"include_usage": True}} | GREEDY, 200,
         {"@headers.content-type": "text/event-stream", "[0].choices[0].delta.role": "assistant",
         "[0].choices[0].delta.content": nothing_said, "[*].choices[0].delta.role": size(1), "[*].id": same, "[*].object": same,
         "[*].model": same, "[0].id": matches("cmpl"), "[-2].choices[0].finish_reason": one_of("length", "stop"),
         "[-2].choices[0].delta.content": nothing_said, "[-1].choices": [], "[-1].usage.completion_tokens": at_most(8),
         "[-1].usage.prompt_tokens": at_least(8), "@text": matches(r"data: \[DONE\]\n\n$"), PIECES: joined(text)},
         keep={"pieces": PIECES, "usage": "[-1].usage.prompt_tokens"}),
    Case("is the whole answer in pieces", POST, {"messages": ASK} | GREEDY, 200,
         {SAID: Kept("pieces", join), "usage.prompt_tokens": Kept("usage")}),
    Case("usage only if asked for", POST, asked(stream=True), 200, {"[*].usage": lambda values: not any(values),
         "[-1].choices[0].finish_reason": some}),
    Case("timings in a stream", POST, asked(stream=True, stream_options={"include_usage": True}, timings_per_token=True), 200, {
        "[0].timings": absent, "[*].timings.predicted_n": all_of(at_most(8)), "[*].timings.prompt_per_second": longer(0)}),
    Case("progress of the prompt", POST, asked(stream=True, return_progress=True), 200,
         {"[*].prompt_progress": [], "@headers.warning": matches("return_progress")}, "progress"),
    Case("stream_options without a stream", POST, asked(stream_options={"include_usage": True}), 400, {"error.param": "stream_options"},
         "stream_options"),
    Case("a refusal comes before the stream", POST, asked("none", stream=True), 400, {"error.param": "messages"}),
]

FORMATS = [
    Case("json_object with a constant", POST, formatted({"type": "json_object", "schema": {"const": "42"}}), 200, {SAID: "\"42\""}),
    Case("json_object with items", POST, formatted({"type": "json_object", "schema": {"type": "array", "items": {"type": "integer"},
         "maxItems": 3}}), 200, {SAID: in_json(lambda value: all(isinstance(one, int) for one in value))}),
    Case("json_schema", POST, formatted({"type": "json_schema", "json_schema": {"schema": {"const": "foooooo"}}}), 200,
         {SAID: "\"foooooo\""}),
    Case("json_schema in a stream", POST, formatted({"type": "json_schema",
         "json_schema": {"schema": {"const": "foooooo"}}}) | {"stream": True}, 200, {PIECES: joined("\"foooooo\"")}),
    Case("json_object", POST, formatted({"type": "json_object"}, 10), 200, {SAID: matches(r"^\s*\{")}),
    Case("text", POST, formatted({"type": "text"}, 4), 200, {SAID: text}),
    Case("json_schema as a field", POST, asked(json_schema={"const": "42"}), 200, {SAID: "\"42\""}),
    Case("a grammar", POST, asked(max_tokens=20, grammar="root ::= \"a\"{5,5}"), 200, {SAID: "aaaaa"}),
    refused("a grammar that is none", asked(grammar="root ::= ((")),
    refused("an unknown format", formatted({"type": "sound"}), **{"error.param": "response_format.type"}),
    refused("a number as a schema", formatted({"type": "json_object", "schema": 123})),
    refused("a schema whose type is a number", formatted({"type": "json_object", "schema": {"type": 123}})),
    refused("a schema of an unknown type", formatted({"type": "json_object", "schema": {"type": "hiccup"}})),
    refused("json_schema without a schema", formatted({"type": "json_schema", "json_schema": {}})),
]

TOOLS = [
    Case("a tool that must be called", POST, {"messages": ASK, "tools": [TEST], "tool_choice": "required",
         "parallel_tool_calls": False} | MANY, 200, {CALLS: size(1), f"{CALLS}[0].function.name": "test",
         f"{CALLS}[0].function.arguments": in_json({"success": True}), f"{CALLS}[0].id": some, f"{CALLS}[0].type": "function",
         SAID: nothing_said, FINISH: one_of("tool_calls", "stop")}),
    Case("the same in a stream", POST, {"messages": ASK, "tools": [TEST], "tool_choice": "required", "parallel_tool_calls": False,
         "stream": True} | MANY, 200, {"[*].choices[0].delta.tool_calls[0].function.arguments": joined(in_json({"success": True})),
         "[*].choices[0].delta.tool_calls[0].id": size(1), "[*].choices[0].delta.tool_calls[0].index": all_of(one_of(0)),
         "[*].choices[0].delta.tool_calls[0].function.name": joined("test")}),
    Case("a tool with an argument", POST, {"messages": ASK, "tools": [PYTHON], "tool_choice": "required",
         "parallel_tool_calls": False} | MANY, 200,
         {f"{CALLS}[*].function.arguments": all_of(in_json(lambda value: value["code"] in ["1 + 1", "2 * 2"]))}),
    Case("one of several", POST, {"messages": ASK, "tools": [TEST, PYTHON], "tool_choice": {"type": "function",
         "function": {"name": "python"}}} | MANY, 200, {f"{CALLS}[*].function.name": ["python"]}),
    Case("no tools", POST, asked(ASK, tools=[]), 200, {CALLS: nothing_said, SAID: Kept("answer")}),
    Case("tools that may not be called", POST, asked(ASK, tools=[PYTHON], tool_choice="none", max_tokens=16), 200,
         {CALLS: nothing_said, SAID: text}),
    Case("the result of a call", POST, asked(HISTORY, tools=[PYTHON], tool_choice="none"), 200, {CALLS: nothing_said, SAID: text}),
    Case("the result of a call, without tools", POST, asked(HISTORY), 200, {CALLS: nothing_said, SAID: text}),
    Case("an earlier call whose arguments don't parse", POST, asked([*HELLO, {"role": "assistant", "tool_calls": [CALLED]}, *HELLO]), 200,
         {SAID: text}),
    refused("tools that are no list", asked(tools="python")),
    refused("a tool without a function", asked(tools=[{"type": "function"}])),
    refused("a tool of an unknown type", asked(tools=[{"type": "code_interpreter"}])),
    refused("parameters of an unknown type", asked(tools=[{"type": "function", "function": {"name": "f",
         "parameters": {"type": "hiccup"}}}])),
    refused("a choice that is none", asked(tools=[TEST], tool_choice="perhaps")),
    refused("a choice of a tool that isn't there", asked(tools=[TEST], tool_choice={"type": "function", "function": {"name": "g"}})),
]

REFUSED = [
    refused("no messages", {"messages": None}),
    refused("messages that are a text", {"messages": "string"}),
    refused("a message that is a number", {"messages": [123]}),
    refused("an empty message", {"messages": [{}]}),
    refused("a role that is a number", {"messages": [{"role": 123}]}),
    refused("content that is a number", {"messages": [{"role": "system", "content": 123}]}),
    refused("an empty message after another", {"messages": [{"role": "system", "content": "test"}, {}]}),
    refused("an image", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file://a.png"}}]}]},
         "images"),
    refused("a sound", {"messages": [{"role": "user", "content": [{"type": "input_audio",
         "input_audio": {"data": "", "format": "wav"}}]}]}, "images"),
    refused("a prompt that is too long", {"messages": ASK * 4000}, "too_long", **{"error.code": "context_length_exceeded"}),
    refused("the same in a stream", {"messages": ASK * 4000, "stream": True}, "too_long", **{"error.code": "context_length_exceeded"}),
    refused("a temperature that is a text", asked(temperature="hot"), **{"error.param": "temperature"}),
    refused("a body that is no JSON", b"{"),
    refused("a body that is a list", []),
    Case("a method that isn't there", "GET /v1/chat/completions", status=405, holds={"error.message": some}, differs="methods"),
]

CASES = ANSWERS + STREAMS + FORMATS + TOOLS + REFUSED
