"""Detects the system behind an address."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import yaml

from adapters.detection import apps, oip, text
from adapters.detection.look import LOOK_SECONDS, DetectedPool, Detection, Look
from adapters.errors import BackendError, TransportError
from adapters.registry import Address
from adapters.types import Deadline
from adapters.upstreams import dial
from adapters.upstreams.dial import grpc_channel, http1_client
from config.schema.config import PoolConfig

SECONDS = 20.0
MAX_MESSAGE = 1024 * 1024

SYSTEMS = (
    text.bedrock, oip.oip, text.tgi, text.openai, apps.kserve_v1, apps.tfserving,
    apps.bentoml, apps.ray_serve, apps.torchserve, text.bedrock_elsewhere,
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
        look = Look(client, until, names, urlsplit(address.url).hostname or "")
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


# Renders the result of a detection as a usable configuration.

UNNAMED = "NAME-OF-A-MODEL"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def written(detection: Detection, url: str, pool_fields: Mapping[str, Any] | None = None) -> str:
    """Render a complete file. `pool_fields` are the settings of the detection: `key`, `key_header`, `tls`."""
    models, left_out = list[str](), list[str]()
    for pool in detection.pools:
        for model in pool.models:
            if _NAME.fullmatch(model.name):
                entry = _flow({"name": model.name, "routes": [{"to": pool.name}]})
                models.append(f"  - {entry}{f'  # {model.description}' if model.description else ''}")
            else:
                left_out.append(model.name)
    version = f" {detection.version}" if detection.version else ""
    comments = [f"{detection.system}{version}", *detection.notes]
    comments += [
        f"Clients cannot write the model's name {name!r}: give it another, and the pool `model`." for name in left_out
    ]
    return "".join([f"# {comment}\n" for comment in comments]) + "".join(
        _lines(detection.pools, models, url, pool_fields or {})
    )


def _lines(pools: Sequence[DetectedPool], models: list[str], url: str, fields: Mapping[str, Any]) -> Iterable[str]:
    yield "version: 1\npools:\n"
    for pool in pools:
        protocol = pool.protocol["name"] if len(pool.protocol) == 1 else dict(pool.protocol)
        endpoint = url.rstrip("/").removesuffix(pool.path) + pool.path
        entry = {"name": pool.name, "protocol": protocol, "endpoints": [endpoint], **pool.more, **fields}
        yield f"  - {_flow(entry)}\n"
    if not models:
        models = [f"  - {_flow({'name': UNNAMED, 'routes': [{'to': pools[0].name}]})}  # write its name here"]
    yield "models:\n" + "".join(f"{line}\n" for line in models)
    yield 'tenants:\n  - {name: acme, models: ["*"]}\n'


def _flow(entry: Mapping[str, Any]) -> str:
    """Encode a mapping as YAML on one line."""
    return yaml.safe_dump(dict(entry), default_flow_style=True, sort_keys=False, width=10_000).strip()
