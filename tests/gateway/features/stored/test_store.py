"""Stored responses in both databases: isolation between tenants, age, order, and bounds."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gateway.features.stored import store as stored_store
from gateway.features.stored.store import (
    Conversation,
    ResponseDatabase,
    StoredItem,
    StoredResponse,
    StoredTurn,
    TooLong,
)
from gateway.state.errors import StoreUnavailable
from tests.support.stored_responses import NOW, response

MIB = 1 << 20


def stored_turns(*responses: StoredResponse) -> list[StoredTurn]:
    return [StoredTurn(one.tenant, one) for one in responses]


def no_pending(id_: str) -> StoredResponse | None:
    return None


@pytest.fixture
def store(any_database: str) -> Iterator[ResponseDatabase]:
    opened = ResponseDatabase(any_database)
    yield opened
    opened.close()


def test_a_response_belongs_to_one_tenant(store: ResponseDatabase) -> None:
    store.write(stored_turns(response("a", "r", answer=b'{"of":"a"}'), response("b", "r", answer=b'{"of":"b"}')))
    for tenant in "ab":
        stored = store.response(tenant, "r", NOW)
        assert stored is not None
        assert stored.answer == b'{"of":"%b"}' % tenant.encode()
    assert store.response("c", "r", NOW) is None
    assert not store.delete_response("c", "r", NOW)
    assert store.delete_response("a", "r", NOW)
    assert (store.response("a", "r", NOW), store.delete_response("a", "r", NOW)) == (None, False)
    assert store.response("b", "r", NOW) is not None


def test_a_history_is_a_tenants_own_and_oldest_first(store: ResponseDatabase) -> None:
    store.write(stored_turns(response("a", "1"), response("a", "2", "1"), response("b", "1"), response("b", "3", "2")))
    pending = {"3": response("a", "3", "2")}
    stored = store.history("a", "3", NOW, pending.get, MIB)
    assert stored is not None
    assert [one.id for one in stored] == ["1", "2", "3"]
    assert store.history("b", "3", NOW, no_pending, MIB) is None  # its second response is another tenant's
    with pytest.raises(TooLong):
        store.history("a", "2", NOW, no_pending, 10)


def test_expired_responses_are_hidden_and_deleted(store: ResponseDatabase) -> None:
    store.write(stored_turns(*(response("a", str(i), at=NOW + i) for i in range(5)), response("b", "0")))
    store.create(Conversation("a", "c", NOW, NOW + 10, b"{}"), (StoredItem("i", b"{}"),))
    assert store.response("a", "0", NOW + 100) is None
    assert store.sweep(NOW + 100, 2) == 6  # two past their time, two above the bound, a conversation and its item
    assert [store.response("a", str(i), NOW + 100) is not None for i in range(5)] == [False, False, False, True, True]
    assert store.items("a", "c", MIB) == []
    assert store.sweep(NOW + 100, 2) == 0


def test_items_stay_in_order_and_a_conversation_that_is_gone_gets_none(store: ResponseDatabase) -> None:
    store.create(Conversation("a", "c", NOW, NOW + 10, b'{"k":"v"}'), (StoredItem("1", b"1"),))
    store.append(StoredTurn("a", None, "c", (StoredItem("2", b"2"), StoredItem("3", b"3")), NOW + 20))
    store.write(
        [
            StoredTurn("b", None, "c", (StoredItem("9", b"9"),), NOW),
            StoredTurn("a", None, "c", (StoredItem("4", b"4"),), NOW + 30),
        ]
    )
    assert [item.id for item in store.items("a", "c", MIB)] == ["1", "2", "3", "4"]
    assert store.items("b", "c", MIB) == []
    stored = store.conversation("a", "c", NOW + 25)
    assert stored is not None
    assert (stored.expires_at, stored.metadata) == (NOW + 30, b'{"k":"v"}')
    assert not store.set_metadata("b", "c", b"{}", NOW, NOW)
    assert not store.delete_item("b", "c", "1")
    assert store.delete_item("a", "c", "2")
    assert not store.delete_conversation("b", "c", NOW)
    assert store.delete_conversation("a", "c", NOW)
    assert (store.conversation("a", "c", NOW), store.items("a", "c", MIB)) == (None, [])


def test_a_conversation_has_a_bounded_number_of_items(store: ResponseDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_store, "MAX_ITEMS", 2)
    store.create(Conversation("a", "c", NOW, NOW + 10, b"{}"), (StoredItem("1", b"1"), StoredItem("2", b"2")))
    with pytest.raises(TooLong):
        store.append(StoredTurn("a", None, "c", (StoredItem("3", b"3"),), NOW + 10))
    assert len(store.items("a", "c", MIB)) == 2


def test_several_processes_make_the_tables_at_once(any_database: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(lambda _: ResponseDatabase(any_database), range(8)))
    stores[0].write(stored_turns(response("a", "1")))
    assert stores[7].response("a", "1", NOW) is not None
    for one in stores:
        one.close()


def test_a_database_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    store = ResponseDatabase(f"sqlite:///{tmp_path}/state.db")
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("DROP TABLE stored_responses")
    connection.close()
    with pytest.raises(StoreUnavailable, match="no such table"):
        store.response("a", "1", NOW)


IDS = st.sampled_from("123")
TENANTS = st.sampled_from("ab")


class Tenants(RuleBasedStateMachine):
    """Two tenants with equal ids, against dictionaries: neither sees or changes the other's."""

    folder: Path

    @initialize()
    def open(self) -> None:
        self.store = ResponseDatabase(f"sqlite:///{self.folder}/{id(self)}.db")
        self.model: dict[tuple[str, str], str | None] = {}
        self.items: dict[str, list[str]] = {}

    @rule(tenant=TENANTS, id_=IDS, previous=st.none() | IDS)
    def write(self, tenant: str, id_: str, previous: str | None) -> None:
        self.store.write(stored_turns(response(tenant, id_, previous)))
        self.model[tenant, id_] = previous

    @rule(tenant=TENANTS, id_=IDS)
    def delete(self, tenant: str, id_: str) -> None:
        assert self.store.delete_response(tenant, id_, NOW) == (self.model.pop((tenant, id_), "none") != "none")

    @rule(tenant=TENANTS)
    def begin(self, tenant: str) -> None:
        self.store.delete_conversation(tenant, "c", NOW)
        self.store.create(Conversation(tenant, "c", NOW, NOW + 10, b"{}"), ())
        self.items[tenant] = []

    @rule(tenant=TENANTS, id_=IDS)
    def append(self, tenant: str, id_: str) -> None:
        self.store.append(StoredTurn(tenant, None, "c", (StoredItem(id_, b"{}"),), NOW + 10))
        if tenant in self.items:
            self.items[tenant] = [one for one in self.items[tenant] if one != id_] + [id_]

    @invariant()
    def equal(self) -> None:
        for tenant in "ab":
            for id_ in "123":
                assert (self.store.response(tenant, id_, NOW) is not None) == ((tenant, id_) in self.model)
            assert [item.id for item in self.store.items(tenant, "c", MIB)] == self.items.get(tenant, [])

    def teardown(self) -> None:
        self.store.close()


def test_tenants_never_meet(tmp_path: Path) -> None:
    machine: Any = type("Machine", (Tenants,), {"folder": tmp_path})
    run_state_machine_as_test(machine, settings=settings(max_examples=8, stateful_step_count=15, deadline=None))
