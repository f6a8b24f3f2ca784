"""The figures of all replicas in one state database: what each does while somebody watches, and the past minutes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.features.live.board import HISTORY_HOURS, LiveBoard
from gateway.telemetry.figures import Dimension
from gateway.telemetry.recent import MINUTE
from tests.support.gateways import PEPPER, config

NOW = 1_000_000 * MINUTE


class Source:
    """A replica with a constant rate."""

    def __init__(self, requests: int) -> None:
        self.sums = {
            "all": {"requests": requests, "durations": {"0": requests}},
            "models": [{"name": "chat", "requests": requests}, {"name": f"own-{requests}", "requests": 1}],
        }
        self.wall = float(NOW)
        self.clock = 0.0
        self.failing = False

    async def load(self) -> dict[str, Any]:
        return {"accepting": True, "in_flight": 1, "recent": self.sums}

    async def minutes(self) -> dict[str, Any]:
        minute = int(self.wall) // MINUTE - 1
        return {str(each): self.sums for each in range(minute - 3, minute + 1)}


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's file stands for a database that several hosts use."""
    monkeypatch.setattr(LiveBoard, "is_shared", True)


def board(database: str, source: Source, **changes: Any) -> LiveBoard:
    settings = config(state={"database": database}, **{"usage": {}, **changes})
    return LiveBoard(lambda: settings, lambda: PEPPER, source, lambda: source.wall, lambda: source.clock)


async def rounds(*boards: tuple[LiveBoard, Source], seconds: float = 2.0) -> None:
    """One round of each replica, and a look of the first one, which somebody watches."""
    for each, source in boards:
        source.clock += seconds
        source.wall += seconds
        await each._rounds()
    await boards[0][0].views()
    if boards[0][0]._looking is not None:
        await boards[0][0]._looking


@pytest.mark.usefixtures("shared")
async def test_replicas_appear_to_a_viewer_and_vanish_when_they_end(any_database: str) -> None:
    one, two = Source(10), Source(20)
    a, b = board(any_database, one), board(any_database, two)
    await b._rounds()
    assert not a._opened().others(a.replica)  # nobody watches: nothing is stored
    for _ in range(4):
        await rounds((a, one), (b, two))
    views = await a.views()
    assert [view.replica for view in views] == [a.replica, b.replica]
    assert [view.figures.all.requests for view in views] == [10, 20]
    await b.aclose()
    for _ in range(2):
        await rounds((a, one))
    assert [view.replica for view in await a.views()] == [a.replica]
    await a.aclose()


@pytest.mark.usefixtures("shared")
async def test_a_replica_that_was_killed_is_silent_and_then_gone(any_database: str) -> None:
    one, two = Source(10), Source(20)
    a, b = board(any_database, one), board(any_database, two)
    for _ in range(4):
        await rounds((a, one), (b, two))
    for _ in range(8):
        await rounds((a, one))
    (_, silent) = await a.views()
    assert silent.silent >= 10
    for _ in range(60):
        await rounds((a, one))
    assert len(await a.views()) == 1
    assert [row.replica for row in a._opened().others(a.replica)] == [b.replica]
    for _ in range(2):
        await rounds((a, one), seconds=3600)
        await rounds((a, one))
        await a.views()
    assert a._opened().others(a.replica) == [], "its row is forgotten"
    await a.aclose()
    b._published = False
    await b.aclose()


@pytest.mark.usefixtures("shared")
async def test_a_replica_stores_nothing_when_the_last_viewer_has_left(any_database: str) -> None:
    one, two = Source(10), Source(20)
    a, b = board(any_database, one), board(any_database, two)
    for _ in range(3):
        await rounds((a, one), (b, two))
    for _ in range(8):
        two.clock += 2
        await b._rounds()
    before = a._opened().others(a.replica)
    two.clock += 2
    await b._rounds()
    assert a._opened().others(a.replica) == before != []
    await asyncio.gather(a.aclose(), b.aclose())


