"""The times that steps of rollouts need, and explanations of their arms."""

from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner

from config.cases import described_request
from config.loader import load
from gateway.features.explain.text import binding_lines
from gateway.features.explain.why import Policy
from gateway.process.commands import app
from policies.rollouts.power import events_until, step_powers
from tests.support.gateways import config
from tests.support.planned_rollouts import plan

BASE = {"topic": "in", "reply": {"topic": "out", "allowed": ["out.*"]}, "dead_letters": "dead"}
FILE = Path(__file__).with_name("arms.yaml")


def test_each_binding_has_a_line() -> None:
    bus = [
        {"name": "a", "broker": "kafka://h:1", "tenant": "acme", "model": "chat", **BASE},
        {"name": "b", "broker": "nats://h:1", "key_header": "x-key", "path": "/v2/models/m/infer", **BASE},
    ]
    assert list(binding_lines(config(listen={"bus": bus}))) == [
        "listen.bus a: kafka in (group headrace) -> /v1/chat/completions of chat as tenant acme -> out, out.*; "
        "dead letters: dead",
        "listen.bus b: nats in (group headrace) -> /v2/models/m/infer as the holder of the key in the header x-key -> "
        "out, out.*; dead letters: dead",
    ]


@pytest.mark.parametrize(
    ("share", "ratio", "events"), [(0.05, 2, 303), (0.05, 5, 35), (0.5, 2, 89), (0.5, 5, 21), (0.2, 3, 39)]
)
def test_events_on_the_mean_path_are_near_the_median(share: float, ratio: float, events: int) -> None:
    assert events_until(share, ratio, 1.0, 4.605) == pytest.approx(events, rel=0.2, abs=3)


def test_a_step_without_enough_events_has_no_time() -> None:
    assert events_until(1.0, 5.0, 1.0, 4.6) == events_until(0.05, 1.2, 1.2, 4.6) == inf
    slow = plan(back_if=[{"metric": "first_byte", "slower_than": "2s"}])
    assert list(step_powers(slow, 50.0, 0.01)) == []
    fast, faster = (list(step_powers(plan(), rate, 0.01)) for rate in (50.0, 100.0))
    assert fast[0].seconds[0] == pytest.approx(2 * faster[0].seconds[0])


def test_check_prints_how_long_steps_need() -> None:
    result = CliRunner().invoke(app, ["check", str(FILE), "--rate", "50/s"])
    assert result.exit_code == 0
    assert "rollout r: step 5% for 10m sees failures of 2x after " in result.output
    assert "rollout r: step 100% for 1h sees failures of 2x after no time, 3x after no time" in result.output
    assert "rollout r:" not in CliRunner().invoke(app, ["check", str(FILE)]).output
    wrong = CliRunner().invoke(app, ["check", str(FILE), "--rate", "fast"])
    assert wrong.exit_code == 2
    assert "expected a rate such as 10/s" in wrong.output


def test_an_explanation_has_the_arm_and_its_rewrite() -> None:
    policy, arms = Policy.of(load(FILE)), dict[str, object]()
    for i in range(60):
        request = described_request({"tenant": "acme", "model": "chat", "user": f"u{i}"})
        explanation = policy.explain_description(request, 0.0)
        assert explanation.to is not None
        assert [(side.arm, round(side.share, 2)) for side in explanation.arms] == [("v1", 0.95), ("v2", 0.05)]
        arms[str(explanation.to.arm)] = explanation.sent
    assert arms == {"v1": {}, "v2": {"temperature": 0}}
