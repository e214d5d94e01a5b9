"""Runs agents on local models, fully offline.

>>> import alara
>>> engine = alara.Engine()
>>> answer = engine.complete(alara.Request("Is 7 a prime?", schema={"enum": ["yes"]}))
>>> answer.json()
'yes'

`Engine` is a loaded model, `run` lets an agent work on a task, and `alara.bench` measures models.
"""

from alara import bench, events, notices
from alara._alara import version as _version
from alara._binary import binary
from alara._error import Error
from alara.agent import Outcome, Team, run
from alara.engine import Completion, Engine
from alara.request import Message, Request, Sampling, Tool

__version__ = _version()

__all__ = [
    "Completion",
    "Engine",
    "Error",
    "Message",
    "Outcome",
    "Request",
    "Sampling",
    "Team",
    "Tool",
    "__version__",
    "bench",
    "binary",
    "events",
    "notices",
    "run",
]
