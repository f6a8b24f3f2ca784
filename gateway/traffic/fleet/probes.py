"""Active health checks: one task for each endpoint."""

import asyncio
import logging
from random import Random

import msgspec

from adapters.call import Call
from adapters.errors import CapacityError, InferenceError, ModelNotReady
from adapters.types import Deadline
from adapters.wire.openai import chat as wire
from config.schema.config import ProbeConfig
from gateway.traffic.endpoint import Endpoint

log = logging.getLogger(__name__)


async def check(endpoint: Endpoint, config: ProbeConfig) -> None:
    """Probe once and record the result. A change of health is logged."""
    try:
        async with asyncio.timeout(config.timeout):
            await endpoint.adapter.probe(config.timeout)
            if config.ask is not None:
                await _request_token(endpoint, config.ask, config.timeout)
        error, endpoint.not_ready = "", None
    except InferenceError as failure:
        error = endpoint.scrubber.error(failure).message
        endpoint.not_ready = failure if isinstance(failure, ModelNotReady) else None
    except TimeoutError:
        error = "The health check timed out."
    except Exception as failure:  # no answer ends the loop
        error = f"The answer to the health check cannot be used ({type(failure).__name__})."
    if endpoint.probed(error, healthy_after=config.healthy_after, unhealthy_after=config.unhealthy_after):
        log.info("endpoint %s is %s %s", endpoint.id, endpoint.health, error)


async def _request_token(endpoint: Endpoint, model: str, timeout: float) -> None:
    """Request a chat completion of one token. A server that is too busy for the request is healthy."""
    request = wire.decode_chat(
        msgspec.json.encode({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})
    )
    now = asyncio.get_running_loop().time()
    try:
        await endpoint.adapter.call(request, Call(Deadline(now + timeout, timeout, timeout), "health-check"))
    except CapacityError:
        return


async def watch(
    endpoint: Endpoint,
    config: ProbeConfig,
    rng: Random,
    starting: float | None = None,
    warm_up: ProbeConfig | None = None,
) -> None:
    """Probe until cancelled. The interval varies by a tenth, so that many gateways do not probe in step.

    `starting` is a shorter interval that applies until the server is healthy. `warm_up` is the probe of a server that
    is not healthy: with a request for a token, the server computes before it receives requests.
    """
    while True:
        await check(endpoint, config if warm_up is None or endpoint.health == "healthy" else warm_up)
        interval = config.interval
        if starting is not None and endpoint.health != "healthy":
            interval = min(interval, starting)
        await asyncio.sleep(interval * rng.uniform(0.9, 1.1))
