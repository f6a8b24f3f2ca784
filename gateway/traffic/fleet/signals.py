"""Reads the load that an endpoint reports: one background task for each endpoint."""

import asyncio
import logging
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp

from adapters.lasting import lasting
from adapters.whole_body import whole_body
from adapters.wire import signals
from config.schema.config import SignalsConfig
from gateway.traffic.endpoint import Endpoint

log = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024**2
HALF_LIFE = 3.0
"""Intervals after which a report counts half."""


class SignalError(Exception):
    """A report could not be read. The message is for operators."""


class Connect(Protocol):
    """Opens a session with the TLS settings and the key of the pool's requests."""

    def __call__(self, timeout: float) -> aiohttp.ClientSession: ...


class Scraper:
    """Reads one endpoint's metrics from `start` to `stop`. A failure reduces the weight of the signal, nothing else."""

    def __init__(self, endpoint: Endpoint, address: str, config: SignalsConfig, connect: Connect, rng: Random) -> None:
        self.config = config
        self.error = ""
        self.report: signals.ServerLoad | None = None
        """The last report; None before the first."""
        self._endpoint = endpoint
        self._connect = connect
        self._rng = rng
        self._url = metrics_url(address, config)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(lasting(f"signals of endpoint {self._endpoint.id}", self._run))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        config = self.config
        async with self._connect(config.timeout) as http:
            await asyncio.sleep(config.interval * self._rng.random())
            while True:
                await self._look(http)
                await asyncio.sleep(config.interval * self._rng.uniform(0.9, 1.1))

    async def _look(self, http: aiohttp.ClientSession) -> None:
        try:
            report = signals.read(await fetch(http, self._url), self.config.server)
            if report is None:
                raise SignalError("has none of the expected metrics")
        except Exception as error:  # no answer ends the loop
            if not self.error:
                log.warning("signals of %s: %s", self._endpoint.id, error or type(error).__name__)
            self.error = str(error) or type(error).__name__
            return
        self.error, self.report = "", report
        endpoint = self._endpoint
        endpoint.signal.report(
            running=report.running,
            waiting=report.waiting,
            cache=report.cache,
            adapters=report.adapters,
            own=endpoint.in_flight,
            half_life=HALF_LIFE * self.config.interval,
            now=asyncio.get_running_loop().time(),
        )


def metrics_url(address: str, config: SignalsConfig) -> str:
    """The URL of an endpoint's metrics. For a Unix socket the host is only a name."""
    if address.startswith("unix:"):
        return f"http://localhost{config.path}"
    parts = urlsplit(address)
    host = parts.hostname or ""
    written = f"[{host}]" if ":" in host else host
    port = config.port or parts.port
    return f"{parts.scheme}://{written}{f':{port}' if port else ''}{config.path}"


async def fetch(http: aiohttp.ClientSession, url: str) -> bytes:
    async with http.get(url, allow_redirects=False) as response:
        if response.status != 200:
            raise SignalError(f"{url} answered with status {response.status}")
        body = await whole_body(response, MAX_BYTES)
    if body is None:
        raise SignalError(f"{url} is larger than {MAX_BYTES // 1024**2} MiB")
    return body
