"""docs/behind-a-proxy.md: its nginx file, in a real nginx before two gateways, does what the page promises."""

import asyncio
import io
import json
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import tritonclient.grpc.aio as triton
import yaml

from adapters.http1.message import Response
from tests.support.debian import binary
from tests.support.page_commands import yaml_blocks
from tests.support.processes import GatewayProcess, gateway
from tests.support.tls import make_certificate
from tests.support.upstreams import Events, Upstream, stream, upstream, whole

PAGE = Path("docs/behind-a-proxy.md")
FILE = Path("deploy/nginx/headrace.conf")
NAMES = ("10.0.0.11", "10.0.0.12")
SETTINGS: dict[str, Any] = yaml.safe_load(yaml_blocks(PAGE.read_text())[0])
MIB = 2**20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Nginx:
    """The page's file between a server's own settings, on a free port; `text` may be changed before the start."""

    def __init__(self, folder: Path, gateways: list[GatewayProcess], **replaced: str) -> None:
        self._program = binary("nginx", "nginx-light", "/usr/sbin")
        self._file = folder / "nginx.conf"
        self._folder = folder
        self.port = free_port()
        make_certificate(folder / "tls")
        self.text = FILE.read_text()
        for name, each in zip(NAMES, gateways, strict=True):
            self.text = self.text.replace(f"{name}:8080", each.url.removeprefix("http://"))
            self.text = self.text.replace(f"{name}:8081", each.grpc)
        own = {
            "listen 443": f"listen 127.0.0.1:{self.port}",
            "/etc/nginx/tls/models.pem": str(folder / "tls/cert.pem"),
            "/etc/nginx/tls/models.key": str(folder / "tls/key.pem"),
        }
        for words, mine in (own | replaced).items():
            assert words in self.text
            self.text = self.text.replace(words, mine)
        self._process: asyncio.subprocess.Process | None = None

    def write(self) -> None:
        temporary = "".join(
            f"{kind}_temp_path {self._folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        self._file.write_text(
            f"user root; daemon off; pid {self._folder}/nginx.pid; error_log {self._folder}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary}\n{self.text}}}\n"
        )

    async def start(self) -> None:
        self.write()
        self._process = await asyncio.create_subprocess_exec(
            self._program, "-e", "stderr", "-p", str(self._folder), "-c", str(self._file)
        )
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                except OSError:
                    assert self._process.returncode is None, (self._folder / "error.log").read_text()
                    await asyncio.sleep(0.02)

    async def reload(self) -> None:
        """Until the old processes serve no new connection: nginx then has the new ones only."""
        before = self._workers()
        self.write()
        signal_it = [self._program, "-p", str(self._folder), "-c", str(self._file), "-s", "reload"]
        assert await (await asyncio.create_subprocess_exec(*signal_it)).wait() == 0
        async with asyncio.timeout(60):
            while not (now := self._workers()) or now & before:
                await asyncio.sleep(0.02)

    def _workers(self) -> set[str]:
        """Its processes that accept connections."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
        return {pid for pid, title in titles.items() if b"shutting down" not in title and title}

    async def aclose(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


@dataclass
class Site:
    server: Upstream
    gateways: list[GatewayProcess]
    nginx: Nginx
    key: str
    http: aiohttp.ClientSession

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}", "content-type": "application/json"}

    async def post(self, body: dict[str, Any], **headers: str) -> aiohttp.ClientResponse:
        """The response, whose body is not read yet."""
        return await self.http.post(
            f"https://127.0.0.1:{self.nginx.port}/v1/chat/completions",
            data=io.BytesIO(json.dumps(body).encode()), headers={**self.headers, **headers},
        )  # fmt: skip

    async def chat(self, **fields: Any) -> int:
        response = await self.post(chat(**fields))
        await response.read()
        return response.status

    def logged(self) -> list[dict[str, Any]]:
        logs = (each.config.parent / "access.log" for each in self.gateways)
        return [json.loads(line) for log in logs if log.exists() for line in log.read_text().splitlines()]


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": text}], **fields}


@asynccontextmanager
async def site(folder: Path, *, http: dict[str, Any] | None = None, **replaced: str) -> AsyncIterator[Site]:
    """Two gateways of one database with the page's settings. `http` changes that section, `replaced` nginx' file."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(upstream())
        settings = {
            **SETTINGS,
            "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
            "http": {**SETTINGS["http"], "trusted_proxies": ["127.0.0.1"], **(http or {})},
            "pools": [{"name": "vllm", "endpoints": [server.url]}],
            "state": {"database": f"sqlite:///{folder}/state.db"},
            "auth": {"pepper": "file:../pepper"},
        }
        (folder / "pepper").write_text("0123456789abcdef" * 4)
        gateways = []
        for name in ("one", "two"):
            own = folder / name
            own.mkdir()
            log = {"access_log": {"to": str(own / "access.log")}}
            gateways.append(await stack.enter_async_context(gateway(own, {**settings, **log})))
        key = await gateways[0].key()
        await gateways[1].until_status(key, 200)
        nginx = Nginx(folder, gateways, **replaced)
        stack.push_async_callback(nginx.aclose)
        await nginx.start()
        trusting = ssl.create_default_context(cafile=str(folder / "tls/cert.pem"))
        # A reload of nginx closes idle connections of its clients, whose next requests may meet the close.
        client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting, force_close=True))
        yield Site(server, gateways, nginx, key, await stack.enter_async_context(client))


