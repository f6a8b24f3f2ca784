"""The parts of shadow traffic in one process, and their reconfiguration."""

import asyncio
import time
from collections.abc import Callable, Mapping
from random import Random

from config.schema.config import Config
from gateway.features.shadow.comparer import AnswerComparer
from gateway.features.shadow.copies import ShadowCopies
from gateway.features.shadow.live import LiveShadows
from gateway.features.shadow.targets import CopyModels, CopyPools, Servers
from gateway.features.shadow.writer import PERIOD, ShadowWriter
from gateway.traffic.plan_state import TokenEmbedder


class ShadowPlane:
    """`configure` with each configuration, `aclose` at the end. Without a shadow in the file nothing is open."""

    def __init__(self, servers: Servers, rng: Random, clock: Callable[[], float]) -> None:
        self.live = LiveShadows()
        self._writer: ShadowWriter | None = None
        self._pools = CopyPools(servers, rng, clock)
        self._models = CopyModels(self._pools, rng, clock, time.time)
        self.copies = ShadowCopies(self._pools, self._models, AnswerComparer(), rng, clock)

    def configure(self, config: Config, embedders: Mapping[str, TokenEmbedder]) -> None:
        """Apply a configuration."""
        self.live.configure(config)
        self._pools.configure(config.pools, config.zone)
        self._models.configure(config, embedders)
        self.copies.prices.configure(config)
        self.copies.redact = () if config.record is None else config.record.redact

    def open(self, config: Callable[[], Config], pepper: Callable[[], bytes]) -> ShadowWriter:
        """The task that stores the counts. Call this method once."""
        self._writer = ShadowWriter(config, self.live, pepper, self._pools.trim)
        return self._writer

    async def outlast(self) -> None:
        """After the last shadow has left the file: wait for its copies, and store their counts."""
        while self.copies.running and not self.live.by_name:
            await asyncio.sleep(PERIOD)
            await self._pools.trim()
        if self._writer is not None and not self.live.by_name:
            await self._writer.tick()
            await self._pools.aclose()

    async def aclose(self) -> None:
        """Cancel all copies, close their connections, and store the last counts."""
        await self.copies.stop()
        await self._pools.aclose()
        if self._writer is not None:
            await self._writer.aclose()
