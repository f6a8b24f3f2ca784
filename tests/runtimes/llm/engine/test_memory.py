"""The available memory that Linux reports to a process, to a container, and to a service in nested groups."""

from pathlib import Path

import pytest
import torch

from runtimes.llm.memory import MemoryStatus, NotEnoughMemory, allocating, memory, ran_out, readable, require

GIB = 1 << 30


def machine(root: Path, groups: str = "0::/\n") -> Path:
    """A machine with 24 GiB, 20 of them free."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: {24 * GIB >> 10} kB\nMemFree: 1 kB\nMemAvailable: {20 * GIB >> 10} kB\n"
    )
    (root / "proc/self/cgroup").write_text(groups)
    return root


def group(folder: Path, limit: str, used: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit + "\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")


def test_without_limits_it_is_the_machine_s(tmp_path: Path) -> None:
    assert memory(machine(tmp_path)) == MemoryStatus(24 * GIB, 20 * GIB)


def test_a_container_sees_its_own_limit_and_files_in_memory_count_as_free(tmp_path: Path) -> None:
    group(machine(tmp_path) / "sys/fs/cgroup", str(8 * GIB), 5 * GIB, cache=2 * GIB)
    assert memory(tmp_path) == MemoryStatus(8 * GIB, 5 * GIB)


def test_no_limit_is_none(tmp_path: Path) -> None:
    group(machine(tmp_path) / "sys/fs/cgroup", "max", 5 * GIB)
    assert memory(tmp_path) == MemoryStatus(24 * GIB, 20 * GIB)


def test_the_tightest_of_the_groups_around_it_counts(tmp_path: Path) -> None:
    groups = machine(tmp_path, "0::/system.slice/headrace.service\n") / "sys/fs/cgroup"
    group(groups / "system.slice/headrace.service", str(10 * GIB), GIB)
    group(groups / "system.slice", str(6 * GIB), 4 * GIB)
    assert memory(tmp_path) == MemoryStatus(6 * GIB, 2 * GIB)


def test_version_1_of_control_groups(tmp_path: Path) -> None:
    root = machine(tmp_path, "9:cpu:/docker/1\n4:memory:/docker/1\n")
    folder = root / "sys/fs/cgroup/memory"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{4 * GIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{3 * GIB}\n")
    (folder / "memory.stat").write_text(f"total_inactive_file {GIB}\n")
    assert memory(root) == MemoryStatus(4 * GIB, 2 * GIB)


def test_a_group_that_has_more_than_it_may_has_nothing_left(tmp_path: Path) -> None:
    group(machine(tmp_path) / "sys/fs/cgroup", str(GIB), 2 * GIB)
    assert memory(tmp_path).available == 0


def test_this_machine_has_some() -> None:
    here = memory()
    assert 0 < here.available <= here.total < 1 << 50


def test_the_error_has_the_demand_and_the_free_memory() -> None:
    require("it", 10, 10, "")
    with pytest.raises(NotEnoughMemory, match=r"^the cache takes 1\.5 GiB and 200 MiB of memory are free: lower it$"):
        require("the cache", 3 * GIB // 2, 200 << 20, "lower it")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_an_allocator_that_has_none_left_is_understood(error: Exception) -> None:
    assert ran_out(error)
    message = r"^memory ran out while the cache was allocated: lower it$"
    with pytest.raises(NotEnoughMemory, match=message), allocating("the cache", "lower it"):
        raise error


def test_torch_s_own_words_are_understood() -> None:
    with pytest.raises(NotEnoughMemory, match="memory ran out"), allocating("it", "lower it"):
        torch.empty(1 << 60, dtype=torch.uint8)


def test_other_failures_are_unchanged() -> None:
    with pytest.raises(RuntimeError, match="the device is lost"), allocating("the cache", "lower it"):
        raise RuntimeError("the device is lost")


@pytest.mark.parametrize(("size", "text"), [(5, "5 B"), (1536, "1.5 KiB"), (14 * GIB + GIB // 3, "14.33 GiB")])
def test_sizes_as_people_read_them(size: int, text: str) -> None:
    assert readable(size) == text
