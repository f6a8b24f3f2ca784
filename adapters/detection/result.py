"""The result of a detection."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from config.schema.protocols import Serves


class DetectedModel(NamedTuple):
    """A detected model. `description` describes it: its tensors or its context length."""

    name: str
    kind: Serves
    description: str = ""


class DetectedPool(NamedTuple):
    """One protocol of a server, as a pool. A server may offer several protocols on separate paths."""

    name: str
    protocol: Mapping[str, Any]
    """The `protocol` section of the pool."""
    models: tuple[DetectedModel, ...] = ()
    path: str = ""
    """The path after the address."""
    more: Mapping[str, Any] = {}
    """Further fields of the pool that this system needs."""


class Detection(NamedTuple):
    """A detected server. `system` is its official name."""

    system: str
    version: str
    pools: tuple[DetectedPool, ...]
    notes: tuple[str, ...] = ()
    """Remarks for the author of the configuration."""


def pool(
    name: str, protocol: str | Mapping[str, Any], *models: DetectedModel, path: str = "", **more: Any
) -> DetectedPool:
    section = {"name": protocol} if isinstance(protocol, str) else protocol
    return DetectedPool(name, section, models, path, more)
