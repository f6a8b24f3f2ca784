"""The key-value part of a GGUF file, without its tensors.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. The `gguf`
package reads the same, but makes an array of every string: with a vocabulary in the file that takes seconds,
and this takes a tenth of one.
"""

import mmap
import struct
from pathlib import Path
from typing import Any

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class InvalidGguf(ValueError):
    """The file is not a GGUF file that can be read, or it is cut short."""


def read_metadata(path: Path) -> dict[str, Any]:
    """Every metadata value by key: numbers, strings, booleans and lists of them. Raises InvalidGguf, OSError."""
    with path.open("rb") as file:
        if path.stat().st_size < 24 or file.read(4) != _MAGIC:
            raise InvalidGguf(f"{path.name} is not a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Cursor(data).metadata()
            except (struct.error, UnicodeDecodeError, KeyError, OverflowError, RecursionError) as error:
                raise InvalidGguf(f"{path.name} is damaged or cut short: {error}") from None


class _Cursor:
    """A position in the file, which every read moves on."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(_MAGIC)

    def metadata(self) -> dict[str, Any]:
        version = self._scalar("I")
        if version not in (2, 3):
            raise InvalidGguf(f"GGUF version {version} is not supported; versions 2 and 3 are")
        _tensors, keys = self._scalar("Q"), self._scalar("Q")
        return {self._string(): self._value(self._scalar("I")) for _ in range(keys)}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._scalar(_SCALARS[kind])

    def _array(self) -> list[Any]:
        kind, length = self._scalar("I"), self._scalar("Q")
        if kind in _SCALARS:
            return list(self._unpack(f"<{length}{_SCALARS[kind]}"))
        return [self._value(kind) for _ in range(length)]

    def _string(self) -> str:
        length = self._scalar("Q")
        return bytes(self._unpack(f"<{length}s")[0]).decode()

    def _scalar(self, code: str) -> Any:
        return self._unpack("<" + code)[0]

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values
