"""Proxies to servers: which one applies, and how it is used."""

import asyncio
import base64
import importlib
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pydantic import ValidationError

from adapters.errors import BackendError, TransportError
from adapters.http1.client import Client
from adapters.http1.proxy import Proxy, proxy_of
from adapters.registry import Address
from adapters.types import Deadline
from adapters.upstreams.dial import fields_of, max_age, plain_client
from config.schema.config import PoolConfig
from config.schema.protocols.egress import ProxyConfig
from tests.adapters.http1.scripted import OK, Peer, ReceivedRequest, Upstream, scripted
from tests.support.gateways import config
from tests.support.tls import client_side, make_certificate, server_side

brotli: Any = importlib.import_module("brotli")  # which has no types
OUT = {"HTTPS_PROXY": "http://out:3128", "HTTP_PROXY": "http://plain:3128"}
PUBLIC, PLAIN = "https://api.openai.com/v1", "http://api.example.com:8000"
SECURE, OPEN = Proxy("out", 3128), Proxy("plain", 3128)
USER = b"proxy-authorization: Basic %b\r\n" % base64.b64encode(b"ann:p@ss")


@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        (PUBLIC, {}, None),
        (PUBLIC, OUT, SECURE),
        (PLAIN, OUT, OPEN),
        (PLAIN, {"HTTPS_PROXY": "http://out:3128"}, None),
        (PUBLIC, {"ALL_PROXY": "out:3128"}, SECURE),
        (PUBLIC, {**OUT, "https_proxy": "http://ann:p%40ss@lower"}, Proxy("lower", 80, USER)),
        (PUBLIC, {"HTTPS_PROXY": "socks5://out:1080"}, None),
        # NO_PROXY, by curl's rules.
        (PUBLIC, {**OUT, "NO_PROXY": "*"}, None),
        (PUBLIC, {**OUT, "NO_PROXY": "x, openai.com"}, None),
        (PUBLIC, {**OUT, "no_proxy": ".openai.com"}, None),
        (PUBLIC, {**OUT, "NO_PROXY": "api.openai.com."}, None),
        (PUBLIC, {**OUT, "NO_PROXY": "ai.com,penai.com"}, SECURE),
        (PUBLIC, {**OUT, "NO_PROXY": "*.openai.com"}, None),
        (PUBLIC, {**OUT, "NO_PROXY": "api.openai.com:443"}, None),
        (PUBLIC, {**OUT, "NO_PROXY": "api.openai.com:80"}, SECURE),
        ("https://[2600::1]:8443", {**OUT, "NO_PROXY": "[2600::1]:8443"}, None),
        ("https://[2600::1]:8443", {**OUT, "NO_PROXY": "2600::1"}, None),
        ("https://8.8.8.8", {**OUT, "NO_PROXY": "8.8.0.0/16"}, None),
        ("https://8.8.8.8", {**OUT, "NO_PROXY": "8.8.8.8"}, None),
        ("https://8.8.8.8", {**OUT, "NO_PROXY": "8.8"}, SECURE),
        ("https://[2600::1]:8443", {**OUT, "NO_PROXY": "[2600::1]"}, None),
        # Internal hosts need no proxy, and no entry.
        *[
            (f"{scheme}://{host}:8000", OUT, None)
            for scheme in ("http", "https")
            for host in (
                "localhost", "127.0.0.1", "[::1]", "10.0.0.5", "172.16.9.1", "192.168.1.2", "169.254.1.1", "[fd00::1]",
                "vllm", "triton.models.svc", "triton.models.svc.cluster.local", "gpu.corp.internal", "a.localhost",
            )
        ],
        ("unix:/run/server.sock", OUT, None),
    ],
)  # fmt: skip
def test_the_proxy_of_the_environment(url: str, variables: dict[str, str], expected: Proxy | None) -> None:
    assert proxy_of(None, url, variables) == expected
    assert proxy_of(ProxyConfig.model_validate("direct"), url, OUT) is None
    own = ProxyConfig.model_validate({"url": "http://own:8080", "user": "ann:p@ss"})
    assert proxy_of(own, url, variables) == Proxy("own", 8080, USER)


def pool(**fields: Any) -> PoolConfig:
    (made,) = config(pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], **fields}]).pools
    return made


async def whole(client: Client) -> bytes:
    deadline = Deadline(client.now() + 10.0, 10.0, 10.0)
    try:
        return await (await client.request(b"POST", b"/v1/x", b"", b"{}", deadline)).read()
    finally:
        await client.aclose()


def reply(received: list[ReceivedRequest]) -> Callable[[Peer], Any]:
    async def play(peer: Peer) -> None:
        while True:
            received.append(await peer.request())
            peer.send(OK)

    return play


