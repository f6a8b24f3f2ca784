"""What was found behind an address."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from config.protocols import Serves


class FoundModel(NamedTuple):
    """`told` is what is known of it beside its name: its tensors, its context."""

    name: str
    kind: Serves
    told: str = ""


class FoundPool(NamedTuple):
    """One way in. A server may have several, on paths of their own."""

    name: str
    protocol: Mapping[str, Any]
    """The section, as it is written."""
    models: tuple[FoundModel, ...] = ()
    path: str = ""
    """Behind the address."""
    more: Mapping[str, Any] = {}
    """Other fields of the pool that this system needs."""


class Found(NamedTuple):
    """A server. `system` is what its makers call it."""

    system: str
    version: str
    pools: tuple[FoundPool, ...]
    notes: tuple[str, ...] = ()
    """What whoever writes the configuration should know."""


def pool(name: str, protocol: str | Mapping[str, Any], *models: FoundModel, path: str = "", **more: Any) -> FoundPool:
    section = {"name": protocol} if isinstance(protocol, str) else protocol
    return FoundPool(name, section, models, path, more)
