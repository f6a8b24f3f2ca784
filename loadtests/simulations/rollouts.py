"""Checks the error rates of rollouts by simulation: false alarms, power, and tests that must fail. In a few minutes.

    python -m loadtests.simulations.rollouts [--runs 2000] [--peeks 100000] [--jobs 2] [--seed 1]

Every run is a rollout whose e-value is read after each event. The same arguments give the same figures on every
machine. The exit status is 1 if a test alarms too often, or if a control that must alarm does not.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import sqrt
from typing import NamedTuple

import numpy as np

from loadtests.simulations.exact_power import exact_power
from loadtests.simulations.rollout_runs import (
    BASES,
    SCENARIOS,
    SHARES,
    heavy_users,
    highest_e,
    mismatches,
    power,
    promotion,
    z_test,
)

ALPHAS = (0.05, 0.01)
RATIOS = (2, 3, 5, 10)
POWER_SHARES = (0.01, 0.05, 0.2, 0.5)
BELOW = (1.5, 2.0, 3.0)
TOLERANCE = 0.1
LEAST_RUNS = 200
"""Runs from which the power is precise enough to be compared."""
SEEN = 700
"""Events after which the power table ends."""


def most(alpha: float, runs: int) -> int:
    """The most alarms that a test of size alpha may have: its mean and three standard deviations."""
    return int(alpha * runs + 3 * sqrt(alpha * (1 - alpha) * runs))


def false_alarms(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Alarms of equal arms, for every base rate, share and scenario."""
    cells = list(product(SCENARIOS, BASES, SHARES))
    with ProcessPoolExecutor(arguments.jobs) as processes:
        jobs = [
            processes.submit(highest_e, scenario, base, share, arguments.runs, arguments.peeks, arguments.seed + i)
            for i, (scenario, base, share) in enumerate(cells)
        ]
        rows: list[dict[str, object]] = []
        for (scenario, base, share), job in zip(cells, jobs, strict=True):
            highest = job.result()
            alarms = {f"{alpha:.0%}": int(np.sum(highest >= -np.log(alpha))) for alpha in ALPHAS}
            rows.append({"scenario": scenario, "base": base, "share": share, "alarms": alarms})
            print(f"{scenario:16} {base:6.1%} {share:>8} {alarms}", file=sys.stderr, flush=True)
    return rows


def failures(rows: Sequence[dict[str, object]], controls: dict[str, int], runs: int) -> list[str]:
    """What contradicts the claims of the tests."""
    problems = [
        f"{row['scenario']} at {row['base']} and {row['share']}: {alarms}"
        for row in rows
        if isinstance(alarms := row["alarms"], dict)
        and any(alarms[f"{alpha:.0%}"] > most(alpha, runs) for alpha in ALPHAS)
    ]
    for name, alarms_of_control in controls.items():
        alpha = 0.001 if name == "sample ratio" else 0.05
        valid = name in ("sample ratio", "one event per user")
        if valid is not (alarms_of_control <= most(alpha, runs)):
            problems.append(f"{name}: {alarms_of_control} of {runs}")
    return problems


def controls_of(arguments: argparse.Namespace) -> dict[str, int]:
    """Alarms of the controls at 5 %: the first two are not valid and must alarm too often, the others must not."""
    runs, peeks, seed = arguments.runs, arguments.peeks, arguments.seed
    every, once = heavy_users(runs, min(peeks, 20_000), seed + 901)
    return {
        "z-test at every event": z_test(runs, peeks, seed + 900),
        "every event of heavy users": every,
        "one event per user": once,
        "sample ratio": mismatches(runs, peeks, seed + 902),
    }


class PowerCell(NamedTuple):
    """The power at one share for one ratio."""

    share: float
    ratio: int
    simulated: tuple[int | None, int | None, int | None, int | None]
    exact: tuple[int | None, ...]

    @property
    def differs(self) -> bool:
        """Whether the simulation differs from the exact figures by more than a tenth, and by more than an event."""
        pairs = zip(self.simulated, self.exact, strict=False)
        near_end = SEEN * (1 - TOLERANCE)
        return any(
            (one is None) != (other is None) and max(one or 0, other or 0) < near_end
            if one is None or other is None
            else abs(one - other) > max(1, TOLERANCE * other)
            for one, other in pairs
        )


def power_cells(runs: int, seed: int) -> list[PowerCell]:
    """The power at every share for every ratio."""
    return [
        PowerCell(share, ratio, power(share, ratio, 0.01, runs, SEEN, seed), exact_power(share, ratio, 0.01, SEEN))
        for share, ratio in product(POWER_SHARES, RATIOS)
    ]


def _power_table(cells: Sequence[PowerCell]) -> list[str]:
    lines = ["| share | " + " | ".join(f"r = {r}" for r in RATIOS) + " |", "|---|" + "---|" * len(RATIOS)]
    for share in POWER_SHARES:
        own = [_shown(cell) for cell in cells if cell.share == share]
        lines.append(f"| {share:.0%} | " + " | ".join(own) + " |")
    return lines


def _shown(cell: PowerCell) -> str:
    """``133/308 (exactly 133/308); 6/15``: events until half and nine tenths of the runs alarm, simulated and exact,
    and the canary's events by then."""
    if cell.simulated[0] is None:
        return "-"
    middle, ninth, own, most_own = ("-" if number is None else str(number) for number in cell.simulated)
    exact = "/".join("-" if number is None else str(number) for number in cell.exact)
    return f"{middle}/{ninth} (exactly {exact}); {own}/{most_own}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything, print the tables, and one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--peeks", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    rows, controls = false_alarms(arguments), controls_of(arguments)
    print(f"\nFalse alarms in {arguments.runs} runs of {arguments.peeks} looks (at most ", end="")
    print(" and ".join(f"{most(alpha, arguments.runs)} at {alpha:.0%}" for alpha in ALPHAS) + ")\n")
    print("| scenario | base rate | " + " | ".join(SHARES) + " |\n|---|---|" + "---|" * len(SHARES))
    for scenario, base in product(SCENARIOS, BASES):
        own = [row["alarms"] for row in rows if (row["scenario"], row["base"]) == (scenario, base)]
        shown = [f"{alarms['5%']} / {alarms['1%']}" for alarms in own if isinstance(alarms, dict)]
        print(f"| {scenario} | {base:.1%} | " + " | ".join(shown) + " |")
    print("\n| control | alarms |\n|---|---|")
    for name, alarms in controls.items():
        print(f"| {name} | {alarms} |")
    print("\nEvents until 50/90 % of the runs alarm at 1 %, and the canary's own by then\n")
    cells = power_cells(10 * arguments.runs, arguments.seed)
    print("\n".join(_power_table(cells)))
    far = sum(cell.differs for cell in cells)
    print(
        f"\nCells that differ from the exact figures by more than {TOLERANCE:.0%} and one event: {far} of {len(cells)}"
    )
    proven = {f"{below:g}": promotion(0.5, below, 0.05, 10 * arguments.runs, SEEN, arguments.seed) for below in BELOW}
    print("\nEvents until half of the runs prove at 5 %, at even shares of equal arms, that the ratio is below")
    print(", ".join(f"{below}: {events}" for below, events in proven.items()))
    problems = failures(rows, controls, arguments.runs)
    if arguments.runs >= LEAST_RUNS:
        problems += [
            f"power at {c.share:.0%} for {c.ratio}: {c.simulated}, exactly {c.exact}" for c in cells if c.differs
        ]
    print("\n".join(problems) or "\nEvery claim holds.")
    print(json.dumps({"alarms": rows, "controls": controls, "proven": proven}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
