"""Responses by digest, within a bound of bytes. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from math import inf
from struct import Struct
from typing import NamedTuple

import numpy as np

from adapters.tensors import Data, Inference, Tensor
from runtimes.tensor.off_loop import LARGE

PART = 8
"""The part of the store that one response may take at most: an eighth."""
OVERHEAD = 512
"""Bytes of a response beside its tensors."""
_LENGTH = Struct("<Q").pack


def digest(owner: int, inference: Inference) -> bytes:
    """The digest of a request: the loaded version, all inputs, and the requested outputs in order."""
    hashed = blake2b(_LENGTH(owner), digest_size=32)
    add = hashed.update
    for tensor in sorted(inference.inputs, key=_name):
        head = f"{tensor.name}\0{tensor.datatype}\0{tensor.shape}".encode()
        add(_LENGTH(len(head)) + head + _LENGTH(len(tensor.data)))
        add(tensor.data)
    add("\0".join(["", *[output.name for output in inference.outputs]]).encode())
    return hashed.digest()


def copies(outputs: list[Tensor]) -> list[Tensor]:
    """The outputs with their own data: those of a batch are one buffer, of which a response is a part."""
    return [Tensor(t.name, t.datatype, t.shape, _copy(t.data), t.parameters) for t in outputs]


def _copy(data: Data) -> Data:
    # numpy copies large arrays without Python's lock.
    return bytes(data) if len(data) < LARGE else np.frombuffer(data, np.uint8).copy().data


def _name(tensor: Tensor) -> str:
    return tensor.name


class _Entry(NamedTuple):
    outputs: list[Tensor]
    size: int
    until: float
    owner: int


class ResponseStore:
    """Responses of all models with a cache; the least recently used one makes room."""

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        """Bytes in use."""
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._owners = 0

    def __len__(self) -> int:
        return len(self._entries)

    def owner(self) -> int:
        """A new number for a loaded version, so that responses of an older version never match."""
        self._owners += 1
        return self._owners

    def get(self, key: bytes, now: float) -> list[Tensor] | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= now:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.outputs

    def takes(self, size: int) -> bool:
        """Whether a response with so many bytes of tensors can be stored."""
        return OVERHEAD + size <= self._max_bytes // PART

    def put(self, key: bytes, owner: int, outputs: list[Tensor], ttl: float, now: float) -> None:
        """Store copied outputs for `ttl` seconds, 0 for as long as there is room; not if they are too large."""
        size = sum(len(tensor.data) for tensor in outputs)
        if not self.takes(size):
            return
        size += OVERHEAD
        if key in self._entries:
            self._drop(key)
        self._entries[key] = _Entry(outputs, size, now + ttl if ttl > 0 else inf, owner)
        self.size += size
        while self.size > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def forget(self, owner: int) -> None:
        for key in [key for key, entry in self._entries.items() if entry.owner == owner]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        self.size -= self._entries.pop(key).size
