"""Failures that users of other gateways reported, against a real gateway. tests/FAILURES.md lists them all."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from adapters.http1.message import Response
from tests.support.processes import gateway
from tests.support.upstreams import stream, upstream, whole

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


def configuration(*pools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A model for each pool, the first one is `chat`."""
    names = ["chat", *(pool["name"] for pool in pools[1:])]
    models = [{"name": name, "routes": [{"to": pool["name"]}]} for name, pool in zip(names, pools, strict=True)]
    return {"pools": list(pools), "models": models, "tenants": [{"name": "acme", "models": ["*"]}], **changes}


async def test_a_thousand_streams_at_once_are_whole(tmp_path: Path) -> None:
    """Reported elsewhere: a crash at a thousand clients, caused by a default connection pool of a hundred."""
    words = [f"w{i}" for i in range(5)]
    begun = 0

    async def together(body: object) -> Response:
        nonlocal begun
        begun += 1
        if begun == 1000:
            gate.set()
        await gate.wait()
        return stream(" ".join(words))

    gate = asyncio.Event()
    async with upstream() as up:
        up.behaviour = together
        pool = {"name": "up", "endpoints": [up.url], "max_connections": 1000}
        async with gateway(tmp_path, configuration(pool)) as g:
            headers = {"authorization": f"Bearer {await g.key()}"}
            connector = aiohttp.TCPConnector(limit=0)

            async def one(http: aiohttp.ClientSession) -> list[str]:
                body = {**CHAT, "stream": True}
                async with http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
                    return [e.removeprefix("data: ") for e in (await response.text()).split("\n\n") if e]

            async with aiohttp.ClientSession(connector=connector) as http:
                answers = await asyncio.gather(*(one(http) for _ in range(1000)))
            await g.until_idle()
    for events in answers:
        assert events[-1] == "[DONE]"
        text = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])
        assert text.split() == words


async def test_a_pool_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Elsewhere: one server without an answer, and every request of the gateway hung with it."""

    async def hang(body: object) -> Response:
        await gate.wait()
        return whole("late")

    gate = asyncio.Event()
    async with upstream() as bad, upstream("here") as good:
        bad.behaviour = hang
        pools = [{"name": "hung", "endpoints": [bad.url]}, {"name": "good", "endpoints": [good.url]}]
        async with gateway(tmp_path, configuration(*pools)) as g:
            key = await g.key()
            hanging = [asyncio.create_task(g.chat(key)) for _ in range(50)]
            await g.until("s['in_flight'] == 50")
            for _ in range(20):
                async with asyncio.timeout(300):
                    status, answer = await g.chat(key, model="good")
                assert (status, answer["choices"][0]["message"]["content"]) == (200, "here")
            assert (await g.administer("GET", "/readyz"))[0] == 200
            gate.set()
            assert [status for status, _ in await asyncio.gather(*hanging)] == [200] * 50


async def test_headers_of_a_server_are_not_forwarded_and_none_is_doubled(tmp_path: Path) -> None:
    """Elsewhere: two `Server` headers, the length of another body, and fields of one hop sent on to the next."""
    theirs = [
        ("server", "uvicorn"), ("date", "Mon, 01 Jan 2001 00:00:00 GMT"), ("connection", "x-secret"),
        ("x-secret", "1"), ("set-cookie", "a=b"), ("keep-alive", "timeout=1"), ("te", "trailers"), ("via", "1.1 up"),
        ("content-encoding", "identity"), ("access-control-allow-origin", "*"), ("x-ratelimit-remaining-tokens", "7"),
    ]  # fmt: skip

    async def talkative(body: dict[str, Any]) -> Response:
        made = stream("a b") if body.get("stream") else whole("a b")
        return Response(made.status, [*made.headers, *theirs], made.body)

    async with upstream() as up:
        up.behaviour = talkative
        async with gateway(tmp_path, configuration({"name": "up", "endpoints": [up.url]})) as g:
            headers = {"authorization": f"Bearer {await g.key()}"}
            async with aiohttp.ClientSession() as http:
                for streamed in (False, True):
                    body = {**CHAT, "stream": streamed}
                    async with http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
                        names = [name.decode().lower() for name, _ in response.raw_headers]
                        size = len(await response.read())
                    assert len(names) == len(set(names)), names
                    allowed = {"content-type", "date", "transfer-encoding", "content-length", "cache-control"}
                    allowed |= {"x-request-id", "x-accel-buffering"}
                    assert {n for n in names if not n.startswith("x-headrace-")} <= allowed
                    assert response.headers["date"] != theirs[1][1]
                    assert streamed or int(response.headers["content-length"]) == size
