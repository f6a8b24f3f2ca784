"""What is told of the traffic: record.py gathers one request, access_log.py and metrics.py tell of it."""

from adapters.errors import ClientGone, InferenceError
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record

__all__ = ["AccessLog", "Metrics", "Record", "Telemetry"]


class Telemetry:
    """Takes each request's one end, and tells log and metrics."""

    def __init__(self, metrics: Metrics, access_log: AccessLog) -> None:
        self.metrics = metrics
        self.access_log = access_log

    def end(self, record: Record, error: InferenceError | None, status: int, now: float) -> None:
        """The request is over. Once; later calls change nothing."""
        if record.ended:
            return
        record.ended = True
        record.error = error
        record.status = 499 if isinstance(error, ClientGone) else status
        self.metrics.count(record, now)
        self.access_log.write(record, now)
