"""Where the `alara` binary is that this package came with.

It starts what agents run, in the sandbox, and runs benchmarks.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path

from alara import _alara
from alara._error import Error

#: The variable that names another binary.
VARIABLE = "ALARA_BINARY"
_NAMES = ("alara", "alara.exe")


def _candidate() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    try:
        files = importlib.metadata.files("alara") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        # The package's own folder has the same name, and is no file.
        path = Path(str(file.locate()))
        if file.name in _NAMES and path.is_file():
            return path.resolve()
    found = shutil.which("alara")
    return Path(found) if found else None


@functools.lru_cache(maxsize=None)
def binary() -> Path:
    """The binary's path.

    That is the one in ``ALARA_BINARY``, else the one that the wheel installed, else the one on
    ``PATH``.

    >>> import alara
    >>> alara.binary().name
    'alara'
    """
    path = _candidate()
    remedy = f"install the wheel, which has it, or let {VARIABLE} name it"
    if path is None:
        raise Error("the alara binary is not there", "", remedy)
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Error(f"the alara binary can't be started: {error}", str(path), remedy) from error
    version = told.stdout.split()[-1] if told.stdout.split() else ""
    if version != _alara.version():
        what = f"the alara binary is of version {version}, and this package of {_alara.version()}"
        raise Error(what, str(path), remedy)
    _alara.use_binary(path)
    return path
