"""Requests with extreme field values, for every API of the runtime: valid ones, and those that must be refused.

`extremes.yaml` has the fields and their values as JSON; those that are too long for a file are made here.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
NUMBERS = (*_TABLES["numbers"], "1" * 40, "1" * 400, "1" * 4301, "-" + "9" * 5000)
OTHERS = (*_TABLES["others"], "[" * 2000 + "]" * 2000)
PLAUSIBLE = _TABLES["plausible"]
"""Values that are valid, so that combinations get past the checks and reach the engine."""
RELATED = frozenset(_TABLES["related"])
"""Fields whose meaning depends on each other."""


def biases(number: str) -> str:
    return f'{{"65":{number}}}'


class Api(NamedTuple):
    """A path, fields that make a valid request, and its other fields: numbers first."""

    path: str
    base: dict[str, str]
    numbers: tuple[str, ...]
    others: tuple[str, ...]

    def body(self, changes: dict[str, str]) -> bytes:
        fields = self.base | changes
        return ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items()) + "}").encode()


def _api(path: str, samples: bool, base: dict[str, str], numbers: list[str], others: list[str]) -> Api:
    """Those that sample have the fields of sampling."""
    sampling, shared = (_TABLES["sampling"], _TABLES["shared"]) if samples else ([], [])
    return Api(path, base, (*sampling, *numbers), (*shared, *others))


APIS = tuple(_api(**api) for api in _TABLES["apis"])


def single_values(api: Api) -> Iterator[bytes]:
    """Every field with every extreme value, by itself."""
    for name in api.numbers:
        for value in (*NUMBERS, *OTHERS):
            yield api.body({name: value})
    for name in (*api.others, *api.base):
        for value in OTHERS:
            yield api.body({name: value})
    if "logit_bias" in api.others:
        for value in NUMBERS:
            yield api.body({"logit_bias": biases(value)})
            yield api.body({"logit_bias": f'{{"{value}":1}}'})


def combinations(api: Api, count: int, seed: int) -> Iterator[bytes]:
    """Several fields at once, most of them valid."""
    chance = random.Random(seed)
    names = [*api.numbers, *api.others]
    related = [name for name in names if name in RELATED]
    for _ in range(count):
        chosen = related if related and chance.random() < 0.5 else names
        changes = {}
        for name in chance.sample(chosen, min(len(chosen), chance.randint(2, 7))):
            plausible = PLAUSIBLE.get(name)
            changes[name] = chance.choice(plausible if plausible and chance.random() < 0.95 else (*NUMBERS, *OTHERS))
        yield api.body(changes)
