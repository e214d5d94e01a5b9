# needs: aider-chat==0.86.2
import os
import pathlib
import sys

from cases import KEY, MODEL, SERVER, V1, case, command, run

pathlib.Path("hello.py").write_text("print('hello')\n")
# The words of a tiny model are no edit; that an answer came and was counted is what holds.
pathlib.Path("settings.yml").write_text(f"""
- name: openai/{MODEL}
  extra_params: {{max_tokens: 100}}
- name: ollama_chat/{MODEL}
  extra_params: {{max_tokens: 100}}
""")
pathlib.Path("metadata.json").write_text("{%s}" % ", ".join(
    f'"{route}/{MODEL}": {{"max_input_tokens": 4096, "max_output_tokens": 100, "litellm_provider": "{route}", "mode": "chat"}}'
    for route in ["openai", "ollama_chat"]))


def aider(route, *arguments):
    environment = dict(os.environ, OPENAI_API_BASE=V1, OPENAI_API_KEY=KEY, OLLAMA_API_BASE=SERVER)
    output = command(
        pathlib.Path(sys.prefix) / "bin/aider", "--model", f"{route}/{MODEL}", "--message", "Say hello.", "--no-git", "--yes-always",
        "--no-check-update", "--no-show-release-notes", "--analytics-disable", "--no-show-model-warnings", "--map-tokens", "0",
        "--no-detect-urls", "--no-suggest-shell-commands", "--edit-format", "ask", "--model-settings-file", "settings.yml",
        "--model-metadata-file", "metadata.json", *arguments, env=environment)
    assert "Tokens:" in output, output[-300:]


@case
def openai():
    aider("openai", "--no-stream")


@case
def openai_stream():
    aider("openai", "--stream")


@case
def ollama():
    aider("ollama_chat", "--stream")


run()
