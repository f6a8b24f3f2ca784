"""The inbox: a report is answered when its values are stored. Without the database it is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.errors import CapacityError
from gateway.features.experiments import inbox as inboxes
from gateway.features.experiments.inbox import FeedbackInbox
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.rollouts.store import RolloutStore
from tests.support.gateways import PEPPER
from tests.support.rollouts import row
from tests.support.waiting import until


class Inbox:
    """An inbox with a running writer."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/state.db"
        self.inbox = FeedbackInbox(lambda: self.url, lambda: PEPPER, LiveComparisons())
        self.task = asyncio.create_task(self.inbox.run())

    def stored(self) -> int:
        store = RolloutStore(self.url, PEPPER)
        try:
            with store._database.transaction() as connection:
                return int(connection.exec_driver_sql("SELECT count(*) FROM feedback").scalar() or 0)
        finally:
            store.close()


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Inbox]:
    made = Inbox(tmp_path)
    yield made
    made.task.cancel()
    await asyncio.wait([made.task])
    await made.inbox.aclose()


async def test_values_are_stored_when_put_returns(one: Inbox) -> None:
    await asyncio.gather(*(one.inbox.put([row(unit, unit % 2, 1.0)]) for unit in range(500)))
    assert one.stored() == 500


async def test_doubles_do_not_reach_the_database_again(one: Inbox) -> None:
    for _ in range(5):
        await one.inbox.put([row(1, 0, 1.0), row(2, 0, 1.0)])
    assert one.inbox.stored == 2
    assert one.stored() == 2


async def test_without_the_database_a_report_is_refused_and_stored_later(
    one: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.inbox.put([row(1, 0, 1.0)])
    monkeypatch.setattr(inboxes, "PATIENCE", 0.05)
    (tmp_path / "state.db").rename(tmp_path / "away.db")
    with pytest.raises(CapacityError) as refused:
        await one.inbox.put([row(2, 0, 1.0)])
    assert refused.value.code == "feedback_unavailable"
    (tmp_path / "away.db").rename(tmp_path / "state.db")
    await until(lambda: one.inbox.stored == 2)
    assert one.stored() == 2


async def test_waiting_values_are_bounded(one: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes, "MOST_WAITING", 3)
    first = asyncio.create_task(one.inbox.put([row(unit, 0, 1.0) for unit in range(3)]))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError):
        await one.inbox.put([row(9, 0, 1.0)])
    await first
    await one.inbox.put([row(9, 0, 1.0)])
    assert one.stored() == 4


async def test_the_last_values_are_written_at_the_end(tmp_path: Path) -> None:
    one = Inbox(tmp_path)
    one.task.cancel()
    await asyncio.wait([one.task])
    put = asyncio.create_task(one.inbox.put([row(1, 0, 1.0)]))
    await asyncio.sleep(0)
    await one.inbox.aclose()
    await put
    assert one.stored() == 1
