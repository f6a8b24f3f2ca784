"""A route's ``when`` as predicates over Facts; a route matches when all of them hold."""

import operator
import re
from collections.abc import Callable

from config.schema import MatchConfig
from policies.facts import Facts
from policies.globs import GlobSet, glob

Condition = Callable[[Facts], bool]

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def conditions(when: MatchConfig) -> tuple[Condition, ...]:
    """One predicate for each field that is given, the cheapest first; empty when it matches everything."""
    found: list[Condition] = []
    if when.stream is not None:
        found.append(_stream(when.stream))
    if when.prompt_tokens is not None:
        found.append(_prompt_tokens(when.prompt_tokens))
    if when.tenant is not None:
        found.append(_tenant(GlobSet(when.tenant)))
    if when.model is not None:
        found.append(_model(GlobSet(when.model)))
    for name, pattern in (when.header or {}).items():
        found.append(_header(name.lower(), glob(pattern)))
    return tuple(found)


def _stream(wanted: bool) -> Condition:
    return lambda facts: facts.stream is wanted


def _prompt_tokens(comparison: str) -> Condition:
    parts = re.fullmatch(r"([<>]=?)\s*(\d+)", comparison)
    if parts is None:
        raise ValueError(f"prompt_tokens: expected a comparison such as >4000, got {comparison!r}")
    compare, bound = _COMPARE[parts[1]], int(parts[2])
    return lambda facts: compare(facts.prompt_tokens, bound)


def _tenant(names: GlobSet) -> Condition:
    return lambda facts: facts.tenant in names


def _model(names: GlobSet) -> Condition:
    return lambda facts: facts.model in names


def _header(name: str, matches: Callable[[str], bool]) -> Condition:
    def holds(facts: Facts) -> bool:
        value = facts.headers.get(name)
        return value is not None and matches(value)

    return holds
