"""What the tests have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

import alara


@pytest.fixture(scope="session")
def engine() -> alara.Engine:
    """The model that ships."""
    return alara.Engine()


@pytest.fixture
def script(tmp_path: Path):
    """A model that says what it is told to."""
    import json

    def write(*replies: dict) -> str:
        path = tmp_path / "script.json"
        path.write_text(json.dumps(replies))
        return f"script:{path}"

    return write


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory."""
    path = tmp_path / "work"
    path.mkdir()
    return path
