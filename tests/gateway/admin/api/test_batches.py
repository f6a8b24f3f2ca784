"""Batches over the admin API: a tenant's admin reads and cancels its own, and no others exist for it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.schema.batches import BatchesConfig
from gateway.admin.api import batches
from gateway.features.batches.rows import file_object
from gateway.features.batches.service import BatchService
from gateway.features.batches.storage import put_object
from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.batch_specs import spec
from tests.support.gateways import PEPPER

pytestmark = pytest.mark.realtime  # the database has threads


@asynccontextmanager
async def running(open_door: OpenDoor, folder: Path) -> AsyncIterator[AdminDoor]:
    """The door, with seven batches of two tenants."""
    async with open_door(required=True) as door:
        config = BatchesConfig(storage=f"file:{folder}/files")
        service = BatchService(config, f"sqlite:///{folder}/state/state.db", lambda: PEPPER, time.time)
        door.backend.batches = service
        for number in range(7):
            batch = spec(number, "acme" if number < 4 else "beta/eu", "anthropic" if number % 2 else "openai")
            await service.query(lambda store, batch=batch: store.create(batch, 100, 1e12))  # type: ignore[misc]
        try:
            yield door
        finally:
            service.close()


async def test_a_tenant_s_admin_sees_its_own_batches_alone(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with running(admin_door, tmp_path) as d:
        operator, own = d.backend.key(role="operator"), d.backend.key(role="tenant-admin")
        _, body = await d.send("GET", "/admin/batches", operator)
        assert [batch["id"] for batch in body["batches"]] == [f"batch_{n}" for n in (6, 5, 4, 3, 2, 1, 0)]
        assert {batch["api"] for batch in body["batches"]} == {"openai", "anthropic"}
        _, body = await d.send("GET", "/admin/batches", own)
        assert [batch["id"] for batch in body["batches"]] == [f"batch_{n}" for n in (3, 2, 1, 0)]
        _, body = await d.send("GET", "/admin/batches?tenant=beta/eu&status=unfinished", operator)
        assert {batch["tenant"] for batch in body["batches"]} == {"beta/eu"}
        absent = await d.send("GET", "/admin/batches/none", own)
        assert absent == await d.send("GET", "/admin/batches/batch_5", own)
        assert absent[0] == 404
        assert await d.send("POST", "/admin/batches/batch_5/cancel", own) == absent
        refused = await d.send("GET", "/admin/batches?tenant=beta/eu", own)
        assert refused == await d.send("GET", "/admin/batches?tenant=nobody", own)
        assert refused[0] == 403
        after = await d.send("GET", "/admin/batches?after=batch_5", own)
        assert after == await d.send("GET", "/admin/batches?after=none", own)
        assert (await d.send("GET", "/admin/batches/batch_5", operator))[1]["status"] == "validating"
        assert (await d.send("GET", "/admin/batches"))[0] == 401


async def test_a_batch_is_cancelled_once_and_the_audit_log_has_it(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with running(admin_door, tmp_path) as d:
        woken: list[int] = []
        assert d.backend.batches is not None
        d.backend.batches.created = lambda: woken.append(1)
        own = d.backend.key(role="tenant-admin")
        status, body = await d.send("POST", "/admin/batches/batch_1/cancel", own)
        assert (status, body["status"], body["may_cancel"]) == (200, "cancelling", False)
        assert set(body["times"]) == {"validating", "cancelling"}
        assert (await d.send("POST", "/admin/batches/batch_1/cancel", own))[0] == 200  # an order may be repeated
        assert woken == [1, 1]
        acts = [(act.action, act.target, act.outcome) for act in d.backend.acts]
        assert acts == [("batch.cancel", "batch_1", "done")] * 2
        assert (await d.send("GET", "/admin/batches?status=cancelling", own))[1]["batches"][0]["id"] == "batch_1"


async def test_pages_follow_each_other(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with running(admin_door, tmp_path) as d:
        key, ids = d.backend.key(role="operator"), list[str]()
        after: str | None = ""
        while after is not None:
            _, body = await d.send("GET", f"/admin/batches?limit=2{after and f'&after={after}'}", key)
            ids += [batch["id"] for batch in body["batches"]]
            after = body["next"]
        assert ids == [f"batch_{n}" for n in (6, 5, 4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=²", "limit"),
        ("after=nothing", "after"),
        (f"after={'x' * 200}", "after"),
        ("tenant=%00", "tenant"),
        ("status=waiting", "status"),
        ("offset=5", "offset"),
    ],
)
async def test_a_wrong_list_is_refused(admin_door: OpenDoor, tmp_path: Path, query: str, param: str) -> None:
    async with running(admin_door, tmp_path) as d:
        status, body = await d.send("GET", f"/admin/batches?{query}", d.backend.key(role="operator"))
        assert (status, body["error"]["param"]) == (400, param)


async def test_sealed_lines_of_a_saved_file_stay_sealed(
    admin_door: OpenDoor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "failures_file", lambda batch: batch.spec.error_file)
    async with running(admin_door, tmp_path) as d:
        service = d.backend.batches
        assert service is not None
        failed = b'{"custom_id":"a","error":{"message":"no"}}'
        sealed = service.seals.closed("acme", "file-e", "b", b'{"custom_id":"b","error":{"message":"Anna"}}')
        lines = b"\n".join([failed, sealed, b""])
        await service.stored(lambda storage: put_object(storage, file_object("file-e"), lines))
        status, body = await d.send("GET", "/admin/batches/batch_2/failures", d.backend.key(role="tenant-admin"))
        assert (status, body) == (200, lines.decode())
        assert "Anna" not in body


async def test_without_the_section_there_are_no_batches(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        for method, path in (("GET", ""), ("GET", "/batch_1"), ("POST", "/batch_1/cancel")):
            status, body = await d.send(method, f"/admin/batches{path}", d.backend.key(role="operator"))
            assert (status, body["error"]["code"]) == (404, "batches_disabled")


async def test_a_database_that_is_lost_is_a_503(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door(required=True) as d:
        url = f"sqlite:///{tmp_path}/none/state.db"
        (tmp_path / "none").write_text("not a folder")
        d.backend.batches = service = BatchService(BatchesConfig(), url, lambda: PEPPER, time.time)
        status, body = await d.send("GET", "/admin/batches", d.backend.key(role="operator"))
        assert (status, body["error"]["code"]) == (503, "storage_unavailable")
        service.close()
