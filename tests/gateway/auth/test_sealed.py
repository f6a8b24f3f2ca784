"""A sealed copy of the keys: what a process accepts that starts without the database."""

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest

from adapters.errors import CapacityError, CredentialError
from config.schema.identity import GrantConfig
from gateway.auth.keys import digest, new_key
from gateway.auth.pepper import Pepper
from gateway.auth.sealed import MOST_AGE, SealedKeys, SealedKeysRefused
from gateway.auth.store import KeyStore, LiveKeys
from gateway.auth.table import KeyTable
from gateway.auth.watch import KeyWatcher
from gateway.state.errors import StoreUnavailable
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, MakeConfig, OpenStore

URL = "postgresql://me:secret@db.example.org/headrace"


@pytest.fixture
def sealed(tmp_path: Path) -> SealedKeys:
    return SealedKeys(tmp_path / "sealed" / "keys.sealed", PEPPER, URL)


def test_a_copy_has_all_of_the_keys_and_is_of_this_user_alone(open_store: OpenStore, sealed: SealedKeys) -> None:
    store = open_store()
    grant = GrantConfig.model_validate(
        {"role": "user", "scopes": {"models": ["a*"], "fronts": ["chat"]}, "labels": {"x": "y"}, "team": "red"}
    )
    store.create("acme", by=TESTER, now=NOW, grant=grant, expires_at=NOW + 60)
    store.create("acme", by=TESTER, now=NOW, grant=GrantConfig(role="operator"))
    plain = store.create("acme", by=TESTER, now=NOW)
    store.rotate(store.create("acme", by=TESTER, now=NOW).id, 60, by=TESTER, now=NOW)
    store.revoke(store.create("acme", by=TESTER, now=NOW).id, by=TESTER, now=NOW)
    store.block(store.create("acme", by=TESTER, now=NOW).id, by=TESTER, now=NOW)
    store.teams.put("acme", "red", {"requests": "1/h"}, by=TESTER, now=NOW)
    live = store.read_live(NOW)
    sealed.write(live, time.time())
    read, age = sealed.read()
    assert read == live
    lineages = [{key: record.principal.subject for key, record in each.records.items()} for each in (read, live)]
    assert lineages[0] == lineages[1]
    assert any(key != first for key, first in lineages[0].items())
    assert age < 60
    assert stat.S_IMODE(sealed.path.stat().st_mode) == 0o600
    content = sealed.path.read_bytes()
    for secret in (plain.id.encode(), digest(PEPPER, plain.plaintext), b"acme", b"secret"):
        assert secret not in content
    assert [path.name for path in sealed.path.parent.iterdir()] == ["keys.sealed"]
    store.revoke(plain.id, by=TESTER, now=NOW)
    assert store.read_changes(read, NOW).changed == frozenset({plain.id})  # it continues where the copy ends


def test_a_copy_that_is_damaged_foreign_or_old_is_refused(open_store: OpenStore, sealed: SealedKeys) -> None:
    with pytest.raises(SealedKeysRefused, match="there is none"):
        sealed.read()
    sealed.write(open_store().read_live(NOW), time.time())
    others = [SealedKeys(sealed.path, b"another" * 6, URL), SealedKeys(sealed.path, PEPPER, URL + "2")]
    for other in others:
        with pytest.raises(SealedKeysRefused, match="of another pepper or another database"):
            other.read()
    SealedKeys(sealed.path, PEPPER, URL.replace("me:secret", "you:other")).read()
    content = sealed.path.read_bytes()
    for number in range(len(content)):
        sealed.path.write_bytes(content[:number])
        with pytest.raises(SealedKeysRefused):
            sealed.read()
        changed = bytearray(content)
        changed[number] ^= 1
        sealed.path.write_bytes(changed)
        with pytest.raises(SealedKeysRefused):
            sealed.read()
    sealed.path.write_bytes(content)
    sealed.path.chmod(0o622)
    with pytest.raises(SealedKeysRefused, match="other users may write here"):
        sealed.read()
    sealed.path.chmod(0o600)
    sealed.read()
    then = time.time() - MOST_AGE - 100
    os.utime(sealed.path, (then, then))
    with pytest.raises(SealedKeysRefused, match="it is 7 days old"):
        sealed.read()


