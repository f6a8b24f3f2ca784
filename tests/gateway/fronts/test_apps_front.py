"""The door of HTTP apps, with a real app behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from adapters.http1.client import Client
from adapters.http1.message import Request, Response, encode_fields
from adapters.http1.server import Limits, Server
from adapters.upstreams.apps.http_app import HttpAppAdapter
from config.schema.protocols.apps import HttpProtocol
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.adapters.http1.raw import until
from tests.support.doors import Before
from tests.support.gateways import Rig, config

X = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
Y = {"name": "y", "datatype": "FP32", "shape": [-1]}
Behaviour = Callable[[Request, bytes], Awaitable[Response]]
JSON = ("content-type", "application/json")


class App:
    """Echoes its request, unless the test scripts another answer."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str, dict[str, str], bytes]] = []
        self.behaviour: Behaviour | None = None
        self.left = 0
        self.gate = asyncio.Event()
        """Nothing is sent behind a first piece until it is set."""

    async def __call__(self, http: Request) -> Response:
        body = await http.read()
        target = http.target.decode() + (f"?{http.query}" if http.query else "")
        self.received.append((http.method, target, dict(http.headers), body))
        if self.behaviour is not None:
            return await self.behaviour(http, body)
        return Response(200, [JSON, ("x-cost", "3"), ("server", "secret")], json.dumps(target).encode())


class Pieces:
    """A streamed body; then it breaks, or waits, or ends."""

    def __init__(self, app: App, *pieces: bytes, then: str = "ends") -> None:
        self._app, self._pieces, self._then = app, list(pieces), then
        self._sent = False

    def __aiter__(self) -> "Pieces":
        return self

    async def __anext__(self) -> bytes:
        if self._sent:
            await self._app.gate.wait()
        if self._pieces:
            self._sent = True
            return self._pieces.pop(0)
        if self._then == "breaks":
            raise ConnectionError
        if self._then == "waits":
            await asyncio.Event().wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._app.left += 1


def always(status: int, *headers: tuple[str, str], body: bytes = b"") -> Behaviour:
    async def answer(http: Request, received: bytes) -> Response:
        return Response(status, list(headers), body)

    return answer


def streaming(app: App, *pieces: bytes, then: str = "ends") -> Behaviour:
    async def answer(http: Request, received: bytes) -> Response:
        return Response(200, [("content-type", "text/plain")], Pieces(app, *pieces, then=then))

    return answer


class AppDoor:
    """A listening gateway before two endpoints of one app."""

    def __init__(self, app: App, rig: Rig, url: str, http: aiohttp.ClientSession) -> None:
        self.app = app
        self.rig = rig
        self.url = url
        self.http = http

    def call(self, method: str, path: str, **options: Any) -> Any:
        headers = {"authorization": f"Bearer {self.rig.key.plaintext}", **options.pop("headers", {})}
        return self.http.request(method, self.url + path, headers=headers, allow_redirects=False, **options)


def _client(port: int, key: str | None) -> Client:
    fields = encode_fields([("authorization", f"Bearer {key}")] if key else [])
    return Client(f"http://127.0.0.1:{port}/base", fields=fields)


