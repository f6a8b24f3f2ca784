"""The price of splits, rollouts and experiments over a plain route, as CPU time of the gateway for a request.

Four gateways of ours differ in the one route alone. Their points are short and interleaved, so that the drift of the
machine, which is far greater than these differences, reaches all of them alike.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from loadtests import rounds
from loadtests.headrace import config, create_key
from loadtests.servers import Gateway, Launch, Site, Target, free_port
from loadtests.workloads import Figure, Generator, Point, closed

PLAIN = "plain"
ARMS: dict[str, dict[str, Any]] = {
    PLAIN: {"to": "main"},
    "split": {"split": {"arms": [{"pool": "main", "weight": 50}, {"pool": "candidate", "weight": 50}]}},
    "rollout": {
        "rollout": {
            "name": "r", "from": "main", "to": "candidate", "warmup": "0s", "steps": [{"weight": "50%", "for": "1d"}],
            "back_if": [{"metric": "failures"}, {"metric": "first_byte", "slower_than": "10s"}],
        }
    },
    "experiment": {"experiment": {"name": "e", "arms": ["main", "candidate"], "metric": "solved", "warmup": "0s"}},
}  # fmt: skip
CPU = Figure("cpu_us", lambda load, cpu: cpu / max(load.completed, 1) * 1e6)
WORKLOAD = closed(16, CPU)


def written(route: dict[str, Any], site: Site, admin_port: int) -> dict[str, Any]:
    """The configuration with this target of its route."""
    made = config(site, admin_port)
    routes = made["models"][0]["routes"]
    del routes[1]["split"]
    routes[1] |= route
    if "experiment" in route:
        made["feedback"] = [{"name": "solved"}]
    return made


def launch(route: dict[str, Any], site: Site, python: Path) -> Launch:
    """A gateway with this target of its route."""
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(written(route, site, free_port()), sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


def gateways() -> list[Gateway]:
    """One for each kind of route."""
    return [Gateway(f"headrace-{name}", lambda: Path(sys.executable), partial(launch, ARMS[name])) for name in ARMS]


def measured(
    targets: Sequence[Target], generator: Generator, count: int, seconds: float, progress: Callable[[str], None]
) -> rounds.Rounds:
    """All rounds. A round with other work on the machine is used too: it adds to all targets."""

    def point(target: Target) -> Point:
        seen = generator.measure(WORKLOAD, target, seconds)
        progress(f"arms {target.name}: {', '.join(f'{value:.1f} µs' for value in seen.figures.values())}")
        return seen

    return rounds.run(targets, count, point, float("inf"), lambda: None)


def prices(accepted: Sequence[rounds.Round]) -> dict[str, tuple[float, float, float, float]]:
    """For each route: the median µs a request, and the lower quartile, the median and the upper quartile of the
    differences from the plain route in the same round."""
    made: dict[str, tuple[float, float, float, float]] = {}
    for name in ARMS:
        own = [one[f"headrace-{name}"][CPU.name] for one in accepted]
        more = sorted(one[f"headrace-{name}"][CPU.name] - one[f"headrace-{PLAIN}"][CPU.name] for one in accepted)
        quartiles = more[len(more) // 4], median(more), more[-1 - len(more) // 4]
        made[name] = (median(own), *quartiles)
    return made


def print_table(accepted: Sequence[rounds.Round]) -> None:
    """Print the prices."""
    table = Table(title=f"CPU time of a request by the kind of its route, {len(accepted)} rounds", title_justify="left")
    for column in ("route", "µs a request", "more than a plain route, µs (middle half of the rounds)"):
        table.add_column(column)
    for name, (own, low, middle, high) in prices(accepted).items():
        table.add_row(name, f"{own:.1f}", "" if name == PLAIN else f"{middle:+.1f} ({low:+.1f} to {high:+.1f})")
    Console().print(table)
