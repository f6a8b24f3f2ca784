"""`MetricFamily` and `Logger` of Triton's Python API. The server has the values: models and copies share a family by
its name. Lines are in the server's log, at the model's level.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Mapping, Sequence

from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import LogLine
from runtimes.tensor.triton_api import process
from runtimes.tensor.triton_api.errors import TritonModelException

MAX_TEXT = 16 * 1024


class LogLevel(enum.Enum):
    """The levels of Triton."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    VERBOSE = "debug"


class BackendLogger:
    """Sends lines to the server's log. The server's log settings filter them."""

    LogLevel = LogLevel
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: enum.Enum = LogLevel.INFO) -> None:
        if not isinstance(level, LogLevel):
            raise TypeError(f"{level!r} is not a level of the Logger")
        _send(message, level)

    @staticmethod
    def log_info(message: str) -> None:
        _send(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        _send(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        _send(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        _send(message, LogLevel.VERBOSE)


def _send(message: str, level: enum.Enum) -> None:
    if not isinstance(message, str):
        raise TypeError(f"a log line is a str, not a {type(message).__name__}")
    if process.connection is None:
        print(message, flush=True)
    else:
        process.connection.send(messages.LOG, 0, LogLine(level.value, message[:MAX_TEXT]))


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class BackendMetricFamily:
    """A metric on the metrics page, as long as it or one of its values is referenced."""

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not isinstance(name, str) or not isinstance(description, str) or not isinstance(kind, MetricKind):
            raise TypeError("a MetricFamily has a name, a description and a kind")
        self._handle = process.channel().query("metric family", name=name, description=description, kind=kind.value)

    def Metric(  # noqa: N802  # Triton's name
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> BackendMetric:
        """The value with these labels, which is shared by all that have them. A histogram has ascending `buckets`."""
        arguments = {
            "family": self._handle,
            "labels": {str(key): str(value) for key, value in (labels or {}).items()},
            "buckets": None if buckets is None else [float(bound) for bound in buckets],
        }
        return BackendMetric(process.channel().query("metric", **arguments))

    def __del__(self) -> None:
        _release("release metric family", getattr(self, "_handle", 0))


class BackendMetric:
    """One value of a family."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def increment(self, value: float) -> None:
        self._change("increment", value)

    def set(self, value: float) -> None:
        self._change("set", value)

    def observe(self, value: float) -> None:
        self._change("observe", value)

    def value(self) -> float:
        return float(process.channel().query("metric value", metric=self._handle))

    def _change(self, operation: str, value: float) -> None:
        process.channel().query("change metric", metric=self._handle, change=operation, value=float(value))

    def __del__(self) -> None:
        _release("release metric", self._handle)


def _release(operation: str, handle: int) -> None:
    """The server replies to no release: a finalizer may run while its thread holds the channel."""
    connection = process.connection
    if handle and connection is not None and not connection.closed and not connection.forked:
        with contextlib.suppress(TritonModelException):
            connection.notify(operation, handle=handle)