def away(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise StoreUnavailable("the key database is unavailable")

    monkeypatch.setattr("gateway.auth.state.open_engine", fail)


async def test_a_start_without_the_database_has_the_keys_of_the_copy(
    open_store: OpenStore, database: str, sealed: SealedKeys, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    key, ended = (store.create("acme", by=TESTER, now=NOW) for _ in range(2))
    sealed.write(store.read_live(NOW), time.time())
    store.revoke(ended.id, by=TESTER, now=NOW)  # the copy does not have it
    tables: list[KeyTable] = []
    with monkeypatch.context() as patched:
        away(patched)
        late = KeyStore(database, PEPPER, waits=True)
        watcher = KeyWatcher(late, PEPPER, make_config(), tables.append, own=sealed)
        table = await watcher.load()
        assert [table.authenticate(each.plaintext, NOW).key_id for each in (key, ended)] == [key.id, ended.id]
        assert not watcher.available
        assert 0 < watcher.age < 60
        await watcher.poll()
        assert tables == []
    await watcher.poll()
    assert (watcher.available, watcher.age) == (True, 0)
    assert tables[-1].authenticate(key.plaintext, NOW).key_id == key.id
    with pytest.raises(CredentialError):
        tables[-1].authenticate(ended.plaintext, NOW)
    late.close()


async def test_without_a_copy_only_the_keys_of_the_file_are_accepted(
    open_store: OpenStore, database: str, sealed: SealedKeys, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued, written = open_store().create("acme", by=TESTER, now=NOW), new_key()
    config = make_config(acme=[{"id": written.id, "hash": digest(PEPPER, written.plaintext).hex()}])
    tables: list[KeyTable] = []
    with monkeypatch.context() as patched:
        away(patched)
        late = KeyStore(database, PEPPER, waits=True)
        with pytest.raises(StoreUnavailable, match="no sealed copy of the keys can be used: there is none"):
            await KeyWatcher(late, PEPPER, make_config(), tables.append, own=sealed).load()
        watcher = KeyWatcher(late, PEPPER, config, tables.append, own=sealed)
        table = await watcher.load()
    assert table.authenticate(written.plaintext, NOW).key_id == written.id
    with pytest.raises(CapacityError, match="the key cannot be checked"):
        table.authenticate(issued.plaintext, NOW)
    for wrong in (written.plaintext[:-1] + "!", "wrong", written.plaintext[:-4] + "AAAA"):
        with pytest.raises(CredentialError):
            table.authenticate(wrong, NOW)
    await watcher.poll()
    assert tables[-1].authenticate(issued.plaintext, NOW).key_id == issued.id
    late.close()


def test_a_copy_has_the_age_of_its_keys_and_opens_with_the_previous_pepper(
    open_store: OpenStore, sealed: SealedKeys
) -> None:
    live = open_store().read_live(NOW)
    sealed.write(live, time.time() - 3600)
    pepper = Pepper(b"another-pepper-of-the-tests-" * 2)
    pepper.previous = PEPPER
    for copy in (sealed, SealedKeys(sealed.path, pepper, URL)):
        read, age = copy.read()
        assert read == live
        assert 3599 < age < 3900


async def test_a_copy_that_could_not_be_written_is_not_confirmed(
    open_store: OpenStore, sealed: SealedKeys, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the keys of before: a start from it would accept a revoked key, and call the file recent."""
    calls: list[str] = []
    written = asyncio.Event()

    def write(live: LiveKeys, confirmed: float) -> None:
        del live, confirmed
        calls.append("write")
        if len(calls) < 3:
            raise OSError("the disk is full")
        loop.call_soon_threadsafe(written.set)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(sealed, "write", write)
    monkeypatch.setattr(sealed, "confirm", lambda: calls.append("confirm"))
    watcher = KeyWatcher(open_store(), PEPPER, make_config(), lambda _: None, own=sealed)
    await watcher.load()
    sealing = asyncio.create_task(watcher.seal())
    await written.wait()
    sealing.cancel()
    assert calls == ["write"] * 3
