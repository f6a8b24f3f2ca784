"""A system before the suite."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.base import Answer
from adapters.conformance.acts import Refusing
from adapters.conformance.cell import How
from adapters.conformance.impostor import Act
from adapters.types import ModelRequest
from config.schema.config import PoolConfig

Ask = Callable[[], ModelRequest]
"""Makes a request anew: one that was sent once knows what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`pool` is written as in the gateway's file; the first of its endpoints is examined.

    What a subject does not have, the suite does not ask for; then `lacks` or `unseen` must say why.
    """

    system: str
    version: str
    how: How = "real"
    pool: PoolConfig
    right: Ask
    """A request that is answered."""
    is_right: Callable[[Answer], bool] | None = None
    """Whether its answer is the right one, beyond being one."""
    stream: Ask | None = None
    """A request that is answered in pieces."""
    pieces: int = 2
    """How many its answer has at the least."""
    mistake: Ask | None = None
    """A request that the server refuses, for being wrong."""
    long: Ask | None = None
    """A request that takes the server seconds, for its client to leave. A stream, where there are any."""
    running: Callable[[], Awaitable[float]] | None = None
    """How many requests the server says that it has. Absent: the server tells nobody."""
    probed_as: str = ""
    """The protocol that the probe says, where it is another than the pool's: some servers speak several."""
    signals: str = ""
    """The URL of its metrics."""
    signals_server: str = "auto"
    """Whose names these have, as `balance.signals.server` has it."""
    full: Sequence[Act] = (Refusing(503), Refusing(429, code=8))
    """How the server says that it is full. A Triton cannot be made full on demand, and an impostor can."""
    order: str = ""
    """A model that may be unloaded and loaded."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Features that the protocol has not: an adapter refuses who asks for them, and that is seen to."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Features that this server cannot show, or is not to be asked for."""

    @property
    def url(self) -> str:
        return self.pool.endpoints[0].url


def pool(protocol: str | Mapping[str, Any], url: str, **fields: Any) -> PoolConfig:
    """A pool of one endpoint, as it would be written."""
    return PoolConfig.model_validate(
        {"name": "subject", "protocol": protocol, "endpoints": ({"url": url},), **fields}, strict=False
    )
