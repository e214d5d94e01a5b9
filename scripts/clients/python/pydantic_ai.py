# needs: pydantic-ai-slim[openai,anthropic]==2.68.0
from typing import Literal

from anthropic import AsyncAnthropic
from cases import KEY, MODEL, QUESTION, SERVER, V1, case, run
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

SETTINGS = {"max_tokens": 200, "timeout": 120}
chat = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=V1, api_key=KEY), settings=SETTINGS)
responses = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=V1, api_key=KEY), settings=SETTINGS)
anthropic = AnthropicModel(MODEL, provider=AnthropicProvider(
    anthropic_client=AsyncAnthropic(base_url=SERVER, api_key=KEY, max_retries=0)), settings=SETTINGS)
ollama = OllamaModel(MODEL, provider=OllamaProvider(base_url=V1), settings=SETTINGS)


class Place(BaseModel):
    """A place."""
    model_config = ConfigDict(extra="forbid")
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


async def answers(model):
    result = await Agent(model).run(QUESTION)
    assert isinstance(result.output, str) and result.usage.input_tokens > 0 and result.usage.output_tokens > 0


async def streams(model):
    async with Agent(model).run_stream(QUESTION) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        assert "".join(pieces) == await result.get_output()


async def is_place(model, output):
    result = await Agent(model, output_type=output).run(QUESTION, usage_limits=UsageLimits(request_limit=2))
    assert isinstance(result.output, Place), result.output


@case
async def chat_text():
    await answers(chat)


@case
async def chat_stream():
    await streams(chat)


@case
async def chat_native():
    await is_place(chat, NativeOutput(Place))


@case
async def chat_tool():
    await is_place(chat, ToolOutput(Place))


@case
async def chat_prompted():
    # Nothing constrains this answer: whether it is a place is up to the model.
    try:
        await is_place(chat, PromptedOutput(Place))
    except (UnexpectedModelBehavior, UsageLimitExceeded) as error:
        print(f"answered with something else: {error}")


@case
async def responses_text():
    await answers(responses)


@case
async def responses_stream():
    await streams(responses)


@case
async def responses_native():
    await is_place(responses, NativeOutput(Place))


@case
async def responses_tool():
    await is_place(responses, ToolOutput(Place))


@case
async def anthropic_text():
    await answers(anthropic)


@case
async def anthropic_stream():
    await streams(anthropic)


@case
async def anthropic_tool():
    await is_place(anthropic, ToolOutput(Place))


@case
async def ollama_native():
    await is_place(ollama, NativeOutput(Place))


@case
async def acts():
    # A tool of the agent's own runs, its result goes back, and the output is asked for by another tool.
    called = []
    agent = Agent(chat, output_type=ToolOutput(Place))

    @agent.tool_plain
    def get_weather(city: Literal["Paris", "Rome"]) -> str:
        """Gives the weather of a city."""
        called.append(city)
        return "sunny"

    try:
        result = await agent.run(QUESTION, usage_limits=UsageLimits(request_limit=4))
        assert isinstance(result.output, Place)
    except UsageLimitExceeded:
        assert called, "neither a call nor an output in four requests"


run()
