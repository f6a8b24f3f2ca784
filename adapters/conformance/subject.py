"""A system under test."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.base import Answer
from adapters.conformance.acts import Refusing
from adapters.conformance.impostor import Behaviour
from adapters.conformance.matrix import How
from adapters.requests import ModelRequest
from config.schema.config import PoolConfig

MakeRequest = Callable[[], ModelRequest]
"""Creates a new request for each call: a request records its own execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A system under test. The suite examines the first endpoint of `pool`.

    The suite skips features for which the subject has no request; `lacks` or `unseen` must then give the reason.
    """

    system: str
    version: str
    how: How = "real"
    pool: PoolConfig
    right: MakeRequest
    """A valid request."""
    is_right: Callable[[Answer], bool] | None = None
    """Checks the content of the response to `right`."""
    stream: MakeRequest | None = None
    """A request for a stream."""
    pieces: int = 2
    """The minimum number of pieces of that stream."""
    mistake: MakeRequest | None = None
    """An invalid request, which the server rejects."""
    long: MakeRequest | None = None
    """A request that runs for seconds, for the check of cancellation; a stream if the system has streams."""
    running: Callable[[], Awaitable[float]] | None = None
    """Returns the number of running requests that the server reports; None if the server reports no such number."""
    probed_as: str = ""
    """The protocol that detection reports, if it differs from the pool's: some servers support several protocols."""
    signals: str = ""
    """The URL of the server's metrics."""
    signals_server: str = "auto"
    """The server whose metric names apply: a value of `balance.signals.server`."""
    full: Sequence[Behaviour] = (Refusing(503), Refusing(429, code=8))
    """The responses of a full server. An impostor sends them: a real server cannot be made full on demand."""
    order: str = ""
    """The name of a model that the suite may unload and load."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Features that the protocol lacks, with the reason: the suite checks that the adapter rejects such requests."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Features that this server cannot show or that the suite must not request, with the reason."""

    @property
    def url(self) -> str:
        return self.pool.endpoints[0].url


def pool(protocol: str | Mapping[str, Any], url: str, **fields: Any) -> PoolConfig:
    """A pool of one endpoint, validated like the YAML file."""
    return PoolConfig.model_validate(
        {"name": "subject", "protocol": protocol, "endpoints": ({"url": url},), **fields}, strict=False
    )
