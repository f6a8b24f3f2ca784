"""`headrace check` and explanations have the rules of the number of replicas."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.commands import app

WRITTEN = """
version: 1
devices: [{name: gpu0, memory: 8GiB}]
pools:
  - name: small
    runtime:
      {kind: llm, model: "bundled:m", max_num_seqs: 16, replicas: {min: 0, max: 1, device: gpu0, memory: 3GiB}}
  - name: remote
    discover: {dns: "models.test:8000"}
    scale: {min: 2, max: 8, places: 64, wait: 500ms, late: 5%, hold: 5m}
  - name: sleepers
    protocol: {name: openai, dialect: vllm}
    endpoints: [http://127.0.0.1:8000, http://127.0.0.1:8001]
    scale: {min: 1, max: 2, places: 64, sleep: 2}
  - name: served
    protocol: {name: ray-serve, application: app, dashboard_port: 8265}
    endpoints: [http://127.0.0.1:8000/app]
    scale: {min: 1, max: 3, places: 4, deployment: Model}
  - {name: fixed, runtime: {kind: llm, model: "bundled:m", replicas: 2}}
  - name: placed
    runtime:
      {kind: llm, model: "bundled:m", replicas: {min: 0, max: 4}, on: ray, resources: {cpus: 4, memory: 8GiB},
       ray: {address: "10.0.0.1:6379", strategy: strict_spread, key: "${RAY_KEY}"}}
  - {name: two, runtime: {kind: llm, model: "bundled:m", replicas: 2, on: ray, ray: {address: auto, key: "${RAY_KEY}"}}}
models:
  - {name: chat, routes: [{when: {tenant: [big]}, to: remote}, {to: small}]}
  - {name: other, routes: [{to: fixed}]}
  - {name: more, routes: [{to: sleepers}]}
  - {name: apart, routes: [{to: placed}]}
  - {name: few, routes: [{to: two}]}
  - {name: app, routes: [{to: served}]}
tenants: [{name: big, models: ["*"]}, {name: acme, models: ["*"]}]
"""


def test_check_prints_the_rules_of_each_pool_that_follows_the_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_KEY", "of-the-runtimes")
    file = tmp_path / "gateway.yaml"
    file.write_text(WRITTEN)
    lines = CliRunner().invoke(app, ["check", str(file)]).output.splitlines()
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


def test_an_explanation_has_the_rules_of_its_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_KEY", "of-the-runtimes")
    file = tmp_path / "gateway.yaml"
    file.write_text(WRITTEN)
    arguments = ["explain", "--config", str(file), "--tenant", "big", "--model", "chat"]
    result = CliRunner().invoke(app, arguments)
    assert "replicas: min 2, max 8, places 64, wait 500ms" in result.output, result.output
    placed = CliRunner().invoke(app, [*arguments[:-1], "apart", "--json"])
    assert json.loads(placed.output)["settings"]["placement"] == {
        "ray": "10.0.0.1:6379", "strategy": "strict_spread", "CPU": 4.0, "memory": 8.0 * 2**30,
    }  # fmt: skip
    fixed = CliRunner().invoke(app, [*arguments[:-1], "other", "--json"])
    assert "replicas" not in json.loads(fixed.output).get("settings", {}), fixed.output
