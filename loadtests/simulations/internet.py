"""Compares scaling and balancing together at the size of an internet service, on virtual time.

    python -m loadtests.simulations.internet [--servegen FOLDER] [--regions 20] [--minutes 30] [--seed 1]

By default 20 regions of 50 gateways and 500 replicas at most: 1,000 gateways, 10,000 endpoints. A region has five pools
of unequal size, and each region plays another part of the day, so that the regions together pass through all hours.
Each way receives the same requests: Knative's rule and balancing, Ray Serve's, and ours. As in `scaling`, our objective
for the time in the queue is a part of the peer's own 99th percentile. Ours runs once more without reports of the
servers. The same arguments give the same figures on every machine. FOLDER is as in `scaling`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loadtests.simulations.placements import HeadracePlacement, KnativePlacement, RayServePlacement
from loadtests.simulations.regions import Outcome, Placement, SimulatedRegion
from loadtests.simulations.scaling import FIRST, OBJECTIVE, PLACES, PROMPT, SHORTEST, START, TOKEN
from loadtests.simulations.scaling_days import WHOLE, Day, invented, published
from loadtests.simulations.scaling_rules import Headrace, Knative, RayServe, Rule
from policies.scaling.scaler import ScalingRules

GATEWAYS = 50
"""Gateways of a region."""
SIZES = (220, 130, 80, 45, 25)
"""The most replicas of each pool of a region."""
BUSY = 0.1
"""The part of these replicas' places that is in use in the mean of a day."""
WARM = 600.0
"""Seconds at the begin that count in no figure: the rules have not measured anything yet."""


class Part(NamedTuple):
    """One pool of one region, and where its requests come from."""

    region: int
    most: int
    servegen: Path | None
    hours: tuple[float, float]
    seed: int


def _ours(by: str, part: Part, wait: float) -> tuple[Rule, Placement]:
    return Headrace(ScalingRules(PLACES, 1, part.most, wait=wait)), HeadracePlacement(by, PLACES, part.seed)


PEERS: dict[str, Callable[[Part], tuple[Rule, Placement]]] = {
    "knative": lambda part: (Knative(PLACES, 1, part.most), KnativePlacement(PLACES, GATEWAYS, part.seed)),
    "ray-serve": lambda part: (RayServe(PLACES, 1, part.most), RayServePlacement(PLACES, part.seed)),
}
BALANCE = ("load", "least_request")


class Way(NamedTuple):
    """A peer, or our balancing with an objective for the time in the queue."""

    name: str
    wait: float = 0.0

    def start(self, part: Part) -> tuple[Rule, Placement]:
        """A rule and a way to place without any measurement."""
        peer = PEERS.get(self.name)
        return _ours(self.name, part, self.wait) if peer is None else peer(part)


class Requests(NamedTuple):
    """Seconds of arrival, from 0, and seconds of service."""

    at: np.ndarray
    services: np.ndarray


def mean_service(servegen: Path | None, seed: int) -> float:
    """Seconds of service of one request, in the mean of a day."""
    return float(np.mean(_services(_drawn(servegen, 1.0, seed))))


def requests(service: float, part: Part) -> Requests:
    """The requests of a pool, whose mean `service` sets their rate."""
    day = _drawn(part.servegen, part.most * PLACES * BUSY / service, part.seed, part.hours)
    return Requests(day.at - part.hours[0] * 3600, _services(day))


def simulate(way: Way, part: Part, given: Requests) -> Outcome:
    """One pool in one way. The first `WARM` seconds count in the replica-seconds only."""
    rule, placement = way.start(part)
    first = max(1, min(part.most, round(float(given.services[given.at < 300].sum()) / 300 / PLACES / 0.7)))
    region = SimulatedRegion(
        rule, placement, gateways=GATEWAYS, places=PLACES, start=START, replicas=first, seed=part.seed
    )
    outcome = region.run(given.at.tolist(), given.services.tolist())
    return outcome._replace(waits=outcome.waits[given.at >= WARM])


