"""An item that a database can never store, at each place of a batch of each loop: the others are stored once."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text

from config.schema.state import StoredResponsesConfig
from gateway.auth.audit import Act, Actor
from gateway.auth.store import KeyStore
from gateway.auth.trail import Trail
from gateway.features.alerts.thresholds import BudgetAlert
from gateway.features.alerts.writer import AlertWriter
from gateway.features.experiments.inbox import FeedbackInbox, _Waiting
from gateway.features.journal import files as journal_files
from gateway.features.journal.files import WaitingFiles
from gateway.features.journal.sink import RequestSink
from gateway.features.requests.days import open_days
from gateway.features.requests.writer import RequestWriter
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.rollouts.store import RolloutStore
from gateway.features.shadow.live import LiveShadows
from gateway.features.shadow.writer import ShadowWriter
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.store import StoredResponse, StoredTurn
from gateway.features.usage.writer import UsageWriter
from gateway.state.database import open_engine
from gateway.state.refusals import refused
from policies.rollouts.tally import MEASURING, ArmTally, StratumTally
from policies.shadowing.pairs import ShadowSample
from tests.support.gateways import PEPPER, config
from tests.support.rollouts import Process, counts, progress_of, row, written
from tests.support.shadows import shadowing
from tests.support.stored_requests import line, record, waiting
from tests.support.usage_hosts import NOVEMBER

pytestmark = pytest.mark.usefixtures("plain_generations")


def nested() -> Any:
    value: Any = []
    for _ in range(50_000):
        value = [value]
    return value


POISON: dict[str, Any] = {
    "nul": "a\0b",
    "surrogate": "\ud800",
    "invalid UTF-8": b"\xff",
    "type": {"a": 1},
    "large": 2**70,
    "deep": nested(),
}
SIZE = 3


class Item(NamedTuple):
    """`name` is stored in one column, `value` in another one."""

    name: str
    value: Any


async def responses(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    keeper = Keeper(database, StoredResponsesConfig(), 1 << 20, lambda: NOVEMBER)
    raw = [item.value if isinstance(item.value, bytes) else b"{}" for item in items]
    previous = [None if isinstance(item.value, bytes) else item.value for item in items]
    turns = [
        StoredTurn("a", StoredResponse("a", item.name, NOVEMBER, NOVEMBER + 9, previous[at], b"[]", raw[at]))
        for at, item in enumerate(items)
    ]
    keeping = [asyncio.create_task(keeper.keep(turn)) for turn in turns]
    await asyncio.sleep(0)
    running = asyncio.create_task(keeper.run())
    await asyncio.gather(*keeping)
    running.cancel()
    await keeper.aclose()


async def feedback(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    inbox = FeedbackInbox(lambda: database, lambda: PEPPER, LiveComparisons())
    for item in items:
        inbox._behind.put(_Waiting([row(1, 0, 1.0, comparison=item.name, metric=item.value)]))
    await inbox.aclose()


async def audit(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    store = KeyStore(database, PEPPER)
    trail = Trail(store.note)
    for item in items:
        trail.note(
            Act(Actor("me"), item.name, item.value if isinstance(item.value, str) else "", detail={"v": item.value})
        )
    await trail.aclose()
    assert not store.verify_audit().problem
    store.close()


async def usage(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    configuration = config(state={"database": database}, usage={"folder": str(folder)})
    files = WaitingFiles(lambda: configuration, retained=0)
    writer = UsageWriter(lambda: configuration, lambda: PEPPER, files, lambda: NOVEMBER)
    lines = [line(tenant=item.name, model=item.value, counted=True) for item in items]
    patch.setattr(journal_files, "lines_of", lambda file, offset, _: waiting(lines)[offset:])
    sink = RequestSink(folder)
    sink.configure(configuration)
    sink.put(record())
    for _ in range(2):
        await writer.write()
        assert writer.available
    sink.close()
    await writer.aclose()


async def requests(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    configuration = config(state={"database": database}, requests={"folder": str(folder)})
    writer = RequestWriter(lambda: configuration, WaitingFiles(lambda: configuration), lambda: NOVEMBER)
    lines = [line(id=item.name, detail=item.value) for item in items]
    assert configuration.requests is not None
    writer._store_each(items[0].name, waiting(lines), configuration.requests)
    await writer.aclose()


async def alerts(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    writer = AlertWriter(lambda: config(state={"database": database}), lambda: PEPPER, None)  # type: ignore[arg-type]
    reached = [
        BudgetAlert(item.name, "acme", "", item.value, NOVEMBER, NOVEMBER + 1, 0.8, 1, "usd", "hook") for item in items
    ]
    store = await writer.store()
    for _ in range(2):
        writer._added(store, lambda: reached, NOVEMBER)
    await writer.aclose()


async def shadows(database: str, items: Sequence[Item], folder: Path, patch: pytest.MonkeyPatch) -> None:
    made = shadowing(samples=100)
    configuration = made.model_copy(update={"state": made.state.model_copy(update={"database": database})})
    live = LiveShadows()
    live.configure(configuration)
    writer = ShadowWriter(lambda: configuration, live, lambda: PEPPER, _nothing)
    (plan,) = writer.planned
    taken = [ShadowSample(NOVEMBER + at, item.name, {}, item.value, "", "") for at, item in enumerate(items)]
    patch.setattr(live, "take_samples", lambda: {(plan.name, plan.identity): taken})
    live.by_name["s"].count(("text",), None)
    await writer.tick()
    taken = []
    await writer.aclose()
    assert writer.available


async def _nothing() -> None:
    pass


LOOPS: dict[str, tuple[Callable[..., Any], str]] = {
    "stored responses": (responses, "SELECT id FROM stored_responses"),
    "feedback": (feedback, "SELECT comparison FROM feedback"),
    "audit": (audit, "SELECT action FROM audit"),
    "usage": (usage, "SELECT tenant FROM usage_hours"),
    "requests": (requests, ""),
    "alerts": (alerts, "SELECT id FROM budget_alerts"),
    "shadows": (shadows, "SELECT id FROM shadow_samples"),
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_item_that_cannot_be_stored_stops_and_repeats_no_other(
    loop: str, any_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, query = LOOPS[loop]
    for kind, value in POISON.items():
        for place in range(SIZE):
            items = [Item(f"{kind} {place} {at}", "good") for at in range(SIZE)]
            items[place] = Item(items[place].name, value)
            before = _refused(loop)
            with monkeypatch.context() as patch:
                await write(any_database, items, tmp_path, patch)
            names = {item.name for item in items}
            stored = Counter(name for name in _names(any_database, query, tmp_path) if name in names)
            poison = stored.pop(items[place].name, 0)
            assert stored == Counter(item.name for item in items if item.value == "good"), (kind, place)
            assert (poison, _refused(loop) - before) in ((1, 0), (0, 1)), (kind, place)


async def test_counts_that_cannot_be_stored_stop_no_other_counts(any_database: str) -> None:
    process = Process(written(any_database))
    await process.tick()
    before = _refused("rollouts")
    for times in (7, 8, 9):
        wrong: Any = times
        bad = StratumTally("r", 1, MEASURING, ArmTally(first_byte=[wrong]))
        process.decider._add([bad, counts(10, 2)])
        await process.tick()
        assert process.decider.available
    assert progress_of(process).strata[0].assigned == [30, 6]
    assert _refused("rollouts") - before == 3
    await process.decider.aclose()


async def test_counts_wait_if_a_decision_fails_whatever_the_counts(
    any_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(written(any_database))
    await process.tick()
    before, decide = _refused("rollouts"), RolloutStore._decided
    monkeypatch.setattr(RolloutStore, "_decided", _fails)
    for _ in range(3):
        process.decider._add([counts(10, 2)])
        with pytest.raises(ZeroDivisionError):
            await process.tick()
    monkeypatch.setattr(RolloutStore, "_decided", decide)
    await process.tick()
    assert progress_of(process).strata[0].assigned == [30, 6]
    assert _refused("rollouts") == before
    await process.decider.aclose()


def _fails(*_: object) -> None:
    raise ZeroDivisionError


def _refused(loop: str) -> int:
    return refused[loop]


def _names(database: str, query: str, folder: Path) -> Iterator[str]:
    if not query:
        days = open_days(database, folder)
        for day in days.sizes():
            with days.reading(day) as (connection, tables):
                yield from connection.execute(tables.rows.select().with_only_columns(tables.rows.c.id)).scalars()
        days.close()
        return
    engine = open_engine(database)
    with engine.connect() as connection:
        yield from connection.execute(text(query)).scalars().all()
    engine.dispose()
