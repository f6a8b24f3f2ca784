"""What a question searches, and what a report of causes looks like."""

import pytest

from gateway.admin.diagnosis.evidence import Evidence, Samples
from gateway.admin.diagnosis.question import question_of
from gateway.admin.diagnosis.report import findings
from gateway.features.requests.search import LabelTest
from gateway.features.usage.query import BadQuery
from tests.support.gateways import config

FAILED = LabelTest("error", None)
DEAD = [{"pool": "main", "address": "http://10.0.0.5:8000", "health": "unhealthy", "drained": False}]


@pytest.mark.parametrize(
    ("symptom", "tests"),
    [
        ("", (FAILED,)),
        ("failing", (FAILED,)),
        ("503", (FAILED, LabelTest("status", 503))),
        ("5xx", (FAILED, LabelTest("status", 500, 599))),
    ],
)
def test_the_store_itself_selects_the_failures_of_a_symptom(symptom: str, tests: tuple[LabelTest, ...]) -> None:
    """Else a thousand newer failures of another kind would hide them."""
    assert question_of({"symptom": symptom} if symptom else {}).failures == tests


@pytest.mark.parametrize("symptom", ["200", "50", "broken", "5xxx"])
def test_an_unknown_symptom_is_refused(symptom: str) -> None:
    with pytest.raises(BadQuery):
        question_of({"symptom": symptom})


def test_a_dead_pool_is_one_cause_and_commands_name_the_file() -> None:
    refused = {"cause": "no_healthy_endpoint", "pool": "main"}
    row = {"at": 1, "id": "r1", "status": 503, "tenant": "acme", "key": "k", "detail": {"reason": refused}}
    state = {"endpoints": DEAD, "configuration": {"file": "/etc/headrace.yaml"}}
    evidence = Evidence(question_of({}), config(), state, Samples({}), stored=True, failed=[row])
    (cause,) = findings(evidence)
    assert cause.name == "no_healthy_endpoint"
    assert "curl -i http://10.0.0.5:8000" in cause.steps[0]
    assert "`headrace requests show r1 --config /etc/headrace.yaml`" in cause.steps[-1]
    (other,) = findings(evidence._replace(failed=[]))
    assert other.name == "endpoints_unhealthy"
