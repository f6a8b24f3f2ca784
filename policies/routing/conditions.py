"""A route's ``when`` as predicates over Facts. A route matches if all predicates hold."""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from config.schema.config import MatchConfig
from config.schema.money import parse_amount
from policies.clock import Window
from policies.facts import Facts, Feature
from policies.globs import GlobSet, glob
from policies.limits.price import Price

Condition = Callable[[Facts], bool]

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMES: dict[str, Callable[[Facts], str]] = {
    "tenant": attrgetter("tenant"),
    "key": attrgetter("key"),
    "model": attrgetter("requested"),
    "version": attrgetter("version"),
    "front": attrgetter("front"),
}
_FEATURES: tuple[Feature, ...] = ("tools", "json_schema", "vision")


class Requirement(NamedTuple):
    """One condition of a ``when``: its field, its text, and its predicate."""

    field: str
    written: str
    holds: Condition


def conditions(when: MatchConfig, price: Price | None) -> tuple[Condition, ...]:
    """One predicate for each condition, the cheapest first; empty if every request matches."""
    return tuple(requirement.holds for requirement in requirements(when, price))


def requirements(when: MatchConfig, price: Price | None) -> tuple[Requirement, ...]:
    """The conditions with their names. Raises ValueError for a cost without a price."""
    return (*_of_numbers(when), *_of_names(when), *_of_the_rest(when, price))


def _of_numbers(when: MatchConfig) -> Iterator[Requirement]:
    if when.stream is not None:
        yield Requirement("stream", _word(when.stream), _stream(when.stream))
    if when.prompt_tokens is not None:
        yield Requirement("prompt_tokens", when.prompt_tokens, _prompt_tokens(when.prompt_tokens))
    if when.max_tokens is not None:
        yield Requirement("max_tokens", when.max_tokens, _max_tokens(when.max_tokens))
    if when.time is not None:
        window = Window(when.time)
        yield Requirement("time", str(window), lambda facts: window.holds(facts.time))


def _of_names(when: MatchConfig) -> Iterator[Requirement]:
    for field, read in _NAMES.items():
        patterns: tuple[str, ...] | None = getattr(when, field)
        if patterns is not None:
            yield Requirement(field, listed(patterns), _name(read, GlobSet(patterns)))
    if when.role is not None:
        yield Requirement("role", listed(when.role), _role(GlobSet(when.role)))
    for name, pattern in (when.label or {}).items():
        yield Requirement(f"label {name}", pattern, _value(attrgetter("labels"), name, glob(pattern)))
    for name, pattern in (when.header or {}).items():
        yield Requirement(f"header {name.lower()}", pattern, _value(attrgetter("headers"), name.lower(), glob(pattern)))


def _of_the_rest(when: MatchConfig, price: Price | None) -> Iterator[Requirement]:
    """The expensive conditions."""
    if when.cost is not None:
        yield Requirement("cost", when.cost, _cost(when.cost, price))
    for feature in _FEATURES:
        required: bool | None = getattr(when, feature)
        if required is not None:
            yield Requirement(feature, _word(required), _feature(feature, required))


def listed(names: Iterable[str]) -> str:
    """Join names: ``a, b``."""
    return ", ".join(names)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _stream(required: bool) -> Condition:
    return lambda facts: facts.stream is required


def _prompt_tokens(comparison: str) -> Condition:
    compare, number = _comparison(comparison)
    bound = int(number)
    return lambda facts: compare(facts.prompt_tokens, bound)


def _max_tokens(comparison: str) -> Condition:
    compare, number = _comparison(comparison)
    bound = int(number)
    return lambda facts: facts.max_tokens is not None and compare(facts.max_tokens, bound)


def _comparison(written: str) -> tuple[Callable[[int, int], bool], str]:
    """Parse a comparison into its operator and its number."""
    parts = re.fullmatch(r"([<>]=?)\s*(.+)", written)
    if parts is None:
        raise ValueError(f"expected a comparison such as >4000, got {written!r}")
    return _COMPARE[parts[1]], parts[2]


def _name(read: Callable[[Facts], str], names: GlobSet) -> Condition:
    def holds(facts: Facts) -> bool:
        name = read(facts)
        return name != "" and name in names

    return holds


def _role(names: GlobSet) -> Condition:
    return lambda facts: any(role in names for role in facts.roles)


def _value(read: Callable[[Facts], Mapping[str, str]], name: str, matches: Callable[[str], bool]) -> Condition:
    def holds(facts: Facts) -> bool:
        value = read(facts).get(name)
        return value is not None and matches(value)

    return holds


def _cost(comparison: str, price: Price | None) -> Condition:
    compare, amount = _comparison(comparison)
    bound = parse_amount(amount)
    if price is None or price.currency != bound.currency:
        raise ValueError(f"cost: the model has no price in {bound.currency}")
    return lambda facts: compare(
        price.at(facts.time).estimate(facts.prompt_tokens, facts.max_tokens, facts.n).picos, bound.picos
    )


def _feature(feature: Feature, required: bool) -> Condition:
    return lambda facts: facts.uses_feature(feature) is required
