# needs: instructor==1.17.0
from typing import Literal

import instructor
from cases import KEY, MODEL, QUESTION, V1, case, run
from instructor.v2.core.errors import IncompleteOutputException, InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120)
ASK = {"messages": [{"role": "user", "content": QUESTION}], "model": MODEL, "max_retries": 0}


class Place(BaseModel):
    """A place."""
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def is_place(mode):
    answer = instructor.from_openai(client, mode=mode).chat.completions.create(**ASK, response_model=Place, max_tokens=200)
    assert isinstance(answer, Place)


@case
def tools():
    is_place(instructor.Mode.TOOLS)


@case
def tools_strict():
    is_place(instructor.Mode.TOOLS_STRICT)


@case
def json_schema():
    is_place(instructor.Mode.JSON_SCHEMA)


@case
def json():
    # JSON of any form: whether it is a place is up to the model.
    try:
        is_place(instructor.Mode.JSON)
    except (InstructorRetryException, IncompleteOutputException) as error:
        assert "validation error" in str(error) or "max_tokens" in str(error), error


@case
def tools_stream():
    wrapped = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    parts = list(wrapped.chat.completions.create_partial(**ASK, response_model=Place, max_tokens=200))
    assert parts[-1].city and parts[-1].days


run()
