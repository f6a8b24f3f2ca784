"""loadtests.figures.cpu: parsing /proc, process trees, and a real measurement of this process."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.figures.cpu import (
    TICKS_PER_SECOND,
    Meter,
    Process,
    foreign_s,
    parse_schedstat,
    parse_stat,
    resident_bytes,
    spent_s,
    tree,
)

pytestmark = pytest.mark.plain

STAT = (
    "4242 ({}) S 17 4242 4242 0 -1 4194560 3000 500 0 0 120 30 7 3 20 0 5 0 31415 227000000 900 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0"
)


@given(st.text("abc ()\t0123", min_size=1, max_size=15))
def test_a_command_of_any_spelling_does_not_shift_the_fields(command: str) -> None:
    assert parse_stat(STAT.format(command)) == Process(17, 160 / TICKS_PER_SECOND)


def test_schedstat_counts_nanoseconds_on_the_cpu() -> None:
    assert parse_schedstat("2500000000 14553827 141\n") == 2.5


@given(st.lists(st.integers(min_value=0), min_size=1, max_size=30))
def test_a_tree_is_the_root_and_whatever_leads_to_it(picks: list[int]) -> None:
    # Process n+1 hangs below an earlier one, so that every shape of tree is drawn.
    parents = {n + 1: pick % (n + 1) for n, pick in enumerate(picks)}
    table = {pid: Process(parent, 1.0) for pid, parent in parents.items()}
    root = max(parents) // 2 + 1

    def leads_to_root(pid: int) -> bool:
        while pid and pid != root:
            pid = parents[pid]
        return pid == root

    assert tree(root, table) == {pid for pid in parents if leads_to_root(pid)}
    assert foreign_s(root, table) == len(parents) - len(tree(root, table))


def test_the_time_of_a_reaped_foreign_process_counts_for_its_parent() -> None:
    before = {1: Process(0, 5.0), 2: Process(1, 1.0), 9: Process(1, 3.0)}
    after = {1: Process(0, 5.0 + 1.5), 9: Process(1, 4.0)}  # 2 used 0.5 s more and was reaped by 1
    assert foreign_s(9, after) - foreign_s(9, before) == 0.5


def test_threads_that_began_in_between_count_whole() -> None:
    assert spent_s({(1, 1): 2.0, (1, 2): 7.0}, {(1, 1): 2.5, (1, 3): 0.25}) == 0.75


@pytest.mark.benchmarks
def test_a_meter_counts_the_time_of_this_process() -> None:
    meter, began = Meter.start(os.getpid()), time.process_time()
    while time.process_time() - began < 0.05:
        pass
    usage = meter.stop()
    assert 0.05 <= usage.cpu_s < 5
    assert usage.foreign_cores >= 0


@pytest.mark.benchmarks
def test_memory_counts_children_too() -> None:
    """A child that holds 64 MiB is seen from the parent's side, and no longer once it ended."""
    before = resident_bytes(os.getpid())
    hold = "import sys; held = b'x' * (64 << 20); print(len(held), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        held = resident_bytes(os.getpid())
        assert resident_bytes(child.pid) > 64 << 20
        assert held - before > 64 << 20
        child.communicate(b"")
    assert resident_bytes(child.pid) == 0
