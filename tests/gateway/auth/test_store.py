import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from config.schema.identity import USER, GrantConfig, ScopesConfig
from gateway.auth.errors import KeyEnded, NoSuchKey, TooManyKeys
from gateway.auth.keys import Principal, digest, id_of
from gateway.auth.scope import Scope
from gateway.auth.store import KeyStore
from gateway.state.errors import StoreMismatch
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, OpenStore


@pytest.fixture
def database(any_database: str) -> str:
    """Each test runs on SQLite and on a real Postgres."""
    return any_database


def live_ids(store: KeyStore, now: float = NOW) -> set[str]:
    return {record.principal.key_id for record in store.read_live(now).records.values()}


def test_an_issued_key_is_valid_and_only_its_hash_is_stored(store: KeyStore, tmp_path: Path) -> None:
    key = store.create("acme", "ci", by=TESTER, now=NOW)
    (record,) = store.read_live(NOW).records.values()
    assert (record.principal.tenant, record.principal.key_id) == ("acme", key.id)
    assert record.digest == digest(PEPPER, key.plaintext)
    assert record.expires_at == math.inf
    (row,) = store.read_all()
    assert (row.id, row.tenant, row.label, row.created_at) == (key.id, "acme", "ci", NOW)
    assert row.status(NOW) == "active"
    secret = key.plaintext[-43:].encode()
    assert secret not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_keys_outlive_the_process(store: KeyStore, open_store: OpenStore) -> None:
    key = store.create("acme", by=TESTER, now=NOW)
    assert live_ids(open_store()) == {key.id}


def test_every_change_moves_the_epoch_and_reading_does_not(store: KeyStore) -> None:
    epochs = [store.read_epoch()]
    key = store.create("acme", by=TESTER, now=NOW)
    epochs.append(store.read_epoch())
    other = store.rotate(key.id, 60, by=TESTER, now=NOW)
    epochs.append(store.read_epoch())
    store.revoke(other.id, by=TESTER, now=NOW)
    epochs.append(store.read_epoch())
    assert len(set(epochs)) == 4
    store.read_all()
    assert store.read_live(NOW).position.epoch == store.read_epoch() == epochs[-1]


def test_a_refused_change_leaves_no_trace(store: KeyStore) -> None:
    before = store.read_epoch(), store.read_all()
    with pytest.raises(NoSuchKey):
        store.revoke("aaaaaaaaaaaa", by=TESTER, now=NOW)
    with pytest.raises(NoSuchKey):
        store.rotate("aaaaaaaaaaaa", 0, by=TESTER, now=NOW)
    assert (store.read_epoch(), store.read_all()) == before


def test_revoking(store: KeyStore) -> None:
    key, other = store.create("acme", by=TESTER, now=NOW), store.create("acme", by=TESTER, now=NOW)
    store.revoke(key.id, by=TESTER, now=NOW)
    assert live_ids(store) == {other.id}
    assert {row.id: row.status(NOW) for row in store.read_all()} == {key.id: "revoked", other.id: "active"}
    with pytest.raises(KeyEnded, match=f"{key.id} is revoked already"):
        store.revoke(key.id, by=TESTER, now=NOW)
    with pytest.raises(KeyEnded, match="revoked already"):
        store.rotate(key.id, 60, by=TESTER, now=NOW)


def test_an_expired_key_is_not_live(store: KeyStore) -> None:
    key = store.create("acme", by=TESTER, now=NOW, expires_at=NOW + 10)
    assert live_ids(store, NOW + 9.9) == {key.id}
    assert live_ids(store, NOW + 10) == set()
    (row,) = store.read_all()
    assert row.status(NOW + 10) == "expired"
    with pytest.raises(KeyEnded, match="expired already"):
        store.rotate(key.id, 60, by=TESTER, now=NOW + 10)


def test_the_old_key_stays_valid_during_the_overlap_of_a_rotation(store: KeyStore) -> None:
    old = store.create("acme", "ci", by=TESTER, now=NOW)
    new = store.rotate(old.id, 60, by=TESTER, now=NOW)
    assert live_ids(store, NOW + 59) == {old.id, new.id}
    assert live_ids(store, NOW + 60) == {new.id}
    rows = {row.id: row for row in store.read_all()}
    assert (rows[new.id].tenant, rows[new.id].label, rows[new.id].expires_at) == ("acme", "ci", None)
    assert (rows[old.id].replaced_by, rows[old.id].status(NOW)) == (new.id, "replaced")
    with pytest.raises(KeyEnded, match=f"{old.id} is replaced by {new.id} already"):
        store.rotate(old.id, 60, by=TESTER, now=NOW)


