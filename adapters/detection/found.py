"""The result of a detection."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from config.protocols import Serves


class FoundModel(NamedTuple):
    """A detected model. `told` describes it: its tensors or its context length."""

    name: str
    kind: Serves
    told: str = ""


class FoundPool(NamedTuple):
    """One protocol of a server, as a pool. A server may offer several protocols on separate paths."""

    name: str
    protocol: Mapping[str, Any]
    """The `protocol` section of the pool."""
    models: tuple[FoundModel, ...] = ()
    path: str = ""
    """The path after the address."""
    more: Mapping[str, Any] = {}
    """Further fields of the pool that this system needs."""


class Found(NamedTuple):
    """A detected server. `system` is its official name."""

    system: str
    version: str
    pools: tuple[FoundPool, ...]
    notes: tuple[str, ...] = ()
    """Remarks for the author of the configuration."""


def pool(name: str, protocol: str | Mapping[str, Any], *models: FoundModel, path: str = "", **more: Any) -> FoundPool:
    section = {"name": protocol} if isinstance(protocol, str) else protocol
    return FoundPool(name, section, models, path, more)
