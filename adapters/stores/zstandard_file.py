"""A file that zstd compresses, as a stream of bounded steps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

from adapters.stores.source import StoreError

_STEP: Final = 1024
"""Compressed bytes at a time. zstd's decoder has no bound for its output, and these become 32 MiB at most."""
_WINDOW: Final = 1 << 27


def opened(path: Path) -> io.BufferedReader:
    """The decompressed bytes of all frames. Raises `StoreError` without the library."""
    try:
        import zstandard
    except ImportError:
        raise StoreError("it is compressed by zstd, which needs the extra `zstd`") from None
    return io.BufferedReader(_Frames(path, zstandard))


class _Frames(io.RawIOBase):
    """Raises `EOFError` for a frame that is cut off, and `ValueError` for one that is malformed."""

    def __init__(self, path: Path, zstandard: Any) -> None:
        self._file = path.open("rb")
        self._zstandard = zstandard
        self._frame: Any = None
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._ready:
            self._compressed = self._compressed or self._file.read(_STEP)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self._ready = memoryview(self._step())
        size = min(len(target), len(self._ready))
        target[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _step(self) -> bytes:
        if self._frame is None:
            self._frame = self._zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        try:
            done: bytes = self._frame.decompress(self._compressed)
        except self._zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        self._compressed = b""
        if self._frame.eof:
            self._compressed, self._frame = self._frame.unused_data, None
        return done

    def close(self) -> None:
        self._file.close()
        super().close()
