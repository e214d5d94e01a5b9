# needs: smolagents[openai]==1.26.0
from cases import KEY, MODEL, QUESTION, V1, case, run
from smolagents import ActionStep, CodeAgent, OpenAIModel, ToolCallingAgent, tool
from smolagents.utils import AgentMaxStepsError, AgentParsingError, AgentToolCallError, AgentToolExecutionError

model = OpenAIModel(MODEL, api_base=V1, api_key=KEY, client_kwargs={"max_retries": 0, "timeout": 120}, max_tokens=200)


@tool
def get_weather(city: str) -> str:
    """Gives the weather of a city.

    Args:
        city: the city
    """
    return "sunny"


def steps(agent, **settings):
    """Runs two steps. What the model wrote may be nonsense, which is told to it; the requests themselves hold."""
    outcome = agent.run(QUESTION, max_steps=2, **settings)
    if settings:
        list(outcome)
    # The last step, which tells that no more are allowed, asks nothing.
    done = [step for step in agent.memory.steps if isinstance(step, ActionStep) and not isinstance(step.error, AgentMaxStepsError)]
    assert done
    for step in done:
        assert step.token_usage.input_tokens > 0 and step.token_usage.output_tokens > 0, step
    return done


@case
def tool_calling():
    for step in steps(ToolCallingAgent([get_weather], model, verbosity_level=0)):
        # A call is demanded: only the limit of tokens excuses its lack.
        called = step.tool_calls or isinstance(step.error, (AgentToolCallError, AgentToolExecutionError))
        assert called or step.model_output_message.raw.choices[0].finish_reason == "length", step.error


@case
def tool_calling_stream():
    steps(ToolCallingAgent([get_weather], model, verbosity_level=0, stream_outputs=True), stream=True)


def code_agent(**settings):
    agent = CodeAgent([get_weather], model, verbosity_level=0, **settings)
    # Its own has more tokens than the context of the model that ships.
    agent.prompt_templates["system_prompt"] = "Write Python between <code> and </code>."
    return agent


@case
def code():
    steps(code_agent())


@case
def code_stream():
    steps(code_agent(stream_outputs=True), stream=True)


@case
def code_structured():
    # A schema beside stop texts.
    for step in steps(code_agent(use_structured_outputs_internally=True)):
        assert not isinstance(step.error, AgentParsingError) or "JSON" not in str(step.error), step.error


run()
