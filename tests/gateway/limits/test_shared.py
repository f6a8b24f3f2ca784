import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gateway.limits
import policies
from adapters.errors import LimitExceeded
from gateway.limits import mutexes, shared
from gateway.limits.ledger import Reservation
from gateway.limits.mutexes import LimitsUnavailable
from gateway.limits.shared import SharedTable
from tests.gateway.limits.timed_ledger import dollars, used
from tests.support.limit_workers import ALL, Worker, ended, forked, in_a_small_process

HERE = tuple(str(Path(module.__path__[0])) for module in (gateway.limits, policies))


@pytest.fixture
def table() -> Iterator[SharedTable]:
    made = SharedTable.create(4, few=64, many=64)
    yield made
    made.close()


@contextmanager
def killed_at(line: int) -> Iterator[None]:
    """The process dies before the so-manyth line of the limits' code."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line":
            lines += 1
            if lines == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    yield
    sys.settrace(None)


def test_two_workers_draw_on_one_allowance(table: SharedTable) -> None:
    one, two = Worker(table, 0, ALL), Worker(table, 1, ALL)
    held = one.reserve(400, usd=5)
    assert two.left() == {"requests": 8, "tokens": 600, "bytes": 1e6, "spend": 4, "concurrency": 3}
    with pytest.raises(LimitExceeded, match="tokens"):
        two.reserve(601)
    held.settle(used(100), dollars(1), 0.0)
    assert two.left() == one.left() == {"requests": 8, "tokens": 900, "bytes": 1e6, "spend": 8, "concurrency": 4}


def test_the_reservations_of_a_dead_worker_are_released(table: SharedTable) -> None:
    one, two = Worker(table, 0, ALL), Worker(table, 1, ALL)
    one.reserve(10, usd=1).settle(used(10), dollars(1), 0.0)
    one.reserve(400, usd=5)
    two.reserve(7, usd=2)
    assert table.release_worker(0, 0.0)
    assert table.release_worker(0, 0.0)  # again, and nothing happens
    assert two.left() == {"requests": 6, "tokens": 983, "bytes": 1e6, "spend": 6, "concurrency": 3}


def test_the_next_owner_of_a_slot_begins_at_zero(table: SharedTable) -> None:
    Worker(table, 0, ALL).reserve(400, usd=5)
    assert Worker(table, 0, ALL).left()["concurrency"] == 4


@pytest.mark.processes
@pytest.mark.parametrize("operation", ["reserve", "settle", "undo"])
def test_a_worker_killed_at_any_line_leaves_all_or_nothing(operation: str) -> None:
    """Only the request itself can be lost, which stays counted, and no lock stays shut."""
    in_a_small_process(f"kill_at_each_line({operation!r})", native="0", module=__name__)


def kill_at_each_line(operation: str) -> None:
    limits = [ALL, {"tokens": "0.5k/month"}] if operation == "undo" else ALL
    for line in range(1, 2000):
        table = SharedTable.create(2, few=64, many=64)
        victim, other = Worker(table, 0, limits), Worker(table, 1, limits)
        held = victim.reserve(400, usd=5) if operation == "settle" else None

        def work(victim: Worker = victim, held: Reservation | None = held, line: int = line) -> None:
            with killed_at(line):
                if held is not None:
                    held.settle(used(100), dollars(1), 0.0)
                else:
                    victim.reserve(600 if operation == "undo" else 400, usd=5)

        status = ended(forked(work))
        assert table.release_worker(0, 0.0)
        left = other.left()
        assert left["concurrency"] == 4
        assert left["requests"] in (8, 9)
        spent = {(1000, 9)} if operation != "settle" else {(1000, 9), (900, 8)}
        assert (left["tokens"], left["spend"]) in spent, line
        other.reserve(400).settle(used(0), None, 0.0)
        for made in (table, victim.table, other.table):
            made.close()
        if status == 0 or (operation == "undo" and status == 99):
            assert line > 50
            return
        assert status == -signal.SIGKILL
    raise AssertionError("it never came to its end")


@pytest.mark.processes
@pytest.mark.parametrize("native", ["0", "1"])
def test_many_workers_killed_at_random_moments_lose_nothing(native: str) -> None:
    in_a_small_process("kill_at_random_moments()", native, __name__)


def kill_at_random_moments() -> None:
    table = SharedTable.create(4, few=64, many=64)
    limits = {"tokens": "1000/month", "spend": "100 usd/month", "concurrency": 3}
    chance = random.Random(7)

    def work(number: int) -> None:
        worker = Worker(table, number, limits)
        rng = random.Random(number)
        while True:
            held = [worker.reserve(rng.randrange(300), usd=rng.randrange(3)) for _ in range(rng.randrange(2))]
            for reservation in held:
                reservation.settle(used(0), None, 0.0)

    def start(number: int) -> int:
        return forked(lambda: work(number))

    pids = {number: start(number) for number in range(3)}
    ends = []
    for _ in range(60):
        time.sleep(chance.random() * 0.02)
        number = chance.randrange(3)
        os.kill(pids[number], signal.SIGKILL)
        ends.append(ended(pids[number]))
        while not table.release_worker(number, 0.0):
            pass
        pids[number] = start(number)
    for number, pid in pids.items():
        os.kill(pid, signal.SIGKILL)
        ends.append(ended(pid))
        assert table.release_worker(number, 0.0)
    assert set(ends) == {-signal.SIGKILL}, "limits refused what they had room for"
    assert Worker(table, 3, limits).left() == {"tokens": 1000, "spend": 100, "concurrency": 3}


@pytest.mark.processes
def test_four_processes_admit_exactly_the_limit(table: SharedTable) -> None:
    limits = [{"requests": "1000/month"}, {"requests": "2000/month", "per": "user"}]
    reader, writer = os.pipe()

    def work(number: int) -> None:
        worker, admitted = Worker(table, number, limits), 0
        for i in range(2500):
            try:
                worker.reserve(user=f"u{i % 3}").settle(used(1), None, 0.0)
                admitted += 1
            except LimitExceeded:
                pass
        os.write(writer, f"{admitted}\n".encode())

    pids = [forked(lambda number=number: work(number)) for number in range(4)]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0] * 4
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert sum(map(int, pipe)) == 1000


@pytest.mark.processes
def test_a_stopped_worker_with_a_lock_costs_others_a_bounded_wait_and_no_settlement(
    table: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutexes, "PATIENCE", 0.05)
    worker = Worker(table, 0, ALL)
    held = worker.reserve(400)
    ready, go = os.pipe()

    def work() -> None:
        stopped = SharedTable.attach(table.fd, worker=1)
        for stripe in range(shared.STRIPES):
            stopped.lock(stripe)
        os.write(go, b".")
        signal.pause()

    pid = forked(work)
    os.read(ready, 1)
    with pytest.raises(LimitsUnavailable) as refused:
        worker.reserve()
    assert refused.value.kind == "capacity"
    assert refused.value.retry_after == 1
    held.settle(used(100), None, 0.0)
    assert not table.release_worker(1)
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL
    assert table.release_worker(1)
    worker.reserve(0).settle(used(0), None, 0.0)
    assert worker.left()["tokens"] == 900
    assert worker.left()["concurrency"] == 4
    os.close(ready)
    os.close(go)


def test_workers_of_two_configurations_keep_the_share_used(table: SharedTable) -> None:
    old, new = Worker(table, 0, ALL), Worker(table, 1, {**ALL, "tokens": "2000/month", "spend": "2 usd/day"})
    old.reserve(400, usd=1).settle(used(400), dollars(1), 0.0)
    assert new.left()["tokens"] == 1200
    assert new.left()["spend"] == 1
    new.reserve(300).settle(used(300), None, 0.0)
    assert old.left()["tokens"] == 450
    assert old.left()["spend"] == 8
    old.configure({**ALL, "tokens": "2000/month"})
    assert old.left()["tokens"] == 900


def test_rows_make_room_when_idle_and_not_before(table: SharedTable) -> None:
    limits = {"tokens": "100/h", "per": "user"}
    one, two = Worker(table, 0, limits), Worker(table, 1, limits)

    def takes_all(worker: Worker, user: str, now: float) -> bool:
        try:
            worker.reserve(100, user=user, now=now).settle(used(100), None, now)
        except LimitExceeded:
            return False
        return True

    most = 64 // 4 + shared.PROBED
    assert takes_all(one, "u0", 0.0)
    assert not takes_all(two, "u0", 0.0)
    assert sum(takes_all(one, f"u{i}", 0.0) for i in range(1, 200)) <= most
    assert not takes_all(two, "u0", 0.0)
    assert takes_all(two, "newcomer", 3601.0)  # an hour later every debt is repaid
    assert not takes_all(one, "newcomer", 3601.0)
    assert takes_all(one, "u0", 3601.0)  # its row may be another's by now
    assert not takes_all(two, "u0", 3601.0)


def test_users_of_one_tenant_leave_room_for_those_of_others() -> None:
    parent = SharedTable.create(1, few=64, many=1024)
    flooder = Worker(parent, 0, {"requests": "1/month", "per": "user"})
    shares = 0
    for i in range(2000):
        try:
            flooder.reserve(user=f"u{i}").settle(used(1), None, 0.0)
        except LimitExceeded:
            shares += 1
    assert shares > 2000 - 1024 // 4 - shared.PROBED - 1
    parent.close()
    flooder.table.close()


def test_a_table_is_attached_to_by_path_too_and_nothing_else_is_taken_for_one(
    table: SharedTable, tmp_path: Path
) -> None:
    attached = SharedTable.attach(f"/proc/self/fd/{table.fd}", worker=2)
    attached.close()
    (tmp_path / "other").write_bytes(b"x" * 4096)
    with pytest.raises(ValueError, match="not a table"):
        SharedTable.attach(tmp_path / "other", worker=0)
    with pytest.raises(ValueError, match="workers 0 to 3"):
        SharedTable.attach(table.fd, worker=4)
