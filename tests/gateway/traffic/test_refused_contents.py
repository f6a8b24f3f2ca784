"""Requests that a provider refuses for their content: the client's own error, sent once, and no fault of the server."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from adapters import registry
from adapters.fake import FakeAdapter
from adapters.registry import Address
from tests.servers.stand_ins.serving import serving
from tests.support.doors import Before, Door, door_of
from tests.support.gateways import Rig, config
from tests.support.providers.anthropic_clouds import failure
from tests.support.providers.azure import FILTERED

Object = dict[str, Any]
TIMES = 12


class Refusal(NamedTuple):
    """How a provider refuses a content: its protocol, the status, and the body of its answer."""

    protocol: Object
    status: int
    body: Object | bytes
    headers: Mapping[str, str] = MappingProxyType({})
    stream: bool = False


OPENAI: Object = {"name": "openai", "dialect": "openai"}
AZURE: Object = {"name": "openai", "dialect": "azure"}
VERTEX: Object = {"name": "anthropic", "at": "vertex", "project": "p"}
BEDROCK: Object = {"name": "anthropic", "at": "bedrock"}


def _openai(message: str, code: str | None) -> Object:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _anthropic(message: str) -> Object:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


REFUSALS = {
    "OpenAI's prompts": Refusal(
        OPENAI, 400, _openai("Invalid prompt: your prompt was flagged as violating our usage policy.", "invalid_prompt")
    ),
    "OpenAI's pictures": Refusal(OPENAI, 400, _openai("Rejected by the safety system.", "moderation_blocked")),
    "Azure's prompts": Refusal(AZURE, 400, FILTERED),
    "Azure's streams": Refusal(
        AZURE, 200, b"data: " + json.dumps(FILTERED).encode() + b"\n\n", {"content-type": "text/event-stream"},
        stream=True,
    ),
    "OpenRouter's moderation": Refusal(
        {"name": "openai"}, 403,
        {"error": {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["violence"]}}},
    ),
    "unavailable for legal reasons": Refusal({"name": "openai"}, 451, _openai("The content is not allowed.", None)),
    "Anthropic's filter": Refusal({"name": "anthropic"}, 400, _anthropic("Output blocked by content filtering policy")),
    "Vertex AI's filter": Refusal(VERTEX, 400, _anthropic("Output blocked by content filtering policy")),
    "Bedrock's filter": Refusal(
        BEDROCK, 400, {"message": "The provided content was blocked by the content filters."},
        {"x-amzn-errortype": "ValidationException:http://internal.amazon.com/"},
    ),
    "Bedrock's streams": Refusal(
        BEDROCK, 200, failure("validationException", "The content was blocked."),
        {"content-type": "application/vnd.amazon.eventstream"}, stream=True,
    ),
}  # fmt: skip
"""A refusal of each provider. A new provider adds its own."""


@asynccontextmanager
async def refusing(refusal: Refusal) -> AsyncIterator[tuple[Door, list[bytes], FakeAdapter]]:
    """A gateway with retries, a fallback, and a breaker that one failure opens, before a provider that refuses all."""
    received = list[bytes]()

    async def answer(http: web.Request) -> web.Response:
        received.append(await http.read())
        body = refusal.body if isinstance(refusal.body, bytes) else json.dumps(refusal.body).encode()
        return web.Response(
            status=refusal.status, body=body, headers={"content-type": "application/json", **refusal.headers}
        )

    app = web.Application()
    app.add_routes([web.post("/{path:.*}", answer)])
    async with serving(app) as url:
        own = {"endpoints": [url], "key": "k", "model": "m", "protocol": refusal.protocol, "breaker": {"failures": 1}}
        pools = [{"name": "main", **own}, {"name": "other", "endpoints": ["http://127.0.0.1:9"]}]
        routes = [{"to": "main", "fallback": ["other"], "retry": {"attempts": 3}}]
        made, other = config(pools=pools, models=[{"name": "chat", "routes": routes}]), FakeAdapter()
        adapter = registry.make(made.pools[0], Address(url))
        async with door_of(Rig(made, {"main": [Before(adapter)], "other": [other]})) as door:
            yield door, received, other
        await adapter.aclose()


@pytest.mark.parametrize("name", REFUSALS)
async def test_refused_contents_open_no_breaker_and_are_sent_once(name: str) -> None:
    refusal = REFUSALS[name]
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": refusal.stream}
    async with refusing(refusal) as (door, received, other):
        for sent in range(1, TIMES + 1):
            response = await door.send("POST", "/v1/chat/completions", body)
            assert (response.status, len(received)) == (400, sent), await response.text()
        assert {getattr(record.error, "kind", "") for record in door.rig.log.records} == {"caller"}
        assert other.calls == []


async def test_an_answer_that_refuses_is_an_answer() -> None:
    """Anthropic's models refuse with a stop reason: the client receives it as a filter of content."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    refused: Object = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage,
                       "stop_reason": "refusal", "stop_sequence": None}  # fmt: skip
    async with refusing(Refusal({"name": "anthropic"}, 200, refused)) as (door, received, other):
        for _ in range(TIMES):
            body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
            response = await door.send("POST", "/v1/chat/completions", body)
            assert (await response.json())["choices"][0]["finish_reason"] == "content_filter"
        assert (len(received), other.calls) == (TIMES, [])
