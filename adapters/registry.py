"""The module of each protocol, which is imported with its dependencies when a pool first needs it."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from adapters.base import Adapter
from adapters.http1.message import Headers
from config.installing import installing
from config.schema.config import PoolConfig
from config.schema.protocols.catalogue import InstalledProtocol, installed, load

MODULES = {
    "openai": "adapters.upstreams.openai.client",
    "anthropic": "adapters.upstreams.anthropic.client",
    "gemini": "adapters.upstreams.gemini.client",
    "vertex": "adapters.upstreams.gemini.client",
    "bedrock": "adapters.upstreams.bedrock.adapter",
    "oip-http": "adapters.upstreams.oip.http_client",
    "oip-grpc": "adapters.upstreams.oip.grpc_client",
    "tfserving": "adapters.upstreams.tfserving.rest_client",
    "tfserving-grpc": "adapters.upstreams.tfserving.grpc_client",
    "bentoml": "adapters.upstreams.apps.bentoml",
    "kserve-v1": "adapters.upstreams.tfserving.kserve_v1",
    "http": "adapters.upstreams.apps.http_app",
    "torchserve": "adapters.upstreams.torchserve.http_client",
    "torchserve-grpc": "adapters.upstreams.torchserve.grpc_client",
    "ray-serve": "adapters.upstreams.apps.ray_serve",
    "ray-serve-grpc": "adapters.upstreams.apps.ray_serve_grpc",
    "tgi": "adapters.upstreams.text.tgi",
    "auto": "adapters.detection.auto",
    "triton-generate": "adapters.upstreams.text.triton_generate",
    "bus": "adapters.upstreams.bus.adapter",
}
"""The modules by protocol. Each module has `make(pool, address)`."""
OVER_GRPC = frozenset({"oip-grpc", "tfserving-grpc", "torchserve-grpc", "ray-serve-grpc"})
"""The protocols that need the extra `grpc`; `bus` needs that of its broker."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one endpoint of a pool, with its TLS settings."""

    url: str
    server_name: str | None = None
    """The name that the endpoint's certificate must have, if it is not the host of the URL."""
    tls: ssl.SSLContext | None = None
    """The TLS context for `https://`."""
    read: Callable[[Headers], None] | None = None
    """Receives the head of each answer, for an endpoint whose account is observed."""


Make = Callable[[PoolConfig, Address], Adapter]


class Unmakeable(Exception):
    """An adapter cannot be created from the configuration. The message states the reason."""


class MissingExtra(Unmakeable):
    """A dependency of a protocol is not installed. The message states how to install it."""


def make(pool: PoolConfig, address: Address) -> Adapter:
    """Create the adapter of one endpoint of the pool. Raises `Unmakeable`."""
    name = pool.protocol.name
    if isinstance(pool.protocol, InstalledProtocol):
        made: Adapter = load(installed()[name]).make(pool, address)
        return made
    try:
        module = import_module(MODULES[name])
    except ImportError:
        if name not in OVER_GRPC:
            raise
        raise MissingExtra(f"{name} needs an extra: {installing('grpc')}") from None
    maker: Make = module.make
    return maker(pool, address)
