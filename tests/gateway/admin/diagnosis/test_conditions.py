"""The defects that the state and the metrics show: each is noticed, and nothing is noticed without one."""

import re
import time
from pathlib import Path
from typing import Any, get_args

import pytest

from adapters.reason import CAUSES
from gateway.admin.diagnosis.conditions import _STOPPED, LOSSES, conditions
from gateway.admin.diagnosis.evidence import Evidence, Samples
from gateway.admin.diagnosis.question import question_of
from gateway.admin.diagnosis.refusals import KINDS, UNPROVEN
from gateway.admin.diagnosis.remedies import STEPS
from policies.rollouts.progress import RolloutStatus
from tests.support.gateways import config

Series = list[tuple[dict[str, str], float]]
ENDPOINT = {"pool": "main", "address": "http://10.0.0.5:8000", "health": "healthy", "drained": False}


def evidence(state: dict[str, Any], samples: dict[str, Series]) -> Evidence:
    question = question_of({})
    return Evidence(question, config(), state, Samples(samples), stored=True)


def names(state: dict[str, Any] | None = None, samples: dict[str, Series] | None = None) -> list[str]:
    causes = list(conditions(evidence(state or {}, samples or {})))
    assert all(each.steps for each in causes)
    return [each.name for each in causes]


def test_without_a_defect_there_is_none() -> None:
    healthy = {"endpoints": [ENDPOINT], "redis": {"up": True}, "issuers": [{"issuer": "a", "keys": 1}]}
    later = time.time() + 90 * 86400
    certificate: Series = [({"listener": "http"}, later)]
    running: Series = [({"rollout": "r", "status": "running"}, 1.0), ({"rollout": "r", "status": "held"}, 0.0)]
    workers: Series = [({"slot": "0"}, 1.0)]
    samples: dict[str, Series] = {loss.metric: [({}, 0.0)] for loss in LOSSES}
    samples["headrace_certificate_expiry_timestamp_seconds"] = certificate
    samples["headrace_rollout_status"] = running
    samples["headrace_worker_up"] = workers
    assert names(healthy, samples) == []


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ({"configuration": {"last_error": "a.yaml:1: pols: unknown field", "file": "a.yaml"}}, "configuration_refused"),
        ({"key_database": {"available": False}}, "state_database_unavailable"),
        ({"redis": {"up": False, "error": "refused"}}, "redis_unavailable"),
        ({"endpoints": [ENDPOINT, {**ENDPOINT, "health": "unhealthy", "probe_error": "503"}]}, "endpoints_unhealthy"),
        ({"endpoints": [{**ENDPOINT, "drained": True}]}, "endpoints_drained"),
        ({"issuers": [{"issuer": "a", "keys": 0, "error": "timed out"}]}, "issuer_without_keys"),
    ],
)
def test_a_state_with_a_defect_names_it(state: dict[str, Any], name: str) -> None:
    assert names(state) == [name]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_each_loss_is_named(loss: Any) -> None:
    assert names(samples={loss.metric: [({"reason": "disk"}, 3.0)]}) == [loss.name]


@pytest.mark.parametrize("status", get_args(RolloutStatus))
def test_a_rollout_that_has_stopped_before_its_end_is_named(status: str) -> None:
    samples: Series = [({"rollout": "r", "status": status}, 1.0)]
    assert names(samples={"headrace_rollout_status": samples}) == (
        ["rollout_stopped"] if status in ("held", "back") else []
    )
    assert set(_STOPPED) <= set(get_args(RolloutStatus))


def test_certificates_and_workers() -> None:
    for left, expected in ((-1, ["certificate_expires"]), (86400, ["certificate_expires"]), (20 * 86400, [])):
        samples: Series = [({"listener": "http"}, time.time() + left)]
        assert names(samples={"headrace_certificate_expiry_timestamp_seconds": samples}) == expected
    assert names(samples={"headrace_certificate_load_failures_total": [({}, 1.0)]}) == ["certificate_refused"]
    assert names(samples={"headrace_worker_up": [({"slot": "0"}, 0.0)]}) == ["workers_end"]


def test_every_metric_and_every_cause_that_is_read_exists() -> None:
    made = {line.split()[0] for line in Path("tests/golden/files/metrics.txt").read_text().splitlines()}
    folder = Path("gateway/admin/diagnosis")
    read = {name for path in folder.glob("*.py") for name in re.findall(r'"(headrace_[a-z_]+)"', path.read_text())}
    assert read
    assert {name for name in read if name.removesuffix("_total") not in made} == set()
    assert KINDS.keys() | UNPROVEN.keys() | STEPS.keys() - {"another_pepper"} <= CAUSES.keys()
