"""A shadow in one process: its draws, its bounds, and its counts since the last report. State of one event loop."""

from collections import Counter
from math import inf
from random import Random

from config.schema.money import Money, MoneyBudget
from policies.limits.budget import CalendarBudget
from policies.limits.limits import TokenBucket
from policies.rollouts.live import LiveComparison
from policies.shadowing.pairs import AnswerTimes, PairTally, ShadowSample
from policies.shadowing.planned import ShadowPlan

SAMPLE_SECONDS = 1.0
REASONS = (
    "rate", "concurrency", "spend", "memory", "size", "state", "effects", "cached", "same", "broken", "busy",
    "unavailable", "unreachable", "timeout", "failed", "comparison", "drain",
)  # fmt: skip
"""Why a drawn copy is not sent, or not compared."""


class SpendHold:
    """The reserved cost of one copy. `settle` it once, with the picos of all of its answers."""

    __slots__ = ("_budget", "_reserved", "_window", "picos")

    def __init__(self, budget: CalendarBudget | None, reserved: int, window: int) -> None:
        self.picos = 0
        """The cost so far."""
        self._budget = budget
        self._reserved = reserved
        self._window = window

    def settle(self) -> None:
        """Replace the reserved cost by the actual one."""
        if self._budget is not None:
            self._budget.settle(self._reserved, self.picos, self._window)


class LiveShadow:
    """One shadow. A reload that compares the same preserves it."""

    def __init__(self, plan: ShadowPlan) -> None:
        self.name = plan.name
        self.plan = plan
        self.running = 0
        self.copies: Counter[str] = Counter()
        """Copies by their end: `equal`, `differing`, or a reason of `REASONS`."""
        self.tokens: Counter[str] = Counter()
        """Tokens of the copies, on the operator's bill: `prompt` and `completion`."""
        self.cost: Counter[str] = Counter()
        """Picos of the copies, on the operator's bill, by currency."""
        self.config = plan.config
        self._budget: CalendarBudget | None = None
        self._samples: list[ShadowSample] = []
        self._sampled_at = -inf
        self._bucket: TokenBucket | None = None
        self._tally = PairTally()
        self._most = 1

    def configure(self, plan: ShadowPlan, workers: int) -> None:
        """Apply shares and bounds of the same comparison. `workers` processes have equal parts of the bounds."""
        config, self.plan = plan.config, plan
        if self._bucket is None or config.at_most != self.config.at_most:
            amount, period = config.at_most.requests
            self._bucket = TokenBucket(max(amount / workers, 1.0), period * max(workers / amount, 1.0), 0.0)
            self._limit_spend(config.at_most.spend, workers)
        self.config = config
        self._most = max(config.at_most.concurrency // workers, 1)

    def _limit_spend(self, spend: MoneyBudget | None, workers: int) -> None:
        """Apply a budget. The amount that is used in this period remains."""
        before = self._budget
        if spend is None:
            self._budget = None
        elif before is not None and before.period == spend.period:
            before.amount = spend.picos // workers
        else:
            self._budget = CalendarBudget(spend.picos // workers, spend.period, 0.0)

    def reserve(self, estimate: int, now: float) -> SpendHold | None:
        """Reserve the estimated picos of a copy at a Unix time. None if the budget refuses it."""
        budget = self._budget
        if budget is None:
            return SpendHold(None, 0, 0)
        reserved = budget.clamp(estimate)
        return None if budget.take(reserved, now) else SpendHold(budget, reserved, budget.window)

    def charge(self, cost: Money) -> None:
        """Count the cost of an answer."""
        self.cost[cost.currency] += cost.picos

    def draws(self, rng: Random, comparison: LiveComparison | None) -> bool:
        """Whether a request is copied: of a rollout, only before its first step."""
        return (comparison is None or comparison.shadows) and rng.random() < self.config.share

    def repeats(self, rng: Random) -> bool:
        """Whether the primary answers the copy once more."""
        return bool(self.config.noise) and rng.random() < self.config.noise

    def begin(self, now: float) -> str:
        """Count the begin of a copy. Returns the reason if the bounds refuse it, and then nothing is counted."""
        if self.running >= self._most:
            return "concurrency"
        assert self._bucket is not None
        if self._bucket.take(1.0, now):
            return "rate"
        self.running += 1
        return ""

    def end(self) -> None:
        """Count the end of a copy that began."""
        self.running -= 1

    def drop(self, reason: str) -> None:
        """Count a copy that is not compared."""
        self.copies[reason] += 1

    def count_times(self, primary: AnswerTimes, shadow: AnswerTimes) -> None:
        """Count the times of both answers of a compared copy."""
        self._tally.count_times(primary, shadow)

    def count(self, fields: tuple[str, ...], repeat_differs: bool | None) -> None:
        """Count a compared copy."""
        self.copies["differing" if fields else "equal"] += 1
        self._tally.count(fields, repeat_differs)

    def take(self) -> PairTally | None:
        """The counts since the last report; None without any."""
        tally, self._tally = self._tally, PairTally()
        return None if tally == PairTally() else tally

    def takes_sample(self, now: float) -> bool:
        """Whether a differing copy is stored: one in `SAMPLE_SECONDS` at most."""
        if len(self._samples) >= self.config.samples or now - self._sampled_at < SAMPLE_SECONDS:
            return False
        self._sampled_at = now
        return True

    def add_sample(self, sample: ShadowSample) -> None:
        """Hold a sample until the next report."""
        self._samples.append(sample)

    def take_samples(self) -> list[ShadowSample]:
        """The samples since the last report."""
        samples, self._samples = self._samples, []
        return samples
