"""Loads the tokenizers of models that compute embeddings, before the configuration is in force."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from config.installing import installing
from config.schema.config import Config
from gateway.traffic.fleet.member import FleetError

if TYPE_CHECKING:
    from gateway.features.embeddings.embed import Embedder  # which needs an extra


def embedders(config: Config) -> "Mapping[str, Embedder]":
    """Load the tokenizers of a configuration. A loaded tokenizer is reused. Raises `FleetError`."""
    sections = {model.name: model.embeddings for model in config.models if model.embeddings is not None}
    if not sections:
        return {}
    try:
        from gateway.features.embeddings.embed import Embedder
        from gateway.features.embeddings.texts import TokenizerError
    except ModuleNotFoundError as error:
        needed = f"embeddings needs {error.name}, which an extra has: {installing('embeddings')}"
        raise FleetError(needed) from None
    made = {}
    for name, section in sections.items():
        try:
            made[name] = Embedder(section)
        except TokenizerError as error:
            raise FleetError(f"model {name}: embeddings: {error}") from None
    return made
