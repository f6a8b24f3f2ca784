"""The continuation tokens of a list that a remote system sends in pages: each list has an end."""

from collections.abc import Hashable


class Cursors:
    """The tokens of one reading of a list. A server that repeats a page would be asked without end."""

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[Hashable] = set()

    def take(self, token: Hashable) -> bool:
        """Whether the next page may be read: its token is new, and the list has fewer than `most` pages."""
        if token in self._seen or len(self._seen) >= self._most:
            return False
        self._seen.add(token)
        return True
