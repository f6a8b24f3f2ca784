"""Properties of SQLite's file only."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from gateway.auth.store import KeyStore
from gateway.auth.watch import KeyWatcher
from gateway.state.database import Stamp
from gateway.state.errors import StoreUnavailable
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, MakeConfig, OpenStore


def test_the_files_are_private(store: KeyStore, tmp_path: Path) -> None:
    store.create("acme", by=TESTER, now=NOW)
    folder = tmp_path / "state"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]}
    assert modes.pop("state") == 0o700
    assert modes["state.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database at all, only text" * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        KeyStore(f"sqlite:///{tmp_path}/state.db", PEPPER)


def test_a_deleted_file_is_not_made_again_by_reading(store: KeyStore, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    path.unlink()
    with pytest.raises(StoreUnavailable, match="unable to open"):
        store.read_epoch()
    assert not path.exists()


def test_a_database_made_anew_has_another_epoch(store: KeyStore, open_store: OpenStore, tmp_path: Path) -> None:
    before = store.read_epoch()
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    assert open_store().read_epoch() != before


def test_a_stamp_changes_with_every_write_and_with_nothing_else(store: KeyStore, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    later = path.stat().st_mtime + 60
    before = store.stamp(later)
    assert before is not None
    store.read_epoch()
    store.read_live(NOW)
    assert store.stamp(later) == before
    key = store.create("acme", by=TESTER, now=NOW)
    created = store.stamp(later)
    store.revoke(key.id, by=TESTER, now=NOW)
    assert len({before, created, store.stamp(later)}) == 3


def test_a_recent_write_has_no_stamp(store: KeyStore, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    assert store.stamp(path.stat().st_mtime + 0.5) is None
    path.unlink()
    assert store.stamp(path.parent.stat().st_mtime + 60) is None


async def test_a_watcher_does_not_read_an_unchanged_file(
    store: KeyStore, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.auth.watch.POLL_INTERVAL", 0.001)
    monkeypatch.setattr("gateway.auth.watch._FULL_LOOK", 3600.0)
    store.read_epoch()  # what making the tables left in the log is in the database now
    os.utime(tmp_path / "state" / "state.db", (0, 0))
    looks, stamps = 0, asyncio.Semaphore(0)
    read_epoch, stamp = store.read_epoch, store.stamp
    loop = asyncio.get_running_loop()

    def counted_epoch() -> int:
        nonlocal looks
        looks += 1
        return read_epoch()

    def counted_stamp(now: float) -> Stamp | None:
        loop.call_soon_threadsafe(stamps.release)
        return stamp(now)

    monkeypatch.setattr(store, "read_epoch", counted_epoch)
    monkeypatch.setattr(store, "stamp", counted_stamp)
    watcher = KeyWatcher(store, PEPPER, make_config(), lambda _table: None)
    await watcher.load()
    task = asyncio.create_task(watcher.run())
    async with asyncio.timeout(300):
        for _ in range(10):
            await stamps.acquire()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert looks <= 1  # the first, which has nothing to compare with
