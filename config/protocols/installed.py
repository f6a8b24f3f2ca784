"""Protocols that other distributions bring, by the entry point group ``headrace.protocols``.

An entry point's name is the protocol's. It leads to an object with two attributes: ``options``, a subclass of
`ProtocolConfig`, and ``make(pool, address)``, which gives an adapter (`adapters.registry` has the types).
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ConfigDict, PrivateAttr, ValidationError, model_validator

from config.problem import closest
from config.protocols.base import ProtocolConfig, Serves
from config.protocols.built_in import BUILT_IN

GROUP = "headrace.protocols"


class InstalledProtocol(ProtocolConfig):
    """A protocol that another package brings."""

    model_config = ConfigDict(extra="allow")

    _options: ProtocolConfig = PrivateAttr()

    @property
    def options(self) -> ProtocolConfig:
        """What is written, as its own package understands it."""
        return self._options

    @property
    def offers(self) -> frozenset[Serves]:
        return self._options.offers

    @property
    def key_header(self) -> str:
        return self._options.key_header

    @model_validator(mode="after")
    def _understood(self) -> "InstalledProtocol":
        found = installed().get(self.name)
        if found is None:
            raise ValueError(_unknown(self.name))
        given = {"name": self.name, **(self.__pydantic_extra__ or {})}
        try:
            self._options = load(found).options.model_validate(given, strict=True)
        except ValidationError as error:
            told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False)]
            raise ValueError("; ".join(told)) from None
        return self


def installed() -> dict[str, EntryPoint]:
    """All that there are now, by name."""
    return {found.name: found for found in entry_points(group=GROUP)}


@cache
def load(found: EntryPoint) -> Any:
    """What the entry point leads to. Raises `ValueError` where that cannot be imported, or is no protocol."""
    try:
        protocol = found.load()
    except Exception as error:  # another's code, which may fail in any way
        raise ValueError(f"the package that brings {found.name} cannot be used: {error}") from None
    if not (issubclass(getattr(protocol, "options", object), ProtocolConfig) and callable(protocol.make)):
        raise ValueError(f"what brings {found.name} is no protocol: it needs `options` and `make`")
    return protocol


def _unknown(name: str) -> str:
    known = [*BUILT_IN, *installed()]
    near = closest(name, known)
    hint = f' (did you mean "{near}"?)' if near else ""
    return f"expected {' or '.join(known)}{hint}"
