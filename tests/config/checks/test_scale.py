"""Endpoints that the gateway cannot put to sleep, and deployments of Ray Serve that it cannot scale."""

import pytest

from tests.config.conftest import Complaints

BASE = """version: 1
pools:
  - name: a
    {pool}
models:
  - {{name: chat, routes: [{{to: a}}]}}
tenants:
  - {{name: acme, models: ["*"], keys: [{{id: k, hash: "{hash}"}}]}}
"""
VLLM = "protocol: {name: openai, dialect: vllm}"
TWO = "endpoints: [http://127.0.0.1:8000, http://127.0.0.1:8001]"
ONE = "endpoints: [http://127.0.0.1:8000/app]"
DNS = "discover: {dns: 'm.test:80'}"
SERVE = "protocol: {name: ray-serve, application: app, dashboard_port: 8265}"
SCALE = "scale: {min: 1, max: 3, deployment: Model}"


def written(*fields: str) -> str:
    return BASE.format(pool="\n    ".join(fields), hash="0" * 64)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ((TWO, "scale: {min: 0, max: 2, sleep: 1}"), "sleep: needs servers of vLLM: write"),
        ((TWO, "protocol: oip-http", "scale: {min: 0, max: 2, sleep: 1}"), "sleep: needs servers of vLLM: write"),
        ((TWO, VLLM, "probe: null", "scale: {min: 0, max: 2, sleep: 1}"), "sleep: needs the health check"),
        ((TWO, VLLM, "scale: {min: 1, max: 3, sleep: 1}"), "max: exceeds the 2 written `endpoints`"),
        ((TWO, VLLM, "scale: {min: 0, max: 2, sleep: 3}"), "sleep: expected 1 or 2"),
        ((DNS, VLLM, "scale: {min: 0, sleep: 2}"), "sleep: is for written"),
        ((TWO, VLLM, "scale: {min: 0, max: 2}"), ": has no effect without `discover`, `sleep` or `deployment`"),
        (("runtime: {kind: llm, model: m}", "scale: {min: 0, sleep: 1}"), ": has no effect on a runtime"),
        ((ONE, SCALE), "deployment: needs the Serve REST API: write"),
        ((ONE, "protocol: {name: ray-serve, dashboard_port: 8265}", SCALE), "deployment: needs the Serve REST API"),
        ((ONE, "protocol: ray-serve", SCALE), "deployment: needs the Serve REST API"),
        (("endpoints: [http://a.test/app, http://b.test/app]", SERVE, SCALE), "deployment: is for one endpoint"),
        ((DNS, SERVE, SCALE), "deployment: is for one endpoint"),
        ((ONE, SERVE, "scale: {min: 1, max: 3, deployment: Model, sleep: 1}"), "sleep: is for servers of vLLM"),
        ((ONE, SERVE, "scale: {min: 0, max: 3, deployment: Model}"), "min: is 0, but a deployment of Ray Serve"),
        ((ONE, SERVE, "scale: {min: 2, hold: 1m, deployment: Model}"), "hold: has no effect: min and max are equal"),
    ],
)
def test_servers_that_cannot_be_scaled_are_refused(
    complaints: Complaints, fields: tuple[str, ...], problem: str
) -> None:
    place = "pools[0].scale" if problem.startswith(":") else "pools[0].scale."
    lines = complaints(written(*fields))
    assert len([line for line in lines if f"{place}{problem}" in line]) == 1, lines


@pytest.mark.parametrize(
    "fields",
    [
        (TWO, VLLM, "scale: {min: 0, max: 2, sleep: 2, prewarm: true}"),
        (ONE, SERVE, SCALE),
        (ONE, SERVE, "scale: {min: 2, deployment: Model}"),
    ],
)
def test_servers_that_can_be_scaled_are_accepted(complaints: Complaints, fields: tuple[str, ...]) -> None:
    assert complaints(written(*fields)) == []
