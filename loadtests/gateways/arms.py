"""The price of splits, rollouts and experiments over a plain route, as CPU time of the gateway for a request.

Gateways of ours differ in the one route alone. Their points are short and interleaved, so that the drift of the
machine, which is far greater than these differences, reaches all of them alike. A second pool costs its connections
whatever divides the requests, so a split and a rollout are measured with all requests on the first pool, too.
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

from loadtests.figures import rounds
from loadtests.gateways.headrace import config, create_key
from loadtests.gateways.workloads import Figure, Generator, Point, closed
from loadtests.servers import Gateway, Launch, Site, Target, free_port


def _split(main: int, candidate: int) -> dict[str, Any]:
    return {"split": {"arms": [{"pool": "main", "weight": main}, {"pool": "candidate", "weight": candidate}]}}


def _rollout(weight: str) -> dict[str, Any]:
    events = [{"metric": "failures"}, {"metric": "first_byte", "slower_than": "10s"}]
    arms = {"from": "main", "to": "candidate", "warmup": "0s"}
    return {"rollout": {"name": "r", **arms, "steps": [{"weight": weight, "for": "1d"}], "back_if": events}}


PLAIN = "plain"
ARMS: dict[str, dict[str, Any]] = {
    PLAIN: {"to": "main"},
    "split": _split(50, 50),
    "split, first pool only": _split(100, 0),
    "rollout": _rollout("50%"),
    "rollout, first pool only": _rollout("0.001%"),
    "experiment": {"experiment": {"name": "e", "arms": ["main", "candidate"], "metric": "solved", "warmup": "0s"}},
}
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


def target_of(name: str) -> str:
    """The name of the gateway of a route."""
    return f"headrace-{name.replace(', ', '-').replace(' ', '-')}"


def gateways() -> list[Gateway]:
    """One for each kind of route."""
    return [Gateway(target_of(name), lambda: Path(sys.executable), partial(launch, ARMS[name])) for name in ARMS]


def measured(
    targets: Sequence[Target], generator: Generator, count: int, seconds: float, progress: Callable[[str], None]
) -> rounds.Rounds:
    """All rounds. A round with other work on the machine is used too: it adds to all targets."""

    def point(target: Target) -> Point:
        seen = generator.measure(WORKLOAD, target, seconds)
        cpu = seen.figures.get(CPU.name)
        seen_as = f"{seen.failed} wrong or missing answers" if cpu is None else f"{cpu:.1f} µs a request"
        progress(f"arms {target.name}: {seen_as}")
        return seen

    return rounds.run(targets, count, point, float("inf"), lambda: None)


def prices(accepted: Sequence[rounds.Round]) -> dict[str, tuple[float, float, float, float]]:
    """For each route: the median µs a request, and the lower quartile, the median and the upper quartile of the
    differences from the plain route in the same round. Rounds with wrong answers do not count."""
    accepted = [one for one in accepted if all(CPU.name in figures for figures in one.values())]
    made: dict[str, tuple[float, float, float, float]] = {}
    for name in ARMS:
        own = [one[target_of(name)][CPU.name] for one in accepted]
        more = sorted(one[target_of(name)][CPU.name] - one[target_of(PLAIN)][CPU.name] for one in accepted)
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
