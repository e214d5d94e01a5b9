# fast-agent, whose tools are MCP servers. Later versions take Python 3.13.
# needs: fast-agent-mcp==0.2.36 pydantic==2.11.10 openai==1.93.0 anthropic==0.57.1 google-genai==1.25.0 a2a-sdk==0.2.9 tensorzero==2025.6.3
import json
import os
import pathlib
import sys
from typing import Literal

from cases import KEY, MODEL, QUESTION, SERVER, V1, case, run
from mcp_agent.core.fastagent import FastAgent
from mcp_agent.core.prompt import Prompt
from mcp_agent.core.request_params import RequestParams
from pydantic import BaseModel

pathlib.Path("weather.py").write_text('''
from typing import Literal
from mcp.server.fastmcp import FastMCP

server = FastMCP("weather")

@server.tool()
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Gives the weather of a city."""
    open("called", "a").write(city + "\\n")
    return "It rains frogs."

server.run()
''')
pathlib.Path("config.json").write_text(json.dumps({
    "generic": {"api_key": KEY, "base_url": V1}, "openai": {"api_key": KEY, "base_url": V1}, "anthropic": {"api_key": KEY, "base_url": SERVER},
    "mcp": {"servers": {"weather": {"command": sys.executable, "args": ["weather.py"], "cwd": os.getcwd()}}},
    "logger": {"type": "none", "progress_display": False, "show_chat": False, "show_tools": False},
}))


class Place(BaseModel):
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


async def asks(provider, act, servers=()):
    """Runs `act` with an agent."""
    fast = FastAgent("clients", config_path="config.json", parse_cli_args=False)

    @fast.agent(name="guide", instruction="Be short.", model=f"{provider}.{MODEL}", servers=[*servers],
                request_params=RequestParams(maxTokens=200, max_iterations=3))
    async def guide():
        pass

    async with fast.run() as agents:
        return await act(agents.guide)


async def answers(provider):
    assert isinstance(await asks(provider, lambda guide: guide.send(QUESTION)), str)


async def with_tools(provider):
    pathlib.Path("called").write_text("")
    answer = await asks(provider, lambda guide: guide.send(QUESTION), ["weather"])
    return answer, pathlib.Path("called").read_text().split()


@case
async def chat():
    await answers("generic")


@case
async def chat_structured():
    place, _ = await asks("generic", lambda guide: guide.structured([Prompt.user(QUESTION)], Place))
    assert isinstance(place, Place), place


@case
async def chat_tools():
    await with_tools("generic")


@case
async def messages():
    await answers("anthropic")


@case
async def messages_tools():
    await with_tools("anthropic")


@case(real=True)
async def acts():
    # The model chooses to call, and answers by the result.
    for provider in ["generic", "anthropic"]:
        answer, called = await with_tools(provider)
        assert called and "frog" in answer.lower(), (provider, called, answer)


run()
