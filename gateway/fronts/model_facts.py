"""Facts of hosted models for the list of models: read once for a configuration that has `catalogue`."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from config.schema.config import Config

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
    from config.checks.hosted import facts_of

    try:
        book = catalogue(config.catalogue_file or SHIPPED)
    except (OSError, CatalogueError) as error:
        log.warning("catalogue: %s", error)
        return {}
    pools = {pool.name: pool for pool in config.pools}
    facts: dict[str, Mapping[str, Any]] = {}
    for model in config.models:
        for name in model.listed or (model.name,):
            one = model.model_copy(update={"name": name})
            first = next((each for route in one.routes for each in facts_of(one, route, pools, book)), None)
            if first is not None:
                facts[name] = first.as_fields()
    return facts
