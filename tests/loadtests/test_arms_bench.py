"""The bench of splits, rollouts and experiments: valid gateways that differ in one route, and paired differences."""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from config.loader import load
from loadtests.gateways import arms
from loadtests.gateways.headrace import config
from loadtests.gateways.workloads import Generator, Point
from loadtests.servers import Site, Target

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("name", arms.ARMS)
def test_every_gateway_has_a_valid_file(tmp_path: Path, name: str) -> None:
    site = Site(tmp_path, 8080, 9000)
    file = tmp_path / "headrace.yaml"
    written = arms.written(arms.ARMS[name], site, 8082)
    file.write_text(yaml.safe_dump(written))
    settings = load(file)
    first, second = settings.models[0].routes
    plain = config(site, 8082)
    assert first.to == plain["models"][0]["routes"][0]["to"]
    kinds = [kind for kind in ("to", "split", "rollout", "experiment") if getattr(second, kind) is not None]
    assert kinds == ["to" if name == arms.PLAIN else name.split(",")[0]]


def test_differences_are_paired_by_round() -> None:
    """A drift of the machine reaches all routes of a round alike."""
    accepted = [
        {arms.target_of(name): {"cpu_us": drift + more} for more, name in enumerate(arms.ARMS)}
        for drift in (100, 200, 150, 900, 120)
    ]
    accepted.append({**accepted[0], arms.target_of(arms.PLAIN): {}})  # wrong answers have no figures
    assert arms.prices(accepted) == {name: (150 + more, more, more, more) for more, name in enumerate(arms.ARMS)}


class _Load:
    """Measures the same points again and again."""

    def __init__(self, *points: Point) -> None:
        self._points = list(points)

    def measure(self, *_: Any) -> Point:
        self._points.append(point := self._points.pop(0))
        return point


def test_progress_states_the_cpu_time_of_a_request_and_not_its_rate() -> None:
    target = cast(Target, type("Target", (), {"name": "headrace-split"}))
    point = Point({"cpu_us": 131.25, "rps_16": 6543.0}, 0, 0.0)
    lines: list[str] = []
    arms.measured([target], cast(Generator, _Load(Point({}, 3, 0.0), point)), 2, 0.5, lines.append)
    assert lines == ["arms headrace-split: 3 wrong or missing answers", "arms headrace-split: 131.2 µs a request"]
