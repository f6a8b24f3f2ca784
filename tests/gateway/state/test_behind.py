"""Batches in which items are refused and the database is away, in any order: each item ends once, in its order."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DataError, IntegrityError, OperationalError, ProgrammingError

from gateway.state import behind
from gateway.state.behind import WriteBehind
from gateway.state.errors import StateConfigError, StoreMismatch, StoreRefused, StoreUnavailable
from gateway.state.faults import database_errors, is_outage
from gateway.state.refusals import write_each
from tests.support.waiting import until

REFUSALS = (StoreRefused("no"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), KeyError("id"), RecursionError())


class Database:
    """`bad` items are refused; some of the calls find the database away."""

    def __init__(self, bad: set[int] | frozenset[int], away: Sequence[bool] = ()) -> None:
        self.bad = bad
        self.away = list(away)
        self.written: list[int] = []
        self.calls = 0

    def write(self, items: Sequence[int]) -> None:
        self.calls += 1
        if self.away and self.away.pop(0):
            raise StoreUnavailable("away")
        if wrong := [item for item in items if item in self.bad]:
            raise REFUSALS[wrong[0] % len(REFUSALS)]
        self.written += items


@given(st.integers(0, 40), st.frozensets(st.integers(0, 39)), st.lists(st.booleans(), max_size=30))
def test_every_item_is_written_once_or_refused(size: int, bad: frozenset[int], away: list[bool]) -> None:
    items, database, refused = list(range(size)), Database(bad, away), list[int]()
    for _ in range(len(away) + 1):
        outcome = write_each(items, database.write)
        refused += [items[at] for at in outcome.refused]
        items = items[outcome.ended :]
        if outcome.outage is None:
            break
    assert items == []
    assert database.written == [item for item in range(size) if item not in bad]
    assert refused == [item for item in range(size) if item in bad]


@given(st.integers(0, 999))
def test_one_item_costs_few_calls(bad: int) -> None:
    database = Database({bad})
    assert list(write_each(range(1000), database.write).refused) == [bad]
    assert database.calls < 40


async def test_an_outage_is_waited_for_and_a_refused_item_is_not(caplog: pytest.LogCaptureFixture) -> None:
    database, ended = Database({1}, away=[True] * 3), dict[int, Exception | None]()
    writes: WriteBehind[int] = WriteBehind("things", database.write, ended.__setitem__, "thing {}".format, most=2)
    for item in range(5):
        writes.put(item)
    running = asyncio.create_task(writes.run())
    await until(lambda: len(ended) == 5)
    assert database.written == [0, 2, 3, 4]
    assert [item for item, error in ended.items() if error is not None] == [1]
    assert (len(writes), writes.size) == (0, 0)
    running.cancel()
    assert await writes.aclose() == 0
    assert [record.getMessage() for record in caplog.records] == [
        "things: writing waits: away; meanwhile items wait in memory",
        "things: thing 1 is not stored: UnicodeEncodeError: "
        "'utf-8' codec can't encode character '\\ud800' in position 0: no",
        "things: writing continues",
    ]


async def test_items_that_wait_at_the_end_are_lost_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    database = Database(set(), away=[True] * 9)
    writes: WriteBehind[int] = WriteBehind("things", database.write, lambda *_: None, str)
    writes.put(1)
    assert await writes.aclose() == 1
    assert "things: 1 items are lost: away" in caplog.text


async def test_a_database_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "PATIENCE", 0.0)
    database = Database(set())
    writes: WriteBehind[int] = WriteBehind("things", database.write, lambda *_: None, str)
    writes.put(1)
    running = asyncio.create_task(writes.run())
    await until(lambda: not len(writes))
    assert database.written == [1]  # the same thread is waited for
    running.cancel()


class _State(Exception):
    def __init__(self, sqlstate: str | None, message: str = "m") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("kind", "state", "outage"),
    [
        (DataError, None, False),  # a NUL character
        (DataError, "22001", False),
        (IntegrityError, "23505", False),
        (ProgrammingError, "42804", False),
        (OperationalError, "54000", False),  # an index row that is too long
        (ProgrammingError, None, False),  # a type that the driver does not have
        (ProgrammingError, "42P01", True),  # a missing table
        (ProgrammingError, "42501", True),  # a missing right
        (OperationalError, "53100", True),  # a full disk
        (OperationalError, "55P03", True),  # a lock timeout
        (OperationalError, None, True),
    ],
)
def test_errors_of_a_database(kind: Any, state: str | None, outage: bool) -> None:
    with pytest.raises(StoreUnavailable if outage else StoreRefused) as raised, database_errors("the database"):
        raise kind("INSERT secret", {}, _State(state, "the value\nDETAIL: of a client"))
    assert is_outage(raised.value) is outage
    assert str(raised.value).endswith("the value")


@pytest.mark.parametrize("error", [StateConfigError("c"), StoreMismatch("m"), OSError("full"), TimeoutError()])
def test_an_error_that_an_operator_mends_is_an_outage(error: Exception) -> None:
    assert is_outage(error)


def test_a_text_that_is_not_unicode_is_not_in_a_message() -> None:
    with pytest.raises(StoreRefused, match="refuses the data: a text is not valid Unicode"), database_errors("it"):
        "secret\ud800".encode()
