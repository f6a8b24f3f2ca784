"""Texts that break parsers, in every path, query and body of the admin API."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.gateways import written_config
from tests.support.hostile_texts import JSON_TEXTS, NO_JSON, URL_TEXTS

pytestmark = pytest.mark.realtime  # the database has threads

QUERIES = ("limit", "after", "before", "tenant", "from", "to", "at", "id", "model", "status", "by", "per", "models")
FIELDS = ("tenant", "label", "labels", "scopes", "expires", "team", "name", "limits", "model", "user", "key", "pool",
          "endpoint", "shares", "reason", "grace", "role")  # fmt: skip
SEARCHES = ("/admin/usage", "/admin/requests", "/admin/tenants/{}/invoices", "/admin/config/history", "/readyz")
ELSEWHERE = ("/admin/config", "/admin/playground", "/console")
"""They start processes, or have no JSON."""


def routes(app: web.Application) -> Iterator[tuple[str, str]]:
    """The method and the path of each handler, with one hole for each part that a client names."""
    for route in app.router.routes():
        assert route.resource is not None
        path = re.sub(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "{}", route.resource.canonical)
        if not path.startswith(ELSEWHERE):
            yield route.method, path


async def assert_refused(door: AdminDoor, method: str, path: str, key: str, body: bytes | None = None) -> int:
    status, shown = await door.send(method, path, key, body)
    assert status < 500 or (status == 503 and "database" not in str(shown)), (method, path[:200], body, shown)
    if status >= 400 and method != "HEAD":
        assert shown["error"]["code"], (method, path[:200], body, shown)
    return status


async def test_no_text_of_an_operator_is_a_failure_or_an_outage(
    admin_door: OpenDoor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apps: list[web.Application] = []
    async with admin_door(apps.append, required=True) as d:
        d.backend.config = written_config(
            auth={"admin": {"required": True}},
            state={"database": f"sqlite:///{tmp_path}/usage.db"},
            usage={"folder": f"{tmp_path}/counts"},
            requests={"retention": "3650d"},
        )
        key = d.backend.key(role="operator")
        for method, path in set(routes(apps[0])):
            for hole in range(path.count("{}")):
                for text in URL_TEXTS:
                    names = ["acme"] * hole + [text] + ["acme"] * path.count("{}")
                    status = await assert_refused(d, method, path.format(*names), key)
                    assert status >= 400 or text != "a%00b", (method, path)
            there = path.replace("{}", "acme")
            for name in QUERIES if method == "GET" and path.startswith(SEARCHES) else ():
                for text in URL_TEXTS:
                    await assert_refused(d, method, f"{there}?{name}={text}", key)
            if method in ("POST", "PUT", "PATCH"):
                for raw in (*NO_JSON.values(), JSON_TEXTS["NUL"]):
                    status = await assert_refused(d, method, there, key, b'{"tenant": %b}' % raw)
                    assert status >= 400, (method, path)
                for place in FIELDS:
                    await assert_refused(d, method, there, key, f'{{"{place}": "²٣"}}'.encode())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_no_text_of_a_header_is_a_failure(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        for name in ("Host", "Origin", "Authorization", "If-Match", "Cookie", "Sec-Fetch-Site"):
            for text in ("[", "http://[", "²", "a, b", "http://a\u2100b", '"', "9" * 5_000):
                status, _ = await d.send("GET", "/admin/state", **{name: text})
                assert status < 500, (name, text)


async def test_a_client_that_leaves_in_its_body_is_no_failure(
    admin_door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin_door() as d:
        _, _, address = d.url.partition("//")
        host, _, port = address.partition(":")
        for framing in ("content-length: 100", "transfer-encoding: chunked"):
            _, writer = await asyncio.open_connection(host, int(port))
            head = ("POST /admin/explain HTTP/1.1", f"host: {address}", "content-type: application/json", framing)
            writer.write("\r\n".join((*head, "", '5\r\n{"a"')).encode())
            await writer.drain()
            await d.send("GET", "/livez")
            writer.close()
            await writer.wait_closed()
    assert not caplog.records
