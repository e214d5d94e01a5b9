# needs: dspy==3.4.1
from typing import Literal

import dspy
from cases import KEY, MODEL, QUESTION, SERVER, V1, case, run
from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider

# Unless a provider is said to know schemas, none is sent.
register_provider(
    ProviderDefinition.chat(AccessPolicy("alara", base_url=V1), compat=OpenAIChatCompat(), placeholder_key=KEY),
    supports=ModelSupport(function_calling=True, response_schema=True))
chat = dspy.LM(f"alara/{MODEL}", api_base=V1, api_key=KEY, max_tokens=200, cache=False, num_retries=0)
responses = dspy.LM(f"openai/{MODEL}", model_type="responses", api_base=V1, api_key=KEY, max_tokens=200, cache=False, num_retries=0)
ollama = dspy.LM(f"ollama_chat/{MODEL}", api_base=SERVER, max_tokens=200, cache=False, num_retries=0)


class Where(dspy.Signature):
    """Names the city and the days of a question."""
    question: str = dspy.InputField()
    city: Literal["Paris", "Rome"] = dspy.OutputField()
    days: Literal[1, 2, 3] = dspy.OutputField()


@case
def chat_text():
    assert isinstance(chat(QUESTION)[0], (str, dict))


@case
def chat_json():
    with dspy.context(lm=chat, adapter=dspy.JSONAdapter()):
        found = dspy.Predict(Where)(question=QUESTION)
    assert found.city in ["Paris", "Rome"] and found.days in [1, 2, 3]


@case
def responses_text():
    assert responses(QUESTION)


@case
def ollama_text():
    assert ollama(QUESTION)


run()
