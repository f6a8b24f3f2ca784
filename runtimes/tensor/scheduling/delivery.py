"""Delivers outcomes at once, or in the order of the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from adapters.tensors import Tensor
from runtimes.tensor.scheduling.pending import Pending


class Delivery:
    """Delivers each outcome at once."""

    def __iter__(self) -> Iterator[Pending]:
        """Requests whose outcome may be held."""
        return iter(())

    def enter(self, pending: Pending) -> None:
        """Record a request that has arrived."""

    def answer(self, pending: Pending, outputs: list[Tensor]) -> None:
        pending.answer(outputs)

    def fail(self, pending: Pending, error: Exception) -> None:
        pending.fail(error)

    def release(self) -> None:
        """Handle a request that was cancelled or failed."""


class OrderedDelivery(Delivery):
    """Holds outcomes until those of earlier requests. Cancelled and overdue requests hold none."""

    def __init__(self) -> None:
        self._line: deque[Pending] = deque()
        self._outcomes: dict[Pending, list[Tensor] | Exception] = {}

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._line)

    def enter(self, pending: Pending) -> None:
        self._line.append(pending)

    def answer(self, pending: Pending, outputs: list[Tensor]) -> None:
        self._outcomes[pending] = outputs
        self.release()

    def fail(self, pending: Pending, error: Exception) -> None:
        self._outcomes[pending] = error
        self.release()

    def release(self) -> None:
        """Release all outcomes whose turn has come."""
        while self._line and (self._line[0].done() or self._line[0] in self._outcomes):
            first = self._line.popleft()
            outcome = self._outcomes.pop(first, None)
            if isinstance(outcome, Exception):
                first.fail(outcome)
            elif outcome is not None:
                first.answer(outcome)
