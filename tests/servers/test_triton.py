"""A real Triton of a test leaves nothing behind."""

import time
from pathlib import Path

from loadtests.figures.cpu import processes, tree
from tests.servers.repositories import for_triton
from tests.servers.triton import triton

PATIENCE = 300.0


def test_nothing_of_it_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    with triton(for_triton(tmp_path, ["add_sub"])) as server:
        family = tree(server.pid, processes())
        assert len(family) > 1, "the python backend runs a process of its own"
    end = time.monotonic() + PATIENCE
    while (left := family & set(processes())) and time.monotonic() < end:
        time.sleep(0.05)  # the process that inherits them has yet to notice that they ended
    assert not left
    assert not list(Path("/dev/shm").glob(f"headrace_{server.ports.http}_*"))
