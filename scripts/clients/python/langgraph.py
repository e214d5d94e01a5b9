# needs: langgraph==1.2.24 langchain==1.5.2 langchain-openai==1.7.4
from typing import Literal

from cases import KEY, MODEL, QUESTION, V1, case, run
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from pydantic import BaseModel, ConfigDict

COMMON = {"model": MODEL, "base_url": V1, "api_key": KEY, "max_retries": 0, "timeout": 120, "max_completion_tokens": 200}
WAYS = {"chat": ChatOpenAI(**COMMON), "responses": ChatOpenAI(**COMMON, use_responses_api=True)}


class Place(BaseModel):
    """A place."""
    model_config = ConfigDict(extra="forbid")
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


class Weather(BaseModel):
    """The weather of a city, as get_weather gives it."""
    city: Literal["Paris", "Rome"]
    sky: Literal["sun", "rain", "snow"]


called = []


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Gives the weather of a city."""
    called.append(city)
    return "snow"


def outputs(way, strategy, tools=(), kind=Place):
    called.clear()
    agent = create_agent(WAYS[way], [*tools], system_prompt="Be short.", response_format=strategy)
    state = agent.invoke({"messages": [("user", QUESTION)]}, {"recursion_limit": 8})
    assert isinstance(state["structured_response"], kind), state
    return state


def outputs_with_tools(way, strategy):
    """The model may call the tool again and again; what it gives at last is a place."""
    try:
        outputs(way, strategy, [get_weather])
    except GraphRecursionError:
        assert called, "neither a call nor an output in eight steps"


@case
def chat_native():
    outputs("chat", ProviderStrategy(Place))


@case
def chat_tool():
    outputs("chat", ToolStrategy(Place))


@case
def chat_native_with_tools():
    outputs_with_tools("chat", ProviderStrategy(Place))


@case
def chat_tool_with_tools():
    outputs_with_tools("chat", ToolStrategy(Place))


@case
def responses_native():
    outputs("responses", ProviderStrategy(Place))


@case
def responses_tool():
    outputs("responses", ToolStrategy(Place))


@case
def responses_native_with_tools():
    outputs_with_tools("responses", ProviderStrategy(Place))


@case
def remembers():
    # A conversation that a checkpoint keeps, with a stream of messages.
    agent = create_agent(WAYS["chat"], [], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    for question in [QUESTION, "And in Rome?"]:
        pieces = [piece for piece, _ in agent.stream({"messages": [("user", question)]}, thread, stream_mode="messages")]
        assert pieces
    assert len(agent.get_state(thread).values["messages"]) == 4


@case(real=True)
def acts():
    # The choice is the model's: it calls, and the answer after the result is valid for the schema.
    for way in WAYS:
        state = outputs(way, ProviderStrategy(Weather), [get_weather], Weather)
        kinds = [type(message) for message in state["messages"]]
        assert called and ToolMessage in kinds and kinds[-1] is AIMessage, (way, state["messages"])


run()
