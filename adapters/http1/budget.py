"""Bytes that requests may hold at once: of a process, and of each tenant in it."""

from adapters.errors import InferenceError, LimitExceeded, Overloaded, TooLarge
from config.schema.units import HELD_COPIES

FREE_BYTES = 16 * 1024
"""A body up to this is not charged: the number of connections bounds those."""
STEP = 256 * 1024
"""What a body of unknown length takes at a time."""
COPIES = HELD_COPIES
"""Times that the bytes of a body are in memory at most: received, decoded, and written to an upstream."""
RETRY_SECONDS = 1.0


class Budget:
    """What is taken is given back by the same caller. A budget with a parent is a part of it: both count."""

    __slots__ = ("_parent", "_tenant", "held", "limit", "most", "refused")

    def __init__(self, limit: int, parent: "Budget | None" = None, tenant: str = "") -> None:
        self.limit = limit
        self.held = 0
        self.most = 0  # ever held
        self.refused = 0
        self._parent = parent
        self._tenant = tenant

    def take(self, size: int) -> None:
        """Hold `size` bytes more, or raise an `InferenceError` and hold nothing."""
        if self._parent is not None:
            self._parent.take(size)
        held = self.held + size
        if held > self.limit:
            if self._parent is not None:
                self._parent.give(size)
            self.refused += 1
            raise self._full(size)
        self.held = held
        if held > self.most:
            self.most = held

    def give(self, size: int) -> None:
        """Hold `size` bytes less."""
        self.held -= size
        if self._parent is not None:
            self._parent.give(size)

    def force(self, size: int) -> None:
        """Hold `size` bytes that are here already, beyond the limit too."""
        self.held += size
        if self.held > self.most:
            self.most = self.held
        if self._parent is not None:
            self._parent.force(size)

    def check(self) -> None:
        """Raise an `InferenceError` while more is held than may be: clients are slow to take their answers."""
        if self._parent is not None:
            self._parent.check()
        if self.held > self.limit:
            self.refused += 1
            raise self._full(0)

    def _full(self, size: int) -> InferenceError:
        if size > self.limit:
            return TooLarge(f"The body does not fit in the {self.limit // COPIES} bytes that requests may hold here.")
        if self._tenant:
            return LimitExceeded(
                f"{self._tenant} holds as many bytes of requests and answers at once as a tenant may: "
                f"{self.limit}. Try again in {RETRY_SECONDS:.0f} s.",
                limit="memory",
                retry_after=RETRY_SECONDS,
            )
        return Overloaded(
            f"The server holds as many bytes of requests and answers at once as it may: {self.limit}. "
            f"Try again in {RETRY_SECONDS:.0f} s.",
            retry_after=RETRY_SECONDS,
        )
