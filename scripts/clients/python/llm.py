# Simon Willison's `llm`, as a person calls it.
# needs: llm==0.36
import json
import os
import pathlib
import sys

from cases import KEY, MODEL, PLACE, QUESTION, V1, case, command, holds, run

folder = pathlib.Path(os.environ["HOME"]) / "llm"
folder.mkdir()
(folder / "extra-openai-models.yaml").write_text(f"""
- model_id: alara
  model_name: {MODEL}
  api_base: {V1}
  supports_schema: true
  supports_tools: true
- model_id: alara-text
  model_name: {MODEL}
  api_base: {V1}
  completion: true
""")
TOOL = '''
def get_weather(city: str) -> str:
    """Gives the weather of a city."""
    return "sunny"
'''


def llm(*arguments, model="alara"):
    environment = dict(os.environ, LLM_USER_PATH=str(folder), OPENAI_API_KEY=KEY)
    return command(pathlib.Path(sys.prefix) / "bin/llm", "-m", model, "-o", "max_tokens", 100, *arguments, env=environment)


@case
def chat():
    llm(QUESTION, "--no-stream")


@case
def stream():
    llm(QUESTION, "-s", "Be short.", "--usage")


@case
def goes_on():
    llm(QUESTION)
    llm("And in Rome?", "-c")


@case
def tools():
    try:
        llm(QUESTION, "--functions", TOOL, "--chain-limit", 2)
    except AssertionError as error:
        # Whether it calls again is up to the model.
        assert "hain limit" in str(error), error


@case
def schema():
    holds(llm(QUESTION, "--schema", json.dumps(PLACE), "--no-stream"))


@case
def completion():
    llm("The house", model="alara-text")


run()
