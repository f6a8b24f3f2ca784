import asyncio
import logging
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.errors import CredentialError
from gateway.auth.keys import ApiKey, new_key
from gateway.auth.store import KeyStore
from gateway.auth.table import KeyTable
from gateway.auth.watch import POLL_INTERVAL, KeyWatcher
from gateway.state.errors import StateConfigError, StoreUnavailable
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, MakeConfig, OpenStore
from tests.support.inline_threads import take_no_time

REVOKE = """
import sys, time
from gateway.auth.audit import Actor
from gateway.auth.store import KeyStore
sys.stdin.readline()
KeyStore(sys.argv[1], sys.argv[2].encode()).revoke(sys.argv[3], by=Actor("other"), now=time.time())
"""


class Watched:
    """A watcher, and the tables it handed over."""

    def __init__(self, store: KeyStore, make_config: MakeConfig) -> None:
        self.tables: list[KeyTable] = []
        self.changed = asyncio.Event()
        self.watcher = KeyWatcher(store, PEPPER, make_config(), self._changed)

    def _changed(self, table: KeyTable) -> None:
        self.tables.append(table)
        self.changed.set()


@pytest.fixture
def watched(store: KeyStore, make_config: MakeConfig) -> Watched:
    return Watched(store, make_config)


def accepts(table: KeyTable, key: ApiKey) -> bool:
    try:
        return table.authenticate(key.plaintext, NOW).key_id == key.id
    except CredentialError:
        return False


async def test_only_a_change_is_handed_over(watched: Watched, store: KeyStore) -> None:
    await watched.watcher.load()
    await watched.watcher.poll()
    assert watched.tables == []
    key = store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.poll()
    await watched.watcher.poll()
    assert [accepts(table, key) for table in watched.tables] == [True]
    store.revoke(key.id, by=TESTER, now=NOW)
    await watched.watcher.poll()
    assert [accepts(table, key) for table in watched.tables] == [True, False]


async def test_without_a_database_at_the_start_there_is_no_table(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "state" / "state.db").unlink()
    with pytest.raises(StoreUnavailable):
        await watched.watcher.load()


