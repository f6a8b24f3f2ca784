"""Sticky weighted choice: a subject gets the same arm in every process, without stored state."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from math import inf, log
from random import Random
from typing import Protocol

from policies.balancing.balance import Caller

Arms = tuple[tuple[str, float], ...]
"""Names and weights."""
REMEMBERED = 16_384
"""Maximum of subjects whose arms are cached, of each split."""
LONGEST = 256
"""Maximum characters of a cached subject: clients can send longer ones, which would fill the memory."""

NO_WEIGHT = "no arm of the split has a weight above 0"


class SplitRequest(Protocol):
    """The attributes of a request that a split may read. Facts have these attributes and those of a caller."""

    @property
    def user(self) -> str | None: ...
    @property
    def sequence(self) -> str: ...


SubjectReader = Callable[[SplitRequest, Caller], str | None]
"""Reads the subject of a request, with its tenant, so that the users of two tenants are distinct."""
ArmChoice = Callable[[SplitRequest, Caller, Random], int]
"""The number of a request's arm."""


def arm_choice(sticky: str, salt: str, arms: Arms) -> ArmChoice:
    """The choice between the arms of one split, with all that does not depend on the request computed once."""
    reader, ends, cached = subject_reader(sticky), upper_ends([weight for _, weight in arms]), dict[str, int]()
    numbers = {name: number for number, (name, _) in enumerate(arms)}

    def steady(request: SplitRequest, caller: Caller, _: Random) -> int:
        subject = reader(request, caller) or caller.tenant
        arm = cached.get(subject)
        if arm is None:
            arm = numbers[choose(subject, salt, arms)]
            if len(subject) <= LONGEST:
                if len(cached) >= REMEMBERED:
                    cached.clear()
                cached[subject] = arm
        return arm

    def drawn(request: SplitRequest, caller: Caller, rng: Random) -> int:
        return steady(request, caller, rng) if request.sequence else bisect_right(ends, rng.random())

    return drawn if sticky == "request" else steady


def upper_ends(weights: Sequence[float]) -> list[float]:
    """The upper ends of the arms' parts of [0, 1), by weight, but of the last arm with a weight. Raises ValueError if
    no arm has a weight above 0."""
    last = max((i for i, weight in enumerate(weights) if weight > 0), default=None)
    if last is None:
        raise ValueError(NO_WEIGHT)
    total = sum(weights)
    return [inf if i == last else sum(weights[: i + 1]) / total for i in range(last + 1)]


def choose(subject: str, salt: str, arms: Arms) -> str:
    """The arm of one subject; arms are ``(name, weight)``. An arm of weight 0 is never chosen.

    Weighted rendezvous hashing: every arm draws -ln(u)/weight, an exponential variable whose rate is its
    weight, and the smallest draw wins, so each arm wins in proportion to its weight. An arm's draw depends only on
    its own name and weight, so a change from 90/10 to 80/20 moves one subject in ten, each to the arm that grew.
    (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998; the weighted
    form is Resch's, "New Hashing Algorithms for Data Storage", SNIA SDC 2015.)

    `salt` names the split: two splits with different salts place the same subject independently.
    Raises ValueError if no arm has a weight above 0.
    """
    chosen, lowest = None, inf
    for arm, weight in arms:
        if weight > 0:
            score = -log(_uniform(salt, arm, subject)) / weight
            if chosen is None or score < lowest:
                chosen, lowest = arm, score
    if chosen is None:
        raise ValueError(NO_WEIGHT)
    return chosen


def steady_subject(sticky: str, request: SplitRequest, caller: Caller) -> str | None:
    """The subject that `sticky` names.

    ``user`` and ``header:NAME`` fall back to the key. None for ``request``, except that the requests of one sequence
    share a subject, and for an unknown key.
    """
    return subject_reader(sticky)(request, caller)


def subject_reader(sticky: str) -> SubjectReader:
    """The function that reads the subject of each request, as `steady_subject` does."""
    if sticky.startswith("header:"):
        return _header_reader(sticky[7:].lower())
    return _READERS[sticky]


def _header_reader(name: str) -> SubjectReader:
    return lambda _, caller: _within(caller.tenant, caller.headers.get(name) or caller.key)


def _within(tenant: str, value: str) -> str | None:
    return f"{tenant}\0{value}" if value else None


_READERS: Mapping[str, SubjectReader] = {
    "request": lambda request, caller: _within(caller.tenant, request.sequence),
    "tenant": lambda _, caller: caller.tenant,
    "key": lambda _, caller: _within(caller.tenant, caller.key),
    "user": lambda request, caller: _within(caller.tenant, request.user or caller.key),
}


def _uniform(salt: str, arm: str, subject: str) -> float:
    """A uniform number in (0, 1]. Names have no NUL, so the hashed parts are unambiguous.

    A subject may contain a lone surrogate: JSON allows ``"\\ud800"``, strict UTF-8 does not.
    """
    text = f"{salt}\0{arm}\0{subject}".encode(errors="surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") + 1) / 2**64
