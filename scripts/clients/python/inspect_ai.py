# needs: inspect-ai==0.3.285 openai==3.57.0 anthropic==2.14.0
import os
from typing import Literal

from cases import KEY, MODEL, QUESTION, SERVER, V1, case, holds, run
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import json_schema
from pydantic import BaseModel

os.environ |= {"ALARA_BASE_URL": V1, "ALARA_API_KEY": KEY, "ANTHROPIC_BASE_URL": SERVER, "ANTHROPIC_API_KEY": KEY}
CHAT, RESPONSES, MESSAGES = "chat", "responses", "messages"


class Place(BaseModel):
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


@tool
def get_weather():
    async def execute(city: Literal["Paris", "Rome"]) -> str:
        """Gives the weather of a city.

        Args:
            city: the city
        """
        return "It snows."

    return execute


def model(way):
    config = GenerateConfig(max_tokens=200, max_retries=0, timeout=120, temperature=0)
    if way == MESSAGES:
        return get_model(f"anthropic/{MODEL}", config=config)
    return get_model(f"openai-api/alara/{MODEL}", config=config, responses_api=way == RESPONSES)


def measures(way, *solver, **config):
    """Runs a task of one sample. Returns its log and the sample's."""
    task = Task(dataset=[Sample(QUESTION, target="snow")], solver=[*solver, generate()], scorer=includes(), config=GenerateConfig(**config),
                message_limit=8)
    log, = eval(task, model=model(way), log_dir="logs", display="none")
    assert log.status == "success", log.error
    assert log.results.scores[0].scorer == "includes"
    usage = sum(log.stats.model_usage.values(), start=type(next(iter(log.stats.model_usage.values())))())
    # What was cached is counted apart.
    assert usage.total_tokens > usage.output_tokens > 0, usage
    return log, log.samples[0]


def calls(way):
    log, sample = measures(way, use_tools(get_weather()))
    made = [call for message in sample.messages if message.role == "assistant" for call in message.tool_calls or []]
    assert not [call for call in made if call.parse_error or call.function != "get_weather"], made
    return log, made


@case
def chat_text():
    measures(CHAT)


@case
def chat_tools():
    calls(CHAT)


@case
def chat_schema():
    _, sample = measures(CHAT, response_schema=ResponseSchema(name="place", json_schema=json_schema(Place), strict=True))
    holds(sample.output.completion)


@case
def responses_text():
    measures(RESPONSES)


@case
def responses_tools():
    calls(RESPONSES)


@case
def messages_text():
    measures(MESSAGES)


@case
def messages_tools():
    calls(MESSAGES)


@case(real=True)
def acts():
    # The model chooses to call.
    for way in [CHAT, RESPONSES, MESSAGES]:
        _, made = calls(way)
        assert made, way


run()
