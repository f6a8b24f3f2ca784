"""A rollout or an experiment in one process: the arm of each request, and the counts of their ends."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Protocol

from config.schema.rollout import EventConfig
from policies.facts import Facts
from policies.rollouts.counting import ArmCount, Assignment, Expected, LiveStratum, SubjectAssignment
from policies.rollouts.signed_ids import LARGEST_SUBJECT, IdSigner
from policies.rollouts.tally import MEASURING, ArmTally, ShareOrder, StratumTally
from policies.splits import LONGEST, Arms, choose, subject_reader, upper_ends

MOST_REMEMBERED = 65_536
"""Subjects of one metric that a process remembers."""
MOST_STRATA = 64
"""Strata with counts that are not reported yet."""


class Compared(Protocol):
    """The configuration of a rollout or an experiment."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def sticky(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def first_shares(self) -> tuple[float, ...]: ...
    @property
    def counts_tokens(self) -> bool: ...
    def events(self) -> tuple[EventConfig, ...]: ...


class LiveComparison:
    """The shares of the arms in force, and the counts since the last report. State of one event loop."""

    def __init__(self, config: Compared, fingerprint: str, model: str, signer: IdSigner | None = None) -> None:
        self.name = config.name
        self.kind = config.kind
        self.fingerprint = fingerprint
        self.generation = 0
        self.shares: tuple[float, ...] = ()
        self.stratum: int | None = None
        self.shadows = False
        """Whether requests are copied, before the first step of a rollout."""
        self.warm = False
        """Whether the old arm of a rollout must be able to serve."""
        self.arms: Arms = ()
        self.signer = signer
        """Signs the ids of requests; None for a comparison without feedback."""
        self.salt = f"{model}#{config.kind} {config.name}"
        self._bounds: dict[str, float] = {}
        self._expected = [Expected() for _ in config.labels] if config.counts_tokens else []
        self._counts: tuple[ArmCount, ...] = ()
        self._ends: Sequence[float] = ()
        self._chosen: dict[str, int] = {}
        """The arms of subjects under these shares."""
        self._assignments: dict[str, SubjectAssignment] = {}
        """The last assignment of each subject, which is counted."""
        self._events: tuple[EventConfig, ...] = ()
        self._draws = config.sticky == "request"
        self._labels = config.labels
        self._subject = subject_reader(config.sticky)
        self._strata: dict[int, LiveStratum] = {}
        self._subjects: dict[str, dict[int, int]] = {}
        self._requests = Random().getrandbits(63)
        self.configure(config)
        self.put_shares(config.first_shares)

    def configure(self, config: Compared) -> None:
        """Apply a changed configuration of the same arms."""
        self._events = config.events()
        for stratum in self._strata.values():
            stratum.configure(self._events)

    def apply(self, order: ShareOrder) -> None:
        """Put shares in force, for new requests."""
        if order.generation != self.generation:
            self.generation = order.generation
            for stratum in self._strata.values():
                stratum.tally = None
            self._strata, self._subjects = {}, {}
            self._assignments.clear()
        self.put_shares(order.shares)
        self.shadows, self.warm = order.shadows, order.warm
        self.stratum, self._bounds = order.stratum, order.bounds
        self._counts = () if order.stratum is None else self._stratum(order.stratum).counts

    def put_shares(self, shares: Sequence[float]) -> None:
        """Give the arms other shares of the requests."""
        if tuple(shares) != self.shares:
            self.shares = tuple(shares)
            self.arms = tuple(zip(self._labels, self.shares, strict=True))
            self._ends = upper_ends(self.shares)
            self._chosen.clear()

    def choose(self, facts: Facts, rng: Random) -> int:
        """The arm of a request."""
        if self._draws and not facts.sequence:
            return bisect_right(self._ends, rng.random())
        subject = self._subject(facts, facts) or facts.tenant
        arm = self._chosen.get(subject)
        if arm is None:
            arm = self._labels.index(choose(subject, self.salt, self.arms))
            if len(subject) <= LONGEST:
                if len(self._chosen) >= MOST_REMEMBERED:
                    self._chosen.clear()
                self._chosen[subject] = arm
        return arm

    def assign(self, arm: int, facts: Facts) -> Assignment | None:
        """Count that a request got an arm. None while nothing is counted."""
        if not self._counts:
            return None
        count = self._counts[arm]
        if (self._draws and not facts.sequence) or self.stratum == MEASURING:
            count.assigned += 1
            return count
        subject = self._subject(facts, facts) or facts.tenant
        assignment = self._assignments.get(subject)
        if assignment is None or assignment.count is not count:
            assignment = self._assigned(subject, count)
        return assignment

    def _assigned(self, subject: str, count: ArmCount) -> SubjectAssignment:
        """Count a subject that got an arm. It is remembered, so that its next requests cost less."""
        assignment = SubjectAssignment(count, self.subject_of(subject))
        assert count.stratum.tally is not None
        self._count_subject(count.stratum.tally, "", assignment.subject, count.arm)
        if len(subject) <= LONGEST:
            if len(self._assignments) >= MOST_REMEMBERED:
                self._assignments.clear()
            self._assignments[subject] = assignment
        return assignment

    def subject_of(self, subject: str) -> int:
        """The number of a subject."""
        return subject_number(subject, self.salt) if len(subject) > LONGEST else _cached_number(subject, self.salt)

    @property
    def signs(self) -> bool:
        """Whether the ids of requests that count are signed."""
        return self.signer is not None and self.stratum != MEASURING

    def sign(self, assignment: Assignment, facts: Facts) -> str:
        """The id of a request with its arm. Only if `signs`."""
        assert self.signer is not None
        subject = assignment.subject
        if subject is None:
            subject = self._requests = (self._requests + 1) & LARGEST_SUBJECT
        count = assignment.count
        if not count.head:
            count.head = self.signer.head(self.generation, count.arm, count.stratum.number)
        return self.signer.sign(count.head, int(facts.time), subject, facts.tenant)

    def _count_subject(self, tally: ArmTally, key: str, subject: int, arm: int) -> None:
        """Count a subject once for each key, and for its assignment once more in each other arm that it gets. Another
        process may count it too; the decider drops the second."""
        seen = self._subjects.setdefault(key, {})
        before = seen.get(subject)
        if before is not None and (key or before == arm):
            return
        if before is None and len(seen) >= MOST_REMEMBERED:
            seen.clear()  # the decider recognises those that come again
        seen[subject] = arm
        counted = tally.subjects.setdefault(key, {})
        if len(counted) < MOST_REMEMBERED:
            counted[subject] = arm

    def _stratum(self, number: int) -> LiveStratum:
        """The stratum of a number. Of too many, the oldest counts no more."""
        stratum = self._strata.get(number)
        if stratum is None:
            while len(self._strata) >= MOST_STRATA:
                self._strata.pop(next(iter(self._strata))).tally = None
            stratum = LiveStratum(number, len(self._labels), self._expected, self._count_subject, self._bounds)
            self._strata[number] = stratum
            stratum.configure(self._events)
        return stratum

    def take(self) -> list[StratumTally]:
        """The counts since the last report."""
        taken = ((number, stratum.take()) for number, stratum in self._strata.items())
        return [StratumTally(self.name, self.generation, number, tally) for number, tally in taken if tally is not None]


def subject_number(subject: str, salt: str) -> int:
    """A number of 63 bits that stands for a subject, and from which the subject cannot be read."""
    text = f"{salt}\0{subject}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, person=b"rollout").digest(), "big") >> 1


_cached_number = lru_cache(MOST_REMEMBERED)(subject_number)
