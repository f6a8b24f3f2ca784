"""The possible fates of one call at an endpoint."""

from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal[
    "good", "refused", "slow", "hangs", "head_only", "stalls", "cut_at_once", "cut_in_body", "ends_early", "garbage",
    "garbage_body", "error_event", "error_in_200", "wrong_type", "overloaded", "failed", "not_found", "twice",
]  # fmt: skip
CALLERS = (400, 413, 422)
OVERLOADED = (429, 503, 529)
FAILED = (500, 502, 504, 408, 401, 403)
# Beyond every limit on silence that a story sets.
LONG = 30.0
MOST_WORDS = 8
# The least patience that a story's routes have with a first byte.
PATIENCE = 1.0


@dataclass(slots=True)
class Fate:
    """A call's script: `latency` until its head, words with `gap` between, broken before number `after`."""

    kind: Kind
    latency: float
    gap: float
    after: int
    status: int
    hard: bool
    """Whether a cut is a reset; otherwise it is a close, as after a whole answer."""
    usage: bool
    retry_after: str

    @property
    def is_sin(self) -> bool:
        """Whether the endpoint may be blamed for it. `twice` answers rightly and then talks on, unasked."""
        return self.kind not in ("good", "refused", "twice") or self.latency >= PATIENCE


@dataclass(frozen=True, slots=True)
class Mood:
    """How an endpoint behaves for a while: the chance of each kind of fault."""

    name: str
    faults: dict[Kind, float]
    latency: float = 0.2


FINE = Mood("fine", {})
MOODS = (
    FINE,
    Mood("sluggish", {"slow": 0.3}, latency=0.8),
    Mood("hung", {"hangs": 0.7, "head_only": 0.2}),
    Mood("stalling", {"stalls": 0.6}),
    Mood("cutting", {"cut_at_once": 0.3, "cut_in_body": 0.5, "ends_early": 0.2}),
    Mood("garbling", {"garbage": 0.4, "garbage_body": 0.4}),
    Mood("lying", {"error_in_200": 0.4, "error_event": 0.4, "wrong_type": 0.1, "twice": 0.1}),
    Mood("overloaded", {"overloaded": 0.8}),
    Mood("failing", {"failed": 0.9}),
    Mood("ignorant", {"not_found": 1.0}),
    Mood("strict", {"refused": 0.9}),
    Mood(
        "moody",
        {"slow": 0.1, "stalls": 0.1, "cut_in_body": 0.1, "failed": 0.1, "overloaded": 0.1, "refused": 0.1},
    ),
)


def draw(mood: Mood, dice: Random) -> Fate:
    """The next call's."""
    kind: Kind = "good"
    point = dice.random()
    for fault, chance in mood.faults.items():
        point -= chance
        if point < 0:
            kind = fault
            break
    statuses = {"refused": CALLERS, "overloaded": OVERLOADED, "failed": FAILED, "not_found": (404,)}
    return Fate(
        kind=kind,
        latency=_latency(mood, kind, dice),
        gap=dice.choice((0.0, 0.05, 0.3)),
        after=dice.randint(0, MOST_WORDS),
        status=dice.choice(statuses.get(kind, (200,))),
        hard=dice.random() < 0.5,
        usage=dice.random() < 0.8,
        retry_after=dice.choice(("", "1", "2.5", "soon", "-3")),
    )


def _latency(mood: Mood, kind: Kind, dice: Random) -> float:
    if kind == "hangs":
        return LONG
    if kind == "slow":
        return dice.uniform(PATIENCE, 6.0)
    usual = dice.expovariate(1 / mood.latency)
    return min(usual, 0.9 * PATIENCE) if mood is FINE else usual
