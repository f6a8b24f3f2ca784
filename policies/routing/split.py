"""Sticky weighted choice: a subject gets the same arm in every process, without stored state."""

from functools import lru_cache
from hashlib import blake2b
from math import inf, log
from random import Random
from typing import Protocol

from policies.balancing.balance import Caller

Arms = tuple[tuple[str, float], ...]
"""Names and weights."""
REMEMBERED = 16_384
"""Maximum of subjects whose arms are cached, over all splits."""
LONGEST = 256
"""Maximum characters of a cached subject: clients can send longer ones, which would fill the memory."""


class SplitRequest(Protocol):
    """The attributes of a request that a split may read. Facts have these attributes and those of a caller."""

    @property
    def user(self) -> str | None: ...
    @property
    def sequence(self) -> str: ...


def arm_for(sticky: str, request: SplitRequest, caller: Caller, salt: str, arms: Arms, rng: Random) -> str:
    """The arm of a request's subject."""
    if sticky == "request" and not request.sequence:
        return drawn(arms, rng)
    subject = steady_subject(sticky, request, caller) or caller.tenant
    return choose(subject, salt, arms) if len(subject) > LONGEST else _cached_choice(subject, salt, arms)


def drawn(arms: Arms, rng: Random) -> str:
    """A random arm, by weight. Raises ValueError if no arm has a weight above 0."""
    point, chosen = rng.random() * sum(weight for _, weight in arms), None
    for arm, weight in arms:
        if weight > 0:
            chosen = arm
            point -= weight
            if point < 0:
                break
    if chosen is None:
        raise ValueError("no arm of the split has a weight above 0")
    return chosen


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
        raise ValueError("no arm of the split has a weight above 0")
    return chosen


_cached_choice = lru_cache(REMEMBERED)(choose)


def steady_subject(sticky: str, request: SplitRequest, caller: Caller) -> str | None:
    """The subject that `sticky` names, with its tenant, so that the users of two tenants are distinct.

    ``user`` and ``header:NAME`` fall back to the key. None for ``request``, except that the requests of one sequence
    share a subject, and for an unknown key.
    """
    if sticky == "request":
        return f"{caller.tenant}\0{request.sequence}" if request.sequence else None
    tenant = caller.tenant
    if sticky == "tenant":
        return tenant
    value = caller.key
    if sticky == "user":
        value = request.user or value
    elif sticky.startswith("header:"):
        value = caller.headers.get(sticky[7:].lower()) or value
    return f"{tenant}\0{value}" if value else None


def _uniform(salt: str, arm: str, subject: str) -> float:
    """A uniform number in (0, 1]. Names have no NUL, so the hashed parts are unambiguous.

    A subject may contain a lone surrogate: JSON allows ``"\\ud800"``, strict UTF-8 does not.
    """
    text = f"{salt}\0{arm}\0{subject}".encode(errors="surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") + 1) / 2**64
