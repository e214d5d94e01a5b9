"""`/v1/embeddings`."""

from case import Case, Kept, absent, all_of, at_least, length_of, longer, near, same, size, some, text

POST = "POST /v1/embeddings"
TEXT = "I believe the meaning of life is"
VECTOR = "data[0].embedding"
UNIT = near(1, 1e-3)


def refused(name, input, **more):
    return Case(name, POST, {"input": input} | more, 400, {"error.message": some})


CASES = [
    Case("of a text", POST, {"input": TEXT}, 200, {"object": "list", "data": size(1),
         VECTOR: lambda vector: len(vector) > 1 and UNIT(length_of(vector)), "usage.prompt_tokens": at_least(6)},
         keep={"vector": VECTOR, "tokens": "usage.prompt_tokens"}),
    Case("the same without /v1", "POST /embeddings", {"input": TEXT}, 200, {VECTOR: Kept("vector")}, "embeddings"),
    Case("of several", POST, {"input": [TEXT, "Write a joke about AI", "This is a test", "This is another test"]}, 200, {
        "data[*].index": [0, 1, 2, 3], "data[*].embedding": all_of(longer(1))}),
    Case("of tokens", POST, {"input": [12, 34, 56]}, 200, {VECTOR: longer(1), "usage.prompt_tokens": at_least(3)}),
    Case("of two lists of tokens", POST, {"input": [[12, 34, 56], [12, 34, 56]]}, 200, {"data[*].embedding": same, "data": size(2)}),
    Case("the same text gives the same", POST, {"input": [TEXT] * 5}, 200, {"data": size(5), "data[*].embedding": same,
         VECTOR: Kept("vector")}),
    Case("tokens of all are counted", POST, {"input": [TEXT, TEXT]}, 200, {"usage.prompt_tokens": Kept("tokens", lambda count: 2 * count),
         "usage.total_tokens": Kept("tokens", lambda count: 2 * count)}),
    Case("as base64", POST, {"input": TEXT, "encoding_format": "base64"}, 200, {VECTOR: text}),
    Case("of a text in an object", POST, {"input": {"prompt_string": TEXT}}, 400, {"error.message": some}, "mixed"),
    refused("of an object without a text", {"content": "string"}),
    refused("of a picture", {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}),
    Case("of an empty text", POST, {"input": ""}, 400, {"error.message": some}, "empty_prompt"),
    refused("of nothing", []),
    refused("of a number", 5),
    refused("of text among tokens", [12, "string", 34]),
    refused("of what is too long", "This is a test " * 9000),
    Case("no input", POST, {"model": "any"}, 400, {"error.param": "input", "data": absent}),
]
