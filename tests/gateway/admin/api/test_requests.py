"""The search of requests over the admin API: nobody reads another tenant's, and no id of another tenant exists."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.features.journal.folders import spool_of
from gateway.features.journal.lines import MICROS, time_of
from gateway.features.journal.sink import RequestSink
from gateway.features.recording.segments import remove_segment
from policies.facts import bounded_user
from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.gateways import chat, config
from tests.support.recorded import SECRET, recorder_of, recorder_rig
from tests.support.stored_requests import record
from tests.support.usage_hosts import NOVEMBER

pytestmark = pytest.mark.realtime  # the database has threads


async def storing(door: AdminDoor, folder: Path, shown: str | None = None, **sections: Any) -> AdminDoor:
    """The door, with stored requests of two tenants."""
    door.backend.config = made = config(
        **sections,
        tenants=[{"name": name, "models": ["*"], "show_content": shown} for name in ("acme", "beta")],
        auth={"admin": {"required": True}},
        state={"database": f"sqlite:///{folder}/requests.db"},
        requests={"retention": "3650d"},
    )
    spool = spool_of(made)
    sink = RequestSink(spool)
    sink.configure(made)
    for number in range(7):
        tenant = "acme" if number < 4 else "beta"
        sink.put(record(f"{tenant}/{number}", tenant, NOVEMBER + number / 100, 10**12, status=200 + number % 2 * 302))
    sink.close()
    return door


async def test_a_tenant_admin_sees_its_own_requests_alone(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door(required=True) as opened:
        d = await storing(opened, tmp_path)
        operator, own = d.backend.key(role="operator"), d.backend.key(role="tenant-admin")
        _, body = await d.send("GET", "/admin/requests?totals=true", operator)
        assert [row["id"] for row in body["requests"]][:2] == ["beta/6", "beta/5"]
        assert (len(body["requests"]), body["next"]) == (7, None)
        assert [(each["requests"], each["cost"]) for each in body["totals"]["sums"]] == [(7, "7")]
        _, body = await d.send("GET", "/admin/requests?totals=true", own)
        assert {row["tenant"] for row in body["requests"]} == {"acme"}
        assert [each["requests"] for each in body["totals"]["sums"]] == [4]
        assert (await d.send("GET", f"/admin/requests/{quote('acme/1', safe='')}", own))[1]["status"] == 502
        absent = await d.send("GET", "/admin/requests/none", own)
        assert absent == await d.send("GET", f"/admin/requests/{quote('beta/5', safe='')}", own)
        assert absent[0] == 404
        # Whether a tenant exists is not visible either.
        refused = await d.send("GET", "/admin/requests?tenant=beta", own)
        assert refused == await d.send("GET", "/admin/requests?tenant=nobody", own)
        assert refused[0] == 403
        assert (await d.send("GET", "/admin/requests"))[0] == 401
        await d.backend.requests.aclose()


async def test_pages_and_filters(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door(required=True) as opened:
        d = await storing(opened, tmp_path)
        key = d.backend.key(role="operator")
        ids: list[str] = []
        after: str | None = ""
        while after is not None:
            _, body = await d.send("GET", f"/admin/requests?limit=2{after and f'&after={after}'}", key)
            ids += [row["id"] for row in body["requests"]]
            after = body["next"]
        assert ids == ["beta/6", "beta/5", "beta/4", "acme/3", "acme/2", "acme/1", "acme/0"]
        _, body = await d.send("GET", "/admin/requests?status=5xx&tenant=acme&model=chat", key)
        assert [row["id"] for row in body["requests"]] == ["acme/3", "acme/1"]
        _, body = await d.send("GET", "/admin/requests?id=beta/4", key)
        assert [row["time"] for row in body["requests"]] == ["2026-11-01T00:00:00.040000Z"]
        path = f"/admin/requests/{quote('beta/4', safe='')}"
        assert (await d.send("GET", f"{path}?at=2026-11-01T00:00:00.040000Z", key))[1]["id"] == "beta/4"
        assert (await d.send("GET", f"{path}?at=2026-11-01T00:00:00.050000Z", key))[0] == 404
        await d.backend.requests.aclose()


async def test_requests_of_an_end_user(admin_door: OpenDoor, tmp_path: Path) -> None:
    """A long name is stored as its hash, and the search has the name."""
    long = "zoë " * 40
    async with admin_door(required=True) as opened:
        d = await storing(opened, tmp_path, usage={"users": 1, "folder": str(tmp_path / "usage")})
        sink = RequestSink(spool_of(d.backend.config))
        sink.configure(d.backend.config)
        names = ["zoë", "zoë", "other", bounded_user(long)]
        for number, (tenant, user) in enumerate(zip(["acme", "beta", "acme", "acme"], names, strict=True)):
            of_batch = number == 0  # such a line is counted by its batch
            made = record(f"of {number}", tenant, NOVEMBER + 1 + number, 10**12, user=user, of_batch=of_batch)
            sink.put(made)
        sink.close()
        operator, own = d.backend.key(role="operator"), d.backend.key(role="tenant-admin")
        for user, key, ids in [
            ("zoë", operator, ["of 1", "of 0"]),
            ("zoë", own, ["of 0"]),
            (long, operator, ["of 3"]),
            ("nobody", operator, []),
        ]:
            _, body = await d.send("GET", f"/admin/requests?totals=true&user={quote(user)}", key)
            assert [row["id"] for row in body["requests"]] == ids
            assert {row["user"] for row in body["requests"]} <= {bounded_user(user)}
            assert sum(each["requests"] for each in body["totals"]["sums"]) == len(ids)
        _, body = await d.send("GET", "/admin/requests?status=200&user=other&model=chat", operator)
        assert [row["id"] for row in body["requests"]] == ["of 2"]
        await d.backend.requests.aclose()


async def test_choices_are_stored_values_of_visible_tenants(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door(required=True) as opened:
        d = await storing(opened, tmp_path)
        path = "/admin/requests?choices=true&model=none"
        _, body = await d.send("GET", path, d.backend.key(role="operator"))
        statuses = ["200", "502"]
        assert (body["requests"], body["choices"]["tenant"]) == ([], ["acme", "beta"])
        assert (body["choices"]["model"], body["choices"]["status"]) == (["chat"], statuses)
        _, body = await d.send("GET", path, d.backend.key(role="tenant-admin"))
        assert (body["choices"]["tenant"], body["choices"]["status"]) == (["acme"], statuses)
        _, body = await d.send("GET", f"{path}&to=2026-01-01", d.backend.key(role="operator"))
        assert not any(body["choices"].values())
        await d.backend.requests.aclose()


async def test_totals_end_now(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door(required=True) as opened:
        d = await storing(opened, tmp_path)
        key, before = d.backend.key(role="operator"), time_of(int(time.time() * MICROS))
        for search in ("", "&to=9999-12-31"):
            _, body = await d.send("GET", f"/admin/requests?totals=true{search}", key)
            assert before <= body["totals"]["to"] <= time_of(int(time.time() * MICROS))
        _, body = await d.send("GET", "/admin/requests?totals=true&to=2026-11-01T00:30Z", key)
        assert body["totals"]["to"] == "2026-11-01T01:00:00.000000Z"
        await d.backend.requests.aclose()


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=²", "limit"),
        ("after=1", "after"),
        (f"after=1-{2**63}", "after"),
        ("status=600", "status"),
        ("status=xx", "status"),
        ("from=tomorrow", "from"),
        ("from=1960-01-01", "from"),
        ("to=2026-01-01&from=2026-01-02", "to"),
        ("to=1970-01-01", "to"),
        ("from=9999-12-31T23:59:59-12:00", "from"),
        (f"id={'x' * 300}", "id"),
        ("model=%00", "model"),
        ("totals=yes", "totals"),
        ("choices=1", "choices"),
        ("offset=5", "offset"),
        ("user=", "user"),
        ("user=zoe", "user"),  # without `usage: {users: N}`
    ],
)
async def test_a_wrong_search_is_refused(admin_door: OpenDoor, tmp_path: Path, query: str, param: str) -> None:
    async with admin_door(required=True) as opened:
        d = await storing(opened, tmp_path)
        status, body = await d.send("GET", f"/admin/requests?{query}", d.backend.key(role="operator"))
        assert (status, body["error"]["param"]) == (400, param)
        await d.backend.requests.aclose()


async def test_without_the_section_nothing_is_stored(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        status, body = await d.send("GET", "/admin/requests", d.backend.key(role="operator"))
        assert (status, body["error"]["code"]) == (404, "requests_not_stored")


def test_times_are_exact() -> None:
    assert int((NOVEMBER + 4 / 100) * MICROS) == NOVEMBER * MICROS + 40_000


@pytest.mark.parametrize(("shown", "readers"), [(None, ""), ("operators", "operator"), ("tenant", "operator own")])
async def test_recorded_content_is_for_readers_that_the_tenant_admits(
    admin_door: OpenDoor, tmp_path: Path, shown: str | None, readers: str
) -> None:
    recorded = recorder_rig(tmp_path / "records", answers=True)
    async with recorder_of(recorded):
        for text in ("hello", "again"):
            await recorded.send(chat(messages=[{"role": "user", "content": f"{text} ann@example.org"}]))
    async with admin_door(required=True) as opened:
        section = {"to": str(tmp_path / "records"), "key": SECRET, "answers": True}
        d = await storing(opened, tmp_path, shown, record=section)
        sink = RequestSink(spool_of(d.backend.config))
        sink.configure(d.backend.config)
        for id_, tenant in (("req-1", "acme"), ("req-3", "acme"), ("req-2", "beta")):
            sink.put(record(id_, tenant, time.time(), 1))
        sink.close()
        keys = {
            "operator": d.backend.key(role="operator"),
            "own": d.backend.key(role="tenant-admin"),
            "foreign": d.backend.key(role="tenant-admin", tenant="beta"),
        }
        for name, key in keys.items():
            status, body = await d.send("POST", "/admin/requests/req-1/content", key, {})
            if name == "foreign":
                assert (status, body["error"]["code"]) == (404, "no_such_request")
                continue
            offered = (await d.send("GET", "/admin/requests/req-1", key))[1].get("content")
            assert offered == ("recorded" if name in readers else None)
            act = d.backend.acts[-1]
            assert (act.action, act.target) == ("content.view", "acme/req-1")
            if name not in readers:
                assert (status, body["error"]["code"], act.outcome) == (403, "content_hidden", "refused")
                continue
            assert (status, act.outcome) == (200, "done")
            assert "hello" in body["prompt"]
            assert "again" not in body["prompt"]
            assert body["answer"]
            # One that was not in the sample, and the id of another tenant's record.
            for id_ in ("req-3", "req-2") if name == "operator" else ("req-3",):
                status, body = await d.send("POST", f"/admin/requests/{id_}/content", key, {})
                assert (status, body["error"]["code"]) == (404, "content_not_recorded")
        for path in (tmp_path / "records").glob("*.segment"):
            remove_segment(path)  # as the retention does
        status, body = await d.send("POST", "/admin/requests/req-1/content", keys["operator"], {})
        assert (status, body["error"]["code"]) == ((404, "content_not_recorded") if shown else (403, "content_hidden"))
        await d.backend.requests.aclose()
