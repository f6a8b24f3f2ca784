"""Log settings that clients may change while the runtime runs (Triton's logging extension)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from adapters.errors import CallerError
from runtimes.process import OneLine

_KINDS = (("log_info", logging.INFO), ("log_warning", logging.WARNING), ("log_error", logging.ERROR))
_FORMATS = ("default", "ISO8601")
_LETTERS = {"DEBUG": "V", "INFO": "I", "WARNING": "W", "ERROR": "E", "CRITICAL": "E"}


class LogSettings(logging.Filter):
    """The settings, and the filter of a handler that obeys them. `verbose` above 0 logs every request."""

    def __init__(self, file: str = "") -> None:
        super().__init__()
        self.verbose = 0
        self._file = file
        self._shown = {name: True for name, _ in _KINDS}
        self.format_name = "ISO8601"

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return self.verbose > 0
        name = next(name for name, level in reversed(_KINDS) if record.levelno >= level)
        return self._shown[name]

    def report(self) -> dict[str, Any]:
        return {
            "log_file": self._file,
            **self._shown,
            "log_verbose_level": self.verbose,
            "log_format": self.format_name,
        }

    def update(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change all given settings, or none. Returns the settings. Raises `CallerError`."""
        report = self.report()
        for name, value in changes.items():
            if name not in report:
                raise CallerError(f"There is no log setting `{name[:64]}`: expected {', '.join(report)}.", param=name)
            _check(name, value)
        self._shown.update({name: changes[name] for name in self._shown if name in changes})
        self.verbose = changes.get("log_verbose_level", self.verbose)
        self.format_name = changes.get("log_format", self.format_name)
        return self.report()


def _check(name: str, value: Any) -> None:
    if name == "log_file":
        raise CallerError("Only the operator can set the log's file.", param=name)
    if name == "log_format":
        if value not in _FORMATS:
            raise CallerError(f"The log's format is one of {', '.join(_FORMATS)}.", param=name)
    elif name == "log_verbose_level":
        if type(value) is not int or not 0 <= value <= 2**31:
            raise CallerError("`log_verbose_level` is a number, 0 for none.", param=name)
    elif not isinstance(value, bool):
        raise CallerError(f"`{name}` is true or false.", param=name)


class SettingsFormatter(OneLine):
    """Lines in the format of the settings."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._settings = settings

    def head(self, record: logging.LogRecord) -> str:
        if self._settings.format_name != "default":
            return super().head(record)
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        return f"{_LETTERS.get(record.levelname, 'I')}{stamp}.{int(record.msecs * 1000):06d} {record.name}] "
