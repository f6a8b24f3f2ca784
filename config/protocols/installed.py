"""Protocols of other distributions, in the entry point group ``headrace.protocols``.

The name of an entry point is the name of the protocol. Its object has two attributes: ``options``, a subclass of
`ProtocolConfig`, and ``make(pool, address)``, which returns an adapter (`adapters.registry` has the types).
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
        """The options, parsed by the protocol's own package."""
        return self._options

    @property
    def offers(self) -> frozenset[Serves]:
        return self._options.offers

    @property
    def key_header(self) -> str:
        return self._options.key_header

    @model_validator(mode="after")
    def _understood(self) -> "InstalledProtocol":
        entry_point = installed().get(self.name)
        if entry_point is None:
            raise ValueError(_unknown(self.name))
        given = {"name": self.name, **(self.__pydantic_extra__ or {})}
        try:
            self._options = load(entry_point).options.model_validate(given, strict=True)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False)]
            raise ValueError("; ".join(problems)) from None
        return self


def installed() -> dict[str, EntryPoint]:
    """All installed protocols by name."""
    return {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}


@cache
def load(entry_point: EntryPoint) -> Any:
    """Load the protocol of an entry point. Raises `ValueError` if it cannot be imported, or is not a protocol."""
    try:
        protocol = entry_point.load()
    except Exception as error:  # external code, which may raise any exception
        raise ValueError(f"the package that provides {entry_point.name} cannot be used: {error}") from None
    if not (issubclass(getattr(protocol, "options", object), ProtocolConfig) and callable(protocol.make)):
        raise ValueError(
            f"the package that provides {entry_point.name} defines no protocol: it needs `options` and `make`"
        )
    return protocol


def _unknown(name: str) -> str:
    names = [*BUILT_IN, *installed()]
    near = closest(name, names)
    hint = f' (did you mean "{near}"?)' if near else ""
    return f"expected {' or '.join(names)}{hint}"
