"""The pepper is rotated while keys are in use: both are accepted, and each used key is hashed anew."""

import pytest

from adapters.errors import CredentialError
from gateway.auth.keys import digest, new_key
from gateway.auth.listing import listed
from gateway.auth.pepper import Pepper, load_pepper
from gateway.auth.store import KeyStore
from gateway.auth.table import KeyTable
from gateway.auth.watch import KeyWatcher
from gateway.state.errors import StoreMismatch
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, MakeConfig, OpenStore

NEW = b"another-pepper-of-the-tests-" * 2


@pytest.fixture
def database(any_database: str) -> str:
    """Each test runs on SQLite and on a real Postgres."""
    return any_database


def rotated() -> Pepper:
    pepper = Pepper(NEW)
    pepper.previous = PEPPER
    return pepper


def accepts(store: KeyStore, make_config: MakeConfig, pepper: bytes, plaintext: str) -> bool:
    table = KeyTable.build(make_config(), pepper, store.read_live(NOW).records.values())
    try:
        table.authenticate(plaintext, NOW)
    except CredentialError:
        return False
    return True


async def test_used_keys_survive_the_rotation(open_store: OpenStore, make_config: MakeConfig) -> None:
    before = open_store()
    used, unused = (before.create("acme", by=TESTER, now=NOW) for _ in range(2))
    both = open_store(rotated())
    assert accepts(both, make_config, rotated(), unused.plaintext)
    tables: list[KeyTable] = []
    watcher = KeyWatcher(both, rotated(), make_config(), tables.append)
    table = await watcher.load()
    assert table.authenticate(used.plaintext, NOW).key_id == used.id
    with pytest.raises(CredentialError):
        table.authenticate(used.plaintext[:-1] + "?", NOW)
    assert [key.old_pepper for key in listed(make_config(), both.read_all(), NOW)] == [True, True]
    await watcher.poll()
    assert {key.id: key.old_pepper for key in listed(make_config(), both.read_all(), NOW)} == {
        used.id: False, unused.id: True,
    }  # fmt: skip
    assert {record.principal.key_id: record.digest for record in both.read_live(NOW).records.values()} == {
        used.id: digest(NEW, used.plaintext), unused.id: digest(PEPPER, unused.plaintext),
    }  # fmt: skip
    assert tables[-1].authenticate(used.plaintext, NOW).key_id == used.id
    after = open_store(NEW)
    assert accepts(after, make_config, NEW, used.plaintext)
    assert not accepts(after, make_config, NEW, unused.plaintext)


async def test_an_outage_loses_no_new_hash(
    open_store: OpenStore, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = open_store().create("acme", by=TESTER, now=NOW)
    both = open_store(rotated())
    watcher = KeyWatcher(both, rotated(), make_config(), lambda _: None)
    (await watcher.load()).authenticate(key.plaintext, NOW)
    with monkeypatch.context() as patched:
        patched.setattr(both, "renew", lambda _: (_ for _ in ()).throw(StoreMismatch("away")))
        await watcher.poll()
    await watcher.poll()
    assert not both.read_all()[0].pepper


def test_processes_of_the_old_pepper_change_nothing_more(open_store: OpenStore) -> None:
    before = open_store()
    before.create("acme", by=TESTER, now=NOW)
    after = open_store(rotated())
    with pytest.raises(StoreMismatch, match="another pepper"):
        before.create("acme", by=TESTER, now=NOW)
    after.create("acme", by=TESTER, now=NOW + 1)
    assert [bool(key.pepper) for key in after.read_all()] == [True, False]
    verdict = after.verify_audit()
    assert (verdict.problem, verdict.unchecked) == ("", 1)
    assert [entry.action for entry in after.read_audit(9)] == ["key.create", "pepper.replaced", "key.create"]


def test_without_the_previous_pepper_another_one_is_refused(open_store: OpenStore) -> None:
    open_store().create("acme", by=TESTER, now=NOW)
    with pytest.raises(StoreMismatch, match="another pepper"):
        open_store(NEW)


def test_a_second_rotation_accepts_only_the_last_two(open_store: OpenStore, make_config: MakeConfig) -> None:
    oldest = open_store().create("acme", by=TESTER, now=NOW)
    middle = open_store(rotated()).create("acme", by=TESTER, now=NOW)
    third = Pepper(b"the-third-pepper-of-the-tests-" * 2)
    third.previous = NEW
    store = open_store(third)
    assert not accepts(store, make_config, third, oldest.plaintext)
    assert accepts(store, make_config, third, middle.plaintext)


def test_both_come_from_the_file(make_config: MakeConfig) -> None:
    pepper = load_pepper(make_config(auth={"pepper": "n" * 32, "previous_pepper": "p" * 32}))
    assert (bytes(pepper), pepper.previous) == (b"n" * 32, b"p" * 32)


async def test_a_key_of_the_file_under_the_old_pepper_changes_nothing(
    open_store: OpenStore, make_config: MakeConfig
) -> None:
    """It cannot be hashed anew, so its use must not move the epoch again and again."""
    open_store()
    both, key = open_store(rotated()), new_key()
    written = {"id": key.id, "hash": digest(PEPPER, key.plaintext).hex()}
    config = make_config(acme=[written])
    tables: list[KeyTable] = []
    watcher = KeyWatcher(both, rotated(), config, tables.append)
    table, epoch = await watcher.load(), both.read_epoch()
    for _ in range(3):
        assert table.authenticate(key.plaintext, NOW).key_id == key.id
        await watcher.poll()
    assert (both.read_epoch(), tables) == (epoch, [])
