"""The judge of the differential suite: it must see every kind of difference, and forgive only what is meant."""

import pytest

from tests.servers.comparison import Difference, disagreements
from tests.servers.exchange import Told

ERROR = {"error": True}
SAID = [Told(200, "application/json", {"a": 1, "deep": [{"b": 2}]}), Told(500, "error", ERROR)]


def differing(**changes: object) -> list[Difference]:
    return [Difference("", "", "", "", **changes)]  # type: ignore[arg-type]


def test_the_same_is_the_same() -> None:
    assert disagreements("case", SAID, list(SAID), []) == []


@pytest.mark.parametrize(
    "ours",
    [
        Told(201, "application/json", SAID[0].document),
        Told(200, "text/plain", SAID[0].document),
        Told(200, "application/json", {"a": 1, "deep": [{"b": 3}]}),
        Told(200, "application/json", {"a": 1, "deep": [{"b": 2}], "more": 0}),
    ],
)
def test_another_status_kind_or_document_is_seen(ours: Told) -> None:
    assert len(disagreements("case", SAID, [ours, SAID[1]], [])) == 1


def test_a_meant_status_must_be_that_status_and_a_well_formed_error() -> None:
    table = differing(cases={"case": [None, 400]})
    assert disagreements("case", SAID, [SAID[0], Told(400, "error", ERROR)], table) == []
    for wrong in (
        SAID[1],
        Told(400, "error", {"text": True}),
        Told(400, "text/html", ERROR),
        Told(422, "error", ERROR),
    ):
        assert len(disagreements("case", SAID, [SAID[0], wrong], table)) == 1
    assert len(disagreements("another case", SAID, [SAID[0], Told(400, "error", ERROR)], table)) == 1


def test_members_are_left_out_however_deep_and_only_where_it_is_said() -> None:
    ours = [Told(200, "application/json", {"a": 1, "deep": [{"b": 9}]}), SAID[1]]
    table = differing(keys=["b"], leaves_out=["case"])
    assert disagreements("case", SAID, ours, table) == []
    assert len(disagreements("another case", SAID, ours, table)) == 1


def test_a_free_body_still_has_its_status() -> None:
    table = differing(free=["case"])
    assert disagreements("case", SAID, [Told(200, "binary", {}), SAID[1]], table) == []
    assert len(disagreements("case", SAID, [Told(201, "binary", {}), SAID[1]], table)) == 1


def test_calls_have_words_for_statuses_and_no_bodies_when_they_fail() -> None:
    theirs = [Told(0, "INTERNAL", [])]
    table = differing(cases={"case": ["INVALID_ARGUMENT"]})
    assert disagreements("case", theirs, [Told(0, "INVALID_ARGUMENT", [])], table) == []
    assert len(disagreements("case", theirs, [Told(0, "INVALID_ARGUMENT", [{"id": "1"}])], table)) == 1
    assert len(disagreements("case", theirs, [Told(0, "OK", [])], table)) == 1
