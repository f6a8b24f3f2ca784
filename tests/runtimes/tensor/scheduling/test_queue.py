"""The contents of the next batch, and the decision to wait for more: pure, with time as a number."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

import pytest

from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, QueuePolicy
from runtimes.tensor.scheduling.latency import LatencyCurve
from runtimes.tensor.scheduling.queue import LONGEST_WAIT, PATIENCE, BatchQueue

pytestmark = pytest.mark.plain


@dataclass(eq=False, slots=True)
class Entry:
    name: str = ""
    rows: int = 1
    key: Hashable = None
    level: int = 0
    arrived: float = 0.0
    due: float = inf
    expires: float = inf
    urgency: float = 0.0
    order: int = 0
    waiting: bool = False


def make(max_batch_size: int = 8, **rules: object) -> tuple[BatchQueue[Entry], LatencyCurve]:
    curve = LatencyCurve()
    batching = DynamicBatching(**rules)  # type: ignore[arg-type]
    return BatchQueue(ModelConfig("m", "b", max_batch_size=max_batch_size, dynamic_batching=batching), curve), curve


def names(batch: list[Entry]) -> str:
    return "".join(entry.name for entry in batch)


def test_the_earliest_deadline_is_first_with_requests_of_its_shape() -> None:
    queue, _ = make(max_batch_size=2)
    for name, key, due in (("a", 1, inf), ("b", 2, 4.0), ("c", 1, 3.0), ("d", 2, inf), ("e", 1, inf)):
        queue.add(Entry(name, key=key, due=due), 0.0)
    assert [names(queue.next(0.0)) for _ in range(4)] == ["ca", "bd", "e", ""]


def test_urgent_requests_do_not_starve_others() -> None:
    queue, _ = make(max_batch_size=1, priority_levels=2, default_priority_level=1)
    queue.add(Entry("z", level=2), 0.0)
    served = ""
    for second in range(20):
        queue.add(Entry("a", level=1, due=second + 1.0), float(second))
        served += names(queue.next(float(second)))
        if "z" in served:
            break
    assert served.index("z") <= 2 * PATIENCE


def test_a_batch_has_no_more_rows_than_it_may_and_requests_stay_whole() -> None:
    queue, _ = make(max_batch_size=8)
    for name, rows in (("a", 5), ("b", 3), ("c", 6), ("d", 3)):
        queue.add(Entry(name, rows), 0.0)
    assert [names(queue.next(0.0)) for _ in range(3)] == ["ab", "c", "d"]


@pytest.mark.parametrize(("waiting", "batches"), [(3, [2, 1]), (6, [4, 2]), (9, [4, 4, 1])])
def test_a_preferred_size_is_taken_where_there_is_enough(waiting: int, batches: list[int]) -> None:
    queue, _ = make(preferred_batch_size=(2, 4))
    for _ in range(waiting):
        queue.add(Entry(), 0.0)
    assert [len(queue.next(0.0)) for _ in batches] == batches


def measured(queue: BatchQueue[Entry], callers: int, gap: float) -> float:
    """`callers` callers arrive in turn, `gap` seconds apart; the time of the last arrival."""
    now = 0.0
    for _ in range(20):
        for _ in range(callers):
            now += gap
            queue.add(Entry(arrived=now), now)
        while queue.next(now):
            pass
        now += 1.0
        while queue.next(now):
            pass
    return now


def test_nothing_waits_without_a_delay() -> None:
    queue, curve = make()
    for rows in (1, 8):
        curve.observe(rows, 1.0)
    now = measured(queue, 8, 0.001)
    queue.add(Entry("a", arrived=now), now)
    assert names(queue.next(now)) == "a"


def test_waiting_ends_with_the_last_caller_that_can_come() -> None:
    queue, curve = make(max_queue_delay=0.5)
    for rows in (1, 8):
        curve.observe(rows, 1.0)
    now = measured(queue, 3, 0.001)
    for name in "abc":
        assert not queue.next(now)
        queue.add(Entry(name, arrived=now), now)
    assert names(queue.next(now)) == "abc"


def test_waiting_ends_when_the_device_would_idle_longer_than_joining_saves() -> None:
    queue, curve = make(max_queue_delay=0.5)
    curve.observe(1, 0.010)
    curve.observe(2, 0.012)  # a second row costs 2 ms instead of 10
    now = measured(queue, 3, 0.001)
    queue.add(Entry("a", arrived=now), now)
    assert not queue.next(now)
    assert queue.wake_at == pytest.approx(now + 0.008)
    assert names(queue.next(queue.wake_at)) == "a"


def test_waiting_ends_with_the_delay_at_the_latest() -> None:
    queue, curve = make(max_queue_delay=0.005)
    for rows in (1, 8):
        curve.observe(rows, 1.0)
    now = measured(queue, 3, 0.001)
    queue.add(Entry("a", arrived=now), now)
    assert not queue.next(now)
    assert queue.wake_at == pytest.approx(now + 0.005)


def test_a_batch_does_not_wait_for_rare_callers_or_rows_without_savings() -> None:
    queue, curve = make(max_queue_delay=0.5)
    for rows in (1, 8):
        curve.observe(rows, 0.010)
    now = measured(queue, 3, 0.4)  # joining saves 10 ms, and the next comes in 400
    queue.add(Entry("a", arrived=now), now)
    assert names(queue.next(now)) == "a"
    queue, curve = make(max_queue_delay=0.5)
    for rows in (1, 8):
        curve.observe(rows, 0.010 * rows)
    now = measured(queue, 3, 0.001)
    queue.add(Entry("a", arrived=now), now)
    assert names(queue.next(now)) == "a"


def test_another_shape_goes_on_while_one_waits() -> None:
    queue, curve = make(max_batch_size=2, max_queue_delay=0.5)
    for rows in (1, 2):
        curve.observe(rows, 1.0)
    now = measured(queue, 4, 0.001)
    for name, key in (("a", 1), ("b", 2), ("c", 2)):
        queue.add(Entry(name, key=key, arrived=now), now)
    assert names(queue.next(now)) == "bc"
    assert not queue.next(now)
    assert queue.wake_at < inf


def test_a_delayed_request_falls_behind_and_another_is_rejected() -> None:
    policies = {2: QueuePolicy(default_timeout=1.0, timeout_action="delay")}
    queue, _ = make(
        max_batch_size=1,
        priority_levels=2,
        default_priority_level=1,
        default_queue_policy=QueuePolicy(default_timeout=1.0),
        priority_queue_policy=policies,
    )
    for name, level in (("a", 1), ("b", 2), ("c", 1)):
        queue.add(Entry(name, level=level, expires=queue.rules.expiry(level, 0.0, inf, 0)), 0.0)
    assert names(queue.next(0.0)) == "a"
    assert names(queue.expire(1.0)) == "c"
    queue.add(Entry("d", level=2), 1.0)
    assert [names(queue.next(1.0)) for _ in range(3)] == ["d", "b", ""]


def test_every_wait_ends_also_of_those_that_are_delayed() -> None:
    policy = QueuePolicy(default_timeout=1.0, timeout_action="delay")
    for written in (QueuePolicy(), policy):
        queue, _ = make(default_queue_policy=written)
        queue.add(Entry("a", expires=queue.rules.expiry(0, 0.0, inf, 0)), 0.0)
        assert not queue.expire(LONGEST_WAIT - 1)
        assert names(queue.expire(LONGEST_WAIT)) == "a"
        assert queue.size == queue.rows == 0


def test_latency_is_measured_by_size_and_interpolated() -> None:
    curve = LatencyCurve()
    assert curve.predict(4) == 0.0
    curve.observe(1, 1.0)
    assert curve.predict(1) == curve.predict(100) == 1.0
    curve.observe(5, 3.0)
    assert [curve.predict(rows) for rows in (1, 2, 3, 5, 7)] == [1.0, 1.5, 2.0, 3.0, 4.0]
    assert curve.saving(1) == pytest.approx(0.5)
    for _ in range(200):
        curve.observe(5, 9.0)
    assert curve.predict(5) == pytest.approx(9.0, rel=0.01)
    curve.observe(1000, 1.0)
    assert curve.predict(1001) == 1.0
    assert curve.predict(2000) >= 1.0
