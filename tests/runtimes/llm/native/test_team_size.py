"""How many threads a step uses: on made machines, and on this one while other processes take its cores."""

import os
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.native.build import targets
from runtimes.llm.native.executor import CROWDED, TeamSize
from tests.runtimes.llm.native.models import CORES, chunk, native, pages, shape, tokens

STEP = 0.02


def lost(cores: int, threads: int, busy: int) -> float:
    """Cores that `threads` wait for beside `busy` programs that never rest: those that have a core each share it, and
    fewer threads move away."""
    if threads == cores:
        return 0.5 * busy
    return threads * max(0.0, 1 - cores / (threads + busy))


def run(team: TeamSize, cores: int, busy: int, seconds: float) -> list[int]:
    """The threads of each step."""
    sizes = []
    for _ in range(int(seconds / STEP)):
        sizes.append(team.size)
        team.after(lost(cores, team.size, busy) * STEP, STEP)
    return sizes


@given(cores=st.integers(2, 16), data=st.data())
def test_steps_leave_the_cores_that_others_use(cores: int, data: st.DataObject) -> None:
    busy = data.draw(st.integers(1, cores))
    team = TeamSize(cores)
    run(team, cores, busy, 60)
    later = run(team, cores, busy, 60)
    crowded = [size for size in later if lost(cores, size, busy) > CROWDED and size > 1]
    assert len(crowded) < 0.03 * len(later)
    assert max(later.count(size) * size for size in set(later)) >= 0.5 * max(1, cores - busy)


@given(cores=st.integers(2, 16), busy=st.integers(1, 16))
def test_all_threads_return_when_the_cores_are_free(cores: int, busy: int) -> None:
    team = TeamSize(cores)
    run(team, cores, min(busy, cores), 100)
    run(team, cores, 0, 40)
    assert team.size == cores


@given(st.lists(st.floats(0, 0.9 * CROWDED), max_size=500))
def test_short_turns_of_other_processes_change_nothing(shares: list[float]) -> None:
    team = TeamSize(4)
    assert all(team.after(share * STEP, STEP) == 4 for share in shares)


def test_a_burst_of_a_fraction_of_a_second_changes_nothing() -> None:
    team = TeamSize(2)
    for _ in range(50):
        for waited in (STEP, STEP, 0, 0, 0, 0, 0, 0, 0, 0):
            assert team.after(waited, STEP) == 2


@pytest.mark.processes
@pytest.mark.skipif(len(CORES) < 2, reason="needs Linux, and two cores")
def test_a_busy_machine_takes_threads_and_changes_no_bit() -> None:
    executor = native(shape(num_layers=2), targets()[0], threads=len(CORES))
    prompt, table = tokens(400), pages(400)
    expected = native(shape(), targets()[0], threads=1).logits([chunk(0, prompt, table)], range(400)).clone()
    spin = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile os.getppid() == int(sys.argv[2]): pass"
    busy = [subprocess.Popen([sys.executable, "-c", spin, str(core), str(os.getpid())]) for core in CORES]
    try:
        end = time.monotonic() + 60
        while executor.active_threads == len(CORES) and time.monotonic() < end:
            assert torch.equal(executor.logits([chunk(0, prompt, table)], range(400)), expected)
        assert executor.active_threads < len(CORES)
        for _ in range(20):
            assert torch.equal(executor.logits([chunk(0, prompt, table)], range(400)), expected)
    finally:
        for process in busy:
            process.kill()
            process.wait()
        executor.close()
