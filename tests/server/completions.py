"""`/v1/completions`, in place of llama.cpp's own `/completion`."""

from case import Case, Kept, absent, all_of, at_least, at_most, joined, lacks, longer, matches, one_of, same, size, some, text
from chat import join, refused as refused_chat

POST = "POST /v1/completions"
PROMPT = "I believe the meaning of life is"
SAID = "choices[0].text"
FINISH = "choices[0].finish_reason"


def asked(prompt=PROMPT, **more):
    return {"prompt": prompt, "max_tokens": 8, "temperature": 0} | more


def refused(name, body, differs=None, **holds):
    case = refused_chat(name, body, differs, **holds)
    case.request = POST
    return case


CASES = [
    Case("a text goes on", POST, asked(), 200, {
        "id": matches("cmpl"), "object": "text_completion", "choices": size(1), SAID: text, FINISH: one_of("length", "stop"),
        "usage.prompt_tokens": at_least(6), "usage.completion_tokens": at_most(8)}, keep={"answer": SAID}),
    Case("the same without /v1", "POST /completions", asked(), 200, {SAID: Kept("answer")}, "native"),
    Case("in a stream", POST, asked(stream=True, stream_options={"include_usage": True}), 200, {
        "[*].id": same, "[*].object": same, "[*].choices[0].text": joined(text), "[-1].usage.completion_tokens": at_most(8),
        "@text": matches(r"data: \[DONE\]\n\n$")}, keep={"pieces": "[*].choices[0].text"}),
    Case("the stream is the whole", POST, asked(), 200, {SAID: Kept("pieces", join)}),
    Case("a limit ends a stream", POST, asked("Once", max_tokens=12, ignore_eos=True, stream=True), 200, {
        "[*].choices[0].finish_reason": lambda ends: [end for end in ends if end] == ["length"], "[*].choices[0].text": joined(some)}),
    Case("n_predict is max_tokens", POST, {"prompt": PROMPT, "n_predict": 3, "ignore_eos": True}, 200, {"usage.completion_tokens": 3}),
    Case("16 tokens where nothing is said", POST, {"prompt": PROMPT, "ignore_eos": True}, 200, {"usage.completion_tokens": 16},
         "default_tokens"),
    Case("and where -1 is", POST, {"prompt": PROMPT, "max_tokens": -1, "ignore_eos": True}, 200, {"usage.completion_tokens": 16},
         "default_tokens"),
    Case("tokens of a prompt", "POST /tokenize", {"content": PROMPT, "add_special": True}, 200, {"tokens": longer(3)},
         keep={"prompt": "tokens"}),
    Case("a prompt of tokens", POST, asked(Kept("prompt")), 200, {SAID: Kept("answer")}),
    Case("two prompts of tokens", POST, asked([Kept("prompt"), Kept("prompt")]), 200,
         {"choices[*].index": [0, 1], "choices[*].text": same}),
    Case("a prompt of tokens and one of text", POST, asked([Kept("prompt"), PROMPT]), 200,
         {"choices[*].index": [0, 1], "choices[*].text": same, "choices[1].text": Kept("answer")}),
    Case("two prompts in a stream", POST, asked([PROMPT, PROMPT], stream=True), 400, {"error.param": "prompt"}, "prompts"),
    refused("tokens and texts in one prompt", asked([1, 2, 3, PROMPT, 4]), "mixed"),
    refused("no prompt", {"max_tokens": 4}),
    refused("a prompt that is a number", asked(5)),
    refused("an empty prompt", asked(""), "empty_prompt"),
    refused("a prompt that is too long", asked(PROMPT * 4000), **{"error.code": "context_length_exceeded"}),
    refused("a token that isn't in the vocabulary", asked([1 << 30])),
    Case("stop", POST, asked(max_tokens=30, stop=["e"]), 200, {SAID: lacks("e")}),
    Case("logprobs", POST, asked(logprobs=3), 200, {
        "choices[0].logprobs.token_logprobs": all_of(at_most(0)), "choices[0].logprobs.top_logprobs": all_of(longer(0)),
        "choices[0].logprobs.tokens": joined(text)}),
    Case("n_probs", POST, asked(n_probs=3), 200, {SAID: text, "@headers.warning": matches("n_probs")}, "n_probs"),
    Case("logit_bias", POST, asked(logit_bias={"0": -100}), 200, {SAID: text}),
    Case("two answers", POST, asked(n=2, temperature=1), 200, {"choices[*].index": [0, 1]}),
    Case("echo", POST, asked(echo=True), 200, {SAID: matches(f"^{PROMPT}")}, "echo"),
    Case("echo with logprobs", POST, asked(echo=True, logprobs=1, max_tokens=0), 200, {
        SAID: PROMPT, "choices[0].logprobs.token_logprobs[0]": None, "choices[0].logprobs.tokens": longer(2),
        "usage.completion_tokens": 0}),
    Case("a suffix, of a model that knows none", POST, asked(suffix="."), 400, {"error.code": "not_supported"}, "suffix"),
    Case("a seed gives the same answer: once", POST, asked(temperature=1, seed=42), 200, keep={"seeded": SAID}),
    Case("a seed gives the same answer: twice", POST, asked(temperature=1, seed=42, cache_prompt=False), 200, {SAID: Kept("seeded")}),
    Case("a prompt that was there is cached", POST, asked(PROMPT * 20), 200, {SAID: text}),
    Case("and counts as that", POST, asked(PROMPT * 20), 200, {"usage.prompt_tokens_details.cached_tokens": at_least(50)}),
    Case("a schema", POST, asked(max_tokens=20, response_format={"type": "json_object", "schema": {"const": "42"}}), 200, {SAID: "\"42\""}),
    Case("json_schema as a field", POST, asked(max_tokens=20, json_schema={"const": "42"}), 200, {SAID: "\"42\""}),
    Case("a grammar", POST, asked(max_tokens=20, grammar="root ::= \"a\"{5,5}"), 200, {SAID: "aaaaa"}),
    Case("timings on demand", POST, asked(timings_per_token=True), 200, {"timings.predicted_n": at_most(8)}),
    Case("no timings otherwise", POST, asked(), 200, {"timings": absent}, "timings"),
    Case("settings of drafts", POST, asked(**{"speculative.n_max": 4}), 200, {SAID: Kept("answer"),
         "@headers.warning": matches("speculative")}, "drafts"),
    Case("no context shift", POST, asked(n_keep=4, n_discard=0), 200, {SAID: Kept("answer"), "@headers.warning": matches("n_keep")},
         "shift"),
]
