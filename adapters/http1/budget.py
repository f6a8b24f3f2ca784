"""Limits on the bytes that requests hold at once: for a process, and for each tenant in the process."""

from adapters.errors import InferenceError, LimitExceeded, Overloaded, TooLarge
from config.schema.units import HELD_COPIES

FREE_BYTES = 16 * 1024
"""A body up to this size is not charged: the limit on connections bounds the sum of such bodies."""
STEP = 256 * 1024
"""The amount that is reserved at a time for a body of unknown length."""
COPIES = HELD_COPIES
"""The maximum number of copies of a body in memory: received, decoded, and written to an upstream."""
RETRY_SECONDS = 1.0


class Budget:
    """A limit on held bytes. Each caller releases the number of bytes that it has reserved.

    A budget with a parent is a part of the parent: both count the bytes.
    """

    __slots__ = ("__weakref__", "_parent", "_tenant", "held", "limit", "most", "refused")

    def __init__(self, limit: int, parent: "Budget | None" = None, tenant: str = "") -> None:
        self.limit = limit
        self.held = 0
        self.most = 0  # the highest value of `held`
        self.refused = 0
        self._parent = parent
        self._tenant = tenant

    def take(self, size: int) -> None:
        """Reserve `size` bytes. Raises an `InferenceError`, and reserves nothing, above the limit."""
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
        """Release `size` bytes."""
        self.held -= size
        if self._parent is not None:
            self._parent.give(size)

    def force(self, size: int) -> None:
        """Count `size` bytes that are already in memory, even above the limit."""
        self.held += size
        if self.held > self.most:
            self.most = self.held
        if self._parent is not None:
            self._parent.force(size)

    def check(self) -> None:
        """Raise an `InferenceError` while the held bytes exceed the limit because clients read responses slowly."""
        parent = self._parent
        if parent is not None and (parent.held > parent.limit or parent._parent is not None):
            parent.check()
        if self.held > self.limit:
            self.refused += 1
            raise self._full(0)

    def _full(self, size: int) -> InferenceError:
        if size > self.limit:
            return TooLarge(f"The body does not fit in the {self.limit // COPIES} bytes that requests may hold here.")
        if self._tenant:
            return LimitExceeded(
                f"{self._tenant} has reached the limit of bytes of requests and answers for a tenant: "
                f"{self.limit}. Try again in {RETRY_SECONDS:.0f} s.",
                limit="memory",
                retry_after=RETRY_SECONDS,
            )
        return Overloaded(
            f"The server has reached its limit of bytes of requests and answers: {self.limit}. "
            f"Try again in {RETRY_SECONDS:.0f} s.",
            retry_after=RETRY_SECONDS,
        ).because("memory")
