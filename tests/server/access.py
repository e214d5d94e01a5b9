"""Who may ask: a server with a token, and without `--any-model`."""

from case import Case, absent, matches, one_of, some

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
TOKEN = "sk-this-is-the-secret-key"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "Authorization"}


def case(name, request, body=None, status=200, holds=None, differs=None, headers=None):
    return Case(name, request, body, status, holds or {}, differs, headers or {}, server="token")


CASES = [
    case("health is for all", "GET /health", holds={"status": "ok"}),
    case("the page is for all", "GET /", holds={"@text": matches("(?i)<!doctype html>")}),
    case("models are not", "GET /models", status=401, holds={"error.type": "authentication_error"}, differs="public_models"),
    case("models, with the token", "GET /models", headers=KNOWN, holds={"data[0].id": some}),
    case("without a token", "POST /v1/chat/completions", CHAT, 401, {"error.type": "authentication_error", "error.message": some}),
    case("with a wrong one", "POST /v1/chat/completions", CHAT, 401, {"error.type": "authentication_error"},
         headers={"Authorization": "Bearer invalid-key"}),
    case("with the token", "POST /v1/completions", {"prompt": "Once", "model": "alara-tiny.gguf", "max_tokens": 4}, 200,
         {"choices[0].text": some}, headers=KNOWN),
    case("with the token as Anthropic's clients send it", "POST /v1/completions",
         {"prompt": "Once", "model": "alara-tiny.gguf", "max_tokens": 4}, 200, {"choices[0].text": some}, headers={"X-Api-Key": TOKEN}),
    case("Anthropic's routes are refused in their shape", "POST /v1/messages", CHAT, 401,
         {"type": "error", "error.type": "authentication_error"}),
    case("a model that isn't there", "POST /v1/chat/completions", CHAT | {"model": "gpt-4"}, 404, {"error.code": "model_not_found"},
         "any_model", KNOWN),
    case("no model", "POST /v1/chat/completions", CHAT, 200, {"model": "alara-tiny.gguf"}, None, KNOWN),
    case("a page of this machine", "OPTIONS /v1/completions", headers=PREFLIGHT | {"Origin": "http://localhost:3000"}, status=204, holds={
        "@headers.access-control-allow-origin": "http://localhost:3000", "@headers.access-control-allow-methods": matches("GET, POST"),
        "@headers.access-control-allow-headers": matches("(?i)authorization")}, differs="preflight"),
    case("a page of another site", "OPTIONS /v1/completions", headers=PREFLIGHT | {"Origin": "http://web.mydomain.fr"}, status=403,
         holds={"@headers.access-control-allow-origin": absent}, differs="origins"),
    case("what a page of another site asks", "POST /v1/chat/completions", CHAT, 403, {"error.code": one_of("forbidden")}, "origins",
         KNOWN | {"Origin": "http://web.mydomain.fr"}),
    case("a name that was made to mean this machine", "GET /health", status=403, holds={"error.code": "forbidden"}, differs="origins",
         headers={"Host": "evil.example"}),
]
