"""The judge of the differential suite: it must detect every kind of difference, and accept only deliberate
differences."""

import pytest

from tests.servers.comparison import Difference, disagreements
from tests.servers.exchange import Reply

pytestmark = pytest.mark.plain
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
