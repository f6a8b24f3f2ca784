"""Follows one pool's source and holds its last list of targets."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from pydantic import TypeAdapter, ValidationError

from adapters.lasting import lasting
from config.schema.config import DiscoverConfig
from config.schema.text import Url
from gateway.traffic.discovery.dns import Addresses, ServiceRecords
from gateway.traffic.discovery.endpoint_file import EndpointFile
from gateway.traffic.discovery.inference_pool import PoolPods
from gateway.traffic.discovery.kubernetes import EndpointSlices
from gateway.traffic.discovery.target import MAX_TARGETS, DiscoveredEndpoint, DiscoveryError, EndpointSource

log = logging.getLogger(__name__)
_url: TypeAdapter[str] = TypeAdapter(Url)

FIRST_SECONDS = 5.0
"""Seconds that a start waits for a source, and that a reload waits before it is refused."""
BACKOFF = (0.5, 30.0)
"""Seconds until a failed source is queried again, doubled from the first to the second."""


def source_of(config: DiscoverConfig) -> EndpointSource:
    """The source that `config` names. Raises `DiscoveryError` when it cannot be used here."""
    if config.kubernetes is not None:
        return EndpointSlices(config.kubernetes, config.scheme)
    if config.inference_pool is not None:
        return PoolPods(config.inference_pool, config.scheme)
    if config.file is not None:
        return EndpointFile(Path(config.file))
    return ServiceRecords(config) if config.srv is not None else Addresses(config)


class Discoverer:
    """Runs one source from `start` to `stop`, and holds its last targets.

    A source that fails changes nothing: its last targets stay without a time limit, since health checks exclude dead
    endpoints. An empty list takes effect after `grace` only, since it is more often a mistake than the truth.
    """

    def __init__(self, pool: str, config: DiscoverConfig, clock: Callable[[], float], rng: Random) -> None:
        self.config = config
        self.targets: tuple[DiscoveredEndpoint, ...] = ()
        self.error = ""
        """The failure of the last query of the source; empty after a success."""
        self.failures = 0
        """The reports and queries with an `error`."""
        self.on_change: Callable[[], None] = _ignored
        self._pool = pool
        self._source = source_of(config)
        self._clock = clock
        self._rng = rng
        self._reported_at = -math.inf
        self._reported = asyncio.Event()
        self._giving_up: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def age(self) -> float:
        """Seconds since the source's last report; infinite before the first."""
        return self._clock() - self._reported_at

    def start(self) -> None:
        self._task = asyncio.create_task(lasting(name := f"discovery of {self._pool}", self._run), name=name)

    def stop(self) -> None:
        self.on_change = _ignored
        if self._task is not None:
            self._task.cancel()
        if self._giving_up is not None:
            self._giving_up.cancel()

    async def first(self) -> bool:
        """Wait a bounded time for the first report of the source. Returns whether it has arrived."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                await self._reported.wait()
        except TimeoutError:
            self.error = self.error or "has not answered yet"
        return self._reported.is_set()

    async def _run(self) -> None:
        backoff, longest = BACKOFF
        while True:
            began, pause = self._clock(), 0.0
            try:
                await self._source.follow(self._report)
            except DiscoveryError as error:
                self._fail(str(error))
                pause = error.retry_after
            except Exception as error:  # no answer of a source ends the loop
                self._fail(f"the answer cannot be used: {type(error).__name__}: {error}"[:300])
            # A good list with a bad watch, again and again, is no success: a source has recovered if it lasts.
            backoff = BACKOFF[0] if self._clock() - began > longest else min(2 * backoff, longest)
            await asyncio.sleep(max(pause, backoff * self._rng.uniform(0.5, 1.0)))

    def _report(self, targets: Iterable[DiscoveredEndpoint]) -> None:
        # One order everywhere, so that all gateways omit the same targets.
        reported = {target.url: target for target in targets}
        endpoints = sorted((each for each in reported.values() if _is_usable(each)), key=lambda target: target.url)
        invalid = f"{len(reported) - len(endpoints)} of {len(reported)} endpoints have no valid address"
        if reported and not endpoints:
            self._fail(invalid)
            return
        self._reported_at = self._clock()
        self._reported.set()
        if not endpoints and self.targets:
            self._fail("returned no endpoint")
            if self._giving_up is None:
                self._giving_up = asyncio.get_running_loop().call_later(self.config.grace, self._use, ())
            return
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if len(endpoints) > MAX_TARGETS:
            self._fail(f"lists {len(endpoints)} endpoints, of which {MAX_TARGETS} are used")
        elif len(endpoints) < len(reported):
            self._fail(invalid)
        elif not endpoints:
            self._fail("returned no endpoint")
        elif self.error:
            log.info("pool %s: discovery works again", self._pool)
            self.error = ""
        self._use(tuple(endpoints[:MAX_TARGETS]))

    def _use(self, targets: tuple[DiscoveredEndpoint, ...]) -> None:
        self._giving_up = None
        if targets != self.targets:
            log.info("pool %s: discovered %d endpoints", self._pool, len(targets))
            self.targets = targets
            self.on_change()

    def _fail(self, error: str) -> None:
        self.failures += 1
        if error != self.error:
            log.warning("pool %s: discovery: %s", self._pool, error)
        self.error = error


def _is_usable(target: DiscoveredEndpoint) -> bool:
    """Whether the address is one that the file may have too."""
    try:
        return _url.validate_python(target.url) == target.url
    except ValidationError:
        return False


def _ignored() -> None:
    """The change callback of a source without a pool."""
