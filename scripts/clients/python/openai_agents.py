# needs: openai-agents==0.24.0
from typing import Literal

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from cases import KEY, MODEL, QUESTION, V1, case, run
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120)
WAYS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


class Place(BaseModel):
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


called = []


@function_tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Gives the weather of a city."""
    called.append(city)
    return "sunny"


def agent(way, **more):
    settings = ModelSettings(max_tokens=200, include_usage=True, **more.pop("settings", {}))
    return Agent(name="weather", instructions="Be short.", model=WAYS[way](MODEL, client), model_settings=settings, **more)


async def answers(way):
    result = await Runner.run(agent(way), QUESTION, max_turns=1)
    assert isinstance(result.final_output, str) and result.raw_responses[0].usage.output_tokens > 0


async def streams(way):
    result = Runner.run_streamed(agent(way), QUESTION, max_turns=1)
    types = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    assert types[-1] in ["response.completed", "response.incomplete"] and isinstance(result.final_output, str), types


async def acts(way):
    called.clear()
    # The first call is demanded; the agent takes its result for the answer.
    one = agent(way, tools=[get_weather], tool_use_behavior="stop_on_first_tool",
                settings={"tool_choice": "required", "parallel_tool_calls": False})
    result = await Runner.run(one, QUESTION, max_turns=1)
    assert result.final_output == "sunny" and len(called) == 1, called
    # A conversation with a call and its result goes on.
    await Runner.run(agent(way), [*result.to_input_list(), {"role": "user", "content": "Thanks."}], max_turns=1)


async def outputs(way):
    result = await Runner.run(agent(way, output_type=Place), QUESTION, max_turns=1)
    assert isinstance(result.final_output, Place)


@case
async def chat_text():
    await answers("chat")


@case
async def chat_stream():
    await streams("chat")


@case
async def chat_tools():
    await acts("chat")


@case
async def chat_output():
    await outputs("chat")


@case
async def responses_text():
    await answers("responses")


@case
async def responses_stream():
    await streams("responses")


@case
async def responses_tools():
    await acts("responses")


@case
async def responses_output():
    await outputs("responses")


run()
