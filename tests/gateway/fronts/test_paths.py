"""Paths of apps through every door, to a server that records the bytes of each request line."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapters.errors import BackendError
from adapters.http1.client import Client
from adapters.http1.server import Limits, Server
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.status import Code, GrpcError
from adapters.upstreams.apps.http_app import HttpAppAdapter
from adapters.upstreams.oip.http_client import OipHttpAdapter
from config.schema.config import HttpConfig
from config.schema.protocols.apps import HttpProtocol
from gateway.fronts.errors import openai_refusal
from gateway.fronts.grpc.listener import grpc_server
from gateway.process.client_fronts import client_fronts
from tests.gateway.fronts.oip import INFER_BODY
from tests.support.doors import Before
from tests.support.gateways import Rig, config

BASE = b"/public/base"
PIECES = [
    "/", "/", ".", "..", "..;", ";", "a", "admin", "secret", "%2e", "%2E%2e", "%2f", "%5c", "\\", "%25", "%252e", "%00",
    "%3b", "%c0%ae", " ", "\t", "?", "?q=1", "#", "é", "~", " HTTP/1.1", "/../../admin/secret", "svc.Name/Method",
]  # fmt: skip
PATHS = ["/base/../../admin/secret", "/%2e%2e/x", "/a?b", "/a b", "/a HTTP/1.1", "/..;/y", "/a/..;x=1/y"]


class Recorder:
    """A server that answers everything with an empty object and keeps the request lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.lines.append(head.partition(b"\r\n")[0])
                length = re.search(rb"content-length: (\d+)", head.lower())
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    def check(self) -> None:
        """Every request line has three parts, and its target stays below the base, however it is read."""
        for line in self.lines:
            _, target, version = line.split(b" ")
            assert version == b"HTTP/1.1"
            assert target.startswith(BASE)
            path = target.partition(b"?")[0]
            assert not re.search(rb"(^|/)\.{0,2}(;[^/]*)?/", path.removeprefix(BASE)[1:]), line
            assert not re.search(rb"(?i)%(2e|2f|5c|25|3b|c0)|[\\#]|/\.\.?$", path), line


class Doors:
    def __init__(self, rig: Rig, recorder: Recorder, http: int, grpc: int) -> None:
        self.recorder = recorder
        self._key = f"Bearer {rig.key.plaintext}"
        self._http = http
        self._grpc = grpc

    async def over_http(self, target: str, body: bytes = b"") -> bytes:
        """Raw bytes, as no client library sends them; the status line."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._http)
        head = f"POST {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\nauthorization: {self._key}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n")[0]

    async def over_grpc(self, paths: list[str]) -> list[GrpcError | BackendError | None]:
        channel = Channel(f"http://127.0.0.1:{self._grpc}")
        fields = encode_fields([("authorization", self._key), ("application", "app")])
        ends: list[GrpcError | BackendError | None] = []
        try:
            for path in paths:
                try:
                    await channel.request(path.encode(), b"", fields)
                    ends.append(None)
                except (GrpcError, BackendError) as error:  # a malformed head is the end of its stream
                    ends.append(error)
        finally:
            await channel.aclose()
        return ends


@asynccontextmanager
async def doors() -> AsyncIterator[Doors]:
    recorder = Recorder()
    upstream = await asyncio.start_server(recorder, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}{BASE.decode()}"
    apps = HttpAppAdapter(Client(url), HttpProtocol.model_validate({"name": "http"}))
    tensors = OipHttpAdapter(Client(url))
    pools = [
        {"name": "apps", "protocol": "http", "endpoints": [url]},
        {"name": "tensors", "protocol": "oip-http", "endpoints": [url]},
    ]
    models = [{"name": "app", "routes": [{"to": "apps"}]}, {"name": "*", "routes": [{"to": "tensors"}]}]
    rig = Rig(config(pools=pools, models=models), {"apps": [Before(apps)], "tensors": [Before(tensors)]})
    fronts = client_fronts(rig.core)
    server = Server(fronts, Limits(), openai_refusal)
    grpc = grpc_server(fronts.door, lambda: True, HttpConfig())
    try:
        _, http_port = await server.listen_tcp("127.0.0.1", 0)
        _, grpc_port = await grpc.listen_tcp("127.0.0.1", 0)
        yield Doors(rig, recorder, http_port, grpc_port)
        await rig.until_idle()
    finally:
        await server.aclose()
        await grpc.aclose()
        await apps.aclose()
        await tensors.aclose()
        upstream.close()
    rig.assert_idle()
    recorder.check()


def paths(rng: random.Random, count: int) -> list[str]:
    return PATHS + ["/" + "".join(rng.choices(PIECES, k=rng.randrange(1, 6))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
async def test_no_path_of_a_client_leaves_the_app_s_root(seed: int) -> None:
    rng = random.Random(seed)
    async with doors() as d:
        for path in paths(rng, 100):
            status = await d.over_http(f"/apps/app{path}")
            assert re.match(rb"HTTP/1.1 (200|4\d\d) ", status), path
        tried = [*paths(rng, 100), "/svc.Name/Method", "relative"]
        for path, end in zip(tried, await d.over_grpc(tried), strict=True):
            assert not isinstance(end, GrpcError) or end.code in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED), (
                path,
                end,
            )
        assert any(b"/svc.Name/Method " in line for line in d.recorder.lines)


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_of_an_attack_reaches_no_server(path: str) -> None:
    async with doors() as d:
        if "?" not in path:  # over HTTP it begins a query
            assert (await d.over_http(f"/apps/app{path}")).startswith(b"HTTP/1.1 400 ")
        [end] = await d.over_grpc([path])
        assert isinstance(end, GrpcError)
        assert end.code == Code.INVALID_ARGUMENT
        assert d.recorder.lines == []


@pytest.mark.parametrize("seed", range(3))
async def test_no_name_of_a_model_or_a_version_leaves_the_model_s_path(seed: int) -> None:
    rng = random.Random(seed)
    encode = str.maketrans({letter: f"%{ord(letter):02x}" for letter in "/\\?#%; "})
    async with doors() as d:
        for name in paths(rng, 60):
            written = name.removeprefix("/").translate(encode)
            body = str(INFER_BODY).replace("'", '"').encode()
            for target in (f"/v2/models/{written}/infer", f"/v2/models/ok/versions/{written}/infer"):
                assert re.match(rb"HTTP/1.1 (200|4\d\d|502) ", await d.over_http(target, body)), target
        for line in d.recorder.lines:
            assert re.match(rb"\w+ /public/base/v2/models/[^/]+(/versions/[^/]+)?(/infer)? ", line), line
