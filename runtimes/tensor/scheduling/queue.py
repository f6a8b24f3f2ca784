"""Chooses the requests of the next batch, or waits for more.

    buckets      requests of one shape; only those can be joined
    urgency      across all buckets the request with the earliest deadline is first; a deadline later than
                 PATIENCE counts as PATIENCE, so that no request waits forever behind urgent ones
    levels       a lower priority counts as if it were due PATIENCE later, level by level: strict while waits are
                 short, and still not endless
    waiting      never while more cannot come, or when the device would idle for longer than joining saves
    admission    a request that cannot meet its deadline is refused at once

Pure: time is an argument, and nothing here waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Generic

from adapters.errors import CapacityError
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, QueuePolicy
from runtimes.tensor.scheduling.bucket import Bucket, W, Waiting
from runtimes.tensor.scheduling.latency import LatencyCurve

LONGEST_WAIT = 600.0
"""The longest time in the queue, for requests without another bound: every wait ends."""
MAX_QUEUE_SIZE = 4096
"""Waiting requests of each level, unless the model has a bound."""


class QueueRules:
    """The rules of one model. A level is a priority, 1 the most urgent, or 0 if there are none."""

    def __init__(self, rules: DynamicBatching) -> None:
        self._levels = rules.priority_levels
        self._default_level = rules.default_priority_level or rules.priority_levels
        self._policies = rules.priority_queue_policy if rules.priority_levels else {}
        self._policy = rules.default_queue_policy

    def level(self, priority: int) -> int:
        """The level of a request with this priority; the default level if it does not exist."""
        return priority if 1 <= priority <= self._levels else self._default_level

    def expiry(self, level: int, now: float, due: float, timeout: float) -> float:
        """The time at which the queue rejects or delays a request. `timeout` is the request's own, in seconds, 0 for
        none; it applies unless a configured policy forbids it."""
        policy = self._policies.get(level, self._policy) if level else self._policy
        limit = policy.default_timeout or LONGEST_WAIT
        if timeout > 0 and (policy.allow_timeout_override or policy == QueuePolicy()):
            limit = min(limit, timeout)
        return min(due, now + limit)

    def max_size(self, level: int) -> int:
        """The number of requests that may wait."""
        return self._policies.get(level, self._policy).max_queue_size or MAX_QUEUE_SIZE

    def delays(self, level: int) -> bool:
        """Whether an overdue request is delayed and not rejected."""
        return self._policies.get(level, self._policy).timeout_action == "delay"


_LONGER, _SHORTER = 1.08, 1 / 1.125
"""Changes of the estimate by a longer and a shorter gap: it converges to the gap that two of five are below. A mean
would count pauses between bursts, and a batch waits for gaps within a burst."""
_WINDOW = 64
"""The number of arrivals after which a peak becomes the previous peak; after as many again it is discarded."""


class Arrivals:
    """Estimates the number of callers. A caller sends its next request after its answer, so the number of callers is
    the recent maximum of requests in flight."""

    __slots__ = ("_count", "_peak", "_previous", "gap", "last")

    def __init__(self) -> None:
        self.gap = 0.0
        """Typical seconds between two arrivals."""
        self.last = float("-inf")
        self._count = 0
        self._peak = 0
        self._previous = 0

    def arrived(self, now: float, inside: int) -> None:
        """Record an arrival; the count of requests in flight includes it."""
        since = now - self.last
        if self.gap:
            self.gap *= _LONGER if since > self.gap else _SHORTER
        elif self._count:
            self.gap = since
        self.last = now
        self._count += 1
        if self._count > _WINDOW:
            self._count, self._previous, self._peak = 1, self._peak, 0
        self._peak = max(self._peak, inside)

    def expects(self, inside: int) -> bool:
        """Whether a known caller has no request in flight."""
        return inside < max(self._peak, self._previous)


PATIENCE = 5.0
"""Seconds."""
BEHIND = 12 * PATIENCE
"""Added to the urgency of a request whose time in the queue has ended, if it is delayed and not rejected."""


class BatchQueue(Generic[W]):
    """All requests that wait for one model. `now` never decreases."""

    def __init__(self, config: ModelConfig, curve: LatencyCurve, *, joins: bool = True) -> None:
        """`joins`: whether the model may get several requests at a time, if its configuration allows it."""
        rules = config.dynamic_batching or DynamicBatching()
        self.joins = joins and config.dynamic_batching is not None and config.max_batch_size > 1
        self.max_rows = max(1, config.max_batch_size)
        self.size = 0
        self.rows = 0
        self.wake_at = inf
        """The time of the next call of `next` if no request arrives or ends."""
        self.rules = QueueRules(rules)
        self._sizes: dict[int, int] = {}
        """The number of requests of each level that has any."""
        self._preferred = sorted(size for size in rules.preferred_batch_size if size <= self.max_rows)
        self._delay = rules.max_queue_delay if self.joins else 0.0
        self.patient = self._delay > 0
        """Whether the queue ever waits for more requests; then it needs the number in execution."""
        self._curve = curve
        self._arrivals = Arrivals()
        self._buckets: dict[Hashable, Bucket[W]] = {}
        self._heads: list[tuple[float, int, W, Bucket[W]]] = []  # of each bucket, and such as were once
        self._count = 0

    def __iter__(self) -> Iterator[W]:
        return (entry for bucket in self._buckets.values() for entry in bucket)

    # ── coming and leaving ────────────────────────────────────────────────────────────────────────────

    def is_full(self, level: int) -> bool:
        """Whether the queue of this level is full."""
        return self._sizes.get(level, 0) >= self.rules.max_size(level)

    def add(self, entry: W, now: float, inside: int = 0) -> None:
        """Queue a request, with the number in execution. Raises `CapacityError` if the queue is full."""
        level = entry.level
        size = self._sizes.get(level, 0)
        if self.is_full(level):
            raise CapacityError(
                f"{size} requests wait for this model already, which is the maximum; try again later.",
                code="queue_full",
                retry_after=size / self.max_rows * self._curve.predict(self.max_rows),
            )
        self._count += 1
        entry.order = self._count
        entry.urgency = min(entry.due, now + PATIENCE) + (level - 1) * PATIENCE
        entry.waiting = True
        bucket = self._buckets.get(entry.key)
        if bucket is None:
            bucket = self._buckets[entry.key] = Bucket(entry.key)
        bucket.push(entry)
        if bucket.announced is None or entry.urgency < bucket.announced.urgency:
            self._announce(bucket)
        self.size += 1
        self.rows += entry.rows
        self._sizes[level] = size + 1
        if self._delay:
            self._arrivals.arrived(now, self.size + inside)

    def remove(self, entry: W) -> None:
        """Remove an entry whose caller has disconnected or whose time has ended."""
        entry.waiting = False
        bucket = self._buckets[entry.key]
        bucket.left(entry)
        self._gone(entry)
        self._announce(bucket)

    def expire(self, now: float) -> list[W]:
        """Remove requests whose time in the queue has ended. Delayed ones stay behind all others."""
        over = [entry for entry in self if entry.expires <= now]
        gone = [entry for entry in over if min(entry.due, _longest(entry)) <= now or not self.rules.delays(entry.level)]
        for entry in gone:
            self.remove(entry)
        for entry in over:
            if entry.waiting:
                bucket = self._buckets[entry.key]
                entry.expires = min(entry.due, _longest(entry))
                entry.urgency += BEHIND
                bucket.left(entry)
                bucket.push(entry)
                bucket.announced = None
                self._announce(bucket)
        return gone

    def _gone(self, entry: W) -> None:
        self.size -= 1
        self.rows -= entry.rows
        self._sizes[entry.level] -= 1
        if not self._sizes[entry.level]:
            del self._sizes[entry.level]

    def _announce(self, bucket: Bucket[W]) -> None:
        """Update the place of a bucket whose head may have changed."""
        if not bucket.size:
            del self._buckets[bucket.key]
            return
        head = bucket.head()
        if head is not bucket.announced:
            bucket.announced = head
            heappush(self._heads, (head.urgency, head.order, head, bucket))
            if len(self._heads) > 2 * len(self._buckets) + 64:
                heads = ((bucket.head(), bucket) for bucket in self._buckets.values())
                self._heads = [(head.urgency, head.order, head, bucket) for head, bucket in heads]
                heapify(self._heads)

    # ── the next batch ────────────────────────────────────────────────────────────────────────────────

    def next(self, now: float, inside: int = 0) -> list[W]:
        """The next batch for an idle copy, with the number of requests in execution on others; empty if the copy should
        wait.

        `wake_at` is the time of the next call.
        """
        self.wake_at = inf
        if not self.size:
            return []
        bucket = self._first() if len(self._buckets) > 1 else next(iter(self._buckets.values()))
        if self._delay and self._wait_until(bucket, now, inside) > now:
            ready = self._ready(now, inside)
            if ready is None:
                return []
            bucket = ready
        return self._take(bucket)

    def _take(self, bucket: Bucket[W]) -> list[W]:
        rows = self.max_rows
        for preferred in self._preferred:
            if preferred <= bucket.rows:
                rows = preferred
        taken = bucket.take(rows, self.max_rows if self.joins else 1)
        for entry in taken:
            self._gone(entry)
        self._announce(bucket)
        return taken

    def _first(self) -> Bucket[W]:
        while True:
            urgency, _, entry, bucket = self._heads[0]
            if entry.waiting and entry.urgency == urgency and bucket.head() is entry:
                return bucket
            heappop(self._heads)

    def _ready(self, now: float, inside: int) -> Bucket[W] | None:
        """The most urgent bucket that waits for no further request."""
        ready = None
        for bucket in self._buckets.values():
            until = self._wait_until(bucket, now, inside)
            if until > now:
                self.wake_at = min(self.wake_at, until)
            elif ready is None or bucket.head().urgency < ready.head().urgency:
                ready = bucket
        return ready

    def _wait_until(self, bucket: Bucket[W], now: float, inside: int) -> float:
        """The longest useful wait for another request: no longer than joining saves, counted from the last arrival.

        A wait as long as its gain loses at most as much again.
        """
        rows = bucket.rows
        if rows >= self.max_rows or rows in self._preferred or not self._arrivals.expects(self.size + inside):
            return now
        saving = self._curve.saving(rows)
        if saving < self._arrivals.gap:
            return now
        head = bucket.head()
        return min(head.arrived + self._delay, self._arrivals.last + saving, head.expires)

    # ── admission ─────────────────────────────────────────────────────────────────────────────────────

    def admit(self, entry: W, now: float, free_in: float, copies: int) -> None:
        """Raises `CapacityError` if a request would miss its deadline. `free_in` seconds later a copy is free.

        Called before `add`, for requests with a deadline.
        """
        left = min(
            entry.due - now - self._curve.predict(entry.rows),
            inf if self.rules.delays(entry.level) else entry.expires - now,
        )
        wait = free_in + (self._wait_before(entry, now, left - free_in, copies) if left < inf else 0.0)
        if wait > left:
            raise CapacityError(
                f"The request would wait for {wait:.3g} s or more, and its deadline permits a wait of"
                f" {max(left, 0.0):.3g} s. Send it again later, or with a later deadline.",
                code="deadline_too_near",
                retry_after=wait,
            )

    def _wait_before(self, entry: W, now: float, left: float, copies: int) -> float:
        """Seconds that batches of more urgent requests take; counted no further than `left`."""
        if not self.size:
            return 0.0
        batch = self._curve.predict(self.max_rows if self.joins else entry.rows) / max(1, copies)
        if batch <= 0:
            return 0.0
        most = self.rows // self.max_rows + len(self._buckets) if self.joins else self.size
        if most * batch <= left:
            return 0.0  # even behind all of them there is time
        urgency = min(entry.due, now + PATIENCE) + (entry.level - 1) * PATIENCE
        enough = (int(max(left, 0.0) / batch) + 2) * self.max_rows
        batches = 0
        for bucket in self._buckets.values():
            batches += self._batches_before(bucket, entry, urgency, enough)
            if batches * batch > left:
                break
        return batches * batch

    def _batches_before(self, bucket: Bucket[W], entry: W, urgency: float, enough: int) -> int:
        rows, count = bucket.before(urgency, enough)
        if not self.joins:
            return count
        if bucket.key == entry.key:  # the last of them takes it along
            return (rows + entry.rows - 1) // self.max_rows
        return ceil(rows / self.max_rows)


def _longest(entry: Waiting) -> float:
    return entry.arrived + LONGEST_WAIT
