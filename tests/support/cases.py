"""The cases of a test in the file beside it: `test_x.yaml` has those of `test_x.py`, in lists by name."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


def cases(test: str, name: str) -> list[Any]:
    """The list of a name, for the test file `test`."""
    made: list[Any] = _read(Path(test).with_suffix(".yaml"))[name]
    return made


@cache
def _read(file: Path) -> dict[str, list[Any]]:
    content: dict[str, list[Any]] = yaml.safe_load(file.read_text())
    return content
