"""Pages of batches equal a filter over all of them, on either database."""

from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import delete

from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from gateway.features.batches import schema
from gateway.features.batches.listing import (
    MOST_FAILURES,
    STATES,
    UNFINISHED,
    BatchSearch,
    cancel,
    failures_of,
    one_of,
    page_of,
)
from gateway.features.batches.rows import BatchHolder, StoredFile, encode
from gateway.features.batches.storage import NoObject, Storage
from gateway.features.batches.store import BatchStore, change_progress
from policies.batches.states import ENDED
from tests.support.batch_specs import spec
from tests.support.gateways import PEPPER

TENANTS = ("acme", "beta")
made = st.tuples(st.sampled_from(TENANTS), st.sampled_from(["openai", "anthropic"]), st.sampled_from(STATES[1:]))
searches = st.builds(
    BatchSearch,
    tenant=st.sampled_from([None, *TENANTS, "nobody"]),
    state=st.sampled_from([None, *STATES]),
    after=st.none(),
    limit=st.integers(1, 4),
)
Globs = tuple[str, ...] | None
SCOPES: tuple[Globs, ...] = (None, ("chat",), ("chat", "embed"), ("ch*",), ("secret",), ("*",))
SEES: dict[Globs, tuple[Globs, ...]] = {  # by the reader's models: those of the batches that it sees
    None: SCOPES, ("*",): SCOPES, ("chat",): (("chat",),), ("chat", "embed"): (("chat",), ("chat", "embed")),
    ("ch*",): (("chat",), ("ch*",)), ("secret",): (("secret",),),
}  # fmt: skip
scopes = st.sampled_from(SCOPES)


@pytest.fixture
def store(any_database: str) -> Iterator[BatchStore]:
    with closing(BatchStore(any_database, PEPPER)) as opened:
        yield opened


def fill(store: BatchStore, stored: list[tuple[str, str, str]]) -> None:
    """Empty the database, and store batches in their states."""
    with store.database.change(moves_epoch=False) as connection:
        connection.execute(delete(schema.tasks))
        connection.execute(delete(schema.batches))
    for number, (tenant, api, state) in enumerate(stored):
        store.create(spec(number, tenant, api), 1000, 1e9)
        with store.database.change(moves_epoch=False) as connection:
            change_progress(connection, f"batch_{number}", lambda progress, to=state: progress.move(to, 2.0))  # type: ignore[misc]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(made, max_size=12), search=searches)
def test_pages_are_a_filter_over_all_batches(
    store: BatchStore, stored: list[tuple[str, str, str]], search: BatchSearch
) -> None:
    fill(store, stored)
    states = set(STATES) - ENDED if search.state == UNFINISHED else {search.state}
    expected = [
        f"batch_{number}"
        for number, (tenant, _, state) in enumerate(stored)
        if search.tenant in (None, tenant) and (search.state is None or state in states)
    ]
    pages, page = list[str](), page_of(store, search)
    while page:
        assert len(page) <= search.limit
        pages += [batch.spec.id for batch in page]
        page = page_of(store, search._replace(after=pages[-1]))
    assert pages == expected[::-1]
    assert page_of(store, search._replace(after="batch_x")) is None


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(made, min_size=1, max_size=4))
def test_a_tenant_reads_and_cancels_its_own_batches(store: BatchStore, stored: list[tuple[str, str, str]]) -> None:
    fill(store, stored)
    for number, (tenant, _, state) in enumerate(stored):
        id_, other = f"batch_{number}", TENANTS[tenant == "acme"]
        assert one_of(store, id_, other) is None
        assert cancel(store, id_, other, 3.0) is None
        own = one_of(store, id_, tenant)
        assert own is not None
        assert own == one_of(store, id_, None)
        assert own.progress.status == state
        after = cancel(store, id_, tenant, 3.0)
        assert after is not None
        cancelled = state in ("validating", "in_progress")
        assert after.progress.status == ("cancelling" if cancelled else state)
        assert after.progress.times.get("cancelling") == (3.0 if cancelled else 2.0 if state == "cancelling" else None)


