# needs: llama-index-llms-openai-like==0.8.1 llama-index-llms-ollama==0.11.0 llama-index-embeddings-openai==0.7.0
from typing import Literal

from cases import KEY, MODEL, QUESTION, SERVER, V1, case, run
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

COMMON = {"model": MODEL, "api_base": V1, "api_key": KEY, "max_tokens": 200, "max_retries": 0, "timeout": 120, "context_window": 2048}
chat = OpenAILike(**COMMON, is_chat_model=True, is_function_calling_model=True, should_use_structured_outputs=True)
text = OpenAILike(**COMMON, is_chat_model=False)
ollama = Ollama(model=MODEL, base_url=SERVER, request_timeout=120, context_window=2048, additional_kwargs={"num_predict": 200})
ASK = [ChatMessage(role="user", content=QUESTION)]


class Place(BaseModel):
    """A place."""
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Gives the weather of a city."""
    return "sunny"


TOOL = FunctionTool.from_defaults(get_weather)


@case
def openai_chat():
    assert chat.chat(ASK).message.content is not None


@case
def openai_stream():
    assert list(chat.stream_chat(ASK))


@case
def openai_complete():
    assert text.complete("The house").text


@case
def openai_tools():
    answer = chat.predict_and_call([TOOL], user_msg=QUESTION, tool_required=True)
    assert str(answer) == "sunny", answer


@case
def openai_structured():
    assert isinstance(chat.structured_predict(Place, PromptTemplate(QUESTION)), Place)


@case
def openai_embedding():
    assert len(OpenAIEmbedding(model_name=MODEL, api_base=V1, api_key=KEY, max_retries=0).get_text_embedding("The house")) > 1


@case
def ollama_chat():
    assert ollama.chat(ASK).message.content is not None


@case
def ollama_stream():
    assert list(ollama.stream_chat(ASK))


@case
def ollama_complete():
    assert ollama.complete("The house").text is not None


@case
def ollama_tools():
    answer = ollama.chat_with_tools([TOOL], user_msg=QUESTION)
    for call in ollama.get_tool_calls_from_response(answer, error_on_no_tool_call=False):
        assert call.tool_name == "get_weather" and call.tool_kwargs["city"] in ["Paris", "Rome"], call


@case
def ollama_structured():
    assert isinstance(ollama.structured_predict(Place, PromptTemplate(QUESTION)), Place)


run()
