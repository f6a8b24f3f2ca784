"""Recorded requests, and those of a trace, are sent again to real gateways."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Response
from tests.support.forked import ForkedProcess
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream, whole

SECRET = "the key of this record"
COUNT = 20


def configuration(up: Upstream, **more: Any) -> dict[str, Any]:
    return {
        "pools": [{"name": "main", "endpoints": [up.url]}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **more,
    }


async def send(g: GatewayProcess, key: str, body: dict[str, Any], expected: int = 200) -> None:
    headers = {"authorization": f"Bearer {key}", "cookie": f"session={key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        await response.read()
        assert response.status == expected


async def recorded(folder: Path, up: Upstream) -> str:
    """Record chats, streams, a refused and a stateful request. Returns the key of the client."""
    record = {"to": str(folder / "traffic"), "key": "${RECORD_KEY}", "share": "100%", "answers": True}
    async with gateway(folder, configuration(up, record=record)) as g:
        key = await g.key()
        for number in range(COUNT):
            messages = [{"role": "user", "content": f"question {number}"}]
            await send(g, key, {"model": "chat", "messages": messages, "stream": number % 2 == 1})
        await send(g, key, {"model": "nothing", "messages": messages}, 404)
        await send(g, key, {"model": "chat", "messages": messages, "store": True})
        await g.until_idle()
        assert await g.stop() == 0
    up.received.clear()
    up.headers.clear()
    return key


async def replayed(*arguments: str) -> dict[str, Any]:
    status, out, err = await command("replay", *arguments, "--json")
    assert status == 0, err
    return dict(json.loads(out))


async def test_recorded_requests_are_sent_again_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORD_KEY", SECRET)
    traffic, other = str(tmp_path / "traffic"), tmp_path / "other"
    other.mkdir()
    async with upstream("the same words") as up:
        old_key = await recorded(tmp_path, up)
        async with gateway(other, configuration(up)) as g:
            monkeypatch.setenv("HEADRACE_KEY", await g.key())
            same = await replayed(traffic, "--against", g.url, "--speed", "max", "--concurrency", "4")
            assert (same["sent"], same["not_sent"]) == (COUNT + 1, {"state": 1})
            assert (same["failed"], same["status"]["changed"]) == (1, 0)
            assert (same["body"]["compared"], same["body"]["differing"]) == (COUNT, 0)
            assert same["tokens"]["now"] == same["tokens"]["recorded"] != [0, 0]
            assert set(same["end"]["now"]) == {"p50", "p90", "p99", "max"}
            assert sorted(body["messages"][0]["content"] for body in up.received) == sorted(
                f"question {number}" for number in range(COUNT)
            )
            assert old_key not in str(up.headers)
            assert "session" not in str(up.headers)
            up.text = "another answer"
            differing = await replayed(traffic, "--against", g.url, "--speed", "1000")
            assert (differing["body"]["differing"], differing["body"]["parts"]) == (COUNT, {"text": COUNT})
            monkeypatch.setenv("HEADRACE_KEY", old_key)  # a key of another gateway
            refused = await replayed(traffic, "--against", g.url, "--speed", "max")
            assert refused["status"]["moves"] == {"200 → 401": COUNT, "404 → 401": 1}
        status, out, err = await command("replay", traffic, "--against", g.url, "--speed", "max")
    assert (status, "Traceback" in err) == (0, False)
    assert "ClientConnectorError" in out.replace("\n", "")


async def test_an_interrupt_ends_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORD_KEY", SECRET)
    async with upstream() as up:
        await recorded(tmp_path, up)
        answers = iter(range(3))

        async def slow(_: dict[str, Any]) -> Response:
            if next(answers, None) is None:
                await asyncio.sleep(3600)
            return whole("hello there")

        up.behaviour = slow
        arguments = ("replay", str(tmp_path / "traffic"), "--against", up.url, "--speed", "max", "--json")
        process = await ForkedProcess.start(*arguments, env=os.environ, stdout=True)
        async with asyncio.timeout(300):
            while len(up.received) < COUNT + 1:
                await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
            assert await process.wait() == 130, err
    report = json.loads(out)
    assert report["interrupted"]
    assert report["sent"] + report["cancelled"] == COUNT + 1
    assert report["sent"] <= 3, "an answer may still be on its way at the interrupt"
    assert b"Traceback" not in err


async def test_an_exported_recording_is_a_source_of_arrivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORD_KEY", SECRET)
    async with upstream() as up:
        await recorded(tmp_path, up)
        status, out, err = await command("replay", str(tmp_path / "traffic"), "--export", "mooncake")
        assert status == 0, err
        lines = [json.loads(line) for line in out.splitlines()]
        assert len(lines) == COUNT + 2
        assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)
        assert lines[0]["timestamp"] == 0
        assert lines[0]["output_length"] == 7
        assert all(len(line["hash_ids"]) == -(-line["input_length"] // 512) for line in lines)
        (trace := tmp_path / "trace.jsonl").write_text(out)
        most = busy = 0

        async def counted(_: dict[str, Any]) -> Response:
            nonlocal most, busy
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.01)
            busy -= 1
            return whole("hello there")

        up.behaviour = counted
        options = ("--against", up.url, "--model", "big", "--speed", "max", "--concurrency", "3")
        report = await replayed("--trace", "mooncake", str(trace), *options)
        assert (report["sent"], report["failed"]) == (COUNT + 2, 0)
        assert 1 <= most <= 3
        assert {body["model"] for body in up.received} == {"big"}
        lengths = sorted(line["input_length"] for line in lines)
        sent = sorted(len(body["messages"][0]["content"].split()) for body in up.received)
        assert sent == [max(1, length) for length in lengths]
