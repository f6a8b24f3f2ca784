"""The facts of a configuration's hosted models. The catalogue is read for a configuration that has `catalogue`."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from config.catalogue.entries import ModelFacts
from config.schema.config import ClientModelConfig, Config, PoolConfig, RouteConfig
from config.schema.text import is_glob

if TYPE_CHECKING:
    from config.catalogue.reading import ModelCatalogue

log = logging.getLogger(__name__)
Facts = Mapping[str, Mapping[str, Any]]


class PublishedFacts:
    """The facts of a configuration's models by name. A configuration without `catalogue` reads nothing."""

    def __init__(self) -> None:
        self._of: Config | None = None
        self._facts: Facts = {}

    async def of(self, config: Config) -> Facts:
        """Read the catalogue on the first request after a change; off the loop, as it is a large file."""
        if config.catalogue is None:
            return {}
        if self._of is not config:
            self._facts = await asyncio.to_thread(_read, config)
            self._of = config
        return self._facts


def _read(config: Config) -> Facts:
    from config.catalogue.reading import SHIPPED, CatalogueError, catalogue

    try:
        book = catalogue(config.catalogue_file or SHIPPED)
    except (OSError, CatalogueError) as error:
        log.warning("catalogue: %s", error)
        return {}
    facts: dict[str, Mapping[str, Any]] = {}
    for _, name, one in named_facts(config, book):
        facts.setdefault(name, one.as_fields())
    return facts


def named_facts(config: Config, book: "ModelCatalogue") -> Iterator[tuple[ClientModelConfig, str, ModelFacts]]:
    """The facts of each model of the file: the model, its name or a listed one of a family, and what a pool serves."""
    pools = {pool.name: pool for pool in config.pools}
    for model in config.models:
        for name in model.listed or (model.name,):
            one = model.model_copy(update={"name": name})
            for route in one.routes:
                yield from ((model, name, each) for each in facts_of(one, route, pools, book))


def facts_of(
    model: ClientModelConfig, route: RouteConfig, pools: dict[str, PoolConfig], facts: "ModelCatalogue"
) -> Iterator[ModelFacts]:
    """The facts about the model at each hosted pool of a route."""
    for pool in (pools[name] for name in route.pools()):
        usual = pool.model_name or (route.rewrite.model if route.rewrite is not None else None) or model.name
        for endpoint in pool.endpoints:
            provider, sent = facts.provider_at(endpoint.url), endpoint.model or usual
            published = None if provider is None or is_glob(sent) else facts.find(sent, provider)
            if published is not None:
                yield published
