"""No text of a server shows the credential that the gateway sends it, its address, or a control character."""

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import aclosing
from itertools import product
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.conformance.impostor import Impostor, impostor
from adapters.conformance.requests import app, chat, completion, prompt, tensors
from adapters.conformance.subject import MakeRequest, pool
from adapters.errors import InferenceError
from adapters.http1.message import Request, Response
from adapters.http2.status import GrpcError
from adapters.requests import AppRequest
from adapters.tensors import Tensor
from adapters.types import ERROR_CODE
from adapters.upstreams.provided.making import make as make_batches
from adapters.upstreams.provided.provider import ProviderLines
from adapters.wire import sse
from adapters.wire.responses import requests as responses
from config.schema.config import PoolConfig, ProbeConfig
from gateway.traffic.discovery.target import DiscoveredEndpoint
from gateway.traffic.fleet.member import PoolMember, make
from gateway.traffic.fleet.member import check as check_endpoint
from tests.support.pools import FOREVER
from tests.support.pools import pool as pool_of

KEY = "pool-credential/SECRET+7f3a9c"
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u202e]")
Form = Callable[[str], tuple[str, bytes]]
"""The content type and the body of an error with a text."""
STATUSES = (400, 401, 403, 404, 405, 408, 409, 411, 413, 415, 416, 418, 422, 424, 429, 498, 500, 501, 503, 504, 529)
X = Tensor("x", "FP32", (1,), bytes(4))
DECLARED = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
TENSORS = {"inputs": DECLARED, "outputs": DECLARED}

APP = {"name": "http", "answer_headers": ["x-echo"], "path": "/p", **TENSORS}


def native(**fields: Any) -> MakeRequest:
    body = json.dumps({"model": "m", "input": "hi", **fields}).encode()
    return lambda: responses.decode_native(body)


CALLS: dict[str, tuple[Any, list[MakeRequest]]] = {
    "openai": ({"name": "openai", "passes": ["rerank"]}, [
        chat("m"), chat("m", stream=True), completion("m"), completion("m", stream=True),
        app("m", "/v1/rerank", "POST", b'{"model":"m"}', "application/json"),
    ]),
    "responses": ({"name": "openai", "responses": True}, [native(), native(stream=True)]),
    "anthropic": ("anthropic", [chat("m"), chat("m", stream=True)]),
    "oip-http": ("oip-http", [tensors("m", X), tensors("m", X, kind="infer_stream"), prompt("m", {"text_input": "a"})]),
    "oip-grpc": ("oip-grpc", [tensors("m", X), tensors("m", X, kind="infer_stream")]),
    "tfserving": ("tfserving", [tensors("m", X)]),
    "tfserving-grpc": ("tfserving-grpc", [tensors("m", X)]),
    "kserve-v1": ({"name": "kserve-v1", **TENSORS}, [tensors("m", X)]),
    "torchserve": ({"name": "torchserve", **TENSORS}, [tensors("m", X), app("m", "/predictions", "POST", b"{}")]),
    "torchserve-grpc": ({"name": "torchserve-grpc", **TENSORS}, [tensors("m", X)]),
    "http": (APP, [tensors("m", X), app("m", "/x"), app("m", "/gzip")]),
    "ray-serve": ({"name": "ray-serve"}, [app("m", "/x")]),
    "ray-serve-grpc": ({"name": "ray-serve-grpc"}, [app("m", "/a.B/C", "POST", b"")]),
    "tgi": ("tgi", [completion("m"), completion("m", stream=True)]),
    "triton-generate": ("triton-generate", [completion("m"), completion("m", stream=True)]),
    "bentoml": ("bentoml", [tensors("m", X), app("m", "/x")]),
    "auto": ("auto", []),
}  # fmt: skip


def head_of(request: Request, url: str) -> str:
    fields = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{request.method} {request.path} HTTP/1.1\r\n{fields}\r\nsee {url}/v1 \x1b[2J\x07 \u2028\u202e"


def in_json(make_body: Callable[[str], Any], ascii_only: bool = False) -> Form:
    def made(text: str) -> tuple[str, bytes]:
        encoded = json.dumps(make_body(text), ensure_ascii=ascii_only)
        return "application/json", (encoded.replace("/", "\\/") if ascii_only else encoded).encode()

    return made


FORMS: list[Form] = [
    in_json(lambda text: {"error": {"message": text, "type": text, "code": text, "param": text}}),
    in_json(lambda text: {"error": {"message": text, "type": "invalid_request_error", "code": text}}, True),
    in_json(lambda text: {"error": text, "message": text}),
    in_json(lambda text: {"error": json.dumps({"headers": text})}),
    in_json(lambda text: {"detail": [{"loc": ["body", text], "msg": text}]}),
    in_json(lambda text: {"message": "a" * 1970 + text, "type": "BadRequestException"}),
    in_json(lambda text: {"error": {"message": base64.b64encode(text.encode()).decode()}}),
    lambda text: ("text/plain", text.encode()),
    lambda text: ("text/html", f'<html><a href="{text}">{text}</a>'.encode()),
]


def failed_response(text: str) -> bytes:
    delta = {"type": "response.output_text.delta", "delta": "Hi"}
    error = {"code": "invalid_prompt", "message": text, "more": [text]}
    events = (delta, {"type": "response.failed", "response": {"error": error, "output": []}})
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in events)


