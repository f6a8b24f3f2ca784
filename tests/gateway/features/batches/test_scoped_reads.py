"""A key with a scope of models sees the batches and results of these models only: the others do not exist for it."""

from contextlib import closing

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import delete

from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from gateway.features.batches import schema
from gateway.features.batches.rows import BatchHolder, StoredFile, encode
from gateway.features.batches.store import BatchStore
from tests.support.batch_specs import spec
from tests.support.gateways import PEPPER

Globs = tuple[str, ...] | None
SCOPES: tuple[Globs, ...] = (None, ("chat",), ("chat", "embed"), ("ch*",), ("secret",), ("*",))
SEES: dict[Globs, tuple[Globs, ...]] = {  # by the reader's models: those of the batches that it sees
    None: SCOPES, ("*",): SCOPES, ("chat",): (("chat",),), ("chat", "embed"): (("chat",), ("chat", "embed")),
    ("ch*",): (("chat",), ("ch*",)), ("secret",): (("secret",),),
}  # fmt: skip
scopes = st.sampled_from(SCOPES)


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
