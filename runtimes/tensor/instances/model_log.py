"""Output of a model in the log: whole lines, at a bounded rate."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Final

LINES_PER_SECOND: Final = 100
MAX_LINE: Final = 2000
log = logging.getLogger("runtimes.tensor.models")


class ModelLog:
    """The output of one instance. Lines over the rate are counted, and the count is logged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._second = 0
        self._lines = 0
        self._begun = b""
        self._skipping = False
        self.last: deque[str] = deque(maxlen=10)
        """The last lines, for the error after its end."""

    def feed(self, data: bytes) -> None:
        """Add a piece of the output."""
        if b"\n" not in data:
            self._grow(data)
            return
        first, *lines, rest = data.split(b"\n", LINES_PER_SECOND)
        if b"\n" in rest:  # more than a second's lines at once
            self._lines += rest.count(b"\n")
            rest = rest[rest.rindex(b"\n") + 1 :]
        whole = self._begun + first
        self._begun = b""
        if not self._skipping:
            self._line(whole)
        self._skipping = False
        for line in lines:
            self._line(line)
        self._grow(rest)

    def text(self, text: str, level: int = logging.INFO) -> None:
        """Log whole lines."""
        for line in text.splitlines():
            self._line(line.encode(errors="backslashreplace"), level)

    def flush(self) -> None:
        """Handle the end of the output."""
        if self._begun:
            self._line(self._begun)
            self._begun = b""

    def _grow(self, data: bytes) -> None:
        """Add the beginning of a line; a line without an end is cut."""
        if self._skipping:
            return
        self._begun += data
        if len(self._begun) > MAX_LINE:
            self.flush()
            self._skipping = True

    def _line(self, line: bytes, level: int = logging.INFO) -> None:
        if (second := int(time.monotonic())) != self._second:
            if self._lines > LINES_PER_SECOND:
                log.warning("%s: %d more lines were left out", self._name, self._lines - LINES_PER_SECOND)
            self._second = second
            self._lines = 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            return
        decoded = line[:MAX_LINE].decode(errors="backslashreplace")
        text = "".join([sign for sign in decoded if sign.isprintable() or sign == "\t"])
        if text:
            self.last.append(text)
            log.log(level, "%s: %s", self._name, text)
