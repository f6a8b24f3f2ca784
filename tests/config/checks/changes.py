"""Configurations that are right, and changes of them: the YAML files of this folder.

file      the configuration; `RIGHT` of `tests/config/conftest.py` if it is absent
files     files beside it: name to content
cases     changes, each with all problems or warnings that it causes
  change    texts to their replacements
  add       texts to fields that are added below their lines, as deep as they are
  problem   or `problems`, `warning`, `warnings`
"""

from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from tests.config.conftest import RIGHT

FOLDER = Path(__file__).parent
NAMES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.yaml"))


@cache
def document(name: str) -> dict[str, Any]:
    """One of the files. A file without a configuration of its own has that of most tests."""
    return {"file": RIGHT, "files": {}, **yaml.load((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader)}


def changed(text: str, case: dict[str, Any]) -> str:
    """A configuration after the changes of a case."""
    for old, new in case.get("change", {}).items():
        assert old in text, old
        text = text.replace(old, new, 1)
    for place, fields in case.get("add", {}).items():
        begin = text.rfind("\n", 0, text.index(place)) + 1
        end = text.index("\n", text.index(place)) + 1
        depth = end - begin - len(text[begin:end].lstrip(" -"))
        text = text[:end] + indent(f"{fields}\n", " " * depth) + text[end:]
    return text


def expected(case: dict[str, Any], kind: str) -> list[str]:
    """The problems, or the warnings, of a case."""
    lines: list[str] = case.get(kind, [])
    return [case[one]] if (one := kind.removesuffix("s")) in case else lines
