"""Every file of the corpus against every server of ours, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.http1.server import Limits, Server
from tests.hostile.corpus.__main__ import replay
from tests.hostile.corpus.cases import CANARY, Case, cases
from tests.hostile.corpus.over_http1 import judge as judge_http1
from tests.hostile.corpus.over_http2 import Frames
from tests.hostile.corpus.over_http2 import judge as judge_http2
from tests.support.processes import gateway
from tests.support.tensor_runtime import tensor_runtime

pytestmark = [pytest.mark.timeout(1800)]


async def holds(protocol: str, address: str) -> None:
    host, _, port = address.rpartition("//")[2].rpartition(":")
    assert await replay(protocol, host, int(port)) == {}


@pytest.mark.processes
async def test_the_gateway(tmp_path: Path) -> None:
    """Its data listener serves HTTP/1.1 and HTTP/2, another one gRPC."""
    configuration: dict[str, Any] = {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [{"name": "up", "endpoints": ["http://127.0.0.1:9"], "probe": None}],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as g:
        await holds("http1", g.url)
        await holds("http2", g.url)
        await holds("http2", g.grpc)
        await g.until_idle()
        assert "Traceback" not in g.output


@pytest.mark.processes
async def test_the_tensor_runtime(tmp_path: Path) -> None:
    with tensor_runtime("--repository", str(tmp_path)) as runtime:
        await holds("http1", runtime.http)
        await holds("http2", runtime.grpc)


@pytest.mark.processes
async def test_the_llm_runtime() -> None:
    """Before its model has been loaded: no case gets as far as a model."""
    from runtimes.llm import service
    from runtimes.llm.api import server as app
    from runtimes.llm.api.http_bodies import refusal

    server = Server(app.App("m"), Limits(max_body=service.MAX_BODY), refusal)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        await holds("http1", f"{host}:{port}")
    finally:
        await server.aclose()


@asynccontextmanager
async def careless(answer: bytes) -> AsyncIterator[tuple[str, int]]:
    """A server that sends one answer to any input and reads on."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(answer * data.count(b"HTTP/1.1\r\n"))
            if CANARY in data:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


async def test_a_careless_server_fails() -> None:
    async with careless(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (host, port):
        failed = await replay("http1", host, port)
    refused = {case.id for case in cases("http1") if case.expect == "refused"}
    assert refused <= set(failed)


ONE = Case("file", "name", "why", b"", "refused", status=400)


@pytest.mark.parametrize(
    ("case", "statuses", "passes"),
    [
        (ONE, [400], True), (ONE, [501], False), (ONE, [200], False), (ONE, [400, 404], False), (ONE, [], False),
        (Case("f", "n", "w", b"", "refused", status=400, in_body=True), [404], True),
        (Case("f", "n", "w", b"", "answered"), [404, 404], True),
        (Case("f", "n", "w", b"", "answered"), [404], False), (Case("f", "n", "w", b"", "last"), [200], True),
    ],
)  # fmt: skip
def test_verdicts_over_http1(case: Case, statuses: list[int], passes: bool) -> None:
    assert (judge_http1(case, statuses) == "") == passes


@pytest.mark.parametrize(
    ("expect", "seen", "passes"),
    [
        ("connection", Frames(goaway=1, closed=True), True),
        ("connection", Frames(heads={1: {":status": "200"}}), False),
        ("stream", Frames(resets={1: 1}), True), ("stream", Frames(heads={1: {":status": "400"}}), True),
        ("stream", Frames(heads={1: {":status": "200"}}), False),
        ("answered", Frames(heads={1: {":status": "404"}}), True),
        ("answered", Frames(resets={1: 1}), False), ("answered", Frames(goaway=1, closed=True), False),
    ],
)  # fmt: skip
def test_verdicts_over_http2(expect: str, seen: Frames, passes: bool) -> None:
    assert (judge_http2(Case("f", "n", "w", b"", expect), seen) == "") == passes


@pytest.mark.parametrize(
    ("protocol", "least", "expectations"),
    [("http1", 90, {"refused", "answered", "last"}), ("http2", 40, {"connection", "stream", "answered"})],
)
def test_every_case_is_whole(protocol: str, least: int, expectations: set[str]) -> None:
    """Each has a reason and an expectation that the runner knows, and a name and bytes of its own."""
    loaded = cases(protocol)
    assert len(loaded) >= least
    assert len({case.id for case in loaded}) == len({case.sent for case in loaded}) == len(loaded)
    assert all(case.why and case.sent and case.expect in expectations for case in loaded)