def principal(models: Globs) -> Principal:
    return Principal("acme", "k", scope=None if models is None else Scope(models=models))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(makers=st.lists(scopes, min_size=1, max_size=8), reads=scopes, limit=st.integers(1, 4))
def test_pages_files_and_single_reads_are_a_filter_by_scope(
    any_database: str, makers: list[Globs], reads: Globs, limit: int
) -> None:
    with closing(BatchStore(any_database, PEPPER)) as store:
        with store.database.change(moves_epoch=False) as connection:
            for table in (schema.tasks, schema.batches, schema.files):
                connection.execute(delete(table))
        for number, models in enumerate(makers):
            holder = BatchHolder.of(principal(models))
            store.create(replace(spec(number, "acme", "openai"), holder=holder), 1000, 1e9)
            name = f"file-{number}"
            store.add_file(StoredFile(name, "acme", "batch_output", name, 1, 1.0, 1e9, encode(holder.models)))
        reader, seen = principal(reads), [n for n, models in enumerate(makers) if models in SEES[reads]]
        pages, after = list[int](), None
        while page := store.page(reader, "openai", limit, after):
            pages += [int(batch.spec.id.removeprefix("batch_")) for batch in page]
            after = page[-1].spec.id
        assert pages == seen[::-1]
        listed, after = list[str](), None
        while rows := store.file_page(reader, None, after, limit, 2.0, ascending=True):
            listed += [row.id for row in rows]
            after = rows[-1].id
        assert listed == [f"file-{number}" for number in seen]
        for number in range(len(makers)):
            is_seen = number in seen
            assert (store.batch(reader, f"batch_{number}", "openai") is not None) is is_seen
            assert (store.file(reader, f"file-{number}", 2.0) is not None) is is_seen
            assert (store.cancel(reader, f"batch_{number}", "openai", 2.0) is not None) is is_seen
            assert (store.page(reader, "openai", 1, f"batch_{number}") is not None) is is_seen
            assert (store.file_page(reader, None, f"file-{number}", 1, 2.0, ascending=True) is not None) is is_seen


class OneFile:
    """A storage with one object."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, name: str, start: int, length: int) -> bytes:
        if name != "files/f":
            raise NoObject
        return self.data[start : start + length]


FAILED = {
    b'{"custom_id":"a","response":{"status_code":400,"body":{"error":{"code":"c","message":"m"}}},"error":null}': {
        "custom_id": "a", "status": 400, "code": "c", "message": "m",
    },
    b'{"custom_id":"a","response":null,"error":{"code":"batch_expired","message":"m"}}': {
        "custom_id": "a", "code": "batch_expired", "message": "m",
    },
    b'{"custom_id":"a","result":{"type":"errored","error":{"type":"error","error":{"type":"t","message":"m"}}}}': {
        "custom_id": "a", "code": "t", "message": "m",
    },
    b'{"custom_id":"a","result":{"type":"expired"}}': {"custom_id": "a", "code": "expired"},
    b'{"custom_id":{"x":1},"response":{"status_code":502,"body":null}}': {"custom_id": "{'x': 1}", "status": 502},
}  # fmt: skip


def test_failed_lines_of_both_apis_have_their_reason() -> None:
    good = b'{"custom_id":"b","result":{"type":"succeeded","message":{}}}'
    data = b"\n".join([good, *FAILED, b"no json", b'{"error": 5}', b'"x"', b"{}"]) + b'\n{"custom_id":"torn'
    storage = cast(Storage, OneFile(data))
    assert failures_of(storage, "f") == [*FAILED.values(), {}]
    assert failures_of(storage, "deleted") == []
    many = cast(Storage, OneFile(b'{"custom_id":"a"}\n' * 1000))
    assert len(failures_of(many, "f")) == MOST_FAILURES
