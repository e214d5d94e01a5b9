# needs: npcpy==2.1.25 ollama==0.6.3
import os

from cases import FUNCTION, KEY, MODEL, QUESTION, SERVER, V1, case, run
from npcpy.llm_funcs import get_llm_response
from npcpy.npc_compiler import NPC

# It doesn't hand `api_url` on to Ollama's client: only the variable tells where the server is.
os.environ["OLLAMA_HOST"] = SERVER
ROUTES = {"ollama": {"provider": "ollama", "num_ctx": 2048, "max_tokens": 100},
          "openai": {"provider": "openai-like", "api_url": V1, "api_key": KEY, "max_tokens": 100}}


def answers(route):
    answer = get_llm_response(QUESTION, model=MODEL, **ROUTES[route])
    assert isinstance(answer["response"], str) and not answer.get("error"), answer


def json(route):
    # It parses the answer, which nothing constrains by the OpenAI way: it sends words only.
    # By the other, a limit may cut the JSON off.
    answer = get_llm_response(QUESTION, model=MODEL, format="json", **ROUTES[route])
    assert (answer.get("error") or "Invalid JSON response").startswith("Invalid JSON response"), answer


def streams(route):
    chunks = list(get_llm_response(QUESTION, model=MODEL, stream=True, **ROUTES[route])["response"])
    assert len(chunks) > 1, chunks


def speaks(route):
    """As an NPC, which has the provider in its file."""
    settings = ROUTES[route]
    npc = NPC(name="guide", primary_directive="Be short.", model=MODEL, provider=settings["provider"], api_url=settings.get("api_url"))
    answer = get_llm_response(QUESTION, npc=npc, **{name: value for name, value in settings.items() if name not in ["provider", "api_url"]})
    assert isinstance(answer["response"], str) and not answer.get("error"), answer


def tools(route):
    answer = get_llm_response(QUESTION, model=MODEL, tools=[FUNCTION], **ROUTES[route])
    assert not answer.get("error"), answer


@case
def ollama_chat():
    answers("ollama")


@case
def ollama_json():
    json("ollama")


@case
def ollama_stream():
    streams("ollama")


@case
def ollama_tools():
    tools("ollama")


@case
def ollama_npc():
    speaks("ollama")


@case
def openai_chat():
    answers("openai")


@case
def openai_json():
    json("openai")


@case
def openai_stream():
    streams("openai")


@case
def openai_tools():
    tools("openai")


@case
def openai_npc():
    speaks("openai")


run()
