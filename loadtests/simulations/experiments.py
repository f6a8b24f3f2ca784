"""Checks the decisions of experiments by simulation: false winners, power, the floor of Thompson sampling, baselines.

    python -m loadtests.simulations.experiments [--runs 2000] [--values 4000] [--jobs 2] [--seed 1]

Every run reads its e-values after each value. The same arguments give the same figures on every machine. The exit
status is 1 if equal arms have a winner too often, or if a z-test that is read at every value has not.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from loadtests.simulations.experiment_runs import SCENARIOS, Arms, run
from loadtests.simulations.rollouts import most

ALPHA = 0.05
BASES = (0.05, 0.5, 0.9)
SHARES = (0.5, 0.1)
EFFECTS = ((0.5, 0.6), (0.5, 0.55), (0.1, 0.15), (0.9, 0.95))


def main(written: list[str]) -> int:
    """Simulate, and print the tables."""
    arguments = _arguments(written)
    with ProcessPoolExecutor(arguments.jobs) as processes:
        settings = arguments.runs, arguments.values
        cells = list(product(SCENARIOS, BASES, SHARES))
        equal = [
            processes.submit(run, scenario, Arms(base, base, share), *settings, arguments.seed + i)
            for i, (scenario, base, share) in enumerate(cells)
        ]
        powers = [
            (name, arms, processes.submit(run, scenario, Arms(*arms), *settings, arguments.seed + 100 + i, skill=skill))
            for i, ((name, scenario, skill), arms) in enumerate(product(_WAYS, EFFECTS))
        ]
        rows, problems, limit = [], [], most(ALPHA, arguments.runs)
        for (scenario, base, share), job in zip(cells, equal, strict=True):
            result = job.result()
            winners = int(np.sum(result.highest >= np.log(2 / ALPHA)))
            peeked = int(np.sum(result.z >= 1.96))
            rows.append({"scenario": scenario, "base": base, "share": share, "winners": winners, "z": peeked})
            print(f"{scenario:16} {base:4.0%} {share:4.0%} winners {winners:4} z {peeked:4}", file=sys.stderr)
            if winners > limit or peeked <= limit:
                problems.append(f"{scenario} at {base} and {share}: {winners}, z {peeked}")
        for name, arms, job in powers:
            result = job.result()
            middle, ninth = (int(np.quantile(result.decided_at, part, method="higher")) for part in (0.5, 0.9))
            shown = {"way": name, "arms": arms, "median": middle, "ninth": ninth, "share": round(result.share, 2)}
            rows.append(shown)
            print(json.dumps(shown), file=sys.stderr)
    print(f"at most {limit} of {arguments.runs} are consistent with alpha {ALPHA:.0%}")
    for problem in problems:
        print(problem)
    print(json.dumps({"rows": rows}))
    return 1 if problems else 0


_WAYS = (("sequential", "steady", 0.0), ("thompson", "thompson", 0.0), ("baseline", "steady", 0.7))


def _arguments(written: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--values", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(written)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