@asynccontextmanager
async def app_door(
    *, endpoints: int = 1, route: dict[str, Any] | None = None, key: str | None = None, **options: Any
) -> AsyncIterator[AppDoor]:
    protocol = {"name": "http", **options}
    pool = {"name": "main", "protocol": protocol, "endpoints": ["http://127.0.0.1:9"]}
    models = [{"name": "chat", "routes": [{"to": "main", **(route or {})}]}]
    app = App()
    behind = Server(app)
    _, port = await behind.listen_tcp("127.0.0.1", 0)
    made = [
        HttpAppAdapter(_client(port, key), HttpProtocol.model_validate(protocol), keyed=key is not None)
        for _ in range(endpoints)
    ]
    rig = Rig(config(pools=[pool], models=models), {"main": [Before(adapter) for adapter in made]})
    server = Server(client_fronts(rig.core), Limits(max_body=1_000_000), openai_refusal)
    try:
        host, port = await server.listen_tcp("127.0.0.1", 0)
        async with aiohttp.ClientSession() as http:
            yield AppDoor(app, rig, f"http://{host}:{port}", http)
        await rig.until_idle()
    finally:
        await server.aclose()
        for adapter in made:
            await adapter.aclose()
        await behind.aclose()
    rig.assert_idle()
    assert all(record.ended for record in rig.log.records)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_call_is_forwarded_unchanged(method: str) -> None:
    async with app_door(headers=["x-trace"], answer_headers=["x-cost"]) as d:
        sent = {"content-type": "image/png", "accept": "text/plain", "x-trace": "t1", "x-other": "no", "cookie": "a=b"}
        async with d.call(method, "/apps/chat/v1/do%20it;a=1?b=2&c=%C3%A9", data=b"\x89PNG", headers=sent) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            assert await response.json() == "/base/v1/do%20it;a=1?b=2&c=%C3%A9"
            assert response.headers["x-cost"] == "3"
            assert "server" not in response.headers
            assert response.headers["x-headrace-model"] == "chat"
    [(received_method, _, headers, body)] = d.app.received
    assert (received_method, body) == (method, b"\x89PNG")
    assert {name for name in headers if name != "host"} == {
        "user-agent", "accept", "accept-encoding", "content-type", "content-length", "x-request-id", "x-trace",
    }  # fmt: skip
    assert (headers["content-type"], headers["accept"], headers["x-trace"]) == ("image/png", "text/plain", "t1")
    [record] = d.rig.log.records
    assert (record.operation, record.model) == ("app", "chat")
    assert record.usage is not None
    assert record.usage.bytes > 0


@pytest.mark.parametrize(
    "path", ["/../x", "/a/./b", "/a//b", "/%2e%2e/x", "/a%2Fb", "/a%5cb", "/a%00b", "/%252e%252e/x", "/a\\b", "/ü"]
)
async def test_a_path_that_may_be_read_otherwise_is_refused(path: str) -> None:
    async with app_door() as d:
        reader, writer = await asyncio.open_connection(*d.url.removeprefix("http://").split(":"))
        head = f"GET /apps/chat{path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n"
        writer.write(f"{head}authorization: Bearer {d.rig.key.plaintext}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 ")
    assert d.app.received == []


async def test_a_model_without_an_app_is_refused() -> None:
    async with app_door() as d:
        for path, status in (("/apps/nobody/x", 404), ("/apps/", 404), ("/predictions/", 404), ("/apps//x", 404)):
            async with d.call("GET", path) as response:
                assert response.status == status, path
                assert (await response.json()).keys() == {"code", "type", "message"}
        async with d.call("OPTIONS", "/apps/chat/x") as response:
            assert response.status == 405
        async with d.http.post(d.url + "/apps/chat/x") as response:
            assert response.status == 401
        body = {"model": "chat", "messages": [{"role": "user", "content": "x"}]}
        async with d.call("POST", "/v1/chat/completions", json=body) as response:
            assert response.status == 400
            assert "is an app" in (await response.json())["error"]["message"]
    assert d.app.received == []


@pytest.mark.parametrize("status", [201, 204, 400, 404, 409, 422])
async def test_the_apps_own_status_is_its_answer(status: int) -> None:
    async with app_door(endpoints=2, route={"retry": {"attempts": 3}}) as d:
        d.app.behaviour = always(status, ("content-type", "text/x-own"), body=b"" if status == 204 else b"mine")
        async with d.call("GET", "/apps/chat/x") as response:
            assert (response.status, await response.read()) == (status, b"" if status == 204 else b"mine")
            assert response.headers["content-type"] == "text/x-own"
    assert len(d.app.received) == 1
    [record] = d.rig.log.records
    assert record.usage is not None


