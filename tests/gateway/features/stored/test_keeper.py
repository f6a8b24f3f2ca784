"""Writes behind: unwritten entries are read, failed writes are retried, and memory is bounded."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.errors import CapacityError
from config.schema.state import StoredResponsesConfig
from gateway.features.stored import keeper as module
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.store import ResponseDatabase, StoredTurn
from gateway.state.errors import StoreUnavailable
from tests.support.stored_responses import NOW, response
from tests.support.waiting import until


def opened(folder: Path) -> Keeper:
    return Keeper(f"sqlite:///{folder}/state.db", StoredResponsesConfig(), 1 << 20, lambda: NOW)


async def test_a_turn_is_written_before_its_request_continues(tmp_path: Path) -> None:
    keeper = opened(tmp_path)
    running = asyncio.create_task(keeper.run())
    await asyncio.gather(*(keeper.keep(StoredTurn("a", response("a", str(i)))) for i in range(50)))
    other = ResponseDatabase(f"sqlite:///{tmp_path}/state.db")
    assert all(other.response("a", str(i), NOW) for i in range(50))
    assert keeper.pending("a", "1") is None
    other.close()
    running.cancel()
    await keeper.aclose()


async def test_while_the_database_is_away_responses_wait_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, write = asyncio.Event(), ResponseDatabase.write

    def fails(store: ResponseDatabase, turns: Sequence[StoredTurn]) -> None:
        if not away.is_set():
            raise StoreUnavailable("it is away")
        write(store, turns)

    monkeypatch.setattr(ResponseDatabase, "write", fails)
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    keeper = opened(tmp_path)
    running = asyncio.create_task(keeper.run())
    for i in range(3):
        await keeper.require_room("a", 0)
        await keeper.keep(StoredTurn("a", response("a", str(i))))
        assert keeper.pending("a", str(i)) is not None
    with pytest.raises(CapacityError):
        await keeper.require_room("a", 0)
    assert keeper.pending("b", "1") is None
    away.set()
    await until(lambda: keeper.pending("a", "2") is None)
    await keeper.require_room("a", 0)
    assert await keeper.read(lambda store: store.response("a", "2", NOW)) is not None
    running.cancel()
    await keeper.aclose()


async def test_pending_turns_are_written_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0)
    keeper = opened(tmp_path)
    await keeper.keep(StoredTurn("a", response("a", "1")))
    await keeper.aclose()
    store = ResponseDatabase(f"sqlite:///{tmp_path}/state.db")
    assert store.response("a", "1", NOW) is not None
    store.close()


async def test_a_read_that_fails_is_a_refusal_that_may_be_tried_again(tmp_path: Path) -> None:
    keeper = Keeper(f"sqlite:///{tmp_path}/file", StoredResponsesConfig(), 1)
    (tmp_path / "file").mkdir()
    with pytest.raises(CapacityError) as refused:
        await keeper.read(lambda store: store.response("a", "1", NOW))
    assert (refused.value.code, refused.value.retry_after) == ("stored_responses_unavailable", 1.0)
    await keeper.aclose()
