import asyncio
import threading
from collections.abc import Sequence

import pytest

from gateway.auth import trail as trail_module
from gateway.auth.audit import Act, Actor
from gateway.auth.trail import Trail
from gateway.state.errors import StoreUnavailable
from tests.support.waiting import until

ME = Actor("gateway@here")


def act(i: int) -> Act:
    return Act(ME, f"act.{i}")


class Book:
    """A store of acts, which can be unavailable."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.away = False
        self.begun = 0
        self.free = threading.Event()
        self.free.set()

    def write(self, batch: Sequence[tuple[float, Act]]) -> None:
        self.begun += 1
        assert self.free.wait(300)
        if self.away:
            raise StoreUnavailable("the key database cannot be used now")
        self.written += [one.action for _, one in batch]

    async def until(self, count: int) -> None:
        await until(lambda: len(self.written) >= count)


@pytest.fixture
def book() -> Book:
    return Book()


async def test_acts_are_written_in_order(book: Book) -> None:
    trail = Trail(book.write)
    task = asyncio.create_task(trail.run())
    for i in range(5):
        trail.note(act(i))
    await book.until(5)
    trail.note(act(5))
    await book.until(6)
    assert book.written == [f"act.{i}" for i in range(6)]
    task.cancel()
    await trail.aclose()
    assert len(book.written) == 6


async def test_acts_during_an_outage_of_the_database_are_written_after_it(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    book.away = True
    trail = Trail(book.write)
    task = asyncio.create_task(trail.run())
    trail.note(act(0))
    await until(lambda: book.begun > 1)  # it is tried again
    trail.note(act(1))
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "audit: writing waits: the key database cannot be used now; meanwhile items wait in memory"
    ]
    book.away = False
    await book.until(2)
    assert book.written == ["act.0", "act.1"]
    task.cancel()
    await trail.aclose()


async def test_the_last_acts_are_written_at_the_end_and_none_twice(book: Book) -> None:
    trail = Trail(book.write)
    task = asyncio.create_task(trail.run())
    book.free.clear()
    trail.note(act(0))
    await until(lambda: book.begun)  # a thread is at it
    trail.note(act(1))
    task.cancel()
    closing = asyncio.create_task(trail.aclose())
    await asyncio.sleep(0)
    book.free.set()
    await closing
    assert book.written == ["act.0", "act.1"]


async def test_a_database_that_stays_away_does_not_keep_the_process(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    book.away = True
    trail = Trail(book.write)
    trail.note(act(0))
    await trail.aclose()
    assert trail.lost == 1
    assert "audit: 1 items are lost" in caplog.text


async def test_acts_that_wait_are_bounded(
    book: Book, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trail_module, "MAX_WAITING", 2)
    trail = Trail(book.write)
    for i in range(3):
        trail.note(act(i))
    assert trail.lost == 1
    assert "recorded in this log only" in caplog.text
    await trail.aclose()
    assert book.written == ["act.0", "act.1"]