async def test_a_request_over_http_reaches_the_proxy_in_absolute_form() -> None:
    received: list[ReceivedRequest] = []
    async with scripted(reply(received)) as proxy:
        section = {"url": proxy.url, "user": "ann:p@ss"}
        client = plain_client(pool(proxy=section), Address("http://vllm.corp:8000/base"))
        assert await whole(client) == b"ok"
    assert received[0].line == "POST http://vllm.corp:8000/v1/x HTTP/1.1"
    assert received[0].headers["host"] == "vllm.corp:8000"
    assert f"proxy-authorization: {received[0].headers['proxy-authorization']}\r\n".encode() == USER


async def test_a_request_over_https_goes_through_a_tunnel(tmp_path: Path) -> None:
    """The proxy resolves the name, and sees neither the request nor the pool's key."""
    folder = make_certificate(tmp_path / "tls", "llm.corp.test")
    received: list[ReceivedRequest] = []
    heads: list[bytes] = []
    async with scripted(reply(received), tls=server_side(folder)) as server:

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            inner, outer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n")
            await asyncio.gather(copy(reader, outer), copy(inner, writer))

        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        listener = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        section = {"url": f"http://127.0.0.1:{port}", "user": "ann:p@ss"}
        client = plain_client(
            pool(proxy=section, key="k"), Address("https://llm.corp.test/v1", tls=client_side(folder))
        )
        assert await whole(client) == b"ok"
        listener.close()
    assert heads == [b"CONNECT llm.corp.test:443 HTTP/1.1\r\nhost: llm.corp.test:443\r\n" + USER + b"\r\n"]
    assert received[0].line == "POST /v1/x HTTP/1.1"
    assert received[0].headers["authorization"] == "Bearer k"
    assert "proxy-authorization" not in received[0].headers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required"),
        (b"HTTP/1.1 502 Bad Gateway\r\nx: y\r\n\r\n", "502 Bad Gateway"),
        (b"", "CONNECT was answered with ''"),
        (b"oops\r\n\r\n", "oops"),
        (b"HTTP/1.1 200\r\n" + b"a" * 20_000, "HTTP/1.1 200"),
    ],
)
async def test_a_proxy_that_refuses_is_named_in_the_log(answer: bytes, reason: str) -> None:
    async def play(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.send(answer)

    async with scripted(play) as proxy:
        client = plain_client(pool(proxy=proxy.url), Address("https://llm.corp.test"))
        with pytest.raises(TransportError) as caught:
            await whole(client)
    assert not caught.value.delivered
    assert str(proxy.port) not in caught.value.message
    assert caught.value.detail.startswith(f"by the proxy 127.0.0.1:{proxy.port}: ")
    assert reason in caught.value.detail


async def test_the_log_has_the_reason_why_a_server_is_not_reached() -> None:
    async with scripted(reply([])) as gone:
        url = gone.url
    with pytest.raises(TransportError) as caught:
        await whole(plain_client(pool(), Address(url)))
    assert "refused" in caught.value.detail.lower() or "connect" in caught.value.detail.lower()


def test_header_fields_of_a_pool() -> None:
    headers = [
        {"name": "HTTP-Referer", "value": "https://a.example"},
        {"name": "CF-Access-Client-Secret", "secret": "s"},
    ]
    assert fields_of(pool(headers=headers, key="k")) == [
        ("http-referer", "https://a.example"), ("cf-access-client-secret", "s"), ("authorization", "Bearer k"),
    ]  # fmt: skip
    assert "s'" not in repr(pool(headers=headers).headers)


@pytest.mark.parametrize(
    "fields",
    [
        *[
            {"headers": [{"name": name, "value": "x"}]}
            for name in ("Host", "Content-Length", "authorization", "transfer-encoding", "X-Request-Id", "a b", "a:")
        ],
        {"headers": [{"name": "a", "value": "x\r\ny: z"}]},
        {"headers": [{"name": "a"}]},
        {"headers": [{"name": "a", "value": "x", "secret": "y"}]},
        {"headers": [{"name": "a", "value": "x"}, {"name": "A", "value": "y"}]},
        {"headers": [{"name": "api-key", "value": "x"}], "key": "k", "key_header": "Api-Key"},
        {"proxy": "https://proxy:1"},
        {"proxy": "http://user@proxy:1"},
        {"proxy": "http://proxy:1", "protocol": "oip-grpc"},
        {"proxy": "http://proxy:1", "endpoints": ["unix:/run/x"]},
    ],
)
def test_a_way_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PoolConfig.model_validate({"name": "main", "endpoints": ["http://127.0.0.1:9"], **fields})


# ── a name that gets another address, and answers in codings that nobody requested ────────────────────────


def resolves(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    """Let every name have the last of these addresses."""
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def to_the_last(host: Any, port: Any, **more: Any) -> Any:
        return await resolve(addresses[-1], port, **more)

    monkeypatch.setattr(loop, "getaddrinfo", to_the_last)


async def test_a_new_address_of_a_name_takes_effect_without_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that has begun ends where it began, and the next requests reach the new server."""
    served: list[str] = []
    ends = asyncio.Event()

    async def old(peer: Peer) -> None:
        while True:
            received = await peer.request()
            served.append("old")
            if received.line.startswith("POST /stream"):
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbe")
                await ends.wait()
                peer.send(b"st")
            else:
                peer.send(OK)

    async def new(peer: Peer) -> None:
        while True:
            await peer.request()
            served.append("new")
            peer.send(OK)

    addresses = ["127.0.0.1"]
    async with scripted(old) as before:
        listener = Upstream(new)
        server = await asyncio.start_server(listener.met, "127.0.0.2", before.port)
        resolves(monkeypatch, addresses)
        client = plain_client(pool(), Address(f"http://api.example.com:{before.port}"))
        deadline = Deadline(client.now() + 1000.0, 1000.0, 1000.0)
        stream = await client.request(b"POST", b"/stream", b"", b"", deadline)
        assert await (await client.request(b"POST", b"/x", b"", b"", deadline)).read() == b"ok"
        addresses.append("127.0.0.2")
        begun = client.now()
        while "new" not in served:  # without the age, a connection that is used has no end
            await asyncio.sleep(30.0)
            assert await (await client.request(b"POST", b"/x", b"", b"", deadline)).read() == b"ok"
        assert 240.0 <= client.now() - begun <= 330.0
        await asyncio.sleep(max(0.0, begun + 300.0 - client.now()))  # each connection draws its own age, up to this
        ends.set()
        assert await stream.read() == b"best"
        assert client.connections == 1  # that of the stream was too old to be used again
        await client.aclose()
        server.close()
        await listener.aclose()
    assert served == ["old"] * served.count("old") + ["new"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "unix:/run/x"])
def test_an_address_is_connected_to_as_long_as_it_is_used(url: str) -> None:
    assert max_age(pool(), url) is None
    assert max_age(pool(), "https://api.example.com") == 300.0


def packed_by(coding: str, pieces: list[bytes]) -> list[bytes]:
    """Pieces, each flushed, so that a reader can decode it before the next."""
    if coding == "br":
        encoder = brotli.Compressor(quality=5)
        made = [encoder.process(piece) + encoder.flush() for piece in pieces]
        return [*made, encoder.finish()]
    if coding == "zstd":
        zstd = zstandard.ZstdCompressor(write_checksum=True).compressobj()
        flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return [*[zstd.compress(piece) + zstd.flush(flush) for piece in pieces], zstd.flush()]
    deflate = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    return [*[deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH) for piece in pieces], deflate.flush()]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_a_compressed_stream_is_decoded_piece_by_piece(coding: str) -> None:
    """The next event is sent when the one before has been read: no decoder waits for more."""
    events = [b"data: %d %b\n\n" % (number, b"x" * 7 * number) for number in range(20)]
    pieces = packed_by(coding, events)
    goes_on = asyncio.Semaphore(0)

    async def play(peer: Peer) -> None:
        assert (await peer.request()).headers["accept-encoding"] == "identity"
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: %b\r\n\r\n" % coding.encode())
        for piece in pieces:
            for part in (piece[:3], piece[3:]):
                if part:
                    peer.send(b"%x\r\n%b\r\n" % (len(part), part))
            await goes_on.acquire()
        peer.send(b"0\r\n\r\n")

    async with scripted(play) as upstream:
        client = plain_client(pool(), Address(upstream.url))
        response = await client.request(b"POST", b"/", b"", b"", Deadline(client.now() + 10.0, 10.0, 10.0))
        assert "content-encoding" not in response.headers
        for event in events:
            text = b""
            while len(text) < len(event):
                text += await response.piece()
            assert text == event
            goes_on.release()
        goes_on.release()
        assert await response.piece() == b""
        await client.aclose()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "more", "changed", "bomb"])
async def test_a_compressed_answer_that_is_damaged_fails(coding: str, damage: str) -> None:
    body = bytes(40 * 1024 * 1024) if damage == "bomb" else random.Random(1).randbytes(2000).hex().encode()
    data = b"".join(packed_by(coding, [body]))
    if damage == "cut":
        data = data[:-9]
    elif damage == "more":
        data += b"more"
    elif damage == "changed":
        data = data[:50] + bytes(60) + data[110:]

    async def play(peer: Peer) -> None:
        await peer.request()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Encoding: %b\r\n\r\n"
        peer.send(head % (len(data), coding.encode()) + data)
        await peer.left()

    async with scripted(play) as upstream:
        client = plain_client(pool(), Address(upstream.url))
        with pytest.raises(BackendError):
            await whole(client)
