"""Deployments of Ray Serve whose number of replicas the gateway cannot set."""

import pytest

from tests.config.checks.test_sleep import written
from tests.config.conftest import Complaints

ONE = "endpoints: [http://127.0.0.1:8000/app]"
SERVE = "protocol: {name: ray-serve, application: app, dashboard_port: 8265}"
SCALE = "scale: {min: 1, max: 3, deployment: Model}"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ((ONE, SCALE), "scale.deployment: needs the Serve REST API: write"),
        (
            (ONE, "protocol: {name: ray-serve, dashboard_port: 8265}", SCALE),
            "scale.deployment: needs the Serve REST API",
        ),
        ((ONE, "protocol: ray-serve", SCALE), "scale.deployment: needs the Serve REST API"),
        (("endpoints: [http://a.test/app, http://b.test/app]", SERVE, SCALE), "scale.deployment: is for one endpoint"),
        (("discover: {dns: 'm.test:80'}", SERVE, SCALE), "scale.deployment: is for one endpoint"),
        ((ONE, SERVE, "scale: {min: 1, max: 3, deployment: Model, sleep: 1}"), "scale.sleep: is for servers of vLLM"),
        ((ONE, SERVE, "scale: {min: 0, max: 3, deployment: Model}"), "scale.min: is 0, but a deployment of Ray Serve"),
        (
            (ONE, SERVE, "scale: {min: 2, hold: 1m, deployment: Model}"),
            "scale.hold: has no effect: min and max are equal",
        ),
    ],
)
def test_deployments_that_cannot_be_scaled_are_refused(
    complaints: Complaints, fields: tuple[str, ...], problem: str
) -> None:
    lines = complaints(written(*fields))
    assert len([line for line in lines if f"pools[0].{problem}" in line]) == 1, lines


@pytest.mark.parametrize("scale", [SCALE, "scale: {min: 2, deployment: Model}"])
def test_a_deployment_behind_one_endpoint_is_scaled(complaints: Complaints, scale: str) -> None:
    assert complaints(written(ONE, SERVE, scale)) == []
