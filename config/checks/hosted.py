"""Warnings about hosted models, by the catalogue: a missing price, a limit that is too high, a lack, a deprecation.

They are for `headrace check` and the console: a gateway that starts does not read the catalogue.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from config.catalogue.entries import ModelFacts
from config.catalogue.published import facts_of
from config.catalogue.reading import ModelCatalogue
from config.document import Document, parse_text
from config.place import Place
from config.problem import Problem
from config.schema.config import ClientModelConfig, Config, PoolConfig, RouteConfig
from config.schema.rewrite import twins

_WHEN: Final = {"vision": "vision", "json_schema": "schema", "tools": "tools"}
_NOUNS: Final = {"vision": "images", "schema": "answers by a JSON schema", "tools": "tools"}


def advise(config: Config, file: str, facts: ModelCatalogue) -> Iterator[Problem]:
    """Every warning about a valid configuration."""
    return (problem for _, problem in advise_models(config, file, facts))


def advise_models(config: Config, file: str, facts: ModelCatalogue) -> Iterator[tuple[ClientModelConfig, Problem]]:
    """Every warning about a valid configuration, with its model."""
    doc = parse_text(config.text, file)
    pools = {pool.name: pool for pool in config.pools}
    for index, model in enumerate(config.models):
        for problem in _of_model(doc, ("models", index), model, pools, facts):
            yield model, replace(problem, is_warning=True)


def _of_model(
    doc: Document, place: Place, model: ClientModelConfig, pools: dict[str, PoolConfig], facts: ModelCatalogue
) -> Iterator[Problem]:
    priced = ""
    for index, route in enumerate(model.routes):
        for one in _distinct(facts_of(model, route, pools, facts)):
            where = (*place, "routes", index)
            if one.price is not None:
                priced = priced or one.name
            if one.deprecated:
                since = "" if one.deprecated == "yes" else f" since {one.deprecated}"
                yield doc.problem(where, f"sends to {one.name}, which its provider has deprecated{since}")
            yield from _limits(doc, where, route, one)
            yield from _lacks(doc, where, route, one)
    if priced and model.price is None:
        message = (
            f"has no price, so its use costs nothing here: the catalogue of {facts.date} has one of {priced}"
            f" (headrace prices show {priced})"
        )
        yield doc.problem((*place, "name"), message)


def _distinct(facts: Iterator[ModelFacts]) -> Iterator[ModelFacts]:
    """Each model once: facts are compared by their names."""
    seen: set[tuple[str, str]] = set()
    for one in facts:
        if (one.provider, one.name) not in seen:
            seen.add((one.provider, one.name))
            yield one


def _limits(doc: Document, place: Place, route: RouteConfig, facts: ModelFacts) -> Iterator[Problem]:
    if route.rewrite is None or facts.output is None:
        return
    for kind in ("defaults", "caps", "force"):
        values: dict[str, Any] = getattr(route.rewrite, kind)
        for name in values.keys() & twins("max_tokens"):
            if isinstance(values[name], int | float) and values[name] > facts.output:
                message = f"is above the longest answer of {facts.name}, {facts.output} tokens"
                yield doc.problem((*place, "rewrite", kind, name), message)


def _lacks(doc: Document, place: Place, route: RouteConfig, facts: ModelFacts) -> Iterator[Problem]:
    for condition, ability in _WHEN.items():
        if getattr(route.when, condition) is True and ability in facts.lacks:
            message = f"sends requests with {_NOUNS[ability]} to {facts.name}, which does not support them"
            yield doc.problem((*place, "when", condition), message)
    if route.rewrite is None:
        return
    for kind in ("defaults", "force"):
        values: dict[str, Any] = getattr(route.rewrite, kind)
        schema = (
            isinstance(values.get("response_format"), dict) and values["response_format"].get("type") == "json_schema"
        )
        for name, ability, given in (("response_format", "schema", schema), ("tools", "tools", "tools" in values)):
            if given and ability in facts.lacks:
                message = f"asks {facts.name} for {_NOUNS[ability]}, which it does not support"
                yield doc.problem((*place, "rewrite", kind, name), message)
