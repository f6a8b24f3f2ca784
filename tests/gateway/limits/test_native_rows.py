"""Rows of the shared table in the native core: killed at any instruction, and beside a process in Python alone."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from random import Random

import pytest

from adapters import native
from gateway.limits.shared import SharedTable
from gateway.limits.shared_allowance import SharedAllowance
from tests.gateway.limits.timed_ledger import NOON, used
from tests.support.limit_workers import ALL, Worker, ended, forked, in_a_small_process

PTRACE_TRACEME, PTRACE_SINGLESTEP = 0, 9
PICOS = 2 * 10**12
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Pair:
    """A table, a worker that can be killed, and another one."""

    def __init__(self) -> None:
        self.table = SharedTable.create(2, few=64, many=64)
        self.victim, self.other = (Worker(self.table, number, ALL) for number in range(2))
        self.victim.reserve(0).settle(used(0), None, 0.0)  # the row is usual from now on
        (allowance,) = self.victim.ledger.accounts["acme"].always
        assert isinstance(allowance, SharedAllowance)
        assert allowance._native is not None
        self.row, self.hold = allowance._native, allowance.take(used(100), PICOS, 0.0, NOON)

    def close(self) -> None:
        for table in (self.table, self.victim.table, self.other.table):
            table.close()

    def take(self) -> object:
        return self.row.take(used(400), PICOS, 0.0, NOON)

    def settle(self) -> object:
        assert self.hold is not None
        return self.row.settle(self.hold.reserved, self.hold.picos, self.hold.window, used(50), 0, 0.0)

    def undo(self) -> object:
        assert self.hold is not None
        return self.row.undo(self.hold.reserved, self.hold.picos, self.hold.window, 0.0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def step(work: Callable[[], object], most: int, see: Callable[[], None] = lambda: None) -> None:
    """Kill a process that does the work after `most` instructions, if it has not ended. `see` is called after each."""

    def traced() -> None:
        ptrace(PTRACE_TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        assert work()

    pid = forked(traced)
    os.waitpid(pid, 0)
    for _ in range(most):
        assert ptrace(PTRACE_SINGLESTEP, pid, None, None) == 0, os.strerror(ctypes.get_errno())
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        see()
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL


@pytest.mark.processes
@pytest.mark.parametrize("operation", ["take", "settle", "undo"])
def test_a_worker_killed_at_any_instruction_leaves_all_or_nothing(operation: str) -> None:
    in_a_small_process(f"kill_at_instructions({operation!r})", native="1", module=__name__)


def kill_at_instructions(operation: str) -> None:
    first = Pair()
    locks = list[bool]()
    step(getattr(first, operation), 10**6, lambda: locks.append(any(first.table._locks.owners)))
    first.close()
    with_lock = [number for number, locked in enumerate(locks) if locked]
    dice = Random(1)
    ends = set()
    for most in sorted([*dice.sample(with_lock, 20), *dice.sample(range(len(locks)), 5), 0, len(locks)]):
        pair = Pair()
        step(getattr(pair, operation), most)
        assert pair.table.release_worker(0, 0.0)
        left = pair.other.left()
        assert left["concurrency"] == 4
        ends.add((left["requests"], left["tokens"], left["spend"]))
        pair.other.reserve(0).settle(used(0), None, 0.0)
        pair.close()
    nothing, everything = (7, 1000, 9), {"take": (6, 1000, 9), "settle": (7, 950, 9), "undo": (8, 1000, 9)}
    assert ends == {nothing, everything[operation]}


def test_a_lock_in_use_and_another_key_are_left_to_python(pair: Pair) -> None:
    (allowance,) = pair.victim.ledger.accounts["acme"].always
    assert isinstance(allowance, SharedAllowance)
    stripe = allowance._stripe
    pair.other.table.lock(stripe)
    assert pair.take() is None
    assert not pair.settle()
    pair.other.table.unlock(stripe)
    allowance._q[0] ^= 1
    assert pair.take() is None
    assert not pair.undo()
    allowance._q[0] ^= 1
    assert pair.settle()


@pytest.mark.processes
def test_the_unfinished_change_of_a_dead_worker_is_left_to_python(pair: Pair) -> None:
    (allowance,) = pair.other.ledger.accounts["acme"].always
    assert isinstance(allowance, SharedAllowance)

    def die_in_the_middle() -> None:
        row = allowance._row
        base, column = pair.other.table.views(row)
        pair.other.table.lock(row % 256)
        pair.other.table.begin(row, 1, base, column)
        base[16:] = b"\1" * len(base[16:])
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(die_in_the_middle)) == -signal.SIGKILL
    assert pair.take() is None
    assert pair.take() is None
    assert pair.victim.left() == {"requests": 7, "tokens": 900, "bytes": 1e6, "spend": 7, "concurrency": 3}
    assert pair.take() is not None


def test_wrong_places_in_memory_are_refused() -> None:
    assert native.row_type is not None
    usual = {
        "row": 0, "column": 224, "journal": 512, "lock": 448, "key": (1, 2), "number": 0, "worker": 0, "rates": (),
        "longest": 0.0, "most": 1, "budget": None, "amount": 0, "period": 0,
    }  # fmt: skip
    native.row_type(bytearray(1024), **usual)  # type: ignore[arg-type]
    for name, place in (("row", 1000), ("row", -8), ("column", 1), ("journal", 800), ("lock", 1008)):
        with pytest.raises(ValueError, match="no such words"):
            native.row_type(bytearray(1024), **{**usual, name: place})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such unit"):
        native.row_type(bytearray(1024), **{**usual, "rates": ((5, object(), 1.0, 1.0, 1.0),)})  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        native.row_type(bytes(1024), **usual)  # type: ignore[arg-type]
