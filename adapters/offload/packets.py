"""Arguments and results of codecs as files: a pickle, and beside it the bytes objects that it refers to.

    file = count of parts, length of each part, the parts; the first part is the pickle

Both ends are this distribution. System calls move the large parts, and release Python's lock while they do.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Raw

from adapters.tensors import NO_PARAMETERS, Data

INLINE: Final = 4096
"""Bytes objects below this size travel within the pickle."""
_PIECE: Final = 4 * 1024 * 1024
"""Bytes of one system call."""
_NUMBER: Final = struct.Struct("<Q")
SECONDS: Final = struct.Struct("d")
"""The message beside a job's file: the processor time that it may take."""

_BREAK: Final = 1000
"""Objects that a reader creates before other threads can run."""


class _Pickler(pickle.Pickler):
    """Its pickles call `persistent_load` often: other threads can run only between calls of Python functions."""

    def __init__(self, file: io.BytesIO, parts: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._parts = parts
        self._left = _BREAK
        self._raws: dict[int, int] = {}
        """The parts of JSON values, by the values' identities."""

    def persistent_id(self, obj: Any) -> tuple[str, Any] | None:
        kind = type(obj)
        if kind is bytes:
            return None if len(obj) < INLINE else self._part("bytes", obj)
        if kind is memoryview:
            return self._view(obj)
        if kind is Raw:
            return self._raw(obj)
        # A read-only mapping has no pickle of its own.
        if obj is NO_PARAMETERS:
            return "nothing", 0
        self._left -= 1
        if self._left:
            return None
        self._left = _BREAK  # for the object itself too, which comes next
        return "itself", obj

    def _view(self, view: memoryview) -> tuple[str, int]:
        """A view of a whole JSON value shares the value's part."""
        shown = view.obj
        if type(shown) is Raw and view.nbytes == len(memoryview(shown)) >= INLINE:
            return "view", self._raw(shown)[1]
        return self._part("view", view)

    def _raw(self, raw: Raw) -> tuple[str, Any]:
        if len(view := memoryview(raw)) < INLINE:
            return "short", bytes(view)
        if (part := self._raws.get(id(raw))) is None:
            part = self._raws[id(raw)] = self._part("raw", raw)[1]
        return "raw", part

    def _part(self, kind: str, part: Any) -> tuple[str, int]:
        self._parts.append(part)
        return kind, len(self._parts) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(io.BytesIO(parts[0]))
        self._parts = parts

    def persistent_load(self, pid: Any) -> Any:
        kind, index = pid
        if kind == "short":
            return Raw(index)
        if kind == "nothing":
            return NO_PARAMETERS
        if kind == "itself":
            return index
        part = self._parts[index]
        if kind == "view":
            return memoryview(part)
        return Raw(part) if kind == "raw" else part


def open_file() -> int:
    """A descriptor of a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headrace-codec")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write(fd: int, obj: Any) -> None:
    """Write a packet. Raises `OSError` without memory for it."""
    pickled = io.BytesIO()
    parts: list[Data] = [b""]
    _Pickler(pickled, parts).dump(obj)
    parts[0] = pickled.getvalue()
    views = [memoryview(part).cast("B") for part in parts]
    head = b"".join(map(_NUMBER.pack, (len(views), *map(len, views))))
    at = 0
    for view in (memoryview(head), *views):
        done = 0
        while done < len(view):
            done += os.pwrite(fd, view[done : done + _PIECE], at + done)
        at += done


def read(fd: int) -> Any:
    """Read the object that `write` stored."""
    (count,) = _NUMBER.unpack(_read(fd, _NUMBER.size, 0))
    lengths = struct.unpack(f"<{count}Q", _read(fd, count * _NUMBER.size, _NUMBER.size))
    at, parts = (count + 1) * _NUMBER.size, list[bytes]()
    for length in lengths:
        parts.append(_read(fd, length, at))
        at += length
    return _Unpickler(parts).load()


def _read(fd: int, size: int, at: int) -> bytes:
    """Read a part with one system call: the file is in memory."""
    data = os.pread(fd, size, at)
    if len(data) != size:
        raise EOFError(f"{len(data)} of {size} bytes are there")
    return data
