"""Reads the use of KV caches from the replicas of runtimes."""

import asyncio
import logging
from collections.abc import Mapping

import aiohttp

from adapters.wire import signals
from config.schema.config import RuntimeConfig
from config.schema.runtimes.bundled import LlmRuntime
from config.schema.runtimes.programs import VllmRuntime
from gateway.traffic.fleet.signals import fetch

log = logging.getLogger(__name__)
TIMEOUT = 2.0


def server_of(config: RuntimeConfig) -> str | None:
    """The names of the metrics of a runtime; None if it has no KV cache."""
    if isinstance(config, LlmRuntime):
        return "headrace"
    return "vllm" if isinstance(config, VllmRuntime) else None


async def occupancy(addresses: Mapping[str, str]) -> float:
    """The mean use of the KV caches of replicas: kinds of metrics by address. Only replicas that report count."""
    shares = await asyncio.gather(*(_share(address, server) for address, server in addresses.items()))
    reported = [share for share in shares if share is not None]
    return sum(reported) / len(reported) if reported else 0.0


async def _share(address: str, server: str) -> float | None:
    path, connector = address.removeprefix("unix:"), None
    if path != address:
        connector, address = aiohttp.UnixConnector(path), "http://localhost"
    elif not address.startswith("http://"):
        return None
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(TIMEOUT)) as http:
            load = signals.read(await fetch(http, f"{address}/metrics"), server)
    except Exception:
        return None  # its health check reports the reason
    return None if load is None else min(load.cache, 1.0)
