"""What is told of the traffic: record.py gathers one request, access_log.py and metrics.py tell of it."""

import asyncio
import time

from adapters.errors import ClientGone, InferenceError
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record

__all__ = ["AccessLog", "Metrics", "Record", "Telemetry"]

BATCH = 64
LATEST = 0.05


class Telemetry:
    """Takes each request's one end, and tells log and metrics.

    It tells them in batches, a few tens of milliseconds later: the same code run many times over costs half
    of what it costs between two requests.
    """

    def __init__(self, metrics: Metrics, access_log: AccessLog, *, batch: int = BATCH) -> None:
        self.metrics = metrics
        self.access_log = access_log
        self._batch = batch
        self._ended: list[Record] = []
        self._timer: asyncio.TimerHandle | None = None

    def end(self, record: Record, error: InferenceError | None, status: int, now: float) -> None:
        """The request is over. Once; later calls change nothing."""
        if record.ended:
            return
        record.ended = now
        record.time = time.time()
        record.error = error
        if error is not None:
            # Its frames hold this record, and what was read of an answer: with them only the collector would free it.
            error.__traceback__ = error.__context__ = error.__cause__ = None
        record.status = 499 if isinstance(error, ClientGone) else status
        self._ended.append(record)
        if len(self._ended) >= self._batch:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATEST, self.flush)

    def flush(self) -> None:
        """Tell of everything that has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended, self._ended = self._ended, []
        for record in ended:
            self.metrics.count(record)
            self.access_log.write(record)
