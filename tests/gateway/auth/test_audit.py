"""The record of administrative acts: its content, and the detection of every change to it."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.identity import GrantConfig
from gateway.auth.audit import Act, Actor
from gateway.auth.errors import KeyEnded
from gateway.auth.keys import digest
from gateway.auth.store import KeyStore
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, Execute, OpenStore

RELOAD = Act(Actor("gateway@here"), "config.reload", "headrace.yaml", detail={"sha256": "ab"})


@pytest.fixture
def database(any_database: str) -> str:
    """Each test runs on SQLite and on a real Postgres."""
    return any_database


@pytest.fixture
def unguarded(execute: Execute, database: str) -> Execute:
    """The same, after the triggers are removed."""
    if database.startswith("sqlite"):
        execute("".join(f"DROP TRIGGER audit_{name};" for name in ("update", "delete", "replace")))
    else:
        execute("DROP TRIGGER audit_append_only ON audit")
    return execute


@pytest.fixture
def filled(store: KeyStore) -> KeyStore:
    """Four entries."""
    store.create("acme", by=TESTER, now=NOW)
    store.note([(NOW + 1, RELOAD), (NOW + 2, RELOAD)])
    store.create("acme", by=TESTER, now=NOW + 3)
    return store


def test_every_change_of_a_key_leaves_an_entry(store: KeyStore) -> None:
    actor = Actor("abcdefghijkl", "tenant-admin", "10.1.2.3")
    grant = GrantConfig(role="operator", labels={"team": "ops"})
    key = store.create("acme", "ci", by=actor, now=NOW, expires_at=NOW + 9, grant=grant)
    new = store.rotate(key.id, 5, by=actor, now=NOW + 1)
    store.revoke(new.id, by=TESTER, now=NOW + 2)
    revoke, rotate, create = store.read_audit(10)
    assert (create.seq, create.at, create.actor, create.role, create.peer) == (
        1, NOW, "abcdefghijkl", "tenant-admin", "10.1.2.3",
    )  # fmt: skip
    assert (create.action, create.target, create.outcome) == ("key.create", f"acme/{key.id}", "done")
    assert json.loads(create.detail) == {
        "label": "ci", "expires_at": NOW + 9, "role": "operator", "labels": {"team": "ops"},
    }  # fmt: skip
    assert (rotate.action, rotate.target) == ("key.rotate", f"acme/{key.id}")
    assert json.loads(rotate.detail) == {"replaced_by": new.id, "old_ends_at": NOW + 6}
    assert (revoke.actor, revoke.action, revoke.target) == ("cli:tester@here", "key.revoke", f"acme/{new.id}")
    written = repr(store.read_audit(10))
    for secret in (key.plaintext[-43:], new.plaintext[-43:], digest(PEPPER, key.plaintext).hex(), PEPPER.decode()):
        assert secret not in written


def test_a_change_that_is_refused_leaves_none(store: KeyStore) -> None:
    key = store.create("acme", by=TESTER, now=NOW)
    store.revoke(key.id, by=TESTER, now=NOW)
    with pytest.raises(KeyEnded):
        store.revoke(key.id, by=TESTER, now=NOW)
    assert [entry.action for entry in store.read_audit(10)] == ["key.revoke", "key.create"]


def test_acts_that_change_no_key_are_noted_and_move_no_epoch(store: KeyStore) -> None:
    epoch = store.read_epoch()
    store.note([(NOW, RELOAD), (NOW + 1, RELOAD)])
    assert [(entry.seq, entry.at, entry.action) for entry in store.read_audit(10)] == [
        (2, NOW + 1, "config.reload"), (1, NOW, "config.reload"),
    ]  # fmt: skip
    assert store.read_epoch() == epoch


def test_pages(filled: KeyStore) -> None:
    assert [entry.seq for entry in filled.read_audit(2)] == [4, 3]
    assert [entry.seq for entry in filled.read_audit(10, before=3)] == [2, 1]


def test_a_complete_log_is_verified(store: KeyStore) -> None:
    empty = store.verify_audit()
    assert (empty.entries, empty.problem) == (0, "")
    store.note([(NOW, RELOAD)] * 3)
    verdict = store.verify_audit(head=empty.head)
    assert (verdict.entries, verdict.problem, verdict.unchecked) == (3, "", 0)
    assert verdict.head == f"3:{store.read_audit(1)[0].digest}"
    store.note([(NOW, RELOAD)])
    assert store.verify_audit(head=verdict.head).problem == ""


CHANGED = [
    ("UPDATE audit SET actor = 'cli:nobody@here' WHERE seq = 2", "entry 2 was changed"),
    ("UPDATE audit SET at = 1 WHERE seq = 4", "entry 4 was changed"),
    ("UPDATE audit SET detail = '{}' WHERE seq = 3", "entry 3 was changed"),
    ("UPDATE audit SET outcome = 'refused', digest = previous WHERE seq = 1", "entry 2 does not follow entry 1"),
    ("DELETE FROM audit WHERE seq = 2", "entry 2 is missing"),
    ("DELETE FROM audit WHERE seq = 1", "entry 1 is missing"),
    ("DELETE FROM audit WHERE seq = 2; UPDATE audit SET seq = seq - 1 WHERE seq > 2", "entry 2 does not follow"),
    ("UPDATE audit SET previous = digest WHERE seq = 3", "entry 3 does not follow entry 2"),
]


@pytest.mark.parametrize(("statement", "problem"), CHANGED)
def test_a_change_outside_the_product_is_detected(
    filled: KeyStore, unguarded: Execute, statement: str, problem: str
) -> None:
    unguarded(statement)
    assert problem in filled.verify_audit().problem


def test_missing_newest_entries_are_detected_with_a_noted_head(filled: KeyStore, unguarded: Execute) -> None:
    noted = filled.verify_audit().head
    unguarded("DELETE FROM audit WHERE seq > 2")
    assert filled.verify_audit().problem == ""
    assert filled.verify_audit(noted).problem == f"{noted} is no longer in the log"
    filled.note([(NOW, RELOAD)] * 2)
    assert "no longer in the log" in filled.verify_audit(noted).problem
    for nonsense in ("", "x", "9:ab", "1:ab", "-1:ab"):
        assert "no longer in the log" in filled.verify_audit(nonsense).problem


def test_the_database_refuses_changes_of_the_log(filled: KeyStore, execute: Execute, database: str) -> None:
    before = filled.read_audit(10)
    statements = ["UPDATE audit SET actor = 'x'", "DELETE FROM audit WHERE seq = 4", "DELETE FROM audit"]
    row = "(4, 1, 'x', '', '', '', '', '', '', '', '')"
    if database.startswith("sqlite"):
        statements.append(f"INSERT OR REPLACE INTO audit VALUES {row}")
    else:
        statements += ["TRUNCATE audit", f"INSERT INTO audit VALUES {row} ON CONFLICT (seq) DO UPDATE SET actor = 'x'"]
    for statement in statements:
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.RaiseException), match="append-only"):
            execute(statement)
    assert filled.read_audit(10) == before


def test_many_writers_make_one_chain(store: KeyStore, open_store: OpenStore) -> None:
    stores = [store, open_store()]

    def write(i: int) -> None:
        if i % 3:
            stores[i % 2].note([(NOW, RELOAD)])
        else:
            stores[i % 2].create("acme", by=TESTER, now=NOW)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(36)))
    verdict = store.verify_audit()
    assert (verdict.entries, verdict.problem) == (36, "")


def test_entries_from_before_another_pepper_keep_their_order_at_least(
    store: KeyStore, open_store: OpenStore, unguarded: Execute
) -> None:
    store.note([(NOW, RELOAD)] * 3)
    other = open_store(b"another" * 6)
    other.note([(NOW, RELOAD)])
    verdict = other.verify_audit()
    assert (verdict.entries, verdict.problem, verdict.unchecked) == (5, "", 3)
    assert other.read_audit(2)[1].action == "pepper.replaced"
    unguarded("UPDATE audit SET actor = 'x' WHERE seq = 5")
    assert other.verify_audit().problem == "entry 5 was changed"
    unguarded("DELETE FROM audit WHERE seq = 2")
    assert other.verify_audit().problem == "entry 2 is missing"


@settings(max_examples=12)
@given(st.text(max_size=400), st.dictionaries(st.text(max_size=20), st.text(max_size=50) | st.integers(), max_size=5))
def test_any_entry_can_be_stored_and_verified(tmp_path_factory: Any, text: str, detail: dict[str, Any]) -> None:
    folder: Path = tmp_path_factory.mktemp("audit")
    store = KeyStore(f"sqlite:///{folder}/state.db", PEPPER)
    store.note([(NOW, Act(Actor(text, text, text), text, text, detail=detail))])
    (entry,) = store.read_audit(1)
    assert json.loads(entry.detail) == detail
    assert len(entry.actor) <= 301
    assert entry.actor.isprintable()
    assert store.verify_audit().problem == ""


def test_a_detail_without_end_is_cut(store: KeyStore) -> None:
    store.note([(NOW, Act(TESTER, "x", detail={"long": "y" * 100_000}))])
    assert len(store.read_audit(1)[0].detail) < 10_000
    assert store.verify_audit().problem == ""
