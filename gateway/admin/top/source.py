"""Samples of a gateway: its state and its metrics, from the admin listener."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
SECONDS = 10.0


class SampleUnavailable(Exception):
    """The gateway gave no sample."""


class Refused(SampleUnavailable):
    """The credential is missing or insufficient: another attempt has the same result."""


class GatewaySample(NamedTuple):
    """A gateway at one time."""

    at: float
    """Monotonic seconds."""
    state: Mapping[str, Any]
    metrics: Mapping[str, Mapping[Labels, float]]
    """The values by name and labels."""


async def sample(http: aiohttp.ClientSession, url: str) -> GatewaySample:
    """Read the admin listener at `url`. Raises `SampleUnavailable`."""
    state, text = await _get(http, f"{url}/admin/state"), await _get(http, f"{url}/metrics")
    metrics: dict[str, dict[Labels, float]] = {}
    try:
        for each in (each for family in text_string_to_metric_families(text.decode()) for each in family.samples):
            metrics.setdefault(each.name, {})[frozenset(each.labels.items())] = each.value
        return GatewaySample(time.monotonic(), _object(state), metrics)
    except (ValueError, RecursionError) as error:
        raise SampleUnavailable(f"{url} is not the admin listener of a gateway: {error}") from None


def _object(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])


async def _get(http: aiohttp.ClientSession, url: str) -> bytes:
    try:
        async with http.get(url, timeout=aiohttp.ClientTimeout(SECONDS)) as response:
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SampleUnavailable(f"{url}: {error or 'no response in time'}") from None
    if response.status in (401, 403):
        raise Refused(f"{url}: status {response.status}: set HEADRACE_ADMIN_KEY to the key of an operator")
    if response.status != 200:
        raise SampleUnavailable(f"{url}: status {response.status}")
    return body
