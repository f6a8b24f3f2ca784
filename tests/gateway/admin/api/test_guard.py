"""Permissions at the operators' door."""

from typing import Any

import pytest
from aiohttp import ClientSession, web

from gateway.admin.api.guard import acted
from tests.gateway.admin.conftest import OpenDoor
from tests.support.gateways import config

pytestmark = pytest.mark.realtime  # the database has threads

CHANGE = "/admin/things/main/endpoints/1"


def with_handlers(app: web.Application) -> None:
    """Routes that another part of the gateway adds, without knowledge of credentials."""

    async def pools(_: web.Request) -> web.Response:
        return web.json_response({"pools": []})

    async def change(request: web.Request) -> web.Response:
        return web.json_response({"changed": request.match_info["id"]})

    async def named(request: web.Request) -> web.Response:
        acted(request, "endpoint.drain", "main/1", wait="10s")
        return web.json_response({})

    async def fails(_: web.Request) -> web.Response:
        raise RuntimeError("secret path /etc/passwd")

    app.add_routes(
        [
            web.get("/admin/things", pools),
            web.patch("/admin/things/{pool}/endpoints/{id}", change),
            web.post("/admin/drain", named),
            web.post("/admin/fails", fails),
        ]
    )


async def test_without_authentication_every_caller_is_an_admin(admin_door: OpenDoor) -> None:
    async with admin_door(with_handlers) as d:
        for path in (
            "/livez",
            "/readyz",
            "/metrics",
            "/admin/state",
            "/admin/tenants",
            "/admin/audit",
            "/admin/things",
        ):
            assert (await d.send("GET", path))[0] == 200
        assert await d.send("PATCH", CHANGE) == (200, {"changed": "1"})
        (act,) = d.backend.acts
        assert (act.actor.id, act.actor.role, act.actor.peer) == ("local", "operator", "127.0.0.1")
        assert (act.action, act.target, act.outcome) == ("PATCH /admin/things/{pool}/endpoints/{id}", CHANGE, "done")


