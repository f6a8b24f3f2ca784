"""The tracer in force. A reload may start, change or end the export."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from config.schema.telemetry import TracesConfig
from gateway.background import Background
from gateway.errors import StartError
from gateway.state.local_folder import prepare_private
from gateway.telemetry.traces import journal
from gateway.telemetry.traces.journal import TraceJournal, left_traces

if TYPE_CHECKING:
    from gateway.telemetry.traces.exporter import Exporter
    from gateway.telemetry.traces.tracer import RequestTracer  # needs an extra

RECOVER_EVERY = 5.0
"""Seconds between two searches for the traces of killed processes."""

log = logging.getLogger(__name__)


class LiveTraces:
    """Creates and replaces the tracer. `tracer` is None without a collector."""

    def __init__(self, clock: Callable[[], float], rng: Random, folder: Path) -> None:
        """`folder` has the journals of the host's processes."""
        self.tracer: RequestTracer | None = None
        self._clock = clock
        self._rng = rng
        self._folder = folder
        self._background = Background()
        self._exporting: asyncio.Task[None] | None = None
        self._journal: TraceJournal | None = None
        self._writing: asyncio.Task[None] | None = None

    @property
    def exporter(self) -> Exporter | None:
        """The exporter in force, for its metrics."""
        return None if self.tracer is None else self.tracer.exporter

    def configure(self, config: TracesConfig | None) -> RequestTracer | None:
        """Put a configuration in force, and return its tracer."""
        if config == (None if self.tracer is None else self.tracer.config):
            return self.tracer
        if self.tracer is not None:
            self._background.once(self._retire(self.tracer.exporter, self._exporting), "last traces")
            self.tracer = self._exporting = None
        if config is not None:
            from gateway.telemetry.traces.tracer import RequestTracer

            if self._journal is None:
                self._open_journal()
            self.tracer = RequestTracer(config, self._clock, self._rng, journal=self._journal)
            self._exporting = self._background.run(self.tracer.exporter.run, "traces")
        return self.tracer

    async def aclose(self) -> None:
        """Export the queued spans, for some seconds at most."""
        if self.tracer is not None:
            await self._retire(self.tracer.exporter, self._exporting)
        if self._writing is not None:
            self._writing.cancel()
        await asyncio.gather(*self._background.tasks, return_exceptions=True)
        if self._journal is not None:
            self._journal.close()

    def _open_journal(self) -> None:
        """Without a journal, only the traces of a killed process are lost."""
        try:
            prepare_private(self._folder, "traces")
            self._journal = TraceJournal(self._folder, self._clock, time.time)
        except (StartError, OSError) as error:
            log.warning("traces of a killed process would be lost: %s", error)
            return
        self._writing = self._background.run(partial(self._write, self._journal), "journal of traces")

    async def _write(self, own: TraceJournal) -> None:
        """Write the journal, and export the traces of killed processes, until cancelled."""
        recovered = float("-inf")
        while True:
            own.write()
            if self.tracer is not None and self._clock() - recovered >= RECOVER_EVERY:
                left = await asyncio.to_thread(list, left_traces(self._folder))
                recovered = self._clock()
                for each in left if self.tracer is not None else ():
                    self.tracer.recover(each)
            await asyncio.sleep(journal.INTERVAL)

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