EVENTS: list[list[Form]] = [
    [
        in_json(lambda text: {"error": {"message": text, "type": "invalid_request_error"}}),
        lambda text: ("text/event-stream", sse.encode(json.dumps({"error": {"message": text, "code": 400}}).encode())),
        lambda text: ("text/event-stream", sse.encode(json.dumps({"error": text, "error_type": "x"}).encode())),
    ],
    [lambda text: ("text/event-stream", failed_response(text))],
]
"""Errors with status 200, and those of streams of Responses."""


class Echo:
    """A server that repeats the head of each request in its error."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 400
        self.form = FORMS[0]
        self.seen = 0

    async def http(self, request: Request) -> Response:
        self.seen += 1
        content_type, body = self.form(head_of(request, self.url))
        echoed = request.headers.get("authorization") or ""
        fields = [("content-type", content_type), ("x-echo", echoed)]
        if request.path == "/gzip" and self.status == 400:
            fields, body = [*fields, ("content-encoding", "gzip")], gzip.compress(body)
        return Response(self.status, fields, body)

    async def grpc(self, call: Any) -> None:
        self.seen += 1
        await call.unary()
        text = f"{dict(call.metadata)} see {self.url}/v1, {self.url.removeprefix('http://')} \x1b[2J \u2028"
        raise GrpcError(self.status % 17 or 3, text, [(ERROR_CODE, "model_failed")] if self.status % 2 else [])


def keyed(protocol: Any, url: str, **fields: Any) -> PoolConfig:
    return pool(protocol, url, key=KEY, key_header="authorization", **fields)


def member_of(config: PoolConfig, url: str) -> PoolMember:
    return make(config, "p/1", DiscoveredEndpoint(url), None)


def check(texts: Iterator[str], url: str, *, raw: bool) -> None:
    for text in texts:
        for form in (KEY, base64.b64encode(KEY.encode()).decode()[:20], url.removeprefix("http://"), KEY[:12]):
            assert form not in text
        assert raw or not CONTROL.search(text)


def texts_of(error: BaseException) -> Iterator[str]:
    yield str(error)
    for value in vars(error).values():
        yield from (str(one) for one in (value if isinstance(value, tuple) else (value,)))


async def read(answer: Answer) -> Iterator[str]:
    pieces = [answer.body] if answer.body is not None else [piece async for piece in answer]
    return iter([b"".join(pieces).decode("utf-8", "replace"), *(value for _, value in answer.headers)])


async def spoken(serving: Any, request: MakeRequest, stood: Impostor) -> None:
    try:
        answer = await serving.call(request(), Call(FOREVER))
        async with aclosing(answer):
            check(await read(answer), stood.url, raw=True)
            if answer.body and answer.content_type == "application/json":
                json.loads(answer.body)
    except InferenceError as error:
        check(texts_of(error), stood.url, raw=False)


@pytest.mark.parametrize("name", CALLS)
async def test_no_error_shows_the_credential_or_the_address(name: str) -> None:
    protocol, requests = CALLS[name]
    act = Echo()
    async with impostor(act) as stood:
        act.url = stood.url
        member = member_of(keyed(protocol, stood.url), stood.url)
        serving = pool_of()
        serving.endpoints = [member.endpoint]
        try:
            for request in requests:
                in_success = [] if isinstance(request(), AppRequest) else EVENTS[name == "responses"]
                for act.status, act.form in [*product(STATUSES, FORMS), *product([200], in_success)]:
                    await spoken(serving, request, stood)
            act.status, act.form = 400, FORMS[0]
            await check_endpoint(member.endpoint, ProbeConfig())
            check(iter([member.endpoint.probe_error]), stood.url, raw=False)
        finally:
            await member.stop()
    assert act.seen >= len(requests) * len(STATUSES) * len(FORMS)


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_no_provider_of_batches_shows_them(protocol: str) -> None:
    act = Echo()
    async with impostor(act) as stood:
        act.url = stood.url
        batches = make_batches(keyed(protocol, stood.url, provider_batches={}))
        lines = ProviderLines("s", "/v1/chat/completions", [b"{}"], 0.0)
        try:
            for act.status in STATUSES:
                for act.form in FORMS:
                    for call in (batches.submit(lines), batches.state("b")):
                        with pytest.raises(InferenceError) as caught:
                            await call
                        check(texts_of(caught.value), stood.url, raw=False)
            act.status = 200
            act.form = in_json(lambda text: {"id": "b", "status": "failed", "errors": {"data": [{"message": text}]}})
            if protocol == "openai":
                check(iter([(await batches.state("b")).problem]), stood.url, raw=False)
        finally:
            await batches.aclose()


REMAINING = [
    "`max_tokens`: 5000 is larger than 4096. max_tokens=5000, skip_special_tokens: true",
    "messages[0].content: invalid token: unexpected end of input\n\tat line 3",
    "Could not fetch https://example.org/cat.png: 404. See https://docs.vllm.ai/en/latest/",
    "The basic information about the bearer is missing; 10.5 of 0.25/0.75",
]


@pytest.mark.parametrize("text", REMAINING)
async def test_the_text_of_a_refusal_remains(text: str) -> None:
    act = Echo()
    act.form = lambda _: ("application/json", json.dumps({"error": {"message": text}}).encode())
    async with impostor(act) as stood:
        member = member_of(keyed("openai", stood.url), stood.url)
        serving = pool_of()
        serving.endpoints = [member.endpoint]
        with pytest.raises(InferenceError) as caught:
            await serving.call(chat("m")(), Call(FOREVER))
        await member.stop()
    assert caught.value.message == text
