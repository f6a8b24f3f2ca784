"""The bench of splits, rollouts and experiments: valid gateways that differ in one route, and paired differences."""

from pathlib import Path

import pytest
import yaml

from config.loader import load
from loadtests import arms
from loadtests.headrace import config
from loadtests.servers import Site


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
    assert kinds == ["to" if name == arms.PLAIN else name]


def test_differences_are_paired_by_round() -> None:
    """A drift of the machine reaches all routes of a round alike."""
    accepted = [
        {f"headrace-{name}": {"cpu_us": drift + more} for name, more in zip(arms.ARMS, (0, 1, 2, 3), strict=True)}
        for drift in (100, 200, 150, 900, 120)
    ]
    assert arms.prices(accepted) == {
        "plain": (150, 0, 0, 0),
        "split": (151, 1, 1, 1),
        "rollout": (152, 2, 2, 2),
        "experiment": (153, 3, 3, 3),
    }