def test_the_keys_that_ended_last_are_read_with_their_reason(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    live, revoked, rotated = (store.create("acme", by=TESTER, now=NOW) for _ in range(3))
    short = store.create("acme", by=TESTER, now=NOW, expires_at=NOW + 1)
    new = store.rotate(rotated.id, 2.0, by=TESTER, now=NOW)
    store.revoke(revoked.id, by=TESTER, now=NOW + 3)
    assert {live.id, new.id} == live_ids(store, NOW + 4)
    ended = {each.principal.key_id: each for each in store.read_live(NOW + 4).ended}
    assert list(ended) == [revoked.id, rotated.id, short.id]
    assert ended[revoked.id].revoked
    assert ended[rotated.id].successor == new.id
    assert (ended[short.id].revoked, ended[short.id].successor) == (False, "")
    monkeypatch.setattr("gateway.auth.store.MOST_ENDED", 1)
    assert [each.principal.key_id for each in store.read_live(NOW + 4).ended] == [revoked.id]


def test_rotating_never_makes_a_key_last_longer_unasked(store: KeyStore) -> None:
    old = store.create("acme", by=TESTER, now=NOW, expires_at=NOW + 30)
    new = store.rotate(old.id, 60, by=TESTER, now=NOW)
    assert {row.id: row.expires_at for row in store.read_all()} == {old.id: NOW + 30, new.id: NOW + 30}
    newer = store.rotate(new.id, 0, by=TESTER, now=NOW, expires_at=NOW + 90)
    assert live_ids(store) == {old.id, newer.id}
    assert live_ids(store, NOW + 89) == {newer.id}


def test_the_attributes_of_a_key_are_stored_and_survive_a_rotation(store: KeyStore) -> None:
    scopes = ScopesConfig(models=("gpt-*",), fronts=("chat",), routes=("gold",))
    grant = GrantConfig(scopes=scopes, labels={"team": "search"})
    old = store.create("acme", by=TESTER, now=NOW, grant=grant)
    new = store.rotate(old.id, 60, by=TESTER, now=NOW)
    for record in store.read_live(NOW).records.values():
        assert (record.principal.roles, record.principal.labels) == (USER, {"team": "search"})
        assert record.principal.scope == Scope(models=["gpt-*"], fronts=["chat"], routes=["gold"])
    assert {row.id for row in store.read_all() if row.scopes["models"] == ["gpt-*"]} == {old.id, new.id}
    admin = store.create("acme", by=TESTER, now=NOW, grant=GrantConfig(role="tenant-admin"))
    (record,) = (r for r in store.read_live(NOW).records.values() if r.principal.key_id == admin.id)
    assert record.principal == Principal("acme", admin.id, frozenset({"user", "tenant-admin"}))
    assert store.find(admin.id).role == "tenant-admin"


def test_a_tenant_s_keys_are_its_own(store: KeyStore) -> None:
    key = store.create("acme", by=TESTER, now=NOW)
    assert [row.id for row in store.read_all("acme")] == [key.id]
    assert store.read_all("beta") == ()
    for change in (store.revoke, partial(store.rotate, overlap=0)):
        with pytest.raises(NoSuchKey, match="no issued key has the id"):
            change(key.id, by=TESTER, now=NOW, tenant="beta")
    store.revoke(key.id, by=TESTER, now=NOW, tenant="acme")


def test_texts_are_only_ever_data(store: KeyStore) -> None:
    hostile = "x'); DROP TABLE keys; --"
    store.create(hostile, hostile, by=TESTER, now=NOW)
    with pytest.raises(NoSuchKey):
        store.revoke("' OR '1'='1", by=TESTER, now=NOW)
    assert [(row.tenant, row.label, row.revoked_at) for row in store.read_all()] == [(hostile, hostile, None)]


def test_writers_take_turns(store: KeyStore, open_store: OpenStore) -> None:
    start = store.read_epoch()
    stores = [store, open_store()]
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda i: stores[i % 2].create("acme", by=TESTER, now=NOW), range(60)))
    assert live_ids(store) == {key.id for key in keys}
    assert store.read_epoch() != start


