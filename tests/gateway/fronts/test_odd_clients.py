"""Requests that real clients send beside their chats: WebSockets, looks at the root, models with unusual names."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import openai
import pytest

from adapters.fake import FakeAdapter
from tests.support.doors import CHATS, HI, MESSAGES, RESPONSES, Door, door

NAMES = ("org/model", "org/sub/model:7b", "claude-sonnet-4@20250514", "gpt(preview)+1", "Qwen/Qwen3-8B")
LONG = "claude-opus-4-6[1m]"
MODELS: list[dict[str, Any]] = [
    *[{"name": name, "routes": [{"to": "main"}]} for name in NAMES],
    {"name": "claude-opus-4-6", "aliases": [LONG], "routes": [{"to": "main"}]},
    {"name": "gpt-*", "listed": ["gpt-5", "gpt-4o"], "routes": [{"to": "main"}]},
]


async def ids(d: Door, **headers: str) -> set[str]:
    body = await (await d.send("GET", "/v1/models", **headers)).json()
    return {model["id"] for model in body["data"]}


async def test_models_with_any_name_are_listed_and_served() -> None:
    names = {*NAMES, "claude-opus-4-6", LONG, "gpt-5", "gpt-4o"}
    async with door(FakeAdapter(), models=MODELS) as d:
        for headers in ({}, {"anthropic_version": "2023-06-01"}):
            assert await ids(d, **headers) == names
            for name in (*sorted(names), "gpt-6"):
                for path in (quote(name), quote(name, safe="")):
                    response = await d.send("GET", f"/v1/models/{path}", **headers)
                    assert (response.status, (await response.json())["id"]) == (200, name)
                chat = await d.send("POST", CHATS, {"model": name, "messages": HI})
                assert chat.status == 200, name
        for name in ("claude-opus-4-61", "claude-opus-4-6m", "org/none", "org"):
            assert (await d.send("GET", f"/v1/models/{name}")).status == 404


async def test_a_list_has_the_names_that_the_tenant_may_use() -> None:
    async with door(models=MODELS, tenant={"models": ["gpt-5", "org/*"]}) as d:
        assert await ids(d) == {"gpt-5", "org/model", "org/sub/model:7b"}


STAR: list[dict[str, Any]] = [{"name": "*", "routes": [{"to": "main"}]}]
FAMILY: list[dict[str, Any]] = [{"name": "gpt-*", "listed": ["gpt-5"], "routes": [{"to": "main"}]}]
ONE: list[dict[str, Any]] = [{"name": "chat", "aliases": ["chat-latest"], "routes": [{"to": "main"}]}]


@pytest.mark.parametrize(
    ("models", "allowed", "listed", "served"),
    [
        (STAR, "*", "", "gpt-5 gpt-6 nobody chat chat-latest"),
        (STAR, "gpt-5", "", "gpt-5"),
        (FAMILY, "*", "gpt-5", "gpt-5 gpt-6"),
        (FAMILY, "gpt-5", "gpt-5", "gpt-5"),
        (ONE, "*", "chat chat-latest", "chat chat-latest"),
        (ONE, "gpt-5", "", ""),
    ],
)
async def test_a_model_is_retrieved_if_a_request_for_it_would_be_routed(
    models: list[dict[str, Any]], allowed: str, listed: str, served: str
) -> None:
    """A client that looks its model up first is never refused a model that works, nor shown one that does not."""
    async with door(FakeAdapter(), models=models, tenant={"models": [allowed]}) as d:
        for name in ("gpt-5", "gpt-6", "nobody", "chat", "chat-latest"):
            status = 200 if name in served.split() else 404
            assert (await d.send("POST", CHATS, {"model": name, "messages": HI})).status == status
            if status == 200:
                assert (await d.openai.models.retrieve(name)).id == name
                continue
            with pytest.raises(openai.NotFoundError) as caught:
                await d.openai.models.retrieve(name)
            assert caught.value.code == "model_not_found"
        assert await ids(d) == set(listed.split())


@pytest.mark.parametrize("path", [CHATS, RESPONSES, MESSAGES, "/v1/realtime", "/v2/models/m/infer", "/apps/x"])
async def test_a_websocket_is_refused_with_426(path: str) -> None:
    async with door(FakeAdapter()) as d:
        fields = {"connection": "Upgrade", "upgrade": "WebSocket", "sec_websocket_key": "eA=="}
        response = await d.send("GET", path, **fields)
        assert (response.status, response.headers["upgrade"]) == (426, "HTTP/1.1")
        assert "WebSocket" in await response.text()
        other = await d.send("POST", CHATS, {"model": "chat", "messages": HI}, connection="Upgrade", upgrade="h2c")
        assert other.status == 200


async def test_an_opening_handshake_on_a_socket_gets_426() -> None:
    """An agent dials `/v1/responses` by WebSocket first, and uses HTTP at once after this status alone."""
    async with door(FakeAdapter()) as d:
        host, _, port = d.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        fields = (
            f"host: x\r\nauthorization: {d.keyed['authorization']}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        )
        handshake = "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        writer.write(f"GET /v1/responses HTTP/1.1\r\n{fields}{handshake}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower().splitlines()
        assert head[0].startswith(b"http/1.1 426 ")
        assert b"upgrade: http/1.1" in head
        length = next(line for line in head if line.startswith(b"content-length:"))
        assert json.loads(await reader.readexactly(int(length.split(b":")[1])))["error"]["code"] == "upgrade_required"
        writer.close()
        await writer.wait_closed()


async def test_a_list_has_published_facts_if_the_file_has_a_catalogue() -> None:
    hosted = {"name": "main", "endpoints": ["https://api.openai.com"], "probe": None}
    models = [{"name": "gpt-4o", "routes": [{"to": "main"}]}, {"name": "own", "routes": [{"to": "main"}]}]
    for catalogue, shown in (({}, 128000), (None, None)):
        async with door(FakeAdapter(), pools=[hosted], models=models, catalogue=catalogue) as d:
            data = {one["id"]: one for one in (await (await d.send("GET", "/v1/models")).json())["data"]}
            assert data["gpt-4o"].get("context_window") == shown
            assert data["gpt-4o"].keys() - data["own"].keys() == (
                {"context_window", "max_output_tokens", "price", "abilities"} if shown else set()
            )


@pytest.mark.parametrize("path", ["/", "/api/hello"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_look_at_the_server_needs_no_key(method: str, path: str) -> None:
    async with door(FakeAdapter()) as d:
        d.keyed = {}
        response = await d.send(method, path)
        assert response.status == 404
        assert (await response.text() == "") is (method == "HEAD")
        assert (await d.send(method, "/v1/models")).status == 401


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHATS, {"messages": [{"role": "user", "content": "TEXT"}]}),
        (RESPONSES, {"input": "TEXT"}),
        (MESSAGES, {"max_tokens": 9, "messages": [{"role": "user", "content": "TEXT"}]}),
        ("/v1/embeddings", {"input": "TEXT"}),
        ("/v1/completions", {"prompt": "TEXT"}),
    ],
)
async def test_a_text_that_is_cut_inside_a_character_is_answered(path: str, fields: dict[str, Any]) -> None:
    """JavaScript cuts texts by UTF-16 units."""
    body = json.dumps({"model": "chat", **fields}).replace("TEXT", "cut \\ud83d").encode()
    async with door(FakeAdapter()) as d:
        assert (await d.send("POST", path, body)).status in (200, 502)  # the fake answers chats only
        prompt = bytes(d.fake.calls[0].request.prompt)
        assert b"cut \\ufffd" in prompt or "cut \ufffd".encode() in prompt
