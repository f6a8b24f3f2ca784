"""The memory that this process may use: the machine's, or the limit of its container or service. The number of pages
of the KV cache follows from it.

Linux reports it in /proc/meminfo and in control groups, version 1 or 2
(https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files).
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from adapters.errors import Unavailable
from runtimes.llm.model.attention import bytes_per_position
from runtimes.llm.model.model_config import ModelShape

_ROOT = Path("/")
_BOUNDLESS = 1 << 62
_ALLOCATOR_MESSAGES = ("can't allocate memory", "out of memory", "not enough memory")  # torch's, of CPUs and GPUs


class NotEnoughMemory(MemoryError):
    """More memory is required than available; the message has both amounts, and the option to lower."""


class OutOfMemory(Unavailable):
    """Memory ran out in the step of the request."""

    def __init__(self) -> None:
        super().__init__(
            "The engine ran out of memory in a step that computed this request: try again, or lower"
            " max_num_batched_tokens.",
            code="out_of_memory",
            retry_after=1,
        )


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """Memory in bytes. `available` can be allocated with the eviction of file caches only."""

    total: int
    available: int


def memory(root: Path = _ROOT) -> MemoryStatus:
    """The memory that this process may use. `root` is the folder of /proc and /sys."""
    machine = _machine(root)
    limits = [machine, *(_group(folder) for folder in _groups(root))]
    return MemoryStatus(min(one.total for one in limits), min(one.available for one in limits))


def require(consumer: str, required: int, available: int, advice: str) -> None:
    """Raise NotEnoughMemory if `required` bytes are more than are `available`."""
    if required > available:
        raise NotEnoughMemory(
            f"{consumer} takes {readable(required)} and {readable(available)} of memory are free: {advice}"
        )


@contextmanager
def allocating(consumer: str, advice: str) -> Iterator[None]:
    """Convert an allocation failure in the block to NotEnoughMemory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, NotEnoughMemory) or not ran_out(error):
            raise
        raise NotEnoughMemory(f"memory ran out while {consumer} was allocated: {advice}") from error


def ran_out(error: BaseException) -> bool:
    """Whether an error reports that an allocation failed."""
    message = str(error)
    return isinstance(error, MemoryError) or any(words in message for words in _ALLOCATOR_MESSAGES)


def readable(size: int) -> str:
    """A size for people: 3.4 GiB."""
    number, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.4g} {unit}"


def _machine(root: Path) -> MemoryStatus:
    try:
        fields = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
        return MemoryStatus(*(int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")))
    except (OSError, KeyError, ValueError):  # not Linux
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return MemoryStatus(total, total)


def _groups(root: Path) -> list[Path]:
    """The folders of this process's control groups that may limit memory: its own, and its ancestors."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        own = mount / path.lstrip("/")
        # In a container the path is the host's: the mounted folder is the container's own group.
        folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(mount)]
    return folders


def _group(folder: Path) -> MemoryStatus:
    """The limit of a group, and its free part; infinite without a limit."""
    for limit, usage, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            total = int((folder / limit).read_text())
            used = int((folder / usage).read_text()) - _statistic(folder, cache)
        except (OSError, ValueError):  # no such file, or its value is "max"
            continue
        return MemoryStatus(total, max(total - used, 0))
    return MemoryStatus(_BOUNDLESS, _BOUNDLESS)


def _statistic(folder: Path, name: str) -> int:
    for line in (folder / "memory.stat").read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


KVCacheName = Literal["auto", "int8"]
KV_ADVICE = "lower kv_cache (--kv-cache)"


def kv_dtype(name: KVCacheName, dtype: torch.dtype) -> torch.dtype:
    """The number format of the cache for a model that computes in `dtype`."""
    return torch.int8 if name == "int8" else dtype


def kv_bytes_per_token(config: ModelShape, dtype: torch.dtype) -> int:
    """Cache memory of one position, keys and values of all layers together; `dtype` int8 is codes."""
    return config.cached_tensors * sum(bytes_per_position(*heads, dtype) for heads in config.cached_heads)


def input_bytes_per_token(config: ModelShape, dtype: torch.dtype) -> int:
    """Cache memory of one position's inputs of short convolutions, or its index keys, which are never codes."""
    return math.prod(config.inputs_of_position) * int(dtype.itemsize)


def state_bytes(config: ModelShape, dtype: torch.dtype) -> int:
    """Memory of one sequence's states in all recurrent layers, of whatever length it is; 0 without such layers."""
    shape = config.recurrent
    if shape is None:
        return 0
    inputs = shape.channels * (shape.conv_length - 1) * int(dtype.itemsize)
    return len(config.recurrent_layers) * (inputs + math.prod(shape.state_size) * int(torch.float32.itemsize))


@dataclass(frozen=True, slots=True)
class CacheSize:
    blocks: int
    states: int
    """0 for a model without states."""


def cache_size(
    size: int, share: float | None, block_bytes: int, state_bytes: int, most_states: int, device: torch.device,
    steps: int = 0,
) -> CacheSize:  # fmt: skip
    """Up to `most_states` states in at most half of the bytes, and pages in the rest; see `kv_blocks`."""
    if not state_bytes:
        return CacheSize(kv_blocks(size, share, block_bytes, device, steps), 0)
    # As if a page and a state were one page, of which there must be one.
    total = kv_blocks(size, share, block_bytes + state_bytes, device, steps) * (block_bytes + state_bytes)
    states = max(1, min(most_states, total // 2 // state_bytes))
    return CacheSize((total - states * state_bytes) // block_bytes, states)


def kv_blocks(size: int, share: float | None, block_bytes: int, device: torch.device, steps: int = 0) -> int:
    """Pages in `size` bytes, or in a `share` if given: of all memory, or of a GPU's free memory beside the weights and
    the `steps` bytes that computing takes.

    Raises ValueError for less than one page, NotEnoughMemory if the memory is not available.
    """
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"kv_cache_share must be over 0 and at most 1, not {share}")
    there = memory_of(device)
    left = max(0, there.available - steps)
    required = size if share is None else int((left if device.type == "cuda" else there.total) * share)
    if required < block_bytes:
        raise ValueError(f"kv_cache_bytes is {required}; one page alone takes {block_bytes}")
    require("the KV cache", required, left, KV_ADVICE)
    return required // block_bytes


def memory_of(device: torch.device) -> MemoryStatus:
    """The memory of the GPU, or of this machine or container."""
    if device.type != "cuda":
        return memory()
    available, total = torch.cuda.mem_get_info(device)
    return MemoryStatus(total, available)
