"""`/v1/responses`."""

from case import Case, Kept, all_of, at_least, has, in_json, matches, one_of, same, some, text, there
from chat import PYTHON, join

POST = "POST /v1/responses"
ASK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is the best book?"}]
SAID = "output[-1].content[0].text"
FUNCTION = {"type": "function"} | PYTHON["function"]


def asked(input=ASK, **more):
    return {"model": "gpt-4.1", "input": input, "max_output_tokens": 8, "temperature": 0} | more


def formatted(format, tokens=30):
    return {"input": "Write an example", "max_output_tokens": tokens, "temperature": 0, "text": {"format": format}}


CASES = [
    Case("an answer", POST, asked(), 200, {"id": matches("^resp_"), "object": "response", "status": one_of("completed", "incomplete"),
         "output[0].id": matches("^(msg|rs)_"), SAID: text, "usage.input_tokens": at_least(8), "usage.output_tokens": at_least(1)},
         keep={"answer": SAID, "id": "id"}),
    Case("the same without /v1", "POST /responses", asked(), 200, {SAID: Kept("answer")}),
    Case("a text as input", POST, asked("Hello"), 200, {SAID: text}),
    Case("a stream", POST, asked(stream=True), 200, {"[0].type": "response.created", "[0].response.id": matches("^resp_"),
         "[*].response.id": same, "[*].sequence_number": lambda list: list == sorted(list) and len(list) > 3,
         "[*].type": has("response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
         "response.output_text.done", "response.content_part.done", "response.output_item.done"), "[*].item_id": all_of(matches("^msg_")),
         "[-1].type": one_of("response.completed", "response.incomplete"), "[-1].response.usage": there},
         keep={"whole": f"[-1].response.{SAID}", "events": ""}),
    Case("the stream's end is the whole", POST, asked(), 200, {SAID: Kept("whole")}),
    Case("the stream's pieces are the whole", POST, asked(), 200, {SAID: Kept("events", lambda events: join(
        event["delta"] for event in events if event["type"] == "response.output_text.delta"))}),
    Case("json_schema", POST, formatted({"type": "json_schema", "name": "test", "schema": {"const": "foooooo"}}), 200,
         {SAID: "\"foooooo\""}),
    Case("json_object", POST, formatted({"type": "json_object"}, 10), 200, {SAID: matches(r"^\s*\{")}),
    Case("text", POST, formatted({"type": "text"}, 8), 200, {SAID: text}),
    Case("json_schema without a schema", POST, formatted({"type": "json_schema", "name": "test"}), 400, {"error.message": some}),
    Case("a tool", POST, asked(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False, max_output_tokens=200), 200, {
        "output[-1].type": "function_call", "output[-1].name": "python", "output[-1].call_id": some,
        "output[-1].arguments": in_json(lambda value: value["code"] in ["1 + 1", "2 * 2"])}, keep={"call": "output[-1]"}),
    Case("the result of a call", POST, asked([*ASK, Kept("call"), {"type": "function_call_output",
         "call_id": Kept("call", lambda call: call["call_id"]), "output": "2"}], tools=[FUNCTION], tool_choice="none"), 200,
         {"output[-1].type": "message", SAID: text}),
    Case("progress and timings", POST, asked(stream=True, return_progress=True), 200,
         {"[*].prompt_progress": [], "@headers.warning": matches("return_progress")}, "progress"),
    Case("what comes after an answer", POST, asked("Why?", previous_response_id=Kept("id")), 200,
         {SAID: text, "previous_response_id": Kept("id")}, "kept_responses"),
    Case("an answer is there later", "GET /v1/responses/none", status=404, holds={"error.message": some}, differs="kept_responses"),
    Case("no input", POST, {"model": "gpt-4.1"}, 400, {"error.param": "input"}),
    Case("an input that is a number", POST, asked(5), 400, {"error.message": some}),
]
