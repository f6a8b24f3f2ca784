"""Compares the ways to balance over several accounts of one provider, on virtual time: how often it refuses.

    python -m loadtests.simulations.accounts [--minutes 60] [--load 0.9] [--seed 1]

The accounts have unequal quotas of tokens, which refill steadily, and other programs use some of them. Pool, pickers,
quotas and pauses are the gateway's own; only the provider and time are simulated. `load` is the demand relative to all
quotas. A refused request is tried once more at another account. The same arguments give the same figures everywhere.
"""

import argparse
import heapq
import itertools
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import msgspec

from adapters.call import Call
from adapters.errors import CapacityError
from adapters.fake import FakeAdapter
from adapters.http1.message import Headers
from adapters.requests import ChatRequest
from adapters.types import Deadline
from adapters.wire.openai.chat import decode_chat
from config.schema.config import BalanceConfig
from gateway.traffic.accounts.account import ProviderAccount
from gateway.traffic.accounts.endpoint import AccountEndpoint
from gateway.traffic.accounts.table import AccountTable
from gateway.traffic.endpoint import Endpoint, subject_of
from gateway.traffic.pool import Pool
from policies.balancing.pickers import picker
from policies.breaker import Breaker

BLIND = "round_robin, by refusals alone"
"""Without the headers of answers."""
WAYS = (BLIND, "round_robin", "least_request", "prefix_affinity", "quota")
QUOTAS = (240_000.0, 120_000.0, 60_000.0, 60_000.0)
"""Tokens a minute of each account."""
OTHERS = (0.5, 0.0, 0.3, 0.0)
"""The share of each that other programs use, in bursts of their own."""
FIRST_BYTE = 0.6
FOREVER = Deadline(1e12, 1e9, 1e9)


class Figures(NamedTuple):
    """Of 1000 requests."""

    answered: float
    refused_by_provider: float
    """Requests to the provider that it has refused with 429."""
    refused_here: float
    """Requests for which no account had anything left."""


class Quota:
    """The provider's own count of one account."""

    def __init__(self, limit: float) -> None:
        self.limit, self.left, self.at = limit, limit, 0.0

    def take(self, tokens: float, now: float) -> bool:
        """Use so many tokens, if they are left."""
        self.left, self.at = min(self.limit, self.left + self.limit / 60 * (now - self.at)), now
        if self.left < tokens:
            return False
        self.left -= tokens
        return True

    def headers(self) -> Headers:
        """What an answer reports."""
        reset = (self.limit - self.left) / self.limit * 60
        fields = {"limit": f"{self.limit:.0f}", "remaining": f"{self.left:.0f}", "reset": f"{reset:.3f}s"}
        return Headers({f"x-ratelimit-{name}-tokens".encode(): text.encode() for name, text in fields.items()})


class Simulation:
    """One way to balance."""

    def __init__(self, by: str, seed: int) -> None:
        self.now = 0.0
        self.quotas = [Quota(limit) for limit in QUOTAS]
        table = AccountTable()
        endpoints: list[Endpoint] = [self._endpoint(number, table) for number in range(len(QUOTAS))]
        self.learns = by != BLIND
        way = picker(BalanceConfig.model_validate({"by": by.partition(",")[0]}))
        self.pool = Pool(
            "p", endpoints, way, max_in_flight=1000, accounts=True, rng=Random(seed), clock=lambda: self.now
        )

    def _endpoint(self, number: int, table: AccountTable) -> Endpoint:
        account = ProviderAccount(f"p/{number}", table, lambda: self.now)
        return AccountEndpoint(f"p/{number}", FakeAdapter(), Breaker(5, 10.0), account)

    def run(self, events: list[tuple[float, int, ChatRequest | None, float]]) -> Figures:
        """All events: requests, and the tokens that other programs use."""
        order = itertools.count()
        ends: list[tuple[float, int, Endpoint, ChatRequest, Call, bool]] = []
        answered = refused = here = sent = 0
        for at, account, request, tokens in events:
            while ends and ends[0][0] <= at:
                self.now, _, endpoint, asked, call, fits = heapq.heappop(ends)
                self._end(endpoint, asked, call, fits=fits)
                answered, refused = answered + fits, refused + (not fits)
                if not fits and len(call.tried) < 2:
                    here += not self._send(asked, call, ends, order)
            self.now = at
            if request is None:
                self.quotas[account].take(tokens, at)
                continue
            sent += 1
            here += not self._send(request, Call(FOREVER, tenant="t"), ends, order)
        return Figures(*(1000 * count / max(sent, 1) for count in (answered, refused, here)))

    def _send(
        self,
        request: ChatRequest,
        call: Call,
        ends: list[tuple[float, int, Endpoint, ChatRequest, Call, bool]],
        order: Iterator[int],
    ) -> bool:
        try:
            endpoint = self.pool.lease(request, call, self.now)
        except CapacityError:
            endpoint = None
        if endpoint is None:
            return False
        call.tried.append(endpoint.id)
        quota = self.quotas[int(endpoint.id.partition("/")[2])]
        fits = quota.take(request.prompt_tokens + (request.max_tokens or 0), self.now)
        wait = FIRST_BYTE if fits else 0.05
        heapq.heappush(ends, (self.now + wait, next(order), endpoint, request, call, fits))
        return True

    def _end(self, endpoint: Endpoint, request: ChatRequest, call: Call, *, fits: bool) -> None:
        assert isinstance(endpoint, AccountEndpoint)
        AccountEndpoint.sends(endpoint, request)
        quota = self.quotas[int(endpoint.id.partition("/")[2])]
        if self.learns:
            endpoint.account.read(quota.headers())
        AccountEndpoint.release(endpoint, request)
        needed = request.prompt_tokens + (request.max_tokens or 0)
        wait = max(0.0, (needed - quota.left) / quota.limit * 60)
        error = None if fits else CapacityError("full", retry_after=wait, scope="unknown").because("upstream_quota")
        endpoint.end(error, self.now, subject_of(request, call))


def events(seed: int, minutes: float, load: float) -> list[tuple[float, int, ChatRequest | None, float]]:
    """Requests of all sizes, and bursts of other programs, in order of time."""
    rng, made = Random(seed), list[tuple[float, int, ChatRequest | None, float]]()
    seconds, at = 60 * minutes, 0.0
    free = sum(limit * (1 - used) for limit, used in zip(QUOTAS, OTHERS, strict=True)) / 60
    prompts = [rng.randbytes(rng.choice((500, 2000, 8000))).hex() for _ in range(200)]
    mean = sum(len(prompt) / 4 + 300 for prompt in prompts) / len(prompts)
    while at < seconds:
        at += rng.expovariate(load * free / mean)
        body = {"model": "m", "max_tokens": 300, "messages": [{"role": "user", "content": rng.choice(prompts)}]}
        made.append((at, 0, decode_chat(msgspec.json.encode(body)), 0.0))
    for number, (limit, used) in enumerate(zip(QUOTAS, OTHERS, strict=True)):
        made += [(each * 10.0, number, None, used * limit / 6) for each in range(int(seconds // 10)) if used]
    return sorted(made, key=lambda event: event[:2])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    day = events(options.seed, options.minutes, options.load)
    print("| balance | answered | refused by the provider | refused by the gateway |\n|---|---:|---:|---:|")
    for by in WAYS:
        figures = Simulation(by, options.seed).run(day)
        print(f"| {by} | {figures.answered:.0f} | {figures.refused_by_provider:.0f} | {figures.refused_here:.0f} |")


if __name__ == "__main__":
    main()
