"""Requests that may share a batch, the most urgent first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """The fields of a request that a queue reads. Times are absolute seconds."""

    key: Hashable
    """Equal for requests of one batch: the shapes of their rows."""
    rows: int
    level: int
    """Priority: 1 is the most urgent; 0 without priorities."""
    arrived: float
    due: float
    """The time at which its caller stops waiting, or infinite."""
    expires: float
    """The time at which the queue rejects or delays it."""
    urgency: float
    """The place in the queue: the lowest is next."""
    order: int
    """The number of requests before it."""
    waiting: bool
    """Whether it is in the queue."""


W = TypeVar("W", bound=Waiting)


class Bucket(Generic[W]):
    """A heap. Removed entries stay in it until they reach the top, or until they are the majority."""

    __slots__ = ("_heap", "announced", "key", "rows", "size")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.size = 0
        self.rows = 0
        self.announced: W | None = None
        """The first entry of the bucket."""
        self._heap: list[tuple[float, int, W]] = []

    def __iter__(self) -> Iterator[W]:
        return (entry for urgency, _, entry in self._heap if entry.waiting and entry.urgency == urgency)

    def push(self, entry: W) -> None:
        heappush(self._heap, (entry.urgency, entry.order, entry))
        self.size += 1
        self.rows += entry.rows

    def left(self, entry: W) -> None:
        """Whether an entry is stale: its request has been removed, or has another place."""
        self.size -= 1
        self.rows -= entry.rows
        if len(self._heap) > 2 * self.size + 16:
            self._heap = [(entry.urgency, entry.order, entry) for entry in self]
            heapify(self._heap)

    def head(self) -> W:
        """The most urgent request. Raises IndexError if the bucket is empty."""
        heap = self._heap
        while True:
            urgency, _, entry = heap[0]
            if entry.waiting and entry.urgency == urgency:
                return entry
            heappop(heap)

    def take(self, rows: int, count: int) -> list[W]:
        """Remove the first requests, up to the given rows and members; at least one."""
        taken: list[W] = []
        heap = self._heap
        while self.size and len(taken) < count:
            entry = self.head()
            rows -= entry.rows
            if rows < 0 and taken:
                break
            heappop(heap)
            entry.waiting = False
            self.size -= 1
            self.rows -= entry.rows
            taken.append(entry)
        return taken

    def before(self, urgency: float, enough: int) -> tuple[int, int]:
        """Rows and number of the requests that are more urgent; the count stops at `enough`."""
        heap, rows, count, stack = self._heap, 0, 0, [0]
        while stack and count < enough:
            at = stack.pop()
            if at >= len(heap) or heap[at][0] > urgency:
                continue
            at_urgency, _, entry = heap[at]
            if entry.waiting and entry.urgency == at_urgency:
                rows += entry.rows
                count += 1
            stack += (2 * at + 1, 2 * at + 2)
        return rows, count
