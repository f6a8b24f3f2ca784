"""The judge of the differential suite, which must accept only deliberate differences, and the table of these."""

from pathlib import Path

import pytest

from tests.servers.cases import CASES
from tests.servers.comparison import Difference, disagreements
from tests.servers.differences import AT_THE_GATEWAY, DIFFERENCES
from tests.servers.exchange import Reply
from tests.servers.record import recorded

pytestmark = pytest.mark.plain
RECORDED = recorded()
PAGE = Path(__file__).parents[2] / "docs/tensor-runtime.md"
ERROR = {"error": True}
RESPONSES = [Reply(200, "application/json", {"a": 1, "deep": [{"b": 2}]}), Reply(500, "error", ERROR)]


def differing(**changes: object) -> list[Difference]:
    return [Difference("", "", "", "", **changes)]  # type: ignore[arg-type]


def test_the_same_is_the_same() -> None:
    assert disagreements("case", RESPONSES, list(RESPONSES), []) == []


@pytest.mark.parametrize(
    "ours",
    [
        Reply(201, "application/json", RESPONSES[0].document),
        Reply(200, "text/plain", RESPONSES[0].document),
        Reply(200, "application/json", {"a": 1, "deep": [{"b": 3}]}),
        Reply(200, "application/json", {"a": 1, "deep": [{"b": 2}], "more": 0}),
    ],
)
def test_another_status_kind_or_document_is_seen(ours: Reply) -> None:
    assert len(disagreements("case", RESPONSES, [ours, RESPONSES[1]], [])) == 1


def test_a_meant_status_must_be_that_status_and_a_well_formed_error() -> None:
    table = differing(cases={"case": [None, 400]})
    assert disagreements("case", RESPONSES, [RESPONSES[0], Reply(400, "error", ERROR)], table) == []
    for wrong in (
        RESPONSES[1],
        Reply(400, "error", {"text": True}),
        Reply(400, "text/html", ERROR),
        Reply(422, "error", ERROR),
    ):
        assert len(disagreements("case", RESPONSES, [RESPONSES[0], wrong], table)) == 1
    assert len(disagreements("another case", RESPONSES, [RESPONSES[0], Reply(400, "error", ERROR)], table)) == 1


def test_members_are_ignored_at_any_depth_of_the_listed_cases_only() -> None:
    ours = [Reply(200, "application/json", {"a": 1, "deep": [{"b": 9}]}), RESPONSES[1]]
    table = differing(keys=["b"], leaves_out=["case"])
    assert disagreements("case", RESPONSES, ours, table) == []
    assert len(disagreements("another case", RESPONSES, ours, table)) == 1


def test_a_free_body_still_has_its_status() -> None:
    table = differing(free=["case"])
    assert disagreements("case", RESPONSES, [Reply(200, "binary", {}), RESPONSES[1]], table) == []
    assert len(disagreements("case", RESPONSES, [Reply(201, "binary", {}), RESPONSES[1]], table)) == 1


def test_calls_have_words_for_statuses_and_no_bodies_when_they_fail() -> None:
    theirs = [Reply(0, "INTERNAL", [])]
    table = differing(cases={"case": ["INVALID_ARGUMENT"]})
    assert disagreements("case", theirs, [Reply(0, "INVALID_ARGUMENT", [])], table) == []
    assert len(disagreements("case", theirs, [Reply(0, "INVALID_ARGUMENT", [{"id": "1"}])], table)) == 1
    assert len(disagreements("case", theirs, [Reply(0, "OK", [])], table)) == 1


def test_every_recorded_answer_has_a_case() -> None:
    assert list(RECORDED) == list(CASES)


def test_every_difference_belongs_to_a_case_and_differs_from_triton() -> None:
    for one in (*DIFFERENCES, *AT_THE_GATEWAY):
        assert one.cases or one.free or one.leaves_out, one.topic
        assert {*one.cases, *one.free, *one.leaves_out} <= set(CASES), one.topic
        for name, statuses in one.cases.items():
            differ = [
                expected for expected, reply in zip(statuses, RECORDED[name], strict=True) if expected is not None
            ]
            assert differ, f"{name}: no answer differs"
            theirs = [reply.status or reply.kind for reply in RECORDED[name]]
            assert any(expected not in (None, their) for expected, their in zip(statuses, theirs, strict=True)), name


def test_the_page_has_every_difference() -> None:
    every = (*DIFFERENCES, *AT_THE_GATEWAY)
    rows = [f"| {one.topic} | {one.triton} | {one.ours} | {one.why} |" for one in every]
    text = PAGE.read_text()
    missing = [row for row in rows if row not in text]
    assert not missing, "docs/tensor-runtime.md lacks:\n" + "\n".join(missing)
