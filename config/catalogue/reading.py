"""Finds a model in a catalogue: by the host of its pool or by its name alone, with or without a date in it."""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from config.catalogue.entries import ModelFacts

SHIPPED: Final = Path(__file__).with_name("models.json")
_ENDS: Final = re.compile(r"(@(\d{8}|default|latest)|-v\d+(:\d+)?|:\d+|[-.](latest|\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4}))$")
"""Dates and versions at the end of a model's name."""
_BEGINNINGS: Final = re.compile(r"^(models/|publishers/[^/]+/models/|(us|eu|apac|global|jp|au)\.)")
_MAKERS: Final = re.compile(r"^(anthropic|google|openai|meta|mistralai|mistral)[./]")
MAX_BYTES: Final = 16 * 1024**2


class CatalogueError(ValueError):
    """The file is no catalogue."""


class ModelCatalogue:
    """The facts of a file, read once."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        try:
            self.date: str = data["date"]
            self.sources: list[dict[str, str]] = list(data["sources"])
            self._rows: dict[str, dict[str, Any]] = {name: entry["models"] for name, entry in data["providers"].items()}
            self._hosts = {name: tuple(entry.get("hosts", ())) for name, entry in data["providers"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise CatalogueError(f"is no catalogue of models: {error}") from None

    def provider_at(self, url: str) -> str | None:
        """The provider of an endpoint; None for a server that is no known hosted API."""
        host = urlsplit(url).hostname or ""
        return next(
            (name for name, hosts in self._hosts.items() if any(fnmatchcase(host, glob) for glob in hosts)), None
        )

    def find(self, model: str, provider: str | None = None) -> ModelFacts | None:
        """A model of one provider; without a provider, of any if all of them mean the same model."""
        providers = [provider] if provider is not None else list(self._rows)
        for name in _spellings(model):
            hits = [ModelFacts.of(each, name, self._rows[each][name]) for each in providers
                    if name in self._rows.get(each, ())]  # fmt: skip
            if hits:
                makers = [hit for hit in hits if hit.provider != "openrouter"] or hits
                return makers[0] if len(makers) == 1 or provider is not None else _common(makers)
        return None

    @property
    def hosts(self) -> Mapping[str, tuple[str, ...]]:
        """The hosts of each provider."""
        return self._hosts

    def all(self) -> Iterator[ModelFacts]:
        """Every model."""
        return (
            ModelFacts.of(provider, name, row) for provider, rows in self._rows.items() for name, row in rows.items()
        )


def _common(hits: list[ModelFacts]) -> ModelFacts | None:
    """The first of several providers' facts if they agree in the maker's price."""
    return hits[0] if all(hit.price == hits[0].price for hit in hits) else None


def _spellings(model: str) -> Iterator[str]:
    """The name, and the name without the marks of clouds, of versions and of dates."""
    yield model
    plain = _MAKERS.sub("", _BEGINNINGS.sub("", model))
    plain = plain if plain != model else model
    yield plain
    while (shorter := _ENDS.sub("", plain)) != plain:
        yield shorter
        plain = shorter


def catalogue(path: Path = SHIPPED) -> ModelCatalogue:
    """The catalogue of a file. Blocks for the disk. Raises `CatalogueError`, and ``OSError`` for a missing file."""
    content = path.read_bytes()
    if len(content) > MAX_BYTES:
        raise CatalogueError("is too large for a catalogue")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CatalogueError(f"is not JSON: {error}") from None
    return ModelCatalogue(data)