async def test_keys_stay_valid_after_the_database_is_deleted_and_one_line_is_logged(
    watched: Watched, store: KeyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = store.create("acme", by=TESTER, now=NOW)
    table = await watched.watcher.load()
    path = tmp_path / "state" / "state.db"
    path.rename(tmp_path / "away")
    caplog.set_level(logging.INFO)
    for _ in range(3):
        await watched.watcher.poll()
    assert accepts(table, key)
    assert (watched.tables, watched.watcher.available) == ([], False)
    assert len(caplog.messages) == 1
    assert "the current keys stay valid" in caplog.messages[0]

    (tmp_path / "away").rename(path)
    store.revoke(key.id, by=TESTER, now=NOW)
    await watched.watcher.poll()
    assert watched.watcher.available
    assert [accepts(table, key) for table in watched.tables] == [False]
    assert caplog.messages[1:] == ["keys: reading the database continues"]


async def test_a_revoked_key_does_not_come_back_with_a_reload_while_the_database_is_away(
    watched: Watched, store: KeyStore, make_config: MakeConfig, tmp_path: Path
) -> None:
    """Neither the configuration nor an outage restores a key after its revocation."""
    revoked, live = (store.create("acme", by=TESTER, now=NOW) for _ in range(2))
    await watched.watcher.load()
    store.revoke(revoked.id, by=TESTER, now=NOW)
    await watched.watcher.poll()
    (tmp_path / "state" / "state.db").unlink()
    await watched.watcher.poll()
    for table in (watched.tables[-1], watched.watcher.configure(make_config(acme=[], new=[]))):
        assert [accepts(table, key) for key in (revoked, live)] == [False, True]


async def test_keys_stay_valid_while_the_database_is_locked(
    watched: Watched, store: KeyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.load()
    monkeypatch.setattr("gateway.state.database._LOCK_TIMEOUT", 0.01)
    raw = sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)
    raw.execute("PRAGMA locking_mode=EXCLUSIVE")
    raw.execute("BEGIN EXCLUSIVE")
    raw.execute("UPDATE keys_state SET epoch = epoch + 1")
    await watched.watcher.poll()
    assert (watched.tables, watched.watcher.available) == ([], False)
    raw.execute("COMMIT")
    raw.close()
    await watched.watcher.poll()
    assert watched.watcher.available
    assert [accepts(table, key) for table in watched.tables] == [True]


async def test_a_database_that_hangs_holds_one_thread_only(
    watched: Watched, store: KeyStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await watched.watcher.load()
    key = store.create("acme", by=TESTER, now=NOW)
    looks, answer, read_epoch = [0], threading.Event(), store.read_epoch

    def hang() -> int:
        looks[0] += 1
        assert answer.wait(30)
        return read_epoch()

    monkeypatch.setattr(store, "read_epoch", hang)
    monkeypatch.setattr("gateway.auth.watch._PATIENCE", 0.01)
    for _ in range(3):
        await watched.watcher.poll()
    assert (looks, watched.watcher.available, len(caplog.messages)) == ([1], False, 1)
    assert "does not answer" in caplog.messages[0]
    answer.set()
    monkeypatch.setattr("gateway.auth.watch._PATIENCE", 30)
    await watched.watcher.poll()
    assert watched.watcher.available
    assert [accepts(table, key) for table in watched.tables] == [True]


async def test_a_writer_in_the_middle_does_not_hold_up_the_watcher(
    watched: Watched, store: KeyStore, tmp_path: Path
) -> None:
    store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.load()
    raw = sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("UPDATE keys_state SET epoch = epoch + 1")
    await watched.watcher.poll()
    assert watched.watcher.available
    assert watched.tables == []
    raw.execute("COMMIT")
    raw.close()
    await watched.watcher.poll()
    assert len(watched.tables) == 1


async def test_another_database_in_its_place_is_read_and_reported(
    watched: Watched, store: KeyStore, open_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.load()
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    new = open_store().create("acme", by=TESTER, now=NOW)
    await watched.watcher.poll()
    assert [(accepts(table, old), accepts(table, new)) for table in watched.tables] == [(False, True)]
    assert caplog.messages == [
        "the state database was deleted or replaced while in use: a new, empty one is made",
        "another key database, or an older state of it, is in place of the one before: 1 keys instead of 1",
    ]
    store.revoke(new.id, by=TESTER, now=NOW)
    await watched.watcher.poll()
    assert len(caplog.messages) == 2


async def test_a_configuration_is_joined_with_later_changes(
    watched: Watched, store: KeyStore, make_config: MakeConfig
) -> None:
    key = store.create("beta", by=TESTER, now=NOW)
    assert not accepts(await watched.watcher.load(), key)
    assert accepts(watched.watcher.configure(make_config(beta=[])), key)
    other = store.create("beta", by=TESTER, now=NOW)
    await watched.watcher.poll()
    assert accepts(watched.tables[-1], other)


async def test_valid_keys_of_a_removed_tenant_are_logged_once(
    watched: Watched, store: KeyStore, make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    for tenant in ("acme", "gone", "gone"):
        store.create(tenant, by=TESTER, now=NOW)
    store.revoke(store.create("ended", by=TESTER, now=NOW).id, by=TESTER, now=NOW)
    await watched.watcher.load()
    watched.watcher.configure(make_config())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the file does not have: gone (2). They are refused" in line


async def test_an_invalid_configuration_does_not_replace_the_old_one(
    watched: Watched, store: KeyStore, make_config: MakeConfig
) -> None:
    await watched.watcher.load()
    with pytest.raises(StateConfigError):
        watched.watcher.configure(make_config(acme=[{"id": "ci", "hash": "0" * 64}]))
    key = store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.poll()
    assert accepts(watched.tables[-1], key)


async def test_the_demo_key_stays_through_changes(store: KeyStore, make_config: MakeConfig) -> None:
    demo = new_key()
    tables: list[KeyTable] = []
    watcher = KeyWatcher(store, PEPPER, make_config(auth={"demo_key": True}), tables.append, demo=demo)
    assert accepts(await watcher.load(), demo)
    store.create("acme", by=TESTER, now=NOW)
    await watcher.poll()
    assert [accepts(table, demo) for table in tables] == [True]


@asynccontextmanager
async def running(watcher: KeyWatcher) -> AsyncIterator[None]:
    task = asyncio.create_task(watcher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.processes
async def test_a_revocation_by_another_process_counts_within_a_second(
    watched: Watched, store: KeyStore, database: str
) -> None:
    key = store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.load()
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", REVOKE, database, PEPPER.decode(), key.id),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with running(watched.watcher):
        await other.communicate(b"\n")
        async with asyncio.timeout(300):
            await watched.changed.wait()
    assert POLL_INTERVAL * 3 < 1.0  # the change counts after the poll that follows it
    assert [accepts(table, key) for table in watched.tables] == [False]


@pytest.mark.parametrize("after", [0.0, 0.1, POLL_INTERVAL, 0.26, 7.49])
async def test_a_revocation_is_in_force_with_the_next_poll(
    watched: Watched, store: KeyStore, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    """The bound of the documentation: the interval of polls, whenever the key is revoked."""
    take_no_time(monkeypatch)
    key = store.create("acme", by=TESTER, now=NOW)
    await watched.watcher.load()
    running = asyncio.create_task(watched.watcher.run())
    await asyncio.sleep(after)
    clock = asyncio.get_running_loop().time
    store.revoke(key.id, by=TESTER, now=NOW)
    revoked = clock()
    await watched.changed.wait()
    assert clock() - revoked <= POLL_INTERVAL + 1e-6
    assert not accepts(watched.tables[-1], key)
    running.cancel()
