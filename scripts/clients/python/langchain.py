# needs: langchain-openai==1.7.4 langchain-ollama==1.1.0
from cases import FUNCTION, KEY, MODEL, PLACE, QUESTION, SERVER, TOOL, V1, case, holds, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

COMMON = {"model": MODEL, "base_url": V1, "api_key": KEY, "max_retries": 0, "timeout": 120}
openai = ChatOpenAI(**COMMON, max_completion_tokens=200)
responses = ChatOpenAI(**COMMON, max_completion_tokens=200, use_responses_api=True)
ollama = ChatOllama(model=MODEL, base_url=SERVER, num_predict=200)
SCHEMA = {"title": "place", "description": "A place.", **PLACE}


def answers(model):
    answer = model.invoke(QUESTION)
    assert answer.usage_metadata["input_tokens"] > 0 and answer.usage_metadata["output_tokens"] > 0, answer


def streams(model, **settings):
    whole = None
    for chunk in model.stream(QUESTION, **settings):
        whole = chunk if whole is None else whole + chunk
    assert whole.usage_metadata["output_tokens"] > 0, whole


def calls(model, **settings):
    bound = model.bind_tools([FUNCTION], **settings)
    answer = bound.invoke(QUESTION)
    if settings:
        assert len(answer.tool_calls) == 1, answer
    for call in answer.tool_calls:
        assert call["name"] == TOOL["name"]
        holds(call["args"])
    results = [ToolMessage("sunny", tool_call_id=call["id"]) for call in answer.tool_calls]
    model.invoke([HumanMessage(QUESTION), answer, *results, HumanMessage("Thanks.")])


@case
def openai_chat():
    answers(openai)


@case
def openai_stream():
    streams(openai, stream_usage=True)


@case
def openai_tools():
    calls(openai, tool_choice=TOOL["name"])


@case
def openai_structured():
    for method in ["json_schema", "function_calling"]:
        holds(openai.with_structured_output(SCHEMA, method=method).invoke(QUESTION))


@case
def openai_embeddings():
    # Without the length check it sends texts, with it lists of a foreign tokenizer's tokens.
    embeddings = OpenAIEmbeddings(**COMMON, check_embedding_ctx_length=False)
    assert len(embeddings.embed_query("The house")) > 1 and len(embeddings.embed_documents(["The house", "A tree"])) == 2


@case
def responses_chat():
    answers(responses)


@case
def responses_stream():
    streams(responses)


@case
def responses_tools():
    calls(responses, tool_choice=TOOL["name"])


@case
def responses_structured():
    holds(responses.with_structured_output(SCHEMA, method="json_schema").invoke(QUESTION))


@case
def ollama_chat():
    answers(ollama)


@case
def ollama_stream():
    streams(ollama)


@case
def ollama_tools():
    calls(ollama)


@case
def ollama_structured():
    holds(ollama.with_structured_output(SCHEMA, method="json_schema").invoke(QUESTION))


@case
def ollama_generate():
    OllamaLLM(model=MODEL, base_url=SERVER, num_predict=8).invoke("The house")


@case
def ollama_embeddings():
    assert len(OllamaEmbeddings(model=MODEL, base_url=SERVER).embed_query("The house")) > 1


run()
