"""The protocols by name: those of Headrace, and those of other distributions.

The others are entry points in the group ``headrace.protocols``. The name of an entry point is the name of the
protocol. Its object has two attributes: ``options``, a subclass of `ProtocolConfig`, and ``make(pool, address)``,
which returns an adapter (`adapters.registry` has the types).
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, get_args

from pydantic import ConfigDict, PrivateAttr, ValidationError, model_validator

from config.problem import closest
from config.schema.protocols.apps import (
    BentoMLProtocol,
    HttpProtocol,
    KserveV1Protocol,
    RayServeGrpcProtocol,
    RayServeProtocol,
)
from config.schema.protocols.base import ProtocolConfig, Serves
from config.schema.protocols.bedrock import BedrockProtocol
from config.schema.protocols.bus import BusProtocol
from config.schema.protocols.google import GeminiProtocol, VertexProtocol
from config.schema.protocols.language import AnthropicProtocol, OpenAIProtocol, TgiProtocol, TritonGenerateProtocol
from config.schema.protocols.tensors import (
    OipGrpcProtocol,
    OipHttpProtocol,
    TfServingGrpcProtocol,
    TfServingProtocol,
    TorchServeGrpcProtocol,
    TorchServeProtocol,
)


class AutoProtocol(ProtocolConfig):
    """Detects the protocol of each endpoint at its first health check, and again after a failed one."""

    serves = frozenset({"text", "tensors", "app"})

    name: Literal["auto"]
    """Selects detection. An endpoint receives no requests until its protocol is detected."""


_SECTIONS: tuple[type[ProtocolConfig], ...] = (
    OpenAIProtocol,
    AnthropicProtocol,
    GeminiProtocol,
    VertexProtocol,
    BedrockProtocol,
    OipHttpProtocol,
    OipGrpcProtocol,
    TfServingProtocol,
    TfServingGrpcProtocol,
    BentoMLProtocol,
    KserveV1Protocol,
    HttpProtocol,
    TorchServeProtocol,
    TorchServeGrpcProtocol,
    RayServeProtocol,
    RayServeGrpcProtocol,
    TgiProtocol,
    AutoProtocol,
    TritonGenerateProtocol,
    BusProtocol,
)

BUILT_IN: dict[str, type[ProtocolConfig]] = {
    get_args(section.model_fields["name"].annotation)[0]: section for section in _SECTIONS
}
"""Name to section."""


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
    def key_headers(self) -> tuple[str, ...]:
        return self._options.key_headers

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
