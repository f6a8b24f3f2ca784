"""A rollout in one process: the arm of each request, and the counts of their ends."""

from functools import lru_cache
from hashlib import blake2b
from math import inf
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
_NOTHING = ArmTally()


class LiveStratum:
    """The counts of one process under one share. `tally` is replaced at each report; None after a reset."""

    __slots__ = ("number", "rollout", "tally")

    def __init__(self, rollout: "LiveRollout", number: int) -> None:
        self.rollout = rollout
        self.number = number
        self.tally: ArmTally | None = ArmTally()


class Assignment:
    """The arm of one request, while its rollout counts. Its end counts once."""

    __slots__ = ("_stratum", "arm", "subject")

    def __init__(self, stratum: LiveStratum, arm: int, subject: int | None) -> None:
        self._stratum: LiveStratum | None = stratum
        self.arm = arm
        """0 for `from`, 1 for `to`."""
        self.subject = subject
        """The number of the request's subject; None if each request is its own."""

    def end(self, outcome: ArmOutcome) -> None:
        """Count the end of the request under the share with which it was assigned. Only the first call counts."""
        stratum, self._stratum = self._stratum, None
        if stratum is not None and stratum.tally is not None:
            stratum.rollout.count(stratum.tally, self, outcome)

    def answered(self, first_byte: float, total: float) -> None:
        """Count a whole answer without retries: `end`, but faster if it is too fast for any event."""
        stratum = self._stratum
        if stratum is not None and total > stratum.rollout.fast:
            self.end(ArmOutcome("", first_byte, total))
        elif stratum is not None and (tally := stratum.tally) is not None:
            self._stratum = None
            tally.ended[self.arm] += 1
            times, number = tally.first_byte[self.arm], bin_of(first_byte)
            times[number] = times.get(number, 0) + 1


class LiveRollout:
    """The shares of the two arms in force, and the counts since the last report. State of one event loop."""

    def __init__(self, config: RolloutConfig, fingerprint: str, model: str) -> None:
        self.name = config.name
        self.fingerprint = fingerprint
        self.generation = 0
        self.share = 0.0
        self.stratum: int | None = None
        self.fast = 0.0
        """Seconds up to which no time of an answer is an event."""
        self.arms: Arms = ()
        self._current: LiveStratum | None = None
        self._draws = config.sticky == "request"
        self._labels = (config.source.label, config.to.label)
        self._sticky = config.sticky
        self.salt = f"{model}#rollout {config.name}"
        self._events: tuple[tuple[str, Occurs], ...] = ()
        self._strata: dict[int, LiveStratum] = {}
        self._subjects: dict[str, set[int]] = {}
        self.configure(config)
        self._share(0.0)

    def configure(self, config: RolloutConfig) -> None:
        """Apply a changed configuration of the same arms."""
        self._events = tuple((event.key, occurs(event)) for event in config.events())
        self.fast = min((event.slower_than for event in config.events() if event.slower_than is not None), default=inf)

    def apply(self, order: ShareOrder) -> None:
        """Put a share in force, for new requests."""
        if order.generation != self.generation:
            self.generation = order.generation
            for stratum in self._strata.values():
                stratum.tally = None
            self._strata, self._subjects = {}, {}
        self._share(order.share)
        self.stratum = order.stratum
        self._current = None if order.stratum is None else self._stratum(order.stratum)

    def _share(self, share: float) -> None:
        self.share = share
        source, to = self._labels
        self.arms = ((source, 1 - share), (to, share))

    def choose(self, request: SplitRequest, caller: Caller, rng: Random) -> int:
        """The arm of a request: 0 for `from`, 1 for `to`."""
        if self._draws and not request.sequence:
            return int(rng.random() < self.share)
        arm = arm_for(self._sticky, request, caller, self.salt, self.arms, rng)
        return int(arm == self._labels[1])

    def assign(self, arm: int, request: SplitRequest, caller: Caller) -> Assignment | None:
        """Count that a request got an arm. None while nothing is counted."""
        stratum = self._current
        if stratum is None or (tally := stratum.tally) is None:
            return None
        if self._draws and not request.sequence:
            tally.assigned[arm] += 1
            return Assignment(stratum, arm, None)
        subject = steady_subject(self._sticky, request, caller) or caller.tenant
        number = subject_number(subject, self.salt)
        self._count_subject(tally, "", number, arm)
        return Assignment(stratum, arm, number)

    def count(self, tally: ArmTally, assignment: Assignment, outcome: ArmOutcome) -> None:
        """Count the end of a request."""
        arm = assignment.arm
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

    def _stratum(self, number: int) -> LiveStratum:
        """The stratum of a number. Of too many, the oldest counts no more."""
        stratum = self._strata.get(number)
        if stratum is None:
            while len(self._strata) >= MOST_STRATA:
                self._strata.pop(next(iter(self._strata))).tally = None
            stratum = self._strata[number] = LiveStratum(self, number)
        return stratum

    def take(self) -> list[StratumTally]:
        """The counts since the last report."""
        taken = []
        for stratum in self._strata.values():
            if stratum.tally is not None and stratum.tally != _NOTHING:
                taken.append(StratumTally(self.name, self.generation, stratum.number, stratum.tally))
                stratum.tally = ArmTally()
        return taken


@lru_cache(_REMEMBERED)
def subject_number(subject: str, salt: str) -> int:
    """A number of 63 bits that stands for a subject, and from which the subject cannot be read."""
    text = f"{salt}\0{subject}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, person=b"rollout").digest(), "big") >> 1