class Gated(Events):
    """A stream whose second half waits until the client has the first."""

    def __init__(self) -> None:
        super().__init__(["one", "two", "three"], 0)
        self.opened = asyncio.Event()

    async def __anext__(self) -> bytes:
        if len(self._pieces) == 3:
            await self.opened.wait()
        return await super().__anext__()


async def test_a_stream_is_not_buffered_and_its_client_is_logged(tmp_path: Path) -> None:
    gated = Gated()

    async def behaviour(_: dict[str, Any]) -> Response:
        return Response(200, [("content-type", "text/event-stream")], gated)

    async with site(tmp_path) as s:
        s.server.behaviour = behaviour
        response = await s.post(chat(stream=True), **{"x-forwarded-for": "192.0.2.7"})
        assert response.status == 200
        text = b""
        async with asyncio.timeout(300):
            while b"two" not in text:
                text += await response.content.readany()
        gated.opened.set()
        assert b"[DONE]" in text + await response.read()
        async with asyncio.timeout(300):
            while not any(line.get("stream") for line in s.logged()):
                await asyncio.sleep(0.02)
        (line,) = [line for line in s.logged() if line.get("stream")]
        assert line["client"] == "192.0.2.7"  # the test is a client of nginx on a trusted address


async def test_bodies_up_to_the_bound_arrive(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        assert await s.chat(text="a" * (31 * MIB)) == 200
        assert len(s.server.received[-1]["messages"][0]["content"]) == 31 * MIB
        assert await s.chat(text="a" * (33 * MIB)) == 413


@pytest.mark.parametrize(("comments", "status"), [("100ms", 200), (None, 504)])
async def test_comments_keep_a_silent_stream(tmp_path: Path, comments: str | None, status: int) -> None:
    async def behaviour(_: dict[str, Any]) -> Response:
        await asyncio.sleep(3)
        return stream("late")

    http = {"stream_comments": comments} if comments else {}
    async with site(tmp_path, http=http, **{"proxy_read_timeout 600s": "proxy_read_timeout 1s"}) as s:
        if comments is None:
            for each in s.gateways:
                assert yaml.safe_load(each.config.read_text())["http"]["stream_comments"] == "15s"
        s.server.behaviour = behaviour
        response = await s.post(chat(stream=True))
        text = await response.read()
        assert response.status == status
        assert (b"late" in text) is (status == 200)


async def test_http2_and_grpc_of_clients(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        address = f"127.0.0.1:{s.nginx.port}"
        context = ssl.create_default_context(cafile=str(tmp_path / "tls/cert.pem"))
        context.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection("127.0.0.1", s.nginx.port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()
        trusted = grpc.ssl_channel_credentials((tmp_path / "tls/cert.pem").read_bytes())
        async with triton.InferenceServerClient(address, ssl=True, creds=trusted) as client:
            metadata = {"authorization": f"Bearer {s.key}"}
            assert await client.is_server_live(headers=metadata)
            with pytest.raises(triton.InferenceServerException, match="chat"):
                await client.get_model_metadata("chat", headers=metadata)


async def test_the_order_of_a_stop_loses_nothing(tmp_path: Path) -> None:
    """Marked as down in nginx, drained, replaced: first with an open stream, and always under load."""
    gated = Gated()

    async def behaviour(body: dict[str, Any]) -> Response:
        if not body.get("stream"):
            return whole("hi")
        return Response(200, [("content-type", "text/event-stream")], gated)

    async with site(tmp_path) as s:
        s.server.behaviour = behaviour
        response = await s.post(chat(stream=True))
        assert response.status == 200
        await response.content.readany()
        (busy,) = [each for each in s.gateways if (await each.state())["in_flight"]]
        statuses: list[int] = []
        stopped = asyncio.Event()

        async def load() -> None:
            while not stopped.is_set():
                statuses.append(await s.chat())

        clients = [asyncio.create_task(load()) for _ in range(4)]
        host = busy.url.removeprefix("http://")
        s.nginx.text = re.sub(rf"server {host};", f"server {host} down;", s.nginx.text)
        s.nginx.text = re.sub(rf"server {busy.grpc};", f"server {busy.grpc} down;", s.nginx.text)
        await s.nginx.reload()
        stopping = asyncio.create_task(busy.stop())
        await busy.printed("drain")
        before, end = len(statuses), time.monotonic() + 300
        while len(statuses) < before + 50 and time.monotonic() < end:
            await asyncio.sleep(0.02)
        gated.opened.set()
        assert b"[DONE]" in await response.read()
        assert await stopping == 0
        stopped.set()
        await asyncio.gather(*clients)
        assert len(statuses) >= before + 50
        assert set(statuses) == {200}
