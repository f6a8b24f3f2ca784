"""Lines of batches at a provider: another gateway is the provider, over OpenAI's and Anthropic's batch APIs."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from adapters.http1.message import Response
from tests.support.batches import COST, batched, chat_line, client, counts, held, results, submitted, until_ended
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, upstream, whole
from tests.support.usage import reported

pytestmark = pytest.mark.timeout(1800)
PROTOCOLS = ("openai", "anthropic")


@asynccontextmanager
async def middle(url: str, after: Callable[[str], Awaitable[None]]) -> AsyncIterator[str]:
    """A proxy that calls `after` with the path of a POST when the provider has answered with 200."""

    async def forward(request: web.Request) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with (
            ClientSession() as http,
            http.request(request.method, url + str(request.rel_url), headers=headers, data=await request.read()) as r,
        ):
            body, status, kind = await r.read(), r.status, r.content_type
        if request.method == "POST" and status == 200:
            await after(request.path)
        return web.Response(body=body, status=status, content_type=kind)

    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Provider:
    """A gateway that is the provider, the server behind it, and the proxy before it."""

    def __init__(self, up: Upstream, key: str) -> None:
        self.up = up
        self.key = key
        self.url = ""
        self.posts: list[str] = []
        """The paths of all accepted POST requests."""
        self.after: Callable[[str], Awaitable[None]] | None = None

    async def posted(self, path: str) -> None:
        self.posts.append(path)
        if self.after is not None:
            await self.after(path)

    @property
    def batches(self) -> int:
        """The batches that it has accepted."""
        return sum(path.endswith("/batches") for path in self.posts)

    @property
    def cancelled(self) -> int:
        return sum(path.endswith("/cancel") for path in self.posts)


@asynccontextmanager
async def provider(folder: Path, **tenant: Any) -> AsyncIterator[Provider]:
    (folder / "provider").mkdir()
    async with upstream("Hello!") as up:
        settings = batched(up, folder / "provider")
        settings["tenants"] = [{"name": "acme", "models": ["*"], **tenant}]
        async with gateway(folder / "provider", settings) as g:
            made = Provider(up, await g.key())
            async with middle(g.url, made.posted) as made.url:
                yield made


@asynccontextmanager
async def beside(folder: Path, protocol: str, made: Provider) -> AsyncIterator[GatewayProcess]:
    """The gateway whose pool is a provider."""
    (folder / "own").mkdir(exist_ok=True)
    secret = folder / "own" / "provider.key"
    secret.write_text(made.key)
    secret.chmod(0o600)
    pool = {
        "name": "up", "endpoints": [made.url], "protocol": protocol, "key": f"file:{secret}", "probe": None,
        "provider_batches": {"poll": "100ms"},
    }  # fmt: skip
    settings = batched(made.up, folder / "own", pools=[pool])
    settings["batches"]["takeover"] = "2s"
    async with gateway(folder / "own", settings) as g:
        yield g


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_lines_go_to_the_provider_and_live_requests_do_not(tmp_path: Path, protocol: str) -> None:
    async with provider(tmp_path) as far, beside(tmp_path, protocol, far) as g, client(g, await g.key()) as sdk:
        lines = [chat_line(f"line-{i}", f"question {i}", max_tokens=9) for i in range(700)]
        batch = await until_ended(sdk, await submitted(sdk, [*lines, b"{this is not JSON"]))
        assert batch.request_counts == counts(701, 700, 1)
        output = await results(sdk, batch.output_file_id)
        assert sorted(line["custom_id"] for line in output) == sorted(line["custom_id"] for line in lines)
        assert {line["response"]["body"]["choices"][0]["message"]["content"] for line in output} == {"Hello!"}
        assert len(far.up.received) == 700
        assert far.batches == 2  # one of each shard
        _, body = await reported(g, tenant="acme")
        (row,) = body["usage"]
        assert (row["requests"], row["picos"], row["failures"]) == (700, 700 * COST, 0)
        messages: Any = [{"role": "user", "content": "hi"}]
        live = await sdk.chat.completions.create(model="chat", messages=messages)
        assert live.choices[0].message.content == "Hello!"
        assert far.batches == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_lines_that_the_provider_refuses_are_errors(tmp_path: Path, protocol: str) -> None:
    async with provider(tmp_path) as far, beside(tmp_path, protocol, far) as g, client(g, await g.key()) as sdk:

        async def answer(body: dict[str, Any]) -> Response:
            content = body["messages"][0]["content"]
            return Response(400, [], b'{"error": {"message": "no"}}') if content == "bad" else whole(content)

        far.up.behaviour = answer
        lines = [chat_line("a", "good", max_tokens=9), chat_line("b", "bad", max_tokens=9)]
        batch = await until_ended(sdk, await submitted(sdk, lines))
        assert batch.status == "completed"
        (good,), (bad,) = await results(sdk, batch.output_file_id), await results(sdk, batch.error_file_id)
        assert (good["custom_id"], bad["custom_id"]) == ("a", "b")
        assert bad["response"]["status_code"] == 400
        assert "no" in bad["response"]["body"]["error"]["message"]


async def test_the_provider_stops_with_the_batch(tmp_path: Path) -> None:
    """All at the same time: each waits for lines in flight, which do not end."""
    async with asyncio.TaskGroup() as checks:
        for protocol, stop in itertools.product(PROTOCOLS, ("cancel", "expire")):
            folder = tmp_path / f"{protocol}-{stop}"
            folder.mkdir()
            checks.create_task(check_that_the_provider_stops(folder, protocol, stop))


async def check_that_the_provider_stops(folder: Path, protocol: str, stop: str) -> None:
    async with provider(folder) as far, beside(folder, protocol, far) as g, client(g, await g.key()) as sdk:
        release = held(far.up, after=1)
        lines = [chat_line(str(i), max_tokens=9) for i in range(100)]
        window = "24h" if stop == "cancel" else "10s"
        batch = await submitted(sdk, lines, completion_window=window)
        async with asyncio.timeout(300):
            while len(far.up.received) < 2:
                await asyncio.sleep(0.05)
        if stop == "cancel":
            await sdk.batches.cancel(batch.id)
        batch = await until_ended(sdk, batch)
        release.set()
        assert batch.status == ("cancelled" if stop == "cancel" else "expired")
        output, rest = await results(sdk, batch.output_file_id), await results(sdk, batch.error_file_id)
        assert len(output) == 1
        assert sorted(int(line["custom_id"]) for line in (*output, *rest)) == list(range(100))
        assert {line["error"]["code"] for line in rest} == {f"batch_{batch.status}"}
        assert (far.batches, far.cancelled) == (1, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_crash_after_the_submission_submits_nothing_twice(tmp_path: Path, protocol: str) -> None:
    """The gateway dies when the provider has accepted the batch, before the gateway has its id."""
    async with provider(tmp_path) as far:
        running: list[GatewayProcess] = []
        killed, forever = asyncio.Event(), asyncio.Event()

        async def after(path: str) -> None:
            if path.endswith("/batches") and not killed.is_set():
                running[0].process.send_signal(signal.SIGKILL)
                killed.set()
                await forever.wait()

        far.after = after
        async with beside(tmp_path, protocol, far) as g:
            running.append(g)
            key = await g.key()
            async with client(g, key) as sdk:
                batch = await submitted(sdk, [chat_line(str(i), f"q {i}", max_tokens=9) for i in range(50)])
            await killed.wait()
            await g.stop(signal.SIGKILL)
        async with beside(tmp_path, protocol, far) as g, client(g, key) as sdk:
            batch = await until_ended(sdk, batch)
            assert batch.request_counts == counts(50, 50, 0)
            assert far.batches == 1
            assert len(far.up.received) == 50
            _, body = await reported(g, tenant="acme")
            (row,) = body["usage"]
            assert (row["requests"], row["picos"]) == (50, 50 * COST)
        forever.set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_lost_response_submits_nothing_twice(tmp_path: Path, protocol: str) -> None:
    async with provider(tmp_path) as far, beside(tmp_path, protocol, far) as g, client(g, await g.key()) as sdk:

        async def after(path: str) -> None:
            if path.endswith("/batches") and far.batches == 1:
                raise web.HTTPBadGateway

        far.after = after
        batch = await until_ended(sdk, await submitted(sdk, [chat_line(str(i), max_tokens=9) for i in range(20)]))
        assert batch.status == "completed"
        assert len(await results(sdk, batch.output_file_id)) == 20
        assert far.batches == 1
        assert len(far.up.received) == 20


async def test_a_full_provider_receives_the_lines_later(tmp_path: Path) -> None:
    """Its limit of enqueued tokens fails whole batches; nothing is an error before the window ends."""
    async with (
        provider(tmp_path, batches={"enqueued_tokens": 1}) as far,
        beside(tmp_path, "openai", far) as g,
        client(g, await g.key()) as sdk,
    ):
        lines = [chat_line(str(i), "many words " * 9) for i in range(5)]
        batch = await until_ended(sdk, await submitted(sdk, lines, completion_window="8s"))
        assert batch.status == "expired"
        rest = await results(sdk, batch.error_file_id)
        assert {line["error"]["code"] for line in rest} == {"batch_expired"}
        assert far.batches == 1
        assert far.up.received == []
