"""The log of the gateway's own processes on standard error: as text, or one JSON object on each line."""

import logging
import time
from typing import Any, TextIO

import msgspec

from config.schema.config import LogConfig

_encode = msgspec.json.Encoder().encode
_DEFAULT = LogConfig()


class ProcessHandler(logging.StreamHandler[TextIO]):
    """The handler of this log. A process has one at most."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def apply(self, config: LogConfig) -> None:
        """Write in this form, from this level on."""
        label = f"{self.process} " if self.process else ""
        text = logging.Formatter(f"%(asctime)s %(levelname)s {label}%(name)s %(message)s")
        self.setFormatter(JsonLines(self.process) if config.format == "json" else text)
        logging.getLogger().setLevel(config.level.upper())


def begin_log(process: str = "") -> None:
    """Write the log of this process from now on. `process` is the label of a worker; empty for any other process."""
    handler = ProcessHandler(process)
    handler.apply(_DEFAULT)
    logging.basicConfig(handlers=[handler], level=logging.getLogger().level, force=True)


def configure_log(config: LogConfig) -> None:
    """Apply a (new) configuration. Does nothing in a process whose log another program has begun."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ProcessHandler):
            handler.apply(config)


class JsonLines(logging.Formatter):
    """Encodes a record as one line of JSON. A traceback is a field of it."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{at}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        if self._process:
            line["process"] = self._process
        line |= {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()
