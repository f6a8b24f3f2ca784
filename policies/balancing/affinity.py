"""Prefix affinity: routes a prompt to an endpoint that has computed its beginning, to reuse the KV cache."""

from collections import OrderedDict
from collections.abc import Sequence
from math import ceil, inf
from random import Random
from secrets import randbits

from xxhash import xxh3_128

from policies.balancing.balance import C, Caller, Candidate, RoutedRequest, least_request

CHUNK = 512
"""Bytes of prompt per step of the index, about 128 tokens."""
DEPTH = 128
"""Maximum of compared steps: only the first 64 KiB of a prompt count."""
CAPACITY = 65_536
"""Maximum of steps in the index, about 20 MB; the least recently used step is dropped first."""
HOLDERS = 8
"""Maximum of endpoints for one step; the least recent is dropped first."""
WORTH = 0.5
"""Minimum share of the prompt that an endpoint must have: a common system prompt alone is not enough."""
SLACK = 8
"""Requests that a holder may always have above the least loaded: they cost less than computing a prompt."""
COLD = 0.25
"""An endpoint with less than this share of the mean number of requests is cold."""
EXPLORE = 0.1
"""Share of the mean that a cold endpoint gets independent of prefixes, and the maximum loss of hits."""
_SEED = randbits(64)


def steps_of(tenant: str, model: str, prompt: memoryview) -> list[bytes]:
    """A digest after each whole chunk, of the prompt up to there: equal steps mean equal prefixes.

    The digests include the tenant, so no tenant can use or discover the prompts of another one. They are not
    cryptographic: a client that could construct equal ones would need the seed, and gains another endpoint only.
    """
    running = xxh3_128(f"{tenant}\0{model}\0".encode(errors="surrogatepass"), seed=_SEED)
    update, digest = running.update, running.digest
    steps = []
    for start in range(0, min(len(prompt) - CHUNK, (DEPTH - 1) * CHUNK) + 1, CHUNK):
        update(prompt[start : start + CHUNK])
        steps.append(digest())
    return steps


class PrefixIndex:
    """The latest addresses of each prefix: a radix tree whose nodes are named by their whole path.

    The index records sent prompts, not the contents of caches; servers evict by recency too, so the two are
    similar. Memory is bounded by `capacity` steps of at most HOLDERS addresses each.
    """

    __slots__ = ("_capacity", "_holders")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._holders: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def holders(self, step: bytes) -> tuple[str, ...]:
        """The addresses that received the prefix of a step, latest first."""
        return self._holders.get(step, ())

    def add(self, steps: list[bytes], address: str) -> None:
        """Record the address of a prompt. The order is from the end, so that a prefix outlives its continuations."""
        index = self._holders
        for step in reversed(steps):
            holders = index.get(step, ())
            if not holders or holders[0] != address:
                index[step] = (address, *(other for other in holders if other != address))[:HOLDERS]
            index.move_to_end(step)
        while len(index) > self._capacity:
            index.popitem(last=False)


class PrefixAffinity:
    """The least loaded (else the latest) holder of the longest known prefix, if that is long enough and not overloaded.

    All other prompts go by `least_request`: unknown ones, and those whose holders are more than `bound` ×
    (and SLACK requests) above the least loaded endpoint, so that more endpoints hold them. An endpoint without
    prefixes, such as a new one, gets EXPLORE of the mean share until it has some.
    (Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs", NeurIPS 2024,
    section 3: the cache-aware router; the index by chained block hashes is vLLM's.)
    """

    __slots__ = ("_bound", "_index", "_recent", "_total")

    def __init__(self, bound: float, capacity: int = CAPACITY) -> None:
        self._bound = bound
        self._index = PrefixIndex(capacity)
        self._recent: dict[str, float] = {}  # picks by address, halved periodically
        self._total = 0.0

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        steps = steps_of(caller.tenant, request.model, request.prompt)
        picked = self._holder(candidates, steps, rng) if steps and len(candidates) > 1 else None
        if picked is None:
            picked = least_request(candidates, rng)
        self._index.add(steps, picked.place)
        self._count(picked.place, candidates)
        return picked

    def _holder(self, candidates: Sequence[C], steps: list[bytes], rng: Random) -> C | None:
        """A cold candidate that is due for exploration, or a holder."""
        enough = ceil(len(steps) * WORTH) - 1
        for place in range(len(steps) - 1, enough - 1, -1):
            if holders := self._index.holders(steps[place]):
                break
        else:
            return None
        lowest = inf
        for candidate in candidates:
            load = (candidate.in_flight + 1) / candidate.weight
            if load < lowest:
                lowest = load
        limit = self._bound * lowest
        cold = candidates[int(rng.random() * len(candidates))]
        if (
            self._is_cold(cold, candidates)
            and _fits(cold, limit)
            and rng.random() < EXPLORE * _warmth(cold, candidates)
        ):
            return cold
        while True:
            if (held := _least_loaded(candidates, holders, limit)) is not None:
                return held
            place -= 1
            if place < enough:
                return None
            holders = self._index.holders(steps[place])

    def _is_cold(self, candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
        return self._recent.get(candidate.place, 0.0) * len(candidates) < COLD * self._total

    def _count(self, address: str, candidates: Sequence[Candidate]) -> None:
        """Count a pick. Halving limits the counts to recent picks and drops removed endpoints."""
        self._recent[address] = self._recent.get(address, 0.0) + 1
        self._total += 1
        if self._total > 256 * len(candidates):
            present = {c.place for c in candidates}
            self._recent = {a: picks / 2 for a, picks in self._recent.items() if a in present}
            self._total = sum(self._recent.values())


def _least_loaded(candidates: Sequence[C], holders: Sequence[str], limit: float) -> C | None:
    """The least loaded of the holders below the limit; among equals, the latest."""
    chosen, lowest = None, (inf, 0)
    for candidate in candidates:
        address = candidate.place
        if address in holders and _fits(candidate, limit):
            load = ((candidate.in_flight + 1) / candidate.weight, holders.index(address))
            if load < lowest:
                chosen, lowest = candidate, load
    return chosen


def _fits(candidate: Candidate, limit: float) -> bool:
    return (candidate.in_flight + 1 - SLACK) / candidate.weight <= limit


def _warmth(candidate: Candidate, candidates: Sequence[Candidate]) -> float:
    """The share of its weight that a candidate has in its slow start, which reduces its exploration."""
    return candidate.weight / max(c.weight for c in candidates)
