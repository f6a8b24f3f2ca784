import math
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.auth.errors import KeyEnded, NoSuchKey, StoreMismatch, StoreUnavailable
from gateway.auth.keys import digest, id_of
from gateway.auth.store import KeyStore
from tests.gateway.auth.conftest import NOW, PEPPER


def live_ids(store: KeyStore, now: float = NOW) -> set[str]:
    return {record.principal.key_id for record in store.read_live(now).records}


def test_an_issued_key_is_live_and_only_its_hash_is_kept(store: KeyStore, tmp_path: Path) -> None:
    key = store.create("acme", "ci", now=NOW)
    (record,) = store.read_live(NOW).records
    assert (record.principal.tenant, record.principal.key_id) == ("acme", key.id)
    assert record.digest == digest(PEPPER, key.plaintext)
    assert record.expires_at == math.inf
    (row,) = store.read_all()
    assert (row.id, row.tenant, row.label, row.created_at) == (key.id, "acme", "ci", NOW)
    assert row.status(NOW) == "active"
    secret = key.plaintext[-43:].encode()
    assert all(secret not in path.read_bytes() for path in (tmp_path / "state").iterdir())


def test_the_files_are_private(store: KeyStore, tmp_path: Path) -> None:
    store.create("acme", now=NOW)
    folder = tmp_path / "state"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]}
    assert modes.pop("state") == 0o700
    assert modes["state.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_keys_outlive_the_process(store: KeyStore, database: str) -> None:
    key = store.create("acme", now=NOW)
    assert live_ids(KeyStore(database, PEPPER)) == {key.id}


def test_every_change_moves_the_epoch_and_reading_does_not(store: KeyStore) -> None:
    epochs = [store.read_epoch()]
    key = store.create("acme", now=NOW)
    epochs.append(store.read_epoch())
    other = store.rotate(key.id, 60, now=NOW)
    epochs.append(store.read_epoch())
    store.revoke(other.id, now=NOW)
    epochs.append(store.read_epoch())
    assert len(set(epochs)) == 4
    store.read_all()
    assert store.read_live(NOW).epoch == store.read_epoch() == epochs[-1]


def test_a_refused_change_leaves_no_trace(store: KeyStore) -> None:
    before = store.read_epoch(), store.read_all()
    with pytest.raises(NoSuchKey):
        store.revoke("aaaaaaaaaaaa", now=NOW)
    with pytest.raises(NoSuchKey):
        store.rotate("aaaaaaaaaaaa", 0, now=NOW)
    assert (store.read_epoch(), store.read_all()) == before


def test_revoking(store: KeyStore) -> None:
    key, other = store.create("acme", now=NOW), store.create("acme", now=NOW)
    store.revoke(key.id, now=NOW)
    assert live_ids(store) == {other.id}
    assert {row.id: row.status(NOW) for row in store.read_all()} == {key.id: "revoked", other.id: "active"}
    with pytest.raises(KeyEnded, match=f"{key.id} is revoked already"):
        store.revoke(key.id, now=NOW)
    with pytest.raises(KeyEnded, match="revoked already"):
        store.rotate(key.id, 60, now=NOW)


def test_an_expired_key_is_not_live(store: KeyStore) -> None:
    key = store.create("acme", now=NOW, expires_at=NOW + 10)
    assert live_ids(store, NOW + 9.9) == {key.id}
    assert live_ids(store, NOW + 10) == set()
    (row,) = store.read_all()
    assert row.status(NOW + 10) == "expired"
    with pytest.raises(KeyEnded, match="expired already"):
        store.rotate(key.id, 60, now=NOW + 10)


def test_rotating_keeps_the_old_key_for_the_overlap(store: KeyStore) -> None:
    old = store.create("acme", "ci", now=NOW)
    new = store.rotate(old.id, 60, now=NOW)
    assert live_ids(store, NOW + 59) == {old.id, new.id}
    assert live_ids(store, NOW + 60) == {new.id}
    rows = {row.id: row for row in store.read_all()}
    assert (rows[new.id].tenant, rows[new.id].label, rows[new.id].expires_at) == ("acme", "ci", None)
    assert (rows[old.id].replaced_by, rows[old.id].status(NOW)) == (new.id, "replaced")
    with pytest.raises(KeyEnded, match=f"{old.id} is replaced by {new.id} already"):
        store.rotate(old.id, 60, now=NOW)


def test_rotating_never_makes_a_key_last_longer_unasked(store: KeyStore) -> None:
    old = store.create("acme", now=NOW, expires_at=NOW + 30)
    new = store.rotate(old.id, 60, now=NOW)
    assert {row.id: row.expires_at for row in store.read_all()} == {old.id: NOW + 30, new.id: NOW + 30}
    newer = store.rotate(new.id, 0, now=NOW, expires_at=NOW + 90)
    assert live_ids(store) == {old.id, newer.id}
    assert live_ids(store, NOW + 89) == {newer.id}


def test_texts_are_only_ever_data(store: KeyStore) -> None:
    hostile = "x'); DROP TABLE keys; --"
    store.create(hostile, hostile, now=NOW)
    with pytest.raises(NoSuchKey):
        store.revoke("' OR '1'='1", now=NOW)
    assert [(row.tenant, row.label, row.revoked_at) for row in store.read_all()] == [(hostile, hostile, None)]


def test_writers_take_turns(store: KeyStore, database: str) -> None:
    start = store.read_epoch()
    stores = [store, KeyStore(database, PEPPER)]
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda i: stores[i % 2].create("acme", now=NOW), range(60)))
    assert live_ids(store) == {key.id for key in keys}
    assert store.read_epoch() == start + 60


def test_of_two_rotations_of_one_key_one_wins(store: KeyStore, database: str) -> None:
    old = store.create("acme", now=NOW)
    stores = [store, KeyStore(database, PEPPER)]

    def rotate(i: int) -> str | None:
        try:
            return stores[i % 2].rotate(old.id, 60, now=NOW).plaintext
        except KeyEnded:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [key for key in pool.map(rotate, range(8)) if key]
    assert len(won) == 1
    assert live_ids(store) == {old.id, id_of(won[0])}


def test_many_first_starts_at_once(database: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(lambda _: KeyStore(database, PEPPER).read_epoch(), range(16)))
    assert len(set(epochs)) == 1


def test_a_wrong_pepper_is_told_before_any_key_is_refused(store: KeyStore, database: str) -> None:
    store.create("acme", now=NOW)
    with pytest.raises(StoreMismatch, match="another pepper"):
        KeyStore(database, b"another" * 6)


def test_the_pepper_may_change_while_there_are_no_keys(store: KeyStore, database: str) -> None:
    other = KeyStore(database, b"another" * 6)
    key = other.create("acme", now=NOW)
    assert live_ids(other) == {key.id}
    with pytest.raises(StoreMismatch, match="another pepper"):
        store.create("acme", now=NOW)
    with pytest.raises(StoreMismatch, match="another pepper"):
        store.read_live(NOW)
    assert live_ids(other) == {key.id}


def test_another_releases_schema_is_left_alone(store: KeyStore, database: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state" / "state.db") as raw:
        raw.execute("UPDATE keys_state SET schema_version = 2")
    raw.close()
    with pytest.raises(StoreMismatch, match="has schema 2, this release needs 1"):
        KeyStore(database, PEPPER)


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


def test_a_database_made_anew_has_another_epoch(store: KeyStore, database: str, tmp_path: Path) -> None:
    before = store.read_epoch()
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    assert KeyStore(database, PEPPER).read_epoch() != before
