"""The files under `deploy/`: rules by promtool, dashboards by their generator."""

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.debian import binary

DEPLOY = Path(__file__).parents[2] / "deploy"


def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", DEPLOY / "grafana" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.dashboards())


def promtool(*arguments: str) -> None:
    program = binary("promtool", "prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_valid() -> None:
    promtool("check", "rules", str(DEPLOY / "prometheus" / "headrace.rules.yaml"))


def test_alerts_fire_and_rest_as_their_tests_describe() -> None:
    promtool("test", "rules", str(DEPLOY / "prometheus" / "headrace.rules.test.yaml"))


@pytest.mark.plain
def test_dashboards_are_those_of_their_source() -> None:
    files = {path.name: path.read_text() for path in (DEPLOY / "grafana").glob("*.json")}
    assert files == generated(), "run: python deploy/grafana/generate.py"


@pytest.mark.plain
def test_panels_have_places_of_their_own() -> None:
    for text in generated().values():
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text)["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert max(x for x, _ in cells) < 24
            assert not cells & taken, panel["title"]
            taken |= cells
