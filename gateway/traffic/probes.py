"""Active health checks: one task an endpoint."""

import asyncio
import logging
from random import Random

from adapters.errors import InferenceError
from config.schema import ProbeConfig
from gateway.traffic.endpoint import Endpoint

log = logging.getLogger(__name__)


async def check(endpoint: Endpoint, config: ProbeConfig) -> None:
    """Ask once and note the answer; a change of health is logged."""
    try:
        async with asyncio.timeout(config.timeout):
            await endpoint.adapter.probe(config.timeout)
        error = ""
    except InferenceError as failure:
        error = failure.message
    except TimeoutError:
        error = "The health check timed out."
    if endpoint.probed(error, healthy_after=config.healthy_after, unhealthy_after=config.unhealthy_after):
        log.info("endpoint %s is %s %s", endpoint.id, endpoint.health, error)


async def watch(endpoint: Endpoint, config: ProbeConfig, rng: Random) -> None:
    """Check for ever. The interval is spread by a tenth, so that many gateways do not ask in step."""
    while True:
        await check(endpoint, config)
        await asyncio.sleep(config.interval * rng.uniform(0.9, 1.1))
