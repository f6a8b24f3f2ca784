"""The offset up to which all messages of a partition are done, while messages end in any order."""

from heapq import heappop, heappush


class OffsetWindow:
    """The messages of one partition that this member has received and not committed."""

    __slots__ = ("_done", "_open", "next")

    def __init__(self, first: int) -> None:
        self.next = first
        """The offset to commit: all messages below it are done."""
        self._open: list[int] = []
        self._done: set[int] = set()

    @property
    def size(self) -> int:
        """Messages at and above `next`."""
        return len(self._open)

    def begin(self, offset: int) -> None:
        """A message is received. Offsets rise, with gaps."""
        heappush(self._open, offset)

    def end(self, offset: int) -> bool:
        """A message is done. Returns whether `next` has moved."""
        self._done.add(offset)
        moved = False
        while self._open and self._open[0] in self._done:
            last = heappop(self._open)
            self._done.discard(last)
            self.next, moved = last + 1, True
        return moved