@pytest.mark.parametrize(
    ("method", "status", "expected", "code"),
    [
        ("GET", 429, 503, "overloaded"),
        ("GET", 503, 503, "overloaded"),
        ("GET", 500, 502, "upstream_error"),
        ("POST", 503, 503, "overloaded"),  # a full app has not begun
    ],
)
async def test_a_failure_is_retried_elsewhere_and_then_returned(
    method: str, status: int, expected: int, code: str
) -> None:
    async with app_door(endpoints=2, route={"retry": {"attempts": 2, "budget": "100%"}}) as d:
        d.app.behaviour = always(status, body=b"at 10.0.0.5")
        async with d.call(method, "/apps/chat/x") as response:
            assert (response.status, response.headers["x-headrace-error"]) == (expected, code)
            assert "10.0.0.5" not in await response.text()
    assert len(d.app.received) == 2


@pytest.mark.parametrize(
    ("methods", "method", "attempts"), [("idempotent", "POST", 1), ("idempotent", "PUT", 2), ("all", "POST", 2)]
)
async def test_a_possibly_executed_request_is_not_repeated(methods: str, method: str, attempts: int) -> None:
    async def leave(http: Request, body: bytes) -> Response:
        raise asyncio.CancelledError  # the connection closes without an answer

    async with app_door(endpoints=2, route={"retry": {"attempts": 2, "budget": "100%", "methods": methods}}) as d:
        async with d.call(method, "/apps/chat/warm") as response:  # a reused connection does not justify a retry either
            assert response.status == 200
        d.app.behaviour = leave
        d.app.received.clear()
        async with d.call(method, "/apps/chat/x") as response:
            assert response.status == 502
    received = len(d.app.received)
    assert received == 1 if attempts == 1 else received >= 2


async def test_predictions_are_inferences_and_may_be_repeated() -> None:
    async with app_door(endpoints=2, route={"retry": {"attempts": 2, "budget": "100%"}}) as d:
        async with d.call("POST", "/predictions/chat", data=b"x") as response:
            assert await response.json() == "/base/predictions"
        d.app.received.clear()
        d.app.behaviour = always(500)
        async with d.call("POST", "/predictions/chat/2.0", data=b"x") as response:
            assert response.status == 502
    assert len(d.app.received) == 2


async def test_a_redirect_is_not_followed_and_counts_as_no_failure() -> None:
    async with app_door() as d:
        d.app.behaviour = always(307, ("location", "http://10.0.0.5/x"))
        async with d.call("GET", "/apps/chat/x") as response:
            assert response.status == 400
            assert "location" not in response.headers
            assert response.headers["x-headrace-error"] == "app_redirect"


async def test_our_own_key_refused_is_not_the_clients_fault() -> None:
    async with app_door(key="ours") as d:
        d.app.behaviour = always(401, body=b"who are you")
        async with d.call("GET", "/apps/chat/x") as response:
            assert (response.status, response.headers["x-headrace-error"]) == (502, "upstream_credential")
    assert d.app.received[0][2]["authorization"] == "Bearer ours"


async def test_streams_go_on_piece_by_piece() -> None:
    async with app_door() as d:
        d.app.behaviour = streaming(d.app, b"one ", b"two ", b"three")
        async with d.call("POST", "/apps/chat/x") as response:
            assert await response.content.readany() == b"one "
            d.app.gate.set()
            assert await response.read() == b"two three"
            assert response.headers["transfer-encoding"] == "chunked"
            assert response.headers["x-accel-buffering"] == "no"
    [record] = d.rig.log.records
    assert record.usage is not None
    assert record.usage.bytes == 13


async def test_a_stream_that_breaks_off_breaks_off() -> None:
    async with app_door() as d:
        d.app.behaviour = streaming(d.app, b"one ", then="breaks")
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of the app's own break
        async with d.call("POST", "/apps/chat/x") as response:
            assert await response.content.readany() == b"one "
            d.app.gate.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        await d.rig.until_idle()
    [record] = d.rig.log.records
    assert record.error is not None
    assert record.error.kind == "transport"


async def test_a_client_that_leaves_ends_the_apps_work() -> None:
    async with app_door() as d:
        d.app.behaviour = streaming(d.app, b"one ", then="waits")
        response = await d.call("POST", "/apps/chat/x")
        assert await response.content.readany() == b"one "
        response.close()
        await until(lambda: d.app.left > 0)


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────────


