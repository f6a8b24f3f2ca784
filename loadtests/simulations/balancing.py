"""Compares the ways to balance: the same day of chats, with the same faults, for each. On virtual time.

    python -m loadtests.simulations.balancing [--endpoints 200] [--gateways 6] [--requests 50000] [--seed 1]

Several gateways send to the same servers, and none knows the requests in flight of the others. Pools, pickers,
breakers and slow start are the gateway's own; only servers and time are simulated (`fleet`). The same
arguments give the same figures, on every machine.
"""

import argparse
import json
from math import cos, pi
from random import Random
from statistics import mean
from typing import Any

from config.schema.config import BalanceConfig
from loadtests.simulations.fleet import SimulatedFleet, Turn

SHARED: dict[str, Any] = {"panic": "50%", "slow_start": "20s"}
WAYS = {
    "random": BalanceConfig(by="random", **SHARED),
    "round_robin": BalanceConfig(by="round_robin", **SHARED),
    "least_request": BalanceConfig(by="least_request", **SHARED),
    "peak_ewma": BalanceConfig(by="peak_ewma", **SHARED),
    "load": BalanceConfig(by="load", **SHARED),
    "load, near first": BalanceConfig(by="load", **SHARED),
    "hash by user": BalanceConfig(by="hash", key="user", **SHARED),
    "prefix_affinity": BalanceConfig(by="prefix_affinity", **SHARED),
}
ZONED = {"load, near first": 3}
SCRAPE = 1.0
COLUMNS = ("p50", "p99", "p99.9", "imbalance", "known", "near", "failed", "broken")
TENANTS = 40
SYSTEM_PROMPT = 2_000
TURNS = 5
THINK = 15.0
OUTPUT = 2.0
REQUESTS_A_SECOND = 1.6
"""The load of one replica, on average over the day: about 60% of its capacity without a cache."""


def day(rng: Random, endpoints: int, requests: int) -> list[Turn]:
    """Chats of about TURNS turns, each with all earlier turns; four times as many at noon as at night."""
    seconds = requests / (REQUESTS_A_SECOND * endpoints)
    tenants = [(f"tenant-{i}", rng.randbytes(SYSTEM_PROMPT)) for i in range(TENANTS)]
    shares = [1 / (rank + 1) for rank in range(TENANTS)]
    turns: list[Turn] = []
    while len(turns) < requests:
        at = rng.random() * seconds
        if rng.random() > (1 - 0.6 * cos(2 * pi * at / seconds)) / 1.6:
            continue
        tenant, transcript = rng.choices(tenants, shares)[0]
        user = f"user-{len(turns)}"
        while True:
            transcript += rng.randbytes(rng.randint(300, 2500))
            turns.append(Turn(at, tenant, user, memoryview(transcript), rng.expovariate(1 / OUTPUT)))
            at += rng.expovariate(1 / THINK)
            if rng.random() < 1 / TURNS or at > seconds:
                break
    return turns


def simulate(
    balance: BalanceConfig, turns: list[Turn], endpoints: int, gateways: int, seed: int, zones: int = 0
) -> dict[str, float]:
    """One day: seconds to the first chunk, the imbalance of the load, and failures."""
    rng = Random(seed)
    seconds = max(turn.at for turn in turns)
    slowness = [4.0 if i % 20 == 7 else 1.0 for i in range(endpoints)]
    fleet = SimulatedFleet(balance, slowness, seed, gateways, zones)
    if balance.by == "load":
        fleet.report(SCRAPE, seconds)
    for turn in turns:
        fleet.submit(turn)
    for index in rng.sample(range(endpoints), endpoints // 5):
        at = rng.uniform(0.1, 0.8) * seconds
        if index % 2:
            fleet.kill(index, at, at + 0.1 * seconds)
        else:
            fleet.stall(index, at, at + 0.1 * seconds)
    for step in range(200):
        fleet.look((step + 0.5) / 200 * seconds)
    fleet.clock.run()
    held = sum(endpoint.in_flight for pool in fleet.pools for endpoint in pool.endpoints)
    assert len(fleet.first_chunk) + fleet.failed == len(turns), "each request ends once"
    assert held == 0, "each lease ends once"
    return figures(fleet)


def figures(fleet: SimulatedFleet) -> dict[str, float]:
    waits = sorted(fleet.first_chunk)
    prompt_bytes = sum(replica.prompt_bytes for replica in fleet.replicas)
    measured = {f"p{q:g}": waits[int(q / 100 * len(waits))] for q in (50, 99, 99.9)}
    measured["imbalance"] = mean(fleet.imbalance)
    measured["known"] = sum(replica.cached_bytes for replica in fleet.replicas) / prompt_bytes
    measured["near"] = fleet.near / len(waits)
    return {name: round(value, 4) for name, value in measured.items()} | {
        "failed": fleet.failed,
        "broken": fleet.broken,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=200)
    parser.add_argument("--gateways", type=int, default=6)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    turns = day(Random(given.seed), given.endpoints, given.requests)
    print(
        f"{len(turns)} requests, {given.gateways} gateways, {given.endpoints} endpoints, seed {given.seed}; "
        "seconds to the first chunk"
    )
    print("balance.by".ljust(17) + "".join(f"{name:>10}" for name in COLUMNS))
    results = {}
    for name, balance in WAYS.items():
        measured = results[name] = simulate(
            balance, turns, given.endpoints, given.gateways, given.seed, ZONED.get(name, 0)
        )
        print(
            f"{name:17}{measured['p50']:10.3f}{measured['p99']:10.3f}{measured['p99.9']:10.3f}{measured['imbalance']:10.2f}"
            f"{measured['known']:10.1%}{measured['near']:10.1%}{measured['failed']:10.0f}{measured['broken']:10.0f}",
            flush=True,
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
