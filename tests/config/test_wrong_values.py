"""A value of a wrong shape in any field is a problem of that field, never a traceback."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.loader import read
from config.place import Place, section_at, written
from config.schema.protocols import BUILT_IN
from config.schema.runtimes import KINDS
from config.schema.section import Section
from tests.config.conftest import RIGHT

VALUES = ("text", 7, 0.5, True, ["text"], [{"text": "text"}], {"text": "text"}, {"text": ["text"]}, [[7]])
RIGHT_DATA = yaml.safe_load(RIGHT)
FORMS: tuple[tuple[Place, type[Section], dict[str, str]], ...] = (
    *((("pools", 0, "runtime"), section, {"kind": kind}) for kind, section in KINDS.items()),
    *((("pools", 0, "protocol"), section, {"name": name}) for name, section in BUILT_IN.items()),
)


def _sections() -> list[tuple[Place, type[Section], dict[str, str]]]:
    """Place, section and given fields of every section, each section once."""
    waiting: list[Place] = [()]
    seen: dict[type[Section], Place] = {}
    for place in waiting:
        section = section_at(place)
        if section is not None and section not in seen:
            seen[section] = place
            inner = [(*place, field.alias or name) for name, field in section.model_fields.items()]
            waiting += inner + [(*each, 0) for each in inner]
    return [*((place, section, {}) for section, place in seen.items()), *FORMS]


def _file(place: Place, value: object) -> str:
    """A valid file with a value at a place, as JSON, which is YAML and thirty times faster to write."""
    data = copy.deepcopy(RIGHT_DATA)
    here: Any = data
    for step, following in itertools.pairwise(place):
        if isinstance(here, dict) and not isinstance(here.get(step), dict | list):
            here[step] = [{}] if isinstance(following, int) else {}
        elif isinstance(step, int) and isinstance(here[step], str):
            here[step] = {"url": here[step]}  # the long form of an endpoint
        here = here[step]
    here[place[-1]] = value
    return json.dumps(data)


def _bears(place: Place, given: dict[str, str], key: str, value: object) -> None:
    reading = read(Path("headrace.yaml"), _file(place, {**given, key: value}) if place else _file((key,), value))
    assert (reading.config is None) == bool(reading.problems), (written((*place, key)), value)


def test_every_field_bears_a_value() -> None:
    """One of the values in each field. The nightly test has all of them."""
    values = itertools.cycle(VALUES)
    for place, section, given in _sections():
        for name, field in section.model_fields.items():
            _bears(place, given, field.alias or name, next(values))


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.parametrize(("place", "section", "given"), _sections(), ids=str)
def test_every_field_bears_every_value(place: Place, section: type[Section], given: dict[str, str]) -> None:
    for name, field in section.model_fields.items():
        for value in VALUES:
            _bears(place, given, field.alias or name, value)