async def test_the_audit_log_has_the_client_behind_a_trusted_proxy(admin_door: OpenDoor) -> None:
    async with admin_door(with_handlers) as d:
        d.backend.config = config(http={"trusted_proxies": ["127.0.0.1"]})
        assert await d.send("PATCH", CHANGE, x_forwarded_for="192.0.2.7") == (200, {"changed": "1"})
        assert d.backend.acts[0].actor.peer == "192.0.2.7"
        lines = [("content-type", "application/json"), ("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "192.0.2.8")]
        async with ClientSession() as http, http.patch(d.url + CHANGE, headers=lines) as response:
            assert response.status == 200
        assert d.backend.acts[1].actor.peer == "192.0.2.8", "the client's own line is first"


async def test_with_authentication_every_path_is_closed_unless_configured_as_open(admin_door: OpenDoor) -> None:
    async with admin_door(with_handlers, required=True) as d:
        for path in ("/livez", "/readyz", "/metrics"):
            assert (await d.send("GET", path))[0] == 200
        closed = [
            ("GET", "/admin/state"), ("GET", "/admin/tenants"), ("GET", "/admin/audit"), ("GET", "/admin/things"),
            ("PATCH", CHANGE), ("POST", "/admin/drain"), ("GET", "/admin/nothing"), ("GET", "/anything"),
            ("POST", "/livez"), ("GET", "//livez"), ("GET", "/livez/x"), ("DELETE", "/admin/tenants/acme/keys/x"),
        ]  # fmt: skip
        for method, path in closed:
            assert (await d.send(method, path))[0] == 401, path
            assert d.headers["www-authenticate"] == "Bearer"
            status, body = await d.send(method, path, "hr-wrong")
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert d.backend.acts == []


async def test_an_unknown_path_is_for_operators_to_know(admin_door: OpenDoor) -> None:
    async with admin_door(with_handlers, required=True) as d:
        operator, user = d.backend.key(role="operator"), d.backend.key()
        assert (await d.send("GET", "/admin/nothing", user))[1]["error"]["code"] == "forbidden"
        assert (await d.send("GET", "/admin/nothing", operator))[1]["error"]["code"] == "not_found"
        status, body = await d.send("PUT", "/admin/things", operator)
        assert (status, body["error"]["code"], d.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")


async def test_every_change_is_put_in_the_audit_log(admin_door: OpenDoor) -> None:
    async with admin_door(with_handlers, required=True) as d:
        operator, admin, user = d.backend.key(role="operator"), d.backend.key(role="tenant-admin"), d.backend.key()
        assert (await d.send("POST", "/admin/drain", operator))[0] == 200
        assert (await d.send("POST", "/admin/drain", admin))[0] == 403
        assert (await d.send("POST", "/admin/drain", user))[0] == 403
        assert (await d.send("POST", "/admin/drain", operator, content_type="text/plain"))[0] == 415
        status, body = await d.send("POST", "/admin/fails", operator)
        assert (status, body) == (
            500,
            {"error": {"code": "internal_error", "message": "the gateway failed on this request", "param": None}},
        )
        await d.send("GET", "/admin/state", operator)
        acts = [(a.actor.id, a.actor.role, a.action, a.target, a.outcome, dict(a.detail)) for a in d.backend.acts]
        one, other = operator.split("-")[1], admin.split("-")[1]
        assert acts == [
            (one, "operator", "endpoint.drain", "main/1", "done", {"wait": "10s"}),
            (other, "tenant-admin", "POST /admin/drain", "/admin/drain", "refused", {"status": 403}),
            (one, "operator", "POST /admin/drain", "/admin/drain", "refused", {"status": 415}),
            (one, "operator", "POST /admin/fails", "/admin/fails", "failed", {"status": 500}),
        ]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example.org"}, "wrong_host"),
        ({"host": "evil.example.org:80"}, "wrong_host"),
        ({"host": "127.0.0.1.evil.example.org"}, "wrong_host"),
        ({"host": "localhost@evil.example.org"}, "wrong_host"),
        ({"origin": "http://evil.example.org"}, "cross_origin"),
        ({"origin": "null"}, "cross_origin"),
        ({"host": "localhost", "origin": "http://localhost:3000"}, "cross_origin"),
    ],
)
async def test_a_page_that_is_open_in_a_browser_cannot_act(
    admin_door: OpenDoor, headers: dict[str, str], code: str
) -> None:
    async with admin_door(with_handlers) as d:
        for method, path in (("GET", "/admin/state"), ("POST", "/admin/drain"), ("GET", "/metrics")):
            status, body = await d.send(method, path, **headers)
            assert (status, body["error"]["code"]) == (403, code)
        assert d.backend.acts == []


async def test_this_machine_by_any_of_its_own_names(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        for host in ("localhost", "localhost:1234", "127.0.0.1", "10.0.0.1:80", "[::1]:80"):
            assert (await d.send("GET", "/admin/state", host=host))[0] == 200, host
        assert (await d.send("GET", "/admin/state", host="localhost:1", origin="http://localhost:1"))[0] == 200


async def test_a_form_cannot_post(admin_door: OpenDoor) -> None:
    async with admin_door(with_handlers) as d:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            status, body = await d.send("POST", "/admin/drain", body=b"{}", content_type=kind)
            assert (status, body["error"]["code"]) == (415, "unsupported_media_type")


async def test_readiness_is_its_own(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        d.backend.ready = False
        assert await d.send("GET", "/readyz") == (503, {"status": "not ready"})
        assert (await d.send("GET", "/livez"))[0] == 200


async def test_whatever_is_sent_there_is_one_shape_of_error(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        bodies: list[Any] = [b"{", b"[1]", b"\xff", b'"x"', b"5", b"[" * 100_000]
        for body in bodies:
            status, answer = await d.send("POST", "/admin/tenants/acme/keys", body=body)
            assert (status, answer["error"]["code"], set(answer["error"])) == (
                400, "invalid_json", {"code", "message", "param"},
            )  # fmt: skip
        status, answer = await d.send("POST", "/admin/tenants/acme/keys", body=b" " * 1_045_000 + b"{}" * 3_000)
        assert (status, answer["error"]["code"]) == (413, "request_entity_too_large")


async def test_scrapers_receive_openmetrics_if_they_accept_it(admin_door: OpenDoor) -> None:
    accepted = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
    async with admin_door() as d:
        status, text = await d.send("GET", "/metrics", accept=accepted)
        assert (status, text.endswith("# EOF\n")) == (200, True)
        assert 'headrace_seconds_bucket{le="1.0"} 1.0 # {trace_id="' in text
        assert d.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        for accept in ("text/plain", "*/*", "", "nonsense;;version=x,,"):
            status, text = await d.send("GET", "/metrics", accept=accept)
            assert (status, "trace_id" in text, "EOF" in text) == (200, False, False)
            assert d.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
