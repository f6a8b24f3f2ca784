"""`headrace check` and explanations have the rules of the number of replicas."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.process.commands import app

FILE = str(Path(__file__).with_name("replicas.yaml"))


def test_check_prints_the_rules_of_each_pool_that_follows_the_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_KEY", "of-the-runtimes")
    lines = CliRunner().invoke(app, ["check", FILE]).output.splitlines()
    assert [line for line in lines if line.startswith("pool ")] == [
        "pool small: 0 to 1 replicas of 16 requests each: more if over 1% wait longer than 1s, fewer after 10m, "
        "none after 10m without a request; it shares gpu0, and needs 3GiB",
        "pool remote: 2 to 8 replicas of 64 requests each: more if over 5% wait longer than 500ms, fewer after 5m",
        "pool sleepers: 1 to 2 replicas of 64 requests each: more if over 1% wait longer than 1s, fewer after 10m; "
        "the others sleep at level 2",
        "pool served: 1 to 3 replicas of 4 requests each: more if over 1% wait longer than 1s, fewer after 10m; "
        "they are those of the deployment Model in Ray Serve",
        "pool placed: 0 to 4 replicas of 32 requests each: more if over 1% wait longer than 1s, fewer after 10m, "
        "none after 10m without a request; in the Ray cluster 10.0.0.1:6379, by strict_spread, "
        "with 4 CPU, 8GiB memory each",
        "pool two: 2 replicas in the Ray cluster auto, by spread, with 1 CPU each",
    ]


def test_an_explanation_has_the_rules_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_KEY", "of-the-runtimes")
    arguments = ["explain", "--config", FILE, "--tenant", "big", "--model", "chat"]
    result = CliRunner().invoke(app, arguments)
    assert "replicas: min 2, max 8, places 64, wait 500ms" in result.output, result.output
    placed = CliRunner().invoke(app, [*arguments[:-1], "apart", "--json"])
    assert json.loads(placed.output)["settings"]["placement"] == {
        "ray": "10.0.0.1:6379", "strategy": "strict_spread", "CPU": 4.0, "memory": 8.0 * 2**30,
    }  # fmt: skip
    fixed = CliRunner().invoke(app, [*arguments[:-1], "other", "--json"])
    assert "replicas" not in json.loads(fixed.output).get("settings", {}), fixed.output
