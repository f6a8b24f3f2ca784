"""Real gateways record real traffic, and `headrace replay` decides it again."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from adapters.http1.message import Response
from gateway.features.recording.segments import RecordKey, SegmentReader, segments
from gateway.features.replay.records import Records
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream

SECRET = "the key of this record"
PLANTED = "planted.person@example.com"


def configuration(folder: Path, up: dict[str, Upstream], weight: int = 20, workers: int = 1) -> dict[str, Any]:
    (folder / "record.key").write_text(SECRET)
    arms = [{"pool": "main", "weight": 100 - weight}, {"pool": "next", "weight": weight}]
    return {
        "version": 1,
        "workers": workers,
        "record": {
            "to": str(folder / "traffic"), "key": "file:record.key", "share": "100%", "answers": True,
            "redact": ["email"],
        },
        "pools": [
            *({"name": name, "endpoints": [up[name].url], "probe": None} for name in ("main", "next", "broken")),
            {"name": "tensors", "protocol": "oip-http", "endpoints": [up["tensors"].url], "probe": None},
        ],
        "models": [
            {"name": "chat", "routes": [{"split": {"sticky": "user", "arms": arms}}]},
            {"name": "dice", "routes": [{"split": {"arms": arms}}]},
            {"name": "covered", "routes": [{"to": "broken", "fallback": ["main"]}]},
            {"name": "sums", "routes": [{"to": "tensors"}]},
        ],
        "tenants": [
            {"name": "acme", "models": ["*"]},
            {"name": "small", "models": ["chat"], "limits": {"requests": "5/h"}},
        ],
    }  # fmt: skip


async def broken(_: dict[str, Any]) -> Response:
    return Response(500, [], b"{}")


async def summed(body: dict[str, Any]) -> Response:
    output = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.5]}
    answer = {"model_name": "sums", "outputs": [output]}
    return Response(200, [("content-type", "application/json")], json.dumps(answer).encode())


async def traffic(g: GatewayProcess, count: int) -> None:
    """Chats, streams, random arms, tensors, a failover, unknown models, and a tenant over its limit."""
    acme, small = await g.key("acme"), await g.key("small")
    tensors = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}

    async def post(http: aiohttp.ClientSession, path: str, key: str, body: dict[str, Any]) -> int:
        headers = {"authorization": f"Bearer {key}", "cookie": f"session={key}"}
        async with http.post(f"{g.url}{path}", json=body, headers=headers) as response:
            answer = await response.text()
            assert response.status in (200, 404, 429), answer
            return response.status

    async with aiohttp.ClientSession() as http:
        seen = set()
        for number in range(count):
            chat = {"messages": [{"role": "user", "content": f"I am {PLANTED}"}], "user": f"user-{number}"}
            sent = [
                post(http, "/v1/chat/completions", key, {"model": model, **chat, "stream": stream})
                for key, model, stream in (
                    (acme, "chat", False), (acme, "chat", True), (acme, "dice", False), (acme, "covered", True),
                    (acme, "nothing", False), (small, "chat", False), (small, "dice", False),
                )
            ]  # fmt: skip
            seen |= set(await asyncio.gather(*sent, post(http, "/v2/models/sums/infer", acme, tensors)))
        assert seen == {200, 404, 429}


async def replayed(folder: Path, written: dict[str, Any], *options: str) -> tuple[int, dict[str, Any]]:
    file = folder / "new.yaml"
    file.write_text(yaml.safe_dump(written))
    status, out, err = await command("replay", str(folder / "traffic"), "--config", str(file), "--json", *options)
    assert out, err
    return status, json.loads(out)


async def test_recorded_traffic_is_replayed(tmp_path: Path) -> None:
    async with upstream("I am " + PLANTED) as main, upstream() as other, upstream() as bad, upstream() as oip:
        bad.behaviour, oip.behaviour = broken, summed
        up = {"main": main, "next": other, "broken": bad, "tensors": oip}
        written = configuration(tmp_path, up, workers=2)
        count = 60
        async with gateway(tmp_path, written) as g:
            await traffic(g, count)
            await g.until_idle()
            assert await g.stop(signal.SIGTERM) == 0
        records = Records(tmp_path / "traffic", key := RecordKey(SECRET))
        entries = [request.entry for request in records]
        assert len(entries) == 8 * count
        assert all(entry.reproduces for entry in entries)
        assert records.torn == {}
        for path in records.paths:
            for frame in SegmentReader(path, key).frames():
                assert b"planted" not in frame.content
                assert b"user-1" not in frame.content
                assert b"hr-" not in frame.content
        status, same = await replayed(tmp_path, written, "--expect", "changed == 0", "--expect", "cost <= 0%")
        assert (status, same["changed"], same["unmet"]) == (0, 0, [])
        moved = configuration(tmp_path, up, weight=50, workers=2)
        status, report = await replayed(tmp_path, moved, "--expect", "arm <= 5%")
        assert status == 1
        assert report["unmet"]
        split = sum(entry.arm is not None for entry in entries)
        assert 0.1 < report["arm"] / split < 0.5
        assert report["changed"] == report["pool"] == report["arm"]
        assert {(move["from"], move["to"]) for move in report["moves"]} == {("main", "next")}
        written["tenants"][1]["limits"] = {"requests": "20/h"}
        status, report = await replayed(tmp_path, written)
        assert (report["admitted"], report["changed"]) == (15, 15)


async def test_a_killed_gateway_leaves_readable_records(tmp_path: Path) -> None:
    async with upstream() as main, upstream() as oip:
        oip.behaviour = summed
        up = {"main": main, "next": main, "broken": main, "tensors": oip}
        written = configuration(tmp_path, up)
        async with gateway(tmp_path, written) as g:
            await traffic(g, 20)
            async with asyncio.timeout(300):
                while not segments(tmp_path / "traffic") or not _count(tmp_path):  # its key is written before it
                    await asyncio.sleep(0.1)
            await g.stop(signal.SIGKILL)
        assert 0 < _count(tmp_path) <= 160
        status, same = await replayed(tmp_path, written)
        assert (status, same["changed"]) == (0, 0)
        assert "not closed" in same["notes"][-1]


def _count(folder: Path) -> int:
    return sum(1 for _ in Records(folder / "traffic", RecordKey(SECRET)))
