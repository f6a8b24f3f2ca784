"""The limit of lines beside live requests of a server that answers in the order of arrival."""

from collections import deque
from heapq import heappop, heappush
from random import Random
from statistics import quantiles

import pytest

from policies.batches.admission import Admission, PoolLoad

SERVICE, SECONDS, MOST = 0.01, 300.0, 64


def run(rate: float, *, lines: bool) -> tuple[list[float], int]:
    """The seconds of each live request, and the number of answered lines. A live request takes four services."""
    rng, admission = Random(5), Admission(in_order=True)
    queue, arrivals = deque[tuple[bool, float]](), list[tuple[float, bool]]()
    now, free_at, own, answered = 0.0, 0.0, 0, 0
    live = list[float]()
    if rate:
        heappush(arrivals, (rng.expovariate(rate), True))
    while now < SECONDS:
        if lines:
            load = PoolLoad(256, own, 0)
            while admission.room(load, own, MOST, 0.1, now) > 0:
                own += 1
                queue.append((False, now))
                load = PoolLoad(256, own, 0)
        if not queue:
            now, _ = arrivals[0]
        while arrivals and arrivals[0][0] <= now:
            at, _ = heappop(arrivals)
            queue.append((True, at))
            heappush(arrivals, (at + rng.expovariate(rate), True))
        is_live, at = queue.popleft()
        now = free_at = max(now, free_at) + SERVICE * (4 if is_live else 1) * rng.uniform(0.9, 1.1)
        if is_live:
            live.append(now - at)
        else:
            admission.answered(own, now - at, MOST, now)
            own, answered = own - 1, answered + 1
    return live, answered


@pytest.mark.parametrize("rate", [0.0, 2.0, 8.0, 14.0])
def test_live_requests_hardly_wait_and_lines_take_the_rest(rate: float) -> None:
    beside, answered = run(rate, lines=True)
    left = SECONDS * (1.0 - 4 * SERVICE * rate)
    assert answered * SERVICE >= 0.8 * left
    if rate:
        alone, _ = run(rate, lines=False)
        assert p95(beside) <= 1.1 * p95(alone) + 4 * SERVICE  # few lines wait before it


def p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


def test_parallel_servers_get_as_many_lines_as_they_answer_at_once() -> None:
    """Eight workers: answers take no longer until eight lines run."""
    admission, now, ends, own = Admission(in_order=True), 0.0, list[tuple[float, float]](), 0
    workers = [0.0] * 8
    for _ in range(20_000):
        while admission.room(PoolLoad(256, own, 0), own, MOST, 0.1, now) > 0:
            free = heappop(workers)
            heappush(workers, max(free, now) + SERVICE)
            heappush(ends, (max(free, now) + SERVICE, now))
            own += 1
        now, began = heappop(ends)
        admission.answered(own, now - began, MOST, now)
        own -= 1
    assert 7.0 <= admission.limit <= 16.0
