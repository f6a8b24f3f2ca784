"""The metadata of a GGUF file: its key-value part, and the places of its tensors.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. The `gguf`
package reads the same, but makes an array of every string: with a vocabulary in the file that takes seconds,
and this takes a tenth of one.
"""

import mmap
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_BEGINNINGS = {
    b"version https://git-lfs": "a Git LFS pointer to the file: fetch the file itself with `git lfs pull`",
    b"GGUF": "a GGUF file",
    b"PK\x03\x04": "a zip archive, perhaps weights that PyTorch pickled",
    b"<": "a web page",
    b"\x1f\x8b": "a gzip archive: unpack it",
}


def description(path: Path) -> str:
    """A clause for an error: `is empty`, `is a web page`, or that the kind of file is unknown."""
    with path.open("rb") as file:
        beginning = file.read(64)
    if not beginning:
        return "is empty"
    for magic, kind in _BEGINNINGS.items():
        if beginning.lstrip().startswith(magic):
            return f"is {kind}"
    return f"begins with {beginning[:8]!r}"


_Part = TypeVar("_Part")
_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class InvalidGguf(ValueError):
    """The file is not a GGUF file that can be read, or it is cut short."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor in the file: `shape` with the rows' length last, `kind` ggml's number of its type, `start` a byte."""

    shape: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True, slots=True)
class GgufDirectory:
    metadata: dict[str, Any]
    tensors: dict[str, TensorPlace]


_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MOST_PARTS = 10_000


def parts_of(name: str) -> list[str]:
    """The names of all files of a split model, the first one's first, from the name of one of them; else `name`."""
    match = _PART.fullmatch(name)
    if match is None or not 1 <= int(match["count"]) <= _MOST_PARTS:
        return [name]
    return [f"{match['stem']}-{number:05}-of-{match['count']}.gguf" for number in range(1, int(match["count"]) + 1)]


def read_metadata(path: Path) -> dict[str, Any]:
    """Every metadata value by key: numbers, strings, booleans and lists of them. Raises InvalidGguf, OSError."""
    return _read(path, _Cursor.metadata)


def read_directory(path: Path) -> GgufDirectory:
    """The metadata, and every tensor's place by name. Raises InvalidGguf, OSError."""
    return _read(path, _Cursor.directory)


def _read(path: Path, part: Callable[["_Cursor"], _Part]) -> _Part:
    with path.open("rb") as file:
        if path.stat().st_size < 24 or file.read(4) != _MAGIC:
            raise InvalidGguf(f"{path.name} is not a GGUF file: it {description(path)}")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return part(_Cursor(data))
            except (struct.error, UnicodeDecodeError, KeyError, OverflowError, RecursionError) as error:
                raise InvalidGguf(f"{path.name} is damaged or cut short: {error}") from None


class _Cursor:
    """A position in the file, which every read advances."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(_MAGIC)

        self._num_tensors = 0

    def metadata(self) -> dict[str, Any]:
        version = self._scalar("I")
        if version not in (2, 3):
            raise InvalidGguf(f"GGUF version {version} is not supported; versions 2 and 3 are")
        self._num_tensors, keys = self._scalar("Q"), self._scalar("Q")
        return {self._string(): self._value(self._scalar("I")) for _ in range(keys)}

    def directory(self) -> GgufDirectory:
        metadata = self.metadata()
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise InvalidGguf(f"general.alignment is {alignment!r}, not a number of bytes")
        places = [self._place() for _ in range(self._num_tensors)]
        begin = -(-self._at // alignment) * alignment  # tensors' places are counted from here
        tensors = {name: TensorPlace(shape, kind, begin + start) for name, shape, kind, start in places}
        return GgufDirectory(metadata, tensors)

    def _place(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._scalar("I")
        shape = self._unpack(f"<{dimensions}Q")
        return name, shape[::-1], self._scalar("I"), self._scalar("Q")

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
