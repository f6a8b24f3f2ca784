"""Detects the system behind an address."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from adapters.detection import apps, oip, text
from adapters.detection.look import LOOK_SECONDS, Detection, Look
from adapters.errors import BackendError, TransportError
from adapters.registry import Address
from adapters.types import Deadline
from adapters.upstreams import dial
from adapters.upstreams.dial import grpc_channel, http1_client
from config.schema.config import PoolConfig

SECONDS = 20.0
MAX_MESSAGE = 1024 * 1024

SYSTEMS = (
    oip.oip, text.tgi, text.openai, apps.kserve_v1, apps.tfserving,
    apps.bentoml, apps.ray_serve, apps.torchserve,
)  # fmt: skip
"""The detectors in their order, which matters: some systems also have paths of another system."""


async def detect(
    pool: PoolConfig, address: Address, *, names: tuple[str, ...] = (), seconds: float = SECONDS
) -> Detection | None:
    """Detect a server. Returns None for an unknown system. Raises `InferenceError` if no server responds.

    The pool has the key and the TLS settings of the requests; `names` are models that the server is known to have.
    """
    until, detection, failure = asyncio.get_running_loop().time() + seconds, None, None
    try:
        detection = await _over_http(pool, address, until, names)
    except (TransportError, BackendError) as error:
        failure = error
    if detection is None:
        with suppress(TransportError, BackendError, ImportError):
            detection = await _over_grpc(pool, address, until, names)
    if detection is None and failure is not None:
        raise failure
    return detection


async def _over_http(pool: PoolConfig, address: Address, until: float, names: tuple[str, ...]) -> Detection | None:
    client = http1_client(pool, address)
    try:
        look = Look(client, until, names)
        for recognised in SYSTEMS:
            if (detection := await recognised(look)) is not None:
                return detection
        return None
    finally:
        await client.aclose()


async def _over_grpc(pool: PoolConfig, address: Address, until: float, names: tuple[str, ...]) -> Detection | None:
    from adapters.detection.grpc import over_grpc  # needs an extra

    if address.tls is not None:
        address = replace(address, tls=dial.tls_context(pool, "grpc"))
    channel = grpc_channel(pool, address, MAX_MESSAGE)
    try:
        return await over_grpc(channel, Deadline(until, LOOK_SECONDS, LOOK_SECONDS), names)
    finally:
        await channel.aclose()
