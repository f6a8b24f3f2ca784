"""The pools that serve several models."""

from collections import defaultdict

from config.schema.config import Config
from config.schema.globs import is_glob


def several_models(config: Config) -> frozenset[str]:
    """The names of the pools whose servers receive requests under several names of models."""
    sent: defaultdict[str, set[str]] = defaultdict(set)
    for model in config.models:
        for route in model.routes:
            rewritten = route.rewrite.model if route.rewrite is not None else None
            name = rewritten or model.name
            for pool in route.pools():
                sent[pool] |= {name, "*"} if is_glob(name) else {name}
    return frozenset(pool for pool, names in sent.items() if len(names) > 1)
