"""A rollout in one process: the arm of each request, and the counts of their ends."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from random import Random

from config.schema.rollout import RolloutConfig
from policies.balancing.balance import Caller
from policies.rollouts.outcome import ArmOutcome, Occurs, occurs
from policies.rollouts.tally import ArmTally, ShareOrder, StratumTally
from policies.routing.split import Arms, SplitRequest, arm_for, steady_subject
from policies.sequential.quantiles import bin_of

MOST_SUBJECTS = 16_384
"""Subjects of one metric that count; those that come later do not, in any arm."""
MOST_STRATA = 64
"""Strata with counts that are not reported yet."""
_REMEMBERED = 16_384


class Assignment:
    """The arm of one request, while its rollout counts. `end` counts its end once."""

    __slots__ = ("_rollout", "arm", "generation", "stratum", "subject")

    def __init__(self, rollout: "LiveRollout", arm: int, stratum: int, subject: int | None) -> None:
        self._rollout: LiveRollout | None = rollout
        self.arm = arm
        """0 for `from`, 1 for `to`."""
        self.generation = rollout.generation
        self.stratum = stratum
        self.subject = subject
        """The number of the request's subject; None if each request is its own."""

    def end(self, outcome: ArmOutcome) -> None:
        """Count the end of the request under the share with which it was assigned. Only the first call counts."""
        rollout, self._rollout = self._rollout, None
        if rollout is not None:
            rollout.count(self, outcome)


class LiveRollout:
    """The shares of the two arms in force, and the counts since the last report. State of one event loop."""

    def __init__(self, config: RolloutConfig, fingerprint: str, model: str) -> None:
        self.name = config.name
        self.fingerprint = fingerprint
        self.generation = 0
        self.share = 0.0
        self.stratum: int | None = None
        self.arms: Arms = ()
        self._labels = (config.source.label, config.to.label)
        self._sticky = config.sticky
        self.salt = f"{model}#rollout {config.name}"
        self._events: tuple[tuple[str, Occurs], ...] = ()
        self._tallies: dict[int, ArmTally] = {}
        self._subjects: dict[str, set[int]] = {}
        self.configure(config)
        self._share(0.0)

    def configure(self, config: RolloutConfig) -> None:
        """Apply a changed configuration of the same arms."""
        self._events = tuple((event.key, occurs(event)) for event in config.events())

    def apply(self, order: ShareOrder) -> None:
        """Put a share in force, for new requests."""
        if order.generation != self.generation:
            self.generation = order.generation
            self._tallies, self._subjects = {}, {}
        self._share(order.share)
        self.stratum = order.stratum

    def _share(self, share: float) -> None:
        self.share = share
        source, to = self._labels
        self.arms = ((source, 1 - share), (to, share))

    def choose(self, request: SplitRequest, caller: Caller, rng: Random) -> int:
        """The arm of a request: 0 for `from`, 1 for `to`."""
        if self.share == 0.0:
            return 0
        arm = arm_for(self._sticky, request, caller, self.salt, self.arms, rng)
        return int(arm == self._labels[1])

    def assign(self, arm: int, request: SplitRequest, caller: Caller) -> Assignment | None:
        """Count that a request got an arm. None while nothing is counted."""
        stratum = self.stratum
        if stratum is None:
            return None
        subject = steady_subject(self._sticky, request, caller)
        number = None if subject is None else subject_number(subject, self.salt)
        tally = self._tally(stratum)
        if number is None:
            tally.assigned[arm] += 1
        else:
            self._count_subject(tally, "", number, arm)
        return Assignment(self, arm, stratum, number)

    def count(self, assignment: Assignment, outcome: ArmOutcome) -> None:
        """Count the end of a request."""
        if assignment.generation != self.generation:
            return
        arm, tally = assignment.arm, self._tally(assignment.stratum)
        if outcome.kind != "cancelled":
            tally.ended[arm] += 1
            if outcome.first_byte is not None:
                number = bin_of(outcome.first_byte)
                times = tally.first_byte[arm]
                times[number] = times.get(number, 0) + 1
        for key, happens in self._events:
            if happens(outcome):
                if assignment.subject is not None:
                    self._count_subject(tally, key, assignment.subject, arm)
                    continue
                pair = tally.events.get(key)
                if pair is None:
                    pair = tally.events[key] = [0, 0]
                pair[arm] += 1

    def _count_subject(self, tally: ArmTally, key: str, subject: int, arm: int) -> None:
        """Count a subject once for each key. Another process may count it too; the decider drops the second."""
        seen = self._subjects.setdefault(key, set())
        if subject not in seen and len(seen) < MOST_SUBJECTS:
            seen.add(subject)
            tally.subjects.setdefault(key, {})[subject] = arm

    def _tally(self, stratum: int) -> ArmTally:
        tally = self._tallies.get(stratum)
        if tally is None:
            while len(self._tallies) >= MOST_STRATA:
                del self._tallies[next(iter(self._tallies))]
            tally = self._tallies[stratum] = ArmTally()
        return tally

    def take(self) -> list[StratumTally]:
        """The counts since the last report."""
        tallies, self._tallies = self._tallies, {}
        return [StratumTally(self.name, self.generation, stratum, tally) for stratum, tally in tallies.items()]


@lru_cache(_REMEMBERED)
def subject_number(subject: str, salt: str) -> int:
    """A number of 63 bits that stands for a subject, and from which the subject cannot be read."""
    text = f"{salt}\0{subject}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, person=b"rollout").digest(), "big") >> 1


Rollouts = Callable[[str], LiveRollout | None]
"""The rollout of a name."""