def test_of_two_rotations_of_one_key_one_wins(store: KeyStore, open_store: OpenStore) -> None:
    old = store.create("acme", by=TESTER, now=NOW)
    stores = [store, open_store()]

    def rotate(i: int) -> str | None:
        try:
            return stores[i % 2].rotate(old.id, 60, by=TESTER, now=NOW).plaintext
        except KeyEnded:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [key for key in pool.map(rotate, range(8)) if key]
    assert len(won) == 1
    assert live_ids(store) == {old.id, id_of(won[0])}


def test_many_first_starts_at_once(open_store: OpenStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(lambda _: open_store().read_epoch(), range(16)))
    assert len(set(epochs)) == 1


def test_a_wrong_pepper_is_reported_before_any_key_is_refused(store: KeyStore, open_store: OpenStore) -> None:
    store.create("acme", by=TESTER, now=NOW)
    with pytest.raises(StoreMismatch, match="another pepper"):
        open_store(b"another" * 6)


def test_the_pepper_may_change_while_there_are_no_keys(store: KeyStore, open_store: OpenStore) -> None:
    other = open_store(b"another" * 6)
    key = other.create("acme", by=TESTER, now=NOW)
    assert live_ids(other) == {key.id}
    with pytest.raises(StoreMismatch, match="another pepper"):
        store.create("acme", by=TESTER, now=NOW)
    with pytest.raises(StoreMismatch, match="another pepper"):
        store.read_live(NOW)
    assert live_ids(other) == {key.id}


def test_a_tenant_has_a_bounded_number_of_keys_whatever_its_admin_does(store: KeyStore) -> None:
    """Valid keys, those in the overlap of a rotation, and ended ones: the rows of a tenant have a bound too."""
    other, now, most = store.create("other", by=TESTER, now=NOW), NOW, 3
    valid = [store.create("acme", by=TESTER, now=now, most=most).id for _ in range(most)]
    with pytest.raises(TooManyKeys, match="has 3 valid keys"):
        store.create("acme", by=TESTER, now=now, most=most)
    valid = [store.rotate(key, 3600, by=TESTER, now=now, most=most).id for key in valid]
    with pytest.raises(TooManyKeys):
        store.rotate(valid[0], 3600, by=TESTER, now=now, most=most)
    for _ in range(30):
        now += 3600
        valid.append(store.rotate(valid.pop(0), 0, by=TESTER, now=now, most=most).id)
        store.revoke(valid.pop(0), by=TESTER, now=now)
        valid.append(store.create("acme", by=TESTER, now=now, most=most).id)
        assert live_ids(store, now) == {other.id, *valid}
    assert len(store.read_all("acme")) <= 2 * most + 1


def test_a_block_counts_for_the_lineage_until_it_is_taken_back(store: KeyStore) -> None:
    first = store.create("acme", by=TESTER, now=NOW)
    second = store.rotate(first.id, 600, by=TESTER, now=NOW)
    third = store.rotate(second.id, 600, by=TESTER, now=NOW)
    other = store.create("acme", by=TESTER, now=NOW)
    live = store.read_live(NOW)
    lineage = {first.id, second.id, third.id}
    for key in (second, first):  # the second time it changes nothing
        assert set(store.block(key.id, by=TESTER, now=NOW)) == lineage
    blocked = store.read_changes(live, NOW)
    assert set(blocked.records) == {other.id}
    assert {record.principal.key_id for record in blocked.ended if record.blocked} == lineage
    assert {row.id: row.status(NOW) for row in store.read_all()} == dict.fromkeys(lineage, "blocked") | {
        other.id: "active"
    }
    with pytest.raises(KeyEnded, match="is blocked already"):
        store.rotate(third.id, 600, by=TESTER, now=NOW)
    store.revoke(second.id, by=TESTER, now=NOW)
    assert set(store.unblock(third.id, by=TESTER, now=NOW)) == {first.id, third.id}
    after = store.read_changes(blocked, NOW)
    assert set(after.records) == {first.id, third.id, other.id}
    assert after.records == store.read_live(NOW).records
    assert [record.principal.key_id for record in after.ended] == [second.id]
    with pytest.raises(KeyEnded):
        store.block(second.id, by=TESTER, now=NOW)
    with pytest.raises(NoSuchKey):
        store.block(first.id, by=TESTER, now=NOW, tenant="beta")
    acts = [(entry.action, entry.target) for entry in store.read_audit(20)]
    assert acts[0] == ("key.unblock", f"acme/{third.id}")
    assert ("key.block", f"acme/{second.id}") in acts
