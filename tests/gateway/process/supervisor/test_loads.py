from collections.abc import Callable, Iterator
from random import Random

import pytest

from gateway.process.supervisor.loads import PERIOD, LoadTable, WorkerLoads


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def table() -> Iterator[LoadTable]:
    made = LoadTable.create(8)
    yield made
    made.close()


def workers(table: LoadTable, count: int, clock: Callable[[], float]) -> list[WorkerLoads]:
    made = [table.loads(row, row, "http") for row in range(count)]
    for each in made:
        each._clock = clock
        each.join()
    return made


def none(_: int) -> int:
    return 0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_connections_that_arrive_anywhere_and_end_anywhere_are_even(table: LoadTable, count: int) -> None:
    clock, dice = Clock(), Random(count)
    members, held = workers(table, count, clock), [0] * count
    for _ in range(3000):
        clock.now += dice.expovariate(10)
        if dice.random() < 0.3 and max(held):
            ending = dice.choice([at for at, number in enumerate(held) if number])
            held[ending] -= 1
            members[ending].hold(held[ending])
        at = dice.randrange(count)
        least = members[at].least(none)
        to = at if least is None else least.slot
        held[to] += 1
        members[to].hold(held[to])
        members[to].count()
    assert max(held) - min(held) <= max(
        2, 3000 * 0.3 / 32
    )  # the ends are uneven, and recent connections count a little


def test_a_new_worker_does_not_receive_every_short_connection(table: LoadTable) -> None:
    clock = Clock()
    old, new = workers(table, 2, clock)
    old.hold(500)
    clock.now += 10 * PERIOD
    received = 0
    for _ in range(60_000):  # 1000 a second, which end at once
        clock.now += 0.001
        to = new if old.least(none) is not None else old
        to.count()
        received += to is new
    assert 30_000 < received < 45_000


def test_a_connection_on_its_way_counts(table: LoadTable) -> None:
    first, second, third = workers(table, 3, Clock())
    first.hold(2)
    least = first.least(none)
    assert least is not None
    other = {1: 2, 2: 1}[least.slot]
    another = first.least(lambda slot: 5 * (slot == least.slot))
    assert another is not None
    assert another.slot == other
    assert first.least(lambda slot: 5 * (slot != 0)) is None
    second.leave()
    third.leave()
    assert first.least(none) is None


def test_a_silent_worker_receives_nothing_until_its_words_change(table: LoadTable) -> None:
    first, second = workers(table, 2, Clock())
    first.hold(5)
    least = first.least(none)
    assert least is not None
    first.silence(least)
    assert first.least(none) is None
    second.hold(1)
    assert first.least(none) == second.seen(1)


def test_an_ended_worker_receives_nothing_and_kinds_are_apart(table: LoadTable) -> None:
    first, _ = workers(table, 2, Clock())
    first.hold(5)
    grpc = [table.loads(row, row, "grpc") for row in range(2)]
    for each in grpc:
        each.join()
    assert first.least(none) is not None
    assert grpc[0].least(none) is None
    table.clear(1)
    assert first.least(none) is None
