"""The doors of Vertex AI and Bedrock over a real socket, with the official clients before them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import aiohttp
import anthropic
import pytest
from anthropic import AsyncAnthropicBedrock, AsyncAnthropicVertex
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from yarl import URL

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    Overloaded,
    TransportError,
    Unsupported,
)
from adapters.fake import FakeAdapter, Script
from adapters.types import Usage
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.bedrock.event_stream import FrameSplitter
from config.schema.units import HELD_COPIES
from gateway.auth.aws import access_key_id, secret_of
from tests.support.chats import DONE, USAGE, chunk, completion
from tests.support.doors import Door, door, door_of, uncertified
from tests.support.gateways import PEPPER, Rig, config

Object = dict[str, Any]
Client = AsyncAnthropicVertex | AsyncAnthropicBedrock
HELLO: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"name": "weather", "description": "What it is like", "input_schema": {"type": "object", "properties": {}}}
MODEL = "eu.anthropic.claude-sonnet-4-5@20250929"
MODELS = [{"name": MODEL, "routes": [{"to": "main"}]}]
BODY: Object = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 20, "messages": HELLO}
VERTEX = f"/v1/projects/p/locations/us-east5/publishers/anthropic/models/{quote(MODEL)}"
BEDROCK = f"/model/{quote(MODEL, safe='')}"
WHOLE = (completion("Hello!", "stop"),)
STREAM = (
    chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo!"}),
    chunk({}, "stop"), chunk(None, usage=USAGE), DONE,
)  # fmt: skip


def fake(*chunks: bytes, **fields: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=chunks or WHOLE, usage=Usage(9, 4, exact=True), **fields))


def client_of(kind: str, d: Door, key: str | None = None) -> Client:
    """The official client of a cloud, with a key of the gateway."""
    key = key or d.rig.key.plaintext
    own: Object = {"max_retries": 0, "http_client": uncertified()}
    if kind == "bedrock":
        return AsyncAnthropicBedrock(base_url=d.url, aws_region="eu-west-1", api_key=key, **own)
    base = d.url if kind == "vertex-without-version" else f"{d.url}/v1"
    return AsyncAnthropicVertex(base_url=base, region="us-east5", project_id="p", access_token=key, **own)


@asynccontextmanager
async def opened(kind: str, *fakes: FakeAdapter, **changes: Any) -> AsyncIterator[tuple[Door, Client]]:
    async with door(*(fakes or (fake(),)), models=MODELS, **changes) as d, client_of(kind, d) as client:
        yield d, client


@pytest.mark.parametrize("kind", ["vertex", "vertex-without-version", "bedrock"])
async def test_the_official_client_gets_a_message(kind: str) -> None:
    async with opened(kind) as (d, client):
        message = await client.messages.create(model=MODEL, max_tokens=20, messages=HELLO, system="Be kind.")
        assert message.content[0].type == "text"
        assert (message.content[0].text, message.stop_reason) == ("Hello!", "end_turn")
        sent = d.fake.calls[0].request
        assert isinstance(sent, MessagesRequest)
        assert sent.model == MODEL
        assert sorted(sent.payload.native) == ["max_tokens", "messages", "model", "stream", "system"]
    (record,) = d.rig.log.records
    assert (record.status, record.tenant, record.operation, record.usage) == (
        200,
        "acme",
        "chat",
        Usage(9, 4, exact=True),
    )


@pytest.mark.parametrize("kind", ["vertex", "bedrock"])
async def test_the_official_client_streams_thoughts_calls_and_text(kind: str) -> None:
    made = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"in": "Oslo"}'},
    }
    script = (
        chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "Hm."}), chunk({"content": "Hel"}),
        chunk({"content": "lo!"}), chunk({"tool_calls": [made]}), chunk({}, "tool_calls"), *STREAM[-2:],
    )  # fmt: skip
    fields: Any = {"model": MODEL, "max_tokens": 20, "messages": HELLO, "tools": [TOOL]}
    async with opened(kind, fake(*script)) as (_, client), client.messages.stream(**fields) as stream:
        message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[2].type == "tool_use"
    assert message.content[2].input == {"in": "Oslo"}
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 4)


@pytest.mark.parametrize("kind", ["vertex", "bedrock"])
async def test_betas_of_the_header_and_of_the_body_arrive(kind: str) -> None:
    async with opened(kind) as (d, client):
        beta: Any = client.beta  # the types of its method fit no subclass
        await beta.messages.create(model=MODEL, max_tokens=20, messages=HELLO, betas=["a-1", "b-2"])
        sent = d.fake.calls[0].request
        assert isinstance(sent, MessagesRequest)
        assert set(sent.payload.betas.split(",")) == {"a-1", "b-2"}


async def test_tokens_are_counted_at_the_path_of_vertex() -> None:
    counted = FakeAdapter(Script(chunks=(b'{"input_tokens": 7}',)))
    async with opened("vertex", counted) as (d, client):
        count = await client.messages.count_tokens(model=MODEL, messages=HELLO)
        assert count.input_tokens == 7
        assert isinstance(d.fake.calls[0].request, TokenCount)
    async with opened("vertex", fake(fault=Unsupported("no count"))) as (_, client):
        assert (await client.messages.count_tokens(model=MODEL, messages=HELLO)).input_tokens > 0


@pytest.mark.parametrize("kind", ["vertex", "bedrock"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (CallerError("no"), anthropic.BadRequestError),
        (ContextTooLong("long"), anthropic.BadRequestError),
        (CapacityError("full"), anthropic.InternalServerError),
        (BackendError("broken"), anthropic.APIStatusError),
    ],
)
async def test_errors_have_the_class_of_the_client(kind: str, error: Exception, raised: type[Exception]) -> None:
    async with opened(kind, fake(fault=error)) as (_, client):
        with pytest.raises(raised):
            await client.messages.create(model=MODEL, max_tokens=20, messages=HELLO)


@pytest.mark.parametrize("kind", ["vertex", "bedrock"])
async def test_a_broken_stream_ends_with_an_error(kind: str) -> None:
    broken = FakeAdapter(Script(chunks=STREAM[:3], fault=TransportError("gone"), fault_after=3))
    async with opened(kind, broken) as (_, client):
        with pytest.raises(anthropic.APIStatusError):
            async with client.messages.stream(model=MODEL, max_tokens=20, messages=HELLO) as stream:
                await stream.get_final_message()


async def test_errors_in_the_shape_of_each_door() -> None:
    async with opened("bedrock") as (d, _):
        for path, status, name in (
            ("/model/unknown/invoke", 404, "ResourceNotFoundException"),
            ("/model/a/b", 404, "ResourceNotFoundException"),
        ):
            response = await d.send("POST", path, BODY)
            assert (response.status, response.headers["x-amzn-errortype"]) == (status, name)
            assert list(await response.json()) == ["message"]
        response = await d.send("POST", f"{BEDROCK}/invoke", BODY, authorization="Bearer no")
        assert (response.status, response.headers["x-amzn-errortype"]) == (403, "UnrecognizedClientException")
        response = await d.send("POST", f"{VERTEX}:rawPredict", BODY, authorization="Bearer no")
        error = (await response.json())["error"]
        assert (response.status, error["status"], error["code"], error["type"]) == (
            401, "UNAUTHENTICATED", 401, "authentication_error",
        )  # fmt: skip
        for path in (
            f"{VERTEX}:predict",
            f"{VERTEX}",
            "/v1/projects/p/locations/l/publishers/other/models/m:rawPredict",
        ):
            assert (await d.send("POST", path, BODY)).status == 404
        assert (await d.send("GET", f"{VERTEX}:rawPredict")).status == 405


@pytest.mark.parametrize("path", [f"{VERTEX}:rawPredict", f"{BEDROCK}/invoke"])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"}", b'{"messages":}', b'"}"', b'{"max_tokens": 5}'])
async def test_a_body_that_is_no_message_is_a_clear_error(path: str, body: bytes) -> None:
    async with opened("bedrock") as (d, _):
        response = await d.send("POST", path, body)
        assert response.status == 400, await response.text()


async def test_the_path_decides_model_and_stream() -> None:
    body = {**BODY, "model": "another", "stream": True}
    async with opened("bedrock") as (d, _):
        for path in (f"{VERTEX}:rawPredict", f"{BEDROCK}/invoke"):
            response = await d.send("POST", path, body)
            assert (response.status, (await response.json())["model"]) == (200, "m")
    async with opened("bedrock", fake(*STREAM)) as (d, _):
        response = await d.send("POST", f"{BEDROCK}/invoke-with-response-stream", {**BODY, "stream": False})
        assert response.headers["content-type"] == "application/vnd.amazon.eventstream"
        frames = list(FrameSplitter().feed(await response.read()))
        assert {frame.event for frame in frames} == {"chunk"}
        assert all(list(json.loads(frame.payload)) == ["bytes"] for frame in frames)


async def test_limits_and_scopes_are_those_of_every_door() -> None:
    tenant = {"limits": {"requests": "1/h"}}
    async with opened("bedrock", tenant=tenant) as (d, client):
        await client.messages.create(model=MODEL, max_tokens=20, messages=HELLO)
        response = await d.send("POST", f"{BEDROCK}/invoke", BODY)
        assert (response.status, response.headers["x-amzn-errortype"]) == (429, "ThrottlingException")
        response = await d.send("POST", f"{VERTEX}:rawPredict", BODY)
        assert (response.status, (await response.json())["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")


# ── signed requests ───────────────────────────────────────────────────────────────────────────────────────


class Signer:
    """A client of AWS that signs as botocore does."""

    def __init__(self, d: Door, path: str = f"{BEDROCK}/invoke") -> None:
        self.door, self.path = d, path
        self.id, self.secret = access_key_id(d.rig.key.id), secret_of(PEPPER, d.rig.key.id)
        self.body, self.headers = json.dumps(BODY).encode(), {"content-type": "application/json", "x-own": "a  b"}
        self.service, self.shift = "bedrock", 0.0

    def signed(self) -> dict[str, str]:
        request = AWSRequest("POST", f"{self.door.url}{self.path}", headers=dict(self.headers), data=self.body)
        request.context["timestamp"] = (datetime.now(UTC) + timedelta(seconds=self.shift)).strftime("%Y%m%dT%H%M%SZ")
        signer = SigV4Auth(Credentials(self.id, self.secret), self.service, "eu-west-1")
        signer._modify_request_before_signing(request)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        signer._inject_signature_to_request(request, signer.signature(text, request))
        return dict(request.headers.items())

    async def send(self, **changes: Any) -> aiohttp.ClientResponse:
        headers = self.signed() | changes.pop("headers", {})
        body, path = changes.pop("body", self.body), changes.pop("path", self.path)
        url = URL(self.door.url + path, encoded=True)
        response = await self.door.http.post(url, data=body, headers=headers)
        await response.read()
        return response


async def test_a_request_that_is_signed_with_the_key_s_own_access_key_is_accepted() -> None:
    async with opened("bedrock") as (d, _):
        for path in (f"{BEDROCK}/invoke", f"/model/{quote(MODEL, safe='@:')}/invoke"):
            response = await Signer(d, path).send()
            assert response.status == 200, await response.text()
        (record, _) = d.rig.log.records
        assert (record.tenant, record.key) == ("acme", d.rig.key.id)


CHANGES: list[Object] = [
    {"body": json.dumps({**BODY, "max_tokens": 21}).encode()},
    {"path": f"{BEDROCK}/invoke?a=1"},
    {"path": f"/model/{quote(MODEL[:-1], safe='')}/invoke"},
    {"headers": {"x-own": "c"}},
    {"headers": {"Host": "elsewhere.example"}},
    {"headers": {"x-amz-more": "unsigned"}},
    {"headers": {"x-amz-date": "20200101T000000Z"}},
    {"headers": {"x-amz-date": "soon"}},
]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
async def test_a_signature_covers_body_path_host_and_fields(change: Object) -> None:
    async with opened("bedrock") as (d, _):
        response = await Signer(d).send(**change)
        assert (response.status, response.headers["x-amzn-errortype"]) == (403, "UnrecognizedClientException")
        assert d.fake.calls == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"secret": "another"}, "not valid"),
        ({"id": "AKIAIOSFODNN7EXAMPLE"}, "is not one of this gateway"),
        ({"id": access_key_id("a" * 12)}, "not valid"),
        ({"service": "s3"}, "sign the request for the service `bedrock`"),
        ({"shift": -301.0}, "clock"),
        ({"shift": 301.0}, "clock"),
    ],
)
async def test_a_wrong_signature_is_refused_with_a_reason(change: Object, words: str) -> None:
    async with opened("bedrock") as (d, _):
        signer = Signer(d)
        for name, value in change.items():
            setattr(signer, name, value)
        response = await signer.send()
        assert response.status == 403
        assert words in (await response.json())["message"]


async def test_the_path_is_verified_as_it_was_signed() -> None:
    async with opened("bedrock") as (d, _):
        assert (await Signer(d, f"{BEDROCK}/invoke/").send()).status == 200
        assert (await Signer(d).send(path=f"{BEDROCK}/invoke/")).status == 403


@pytest.mark.parametrize("end", ["", "/"])
async def test_no_tenant_pays_for_a_body_with_a_wrong_signature(end: str) -> None:
    async with door_of(Rig(config(models=MODELS), {"main": [fake()]}), max_body=2**20) as d:
        memory, signer = d.rig.core.memory, Signer(d, f"{BEDROCK}/invoke{end}")
        signer.body = json.dumps({**BODY, "system": "x" * 50_000}).encode()
        assert (await signer.send(body=signer.body + b" ")).status == 403
        assert (memory.of("acme").most, memory.unverified.most > 50_000) == (0, True)
        assert (await signer.send()).status == 200
        assert memory.of("acme").most > 50_000
        memory.unverified.force(memory.unverified.limit)
        assert (await signer.send()).status == 503
        assert (await d.send("POST", f"{BEDROCK}/invoke", signer.body)).status == 200
        memory.unverified.give(memory.unverified.limit)
        assert (memory.of("acme").held, memory.unverified.held, memory.process.held) == (0, 0, 0)


async def test_bodies_in_the_name_of_one_key_leave_room_for_other_keys() -> None:
    async with door_of(Rig(config(models=MODELS), {"main": [fake()]}), max_body=2**20) as d:
        memory, signer = d.rig.core.memory, Signer(d, f"{BEDROCK}/invoke")
        signer.body = json.dumps({**BODY, "system": "x" * 50_000}).encode()
        others = memory.claimed_by("a" * 12)
        others.take(others.limit)
        with pytest.raises(Overloaded):
            others.take(1)
        assert others.limit >= HELD_COPIES * 2**20
        assert (await signer.send()).status == 200
        others.give(others.limit)
        assert memory.unverified.held == 0


async def test_a_signed_request_without_a_route_is_refused_before_its_body() -> None:
    async with opened("bedrock") as (d, _):
        signer = Signer(d)
        signer.secret = "another"
        assert (await signer.send(path="/model/a/b")).status == 404
        response = await d.http.put(f"{d.url}/model/a/invoke", headers=signer.signed(), data=signer.body)
        assert "POST only" in (await response.json())["message"]


async def test_other_doors_take_no_signature() -> None:
    async with opened("vertex") as (d, _):
        assert (await Signer(d, f"{VERTEX}:rawPredict").send()).status == 401
