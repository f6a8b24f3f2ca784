"""Whether a stream that broke may be carried on."""

from policies.retry import RetryBudget

MOST = 2
"""Times that one stream is."""


class ResumeBudget:
    """As many resumes in ten seconds as streams are open, and three.

    A stream may last for minutes, so that a share of recent requests would say nothing about it. When an
    endpoint dies all of its streams can be carried on once; endpoints that die one after the other cannot make
    a storm of it.
    """

    __slots__ = ("_budget", "open")

    def __init__(self) -> None:
        self._budget = RetryBudget(1.0)
        self.open = 0
        """Streams that have begun and not ended."""

    def allow(self, now: float) -> bool:
        """Whether one more fits; if so it is spent."""
        return self._budget.allow(now, self.open)
