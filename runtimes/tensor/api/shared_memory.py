"""Tensors in POSIX shared memory that a client on this machine has created (Triton's system shared memory extension).

Disabled unless the operator names the permitted keys. Regions are read and written through their file, never
mapped: a client that shortens one while it is in use gets an error, where a mapped page would end this process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from adapters.errors import CallerError, Forbidden, NotFound
from adapters.tensors import ITEM_SIZE, SHARED_MEMORY, Data, Parameter, Parameters, Tensor, byte_size
from runtimes.tensor.off_loop import LARGE, off_loop

T = TypeVar("T")
FOLDER = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
MAX_REGIONS = 1024
OFFSET = "shared_memory_offset"
BYTE_SIZE = "shared_memory_byte_size"
_OURS = frozenset({SHARED_MEMORY, OFFSET, BYTE_SIZE})


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a shared memory object, under a name that the client chose."""

    name: str
    key: str
    offset: int
    byte_size: int
    descriptor: int


class SharedMemory:
    """The regions that clients have registered. `allowed` are globs of keys; without any, the extension is disabled."""

    def __init__(self, allowed: Sequence[str] = (), folder: Path = FOLDER) -> None:
        self._allowed = [pattern.lstrip("/") for pattern in allowed]
        self._folder = folder
        self._regions: dict[str, Region] = {}

    @property
    def enabled(self) -> bool:
        return bool(self._allowed)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Raises `CallerError`, and `Forbidden` for keys that the operator has not allowed."""
        if not name or len(name) > 255:
            raise CallerError("A shared memory region needs a name of at most 255 characters.", param="name")
        file = self._file_name(key)
        if name in self._regions:
            raise CallerError(f"The shared memory region `{name}` is registered already: unregister it first.")
        if len(self._regions) >= MAX_REGIONS:
            raise CallerError(f"{MAX_REGIONS} shared memory regions are registered: unregister one first.")
        if offset < 0 or byte_size <= 0:
            raise CallerError("A shared memory region has an offset of 0 or more and a size of 1 byte or more.")
        descriptor = _open(self._folder / file, key)
        if offset + byte_size > (size := os.fstat(descriptor).st_size):
            os.close(descriptor)
            raise CallerError(
                f"The shared memory `{key}` has {size} bytes, and the region would end at {offset + byte_size}."
            )
        self._regions[name] = Region(name, key, offset, byte_size, descriptor)

    def _file_name(self, key: str) -> str:
        if not self._allowed:
            raise Forbidden("Shared memory is disabled: the operator can allow it with --shared-memory.")
        name = key.removeprefix("/")
        if not name or "/" in name or "\0" in name or name in (".", "..") or len(name.encode()) > 255:
            raise CallerError("A shared memory key is a name such as /input, without another slash.", param="key")
        if not any(fnmatchcase(name, pattern) for pattern in self._allowed):
            raise Forbidden(f"The shared memory key `{key}` is not among those that the operator allows.")
        return name

    def unregister(self, name: str = "") -> None:
        """One region, or all without a name. An unknown region is not an error, as in Triton."""
        for region in [self._regions.pop(name, None)] if name else list(self._regions.values()):
            if region is not None:
                os.close(region.descriptor)
        if not name:
            self._regions.clear()

    def regions(self, name: str = "") -> list[Region]:
        """All regions, or the region of that name. Raises `NotFound`."""
        return [self._region(name)] if name else list(self._regions.values())

    def _region(self, name: object) -> Region:
        region = self._regions.get(name) if isinstance(name, str) else None
        if region is None:
            raise NotFound(f"There is no shared memory region `{name}`: register it first.", code="unknown_region")
        return region

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def read(self, tensor: Tensor) -> Tensor:
        """An input with a copy of its data. Raises `CallerError`."""
        region, offset, size = self._part(tensor.parameters, tensor.name)
        if tensor.datatype in ITEM_SIZE and size != (expected := byte_size(tensor.datatype, tensor.shape)):
            raise CallerError(
                f"`{tensor.name}` has {size} bytes in shared memory, and {tensor.datatype} of shape"
                f" {list(tensor.shape)} has {expected}.",
                param=tensor.name,
            )
        data = await _with_file(region, size, lambda file: os.pread(file, size, region.offset + offset))
        if len(data) < size:
            raise CallerError(f"The shared memory of region `{region.name}` has become smaller.", param=tensor.name)
        return Tensor(tensor.name, tensor.datatype, tensor.shape, data, _rest(tensor.parameters))

    def check(self, parameters: Parameters, name: str) -> None:
        """Check the destination of an output before it is computed. Raises `CallerError`."""
        self._part(parameters, name)

    async def write(self, tensor: Tensor, parameters: Parameters) -> Tensor:
        """Write an output to its region. Returns the reference that replaces its data. Raises `CallerError`."""
        region, offset, room = self._part(parameters, tensor.name)
        if len(tensor.data) > room:
            raise CallerError(
                f"Output `{tensor.name}` has {len(tensor.data)} bytes, and {room} are there for it in shared memory.",
                param=tensor.name,
            )
        await _with_file(region, len(tensor.data), lambda file: _write(file, region, tensor.data, offset, tensor.name))
        reference: dict[str, Parameter] = {SHARED_MEMORY: region.name, BYTE_SIZE: len(tensor.data)}
        if offset:
            reference[OFFSET] = offset
        return Tensor(tensor.name, tensor.datatype, tensor.shape, b"", reference)

    def _part(self, parameters: Parameters, name: str) -> tuple[Region, int, int]:
        """A region, and the part of it that a tensor takes."""
        region = self._region(parameters[SHARED_MEMORY])
        offset, size = parameters.get(OFFSET, 0), parameters.get(BYTE_SIZE)
        if type(offset) is not int or type(size) is not int or offset < 0 or size < 0:
            raise CallerError(
                f"`{name}` is in shared memory: give its `{BYTE_SIZE}`, and its `{OFFSET}` if not 0, as numbers.",
                param=name,
            )
        if offset + size > region.byte_size:
            raise CallerError(
                f"`{name}` ends at byte {offset + size} of the shared memory region `{region.name}`,"
                f" which has {region.byte_size}.",
                param=name,
            )
        return region, offset, size


def _open(path: Path, key: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise CallerError(f"The shared memory `{key}` cannot be opened: {error.strerror}.", param="key") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CallerError(f"`{key}` is not shared memory.", param="key")
    return descriptor


async def _with_file(region: Region, size: int, work: Callable[[int], T]) -> T:
    """Call `work` with the file of a region; in a thread if it moves many bytes.

    The thread has a separate descriptor: the region may be unregistered meanwhile.
    """
    if size < LARGE:
        return work(region.descriptor)
    descriptor = os.dup(region.descriptor)

    def work_and_close() -> T:
        try:
            return work(descriptor)
        finally:
            os.close(descriptor)

    return await off_loop(work_and_close)


def _write(file: int, region: Region, data: Data, offset: int, name: str) -> None:
    """Write within the size of the file. A truncated region must not grow again: its client would not see the data."""
    if os.fstat(file).st_size < region.offset + offset + len(data):
        raise CallerError(f"The shared memory of region `{region.name}` has become smaller.", param=name)
    at = 0
    view = memoryview(data)
    while at < len(view):
        at += os.pwrite(file, view[at:], region.offset + offset + at)


def _rest(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if name not in _OURS}
