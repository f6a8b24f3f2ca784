"""The process's own log on standard error: its level, and its form as text or as JSON."""

import logging
import time

import msgspec

from config.schema.telemetry import LogConfig

_encode = msgspec.json.Encoder().encode
_handler: logging.StreamHandler | None = None  # type: ignore[type-arg]
_label = ""


class JsonLines(logging.Formatter):
    """One JSON object a line, with the traceback of an error in it."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": moment, "level": record.levelname.lower(), **self._process, "logger": record.name}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def begin(label: str = "") -> None:
    """Log as text from INFO on, until `configure`. `label` names a worker in each line."""
    global _handler, _label
    _handler, _label = logging.StreamHandler(), label
    logging.basicConfig(handlers=[_handler], force=bool(label))
    configure(LogConfig())


def configure(config: LogConfig) -> None:
    """Apply the section `log`. Nothing happens in a process whose log did not begin here."""
    if _handler is None:
        return
    name = f" {_label}" if _label else ""
    text = logging.Formatter(f"%(asctime)s %(levelname)s{name} %(name)s %(message)s")
    _handler.setFormatter(JsonLines(_label) if config.format == "json" else text)
    logging.getLogger().setLevel(config.level.upper())
