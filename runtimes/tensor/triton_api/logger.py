"""`Logger` of Triton's Python API: lines in the server's log, at the model's level."""

from __future__ import annotations

import enum

from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import LogLine
from runtimes.tensor.triton_api import process

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
