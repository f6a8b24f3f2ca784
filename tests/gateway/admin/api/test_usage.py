"""Reports of usage for operators and tenant-admins: nobody reads another tenant's."""

import time
from pathlib import Path
from typing import Any

import pytest

from adapters.types import Usage
from config.schema.money import Money
from gateway.telemetry.record import Record
from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.gateways import config
from tests.support.usage_hosts import counting

pytestmark = pytest.mark.realtime  # the database has threads

MONTH = time.strftime("%Y-%m", time.gmtime())


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A folder with the usage of two tenants."""
    counter = counting(tmp_path / "counts")
    for tenant, count in (("acme", 3), ("beta", 5)):
        for _ in range(count):
            one = Record("id", "chat", "client", 10.0)
            one.tenant, one.key, one.model, one.time = tenant, "=1+1", "m", time.time()
            one.usage, one.cost = Usage(3, 2), Money(10**12, "usd")
            counter.put(one)
    counter.close()
    return tmp_path


def recording(door: AdminDoor, folder: Path) -> AdminDoor:
    """The door, with a configuration that records usage."""
    admin: dict[str, Any] = {"admin": {"required": True}}
    tenants = [{"name": name, "models": ["*"]} for name in ("acme", "beta")]
    door.backend.config = config(
        tenants=tenants,
        auth=admin,
        state={"database": f"sqlite:///{folder}/usage.db"},
        usage={"folder": str(folder / "counts")},
    )
    return door


async def test_a_tenant_admin_reads_its_own_tenant(admin_door: OpenDoor, used: Path) -> None:
    async with admin_door(required=True) as opened:
        d = recording(opened, used)
        operator, own = d.backend.key(role="operator"), d.backend.key(role="tenant-admin")
        _, body = await d.send("GET", "/admin/usage", operator)
        assert [(row["tenant"], row["requests"], row["amount"]) for row in body["usage"]] == [
            ("acme", 3, "3"),
            ("beta", 5, "5"),
        ]
        for query in ("", "?tenant=acme", "?by=key,tenant"):
            status, body = await d.send("GET", f"/admin/usage{query}", own)
            assert (status, [row.get("tenant", "acme") for row in body["usage"]]) == (200, ["acme"])
            assert sum(row["requests"] for row in body["usage"]) == 3
        assert (await d.send("GET", "/admin/usage?tenant=beta", own))[0] == 403
        assert (await d.send("GET", "/admin/usage?tenant=beta&format=focus", own))[0] == 403
        assert (await d.send("GET", f"/admin/tenants/beta/invoices/{MONTH}", own))[0] == 403
        status, body = await d.send("GET", f"/admin/tenants/acme/invoices/{MONTH}", own)
        assert (status, body["totals"]) == (200, [{"currency": "usd", "amount": "3"}])
        assert (await d.send("GET", "/admin/usage"))[0] == 401
        await d.backend.usage.aclose()


async def test_an_overview_is_of_all_tenants_or_of_the_own_one(admin_door: OpenDoor, used: Path) -> None:
    async with admin_door(required=True) as opened:
        d = recording(opened, used)
        operator, own = d.backend.key(role="operator"), d.backend.key(role="tenant-admin")
        _, body = await d.send("GET", "/admin/usage/overview", operator)
        rows = [(row["value"], row["amount"], row["share"], row["trend"]) for row in body["rows"]]
        assert rows == [("beta", "5", 0.625, None), ("acme", "3", 0.375, None)]
        assert (body["totals"][0]["amount"], body["days"][0]["amount"]) == ("8", 8.0)
        _, body = await d.send("GET", "/admin/usage/overview?by=key&limit=1", operator)
        assert [(row["value"], row["tenant"]) for row in body["rows"]] == [("=1+1", "beta"), ("(others)", "")]
        for query in ("by=model", "by=tenant", "by=team&model=m", "tenant=acme"):
            status, body = await d.send("GET", f"/admin/usage/overview?{query}", own)
            assert (status, [row["amount"] for row in body["totals"]]) == (200, ["3"])
        assert (await d.send("GET", "/admin/usage/overview?tenant=beta", own))[0] == 403
        assert (await d.send("GET", "/admin/usage/overview?model=none", own))[1]["rows"] == []
        for query in ("by=currency", "by=tenant,key", "limit=0", "from=2026-11-01T13", "from=1970-01-01", "per=day"):
            status, body = await d.send("GET", f"/admin/usage/overview?{query}", operator)
            assert (status, body["error"]["param"]) == (400, query.partition("=")[0])
        status, text = await d.send("GET", "/admin/usage?format=csv&by=tenant&key=%3D1%2B1&tenant=acme", operator)
        assert text.splitlines()[1:] == ["acme,usd,3,3000000000000,3,0,9,6,0,0,0"]
        await d.backend.usage.aclose()


async def test_exports_and_bad_queries(admin_door: OpenDoor, used: Path) -> None:
    async with admin_door(required=True) as opened:
        d = recording(opened, used)
        key = d.backend.key(role="operator")
        status, text = await d.send("GET", "/admin/usage?format=csv&by=tenant,key", key)
        assert (status, d.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert text.splitlines()[0].startswith("tenant,key,currency,amount,picos,requests")
        assert text.splitlines()[1].startswith("acme,'=1+1,usd,3,3000000000000,3")
        status, text = await d.send("GET", "/admin/usage?format=focus", key)
        assert (status, len(text.splitlines())) == (200, 3)
        for query in ("format=xml", "per=week", "by=secret", "limit=-1", "after=x", "from=x", "colour=red"):
            status, body = await d.send("GET", f"/admin/usage?{query}", key)
            assert (status, body["error"]["param"]) == (400, query.partition("=")[0])
        assert (await d.send("GET", "/admin/tenants/acme/invoices/2026-13", key))[0] == 404
        d.backend.config = config()
        status, body = await d.send("GET", "/admin/usage", key)
        assert (status, body["error"]["code"]) == (404, "usage_not_recorded")
        await d.backend.usage.aclose()
