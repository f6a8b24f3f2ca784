"""The tracer in force. A reload replaces it, and the old exporter sends its queued spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING

from config.schema.telemetry.traces import TracesConfig
from gateway.background import Background

if TYPE_CHECKING:
    from gateway.telemetry.traces.exporter import Exporter
    from gateway.telemetry.traces.tracer import RequestTracer  # needs an extra


class LiveTraces:
    """Creates and replaces the tracer. `tracer` is None without a collector."""

    def __init__(self, clock: Callable[[], float], rng: Random) -> None:
        self.tracer: RequestTracer | None = None
        self._clock = clock
        self._rng = rng
        self._background = Background()
        self._exporting: asyncio.Task[None] | None = None

    @property
    def exporter(self) -> Exporter | None:
        """The exporter in force, for its metrics."""
        return None if self.tracer is None else self.tracer.exporter

    def configure(self, config: TracesConfig | None) -> RequestTracer | None:
        """Put a configuration in force, and return its tracer."""
        if config == (None if self.tracer is None else self.tracer.config):
            return self.tracer
        if self.tracer is not None:
            self._background.run(self._retire(self.tracer.exporter, self._exporting), "last traces")
            self.tracer = self._exporting = None
        if config is not None:
            from gateway.telemetry.traces.tracer import RequestTracer

            self.tracer = RequestTracer(config, self._clock, self._rng)
            self._exporting = self._background.run(self.tracer.exporter.run(), "traces")
        return self.tracer

    async def aclose(self) -> None:
        """Export the queued spans, for some seconds at most."""
        if self.tracer is not None:
            await self._retire(self.tracer.exporter, self._exporting)
        await asyncio.gather(*self._background.tasks, return_exceptions=True)

    @staticmethod
    async def _retire(exporter: Exporter, exporting: asyncio.Task[None] | None) -> None:
        if exporting is not None:
            exporting.cancel()
            await asyncio.gather(exporting, return_exceptions=True)
        await exporter.aclose()


class TracesUnavailable(Exception):
    """The packages of the extra `traces` are not installed."""


def check_installed(config: TracesConfig | None) -> None:
    """Raises `TracesUnavailable` if traces are configured and cannot be encoded."""
    if config is not None and find_spec("opentelemetry") is None:
        raise TracesUnavailable("traces: opentelemetry-proto is not installed. Install the extra `traces`.")