async def test_one_replica_alone_reads_no_database(tmp_path: Path) -> None:
    source = Source(10)
    a = board(f"sqlite:///{tmp_path}/state.db", source, usage=None)
    (view,) = await a.views()
    await a._rounds()
    assert view.figures.all.requests == 10
    assert not (tmp_path / "state.db").exists()
    await a.aclose()


async def test_the_past_minutes_of_all_replicas_outlive_a_restart(any_database: str) -> None:
    one, two = Source(60), Source(120)
    a, b = board(any_database, one), board(any_database, two)
    for _ in range(10):
        await rounds((a, one), seconds=MINUTE)
        await rounds((b, two), seconds=MINUTE)
    await rounds((a, one), (b, two), seconds=20)  # when the last minute is complete in every worker
    await a.aclose()
    await b.aclose()
    one.wall += 10
    again = board(any_database, one)
    history = await again.history(HISTORY_HOURS, None, None)
    (series,) = history["series"]
    assert (history["step"], history["length"], len(series["requests"])) == (60, 10, 10)
    assert series["requests"][-3:] == [3.0, 3.0, 3.0]
    assert series["p95"][-1] == 1.0
    by_model = await again.history(HISTORY_HOURS, "models", None)
    assert {each["name"]: each["requests"][-1] for each in by_model["series"]}["chat"] == 3.0
    alone = await again.history(HISTORY_HOURS, None, b.replica)
    assert alone["series"][0]["requests"][-1] == 2.0
    assert await again.history(HISTORY_HOURS, None, None) == history  # from memory
    await again.aclose()


async def test_minutes_are_stored_once_and_deleted_after_the_last_hours(any_database: str) -> None:
    source = Source(60)
    a = board(any_database, source)
    for _ in range(HISTORY_HOURS * 60 + 30):
        source.wall += MINUTE
        await a._rounds()
    rows = a._opened().minutes_from(0, None)
    minutes = [minute for minute, _ in rows]
    assert len(set(minutes)) == len(minutes) <= HISTORY_HOURS * 60 + 1
    assert minutes == list(range(minutes[0], minutes[-1] + 1))
    await a.aclose()


@pytest.mark.parametrize("first", [1, HISTORY_HOURS])
async def test_a_longer_time_has_the_minutes_of_a_shorter_one(any_database: str, first: int) -> None:
    source = Source(60)
    a = board(any_database, source)
    end = int(source.wall) // MINUTE
    stored = [{"all": {"requests": at}, "models": [{"name": f"m{at % 9}", "requests": at}]} for at in range(100)]
    a._opened().add_minutes("other", {end - 100 + at: json.dumps(each) for at, each in enumerate(stored)}, 0)
    dimensions: tuple[Dimension | None, ...] = (None, "models")
    expected = dict[tuple[int, str | None], Any]()
    for hours in (first, HISTORY_HOURS, 1, HISTORY_HOURS, 1):
        for by in dimensions:
            history = await a.history(hours, by, None)
            assert history["length"] == (60 if hours == 1 else 99)  # the last minute is not settled in every worker
            assert expected.setdefault((hours, by), history) == history
            assert await a.history(hours, by, "other") == history
    whole = expected[HISTORY_HOURS, None]["series"][0]["requests"]
    assert whole == [round(at / MINUTE, 4) for at in range(99)]
    assert expected[1, None]["series"][0]["requests"] == whole[-60:]
    await a.aclose()


async def test_an_idle_replica_writes_once_a_minute(any_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0)
    a = board(any_database, source)
    written = list[dict[int, str]]()
    monkeypatch.setattr(source, "minutes", no_minutes)
    store = a._opened()
    monkeypatch.setattr(store, "add_minutes", lambda _replica, texts, _oldest: written.append(texts))
    for _ in range(10 * MINUTE // 2):
        source.wall += 2
        await a._rounds()
    assert 9 <= len(written) <= 11
    await a.aclose()


async def no_minutes() -> dict[str, Any]:
    return {}