def main(written: Sequence[str] | None = None) -> int:
    """Simulate, print the table, and one JSON object as the last line."""
    arguments = _arguments(written)
    parts = [part for region in range(arguments.regions) for part in _parts(region, arguments)]
    print(f"{arguments.regions * GATEWAYS:,} gateways, {arguments.regions * sum(arguments.sizes):,} endpoints at most")
    print("| way | requests | replica-hours | wait p50 | p99 | p99.9 | longest | busiest ÷ mean | starts | cold |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    service = mean_service(arguments.servegen, arguments.seed)
    with ProcessPoolExecutor(arguments.processes) as processes:
        given = list(processes.map(partial(requests, service), parts))

        def measured(way: Way, label: str) -> dict[str, float]:
            rows[label] = _figures(list(processes.map(partial(simulate, way), parts, given)))
            print(_row(label, rows[label]), flush=True)
            return rows[label]

        for peer in PEERS:
            theirs = measured(Way(peer), peer)
            wait = round(max(theirs["p99"] * OBJECTIVE, SHORTEST), 2)
            for by in BALANCE:
                ours = measured(Way(by, wait), f"headrace, {by}, {wait:.2f} s")
                ratios[f"{by}/{peer}: replica_hours"] = round(ours["replica_hours"] / theirs["replica_hours"], 4)
                ratios[f"{by}/{peer}: p99"] = round(ours["p99"] / max(theirs["p99"], SHORTEST), 4)
    print(json.dumps({"ratios": ratios, "rows": rows}))
    return 0


def _parts(region: int, arguments: argparse.Namespace) -> list[Part]:
    last = 24 - arguments.minutes / 60
    hour = round(region / max(arguments.regions - 1, 1) * last * 6) / 6  # ServeGen's windows have ten minutes
    seeds = range(arguments.seed + 10 * region, arguments.seed + 10 * region + 10)
    return [
        Part(region, most, arguments.servegen, (hour, hour + arguments.minutes / 60), seed)
        for most, seed in zip(arguments.sizes, seeds, strict=False)
    ]


def _drawn(servegen: Path | None, rate: float, seed: int, hours: tuple[float, float] = WHOLE) -> Day:
    if servegen is None:
        return invented(rate, seed, hours)
    return published(servegen, 4, rate, seed, hours)


def _services(day: Day) -> np.ndarray:
    seconds: np.ndarray = FIRST + PROMPT * day.prompt + TOKEN * day.completion
    return seconds


def _figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    waits = np.concatenate([outcome.waits for outcome in outcomes])
    p50, p99, p999 = (float(value) for value in np.quantile(waits, (0.5, 0.99, 0.999)))
    return {
        "requests": len(waits),
        "replica_hours": round(sum(outcome.replica_seconds for outcome in outcomes) / 3600, 1),
        "p50": round(p50, 3), "p99": round(p99, 3), "p99.9": round(p999, 3), "longest": round(float(waits.max()), 1),
        "imbalance": round(float(np.mean([outcome.imbalance for outcome in outcomes])), 2),
        "starts": sum(outcome.starts for outcome in outcomes), "cold": sum(outcome.cold for outcome in outcomes),
    }  # fmt: skip


def _row(way: str, figures: dict[str, float]) -> str:
    times = " | ".join(f"{figures[name]:.2f} s" for name in ("p50", "p99", "p99.9", "longest"))
    head = f"| {way} | {figures['requests']:,} | {figures['replica_hours']:,.0f} | {times}"
    return f"{head} | {figures['imbalance']:.2f} | {figures['starts']:,} | {figures['cold']:,} |"


def _arguments(written: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servegen", type=Path, help="a folder with the clients of a model")
    parser.add_argument("--regions", type=int, default=20)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=list(SIZES))
    parser.add_argument("--minutes", type=float, default=30.0, help="of each region's day; a multiple of ten")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(written)


if __name__ == "__main__":
    sys.exit(main())
