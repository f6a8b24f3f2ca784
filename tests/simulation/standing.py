"""The invariants of the gateway as a whole: nothing held at idle, budgets respected, breakers and arms correct."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.clients import Outcome
from tests.simulation.shares import comparing
from tests.simulation.world import World

BUDGET_WINDOW = 10.0
# The largest budgets of a story: a fifth of the requests for retries, and for hedges a fifth of requests and retries.
MOST_AGAIN = 0.2 + 0.2 * 1.2


def standing(world: World, seen: list[Outcome]) -> Iterator[str]:
    """Every violation, one sentence each."""
    yield from _idle(world)
    yield from _breakers(world)
    yield from _retries(world)
    yield from _arms(world, seen)
    yield from comparing(world, seen)


def _idle(world: World) -> Iterator[str]:
    """No reservation is held."""
    for name, endpoint in world.endpoints.items():
        if endpoint.in_flight:
            yield f"{name} has {endpoint.in_flight} in flight at idle"
    for account in world.accounts():
        if account.in_flight or account.reserved_tokens:
            yield f"{account.tenant} holds {account.in_flight} and {account.reserved_tokens} tokens at idle"
        for limit in account.limits:
            if any(allowance.concurrency.in_flight for allowance in limit):
                yield f"a place of {account.tenant} is held at idle"
    for queue in world.fleet.queues():
        if queue.line.size:
            yield f"{queue.line.size} wait for {queue.name} at idle"
    for share in world.ledger.oracle.shares.values():
        if share.at_once:
            yield "a reservation was never settled"
    for server in world.servers:
        if server.running:
            yield f"{server.name} is at work at idle"
        if server.most_connections > (most := _connections(world, server.url)):
            yield f"{server.name} had {server.most_connections} connections of {most}"


def _connections(world: World, url: str) -> int:
    """How many may be open to a server: each time that a pool took it in, that pool's, and one for probes.

    Other settings of the connections, or of their probes, make a pool take it in anew: the old ones may still be open.
    """
    most = 0
    before: set[tuple[object, int]] = set()
    for config in world.configs:
        mine = [pool for pool in config.pools for e in pool.endpoints if e.url == url]
        now: set[tuple[object, int]]
        now = {((pool.name, pool.probe, pool.connect_timeout), pool.max_connections) for pool in mine}
        if any(route.shadow or route.rollout for model in config.models for route in model.routes):
            now |= {(pool.model_dump_json(), pool.max_connections) for pool in mine}  # of copies, anew with each change
        most += sum(cap + 1 for _, cap in now - before)
        before = now
    return most


def _breakers(world: World) -> Iterator[str]:
    """Mistakes of callers and disconnected clients open no breaker."""
    least = min(pool.breaker.failures for config in world.configs for pool in config.pools)
    for server in world.servers:
        if not server.was_away and server.sins < least:
            for endpoint in world.endpoints.values():
                if endpoint.address == server.url and endpoint.breaker.is_open:
                    yield f"{server.name} sinned {server.sins} times, and a breaker of {least} is open"


def _retries(world: World) -> Iterator[str]:
    """Ten seconds have at most three retries for each route, plus its share of the requests; hedges have as many."""
    attempts = world.watch.attempts
    for pool in {attempt.pool for attempt in attempts}:
        mine = [attempt for attempt in reversed(attempts) if attempt.pool == pool]
        first_seen = {attempt.part: attempt.at for attempt in mine}
        sent = [attempt for attempt in mine if attempt.picked]
        times = Counter(attempt.at for attempt in sent)
        times.subtract({attempt.part: attempt.at for attempt in sent}.values())
        floor = 3 * _budgets(world, pool)
        for end in times:
            again = sum(n for at, n in times.items() if end - 0.9 * BUDGET_WINDOW < at <= end)
            requests = sum(end - BUDGET_WINDOW - 3.0 < at <= end for at in first_seen.values())
            if again > 1.2 * floor + MOST_AGAIN * requests:
                yield f"{pool}: {again} retries in ten seconds for {requests} requests"
                break


def _budgets(world: World, pool: str) -> int:
    """How many there were: each time that a route took the pool in, one for retries and one for hedges."""
    budgets = 0
    before: set[tuple[str, int, bool]] = set()
    for config in world.configs:
        now = {
            (model.name, index, hedged)
            for model in config.models
            for index, route in enumerate(model.routes)
            for hedged in {False, route.hedge is not None}
            if pool in route.pools()
        }
        budgets += len(now - before)
        before = now
    return budgets


def _arms(world: World, seen: list[Outcome]) -> Iterator[str]:
    """Identical requests stay in their arm while the configuration is unchanged."""
    arms: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for one in seen:
        order, arm = one.order, one.headers.get("x-headrace-arm")
        now = world.generation_at(one.began)
        if arm is None or one.ended == 0.0 or now != world.generation_at(one.began - 1e-9):
            continue
        model = next(m for m in world.configs[now - 1].models if m.name == order.model)
        if any(route.comparison or (route.split and route.split.sticky == "request") for route in model.routes):
            continue  # the shares of comparisons change meanwhile
        asker = (order.key, order.user, tuple(order.headers.items()), order.stream, order.prompt)
        arms[(now, order.model, *asker)].add(arm)
    for subject, which in arms.items():
        if len(which) > 1:
            yield f"{subject} was sent to {which}"