def inference_body(data: list[float], shape: list[int]) -> dict[str, Any]:
    return {"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": data}]}


@pytest.mark.parametrize(
    ("layout", "sent", "answered"),
    [
        ("object", {"x": [[1, 2], [3, 4]]}, {"y": [3, 7], "more": 1}),
        ("object", {"x": [[1, 2], [3, 4]]}, [3, 7]),
        ("instances", {"instances": [[1, 2], [3, 4]]}, {"predictions": [3, 7]}),
        ("instances", {"instances": [[1, 2], [3, 4]]}, {"predictions": [{"y": 3}, {"y": 7}]}),
    ],
)
async def test_tensors_are_the_apps_json(layout: str, sent: Any, answered: Any) -> None:
    async def add(http: Request, body: bytes) -> Response:
        assert json.loads(body) == sent
        return Response(200, [JSON], json.dumps(answered).encode())

    async with app_door(inputs=[X], outputs=[Y], layout=layout, path="/sum") as d:
        d.app.behaviour = add
        async with d.call("POST", "/v2/models/chat/infer", json=inference_body([1, 2, 3, 4], [2, 2])) as response:
            document = await response.json()
            assert (response.status, document["id"]) == (200, "7")
            assert document["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2], "data": [3.0, 7.0]}]
        async with d.call("POST", "/v1/models/chat:predict", json={"instances": [[1, 2], [3, 4]]}) as response:
            assert await response.json() == {"predictions": [3.0, 7.0]}
        async with d.call(
            "POST", "/v2/models/chat/infer_stream", json=inference_body([1, 2, 3, 4], [2, 2])
        ) as response:
            assert (await response.text()).startswith('data: {"model_name":"chat"')
        async with d.call("GET", "/v2/models/chat") as response:
            assert (await response.json())["inputs"] == [X]
        async with d.call("GET", "/v2/models/chat/ready") as response:
            assert response.status == 200
    assert all(target == "/base/sum" for _, target, _, _ in d.app.received)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            inference_body([1, 2, 3], [1, 3]),
            "unexpected shape for input 'x' for model 'chat'. Expected [-1,2], got [1,3].",
        ),
        ({"inputs": []}, "expected 1 inputs but got 0 inputs for model 'chat'. Input 'x' is missing."),
        (
            {"inputs": [{"name": "z", "datatype": "FP32", "shape": [1], "data": [1]}]},
            "unexpected inference input 'z' for model 'chat'",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}]},
            "inference input 'x' data-type is 'INT32', but model 'chat' expects 'FP32'",
        ),
        ({**inference_body([1, 2], [1, 2]), "outputs": [{"name": "q"}]}, "no output `q`"),
    ],
)
async def test_tensors_that_are_not_declared_are_the_callers_mistake(document: Any, words: str) -> None:
    async with app_door(inputs=[X], outputs=[Y]) as d:
        d.app.behaviour = always(200, JSON, body=b'{"y": [3]}')
        async with d.call("POST", "/v2/models/chat/infer", json=document) as response:
            assert response.status == 400
            assert words in (await response.json())["error"]


@pytest.mark.parametrize("body", [b"<html>", b'{"z": 1}', b'{"y": [[1]]}', b'{"y": ["a"]}', b"", b'{"y": [1, [2]]}'])
async def test_an_answer_against_the_declaration_is_the_apps_mistake(body: bytes) -> None:
    async with app_door(inputs=[X], outputs=[Y]) as d:
        d.app.behaviour = always(200, JSON, body=body)
        async with d.call("POST", "/v2/models/chat/infer", json=inference_body([1, 2], [1, 2])) as response:
            assert (response.status, response.headers["x-headrace-error"]) == (502, "upstream_bad_response")


async def test_an_app_without_declared_tensors_has_none() -> None:
    async with app_door() as d:
        async with d.call("POST", "/v2/models/chat/infer", json=inference_body([1, 2], [1, 2])) as response:
            assert response.status == 400
            assert "No tensors are declared" in (await response.json())["error"]
        async with d.call("GET", "/v2/models") as response:
            assert await response.json() == {"models": []}
