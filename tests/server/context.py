"""A context that is soon full: two slots of 256 tokens."""

from case import Case, at_least, joined, matches, one_of, size, some

HELLO = [{"role": "user", "content": "Hi how are you"}]
LONG = "The sea is wide and the hills are high, and between them people live who like to tell of both. " * 20


def case(name, request, body=None, status=200, holds=None, differs=None):
    return Case(name, request, body, status, holds or {}, differs, server="small")


def too_long(name, request, body, **holds):
    told = {"error.code": "context_length_exceeded", "error.message": matches(r"This model's maximum context length is 256 tokens\. However, your \w+ resulted in \d+ tokens.*--ctx"),
            "error.n_ctx": 256, "error.n_prompt_tokens": at_least(257)}
    return case(name, request, body, 400, told | holds, "too_long")


CASES = [
    case("props tell it", "GET /props", holds={"total_slots": 2, "default_generation_settings.n_ctx": 256}),
    case("slots tell it", "GET /slots", holds={"": size(2), "[*].n_ctx": [256, 256], "[*].id": [0, 1]}),
    case("models tell it", "GET /v1/models/alara-tiny.gguf", holds={"context_length": 256, "max_model_len": 256}),
    case("an answer without a limit ends where it is full", "POST /v1/chat/completions", {"messages": HELLO, "ignore_eos": True}, 200, {
        "choices[0].finish_reason": "length", "usage.total_tokens": 256}, "shift"),
    case("so does one with more than it has room for", "POST /v1/chat/completions",
         {"messages": HELLO, "ignore_eos": True, "max_tokens": 5000}, 200, {"choices[0].finish_reason": "length",
         "usage.total_tokens": 256}, "shift"),
    case("and one of -1 tokens", "POST /v1/chat/completions", {"messages": HELLO, "ignore_eos": True, "n_predict": -1}, 200,
         {"usage.total_tokens": 256}, "shift"),
    case("a short answer is whole", "POST /v1/chat/completions", {"messages": HELLO, "ignore_eos": True, "max_tokens": 64}, 200,
         {"usage.completion_tokens": 64}),
    case("in a stream", "POST /v1/completions", {"prompt": "Once", "max_tokens": 5000, "ignore_eos": True, "stream": True}, 200,
         {"[*].choices[0].finish_reason": lambda ends: [end for end in ends if end] == ["length"], "[*].choices[0].text": joined(some)},
         "shift"),
    case("of /v1/messages", "POST /v1/messages", {"messages": HELLO, "ignore_eos": True, "max_tokens": 5000}, 200, {
        "stop_reason": one_of("max_tokens", "model_context_window_exceeded")}, "shift"),
    too_long("a chat that is too long", "POST /v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
    too_long("a chat in a stream that is too long", "POST /v1/chat/completions",
         {"messages": [{"role": "user", "content": LONG}], "stream": True}),
    too_long("a text that is too long", "POST /v1/completions", {"prompt": LONG}),
    case("a message that is too long", "POST /v1/messages", {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4}, 400, {
        "error.type": "invalid_request_error", "error.message": matches(r"^prompt is too long: \d+ tokens > 256 maximum; .*--ctx")}),
    case("a response that is too long", "POST /v1/responses", {"input": LONG}, 400, {"error.code": "context_length_exceeded"}, "too_long"),
    case("what fills nearly all of it", "POST /v1/chat/completions", {"messages": [{"role": "user", "content": LONG[:640]}],
         "max_tokens": 5000, "ignore_eos": True}, 200, {"usage.total_tokens": 256, "usage.prompt_tokens": at_least(200)}, "shift"),
    case("the same once more", "POST /v1/chat/completions", {"messages": [{"role": "user", "content": LONG[:640]}], "max_tokens": 5000,
         "ignore_eos": True}, 200, {"usage.total_tokens": 256, "usage.prompt_tokens_details.cached_tokens": at_least(100)}, "shift"),
]
