"""Messages of one key run one after another; messages of different keys run at the same time."""

from collections import deque
from typing import Generic, TypeVar

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
