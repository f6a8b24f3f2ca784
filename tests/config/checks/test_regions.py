"""Regions, and localities of pools."""

from pathlib import Path

import pytest

from config.loader import load, read

BASE = """\
version: 1
zone: eu-1a
regions: [{name: eu, zones: [eu-1a, eu-1b]}, {name: us, zones: [us-1a]}]
pools:
  - {name: main, endpoints: [{url: "http://10.0.0.5:8000", zone: eu-1a}], balance: {locality: nearest}}
models: [{name: chat, routes: [{to: main}]}]
tenants: [{name: acme, models: [chat]}]
"""


def test_the_near_zones_are_those_of_the_own_region(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(BASE)
    assert load(path).near_zones == {"eu-1a", "eu-1b"}
    path.write_text(BASE.replace("zone: eu-1a\nregions", "zone: far\nregions"))
    assert load(path).near_zones == {"far"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("locality: nearest", "locality: shares"), "regions: has no effect: no pool has balance.locality nearest"),
        (("zones: [us-1a]", "zones: [us-1a, eu-1b]"), "is a zone of the region eu too"),
        (("{locality: nearest}", "{locality: nearest, by: hash, key: user}"), "has no effect: hash sends a key"),
        (("{locality: nearest}", "{locality: nearest, zone_traffic: 50%}"), "has no effect: the locality is nearest"),
        (("zone: eu-1a\nregions", "regions"), "has no effect: the file does not set the gateway's `zone`"),
    ],
)
def test_settings_without_effect_are_refused(change: tuple[str, str], problem: str) -> None:
    problems = [str(each) for each in read(Path("headrace.yaml"), BASE.replace(*change, 1)).problems]
    assert any(problem in each for each in problems), problems
