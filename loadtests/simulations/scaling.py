"""Compares rules for the number of replicas on the same day of requests, on virtual time.

    python -m loadtests.simulations.scaling [--servegen FOLDER] [--days 4,11] [--rate 4] [--seed 1]

Rules: ours (`policies.scaling`), Knative's pod autoscaler and Ray Serve's default policy, each with its defaults. Ours
has an objective for the time in the queue. Against each peer it is half of the peer's own 99th percentile, so that the
replica-hours are compared at an equal or better service. The same arguments give the same figures on every machine.

FOLDER is a model of ServeGen (https://github.com/alibaba/ServeGen), such as `data/language/m-mid`. Without it the day
is invented.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from loadtests.simulations.scaling_days import DAY, Day, invented, published
from loadtests.simulations.scaling_pool import Outcome, SimulatedPool
from loadtests.simulations.scaling_rules import Headrace, Knative, RayServe, Rule
from policies.scaling.scaler import ScalingRules

PLACES = 8
"""Requests that a replica serves at the same time."""
START = 40.0
"""Seconds until a new replica serves."""
FIRST, PROMPT, TOKEN = 1.0, 1 / 4000, 0.05
"""The seconds of a request: constant, for each token of the prompt, for each token of the answer."""
LEAST, MOST = 1, 200
OBJECTIVE = 0.75
"""Our objective as a share of the peer's 99th percentile."""
SHORTEST = 0.05
"""The smallest objective in seconds."""


def main(written: Sequence[str] | None = None) -> int:
    """Simulate, print the table, and one JSON object as the last line."""
    arguments = _arguments(written)
    ratios: dict[str, list[float]] = {"replica_hours/knative": [], "replica_hours/ray-serve": []}
    rows, missed = [], []
    print("| day | requests | mean load | rule | replica-hours | wait p50 | p99 | longest | starts | peak |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for number in arguments.days:
        day = invented(arguments.rate, arguments.seed + number) if arguments.servegen is None else published(
            arguments.servegen, number, arguments.rate, arguments.seed
        )  # fmt: skip
        services = FIRST + PROMPT * day.prompt + TOKEN * day.completion
        for name, peer in (("knative", Knative), ("ray-serve", RayServe)):
            theirs = _run(peer(PLACES, LEAST, MOST), day, services)
            wait = max(theirs.p99 * OBJECTIVE, SHORTEST)
            ours = _run(Headrace(ScalingRules(PLACES, LEAST, MOST, wait=wait)), day, services)
            load = float(services.sum()) / DAY
            for label, outcome in ((name, theirs), (f"headrace, {wait:.2f} s", ours)):
                print(_row(number, day, load, label, outcome), flush=True)
                rows.append({"day": number, "rule": label, **outcome._asdict()})
            ratios[f"replica_hours/{name}"].append(ours.replica_hours / theirs.replica_hours)
            if ours.p99 > max(theirs.p99, SHORTEST):
                missed.append(f"day {number}: wait p99 {ours.p99:.2f} s, {name} {theirs.p99:.2f} s")
    print("\n".join(missed))
    medians = {name: round(median(values), 4) for name, values in ratios.items()}
    print(json.dumps({"ratios": medians, "spread": {n: [min(v), max(v)] for n, v in ratios.items()}, "rows": rows}))
    return 1 if missed else 0


def _run(rule: Rule, day: Day, services: np.ndarray) -> Outcome:
    replicas = max(LEAST, round(float(services[day.at < 600].sum()) / 600 / PLACES))
    return SimulatedPool(rule, places=PLACES, start=START, replicas=replicas).run(day.at.tolist(), services.tolist())


def _row(number: int, day: Day, load: float, label: str, outcome: Outcome) -> str:
    figures = f"{outcome.replica_hours:.1f} | {outcome.p50:.2f} | {outcome.p99:.2f} | {outcome.longest:.1f}"
    return f"| {number} | {len(day.at):,} | {load:.1f} | {label} | {figures} | {outcome.starts} | {outcome.peak} |"


def _arguments(written: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servegen", type=Path, help="a folder with the clients of a model")
    parser.add_argument("--days", type=lambda text: [int(day) for day in text.split(",")], default=[4, 11])
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second, in the mean of a day")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(written)


if __name__ == "__main__":
    sys.exit(main())
