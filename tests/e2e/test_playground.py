"""Requests to models on behalf of a signed-in person: through the data plane, within the tenant's limits."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.errors import CredentialError
from adapters.http1.message import Response
from gateway.admin.playground.caller import HEADER, decode_caller, encode_caller
from gateway.auth.keys import Principal
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, stream, upstream

pytestmark = pytest.mark.timeout(1800)
BASE = "/admin/playground"
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi <script>alert(1)</script>"}]}


class Playground:
    """A gateway, its upstream, and keys of three roles."""

    def __init__(self, g: GatewayProcess, up: Upstream, http: aiohttp.ClientSession, keys: dict[str, str]) -> None:
        self.g = g
        self.up = up
        self.http = http
        self.keys = keys

    def request(self, method: str, path: str, role: str, body: Any = None) -> Any:
        data = None if body is None else io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        headers = {"authorization": f"Bearer {self.keys[role]}", "content-type": "application/json"}
        return self.http.request(method, f"{self.g.admin}{BASE}{path}", data=data, headers=headers)

    async def send(self, method: str, path: str, role: str, body: Any = None) -> tuple[int, Any, Any]:
        async with self.request(method, path, role, body) as response:
            return response.status, json.loads(await response.read()), response.headers


def configuration(url: str, **changes: Any) -> dict[str, Any]:
    return {
        "auth": {"admin": {"required": True}},
        "pools": [{"name": "up", "endpoints": [url]}],
        "models": [
            {"name": "chat", "routes": [{"to": "up"}], "price": {"request": "0.25 usd"}},
            {"name": "secret", "routes": [{"to": "up"}]},
        ],
        "tenants": [
            {"name": "ops", "models": ["chat"]},
            {"name": "acme", "models": ["chat"], "limits": {"requests": "3/d"}},
        ],
        **changes,
    }


@asynccontextmanager
async def running(folder: Path, **changes: Any) -> AsyncIterator[Playground]:
    async with upstream() as up, gateway(folder, configuration(up.url, **changes)) as g:
        made = {}
        for role, tenant in (("operator", "ops"), ("tenant-admin", "acme"), ("user", "acme")):
            status, out, err = await command(
                "keys", "create", "--config", str(g.config), "--tenant", tenant, "--role", role
            )
            assert status == 0, err
            made[role] = out.strip()
        async with aiohttp.ClientSession() as http:
            p = Playground(g, up, http, made)
            async with asyncio.timeout(300):
                while [(await p.send("GET", "/models", role))[0] for role in made] != [200, 200, 403]:
                    await asyncio.sleep(0.05)
            yield p


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_person_calls_models_within_the_limits_of_its_tenant(tmp_path: Path, workers: int) -> None:
    async with running(tmp_path, workers=workers) as p:
        _, models, _ = await p.send("GET", "/models", "tenant-admin")
        assert [model["id"] for model in models["data"]] == ["chat"]
        status, answer, headers = await p.send("POST", "/chat", "operator", CHAT)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "hello there")
        assert json.loads(headers["x-headrace-explain"])["pools"] == ["up"]
        status, outcome, _ = await p.send("GET", f"/outcomes/{headers['x-request-id']}", "operator")
        assert (status, outcome["tenant"], outcome["pool"], outcome["cost"]) == (200, "ops", "up", "0.25 usd")
        assert outcome["seconds"] > 0
        status, _, _ = await p.send("GET", f"/outcomes/{headers['x-request-id']}", "tenant-admin")
        assert status == 404
        statuses = [(await p.send("POST", "/chat", "tenant-admin", CHAT))[0] for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        status, answer, _ = await p.send("POST", "/chat?tenant=acme", "operator", CHAT)
        assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
        status, answer, _ = await p.send("POST", "/chat?tenant=ops", "tenant-admin", CHAT)
        assert (status, answer["error"]["param"]) == (403, "tenant")
        assert (await p.send("POST", "/chat", "user", CHAT))[0] == 403
        status, answer, _ = await p.send("POST", "/chat", "operator", {**CHAT, "model": "secret"})
        assert (status, answer["error"]["code"]) == (404, "model_not_found")


async def test_a_stream_arrives_piece_by_piece_and_ends_with_its_reader(tmp_path: Path) -> None:
    async with running(tmp_path) as p:

        async def slow(_: dict[str, Any]) -> Response:
            return stream("one two three " * 4000, gap=0.05)

        p.up.behaviour = slow
        async with p.request("POST", "/chat", "operator", {**CHAT, "stream": True}) as response:
            assert response.content_type == "text/event-stream"
            first = await response.content.readany()
            assert b"[DONE]" not in first
            id = response.headers["x-request-id"]
        async with asyncio.timeout(300):
            while (reply := await p.send("GET", f"/outcomes/{id}", "operator"))[0] != 200:
                await asyncio.sleep(0.05)
        assert reply[1]["error"] == "client_closed_request"


async def test_a_stop_waits_for_the_requests_of_the_console(tmp_path: Path) -> None:
    async with running(tmp_path) as p:

        async def slow(_: dict[str, Any]) -> Response:
            return stream("one two three four", gap=0.3)

        p.up.behaviour = slow
        async with p.request("POST", "/chat", "operator", {**CHAT, "stream": True}) as response:
            await response.content.readany()
            stopping = asyncio.create_task(p.g.stop())
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert await stopping == 0


async def test_the_header_of_the_private_socket_is_no_credential_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path) as p:
        forged = {HEADER: encode_caller(Principal("acme", "x", frozenset({"user", "operator"})))}
        for url in (f"{p.g.url}/v1/models", f"{p.g.admin}{BASE}/models", f"{p.g.admin}/admin/state"):
            async with p.http.get(url, headers=forged) as response:
                assert response.status == 401


async def test_no_body_and_no_name_is_a_failure_of_the_gateway(tmp_path: Path) -> None:
    async with running(tmp_path) as p:
        bodies = [b"", b"{", b"\xff" * 100, b"[]", b'{"model": 1}', b'{"model": "\\ud800"}', b"[" * 50_000]
        names = ["", "/", "%2e%2e%2f", "a" * 1000, "%00", "http:%2f%2f127.0.0.1:1%2f", "x?y", "%25", "%ff"]
        paths = ["/chat", "/embeddings", *(f"/infer/{name}" for name in names)]
        for path in paths:
            for body in bodies:
                async with p.request("POST", path, "operator", body) as response:
                    assert 400 <= response.status < 500, (path, body, await response.text())
        for name in names:
            async with p.request("GET", f"/metadata/{name}", "operator") as response:
                assert 400 <= response.status < 500, name
        assert "Traceback" not in p.g.output


@pytest.mark.plain
@given(st.text(max_size=200))
def test_no_text_but_an_encoded_caller_is_a_principal(text: str) -> None:
    with pytest.raises(CredentialError):
        decode_caller(text)


@pytest.mark.plain
@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.frozensets(st.text(max_size=9)),
    st.dictionaries(st.text(), st.text()),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_caller_is_decoded_as_it_was(tenant: str, key: str, roles: frozenset[str], labels: dict[str, str]) -> None:
    principal = Principal(tenant, key, roles, labels)
    assert decode_caller(encode_caller(principal)) == principal
