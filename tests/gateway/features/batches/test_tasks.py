"""Tasks in a database: one that cannot be read holds up no other."""

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from gateway.features.batches import schema
from gateway.features.batches.store import BatchStore
from gateway.features.batches.tasks import TaskLeases
from tests.support.batch_specs import spec
from tests.support.gateways import PEPPER


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("table", "column"), [("batches", "spec"), ("tasks", "counts")])
@pytest.mark.parametrize("damage", ["", "3", "[]", "[" * 100_000])
def test_a_damaged_task_stops_no_other(
    tmp_path: Path, place: int, table: str, column: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(BatchStore(f"sqlite:///{tmp_path}/state.sqlite", PEPPER)) as store:
        for number in range(3):
            store.create(spec(number, "acme", "openai"), 10, 1e9)
        rows = getattr(schema, table)
        key = rows.c.id if table == "batches" else rows.c.batch
        with store.database.change(moves_epoch=False) as connection:
            connection.execute(update(rows).where(key == f"batch_{place}").values({column: damage}))
        leases = TaskLeases(store.database, lambda: 0.0, 10.0)
        expected = {f"batch_{number}" for number in range(3)} - {f"batch_{place}"}
        assert {claim.spec.id for claim in leases.claim(5)} == expected
        assert leases.claim(5) == []
    assert caplog.text.count("cannot be read") == 1
