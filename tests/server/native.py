"""What llama.cpp's server has beside other APIs."""

from case import Case, Kept, absent, all_of, at_least, has, lacks, longer, matches, one_of, size, some, text, there

TEXT = "What is the capital of France ?"
MESSAGES = [{"role": "system", "content": "You are a test."}, {"role": "user", "content": "Hi there"}]
TOOL = {"type": "function", "function": {
    "name": "look_up", "description": "Looks something up.", "parameters": {"type": "object", "properties": {}}}}
NONE = {"error.message": some}


def missing(name, request, body, differs):
    return Case(name, request, body, 404, NONE, differs)


CASES = [
    Case("health", "GET /health", holds={"status": "ok"}),
    Case("health with /v1", "GET /v1/health", holds={"status": "ok"}),
    Case("props", "GET /props", holds={
        "total_slots": at_least(1), "default_generation_settings.n_ctx": at_least(256), "default_generation_settings.params": there,
        "chat_template": matches("message"), "build_info": some}),
    Case("props tell no path", "GET /props", holds={"model_path": absent}, differs="model_path"),
    Case("props can't be set", "POST /props", {}, 405, NONE, "methods"),
    Case("models", "GET /models", holds={"object": "list", "data": some, "data[0].id": some, "data[*].object": all_of(one_of("model"))},
         differs="npcs", keep={"model": "data[0].id", "models": "data[*].id"}),
    Case("models with /v1", "GET /v1/models", holds={"data[*].id": Kept("models")}),
    Case("one of them", "GET /v1/models/alara-tiny.gguf", holds={"id": Kept("model"), "object": "model"}),
    Case("slots", "GET /slots", holds={"": longer(0), "[0].id": 0, "[0].n_ctx": at_least(256),
         "[*].is_processing": all_of(lambda value: value is False), "[0].params": absent}),
    Case("metrics", "GET /metrics", holds={
        "@headers.content-type": matches("^text/plain"), "@text": matches("# TYPE \\w+_requests_processing gauge")}, differs="metrics"),
    Case("the page", "GET /", holds={"@text": matches("(?i)<!doctype html>"), "@headers.content-type": matches("^text/html")}),
    Case("tokenize", "POST /tokenize", {"content": TEXT}, holds={"tokens": longer(5)}, keep={"tokens": "tokens"}),
    Case("detokenize", "POST /detokenize", {"tokens": Kept("tokens")}, holds={"content": lambda value: value.strip() == TEXT}),
    Case("tokenize with what begins a text", "POST /tokenize", {"content": TEXT, "add_special": True}, holds={"tokens": longer(5)}),
    Case("tokenize with pieces", "POST /tokenize", {"content": "A test with unicode 媽 and emoji 🤗", "with_pieces": True}, holds={
        "tokens[*].id": all_of(at_least(0)), "tokens[*].piece": all_of(some)}),
    Case("special tokens are known", "POST /tokenize", {"content": "<|im_end|>"}, holds={"tokens": size(1)}),
    Case("unless they are text", "POST /tokenize", {"content": "<|im_end|>", "parse_special": False}, holds={"tokens": longer(1)}),
    Case("tokenize nothing", "POST /tokenize", {"content": ""}, holds={"tokens": []}),
    Case("tokenize without content", "POST /tokenize", {}, 400, NONE, "missing"),
    Case("detokenize without tokens", "POST /detokenize", {}, 400, NONE, "missing"),
    Case("detokenize what isn't in the vocabulary", "POST /detokenize", {"tokens": [1 << 30]}, 400, NONE),
    Case("apply-template", "POST /apply-template", {"messages": MESSAGES},
         holds={"prompt": matches("You are a test\\..*Hi there.*assistant")}),
    Case("apply-template with tools", "POST /apply-template", {"messages": MESSAGES, "tools": [TOOL]},
         holds={"prompt": matches("look_up")}),
    Case("apply-template with no tools", "POST /apply-template", {"messages": MESSAGES, "tools": []}, holds={"prompt": lacks("look_up")}),
    Case("apply-template without the assistant's turn", "POST /apply-template", {"messages": MESSAGES, "add_generation_prompt": False},
         holds={"prompt": matches("assistant\n$")}, differs="generation_prompt"),
    Case("apply-template with the assistant's turn begun", "POST /apply-template",
         {"messages": [*MESSAGES, {"role": "assistant", "content": "Hi, I"}]}, holds={"prompt": matches("assistant\nHi, I$")}),
    Case("apply-template with parts", "POST /apply-template", {"messages": [{"role": "user",
         "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]}]}, holds={"prompt": matches("Hi there")},
         differs="parts"),
    Case("apply-template without messages", "POST /apply-template", {}, 400, NONE),
    Case("a chat's words as Ollama's clients ask", "POST /api/chat", {"model": "any", "messages": MESSAGES, "stream": False,
         "options": {"num_predict": 4}}, holds={"message.role": "assistant", "message.content": text, "done": True}),
    Case("what a model is", "POST /api/show", {"model": Kept("model")}, holds={"template": some, "model_info": there,
         "capabilities": has("completion")}),
    Case("models as Ollama's clients know them", "GET /api/tags", holds={"models[0].name": Kept("model")}),
    missing("llama.cpp's own completion", "POST /completion", {"prompt": "a"}, "native"),
    missing("infill", "POST /infill", {"input_prefix": "int main() {", "input_suffix": "}"}, "native"),
    missing("llama.cpp's own embedding", "POST /embedding", {"content": "a"}, "native"),
    missing("rerank", "POST /rerank", {"query": "a", "documents": ["b", "c"]}, "rerank"),
    missing("LoRA adapters", "GET /lora-adapters", None, "lora"),
    missing("a slot is saved", "POST /slots/0?action=save", {"filename": "a.bin"}, "slots"),
    missing("a slot is erased", "POST /slots/0?action=erase", {}, "slots"),
    Case("a model is loaded", "POST /models/load", {"model": "a"}, 405, NONE, "load"),
    missing("a path that isn't there", "GET /nothing", None, None),
]
