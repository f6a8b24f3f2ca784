"""The interface between a copy of a model and the thread or process in which it runs: the job, its form as bytes, the
memory of a process, and the lines that it prints.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
import types
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Batch, Device, LoadReport, Tensors

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


_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | str = "self") -> int:
    """The resident bytes of a process; 0 if the system does not report them."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


LOAD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class MemberJob:
    """A model of an ensemble, to load into the ensemble's process."""

    steps: tuple[int, ...]
    version: str
    config: ModelConfig
    """Complete."""
    folder: Path
    device: Device
    description: str = ""
    """See `Job`."""


@dataclass(frozen=True, slots=True)
class Job:
    """A model to load, and the resources of its thread or process."""

    name: str
    backend: str
    config: ModelConfig
    folder: Path
    device: Device
    cpus: tuple[int, ...] = ()
    """Cores that the worker is pinned to; all when empty."""
    memory_limit: int = 0
    """Bytes that a process may allocate; 0 for no bound."""
    description: str = ""
    """The configuration in Triton's JSON, for a model that receives requests whole."""
    members: tuple[MemberJob, ...] = ()
    """The models of an ensemble, which is loaded as a whole."""


class Listener(Protocol):
    """Receives the events of a worker, on the loop."""

    def answered(self, result: Tensors | BaseException) -> None:
        """The batch has ended, or the stream has failed."""
        ...

    def responded(self, outputs: Tensors) -> None:
        """One response of the stream. The next one waits for `go_on`."""
        ...

    def streamed(self) -> None:
        """The stream has ended."""
        ...

    def lost(self, reason: str) -> None:
        """The worker has ended without a request to end."""
        ...


class ModelThread(Protocol):
    """Runs one loaded model. One batch or stream at a time."""

    async def load(self) -> LoadReport:
        """Start, and load the model. Raises `ModelLoadError`; after an error or a cancellation nothing remains."""
        ...

    def submit(self, batch: Batch) -> None: ...

    def submit_stream(self, inputs: Tensors) -> None: ...

    def go_on(self) -> None:
        """Permit the next response."""
        ...

    def stop(self) -> None:
        """Cancel the stream; `streamed` follows."""
        ...

    def abandon(self) -> None:
        """Discard the worker in any state. No event follows."""
        ...

    async def aclose(self) -> None:
        """End the worker, after a short time to clean up."""
        ...


MakeWorker = Callable[[Job, Listener], ModelThread]


_encode = msgspec.msgpack.Encoder(enc_hook=str).encode  # of a path
_hints: Any = functools.cache(get_type_hints)


def encode_job(job: Job) -> bytes:
    return _encode(job)


def decode_job(data: bytes | memoryview) -> Job:
    job: Job = _built(Job, msgspec.msgpack.decode(data))
    return job


def encode_config(config: ModelConfig) -> bytes:
    return _encode(config)


def decode_config(data: bytes | memoryview) -> ModelConfig:
    config: ModelConfig = _built(ModelConfig, msgspec.msgpack.decode(data))
    return config


def _built(kind: Any, value: Any) -> Any:
    """The value that was encoded, by the type of its field."""
    if value is None:
        return None
    if kind is Path:
        return Path(value)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        made: Any = kind
        return made(**{name: _built(hints[name], field) for name, field in value.items()})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        inner = arguments[0]  # all of ours are of one type, or of plain ones
        return tuple([_built(inner, item) for item in value])
    if origin is Mapping:
        return {key: _built(arguments[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        arms = [arm for arm in arguments if arm is not types.NoneType]
        return _built(arms[0], value) if len(arms) == 1 else value
    return value
