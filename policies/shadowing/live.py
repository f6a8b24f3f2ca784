"""A shadow in one process: its draws, its bounds, and its counts since the last report. State of one event loop."""

from collections import Counter
from math import inf
from random import Random

from policies.limits.limits import TokenBucket
from policies.rollouts.live import LiveComparison
from policies.shadowing.pairs import PairTally, ShadowSample
from policies.shadowing.planned import ShadowPlan

SAMPLE_SECONDS = 1.0
REASONS = (
    "rate", "concurrency", "memory", "size", "state", "effects", "cached", "same", "broken", "busy", "unavailable",
    "unreachable", "timeout", "failed", "comparison", "drain",
)  # fmt: skip
"""Why a drawn copy is not sent, or not compared."""


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
        self.config = plan.config
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
        self.config = config
        self._most = max(config.at_most.concurrency // workers, 1)

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
