"""The budget for continuing broken streams."""

from policies.retry import RetryBudget

MOST = 2
"""Maximum of resumes for one stream."""


class ResumeBudget:
    """As many resumes in ten seconds as streams are open, and three.

    A stream may last for minutes, so a share of recent requests would not be meaningful. If an endpoint fails, all
    of its streams can be resumed once; successive failures of endpoints cannot cause a storm of resumes.
    """

    __slots__ = ("_budget", "open")

    def __init__(self) -> None:
        self._budget = RetryBudget(1.0)
        self.open = 0
        """The number of open streams."""

    def allow(self, now: float) -> bool:
        """Spend a resume if the budget allows it."""
        return self._budget.allow(now, self.open)
