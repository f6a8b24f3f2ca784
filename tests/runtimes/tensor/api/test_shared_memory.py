"""Shared memory of clients: what may be registered, and that no lie about it reaches further than an error."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import CallerError, Forbidden, NotFound
from adapters.tensors import Parameter, Tensor
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.off_loop import LARGE

pytestmark = pytest.mark.plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "input").write_bytes(bytes(range(64)))
    (tmp_path / "secret").write_bytes(b"x" * 64)
    return tmp_path


@pytest.fixture
def memory(folder: Path) -> Iterator[SharedMemory]:
    memory = SharedMemory(["/in*"], folder)
    yield memory
    memory.unregister()


def lies(region: object = "r", size: object = 8, offset: object = None) -> dict[str, Parameter]:
    reported = {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}
    return {name: value for name, value in reported.items() if value is not None}  # type: ignore[misc]


def tensor(**parameters: object) -> Tensor:
    return Tensor("INPUT0", "INT32", (2,), b"", {**lies(**parameters), "own": 1})


async def test_an_input_is_read_where_it_lies(memory: SharedMemory) -> None:
    memory.register("r", "/input", 16, 32)
    read = await memory.read(tensor(offset=4))
    assert read.data == bytes(range(20, 28))
    assert read.parameters == {"own": 1}


async def test_an_output_is_written_to_its_region(memory: SharedMemory, folder: Path) -> None:
    memory.register("r", "/input", 16, 32)
    reported = await memory.write(Tensor("OUTPUT0", "INT32", (1,), b"abcd"), lies(size=8, offset=4))
    assert (folder / "input").read_bytes()[20:24] == b"abcd"
    assert reported.data == b""
    assert reported.parameters == {"shared_memory_region": "r", "shared_memory_byte_size": 4, "shared_memory_offset": 4}


def test_it_is_off_by_default(folder: Path) -> None:
    memory = SharedMemory((), folder)
    assert not memory.enabled
    with pytest.raises(Forbidden, match="--shared-memory"):
        memory.register("r", "/input", 0, 8)


@pytest.mark.parametrize("key", ["/secret", "secret"])
def test_keys_that_are_not_allowed(memory: SharedMemory, key: str) -> None:
    with pytest.raises(Forbidden, match="not among those"):
        memory.register("r", key, 0, 8)


@pytest.mark.parametrize("key", ["", "/", "..", "/../input", "/in/put", "in\0put", "in" * 200])
def test_keys_that_are_no_name(memory: SharedMemory, key: str) -> None:
    with pytest.raises(CallerError, match="is a name such as"):
        memory.register("r", key, 0, 8)


def test_links_and_pipes_are_not_followed(memory: SharedMemory, folder: Path) -> None:
    (folder / "in-link").symlink_to(folder / "secret")
    os.mkfifo(folder / "in-pipe")
    for key in ("in-link", "in-pipe", "in-absent"):
        with pytest.raises(CallerError, match=r"cannot be opened|is not shared memory"):
            memory.register("r", key, 0, 8)


@pytest.mark.parametrize(("offset", "size"), [(0, 65), (64, 1), (-1, 8), (0, 0), (0, -8), (2**63, 2**63)])
def test_regions_that_are_not_there(memory: SharedMemory, offset: int, size: int) -> None:
    with pytest.raises(CallerError):
        memory.register("r", "/input", offset, size)
    assert memory.regions() == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"size": 33}, {"offset": 32}, {"offset": -4}, {"size": -8}, {"size": None}, {"size": "8"}, {"size": True},
        {"size": 4}, {"size": 12}, {"offset": 2**63}, {"region": "other"}, {"region": 7},
    ],
)  # fmt: skip
async def test_tensors_that_lie(memory: SharedMemory, parameters: dict[str, object]) -> None:
    memory.register("r", "/input", 16, 32)
    with pytest.raises(CallerError):
        await memory.read(tensor(**parameters))


async def test_an_output_that_does_not_fit(memory: SharedMemory, folder: Path) -> None:
    memory.register("r", "/input", 16, 32)
    before = (folder / "input").read_bytes()
    with pytest.raises(CallerError, match="4 are there for it"):
        await memory.write(Tensor("OUTPUT0", "INT32", (2,), b"abcdefgh"), lies(size=4))
    assert (folder / "input").read_bytes() == before


async def test_memory_that_a_client_cuts_off_is_an_error_and_no_crash(memory: SharedMemory, folder: Path) -> None:
    memory.register("r", "/input", 16, 32)
    os.truncate(folder / "input", 18)
    with pytest.raises(CallerError, match="has become smaller"):
        await memory.read(tensor())
    with pytest.raises(CallerError, match="has become smaller"):
        await memory.write(Tensor("OUTPUT0", "INT32", (2,), b"abcdefgh"), lies())
    assert (folder / "input").stat().st_size == 18


def test_names(memory: SharedMemory) -> None:
    memory.register("a", "/input", 0, 8)
    memory.register("b", "/input", 8, 8)
    with pytest.raises(CallerError, match="registered already"):
        memory.register("a", "/input", 0, 8)
    assert [region.name for region in memory.regions()] == ["a", "b"]
    assert memory.regions("b")[0].offset == 8
    memory.unregister("a")
    memory.unregister("a")
    with pytest.raises(NotFound):
        memory.regions("a")
    memory.unregister()
    assert memory.regions() == []


def test_regions_are_bounded_and_their_files_closed(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtimes.tensor.api.shared_memory.MAX_REGIONS", 2)
    before = len(os.listdir("/proc/self/fd"))
    memory.register("a", "/input", 0, 8)
    memory.register("b", "/input", 0, 8)
    with pytest.raises(CallerError, match="unregister one first"):
        memory.register("c", "/input", 0, 8)
    with pytest.raises(CallerError):
        memory.register("a", "/input", 0, 8)
    memory.unregister()
    assert len(os.listdir("/proc/self/fd")) <= before  # the garbage of other tests may close its own


def open_files() -> set[str]:
    """The paths of the descriptors of this process."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return {os.readlink(link) for link in links if link.is_symlink()}


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, LARGE + 1])
async def test_large_tensors_are_moved_in_a_thread_and_the_region_may_go_meanwhile(
    size: int, memory: SharedMemory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(size)
    (folder / "input").write_bytes(bytes(16) + content)
    memory.register("r", "/input", 16 if size else 0, max(size, 1))
    threads: list[bool] = []
    pread, pwrite = os.pread, os.pwrite

    def reading(file: int, length: int, offset: int) -> bytes:
        threads.append(threading.current_thread() is not threading.main_thread())
        if size >= LARGE:
            loop.call_soon_threadsafe(memory.unregister)
            while memory.regions():
                time.sleep(0)
        return pread(file, length, offset)

    def writing(file: int, data: bytes, offset: int) -> int:
        threads.append(threading.current_thread() is not threading.main_thread())
        return pwrite(file, data, offset)

    monkeypatch.setattr(os, "pread", reading)
    monkeypatch.setattr(os, "pwrite", writing)
    loop = asyncio.get_running_loop()
    await memory.write(Tensor("OUT", "UINT8", (size,), b"x" * size), lies(size=size))
    read = await memory.read(Tensor("IN", "UINT8", (size,), b"", lies(size=size)))
    assert read.data == b"x" * size
    assert threads == [size >= LARGE] * len(threads)
    files = open_files()
    assert (str(folder / "input") in files) == (size < LARGE), "descriptors of threads are closed"
