"""The bytes that tenants store, as operators and scrapers see them."""

from pathlib import Path

import pytest

from gateway.features.quota.meter import ROW_BYTES
from gateway.features.quota.report import StorageReport
from gateway.features.stored.store import ResponseDatabase, StoredTurn
from tests.support.gateways import PEPPER, config
from tests.support.stored_responses import response

pytestmark = pytest.mark.realtime  # the database has a thread


async def test_the_report_has_every_tenant_of_the_file_and_metrics_have_bounded_labels(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state/state.db"
    tenants = [{"name": name, "models": ["*"], "limits": {"storage": "1GiB"}} for name in ("acme", "beta", "gone")]
    settings = config(tenants=tenants, state={"database": url}, metrics={"tenants": ["acme"]})
    report = StorageReport(lambda: settings, lambda: PEPPER)
    empty = {"used": 0, "quota": 2**30}
    assert await report.read() == {"acme": empty, "beta": empty, "gone": empty}
    store = ResponseDatabase(url)
    store.write([StoredTurn(name, response(name, "r", answer=b"x" * 100)) for name in ("acme", "beta", "elsewhere")])
    store.close()
    size = ROW_BYTES + 100 + len(response("a", "r").input)
    stored = {"used": size, "quota": 2**30}
    assert await report.read() == {"acme": stored, "beta": stored, "gone": empty}
    used, quota = report.collect()
    assert {sample.labels["tenant"]: sample.value for sample in used.samples} == {"acme": size, "(others)": size}
    assert {sample.labels["tenant"]: sample.value for sample in quota.samples} == {"acme": 2**30, "(others)": 2**31}
    await report.aclose()
