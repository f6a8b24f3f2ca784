"""Keys and tenants through the operators' door."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from adapters.errors import CredentialError
from gateway.auth.keys import id_of
from gateway.features.usage.labels import UsageLabels, UsageRow
from gateway.features.usage.rows import hour_values
from gateway.features.usage.store import write_hours
from tests.gateway.admin.conftest import TENANTS, AdminDoor, OpenDoor
from tests.support.gateways import config

pytestmark = pytest.mark.realtime  # the database has threads

KEYS = "/admin/tenants/acme/keys"


async def create(d: AdminDoor, key: str | None = None, tenant: str = "acme", **body: Any) -> dict[str, Any]:
    status, made = await d.send("POST", f"/admin/tenants/{tenant}/keys", key, body)
    assert status == 201, made
    return dict(made)


def write_key(d: AdminDoor, **fields: str) -> None:
    """A key of the first tenant in the file."""
    written = [{**TENANTS[0], "keys": [{"id": "aaaaaaaaaaaa", "hash": "0" * 64, **fields}]}, *TENANTS[1:]]
    d.backend.config = config(tenants=written)


async def test_a_key_is_issued_listed_rotated_and_revoked(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        made = await create(
            d, label="ci", expires="90d", scopes={"models": ["ch*"], "fronts": ["chat"]}, labels={"team": "search"}
        )
        assert d.headers["cache-control"] == "no-store"
        assert d.headers["location"] == f"{KEYS}/{made['id']}"
        assert id_of(made["key"]) == made["id"]
        principal = d.backend.authenticate(made["key"], None, time.time())
        assert (principal.tenant, principal.labels) == ("acme", {"team": "search"})
        _, listed = await d.send("GET", KEYS)
        (entry,) = listed["keys"]
        assert {k: entry[k] for k in ("id", "label", "status", "role", "stored_in", "scopes", "labels")} == {
            "id": made["id"], "label": "ci", "status": "active", "role": "user", "stored_in": "database",
            "scopes": {"models": ["ch*"], "fronts": ["chat"]}, "labels": {"team": "search"},
        }  # fmt: skip
        assert entry["expires"] == made["expires"]

        status, new = await d.send("POST", f"{KEYS}/{made['id']}/rotate", body={"overlap": "1h"})
        assert (status, new["replaces"]) == (201, made["id"])
        for key in (made["key"], new["key"]):
            assert d.backend.authenticate(key, None, time.time()).scope == principal.scope
        assert (await d.send("POST", f"{KEYS}/{made['id']}/rotate"))[1]["error"]["code"] == "key_ended"
        assert await d.send("DELETE", f"{KEYS}/{new['id']}") == (
            200, {"id": new["id"], "tenant": "acme", "status": "revoked"},
        )  # fmt: skip
        status, again = await d.send("DELETE", f"{KEYS}/{new['id']}")
        assert (status, again["error"]["code"]) == (409, "key_ended")
        statuses = {key["id"]: key["status"] for key in (await d.send("GET", KEYS))[1]["keys"]}
        assert statuses == {made["id"]: "replaced", new["id"]: "revoked"}


async def test_a_blocked_key_is_refused_until_it_is_unblocked(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        made = await create(d)
        path, blocked = f"{KEYS}/{made['id']}/block", {"id": made["id"], "tenant": "acme", "keys": [made["id"]]}
        assert await d.send("PUT", path) == (200, {**blocked, "blocked": True})
        (entry,) = (await d.send("GET", KEYS))[1]["keys"]
        assert (entry["status"], bool(entry["blocked"])) == ("blocked", True)
        with pytest.raises(CredentialError):
            d.backend.authenticate(made["key"], None, time.time())
        assert await d.send("DELETE", path) == (200, {**blocked, "blocked": False})
        assert d.backend.authenticate(made["key"], None, time.time()).tenant == "acme"
        assert (await d.send("PUT", f"{KEYS}/aaaaaaaaaaaa/block"))[0] == 404


async def test_keys_and_acts_are_searched(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        made = {}
        for label in ("web 100%", "Mobile", "web_1"):
            made[label] = (await d.send("POST", KEYS, None, {"label": label}))[1]["id"]

        async def labels(text: str) -> list[str]:
            shown = (await d.send("GET", f"{KEYS}?text={quote(text)}"))[1]["keys"]
            return [key["label"] for key in shown]

        assert await labels("WEB") == ["web_1", "web 100%"]
        assert await labels("0%") == ["web 100%"]
        assert await labels("b_1") == ["web_1"]
        assert await labels(made["Mobile"][:9]) == ["Mobile"]
        assert (await d.send("GET", f"{KEYS}?text={'x' * 257}"))[0] == 400
        assert (await d.send("DELETE", f"{KEYS}/{made['Mobile']}"))[0] == 200

        async def acts(**filters: str) -> list[str]:
            query = "&".join(f"{name}={quote(text)}" for name, text in filters.items())
            entries = (await d.send("GET", f"/admin/audit?{query}"))[1]["entries"]
            return [f"{entry['action']} {entry['target']}" for entry in entries]

        revoked = [f"key.revoke acme/{made['Mobile']}"]
        assert await acts(action="key.r") == revoked
        assert (await acts(target=made["Mobile"]))[:1] == revoked
        assert len(await acts(action="key.", actor="local", outcome="done")) == 4
        assert await acts(outcome="failed") == await acts(actor="%") == await acts(action="_ey") == []


async def test_a_key_has_the_time_of_its_last_use(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door() as d:
        ids = [(await d.send("POST", KEYS, None, {}))[1]["id"] for _ in range(2)]
        assert "last_used" not in (await d.send("GET", KEYS))[1]["keys"][0]
        database = d.backend.config.state.database
        d.backend.config = config(tenants=TENANTS, usage={"folder": f"{tmp_path}/counts"}, state={"database": database})
        store = await d.backend.usage.store()
        of_acme, of_another = (
            UsageLabels("acme", ids[0], "chat", "", "usd"),
            UsageLabels("beta/eu", ids[1], "chat", "", ""),
        )
        with store._database.change(moves_epoch=False) as connection:
            rows = [(494_000, of_acme), (494_002, of_acme), (494_003, of_another)]
            values = [hour_values("s", hour, UsageRow(slot, of, (1,) * 8)) for slot, (hour, of) in enumerate(rows)]
            write_hours(connection, values)
        status, new = await d.send("POST", f"{KEYS}/{ids[0]}/rotate", body={"overlap": "1h"})
        assert status == 201
        shown = {key["id"]: key.get("last_used") for key in (await d.send("GET", KEYS))[1]["keys"]}
        # The usage of a lineage has the id of its first key.
        assert shown == {ids[0]: "2026-05-10T10:00Z", new["id"]: "2026-05-10T10:00Z", ids[1]: None}
        await d.backend.usage.aclose()


async def test_keys_are_listed_in_pages_newest_first(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        write_key(d)
        other = await create(d, tenant="beta%2Feu")
        made = [(await create(d))["id"] for _ in range(4)]
        newest = [*reversed(made), "aaaaaaaaaaaa"]
        assert [key["id"] for key in (await d.send("GET", KEYS))[1]["keys"]] == newest
        for limit in (1, 2, 3, 4, 5):
            seen, after = list[str](), ""
            while True:
                status, page = await d.send("GET", f"{KEYS}?limit={limit}{after}")
                assert status == 200
                issued = [key["id"] for key in page["keys"] if key["stored_in"] == "database"]
                assert len(issued) <= limit
                seen += [key["id"] for key in page["keys"]]
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            assert seen == newest
        for wrong in (other["id"], "aaaaaaaaaaaa", "x", "%27%20OR%201=1", ""):
            status, refused = await d.send("GET", f"{KEYS}?after={wrong}")
            assert (status, refused["error"]["param"]) == (400, "after"), wrong
        for wrong in ("0", "-1", "x", "9" * 40):
            status, refused = await d.send("GET", f"{KEYS}?limit={wrong}")
            assert (status, refused["error"]["param"]) == (400, "limit"), wrong


async def test_each_change_is_recorded_with_its_actor(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        operator = d.backend.key(role="operator")
        made = await create(d, operator, label="ci")
        await d.send("POST", f"{KEYS}/{made['id']}/rotate", operator)
        await d.send("DELETE", f"{KEYS}/{made['id']}", operator)
        await d.send("DELETE", f"{KEYS}/{made['id']}", operator)
        _, log = await d.send("GET", "/admin/audit?limit=3", operator)
        revoke, rotate, issued = log["entries"]
        assert [entry["action"] for entry in (revoke, rotate, issued)] == ["key.revoke", "key.rotate", "key.create"]
        assert (issued["actor"], issued["role"], issued["peer"]) == (id_of(operator), "operator", "127.0.0.1")
        assert (issued["target"], issued["detail"]["label"]) == (f"acme/{made['id']}", "ci")
        assert made["key"] not in json.dumps(log)
        # Once each, with the change; what changed nothing is noted apart.
        assert [(act.action, act.outcome) for act in d.backend.acts] == [
            ("DELETE /admin/tenants/{tenant}/keys/{id}", "refused")
        ]
        _, older = await d.send("GET", f"/admin/audit?limit=5&before={issued['seq']}", operator)
        assert [entry["actor"] for entry in older["entries"]] == ["cli:root@here"]
        for query in ("limit=0", "limit=x", "before=-1", "limit=99999999999999999999", "before=%E0%A5%A7"):
            status, body = await d.send("GET", f"/admin/audit?{query}", operator)
            assert (status, body["error"]["code"]) == (400, "invalid_request")


async def test_a_tenant_admin_manages_its_own_tenant_and_no_more_than_it_has(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        admin, beta = d.backend.key(role="tenant-admin"), d.backend.key("beta/eu")
        operator_of_acme = d.backend.key(role="operator")
        made = await create(d, admin, role="tenant-admin")
        assert (await d.send("POST", f"{KEYS}/{made['id']}/rotate", admin))[0] == 201
        # Not another tenant's, by either path.
        assert (await d.send("POST", "/admin/tenants/beta%2Feu/keys", admin))[0] == 403
        for method, path in (("DELETE", f"{KEYS}/{id_of(beta)}"), ("POST", f"{KEYS}/{id_of(beta)}/rotate")):
            status, body = await d.send(method, path, admin)
            assert (status, body["error"]["code"]) == (404, "no_such_key")
        # Not more authority than its own, neither made nor taken over.
        assert (await d.send("POST", KEYS, admin, {"role": "operator"}))[0] == 403
        for method, path in (
            ("DELETE", f"{KEYS}/{id_of(operator_of_acme)}"),
            ("POST", f"{KEYS}/{id_of(operator_of_acme)}/rotate"),
            ("PUT", f"{KEYS}/{id_of(operator_of_acme)}/team"),
        ):
            assert (await d.send(method, path, admin))[0] == 403
        assert (await d.send("POST", KEYS, operator_of_acme, {"role": "operator"}))[0] == 201
        _, tenants = await d.send("GET", "/admin/tenants", admin)
        assert [tenant["tenant"] for tenant in tenants["tenants"]] == ["acme"]
        assert d.backend.authenticate(beta, None, time.time()).tenant == "beta/eu"


async def test_only_operators_set_labels_that_routes_match(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        routes = [{"when": {"label": {"tier": "gold"}}, "to": "main"}, {"to": "main"}]
        d.backend.config = config(tenants=TENANTS, models=[{"name": "chat", "routes": routes}])
        admin, operator = d.backend.key(role="tenant-admin"), d.backend.key(role="operator")
        assert (await create(d, admin, labels={"team": "search"}))["id"]
        status, body = await d.send("POST", KEYS, admin, {"labels": {"team": "search", "tier": "gold"}})
        assert (status, body["error"]["code"], body["error"]["param"]) == (403, "forbidden", "labels.tier")
        made = await create(d, operator, labels={"tier": "gold"})
        status, again = await d.send("POST", f"{KEYS}/{made['id']}/rotate", admin)
        assert d.backend.authenticate(again["key"], None, time.time()).labels == {"tier": "gold"}


async def test_a_tenant_is_shown_with_its_usage(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        await create(d, label="ci")
        _, tenants = await d.send("GET", "/admin/tenants")
        assert [tenant["tenant"] for tenant in tenants["tenants"]] == ["acme", "beta/eu"]
        _, acme = await d.send("GET", "/admin/tenants/acme")
        assert (acme["models"], acme["in_flight"], acme["limits"]) == (["*"], 3, [{"requests": "10/min"}])
        assert acme["spent"] == [{"key": "k1", "amount": "2 usd"}]
        await create(d, tenant="beta%2Feu")
        assert d.headers["location"].startswith("/admin/tenants/beta%2Feu/keys/")
        assert len((await d.send("GET", "/admin/tenants/beta%2Feu/keys"))[1]["keys"]) == 1
        status, body = await d.send("GET", "/admin/tenants/gamma")
        assert (status, body["error"]["code"]) == (404, "no_such_tenant")


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        ({"lable": "x"}, 400, "lable", 'unknown field: did you mean "label"?'),
        ({"label": 5}, 400, "label", "expected a text"),
        ({"label": "a\nb"}, 400, "label", "at most 100 printable characters on one line"),
        (
            {"expires": "soon"}, 400, "expires",
            "expected a day such as 2027-06-30 or a duration such as 90d, got 'soon'",
        ),
        ({"expires": "2020-01-01"}, 400, "expires", "2020-01-01 has already passed"),
        ({"role": "root"}, 400, "role", "expected 'user', 'tenant-admin' or 'operator'"),
        (
            {"scopes": {"models": ["cat"]}}, 400, "scopes.models",
            "tenant acme has no model 'cat'; did you mean 'chat'?",
        ),
        ({"scopes": {"modles": ["chat"]}}, 400, "scopes.modles", "unknown field"),
        ({"scopes": {"models": []}}, 400, "scopes.models", "needs 1 or more entries"),
        ({"scopes": {}}, 400, "scopes", "narrows nothing: give models, fronts or routes, or remove it"),
        ({"scopes": {"models": "chat"}}, 400, "scopes.models", "expected a list"),
        ({"labels": {"team": 5}}, 400, "labels.team", "expected text: put a number, true or false in quotes"),
        (
            {"role": "operator", "scopes": {"models": ["chat"]}}, 400, None,
            "scopes leave nothing of the role operator: give one of the two",
        ),
    ],
)  # fmt: skip
async def test_a_key_that_cannot_be_is_a_sentence(
    admin_door: OpenDoor, body: dict[str, Any], status: int, param: str | None, message: str
) -> None:
    async with admin_door() as d:
        actual, answer = await d.send("POST", KEYS, body=body)
        assert (actual, answer["error"]) == (status, {"code": "invalid_request", "message": message, "param": param})
        assert (await d.send("GET", KEYS))[1]["keys"] == []


async def test_wrong_rotations(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        made = await create(d)
        path = f"{KEYS}/{made['id']}/rotate"
        for body, param in (({"overlap": "3"}, "overlap"), ({"overlap": 3}, "overlap"), ({"expires": "x"}, "expires")):
            status, answer = await d.send("POST", path, body=body)
            assert (status, answer["error"]["param"]) == (400, param)
        for unknown in ("aaaaaaaaaaaa", "x", "%27%20OR%201=1"):
            status, answer = await d.send("POST", f"{KEYS}/{unknown}/rotate")
            assert (status, answer["error"]["code"]) == (404, "no_such_key")


async def test_a_key_of_the_file_is_shown_and_changed_in_the_file(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        write_key(d, role="operator")
        _, listed = await d.send("GET", KEYS)
        assert [(key["id"], key["stored_in"], key["role"]) for key in listed["keys"]] == [
            ("aaaaaaaaaaaa", "file", "operator")
        ]
        assert "hash" not in listed["keys"][0]
        for method, path in (("DELETE", f"{KEYS}/aaaaaaaaaaaa"), ("POST", f"{KEYS}/aaaaaaaaaaaa/rotate")):
            status, body = await d.send(method, path)
            assert (status, body["error"]["code"]) == (409, "stored_in_file")


async def test_an_unavailable_database_is_reported(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door() as d:
        path = tmp_path / "state" / "state.db"
        path.rename(tmp_path / "away")
        status, body = await d.send("POST", KEYS)
        assert (status, body["error"]["code"]) == (503, "key_database_unavailable")
        assert (d.backend.acts[-1].outcome, d.backend.acts[-1].detail) == ("failed", {"status": 503})
        (tmp_path / "away").rename(path)
        await create(d)
        with sqlite3.connect(path) as raw:
            assert raw.execute("SELECT count(*) FROM keys").fetchone() == (1,)
        raw.close()
