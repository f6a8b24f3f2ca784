"""The counts of all processes in the state database, and their verdicts."""

from pathlib import Path
from typing import Any

import pytest

from config.schema.config import Config
from gateway.features.shadow.live import LiveShadows
from gateway.features.shadow.operators import shadow_views
from gateway.features.shadow.store import MOST_IDENTITIES, ShadowStore
from gateway.features.shadow.writer import ShadowWriter
from gateway.state.errors import StoreUnavailable
from policies.shadowing.planned import planned
from tests.support.shadows import shadowing

PEPPER = b"p" * 32


async def _nothing() -> None:
    pass


class Process:
    """A process with its shadows and its writer."""

    def __init__(self, database: str, **shadow: Any) -> None:
        written = shadowing(**shadow)
        self.config: Config = written.model_copy(
            update={"state": written.state.model_copy(update={"database": database})}
        )
        self.shadows = LiveShadows()
        self.shadows.configure(self.config)
        self.writer = ShadowWriter(lambda: self.config, self.shadows, lambda: PEPPER, _nothing)

    def count(self, differing: int, equal: int = 0) -> None:
        shadow = self.shadows.by_name["s"]
        for fields in [("text",)] * differing + [()] * equal:
            shadow.count(fields, None)

    def shown(self) -> dict[str, Any]:
        store = ShadowStore(self.config.state.database, PEPPER)
        try:
            return shadow_views(tuple(planned(self.config)), store.read())[0]
        finally:
            store.close()


async def test_the_counts_of_processes_add_up(any_database: str, caplog: pytest.LogCaptureFixture) -> None:
    one, other = Process(any_database), Process(any_database)
    one.count(5, 10)
    other.count(3, 10)
    await one.writer.tick()
    await other.writer.tick()
    view = one.shown()
    assert (view["compared"], view["differing"], view["verdict"], view["since"]) == (28, 8, "undecided", None)
    one.count(1)
    await one.writer.tick()
    view = one.shown()
    assert (view["compared"], view["differing"], view["verdict"], view["fields"]) == (29, 9, "differs", {"text": 9})
    assert view["since"] is not None
    assert one.writer.evidence["s"].judgement == "differs"
    assert [record.getMessage().partition(" copies")[0] for record in caplog.records if "shadow" in record.name] == [
        "shadow s: differs after 29"
    ]
    await one.writer.aclose()
    await other.writer.aclose()


async def test_counts_wait_for_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(f"sqlite:///{tmp_path}/state.db")
    add = ShadowStore.add
    monkeypatch.setattr(ShadowStore, "add", _unavailable)
    for _ in range(3):
        process.count(1, 1)
        await process.writer.tick()
    without = process.writer.available
    monkeypatch.setattr(ShadowStore, "add", add)
    await process.writer.tick()
    assert (without, process.writer.available) == (False, True)
    view = process.shown()
    assert (view["compared"], view["differing"]) == (6, 3)
    await process.writer.aclose()


def _unavailable(*_: object) -> None:
    raise StoreUnavailable("the database is away")


async def test_another_comparison_starts_anew_and_another_share_does_not(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/state.db"
    first = Process(database)
    first.count(2, 5)
    await first.writer.tick()
    again = Process(database, share="7%", noise="0%", agree="90%")
    assert again.shown()["compared"] == 7
    other = Process(database, compare={"text": ["exact"]})
    assert other.shown()["compared"] == 0
    other.count(1)
    first.count(1)
    await other.writer.tick()
    await first.writer.tick()
    assert (other.shown()["compared"], first.shown()["compared"]) == (1, 8)
    for percent in range(10, 20):
        each = Process(database, compare={"text": [{"edit": f"{percent}%"}]})
        each.count(1)
        await each.writer.aclose()
    store = ShadowStore(database, PEPPER)
    assert len(store.read()) == MOST_IDENTITIES
    store.close()
    for process in (first, other):
        await process.writer.aclose()


def test_a_reload_preserves_the_counts_of_the_same_comparison() -> None:
    shadows = LiveShadows()
    shadows.configure(shadowing())
    live = shadows.by_name["s"]
    shadows.configure(shadowing(share="3%", at_most={"requests": "1/s"}))
    assert shadows.by_name["s"] is live
    assert live.config.share == 0.03
    shadows.configure(shadowing(to="other"))
    assert shadows.by_name["s"] is not live
