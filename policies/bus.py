"""Messages of brokers as requests: how many more may be received, their order by key, the topics of answers."""

from collections import deque
from typing import Generic, TypeVar

from config.schema.bus import ReplyConfig
from policies.batches.admission import PoolLoad
from policies.globs import GlobSet


def room_of(load: PoolLoad, in_work: int, concurrency: int) -> int:
    """The number of messages beside `in_work` messages; 0 while requests wait, or while no server is healthy."""
    if load.waiting:
        return 0
    return max(0, min(concurrency - in_work, load.capacity - load.in_flight))


T = TypeVar("T")


class KeyOrder(Generic[T]):
    """The items in work, and behind them those that wait, by key. The caller bounds their number."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[T]] = {}

    def begin(self, key: bytes, item: T) -> bool:
        """Whether an item may begin now. Otherwise `end` returns it later."""
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque()
            return True
        waiting.append(item)
        return False

    def end(self, key: bytes) -> T | None:
        """The item that begins now that the one before it has ended."""
        waiting = self._waiting[key]
        if waiting:
            return waiting.popleft()
        del self._waiting[key]
        return None


class ReplyTopics:
    """The topics of one binding."""

    __slots__ = ("_allowed", "_topic")

    def __init__(self, config: ReplyConfig) -> None:
        self._topic = config.topic
        self._allowed = GlobSet(config.allowed)

    def of(self, requested: str | None) -> str | None:
        """The topic of an answer; None for a topic that a message may not name."""
        if not requested or requested == self._topic:
            return self._topic
        return requested if requested in self._allowed else None
